"""Find problems in photographs and in the results made from them; each finding says what to do."""
from collections.abc import Iterator
from typing import NamedTuple

import cv2
import numpy as np

from data_prep.people import person
from data_prep.photos.garment import Mask
from data_prep.photos.photograph import Window
from data_prep.photos.pose import MIDDLE_HIP, NECK, Pose

_MIN_LIGHTNESS, _PERCENTILE = 40, 98  # a photograph is dark if this percentile of CIELAB's lightness is lower
_MAX_LEAN = np.radians(25)
_MIN_RESOLUTION = 0.6  # height of the part that is used / height of the image made from it
_SEATED = 0.5  # knee below hip / torso: lower for seated people; 0.8 is usual for standing ones
_SIDEWAYS = 0.45  # shoulder width / torso: lower from the side; 0.6 to 0.8 from the front
_MIN_CONFIDENCE = 0.3  # of a point that is compared with others
_MAX_OUTSIDE = 0.15  # fraction of confident points on the parse map's background
_MIN_TOP, _MIN_GARMENT, _MAX_GARMENT = 0.01, 0.05, 0.95  # fractions of an image
_CUT_OFF = 0.1  # fraction of the photograph's edge that is garment; a sleeve that ends there covers as much
_MAX_NOISE = 4.0  # distance of the background from a plane of colour, in CIELAB; a studio's is 0.2
_FAINT = 8.0  # distance between garment and background, in CIELAB
_MAX_REST = 0.1  # area of other objects, as a fraction of the garment's
_SHOULDERS, _HIPS, _KNEES = [2, 5], [9, 12], [10, 13]
_ARMS = {'right': (3, 4), 'left': (6, 7)}  # elbow and wrist
_TOPS = [person.LABELS.index(name) for name in ('upper', 'dress', 'coat')]


class Finding(NamedTuple):
    """A problem in a photograph or its results.

    Attributes:
      step: photograph, pose, parse, mask or sample.
      wrong: True if the result cannot be used or is certain to look wrong; False if it may look wrong.
      sentence: the problem and its remedy.
    """
    step: str
    wrong: bool
    sentence: str


def nobody(pixels: np.ndarray) -> Iterator[Finding]:
    """Grade a photograph in which no person was found."""
    yield from _dark(pixels)
    yield Finding('photograph', True, 'No person was found. Use a photograph of one person from the front, with head, '
                  'shoulders and hips.')


def photograph(pixels: np.ndarray, people: list[Pose], window: Window, height: int) -> Iterator[Finding]:
    """Grade a photograph from which a window becomes an image of `height` pixels."""
    if len(people) > 1:
        yield Finding('photograph', True, f'{len(people)} people were found; the largest is used. Crop the '
                      'photograph to one person.')
    yield from _dark(pixels)
    if abs(people[0].rotation) > _MAX_LEAN:
        yield Finding('photograph', True, f'The person leans by {abs(np.degrees(people[0].rotation)):.0f} degrees. '
                      'Rotate the photograph upright.')
    yield from _small('photograph', window, height)


def _dark(pixels: np.ndarray) -> Iterator[Finding]:
    levels = cv2.cvtColor(cv2.resize(pixels, (96, 128), interpolation=cv2.INTER_AREA), cv2.COLOR_RGB2LAB)[..., 0]
    if np.percentile(levels, _PERCENTILE) * 100 / 255 < _MIN_LIGHTNESS:
        yield Finding('photograph', True, 'The photograph is too dark to separate a garment from shadows. Take it '
                      'with light from the front.')


def _small(step: str, window: Window, height: int) -> Iterator[Finding]:
    if window.height < _MIN_RESOLUTION * height:
        yield Finding(step, False, f'The part that is used has {window.width} x {window.height} pixels and is '
                      f'enlarged to {height * 3 // 4} x {height}. Use a larger photograph.')


