"""Try-on samples through the Beam job: every supported layout, every kind of damage, and the outputs."""
import functools
import hashlib
import io
import json
import os
import pathlib
import struct

import apache_beam as beam
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from data_prep import UserError, tryon
from data_prep.core import records, splits
from data_prep.people import job as people_job
from data_prep.people import pairs_files, person
from pipelines.core import config as run_config

H, W = 128, 96
ARMS = {15: (34, 30, 30), 14: (62, 66, 66)}  # label: x of shoulder, elbow and wrist


def saved(pixels, kind='JPEG', **options):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind, **options)
    return file.getvalue()


def block(labels, label, top, bottom, left, right):
    labels[top:bottom, left:right] = label


def labels_of(sleeves=55):
    """A standing person's labels: trousers, bare arms, neck, face, hair and a top with sleeves down to a row."""
    labels = np.zeros((H, W), np.uint8)
    for label, *where in ((9, 82, H, 36, 60), (15, 40, 94, 27, 34), (14, 40, 94, 63, 70), (5, 38, 84, 34, 63),
                          (5, 38, sleeves, 25, 72), (10, 30, 38, 44, 53), (13, 10, 32, 41, 56), (2, 5, 12, 40, 57)):
        block(labels, label, *where)
    return labels


def points_of():
    points = np.zeros((18, 3), np.float32)
    for joint, place in {0: (48, 20), 1: (48, 40), 8: (42, 85), 11: (54, 85), 14: (45, 17), 15: (51, 17)}.items():
        points[joint] = *place, 0.75
    for first, label in ((2, 15), (5, 14)):
        points[first:first + 3] = [(x, y, 0.5) for x, y in zip(ARMS[label], (40, 60, 80))]
    return points


@functools.cache  # drawn operation by operation it takes 0.2 s, and every person here stands alike
def rendered():
    """OpenPose's picture of `points_of`, darker than ours."""
    return saved(person.pose_map(points_of(), (H, W)).numpy() // 2, 'PNG')


def garment_of(number, sleeves=55):
    """A garment laid flat in colours of its own, and its mask."""
    mask = np.zeros((H, W), np.uint8)
    block(mask, 255, 20, 110, 30, 66)
    block(mask, 255, 20, sleeves, 12, 84)
    colours = np.random.default_rng(number).integers(0, 150, (8, 6, 3), np.uint8)
    texture = np.asarray(Image.fromarray(colours).resize((W, H), Image.Resampling.BICUBIC))
    return np.where(mask[..., None] > 0, texture, 255).astype(np.uint8), mask


def picture_of(number, labels):
    """A photograph: each label in a colour of its own, but for the top in a garment's red."""
    colours = np.random.default_rng(100 + number).integers(60, 200, (20, 3)).astype(np.uint8)
    colours[5] = 255, 0, 0
    return colours[labels]


def openpose(points, key='pose_keypoints', people=1):
    if key == 'pose_keypoints_2d':
        every = np.zeros((25, 3))
        every[[*range(8), *range(9, 19)]] = points
        points = every
    return json.dumps({'version': 1.1, 'people': [{key: np.asarray(points, float).ravel().tolist()}] * people}).encode()


def palette(labels):
    image = Image.fromarray(labels).convert('P')
    image.putdata(labels.ravel().tolist())
    image.putpalette(person._voc_colours().ravel().tolist())
    file = io.BytesIO()
    image.save(file, 'PNG')
    return file.getvalue()


def sample_of(number, layout='published'):
    """Files of a person and the garment worn, path below the split's folder -> content."""
    name, top = (f'{number:05}_0', f'{number:05}_1') if layout == 'viton' else (f'{number:05}_00',) * 2
    labels, (cloth, mask) = labels_of(), garment_of(number)
    both = {f'image/{name}.jpg': saved(picture_of(number, labels), quality=95, subsampling=0),
            f'cloth/{top}.jpg': saved(cloth), f'cloth-mask/{top}.jpg': saved(mask)}
    if layout == 'viton':
        return both | {f'image-parse-new/{name}.png': saved(labels, 'PNG'),
                       f'image-parse/{name}.png': b'the older ones are not read',
                       f'pose/{name}_keypoints.json': openpose(points_of())}
    both |= {f'openpose-json/{name}_keypoints.json': openpose(points_of(), 'pose_keypoints_2d')}
    if layout == 'flat':
        return both | {f'image-parse/{name}.png': saved(person._lip_colours()[labels].astype(np.uint8), 'PNG')}
    return both | {f'image-parse/{name}.png': palette(labels),
                   f'openpose-img/{name}_rendered.png': rendered()}


def write_files(folder, files):
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def write_split(folder, split, numbers, layout='published'):
    for number in numbers:
        write_files(folder / split, sample_of(number, layout))
    ends = ('0', '1') if layout == 'viton' else ('00', '00')
    lines = [' '.join(f'{number:05}_{end}.jpg' for end in ends) for number in numbers]
    (folder / f'{split}_pairs.txt').write_text('\n'.join(lines) + '\n')


def prepare(config, folder, argv=()):
    os.makedirs(folder)
    return people_job.run(config, str(folder), list(argv))


def stored(folder, split='train'):
    """Person's name -> features of the record."""
    part = records.open_split(str(folder), split)
    rows = [tf.train.Example.FromString(record).features.feature for record in part.read(range(len(part)))]
    found = [{name: list(getattr(value, value.WhichOneof('kind')).value) for name, value in row.items()}
             for row in rows]
    return {row['person'][0].decode(): row for row in found}


def letters(folder):
    return sorted((json.loads(line) for path in pathlib.Path(folder, 'dead_letters').glob('*.jsonl')
                   for line in open(path)), key=lambda letter: (letter['file'], letter.get('line', 0)))


def check_counts(manifest):
    for split, counts in manifest.counts.items():
        assert counts['read'] == counts['written'] + counts['dead_letters'] + sum(
            value for key, value in counts.items() if key.startswith('filtered'))
        assert counts['written'] == sum(shard['records'] for shard in manifest.splits[split])


def digests(folder):
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(folder.rglob('*')) if path.is_file()}


