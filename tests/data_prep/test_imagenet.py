"""Labelled images through the Beam job: every supported layout and every kind of damage."""
import collections
import csv
import functools
import hashlib
import io
import json
import os
import shutil
import tarfile

import apache_beam as beam
import numpy as np
import pytest
import scipy.io
import tensorflow as tf
from PIL import Image

from data_prep import UserError, imagenet
from data_prep.core import records
from data_prep.image import annotations, augmentation, readers, resampling, sample_images, shards
from data_prep.image import job as image_job

WNIDS = ['n01440764', 'n01641577', 'n02124075']


def picture(number, kind='JPEG', mode='RGB', size=(40, 30), **options):
    """A file with colours of its own."""
    draw = np.random.default_rng(number)
    small = Image.fromarray(draw.integers(0, 256, (4, 5, 3), np.uint8))
    file = io.BytesIO()
    small.resize(size, Image.Resampling.BICUBIC).convert(mode).save(file, kind, **options)
    return file.getvalue()


def class_files(number=8, first=0):
    """`<wnid>/<wnid>_<i>.JPEG` -> content, for each class."""
    return {f'{wnid}/{wnid}_{i}.JPEG': picture(first + 100 * place + i)
            for place, wnid in enumerate(WNIDS) for i in range(number)}


def write_files(folder, files):
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def tar(files, mode='w', entries=()):
    """A tar of files, and of entries that are none."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode=mode) as writer:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            writer.addfile(entry, io.BytesIO(content))
        for name, kind, target in entries:
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = kind, target
            writer.addfile(entry)
    return archive.getvalue()


def tar_of_tars(files):
    return tar({f'{wnid}.tar': tar({name.split('/')[1]: content for name, content in files.items()
                                    if name.startswith(wnid)}) for wnid in WNIDS})


@pytest.fixture
def config(tmp_path):
    """A Config factory; validation and test pictures are in folders of their own."""
    write_files(tmp_path / 'train', class_files())
    write_files(tmp_path / 'held', class_files(2, 5000))

    def make(**values):
        return imagenet.Config(**{'folder': str(tmp_path), 'train': ['train'], 'validation': ['held'], 'test': ['held'],
                                  'images_per_block': 5, 'images_per_shard': 9, **values})
    return make


def prepare(config, folder):
    os.makedirs(folder)
    return image_job.run(config, str(folder), [])


def features(folder, split='train'):
    """Records as dicts of lists, in order."""
    part = records.open_split(str(folder), split)
    found = [tf.train.Example.FromString(record).features.feature for record in part.read(range(len(part)))]
    return [{name: list(getattr(value, value.WhichOneof('kind')).value) for name, value in row.items()
             if value.WhichOneof('kind')} for row in found]


def stored(folder, split='train'):
    """Class and file name -> content, of a split."""
    return {f'{row["class"][0].decode()}/{os.path.basename(row["file"][0].decode())}': row['image'][0]
            for row in features(folder, split)}


def letters(folder):
    return sorted((json.loads(line) for path in (folder / 'dead_letters').glob('*.jsonl') for line in open(path)),
                  key=lambda letter: letter['file'])


def reasons(folder):
    return {os.path.basename(letter['file']): letter['reason'] for letter in letters(folder)}


ENTITIES = ''.join(f'<!ENTITY {b} "{f"&{a};" * 99}">' for a, b in zip('abcd', 'bcde'))


@pytest.mark.parametrize('text', [
    f'<a><size><width>{"9" * 400}</width></size><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>2</xmax><ymax>2</ymax>'
    '</bndbox></a>',
    '<a>' * 9, 'x.jpg 1 2 3', 'x.jpg 1 2 3 y', f'<!DOCTYPE x [<!ENTITY a "{"a" * 9999}">{ENTITIES}]><x>&e;</x>'])
def test_boxes_that_make_no_sense_are_an_error_of_one_kind(text):
    with pytest.raises(ValueError):
        annotations.fractions(text.encode(), 20, 24)


def test_a_tar_in_an_object_store_that_ends_too_early_is_named(tmp_path, monkeypatch):
    """Read a file that raises an error of its own where one reads or seeks behind the end."""
    path = tmp_path / 'a.tar'
    monkeypatch.setattr(readers, 'open_file', lambda path: tf.io.gfile.GFile(path, 'rb'))
    [source] = readers.sources('train', str(tmp_path), ['a.tar'])
    for cut in (700, 512, 100):
        path.write_bytes(tar({'a/x.jpg': bytes(1000)})[:cut])
        with pytest.raises(UserError, match=r'a\.tar is not a whole archive'):
            list(readers.walk(source, ''))


def check_counts(manifest):
    """Read = written + filtered + dead, and what the shards hold."""
    for split, counts in manifest.counts.items():
        assert counts['read'] == counts['written'] + counts['dead_letters'] + counts['filtered_duplicate']
        assert counts['written'] == sum(shard['records'] for shard in manifest.splits[split])


def digests(folder):
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(folder.rglob('*')) if path.is_file()}


def lay_out(folder, layout, files):
    """Writes class folders in one of the ways they come. Returns what is listed for them."""
    by_class = {f'{wnid}.tar': tar({name: content for name, content in files.items() if name.startswith(wnid)})
                for wnid in WNIDS}
    contents = {'photos': files, 'tars': by_class, 'a.tar': tar(files), 'b.tar': tar_of_tars(files),
                'dots.tar/in': tar({f'./in/{name}': content for name, content in files.items()}),
                'a.tar.gz/x/train': tar({f'x/train/{name}': content for name, content in files.items()}, 'w:gz'),
                'deep': {name.replace('/', '/images/'): content for name, content in files.items()}}
    if isinstance(contents[layout], dict):
        write_files(folder / layout, contents[layout])
    else:
        (folder / layout.split('/')[0]).write_bytes(contents[layout])
    return layout


@pytest.mark.parametrize('layout', ['photos', 'tars', 'a.tar', 'b.tar', 'dots.tar/in', 'a.tar.gz/x/train', 'deep'])
def test_every_layout_gives_the_same_pictures_untouched(config, tmp_path, layout):
    files = class_files()
    listed = lay_out(tmp_path, layout, files)
    manifest = prepare(config(train=[listed]), tmp_path / 'out')
    assert stored(tmp_path / 'out') == files
    assert manifest.model == {'classes': 3} and len(manifest.splits['train']) == 3  # 24 pictures, 9 a shard
    for row in features(tmp_path / 'out'):
        assert row['label'] == [WNIDS.index(row['class'][0].decode())]
        assert (row['height'], row['width'], row['kind']) == ([30], [40], [b''])
        assert row['file'][0].decode().startswith(f'{listed}/n')
    assert not os.path.exists(tmp_path / 'out' / 'unpacked')
    check_counts(manifest)


def test_shards_hold_all_classes_and_the_order_is_of_names_alone(config, tmp_path):
    files = class_files(20)
    for listed in ('photos', 'b.tar'):
        prepare(config(train=[lay_out(tmp_path, listed, files)], images_per_shard=15), tmp_path / f'out-{listed}')
    one, other = (records.open_split(str(tmp_path / f'out-{listed}'), 'train') for listed in ('photos', 'b.tar'))
    labels = np.array([row['label'][0] for row in features(tmp_path / 'out-photos')])
    assert [set(labels[one.index['shard'] == shard]) for shard in range(4)] == [{0, 1, 2}] * 4
    assert list(stored(tmp_path / 'out-photos')) == list(stored(tmp_path / 'out-b.tar')) != list(files)
    np.testing.assert_array_equal(one.index['shard'], other.index['shard'])


def test_the_same_bytes_whatever_the_blocks(config, tmp_path):
    (tmp_path / 'a.tgz').write_bytes(tar(class_files(), 'w:gz'))
    for name, block in (('a', 5), ('b', 100)):
        prepare(config(train=['a.tgz'], images_per_block=block, resize=20), tmp_path / name)
    assert digests(tmp_path / 'a') == digests(tmp_path / 'b')


def meta_mat(path):
    """The development kit's table; its numbers are not in the order of ids."""
    table = np.zeros((3, 1), [('ILSVRC2012_ID', 'O'), ('WNID', 'O'), ('words', 'O'), ('gloss', 'O')])
    for i, wnid in enumerate(WNIDS):
        table[i, 0] = (float(3 - i), wnid, f'thing {i}, other', 'a gloss')
    scipy.io.savemat(path, {'synsets': table})


