"""Words in the situation, statements that machines compose, and corrections by keys and by remarks."""
import functools

import numpy as np
import pytest
import tensorflow as tf

from keras_models.learning_machine import Config, Machines, favourites
from keras_models.turing import conversation, games, lessons

LEFT, RIGHT, UNHEARD, WRONG = 1001, 1002, 1003, 1004  # words, by numbers that the language of Nim has not


def population(n: int, **values) -> Machines:
    machines = Machines(Config(machines=n, memory=9000, cards=8192, tape=1024, **values))
    machines.tape.supply(3)
    return machines


@functools.cache
def sentences() -> tuple[np.ndarray, np.ndarray]:
    """All sentences of Nim's language, [x, 3], and whether they are true of 3 0 4."""
    language = games.make('nim').language
    said = tf.fill([1, 3], -1)
    for place in range(3):
        may = tf.where(language.may_follow(said))
        said = conversation.with_word(tf.gather(said, may[:, 0]), place, tf.cast(may[:, 1], tf.int32))
    return said.numpy(), language.true(tf.tile([[3, 0, 4]], [len(said), 1]), said).numpy()


def test_what_is_said_of_a_position_is_true_or_false():
    words, (said, true) = games.make('nim').language.words, sentences()
    found = {' '.join(words[word] for word in sentence): bool(right) for sentence, right in zip(said, true)}
    assert len(found) == 3 * (6 + 2 + 3) + 2
    assert {sentence for sentence, right in found.items() if right} == {
        'a has three', 'b has none', 'c has four', 'a is odd', 'b is even', 'c is even', 'a exceeds b', 'c exceeds a',
        'c exceeds b', 'mover will win'}


@pytest.mark.slow  # 25 s of processor time: as many lessons as statements need
def test_of_positions_never_spoken_of_nearly_all_statements_are_true():
    machines = population(16, game='nim')
    machines.jit = True
    taught, held_out = (conversation.positions(machines.game, held) for held in (False, True))
    lesson = tf.function(lambda seed: conversation.lesson(machines, taught, seed), autograph=False)
    for number in range(600):
        lesson(tf.constant([1, number]))
    said, true = tf.function(lambda: conversation.examine(machines, held_out), autograph=False)()
    chance = conversation.by_chance(machines.language, held_out, 100, tf.constant([1, 2])).numpy().mean()
    assert chance < 0.4 and true.numpy().mean() >= 0.95
    assert len({tuple(sentence) for sentence in said.numpy().reshape(-1, 3)}) > 5
    wins = conversation.answers(machines, held_out, machines.language.number('mover')).numpy().mean()
    assert wins > 0.75  # to the point and true; by chance a quarter of sentences is about it, of which half are true


def test_a_word_means_a_move_in_situations_never_met_and_one_unheard_changes_nothing():
    """Left is square 4, right is square 6: all that machines are taught, on boards with these free."""
    machines = population(16, game='noughts')
    rows, active = tf.range(16), tf.fill([16], True)
    boards = [board for board in np.ndindex(*[3] * 9) if board[3] == board[5] == 1]
    boards = np.array([board for board in boards if 2 <= np.count_nonzero(np.array(board) - 1) <= 5], np.int32) - 1
    boards = boards[~machines.game.result(boards)[0].numpy()]
    boards = boards[np.random.default_rng(1).permutation(len(boards))]

    @functools.partial(tf.function, autograph=False)
    def teach(board, word):
        machines.hear(rows, word, board, active)
        move = machines.move(rows, board, active)
        machines.feel(rows, tf.where(move == tf.where(word == LEFT, 3, 5), 1, -1))
    for number in range(150):
        board = tf.constant(np.roll(boards[:400], 16 * number, 0)[:16])
        teach(board, tf.where((rows + number) % 2 == 0, LEFT, RIGHT))
    met = {tuple(scene) for scene in machines.memory.scene.numpy()}

    @functools.partial(tf.function, autograph=False)
    def would(board, word):
        machines.heard.assign(tf.fill([16], word))
        best = favourites(machines.think(rows, board).votes, machines.game.legal(board))
        return machines.tape.draw(rows, best, active)[0], machines.think(rows, board).votes
    right, new = [], [board for board in boards[400:] if tuple(board) not in met][:60]
    for board in new:
        board = tf.constant([board] * 16)
        right += [would(board, LEFT)[0].numpy() == 3, would(board, RIGHT)[0].numpy() == 5]
        np.testing.assert_array_equal(would(board, UNHEARD)[1], would(board, -1)[1])
    assert np.mean(right) >= 0.95


@pytest.mark.parametrize('by', ['pain', 'a remark'])
def test_a_habit_that_is_punished_is_given_up_after_a_few_pains(by):
    """The habit pleased a hundred times. The remark has come with pain elsewhere; then no key is pressed."""
    machines = population(8, game='noughts')
    rows, active, empty = tf.range(8), tf.fill([8], True), tf.zeros([8, 9], tf.int32)
    elsewhere = tf.constant([[1, -1, 0, 0, 0, 0, 0, 0, 0]] * 8)
    move = tf.function(lambda: machines.move(rows, empty, active), autograph=False)
    for _ in range(100):
        habit = move()
        machines.feel(rows, tf.ones_like(rows))
    for _ in range(6):
        machines.hear(rows, tf.fill([8], WRONG), elsewhere, active)
        machines.feel(rows, -tf.ones_like(rows))
    given_up = np.zeros(8, bool)
    for _ in range(6):
        given_up |= move().numpy() != habit.numpy()
        if by == 'pain':
            machines.feel(rows, -tf.ones_like(rows))
        else:
            machines.hear(rows, tf.fill([8], WRONG), empty, active)
    assert given_up.all()


@pytest.mark.slow  # 15 s of processor time: one machine is taught before the other learns from it
def test_an_untaught_machine_learns_to_speak_truly_from_a_taught_one():
    """It was taught what yes and no stand for, and nothing else; the other is taught as far as this test has time."""
    pupils, others = population(8, game='nim'), population(8, game='nim')
    rows, active = tf.range(8), tf.fill([8], True)
    taught, held_out = (conversation.positions(pupils.game, held) for held in (False, True))
    lesson = tf.function(lambda seed: conversation.lesson(others, taught, seed), autograph=False)
    for number in range(150):
        lesson(tf.constant([1, number]))
    for word, signal in ((2001, 1), (2002, -1)) * 3:
        pupils.hear(rows, tf.fill([8], word), tf.zeros([8, 3], tf.int32), active)
        pupils.feel(rows, tf.fill([8], signal))
    examine = tf.function(lambda: conversation.examine(pupils, held_out[:12])[1], autograph=False)
    before = examine().numpy().mean()
    talk = tf.function(lambda board: conversation.exchange(pupils, others, board, 2001, 2002), autograph=False)
    for number in range(100):
        talk(conversation.drawn(taught, 8, tf.constant([2, number])))
    assert examine().numpy().mean() > before + 0.2


def test_lessons_of_speech_leave_the_game_alone():
    """Statements and moves have features of their own, so that a machine that was taught to speak plays as before."""
    machines = population(4, game='nim')
    board = tf.constant([[3, 4, 5], [1, 2, 2], [5, 0, 1], [2, 2, 3]])
    for number in range(4):
        lessons.lesson(machines, lessons.Term('random', 1), tf.constant(number), tf.constant([1, number]))
    before = machines.think(tf.range(4), board).good.numpy()
    for number in range(4):
        conversation.lesson(machines, conversation.positions(machines.game, False), tf.constant([1, number]))
    np.testing.assert_array_equal(machines.think(tf.range(4), board).good, before)
