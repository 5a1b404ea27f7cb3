"""The kernels of an image net's first convolution (Krizhevsky et al. 2012, figure 3 and section 6.1)."""
import math
import os

import numpy as np

from pipelines.reproduction.experiments import Exhibit, Figure, Study
from pipelines.reproduction.plots import trained

COLUMNS = 16  # of figure 3
_GAP, _BETWEEN, _SCALE = 1, 4, 4  # between two kernels and between towers, in weights; pixels a weight


def draw(study: Study, setting: str = '', towers: int = 1) -> Exhibit:
    """A grid of kernels of the setting's first run, and how much of them is colour in every run.

    Args:
      setting: whose kernels are drawn; the first one's, if none is named.
      towers: how many equal parts the kernels are divided into, drawn apart, the first on top.
    """
    from matplotlib import image
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
    """The kernels of a model's first convolution, [h, w, maps, n]."""
    return next(weight.numpy() for weight in net.weights if len(weight.shape) == 4)


def colour(kernels: np.ndarray) -> np.ndarray:
    """Which part of each kernel's squared length is not grey, [n]: 0 where it is the same in all of the maps, and 2/3
    on average of one drawn at random for three.

    Args:
      kernels: [h, w, maps, n].
    """
    grey = kernels.mean(2, keepdims=True)
    return ((kernels - grey) ** 2).sum((0, 1, 2)) / np.maximum((kernels ** 2).sum((0, 1, 2)), 1e-30)


def grid(kernels: np.ndarray, towers: int = 1, columns: int = COLUMNS) -> np.ndarray:
    """Rows of kernels as one picture, uint8 [height, width, 3].

    Zero is grey and all kernels have one scale, so what did not learn stays grey; the largest weight of the 99th
    percentile kernel is white or black, lest one outshine the rest.

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
