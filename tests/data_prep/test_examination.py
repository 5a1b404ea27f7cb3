"""Examination papers: the games' rules and solutions against known counts, and the data set built from them."""
import functools
import itertools
import operator
import os

import numpy as np
import pytest
import tensorflow as tf

from data_prep import UserError, examination
from data_prep.core import input_pipeline, records, statistics
from data_prep.games import job
from data_prep.games.board_games import Go, Nim, Noughts, make, reachable
from pipelines.core import config as run_config

NOUGHTS, GO = Noughts(), Go()


def played(game, position, moves):
    """The position after moves by name, each of them legal."""
    for name in moves.split():
        assert game.move(name) in game.legal(position), name
        position = game.play(position, game.move(name))
    return position


def names(game, moves):
    return ' '.join(map(game.name, moves))


def test_noughts_has_the_positions_and_the_ends_that_are_known():
    every = reachable(NOUGHTS)
    ends = [NOUGHTS.outcome(position) for position in every]
    assert len(every) == 5478 and len(NOUGHTS.solve()) == 5478 - 958
    assert (ends.count(-1), ends.count(0), ends.count(1)) == (626 + 316, 16, 0)  # crosses won, noughts won, drawn
    sheets = [np.arange(9).reshape(3, 3), np.arange(9).reshape(3, 3).T]
    turns = [np.rot90(sheet, quarter).ravel() for sheet in sheets for quarter in range(4)]
    assert len({min(tuple(np.take(position, turn)) for turn in turns) for position in every}) == 765


def test_noughts_is_a_draw_and_an_opening_has_the_answers_that_are_known():
    assert NOUGHTS.value(NOUGHTS.starts()[0]) == 0
    assert names(NOUGHTS, NOUGHTS.best(NOUGHTS.starts()[0])) == '1 2 3 4 5 6 7 8 9'
    for text, best in {'o../.../...': '5', '.../.o./...': '1 3 7 9', '.o./.../...': '1 3 5 8',
                       'xx./oo./...': '3', 'x.x/o.o/...': '2 5'}.items():  # at 5 it stops a row and threatens three
        assert names(NOUGHTS, NOUGHTS.best(NOUGHTS.read(text))) == best, text


@pytest.mark.parametrize('game', [NOUGHTS, Nim(), Nim(most=2)], ids=repr)
def test_perfect_play_comes_to_the_value_and_nothing_else_beats_it(game):
    for position, value in game.solve().items():
        best, sign = set(game.best(position)), 1
        for move in game.legal(position):
            assert (-game.value(game.play(position, move)) == value) == (move in best)
        while (end := game.outcome(position)) is None:
            position, sign = game.play(position, game.best(position)[0]), -sign
        assert sign * end == value
        assert not game.best(position) and not game.legal(position)


@pytest.mark.parametrize('options', [{}, {'most': 2}, {'heaps': 1, 'highest': 20, 'most': 2},
                                     {'heaps': 4, 'highest': 5, 'most': 3}, {'heaps': 2, 'most': 9}], ids=str)
def test_the_value_of_nim_is_its_nim_sum(options):
    game = Nim(**options)

    def nim_sum(position):  # Bouton; a heap counts modulo most + 1 where no more may be taken
        return functools.reduce(operator.xor, (men % (game.most + 1) for men in position))

    solved = game.solve()
    assert set(solved) == set(itertools.product(range(game.highest + 1), repeat=game.heaps)) - {(0,) * game.heaps}
    for position, value in solved.items():
        assert value == (1 if nim_sum(position) else -1)
        to_zero = [move for move in game.legal(position) if not nim_sum(game.play(position, move))]
        assert list(game.best(position)) == (to_zero if value == 1 else game.legal(position))
    assert names(Nim(), Nim().best((3, 4, 5))) == 'a2'  # to 1, 4, 5


@pytest.mark.parametrize('game', [NOUGHTS, Nim(), Nim(heaps=7, highest=2, most=2)], ids=repr)
def test_positions_and_moves_come_back_from_text(game):
    assert all(game.read(game.write(position)) == position for position in game.solve())
    assert [game.move(game.name(move)) for move in range(game.moves)] == list(range(game.moves))