@pytest.fixture
def config(tmp_path):
    """A Config factory; three people to test with, two to validate with."""
    write_split(tmp_path, 'test', range(50, 53))
    write_split(tmp_path, 'val', range(40, 42))

    def make(**values):
        return tryon.Config(**{'folder': str(tmp_path), 'train': ['train_pairs.txt'], 'validation': ['val_pairs.txt'],
                               'test': ['test_pairs.txt'], 'pairs_per_block': 3, 'pairs_per_shard': 4, **values})
    return make


@pytest.mark.parametrize('layout', ['published', 'viton', 'flat'])
def test_every_layout_gives_the_same_samples(config, tmp_path, layout):
    """VITON-HD's, palettes and 25 points; VITON's, grey levels and 18; and a folder with its own pairs file."""
    values = {}
    if layout == 'flat':
        write_split(tmp_path, 'mine', range(5), layout)
        (tmp_path / 'mine_pairs.txt').rename(tmp_path / 'mine/which.txt')
        values['train'] = ['mine/which.txt']
    else:
        write_split(tmp_path, 'train', range(5), layout)
    manifest = prepare(config(**values), tmp_path / 'out')
    check_counts(manifest)
    assert manifest.counts['train'] | {'drawn_pose': 0} == {
        'read': 5, 'written': 5, 'dead_letters': 0, 'filtered_not_worn': 0, 'filtered_repeated': 0, 'drawn_pose': 0,
        'in_validation': 0, 'in_test': 0}
    assert manifest.counts['train']['drawn_pose'] == (0 if layout == 'published' else 5)
    labels = labels_of()
    removed, agnostic_parse = person.agnostic(labels, points_of(), 40)
    pose = person.pose_map(points_of(), (H, W)).numpy() // (2 if layout == 'published' else 1)
    for name, row in stored(tmp_path / 'out').items():
        files = {path.split('/')[0]: content for path, content in sample_of(int(name[:5]), layout).items()}
        assert (row['image'], row['cloth']) == ([files['image']], [files['cloth']])
        for key, expected in (('parse', labels), ('agnostic_parse', agnostic_parse), ('removed', 255 * removed.numpy()),
                              ('cloth_mask', garment_of(int(name[:5]))[1])):
            image = Image.open(io.BytesIO(row[key][0]))
            assert image.mode == 'L'
            np.testing.assert_array_equal(np.asarray(image), expected, key)
        np.testing.assert_array_equal(Image.open(io.BytesIO(row['pose'][0])), pose)
        np.testing.assert_array_equal(np.float32(row['keypoints']).reshape(18, 3), points_of())
        assert row['garment'] == [name.replace('_0.', '_1.').encode() if layout == 'viton' else name.encode()]
        assert (row['height'], row['width'], row['worn'], row['kind']) == ([H], [W], [1], [b'paired'])


def test_the_same_bytes_again_whatever_the_blocks(config, tmp_path):
    write_split(tmp_path, 'train', range(9))
    prepare(config(), tmp_path / 'a')
    prepare(config(pairs_per_block=100), tmp_path / 'b')
    assert digests(tmp_path / 'a') == digests(tmp_path / 'b')
    assert len(records.read_manifest(str(tmp_path / 'a')).splits['train']) == 3


