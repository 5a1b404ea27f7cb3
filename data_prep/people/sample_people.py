"""Generated people for demonstrations of try-on without a download, in VITON-HD's published layout.

Each is drawn at random: skin, hair and face, a body and its pose, trousers, shorts or a skirt, and a patterned top. The
top is also laid flat; the one worn is the same texture under known thin-plate splines (see sample_garments), so the two
are a true pair. Forearms, hands and hair hide part of it as on a photograph, and the parse map is drawn together with
the picture.
"""
import itertools
import json
import os
import struct
import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from data_prep import UserError
from data_prep.people.sample_bodies import POSES, Body, build
from data_prep.people.sample_garments import (
    ELBOW,
    LEFT,
    PATTERNS,
    RIGHT,
    Draw,
    Frame,
    Garment,
    Part,
    Points,
    curve,
    cv2,
    lay_flat,
    mirror,
    spline,
    strip,
    turned,
)

FILES: dict[str, Any] = {'train': ['train_pairs.txt'], 'test': ['test_pairs.txt']}  # keys of `tryon.Config`
FIRST_TEST = 50_000  # the number of the first person of the test split
HAIR, UPPER, PANTS, TORSO, SKIRT, FACE = 2, 5, 9, 10, 12, 13  # labels of LIP and CIHP
ARM, LEG, SHOE = {LEFT: 14, RIGHT: 15}, {LEFT: 16, RIGHT: 17}, {LEFT: 18, RIGHT: 19}
PALETTE = bytes(sum((label >> 3 * bit + channel & 1) << 7 - bit for bit in range(3))
                for label in range(256) for channel in range(3))  # of PASCAL VOC
SKINS = np.array([(250, 222, 200), (241, 202, 174), (230, 184, 150), (214, 160, 122), (188, 132, 94), (156, 104, 72),
                  (122, 80, 56), (92, 60, 44)])
HAIRS = np.array([(36, 28, 26), (62, 42, 32), (98, 64, 42), (140, 92, 52), (196, 152, 92), (226, 196, 140),
                  (152, 62, 36), (150, 148, 150)])
EYES = np.array([(84, 54, 34), (58, 38, 28), (70, 104, 84), (74, 110, 150)])
GROUNDS = np.array([(236, 236, 238), (228, 232, 238), (240, 234, 226), (224, 232, 226), (238, 228, 230)])
BOTTOMS = np.array([(46, 62, 96), (84, 112, 156), (38, 38, 42), (188, 168, 134), (96, 96, 100), (112, 74, 58),
                    (70, 84, 66), (128, 42, 54)])
STYLES = 'short', 'bob', 'bangs', 'long', 'long', 'bun', 'tail', 'curly'


class Person(NamedTuple):
    """A person and the top; `flow` and `light` map the flat top to the worn one."""
    image: np.ndarray       # uint8 [height, width, 3]
    parse: np.ndarray       # uint8 [height, width], labels of LIP and CIHP
    points: np.ndarray      # [25, 3], x, y, confidence of BODY_25; zero where hidden or cut off
    cloth: np.ndarray       # uint8 [height, width, 3]
    cloth_mask: np.ndarray  # uint8 [height, width], 0 or 255
    flow: np.ndarray        # [height, width, 2], where in `cloth` a pixel of the top comes from, x, y; elsewhere NaN
    light: np.ndarray       # [height, width], what the colours are multiplied with
    pattern: str            # of the top, one of `PATTERNS`
    poses: frozenset[str]   # of the arms, of `POSES`

    def group(self, held_out: Sequence[str]) -> str:
        """Return which of pattern and pose is among those held out from training, in one word."""
        return '+'.join(name for name, own in (('pattern', {self.pattern}), ('pose', self.poses))
                        if own & {*held_out}) or 'seen'


