"""Colour differences in CIE 1976 L*a*b*, in which equal distances look about equally different.

IEC 61966-2-1 defines sRGB, CIE 015 L*a*b*; a distance of 2.3 is just noticeable (Mahy et al. 1994).
"""
import numpy as np
import tensorflow as tf

# XYZ of sRGB's linear red, green and blue, as rows; their sum is the white point, D65.
PRIMARIES = np.array([(0.4124, 0.2126, 0.0193), (0.3576, 0.7152, 0.1192), (0.1805, 0.0722, 0.9505)])
LINEAR = 6 / 29  # share of white, as a cube root, below which f is linear


def lab(levels) -> tf.Tensor:
    """Convert sRGB [..., 3] with levels 0 to 1 to L*, a* and b*, the first from 0 to 100."""
    levels = tf.cast(levels, tf.float32)
    light = tf.where(levels <= 0.04045, levels / 12.92, ((levels + 0.055) / 1.055) ** 2.4)
    XYZ = tf.tensordot(light, tf.constant(PRIMARIES / PRIMARIES.sum(0), tf.float32), 1)
    f = tf.where(XYZ > LINEAR ** 3, tf.maximum(XYZ, LINEAR ** 3) ** (1 / 3), XYZ / (3 * LINEAR ** 2) + 4 / 29)
    x, y, z = tf.unstack(f, axis=-1)
    return tf.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], -1)


def distance(a, b) -> tf.Tensor:
    """Return the Euclidean distance (Delta E*ab) of two images of sRGB, [..., 3] -> [...]."""
    return tf.norm(lab(a) - lab(b), axis=-1)
