"""A first configuration for user data: what is found, refused and chosen, and that it loads."""
import collections
import dataclasses
import io
import pathlib
import types

import numpy as np
import pytest
import yaml
from PIL import Image

from data_prep import UserError
from data_prep.text import subwords
from pipelines import init
from pipelines.core import config as configs
from pipelines.core import machine
from pipelines.starting import (
    accelerated,
    calibration,
    findings,
    images,
    languages,
    pairs,
    planning,
    recipes,
    trees,
    tryon,
    writing,
)


def jpeg(seed, side=24, grey=False):
    draw = np.random.default_rng(seed)
    pixels = draw.integers(0, 256, [side, side, 1 if grey else 3], np.uint8)
    stream = io.BytesIO()
    Image.fromarray(np.repeat(pixels, 3, -1) if grey else pixels).save(stream, 'PNG')
    return stream.getvalue()


@pytest.fixture
def photos(tmp_path):
    """Forty images of two classes, with a copy in both classes, one that is cut short and one that is text."""
    for n in range(40):
        path = tmp_path / 'photos' / ('cat' if n < 24 else 'dog') / f'{n}.png'
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(jpeg(n, 24 + n))
    (tmp_path / 'photos' / 'dog' / 'copy.png').write_bytes(jpeg(0, 24))
    (tmp_path / 'photos' / 'dog' / 'cut.png').write_bytes(jpeg(1)[:100])
    (tmp_path / 'photos' / 'cat' / 'text.jpg').write_text('not an image')
    return tmp_path / 'photos'


def lines(path, rows):
    path.write_text(''.join(f'{row}\n' for row in rows), encoding='utf-8')
    return str(path)


def cost(step, memory=1.0, per_step=32, prepare=4.8):
    time = calibration.Seconds(step, 2 * step)
    return calibration.Measured(calibration.Seconds(prepare, prepare), calibration.Seconds(4, 4), time, time, per_step,
                                10, memory)


def test_what_is_found_of_images(photos):
    found = images.look([str(photos)])
    said = ' '.join(found.said)
    assert '43 images in 2 classes, 18 to 25 per class' in said
    assert '2 of 43 inspected files cannot be read' in said and '1 of 43 are exact copies' in said
    assert '1 of them in two classes' in said and 'grey' not in said
    assert found.baseline == pytest.approx(18 / 43) and found.metric == 'top1_error'
    assert found.examples == {'train': 25, 'validation': 8, 'test': 8}
    limit = found.sections['evaluate']['thresholds'][0]['top1_error']['max']
    assert limit == pytest.approx(18 / 43 - 1.645 * np.sqrt(18 / 43 * 25 / 43 / 8), abs=1e-3)
    assert found.sections['data']['max_dead_letters'][0] >= 2 / 43


def test_rare_classes_count_as_much_as_common_ones(tmp_path):
    for name, count in (('cat', 176), ('dog', 16), ('eel', 8)):
        (tmp_path / name).mkdir()
        for n in range(count):
            (tmp_path / name / f'{n}.png').write_bytes(jpeg(1000 * count + n, 8))
    found = images.look([str(tmp_path)])
    assert (found.metric, found.baseline) == ('mean_class_error', pytest.approx(2 / 3))
    assert 'more than 10 to 1' in found.said[-1] and "about 2 images of the rarest, 'eel', which" in found.said[-1]
    limit = found.sections['evaluate']['thresholds'][0]['mean_class_error']['max']
    variance = 2 / 9 * (1 / 35.2 + 1 / 3.2 + 1 / 1.6) / 9
    assert limit == pytest.approx(2 / 3 - 1.645 * np.sqrt(variance), abs=1e-3)
    [model] = {str(findings.values(each.sections)['model']['class_counts']) for each in recipes.candidates(found)}
    assert model == '[176, 16, 8]'


def test_fewer_files_are_decoded_where_that_takes_long(photos, monkeypatch, capsys):
    monkeypatch.setattr(images, 'LEAST', 10)
    for seconds in (1e9, 0):  # so that no machine's speed decides
        monkeypatch.setattr(images, 'LONGEST', seconds)
        images.look([str(photos)])
    said = capsys.readouterr().err
    assert 'decoding 43 of 43 images' in said and 'decoding 10 of 43 images' in said