def test_text_is_what_a_person_would_write():
    assert Nim().write((3, 4, 5)) == '3 4 5' and Nim().name(1 * 5 + 3 - 1) == 'b3'
    assert NOUGHTS.write((1, 0, -1, 1, 0, 0, 0, 0, 0)) == 'x.o/x../...' and NOUGHTS.name(8) == '9'
    assert GO.name(3 * 5 + 2) == 'c4' and GO.name(25) == 'pass'
    for game, text in ((Nim(), '3 4'), (Nim(), '3 4 6'), (Nim(), '3 4 -1'), (NOUGHTS, 'x.o/x../..'), (NOUGHTS, 'x.o'),
                       (NOUGHTS, 'x.O/x../...'), (GO, 'x.o/x../...')):
        with pytest.raises(ValueError, match='is not a position; it must be'):
            game.read(text)
    for game, text in ((Nim(), 'b6'), (NOUGHTS, '0'), (GO, 'f1')):
        with pytest.raises(ValueError, match='is not a move'):
            game.move(text)


def test_go_reaches_the_57_legal_boards_of_two_by_two_and_no_other():
    """Tromp and Farnebäck, Combinatorics of Go: the boards on which every man has a liberty."""
    found = {position[:4] for position in reachable(Go(side=2, most_turns=12))}
    assert len(found) == 57 and (1, 1, 1, 1) not in found


@pytest.mark.parametrize('text, move, then', [
    ('ox.../x..../...../...../.....', 'a1', None),  # taken already: no empty point
    ('.o.../x..../...../...../.....', 'a1', 'xo.../x..../...../...../.....'),
    ('.oo../o..../...../...../.....', 'a1', None),  # suicide
    ('.xo../xo.../o..../...../.....', 'a1', None),  # suicide of three
    ('.ox../ox.../x..../...../.....', 'a1', 'x.x../.x.../x..../...../.....'),  # takes two men apart, so lives
    ('oox../.x.../x..../...../.....', 'a2', '..x../xx.../x..../...../.....'),
    ('.x.../xox../...../...../.....', 'b3', '.x.../x.x../.x.../...../.....')])
def test_go_takes_men_without_liberties_and_forbids_suicide(text, move, then):
    position, move = GO.read(text), GO.move(move)
    if then is None or move not in GO.legal(position):
        assert then is None and move not in GO.legal(position)
    else:
        after = GO.play(position, move)
        assert GO.write(tuple(-man for man in after[:25])) == then
        assert after[25:] == (0, 0, position[-1] + 1)


def test_go_forbids_a_ko_for_one_turn():
    ko = GO.read('.xo../xo.o./.xo../...../.....')
    taken = played(GO, ko, 'c2')  # takes b2, which could be taken back from b2 alone
    assert GO.write(taken) == '.ox../o.ox./.ox../...../.....' and taken[25] == GO.move('b2') + 1
    assert GO.move('b2') not in GO.legal(taken)
    later = played(GO, taken, 'e5 a5')
    assert later[25] == 0 and GO.move('b2') in GO.legal(later)
    assert GO.write(played(GO, later, 'b2 pass'))[:17] == '.xo../xo.o./.xo..'.translate(str.maketrans('xo', 'ox'))[:17]


def test_go_is_over_after_two_passes_or_so_many_turns_and_is_scored_by_area():
    # Own men 5 and the 5 points of their row; the other's 5 and 5; the row between is nobody's.
    board = GO.read('...../xxxxx/...../ooooo/.....')
    assert GO.area(board, 1) == GO.area(board, -1) == 10
    assert played(GO, board, 'pass')[-3:] == (0, 1, 11) and GO.outcome(played(GO, board, 'pass')) is None
    over = played(GO, board, 'pass pass')
    assert GO.legal(over) == [] and GO.outcome(over) == -1  # after ten turns Black is to move, and gives komi
    assert GO.outcome(played(GO, board, 'b3 pass pass')) == -1  # White is to move, and a point behind
    assert Go(komi=0).outcome(over) == 0 and Go(komi=-0.5).outcome(over) == 1
    assert GO.area(GO.starts()[0], 1) == 0
    short = Go(most_turns=3)
    assert short.outcome(played(short, short.starts()[0], 'c3 a1 pass')) == 1  # of White
    assert GO.solve() == {} and GO.best(board) == () and GO.value(board) is None


