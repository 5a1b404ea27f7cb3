"""Try-on samples from photographs: orientation, windows, masks against drawn ones, label maps, and findings."""
import io
import json
import pathlib

import cv2
import numpy as np
import pytest
import tensorflow as tf
from onnx import TensorProto, helper, numpy_helper
from PIL import Image, ImageOps

from data_prep import UserError
from data_prep.image import codec
from data_prep.people import person, sample_people
from data_prep.photos import folder, garment, grading, job, labels, making, photograph, pose
from data_prep.photos.folder import Photo, Row
from data_prep.photos.grading import Finding
from data_prep.photos.parser import ExistingMap, Parser, UnusableMap
from data_prep.photos.photograph import Window
from pipelines.reporting import photo_page
from support import people_parser, tiny_people
from support.commands import command

# BODY_25 of a standing person, in torsos from the neck, without small toes.
STANDING = np.array([(0, -0.5), (0, 0), (-0.35, 0), (-0.45, 0.6), (-0.45, 1.1), (0.35, 0), (0.45, 0.6), (0.45, 1.1),
                     (0, 1), (-0.2, 1), (-0.2, 1.8), (-0.2, 2.5), (0.2, 1), (0.2, 1.8), (0.2, 2.5), (-0.06, -0.55),
                     (0.06, -0.55), (-0.15, -0.5), (0.15, -0.5), (0.2, 2.6), (0, 0), (0.2, 2.55), (-0.2, 2.6), (0, 0),
                     (-0.2, 2.55)])


def stands(scale=200.0, x=300.0, y=250.0, **moved):
    """Return a standing pose; `moved` places points elsewhere by number, as p9=(x, y) in torsos."""
    places = STANDING.copy()
    for name, place in moved.items():
        places[int(name[1:])] = place
    points = np.column_stack([places * scale + [x, y], np.full(25, 0.9)])
    points[[20, 23]] = 0
    return pose.Pose(points, points[0, :2] + [0, 0.15 * scale], 0.0, 0.9)


def jpeg(pixels, **options):
    out = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels)).save(out, 'JPEG', quality=92, **options)
    return out.getvalue()


def sentences(findings):
    return ' '.join(finding.sentence for finding in findings)


@pytest.mark.parametrize('format', ['JPEG', 'PNG'])
@pytest.mark.parametrize('orientation', range(1, 9))
def test_a_photograph_is_turned_upright(orientation, format):
    """Every stored orientation is read as Pillow reads it, to within JPEG's error."""
    pixels = cv2.resize(np.random.default_rng(1).integers(0, 256, (4, 3, 3), np.uint8), (48, 64))
    back = {2: 2, 3: 3, 4: 4, 5: 5, 6: 8, 7: 7, 8: 6}.get(orientation)
    exif = Image.Exif()
    exif[0x0112] = back or 1
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, format, exif=exif, **({'quality': 95} if format == 'JPEG' else {}))
    with Image.open(out) as image:
        stored = photograph._UPRIGHT[back](np.asarray(image)) if back else np.asarray(image)
    again = io.BytesIO()
    exif[0x0112] = orientation
    Image.fromarray(np.ascontiguousarray(stored)).save(again, format, exif=exif,
                                                       **({'quality': 95} if format == 'JPEG' else {}))
    found = photograph.read(again.getvalue())
    with Image.open(again) as image:
        expected = np.asarray(ImageOps.exif_transpose(image))
    assert found.shape == expected.shape and np.abs(found.astype(int) - expected).mean() < 1
    assert photograph.orientation(again.getvalue()) == orientation


def test_damaged_exif_is_ignored():
    exif = Image.Exif()
    exif[0x0112] = 6
    content = jpeg(np.zeros((64, 48, 3), np.uint8), exif=exif)
    at = content.index(b'Exif')
    for end in range(at + 6, at + 30):
        damaged = content[:end] + b'\xff\x9f\x00' + content[end + 3:]
        assert photograph.read(damaged).shape in ((64, 48, 3), (48, 64, 3))