def write_people(folder: str, train: int, test: int, size: tuple[int, int] = (256, 192), seed: int = 1,
                 held_out: Sequence[str] = ()) -> list[str]:
    """Write people as VITON-HD publishes them; the same bytes every time.

    Below `train` and `test` are `image`, `cloth`, `cloth-mask`, `image-parse` and `openpose-json`. A person and the top
    worn have the same name. `train_pairs.txt` lists each with that top; `test_pairs.txt` lists each with another's.

    Args:
      folder: made if it is missing.
      train: how many people to train with. A person depends on seed and number only, and at another size looks alike.
      test: how many other people to test with.
      size: height and width of all pictures.
      seed: another seed draws other people.
      held_out: patterns and poses that no person to train with has; `test_pairs.txt` then names each person's group.

    Returns:
      The paths of the two lists of pairs.

    Raises:
      UserError: there is no other top for a single person, or no room for so many numbers.
    """
    if test == 1 or not 0 <= train <= FIRST_TEST or test < 0:
        raise UserError(f'data.samples_count: {train} people to train with and {test} to test with cannot be made; '
                        f'train with 0 to {FIRST_TEST}, and test with none or with 2 or more.')
    if unknown := {*held_out} - {*PATTERNS, *POSES}:
        raise UserError(f'data.samples_held_out: there is no pattern or pose {min(unknown)}. Choose among '
                        f'{", ".join([*PATTERNS, *POSES])}.')
    lists = []
    for split, first, count in ('train', 0, train), ('test', FIRST_TEST, test):
        everyone = ((f'{number:05}_00', make_person(seed, number, size)) for number in itertools.count(first))
        wanted = (each for each in everyone if split == 'test' or each[1].group(held_out) == 'seen')
        groups: dict[str, str] = {}
        for name, person in itertools.islice(wanted, count):
            groups[name] = f' {person.group(held_out)}' if held_out and split == 'test' else ''
            for path, content in _files(name, person).items():
                path = os.path.join(folder, split, path)
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, 'wb') as file:
                    file.write(content)
        names = [*groups]
        tops = names if split == 'train' else names[1:] + names[:1]
        lists.append(os.path.join(folder, *FILES[split]))
        with open(lists[-1], 'w', encoding='ascii') as pairs:
            pairs.writelines(f'{name}.jpg {top}.jpg{groups[name]}\n' for name, top in zip(names, tops))
    return lists


def _files(name: str, person: Person) -> dict[str, bytes]:
    keypoints = {'person_id': [-1], 'pose_keypoints_2d': person.points.round(3).ravel().tolist()}
    return {f'image/{name}.jpg': _jpeg(person.image), f'cloth/{name}.jpg': _jpeg(person.cloth),
            f'cloth-mask/{name}.jpg': _jpeg(person.cloth_mask[..., None]),
            f'image-parse/{name}.png': _png(person.parse),
            f'openpose-json/{name}_keypoints.json': json.dumps({'version': 1.3, 'people': [keypoints]}).encode()}


def _jpeg(picture: np.ndarray) -> bytes:
    return cv2.imencode('.jpg', picture[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, 95])[1].tobytes()


def _png(indices: np.ndarray) -> bytes:
    """Encode a PNG with a palette, which OpenCV cannot write."""
    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack('>I', len(content)) + kind + content + struct.pack('>I', zlib.crc32(kind + content))
    height, width = indices.shape
    rows = np.pad(indices, ((0, 0), (1, 0))).tobytes()  # each begins with its filter, none
    return b'\x89PNG\r\n\x1a\n' + b''.join([
        chunk(b'IHDR', struct.pack('>2I5B', width, height, 8, 3, 0, 0, 0)), chunk(b'PLTE', PALETTE),
        chunk(b'IDAT', zlib.compress(rows)), chunk(b'IEND', b'')])