def test_folders_called_as_splits_are_splits(photos, tmp_path):
    for split in ('train', 'val'):
        for name in ('cat', 'dog'):
            (tmp_path / 'all' / split / name).mkdir(parents=True)
            for n in range(12):
                (tmp_path / 'all' / split / name / f'{n}.png').write_bytes(jpeg(n, grey=True))
    found = images.look([str(tmp_path / 'all')])
    data = findings.values(found.sections)['data']
    assert data['train'] == [f'{tmp_path}/all/train'] and data['validation'] == [f'{tmp_path}/all/val']
    assert data['test_fraction'] == 0.2 and 'validation_fraction' not in data
    assert found.facts['grey'] and 'All images are grey' in ' '.join(found.said)


@pytest.mark.parametrize('made, sentence', [
    ({'cat': 30}, "all 30 images are of one class, 'cat', so there is nothing to distinguish"),
    ({'cat': 2, 'dog': 1}, '3 images in 2 classes are too few to train and test with'),
    ({'cat': 30, 'dog': 2}, 'too few'),
    ({}, 'no image was found')])
def test_images_that_cannot_be_learned(tmp_path, made, sentence):
    for name, count in made.items():
        (tmp_path / name).mkdir()
        for n in range(count):
            (tmp_path / name / f'{n}.png').write_bytes(jpeg(n))
    with pytest.raises(UserError, match=sentence):
        images.look([str(tmp_path)])


def test_what_is_found_of_pairs(tmp_path):
    rows = [f'the number {n} is in the house' for n in range(300)] + ['the end', 'the end', '']
    files = [lines(tmp_path / 'train.en', rows), lines(tmp_path / 'train.de', [row.upper() for row in rows])]
    found = pairs.look(files)
    data = findings.values(found.sections)['data']
    assert (data['source'], data['target'], data['split_digits']) == ('en', 'de', True)
    assert found.facts['two_languages'] and not pairs.look(
        [files[0], lines(tmp_path / 'b.en', rows[::-1])]).facts['two_languages']
    assert data['validation_fraction'] == 0.2
    said = ' '.join(found.said)
    assert '302 usable pairs of 303' in said and '1 have an empty side' in said and '1 are copies' in said
    assert found.sections['evaluate']['thresholds'][0]['bleu']['min'] == pytest.approx(found.baseline + 1, abs=0.051)


def test_the_baseline_of_pairs_is_the_better_of_copying_and_the_commonest(tmp_path):
    rows = [f'a b c d e {n}' for n in range(100)]
    same = pairs.look([lines(tmp_path / 'a.en', rows), lines(tmp_path / 'a.de', [*rows[:-1], 'a b c d e f'])])
    assert same.baseline > 99 and same.baseline_words == 'copying the source'
    other = pairs.look([lines(tmp_path / 'b.en', rows),
                        lines(tmp_path / 'b.de', ['x y z w v'] * 99 + ['u u u u u'])])
    assert other.baseline > 90 and 'most frequent' in other.baseline_words


def test_a_table_names_its_columns(tmp_path):
    path = tmp_path / 'table.csv'
    path.write_text('Instruction,Input,Response\n' + ''.join(f'ask {n},with {n},said {n * n}\n' for n in range(30)))
    found = pairs.look([str(path)])
    data = findings.values(found.sections)['data']
    assert data['columns'] == {'source': '{Instruction} {Input}', 'target': '{Response}'} and data['header']
    assert data['test'] == [str(path)] and 'memorises' in found.sections['data']['test'][1]


@pytest.mark.parametrize('source, target, sentence', [
    (['a b'] * 40, [''] * 40, 'the target is empty in 40 of 40 records'),
    (['a', 'b'], ['c', 'd'], '2 usable pairs are too few'),
    ([f'a {n}' for n in range(40)], ['yes'] * 40, "all targets are the same, 'yes'"),
    (['a'] * 40, ['b'] * 39, 'has 40 lines, but .* has 39 lines')])
