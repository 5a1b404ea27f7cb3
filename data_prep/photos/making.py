"""What a try-on sample needs of a photograph, with a picture of each step and what looks wrong in it."""
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
from data_prep.photos.parser import Parser, Ready, Unfit
from data_prep.photos.photograph import Window

SIZE = 1024, 768  # height and width of what is made, VITON-HD's
_SEEN = 1280  # pixels of the longer side in which a garment is looked for
_TALL = 4.5  # torsos: a window as high shows a whole person, and what is higher is cut
_ABOVE = 0.45  # torsos from the nose to the upper edge
_MARGIN = 0.06  # of a garment's height to each side
_STEP = 384  # pixels of a step's picture from top to bottom
_OFF = 0.01  # of the proportion, by which a photograph may differ from 3:4 and is kept whole


class Made(NamedTuple):
    """What was made of a photograph.

    Attributes:
      files: for each of the folders in `pairs_files.FOLDERS` that it belongs to, a file.
      steps: title -> a small JPEG of what a step made.
      findings: what looks wrong.
    """
    files: dict[str, bytes]
    steps: dict[str, bytes]
    findings: list[Finding]


def of_person(content: bytes, blazepose: pose.BlazePose, parser: Parser | Ready | None,
              size: tuple[int, int] = SIZE, max_pixels: int = codec.MAX_PIXELS) -> Made:
    """A photograph of a person -> `image`, `keypoints` and, with a parser, `parse`.

    Args:
      content: JPEG or PNG.
      size: height and width of the picture, 4 to 3.
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
    picture = photograph.cut(pixels, window, size)
    whole = people[0].moved(size[0] / window.height, window.left, window.top)
    seen = whole.seen(*size)
    files = {'image': _kept(content, pixels, window, size) or photograph.jpeg(picture),
             'keypoints': pose.as_openpose(seen)}
    steps = {'photograph': _step(_framed(pixels, window)), 'pose': _step(_posed(picture, files['keypoints']))}
    findings = [*grading.photograph(pixels, people, window, size[0]), *grading.pose(whole, seen)]
    if parser is None:
        return Made(files, steps, findings)
    try:
        found = parser.parse(picture)
    except Unfit as error:
        return Made(files, steps, [*findings, Finding('parse', True, str(error))])
    found = labels.with_neck(found, parser.name, whole.points[0, :2], whole.chin)
    files['parse'] = _palette_png(found)
    steps |= {'parse': _step(_coloured(picture, found)), 'what is kept': _step(_agnostic(picture, found, seen))}
    return Made(files, steps, [*findings, *grading.parse(found, seen)])


def of_garment(content: bytes, size: tuple[int, int] = SIZE, max_pixels: int = codec.MAX_PIXELS) -> Made:
    """A photograph of a garment -> `cloth` on white, and `cloth_mask`."""
    try:
        pixels = photograph.read(content, max_pixels)
    except codec.Unreadable as error:
        return Made({}, {}, [_unreadable(error)])
    shrink = min(1, _SEEN / max(pixels.shape))
    seen = pixels if shrink == 1 else cv2.resize(pixels, None, fx=shrink, fy=shrink, interpolation=cv2.INTER_AREA)
    found = garment.mask(seen)
    if not found.garment.any():
        return Made({}, {'photograph': _step(pixels)}, [grading.nothing(found)])
    window = _around(found.garment)
    mask = photograph.cut(np.uint8(255) * found.garment, window, size, cv2.BORDER_CONSTANT) >= 128
    picture = photograph.cut(seen, window, size)
    soft = cv2.GaussianBlur(mask.astype(np.float32), (0, 0), max(0.5, size[0] / 1024))[..., np.newaxis]
    cloth = np.round(255 + (picture - 255.0) * soft).astype(np.uint8)
    files = {'cloth': photograph.jpeg(cloth), 'cloth_mask': tf.io.encode_png(np.uint8(255) * mask[..., None]).numpy()}
    steps = {'photograph': _step(_framed(seen, window)), 'mask': _step(_outlined(picture, mask)),
             'garment': _step(cloth)}
    return Made(files, steps, [*grading.garment(found, mask, window, size[0])])


def framing(points: np.ndarray, height: int, width: int) -> Window:
    """The part of a photograph that shows a person, of BODY_25's points [25, 3], as a try-on's pictures do.

    A photograph of 3:4 that is filled by the person is kept as it is.
    """
    torso = float(np.linalg.norm(points[pose.NECK, :2] - points[pose.MIDDLE_HIP, :2]))
    middle = float(points[[pose.NECK, pose.MIDDLE_HIP], 0].mean())
    return photograph.around(middle, float(points[0, 1]) - _ABOVE * torso, _TALL * torso, height, width)


def _around(mask: np.ndarray) -> Window:
    """The 3:4 window with a garment in its middle; it may reach beyond the photograph."""
    rows, columns = (np.flatnonzero(mask.any(axis)) for axis in (1, 0))
    tall, wide = (1 + float(np.ptp(part)) for part in (rows, columns))
    height, width = mask.shape
    if abs(height * 3 / (width * 4) - 1) < _OFF and max(tall / height, wide / width) > 0.5:
        return photograph.around(width / 2, 0, height, height, width)
    units = int(np.ceil(max(tall, wide * 4 / 3) * (1 + 2 * _MARGIN) / 4))
    return Window(round((columns[0] + columns[-1]) / 2 - 1.5 * units), round((rows[0] + rows[-1]) / 2 - 2 * units),
                  4 * units, 3 * units)


def _unreadable(error: codec.Unreadable) -> Finding:
    return Finding('photograph', True, f'It cannot be read: {error}. Save it as JPEG.')


def _kept(content: bytes, pixels: np.ndarray, window: Window, size: tuple[int, int]) -> bytes | None:
    """A file as it came, if it is upright JPEG that becomes the whole picture; nothing is lost by encoding it again."""
    whole = pixels.shape[:2] == tuple(size) == (window.height, window.width)
    upright = photograph.orientation(content) == 1
    return content if whole and upright and codec.header(content, codec.MAX_PIXELS).keep else None


def _palette_png(found: np.ndarray) -> bytes:
    """Labels as a PNG whose palette is Pascal VOC's."""
    image, out = Image.fromarray(found, 'P'), io.BytesIO()
    image.putpalette(sample_people.PALETTE)
    image.save(out, 'PNG')
    return out.getvalue()


