"""The learning machine's page: a board to play on against the pushed machine, and a school for a copy of it.

The pushed machine does not learn, and the page shows the memories that voted. In the school, a visitor is the
schoolmaster of a copy of his own: he has two keys and words, and is "forbidden any detailed knowledge of the inner
workings" (Turing).
"""
import collections
import secrets
import threading
import time
from typing import Any

import numpy as np
import tensorflow as tf

from keras_models.learning_machine import PAIN, PLEASURE, Config, Machines
from keras_models.turing import games
from keras_models.turing.lessons import Term, examine, lesson, opponents, trial
from pipelines.serving.failure import Failure, invalid
from pipelines.serving.models import Version

ROOMS = 16  # largest number of schools; beyond it, the longest unused one is closed
IDLE = 30 * 60  # seconds until an unused school is closed
PAPERS = 64  # positions per examination
_ROW = np.zeros(1, np.int32)


def examples(version: Version) -> list:
    return []


class Room:
    """A copy of a machine that goes on learning, and its marks so far."""

    def __init__(self, version: Version):
        self.machine, self.lock, self.used = _copy(version), threading.Lock(), time.monotonic()
        self.game, self.lessons = self.machine.game, 0
        self._terms: dict[str, Any] = {}
        self._move, self._say = (tf.function(lambda board, act=act: act(_ROW, board, tf.constant([True])),
                                             autograph=False) for act in (self.machine.move, self.machine.say))
        self._papers = _papers(self.game)
        self._examine = tf.function(self._examined, autograph=False)
        self.marks = [self.mark()]

    def move(self, board: np.ndarray) -> int:
        return int(self._move(tf.constant(board[None]))[0])

    def press(self, signal: int) -> None:
        self.machine.feel(_ROW, tf.constant([signal]))

    def hear(self, words: str, board: np.ndarray) -> list[str]:
        """Let the machine hear every word; what a word does inside is not shown."""
        heard = words.lower().removesuffix('?').split()[:10]
        for word in heard:
            number = tf.constant([self.machine.word_number(word)])
            self.machine.hear(_ROW, number, tf.constant(board[None]), tf.constant([True]))
        return heard

    def say(self, board: np.ndarray) -> str:
        """Return a statement of the machine about a position; empty if its game has no words."""
        if not self.machine.language:
            return ''
        return ' '.join(map(self.machine.written, self._say(tf.constant(board[None]))[0].numpy().tolist()))

    def teach(self, against: str, count: int) -> None:
        """Give lessons against an opponent, each of which ends with a key."""
        if against not in self._terms:
            term = Term(against, 1)  # type: ignore[arg-type]
            self._terms[against] = tf.function(lambda number, seed: lesson(self.machine, term, number, seed),
                                               autograph=False)
        for _ in range(count):
            self._terms[against](tf.constant(self.lessons), tf.constant([29, self.lessons]))
            self.lessons += 1

    def mark(self) -> float:
        """Return the machine's mark from 0 to 1, without learning.

        It is the share of positions with a best move; if perfect play is unknown, the share of games won against
        chance.
        """
        return round(float(self._examine()), 4)

    def _examined(self):
        if self._papers is None:
            return trial(self.machine, 'random', 16, tf.constant([5, 5]))[0, 2]
        return examine(self.machine, *self._papers)[0]


class Rooms:
    """Schools by their keys, which cannot be guessed."""

    def __init__(self):
        self._rooms: collections.OrderedDict[str, Room] = collections.OrderedDict()
        self._lock = threading.Lock()

    def open(self, version: Version) -> str:
        room, key = Room(version), secrets.token_urlsafe(16)
        with self._lock:
            for old, other in list(self._rooms.items()):
                if time.monotonic() - other.used > IDLE or len(self._rooms) >= ROOMS:
                    del self._rooms[old]
            self._rooms[key] = room
        return key

    def get(self, key) -> Room:
        with self._lock:
            if not isinstance(key, str) or key not in self._rooms:
                raise Failure('NOT_FOUND', 'This school has closed; open another one.')
            self._rooms.move_to_end(key)
            room = self._rooms[key]
        room.used = time.monotonic()
        return room


def _game(version: Version):
    return games.make(*_of_game(version))


def _of_game(version: Version) -> tuple[str, dict]:
    """Return name and options of the game, from the configuration's model or else its data."""
    config = version.description['config']
    model, data = config['model'], config.get('data', {})
    return (model.get('game') or data.get('game') or 'noughts', model.get('options') or data.get('options') or {})


def _copy(version: Version) -> Machines:
    """Return a population of one with all memories of the exported machine."""
    name, options = _of_game(version)
    own = {key: value for key, value in version.description['config']['model'].items()
           if key in Config.__dataclass_fields__ and key not in ('game', 'options', 'machines')}
    made = Machines(Config(**own, machines=1, game=name, options=options))
    # The exported module's attributes are saved under their own names.
    theirs = version.model._machine  # noqa: SLF001
    for own, other in ((made, theirs), (made.memory, theirs.memory), (made.tape, theirs.tape)):
        for name, variable in vars(own).items():
            if isinstance(variable, tf.Variable):
                variable.assign(tf.reshape(getattr(other, name), variable.shape))
    return made