@pytest.mark.parametrize('content, said', [
    (b'', 'empty'), (b'\0\0\0\x18ftypheic', 'HEIC, AVIF'), (jpeg(np.zeros((99, 99, 3), np.uint8))[:300], 'damaged')])
def test_unreadable_photographs_are_refused(content, said):
    with pytest.raises(codec.Unreadable, match=said):
        photograph.read(content)
    [finding] = making.of_garment(content).findings
    assert finding.wrong and said in finding.sentence


@pytest.mark.parametrize('height, width, points, window', [
    (1024, 768, stands(240), Window(0, 0, 1024, 768)),  # the person fills it, as in VITON-HD
    (1000, 2000, stands(230, 900, 250), Window(525, 0, 1000, 750)),  # wide: the whole height
    (2000, 750, stands(250, 300, 700), Window(0, 462, 1000, 750)),  # tall: the whole width, from above the head
    (3000, 4000, stands(100, 3000, 900), Window(2832, 805, 448, 336)),  # far away: 4.5 torsos
    (400, 300, stands(500, 150, 200), Window(0, 0, 400, 300))])
def test_the_window_shows_the_person(height, width, points, window):
    found = making.framing(points.points, height, width)
    assert found == window and found.height * 3 == found.width * 4
    assert 0 <= found.left <= width - found.width and 0 <= found.top <= height - found.height


@pytest.mark.parametrize('window, size', [
    (Window(20, 10, 160, 120), (80, 60)), (Window(-20, -10, 160, 120), (240, 180))])
def test_points_move_with_the_window(window, size):
    rows, columns = np.mgrid[:200, :240]
    spot = (250 * np.exp(-((columns - 71.3) ** 2 + (rows - 88.6) ** 2) / 50))[..., np.newaxis].repeat(3, 2)
    part = photograph.cut(spot.round().astype(np.uint8), window, size)[..., 0].astype(float)
    assert part.shape == size
    place = stands(1, 71.3, 88.6).moved(size[0] / window.height, window.left, window.top).points[1, :2]
    found = [np.average(np.indices(part.shape)[axis], weights=part) for axis in (1, 0)]
    np.testing.assert_allclose(found, place, atol=0.15)


def drawn(number, size=(512, 384)):
    made = sample_people.make_person(1, number, size)
    return made.cloth, made.cloth_mask > 0


def overlap(found, truth):
    return (found & truth).sum() / (found | truth).sum()


@pytest.mark.parametrize('number', [50_000, 50_001, 50_003, 50_005])
@pytest.mark.parametrize('quality', [92, 60])
def test_garment_masks_match_the_drawn_ones(number, quality):
    cloth, truth = drawn(number)
    found = garment.mask(photograph.read(tf.io.encode_jpeg(cloth, quality=quality).numpy()))
    assert overlap(found.garment, truth) > 0.96
    assert not [*grading.garment(found, found.garment, Window(0, 0, 512, 384), 512)] or found.contrast < 8


def test_a_white_garment_on_white_is_segmented():
    """All of it is within 18 levels of the background, half of it within 8."""
    cloth, truth = drawn(50_005)
    white = np.where(truth[..., None], 255 - 5 - (255 - cloth.mean(-1, keepdims=True)) * 0.07, 255).round()
    assert (255 - white).max() < 18
    found = garment.mask(photograph.read(jpeg(white.astype(np.uint8).repeat(3, 2))))
    assert overlap(found.garment, truth) > 0.96
    assert 'hardly differs' in sentences(grading.garment(found, truth, Window(0, 0, 512, 384), 512))


def test_uneven_light_counts_as_background():
    cloth, truth = drawn(50_003)
    light = np.linspace(1, 0.75, 512)[:, None, None] * np.linspace(0.9, 1, 384)[None, :, None]
    noise = np.random.default_rng(0).normal(0, 3, cloth.shape)
    found = garment.mask(photograph.read(jpeg((cloth * light + noise).clip(0, 255).astype(np.uint8))))
    assert overlap(found.garment, truth) > 0.96 and found.noise < 4


