"""The exported machine, which answers a position with a move and the memories that voted for it, and its scorer."""
import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from keras_models import ModelError, reason
from keras_models.learning_machine import Machines, favourites
from keras_models.school import Config, check_game
from keras_models.turing import games
from keras_models.turing.lessons import mark, match, opponent, opponents
from keras_models.turing.memory import NONE
from keras_models.turing.session import Pupil

GAMES = 1000  # per opponent in an evaluation; the machine begins half of them
_FELT = ('pain', '', 'pleasure')


@dataclasses.dataclass
class Inference:
    """Settings of answers.

    Attributes:
      memories: number of memories that voted for the move to show, latest first.
    """
    memories: int = 8

    def describe(self) -> list[str]:
        return [f'the choice with the most votes, and {self.memories} of the memories that voted']


class Player(tf.Module):
    """The exported machine. It does not change, so the same position always has the same answer.

    Signatures, with strings [n] in the form of `games.texts`:
      serving_default: `position` -> `move`, empty if the game is over; its `votes`, float32; and `memories`, strings
        [n, memories], `position move: pleasure or pain (the indexes under which it was found)`, or empty.
      tf_examples: `examples`, serialized tf.Examples with the position as the feature `source` -> the same.
      learn: see `session.Pupil`.

    Args:
      machine: a population of one.
    """

    def __init__(self, machine: Machines, inference: Inference, jit: bool = False):
        super().__init__()
        self._machine, self._inference, self._pupil = machine, inference, Pupil(machine)
        self._moves = tf.constant([machine.game.name(move) for move in range(machine.game.moves)])
        self._think = tf.function(self._thought, autograph=False, jit_compile=jit or None)
        self.judged = tf.function(lambda board: self._think(board)[0], autograph=False,
                                  input_signature=[tf.TensorSpec([None, machine.game.size], tf.int32)])

    def signatures(self) -> dict:
        return {'serving_default': self.serve, 'tf_examples': self.serve_examples, 'learn': self._pupil.learn}

    def _thought(self, board):
        """Return the choice, int32 [n], its votes, and times and outcomes of its memories, [n, J, looked_up] each."""
        machine, rows = self._machine, tf.zeros_like(board[:, 0])
        thought = machine.think(rows, board)
        choice, _ = machine.tape.draw(rows, favourites(thought.votes, machine.game.legal(board)), rows == 0)
        tags = tf.gather(thought.tags, choice, axis=1, batch_dims=1)  # [n, J]
        places = machine.features + tf.range(len(machine.indexes))
        return (choice, tf.gather(thought.votes, choice, axis=1, batch_dims=1),
                *machine.memory.recall(rows, places, tags))

    def _written(self, times, outcomes):
        """Write memories as text, strings [n, memories]."""
        machine, n = self._machine, tf.shape(times)[0]
        flat, felt = _latest(tf.reshape(times, [n, -1]), tf.reshape(times, [n, -1]), tf.reshape(outcomes, [n, -1]))
        repeated = tf.concat([tf.fill([n, 1], False), flat[:, 1:] == flat[:, :-1]], 1)  # found under several indexes
        flat = tf.where(repeated, NONE, flat)
        time, felt = (part[:, :self._inference.memories] for part in _latest(flat, flat, felt))  # [n, memories]
        there = time >= 0
        found = tf.reduce_any(times[:, None] == time[..., None, None], -1)  # [n, memories, J]
        names = tf.constant([f', {name}' for name in machine.indexes])
        indexes = tf.strings.substr(tf.strings.reduce_join(tf.where(found, names, ''), -1), 2, -1)
        _, scene, choice = machine.memory.moment(tf.zeros_like(time), time, there)
        words = tf.strings.join([machine.game.write(scene), ' ', tf.gather(self._moves, choice),
                                 ': ', tf.gather(tf.constant(_FELT), felt + 1), ' (', indexes, ')'])
        return tf.where(there, words, '')

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, 'position')], autograph=False)
    def serve(self, position):
        board = self._machine.game.read(position)
        choice, votes, times, outcomes = self._think(board)
        over = self._machine.game.result(board)[0]
        return {'move': tf.where(over, '', tf.gather(self._moves, choice)), 'votes': votes,
                'memories': self._written(times, outcomes)}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, 'examples')], autograph=False)
    def serve_examples(self, examples):
        return self.serve(tf.io.parse_example(examples, {'source': tf.io.FixedLenFeature([], tf.string)})['source'])