def _papers(game):
    """Return positions of random play and their best moves; None if perfect play is unknown."""
    if 'perfect' not in opponents(game):
        return None
    boards, board = [], game.start(tf.constant([3, 1]), PAPERS)
    for turn in range(min(6, game.most_turns)):
        boards.append(board)
        legal = game.legal(board)
        draw = tf.random.stateless_uniform(tf.shape(legal), [turn, 9])
        board = game.play(board, tf.argmax(tf.where(legal, draw, -1.0), 1, tf.int32))
    boards = tf.concat(boards, 0)
    boards = tf.random.experimental.stateless_shuffle(tf.boolean_mask(boards, ~game.result(boards)[0]), [1, 1])[:PAPERS]
    return boards, game.best(boards)


def _board(game, given) -> np.ndarray:
    """Return a board that a visitor sent.

    Raises:
      Failure: it is not a position of this game.
    """
    if not (isinstance(given, list) and len(given) == game.size and all(type(each) is int and abs(each) < 1000
                                                                       for each in given)):
        raise invalid('board is not a position of this game.')
    board = np.array(given, np.int32)
    try:
        again = game.read(game.write(tf.constant(board[None]))).numpy()[0]
    except tf.errors.OpError as error:
        raise invalid('board is not a position of this game.') from error
    men = game.points if _is_go(game) else game.size  # Go's text has no ko, passes or turns
    if not np.array_equal(again[:men], board[:men]):
        raise invalid('board is not a position of this game.')
    return board


def _is_go(game) -> bool:
    return hasattr(game, 'greedy')


def _state(game, board: np.ndarray) -> dict:
    """Return a board as the page draws it: seen by the player to move, with the legal moves and whether it is over."""
    over, outcome = (part.numpy()[0] for part in game.result(tf.constant(board[None])))
    legal = game.legal(tf.constant(board[None])).numpy()[0]
    return {'board': board.tolist(), 'over': bool(over), 'outcome': int(outcome),
            'legal': [{'move': int(move), 'name': game.name(int(move))} for move in np.flatnonzero(legal)]}


def _played(game, board: np.ndarray, move) -> np.ndarray:
    if type(move) is not int or not 0 <= move < game.moves or not game.legal(tf.constant(board[None])).numpy()[0, move]:
        raise invalid('This move cannot be played now.')
    return game.play(tf.constant(board[None]), tf.constant([move])).numpy()[0]


def _start(version: Version) -> dict:
    game = _game(version)
    while True:  # a game of Nim may begin with too few men
        board = game.start(tf.constant([secrets.randbelow(2 ** 20), 0]), 1).numpy()[0]
        if not hasattr(game, 'highest') or board.sum() > min(game.highest, game.most_turns - 1):
            break
    side = game.side if _is_go(game) else 3 if game.size == 9 and game.moves == 9 else 0
    return {**_state(game, board), 'side': side, 'opponents': list(opponents(game))}


def _answer(version: Version, given: dict) -> dict:
    """Play a visitor's move, if there is one, then the machine's, with the memories that voted for it.

    Returns:
      The board as the visitor sees it, or as the machine does if the visitor's move ended the game. When the game is
      over, `result` is the machine's: 1 won, 0 drawn, -1 lost.
    """
    game = _game(version)
    board = _board(game, given['board'])
    room = given['room']
    if given.get('move') is not None:
        board = _played(game, board, given['move'])
    before = _state(game, board)
    if before['over']:  # the visitor's move ended the game
        return {**before, 'machine': None, 'result': before['outcome']}
    if room is not None:
        with room.lock:
            move, memories, votes = room.move(board), [], None
    else:
        move = int(version.model.judged(tf.constant(board[None]))[0])
        found = version.model.serve(game.write(tf.constant(board[None])))
        memories = [text.decode() for text in found['memories'].numpy()[0] if text]
        votes = round(float(found['votes'][0]), 3)
    after = _state(game, _played(game, board, move))
    return {**after, 'machine': game.name(move), 'machine_move': move, 'memories': memories, 'votes': votes,
            'result': -after['outcome'] if after['over'] else None}


async def start(page, model, version: Version, given: dict) -> dict:
    return await page.call(_start, version)


async def move(page, model, version: Version, given: dict) -> dict:
    given = {**given, 'room': page.rooms.get(given['room']) if given.get('room') else None}
    return await page.call(_answer, version, given)


async def school(page, model, version: Version, given: dict) -> dict:
    """Open a school, or act in it: press a key, say words, or give lessons."""
    if not given.get('room'):
        key = await page.call(page.rooms.open, version)
        return {'room': key, 'marks': page.rooms.get(key).marks, 'lessons': 0}
    room = page.rooms.get(given['room'])
    return await page.call(_taught, room, given)


def _taught(room: Room, given: dict) -> dict:
    with room.lock:
        answer: dict = {}
        if given.get('key') in ('pleasure', 'pain'):
            room.press(PLEASURE if given['key'] == 'pleasure' else PAIN)
        if isinstance(given.get('words'), str):
            board = _board(room.game, given['board'])
            answer['heard'] = room.hear(given['words'], board)
            answer['said'] = room.say(board) if given['words'].endswith('?') else ''
        if given.get('lessons'):
            if given.get('against') not in opponents(room.game):
                raise invalid('against is not an opponent in this game.')
            room.teach(given['against'], min(50, int(given['lessons'])))
        room.marks.append(room.mark())
        room.marks = room.marks[-200:]
        return {**answer, 'marks': room.marks, 'lessons': room.lessons}


ACTIONS = {'start': start, 'move': move, 'school': school}
