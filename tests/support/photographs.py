"""Photographs for tests, and how well masks match."""
import io

import numpy as np
from PIL import Image


def jpeg(pixels, **options) -> bytes:
    out = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels)).save(out, 'JPEG', quality=92, **options)
    return out.getvalue()


def overlap(found, truth) -> float:
    """Return the intersection over union of two masks."""
    return (found & truth).sum() / (found | truth).sum()
