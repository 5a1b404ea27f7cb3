"""The shapes of `person_official.py` drawn with Pillow, as VITON-HD's authors draw them, for preparation."""
from collections.abc import Iterator

import numpy as np
from PIL import Image, ImageDraw

from data_prep.people import person, person_official


def agnostic(parse: np.ndarray, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the grey part of I_a, bool [h, w], and S_a, uint8 [h, w], pixel by pixel as the authors' code.

    Args:
      parse: uint8 [h, w], labels.
      points: float64 [18, 2]; neck, shoulders and two hips are needed, and missing points are zero.
    """
    pixel = len(parse) / person.HEIGHT
    gone = np.isin(parse, person_official.GONE)
    for label, joints in person_official.ARMS:
        shapes = person_official.arm_shapes(points, joints, pixel, lambda there, a, b: a if there else b)
        gone |= _drawn(shapes, parse.shape) & (parse == label)
    removed = _drawn(person_official.figure(points, pixel), parse.shape) & ~np.isin(parse, person_official.KEPT)
    return removed, np.where(gone, np.uint8(0), parse)


def _drawn(shapes: Iterator[person_official.Shape], size: tuple[int, ...]) -> np.ndarray:
    height, width = size
    picture = Image.new('L', (width, height))
    draw = ImageDraw.Draw(picture)
    for shape in shapes:
        if not shape.there:
            continue
        points = [(float(x), float(y)) for x, y in shape.points]
        if shape.kind == 'line':
            draw.line(points, 255, round(shape.size[0]))
        elif shape.kind == 'polygon':
            draw.polygon(points, 255)
        else:
            [(x, y)], (across, down) = points, shape.size
            around = (x - across, y - down, x + across, y + down)
            (draw.ellipse if shape.kind == 'ellipse' else draw.rectangle)(around, 255)
    return np.asarray(picture) > 0
