"""Make the files of a try-on sample from one photograph, with an image of each step and the problems found."""
import io
from typing import NamedTuple

import cv2
import numpy as np
import tensorflow as tf
from PIL import Image

from data_prep.image import codec
from data_prep.people import person, sample_people
from data_prep.photos import garment, grading, labels, photograph, pose
from data_prep.photos.grading import Finding
from data_prep.photos.parser import ExistingMap, Parser, UnusableMap
from data_prep.photos.photograph import Window

SIZE = 1024, 768  # default height and width of the images made: VITON-HD's
_MAX_SIDE = 1280  # longer side, in pixels, at which a garment is segmented
_WINDOW_HEIGHT = 4.5  # torsos: shows a whole person
_ABOVE_NOSE = 0.45  # torsos from the nose to the window's upper edge
_MARGIN = 0.06  # on each side of a garment, as a fraction of its height
_STEP_HEIGHT = 384  # pixels, of a step's image
_RATIO_TOLERANCE = 0.01  # a garment's photograph whose aspect ratio is this close to 3:4 is kept whole


class Made(NamedTuple):
    """Files made from a photograph.

    Attributes:
      files: key of `pairs_files.FOLDERS` -> file.
      steps: title -> small JPEG of a step's result.
      findings: problems found.
    """
    files: dict[str, bytes]
    steps: dict[str, bytes]
    findings: list[Finding]


def of_person(content: bytes, blazepose: pose.BlazePose, parser: Parser | ExistingMap | None,
              size: tuple[int, int] = SIZE, max_pixels: int = codec.MAX_PIXELS) -> Made:
    """Make `image`, `keypoints` and, with a parser, `parse` from a photograph of a person.

    Args:
      content: JPEG or PNG.
      blazepose: the pose networks.
      parser: a human parser, or the parse map of this photograph's image.
      size: height and width of the image, 4 to 3.
      max_pixels: a larger photograph is not decoded.
    """
    try:
        pixels = photograph.read(content, max_pixels)
    except codec.Unreadable as error:
        return Made({}, {}, [_unreadable(error)])
    people = blazepose.people(pixels)
    if not people:
        return Made({}, {'photograph': _step(pixels)}, [*grading.nobody(pixels)])
    window = framing(people[0].points, *pixels.shape[:2])
    image = photograph.cut(pixels, window, size)
    whole = people[0].moved(size[0] / window.height, window.left, window.top)
    seen = whole.seen(*size)
    files = {'image': _kept(content, pixels, window, size) or photograph.jpeg(image),
             'keypoints': pose.as_openpose(seen)}
    steps = {'photograph': _step(_framed(pixels, window)), 'pose': _step(_posed(image, files['keypoints']))}
    findings = [*grading.photograph(pixels, people, window, size[0]), *grading.pose(whole, seen)]
    if parser is None:
        return Made(files, steps, findings)
    try:
        found = parser.parse(image)
    except UnusableMap as error:
        return Made(files, steps, [*findings, Finding('parse', True, str(error))])
    found = labels.with_neck(found, parser.name, whole.points[0, :2], whole.chin)
    files['parse'] = _palette_png(found)
    steps |= {'parse': _step(_coloured(image, found)), 'agnostic': _step(_agnostic(image, found, seen))}
    return Made(files, steps, [*findings, *grading.parse(found, seen)])


def of_garment(content: bytes, size: tuple[int, int] = SIZE, max_pixels: int = codec.MAX_PIXELS) -> Made:
    """Make `cloth`, on white, and `cloth_mask` from a photograph of a garment; arguments as in `of_person`."""
    try:
        pixels = photograph.read(content, max_pixels)
    except codec.Unreadable as error:
        return Made({}, {}, [_unreadable(error)])
    shrink = min(1, _MAX_SIDE / max(pixels.shape))
    seen = pixels if shrink == 1 else cv2.resize(pixels, None, fx=shrink, fy=shrink, interpolation=cv2.INTER_AREA)
    found = garment.mask(seen)
    if not found.garment.any():
        return Made({}, {'photograph': _step(pixels)}, [grading.no_garment(found)])
    window = _around(found.garment)
    mask = photograph.cut(np.uint8(255) * found.garment, window, size, cv2.BORDER_CONSTANT) >= 128
    image = photograph.cut(seen, window, size)
    soft = cv2.GaussianBlur(mask.astype(np.float32), (0, 0), max(0.5, size[0] / 1024))[..., np.newaxis]
    cloth = np.round(255 + (image - 255.0) * soft).astype(np.uint8)
    files = {'cloth': photograph.jpeg(cloth), 'cloth_mask': tf.io.encode_png(np.uint8(255) * mask[..., None]).numpy()}
    steps = {'photograph': _step(_framed(seen, window)), 'mask': _step(_outlined(image, mask)),
             'garment': _step(cloth)}
    return Made(files, steps, [*grading.garment(found, mask, window, size[0])])


