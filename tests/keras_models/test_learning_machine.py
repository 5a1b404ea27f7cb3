"""The learning machine against a plain Python version, against recomputation of its memory, and Turing's text."""
import functools
import re

import numpy as np
import pytest
import tensorflow as tf

from benchmarks.speed import plain_machine
from keras_models import ModelError
from keras_models.learning_machine import CONDITION, OF_MOVES, WORD, Config, Machines, mix, tag
from keras_models.turing import educated, lessons
from keras_models.turing.memory import NONE, PAIN, PLEASURE
from keras_models.turing.tape import FREE, Tape

ONE_HEAP = {'heaps': 1, 'highest': 20, 'most': 2}  # every choice is of two
KEYS = {-1: PAIN, 0: 0, 1: PLEASURE}
EMPTY = [0] * 9
LOOKED_UP = 8


def population(n: int, **values) -> Machines:
    machines = Machines(Config(machines=n, **{'memory': 400, 'cards': 1500, 'looked_up': LOOKED_UP, 'tape': 40,
                                              **values}))
    machines.tape.supply(5)
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


@pytest.mark.parametrize('game, rule', [
    ('nim', 'learned'), ('noughts', 'grows'), ('noughts', 'majority'),
    pytest.param('nim', 'grows', marks=pytest.mark.slow)])  # both are among the others
def test_rows_of_a_population_live_the_lives_of_plain_machines(game, rule):
    machines = population(4, game=game, rule=rule)
    memory, lesson = machines.memory, compiled_lesson(machines)
    draw = tf.function(functools.partial(drawn, machines), autograph=False)
    tapes = machines.tape.figures.numpy().reshape(4, -1).tolist()
    plain = [plain_machine.PlainMachine(machines.config, tape) for tape in tapes]
    for number in range(30):
        starts, draws = (part.numpy() for part in draw(tf.constant(number)))
        outcomes = [plain_lesson(machine, row, number, starts, draws) for row, machine in enumerate(plain)]
        assert lesson(tf.constant(number)).numpy().tolist() == outcomes
    for row, machine in enumerate(plain):
        moments = remembered(machines, row)
        assert len(moments) == len(machine.memory) > 60
        for moment, theirs in zip(moments, machine.memory):
            assert (moment['kind'], moment['choice'], moment['outcome']) == (theirs.kind, theirs.choice, theirs.outcome)
            assert moment['scene'].tolist() == list(theirs.scene)
            assert np.count_nonzero(moment['tags'] >= 0) == len(theirs.features)
        assert machines.tape.read.numpy()[row] == machine.read > 0
        assert memory.used.numpy()[row] == len([card for card in machine.cards.values() if card.good + card.bad]) + len(
            {feature for moment in machine.memory if not moment.outcome for feature in moment.features
             if not machine.cards[feature].good + machine.cards[feature].bad})
        assert machines.grown(tf.range(4)).numpy()[row] == machine.grown()


def remembered(machines: Machines, row: int) -> list[dict]:
    """Return what a machine remembers, in chronological order; of its features the tags."""
    n, memory = machines.config.machines, machines.memory
    parts = {name: getattr(memory, name).numpy().reshape(n, memory.moments + 1, *shape)[row]
             for name, shape in (('kind', ()), ('choice', ()), ('outcome', ()), ('scene', [machines.game.size]),
                                 ('noted', [memory.places]))}
    tags = np.append(memory.tag.numpy().reshape(n, -1)[row], NONE)
    return [{'time': time, 'tags': np.where(parts['noted'][time] < 0, NONE, tags[parts['noted'][time]]),
             **{name: part[time] for name, part in parts.items()}} for time in range(memory.time.numpy()[row])]


def reread(moments: list[dict], tag_: int) -> list[tuple[int, int]]:
    """Times and outcomes of all that has a feature and came out, the latest first."""
    return [(moment['time'], moment['outcome']) for moment in moments[::-1]
            if moment['outcome'] and tag_ in moment['tags'] and tag_ >= 0]


