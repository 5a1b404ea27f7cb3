"""Lessons, which are games, and examinations.

The schoolmaster sees positions and moves and has two keys. He is "forbidden any detailed knowledge of the inner
workings of the machine".
"""
import dataclasses
from collections.abc import Callable
from typing import Literal

import tensorflow as tf

from keras_models.learning_machine import PAIN, PLEASURE, Machines, favourites


@dataclasses.dataclass(frozen=True)
class Term:
    """Lessons of one kind.

    Attributes:
      against: opponent; Go has `capturing`, a plain player, and the other games have `perfect`.
      lessons: games per machine.
      won, drawn, lost: the key pressed after a game with that result: 1 pleasure, -1 pain, 0 none.
    """
    against: Literal['random', 'capturing', 'perfect', 'each other']
    lessons: int
    won: int = PLEASURE
    drawn: int = 0
    lost: int = PAIN


def opponents(game) -> tuple[str, ...]:
    """Return the opponents in a game other than machines; Go has no perfect player."""
    return ('random', 'capturing') if hasattr(game, 'greedy') else ('perfect', 'random')


def mark(against: str) -> str:
    """Return the name of the score against an opponent: games won, or those not lost against perfect play."""
    return 'not_lost_to_perfect' if against == 'perfect' else f'won_against_{against}'


def player(machines: Machines, rows) -> Callable:
    """Return machines as a player: (boards, which are not over, turn) -> moves."""
    return lambda board, active, turn: machines.move(rows, board, active)


def opponent(game, kind: str, seed) -> Callable:
    """Return an opponent that is not a machine: it draws one of the moves it allows."""
    allowed = {'random': game.legal, 'perfect': game.best, 'capturing': getattr(game, 'greedy', None)}[kind]
    assert allowed

    def choose(board, active, turn):
        may = allowed(board)
        now = tf.random.experimental.stateless_fold_in(seed, turn, 'philox')  # differs from the next lesson's draws
        draw = tf.random.stateless_uniform(tf.shape(may), now, 0, 2 ** 31 - 1, tf.int32, alg='philox')  # as under XLA
        return tf.argmax(tf.where(may, draw, -1), 1, tf.int32)
    return choose


def play(game, mover: Callable, board) -> tf.Tensor:
    """Play games from positions, int32 [n, P], in each of which `mover` moves for whose turn it is.

    Returns:
      The outcomes of the player who began, int32 [n]: 1 won, 0 drawn, -1 lost.
    """
    def turn(k, board, over, outcome):
        board = game.play(board, mover(board, ~over, k))
        ended, of_next = game.result(board)
        return k + 1, board, ended, tf.where(over, outcome, tf.where(tf.equal(k % 2, 0), -of_next, of_next))
    over, outcome = game.result(board)
    return tf.while_loop(lambda k, board, over, outcome: (k < game.most_turns) & ~tf.reduce_all(over), turn,
                         (0, board, over, outcome))[3]


def match(game, own: Callable, other: Callable, board, begins) -> tf.Tensor:
    """Return the outcomes of games for a player who begins them all or none, as the bool scalar `begins` says."""
    def mover(*now):
        return tf.cond(tf.equal(tf.equal(now[2] % 2, 0), begins), lambda: own(*now), lambda: other(*now))
    outcome = play(game, mover, board)
    return tf.where(begins, outcome, -outcome)


def lesson(machines: Machines, term: Term, number, seed, press: Callable = lambda outcome, key: key) -> tf.Tensor:
    """Play a game with every machine; at its end the schoolmaster presses a key.

    Args:
      number: int32 scalar, number of the lesson. The machines begin in lessons with an even number.
      seed: int32 [2], seed of the openings and of the opponent.
      press: function of the outcome and of the term's key that returns the key to press; experiments change it.

    Returns:
      The machines' outcomes, int32 [machines].
    """
    game, n = machines.game, machines.config.machines
    rows, keys = tf.range(n), tf.constant([term.lost, term.drawn, term.won])
    if term.against == 'each other':
        rows = tf.concat([rows[:1], tf.roll(rows[1:], number, 0)], 0)  # a round-robin tournament
        rows = tf.where(number % 2 == 0, rows, rows[::-1])
        first, second = rows[:n // 2], rows[n // 2:][::-1]
        rows = tf.concat([first, second], 0)
        outcome = play(game, lambda board, active, turn: machines.move(
            tf.where(tf.equal(turn % 2, 0), first, second), board, active), game.start(seed, n // 2))
        outcome = tf.concat([outcome, -outcome], 0)
    else:
        outcome = match(game, player(machines, rows), opponent(game, term.against, seed + tf.constant([0, 1])),
                        game.start(seed, n), tf.equal(number % 2, 0))
    machines.feel(rows, press(outcome, tf.gather(keys, outcome + 1)))
    return tf.scatter_nd(rows[:, None], outcome, [n])


def examine(machines: Machines, boards, best) -> tf.Tensor:
    """Return the share of positions in which machines would choose a best move, without learning.

    No tape is read: if a machine has several favourites, it gets the share of them that is best.

    Args:
      boards: int32 [x, P].
      best: bool [x, A].

    Returns:
      float32 [machines].
    """
    rows = tf.range(machines.config.machines)

    def one(case):
        board, right = case
        board = tf.tile(board[None], [machines.config.machines, 1])
        would = favourites(machines.think(rows, board).votes, machines.game.legal(board))
        agreed = tf.reduce_sum(tf.cast(would & right, tf.float32), 1)
        return agreed / tf.reduce_sum(tf.cast(would, tf.float32), 1)
    return tf.reduce_mean(tf.map_fn(one, (boards, best), fn_output_signature=tf.float32), 0)


def trial(machines: Machines, against: str, games: int, seed) -> tf.Tensor:
    """Return the machines' results in games without learning; tapes do not advance, and sides alternate.

    Returns:
      Shares lost, drawn and won, float32 [machines, 3].
    """
    game, rows = machines.game, tf.range(machines.config.machines)

    def candidate(board, active, turn):
        best = favourites(machines.think(rows, board).votes, game.legal(board))
        return machines.tape.draw(rows, best, active)[0]

    def one(number):
        outcome = match(game, candidate, opponent(game, against, seed + tf.stack([number, 1])),
                        game.start(seed + tf.stack([number, 0]), machines.config.machines), tf.equal(number % 2, 0))
        return tf.one_hot(outcome + 1, 3)
    return tf.reduce_mean(tf.map_fn(one, tf.range(games), fn_output_signature=tf.float32), 0)