XML = '<annotation><size><width>{}</width><height>{}</height></size>{}</annotation>'
OBJECT = ('<object><name>x</name><bndbox><xmin>{}</xmin><ymin>{}</ymin><xmax>{}</xmax><ymax>{}</ymax></bndbox>'
          '</object>')


def boxes(row):
    return np.round(np.transpose([row.get(side, []) for side in ('xmin', 'ymin', 'xmax', 'ymax')]), 5).tolist()


@pytest.mark.parametrize('said', ['meta.mat', 'map_clsloc.txt', 'ids', 'kaggle'])
def test_ilsvrc_as_it_ships(config, tmp_path, said):
    """A tar of tars; a flat tar whose classes are numbers in the order of names; a kit; XML boxes in archives."""
    (tmp_path / 'img_train.tar').write_bytes(tar_of_tars(class_files()))
    flat = {f'ILSVRC2012_val_{i:08d}.JPEG': picture(900 + i) for i in (2, 1, 3, 4)}
    (tmp_path / 'img_val.tar').write_bytes(tar(flat))
    kit = {'kit/data/truth.txt': b'1\n2\n3\n1\n'}
    meta_mat(tmp_path / 'meta.mat')
    kit['kit/data/meta.mat'] = (tmp_path / 'meta.mat').read_bytes()
    kit['kit/map_clsloc.txt'] = b''.join(f'{wnid} {3 - i} thing_{i},_other\n'.encode() for i, wnid in enumerate(WNIDS))
    kit['kit/data/ids.txt'] = b''.join(f'{WNIDS[3 - i]}\n'.encode() for i in (1, 2, 3, 1))
    table = io.StringIO()
    csv.writer(table).writerows([['ImageId', 'PredictionString']] + [
        [f'ILSVRC2012_val_{i:08d}', f'{WNIDS[3 - number]} 1 2 3 4 '] for i, number in ((3, 3), (1, 1), (4, 1), (2, 2))])
    kit['kit/kaggle.csv'] = table.getvalue().encode()
    (tmp_path / 'kit.tar.gz').write_bytes(tar(kit, 'w:gz'))
    (tmp_path / 'boxes.tgz').write_bytes(tar({
        'n01440764/n01440764_3.xml': XML.format(80, 60, OBJECT.format(8, 6, 40, 66) + OBJECT.format(5, 5, 5, 9)
                                                ).encode(),
        'n01641577/n01641577_0.xml': b'<annotation>'}, 'w:gz'))
    (tmp_path / 'boxes_val.tar').write_bytes(tar({
        'val/ILSVRC2012_val_00000002.xml': XML.format(40, 30, OBJECT.format(30, 3, 10, 6) * 2).encode()}))
    inside = {'meta.mat': 'data/truth.txt', 'map_clsloc.txt': 'data/truth.txt', 'ids': 'data/ids.txt',
              'kaggle': 'kaggle.csv'}[said]
    synsets = {'meta.mat': 'kit.tar.gz/kit/data/meta.mat', 'map_clsloc.txt': 'kit.tar.gz/kit/map_clsloc.txt'}
    manifest = prepare(config(train=['img_train.tar'], test=['img_val.tar'], test_labels=f'kit.tar.gz/kit/{inside}',
                              synsets=synsets.get(said, ''), boxes=['boxes.tgz', 'boxes_val.tar']), tmp_path / 'out')
    rows = {os.path.basename(row['file'][0].decode()): row for row in features(tmp_path / 'out', 'test')}
    assert {name: row['label'] for name, row in rows.items()} == {
        f'ILSVRC2012_val_{i:08d}.JPEG': [label] for i, label in ((1, 2), (2, 1), (3, 0), (4, 2))}
    assert {name: row['image'][0] for name, row in rows.items()} == flat
    assert boxes(rows['ILSVRC2012_val_00000002.JPEG']) == [[0.25, 0.1, 0.75, 0.2]]  # said twice
    trained = {os.path.basename(row['file'][0].decode()): boxes(row) for row in features(tmp_path / 'out')}
    assert trained.pop('n01440764_3.JPEG') == [[0.1, 0.1, 0.5, 1]] and not any(trained.values())
    counts = manifest.counts['train']
    assert (counts['with_boxes'], counts['unread_boxes'], counts['dead_letters']) == (1, 1, 0)
    assert [letter['reason'].split(': not XML')[0] for letter in letters(tmp_path / 'out')] == [
        f'no boxes for {source}/n01641577/n01641577_0.JPEG' for source in ('img_train.tar', 'held')]
    assert imagenet.assets(str(tmp_path / 'out'), imagenet.Input()).descriptions == (
        [f'thing {i}, other' for i in range(3)] if said in synsets else WNIDS)


