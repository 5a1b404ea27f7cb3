"""What looks wrong in a photograph and in what was made of it, and what to do about it: a sentence each."""
from collections.abc import Iterator
from typing import NamedTuple

import cv2
import numpy as np

from data_prep.people import person
from data_prep.photos.garment import Mask
from data_prep.photos.photograph import Window
from data_prep.photos.pose import MIDDLE_HIP, NECK, Pose

_DARK, _BRIGHTEST = 40, 98  # lightness in CIELAB below which the brightest two percent of a photograph are dark
_UPRIGHT = np.radians(25)
_SHOWN = 0.6  # of the height that is made, below which a photograph shows too little
_SEATED = 0.5  # of the torso: who stands has the knees further below the hips; 0.8 is usual
_SIDEWAYS = 0.45  # shoulder widths to a torso; 0.6 to 0.8 from the front
_SURE = 0.3  # confidence of a point that others are compared with
_OUTSIDE = 0.15  # of the sure points that may lie where the parse map has nobody
_LEAST_TOP, _LEAST_GARMENT, _MOST_GARMENT = 0.01, 0.05, 0.95  # of a picture
_CUT_OFF = 0.1  # of an edge of the photograph, that a sleeve which ends there takes
_GROUND = 4.0  # difference in CIELAB from a plane of colour; a studio's is 0.2
_FAINT = 8.0  # difference in CIELAB between a garment and its ground
_REST = 0.1  # of the garment's area
_SHOULDERS, _HIPS, _KNEES = [2, 5], [9, 12], [10, 13]
_ARMS = {'right': (3, 4), 'left': (6, 7)}  # elbow and wrist
_TOPS = [person.LABELS.index(name) for name in ('upper', 'dress', 'coat')]


class Finding(NamedTuple):
    """Something that looks wrong.

    Attributes:
      step: photograph, pose, parse, mask or sample.
      wrong: the result cannot be used, or will look wrong for certain; else it may.
      sentence: what it is and what to do.
    """
    step: str
    wrong: bool
    sentence: str


def nobody(pixels: np.ndarray) -> Iterator[Finding]:
    """Looks at a photograph in which no person was found."""
    yield from _dark(pixels)
    yield Finding('photograph', True, 'No person was found. Use a photograph of one person from the front, with head, '
                  'shoulders and hips.')


def photograph(pixels: np.ndarray, people: list[Pose], window: Window, height: int) -> Iterator[Finding]:
    """Looks at a photograph, of which a window becomes a picture `height` pixels high."""
    if len(people) > 1:
        yield Finding('photograph', True, f'{len(people)} people were found, and the largest was taken. Cut the '
                      'photograph so that it shows one.')
    yield from _dark(pixels)
    if abs(people[0].turned) > _UPRIGHT:
        yield Finding('photograph', True, f'The person leans by {abs(np.degrees(people[0].turned)):.0f} degrees. Turn '
                      'the photograph upright.')
    yield from _small('photograph', window, height)


def _dark(pixels: np.ndarray) -> Iterator[Finding]:
    levels = cv2.cvtColor(cv2.resize(pixels, (96, 128), interpolation=cv2.INTER_AREA), cv2.COLOR_RGB2LAB)[..., 0]
    if np.percentile(levels, _BRIGHTEST) * 100 / 255 < _DARK:
        yield Finding('photograph', True, 'It is too dark to tell a garment from its shadows. Take it in light from '
                      'the front.')


def _small(step: str, window: Window, height: int) -> Iterator[Finding]:
    if window.height < _SHOWN * height:
        yield Finding(step, False, f'The part that is used has {window.width} x {window.height} pixels, and '
                      f'{height * 3 // 4} x {height} are made of it. Take a larger photograph.')


