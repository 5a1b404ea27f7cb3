"""Classes of images that a table gives: how an image is found in it, and through the Beam job."""
import gzip
import io
import os
import tarfile

import pytest
import tensorflow as tf
from PIL import Image

from data_prep import UserError, imagenet
from data_prep.core import records
from data_prep.image import class_tables
from data_prep.image import job as image_job


@pytest.mark.parametrize('rows, name, label', [
    ([('1.jpg', 'cat')], '1.jpg', 'cat'),
    ([('1', 'cat')], 'a/1.JPG', 'cat'),
    ([('images/1.jpg', 'cat')], '1.jpg', 'cat'),
    ([('scan.1', 'cat'), ('scan.2', 'dog')], 'scan.2.png', 'dog'),  # .1 is no ending of an image
    ([('a/1.jpg', 'cat'), ('b/1.jpg', 'dog')], 'b/1.jpg', 'dog'),
    ([('a/1.jpg', 'cat'), ('b/1.jpg', 'dog')], 'c/1.jpg', ''),  # either
    ([('1.jpg', 'cat'), ('1.png', 'dog')], '1.png', 'dog'),
    ([('1.jpg', 'cat'), ('1.jpg', 'dog')], '1.jpg', ''),
    ([('1.jpg', 'cat'), ('1.jpg', 'cat')], '1.jpg', 'cat'),
    ([('a/1/2/3/4/5.jpg', 'cat'), ('b/1/2/3/4/5.jpg', 'dog')], 'b/1/2/3/4/5.jpg', 'dog'),
    ([('2.jpg', 'cat')], '1.jpg', None)])
def test_an_image_is_found_by_its_path_or_name_with_or_without_ending(rows, name, label):
    assert class_tables.find(class_tables.by_name(rows), name) == label


@pytest.mark.parametrize('name, text, columns', [
    ('a.csv', 'id,breed\n1,cat\n2,dog\n3,cat\n', {}),
    ('a.csv', './1.png; cat\n2.png;dog \n3.png;"cat"\n4.png;\n', {}),  # the fourth has no class
    ('a.csv', 'age,breed,file\n7,cat,x/1.png\n8,dog,x/2.png\n9,cat,x/3.png\n', {'image': '{file}', 'class': '{breed}'}),
    ('a.tsv', 'id\tkind\tbreed\n1\tb\tcat\n2\tb\tdog\n3\tb\tcat\n', {'image': '{id}.png', 'class': '{breed}'}),
    ('a.jsonl', '{"file_name": "1.png", "label": "cat"}\n{"file_name": "2.png", "label": "dog"}\n'
                '{"file_name": "3.png", "label": "cat"}\n', {}),
    ('a.csv', 'ImageId,PredictionString\n1,cat 1 2 3 4 \n2,dog 1 2 3 4 dog 5 6 7 8\n3,cat 1 1 1 1\n', {})])
@pytest.mark.parametrize('packed', ['', '.gz', '.tgz'])
def test_tables_of_classes(tmp_path, name, text, columns, packed):
    path = str(tmp_path / (name + packed))
    if packed == '.tgz':
        with tarfile.open(path, 'w:gz') as tar:
            entry = tarfile.TarInfo(name)
            entry.size = len(text.encode())
            tar.addfile(entry, io.BytesIO(text.encode()))
        path += f'/{name}'
    else:
        content = text.encode()
        (tmp_path / (name + packed)).write_bytes(gzip.compress(content) if packed else content)
    (tmp_path / 'scratch').mkdir()
    found = class_tables.read(path, columns, str(tmp_path / 'scratch'))
    assert [class_tables.find(found, f'x/{number}.png') for number in (1, 2, 3, 4)] == ['cat', 'dog', 'cat', None]


def write(path, level):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new('RGB', (8, 8), (level, 0, 255 - level)).save(path)


