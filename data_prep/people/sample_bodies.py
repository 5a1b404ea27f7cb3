"""Bodies of generated people: a figure, a head and legs, in a random build and pose."""
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from data_prep.people.sample_garments import (
    ARM_LENGTH,
    ELBOW,
    LEFT,
    RIGHT,
    SHOULDER,
    Draw,
    Figure,
    Limb,
    Points,
    turned,
)

POSES = {  # chance, degrees of the upper arm from straight down and out, degrees the forearm goes on from there
    'side': (.34, (9, 20), (-16, 6)), 'out': (.14, (28, 60), (-25, 20)), 'hip': (.14, (40, 54), (-98, -82)),
    'front': (.2, (10, 20), (-108, -76)), 'raised': (.1, (115, 150), (15, 60)), 'wave': (.08, (48, 70), (80, 105))}


class Body(NamedTuple):
    """The position of a person's parts in the image."""
    figure: Figure
    head: Callable[[Points], np.ndarray]  # of coordinates in heads: the chin is at 0, .5, the ears are at +-.38, 0
    legs: dict[int, Limb]
    poses: frozenset[str]


def build(draw: Draw) -> Body:
    """Draw a random body."""
    u = draw.uniform(.185, .22) if draw.random() < .9 else draw.uniform(.13, .16)
    middle = np.array([draw.uniform(-.05, .05), draw.uniform(.05, .1) + 1.4 * u])
    lean, turn, sway, tilt = draw.normal(size=4) * (2.5, .05, .05, .04)
    wide, waist = draw.uniform(.88, 1.12, 2)

    def torso(points: Points) -> np.ndarray:
        x, y = np.asarray(points, float).T
        down = np.clip(y / 1.3, 0, 1)
        across = x * wide * (1 + (waist - 1) * down) + turn * np.exp(-2 * x ** 2) + sway * np.clip(y, 0, 2) ** 2 / 2
        return middle + u * turned(np.stack([across, y + tilt * x * (1 - down)], 1), lean)

    def on(start: np.ndarray, length: float, degrees: float) -> np.ndarray:
        return start + u * turned([(0, length)], degrees)[0]
    arms, legs, poses, chances = {}, {}, {}, [chance for chance, _, _ in POSES.values()]
    for side in (RIGHT, LEFT):
        poses[side] = str(draw.choice(list(POSES), p=chances))
        _, upper, fore = POSES[poses[side]]
        shoulder, hip = torso([SHOULDER * (side, 1), (side * .36, 1.9)])
        angle, length = draw.uniform(*upper), ARM_LENGTH * draw.uniform(.94, 1.04)
        elbow = on(shoulder, ELBOW * length, lean - side * angle)
        wrist = on(elbow, (1 - ELBOW) * length, lean - side * (angle + draw.uniform(*fore)))
        arms[side] = Limb(shoulder, elbow, wrist, side)
        knee = on(hip, 1.65, -side * draw.uniform(0, 7))
        legs[side] = Limb(hip, knee, on(knee, 1.55, -side * draw.uniform(-4, 4)), side)
    nod = lean + draw.normal(0, 4)
    centre = on(torso([(0, 0)])[0], -.87, nod)
    return Body(Figure(torso, arms, u), lambda points: centre + u * turned(points, nod), legs,
                 frozenset(poses.values()))