def pose(whole: Pose, seen: np.ndarray) -> Iterator[Finding]:
    """Looks at a pose: all of it, and the points [25, 3] that can be seen in the picture."""
    torso = np.linalg.norm(whole.points[NECK, :2] - whole.points[MIDDLE_HIP, :2])
    if not seen[[NECK, *_SHOULDERS], 2].all():
        yield Finding('pose', True, 'A shoulder cannot be seen. Use a photograph of the whole upper body.')
    elif np.linalg.norm(np.subtract(*seen[_SHOULDERS, :2])) < _SIDEWAYS * torso:
        yield Finding('pose', True, 'The person is turned to the side. Use a photograph from the front, as the '
                      'networks have seen no other.')
    if not seen[_HIPS, 2].all():
        yield Finding('pose', False, 'A hip cannot be seen. It is taken to be below its shoulder, and data.agnostic: '
                      'official refuses the picture; show the person down to the thighs.')
    thighs = [knee[1] - hip[1] for hip, knee in zip(seen[_HIPS], seen[_KNEES]) if min(hip[2], knee[2]) >= _SURE]
    if len(thighs) == 2 and max(thighs) < _SEATED * torso:
        yield Finding('pose', True, 'The person seems to be seated. Use a photograph of somebody who stands, as the '
                      'networks have seen no other.')
    for side, points in _ARMS.items():
        missing = [name for name, point in zip(('elbow', 'wrist'), points) if not seen[point, 2]]
        if missing:
            yield Finding('pose', False, f'The {side} {" and ".join(missing)} cannot be seen, so that the whole arm is '
                          'made anew, with its hand. Show both arms.')


def parse(labels: np.ndarray, seen: np.ndarray) -> Iterator[Finding]:
    """Looks at a parse map, uint8 [h, w], beside the points [25, 3] of the same person."""
    x, y = np.round(seen[seen[:, 2] >= _SURE, :2]).astype(int).T
    outside = np.mean(labels[y, x] == 0) if len(x) else 0
    if outside > _OUTSIDE:
        yield Finding('parse', True, f'{outside:.0%} of the pose\'s sure points lie where the parse map has nobody. '
                      'Look at both: the parser may not know such photographs.')
    if np.isin(labels, _TOPS).mean() < _LEAST_TOP:
        yield Finding('parse', True, 'There is no top in the parse map. Look at its colours: the label map may be '
                      'another one, see --parser_labels.')
    if not (labels == person.LABELS.index('face')).any():
        yield Finding('parse', True, 'There is no face in the parse map, so that none is kept. The label map may be '
                      'another one, see --parser_labels.')
    if all(_distance(labels, side, seen, side) > _distance(labels, side, seen, other)
           for side, other in (('left', 'right'), ('right', 'left'))):
        yield Finding('parse', True, 'Left and right arm are exchanged in the parse map. Give a parser that names them '
                      'as the person does.')


def _distance(labels: np.ndarray, side: str, seen: np.ndarray, arm: str) -> float:
    """From the middle of a side's arm label to the middle of an arm's points; without one, NaN, which is never more."""
    region = np.argwhere(labels == person.LABELS.index(f'{side} arm'))
    points = seen[list(_ARMS[arm])]
    points = points[points[:, 2] > 0, 1::-1]
    if not (len(region) and len(points)):
        return float('nan')
    return float(np.linalg.norm(region.mean(0) - points.mean(0)))


_PATTERNED = Finding('mask', True, 'The ground is not plain, and some of it may count as garment. Lay the garment on '
                                   'one colour.')


def nothing(mask: Mask) -> Finding:
    """No garment was found."""
    return _PATTERNED if mask.ground > _GROUND else Finding(
        'mask', True, 'No garment was found: everything has the colour of the ground. Lay it on a darker ground.')


def garment(mask: Mask, picture: np.ndarray, window: Window, height: int) -> Iterator[Finding]:
    """Looks at a garment's mask, and at that of its picture, bool [h, w], into which a window was made."""
    if mask.ground > _GROUND:
        yield _PATTERNED
    edges = {'upper': mask.garment[0], 'lower': mask.garment[-1], 'left': mask.garment[:, 0],
             'right': mask.garment[:, -1]}
    cut_off = [name for name, edge in edges.items() if edge.mean() > _CUT_OFF]
    if cut_off:
        yield Finding('mask', True, f'The garment is cut off at the {" and ".join(cut_off)} edge. Photograph all '
                      'of it.')
    if mask.rest > _REST:
        yield Finding('mask', True, 'There is something beside the garment. Take it away, or cut the photograph.')
    if not _LEAST_GARMENT <= picture.mean() <= _MOST_GARMENT:
        yield Finding('mask', True, f'The mask is {picture.mean():.0%} of the picture, which no garment is. Lay the '
                      'garment on a ground of another colour.')
    if mask.contrast < _FAINT:
        yield Finding('mask', False, 'The garment hardly differs from the ground. Look at its outline; on a darker '
                      'ground it is certain.')
    yield from _small('mask', window, height)