def prepared(folder, **options):
    job.run(examination.Config(**options), str(folder), [])
    return str(folder)


def papers(folder):
    """Columns of every split."""
    found = {}
    for split in examination.SPLITS:
        opened = records.open_split(folder, split)
        inputs, found[split] = examination.examples(opened.read(range(len(opened))))
        assert inputs == found[split]['source']
    return found


@pytest.fixture(scope='module')
def noughts(tmp_path_factory):
    return prepared(tmp_path_factory.mktemp('noughts'), game='noughts')


def test_every_position_is_in_one_split_alone(noughts):
    found = papers(noughts)
    validation, test = (found[split]['source'] for split in examination.SPLITS)
    assert sorted(validation + test) == sorted(map(NOUGHTS.write, NOUGHTS.solve()))
    assert abs(len(validation) / 4520 - 0.2) < 0.02  # 3.4 deviations
    # In every process, on every machine.
    assert len(validation) == 911 and validation[:3] == ['.o./..o/x.x', '..x/.../.o.', '.../o.o/x..']
    assert records.read_manifest(noughts).counts['validation'] == {
        'read': len(validation), 'written': len(validation), 'filtered_repeated': 0, 'dead_letters': 0}


def test_columns_say_what_a_perfect_player_would_do(noughts):
    rows = {}
    for columns in papers(noughts).values():
        rows |= {row[0]: row[1:] for row in zip(*(columns[name] for name in (
            'source', 'target', 'stage_of_game', 'value')))}
    assert rows['.../.../...'] == ('1 2 3 4 5 6 7 8 9', 'early', 'drawn')
    assert rows['o../.../...'] == ('5', 'early', 'drawn')
    assert rows['xx./oo./...'] == ('3', 'middle', 'won')
    assert rows['xox/oxo/ox.'] == ('9', 'late', 'won')
    assert rows['o.o/.x./x.o'] == ('2 4 6 8', 'middle', 'lost')
    assert [row[2] for row in rows.values()].count('won') == list(NOUGHTS.solve().values()).count(1)


def test_batches_hold_the_rules_numbers(noughts):
    split = records.open_split(noughts, 'validation')
    batches = input_pipeline.Batches(split, [], [100], None)
    decode = examination.decoder(noughts, examination.Input(), training=False)
    steps = list(input_pipeline.dataset(split, batches, decode, 0, batches.steps_per_epoch))
    rows = {name: np.concatenate([step[name] for step in steps]) for name in steps[0]}
    assert rows['position'].dtype == rows['value'].dtype == np.int32 and rows['best'].dtype == bool
    real = rows['id'] >= 0
    assert real.sum() == len(split) < len(real)
    assert not any(rows[name][~real].any() for name in ('position', 'best', 'value'))
    for position, best, value in zip(*(rows[name][real] for name in ('position', 'best', 'value'))):
        assert NOUGHTS.value(tuple(position)) == value
        assert tuple(np.flatnonzero(best)) == NOUGHTS.best(tuple(position))


def test_another_division_of_the_work_gives_the_same_bytes(tmp_path, monkeypatch):
    def content(folder):
        return {os.path.relpath(os.path.join(here, name), folder): open(os.path.join(here, name), 'rb').read()
                for here, _, files in os.walk(folder) for name in files}

    monkeypatch.setattr(job, '_SHARD', 50)
    first = content(prepared(tmp_path / 'a', game='nim'))
    assert len([name for name in first if name.endswith('.tfrecord')]) > 4
    monkeypatch.setattr(job, '_BLOCK', 7)
    assert content(prepared(tmp_path / 'b', game='nim')) == first
    sources = [text for columns in papers(str(tmp_path / 'b')).values() for text in columns['source']]
    assert sorted(sources) == sorted(map(Nim().write, Nim().solve()))