def test_a_table_of_classes_through_the_job(tmp_path):
    """It decides where there are folders, too; what it does not name is not used; of two classes is a dead letter."""
    for number in range(7):
        write(tmp_path / 'photos' / f'{number % 2}' / f'{number}.png', 10 * number)
    for number in range(4):
        write(tmp_path / 'held' / f'h{number}.png', 100 + 10 * number)
    (tmp_path / 'train.csv').write_text('id,n,breed\n0,7,cat\n1,7,cat\n2,7,cat\n3,7,dog/wolf\n4,7,dog/wolf\n'
                                        '5,7,cat\n5,7,dog/wolf\n7,7,cat\n')
    (tmp_path / 'held.csv').write_text('n,breed,id\n' + ''.join(
        f'{number},{breed},h{number}.png\n' for number, breed in enumerate(['dog/wolf', 'cat', 'cat', 'dog/wolf'])))
    config = imagenet.Config(folder=str(tmp_path), train=['photos'], validation=['held'], test=['held'],
                             train_labels='train.csv', validation_labels='held.csv', test_labels='held.csv',
                             columns={'image': '{id}', 'class': '{breed}'}, max_dead_letters=0.2)
    manifest = image_job.run(config, str(tmp_path / 'out'), [])
    assert manifest.counts['train']['written'] == 5 and manifest.counts['train']['dead_letters'] == 1
    assert imagenet.assets(str(tmp_path / 'out')).names == ['cat', 'dog/wolf']
    part = records.open_split(str(tmp_path / 'out'), 'test')
    rows = [tf.train.Example.FromString(record).features.feature for record in part.read(range(len(part)))]
    assert {os.path.basename(row['file'].bytes_list.value[0].decode()): row['label'].int64_list.value[0]
            for row in rows} == {'h0.png': 1, 'h1.png': 0, 'h2.png': 0, 'h3.png': 1}
    [letter] = [path.read_text() for path in (tmp_path / 'out' / 'dead_letters').glob('*.jsonl')]
    assert 'photos/1/5.png' in letter and 'train.csv gives it two classes' in letter
    assert str(tmp_path / 'train.csv') in config.files('train')


@pytest.mark.parametrize('values, message', [
    ({'columns': {'image': '{id}', 'class': '{breed}'}}, 'columns are those of tables of classes; give train_labels'),
    ({'columns': {'image': '{id}'}, 'train_labels': 'a.csv'}, 'columns needs templates of image and class, such as'),
    ({'columns': {'image': 'id', 'class': '{a}'}, 'train_labels': 'a.csv'}, "columns.image 'id' names no column in")])
def test_settings_of_tables_that_cannot_be(values, message):
    with pytest.raises(ValueError, match=message):
        imagenet.Config(train=['photos'], validation_fraction=0.1, test_fraction=0.1, **values)


@pytest.mark.parametrize('text, columns, message', [
    ('id,breed\n1,cat\n', {'image': '{id}', 'class': '{label}'}, r"has no column 'label'; it has id, breed"),
    ('id,breed\n1,cat\n2,cat, black\n', {'image': '{id}', 'class': '{breed}'},
     r'a\.csv: 1 of 2 rows cannot be read, the first in line 3: 3 columns, but the header names 2'),
    ('1,chat\n2,\udce9pagneul\n', {}, r'a\.csv: 1 of 2 rows cannot be read, the first in line 2: not UTF-8'),
    ('cat\ndog\n', {}, r'a\.csv: 2 of 2 rows cannot be read, .* Every row needs an image and its class'),
    (None, {}, r'there is no file .*a\.csv')])
def test_a_table_that_cannot_be_used_is_a_sentence(tmp_path, text, columns, message):
    if text:
        (tmp_path / 'a.csv').write_text(text, errors='surrogateescape')
    with pytest.raises(UserError, match=message):
        class_tables.read(str(tmp_path / 'a.csv'), columns, str(tmp_path))