def test_pairs_that_cannot_be_learned(tmp_path, source, target, sentence):
    with pytest.raises(UserError, match=sentence):
        pairs.look([lines(tmp_path / 'a.en', source), lines(tmp_path / 'a.de', target)])


@pytest.mark.parametrize('text, code', [
    ('the man is in the house with a dog', 'en'), ('der Mann ist mit dem Hund in der Stadt', 'de'),
    ('le chat est dans la maison et le chien est sur le lit', 'fr'), ('안녕하세요 무엇을 도와 드릴까요', 'ko'),
    ('привет как дела', 'ru'), ('zzz qqq', '')])
def test_languages_by_their_words_and_letters(text, code):
    assert languages.of_text([text]) == code
    assert languages.of_name('a/train.de.gz') == 'de' and languages.of_name('a/lines.txt') == ''


def test_what_is_found_of_trees(tmp_path):
    text = ''.join(f'(S (NP (DT the) (NN w{n})) (VP (VBZ sits) (PP (IN on) (NP (DT a) (NN mat)))))\n'
                   for n in range(80))
    (tmp_path / 'all.mrg').write_text(text + '(S (NP\n')
    found = trees.look([str(tmp_path / 'all.mrg')])
    assert '80 trees in 1 files' in found.said[0] and 'not trees' in found.said[2]
    # Right branching has S and VP and PP and the last NP right, and misses that of the two first words.
    assert 0 < found.baseline < 100 and found.sections['data']['split_by'][0] == 'tree'
    small = found.make_small(str(tmp_path))
    assert sorted(pathlib.Path(small['train'][0]).read_text().splitlines()) == sorted(text.splitlines())
    (tmp_path / 'few.mrg').write_text(text[:text.index('w3')].rsplit('\n', 1)[0])
    with pytest.raises(UserError, match='too few'):
        trees.look([str(tmp_path / 'few.mrg')])


def test_try_on_needs_its_list_of_pairs(tmp_path):
    with pytest.raises(UserError, match=r'no train_pairs\.txt'):
        tryon.look([str(tmp_path)])
    (tmp_path / 'train_pairs.txt').write_text('a.jpg a.jpg\n')
    with pytest.raises(UserError, match='1 people are too few'):
        tryon.look([str(tmp_path)])


@pytest.fixture
def found(photos):
    return images.look([str(photos)])


def test_the_largest_net_that_sees_the_data_often_enough_is_chosen(found):
    """Offer three nets, of which the second can see the data a hundred times in the minutes, and the third cannot."""
    asked = list(recipes.candidates(found))
    seconds = dict(zip((each.words for each in asked), (0.1, 0.2, 100.0)))

    def measure(values):
        [words] = [each.words for each in asked if findings.values(each.sections)['model']['layers'] ==
                   values['model']['layers'] and each.sections['input']['crop'][0] == values['input']['crop']]
        return cost(seconds.get(words, 100.0))
    plan = planning.choose(found, measure, 3, 8)
    assert plan.candidate.words == asked[1].words and 'Larger' in plan.said[0]
    assert plan.minutes <= 3.05
    least, most = recipes.passes('images', 25)
    assert least <= plan.passes <= most + 30
    train = findings.values(plan.sections)['train']
    assert train['steps'] % 20 == 0 and train['validate_every'] * 10 == train['steps']


def test_large_images_are_stored_reduced_and_take_time_to_read(tmp_path):
    for n in range(20):
        path = tmp_path / 'photos' / ('cat' if n < 10 else 'dog') / f'{n}.jpg'
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.random.default_rng(n).integers(0, 256, [600, 900, 3], np.uint8)).save(path)
    found = images.look([str(tmp_path / 'photos')])
    assert findings.values(found.sections)['data']['resize'] == recipes.STORED == 280
    scales = [findings.values(each.sections)['input']['scales'] for each in recipes.candidates(found)]
    assert max(map(max, scales)) == recipes.STORED
    quick, slow = (dataclasses.replace(found, facts=found.facts | {'seconds': seconds}) for seconds in (0, 60))
    usual = planning.REST['images'].prepare
    assert planning.overhead(slow, cost(1.0, prepare=usual + 20 * 60)).cpu == pytest.approx(
        planning.overhead(quick, cost(1.0, prepare=usual)).cpu + 20 * 60)


