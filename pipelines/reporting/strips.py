"""Images in the report: the same examples as training proceeds, and what an evaluation kept of its first pairs.

Each is a thumbnail embedded in the page as a data: URI.
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

STEPS = 8  # images in a strip
HEIGHT = 192  # pixels of a thumbnail, at most
TAG = 'pictures/'  # prefix of the trainer's summaries, one for each row of the validation set
WHAT = ('person', 'garment', 'warped', 'parse', 'made', 'reconstruction')
_QUALITY = 90


def events(tensorboard_dir: str) -> Iterator[tuple[str, str, int, Any]]:
    """Yield TensorBoard's events one at a time, since a run's images may not fit in memory.

    Args:
      tensorboard_dir: the event files' folder; a missing or empty one has no events. A truncated file, left by a killed
        run, ends where it breaks off.

    Yields:
      Tag, TensorBoard's plugin ('scalars', 'images'), step and TensorProto, in the order of writing.
    """
    files = [EventFileLoader(path).Load() for path in tf.io.gfile.glob(os.path.join(tensorboard_dir, '*.tfevents.*'))]
    for event in heapq.merge(*files, key=lambda event: event.wall_time):
        for value in event.summary.value:
            yield value.tag, value.metadata.plugin_data.plugin_name, event.step, value.tensor


def strips(tensorboard_dir: str) -> list[dict[str, Any]]:
    """Return the images drawn at validation: for each row at most `STEPS`, evenly thinned, with the first and the last.

    Returns:
      A dict for each row of the validation set: its `name`; `shown`, a list of (step, URI); `aspect`, width divided by
      height. For a step repeated by a resumed run, the last image counts.
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
    """Return the images of an evaluation, files named <n>_<what>.png.

    Returns:
      `columns`, the ones of `WHAT` that exist, and `rows`, (n, column -> a URI or nothing); an empty dict without
      images.
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
    """Return a JPEG or PNG as the data: URI of a JPEG at most `HEIGHT` pixels high."""
    pixels = tf.io.decode_image(image, 3, expand_animations=False)
    h, w, _ = pixels.shape
    if h > HEIGHT:
        pixels = tf.image.resize(pixels, [HEIGHT, max(1, round(w * HEIGHT / h))], 'area')
    small = tf.io.encode_jpeg(tf.cast(tf.round(pixels), tf.uint8), quality=_QUALITY, chroma_downsampling=False)
    return f'data:image/jpeg;base64,{base64.b64encode(small.numpy()).decode()}'


def _drawn(tensorboard_dir: str) -> Iterator[tuple[str, int, Any]]:
    """Yield tag, step and the summary's width, height and PNG, all three as bytes."""
    for tag, plugin, step, tensor in events(tensorboard_dir):
        if plugin == 'images' and re.fullmatch(rf'{TAG}\d+', tag):
            yield tag, step, tensor.string_val


def _thinned(steps: list[int]) -> set[int]:
    return {steps[i] for i in np.linspace(0, len(steps) - 1, STEPS).round().astype(int)}


def _read(path: str) -> bytes:
    with tf.io.gfile.GFile(path, 'rb') as file:
        return file.read()
