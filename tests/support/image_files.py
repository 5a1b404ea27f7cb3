"""Folders of an image model in another format, as `export --to` writes them."""
import dataclasses
import json
import pathlib

import numpy as np

from pipelines.formats import networks
from pipelines.formats.table import FORMATS


def write(folder: pathlib.Path, form: str, parts: dict, assets, pixels: dict, settings: dict, inference) -> None:
    """Write networks, and what stands beside them.

    Args:
      form: name of the format.
      parts: networks, a `Part` by name.
      assets: with the classes' `names` and `descriptions`.
      pixels: arrays of pixels.npz, statistics of a training set.
      settings, inference: sections `input` and `inference` of the configuration.
    """
    folder.mkdir(parents=True, exist_ok=True)
    networks.write_parts(FORMATS[form], parts, str(folder))
    np.savez(folder / 'pixels.npz', **pixels)
    (folder / 'labels.json').write_text(json.dumps([*zip(assets.names, assets.descriptions)]))
    (folder / 'landmark.json').write_text(json.dumps({'config': {
        'input': settings, 'inference': dataclasses.asdict(inference)}}))