def test_bad_photographs_of_garments_are_reported():
    cloth, truth = drawn(50_003)

    def said(pixels):
        return sentences(making.of_garment(jpeg(pixels), (512, 384)).findings)
    assert 'cut off at the lower edge' in said(cloth[:260])
    cut_off = making.of_garment(jpeg(cloth[:260]), (512, 384)).files['cloth_mask']
    assert not tf.io.decode_png(cut_off)[-20:].numpy().any()  # nothing is repeated below the photograph
    two = np.concatenate([cloth, drawn(50_004)[0]], 1)
    assert 'something beside the garment' in said(two)
    tiles = np.kron(np.indices((64, 48)).sum(0) % 2, np.ones((8, 8)))[..., None] * 120 + 100
    assert 'background is not plain' in said(np.where(truth[..., None], cloth, tiles).astype(np.uint8))
    assert '90 x 120 pixels' in said(cv2.resize(cloth, (90, 120), interpolation=cv2.INTER_AREA))
    assert 'No garment was found' in said(np.full((200, 150, 3), 255, np.uint8))


def test_a_garment_is_centred_on_white():
    """A garment photographed on a table comes out as in VITON-HD: centred, on white."""
    cloth, truth = drawn(50_009, (480, 360))
    table = np.full((600, 900, 3), (180, 200, 170), np.uint8)
    table[60:540, 300:660][truth] = cloth[truth]
    made = making.of_garment(jpeg(table), (512, 384))
    assert made.findings == [] and {*made.files} == {'cloth', 'cloth_mask'}
    image, mask = (tf.io.decode_image(made.files[key], 3).numpy() for key in ('cloth', 'cloth_mask'))
    assert image.shape == mask.shape == (512, 384, 3)
    outside = cv2.dilate(mask, np.ones((9, 9))) == 0
    assert image[outside].min() > 245  # white, up to JPEG's error
    rows, columns = (np.flatnonzero(mask[..., 0].any(axis)) for axis in (1, 0))
    assert 0.8 < max(np.ptp(rows) / 512, np.ptp(columns) / 384) < 0.95
    np.testing.assert_allclose([rows[[0, -1]].mean() / 512, columns[[0, -1]].mean() / 384], 0.5, atol=0.02)
    wide, tall = (np.ptp(np.flatnonzero(truth.any(axis))) for axis in (0, 1))
    assert np.ptp(columns) / np.ptp(rows) == pytest.approx(wide / tall, rel=0.02)  # the aspect ratio is kept


def test_label_maps_are_translated_by_name():
    assert labels.table('cihp').tolist() == list(range(20))
    lip, atr = labels.table('lip'), labels.table('atr')
    assert [n for n in range(20) if lip[n] != n] == [10] and person.LABELS[lip[10]] == 'dress'
    named = {theirs: person.LABELS[ours] for theirs, ours in zip(labels.MAPS['atr'], atr)}
    assert {theirs: ours for theirs, ours in named.items() if theirs != ours} == {'belt': 'pants', 'bag': 'background'}
    assert labels.choose('', 20, 'p') == 'lip' and labels.choose('', 18, 'p') == 'atr'
    assert labels.choose('cihp', 20, 'p') == 'cihp'
    for name, count, said in (('lpi', 20, 'Did you mean lip'), ('atr', 20, 'the map has 18 labels, but p has 20'),
                              ('', 7, "Pascal-Person-Part's 7 labels"), ('', 33, 'it has 33 labels')):
        with pytest.raises(UserError, match=said):
            labels.choose(name, count, 'p')