def change(ending, how):
    """Does something to the file of a sample whose path ends so: the new content, or None to remove it."""
    def changed(files):
        [path] = [path for path in files if path.split('/')[0] == ending]
        content = how(files.pop(path))
        return path, {**files, **({} if content is None else {path: content})}
    return changed


def with_points(how):
    def changed(content):
        del content
        points = points_of()
        how(points)
        return openpose(points, 'pose_keypoints_2d')
    return change('openpose-json', changed)


def header(kind, side=60000):
    if kind == 'PNG':
        return person.PNG + struct.pack('>I', 13) + b'IHDR' + struct.pack('>IIBBBBB', side, side, 8, 0, 0, 0, 0)
    data = bytearray(saved(np.zeros((H, W, 3), np.uint8)))
    frame = data.index(b'\xff\xc0')
    data[frame + 5:frame + 9] = struct.pack('>HH', side, side)
    return bytes(data)


def unknown(content):
    labels = np.array(Image.open(io.BytesIO(content)))
    labels[:3, :4] = 77
    return saved(labels, 'PNG')


MASK, PARSE, POSE = 'cloth-mask', 'image-parse', 'openpose-json'
BAD = {
    'no person': (change(POSE, lambda _: openpose(points_of(), people=0)), 'no person in it'),
    'two persons': (change(POSE, lambda _: openpose(points_of(), people=2)), '2 persons, and not one'),
    'cut JSON': (change(POSE, lambda content: content[:-9]), 'not JSON (Expecting'),
    'no JSON': (change(POSE, lambda _: b'\xff\xd8'), 'not JSON ('),
    'deep JSON': (change(POSE, lambda _: b'[' * 100_000), 'not JSON ('),
    'other JSON': (change(POSE, lambda _: b'[1, 2]'), "not OpenPose's: it has no list of people"),
    '17 points': (change(POSE, lambda _: openpose(np.ones((17, 3)))), "neither COCO's 18 points"),
    'no shoulders': (with_points(lambda points: points[[2, 5]].fill(0) or points.__setitem__([2, 5], 0)),
                     'no right shoulder and no left shoulder in it'),
    'no neck': (with_points(lambda points: points.__setitem__(1, 0)), 'no neck in it'),
    'pose of a larger picture': (with_points(lambda points: points.__imul__([4, 4, 1])),
                                 "another person's or size's: its neck is 192 pixels across"),
    'no pose file': (change(POSE, lambda _: None), 'there is no such file'),
    'swapped mask': (change(MASK, lambda _: saved(np.roll(garment_of(1)[1], 20, 1))), "another garment's mask: "),
    'inverted mask': (change(MASK, lambda _: saved(255 - garment_of(1)[1])), 'an inverted mask'),
    'empty mask': (change(MASK, lambda _: saved(0 * garment_of(1)[1])), 'an empty mask'),
    'full mask': (change(MASK, lambda _: saved(0 * garment_of(1)[1] + 255)), 'a mask of the whole picture'),
    'photograph as mask': (change(MASK, lambda _: saved(picture_of(3, labels_of()))), 'no mask: '),
    'no mask': (change(MASK, lambda _: None), 'there is no such file'),
    'small mask': (change(MASK, lambda _: saved(garment_of(1)[1][::2, ::2])),
                   "48 x 64 pixels, and its person's picture has 96 x 128"),
    'no garment': (change('cloth', lambda _: None), 'there is no such file'),
    'small garment': (change('cloth', lambda _: saved(garment_of(1)[0][::2, ::2])), '48 x 64 pixels'),
    'no picture': (change('image', lambda _: None), 'there is no such file'),
    'cut picture': (change('image', lambda content: content[:-200]), 'damaged or cut short: it cannot be decoded'),
    'empty picture': (change('image', lambda _: b''), 'empty, 0 bytes'),
    'moving picture': (change('image', lambda _: saved(garment_of(1)[0][..., 0], 'GIF')), 'GIF; only JPEG and PNG'),
    'JPEG bomb': (change('image', lambda _: header('JPEG')), '60,000 x 60,000 pixels are more than data.max_pixels'),
    'PNG bomb': (change(PARSE, lambda _: header('PNG')), '60,000 x 60,000 pixels are more than data.max_pixels'),
    'nobody parsed': (change(PARSE, lambda _: saved(0 * labels_of(), 'PNG')), 'no person in it'),
    'unknown labels': (change(PARSE, unknown), '12 pixels of no label that LIP has'),
    'JPEG of labels': (change(PARSE, lambda _: saved(labels_of())), 'JPEG, which alters labels'),
    'small parse': (change(PARSE, lambda _: saved(labels_of()[::2, ::2], 'PNG')), '48 x 64 pixels'),
    'cut parse': (change(PARSE, lambda content: content[:-30]), 'damaged or cut short'),
    'palette cut': (change(PARSE, lambda content: content[:60]), 'damaged or cut short'),
    'no parse': (change(PARSE, lambda _: None), 'there is no such file'),
    'cut pose map': (change('openpose-img', lambda content: content[:-30]), 'damaged or cut short'),
    'small pose map': (change('openpose-img', lambda _: saved(np.zeros((9, 7, 3), np.uint8))), '7 x 9 pixels'),
}