def test_tiny_imagenet_as_it_ships(config, tmp_path):
    """<wnid>/images with a file of boxes a class, and a flat validation folder with annotations."""
    files = {f'{wnid}/images/{wnid}_{i}.JPEG': picture(100 * place + i, size=(64, 64))
             for place, wnid in enumerate(WNIDS) for i in range(4)}
    said = {f'{wnid}/{wnid}_boxes.txt': ''.join(f'{wnid}_{i}.JPEG\t{i}\t16\t48\t64\n' for i in range(4)).encode()
            for wnid in WNIDS}
    write_files(tmp_path / 'tiny' / 'train', {**files, **said})
    held = {f'images/val_{i}.JPEG': picture(700 + i, size=(64, 64)) for i in range(4)}
    write_files(tmp_path / 'tiny' / 'val', {**held, 'val_annotations.txt': ''.join(
        f'val_{i}.JPEG\t{WNIDS[i % 3]}\t0\t32\t44\t62\n' for i in range(3)).encode()})
    (tmp_path / 'tiny' / 'words.txt').write_text(''.join(f'{wnid}\tthing, {wnid}\n' for wnid in ['n00000001', *WNIDS]))
    (tmp_path / 'tiny' / 'wnids.txt').write_text('\n'.join(WNIDS[::-1]))
    values = {'words': 'tiny/words.txt', 'labels': 'tiny/wnids.txt', 'max_dead_letters': 0.25}
    prepare(config(train=['tiny/train'], validation=['tiny/val'], test=['tiny/val'], **values), tmp_path / 'out')
    assert {name: content for name, content in stored(tmp_path / 'out').items()} == {
        name.replace('images/', ''): content for name, content in files.items()}
    for row in features(tmp_path / 'out'):
        number = int(row['file'][0].decode().split('_')[-1][0])
        assert boxes(row) == [[round(number / 64, 5), 0.25, 0.75, 1]]
    for row in features(tmp_path / 'out', 'validation'):
        number = int(row['file'][0].decode().split('_')[-1][0])
        assert row['label'] == [2 - number % 3] and boxes(row) == [[0, 0.5, 0.6875, 0.96875]]
    assert set(reasons(tmp_path / 'out').values()) == {'in no class folder, and nothing gives its class'}
    assets = imagenet.assets(str(tmp_path / 'out'))
    assert (assets.names, assets.descriptions) == (WNIDS[::-1], [f'thing, {wnid}' for wnid in WNIDS[::-1]])


def test_boxes_of_equal_names_are_told_apart_by_the_class_folder(config, tmp_path):
    files = {f'{wnid}/1.jpg': picture(i) for i, wnid in enumerate(WNIDS)}
    said = {f'{wnid}/1.xml': XML.format(40, 30, OBJECT.format(0, 0, 10 * i + 10, 30)).encode()
            for i, wnid in enumerate(WNIDS[:2])}
    write_files(tmp_path / 'some', files)
    write_files(tmp_path / 'boxes', said)
    prepare(config(train=['some'], boxes=['boxes']), tmp_path / 'out')
    assert {row['label'][0]: boxes(row) for row in features(tmp_path / 'out')} == {
        0: [[0, 0, 0.25, 1]], 1: [[0, 0, 0.5, 1]], 2: []}


def test_parts_are_split_off_by_names_alone(config, tmp_path):
    """Wherever the pictures lie and whatever is beside them, each is in the same split; about as many as asked for."""
    files = {f'{wnid}/{i}.jpg': picture(1000 * place + i, size=(8, 8))
             for place, wnid in enumerate(WNIDS) for i in range(120)}
    write_files(tmp_path / 'all', files)
    (tmp_path / 'some.tar').write_bytes(tar(dict(list(files.items())[40:300])))
    values = {'validation': [], 'test': [], 'validation_fraction': 0.2, 'test_fraction': 0.1, 'images_per_block': 50}
    manifest = prepare(config(train=['all'], **values), tmp_path / 'one')
    prepare(config(train=['some.tar'], **values), tmp_path / 'two')
    one, two = ({split: set(stored(tmp_path / name, split)) for split in imagenet.SPLITS} for name in ('one', 'two'))
    assert sum(map(len, one.values())) == 360 and set.union(*one.values()) == set(files)
    for split, share in (('train', 0.7), ('validation', 0.2), ('test', 0.1)):
        assert abs(len(one[split]) - 360 * share) < 4 * np.sqrt(360 * share * (1 - share))
        assert two[split] <= one[split]
    check_counts(manifest)


