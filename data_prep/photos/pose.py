"""The pose in a photograph, as OpenPose would write it, by BlazePose's two networks (Bazarevsky et al. 2020)."""
import hashlib
import json
import os
import threading
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from data_prep import UserError
from data_prep.photos import detector, landmarks
from data_prep.photos.landmarks import Landmarks

FOLDER = 'weights/blazepose'  # where `pipelines.fetch blazepose` puts them
# A network's file, the SHA-256 it has in mediapipe 0.10.21, and what it is called here.
FILES = {'detector': ('pose_detection.tflite', '9ba9dd3d42efaaba86b4ff0122b06f29c4122e756b329d89dca1e297fd8f866c'),
         'landmarks': ('pose_landmark_full.tflite', 'e9a5c5cb17f736fafd4c2ec1da3b3d331d6edbe8a0d32395855aeb2cdfd64b9f')}
LEAST_PRESENCE = 0.5  # below which a detection was of no person
LEAST_CONFIDENCE = 0.1  # below which a point counts as not found

# Which of BlazePose's landmarks each point of BODY_25 is; neck, middle of the hips and small toes are none.
NECK, MIDDLE_HIP = 1, 8
_BODY_25 = {0: 0, 2: 12, 3: 14, 4: 16, 5: 11, 6: 13, 7: 15, 9: 24, 10: 26, 11: 28, 12: 23, 13: 25, 14: 27, 15: 5, 16: 2,
            17: 8, 18: 7, 19: 31, 21: 29, 22: 32, 24: 30}
_BETWEEN = {NECK: (2, 5), MIDDLE_HIP: (9, 12)}
_EARS = ((17, 15, 16), (18, 16, 15))  # an ear, its own eye and the other
_BEYOND = 0.15  # of the distance of the eyes
_MOUTH = (9, 10)
_CHIN = 2.0  # times as far from the nose as the mouth


class Pose(NamedTuple):
    """A person's pose, in pixels of a photograph.

    Attributes:
      points: float [25, 3], x, y and confidence, in BODY_25's order; all are there, also outside of the photograph.
      chin: float [2].
      turned: by how many radians the person is turned clockwise from upright.
      score: how certain the detector is.
    """
    points: np.ndarray
    chin: np.ndarray
    turned: float
    score: float

    def moved(self, scale: float, left: float, top: float) -> 'Pose':
        """The pose in a photograph that was cut at `left` and `top` and then scaled."""
        def move(places):
            return (places + 0.5 - [left, top]) * scale - 0.5
        return self._replace(points=np.column_stack([move(self.points[:, :2]), self.points[:, 2]]),
                             chin=move(self.chin))

    def seen(self, height: int, width: int) -> np.ndarray:
        """The points as OpenPose gives them, [25, 3]: all zero if outside of the photograph, hidden or unsure."""
        points = self.points.copy()
        x, y, confidence = points.T
        inside = (x >= 0) & (x <= width - 1) & (y >= 0) & (y <= height - 1)
        points[~inside | (confidence < LEAST_CONFIDENCE)] = 0
        return points


def as_openpose(points: np.ndarray) -> bytes:
    """Points [25, 3] as OpenPose's JSON of one person."""
    person = {'person_id': [-1], 'pose_keypoints_2d': points.round(3).ravel().tolist()}
    return json.dumps({'version': 1.3, 'people': [person]}).encode()


def body_25(found: Landmarks) -> np.ndarray:
    """Landmarks -> BODY_25's points, float [25, 3]; the small toes are zero."""
    points = np.zeros((25, 3))
    for point, number in _BODY_25.items():
        points[point] = *found.places[number], found.confidence[number]
    for point, (one, other) in _BETWEEN.items():
        points[point] = (points[one] + points[other]) / 2
        points[point, 2] = min(points[one, 2], points[other, 2])
    for ear, eye, other in _EARS:
        # BlazePose is sure of an ear that is turned away, too; then it lies beside its eye, and not beyond.
        across = points[eye, :2] - points[other, :2]
        if np.dot(points[ear, :2] - points[eye, :2], across) <= _BEYOND * np.dot(across, across):
            points[ear, 2] = 0
    return points


class BlazePose:
    """Both networks, run by TensorFlow Lite, one photograph at a time.

    Args:
      folder: where their files are.

    Raises:
      UserError: a file is missing or is another one.
    """

    def __init__(self, folder: str = FOLDER):
        self._nets = {name: _network(os.path.join(folder, file), digest) for name, (file, digest) in FILES.items()}
        self._lock = threading.Lock()

    def people(self, pixels: np.ndarray) -> list[Pose]:
        """The people in a photograph, uint8 [h, w, 3], the largest first."""
        square, scale, border = detector.letterbox(pixels)
        values, logits = self.answers('detector', square)
        found = []
        for each in detector.decode(values, logits[:, 0], scale, border):
            region = each.region()
            if not region.side > 1:
                continue
            values, presence, _, heat, _ = self.answers('landmarks', landmarks.crop(pixels, region))
            marks = landmarks.decode(values, float(presence[0]), heat, region)
            if marks.presence >= LEAST_PRESENCE:
                nose, mouth = marks.places[0], marks.places[_MOUTH, :].mean(0)
                found.append((region.side, Pose(body_25(marks), nose + _CHIN * (mouth - nose), region.turned,
                                                each.score)))
        return [pose for _, pose in sorted(found, key=lambda each: -each[0])]

    def answers(self, name: str, inputs: np.ndarray) -> list[np.ndarray]:
        """All outputs of a network, without the batch's axis, in the order of its file."""
        net = self._nets[name]
        with self._lock:
            net.set_tensor(net.get_input_details()[0]['index'], inputs[np.newaxis])
            net.invoke()
            return [net.get_tensor(output['index'])[0] for output in net.get_output_details()]


def _network(path: str, digest: str) -> tf.lite.Interpreter:
    if not tf.io.gfile.exists(path):
        raise UserError(f'{path}: not found. Run `python -m pipelines.fetch blazepose`, or name the folder that has it '
                        'with --blazepose.')
    with tf.io.gfile.GFile(path, 'rb') as file:
        content = file.read()
    if hashlib.sha256(content).hexdigest() != digest:
        raise UserError(f'{path}: not the file of mediapipe 0.10.21. Remove it and run `python -m pipelines.fetch '
                        'blazepose`.')
    # One thread and no delegate: sums come in one order, and nothing is printed. A photograph takes 60 ms.
    net = tf.lite.Interpreter(
        model_content=content, num_threads=1,
        experimental_op_resolver_type=tf.lite.experimental.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES)
    net.allocate_tensors()
    return net