def test_what_cannot_be_used_is_a_dead_letter_by_file_and_reason_and_the_rest_goes_on(config, tmp_path):
    write_split(tmp_path, 'train', range(2))
    expected, lines = {}, ['00000_00.jpg 00000_00.jpg', '00001_00.jpg 00001_00.jpg', '']
    for number, (defect, (changed, reason)) in enumerate(BAD.items(), 10):
        path, files = changed(sample_of(number))
        write_files(tmp_path / 'train', files)
        expected[f'{tmp_path}/train/{path}'] = (f'{number:05}_00.jpg', reason, defect)
        lines.append(f'{number:05}_00.jpg {number:05}_00.jpg')
    (tmp_path / 'train_pairs.txt').write_text('\n'.join([
        *lines, 'one.jpg', 'a.jpg b.jpg c.jpg d.jpg', '../../up.jpg 00001_00.jpg', '00001_00.jpg /etc/passwd']))
    manifest = prepare(config(max_dead_letters=1.0), tmp_path / 'out')
    counts = manifest.counts['train']
    assert (counts['written'], counts['dead_letters']) == (2, len(BAD) + 4)
    check_counts(manifest)
    assert set(stored(tmp_path / 'out')) == {'00000_00.jpg', '00001_00.jpg'}
    found = letters(tmp_path / 'out')
    first = len(lines) + 1
    assert [(letter['line'], letter['reason']) for letter in found if letter['file'].endswith('pairs.txt')] == [
        (first, "1 names, and not two, a person's and a garment's, with or without a group's"),
        (first + 1, "4 names, and not two, a person's and a garment's, with or without a group's"),
        (first + 2, '../../up.jpg leads out of its folder'), (first + 3, '/etc/passwd leads out of its folder')]
    others = {letter['file']: letter for letter in found if 'line' not in letter}
    assert set(others) == set(expected)
    for file, (name, reason, defect) in expected.items():
        assert others[file]['person'] == others[file]['garment'] == name
        assert reason in others[file]['reason'], defect
        assert '\n' not in others[file]['reason']


@pytest.mark.parametrize('name', ['a\0b.jpg', 'x' * 300 + '.jpg', '\x1b[2J.jpg'])
def test_a_name_that_no_file_has_is_a_dead_letter(tmp_path, name):
    path = tmp_path / 'pairs.txt'
    path.write_text(f'a.jpg b.jpg\n{name} b.jpg\n')
    assert [pair.reason for pair in pairs_files.pairs(str(path))] == ['', 'no file has such a name']


def test_missing_limbs_and_hips_are_no_defect(config, tmp_path):
    write_split(tmp_path, 'train', range(3))
    for number, joints in enumerate(([3, 4, 6, 7], [8, 11], [0, 3, 4, 6, 7, 8, 11, 14, 15])):
        points = points_of()
        points[joints] = 0
        write_files(tmp_path / 'train', {f'openpose-json/{number:05}_00_keypoints.json': openpose(points)})
    prepare(config(), tmp_path / 'out')
    labels = labels_of()
    for name, row in stored(tmp_path / 'out').items():
        removed = np.asarray(Image.open(io.BytesIO(row['removed'][0]))) > 0
        assert removed[np.isin(labels, (5, 10))].all() and not removed[labels == 13].any()
        assert removed[np.isin(labels, (14, 15))].all() == (name != '00001_00.jpg')  # whose wrists are known


def test_masks_and_pictures_may_be_png_and_masks_jpeg_of_any_kind(config, tmp_path):
    write_split(tmp_path, 'train', range(3))
    cloth, mask = garment_of(0)
    write_files(tmp_path / 'train', {'cloth-mask/00000_00.png': saved(mask, 'PNG'),
                                     'cloth-mask/00001_00.jpg': saved(np.stack([garment_of(1)[1]] * 3, -1), quality=60),
                                     'cloth/00000_00.jpg': saved(cloth, 'PNG')})
    os.remove(tmp_path / 'train/cloth-mask/00000_00.jpg')
    prepare(config(), tmp_path / 'out')
    for name, row in stored(tmp_path / 'out').items():
        np.testing.assert_array_equal(Image.open(io.BytesIO(row['cloth_mask'][0])), garment_of(int(name[:5]))[1])
    assert stored(tmp_path / 'out')['00000_00.jpg']['cloth'][0].startswith(b'\x89PNG')


