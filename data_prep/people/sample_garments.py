"""Tops for generated people: cut, laid flat on a white ground, and put on a body.

A cut is a plan in body coordinates: the unit is a head's height, the origin is between the shoulders, x goes right and
y down. Lying flat and being worn are two figures (where the torso goes, and where the arms do) of the same plan, so
each point of the flat top has its place on the body. Thin-plate splines, one for the torso and one for each sleeve,
carry the texture between the two.
"""
import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from data_prep import UserError

try:
    import cv2
except ImportError as error:
    raise UserError('data.samples: people are drawn with OpenCV, which is not installed; run '
                    '`pip install opencv-python-headless`.') from error

Points = Any  # [n, 2], x and y
Draw = np.random.Generator
LEFT, RIGHT = 1, -1  # the person's own: the left arm is on the right of the picture
SHOULDER = np.array([.8, .28])  # the joint; of the left arm
ARM_LENGTH, ELBOW = 2.3, .54  # and where on its way the elbow is
FINE = 4  # an edge is drawn at four times the size
INK = np.array([(240, 240, 236), (32, 34, 40), (196, 44, 52), (28, 62, 128), (232, 176, 44), (46, 112, 74),
                (222, 120, 148), (116, 176, 214), (120, 74, 150), (232, 112, 56), (128, 130, 136), (108, 72, 52),
                (40, 150, 150), (206, 190, 158)])
PATTERNS = {'plain': .3, 'stripes': .25, 'checks': .15, 'dots': .15, 'block': .15}  # and how probable each is
WORDS = 'TF', 'HI', 'OK', '42', 'A', 'YES', 'B7', 'RUN', 'ART', 'K', 'SUN', '88', 'ZOO', 'E=m'
_A = np.linspace(0, 2 * np.pi, 120, endpoint=False)
_RAY = np.stack([np.sin(_A), -np.cos(_A)], 1)
EMBLEMS: dict[str, list[np.ndarray]] = {  # polygons about 0, 0, from -1 to 1
    'star': [_RAY[::12] * np.tile([[1], [.42]], (5, 1))],
    'flower': [_RAY * (.7 + .3 * np.cos(5 * _A))[:, None]],
    'heart': [np.stack([.95 * np.sin(_A) ** 3, .33 * np.cos(2 * _A) + .12 * np.cos(3 * _A) - .8 * np.cos(_A)], 1)],
    'disc': [_RAY * .85],
    'triangle': [np.array([(0, -.9), (.95, .75), (-.95, .75)])],
    'bolt': [np.array([(.3, -1), (-.6, .15), (-.05, .15), (-.3, 1), (.6, -.2), (.05, -.2)])],
    'bars': [np.array([(-.9, y), (.9, y), (.9, y + .4), (-.9, y + .4)]) for y in (-.9, -.2, .5)],
}


def curve(points: Points, closed: bool = False, steps: int = 8) -> np.ndarray:
    """Return a smooth line through points, by Catmull and Rom: [steps * n + …, 2]."""
    p = np.asarray(points, float)
    ends = (p[-1:], p[:2]) if closed else (2 * p[:1] - p[1:2], 2 * p[-1:] - p[-2:-1])
    q = np.concatenate([ends[0], p, ends[1]])
    a, b, c, d = (q[i:len(q) - 3 + i, None] for i in range(4))
    t = np.arange(steps)[:, None] / steps
    line = b + t * (c - a) / 2 + t ** 2 * (a - 2.5 * b + 2 * c - d / 2) + t ** 3 * (1.5 * (b - c) + (d - a) / 2)
    return np.concatenate([line.reshape(-1, 2), p[:0] if closed else p[-1:]])


def mirror(points: Points) -> np.ndarray:
    """Complete a symmetric line or outline from its right half, without repeating points in the middle."""
    half = np.asarray(points, float)
    return np.concatenate([half, half[half[:, 0] != 0][::-1] * (-1, 1)])


def strip(left: Points, right: Points) -> list[np.ndarray]:
    """Return the quadrilaterals between two lines [n, 2]; unlike one outline, they may overlap."""
    return list(np.stack([left[:-1], left[1:], right[1:], right[:-1]], 1))


def turned(points: Points, degrees: float) -> np.ndarray:
    """Turn points about the origin, clockwise in the image."""
    c, s = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
    return np.asarray(points, float) @ np.array([[c, s], [-s, c]])