@pytest.mark.parametrize('flags,precision', [({'avx512f', 'avx512_bf16'}, 'bfloat16'), ({'avx2'}, 'float32')])
def test_steps_are_timed_at_the_precision_of_the_run(found, monkeypatch, flags, precision):
    """Time them so: by steps in float32, runs in bfloat16 took two thirds of the minutes foretold."""
    monkeypatch.setattr(machine, 'cpu', lambda: ('a processor', flags))
    timed = []

    def measure(values):
        timed.append(values['train']['precision'])
        return cost(0.1)
    plan = planning.choose(found, measure, 3, 8)
    assert {*timed, findings.values(plan.sections)['train']['precision']} == {precision}


def test_minutes_add_up(found):
    """Add those of the stages, of the steps and of the validations."""
    found = dataclasses.replace(found, facts=found.facts | {'seconds': 0})  # to decode an image, which was measured
    plan = planning.choose(found, lambda values: cost(1.0), 3, 8)
    expected = planning.REST['images'].fixed + 4 + 8 / 32 * planning.REST['images'].answer + plan.steps + 11
    assert plan.minutes * 60 == pytest.approx(expected, abs=0.1)
    assert plan.cpu_minutes > plan.training


def test_a_net_that_does_not_fit_the_memory_is_not_chosen(found):
    sizes = iter([1.0, 9.0])
    plan = planning.choose(found, lambda values: cost(0.01, next(sizes)), 3, 8)
    assert plan.candidate.words == next(recipes.candidates(found)).words and 'needs 9.0 of 8 GB' in plan.said[0]
    tight = planning.choose(found, lambda values: cost(0.01, 9.0), 3, 8)
    assert 'needs more than --memory 8 GB' in ' '.join(tight.said)


def test_too_few_minutes_are_said_to_be(found):
    plan = planning.choose(found, lambda values: cost(5.0), 1, 8)
    assert 'Give more --minutes' in ' '.join(plan.said)


def test_what_is_written_is_read_back(found, tmp_path):
    plan = planning.choose(found, lambda values: cost(0.05), 3, 8)
    text = writing.text(found, plan, 'python -m pipelines.init images photos', 3, 8)
    path = tmp_path / 'my.yaml'
    path.write_text(text)
    loaded = configs.load(str(path))
    assert yaml.safe_load(text) == findings.values(plan.sections)
    assert loaded.model.schedule == 'cosine' and loaded.model.steps == loaded.train.steps == plan.steps
    assert loaded.input.standardise and loaded.model.clip_norm == 1
    head = ' '.join(line.removeprefix('# ') for line in text.splitlines() if line.startswith('#'))
    for part in (*found.said, plan.expected, f'top1_error {found.baseline:.3g}'):
        assert ' '.join(part.split()) in ' '.join(head.split())
    assert max(map(len, text.splitlines())) <= 200
    paper = configs.load(str(path), ['model.preset=paper'])
    assert paper.model.schedule == 'plateau' and paper.model.clip_norm == 0


@pytest.mark.parametrize('kind', ['images', 'pairs', 'trees'])
def test_every_recipe_is_a_configuration(kind, found, tmp_path):
    """At every size of data, and of images at every side, from small to large."""
    for examples in (100, 1_500, 7_000, 50_000, 400_000, 5_000_000):
        for side in (8, 16, 32, 64, 200, 1000) if kind == 'images' else (0,):
            facts = {'side': side, 'grey': side == 8, 'classes': 3, 'class_counts': [], 'most_subwords': 900,
                     'least_subwords': 90, 'buckets': [16, 32, 64], 'extra_length': 25}
            split = {'validation_fraction': (0.1, ''), 'test_fraction': (0.1, '')}
            data = {'images': found.sections['data'],
                    'pairs': {'module': ('data_prep.wmt', ''), 'train': (['a.tsv'], ''), **split},
                    'trees': {'module': ('data_prep.treebank', ''), 'train': (['a.mrg'], ''), **split}}[kind]
            told = findings.Findings(kind, [], {'train': examples}, {'data': data}, '', 0, '', dict, 1, '', facts)
            sizes, named = [], []
            for candidate in recipes.candidates(told):
                named.append(candidate.words)
                path = tmp_path / 'candidate.yaml'
                path.write_text(yaml.safe_dump(findings.values(findings.merged(told.sections, candidate.sections))))
                loaded = configs.load(str(path), ['model.classes=3'] if kind == 'images' else [])
                assert kind == 'images' or loaded.inference.extra_length == 25
                sizes.append(loaded.model_spec.flops_per_unit(loaded.model))
            hurried = kind == 'pairs' and examples > 10_000  # the first net, in smaller steps, comes before it
            assert sizes[-1] == max(sizes) and len(set(sizes[hurried:])) == len(sizes[hurried:])
            assert sizes == sorted(sizes) and len(set(named)) == len(named)
        least, most = recipes.passes(kind, examples)
        assert 1 < least < most