def test_only_garments_that_are_worn_may_train(config, tmp_path):
    write_split(tmp_path, 'train', range(3), 'viton')
    (tmp_path / 'train_pairs.txt').write_text('\ufeff00000_0.jpg 00000_1.jpg\r\n00001_0.jpg 00002_1.jpg\n'
                                              '00002_0.jpg\t00002_1.jpg\n\n00000_0.jpg 00000_1.jpg\n', 'utf-8')
    (tmp_path / 'test_pairs.txt').write_text('00050_00.jpg 00051_00.jpg\n00051_00.jpg 00051_00.jpg\n'
                                             '00050_00.jpg 00052_00.jpg\n')
    manifest = prepare(config(), tmp_path / 'paired')
    assert [manifest.counts['train'][key] for key in ('read', 'written', 'filtered_not_worn', 'filtered_repeated')
            ] == [4, 2, 1, 1]
    assert [manifest.counts['test'][key] for key in ('read', 'written', 'filtered_repeated')] == [3, 2, 1]
    check_counts(manifest)
    assert {name: row['garment'][0] for name, row in stored(tmp_path / 'paired', 'test').items()} == {
        '00050_00.jpg': b'00050_00.jpg', '00051_00.jpg': b'00051_00.jpg'}
    manifest = prepare(config(pairing='unpaired'), tmp_path / 'unpaired')
    rows = records.open_split(str(tmp_path / 'unpaired'), 'test').read(range(3))
    inputs, columns = tryon.examples(rows)
    found = sorted(zip(columns['person'], columns['garment'], columns['kind'], map(bool, columns['target'])))
    assert found == [(f'000{one}_00.jpg', f'000{other}_00.jpg', 'paired' if one == other else 'unpaired', one == other)
                     for one, other in ((50, 51), (50, 52), (51, 51))]
    for given, name in zip(inputs, columns['garment']):
        assert given['cloth'] == (tmp_path / 'test/cloth' / name).read_bytes()


def test_people_in_two_splits_are_counted_by_their_pictures(config, tmp_path):
    write_split(tmp_path, 'train', [0, 1, 2, 3])
    for number, other in ((0, 'test/image/00050'), (1, 'test/image/00051'), (1, 'val/image/00040')):
        (tmp_path / f'{other}_00.jpg').write_bytes((tmp_path / f'train/image/{number:05}_00.jpg').read_bytes())
    counts = prepare(config(), tmp_path / 'out').counts
    assert (counts['train']['in_validation'], counts['train']['in_test'], counts['validation']['in_test']) == (1, 2, 1)
    assert 'in_validation' not in counts['test']


def test_parts_are_split_off_by_the_persons_name_alone(config, tmp_path):
    write_split(tmp_path, 'train', range(3))
    names = [f'{number:05}_0.jpg' for number in range(3000)]
    (tmp_path / 'train_pairs.txt').write_text(''.join(f'{name} x.jpg\n{name} y.jpg\n' for name in names))
    values = {'validation': [], 'test': [], 'validation_fraction': 0.2, 'test_fraction': 0.1}
    scan = people_job._Scan(config(**values), str(tmp_path))
    found = {split: {item[1] for name, (_, items) in scan.process(people_job.sources(config(**values))[0])
                     if name == split for item in splits.unpack(items)} for split in tryon.SPLITS}
    assert set.union(*found.values()) == set(names) and sum(map(len, found.values())) == 3000
    for split, share in (('train', 0.7), ('validation', 0.2), ('test', 0.1)):
        assert abs(len(found[split]) - 3000 * share) < 4 * np.sqrt(3000 * share * (1 - share))
    before = found['train']
    for fraction in (0.5, 0.25):
        halved = config(**values, train_fraction=fraction)
        kept = {split: {item[1] for name, (_, items) in people_job._Scan(halved, str(tmp_path)).process(
            people_job.sources(halved)[0]) if name == split for item in splits.unpack(items)} for split in tryon.SPLITS}
        assert kept['train'] < before and [kept[split] for split in tryon.SPLITS[1:]] == [
            found[split] for split in tryon.SPLITS[1:]]
        assert abs(len(kept['train']) - len(found['train']) * fraction) < 4 * np.sqrt(3000 * 0.7 * fraction)
        before = kept['train']


