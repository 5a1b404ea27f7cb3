"""Make try-on samples from photographs on the page; networks are loaded once and requests run serially."""
import threading

from data_prep.photos import making
from data_prep.photos.parser import Parser
from data_prep.photos.pose import BlazePose


class Studio:
    """Makes the files of a try-on sample from photographs, in memory.

    Args:
      blazepose: folder of the pose networks.
      parser: ONNX file of a human parser.
      parser_labels: its label map; see `labels.choose`.

    Raises:
      UserError: a file is missing, or is not the expected network.
    """

    def __init__(self, blazepose: str, parser: str, parser_labels: str = ''):
        self._blazepose, self._parser = BlazePose(blazepose), Parser(parser, parser_labels)
        self._lock = threading.Lock()

    def make(self, kind: str, content: bytes, size: tuple[int, int], max_pixels: int) -> making.Made:
        """Make the files from a photograph of a `person` or a `garment`; 12 megapixels take 2 s of CPU and 0.35 GB."""
        with self._lock:
            if kind == 'person':
                return making.of_person(content, self._blazepose, self._parser, size, max_pixels)
            return making.of_garment(content, size, max_pixels)
