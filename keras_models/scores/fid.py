"""FID, the Fréchet Inception distance (Heusel, Ramsauer, Unterthiner, Nessler, Hochreiter 2017), of eq. (6) there.

The network is Inception-v3 of 2015-12-05 with the weights pytorch-fid publishes, and pictures are shown to it as
pytorch-fid shows them: another network, or other resizing, gives numbers that compare with no paper's.
"""
import numpy as np
import tensorflow as tf
from tensorflow import keras

from keras_models.viton import geometry
from keras_models.weights import published

SIDE, FEATURES = 299, 2048
SOURCE = 'pt_inception-2015-12-05-6726825d.pth (github.com/mseitzer/pytorch-fid, release fid_weights)'
# torchvision's names of the convolutions, in the order in which Keras makes its.
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
    """[B, 299, 299, 3] in [-1, 1] -> the last maps' means [B, 2048].

    Keras's Inception-v3 with what that of 2015-12-05 has otherwise: scales in batch normalisation (all of them 1, but
    they are in the file), and in the last block the maximum where the paper pools the average.
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
    """The network of `build` with the published weights.

    Raises:
      ModelError: the file cannot be read, or a weight is missing or has another shape: which, and what to give.
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
    """The layers of a kind in the order they were made in, by which Keras numbers them; `net.layers` are by depth."""
    def number(layer) -> int:
        last = layer.name.rpartition('_')[2]
        return int(last) if last.isdigit() else 0  # the first has no number
    return sorted((layer for layer in net.layers if isinstance(layer, kind)), key=number)


def features(net: keras.Model, pictures):
    """What pictures are compared by.

    Args:
      net: of `load`.
      pictures: RGB levels 0..1 [B, H, W, 3] of any size, sides at least 2; they are stretched to 299 x 299.

    Returns:
      [B, 2048], float32.
    """
    return net(2 * geometry.bilinear(pictures, SIDE, SIDE) - 1, training=False)


class Statistics:
    """Mean and covariance of features, of which a batch at a time is added.

    Attributes:
      n: how many pictures; `sum` [size] and `products` [size, size] of their features, float64.
    """

    def __init__(self, size: int = FEATURES):
        self.n, self.sum, self.products = 0, np.zeros(size), np.zeros([size, size])

    def add(self, features) -> None:
        """features: [B, size]."""
        f = np.asarray(features, np.float64)
        self.n += len(f)
        self.sum += f.sum(0)
        self.products += f.T @ f

    def mean(self) -> np.ndarray:
        """m [size], of one picture or more."""
        return self.sum / self.n

    def covariance(self) -> np.ndarray:
        """C [size, size], unbiased, of two pictures or more."""
        m = self.mean()
        return (self.products - self.n * np.outer(m, m)) / (self.n - 1)


def distance(a: Statistics, b: Statistics) -> float:
    """Eq. (6): |m_a - m_b|^2 + tr(C_a + C_b - 2 (C_a C_b)^1/2), of two pictures or more on either side.

    With C_a = R_a R_a^T and C_b likewise, tr (C_a C_b)^1/2 is the sum of the singular values of R_a^T R_b: unlike the
    root of the product it is real and exact where there are fewer pictures than features and both are singular.
    """
    (m_a, R_a), (m_b, R_b) = ((each.mean(), _root(each.covariance())) for each in (a, b))
    cross = np.linalg.svd(R_a.T @ R_b, compute_uv=False).sum()
    squared = np.sum((m_a - m_b) ** 2) + np.sum(R_a ** 2) + np.sum(R_b ** 2) - 2 * cross
    return max(float(squared), 0.0)  # of the same pictures the last digit may be below


def _root(C: np.ndarray) -> np.ndarray:
    """R with R R^T = C."""
    values, vectors = np.linalg.eigh(C)
    return vectors * np.sqrt(np.maximum(values, 0))