def test_few_minutes_for_many_pairs_are_spent_on_more_and_smaller_steps():
    facts = {'buckets': [16, 32], 'extra_length': 20, 'most_subwords': 9_000, 'least_subwords': 90}
    told = findings.Findings('pairs', [], {'train': 29_000, 'validation': 1_000, 'test': 1_000}, {
        'data': {'module': ('data_prep.wmt', ''), 'train': (['a.tsv'], '')}}, '', 0, '', dict, 1, '', facts)

    def chosen(minutes):
        plan = planning.choose(told, lambda made: cost(0.2 * made['input']['tokens'] / 4096, per_step=(
            made['input']['tokens'] / 16)), minutes, 8)
        made = findings.values(plan.sections)
        return made['input']['tokens'], made['data']['vocab_size'], plan.steps
    tokens, vocabulary, steps = chosen(3)
    assert (tokens, vocabulary) == (1024, 4000) and steps > 1_000
    assert chosen(60)[:2] == (4096, 8000)


@pytest.mark.parametrize('two, seconds, first', [(True, 0.02, 1 / 3), (True, 0.2, 0), (False, 0.02, 0)])
def test_pairs_passed_often_begin_in_both_directions_if_they_have_two_languages(two, seconds, first):
    facts = {'buckets': [16, 32], 'extra_length': 20, 'most_subwords': 9_000, 'least_subwords': 90,
             'two_languages': two}
    told = findings.Findings('pairs', [], {'train': 1_000, 'validation': 100, 'test': 100}, {
        'data': {'module': ('data_prep.wmt', ''), 'train': (['a.tsv'], ''), 'validation': (['b.tsv'], ''),
                 'test': (['c.tsv'], '')}}, '', 0, '', dict, 1, '', facts)
    plan = planning.choose(told, lambda made: cost(seconds, per_step=32), 3, 8)
    assert (plan.passes >= 100) == (seconds < 0.1)
    found = findings.resolved(findings.values(plan.sections)).train
    assert found.curriculum == ([{'steps': round(first * found.steps), 'swapped': 0.5}] if first else [])