class Limb:
    """An arm or a leg: a line from `a` over the joint `b` to `c` and on, with the joint rounded."""

    def __init__(self, a: Points, b: Points, c: Points, side: int):
        t = np.linspace(0, 1, 12)[:, None]
        bend = b + .5 * ((1 - t) ** 2 * (a - b) + t ** 2 * (c - b))
        self.line = np.concatenate([[a], bend, [c], [c + .6 * (c - b)]]) @ (1, 1j)
        steps = np.abs(np.diff(self.line))
        self.length = steps[:-1].sum()
        self.s = np.concatenate([[0], np.cumsum(steps)]) / self.length
        self.side = side

    def at(self, s: Points, t: Points) -> np.ndarray:
        """Return points at the fraction `s` of the way from a to c, `t` of the line's units to the outside."""
        s, t = np.broadcast_arrays(np.atleast_1d(s).astype(float), t)
        ahead = np.interp(s + .02, self.s, self.line) - np.interp(s - .02, self.s, self.line)
        place = np.interp(s, self.s, self.line) - 1j * self.side * t * ahead / np.abs(ahead)
        return np.stack([place.real, place.imag], -1)

    def tube(self, s: Points, widths: Points) -> list[np.ndarray]:
        """Return the outline from s[0] to s[-1] in quadrilaterals; `widths` are half widths at `s`."""
        fine = np.linspace(s[0], s[-1], 24)
        width = np.interp(fine, s, widths)
        return strip(self.at(fine, width), self.at(fine, -width))


class Figure(NamedTuple):
    """A map of body coordinates to an image, in `Frame`'s units; `unit` is a head's height there."""
    torso: Callable[[Points], np.ndarray]
    arms: dict[int, Limb]
    unit: float


class Part(NamedTuple):
    """A piece of a top in one figure; in any figure it has the same points in the same order."""
    shapes: list[np.ndarray]  # polygons whose union it is
    controls: np.ndarray      # points the splines carry over exactly
    hems: list[np.ndarray]    # lines to be trimmed