def test_the_neck_of_atr_becomes_torso_skin():
    found = np.full((20, 10), labels.FACE, np.uint8)
    nose, chin = np.array([5., 4]), np.array([5., 9])
    split = labels.with_neck(found, 'atr', nose, chin)
    assert (split[:10] == labels.FACE).all() and (split[10:] == labels.TORSO_SKIN).all()
    assert labels.with_neck(found, 'lip', nose, chin) is found


def network(path, outputs, shape=(1, 3, 48, 36), kind=TensorProto.FLOAT):
    """Write an ONNX file whose outputs are 1 x 1 convolutions: name -> kernel [labels, 3]."""
    nodes = [helper.make_node('Conv', ['input', f'{name}_kernel'], [name]) for name in outputs]
    constants = [numpy_helper.from_array(np.float32(kernel)[..., None, None], f'{name}_kernel')
                 for name, kernel in outputs.items()]
    results = [helper.make_tensor_value_info(name, kind, [1, len(kernel), *shape[2:]])
               for name, kernel in outputs.items()]
    inputs = [helper.make_tensor_value_info('input', kind, shape)]
    graph = helper.make_graph(nodes, 'network', inputs, results, constants)
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid('', 13)], ir_version=8)
                     .SerializeToString())
    return str(path)


def by_colour(count=20):
    """Return a kernel that scores red as a top, green as a face and everything else as background; input is BGR."""
    kernel = np.zeros((count, 3))
    kernel[0] = -0.5
    kernel[5], kernel[13] = (-1, -1, 1), (-1, 1, -1)
    return kernel


@pytest.mark.parametrize('shape', [(1, 3, 48, 36), (1, 3, 64, 64), ('n', 3, 'h', 'w')])
def test_labels_are_aligned_with_the_image(tmp_path, shape):
    pixels = np.full((161, 121, 3), 0, np.uint8)
    pixels[20:60, 40:90], pixels[80:140, 30:100] = (0, 255, 0), (255, 0, 0)
    outputs = {'first': -by_colour(), 'fusion': by_colour(), 'edge': np.ones((2, 3))}
    found = Parser(network(tmp_path / 'net.onnx', outputs, shape)).parse(pixels)
    assert found.shape == (161, 121) and found.dtype == np.uint8
    for label, part in ((13, np.s_[20:60, 40:90]), (5, np.s_[80:140, 30:100])):
        truth = np.zeros(found.shape, bool)
        truth[part] = True
        assert overlap(found == label, truth) > 0.9
        np.testing.assert_allclose(np.argwhere(found == label).mean(0), np.argwhere(truth).mean(0), atol=1)


def test_the_parser_of_the_tests_parses_drawn_people():
    """The parser was trained on drawn people; Landmark includes no published one."""
    parser = Parser(str(people_parser.PATH), 'cihp')
    intersection = union = 0
    for number in range(50_000, 50_006):
        truth = sample_people.make_person(1, number, (512, 384))
        found = parser.parse(truth.image)
        intersection += np.count_nonzero((found == truth.parse) & (found > 0))
        union += np.count_nonzero((found > 0) | (truth.parse > 0))
    assert intersection / union > 0.6


def test_files_that_are_not_parsers_are_refused(tmp_path):
    (tmp_path / 'text.onnx').write_text('none')
    seven = np.ones((7, 3))
    for path, said in (
            (str(tmp_path / 'none.onnx'), 'not a file'), (str(tmp_path / 'text.onnx'), 'onnxruntime cannot read it'),
            (network(tmp_path / 'a.onnx', {'out': seven}), "Pascal-Person-Part's 7 labels"),
            (network(tmp_path / 'b.onnx', {'out': np.ones((20, 4))}, (1, 4, 8, 8)), r'takes one, float32 \[1, 3')):
        with pytest.raises(UserError, match=said) as error:
            Parser(path)
        assert path in str(error.value)


