"""Lessons and examinations of learning machines: keys pressed, pairings, and results."""
import functools
import itertools

import numpy as np
import pytest
import tensorflow as tf

from keras_models.core import layers
from keras_models.learning_machine import Config, Machines
from keras_models.turing import games, lessons

BINARY = {'heaps': 1, 'highest': 8, 'most': 2}
HEAPS = np.array([[2], [4], [5], [7], [8]], np.int32)  # where there is something to choose and the game can be won


def school(n: int, term: lessons.Term, jit: str = '', press=lambda outcome, key: key, **values):
    """Machines, and their lesson: its number -> outcomes."""
    machines = Machines(Config(machines=n, **{'memory': 300, 'cards': 1000, 'looked_up': 8, 'tape': 64, **values}))
    machines.tape.supply(1)
    machines.jit = jit == 'think'
    lesson = tf.function(lambda number: lessons.lesson(machines, term, number, tf.stack([7, number]), press),
                         autograph=False, jit_compile=jit == 'lesson' or None)
    return machines, lambda number: lesson(tf.constant(number)).numpy()


def state(machines: Machines) -> list[np.ndarray]:
    """Every number of the machines, [machines, …]."""
    return [variable.numpy().reshape(machines.config.machines, -1) for variable in machines.variables if
            variable.shape.num_elements()]


def same(one, other) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


@functools.cache
def pupils(combined: int = 1):
    return school(6, lessons.Term('random', 1), game='noughts', combined=combined)


@pytest.mark.parametrize('combined', [0, 1])
def test_put_back_machines_live_the_same_lives_again_and_others_stay(combined):
    machines, lesson = pupils(combined)
    earlier, fresh = Machines(machines.config), state(machines)
    outcomes = [lesson(number) for number in range(6)]
    earlier.put_back(tf.range(6), machines)
    before = state(machines)
    outcomes += [lesson(number) for number in range(6, 12)]
    after = state(machines)
    machines.put_back(tf.constant([1, 4]), earlier)
    for row in range(6):
        assert same([part[row] for part in state(machines)],
                    [part[row] for part in (before if row in (1, 4) else after)])
    machines.put_back(tf.range(6), earlier)
    assert same(state(machines), before) and not same(before, after)
    assert np.array_equal([lesson(number) for number in range(6, 12)], outcomes[6:]) and same(state(machines), after)
    assert not same(fresh, before)


def test_a_checkpoint_holds_everything(tmp_path):
    machines, lesson = pupils()
    checkpoint = tf.train.Checkpoint(nets=layers.by_name({'machines': machines}))
    path = checkpoint.write(str(tmp_path / 'ckpt'))
    outcomes = [lesson(number).tolist() for number in range(20, 25)]
    after = state(machines)
    for variable in machines.variables:
        variable.assign(tf.ones_like(variable))
    checkpoint.read(path).assert_consumed()
    assert [lesson(number).tolist() for number in range(20, 25)] == outcomes and same(state(machines), after)


@pytest.mark.parametrize('part', [
    pytest.param('think', marks=pytest.mark.slow),  # a part of a lesson; test_compiled_steps.py compiles it alone, too
    'lesson'])
def test_xla_changes_no_life_and_another_tape_does(part):
    machines, lesson = pupils()
    compiled, lesson_by_xla = school(6, lessons.Term('random', 1), jit=part, game='noughts', combined=1)
    machines.put_back(tf.range(6), compiled)
    for number in range(20):
        assert np.array_equal(lesson(number), lesson_by_xla(number))
        if number == 10:
            tf.function(lambda: machines.combine(0), autograph=False)()
            compiled.put_back(tf.range(6), machines)
    assert same(state(machines), state(compiled))
    machines.tape.supply(1)
    assert np.array_equal(machines.tape.figures, compiled.tape.figures)
    machines.tape.supply(2)
    assert 0.4 < np.mean(machines.tape.figures.numpy() == compiled.tape.figures.numpy()) < 0.6


@pytest.mark.parametrize('keys', [{1: 1, 0: 0, -1: -1}, {1: 0, 0: 1, -1: -1}])
def test_a_term_says_which_key_is_pressed(keys):
    term = lessons.Term('random', 1, won=keys[1], drawn=keys[0], lost=keys[-1])
    machines, lesson = school(64, term, game='noughts')
    outcomes = lesson(1)
    assert {*outcomes} == {-1, 0, 1}
    memory = machines.memory
    felt, times = memory.outcome.numpy().reshape(64, -1), memory.time.numpy()
    for row, outcome in enumerate(outcomes.tolist()):
        assert felt[row, :times[row]].tolist() == [keys[outcome]] * times[row] and times[row] >= 2
    assert (memory.felt.numpy() == np.where([keys[outcome] for outcome in outcomes.tolist()], times, 0)).all()