@dataclasses.dataclass(frozen=True)
class Cut:
    """Describe how a top is cut, in body coordinates; `sleeve` is the fraction of the arm it covers, 0 for none."""
    neckline: str
    neck: tuple[float, float]  # half width and depth
    sleeve: float
    cuff: float
    shoulder: float
    ease: float
    flare: float
    length: float

    @classmethod
    def drawn(cls, draw: Draw) -> 'Cut':
        """Draw a random cut."""
        sleeve = draw.choice([0, draw.uniform(.24, .4), draw.uniform(.6, .75), draw.uniform(.93, 1)],
                             p=[.2, .35, .1, .35])
        neckline = str(draw.choice(['round', 'v', 'square', 'boat']))
        depth = {'round': (.16, .5), 'v': (.4, .85), 'square': (.3, .55), 'boat': (.08, .16)}[neckline]
        width = (.5, .58) if neckline == 'boat' else (.28, .44)
        return cls(neckline, (draw.uniform(*width), draw.uniform(*depth)), float(sleeve),
                   cuff=draw.uniform(.15, .2) + (draw.random() < .2) * .1,
                   shoulder=draw.uniform(.84, .9) if sleeve else draw.uniform(.64, .76),
                   ease=draw.uniform(.04, .14), flare=draw.choice([0, draw.uniform(0, .25)]),
                   length=draw.uniform(1.7, 2.45))

    def parts(self, figure: Figure) -> list[Part]:
        """Return the torso and the sleeves, from back to front."""
        arms = [self._sleeve(figure, side) for side in (RIGHT, LEFT)] if self.sleeve else []
        return [self._torso(figure), *arms]

    def _seam(self, side: int) -> np.ndarray:
        """Return the armhole, from the shoulder down: [3, 2]."""
        pit = .65 + self.ease
        return np.array([(self.shoulder, .12 - .12 * (.84 - self.shoulder)),
                         (min(pit, self.shoulder) - .06, .45), (pit, .76)]) * (side, 1)

    def _torso(self, figure: Figure) -> Part:
        w, depth = self.neck
        top = -.06 + .16 * (w - .2)  # on the slope of the shoulder
        neck = {'round': [(w, top), (.75 * w, top + .6 * (depth - top)), (0, depth)],
                'boat': [(w, top), (.6 * w, top + .8 * (depth - top)), (0, depth)],
                'v': [(w, top), (0, depth)],
                'square': [(w, top), (.85 * w, depth), (0, depth)]}[self.neckline]
        line = mirror(neck)
        line = curve(line) if self.neckline in ('round', 'boat') else line
        waist, hip = (.6 + self.ease + .5 * self.flare, 1.3), (.7 + self.ease + self.flare, max(1.9, self.length - .2))
        side = [(.65 + self.ease, .76), waist, hip][:2 if hip[1] > self.length else 3]
        hem = (hip[0], self.length)
        half = np.concatenate([curve(self._seam(LEFT)), curve([*side, hem])])
        bottom = curve([hem, (0, self.length + .05), (-hem[0], hem[1])])
        outline = np.concatenate([line[::-1], half, bottom, half[::-1] * (-1, 1)])
        middle = [(0, y) for y in (depth, .5 * depth + .5, 1.3, self.length + .05)]
        sides = [(w, top), *self._seam(LEFT), waist, (.5 * (waist[0] + hem[0]), .5 * (1.3 + hem[1])), hem,
                 (.35, 1.), (.35, 1.7)]
        controls = np.concatenate([middle, mirror(sides)])
        return Part([figure.torso(outline)], figure.torso(controls), [figure.torso(each) for each in (line, bottom)])

    def _sleeve(self, figure: Figure, side: int) -> Part:
        arm, u, rows = figure.arms[side], figure.unit, np.arange(1, 7) / 6
        tip, seam, pit = figure.torso(self._seam(side))
        inward = figure.torso(self._seam(side)[1:2] - (.06 * side, 0))
        under = .2 + rows * (self.sleeve - .2)  # the seam under the arm begins at the armpit
        top, cuff = .25 + .4 * self.ease, max(self.cuff, .27 - .14 * self.sleeve)
        outer = arm.at(self.sleeve * rows, u * (top + (cuff - top) * rows))
        inner = arm.at(under, -u * (top + (cuff - top) * rows))
        over, below = curve([tip, *outer]), curve([pit, *inner])
        shapes = [*strip(over, below), np.concatenate([[tip], inward, [pit]])]
        return Part(shapes, np.concatenate([[tip, seam, pit], outer, inner, (outer + inner)[::2] / 2]),
                    [np.stack([over[-1], below[-1]])])


def spline(source: Points, target: Points) -> Callable[[Points], np.ndarray]:
    """Return the thin-plate spline that maps each of the `source` points to its `target`."""
    def basis(points: np.ndarray) -> np.ndarray:
        square = (points[:, :1] - source[:, 0]) ** 2 + (points[:, 1:] - source[:, 1]) ** 2
        return np.concatenate([square * np.log(square + 1e-12), np.ones((len(points), 1)), points], 1)
    system = np.zeros([len(source) + 3] * 2)
    system[:len(source)] = basis(source)
    system[len(source):, :len(source)] = system[:len(source), len(source):].T
    weights = np.linalg.solve(system, np.concatenate([target, np.zeros((3, 2))]))
    return lambda points: basis(points) @ weights


class Frame:
    """Pixels of an image and its units, in which it is 1 high, 0 is its top, and x is 0 in the middle."""

    def __init__(self, size: tuple[int, int]):
        self.height, self.width = size
        self.unit = min(self.height, self.width * 4 / 3)
        self.middle = np.array([self.width - 1, self.height - 1]) / 2

    def pixels(self, points: Points) -> np.ndarray:
        """Convert units to pixels, whose centres are at whole numbers."""
        return (np.asarray(points) - (0, .5)) * self.unit + self.middle

    def units(self, pixels: Points) -> np.ndarray:
        """Convert pixels to units."""
        return (pixels - self.middle) / self.unit + (0, .5)

    def cover(self, shapes: list[np.ndarray], margin: float = 0) -> tuple[tuple[slice, slice], np.ndarray]:
        """Return the window around polygons, with a margin, and the fraction of each of its pixels they cover."""
        every, more = self.pixels(np.concatenate(shapes)), 1 + int(margin * self.unit)
        x0, y0 = np.clip(np.floor(every.min(0)).astype(int) - more, 0, (self.width - 1, self.height - 1))
        x1, y1 = np.clip(np.ceil(every.max(0)).astype(int) + more, (x0, y0), (self.width - 1, self.height - 1)) + 1
        fine = np.zeros(((y1 - y0) * FINE, (x1 - x0) * FINE), np.uint8)
        corners = np.round(((every - (x0, y0) + .5) * FINE - .5) * 16).astype(np.int32)
        ends = np.cumsum([len(shape) for shape in shapes]).tolist()
        for start, end in zip([0, *ends], ends):  # together, they would leave holes where they overlap
            cv2.fillPoly(fine, [corners[start:end]], 255, shift=4)
        alpha = cv2.resize(fine, (x1 - x0, y1 - y0), interpolation=cv2.INTER_AREA)
        return (slice(y0, y1), slice(x0, x1)), alpha.astype(np.float32) / 255


