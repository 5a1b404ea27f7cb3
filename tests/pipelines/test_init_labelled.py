"""A first configuration for images whose classes a table gives, as Kaggle and Hugging Face lay them out."""
import os
import tarfile

import numpy as np
import pytest
from PIL import Image

from data_prep import UserError
from data_prep.image import job as image_job
from data_prep.image import listing
from data_prep.image.schema import SPLITS
from pipelines.starting import calibration, findings, images, labelled, recipes
from pipelines.starting.findings import values

KINDS = ('cat', 'dog')


def draw(path, seed):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, [16, 16, 3], np.uint8)).save(path)


def images_in(folder, names):
    for name in names:
        draw(folder / name, sum(name.encode()))


def numbered(below='', first=0, count=24):
    return [f'{below}{number:03d}.png' for number in range(first, first + count)]


def stems(first=0, count=24):
    return [name[:-4] for name in numbered(first=first, count=count)]


def rows(names, head='id,breed', kind=lambda number: KINDS[number % 2]):
    return '\n'.join([head] * bool(head) + [f'{name},{kind(number)}' for number, name in enumerate(names)]) + '\n'


def hugging_face(folder):
    for split, first in (('train', 0), ('test', 100)):
        images_in(folder / split, numbered(first=first))
        (folder / split / 'metadata.csv').write_text(rows(numbered(first=first), 'file_name,label'))
    return {'train': ['train'], 'test': ['test']}, {'train': 'train/metadata.csv', 'test': 'test/metadata.csv'}


def hugging_face_lines(folder):
    images_in(folder / 'train', numbered())
    (folder / 'train' / 'metadata.jsonl').write_text(''.join(
        f'{{"file_name": "{name}", "label": {number % 2}}}\n' for number, name in enumerate(numbered())))
    return {'train': ['train']}, {'train': 'train/metadata.jsonl'}


def kaggle(folder):
    """Write ids without ending, more columns, and an example of answers, which gives the test no classes."""
    images_in(folder / 'train_images', numbered())
    images_in(folder / 'test_images', numbered(first=100))
    (folder / 'label_num_to_name.json').write_text('{\n  "0": "cat",\n  "1": "dog"\n}')
    (folder / 'pixels.csv').write_text('\n'.join(','.join('7' * 200) for _ in range(24)))
    (folder / 'train.csv').write_text('id,age,breed\n' + ''.join(
        f'{number:03d},{number},{KINDS[number % 2]}\n' for number in range(24)))
    (folder / 'test.csv').write_text('id,age\n' + ''.join(f'{number},3\n' for number in range(100, 124)))
    (folder / 'sample_submission.csv').write_text(rows(numbered(first=100), 'id,breed', lambda _: 'cat'))
    return {'train': ['train_images']}, {'train': 'train.csv'}


def one_table_for_both(folder):
    images_in(folder / 'train', numbered())
    images_in(folder / 'valid', numbered(first=100))
    (folder / 'all.csv').write_text(rows([*numbered('train/'), *numbered('valid/', 100)], 'image,variety'))
    return {'train': ['train'], 'validation': ['valid']}, {'train': 'all.csv', 'validation': 'all.csv'}


def in_parts(folder):
    images_in(folder, [*numbered('images_001/'), *numbered('images_002/', 24)])
    (folder / 'list.tsv').write_text(rows(numbered(count=48), 'Image Index,Follow-up,Finding Labels', lambda number: (
        f'3,{KINDS[number % 2]}')).replace(',', '\t'))
    return {'train': ['']}, {'train': 'list.tsv'}


def kaggle_of_equal_names(folder):
    """The test has images of the same names, but no classes."""
    for split in ('train', 'test'):
        images_in(folder / split, numbered())
    (folder / 'Training_set.csv').write_text(rows(numbered(), 'filename,label'))
    (folder / 'Testing_set.csv').write_text('filename\n' + '\n'.join(numbered()))
    return {'train': ['train']}, {'train': 'Training_set.csv'}


def one_table_of_names_that_both_have(folder):
    for split in ('train', 'test'):
        images_in(folder / split, numbered())
    (folder / 'labels.csv').write_text(rows(numbered()))
    return {'train': ['train']}, {'train': 'labels.csv'}


def hugging_face_of_equal_names(folder):
    for split in ('train', 'validation', 'test'):
        images_in(folder / split, numbered())
        (folder / split / 'metadata.csv').write_text(rows(numbered(), 'file_name,label'))
    return {split: [split] for split in SPLITS}, {split: f'{split}/metadata.csv' for split in SPLITS}