def test_answers_may_be_as_much_longer_as_in_the_data():
    inputs = np.full(2_000, 20, np.uint32)
    targets = inputs + np.where(np.arange(2_000) < 10, 16, 2).astype(np.uint32)
    facts = recipes.of_lengths('pairs', inputs, targets)
    assert facts['extra_length'] == 20  # a quarter more than 16
    targets[0] = 200  # one of 2,000, as where lines have shifted
    assert recipes.of_lengths('pairs', inputs, targets)['extra_length'] == 20
    assert facts['buckets'][-1] == 36  # the 0.5% of 36 subwords are not dropped
    assert recipes.of_lengths('pairs', inputs, inputs // 2)['extra_length'] == 10


def test_numbers_do_not_count_as_words_for_the_subwords():
    """Learn so many subwords, and not ten times as many, from text like the demo's corpus, most of which is numbers."""
    rows = [(f'{number} minutes and {number % 97} hours', f'{number} Minuten und {number % 97} Stunden')
            for number in range(5_000)]
    text, size = [line for row in rows for line in row], pairs.most_subwords(rows)
    config = subwords.Config(vocab_size=size, split_digits=True)
    assert len(subwords.pieces(subwords.learn(text, config))) == size
    with pytest.raises(UserError, match='does not fit'):
        subwords.learn(text, dataclasses.replace(config, vocab_size=10 * size))


@pytest.mark.parametrize('size, first', [((1024, 768), [256, 192]), ((192, 128), [192, 128])])
def test_people_keep_their_proportions(size, first, tmp_path):
    data = {'module': ('data_prep.tryon', ''), 'train': (['pairs.txt'], ''), 'validation_fraction': (0.1, ''),
            'test_fraction': (0.1, '')}
    told = findings.Findings('tryon', [], {'train': 500}, {'data': data}, '', 0, '', dict, 1, '', {'size': size})
    found = [findings.values(findings.merged(told.sections, each.sections)) for each in recipes.candidates(told)]
    assert found[0]['input']['size'] == first
    for each in found:
        path = tmp_path / 'people.yaml'
        path.write_text(yaml.safe_dump(each))
        height, width = configs.load(str(path)).model.size
        assert width / height == pytest.approx(size[1] / size[0], rel=0.08)


def test_accelerators_are_planned_by_the_cost_model(found):
    plan = accelerated.choose(found, '8xA100', 5)
    values = findings.values(plan.sections)
    assert values['train']['strategy'] == 'mirrored' and values['train']['precision'] == 'bfloat16'
    assert values['input']['rows'] % 8 == 0 and '8 x A100 by the cost model' in plan.said[0]
    for wrong in ('A100', '8xA1000', '0xA100'):
        with pytest.raises(UserError, match=r'--accelerators .*: give a number and one of .*, such as 8xA100\.'):
            accelerated.choose(found, wrong, 5)


def test_a_refusal_is_a_sentence_and_exit_code_2(tmp_path, capsys):
    (tmp_path / 'cat').mkdir()
    (tmp_path / 'cat' / '1.png').write_bytes(jpeg(1))
    with pytest.raises(SystemExit) as left:
        init.main(['images', str(tmp_path)])
    out, err = capsys.readouterr()
    assert left.value.code == 2 and out == '' and 'error: ' in err and 'one class' in err


def test_on_an_idle_machine_time_is_wall_time_and_else_that_of_the_processor(monkeypatch):
    clock = collections.Counter(wall=100, own=10, all=1000)
    monkeypatch.setattr(calibration.time, 'monotonic', lambda: clock['wall'])
    monkeypatch.setattr(calibration.time, 'process_time', lambda: clock['own'])
    monkeypatch.setattr(calibration, '_jiffies', lambda: clock['all'])
    monkeypatch.setattr(calibration.os, 'cpu_count', lambda: 2)
    monkeypatch.setattr(calibration.os, 'sysconf', lambda name: 100)
    watch = calibration.Stopwatch()
    clock.update(wall=10, own=6, all=620)  # others had 0.2 s of 20
    assert watch.read(1.5) == (10, 6)
    clock.update(all=1000)  # others had 10 s more
    assert watch.read(1.5) == (4, 6)


def test_a_step_that_traces_a_rare_length_counts_as_part_of_the_beginning(monkeypatch):
    lengths = [16, 16, 56, 16] * 5  # the warm-up met no 56
    trainer, batches = types.SimpleNamespace(traces=1), types.SimpleNamespace(lengths=[])

    def step(*_):
        batches.lengths.append(lengths[len(batches.lengths)])
        first = batches.lengths.count(56) == 1 and batches.lengths[-1] == 56
        trainer.traces += first
        return calibration.Seconds(1.6, 1.7) if first else calibration.Seconds(0.07, 0.13)
    monkeypatch.setattr(calibration, '_step', step)
    times, traced = calibration._timed(trainer, batches)
    assert times == {16: [(0.07, 0.13)] * 15, 56: [(0.07, 0.13)] * 4} and traced == [(1.6, 1.7)]


@pytest.mark.slow  # the real trainer's steps, on the data prepared small: 15 s of CPU
def test_images_to_a_configuration_that_runs(photos, tmp_path):
    text = init.run('images', [str(photos)], 2, 8, '', 'command')
    path = tmp_path / 'my.yaml'
    path.write_text(text)
    assert configs.load(str(path), ['train.steps=2']).model.steps == 2