@dataclasses.dataclass(frozen=True)
class Fabric:
    """The fabric of a top; lengths are in units of the flat image, `yoke` and `size` in heads."""
    kind: str
    colours: np.ndarray  # ground, pattern, and what is printed on it
    period: float
    duty: float
    angle: float
    yoke: float
    raglan: bool
    emblem: str
    size: float
    hem: float

    @classmethod
    def drawn(cls, draw: Draw) -> 'Fabric':
        """Draw a random fabric."""
        colours: list[np.ndarray] = []
        for _ in range(3):
            colours.append(draw.choice([ink for ink in INK if all(abs(ink - other).sum() > 160 for other in colours)]))
        emblems = [*WORDS, *EMBLEMS]
        return cls(str(draw.choice(list(PATTERNS), p=list(PATTERNS.values()))),
                   np.array(colours, np.float32), draw.uniform(.05, .13), draw.uniform(.3, .6),
                   np.radians(draw.choice([0, 90, 45, -45], p=[.2, .5, .15, .15])), draw.uniform(.7, 1.2),
                   draw.random() < .2, emblems[draw.integers(len(emblems))] if draw.random() < .7 else '',
                   draw.uniform(.28, .48), draw.choice([0, draw.uniform(.02, .035)]))

    def torso(self, frame: Frame, grid: np.ndarray, flat: Figure) -> np.ndarray:
        """Return the colours [h, w, 3] at positions in the flat image [h, w, 2]."""
        if self.kind != 'block':
            return self._mixed(self._pattern(frame, grid))
        return self._mixed(_edge(frame, grid[..., 1] - flat.torso([(0, self.yoke)])[0, 1]))

    def sleeve(self, frame: Frame, grid: np.ndarray) -> np.ndarray:
        """Return the colours of a sleeve that goes straight down from 0, 0, likewise."""
        return self._mixed(np.ones(grid.shape[:2]) if self.raglan else self._pattern(frame, grid))

    def _mixed(self, share: np.ndarray) -> np.ndarray:
        return self.colours[0] + (self.colours[1] - self.colours[0]) * share[..., None].astype(np.float32)

    def _pattern(self, frame: Frame, grid: np.ndarray) -> np.ndarray:
        (x, y), p = np.moveaxis(grid, -1, 0), self.period

        def bands(v: np.ndarray) -> np.ndarray:
            return _edge(frame, (self.duty / 2 - np.abs(v / p % 1 - .5)) * p)
        if self.kind == 'stripes':
            return bands(x * np.cos(self.angle) + y * np.sin(self.angle))
        if self.kind == 'checks':
            return (bands(x) + bands(y)) / 2
        if self.kind == 'dots':
            x = x + np.floor(y / p) % 2 * p / 2
            return _edge(frame, self.duty * p * .6 - np.hypot(x % p - p / 2, y % p - p / 2))
        return np.zeros_like(x)

    def trim(self, frame: Frame, texture: np.ndarray, parts: list[Part]) -> None:
        """Paint the hems."""
        alpha = np.zeros(texture.shape[:2], np.uint8)  # OpenCV smooths edges on bytes only
        lines = [np.round(frame.pixels(hem) * 16).astype(np.int32) for part in parts for hem in part.hems]
        cv2.polylines(alpha, lines, False, 255, max(1, round(2 * (self.hem or .006) * frame.unit)), cv2.LINE_AA, 4)
        _ink(texture, alpha / np.float32(255), self.colours[2] if self.hem else .8 * self.colours[0])

    def stamp(self, frame: Frame, texture: np.ndarray, at: Points, unit: float) -> None:
        """Print an emblem or a word around a position."""
        if self.emblem in EMBLEMS:
            window, alpha = frame.cover([at + self.size * unit * shape for shape in EMBLEMS[self.emblem]])
            _ink(texture[window], alpha, self.colours[2])
        elif self.emblem:
            font, written = cv2.FONT_HERSHEY_DUPLEX, np.zeros(texture.shape[:2], np.uint8)
            (w, h), _ = cv2.getTextSize(self.emblem, font, 1, 0)
            scale = unit * frame.unit * min(2.2 * self.size / w, .7 / h)
            x, y = np.round(frame.pixels([at])[0] + np.array([-w, h]) * scale / 2).astype(int).tolist()
            cv2.putText(written, self.emblem, (x, y), font, scale, 255, max(1, round(3.5 * scale)), cv2.LINE_AA)
            _ink(texture, written / np.float32(255), self.colours[2])


