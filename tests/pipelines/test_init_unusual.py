"""A first configuration for data that is unusual: layouts, columns, letters and damage as people really have them."""
import gzip
import io
import json
import os
import re
import tarfile

import numpy as np
import pytest
import sacrebleu
import tensorflow as tf
from PIL import Image

from data_prep import UserError, wmt
from data_prep.core import records
from data_prep.image import shards
from data_prep.text import job as text_job
from data_prep.text import subwords
from pipelines import init
from pipelines.starting import findings, folders, images, pairs, recipes, trees, tryon
from pipelines.starting.findings import values


def picture(seed, side=16):
    stream = io.BytesIO()
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, [side, side, 3], np.uint8)).save(stream, 'PNG')
    return stream.getvalue()


def write(root, names):
    """Write an image under every name; one that ends in / is an empty folder, and in .tar an empty archive."""
    for number, name in enumerate(names):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith('/'):
            path.mkdir()
        elif name.endswith('.tar'):
            tarfile.open(path, 'w').close()
        else:
            path.write_bytes(picture(number))
    return root


def two_classes(below, count=12):
    return [f'{below}/{label}/{label}{n}.png' for label in ('cat', 'dog') for n in range(count)]


def lines(path, rows):
    path.write_text(''.join(f'{row}\n' for row in rows), encoding='utf-8')
    return str(path)


@pytest.mark.parametrize('names, expected, said', [
    (two_classes('a'), {'train': ['a']}, ''),
    (two_classes('a/b'), {'train': ['a/b']}, ''),  # an unpacked archive of a folder
    (['a/train/1.png', 'a/bus/2.png', 'a/car/3.png'], {'train': ['a']}, ''),  # vehicles
    ([*two_classes('a/seg_train/seg_train'), *two_classes('a/seg_test/seg_test'), 'a/seg_pred/seg_pred/1.png'],
     {'train': ['a/seg_train/seg_train'], 'test': ['a/seg_test/seg_test']}, 'Left out beside seg_train, .*: seg_pred.'),
    ([*two_classes('a/trainingSet'), 'a/testSet/1.png'], {'train': ['a/trainingSet']}, 'Left out .*: testSet.'),
    ([*two_classes('a/train'), *two_classes('a/val'), *two_classes('a/valid')],
     {'train': ['a/train'], 'validation': ['a/val', 'a/valid']}, ''),
    ([*two_classes('a/train'), *two_classes('a/test'), 'a/__MACOSX/x.png', *two_classes('a/a')],
     {'train': ['a/train'], 'test': ['a/test']}, 'Left out beside train, .*: a.'),
    ([*two_classes('a/train'), 'a/test/1.png'], {'train': ['a/train']}, 'Left out beside train, .*: test.'),
    ([*two_classes('a/train'), 'a/train.tar'], {'train': ['a/train']}, ''),  # which was unpacked
    ([*two_classes('a/train'), 'a/test/'], {'train': ['a/train']}, 'test'),
    (['a/cat/1.png'], {'train': ['a']}, '')])
@pytest.mark.parametrize('packed', [False, True])
def test_layouts_of_images(tmp_path, names, expected, said, packed):
    write(tmp_path, names)
    root, path = 'a', str(tmp_path / 'a')
    if packed:
        root, path = 'a.tgz/a', str(tmp_path / 'a.tgz')
        with tarfile.open(path, 'w:gz') as tar:
            tar.add(tmp_path / 'a', 'a')
        if names[-1] == 'a/test/':
            said = ''  # an empty folder is no file of an archive
    lists, left_out = folders.splits([path])
    made = {split: [f'{tmp_path}/{name.replace("a", root, 1)}' for name in expected.get(split, [])] for split in lists}
    assert lists == made
    assert len(left_out) == bool(said) and (not said or re.search(said, left_out[0]))