def test_machines_begin_every_other_game():
    machines, lesson = school(3, lessons.Term('perfect', 1), game='noughts')
    men = []
    for number in range(4):
        first = machines.memory.time.numpy()
        lesson(number)
        scenes = machines.memory.scene.numpy().reshape(3, -1, 9)
        men.append([np.abs(scenes[row, first[row]]).sum() for row in range(3)])
    assert men == [[0] * 3, [1] * 3, [0] * 3, [1] * 3]


def game_of(one, other):
    """Whether the moves of two machines, (heaps, choice) each, make a game of Nim in which the first began."""
    moves = list(itertools.chain(*itertools.zip_longest(one, other)))
    moves = moves[:-1] if moves[-1] is None else moves
    if None in moves or not len(other) <= len(one) <= len(other) + 1:
        return False
    after = [np.array(heaps) - np.eye(3, dtype=int)[choice // 5] * (choice % 5 + 1) for heaps, choice in moves]
    return not after[-1].any() and all((heaps == left).all() for left, (heaps, _) in zip(after, moves[1:]))


def test_against_each_other_every_machine_plays_every_other_and_one_wins():
    # Heaps of up to nine, so that no two games of a lesson end after a single move: their sides could be exchanged.
    machines, lesson = school(6, lessons.Term('each other', 1), game='nim', options={'highest': 9})
    met = []
    for number in range(10):
        first = machines.memory.time.numpy()
        outcomes = lesson(number)
        assert sorted(outcomes) == [-1] * 3 + [1] * 3
        scenes, choices = machines.memory.scene.numpy().reshape(6, -1, 3), machines.memory.choice.numpy().reshape(6, -1)
        lives = [[(scenes[row, time], choices[row, time]) for time in range(first[row], last)]
                 for row, last in enumerate(machines.memory.time.numpy())]
        pairs = [pair for pair in itertools.permutations(range(6), 2) if game_of(*(lives[row] for row in pair))]
        assert sorted(itertools.chain(*pairs)) == list(range(6))
        assert all(outcomes[a] == -outcomes[b] for a, b in pairs)
        met += pairs
    assert sorted(met) == list(itertools.permutations(range(6), 2))  # a tournament, and another with sides changed
    assert len({tuple(sorted(pair)) for pair in met[:15]}) == 15


def test_opponents_draw_anew_at_every_turn_of_every_lesson():
    game = games.make('noughts')
    board, on = game.start(tf.constant([0, 0]), 50), tf.fill([50], True)
    drawn = {tuple(lessons.opponent(game, 'random', tf.constant([3, number + 1]))(board, on, turn).numpy())
             for number in range(6) for turn in range(9)}
    assert len(drawn) == 6 * 9
    counts = np.bincount(np.ravel(list(drawn)), minlength=9)
    assert abs(counts - 300).max() < 5 * 300 ** 0.5


def test_an_examination_credits_equal_choices_by_their_share_and_a_trial_teaches_nothing():
    machines, lesson = school(8, lessons.Term('random', 1), game='nim', options=BINARY)
    best = machines.game.best(HEAPS)
    assert lessons.examine(machines, HEAPS, best).numpy().tolist() == [0.5] * 8
    for number in range(8):
        lesson(number)
    before = state(machines)
    marks = lessons.examine(machines, HEAPS, best).numpy()
    votes = [machines.think(tf.range(8), tf.tile(heap[None], [8, 1])).votes.numpy() for heap in HEAPS]
    credit = [np.where(vote[:, 0] == vote[:, 1], 0.5, (vote[:, 1] > vote[:, 0]) == right[1])
              for vote, right in zip(votes, best.numpy())]
    np.testing.assert_allclose(marks, np.mean(credit, 0), rtol=1e-6)
    shares = lessons.trial(machines, 'perfect', 6, tf.constant([1, 2])).numpy()
    np.testing.assert_allclose(shares.sum(1), 1, rtol=1e-6)
    assert not shares[:, 1].any() and same(state(machines), before)


@functools.cache
def degrees(shuffled: bool) -> np.ndarray:
    """Of 32 machines after 80 lessons; if shuffled, each feels what its neighbour should."""
    def press(outcome, key):
        return tf.roll(key, 1, 0) if shuffled else key
    machines, lesson = school(32, lessons.Term('perfect', 1), press=press, game='nim', options=BINARY)
    for number in range(80):
        lesson(number)
    return lessons.examine(machines, HEAPS, machines.game.best(HEAPS)).numpy()


def test_machines_learn_nim_in_seconds_and_with_keys_pressed_for_others_they_do_not():
    taught, cheated = degrees(False), degrees(True)
    assert taught.mean() >= 0.95
    error = cheated.std() / len(cheated) ** 0.5
    assert abs(cheated.mean() - 0.5) < 3 * error + 0.02
