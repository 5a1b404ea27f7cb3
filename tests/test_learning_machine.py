"""The learning machine against a plain Python version, against recomputation of its memory, and Turing's text."""
import functools
import re

import numpy as np
import pytest
import tensorflow as tf

from benchmarks.speed import plain_machine
from keras_models.learning_machine import NONE, PAIN, PLEASURE, Config, Machines, mix
from keras_models.turing import educated, lessons

ONE_HEAP = {'heaps': 1, 'highest': 20, 'most': 2}  # every choice is of two
KEYS = {-1: PAIN, 0: 0, 1: PLEASURE}
EMPTY = [0] * 9
MEMORY, CARDS, LOOKED_UP = 60, 50, 8  # so little that they forget, share cards and break off


def population(n: int, **values) -> Machines:
    machines = Machines(Config(machines=n, **{'memory': MEMORY, 'cards': CARDS, 'looked_up': LOOKED_UP, 'tape': 40,
                                              **values}))
    machines.supply_tapes(5)
    return machines


def everyone(n: int):
    return tf.range(n), tf.fill([n], True)


def boards(board: list[int], n: int):
    return tf.constant([board] * n)


def drawn(machines: Machines, number):
    """Where a lesson's game starts, and what its opponent draws at every turn: int32 [n, P], [turns, n, A]."""
    seed, shape = tf.stack([3, number]), [machines.config.machines, machines.game.moves]
    seeds = [tf.random.experimental.stateless_fold_in(seed + tf.constant([0, 1]), turn, 'philox')
             for turn in range(machines.game.most_turns)]
    return machines.game.start(seed, shape[0]), tf.stack([
        tf.random.stateless_uniform(shape, turn, 0, 2 ** 31 - 1, tf.int32, alg='philox') for turn in seeds])


def compiled_lesson(machines: Machines, jit: bool = False):
    """A game against chance, and a word about it: one of those that lose, one of others."""
    rows, active = everyone(machines.config.machines)
    over = tf.zeros([machines.config.machines, machines.game.size], tf.int32)

    @functools.partial(tf.function, autograph=False, jit_compile=jit or None)
    def lesson(number):
        seed = tf.stack([3, number])
        outcome = lessons.lesson(machines, lessons.Term('random', 1), number, seed)
        machines.hear(rows, 4 + tf.cast(outcome < 0, tf.int32), over, active)
        return outcome
    return lesson


def plain_lesson(machine: plain_machine.PlainMachine, row: int, number: int, starts, draws) -> int:
    def chance(position, turn):
        return max(machine.game.legal(position), key=lambda move: draws[turn, row, move])
    outcome = plain_machine.lesson(machine, chance, number % 2 == 0, tuple(starts[row].tolist()), KEYS)
    machine.hear(4 + (outcome < 0), (0,) * machine.game.size)
    return outcome


@pytest.mark.parametrize('game, rule', [('nim', 'learned'), ('nim', 'majority'), ('noughts', 'learned'),
                                        ('noughts', 'majority')])
def test_rows_of_a_population_live_the_lives_of_plain_machines(game, rule):
    machines = population(4, game=game, rule=rule)
    lesson, draw = compiled_lesson(machines), tf.function(functools.partial(drawn, machines), autograph=False)
    tapes = machines.tape.numpy().reshape(4, -1).tolist()
    plain = [plain_machine.PlainMachine(machines.config, tape) for tape in tapes]
    for number in range(30):
        starts, draws = (part.numpy() for part in draw(tf.constant(number)))
        outcomes = [plain_lesson(machine, row, number, starts, draws) for row, machine in enumerate(plain)]
        assert lesson(tf.constant(number)).numpy().tolist() == outcomes
    for row, machine in enumerate(plain):
        moments = remembered(machines, row)
        assert len(moments) == MEMORY < machines.time.numpy()[row] == len(machine.memory)
        for moment, theirs in zip(moments, machine.memory[-MEMORY:]):
            keys = [NONE if key is None else key for key in theirs.keys]
            assert (moment['choice'], moment['outcome']) == (theirs.choice, theirs.outcome)
            assert moment['keys'][[0, 1, *range(3, len(keys))]].tolist() == keys[:2] + keys[3:]
            assert moment['scene'].tolist() == list(theirs.scene)
        assert machines.read.numpy()[row] == machine.read > 0
        assert machines.right.numpy()[row].tolist() == machine.right.tolist()
        assert machines.wrong.numpy()[row].tolist() == machine.wrong.tolist()