def _ink(texture: np.ndarray, alpha: np.ndarray, colour: np.ndarray) -> None:
    texture += (colour - texture) * alpha[..., None]


def _edge(frame: Frame, distance: np.ndarray) -> np.ndarray:
    return np.clip(distance * frame.unit + .5, 0, 1)


class Garment(NamedTuple):
    """A top laid flat."""
    cut: Cut
    flat: Figure
    texture: np.ndarray  # [height, width, 3], float32 levels 0 to 255, beyond the top's edges too
    mask: np.ndarray     # [height, width], the fraction of each pixel that is the top
    pattern: str         # one of `PATTERNS`

    @property
    def picture(self) -> np.ndarray:
        """Return the top on a white ground, uint8 [height, width, 3]."""
        return (255 + (self.texture - 255) * self.mask[..., None]).round().astype(np.uint8)


def lay_flat(draw: Draw, frame: Frame) -> Garment:
    """Draw a random top, laid flat; the draws do not depend on the image's size."""
    cut, fabric, turn, fill = Cut.drawn(draw), Fabric.drawn(draw), draw.uniform(-3, 3), draw.uniform(.84, .95)
    spread = draw.uniform(17, 24) + 35 * cut.flare + 25 * cut.ease if cut.sleeve > .5 else draw.uniform(35, 60)
    plan = np.concatenate([shape for part in cut.parts(_flat(np.zeros(2), 1, turn, spread)) for shape in part.shapes])
    low, high = plan.min(0), plan.max(0)
    scale = min(.28, fill / max((high - low) / (.75, 1)))
    flat = _flat((0, .5) - scale * (low + high) / 2 + draw.uniform(-.01, .01, 2), scale, turn, spread)
    parts = cut.parts(flat)
    grid = frame.units(np.stack(np.meshgrid(np.arange(frame.width), np.arange(frame.height)), -1)).astype(np.float32)
    texture, mask = fabric.torso(frame, grid, flat), np.zeros((frame.height, frame.width), np.float32)
    for part, side in zip(parts, (0, RIGHT, LEFT)):
        window, alpha = frame.cover(part.shapes)
        if side:  # the pattern follows the sleeve
            sleeve = fabric.sleeve(frame, turned(grid[window] - flat.arms[side].at(0, 0), side * spread - turn))
            _ink(texture[window], alpha, sleeve)
        mask[window] = np.maximum(mask[window], alpha)
    fabric.trim(frame, texture, parts)
    fabric.stamp(frame, texture, flat.torso([(0, max(.95, cut.neck[1] + fabric.size + .05))])[0], flat.unit)
    return Garment(cut, flat, texture, mask, fabric.kind)


def _flat(middle: np.ndarray, scale: float, turn: float, spread: float) -> Figure:
    """Return the figure of a top on a table: wider than on the body, since it is empty."""
    def torso(points: Points) -> np.ndarray:
        points = np.asarray(points, float)
        wide = 1 + .1 * np.clip(points[:, 1:], 0, .7)
        return middle + scale * turned(points * np.concatenate([wide, np.ones_like(wide)], 1), turn)

    def arm(side: int) -> Limb:
        a, = torso([SHOULDER * (side, 1)])
        along, = scale * ARM_LENGTH * turned([(0, 1)], turn - side * spread)
        return Limb(a, a + ELBOW * along, a + along, side)
    return Figure(torso, {side: arm(side) for side in (RIGHT, LEFT)}, scale)