def test_halves_of_the_training_images_are_in_each_other_and_have_all_classes(config, tmp_path):
    """Keep what is held out, and a class all of whose images are left out."""
    files = {f'{wnid}/{i}.jpg': picture(1000 * place + i, size=(8, 8))
             for place, wnid in enumerate(WNIDS) for i in (range(100), range(100), [1])[place]}
    outside = {f'{i}.jpg': b'in no class' for i in range(60)}
    write_files(tmp_path / 'all', files | outside)
    found, refused = {}, []
    for fraction in (1.0, 0.5, 0.25, 0.125):
        folder = tmp_path / str(fraction)
        manifest = prepare(config(train=['all'], test=[], test_fraction=0.2, train_fraction=fraction,
                                  max_dead_letters=0.9), folder)
        refused.append(manifest.counts['train']['dead_letters'])
        assert manifest.model == {'classes': 3}
        check_counts(manifest)
        found[fraction] = {split: stored(folder, split) for split in imagenet.SPLITS}
    whole = found[1.0]
    for fraction, more in ((0.5, 1.0), (0.25, 0.5), (0.125, 0.25)):
        kept, of = found[fraction], len(whole['train'])
        assert kept['train'].keys() < found[more]['train'].keys()
        assert all(kept['train'][name] == whole['train'][name] for name in kept['train'])
        assert abs(len(kept['train']) - of * fraction) < 4 * np.sqrt(of * fraction * (1 - fraction))
        assert kept['test'] == whole['test'] and kept['validation'] == whole['validation']
    assert not any(name.startswith(WNIDS[2]) for name in found[0.125]['train'])
    np.testing.assert_allclose(refused, [60, 30, 15, 7.5], atol=4 * 15 ** 0.5)
    assert refused == sorted(refused, reverse=True) and refused[0] == 60


def test_pictures_that_cannot_be_used_are_dead_letters_and_others_are_mended(config, tmp_path):
    bomb = bytearray(picture(1))
    frame = bomb.index(b'\xff\xc0')
    bomb[frame + 5:frame + 9] = b'\xea\x60\xea\x60'
    bad = {'cut.jpg': picture(2)[:-50], 'zero.jpg': b'', 'text.jpg': b'no picture', 'bomb.jpg': bytes(bomb),
           'moving.gif': picture(3, 'GIF', 'P')}
    mended = {'png.JPEG': picture(4, 'PNG'), 'cmyk.JPEG': picture(5, 'JPEG', 'CMYK')}
    good = {'grey.JPEG': picture(6, 'JPEG', 'L'), 'UPPER.JPG': picture(7)}
    passed = {'.hidden.jpg': b'x', 'notes.txt': b'x', 'Thumbs.db': b'x', '._1.JPEG': b'x'}
    for listed in ('train', 'all.tar'):
        write_files(tmp_path / 'train' / WNIDS[0], {**bad, **mended, **good, **passed})
        if listed == 'all.tar':
            (tmp_path / listed).write_bytes(tar({str(path.relative_to(tmp_path / 'train')): path.read_bytes()
                                                 for path in (tmp_path / 'train').rglob('*') if path.is_file()}))
        out = tmp_path / f'out-{listed}'
        manifest = prepare(config(train=[listed], max_dead_letters=0.2), out)
        counts = manifest.counts['train']
        assert (counts['read'], counts['written'], counts['dead_letters'], counts['converted']) == (33, 28, 5, 2)
        check_counts(manifest)
        assert reasons(out) == {
            'cut.jpg': 'damaged or truncated: it cannot be decoded', 'zero.jpg': 'empty, 0 bytes',
            'text.jpg': "neither JPEG nor PNG: it begins with 'no picture'",
            'bomb.jpg': '60,000 x 60,000 pixels are more than data.max_pixels 100,000,000',
            'moving.gif': 'GIF; only JPEG and PNG are read'}
        found = stored(out)
        for name, content in good.items():
            assert found[f'{WNIDS[0]}/{name}'] == content
        for name in mended:
            image = Image.open(io.BytesIO(found[f'{WNIDS[0]}/{name}']))
            assert (image.format, image.mode, image.size) == ('JPEG', 'RGB', (40, 30))
        if listed == 'all.tar':
            for letter in letters(out):
                assert letter['file'] == f'{tmp_path}/all.tar/{WNIDS[0]}/{os.path.basename(letter["file"])}'
                start = (tmp_path / 'all.tar').read_bytes()[letter['offset']:]
                assert start.startswith(bad[os.path.basename(letter['file'])])