@functools.cache
def grown() -> Machines:
    """Machines that have lived for a while, with an index of their own making."""
    machines = population(3, game='noughts', combined=2)
    lesson = compiled_lesson(machines)
    for number in range(16):
        lesson(tf.constant(number))
    machines.combine(0)
    for number in range(16, 22):
        lesson(tf.constant(number))
    return machines


def test_looking_up_is_a_rereading_of_the_memory():
    machines, rows = grown(), tf.range(3)
    moments = [remembered(machines, row) for row in range(3)]
    tags = np.stack([np.concatenate([each['tags'] for each in mine[::4]])[:300] for mine in moments])
    tags = np.concatenate([tags, tags + 1], 1)  # and others, that are not remembered
    good, bad = (part.numpy() for part in machines.memory.count(rows, tf.constant(tags, tf.int32)))
    lately, lately_bad = (part.numpy() for part in machines.memory.look_up(rows, tf.constant(tags, tf.int32)))
    assert good.sum() > 50 and bad.sum() > 50 and good.max() > LOOKED_UP
    for row, place in np.ndindex(*tags.shape):
        found = [outcome for _, outcome in reread(moments[row], tags[row, place])]
        assert [good[row, place], bad[row, place]] == [found.count(1), found.count(-1)]
        known = lately[row, place] + lately_bad[row, place]
        assert known <= min(len(found), LOOKED_UP) and lately[row, place] == found[:known].count(1)
        assert known == min(len(found), LOOKED_UP) or len({*found[:known]}) == 1 or 0 < known


def test_the_times_of_a_card_lead_to_the_moments_that_count():
    machines, rows = grown(), tf.range(3)
    places = machines.features + tf.range(len(machines.indexes))
    moments = [remembered(machines, row) for row in range(3)]
    for back in (3, 9, 20):
        tags = np.array([mine[-back]['tags'] for mine in moments])[:, places.numpy()]
        times, outcomes = (part.numpy() for part in machines.memory.recall(rows, places, tf.constant(tags, tf.int32)))
        good, bad = (part.numpy() for part in machines.memory.look_up(rows, tf.constant(tags, tf.int32)))
        for row, place in np.ndindex(*tags.shape):
            known = good[row, place] + bad[row, place]
            there = times[row, place] >= 0
            assert list(zip(times[row, place][there], outcomes[row, place][there])) == reread(
                moments[row], tags[row, place])[:known] and there.sum() == known


def test_a_made_index_is_of_the_best_features_and_holds_all_that_is_remembered():
    machines = population(3, game='noughts', combined=2)
    machines.put_back(tf.range(3), grown())
    right, wrong = (count.numpy() for count in machines.record(tf.range(3), len(machines.indexes)))
    machines.combine(1)
    features = len(machines.game.features)
    for row in range(3):
        weights = (right[row, 1:features] + 1) / (wrong[row, 1:features] + 1)
        best = 1 + np.argsort(-weights.astype(np.float32), kind='stable')
        assert machines.pair.numpy()[row, 1].tolist() == [best[0], best[2]]
        for number, pair in enumerate(machines.pair.numpy()[row]):
            made = machines.features + features + 1 + number
            for moment in remembered(machines, row):
                first, second = (moment['tags'][machines.features + index] for index in pair)
                both = mix(*(tf.constant(part, tf.int32) for part in (first, second)))
                assert moment['tags'][made] == (NONE if first < 0 else int(tag(OF_MOVES + features + 1 + number, both)))
        moments = remembered(machines, row)
        tags = np.array([moment['tags'][-len(machines.indexes) - 1] for moment in moments])[None]
        good, bad = (part.numpy()[0] for part in machines.memory.count(tf.constant([row]), tf.constant(tags, tf.int32)))
        for place, tag_ in enumerate(tags[0]):
            found = [outcome for _, outcome in reread(moments, tag_)]
            assert [good[place], bad[place]] == [found.count(1), found.count(-1)]


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
    machines, (rows, active) = population(4, game='noughts'), everyone(4)
    machines.tape.figures.assign(tf.zeros_like(machines.tape.figures))

    def felt(word):
        return machines.recognise(rows, tag(WORD, tf.fill([4, 1], word))).numpy().tolist()
    for signals in ([-1, 1, -1, -1], [-1, 1, 1, -1], [-1, 1, -1, 0]):
        associate(machines, 7, signals)
    assert felt(7) == [-1, 1, 0, 0] and felt(8) == [0] * 4
    machines.feel(rows, tf.constant([0, 0, 0, 1]))
    once = machines.move(rows, boards(EMPTY, 4), active).numpy().tolist()
    machines.hear(rows, tf.fill([4], 7), boards(EMPTY, 4), active)
    assert [remembered(machines, row)[-2]['outcome'] for row in range(4)] == [-1, 1, 0, 0]
    again = machines.move(rows, boards(EMPTY, 4), active).numpy().tolist()
    assert once == [0, 0, 0, 0] and again == [1, 0, 0, 0]  # no key was pressed
    for _ in range(100):
        machines.hear(rows, tf.fill([4], 8), boards(EMPTY, 4), active)
    assert felt(7) == [-1, 1, 0, 0]  # nothing is forgotten


