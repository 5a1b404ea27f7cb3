// The learning machine: a game against it, and a school for a copy of it.
import { $, act, make, model, problem, svg } from './app.js';

let state, room = null, mine = true, busy = false, last = null;
const mode = () => document.querySelector('input[name="mode"]:checked').value;

for (const input of document.querySelectorAll('input[name="mode"]')) input.addEventListener('change', enter);
$('begin').addEventListener('click', () => begin(true));
$('second').addEventListener('click', () => begin(false));
enter();

async function enter() {
  const school = mode() === 'school';
  $('school').hidden = !school;
  $('mechanic').hidden = school; // the schoolmaster is shown nothing inside
  if (school && !room) {
    await doing(async () => {
      const found = await act('school', {});
      room = found.room;
      marks(found);
    });
  }
  await begin(true);
}

async function doing(work) {
  if (busy) return;
  busy = true;
  problem('');
  try {
    await work();
  } catch (error) {
    problem(error.message);
    if (error.message.includes('school has closed')) room = null;
  }
  busy = false;
  draw();
}

const inRoom = () => (mode() === 'school' ? room : null);

async function begin(first) {
  await doing(async () => {
    state = await act('start', {});
    last = null;
    mine = true;
    $('memories').replaceChildren();
    $('against').replaceChildren(...state.opponents.map((name) => make('option', { value: name }, name)));
    $('turn').textContent = 'Your move.';
    if (!first) take(await act('move', { board: state.board, move: null, room: inRoom() }));
  });
}

async function play(move) {
  await doing(async () => take(await act('move', { board: state.board, move, room: inRoom() })));
}

function take(found) {
  const side = state.side, opponents = state.opponents;
  state = { ...found, side, opponents };
  last = found.machine_move ?? null;
  if (found.over) {
    const won = found.result > 0;
    $('turn').textContent = found.result === 0 ? 'A draw.' : (won ? 'The machine has won.' : 'You have won.');
    if (mode() === 'school') $('turn').textContent += ' Press a key, so that it learns from this.';
  } else {
    $('turn').textContent = `The machine played ${found.machine}. Your move.`;
  }
  if (found.memories) $('memories').replaceChildren(...(found.memories.length ? found.memories : ['No memory voted: it chose by its tape.']).map((text) => make('li', {}, text)));
}

// Boards. The player to move sees his own men as 1; over, it is whose turn it would have been.
function draw() {
  if (!state) return;
  const board = $('board');
  const legal = new Map(state.over ? [] : state.legal.map((each) => [each.name, each.move]));
  const game = model.dataset.game;
  board.className = `board ${game}`;
  if (game === 'nim' || !state.side) return drawNim(board, legal);
  const side = state.side, men = state.board.slice(0, side * side);
  // After an odd number of moves by the machine it is the visitor who is to move: his men are 1, unless the game ended by his own move.
  const own = state.over && state.machine === null ? -1 : 1;
  board.style.gridTemplateColumns = `repeat(${side}, max-content)`;
  const cells = men.map((man, n) => {
    const name = game === 'go' ? `${'abcdefg'[n % side]}${Math.floor(n / side) + 1}` : String(n + 1);
    const who = man === 0 ? 'empty' : man === own ? 'you' : 'the machine';
    const cell = make('button', { type: 'button', 'aria-label': `${name}, ${who}` }, man === 0 ? '' : game === 'go' ? '●' : man === own ? 'X' : 'O');
    if (man && game === 'go') cell.classList.add(man === own ? 'black' : 'white');
    if (n === last) cell.classList.add('last');
    cell.disabled = !legal.has(name) || busy;
    cell.addEventListener('click', () => play(legal.get(name)));
    return cell;
  });
  board.replaceChildren(...cells);
  if (legal.has('pass')) {
    const pass = make('button', { type: 'button' }, 'pass');
    pass.addEventListener('click', () => play(legal.get('pass')));
    board.append(pass);
  }
}

function drawNim(board, legal) {
  board.style.gridTemplateColumns = '1fr';
  board.replaceChildren(...state.board.map((count, heap) => {
    const letter = 'abcdefghijklmnopqrstuvwxyz'[heap];
    const row = make('div', { class: 'heap', role: 'group', 'aria-label': `Heap ${letter}: ${count} men` }, make('span', {}, `Heap ${letter}`));
    for (let man = count; man >= 1; man -= 1) { // the leftmost takes them all
      const name = `${letter}${man}`;
      const button = make('button', { type: 'button', 'aria-label': `take ${man} of heap ${letter}`, title: `take ${man}` }, '●');
      button.disabled = !legal.has(name) || busy;
      button.addEventListener('click', () => play(legal.get(name)));
      row.append(button);
    }
    if (!count) row.append('empty');
    return row;
  }));
}

// The school.
for (const key of ['pleasure', 'pain']) {
  $(key).addEventListener('click', () => doing(async () => {
    marks(await act('school', { room, key }));
    $('said').textContent = key === 'pleasure' ? 'Pleasure.' : 'Pain.';
  }));
}
$('speak').addEventListener('submit', (event) => {
  event.preventDefault();
  const words = $('words').value.trim();
  if (!words) return;
  doing(async () => {
    const found = await act('school', { room, words, board: state.board });
    const heard = found.heard.map((word) => `It hears “${word}”.`);
    $('said').textContent = [...heard, found.said && `It says “${found.said}”.`].filter(Boolean).join(' ');
    $('words').value = '';
    marks(found);
  });
});
$('lessons').addEventListener('click', () => doing(async () => {
  $('said').textContent = 'Lessons are given.';
  marks(await act('school', { room, lessons: 20, against: $('against').value }));
  $('said').textContent = '';
}));

function marks(found) {
  const values = found.marks, wide = 300 / Math.max(1, values.length - 1);
  const points = values.map((value, n) => `${(10 + n * wide).toFixed(1)},${(110 - 100 * value).toFixed(1)}`).join(' ');
  $('curve').replaceChildren(svg('line', { x1: 10, x2: 310, y1: 110, y2: 110 }), svg('line', { x1: 10, x2: 310, y1: 10, y2: 10 }), svg('polyline', { points }));
  const what = model.dataset.game === 'go' ? 'of games against chance won' : 'of positions answered with a best move';
  $('mark').textContent = `${Math.round(100 * values.at(-1))}% ${what}; it was ${Math.round(100 * values[0])}%. ${found.lessons} lessons given.`;
  $('curve').setAttribute('aria-label', $('mark').textContent);
}