def test_nothing_in_an_archive_leads_out_of_it(config, tmp_path):
    """Names that are absolute or climb, links and devices are dead letters; not even a file of that name is touched."""
    secret = tmp_path / 'secret.jpg'
    secret.write_bytes(picture(1))
    (tmp_path / 'evil.tar').write_bytes(tar(
        {**class_files(), '../climbs.jpg': picture(2), f'{WNIDS[0]}/../../up.jpg': picture(3),
         '/absolute.jpg': picture(4)},
        entries=[(f'{WNIDS[0]}/soft.jpg', tarfile.SYMTYPE, str(secret)), (f'{WNIDS[0]}/hard.jpg', tarfile.LNKTYPE,
                                                                        'secret.jpg'),
                 (f'{WNIDS[1]}/pipe.jpg', tarfile.FIFOTYPE, '')]))
    before = set(os.listdir(tmp_path))
    manifest = prepare(config(train=['evil.tar'], max_dead_letters=0.3), tmp_path / 'out')
    assert set(os.listdir(tmp_path)) == before | {'out'}
    assert reasons(tmp_path / 'out') == {
        'climbs.jpg': 'a name that leads out of its archive', 'up.jpg': 'a name that leads out of its archive',
        'absolute.jpg': 'an absolute name in an archive', 'soft.jpg': f'a link, to {secret}',
        'hard.jpg': 'a link, to secret.jpg', 'pipe.jpg': 'no plain file'}
    assert stored(tmp_path / 'out') == class_files()
    assert manifest.counts['train']['dead_letters'] == 6
    check_counts(manifest)


def test_names_that_are_not_text_and_links_in_folders(config, tmp_path):
    """Links to pictures and folders are followed, but not round and round."""
    folder = os.fsencode(tmp_path / 'train' / WNIDS[0])
    with open(folder + b'/caf\xe9.jpg', 'wb') as file:
        file.write(picture(9001))
    (tmp_path / 'elsewhere').mkdir()
    (tmp_path / 'elsewhere' / 'b.jpg').write_bytes(picture(9002))
    (tmp_path / 'train' / 'linked').symlink_to(tmp_path / 'elsewhere')
    (tmp_path / 'train' / WNIDS[1] / 'round').symlink_to(tmp_path / 'train')
    (tmp_path / 'train' / WNIDS[1] / 'c.jpg').symlink_to(tmp_path / 'train' / WNIDS[0] / f'{WNIDS[0]}_0.JPEG')
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode='w', encoding='latin-1', format=tarfile.GNU_FORMAT) as writer:
        for label in ('a', 'caf\xe9'):
            entry = tarfile.TarInfo(f'{label}/1.jpg')
            writer.addfile(entry, io.BytesIO())
    (tmp_path / 'latin.tar').write_bytes(archive.getvalue())
    manifest = prepare(config(test=['latin.tar', 'held'], max_dead_letters=1.0), tmp_path / 'out')
    found = [(os.path.relpath(letter['file'], tmp_path), letter['reason']) for letter in letters(tmp_path / 'out')]
    assert sorted(found) == [
        ('latin.tar/a/1.jpg', 'class a is not one of the 4 classes'), ('latin.tar/caf?/1.jpg', 'its name is not UTF-8'),
        (f'train/{WNIDS[0]}/caf?.jpg', 'its name is not UTF-8'),
        (f'train/{WNIDS[0]}/{WNIDS[0]}_0.JPEG', f'in two classes, {WNIDS[0]} and {WNIDS[1]} as train/{WNIDS[1]}/c.jpg'),
        (f'train/{WNIDS[1]}/c.jpg', f'in two classes, {WNIDS[1]} and {WNIDS[0]} as train/{WNIDS[0]}/{WNIDS[0]}_0.JPEG')]
    assert manifest.counts['train']['read'] == 24 + 3 and 'linked/b.jpg' in stored(tmp_path / 'out')
    check_counts(manifest)


def test_unknown_classes_are_dead_letters(config, tmp_path):
    write_files(tmp_path / 'held', {'n09999999/a.JPEG': picture(77)})
    prepare(config(max_dead_letters=0.2), tmp_path / 'out')
    assert reasons(tmp_path / 'out') == {'a.JPEG': 'class n09999999 is not one of the 3 classes'}
    (tmp_path / 'labels.txt').write_text('\n'.join([WNIDS[2], WNIDS[0]]))
    manifest = prepare(config(max_dead_letters=0.5, labels='labels.txt'), tmp_path / 'two')
    assert manifest.counts['train']['dead_letters'] == 8 and manifest.model == {'classes': 2}
    assert {(row['class'][0].decode(), row['label'][0]) for row in features(tmp_path / 'two')} == {
        (WNIDS[2], 0), (WNIDS[0], 1)}


def test_a_file_in_two_classes_is_dead_wherever_it_is_and_names_the_other(config, tmp_path):
    write_files(tmp_path / 'train', {f'{WNIDS[0]}/one.jpg': picture(50), f'{WNIDS[2]}/two.jpg': picture(50),
                                     f'{WNIDS[1]}/again.jpg': picture(51), f'{WNIDS[1]}/and_again.jpg': picture(51)})
    manifest = prepare(config(max_dead_letters=0.1), tmp_path / 'out')
    assert reasons(tmp_path / 'out') == {
        'one.jpg': f'in two classes, {WNIDS[0]} and {WNIDS[2]} as train/{WNIDS[2]}/two.jpg',
        'two.jpg': f'in two classes, {WNIDS[2]} and {WNIDS[0]} as train/{WNIDS[0]}/one.jpg'}
    assert manifest.counts['train']['written'] == 26  # twice in one class is no contradiction


@pytest.mark.parametrize('block', [2, 100])
def test_duplicates_between_splits_are_counted_and_can_be_removed(config, tmp_path, block):
    shared = {f'{WNIDS[0]}/{i}.jpg': picture(60 + i) for i in range(5)}
    write_files(tmp_path / 'train', shared)
    write_files(tmp_path / 'test', {f'{WNIDS[0]}/other_{i}.jpg': picture(60 + i) for i in range(3)})  # other names
    write_files(tmp_path / 'held', {f'{WNIDS[1]}/{i}.jpg': picture(60 + i) for i in range(2, 5)})  # another class, too
    for remove in (False, True):
        out = tmp_path / str(remove)
        manifest = prepare(config(test=['test'], images_per_block=block, remove_duplicates=remove), out)
        counts = manifest.counts
        assert (counts['train']['in_validation'], counts['train']['in_test']) == (3, 3)
        assert counts['validation']['in_test'] == 1 and 'in_validation' not in counts['test']
        assert counts['train']['filtered_duplicate'] == 5 * remove and counts['train']['dead_letters'] == 0
        assert set(stored(out)) == set(class_files()) | (set() if remove else set(shared))
        check_counts(manifest)


