"""Parse people with the user's ONNX file, in the format of Self-Correction-Human-Parsing (SCHP, Li et al. 2020).

The input is float32 [1, 3, h, w] in BGR, normalised with ImageNet's mean and standard deviation. The output is class
scores, [1, labels, h', w'], with corners aligned to the input's. Of several such outputs the last is used: SCHP's first
is a coarse prediction, its last the one fused with edges.
"""
import cv2
import numpy as np
import tensorflow as tf

from data_prep import UserError
from data_prep.core import files
from data_prep.people import person
from data_prep.photos import labels

_MEAN, _STDDEV = np.array([0.406, 0.456, 0.485], np.float32), np.array([0.225, 0.224, 0.229], np.float32)
_SIDE = {'lip': 473, 'atr': 512, 'cihp': 512}  # height and width of the input where the file allows any


class UnusableMap(Exception):
    """Raised when a parse map does not fit its image; the message is the sentence for the user."""


class ExistingMap:
    """Parse map made elsewhere, with the interface of `Parser`.

    Args:
      path: of the PNG, for messages.
      content: the PNG.
    """
    name = 'cihp'

    def __init__(self, path: str, content: bytes):
        self._path, self._content = path, content

    def parse(self, pixels: np.ndarray) -> np.ndarray:
        """Return the labels of an image, uint8 [h, w, 3], as uint8 [h, w], indices in `person.LABELS`.

        Raises:
          UnusableMap: the map has another size than the image, or is not a PNG of labels.
        """
        try:
            found = person.parse_map(tf.constant(self._content)).numpy()
        except tf.errors.InvalidArgumentError as error:
            raise UnusableMap(f'{self._path} is not a PNG of labels. Save it as PNG.') from error
        if found.shape != pixels.shape[:2]:
            (height, width), (tall, wide) = pixels.shape[:2], found.shape
            raise UnusableMap(f'{self._path} has {wide} x {tall} pixels, but its image has {width} x {height}. Parse '
                              'the image in the folder `image`.')
        if (found == person.UNKNOWN).any():
            raise UnusableMap(f'{self._path} has labels that LIP does not. Save labels as grey levels 0 to 19.')
        return found


class Parser:
    """Human parser from an ONNX file.

    Args:
      path: the ONNX file.
      name: its label map, a key of `labels.MAPS`; '' chooses by the number of labels.

    Attributes:
      name: its label map.

    Raises:
      UserError: onnxruntime is not installed, the file is not such a parser, or its label map is unknown.
    """

    def __init__(self, path: str, name: str = ''):
        try:
            import onnxruntime
        except ImportError as error:
            raise UserError('--parser needs onnxruntime, which is not installed. Run `pip install onnxruntime`.'
                            ) from error
        if not tf.io.gfile.exists(path) or tf.io.gfile.isdir(path):
            raise UserError(f'--parser {path}: not a file. Give an ONNX file of a human parser.')
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1  # a fixed order of sums, so the same photograph always gives the same labels
        options.log_severity_level = 4
        try:
            content = files.read(path, 0, -1)  # bytes, so that external weights cannot open other files
            self._net = onnxruntime.InferenceSession(content, options, providers=['CPUExecutionProvider'],
                                                     enable_fallback=0)  # a fallback prints and retries the same
        except Exception as error:  # onnxruntime's exceptions have no common base class
            raise UserError(f'--parser {path}: onnxruntime cannot read it ({_reason(error)}). Give an ONNX file.'
                            ) from error
        self._path = path
        self._input, self._output, count = self._check()
        self.name = labels.choose(name, count, path)
        self._table = labels.table(self.name)

    def _check(self) -> tuple[str, str, int]:
        """Return the names of the input and the output, and the number of labels; refuse other networks."""
        inputs = self._net.get_inputs()
        outputs = [each for each in self._net.get_outputs() if len(each.shape) == 4 and isinstance(each.shape[1], int)]
        if [(each.type, len(each.shape), each.shape[1:2]) for each in inputs] != [('tensor(float)', 4, [3])]:
            described = ', '.join(f'{each.name} {each.type} {each.shape}' for each in inputs)
            raise UserError(f'--parser {self._path}: its inputs are {described}, but a parser takes one, float32 [1, '
                            '3, height, width]. Export it with that input.')
        if not outputs:
            raise UserError(f'--parser {self._path}: it has no output [1, labels, height, width] of class scores. '
                            'Export it without the final argmax.')
        count = outputs[0].shape[1]
        return inputs[0].name, [each.name for each in outputs if each.shape[1] == count][-1], count

    def parse(self, pixels: np.ndarray) -> np.ndarray:
        """Return the labels of an image, uint8 [h, w, 3], as uint8 [h, w], indices in `person.LABELS`.

        Raises:
          UserError: onnxruntime cannot run the file.
        """
        size = [side if isinstance(side, int) else _SIDE[self.name] for side in self._net.get_inputs()[0].shape[2:]]
        shown, (top, left), part = _fitted(pixels, size)
        inputs = ((shown[..., ::-1] / np.float32(255) - _MEAN) / _STDDEV).transpose(2, 0, 1)[np.newaxis]
        try:
            scores = self._net.run([self._output], {self._input: np.ascontiguousarray(inputs, np.float32)})[0][0]
        except Exception as error:  # no common base class
            raise UserError(f'--parser {self._path}: onnxruntime cannot run it ({_reason(error)}). Export it again.'
                            ) from error
        # Map each pixel of the image into the scores, whose corners are aligned to those of the padded input.
        height, width = pixels.shape[:2]
        step_y, step_x = ((cells - 1) / max(1, whole - 1) for cells, whole in zip(scores.shape[1:], size))
        y, x = part[0] / height, part[1] / width
        matrix = np.array([[x * step_x, 0, (x / 2 - 0.5 + left) * step_x],
                           [0, y * step_y, (y / 2 - 0.5 + top) * step_y]])
        resized = [cv2.warpAffine(each, matrix, (width, height), flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP,
                                  borderMode=cv2.BORDER_REPLICATE) for each in scores]
        return self._table[np.argmax(resized, 0)]


def _reason(error: Exception) -> str:
    """Return the beginning of an exception's text on one line."""
    return ' '.join(str(error).split())[:200]


def _fitted(pixels: np.ndarray, size: list[int]) -> tuple[np.ndarray, tuple[int, int], tuple[int, int]]:
    """Centre an image on black: uint8 [*size, 3], its top and left border, and the size of the image there."""
    height, width = pixels.shape[:2]
    scale = min(size[0] / height, size[1] / width)
    part = max(1, round(height * scale)), max(1, round(width * scale))
    top, left = (size[0] - part[0]) // 2, (size[1] - part[1]) // 2
    shown = np.zeros((*size, 3), np.uint8)
    shown[top:top + part[0], left:left + part[1]] = cv2.resize(
        pixels, part[::-1], interpolation=cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR)
    return shown, (top, left), part
