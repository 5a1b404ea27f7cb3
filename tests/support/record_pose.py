"""Record the outputs of BlazePose's networks for a drawn person, for tests that run without the networks.

    PYTHONPATH=.:tests python -m support.record_pose weights/blazepose

Heatmap logits are clipped to [-8, 8), beyond which a sigmoid is 0 or 1 to within 3e-4, and rounded to sixteenths.
"""
import pathlib
import sys

import numpy as np

from data_prep.people import sample_people
from data_prep.photos import detector, landmarks, pose

PATH = pathlib.Path(__file__).with_name('recorded_pose.npz')
SEED, NUMBER, SIZE = 1, 50_010, (512, 384)
_STEPS, _LIMIT = 16, 8  # quantisation steps per unit, and clipping, of logits


def record(models: str) -> dict[str, np.ndarray]:
    """Run both networks; keep the detector's rows with logits above -8, and the landmark network's outputs."""
    net, pixels = pose.BlazePose(models), sample_people.make_person(SEED, NUMBER, SIZE).image
    square, scale, border = detector.letterbox(pixels)
    values, logits = net.outputs('detector', square)
    near = np.flatnonzero(logits[:, 0] > -_LIMIT)
    [found] = detector.decode(values, logits[:, 0], scale, border)
    marks, presence, _, heat, _ = net.outputs('landmarks', landmarks.crop(pixels, found.region()))
    return {'near': near.astype(np.int16), 'values': values[near], 'logits': logits[near, 0], 'landmarks': marks,
            'presence': presence, 'heat': np.clip(np.round(heat * _STEPS), -_LIMIT * _STEPS, 127).astype(np.int8)}


def recorded() -> dict[str, np.ndarray]:
    """Load the recording in the form of the networks' outputs."""
    with np.load(PATH) as file:
        found = dict(file)
    values, logits = np.zeros((len(detector.anchors()), 12)), np.full(len(detector.anchors()), -float(_LIMIT))
    values[found['near']], logits[found['near']] = found['values'], found['logits']
    return found | {'values': values, 'logits': logits, 'heat': found['heat'].astype(np.float32) / _STEPS}


if __name__ == '__main__':
    np.savez_compressed(PATH, **record(sys.argv[1]))
    print(PATH, PATH.stat().st_size)