def pose(whole: Pose, seen: np.ndarray) -> Iterator[Finding]:
    """Grade a pose, given all its points and those visible in the image, `seen` [25, 3]."""
    torso = np.linalg.norm(whole.points[NECK, :2] - whole.points[MIDDLE_HIP, :2])
    if not seen[[NECK, *_SHOULDERS], 2].all():
        yield Finding('pose', True, 'A shoulder is not visible. Use a photograph of the whole upper body.')
    elif np.linalg.norm(np.subtract(*seen[_SHOULDERS, :2])) < _SIDEWAYS * torso:
        yield Finding('pose', True, 'The person is turned to the side. Use a photograph from the front: the '
                      'networks were trained on no others.')
    if not seen[_HIPS, 2].all():
        yield Finding('pose', False, 'A hip is not visible. It is assumed to be below its shoulder, and '
                      '`data.agnostic: official` refuses the image. Show the person down to the thighs.')
    thighs = [knee[1] - hip[1] for hip, knee in zip(seen[_HIPS], seen[_KNEES])
              if min(hip[2], knee[2]) >= _MIN_CONFIDENCE]
    if len(thighs) == 2 and max(thighs) < _SEATED * torso:
        yield Finding('pose', True, 'The person seems to be seated. Use a photograph of a standing person: the '
                      'networks were trained on no others.')
    for side, points in _ARMS.items():
        missing = [name for name, point in zip(('elbow', 'wrist'), points) if not seen[point, 2]]
        if missing:
            yield Finding('pose', False, f'Not visible: {side} {" and ".join(missing)}. The whole arm is generated, '
                          'with its hand. Show both arms.')


def parse(labels: np.ndarray, seen: np.ndarray) -> Iterator[Finding]:
    """Grade a parse map, uint8 [h, w], against the visible points [25, 3] of the same person."""
    x, y = np.round(seen[seen[:, 2] >= _MIN_CONFIDENCE, :2]).astype(int).T
    outside = np.mean(labels[y, x] == 0) if len(x) else 0
    if outside > _MAX_OUTSIDE:
        yield Finding('parse', True, f'{outside:.0%} of the pose\'s confident points lie on the parse map\'s '
                      'background. Compare the two: the parser may not suit such photographs.')
    if np.isin(labels, _TOPS).mean() < _MIN_TOP:
        yield Finding('parse', True, 'The parse map has no top. Check its colours: it may need another label map, '
                      'see --parser_labels.')
    if not (labels == person.LABELS.index('face')).any():
        yield Finding('parse', True, 'The parse map has no face, so none is kept. It may need another label map, '
                      'see --parser_labels.')
    if all(_distance(labels, side, seen, side) > _distance(labels, side, seen, other)
           for side, other in (('left', 'right'), ('right', 'left'))):
        yield Finding('parse', True, 'The parse map swaps left and right arm. Use a parser that names them from the '
                      'person\'s view.')


def _distance(labels: np.ndarray, side: str, seen: np.ndarray, arm: str) -> float:
    """Return the distance from the centre of a side's arm label to that of an arm's points; NaN if one is missing.

    Every comparison with NaN is false, so a missing arm is never reported as swapped.
    """
    region = np.argwhere(labels == person.LABELS.index(f'{side} arm'))
    points = seen[list(_ARMS[arm])]
    points = points[points[:, 2] > 0, 1::-1]
    if not (len(region) and len(points)):
        return float('nan')
    return float(np.linalg.norm(region.mean(0) - points.mean(0)))


_PATTERNED = Finding('mask', True, 'The background is not plain, and parts of it may count as garment. Use a '
                                   'background of one colour.')


def no_garment(mask: Mask) -> Finding:
    """Grade a photograph in which no garment was found."""
    return _PATTERNED if mask.noise > _MAX_NOISE else Finding(
        'mask', True, 'No garment was found: everything has the background\'s colour. Use a darker background.')


def garment(mask: Mask, image_mask: np.ndarray, window: Window, height: int) -> Iterator[Finding]:
    """Grade the mask of a photograph, and that of the image made from its window, bool [h, w]."""
    if mask.noise > _MAX_NOISE:
        yield _PATTERNED
    edges = {'upper': mask.garment[0], 'lower': mask.garment[-1], 'left': mask.garment[:, 0],
             'right': mask.garment[:, -1]}
    cut_off = [name for name, edge in edges.items() if edge.mean() > _CUT_OFF]
    if cut_off:
        yield Finding('mask', True, f'The garment is cut off at the {" and ".join(cut_off)} edge. Photograph the '
                      'whole garment.')
    if mask.rest > _MAX_REST:
        yield Finding('mask', True, 'There is something beside the garment. Remove it, or crop the photograph.')
    if not _MIN_GARMENT <= image_mask.mean() <= _MAX_GARMENT:
        yield Finding('mask', True, f'The mask covers {image_mask.mean():.0%} of the image, which no garment does. Use '
                      'a background of another colour.')
    if mask.contrast < _FAINT:
        yield Finding('mask', False, 'The garment hardly differs from the background. Check its outline, or use a '
                      'darker background.')
    yield from _small('mask', window, height)
