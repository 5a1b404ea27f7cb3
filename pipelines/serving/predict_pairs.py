"""Run try-on for `pipelines.predict`: read pairs files, write images and contact sheets."""
import csv
import os
import posixpath
import sys
from collections.abc import Iterator, Sequence

import tensorflow as tf

from data_prep import UserError
from data_prep.people import pairs_files, sample_reader
from pipelines.reporting import contact_sheet
from pipelines.serving import saved_model

_COLUMNS = {'image': 'person', 'cloth': 'garment', 'warped': 'warped', 'parse': 'parse', 'result': 'result'}


def write(model, paths: Sequence[str], folder: str) -> None:
    """Run a model on every line of the pairs files, and print the path of each image.

    Writes `<person>_<garment>.png` for every pair, `predictions.csv` (person, garment, picture, error) and
    `sheet_01.png` …: person, garment, warped garment, parse and result. Every file is checked as for training; a pair
    that cannot be used does not affect the others.

    Args:
      model: as returned by `saved_model.load`.
      paths: pairs files, and optionally one folder that holds `image`, `cloth` and so on; by default, the folder of
        each pairs file.
      folder: output folder, created if necessary.

    Raises:
      UserError: a path does not exist, or there is no pairs file or no pair.
    """
    settings = model.description['config']['data']
    tf.io.gfile.makedirs(folder)
    table = os.path.join(folder, 'predictions.csv')
    sheets = contact_sheet.Sheets(folder, contact_sheet.draw_rows, contact_sheet.PAIRS)
    count = 0
    with tf.io.gfile.GFile(table, 'w') as file:
        rows = csv.DictWriter(file, ['person', 'garment', 'picture', 'error'])
        rows.writeheader()
        for folders, pair in _pairs(paths):
            count += 1
            result = _tried_on(model, folders, pair, settings)
            name = ''
            if not result['error']:
                name = '_'.join(posixpath.splitext(each)[0].replace('/', '_') for each in (pair.person, pair.garment))
                name += '.png'
                with tf.io.gfile.GFile(os.path.join(folder, name), 'wb') as picture:
                    picture.write(result['result'])
            rows.writerow({'person': pair.person, 'garment': pair.garment, 'picture': name, 'error': result['error']})
            print(f'{pair.person}\t{pair.garment}\t{result["error"] or os.path.join(folder, name)}', flush=True)
            sheets.add([contact_sheet.Labelled(result.get(key, b''), title) for key, title in _COLUMNS.items()])
    if not count:
        raise UserError(f'{", ".join(paths)}: no pairs are listed. Write one `person.jpg garment.jpg` per line.')
    sheets.close()
    print(f'predict: {table} and {len(sheets.paths)} sheets beside it.', file=sys.stderr, flush=True)


def _pairs(paths: Sequence[str]) -> Iterator[tuple[dict[str, str], pairs_files.Pair]]:
    """Yield the folders and the pair of every line of the pairs files."""
    roots = [path for path in paths if tf.io.gfile.isdir(path)]
    files = [path for path in paths if path not in roots]
    if not files or len(roots) > 1:
        raise UserError(f'{", ".join(paths)}: give pairs files, and at most one folder of images with them.')
    for path in files:
        if not tf.io.gfile.exists(path):
            raise UserError(f'{path}: there is no such file. Check the path.')
        folders = pairs_files.folders(roots[0] if roots else pairs_files.root(path))
        for pair in pairs_files.pairs(path):
            yield folders, pair


def _tried_on(model, folders: dict[str, str], pair: pairs_files.Pair, settings: dict) -> dict:
    """Return all images of a pair, encoded, or the reason why there are none."""
    if pair.reason:
        return {'error': f'line {pair.line}: {pair.reason}'}
    shown: dict = {}
    try:
        files = pairs_files.read(folders, pair.person, pair.garment)
        shown = {key: files[key].content for key in ('image', 'cloth')}
        sample_reader.sample(files, settings['padding'], settings['max_pixels'], settings.get('agnostic', 'paper'))
    except pairs_files.Refused as refused:
        return {**shown, 'error': f'{refused.path}: {refused.reason}'}
    asked = {'image': 'image', 'parse': 'parse', 'pose_json': 'keypoints', 'pose_image': 'pose', 'cloth': 'cloth',
             'cloth_mask': 'cloth_mask'}
    inputs = {name: files[key].content for name, key in asked.items() if key in files}
    [found] = saved_model.run(model, [inputs])
    return {**shown, 'error': found['error'], **{
        name: found[key] for name, key in (('warped', 'warped'), ('parse', 'parse'), ('result', 'image'))
        if key in found}}