def test_an_archive_of_a_folder_is_looked_at_below_it(tmp_path):
    write(tmp_path, two_classes('photos'))
    with tarfile.open(tmp_path / 'photos.tgz', 'w:gz') as tar:
        tar.add(tmp_path / 'photos', 'photos')
    found = images.look([str(tmp_path / 'photos.tgz')])
    assert '24 images in 2 classes' in found.said[0]
    assert values(found.sections)['data']['train'] == [f'{tmp_path}/photos.tgz/photos']


def test_a_test_of_other_classes_is_not_used(tmp_path):
    write(tmp_path, [*two_classes('a/train'), 'a/test/unknown/1.png', 'a/test/unknown/2.png'])
    found = images.look([str(tmp_path / 'a')])
    data = values(found.sections)['data']
    assert 'test' not in data and data['test_fraction'] == 0.2
    assert f'{tmp_path}/a/test is not used: 0 of its 2 images are of the training classes' in ' '.join(found.said)


def test_a_validation_with_other_classes_too_is_allowed_as_many_dead_letters(tmp_path):
    write(tmp_path, [*two_classes('a/train'), *two_classes('a/val', 5), *[f'a/val/eel/{n}.png' for n in range(4)],
                     'a/val/loose.png'])
    found = images.look([str(tmp_path / 'a')])
    assert found.examples['validation'] == 10 and values(found.sections)['data']['max_dead_letters'] >= 5 / 15
    assert 'a/val: 5 files are of no class of the training images' in ' '.join(found.said)


def test_a_link_to_a_file_that_is_gone_is_a_damaged_file(tmp_path):
    write(tmp_path, two_classes('a'))
    os.symlink(tmp_path / 'gone.png', tmp_path / 'a' / 'cat' / 'link.png')
    found = images.look([str(tmp_path / 'a')])
    assert 'such as cat/link.png: it cannot be read (No such file or directory)' in ' '.join(found.said)
    small = tmp_path / 'small'
    small.mkdir()
    found.make_small(str(small))
    assert len([*small.rglob('*.png')]) == 24


def test_images_that_differ_in_transparency_alone_are_refused(tmp_path):
    draw = np.random.default_rng(1)
    for label in ('cat', 'dog'):
        (tmp_path / label).mkdir()
        for n in range(12):
            pixels = np.zeros([16, 16, 4], np.uint8)
            pixels[..., 3] = draw.integers(0, 256, [16, 16])
            Image.fromarray(pixels).save(tmp_path / label / f'{n}.png')
    with pytest.raises(UserError, match='all 24 inspected images are equal.*transparency'):
        images.look([str(tmp_path)])


def test_samples_in_folders_of_their_own_are_divided_one_by_one():
    """Names as `image.png` in a folder each: by its name alone, all of a class would be in one split."""
    assert len({shards.identity('cat', f'data/cat/{n}/image.png') for n in range(50)}) == 50
    flat = shards.identity('cat', 'cat/1.png')
    assert flat == shards.identity('cat', 'somewhere/train/cat/1.png') == shards.identity('cat', 'cat/images/1.png')
    assert flat == shards.identity('cat', '1.png') != shards.identity('dog', '1.png')


@pytest.mark.parametrize('share, total, smallest', [(2 / 43, 43, 8), (0.01, 300, 60), (0.1, 2_000, 300), (0.5, 40, 8)])
def test_the_limit_of_damaged_files_holds_for_small_splits(share, total, smallest):
    """Draw which examples a split holds: of 1,000 draws fewer than 10 have more damaged ones than is allowed."""
    draw, bad = np.random.default_rng(1), round(share * total)
    shares = draw.hypergeometric(bad, total - bad, smallest, 1_000) / smallest
    limit = findings.dead_letters(share, total, smallest)
    assert (shares > limit).mean() < 0.01 or limit == 0.5
    assert limit >= min(0.5, 2 * share)