def test_an_existing_parse_map_must_fit_its_image():
    image = np.zeros((8, 6, 3), np.uint8)
    png = tf.io.encode_png(np.full((8, 6, 1), 5, np.uint8)).numpy()
    assert (ExistingMap('a.png', png).parse(image) == 5).all()
    unknown = tf.io.encode_png(np.full((8, 6, 1), 99, np.uint8)).numpy()
    for content, size, said in ((png, (4, 3), 'a.png has 6 x 8 pixels, but its image has 3 x 4'),
                                (b'no', (8, 6), 'not a PNG'), (unknown, (8, 6), 'labels that LIP does not')):
        with pytest.raises(UnusableMap, match=said):
            ExistingMap('a.png', content).parse(np.zeros((*size, 3), np.uint8))


def test_bad_poses_are_reported():
    def said(whole, size=(1024, 768)):
        return sentences(grading.pose(whole, whole.seen(*size)))
    assert said(stands()) == ''
    assert 'seated' in said(stands(p10=(-0.3, 1.2), p13=(0.3, 1.25)))
    assert said(stands(p10=(-0.3, 1.2))) == ''  # one foot on a step
    assert 'turned to the side' in said(stands(p2=(-0.15, 0), p5=(0.15, 0)))
    assert 'A shoulder is not visible' in said(stands(x=50))
    assert 'A hip is not visible' in said(stands(y=850))
    hidden = stands()
    hidden.points[[6, 7], 2] = 0.02
    assert said(hidden).startswith('Not visible: left elbow and wrist.')