def a_table_of_each_split(folder):
    """One folder; the largest table is the test's."""
    images_in(folder / 'images', numbered(count=90))
    for name, first, count in (('train', 0, 24), ('val', 24, 20), ('test', 44, 46)):
        (folder / f'{name}.csv').write_text(rows(numbered(first=first, count=count)))
    return {split: [''] for split in SPLITS}, {'train': 'train.csv', 'validation': 'val.csv', 'test': 'test.csv'}


def other_tables(folder):
    """Folds of cross-validation, and files, name the images too."""
    images_in(folder / 'images', numbered())
    (folder / 'folds.csv').write_text(rows(numbered(), 'id,fold', lambda number: number % 5))
    (folder / 'files.csv').write_text(rows(numbered(), 'file,link'))
    (folder / 'info.csv').write_text(rows(stems(), 'id,label'))
    return {'train': ['']}, {'train': 'info.csv'}


def masks(folder):
    for split, first in (('train', 0), ('val', 24), ('test', 48)):
        images_in(folder / split, numbered(first=first))
        images_in(folder / f'{split}_masks', [f'{number:03d}_mask.png' for number in range(first, first + 24)])
        (folder / f'{split}.csv').write_text(rows(numbered(first=first), 'id,breed' if split != 'test' else 'id,x'))
    return {'train': ['train'], 'validation': ['val']}, {'train': 'train.csv', 'validation': 'val.csv'}


def masks_of_equal_names(folder):
    images_in(folder, [f'{kind}/{name}' for kind in ('images', 'masks', 'depth') for name in numbered()])
    (folder / 'labels.csv').write_text(rows(stems()))
    return {'train': ['images']}, {'train': 'labels.csv'}


def in_a_folder_called_train(folder):
    lists, tables = a_table_of_each_split(folder / 'train_data')
    return {split: ['train_data'] for split in lists}, {split: f'train_data/{name}' for split, name in tables.items()}


def two_versions(folder):
    """Write tables of no split, none of which is the test's, and two of the test, the larger of which is its own."""
    lists, tables = kaggle_of_equal_names(folder)
    (folder / 'labels_2.csv').write_text(rows(numbered(), 'filename,label'))
    (folder / 'test.csv').write_text(rows(numbered(), 'filename,label'))
    (folder / 'test_old.csv').write_text(rows(numbered(count=3), 'filename,label'))
    return lists | {'test': ['test']}, tables | {'test': 'test.csv'}


def told_apart_by_folder(folder):
    images_in(folder, [*numbered('train/'), *numbered('test/')])
    (folder / 'all.csv').write_text(rows([*numbered('train/'), *numbered('test/')]))
    return {'train': ['train'], 'test': ['test']}, {'train': 'all.csv', 'test': 'all.csv'}


def the_end_of_a_long_table(folder):
    """Write one part of an archive, and the table of all."""
    images_in(folder / 'images_012', numbered(first=500))
    (folder / 'labels.csv').write_text(rows([f'x{n}.png' for n in range(9_000)]) + rows(numbered(first=500), ''))
    return {'train': ['']}, {'train': 'labels.csv'}


def some_without_a_class(folder):
    images_in(folder / 'images', numbered(count=60))
    (folder / 'labels.csv').write_text(rows(numbered(count=60), 'id,breed', lambda n: KINDS[n % 2] if n < 24 else ''))
    return {'train': ['']}, {'train': 'labels.csv'}


def mixed(folder):
    """Half of the images are those of a test that is not given."""
    images_in(folder / 'images', numbered(count=60))
    (folder / 'train.csv').write_text(rows(numbered(count=24)))
    return {'train': ['']}, {'train': 'train.csv'}


def beside(folder):
    images_in(folder, numbered())
    (folder / 'labels.csv').write_text(rows(numbered(), ''))
    return {'train': ['']}, {'train': 'labels.csv'}


def above(folder):
    images_in(folder / 'images', [*numbered('batch_1/'), *numbered('batch_2/', 24)])
    (folder / 'labels.csv').write_text(rows(numbered(count=48)))
    return {'train': ['images']}, {'train': 'labels.csv'}


@pytest.mark.parametrize('make', [
    hugging_face, hugging_face_lines, hugging_face_of_equal_names, kaggle, kaggle_of_equal_names, one_table_for_both,
    one_table_of_names_that_both_have, a_table_of_each_split, other_tables, masks, some_without_a_class, in_parts,
    masks_of_equal_names, in_a_folder_called_train, two_versions, told_apart_by_folder, the_end_of_a_long_table, mixed,
    beside, above])
