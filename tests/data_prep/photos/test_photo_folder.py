"""The folder `pipelines.photos` makes: its pairs, its page, and a try-on trained from it."""
import json
import pathlib

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from data_prep import UserError
from data_prep.people import sample_people
from data_prep.photos import folder, job, pose
from data_prep.photos.folder import Photo, Row
from data_prep.photos.grading import Finding
from pipelines.core import commands
from pipelines.reporting import photo_page
from support import people_parser, tiny_people
from support.commands import command
from support.photographs import jpeg


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
    then = commands.line('predict', ['--config', 'viton_hd', str(out / folder.PAIRS)])  # works outside the environment
    assert f'Next: {then}' in done.stdout
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