def test_chinese_gets_as_many_subwords_as_it_has_letters_and_a_gate_that_counts_them(tmp_path):
    """800 short pairs have 900 different characters, more than the recipe's 1,000 subwords with those of English."""
    draw = np.random.default_rng(1)
    chinese = [''.join(chr(0x4e00 + n) for n in draw.integers(0, 1_500, 12)) for _ in range(800)]
    english = [f'the sentence of number {n} in the book' for n in range(800)]
    found = pairs.look([lines(tmp_path / 'a.en', english), lines(tmp_path / 'a.zh', chinese)])
    assert found.metric == 'chrf' and 'chrF decides' in found.said[-1]
    assert sacrebleu.corpus_bleu(chinese, [chinese]).score == 0  # even of perfect answers
    [size] = {values(each.sections)['data']['vocab_size'] for each in recipes.candidates(found)}
    letters = len(set(''.join(chinese + english)))
    assert letters > 1_000 and size > letters
    trained = [text for n in range(800) if n % 10 < 6 for text in (english[n], chinese[n])]  # the least share
    assert len(subwords.pieces(subwords.learn(trained, subwords.Config(vocab_size=size)))) == size


def test_chinese_learned_by_heart_gets_the_subwords_of_all_of_it(tmp_path):
    draw = np.random.default_rng(1)
    chinese = [[''.join(chr(0x4e00 + n) for n in draw.integers(0, 900, 15)) for _ in range(55)] for _ in range(2)]
    found = pairs.look([lines(tmp_path / 'a.zh', chinese[0]), lines(tmp_path / 'a.ja', chinese[1])])
    [size] = {values(each.sections)['data']['vocab_size'] for each in recipes.candidates(found)}
    assert len(subwords.pieces(subwords.learn(sum(chinese, []), subwords.Config(vocab_size=size)))) == size
    assert 'The test repeats all of them' in ' '.join(found.said)


def test_the_gate_can_be_passed_where_copying_is_nearly_right(tmp_path):
    rows = [f'a b c d e f g h {n}' for n in range(400)]
    found = pairs.look([lines(tmp_path / 'a.en', rows),
                        lines(tmp_path / 'a.de', [row.replace('a', 'x') if n % 40 == 0 else row
                                                  for n, row in enumerate(rows)])])
    limit = found.sections['evaluate']['thresholds'][0]['bleu']['min']
    assert 95 < found.baseline < limit < 100
    with pytest.raises(UserError, match='every target equals its source'):
        pairs.look([lines(tmp_path / 'b.en', rows), lines(tmp_path / 'b.de', rows)])


def test_more_than_is_inspected_is_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(pairs, 'LOOKED_AT', 2_000)
    rows = [f'the number {n} is in the house' for n in range(9_000)]
    found = pairs.look([lines(tmp_path / 'a.en', rows), lines(tmp_path / 'a.de', [row.upper() for row in rows])])
    assert '9,000 usable pairs of 9,000' in found.said[0] and 'The first 2,000 records' in ' '.join(found.said)
    assert found.examples == {'train': 7_200, 'validation': 900, 'test': 900}
    tree = '(S (NP (DT the) (NN w{})) (VP (VBZ sits)))'
    path = lines(tmp_path / 'a.mrg', [tree.format(n) for n in range(5_000)])
    monkeypatch.setattr(trees, 'LOOKED_AT', 2_000)
    monkeypatch.setattr(trees, 'SMALL', 100)
    found = trees.look([path])
    assert found.examples == {'train': 4_000, 'validation': 500, 'test': 500}
    small = found.make_small(str(tmp_path))
    assert len(open(small['train'][0]).readlines()) == found.small == 100