@pytest.mark.parametrize('change, message', [
    (lambda folder: {'train': ['gone']}, r'data\.train: there is no file or folder .*/gone'),
    (lambda folder: (folder / 'a.zip').write_bytes(b'PK') and {'train': ['a.zip']},
     r'data\.train: .*a\.zip is neither a folder nor a \.tar'),
    (lambda folder: {'train': ['train/n01440764']},
     r'data\.train: the images of .*n01440764 lie in no class folders'),
    (lambda folder: shutil.move(folder / 'train', folder / 'x') and shutil.copytree(folder / 'x', folder / 'y/train')
     and {'train': ['y']}, r'data\.train has one class, train\. Name the folder'),
    (lambda folder: (folder / 'a.tar').write_bytes(tar(class_files())) and {'train': ['a.tar/in']},
     r'a\.tar has no folder in; it has n01440764, n01641577, n02124075'),
    (lambda folder: (folder / 'a.tar').write_bytes(tar(class_files())[:9000]) and {'train': ['a.tar']},
     r'a\.tar is not a whole archive'),
    (lambda folder: (folder / 'a.tar').write_bytes(tar(class_files())[:-10240]) and {'train': ['a.tar']},
     r'a\.tar is not a whole archive'),
    (lambda folder: (folder / 'a.tgz').write_bytes(tar(class_files(), 'w:gz')[:-900]) and {'train': ['a.tgz']},
     r'a\.tgz is not a whole archive'),
    (lambda folder: (folder / 'a.tar').write_bytes(b'no tar' * 200) and {'train': ['a.tar']}, 'is not a whole archive'),
    (lambda folder: (folder / 'b.tar').write_bytes(tar({'n01440764.tar': b'no tar' * 200})) and {'train': ['b.tar']},
     r'b\.tar/n01440764\.tar is not a whole archive'),
    (lambda folder: (folder / 'l.txt').write_text('n01440764\n') and {
        'validation': ['held/n01440764'], 'validation_labels': 'l.txt'},
     r'l\.txt has 1 classes, but .*held/n01440764 has 2 images in no class folder'),
    (lambda folder: (folder / 'l.txt').write_text('4\n4\n') and (folder / 's.txt').write_text('n01440764 1 x\n') and {
        'validation': ['held/n01440764'], 'validation_labels': 'l.txt', 'synsets': 's.txt'},
     r'l\.txt, line 1: there is no class 4 in data\.synsets'),
    (lambda folder: {'synsets': 'train/gone.mat'}, r'gone\.mat: there is no such file'),
    (lambda folder: (folder / 's.mat').write_bytes(b'no matlab') and {'synsets': 's.mat'},
     r"s\.mat cannot be read as ILSVRC's meta\.mat"),
    (lambda folder: (folder / 'w.txt').write_bytes(b'\xff\xfe') and {'words': 'w.txt'}, r'w\.txt is not UTF-8 text'),
    (lambda folder: [path.write_bytes(b'') for path in (folder / 'held').rglob('*.JPEG')] and {},
     r'6 of the 6 validation images cannot be used, more than data\.max_dead_letters 0\.01 allows'),
    (lambda folder: shutil.rmtree(folder / 'held') or (folder / 'held').mkdir() or {},
     r'data\.validation holds no usable image: 0 read'),
])
def test_what_cannot_be_prepared_is_one_sentence_and_no_data_set(config, tmp_path, change, message):
    values = change(tmp_path)
    with pytest.raises(UserError, match=message) as said:
        prepare(config(**values), tmp_path / 'out')
    assert '\n' not in str(said.value)
    with pytest.raises(UserError, match='has no manifest.json'):
        records.open_split(str(tmp_path / 'out'), 'train')


@pytest.mark.parametrize('values, message', [
    ({'train': []}, 'train must list'), ({'test': []}, 'test must list .* or test_fraction'),
    ({'validation_fraction': 0.1}, 'validation must list'), ({'samples': 'faces'}, 'samples must be digits'),
    ({'samples': 'digits'}, 'samples come with their own'), ({'max_dead_letters': 2}, 'max_dead_letters is a fraction'),
    ({'validation': [], 'validation_fraction': 0.6, 'test': [], 'test_fraction': 0.4}, 'leave nothing for training')])
def test_settings_that_cannot_be(config, values, message):
    with pytest.raises(ValueError, match=message):
        config(**values)


@pytest.mark.parametrize('values, message', [
    ({'scales': [200]}, 'is smaller than crop 224'), ({'scales': [300, 256]}, 'the least and the largest'),
    ({'scales': []}, 'the least and'), ({'tokens': 100}, 'no length'), ({'buckets': [4]}, 'no length')])
def test_input_settings_that_cannot_be(values, message):
    with pytest.raises(ValueError, match=message):
        imagenet.Input(**values)


def test_files_tell_what_was_added(config, tmp_path):
    """List what `prepare` is skipped by: the archives, and folders with their class folders, whose times change."""
    (tmp_path / 'a.tgz').write_bytes(b'')
    found = config(train=['train', 'a.tgz/x'], boxes=['held'], labels='l.txt', words='a.tgz/w.txt').files('train')
    assert found == [str(tmp_path / name) for name in (
        'train', 'a.tgz', 'held', 'l.txt', *(f'{folder}/{wnid}' for folder in ('train', 'held') for wnid in WNIDS))]
    assert config(folder='gs://b', validation=['x.tar/val', 'y'], validation_labels='v.txt').files('validation') == [
        'gs://b/x.tar', 'gs://b/y', 'gs://b/v.txt']