def test_bad_photographs_of_people_are_reported():
    bright, window = np.full((1024, 768, 3), 230, np.uint8), Window(0, 0, 1024, 768)

    def said(pixels, people, window=window):
        return sentences(grading.photograph(pixels, people, window, 1024))
    assert said(bright, [stands()]) == ''
    assert 'too dark' in said(bright // 6, [stands()])
    assert '2 people were found' in said(bright, [stands(), stands(100)])
    assert 'leans by 90 degrees' in said(bright, [stands()._replace(rotation=np.pi / 2)])
    assert '300 x 400 pixels' in said(bright, [stands()], Window(0, 0, 400, 300))
    assert sentences(grading.nobody(bright)).startswith('No person was found')
    assert 'too dark' in sentences(grading.nobody(bright // 6))


def test_bad_parse_maps_are_reported():
    truth = sample_people.make_person(1, 50_005, (512, 384))
    assert sentences(grading.parse(truth.parse, truth.points)) == ''
    swapped = truth.parse.copy()
    swapped[truth.parse == 14], swapped[truth.parse == 15] = 15, 14
    assert 'swaps left and right arm' in sentences(grading.parse(swapped, truth.points))
    for label, said in ((5, 'no top'), (13, 'no face')):
        assert said in sentences(grading.parse(np.where(truth.parse == label, np.uint8(2), truth.parse), truth.points))
    assert 'on the parse map\'s background' in sentences(grading.parse(np.roll(truth.parse, 250, 1), truth.points))


def made_folder(root, size=(160, 120)):
    """Make a folder as `photos` does, of three drawn people; the mask of the second garment is inverted."""
    rows = []
    for number in range(3):
        made = sample_people.make_person(1, 50_000 + number, size)
        mask = made.cloth_mask if number != 1 else 255 - made.cloth_mask
        contents = {'image': jpeg(made.image), 'cloth': jpeg(made.cloth), 'parse': sample_people._png(made.parse),
                    'keypoints': pose.as_openpose(made.points), 'cloth_mask': tf.io.encode_png(mask[..., None]).numpy()}
        for key, content in contents.items():
            path = root / folder.PLACES[key].format(f'p{number}')
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        (root / f'step{number}.jpg').write_bytes(contents['image'])
        for kind, keys in ((folder.PERSON, ['image', 'keypoints', 'parse']), (folder.GARMENT, ['cloth', 'cloth_mask'])):
            rows.append(Row(kind, f'p{number}.jpg', f'<{number}>.jpg', keys, {'pose': f'step{number}.jpg'}, []))
    return rows


def test_pairs_have_complete_photographs_only(tmp_path):
    rows = made_folder(tmp_path)
    assert folder.covering_pairs(rows) == [('p0.jpg', 'p0.jpg'), ('p1.jpg', 'p1.jpg'), ('p2.jpg', 'p2.jpg')]
    refused = [folder.refusal(str(tmp_path), pair, 10 ** 6) for pair in folder.covering_pairs(rows)]
    assert refused[0] is None and refused[2] is None
    kind, name, finding = refused[1]
    assert (kind, name) == ('garment', 'p1.jpg') and 'an inverted mask' in finding.sentence
    rows[3].findings.append(finding)
    folder.write(str(tmp_path), rows, [('p0.jpg', 'p1.jpg'), ('p1.jpg', 'p2.jpg')])
    assert (tmp_path / folder.PAIRS).read_text() == 'p1.jpg p2.jpg\n'
    assert folder.read(str(tmp_path)) == sorted(rows, key=lambda row: row.kind == 'garment')


def test_the_page_shows_problems_first(tmp_path, monkeypatch):
    rows = made_folder(tmp_path)
    rows[4].findings.append(Finding('pose', True, 'It is <wrong>.'))
    rows[2].files.remove('parse')
    page = pathlib.Path(photo_page.write(rows, str(tmp_path))).read_text()
    assert 'It is &lt;wrong&gt;.' in page and '&lt;0&gt;.jpg' in page and '<0>' not in page
    assert page.count('data:image/jpeg;base64,') == 6 and 'https://' not in page
    for said in ('will look wrong', 'cannot be used', 'looks right'):
        assert said in page
    monkeypatch.setattr(photo_page, 'MAX_SHOWN', 2)
    page = pathlib.Path(photo_page.write(rows, str(tmp_path))).read_text()
    assert '4 more photographs are in photos.json' in page and page.count('<article') == 2 and 'It is &lt;wrong' in page


def test_photographs_are_listed_and_named(tmp_path):
    for name in ('b/me at home.jpg', 'b/.hidden', 'a.png'):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b'')
    found = folder.photos('person', [str(tmp_path / 'b'), str(tmp_path / 'a.png')])
    assert found == [Photo('person', 'a.jpg', str(tmp_path / 'a.png')),
                     Photo('person', 'me_at_home.jpg', str(tmp_path / 'b' / 'me at home.jpg'))]
    given = found + folder.photos('garment', [str(tmp_path / 'a.png')])
    assert folder.pairs('', given) == [('a.jpg', 'a.jpg'), ('me_at_home.jpg', 'a.jpg')]
    listed = tmp_path / 'pairs.txt'
    listed.write_text('me_at_home.jpg a.png\n')
    assert folder.pairs(str(listed), given) == [('me_at_home.jpg', 'a.jpg')]
    listed.write_text('a.png other.png\n')
    with pytest.raises(UserError, match='line 1: other.png is not among the photographs of --garment'):
        folder.pairs(str(listed), given)
    for paths, said in (([], 'no photographs found'), ([str(tmp_path / 'x')], 'x: not found'),
                        ([str(tmp_path / 'a.png')] * 2, 'both would be named a.jpg')):
        with pytest.raises(UserError, match=said):
            folder.photos('person', paths)


def test_the_command_reports_missing_networks(tmp_path):
    (tmp_path / 'me.jpg').write_bytes(jpeg(np.zeros((64, 48, 3), np.uint8)))
    me = str(tmp_path / 'me.jpg')
    done = command('pipelines.photos', '--person', me, '--garment', me, '--out', str(tmp_path), '--blazepose', me)
    assert done.returncode == 2 and 'Traceback' not in done.stderr
    assert 'pose_detection.tflite: not found. Run `python -m pipelines.fetch blazepose`' in done.stderr
    with pytest.raises(UserError, match='--size 100 100: height and width must be 4 to 3'):
        job.Config([me], [me], size=(100, 100))


@pytest.mark.slow  # downloads BlazePose from the package index
def test_unusable_photographs_of_people_are_reported(blazepose):
    net = pose.BlazePose(blazepose)
    one, other = (sample_people.make_person(1, number, (512, 384)).image for number in (50_005, 50_012))

    def said(pixels):
        return sentences(making.of_person(jpeg(pixels), net, None, (512, 384)).findings)
    assert said(one) == ''
    for turns in (1, 2, 3):
        assert 'Rotate the photograph upright' in said(np.rot90(one, turns))
    assert 'too dark' in said(one // 6)
    assert '2 people were found' in said(np.concatenate([one, other], 1))
    assert said(np.full_like(one, 200)).startswith('No person was found')
    assert '90 x 120 pixels' in said(cv2.resize(one, (90, 120), interpolation=cv2.INTER_AREA))


@pytest.mark.slow  # downloads BlazePose from the package index, and runs all stages of a try-on
def test_photographs_of_drawn_people_become_a_try_on(blazepose, tmp_path):
    """Photographs as a telephone takes them: rotated, wide, one dark, one without a person; then all stages run."""
    people, garments = tmp_path / 'people', tmp_path / 'garments'
    for each in (people, garments):
        each.mkdir()
    exif = Image.Exif()
    exif[0x0112] = 6
    for number in range(8):
        made = sample_people.make_person(1, 50_000 + number, (512, 384))
        wide = np.pad(made.image, ((20, 0), (200, 200), (0, 0)), 'edge')
        (people / f'p{number}.jpg').write_bytes(jpeg(np.rot90(wide), exif=exif))
        (garments / f'p{number}.jpg').write_bytes(jpeg(made.cloth))
    (people / 'dark.jpg').write_bytes(jpeg(made.image // 6))
    (people / 'nobody.jpg').write_bytes(jpeg(made.cloth))
    out = tmp_path / 'out'
    flags = ['--person', str(people), '--garment', str(garments), '--blazepose', blazepose, '--size', '160', '120',
             '--out', str(out)]
    done = command('pipelines.photos', *flags)
    assert done.returncode == 2 and 'image-parse/p0.png and run the same command again' in done.stdout
    parsed = [*flags, '--parser', str(people_parser.PATH), '--parser_labels', 'cihp']
    done = command('pipelines.photos', *parsed)
    assert done.returncode == 0, done.stderr
    assert 'nobody.jpg: No person was found' in done.stdout and 'dark.jpg: The photograph is too dark' in done.stdout
    first = {path: path.read_bytes() for path in out.rglob('*') if path.is_file()}
    assert command('pipelines.photos', *parsed).returncode == 0
    assert {path: path.read_bytes() for path in out.rglob('*') if path.is_file()} == first
    rows = {row.name: row for row in folder.read(str(out)) if row.kind == 'person'}
    assert sum(row.complete for row in rows.values()) >= 8 and not rows['nobody.jpg'].complete
    for number in range(8):
        [listed] = json.loads((out / 'openpose-json' / f'p{number}_keypoints.json').read_text())['people']
        assert len(listed['pose_keypoints_2d']) == 75
    config = tmp_path / 'mine.yaml'
    config.write_text(tiny_people.CONFIG.format(folder=out).replace('[train_pairs.txt]', '[test_pairs.txt]')
                      .replace('  test: [test_pairs.txt]\n', '  test_fraction: 0.2\n')
                      + 'evaluate: {thresholds: {ssim: {min: 0.0}}}\n')
    done = command('pipelines.run', '--config', str(config), '--pipeline_root', str(tmp_path / 'root'))
    assert done.returncode == 0, done.stdout + done.stderr
    done = command('pipelines.predict', '--config', str(config), '--pipeline_root', str(tmp_path / 'root'),
                   '--out', str(tmp_path / 'predictions'), str(out / 'test_pairs.txt'))
    assert done.returncode == 0, done.stderr
    assert len([*(tmp_path / 'predictions').glob('p*_p*.png')]) == 64