def test_an_empty_test_is_refused(tmp_path):
    rows = [f'the house {n}' for n in range(90)]
    files = [lines(tmp_path / 'train.en', rows), lines(tmp_path / 'train.de', rows[::-1]),
             lines(tmp_path / 'test.en', []), lines(tmp_path / 'test.de', [])]
    with pytest.raises(UserError, match='test.en, .*test.de: no usable pair. Leave it out, and a part of the training'):
        pairs.look(files)
    files = [lines(tmp_path / 'train.mrg', [f'(S (NP (NN w{n})))' for n in range(90)]),
             lines(tmp_path / 'dev.mrg', [''])]
    with pytest.raises(UserError, match='dev.mrg: no tree. Leave it out'):
        trees.look(files)


def test_treebanks_of_usual_names_keep_their_splits(tmp_path):
    tree = '(S (NP (DT the) (NN {}{})) (VP (VBZ sits)))'
    files = [lines(tmp_path / f'{name}.mrg', [tree.format(name, n) for n in range(count)])
             for name, count in (('train', 80), ('dev', 10), ('test', 20))]
    found = trees.look(files)
    data = values(found.sections)['data']
    assert (data['train'], data['validation'], data['test']) == (files[:1], files[1:2], files[2:])
    assert found.examples == {'train': 80, 'validation': 10, 'test': 20}


def test_few_pairs_with_a_test_are_learned_by_heart_and_tested(tmp_path):
    """Validation repeats the training pairs, which must not be filtered for it."""
    files = [tmp_path / 'train.tsv', tmp_path / 'test.tsv']
    for path in files:
        path.write_text('source\ttarget\n' + ''.join(f'ask {n}\tsay {n} times {n}\n' for n in range(40)))
    found = pairs.look([str(path) for path in files])
    data = values(found.sections)['data']
    assert data['validation'] == data['train'] and data['test'] == [str(files[1])] and 'remove_duplicates' not in data
    (tmp_path / 'out').mkdir()
    manifest = text_job.run(wmt.Config(**{key: value for key, value in data.items() if key != 'module'},
                                       vocab_size=40), str(tmp_path / 'out'), [])
    assert {split: manifest.counts[split]['written'] for split in ('train', 'validation', 'test')} == {
        'train': 40, 'validation': 40, 'test': 40}


@pytest.mark.parametrize('text, header, columns', [
    ('{n}\tthe house {n}x\tdas Haus {n}y', False, {}),  # no header names the texts
    ('the house {n}x\t0.{n}\tdas Haus {n}y', False, {}),
    (',english,french\n{n},the house {n}x,la maison {n}y', True, {'source': '{english}', 'target': '{french}'}),
    ('id,en,n,de\n{n},the house {n}x,7,das Haus {n}y', True, {'source': '{en}', 'target': '{de}'}),
    ('en,de\nthe house {n}x,das Haus {n}y', True, {'source': '{en}', 'target': '{de}'}),
    ('eng;de-DE\nthe house {n}x;das Haus {n}y', True, {'source': '{eng}', 'target': '{de-DE}'}),
    ('key,English sentence,German sentence\nx{n},the house {n}x,das Haus {n}y', True,
     {'source': '{English sentence}', 'target': '{German sentence}'}),
    ('prefix,input_text,target_text\nsay,the house {n}x,das Haus {n}y', True,
     {'source': '{input_text}', 'target': '{target_text}'}),
    ('the house {n}x,das Haus {n}y', False, {}),
    ('{n},number {n}x', False, {}),
    ('id,en,de\nt{n},the house {n}x,das Haus {n}y', True, {'source': '{en}', 'target': '{de}'})])
def test_columns_of_text_are_found_beside_numbers(tmp_path, text, header, columns):
    first, _, row = text.rpartition('\n')
    path = tmp_path / ('a.tsv' if '\t' in text else 'a.csv')
    path.write_text((f'{first}\n' if first else '') + ''.join(row.format(n=n) + '\n' for n in range(100)))
    if '\t' in text:
        with pytest.raises(UserError, match='columns of numbers stand among those of text'):
            pairs.look([str(path)])
        return
    data = values(pairs.look([str(path)]).sections)['data']
    assert (data.get('header', False), data.get('columns', {})) == (header, columns)