@pytest.mark.parametrize('packed', [False, True])
def test_layouts(tmp_path, make, packed):
    (tmp_path / 'a').mkdir()
    lists, tables = make(tmp_path / 'a')
    root = str(tmp_path / 'a')
    if packed:
        root += '.tgz'
        with tarfile.open(root, 'w:gz') as tar:
            for name in os.listdir(tmp_path / 'a'):
                tar.add(tmp_path / 'a' / name, name)
    found = images.look([root])
    data = values(found.sections)['data']
    assert {split: data[split] for split in SPLITS if split in data} == {
        split: [os.path.join(root, name).rstrip('/') for name in names] for split, names in lists.items()}
    assert {split: data[f'{split}_labels'] for split in SPLITS if f'{split}_labels' in data} == {
        split: f'{root}/{name}' for split, name in tables.items()}
    assert 'in 2 classes, ' in ' '.join(found.said) and ('columns' in data) == (make is not beside)
    assert found.baseline == 0.5 and found.facts['classes'] == 2


def test_the_part_that_is_timed_is_in_class_folders(tmp_path):
    kaggle(tmp_path)
    found = images.look([str(tmp_path)])
    net = findings.merged(found.sections, next(recipes.candidates(found)).sections)
    small = calibration.Small(found)  # its folder goes when it does
    config = small._config(findings.values(net))
    assert not config.data.train_labels and not config.data.columns
    for source in image_job.sources(config.data):
        assert {each.label for each in listing.scan(source, str(tmp_path), {})} == {'0', '1'}


def test_class_folders_are_used_unless_the_table_is_named(tmp_path, capsys):
    images_in(tmp_path, [*numbered('young/'), *numbered('old/', 24)])
    (tmp_path / 'labels.csv').write_text(rows(numbered(count=48), 'id,breed', lambda number: KINDS[number % 3 == 0]))
    table = str(tmp_path / 'labels.csv')
    assert labelled.layout([str(tmp_path)])[1:3] == ({}, {})
    assert f'{table}: not used, since folders give the classes' in capsys.readouterr().err
    found = images.look([str(tmp_path), table])
    assert values(found.sections)['data']['train_labels'] == table
    assert 'To beat' not in found.said[0] and round(found.baseline, 3) == 0.333


@pytest.mark.parametrize('head, row, column', [
    ('id,breed', '{0},{1}', 'breed'),
    ('file,class id,class,width', '{0},7,{1},{2}', 'class'),
    ('file,sex,age,mood', '{0},x,{2},{1}', 'mood'),  # one has few values
    ('index,file,label', '{3},{0},{1}', 'label'),  # an index of other images' names
    (',file,label', '{3},{0},{1}', 'label'),
    ('number,image,animal', '{3},{2},{1}', 'animal'),
    ('file,noise_level,animal', '{0},{2},{1}', 'animal'),
    ('label,file', '{4},{0}', 'label'),  # there are images 0 and 1
    ('lesion_id,image_id,dx,dx_type,localization', 'x,{0},{1},histo,back', 'dx'),
    ('file,x,y,species', '{0},1,2,{1}', 'species'),
    ('Path,Roi.X1,ClassId', '{0},3,{4}', 'ClassId'),
    ('id,masterCategory,articleType', '{0},{1},x', 'masterCategory'),
    ('label,label_name,path', '7,{1},{0}', 'label_name')])
def test_the_column_of_classes(tmp_path, head, row, column):
    names = [f'{number}.png' for number in range(24)]
    images_in(tmp_path, names)
    (tmp_path / 'labels.csv').write_text('\n'.join([head, *(
        row.format(name, KINDS[number % 2], number, 23 - number, number % 2) for number, name in enumerate(names))]))
    found = labelled.layout([str(tmp_path)])
    assert found.columns['class'] == f'{{{column}}}'
    listed, _ = images._listed('train', found)
    assert {each.found.name: each.label for each in listed} == {
        name: str(number % 2) if column in ('ClassId',) or head == 'label,file' else KINDS[number % 2]
        for number, name in enumerate(names)}


@pytest.mark.parametrize('text, said', [
    ('x,y\na,cat\nb,dog\n', r'labels\.csv: no column names images such as .*/0\d\d\.png\. Give a'),
    (rows(numbered(), 'id,fold', lambda number: number % 5), 'which of fold is the class'),
    (rows(numbered(), 'id,category', lambda number: '"[1, 2]"'), "'category' holds lists, but an image has one class"),
    (rows([name for name in numbered() for _ in range(2)]), r'24 of 24 images, such as 000\.png, have rows of diff'),
    (rows(numbered(), kind=lambda number: '"cat\nor dog"' if number == 9 else 'cat'),
     r'labels\.csv, record 11 goes on over several lines'),
    (rows([f'{name},3' for name in numbered()], ''), r'its first row names no columns\. Begin with such a row'),
    (rows([f'{name},{n % 3}' for n, name in enumerate(numbered())], 'file,sex,mood'),
     r'which of sex, mood is the class\? Call it label'),
    (rows([f'{name},{n % 2}' for n, name in enumerate(numbered())], 'file,rust,scab', lambda n: 1 - n % 2),
     r'labels\.csv has a column for each class\. Give a table of two columns')])