def make_person(seed: int, number: int, size: tuple[int, int]) -> Person:
    """Draw one person, alike at every size."""
    draw = np.random.default_rng([seed, number])
    garment, body = lay_flat(draw, Frame(size)), build(draw)
    skin, hair, style = SKINS[draw.integers(len(SKINS))], HAIRS[draw.integers(len(HAIRS))], str(draw.choice(STYLES))
    length, folds, sleeve = draw.uniform(.5, 1.2), draw.normal(0, .035, (9, 7)), garment.cut.sleeve
    canvas = _Canvas(size, draw.choice(GROUNDS))
    torso, *sleeves = zip(garment.cut.parts(garment.flat), garment.cut.parts(body.figure))
    _back_hair(canvas, body, hair * .85, style, length)
    _lower_body(canvas, draw, body, skin)
    neck = mirror(curve([(.2, -.75), (.2, -.2), (.27, -.04), (.8, .1), (.88, .3), (.6, .75), (.45, 1.1)]))
    canvas.paint([body.figure.torso(neck)], .97 * skin, TORSO)
    if not sleeves:
        for side in (RIGHT, LEFT):
            _arm(canvas, body, side, skin, 0, 1)
    behind = canvas.wear(garment, *torso)
    face = _face(canvas, draw, body, skin, hair)
    _front_hair(canvas, draw, body, hair, style, length)
    for i in draw.permutation(2):
        _arm(canvas, body, (RIGHT, LEFT)[i], skin, sleeve, draw.uniform(.9, 1.5), None if sleeves else behind)
        if sleeves:
            canvas.wear(garment, *sleeves[i])
    top = canvas.parse == UPPER
    canvas.light[top] *= 1 + cv2.resize(folds, size[::-1], interpolation=cv2.INTER_CUBIC)[top]
    canvas.flow[~top] = np.nan
    image = np.clip(canvas.colour * canvas.light[..., None], 0, 255)
    return Person(image.round().astype(np.uint8), canvas.parse, _points(canvas, draw, body, face),
                  garment.picture, np.uint8(255) * (garment.mask >= .5), canvas.flow, canvas.light,
                  garment.pattern, body.poses)