def remembered(machines: Machines, row: int) -> list[dict]:
    """What a machine remembers, in chronological order."""
    n, config = machines.config.machines, machines.config
    parts = {name: getattr(machines, name).numpy().reshape(n, config.memory + 1, *shape)[row]
             for name, shape in (('choice', ()), ('outcome', ()), ('scene', [machines.game.size]),
                                 ('key', [len(machines.indexes)]))}
    last = machines.time.numpy()[row]
    return [{'time': time, 'choice': parts['choice'][at], 'outcome': parts['outcome'][at],
             'scene': parts['scene'][at], 'keys': parts['key'][at]}
            for time in range(max(0, last - config.memory), last) for at in [time % config.memory]]


def reread(machines: Machines, row: int, index: int, key: int) -> list[tuple[int, int]]:
    """Times and outcomes of what memory says of a feature, the latest first, as far back as it is looked up."""
    cards = machines.config.cards
    alike = [moment for moment in remembered(machines, row)[::-1]
             if moment['keys'][index] >= 0 and moment['keys'][index] % cards == key % cards]
    return [(moment['time'], moment['outcome']) for moment in alike[:machines.config.looked_up]
            if moment['keys'][index] == key and moment['outcome']]


@functools.cache
def grown() -> Machines:
    """Machines that have forgotten much, with an index of their own making."""
    machines = population(3, game='noughts', combined=2)
    lesson = compiled_lesson(machines)
    for number in range(16):
        lesson(tf.constant(number))
    machines.combine()
    for number in range(16, 22):
        lesson(tf.constant(number))
    return machines


def asked(machines: Machines) -> np.ndarray:
    """Features that are remembered and others: int32 [n, K, indexes]."""
    found = np.array([[moment['keys'] for moment in remembered(machines, row)[::4]] for row in range(3)])
    return np.concatenate([np.where(found < 0, 5, found), found[:, :3] + CARDS], 1)


def test_looking_up_is_a_rereading_of_the_memory():
    machines, rows = grown(), tf.range(3)
    keys, indexes = asked(machines), tf.range(len(machines.indexes))
    good, bad = (part.numpy() for part in machines.look_up(rows, indexes, tf.constant(keys)))
    times, outcomes = (part.numpy() for part in machines.recall(rows, indexes, tf.constant(keys)))
    assert good.sum() > 50 and bad.sum() > 50
    for place in np.ndindex(*keys.shape):
        row, _, index = place
        told = reread(machines, row, index, keys[place])
        assert [good[place], bad[place]] == [sum(felt == key for _, felt in told) for key in (1, -1)]
        there = times[place] >= 0
        assert list(zip(times[place][there].tolist(), outcomes[place][there].tolist())) == told
        assert not outcomes[place][~there].any() and there[:len(told)].all()


def test_a_made_index_is_of_the_best_features_and_holds_all_that_is_remembered():
    machines = population(3, game='noughts', combined=2)
    machines.put_back(tf.range(3), grown())
    right, wrong = machines.right.numpy(), machines.wrong.numpy()
    machines.combine()
    features = len(machines.game.features)
    for row in range(3):
        weights = (right[row, 1:features] + 1) / (wrong[row, 1:features] + 1)
        best = 1 + np.argsort(-weights.astype(np.float32), kind='stable')
        pairs = [[best[0], best[1]], [best[0], best[2]]]
        assert machines.pair.numpy()[row].tolist() == pairs
        for number, pair in enumerate(pairs):
            made = machines.FIRST + features + number
            for moment in remembered(machines, row):
                first, second = (moment['keys'][machines.FIRST + index] for index in pair)
                key = NONE if first < 0 else int(mix(tf.constant(first), tf.constant(second)))
                assert moment['keys'][made] == key
    keys = asked(machines)[..., machines.FIRST + features:]
    index = tf.constant([machines.FIRST + features, machines.FIRST + features + 1])
    times = machines.recall(tf.range(3), index, tf.constant(keys))[0].numpy()
    for row, k, which in np.ndindex(*keys.shape):
        told = [time for time, _ in reread(machines, row, int(index[which]), keys[row, k, which])]
        assert times[row, k, which][times[row, k, which] >= 0].tolist() == told


