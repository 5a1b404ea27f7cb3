"""Estimate poses with BlazePose's two networks (Bazarevsky et al. 2020), in OpenPose's format."""
import hashlib
import json
import os
import threading
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from data_prep import UserError
from data_prep.core import files
from data_prep.photos import detector, landmarks
from data_prep.photos.landmarks import Landmarks

# Network -> its file, and the SHA-256 of that file in mediapipe 0.10.21.
FILES = {'detector': ('pose_detection.tflite', '9ba9dd3d42efaaba86b4ff0122b06f29c4122e756b329d89dca1e297fd8f866c'),
         'landmarks': ('pose_landmark_full.tflite', 'e9a5c5cb17f736fafd4c2ec1da3b3d331d6edbe8a0d32395855aeb2cdfd64b9f')}
MIN_PRESENCE = 0.5  # a detection with less is not a person
MIN_CONFIDENCE = 0.1  # a point with less counts as not found

# Point of BODY_25 -> landmark of BlazePose, which has no neck, middle of the hips or small toes.
NECK, MIDDLE_HIP = 1, 8
_BODY_25 = {0: 0, 2: 12, 3: 14, 4: 16, 5: 11, 6: 13, 7: 15, 9: 24, 10: 26, 11: 28, 12: 23, 13: 25, 14: 27, 15: 5, 16: 2,
            17: 8, 18: 7, 19: 31, 21: 29, 22: 32, 24: 30}
_BETWEEN = {NECK: (2, 5), MIDDLE_HIP: (9, 12)}
_EARS = ((17, 15, 16), (18, 16, 15))  # an ear, the eye on its side and the other eye
_BEYOND = 0.15  # how far a visible ear is at least beyond its eye, as a fraction of the distance between the eyes
_MOUTH = (9, 10)
_CHIN = 2.0  # distance from nose to chin / distance from nose to mouth


class Pose(NamedTuple):
    """A person's pose, in pixels of a photograph.

    Attributes:
      points: float [25, 3], x, y and confidence, in BODY_25's order; they may lie outside the photograph.
      chin: float [2].
      rotation: clockwise from upright, in radians.
      score: the detector's confidence.
    """
    points: np.ndarray
    chin: np.ndarray
    rotation: float
    score: float

    def moved(self, scale: float, left: float, top: float) -> 'Pose':
        """Return the pose in an image that was cut at `left` and `top` and then scaled."""
        def move(positions):
            return (positions + 0.5 - [left, top]) * scale - 0.5
        return self._replace(points=np.column_stack([move(self.points[:, :2]), self.points[:, 2]]),
                             chin=move(self.chin))

    def seen(self, height: int, width: int) -> np.ndarray:
        """Return the visible points as OpenPose does, [25, 3]: zero if outside the image, hidden or below 0.1."""
        points = self.points.copy()
        x, y, confidence = points.T
        inside = (x >= 0) & (x <= width - 1) & (y >= 0) & (y <= height - 1)
        points[~inside | (confidence < MIN_CONFIDENCE)] = 0
        return points


def as_openpose(points: np.ndarray) -> bytes:
    """Write points [25, 3] as OpenPose's JSON for one person."""
    person = {'person_id': [-1], 'pose_keypoints_2d': points.round(3).ravel().tolist()}
    return json.dumps({'version': 1.3, 'people': [person]}).encode()


def body_25(found: Landmarks) -> np.ndarray:
    """Convert landmarks to BODY_25's points, float [25, 3]; the small toes are zero."""
    points = np.zeros((25, 3))
    for point, number in _BODY_25.items():
        points[point] = *found.positions[number], found.confidence[number]
    for point, (one, other) in _BETWEEN.items():
        points[point] = (points[one] + points[other]) / 2
        points[point, 2] = min(points[one, 2], points[other, 2])
    for ear, eye, other in _EARS:
        # BlazePose is also confident of an ear that is turned away, but places it beside its eye, not beyond it.
        across = points[eye, :2] - points[other, :2]
        if np.dot(points[ear, :2] - points[eye, :2], across) <= _BEYOND * np.dot(across, across):
            points[ear, 2] = 0
    return points


class BlazePose:
    """BlazePose's detector and landmark network, run by TensorFlow Lite; thread-safe.

    Args:
      folder: folder of their files.

    Raises:
      UserError: a file is missing or has another SHA-256.
    """

    def __init__(self, folder: str):
        self._nets = {name: _network(os.path.join(folder, file), digest) for name, (file, digest) in FILES.items()}
        self._lock = threading.Lock()

    def people(self, pixels: np.ndarray) -> list[Pose]:
        """Return the people in a photograph, uint8 [h, w, 3], the largest first."""
        square, scale, border = detector.letterbox(pixels)
        values, logits = self.outputs('detector', square)
        found = []
        for detection in detector.decode(values, logits[:, 0], scale, border):
            region = detection.region()
            if not region.side > 1:
                continue
            values, presence, _, heat, _ = self.outputs('landmarks', landmarks.crop(pixels, region))
            marks = landmarks.decode(values, float(presence[0]), heat, region)
            if marks.presence >= MIN_PRESENCE:
                nose, mouth = marks.positions[0], marks.positions[_MOUTH, :].mean(0)
                found.append((region.side, Pose(body_25(marks), nose + _CHIN * (mouth - nose), region.rotation,
                                                detection.score)))
        return [pose for _, pose in sorted(found, key=lambda each: -each[0])]

    def outputs(self, name: str, inputs: np.ndarray) -> list[np.ndarray]:
        """Run a network on one input; return its outputs without the batch axis, in the file's order."""
        net = self._nets[name]
        with self._lock:
            net.set_tensor(net.get_input_details()[0]['index'], inputs[np.newaxis])
            net.invoke()
            return [net.get_tensor(output['index'])[0] for output in net.get_output_details()]


def _network(path: str, digest: str) -> tf.lite.Interpreter:
    if not tf.io.gfile.exists(path):
        raise UserError(f'{path}: not found. Run `python -m pipelines.fetch blazepose`, or name its folder with '
                        '--blazepose.')
    content = files.read(path, 0, -1)
    if hashlib.sha256(content).hexdigest() != digest:
        raise UserError(f'{path}: not the file of mediapipe 0.10.21. Remove it and run `python -m pipelines.fetch '
                        'blazepose`.')
    # One thread and no delegate: sums have a fixed order, and nothing is printed. A photograph takes 60 ms.
    net = tf.lite.Interpreter(
        model_content=content, num_threads=1,
        experimental_op_resolver_type=tf.lite.experimental.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES)
    net.allocate_tensors()
    return net