def _latest(times, *parts) -> list:
    """Sort parts [n, m] by time, latest first."""
    order = tf.argsort(times, direction='DESCENDING', stable=True)
    return [tf.gather(part, order, axis=1, batch_dims=1) for part in parts]


def predict(model, inputs: list[str], batch_size: int = 64, jit: bool = False) -> Iterator[dict]:
    """Yield the answers of an exported machine in order: `answers`, the move alone, and `memories`; or `error`."""
    del jit
    for start in range(0, len(inputs), batch_size):
        batch = inputs[start:start + batch_size]
        try:
            found = model.serve(tf.constant(batch))
        except tf.errors.InvalidArgumentError as error:
            if len(batch) > 1:  # find the wrong one
                yield from predict(model, batch, 1)
            else:
                yield {'answers': [''], 'memories': [], 'error': reason(error)}
            continue
        for move, memories in zip(found['move'].numpy(), found['memories'].numpy()):
            yield {'answers': [move.decode()], 'memories': [text.decode() for text in memories if text]}


def serving(nets: dict, config: Config, inference: Inference, assets, jit: bool = False):
    """Return the machine with the highest degree of education as the exported module.

    Raises:
      ModelError: the data set has another game.
    """
    check_game(config, assets.game, assets.options)
    best = int(tf.argmax(nets['register'].degree))
    return Player(nets['machines'].alone(best), inference, jit)


class Scorer:
    """Scores a machine on the test positions and in games.

    Its attributes are those of `viton.judge.Scorer`.

    Args:
      networks: must be empty, as no metric needs a network.
      config: the model's configuration, which names the game.
    """
    CORPUS = ('won_against_random', 'won_against_capturing', 'not_lost_to_perfect')
    missing: dict[str, str] = {}
    pictures: list[dict[str, bytes]] = []

    def __init__(self, networks: dict[str, str], config):
        if networks:
            raise ModelError('evaluate.networks: no metric of a learning machine needs a network; leave it out.')
        self._game = games.make(config.game, config.options or {})
        self._metrics = {kind: mark(kind) for kind in opponents(self._game)}
        self.names = (*self._metrics.values(), *(('best_move',) if 'perfect' in self._metrics else ()))
        self._model: Any = None

    def __call__(self, model, inputs: list[str], rows: list[dict]) -> list[dict]:
        """Return for each position whether the move is among the best, where perfect play is known."""
        self._model = model
        found = predict(model, inputs, len(inputs))
        if 'best_move' not in self.names:
            return [{} for _ in rows]
        return [{'best_move': float(answer['answers'][0] in row['target'].split()) if row['target'] else math.nan}
                for answer, row in zip(found, rows)]

    def corpus(self) -> dict[str, float]:
        """Return the scores of games without learning; the machine begins half of them."""
        return {name: self._played(kind) for kind, name in self._metrics.items()}

    def _played(self, kind: str) -> float:
        game = self._game

        def half(first, seed):
            return match(game, lambda board, active, turn: self._model.judged(board),
                         opponent(game, kind, tf.stack([seed, 1])), game.start(tf.stack([seed, 0]), GAMES // 2), first)
        half = tf.function(half, autograph=False)
        halves = tf.concat([half(tf.constant(first), tf.constant(seed)) for first, seed in ((True, 1), (False, 2))], 0)
        good = halves >= 0 if kind == 'perfect' else halves > 0
        return float(tf.reduce_mean(tf.cast(good, tf.float32)))

    def slices(self) -> list[dict]:
        """None: positions are sliced by what the data set says of them."""
        return []

    def protocol(self) -> dict[str, str]:
        """Return how each metric was computed."""
        played = f'{GAMES:,} games, half begun by the machine, nothing learned in them'
        words = {'won_against_random': f'share won against moves at random; {played}',
                 'won_against_capturing': f'share won against a player who takes what he can; {played}',
                 'not_lost_to_perfect': f'share won or drawn against perfect play, which takes any of its best moves; '
                                        f'{played}',
                 'best_move': 'share of positions in which the move is one of perfect play'}
        return {name: words[name] for name in self.names}
