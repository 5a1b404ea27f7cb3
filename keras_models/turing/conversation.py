"""Lessons and examinations in speech, and conversations of two machines.

The schoolmaster sees a position and a statement about it, and presses a key. He knows whether the statement is true
(`nim_language.Language.true`), as he knows who wins a game.
"""
import tensorflow as tf

from keras_models.learning_machine import PAIN, PLEASURE, Machines, favourites
from keras_models.turing.games.nim_language import LENGTH, with_word
from keras_models.turing.memory import NONE


def positions(game, held_out: bool) -> tf.Tensor:
    """Return the positions of Nim without the empty one, int32 [x, P]: the fifth held out of lessons, or the rest."""
    number = tf.random.experimental.stateless_shuffle(tf.range(1, (game.highest + 1) ** game.heaps), [1951, 0])
    number = number[:len(number) // 5] if held_out else number[len(number) // 5:]
    return number[:, None] // (game.highest + 1) ** tf.range(game.heaps) % (game.highest + 1)


def questions(language) -> tf.Tensor:
    """Return the words that are questions: the heaps, and `mover`. An answer begins with the word."""
    return tf.constant([language.number(word) for word in (*language.heaps, 'mover')])


def drawn(among, n: int, seed) -> tf.Tensor:
    """Draw n of x rows with replacement, [x, …] -> [n, …]."""
    return tf.gather(among, tf.random.stateless_uniform([n], seed, 0, tf.shape(among)[0], tf.int32, alg='philox'))


def lesson(machines: Machines, boards, seed) -> tf.Tensor:
    """Let every machine make a statement, and press pleasure if it is true and answers the question, else pain.

    Three statements in four answer a question.

    Args:
      boards: int32 [x, P]; each machine is shown one.

    Returns:
      Whether pleasure was pressed, bool [machines].
    """
    n, language = machines.config.machines, machines.language
    rows, board = tf.range(n), drawn(boards, n, seed)
    question = drawn(questions(language), n, seed + tf.constant([0, 1]))
    asked = (rows + seed[1]) % 4 != 0
    machines.hear(rows, question, board, asked)
    sentence = machines.say(rows, board, rows >= 0)
    right = language.true(board, sentence) & (~asked | (sentence[:, 0] == question))
    machines.feel(rows, tf.where(right, PLEASURE, PAIN))
    return right


def would_say(machines: Machines, rows, board) -> tf.Tensor:
    """Return what machines would say, int32 [n, LENGTH]; they remember nothing, and tapes do not advance."""
    said = tf.fill([tf.shape(rows)[0], LENGTH], NONE)
    for place in range(LENGTH):
        best = favourites(machines.word(rows, board, said).votes, machines.language.may_follow(said))
        said = with_word(said, place, machines.tape.draw(rows, best, rows >= 0)[0])
    return said


def examine(machines: Machines, boards) -> tuple[tf.Tensor, tf.Tensor]:
    """Return what every machine would say about positions, int32 [x, P].

    Returns:
      Sentences, int32 [x, machines, LENGTH], and whether they are true, bool [x, machines].
    """
    rows = tf.range(machines.config.machines)

    def one(board):
        board = tf.tile(board[None], [machines.config.machines, 1])
        said = would_say(machines, rows, board)
        return said, machines.language.true(board, said)
    return tf.map_fn(one, boards, fn_output_signature=(tf.int32, tf.bool))


def answers(machines: Machines, boards, question: int) -> tf.Tensor:
    """Return the share of positions, int32 [x, P], about which machines answer a question, and truly.

    Returns:
      float32 [machines].
    """
    rows = tf.range(machines.config.machines)
    before = tf.identity(machines.heard)
    machines.heard.assign(tf.fill(tf.shape(rows), question))
    said, true = examine(machines, boards)
    machines.heard.assign(before)
    return tf.reduce_mean(tf.cast(true & (said[..., 0] == question), tf.float32), 0)


def by_chance(language, boards, times: int, seed) -> tf.Tensor:
    """Return whether sentences drawn by chance alone are true of positions, int32 [x, P]: bool [times, x]."""
    def one(number):
        said = tf.fill([tf.shape(boards)[0], LENGTH], NONE)
        for place in range(LENGTH):
            may = language.may_follow(said)
            draw = tf.random.stateless_uniform(tf.shape(may), seed + tf.stack([number, place]))
            said = with_word(said, place, tf.argmax(tf.where(may, draw, -1.0), 1, tf.int32))
        return language.true(boards, said)
    return tf.map_fn(one, tf.range(times), fn_output_signature=tf.bool)


def exchange(pupils: Machines, others: Machines, board, yes: int, no: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Let each pupil make a statement to another machine, which answers yes or no.

    No key is pressed. The pupil feels what the words yes and no have come to stand for; the other machine answers from
    its own memories of such statements.

    Args:
      pupils, others: populations of the same size, which converse in pairs.
      board: int32 [machines, P], which both see.
      yes, no: the two words.

    Returns:
      The statements, int32 [machines, LENGTH], and whether the other machine agreed, bool [machines].
    """
    rows = tf.range(pupils.config.machines)
    sentence = pupils.say(rows, board, rows >= 0)
    for place in range(LENGTH):
        others.hear(rows, sentence[:, place], board, rows >= 0)
    agreed = agrees(others, rows, board, sentence)
    pupils.hear(rows, tf.where(agreed, yes, no), board, rows >= 0)
    return sentence, agreed


def agrees(machines: Machines, rows, board, sentence) -> tf.Tensor:
    """Return whether memories favour the last word of a statement after the words before it, bool [n]."""
    said = with_word(sentence, LENGTH - 1, tf.fill(tf.shape(rows), NONE))
    votes = machines.word(rows, board, said).votes
    return tf.gather(votes, sentence[:, -1], axis=1, batch_dims=1) > 0
