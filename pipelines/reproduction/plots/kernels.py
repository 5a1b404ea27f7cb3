"""Kernels of an image net's first convolution (Krizhevsky et al. 2012, figure 3 and section 6.1)."""
import math
import os

import numpy as np
from matplotlib import image

from pipelines.reproduction.experiments import Exhibit, Figure, Study
from pipelines.reproduction.plots import trained

COLUMNS = 16  # columns in figure 3
_GAP, _BETWEEN, _SCALE = 1, 4, 4  # gaps between kernels and between towers, in weights; pixels per weight


def draw(study: Study, setting: str = '', towers: int = 1) -> Exhibit:
    """Draw a grid of the kernels of the setting's first run, and measure the share of colour in every run.

    Args:
      setting: by default the first.
      towers: number of equal parts the kernels are divided into, drawn separately, the first on top.
    """
    shown, values = trained.run(study, setting), {}
    for run in study.runs:
        kernels = first(trained.net(run.pipeline))
        shares = [float(np.mean(colour(part))) for part in np.split(kernels, towers, -1)]
        found = {f'colour, tower {number}': share for number, share in enumerate(shares, 1)}
        values[run.setting, run.seed] = found | {'towers apart': max(shares) - min(shares)} if towers > 1 else {
            'colour': shares[0]}
        if run is shown:
            name = 'kernels.png'
            image.imsave(os.path.join(study.out, name), grid(kernels, towers).repeat(_SCALE, 0).repeat(_SCALE, 1))
    h, w, maps, n = kernels.shape
    title = f'{n} kernels of {h} x {w} x {maps}, {shown.setting}, seed {shown.seed}'
    return Exhibit(values, [Figure(title, f'<img src="{name}" alt="{title}">')])


def first(net) -> np.ndarray:
    """Return the kernels of a model's first convolution, [h, w, maps, n]."""
    return next(weight.numpy() for weight in net.weights if len(weight.shape) == 4)


def colour(kernels: np.ndarray) -> np.ndarray:
    """Return the part of each kernel's squared length that is not grey, [n].

    It is 0 for a kernel equal in all maps, and 2/3 on average for three independent random maps.

    Args:
      kernels: [h, w, maps, n].
    """
    grey = kernels.mean(2, keepdims=True)
    return ((kernels - grey) ** 2).sum((0, 1, 2)) / np.maximum((kernels ** 2).sum((0, 1, 2)), 1e-30)


def grid(kernels: np.ndarray, towers: int = 1, columns: int = COLUMNS) -> np.ndarray:
    """Draw rows of kernels as one image, uint8 [height, width, 3].

    Zero is grey and all kernels share one scale, so an untrained kernel stays grey. The largest weight of the 99th
    percentile kernel is white or black, so that a single kernel cannot darken the rest.

    Args:
      kernels: [h, w, 3, n].
    """
    h, w, maps, n = kernels.shape
    largest = np.quantile(np.abs(kernels).max((0, 1, 2)), 0.99)
    tiles = np.clip(127.5 * (1 + kernels / max(largest, 1e-30)), 0, 255).round().astype(np.uint8)
    rows = math.ceil(n / towers / columns)
    tall = rows * (h + _GAP) + _BETWEEN
    page = np.full([towers * tall - _BETWEEN + _GAP, columns * (w + _GAP) + _GAP, maps], 255, np.uint8)
    for tower, part in enumerate(np.split(tiles, towers, -1)):
        for number in range(part.shape[-1]):
            row, column = divmod(number, columns)
            y, x = tower * tall + row * (h + _GAP) + _GAP, column * (w + _GAP) + _GAP
            page[y:y + h, x:x + w] = part[..., number]
    return page
