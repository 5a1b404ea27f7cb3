"""Classify images for `pipelines.predict`: write a CSV of predictions and contact sheets with bars."""
import csv
import functools
import os
import sys
from collections.abc import Iterator, Sequence

import tensorflow as tf

from data_prep import UserError
from data_prep.image import codec
from pipelines.reporting import contact_sheet
from pipelines.serving import saved_model

SUFFIXES = ('.jpg', '.jpeg', '.png')
_FILES_PER_BATCH = 64  # files in memory at a time


def write(model, paths: Sequence[str], folder: str, batch_size: int | None, jit: bool) -> None:
    """Run a model on images and print the best prediction of each, one line per image.

    Writes `predictions.csv` (file; label, probability and description of every prediction; error) and `sheet_01.png` ….
    If the model predicts boxes, both show them; the table gives their ends in fractions of width and height. An image
    in a folder named like a class is marked right or wrong. An image that cannot be decoded does not affect the others.

    Args:
      model: as returned by `saved_model.load`.
      paths: images, and folders to search for images.
      folder: output folder, created if necessary.

    Raises:
      UserError: a path does not exist, or there are no images.
    """
    files = list(find(paths))
    if not files:
        raise UserError(f'{", ".join(paths)}: no images ({", ".join(SUFFIXES)}) found. Name images or folders.')
    settings = model.description['config']
    words = saved_model.labels(model)
    parts = ['label', 'probability', 'description']
    if saved_model.gives_boxes(model):
        parts += ['left', 'upper', 'right', 'lower']
    columns = [f'{part}_{i + 1}' for i in range(min(settings['inference']['top'], len(words))) for part in parts]
    tf.io.gfile.makedirs(folder)
    table = os.path.join(folder, 'predictions.csv')
    sheets = contact_sheet.Sheets(folder, functools.partial(contact_sheet.draw, descriptions=words),
                                  contact_sheet.COLUMNS * contact_sheet.ROWS)
    with tf.io.gfile.GFile(table, 'w') as file:
        rows = csv.DictWriter(file, ['file', *columns, 'error'])
        rows.writeheader()
        for path, data, result in _answered(model, files, settings['data']['max_pixels'], batch_size, jit):
            labels, probabilities, texts = (result[key] for key in ('answers', 'probabilities', 'descriptions'))
            boxes = result.get('boxes', [[]] * len(labels))
            values = [value for label, p, text, box in zip(labels, probabilities, texts, boxes)
                      for value in (label, f'{p:.4f}', text, *(f'{end:.4f}' for end in box))]
            rows.writerow({'file': path, **dict(zip(columns, values)), 'error': result['error']})
            print(f'{path}\t' + (f'{labels[0]}\t{probabilities[0]:.4f}' if labels else result['error']), flush=True)
            near = os.path.basename(os.path.dirname(os.path.abspath(path)))
            sheets.add(contact_sheet.Shown(data, os.path.basename(path), labels, probabilities,
                                   near if near in words else '', result['error'], result.get('boxes', [])))
    sheets.close()
    more = f'; {sheets.left_out:,} more images are only in the table' if sheets.left_out else ''
    print(f'predict: {table} and {len(sheets.paths)} sheets beside it{more}.', file=sys.stderr, flush=True)


def _answered(model, files: list[str], max_pixels: int, batch_size: int | None,
              jit: bool) -> Iterator[tuple[str, bytes, dict]]:
    """Yield (path, content, result) of every file; the result reports files that are not images or are too large."""
    for start in range(0, len(files), _FILES_PER_BATCH):
        contents, refused = [], {}
        for path in files[start:start + _FILES_PER_BATCH]:
            with tf.io.gfile.GFile(path, 'rb') as file:
                contents.append(file.read())
            try:
                codec.header(contents[-1], max_pixels)
            except codec.Unreadable as error:
                refused[len(contents) - 1] = {'answers': [], 'probabilities': [], 'descriptions': [],
                                              'error': str(error)}
        good = [data for number, data in enumerate(contents) if number not in refused]
        found = iter(saved_model.run(model, good, batch_size, jit))
        for number, (path, data) in enumerate(zip(files[start:], contents)):
            yield path, data, refused[number] if number in refused else next(found)


def find(paths: Sequence[str]) -> Iterator[str]:
    """Yield the named images, and those below named folders, sorted by name."""
    for path in paths:
        if tf.io.gfile.isdir(path):
            for folder, _, names in sorted(tf.io.gfile.walk(path)):
                yield from (os.path.join(folder, name) for name in sorted(names) if name.lower().endswith(SUFFIXES))
        elif tf.io.gfile.exists(path):
            yield path
        else:
            raise UserError(f'{path}: there is no such file or folder. Check the path.')
