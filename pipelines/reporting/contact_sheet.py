"""Draw contact sheets: images with class scores as bars, as in figure 4 of Krizhevsky et al. 2012, or in rows."""
import dataclasses
import os
import textwrap
import warnings
from collections.abc import Callable, Mapping, Sequence

import matplotlib
import numpy as np
import tensorflow as tf
from matplotlib import font_manager
from matplotlib.figure import Figure

from data_prep.image import codec

COLUMNS, ROWS = 4, 3
PAIRS = 6  # pairs on a page
PAGES = 20
PIXELS = 320  # longer side of an image on a page
_WIDTH, _HEIGHT, _TOP, _DPI = 3.0, 3.9, 0.3, 100  # inches of an image with its bars, and above the first row
_NARROW, _TALL = 1.95, 2.6  # inches of an image in a row
_FULL = 0.86  # of the width: the bar of probability 1; its number stands to the right
_INK, _FAINT, _BAR, _RIGHT, _PAPER = '#1f2328', '#8b949e', '#a9c4eb', '#f2a19a', '#f2f4f6'
# matplotlib's own font has no Chinese, Japanese or Korean; these fonts fill in if the machine has them.
_ALSO = ('Noto Sans CJK JP', 'Noto Sans CJK KR', 'Apple SD Gothic Neo', 'Malgun Gothic', 'Yu Gothic')


@dataclasses.dataclass
class Shown:
    """An image and its predictions.

    Attributes:
      image: JPEG or PNG bytes.
      name: its label, such as its file name.
      answers, probabilities: class names and probabilities, most probable first; empty if prediction failed.
      truth: the right class; empty if unknown.
      error: why there is no prediction.
      boxes: the predicted bounding boxes, if the model has them: left, upper, right and lower end of each, in fractions
        of width and height.
    """
    image: bytes
    name: str
    answers: Sequence[str]
    probabilities: Sequence[float]
    truth: str = ''
    error: str = ''
    boxes: Sequence[Sequence[float]] = ()


@dataclasses.dataclass
class Labelled:
    """An image, JPEG or PNG bytes, and its title; both empty for an empty place."""
    image: bytes
    title: str


class Sheets:
    """Pages of images, each drawn when it is full, so that memory does not grow with the number of images.

    Args:
      folder: receives `sheet_01.png`, `sheet_02.png`, …; at most `pages` of them.
      draw: (path, items of a page) draws one page.
      a_page: items per page.

    Attributes:
      paths: the pages drawn so far.
      left_out: items that came after the last page was full; callers report them.
    """

    def __init__(self, folder: str, draw: Callable[[str, list], None], a_page: int, pages: int = PAGES):
        self.paths: list[str] = []
        self.left_out = 0
        self._folder, self._draw, self._a_page, self._pages = folder, draw, a_page, pages
        self._waiting: list = []

    def add(self, shown) -> None:
        if len(self.paths) == self._pages:
            self.left_out += 1
            return
        self._waiting.append(shown)
        if len(self._waiting) == self._a_page:
            self.close()

    def close(self) -> None:
        """Draw the last page, if it has items."""
        if self._waiting:
            path = os.path.join(self._folder, f'sheet_{len(self.paths) + 1:02}.png')
            self._draw(path, self._waiting)
            self.paths.append(path)
            self._waiting = []