def remove(folder, *names):
    for name in names:
        os.rename(folder / name, folder / f'{name}.gone')


@pytest.mark.parametrize('broken, values, message', [
    (lambda folder: None, {'train': ['gone.txt']}, r'data\.train: there is no file .*/gone\.txt'),
    (lambda folder: remove(folder, 'val/openpose-json'), {},
     r'data\.validation: .*/val has no folder openpose-json or openpose_json or pose; put'),
    (lambda folder: remove(folder, 'test'), {}, r'data\.test: .* has no folder image; put the pairs file beside its'),
    (lambda folder: (folder / 'val_pairs.txt').write_bytes(b'a.jpg b.jpg\n\xff\xfe'), {},
     r'data\.validation: .*val_pairs\.txt, line 2, is not UTF-8 text'),
    (lambda folder: remove(folder / 'test/cloth', '00051_00.jpg'), {},
     r'1 of the 3 test pairs cannot be used, more than data\.max_dead_letters 0\.01 allows; see dead_letters/'),
    (lambda folder: (folder / 'train_pairs.txt').write_text('00000_00.jpg 00001_00.jpg'), {},
     r'data\.train holds no usable pair: 1 read, 1 of garments that their persons do not wear, 0 dead letters'),
    (lambda folder: (folder / 'test_pairs.txt').write_text('\n'), {}, r'data\.test holds no usable pair: 0 read')])
def test_what_cannot_be_prepared_is_one_sentence_and_no_data_set(config, tmp_path, broken, values, message):
    write_split(tmp_path, 'train', range(2))
    broken(tmp_path)
    with pytest.raises(UserError, match=message) as said:
        prepare(config(**values), tmp_path / 'out')
    assert '\n' not in str(said.value)
    with pytest.raises(UserError, match='has no manifest.json'):
        records.open_split(str(tmp_path / 'out'), 'train')


@pytest.mark.parametrize('values, message', [
    ({'train': []}, 'train must list'), ({'test': []}, 'test must list .* or test_fraction'),
    ({'validation_fraction': 0.1}, 'validation must list'), ({'samples': 'faces'}, 'samples must be people'),
    ({'samples': 'people'}, 'samples come with their own'), ({'max_dead_letters': 2}, 'max_dead_letters is a fraction'),
    ({'samples': 'people', 'train': [], 'validation': [], 'test': [], 'samples_count': [4]}, 'samples_count must be'),
    ({'validation': [], 'validation_fraction': 0.6, 'test': [], 'test_fraction': 0.4}, 'leave nothing for training')])
def test_settings_that_cannot_be(config, values, message):
    with pytest.raises(ValueError, match=message):
        config(**values)


@pytest.mark.parametrize('values, message', [({'size': [64]}, 'a height and a width'), ({'tokens': 9}, 'no length')])
def test_input_settings_that_cannot_be(values, message):
    with pytest.raises(ValueError, match=message):
        tryon.Input(**values)


def test_a_configuration_file_holds_them(tmp_path):
    (tmp_path / 'mine.yaml').write_text('data: {module: data_prep.tryon, train: [a.txt], test: [b.txt], padding: 0, '
                                        'validation_fraction: 0.1, pairing: unpaired, samples_size: [64, 48]}\n'
                                        'input: {size: [256, 192], flip: true}\n'
                                        'model: {module: keras_models.viton.try_on}\n')
    loaded = run_config.load(str(tmp_path / 'mine.yaml'))
    assert (loaded.data.padding, loaded.data.pairing, loaded.input.size) == (0, 'unpaired', [256, 192])
    with pytest.raises(UserError, match='pairing must be'):
        run_config.load(str(tmp_path / 'mine.yaml'), ['data.pairing=both'])


def test_files_tell_what_was_added(config, tmp_path):
    found = config(folder=str(tmp_path)).files('test')
    assert found == [str(tmp_path / name) for name in ('test_pairs.txt', *(f'test/{name}' for name in (
        'image', 'cloth', 'cloth-mask', 'image-parse', 'openpose-json', 'openpose-img')))]
    assert config(folder='gs://b').files('test') == ['gs://b/test_pairs.txt']


@pytest.fixture(scope='module')
def prepared(tmp_path_factory):
    """A data set of six people in training, one without a pose map, and its folder."""
    folder = tmp_path_factory.mktemp('prepared')
    for split, numbers in (('train', range(6)), ('test', range(50, 52))):
        write_split(folder, split, numbers)
    os.remove(folder / 'train/openpose-img/00002_00_rendered.png')
    prepare(tryon.Config(folder=str(folder), train=['train_pairs.txt'], validation=['test_pairs.txt'],
                         test=['test_pairs.txt']), folder / 'out')
    return str(folder / 'out')