def test_tables_that_do_not_tell_the_classes(tmp_path, text, said):
    images_in(tmp_path, numbered())
    (tmp_path / 'labels.csv').write_text(text)
    with pytest.raises(UserError, match=said):
        labelled.layout([str(tmp_path)])


def test_a_table_of_something_else_does_not_matter(tmp_path):
    images_in(tmp_path, [*numbered('good parts/'), *numbered('bad parts/', 24)])
    (tmp_path / 'prices.csv').write_text(rows(['bolt', 'nut'], 'part,price'))
    assert labelled.layout([str(tmp_path)])[:3] == ({'train': [str(tmp_path)], 'validation': [], 'test': []}, {}, {})


def test_splits_without_classes_are_refused(tmp_path):
    images_in(tmp_path, [*numbered('train/'), *numbered('test/', 24)])
    with pytest.raises(UserError, match='test and train hold no class folders, and no table gives'):
        labelled.layout([str(tmp_path)])
    with pytest.raises(UserError, match=r'labels\.csv is a table\. Name the folder of its images, too'):
        labelled.layout(['labels.csv'])


def test_classes_may_be_called_anything(tmp_path):
    """A class of a table is not taken for a path."""
    images_in(tmp_path / 'photos', numbered())
    (tmp_path / 'labels.csv').write_text(rows(numbered(), 'id,breed', lambda number: ('../../a', '/etc')[number % 2]))
    found = images.look([str(tmp_path / 'photos'), str(tmp_path / 'labels.csv')])
    (tmp_path / 'small').mkdir()
    found.make_small(str(tmp_path / 'small'))
    assert sorted(os.listdir(tmp_path / 'small')) == ['0', '1'] and len(os.listdir(tmp_path / 'small' / '0')) == 12


def test_kaggles_solutions_of_ilsvrc_have_boxes_behind_the_class(tmp_path):
    images_in(tmp_path, numbered())
    (tmp_path / 'LOC_train_solution.csv').write_text(rows(
        stems(), 'ImageId,PredictionString', lambda n: f'{KINDS[n % 2]} {n} 1 9 9'))
    found = images.look([str(tmp_path)])
    assert found.facts['classes'] == 2 and 'columns' not in found.sections['data']


@pytest.mark.parametrize('names, table, said', [
    ([*numbered('train2017/'), *numbered('val2017/', 24)], 'annotations/a.txt', 'hold no class folders'),
    ([*numbered('images/train/'), *numbered('images/val/', 24)], 'labels/a.txt', 'hold no class folders'),
    ([*numbered('images/'), 'annotations/trimaps/000.png'], 'README', 'images holds no class folders'),
    ([*numbered('images_1/'), *numbered('images_2/', count=3)], 'labels.csv',
     r'labels\.csv: the same row names .*/images_1/000\.png and .*/images_2/000\.png\. Give the folder of')])
def test_layouts_that_are_not_of_classes_are_refused(tmp_path, names, table, said):
    images_in(tmp_path, names)
    (tmp_path / table).parent.mkdir(exist_ok=True)
    (tmp_path / table).write_text(rows(stems(), 'id,label') if table.endswith('csv') else 'x')
    with pytest.raises(UserError, match=said):
        images.look([str(tmp_path)])


@pytest.mark.parametrize('folders_of_classes', [
    ['abbey/in', 'airport/in', 'train_station/in', 'train_station/out'],  # a class, not a split
    ['abbey/in', 'train_station/in', 'train_station/out', 'test_track/in'],
    ['good parts', 'bad parts'],
    ['cat_images', 'dog_images']])
def test_class_folders_with_words_of_splits_or_images_are_classes(tmp_path, folders_of_classes):
    images_in(tmp_path, [name for folder in folders_of_classes for name in numbered(f'{folder}/')])
    (tmp_path / 'metadata.csv').write_text(rows(numbered(), 'file,width', lambda number: number % 3))
    found = images.look([str(tmp_path)])
    assert found.facts['classes'] == len({name.split('/')[0] for name in folders_of_classes})
    assert 'train_labels' not in found.sections['data']


def test_a_table_that_is_named_need_not_be_called_as_one_of_training(tmp_path):
    images_in(tmp_path / 'photos', numbered())
    (tmp_path / 'blood_test.csv').write_text(rows(numbered()))
    found = labelled.layout([str(tmp_path / 'photos'), str(tmp_path / 'blood_test.csv')])
    assert found.labels == {'train': str(tmp_path / 'blood_test.csv')}