def framing(points: np.ndarray, height: int, width: int) -> Window:
    """Return the window around a person, framed as try-on data is, from BODY_25's points [25, 3].

    A 3:4 photograph that the person fills is kept whole.
    """
    torso = float(np.linalg.norm(points[pose.NECK, :2] - points[pose.MIDDLE_HIP, :2]))
    centre, top = float(points[[pose.NECK, pose.MIDDLE_HIP], 0].mean()), float(points[0, 1]) - _ABOVE_NOSE * torso
    return photograph.fit_window(centre, top, _WINDOW_HEIGHT * torso, height, width)


def _around(mask: np.ndarray) -> Window:
    """Return the 3:4 window centred on a garment; it may extend beyond the photograph."""
    rows, columns = (np.flatnonzero(mask.any(axis)) for axis in (1, 0))
    tall, wide = (1 + float(np.ptp(part)) for part in (rows, columns))
    height, width = mask.shape
    if abs(height * 3 / (width * 4) - 1) < _RATIO_TOLERANCE and max(tall / height, wide / width) > 0.5:
        return photograph.fit_window(width / 2, 0, height, height, width)
    units = int(np.ceil(max(tall, wide * 4 / 3) * (1 + 2 * _MARGIN) / 4))
    return Window(round((columns[0] + columns[-1]) / 2 - 1.5 * units), round((rows[0] + rows[-1]) / 2 - 2 * units),
                  4 * units, 3 * units)


def _unreadable(error: codec.Unreadable) -> Finding:
    return Finding('photograph', True, f'The photograph cannot be read: {error}. Save it as JPEG.')


def _kept(content: bytes, pixels: np.ndarray, window: Window, size: tuple[int, int]) -> bytes | None:
    """Return the original file if it is an upright JPEG used whole, which avoids encoding it again; else None."""
    whole = pixels.shape[:2] == tuple(size) == (window.height, window.width)
    upright = photograph.orientation(content) == 1
    return content if whole and upright and codec.header(content, codec.MAX_PIXELS).keep else None


def _palette_png(found: np.ndarray) -> bytes:
    """Encode labels as a PNG with Pascal VOC's palette."""
    image, out = Image.fromarray(found, 'P'), io.BytesIO()
    image.putpalette(sample_people.PALETTE)
    image.save(out, 'PNG')
    return out.getvalue()


def _step(pixels: np.ndarray) -> bytes:
    """Encode an image of a step as a small JPEG."""
    scale = _STEP_HEIGHT / len(pixels)
    size = max(1, round(pixels.shape[1] * scale)), _STEP_HEIGHT
    return photograph.jpeg(cv2.resize(pixels, size, interpolation=cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR))


def _framed(pixels: np.ndarray, window: Window) -> np.ndarray:
    """Return a photograph that is pale outside the window."""
    pale = 255 - (255 - pixels) // 3
    part = slice(max(0, window.top), window.top + window.height), slice(max(0, window.left), window.left + window.width)
    pale[part] = pixels[part]
    return pale


def _posed(image: np.ndarray, keypoints: bytes) -> np.ndarray:
    drawn = person.pose_map(person.keypoints(tf.constant(keypoints))[0], image.shape[:2]).numpy()
    return np.where(drawn.any(-1, keepdims=True), drawn, image // 2 + 64)


def _coloured(image: np.ndarray, found: np.ndarray) -> np.ndarray:
    colours = np.frombuffer(sample_people.PALETTE, np.uint8).reshape(-1, 3)[found]
    grey = image.mean(-1, keepdims=True)
    return np.where(found[..., np.newaxis] > 0, 0.7 * colours + 0.3 * grey, 0.5 * grey + 127).astype(np.uint8)


def _agnostic(image: np.ndarray, found: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """Grey out what VITON-HD's paper removes from the person; nothing if the shoulders were not found."""
    points, _ = person.keypoints(tf.constant(pose.as_openpose(seen)))
    if not person.found(tf.gather(points, person.NEEDED)).numpy().all():
        return image
    removed, _ = person.agnostic(tf.constant(found), points)
    return np.where(removed.numpy()[..., np.newaxis], np.uint8(128), image)


def _outlined(image: np.ndarray, mask: np.ndarray) -> np.ndarray:
    outlines, _ = cv2.findContours(mask.astype(np.uint8), cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)
    return cv2.drawContours(image.copy(), outlines, -1, (232, 36, 110), max(1, len(image) // 200))