@pytest.mark.parametrize('resize', [None, 24])
def test_pixels_are_numpys_on_the_same_pixels(config, tmp_path, resize, monkeypatch):
    """Mean image, mean RGB and covariance are those of the training pictures' middles; each was decoded once."""
    write_files(tmp_path / 'train', {f'{WNIDS[1]}/large.png': picture(71, 'PNG', size=(300, 411)),
                                     f'{WNIDS[0]}/square.png': picture(73, 'PNG', size=(32, 32)),
                                     f'{WNIDS[1]}/dead.jpg': b'', f'{WNIDS[2]}/grey.jpg': picture(72, 'JPEG', 'L')})
    decoded = collections.Counter()
    decode = augmentation.decoded
    monkeypatch.setattr(augmentation, 'decoded', lambda data: decoded.update([data]) or decode(data))
    prepare(config(max_dead_letters=0.1, resize=resize), tmp_path / 'out')
    assert len(decoded) == 24 + 6 + 3 and set(decoded.values()) == {1, 2}
    assert sum(decoded.values()) == 24 + 6 + 6 + 3  # validation and test are the same files here
    middles, pixels = [], []
    for path in sorted((tmp_path / 'train').rglob('*')):
        if path.is_file() and path.stat().st_size:
            levels = decode(path.read_bytes()).numpy()
            if resize:
                levels = resampling.levels(resampling.rescale(levels, resize))
            square = resampling.central_square(levels)
            if levels.shape[0] == levels.shape[1]:  # is counted as it is
                middles.append(square)
                pixels.append(np.reshape(levels, [-1, 3]).astype(np.float64))
            else:
                middles.append(np.round(square))
                pixels.append(np.round(square).reshape(-1, 3).astype(np.float64))
    assert {len(square) for square in pixels} == {(resize or 32) ** 2, 256 ** 2}
    arrays = np.load(tmp_path / 'out' / 'pixels.npz')
    assert arrays['count'] == len(middles) == 27
    assert arrays['mean_image'].dtype == np.float32
    np.testing.assert_allclose(arrays['mean_image'], np.mean(middles, 0), atol=1e-3)
    mean = np.mean([square.mean(0) for square in pixels], 0)
    np.testing.assert_allclose(arrays['mean_rgb'], mean, rtol=1e-12)
    products = np.mean([square.T @ square / len(square) for square in pixels], 0)
    np.testing.assert_allclose(arrays['covariance'], products - np.outer(mean, mean), rtol=1e-9)


def test_sums_do_not_depend_on_how_pictures_are_put_together():
    draw = np.random.default_rng(0)
    squares = [draw.integers(0, 256, (side, side, 3), np.uint8) for side in (256, 31, 32, 256, 31, 256, 256)]
    adder, merger = shards.PixelSums(), shards.MergedSums()

    def added(some):
        return functools.reduce(adder.add_input, some, adder.create_accumulator())
    parts = [added(part) for part in (squares[:1], squares[1:3], squares[3:])]
    one = adder.extract_output(added(squares))
    other = merger.extract_output(functools.reduce(merger.add_input, parts[::-1], merger.create_accumulator()))
    assert one['count'] == other['count'] == 7
    for name, value in one.items():
        np.testing.assert_array_equal(value, other[name])
    assert merger.extract_output({})['count'] == 0


def test_covariance_is_numpys_of_pictures_of_one_size():
    for side in (64, 31):  # an odd number of pixels, too
        squares = np.random.default_rng(side).integers(0, 256, (5, side, side, 3), np.uint8)
        adder = shards.PixelSums()
        found = adder.extract_output(functools.reduce(adder.add_input, squares, adder.create_accumulator()))
        np.testing.assert_allclose(found['covariance'], np.cov(squares.reshape(-1, 3).T, bias=True), rtol=1e-9)


@pytest.mark.parametrize('side', [1, 31, 256])
def test_sums_of_products_are_exact(side):
    noise = np.random.default_rng(side).integers(0, 256, (side, side, 3), np.uint8)
    for square in (noise, np.full_like(noise, 255), np.zeros_like(noise)):
        pixels = square.reshape(-1, 3).astype(np.int64)
        _, total, products = shards.PixelSums().add_input({}, square)[side]
        np.testing.assert_array_equal(products, pixels.T @ pixels)
        np.testing.assert_array_equal(total, square)


@pytest.fixture(scope='module')
def prepared(tmp_path_factory):
    """A data set of 24 training pictures, of several sizes."""
    folder = tmp_path_factory.mktemp('prepared')
    for split, first in (('train', 0), ('held', 5000)):
        write_files(folder / split, {f'{wnid}/{wnid}_{i}.JPEG': picture(first + 100 * place + i, size=(40 + 9 * i, 30))
                                     for place, wnid in enumerate(WNIDS) for i in range(8)})
    config = imagenet.Config(folder=str(folder), train=['train'], validation=['held'], test=['held'])
    prepare(config, folder / 'out')
    return str(folder / 'out')


def batch(folder, config, training, ids=range(24), empty=0, seed=0):
    part = records.open_split(folder, 'train')
    rows = [*part.read(ids), *[b''] * empty]
    seeds = np.stack([np.full(len(rows), seed), np.arange(len(rows))], 1).astype(np.int32)
    return imagenet.decoder(folder, config, training)(tf.constant(rows), tf.constant(0, tf.int64), tf.constant(seeds))