@pytest.mark.parametrize('record, columns', [
    ({'source': 'the house', 'target': 'das Haus'}, {'source': '{source}', 'target': '{target}'}),
    ({'instruction': 'Say it.', 'input': 'house', 'output': 'Haus', 'text': 'Say it. Haus', 'source': 'us'},
     {'source': '{instruction} {input}', 'target': '{output}'}),  # Alpaca; `text` repeats the answer
    ({'label': 'good', 'prompt': 'house', 'completion': 'Haus'}, {'source': '{prompt}', 'target': '{completion}'}),
    ({'id': 'a', 'dialogue': 'the house', 'summary': 'house'}, {'source': '{dialogue}', 'target': '{summary}'}),
    ({'id': 'a', 'article': 'the house', 'highlights': 'house'}, {'source': '{article}', 'target': '{highlights}'}),
    ({'id': 'a', 'translation': {'en': 'house', 'zh-CN': 'Haus', 'fr': 'maison'}},
     {'source': '{translation.en}', 'target': '{translation.zh-CN}'}),
    ({'id': 'a', 'translation': {'en': 'the house', 'de': 'das Haus'}},
     {'source': '{translation.en}', 'target': '{translation.de}'}),
    ({'id': 'a', 'translation': {'en': 'the house', 'python': 'house()'}},
     {'source': '{translation.en}', 'target': '{translation.python}'}),
    ({'id': 'a', 'name': 'the house', 'n': 3, 'tags': [1], 'motto': 'das Haus'},
     {'source': '{name}', 'target': '{motto}'})])
def test_columns_of_json_lines_are_found_by_their_names(tmp_path, record, columns):
    def numbered(value, n):
        return {name: numbered(each, n) for name, each in value.items()} if isinstance(value, dict) else (
            f'{value} {n}x' if isinstance(value, str) else value)
    path = tmp_path / 'a.jsonl'
    path.write_text(''.join(json.dumps(numbered(record, n)) + '\n' for n in range(100)))
    found = pairs.look([str(path)])
    data = values(found.sections)['data']
    assert (data.get('header', False), data.get('columns', {})) == (bool(columns), columns)
    assert '100 usable pairs of 100' in found.said[0]


def test_columns_are_found_by_name_in_every_file(tmp_path):
    """Give a test whose columns stand in another order, and a validation of lines."""
    (tmp_path / 'train.csv').write_text('en,de\n' + ''.join(f'the house {n},das Haus {n}\n' for n in range(100)))
    (tmp_path / 'test.jsonl').write_text('{"de": "das Haus", "en": "the house"}\n' * 20)
    for language, text in (('en', 'the house'), ('de', 'das Haus')):
        (tmp_path / f'valid.{language}').write_text(f'{text}\n' * 20)
    data = values(pairs.look([str(tmp_path / name) for name in (
        'train.csv', 'valid.en', 'valid.de', 'test.jsonl')]).sections)['data']
    del data['module']
    text_job.run(wmt.Config(**data | {'remove_duplicates': False}, vocab_size=40), str(tmp_path / 'out'), [])
    for split in ('train', 'validation', 'test'):
        examples = records.open_split(str(tmp_path / 'out'), split)
        sides = [[tf.train.Example.FromString(row).features.feature[side].bytes_list.value[0] for side in (
            'source', 'target')] for row in examples.read(range(len(examples)))]
        assert len(sides) >= 20 and all(
            source.startswith(b'the house') and target.startswith(b'das Haus') for source, target in sides)