def test_positions_of_go_are_drawn_once_each_and_what_is_best_is_unknown(tmp_path):
    folder = prepared(tmp_path, game='go', count=200, options={'side': 3})
    counts, found = records.read_manifest(folder).counts, papers(folder)
    texts = found['validation']['source'] + found['test']['source']
    assert set(texts) == {Go(side=3).write(Go(side=3).drawn(number)) for number in range(200)}
    assert len(texts) == len(set(texts)) == sum(each['written'] for each in counts.values())
    repeated = sum(each['filtered_repeated'] for each in counts.values())
    assert repeated > 0 and len(texts) + repeated == 200
    assert set(found['test']['target']) == {''} and set(found['test']['value']) == {'unknown'}
    split = records.open_split(folder, 'test')
    rows = examination.decoder(folder, examination.Input(), False)(
        tf.constant(split.read([0, 1])), tf.constant(0), tf.zeros([2, 2], tf.int32))
    assert rows['position'].shape == (2, 12) and rows['best'].shape == (2, 10)
    assert not rows['best'].numpy().any() and not rows['value'].numpy().any()
    assert [tuple(row) for row in rows['position'].numpy()] == [
        Go(side=3).read(text) for text in found['test']['source'][:2]]


@pytest.mark.parametrize('options', [{'game': 'nim', 'options': {'most': 2}}, {'game': 'go', 'count': 300}], ids=str)
def test_statistics_find_nothing_to_say(tmp_path, options):
    folder = prepared(tmp_path / 'examples', **options)
    described = [tmp_path / name for name in ('statistics', 'schema', 'anomalies')]
    for made in described:
        made.mkdir()
    assert statistics.describe(folder, *map(str, described)) == []
    assert (tmp_path / 'statistics' / 'Split-validation' / 'FeatureStats.pb').stat().st_size


def test_a_served_model_is_told_the_game_with_all_of_its_options(tmp_path):
    folder = prepared(tmp_path, game='nim', options={'highest': 3})
    found = examination.assets(folder)
    assert (found.game, found.options) == ('nim', {'heaps': 3, 'highest': 3, 'most': 5})
    assert found.rules() == Nim(highest=3) == make('nim', {'highest': 3})


def test_a_game_too_small_for_two_splits_is_refused(tmp_path):
    with pytest.raises(UserError, match=r'data.validation_fraction 0.2 leaves no position for .*, of 1\. Give another'):
        prepared(tmp_path, game='nim', options={'heaps': 1, 'highest': 1})
    assert not (tmp_path / records.MANIFEST).exists()


@pytest.mark.parametrize('override, words', [
    ('data.options.haps=3', "data: options: nim has no 'haps'; it has heaps, highest, most"),
    ('data.options.heaps=2.5', 'data: options.heaps must be a whole number of 1 or more; it is 2.5'),
    ('data.options.most=0', 'data: options.most must be a whole number of 1 or more; it is 0'),
    ('data.options.heaps=7', 'data: 7 heaps of 5 have more positions than the 100,000 that can be enumerated'),
    ('data.validation_fraction=1.0', 'data: validation_fraction must be between 0 and 1'),
    ('data.game=chess', "data.game must be .*it is 'chess'"),
    ('input.buckets=[8]', 'input: positions have no length')])
def test_a_mistake_is_named(tmp_path, override, words):
    file = tmp_path / 'papers.yaml'
    file.write_text('data: {module: data_prep.examination, game: nim}\n'
                    'model: {module: keras_models.school, game: nim, options: {most: 2}}\n')
    assert run_config.load(str(file), ['data.options.most=2']).data.options == {'most': 2}
    with pytest.raises(UserError, match=words):
        run_config.load(str(file), [override])