def test_pleasure_and_pain_reach_what_was_done_since_the_last_key():
    machines, (rows, active) = population(2, game='noughts'), everyone(2)
    for signals in ([1, -1], [0, 0], [-1, 0], [1, 1]):
        for word in range(2):
            machines.hear(rows, tf.fill([2], word + 10), boards(EMPTY, 2), active)
        machines.feel(rows, tf.constant(signals))
    machines.hear(rows, tf.fill([2], 10), boards(EMPTY, 2), tf.constant([False, True]))
    felt = [[moment['outcome'] for moment in remembered(machines, row)] for row in range(2)]
    assert felt == [[1, 1, -1, -1, -1, -1, 1, 1], [-1, -1, 1, 1, 1, 1, 1, 1, 0]]


def associate(machines: Machines, word: int, signals) -> None:
    """A word, and then a key, to every machine."""
    rows, active = everyone(machines.config.machines)
    machines.hear(rows, tf.fill(tf.shape(rows), word), boards(EMPTY, len(rows)), active)
    machines.feel(rows, tf.constant(signals))


def test_a_word_that_always_came_with_pain_works_like_pain():
    """Row 0 has always felt pain after the word, row 1 pleasure, row 2 both, row 3 pain too seldom. All read figures 0,
    so that they choose the first of the best."""
    machines, (rows, active) = population(4, game='noughts', memory=20), everyone(4)
    machines.tape.assign(tf.zeros_like(machines.tape))
    for signals in ([-1, 1, -1, -1], [-1, 1, 1, -1], [-1, 1, -1, 0]):
        associate(machines, 7, signals)
    assert machines.recognise(rows, machines.WORD, tf.fill([4], 7)).numpy().tolist() == [-1, 1, 0, 0]
    assert machines.recognise(rows, machines.WORD, tf.fill([4], 7 + CARDS)).numpy().tolist() == [0] * 4
    machines.feel(rows, tf.constant([0, 0, 0, 1]))
    once = machines.move(rows, boards(EMPTY, 4), active).numpy().tolist()
    machines.hear(rows, tf.fill([4], 7), boards(EMPTY, 4), active)
    assert [remembered(machines, row)[-2]['outcome'] for row in range(4)] == [-1, 1, 0, 0]
    again = machines.move(rows, boards(EMPTY, 4), active).numpy().tolist()
    assert once == [0, 0, 0, 0] and again == [1, 0, 0, 0]  # no key was pressed
    for word in range(100, 120):  # so many moments later nothing is remembered of it
        machines.hear(rows, tf.fill([4], word), boards(EMPTY, 4), active)
    assert machines.recognise(rows, machines.WORD, tf.fill([4], 7)).numpy().tolist() == [0] * 4


def test_a_position_that_always_came_with_pleasure_is_desired():
    machines, (rows, active) = population(2, game='noughts'), everyone(2)
    wished, before = boards([1, -1, 0, 0, 0, 0, 0, 0, 0], 2), boards(EMPTY, 2)
    for _ in range(3):
        machines.move(rows, wished, active)
        machines.feel(rows, tf.constant([1, 0]))
    machines.move(rows, before, active)
    machines.move(rows, wished, active)
    felt = [[moment['outcome'] for moment in remembered(machines, row)] for row in range(2)]
    assert felt == [[1, 1, 1, 1, 0], [0] * 5]