def test_a_single_file_of_tabs_is_a_table(tmp_path):
    """Name it as Tatoeba's, whose third column says who wrote the sentences."""
    for name, count in (('deu.txt', 100), ('deu_test.txt', 20)):
        (tmp_path / name).write_text(''.join(f'The house {n}.\tDas Haus {n}.\tCC-BY 2.0\n' for n in range(count)))
    found = pairs.look([str(tmp_path / name) for name in ('deu.txt', 'deu_test.txt')])
    data = values(found.sections)['data']
    assert found.examples['test'] == 20 and not {'header', 'columns'} & data.keys()
    del data['module']
    manifest = text_job.run(wmt.Config(**data, vocab_size=40), str(tmp_path / 'out'), [])
    assert manifest.counts['test']['written'] == 20
    (tmp_path / 'deu.txt').write_text('the house\n' * 100)
    with pytest.raises(UserError, match=r'deu\.txt has no partner, and no tab in its first line\. List files two by'):
        pairs.look([str(tmp_path / 'deu.txt')])


def test_a_table_may_be_gzipped_or_in_an_archive(tmp_path):
    text = 'question,answer\n' + ''.join(f'the house {n}x,das Haus {n}y\n' for n in range(100))
    (tmp_path / 'a.csv.gz').write_bytes(gzip.compress(text.encode()))
    (tmp_path / 'a.csv').write_text(text)
    with tarfile.open(tmp_path / 'a.tgz', 'w:gz') as tar:
        tar.add(tmp_path / 'a.csv', 'a.csv')
    for path in (tmp_path / 'a.csv.gz', tmp_path / 'a.tgz' / 'a.csv'):
        data = values(pairs.look([str(path)]).sections)['data']
        assert data['columns'] == {'source': '{question}', 'target': '{answer}'}


ROWS = [f'the house {n}\tdas Haus {n}' for n in range(50)]


@pytest.mark.parametrize('name, content, said', [
    ('a.tsv', '\n'.join(ROWS).encode('utf-16'), 'hold NUL characters, as UTF-16 does .* Save the files as UTF-8'),
    ('a.tsv', '\n'.join(f'{row}é' for row in ROWS).encode('latin-1'), 'not UTF-8: byte 0xe9.*Save the files as UTF-8'),
    ('a.csv', '\n'.join(ROWS).replace('\t', '/').encode(), 'has one column.*Separate columns by commas in .csv'),
    ('a.tsv', '\n'.join(f'{n}\tthe house\t{n}\tdas Haus {n}' for n in range(50)).encode(),
     r'Leave those columns out, as by `cut -f2,4 \S+/a.tsv > pairs.tsv`'),
    ('a.csv', b'', 'a.csv is empty'), ('a.jsonl', b'', 'a.jsonl is empty'),
    ('a.json', b'[{"source": "a"}]', 'is one JSON array'),
    ('a.jsonl', b'{"id": "a", "title": "b", "context": "c", "question": "d", "answers": {"text": ["e"]}}',
     'which of id, title, context, question, answers.text are source and target'),
    ('a.jsonl', b'{"id": "a", "messages": [{"role": "user"}]}', 'which of id, messages are source'),
    ('a.jsonl', b'{"text": "a"}', 'has one name in a record, text, but a source and a target')])
def test_tables_that_cannot_be_read(tmp_path, name, content, said):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=said):
        pairs.look([str(tmp_path / name)])
    with pytest.raises(UserError, match='is a folder. Name the files in it'):
        pairs.look([str(tmp_path)])


def test_texts_that_are_too_long_are_told_or_refused(tmp_path):
    short, long = [f'the house {n}' for n in range(100)], 'word ' * 1_000
    some = pairs.look([lines(tmp_path / 'a.en', [*short, long]), lines(tmp_path / 'a.de', [*short[::-1], long + 'x'])])
    assert 'About 1 have more than 256 subwords' in ' '.join(some.said)
    many = [long + str(n) for n in range(50)]
    for targets, remedy in ((many[::-1], 'Split the texts into sentences'), (short[:50], 'Shorten the sources')):
        with pytest.raises(UserError, match=f'too long to learn from. {remedy}'):
            pairs.look([lines(tmp_path / 'b.en', many), lines(tmp_path / 'b.de', targets)])


