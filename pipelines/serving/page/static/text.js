// Text page, for translation and parsing: output while typing, alternatives, attention, and the tree.
import { $, act, make, problem, roving, svg } from './app.js';

const PAUSE = 250; // milliseconds after the last key before the model runs
let timer, running, shown;

$('source').addEventListener('input', () => {
  clearTimeout(timer);
  timer = setTimeout(ask, PAUSE);
});
for (const chip of document.querySelectorAll('[data-example]')) {
  chip.addEventListener('click', () => {
    $('source').value = chip.dataset.example;
    ask();
  });
}
if ($('source').value) ask(); // text kept by a reload

async function ask() {
  running?.abort();
  running = new AbortController();
  $('answer').setAttribute('aria-busy', 'true');
  try {
    show(await act('text', { text: $('source').value }, { signal: running.signal }));
    problem('');
  } catch (error) {
    if (error.name === 'AbortError') return;
    problem(error.message);
  }
  $('answer').setAttribute('aria-busy', 'false');
}

function show(found) {
  shown = found;
  $('answer').textContent = found.answer;
  const cut = found.truncated ? ' Only the beginning of the text was used.' : '';
  const score = found.score === null || !found.answer ? '' : `Score ${found.score}, `;
  $('said').textContent = found.answer ? `${score}${found.milliseconds} ms.${cut}` : '';
  const others = found.alternatives.slice(1);
  $('others').hidden = !others.length;
  $('alternatives').replaceChildren(...others.map((each) => make('tr', {}, make('td', {}, each.text), make('td', {}, String(each.score)))));
  if ($('tree')) drawTree(found.tree, found.answer);
  if ($('looked')) showWords(found);
}

function showWords(found) {
  $('looked').hidden = !found.attention.length;
  $('target-words').replaceChildren(...found.target.map((word, n) => {
    const item = make('div', { class: 'word', role: 'option', 'aria-selected': 'false', tabIndex: n ? -1 : 0 }, word);
    item.addEventListener('click', () => look(item));
    item.addEventListener('pointerenter', () => look(item));
    item.addEventListener('focus', () => look(item));
    return item;
  }));
  $('source-words').replaceChildren(...found.source.map((word) => make('span', { class: 'word' }, word)));
}

function look(item) {
  const items = [...$('target-words').children];
  const row = shown.attention[items.indexOf(item)];
  if (!row) return;
  for (const each of items) {
    each.setAttribute('aria-selected', String(each === item));
    each.tabIndex = each === item ? 0 : -1;
  }
  const most = Math.max(...row, 1e-6);
  [...$('source-words').children].forEach((word, n) => {
    word.style.setProperty('--weight', (0.6 * row[n] / most).toFixed(3));
    word.replaceChildren(shown.source[n], make('small', {}, row[n] >= 0.005 ? `${Math.round(100 * row[n])}%` : ' '));
  });
  const best = row.indexOf(Math.max(...row));
  $('looked-said').textContent = `For ${item.textContent}, the largest attention is on ${shown.source[best]}.`;
}
if ($('target-words')) roving($('target-words'), look);

// The tree: every word has a column, and a phrase is centred over its parts.
function drawTree(tree, answer) {
  if (!tree) {
    $('tree').replaceChildren(make('p', { class: 'muted' }, answer ? 'This output is not a well-formed tree; its brackets are below.' : ''));
    return;
  }
  const HEIGHT = 46, drawing = svg('svg', { role: 'img', 'aria-label': `Tree of: ${leaves(tree).join(' ')}` });
  let right = 10, deepest = 0;
  const lines = [], texts = [];
  const place = (node, depth) => {
    deepest = Math.max(deepest, depth + (node.word ? 1 : 0));
    let x;
    if (node.word) {
      const width = Math.max(30, 9 * Math.max(node.word.length, node.label.length) + 12);
      x = right + width / 2;
      right += width;
      texts.push(svg('text', { x, y: (depth + 1) * HEIGHT + 24 }, node.word));
      lines.push(svg('path', { d: `M${x} ${depth * HEIGHT + 32}V${(depth + 1) * HEIGHT + 10}` }));
    } else {
      const places = node.parts.map((part) => place(part, depth + 1));
      x = places.length ? (places[0] + places.at(-1)) / 2 : right;
      for (const below of places) lines.push(svg('path', { d: `M${x} ${depth * HEIGHT + 32}L${below} ${(depth + 1) * HEIGHT + 10}` }));
    }
    texts.push(svg('text', { x, y: depth * HEIGHT + 24, class: 'phrase' }, node.label));
    return x;
  };
  place(tree, 0);
  drawing.setAttribute('width', right + 10);
  drawing.setAttribute('height', (deepest + 1) * HEIGHT + 10);
  drawing.append(...lines, ...texts);
  $('tree').replaceChildren(drawing);
}

function leaves(node) {
  return node.word ? [node.word] : node.parts.flatMap(leaves);
}
