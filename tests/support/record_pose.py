"""Records what BlazePose's networks answer about a made person, for tests that have no network.

    PYTHONPATH=.:tests python -m support.record_pose weights/blazepose

Logits are rounded to a sixteenth within [-8, 8), beyond which a sigmoid is 0 or 1 to 3e-4.
"""
import pathlib
import sys

import numpy as np

from data_prep.people import sample_people
from data_prep.photos import detector, landmarks, pose

PATH = pathlib.Path(__file__).with_name('recorded_pose.npz')
SEED, NUMBER, SIZE = 1, 50_010, (512, 384)
_STEP, _MOST = 16, 8


def record(models: str) -> dict[str, np.ndarray]:
    """Rows of the detector that are near a person, and the answer of the landmark network."""
    net, pixels = pose.BlazePose(models), sample_people.make_person(SEED, NUMBER, SIZE).image
    square, scale, border = detector.letterbox(pixels)
    values, logits = net.answers('detector', square)
    near = np.flatnonzero(logits[:, 0] > -_MOST)
    [found] = detector.decode(values, logits[:, 0], scale, border)
    marks, presence, _, heat, _ = net.answers('landmarks', landmarks.crop(pixels, found.region()))
    return {'near': near.astype(np.int16), 'values': values[near], 'logits': logits[near, 0], 'landmarks': marks,
            'presence': presence, 'heat': np.clip(np.round(heat * _STEP), -_MOST * _STEP, 127).astype(np.int8)}


def answers() -> dict[str, np.ndarray]:
    """The recorded answers as the networks give them."""
    with np.load(PATH) as file:
        found = dict(file)
    values, logits = np.zeros((len(detector.anchors()), 12)), np.full(len(detector.anchors()), -float(_MOST))
    values[found['near']], logits[found['near']] = found['values'], found['logits']
    return found | {'values': values, 'logits': logits, 'heat': found['heat'].astype(np.float32) / _STEP}


if __name__ == '__main__':
    np.savez_compressed(PATH, **record(sys.argv[1]))
    print(PATH, PATH.stat().st_size)