def test_a_condition_is_recognised_by_a_feature_in_a_position_never_met():
    """A position turned around has the feature of symmetry in common, of which six times are enough."""
    machines, (rows, active) = population(2, game='noughts'), everyone(2)
    wished, turned = boards([1, -1, 0, 0, 0, 0, 0, 0, 0], 2), boards([0, 0, 0, 0, 0, 0, 0, -1, 1], 2)
    for _ in range(6):
        assert not machines.recognise(rows, conditions(machines, turned)).numpy().any()
        machines.move(rows, wished, active)
        machines.feel(rows, tf.constant([1, 0]))
    assert machines.recognise(rows, conditions(machines, turned)).numpy().tolist() == [1, 0]


def conditions(machines: Machines, board):
    return tag(CONDITION + tf.range(machines.conditions), machines.game.condition_keys(board))


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


def test_a_tape_bears_as_many_0_as_1_and_another_seed_another_tape():
    tape, other = Tape(50, 40, 2), Tape(50, 40, 2)
    tape.supply(1)
    other.supply(2)
    assert (tape.figures.numpy().reshape(50, 40).sum(1) == 20).all()
    assert len({*map(tuple, tape.figures.numpy().reshape(50, 40))}) == 50
    assert 0.4 < np.mean(tape.figures.numpy() == other.figures.numpy()) < 0.6


@pytest.mark.parametrize('many', range(2, 17))
def test_of_k_equal_choices_each_falls_once_in_k(many):
    machines, draws = 500, 6
    tape, rows = Tape(machines, 4096, 1), tf.range(machines)
    tape.supply(many)
    best = tf.tile([tf.range(17) * 5 % 17 < many], [machines, 1])
    choose = tf.function(lambda: tape.choose(rows, best, rows >= 0), autograph=False)
    drawn = np.stack([choose().numpy() for _ in range(draws)])
    assert best.numpy()[np.tile(np.arange(machines), draws), drawn.ravel()].all()
    counts = np.bincount(drawn.ravel(), minlength=17)[best.numpy()[0]]
    expected = machines * draws / many
    assert ((counts - expected) ** 2 / expected).sum() < many - 1 + 4 * (2 * (many - 1)) ** 0.5  # chi squared
    assert (tape.made.numpy() == draws).all() and tape.beginnings()[1].numpy().ravel().tolist() == [many] * machines


