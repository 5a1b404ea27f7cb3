"""Pictures in the report: the same examples as training goes on, and what an evaluation kept of its first pairs.

Each is a thumbnail, a data: URI that the page carries with it.
"""
import base64
import heapq
import os
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

STEPS = 8  # of a strip
HEIGHT = 192  # pixels of a thumbnail, at most
TAG = 'pictures/'  # the trainer's summaries, one a row of the validation set
WHAT = ('person', 'garment', 'warped', 'parse', 'made', 'reconstruction')
_QUALITY = 90


def events(tensorboard_dir: str) -> Iterator[tuple[str, str, int, Any]]:
    """What TensorBoard would show, one by one: a run's pictures may be more than memory holds.

    Args:
      tensorboard_dir: the event files' folder; a missing or empty one has no events. A file that breaks off, as a
        killed run leaves it, ends there.

    Yields:
      Tag, TensorBoard's plugin ('scalars', 'images'), step and TensorProto, in the order of writing.
    """
    files = [EventFileLoader(path).Load() for path in tf.io.gfile.glob(os.path.join(tensorboard_dir, '*.tfevents.*'))]
    for event in heapq.merge(*files, key=lambda event: event.wall_time):
        for value in event.summary.value:
            yield value.tag, value.metadata.plugin_data.plugin_name, event.step, value.tensor


def strips(tensorboard_dir: str) -> list[dict[str, Any]]:
    """The pictures that validation drew, at most `STEPS` of a row, evenly thinned, the first and the last among them.

    Returns:
      A dict for each row of the validation set: its `name`; `shown`, a list of (step, URI); `aspect`, how many times
      as wide as high they are. Of a repeated step, as a resumed run has it, the one written last counts.
    """
    steps: dict[str, set[int]] = {}
    for tag, step, _ in _drawn(tensorboard_dir):
        steps.setdefault(tag, set()).add(step)
    kept = {tag: _thinned(sorted(found)) for tag, found in steps.items()}
    shown: dict[str, dict[int, Any]] = {tag: {} for tag in sorted(steps, key=lambda tag: int(tag[len(TAG):]))}
    for tag, step, (width, height, png) in _drawn(tensorboard_dir):
        if step in kept[tag]:
            shown[tag][step] = png, int(width) / int(height)
    return [{'name': tag[len(TAG):], 'shown': [(step, uri(row[step][0])) for step in sorted(row)],
             'aspect': round(max(aspect for _, aspect in row.values()), 2)} for tag, row in shown.items()]


def sheet(folder: str) -> dict[str, Any]:
    """The pictures of an evaluation, files called <n>_<what>.png.

    Returns:
      `columns`, those of `WHAT` there are, and `rows`, (n, column -> a URI or nothing); nothing at all without
      pictures.
    """
    found: dict[int, dict[str, str]] = {}
    for path in tf.io.gfile.glob(os.path.join(folder, '*_*.png')):
        if match := re.fullmatch(rf'(\d+)_({"|".join(WHAT)})\.png', os.path.basename(path)):
            found.setdefault(int(match[1]), {})[match[2]] = path
    columns = [what for what in WHAT if any(what in row for row in found.values())]
    rows = [(n, {what: uri(_read(row[what])) if what in row else '' for what in columns})
            for n, row in sorted(found.items())]
    return {'columns': columns, 'rows': rows} if rows else {}


def uri(image: bytes) -> str:
    """A JPEG or PNG as the data: URI of a JPEG no more than `HEIGHT` pixels high."""
    pixels = tf.io.decode_image(image, 3, expand_animations=False)
    h, w, _ = pixels.shape
    if h > HEIGHT:
        pixels = tf.image.resize(pixels, [HEIGHT, max(1, round(w * HEIGHT / h))], 'area')
    small = tf.io.encode_jpeg(tf.cast(tf.round(pixels), tf.uint8), quality=_QUALITY, chroma_downsampling=False)
    return f'data:image/jpeg;base64,{base64.b64encode(small.numpy()).decode()}'


def _drawn(tensorboard_dir: str) -> Iterator[tuple[str, int, Any]]:
    """Tag, step and the summary's width, height and PNG, all three bytes."""
    for tag, plugin, step, tensor in events(tensorboard_dir):
        if plugin == 'images' and re.fullmatch(rf'{TAG}\d+', tag):
            yield tag, step, tensor.string_val


def _thinned(steps: list[int]) -> set[int]:
    return {steps[i] for i in np.linspace(0, len(steps) - 1, STEPS).round().astype(int)}


def _read(path: str) -> bytes:
    with tf.io.gfile.GFile(path, 'rb') as file:
        return file.read()