class _Canvas(Frame):
    """An image, painted from back to front, with its parse map."""

    def __init__(self, size: tuple[int, int], ground: np.ndarray):
        super().__init__(size)
        self.colour = np.tile(ground.astype(np.float32), (*size, 1))
        self.light = np.tile(np.linspace(1.04, .94, size[0], dtype=np.float32)[:, None], (1, size[1]))
        self.parse = np.zeros(size, np.uint8)
        self.flow = np.full((*size, 2), np.nan, np.float32)

    def paint(self, shapes: list[np.ndarray], colour: np.ndarray, label: int | None = None, *, rim: float = .3,
              shadow: float = 0, behind: np.ndarray | None = None) -> None:
        """Paint polygons, `behind` what covers part of them; without a label the parse does not change."""
        window, alpha = self.cover(shapes, .06 if shadow else .02)
        if label is not None:
            seen = alpha if behind is None else alpha * (1 - behind[window])
            self._shade(window, alpha, seen, rim, shadow)
            self.parse[window][seen > .5] = label
            alpha = seen
        self.colour[window] += (colour - self.colour[window]) * alpha[..., None]

    def wear(self, garment: Garment, flat: Part, worn: Part) -> np.ndarray:
        """Put a part of a top on; return the fraction of each pixel it covers."""
        window, alpha = self.cover(worn.shapes, .06)
        places = np.argwhere(alpha)[:, ::-1] + (window[1].start, window[0].start)
        flow = np.zeros((*alpha.shape, 2), np.float32)
        flow[alpha > 0] = self.pixels(spline(worn.controls, flat.controls)(self.units(places)))
        colour = cv2.remap(garment.texture, flow, None, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
        self._shade(window, alpha, alpha, .22, .22)
        self.colour[window] += (colour - self.colour[window]) * alpha[..., None]
        self.parse[window][alpha > .5] = UPPER
        self.flow[window][alpha > .5] = flow[alpha > .5]
        cover = np.zeros_like(self.light)
        cover[window] = alpha
        return cover

    def _shade(self, window: tuple, alpha: np.ndarray, seen: np.ndarray, rim: float, shadow: float) -> None:
        """Darken the rim of a shape, and what lies behind it."""
        light = self.light[window]
        if shadow:
            light = light * (1 - shadow * cv2.GaussianBlur(alpha, (0, 0), .018 * self.unit))
        inner = 1 - rim * (1 - cv2.GaussianBlur(alpha, (0, 0), .012 * self.unit))
        self.light[window] = light + (inner - light) * seen


def _discs(places: Points, rx: float, ry: float) -> list[np.ndarray]:
    angle = np.linspace(0, 2 * np.pi, 32, endpoint=False)
    disc = np.stack([rx * np.cos(angle), ry * np.sin(angle)], 1)
    return [place + disc for place in np.asarray(places)]


def _line(points: Points, width: float) -> list[np.ndarray]:
    """Return a smooth line, `width` wide where it is vertical and a third less where it is level."""
    line = curve(points)
    return strip(line - (width / 2, width / 3), line + (width / 2, width / 3))


def _lower_body(canvas: _Canvas, draw: Draw, body: Body, skin: np.ndarray) -> None:
    """Paint legs, shoes, and trousers, shorts or a skirt."""
    u, torso = body.figure.unit, body.figure.torso
    colour, shoe = draw.choice(BOTTOMS, 2)
    kind, loose = str(draw.choice(['trousers', 'shorts', 'skirt'], p=[.55, .15, .3])), draw.uniform(.95, 1.3)
    hem, flare = draw.uniform(.35, .85), draw.uniform(0, .35)
    for side, leg in body.legs.items():
        canvas.paint(leg.tube([0, .5, .75, 1.04], u * np.array([.36, .22, .21, .13])), skin, LEG[side])
        sole = curve(mirror([(0, -.16), (.17, -.1), (.19, .2), (.12, .36), (0, .4)]), True)
        canvas.paint([leg.at(1.06, 0) + u * turned(sole, -side * 14)], shoe, SHOE[side], shadow=.2)
    if kind == 'skirt':
        right, left = (np.concatenate([torso([(side * .56, 1.25), (side * .7, 1.9)]), leg.at(hem, u * (.3 + flare))])
                       for side, leg in body.legs.items())
        canvas.paint(strip(curve(right), curve(left)), colour, SKIRT, shadow=.3)
        for share in (.2, .4, .6, .8):
            canvas.paint(_line(right + (left - right) * share, .025 * u), .8 * colour)
        return
    ends = [(.55, .29), (1, .21)] if kind == 'trousers' else [(.2 + .3 * hem, .4)]
    s, width = np.transpose([(0, .37), (.12, .4), *ends])
    right, left = (np.concatenate([torso([(side * .56, 1.25)]), leg.at([0, .12], u * loose * np.array([.37, .4]))])
                   for side, leg in body.legs.items())
    tubes = [quad for leg in body.legs.values() for quad in leg.tube(s, u * loose * width)]
    canvas.paint([*strip(curve(right), curve(left)), *tubes], colour, PANTS, shadow=.3)
    canvas.paint(_line(torso([(0, 1.5), (.02, 2.15)]), .025 * u), .75 * colour)


def _arm(canvas: _Canvas, body: Body, side: int, skin: np.ndarray, sleeve: float, spread: float,
         behind: np.ndarray | None = None) -> None:
    """Paint the bare part of an arm, with the hand; the upper arm goes `behind` a sleeveless top."""
    u, arm = body.figure.unit, body.figure.arms[side]
    thumb = 1 if arm.at(1, 0)[0, 1] < arm.at(ELBOW, 0)[0, 1] else -1  # towards the head when the hand is up
    palm = curve([(-.05, .11), (.08, .14), (.24, .165), (.3, .1), (.3, -.1), (.24, -.165), (.08, -.14), (-.05, -.11)],
                 True)
    places = np.concatenate([palm, [(.05, thumb * .1), *((.25, t) for t in (-.125, -.042, .042, .125)),
                                    (.24, thumb * .26), *((d, t * spread) for d, t in (
                                        (.46, -.125), (.54, -.042), (.55, .042), (.48, .125)))]])
    hand = arm.at(1 + places[:, 0] * u / arm.length, places[:, 1] * u)
    starts, ends = hand[-10:-5], hand[-5:]
    across = .043 * u * turned((ends - starts) / np.linalg.norm(ends - starts, axis=1, keepdims=True), 90)
    shapes = [hand[:-10], *np.stack([starts + across, ends + across, ends - across, starts - across], 1),
              *_discs(ends, .043 * u, .043 * u)]
    if behind is not None:
        window, lower = canvas.cover([*shapes, *arm.tube([.45, 1.02], u * np.array([.3, .2]))])
        behind = behind.copy()
        behind[window] *= 1 - lower
    s = np.linspace(max(0, sleeve - .1), 1.02, 24)
    shapes += arm.tube(s, u * np.interp(s, [0, .15, ELBOW, .8, 1.02], [.2, .205, .165, .15, .105]))
    shapes += [] if sleeve else _discs(arm.at(.02, 0), .2 * u, .2 * u)
    canvas.paint(shapes, skin, ARM[side], shadow=.25, behind=behind)


def _face(canvas: _Canvas, draw: Draw, body: Body, skin: np.ndarray, hair: np.ndarray) -> np.ndarray:
    """Paint the face; return nose, right eye, left eye, right ear and left ear, [5, 2]."""
    yaw, jaw, smile, iris = draw.uniform(-.05, .05), draw.uniform(.9, 1.1), draw.uniform(.05, .09), draw.choice(EYES)
    outline = mirror([(0, -.5), (.25, -.45), (.37, -.22), (.38, .04), (.33 * jaw, .27), (.18 * jaw, .44), (0, .5)])
    ears, eyes, white = np.array([(-.385, .04), (.385, .04)]), np.array([(yaw - .155, .03), (yaw + .155, .03)]), 250
    canvas.paint([body.head(ear) for ear in _discs(ears, .065, .1)], .97 * skin, FACE)
    canvas.paint([body.head(curve(outline, True))], skin, FACE, shadow=.25)

    def detail(shapes: list[np.ndarray], colour: Any) -> None:
        canvas.paint([body.head(shape) for shape in shapes], np.asarray(colour))
    detail(_discs(eyes + [(-.04, .17), (.04, .17)], .07, .05), skin * (1, .93, .91))
    pupils = eyes + (yaw / 3, 0)
    for places, rx, ry, colour in ((eyes, .072, .05, white), (pupils, .045, .045, iris), (pupils, .024, .024, 20),
                                   (pupils + (.014, -.016), .011, .011, white)):
        detail(_discs(places, rx, ry), colour)
    lid, brow = [(-.078, .005), (0, -.055), (.078, .005)], [(-.085, -.105), (0, -.125), (.085, -.105)]
    detail([quad for eye in eyes for quad in _line(eye + lid, .018)], .5 * hair)
    detail([quad for eye in eyes for quad in _line(eye + brow, .036)], .75 * hair)
    detail(_line([(yaw * 1.3 - .012, .06), (yaw * 1.7 + .045, .165), (yaw * 1.4 - .02, .185)], .018), .84 * skin)
    upper, lower = (curve([(yaw - .12, .29 - smile / 2), (yaw, .275 + y), (yaw + .12, .29 - smile / 2)])
                    for y in (smile / 2, smile / 2 + .04))
    detail(strip(upper, lower), skin * (.92, .62, .62))
    return body.head([(yaw * 1.7, .14), *eyes, *ears])


def _back_hair(canvas: _Canvas, body: Body, hair: np.ndarray, style: str, length: float) -> None:
    head, torso, u = body.head, body.figure.torso, body.figure.unit
    shapes = [head(curve(mirror([(0, -.58), (.4, -.42), (.46, 0), (.36, .2), (0, .25)]), True))]
    if style in ('bob', 'bangs'):
        shapes += [head(curve(mirror([(0, -.55), (.42, -.4), (.5, .05), (.48, .5), (.3, .58), (0, .55)]), True))]
    elif style == 'long':
        shapes += [np.concatenate([head(curve([(-.44, -.3), (-.5, .2), (-.5, .6)])),
                                   torso(curve([(-.52, .1), (-.4, .5), (.4, .5), (.52, .1)])),
                                   head(curve([(.5, .6), (.5, .2), (.44, -.3)]))])]
    elif style == 'bun':
        shapes += [head(each) for each in _discs([(0, -.68)], .2, .17)]
    elif style == 'tail':
        tail = np.concatenate([head([(.2, -.3), (.5, .05), (.52, .4)]), torso([(.5, -.1), (.46, .2 + length / 3)])])
        shapes += _line(tail, .22 * u)
    canvas.paint(shapes, hair, HAIR, shadow=.1)


def _front_hair(canvas: _Canvas, draw: Draw, body: Body, hair: np.ndarray, style: str, length: float) -> None:
    """Paint the hair around the face, and long hair in front of the shoulders."""
    full, parting, low = .12 if style == 'curly' else .05, draw.uniform(-.2, .2), draw.uniform(-.31, -.21)
    dome = [(-.39, .02), (-.4 - full, -.2), (-.3 - full / 2, -.48), (0, -.53 - full), (.3 + full / 2, -.48),
            (.4 + full, -.2), (.39, .02)]
    line = ([(.37, -.06), (.3, -.16), (0, -.15), (-.3, -.16), (-.37, -.06)] if style in ('bob', 'bangs') else
            [(.36, -.1), (.28, low), (parting, low - .08), (-.28, low), (-.36, -.1)])
    curls = np.linspace(-1.6, 1.6, 9 if style == 'curly' else 0)
    shapes = [np.concatenate([curve(dome), curve(line)]),
              *_discs(np.stack([.44 * np.sin(curls), -.14 - .42 * np.cos(curls)], 1), .15, .15)]
    canvas.paint([body.head(shape) for shape in shapes], hair, HAIR, shadow=.15)
    for side in (RIGHT, LEFT) if style == 'long' else ():
        edges = [curve(np.concatenate([body.head([(side * x, y) for x, y in above]),
                                       body.figure.torso([(side * x, y) for x, y in below])])) for above, below in (
            ([(.37, -.12), (.36, .2), (.33, .5)], [(.3, .2), (.33, .6 * length), (.4, length)]),
            ([(.42, -.3), (.5, .2), (.52, .5)], [(.58, .2), (.58, .6 * length), (.44, length)]))]
        canvas.paint(strip(*edges), hair, HAIR, shadow=.2)


def _points(canvas: _Canvas, draw: Draw, body: Body, face: np.ndarray) -> np.ndarray:
    """Return BODY_25's points; one is found if its pixel belongs to a part it can be seen on."""
    below, torso = {PANTS, SKIRT}, body.figure.torso
    nose, *others = [(place, {FACE}) for place in face]
    arms, legs, feet = {}, {}, {}
    for side in (RIGHT, LEFT):
        sleeve, bare = {UPPER, ARM[side]}, {*below, LEG[side]}
        arms[side] = zip(body.figure.arms[side].at([0, ELBOW, 1], 0), ({*sleeve, TORSO, HAIR}, sleeve, sleeve))
        legs[side] = zip(body.legs[side].at([.02, .51, 1], 0), ({*below, UPPER}, bare, {*bare, SHOE[side]}))
        toes = turned([(-side * .06, .32), (side * .1, .26), (0, -.06)], -side * 14)
        feet[side] = [(place, {SHOE[side]}) for place in body.legs[side].at(1.06, 0) + body.figure.unit * toes]
    neck, hips = zip(torso([(0, .12), (0, 1.9)]), ({TORSO, UPPER}, {*below, UPPER}))
    listed = [nose, neck, *arms[RIGHT], *arms[LEFT], hips, *legs[RIGHT], *legs[LEFT], *others, *feet[LEFT],
              *feet[RIGHT]]
    points = np.column_stack([canvas.pixels([place for place, _ in listed]), draw.uniform(.6, .95, 25)])
    for point, (_, labels) in zip(points, listed):
        x, y = np.round(point[:2]).astype(int)
        if not (0 <= x < canvas.width and 0 <= y < canvas.height and canvas.parse[y, x] in labels):
            point[:] = 0
    return points
