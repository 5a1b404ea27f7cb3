"""FID, the Fréchet Inception distance of eq. (6) in Heusel, Ramsauer, Unterthiner, Nessler, Hochreiter 2017.

The network is Inception-v3 of 2015-12-05 with pytorch-fid's published weights and preprocessing; another network or
resizing gives figures that are not comparable with any paper's.
"""
import numpy as np
import tensorflow as tf
from tensorflow import keras

from keras_models.core import resizing
from keras_models.weights import published

SIDE, FEATURES = 299, 2048
SOURCE = 'pt_inception-2015-12-05-6726825d.pth (github.com/mseitzer/pytorch-fid, release fid_weights)'
# torchvision's names of the convolutions, in Keras's order of creation.
STEM = 'Conv2d_1a_3x3 Conv2d_2a_3x3 Conv2d_2b_3x3 Conv2d_3b_1x1 Conv2d_4a_3x3'
A = 'branch1x1 branch5x5_1 branch5x5_2 branch3x3dbl_1 branch3x3dbl_2 branch3x3dbl_3 branch_pool'
B = 'branch3x3 branch3x3dbl_1 branch3x3dbl_2 branch3x3dbl_3'
C = ('branch1x1 branch7x7_1 branch7x7_2 branch7x7_3 '
     'branch7x7dbl_1 branch7x7dbl_2 branch7x7dbl_3 branch7x7dbl_4 branch7x7dbl_5 branch_pool')
D = 'branch3x3_1 branch3x3_2 branch7x7x3_1 branch7x7x3_2 branch7x7x3_3 branch7x7x3_4'
E = ('branch1x1 branch3x3_1 branch3x3_2a branch3x3_2b '
     'branch3x3dbl_1 branch3x3dbl_2 branch3x3dbl_3a branch3x3dbl_3b branch_pool')
BLOCKS = {'Mixed_5b': A, 'Mixed_5c': A, 'Mixed_5d': A, 'Mixed_6a': B, 'Mixed_6b': C, 'Mixed_6c': C, 'Mixed_6d': C,
          'Mixed_6e': C, 'Mixed_7a': D, 'Mixed_7b': E, 'Mixed_7c': E}
NAMES = STEM.split() + [f'{block}.{branch}' for block, branches in BLOCKS.items() for branch in branches.split()]


def build() -> keras.Model:
    """Return the network: [B, 299, 299, 3] in [-1, 1] -> means of the last maps [B, 2048].

    It is Keras's Inception-v3 with the differences of the one of 2015-12-05: scales in batch normalisation (all 1, but
    in the file), and in the last block a maximum instead of the paper's average pooling.
    """
    inception = keras.applications.InceptionV3(include_top=False, weights=None, input_shape=(SIDE, SIDE, 3),
                                               pooling='avg')
    last = [layer for layer in inception.layers if isinstance(layer, keras.layers.AveragePooling2D)][-1]

    def theirs(layer: keras.layers.Layer) -> keras.layers.Layer:
        if layer is last:
            return keras.layers.MaxPool2D(3, 1, 'same')
        scaled = {'scale': True} if isinstance(layer, keras.layers.BatchNormalization) else {}
        return type(layer).from_config({**layer.get_config(), **scaled})
    net = keras.models.clone_model(inception, clone_function=theirs)
    net.trainable = False
    return net


def load(path: str) -> keras.Model:
    """Return the network of `build` with the published weights.

    Raises:
      ModelError: the file cannot be read, or a weight is missing or has another shape: the message names it and the
        right file.
    """
    net = build()
    variables: dict[str, tf.Variable] = {}
    for name, convolution, norm in zip(NAMES, _made(net, keras.layers.Conv2D),
                                       _made(net, keras.layers.BatchNormalization), strict=True):
        variables |= {f'{name}.conv.weight': convolution.kernel, f'{name}.bn.weight': norm.gamma,
                      f'{name}.bn.bias': norm.beta, f'{name}.bn.running_mean': norm.moving_mean,
                      f'{name}.bn.running_var': norm.moving_variance}
    published.assign(variables, published.read(path), path, SOURCE)
    return net


def _made(net: keras.Model, kind: type) -> list[keras.layers.Layer]:
    """Return the layers of a kind in order of creation, by Keras's numbering; `net.layers` are sorted by depth."""
    def number(layer) -> int:
        last = layer.name.rpartition('_')[2]
        return int(last) if last.isdigit() else 0  # the first has no number
    return sorted((layer for layer in net.layers if isinstance(layer, kind)), key=number)


def features(net: keras.Model, pictures):
    """Return the features by which images are compared.

    Args:
      net: as returned by `load`.
      pictures: RGB levels 0..1 [B, H, W, 3] of any size, sides at least 2; they are resized to 299 x 299.

    Returns:
      [B, 2048], float32.
    """
    return net(2 * resizing.bilinear(pictures, SIDE, SIDE) - 1, training=False)


class Statistics:
    """Mean and covariance of features, accumulated batch by batch.

    Attributes:
      n: number of images; `sum` [size] and `products` [size, size] of their features, float64.
    """

    def __init__(self, size: int = FEATURES):
        self.n, self.sum, self.products = 0, np.zeros(size), np.zeros([size, size])

    def add(self, features) -> None:
        """Add features [B, size]."""
        f = np.asarray(features, np.float64)
        self.n += len(f)
        self.sum += f.sum(0)
        self.products += f.T @ f

    def mean(self) -> np.ndarray:
        """Return m [size]; needs one image or more."""
        return self.sum / self.n

    def covariance(self) -> np.ndarray:
        """Return C [size, size], unbiased; needs two images or more."""
        m = self.mean()
        return (self.products - self.n * np.outer(m, m)) / (self.n - 1)


def distance(a: Statistics, b: Statistics) -> float:
    """Return eq. (6): |m_a - m_b|^2 + tr(C_a + C_b - 2 (C_a C_b)^1/2); needs two or more images on either side.

    With C_a = R_a R_a^T and C_b likewise, tr (C_a C_b)^1/2 is the sum of the singular values of R_a^T R_b. Unlike the
    root of the product it is real and exact even with fewer images than features, when both are singular.
    """
    (m_a, R_a), (m_b, R_b) = ((each.mean(), _root(each.covariance())) for each in (a, b))
    cross = np.linalg.svd(R_a.T @ R_b, compute_uv=False).sum()
    squared = np.sum((m_a - m_b) ** 2) + np.sum(R_a ** 2) + np.sum(R_b ** 2) - 2 * cross
    return max(float(squared), 0.0)  # rounding may go below 0 for equal images


def _root(C: np.ndarray) -> np.ndarray:
    """Return R with R R^T = C."""
    values, vectors = np.linalg.eigh(C)
    return vectors * np.sqrt(np.maximum(values, 0))