def draw(path: str, pictures: Sequence[Shown], descriptions: Mapping[str, str]) -> None:
    """Draw one page of classified images as a PNG.

    Args:
      descriptions: text to show for a class; of words between commas, the first.
    """
    rows = -(-len(pictures) // COLUMNS)
    installed = set(font_manager.get_font_names())
    style = {'text.parse_math': False, 'font.size': 9, 'text.color': _INK,
             'font.family': ['DejaVu Sans', *(name for name in _ALSO if name in installed)]}
    with matplotlib.rc_context(style), warnings.catch_warnings():
        warnings.filterwarnings('ignore', 'Glyph .* missing')  # a letter that no font has becomes a box
        figure = Figure(figsize=(COLUMNS * _WIDTH, rows * _HEIGHT + _TOP), dpi=_DPI)
        cells = figure.add_gridspec(rows, COLUMNS, left=0.02, right=0.98, top=1 - _TOP / (rows * _HEIGHT + _TOP),
                                    bottom=0, wspace=0.12, hspace=0.07)
        for number, shown in enumerate(pictures):
            halves = cells[divmod(number, COLUMNS)].subgridspec(2, 1, height_ratios=[2.2, 1.5], hspace=0.03)
            _picture(figure.add_subplot(halves[0]), shown)
            _bars(figure.add_subplot(halves[1]), shown, descriptions)
        with tf.io.gfile.GFile(path, 'wb') as file:
            figure.savefig(file, format='png', metadata={'Software': None})


def draw_rows(path: str, rows: Sequence[Sequence[Labelled]], tall: float = _TALL) -> None:
    """Draw one page of rows of images as a PNG; titles are above the first row. `tall`: inches per row."""
    across, height = max(map(len, rows)), len(rows) * tall + _TOP
    figure = Figure(figsize=(across * _NARROW, height), dpi=_DPI)
    cells = figure.subplots(len(rows), across, squeeze=False, gridspec_kw={
        'left': 0.01, 'right': 0.99, 'bottom': 0.005, 'top': 1 - _TOP / height, 'wspace': 0.03, 'hspace': 0.02})
    for number, (row, line) in enumerate(zip(rows, cells)):
        for axes, one in zip(line, row):
            _picture(axes, Shown(one.image, '' if number else one.title, (), ()))
    with tf.io.gfile.GFile(path, 'wb') as file:
        figure.savefig(file, format='png', metadata={'Software': None})


def _picture(axes, shown: Shown) -> None:
    axes.set_axis_off()
    axes.set_anchor('S')
    pixels = _thumbnail(shown.image)
    if pixels is None:
        axes.add_patch(matplotlib.patches.Rectangle((0, 0), 1, 1, color=_PAPER, transform=axes.transAxes))
    else:
        axes.imshow(pixels, interpolation='antialiased' if max(pixels.shape) >= PIXELS else 'nearest')
        _outline(axes, shown, *pixels.shape[1::-1])
    axes.set_title(_short(shown.name, 40), fontsize=7.5, color=_FAINT, pad=3)


def _outline(axes, shown: Shown, width: int, height: int) -> None:
    """Draw the box of the first prediction, and that of the right class in red, like its bar."""
    for number, (answer, (left, upper, right, lower)) in enumerate(zip(shown.answers[:5], shown.boxes)):
        if number == 0 or answer == shown.truth:
            axes.add_patch(matplotlib.patches.Rectangle(
                (left * width - 0.5, upper * height - 0.5), (right - left) * width, (lower - upper) * height,
                fill=False, linewidth=2, edgecolor=_RIGHT if answer == shown.truth else _BAR))


def _thumbnail(image: bytes) -> np.ndarray | None:
    """Return the image, uint8 [h, w, 3], with both sides at most `PIXELS`; None if it cannot be decoded."""
    try:
        codec.header(image, codec.MAX_PIXELS)  # images refused for their size arrive here too
        pixels = tf.io.decode_image(image, 3, expand_animations=False)
    except (codec.Unreadable, tf.errors.InvalidArgumentError):
        return None
    h, w, _ = pixels.shape
    if max(h, w) > PIXELS:
        pixels = tf.image.resize(pixels, [max(1, side * PIXELS // max(h, w)) for side in (h, w)], 'area')
    return tf.cast(pixels, tf.uint8).numpy()


def _bars(axes, shown: Shown, descriptions: Mapping[str, str]) -> None:
    """Write the truth, and below it a bar for every prediction; the right one is red, as in the paper, and marked."""
    axes.set_axis_off()
    axes.set_xlim(-0.005, 1)
    axes.set_ylim(5, -1.7)

    def words(name, length):
        return _short(descriptions.get(name, name).split(',')[0], length)
    if shown.truth:
        axes.text(0.5, -1.05, words(shown.truth, 34), ha='center', va='center', weight='bold')
    if not shown.answers:
        axes.text(0.5, 2, '\n'.join(textwrap.wrap(shown.error, 40)[:4]), ha='center', va='center', color=_FAINT)
        return
    for row, (answer, probability) in enumerate(zip(shown.answers[:5], shown.probabilities)):
        right = answer == shown.truth
        axes.barh(row, _FULL * probability, height=0.86, color=_RIGHT if right else _BAR)
        axes.text(0.015, row, words(answer, 30) + (' \N{CHECK MARK}' if right else ''), va='center',
                  weight='bold' if right else 'normal')
        axes.text(1, row, f'{probability:.0%}' if probability >= 0.005 else '<1%', va='center', ha='right',
                  color=_FAINT, fontsize=8)
    axes.plot([0, 0], [-0.5, 4.5], color=_FAINT, linewidth=0.8)


def _short(text: str, length: int) -> str:
    return text if len(text) <= length else text[:length - 1].rstrip(' ,') + '…'