def batch(folder, config, training=False, empty=0, seed=0):
    part = records.open_split(folder, 'train')
    rows = [*part.read(range(len(part))), *[b''] * empty]
    seeds = np.stack([np.full(len(rows), seed), np.arange(len(rows))], 1).astype(np.int32)
    found = tryon.decoder(folder, config, training)(tf.constant(rows), tf.constant(0, tf.int64), tf.constant(seeds))
    return {name: value.numpy() for name, value in found.items()}


def test_a_batch_is_what_the_files_say(prepared):
    found = batch(prepared, tryon.Input(size=[H, W]), empty=1)
    names = list(stored(prepared))
    labels = labels_of()
    removed, agnostic_parse = (value.numpy() for value in person.agnostic(labels, points_of(), 40))
    for i, name in enumerate(names):
        number = int(name[:5])
        for key in ('image', 'cloth'):
            pixels = Image.open(io.BytesIO(sample_of(number)[f'{key}/{name}']))
            expected = np.asarray(pixels, np.float32) / 127.5 - 1
            np.testing.assert_allclose(found[key][i], expected, atol=1e-6)
        np.testing.assert_array_equal(found['agnostic'][i], np.where(removed[..., None], 0, found['image'][i]))
        pose = person.pose_map(points_of(), (H, W)).numpy()
        np.testing.assert_allclose(found['pose'][i], (pose if number == 2 else pose // 2) / 127.5 - 1, atol=1e-6)
        np.testing.assert_array_equal(found['cloth_mask'][i, ..., 0], garment_of(number)[1] > 0)
        np.testing.assert_array_equal(found['parse'][i], np.array(person.GROUP)[labels])
        np.testing.assert_array_equal(found['agnostic_parse'][i], np.array(person.GROUP)[agnostic_parse])
    assert found['real'].tolist() == [1] * 6 + [0] and not any(value[6].any() for value in found.values())
    assert {key: value.dtype.name for key, value in found.items() if value.dtype != np.float32} == {
        'parse': 'int32', 'agnostic_parse': 'int32'}


def test_a_batch_is_the_same_in_tf_data(prepared):
    config = tryon.Input(size=[64, 48], flip=True)
    part, decode = records.open_split(prepared, 'train'), tryon.decoder(prepared, config, True)
    rows, seeds = [*part.read(range(6)), b''], np.array([[3, i] for i in range(7)], np.int32)
    zero = tf.constant(0, tf.int64)
    eager = decode(tf.constant(rows), zero, tf.constant(seeds))
    [graph] = tf.data.Dataset.from_tensors((rows, seeds)).map(lambda rows, seeds: decode(rows, zero, seeds))
    for name, value in eager.items():
        assert graph[name].shape == value.shape
        np.testing.assert_array_equal(graph[name], value)


def test_no_garment_gets_into_a_smaller_picture(prepared):
    """The top is all red, and nothing else is; JPEG is soft, so at its edge a padding's width is left out."""
    found = batch(prepared, tryon.Input(size=[48, 36]))
    red = (found['image'][..., 0] > 0.6) & (found['image'][..., 1:] < -0.6).all(-1)
    assert red[:, 15:30, 14:23].all()
    agnostic = found['agnostic']
    assert not ((agnostic[..., 0] > 0.3) & (agnostic[..., 1:] < -0.3).all(-1)).any()
    assert (agnostic[:, 15:30, 10:26] == 0).all()
    assert found['image'].shape == (6, 48, 36, 3) and set(np.unique(found['cloth_mask'])) == {0, 1}
    assert set(np.unique(found['parse'])) == set(np.array(person.GROUP)[np.unique(labels_of())])


def test_in_a_mirror_everything_is_turned_and_left_is_right(prepared):
    config = tryon.Input(size=[H, W], flip=True)
    straight = batch(prepared, config)
    sides = person.exchanged(points_of()).numpy()
    turned = (sides * [-1, 1, 1] + (sides[:, 2:] > 0) * [W - 1, 0, 0]).astype(np.float32)
    pose = person.pose_map(turned, (H, W)).numpy()
    mirror = {'pose': lambda _: pose / 127.5 - 1} | {
        name: lambda labels: np.array(person.MIRRORED_CLASS)[labels[:, ::-1]] for name in ('parse', 'agnostic_parse')}
    flips = 0
    for seed in range(4):
        found = batch(prepared, config, training=True, seed=seed)
        for i in range(6):
            turned = not np.array_equal(found['image'][i], straight['image'][i])
            flips += turned
            for name in set(found) - {'real'}:
                expected = straight[name][i]
                if turned:
                    expected = mirror.get(name, lambda pixels: pixels[:, ::-1])(expected)
                np.testing.assert_allclose(found[name][i], expected, atol=1e-6, err_msg=name)
    assert 4 <= flips <= 20


@pytest.mark.parametrize('size', [pytest.param((H, W), marks=pytest.mark.slow), (64, 48)])
def test_what_is_served_is_what_the_batch_shows(prepared, tmp_path, size):
    """From the record's files, from the raw ones, and in a SavedModel."""
    config = tryon.Input(size=list(size))
    assets = tryon.assets(prepared, config)
    assert assets.size == size
    expected = batch(prepared, config)
    inputs, columns = tryon.examples(records.open_split(prepared, 'train').read(range(6)))

    class Served(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([], tf.string, name=name) for name in inputs[0]], autograph=False)
        def show(self, image, parse, pose_json, pose_image, cloth, cloth_mask):
            return assets.sample(image, parse, pose_json, pose_image, cloth, cloth_mask)
    module = Served()
    tf.saved_model.save(module, str(tmp_path / 'saved'), signatures=module.show)
    serve = tf.saved_model.load(str(tmp_path / 'saved')).signatures['serving_default']
    traced = tf.function(assets.sample, autograph=False)
    folders = pairs_files.folders(os.path.join(os.path.dirname(prepared), 'train'))
    for i, given in enumerate(inputs):
        files = pairs_files.read(folders, columns['person'][i], columns['garment'][i])
        raw = {'pose_json': 'keypoints', 'pose_image': 'pose'}
        from_files = {name: getattr(files.get(raw.get(name, name)), 'content', b'') for name in given}
        assert (from_files['pose_image'] == b'') == (columns['person'][i] == '00002_00.jpg')
        for asked, show in ((given, traced), (from_files, serve), *[(from_files, assets.sample)] * (i == 0)):
            found = show(**{name: tf.constant(value) for name, value in asked.items()})
            assert found.keys() == expected.keys() - {'real'}
            for name, value in found.items():
                np.testing.assert_allclose(value, expected[name][i], atol=1e-6, err_msg=name)
    assert columns['target'] == columns['person'] and len(inputs) == 6


@pytest.fixture(scope='module')
def traced(prepared):
    """Trace what a server computes of a request."""
    return tf.function(tryon.assets(prepared, tryon.Input(size=[64, 48])).sample, autograph=False)


@pytest.mark.parametrize('wrong, message', [
    ({'pose_json': openpose(points_of(), people=2)}, 'pose_json must hold one person'),
    ({'pose_json': b'{}'}, 'pose_json must hold one person'),
    ({'pose_json': openpose(0 * points_of())}, 'pose_json must hold neck and shoulders'),
    ({'parse': saved(labels_of()[::2], 'PNG')}, 'image and parse must be of one size'),
    ({'parse': saved(labels_of())}, 'a parse map must be a PNG')])
def test_a_request_that_cannot_be_served_says_why(prepared, traced, wrong, message):
    inputs, _ = tryon.examples(records.open_split(prepared, 'train').read([0]))
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        traced(**{name: tf.constant(value) for name, value in (inputs[0] | wrong).items()})


def test_people_that_are_drawn_can_be_prepared(tmp_path):
    manifest = prepare(tryon.Config(samples='people', samples_count=[6, 2], samples_size=[128, 96],
                                    samples_held_out=['plain'], validation_fraction=0.4, pairing='unpaired'),
                       tmp_path / 'out')
    _, columns = tryon.examples(records.open_split(str(tmp_path / 'out'), 'test').read([0, 1]))
    assert columns['group'] == ['pattern', 'pattern']  # both wear a plain top
    counts = manifest.counts
    assert counts['train']['written'] + counts['validation']['written'] == 6 and counts['test']['written'] == 2
    assert all(part['dead_letters'] == part['in_test'] == 0 for part in (counts['train'], counts['validation']))
    for row in stored(tmp_path / 'out').values():
        labels, removed = (np.asarray(Image.open(io.BytesIO(row[key][0]))) for key in ('parse', 'removed'))
        assert (removed[np.isin(labels, (5, 10))] == 255).all() and (removed[labels == 13] == 0).mean() > 0.95


def test_the_graph_is_built_without_looking_at_files(config):
    """Build it as for Dataflow: of names that only workers can read, all of it pickled."""
    pipeline = beam.Pipeline()
    people_job.build(pipeline, config(folder='gs://none/raw'), 'gs://none/out')
    assert 'Write' in {step.unique_name for step in pipeline.to_runner_api().components.transforms.values()}