def lives(machines: Machines, games: int = 8) -> list[list[tuple[int, int, int]]]:
    """Of every machine the moves of games of Nim against a player who takes one: heap, choice and figures read until
    then. A schoolmaster they cannot please presses pain and pleasure in turn."""
    n = machines.config.machines
    rows, found = tf.range(n), [[] for _ in range(n)]
    move = tf.function(lambda board, active: machines.move(rows, board, active), autograph=False)
    for game in range(games):
        heap = np.full(n, 20)
        while (heap > 0).any():
            on, read = heap > 0, machines.read.numpy()
            choice = move(tf.constant(heap[:, None], tf.int32), tf.constant(on)).numpy()
            for row in np.flatnonzero(on):
                found[row].append((heap[row], choice[row], read[row]))
            heap = np.maximum(np.where(on, heap - 2 - choice, 0), 0)
        machines.feel(rows, tf.fill([n], (PAIN, PLEASURE)[game % 2]))
    return found


def test_a_life_follows_from_the_tape_and_faked_choices_change_it_there():
    places, figures = [2, 5, 9], [1, 0, 1]
    machines = population(4, game='nim', options=ONE_HEAP, rule='majority', memory=8)
    tape = np.tile(np.random.default_rng(1).integers(0, 2, 40, np.int8), [4, 1])
    tape[1, 4] ^= 1  # parts from 0 at the fifth figure
    machines.tape.assign(tape.ravel())
    machines.fake(tf.constant([2]), tf.constant([places]), tf.constant([figures]))
    machines.fake(tf.constant([3]), tf.constant([[4]]), tf.constant([[tape[0, 4]]]))
    faked = tape[0].copy()
    faked[places] = figures
    assert machines.tape.numpy().reshape(4, -1)[2:].tolist() == [faked.tolist(), tape[0].tolist()]
    one, other, of_fakes, same = lives(machines)
    assert one == same
    for tape_, life in ((tape[0], one), (tape[1], other), (faked, of_fakes)):
        used = [(choice, read) for (heap, choice, read), (*_, then) in zip(life, life[1:]) if then > read]
        assert len(used) > 9 and [choice for choice, _ in used] == [tape_[read] for _, read in used]
        assert [read for _, read in used] == list(range(len(used)))  # every choice of two uses one figure
    until = next(k for k, (_, _, read) in enumerate(one) if read == 5)
    assert one[:until - 1] == other[:until - 1] and one[until - 1] != other[until - 1]


@functools.cache
def crude() -> Machines:
    machines = population(2, game='nim', rule='majority', memory=200)
    lesson = compiled_lesson(machines)
    for number in range(25):
        lesson(tf.constant(number))
    return machines


def test_the_memories_that_are_told_add_up_to_the_votes():
    player = educated.Player(crude().alone(1), educated.Inference(memories=1000))
    answer = player.serve(tf.constant(['3 4 5', '1 2 2', '5 0 1', '2 0 0', '0 0 0']))
    told = 0
    for votes, memories in list(zip(answer['votes'].numpy(), answer['memories'].numpy().astype(str)))[:4]:
        sum_ = 0
        for memory in filter(None, memories):
            felt, indexes = re.fullmatch(r'\d \d \d [abc]\d: (\w+) \((.+)\)', memory).groups()
            names = indexes.split(', ')
            assert {*names} <= {*crude().game.features} and len({*names}) == len(names)
            sum_ += {'pleasure': 1, 'pain': -1}[felt] * len(names)
            told += 1
        assert sum_ == votes
    assert told > 15
    assert answer['move'].numpy()[-1] == b'' and answer['move'].numpy()[0] != b''


def test_one_alone_answers_as_in_the_population():
    alone, board = crude().alone(1), tf.constant([[3, 4, 5], [1, 2, 2]])
    ours, theirs = alone.think(tf.constant([0, 0]), board), crude().think(tf.constant([1, 1]), board)
    for one, other in zip(ours, theirs):
        np.testing.assert_array_equal(one, other)