def lives(machines: Machines, games: int = 8) -> list[list[tuple[int, int, int]]]:
    """Return every machine's moves in games of Nim against a player who takes one: heap, choice and figures read until
    then. A schoolmaster they cannot please presses pain and pleasure in turn."""
    n = machines.config.machines
    rows, found = tf.range(n), [[] for _ in range(n)]
    move = tf.function(lambda board, active: machines.move(rows, board, active), autograph=False)
    for game in range(games):
        heap = np.full(n, 20)
        while (heap > 0).any():
            on, read = heap > 0, machines.tape.read.numpy()
            choice = move(tf.constant(heap[:, None], tf.int32), tf.constant(on)).numpy()
            for row in np.flatnonzero(on):
                found[row].append((heap[row], choice[row], read[row]))
            heap = np.maximum(np.where(on, heap - 2 - choice, 0), 0)
        machines.feel(rows, tf.fill([n], (PAIN, PLEASURE)[game % 2]))
    return found


def test_a_life_follows_from_the_tape_and_faked_choices_change_it_there():
    """Rows 0, 2 and 3 have one tape; 2 is faked to be like 0 at each place, 3 to be otherwise at one."""
    machines = population(4, game='nim', options=ONE_HEAP, rule='majority')
    tape = np.tile(np.random.default_rng(1).permutation(np.arange(40, dtype=np.int8) % 2), [4, 1])
    tape[1, 4] ^= 1  # parts from 0 at the fifth figure
    machines.tape.figures.assign(tape.ravel())
    free = population(1, game='nim', options=ONE_HEAP, rule='majority')
    free.tape.figures.assign(tape[0])
    lives(free)
    choices = free.tape.beginnings()[0].numpy()
    machines.tape.insist(tf.constant([2]), tf.range(16), choices)
    machines.tape.insist(tf.constant([3]), tf.constant([4]), tf.constant([[1 - choices[0, 4]]]))
    one, other, faked, forced = lives(machines)
    assert one == faked and other != one
    used = [(choice, read) for (heap, choice, read), (*_, then) in zip(one, one[1:]) if then > read]
    assert len(used) > 9 and [choice for choice, _ in used] == [tape[0, read] for _, read in used]
    assert [read for _, read in used] == list(range(len(used)))  # every choice of two uses one figure
    until = next(k for k, (_, _, read) in enumerate(one) if read == 5)
    for life in (other, forced):
        assert one[:until - 1] == life[:until - 1] and one[until - 1] != life[until - 1]
    first = machines.tape.beginnings()[0].numpy()
    assert first[0].tolist() == choices[0].tolist() and first[3, 4] == 1 - choices[0, 4]
    assert (machines.tape.insisted.numpy()[:2 * 17] == FREE).all()


def test_what_is_insisted_on_is_any_of_several_choices():
    machines, (rows, active) = population(3, game='noughts'), everyone(3)
    machines.tape.insist(rows, tf.constant([1]), tf.constant([[4], [7], [FREE]]))
    for expected in (None, [4, 7], None):
        moves = machines.move(rows, boards(EMPTY, 3), active).numpy()
        assert expected is None or moves[:2].tolist() == expected
    assert machines.tape.beginnings()[1].numpy()[:, :3].tolist() == [[9] * 3] * 3


def test_a_full_memory_and_full_indexes_say_so():
    for values, words in (({'memory': 3}, 'filled its memory of 3 moments'), ({'cards': 20}, 'its 20 cards')):
        machines, (rows, active) = population(2, game='noughts', **values), everyone(2)
        with pytest.raises(tf.errors.InvalidArgumentError, match=words):
            for _ in range(9):
                machines.move(rows, boards(EMPTY, 2), active)
                machines.feel(rows, tf.constant([1, -1]))
    with pytest.raises(ModelError, match='10,000 machines with 4,096 moments .* need .* GiB; give fewer'):
        population(10_000, memory=4096)


@functools.cache
def crude() -> Machines:
    machines = population(2, game='nim', rule='majority')
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
            assert {*names} <= {*crude().indexes} and len({*names}) == len(names)
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