# Pictures of the steps.

def _step(pixels: np.ndarray) -> bytes:
    scale = _STEP / len(pixels)
    size = max(1, round(pixels.shape[1] * scale)), _STEP
    return photograph.jpeg(cv2.resize(pixels, size, interpolation=cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR))


def _framed(pixels: np.ndarray, window: Window) -> np.ndarray:
    """A photograph, pale where it is cut off."""
    pale = 255 - (255 - pixels) // 3
    part = slice(max(0, window.top), window.top + window.height), slice(max(0, window.left), window.left + window.width)
    pale[part] = pixels[part]
    return pale


def _posed(picture: np.ndarray, keypoints: bytes) -> np.ndarray:
    drawn = person.pose_map(person.keypoints(tf.constant(keypoints))[0], picture.shape[:2]).numpy()
    return np.where(drawn.any(-1, keepdims=True), drawn, picture // 2 + 64)


def _coloured(picture: np.ndarray, found: np.ndarray) -> np.ndarray:
    colours = np.frombuffer(sample_people.PALETTE, np.uint8).reshape(-1, 3)[found]
    grey = picture.mean(-1, keepdims=True)
    return np.where(found[..., np.newaxis] > 0, 0.7 * colours + 0.3 * grey, 0.5 * grey + 127).astype(np.uint8)


def _agnostic(picture: np.ndarray, found: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """What is kept of the person by the paper's rules; all of it if there are no shoulders to tell."""
    points, _ = person.keypoints(tf.constant(pose.as_openpose(seen)))
    if not person.found(tf.gather(points, person.NEEDED)).numpy().all():
        return picture
    removed, _ = person.agnostic(tf.constant(found), points)
    return np.where(removed.numpy()[..., np.newaxis], np.uint8(128), picture)


def _outlined(picture: np.ndarray, mask: np.ndarray) -> np.ndarray:
    outlines, _ = cv2.findContours(mask.astype(np.uint8), cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)
    return cv2.drawContours(picture.copy(), outlines, -1, (232, 36, 110), max(1, len(picture) // 200))