def test_the_mean_of_what_is_shown_is_zero(prepared):
    """Central 256-squares less the mean image, over the training set; whole levels were averaged, so to half of one."""
    config = imagenet.Input(crop=256, scales=[256], square=True, mean='pixel')
    assert np.abs(batch(prepared, config, False)['image'].numpy().mean(0)).max() < 0.5
    rgb = batch(prepared, imagenet.Input(crop=256, scales=[256], square=True, mean='rgb'), False)['image']
    assert np.abs(rgb.numpy().mean((0, 1, 2))).max() < 0.5


@pytest.mark.parametrize('training', [True, False])
def test_a_batch_is_the_same_eagerly_and_in_tf_data_and_row_by_row(prepared, training):
    config = imagenet.Input(crop=28, scales=[30, 40])
    part = records.open_split(prepared, 'train')
    decode = imagenet.decoder(prepared, config, training)
    rows, seeds = [*part.read(range(5)), b''], np.array([[3, i] for i in range(6)], np.int32)
    zero = tf.constant(0, tf.int64)
    eager = decode(tf.constant(rows), zero, tf.constant(seeds))
    [graph] = tf.data.Dataset.from_tensors((rows, seeds)).map(lambda rows, seeds: decode(rows, zero, seeds))
    assert eager['image'].shape == (6, 28, 28, 3) and eager['label'].dtype == tf.int32
    for name in ('image', 'label'):
        np.testing.assert_array_equal(eager[name], graph[name])
    for i in range(6):
        one = decode(tf.constant(rows[i:i + 1]), zero, tf.constant(seeds[i:i + 1]))
        np.testing.assert_array_equal(one['image'][0], eager['image'][i])
    labels = [row['label'][0] for row in features(prepared)[:5]]
    assert eager['label'].numpy().tolist() == [*labels, -1] and not eager['image'][5].numpy().any()
    other = decode(tf.constant(rows), zero, tf.constant(seeds + 1))['image']
    assert np.array_equal(other, eager['image']) == (not training)


def test_what_is_served_is_what_validation_shows(prepared):
    config = imagenet.Input(crop=28, scales=[30, 40], square=True)
    assets = imagenet.assets(prepared, config)
    inputs, columns = imagenet.examples(records.open_split(prepared, 'train').read(range(24)))
    shown = batch(prepared, config, False)['image'].numpy()
    picture_of = tf.function(assets.picture, autograph=False)
    for encoded, expected in zip(inputs, shown):
        whole = picture_of(tf.constant(encoded), assets.scale).numpy()
        assert whole.shape == (35, 35, 3)
        np.testing.assert_allclose(whole[3:31, 3:31], expected, atol=0.05)
    assert columns.keys() == {'target', 'file', 'kind', 'boxes'} and set(columns['kind']) == {''}
    assert [f'train/{target}' for target in columns['target']] == [os.path.dirname(file) for file in columns['file']]


def test_assets_are_exported_with_a_module(prepared, tmp_path):
    assets = imagenet.assets(prepared, imagenet.Input(crop=28, scales=[32]))

    class Served(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([], tf.string)])
        def show(self, encoded):
            return {'image': assets.picture(encoded, assets.scale)}
    module = Served()
    tf.saved_model.save(module, str(tmp_path / 'saved'), signatures=module.show)
    encoded = tf.constant(picture(3, 'PNG', 'LA'))
    again = tf.saved_model.load(str(tmp_path / 'saved')).show(encoded)['image']
    np.testing.assert_allclose(again, assets.picture(encoded, 32), atol=1e-4)


@pytest.mark.parametrize('name', ['pixels.npz', 'labels.json'])
def test_a_file_of_the_data_set_that_was_altered_is_named(prepared, tmp_path, name):
    shutil.copytree(prepared, tmp_path / 'copy')
    (tmp_path / 'copy' / name).write_bytes((tmp_path / 'copy' / name).read_bytes() + b' ')
    with pytest.raises(UserError, match=f'{name} is missing or was changed'):
        imagenet.assets(str(tmp_path / 'copy'))


def test_digits_come_in_imagenets_own_layout(tmp_path):
    """All of scikit-learn's, each once; the same bytes again; classes have names."""
    manifest = prepare(imagenet.Config(samples='digits'), tmp_path / 'first')
    (tmp_path / 'again').mkdir()
    sample_images.write_digits(str(tmp_path / 'again'))
    assert digests(tmp_path / 'again') == digests(tmp_path / 'first' / 'raw')
    assert {split: counts['written'] for split, counts in manifest.counts.items()} == {
        'train': 1438, 'validation': 180, 'test': 179}
    from sklearn import datasets
    digits = datasets.load_digits()
    assets = imagenet.assets(str(tmp_path / 'first'), imagenet.Input(crop=32, scales=[32], mean='none'))
    assert assets.descriptions[:3] == ['zero', 'one', 'two'] and assets.names[9] == 'd9'
    for row in features(tmp_path / 'first', 'test')[::10]:
        number = int(row['file'][0].decode().split('_')[-1].split('.')[0])
        assert row['label'] == [digits.target[number]] and tf.io.decode_jpeg(row['image'][0]).shape == (32, 32, 1)
        small = assets.picture(tf.constant(row['image'][0]), 8).numpy()[..., 0]
        assert np.corrcoef(small.ravel(), digits.images[number].ravel())[0, 1] > 0.9


def test_the_graph_is_built_without_looking_at_files(config):
    """Build as for Dataflow: of names that only workers can read, all of it pickled."""
    pipeline = beam.Pipeline()
    image_job.build(pipeline, config(folder='gs://none/raw', train=['a.tar', 'b'], test_labels='l.txt',
                                        synsets='s.mat', boxes=['c.tgz']), 'gs://none/out')
    assert 'Write' in {step.unique_name for step in pipeline.to_runner_api().components.transforms.values()}
