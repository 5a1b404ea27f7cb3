"""The authors' clothing-agnostic person by their rules, drawn on the photograph, independent of the project's code.

Points are all 25 of BODY_25, in pixels of a picture of 1024 x 768; (0, 0) is a point that was not found.
"""
import numpy as np
from PIL import Image, ImageDraw

NECK = 1
RIGHT, LEFT = (2, 3, 4, 9), (5, 6, 7, 12)  # shoulder, elbow, wrist, hip


def found(*points):
    return all(x != 0 or y != 0 for x, y in points)


def disc(pen, centre, ink, across, down=None):
    x, y = centre
    down = across if down is None else down
    pen.ellipse((x - across, y - down, x + across, y + down), ink)


def agnostic_parse(labels, points):
    """S_a: uint8 [1024, 768]."""
    result = labels.copy()
    for label, side, other in ((14, LEFT, RIGHT), (15, RIGHT, LEFT)):
        arm = Image.new('1', labels.shape[::-1])
        pen = ImageDraw.Draw(arm)
        at = points[other[0]]
        for joint, radius in zip(side, (150, 150, 40)):  # shoulder, elbow, wrist
            if found(at, points[joint]):
                pen.line([tuple(at), tuple(points[joint])], 1, 100)
                disc(pen, points[joint], 1, radius)
                at = points[joint]
        result[np.array(arm) & (labels == label)] = 0
    result[np.isin(labels, (5, 6, 7, 10))] = 0
    return result


def agnostic(image, labels, points):
    """I_a: uint8 [1024, 768, 3]."""
    points = points.copy()
    middle = (points[9] + points[12]) / 2
    ratio = np.linalg.norm(points[12] - points[9]), np.linalg.norm(points[5] - points[2])
    for hip in (9, 12):
        points[hip] = middle + (points[hip] - middle) / ratio[0] * ratio[1]
    picture = Image.fromarray(image)
    pen, grey = ImageDraw.Draw(picture), (128, 128, 128)

    def line(a, b, width):
        pen.line([tuple(points[a]), tuple(points[b])], grey, width)
    line(2, 5, 200)
    for shoulder, elbow, wrist, hip in (RIGHT, LEFT):
        disc(pen, points[shoulder], grey, 100)
        for before, joint in ((shoulder, elbow), (elbow, wrist)):
            if found(points[before], points[joint]):
                line(before, joint, 200)
                disc(pen, points[joint], grey, 100)
        disc(pen, points[hip], grey, 60, 120)
        line(shoulder, hip, 120)
    line(9, 12, 240)
    pen.polygon([tuple(points[joint]) for joint in (2, 5, 12, 9)], grey)
    x, y = points[NECK]
    pen.rectangle((x - 140, y - 140, x + 140, y + 140), grey)
    shown = np.isin(labels, (4, 13, 9, 12, 16, 17, 18, 19))[..., np.newaxis]
    return np.where(shown, image, np.asarray(picture))
