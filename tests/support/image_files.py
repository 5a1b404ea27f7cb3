"""Folders of an image model in another format, as `export --to` writes them."""
import dataclasses
import json
import pathlib

import numpy as np

from keras_models.formats import onnx_file, tflite_file

CONVERTERS = {'tflite': tflite_file.convert, 'onnx': onnx_file.convert}


def write(folder: pathlib.Path, suffix: str, parts: dict, assets, pixels: dict, settings: dict, inference) -> None:
    """Write networks, and what stands beside them.

    Args:
      suffix: of the networks' files, a key of `CONVERTERS`.
      parts: networks, a `Part` by name.
      assets: with the classes' `names` and `descriptions`.
      pixels: arrays of pixels.npz, statistics of a training set.
      settings, inference: sections `input` and `inference` of the configuration.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, part in parts.items():
        (folder / f'{name}.{suffix}').write_bytes(CONVERTERS[suffix](part))
    np.savez(folder / 'pixels.npz', **pixels)
    (folder / 'labels.json').write_text(json.dumps([*zip(assets.names, assets.descriptions)]))
    (folder / 'landmark.json').write_text(json.dumps({'config': {
        'input': settings, 'inference': dataclasses.asdict(inference)}}))