@pytest.mark.parametrize('split, fraction, longest', [
    ('train', 0.0, 100), ('validation', 0.0, float('inf')), ('validation', 0.1, 400)])
def test_what_is_split_off_may_be_four_times_as_long_as_what_is_trained_on(split, fraction, longest):
    given = {} if fraction else {'validation': ['b.tsv']}
    config = wmt.Config(train=['a.tsv'], test=['c.tsv'], validation_fraction=fraction, max_length=100, **given)
    assert text_job._longest(config, split) == longest


def test_a_garment_that_is_not_worn_is_not_learned_from(tmp_path):
    (tmp_path / 'train_pairs.txt').write_text(''.join(f'{n}.jpg {n + 1}.jpg\n' for n in range(40)))
    with pytest.raises(UserError, match=r'0 people \(40 others are listed with garments they do not wear\) are too'):
        tryon.look([str(tmp_path)])


@pytest.mark.parametrize('arguments, said', [
    (['images', 'nowhere'], 'there is no file or folder nowhere. Check the path.'),
    (['pairs', 'nowhere.tgz/a.tsv'], 'there is no file or folder nowhere.tgz'),
    (['images', '.', '--minutes', 'inf'], '--minutes and --memory must be numbers of more than 0'),
    (['images', '.', '--memory', 'nan'], '--minutes and --memory must be numbers of more than 0')])
def test_a_mistake_is_a_sentence(arguments, said, capsys):
    with pytest.raises(SystemExit) as left:
        init.main(arguments)
    assert left.value.code == 2 and said in capsys.readouterr().err


@pytest.mark.parametrize('kind, name, remedy', [
    ('images', 'photos.ZIP', 'Unpack it'), ('pairs', 'train.parquet', 'as JSON lines'), ('pairs', 'a.xlsx', 'a .csv')])
def test_a_kind_of_file_that_is_not_read_is_told_with_its_remedy(tmp_path, kind, name, remedy, capsys):
    (tmp_path / name).write_bytes(b'PK')
    with pytest.raises(SystemExit):
        init.main([kind, str(tmp_path / name)])
    assert re.search(f'{name}: such files are not read.*{remedy}', capsys.readouterr().err)


def test_small_data_by_heart_is_written_once_for_each_split(found_by_heart):
    """YAML would write a list that stands twice as an alias, which the reader of configurations refuses."""
    lists = [found_by_heart['train'], found_by_heart['validation'], found_by_heart['test']]
    assert lists[0] == lists[1] == lists[2] and len({id(each) for each in lists}) == 3


@pytest.fixture
def found_by_heart(tmp_path):
    rows = [f'the house {n}' for n in range(30)]
    return values(pairs.look([lines(tmp_path / 'a.en', rows), lines(tmp_path / 'a.de', rows[::-1])]).sections)['data']


@pytest.mark.parametrize('names, chosen', [
    ('train_pairs.txt test_pairs_paired.txt test_pairs_unpaired.txt', ('train_pairs.txt', 'test_pairs_paired.txt')),
    ('train_pairs.txt subtrain_pairs.txt test_pairs.txt test_pairs_unpaired.txt',
     ('train_pairs.txt', 'test_pairs.txt')),
    ('train_pairs.txt test_unpaired_pairs.txt', ('train_pairs.txt', 'test_unpaired_pairs.txt'))])
def test_one_file_of_pairs_is_used_for_a_split(tmp_path, capsys, names, chosen):
    for name in names.split():
        (tmp_path / name).write_text('a.jpg b.jpg\n')
    found = tryon._lists(str(tmp_path))  # noqa: SLF001
    assert found == {'train': [f'{tmp_path}/{chosen[0]}'], 'validation': [], 'test': [f'{tmp_path}/{chosen[1]}']}
    assert ('not used beside' in capsys.readouterr().err) == (len(names.split()) > 2)
