"""Mix the images of a training batch in pairs: mixup (Zhang et al. 2018) and CutMix (Yun et al. 2019).

Neither is from the papers that this project reproduces: nets trained for many epochs on few images overfit later.
"""
import tensorflow as tf


def mixed(image: tf.Tensor, label: tf.Tensor, seeds: tf.Tensor, mixup: float,
          cutmix: float) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Mix every image with the one before it in the batch.

    An image keeps a share lambda ~ Beta(alpha, alpha): of every pixel's level (mixup), or of its area, the rest of
    which shows a rectangle of the other image at the same place (CutMix). If both are asked for, a row takes either
    with probability 1/2. Empty rows are neither mixed nor shown. All draws of a row follow from its seed.

    Args:
      image: float32 [n, h, w, 3].
      label: int32 [n]; -1 marks an empty row.
      seeds: int32 [n, 2].
      mixup, cutmix: alpha of each; 0 disables it, and one of them is above 0.

    Returns:
      The mixed images; the labels of the other images, int32 [n]; and the shares that the images keep, float32 [n].
    """
    other, size = tf.roll(label, 1, 0), tf.shape(image)[1:3]
    kept = tf.map_fn(lambda seed: _kept(size, seed, mixup, cutmix), seeds, fn_output_signature=tf.float32)
    kept = tf.where(((label < 0) | (other < 0))[:, tf.newaxis, tf.newaxis], 1., kept)
    weight = kept[..., tf.newaxis]
    return weight * image + (1 - weight) * tf.roll(image, 1, 0), other, tf.reduce_mean(kept, [1, 2])


def _kept(size: tf.Tensor, seed: tf.Tensor, mixup: float, cutmix: float) -> tf.Tensor:
    """Return the share of every pixel that an image keeps, float32 [h, w]."""
    u = tf.random.stateless_uniform([3], tf.random.experimental.stateless_fold_in(seed, 2), alg='philox')
    blended = u[0] < 0.5 if mixup and cutmix else tf.constant(bool(mixup))
    # In float64: at alpha 0.2 one float32 in 40 million would be 0.
    gammas = tf.random.stateless_gamma([2], tf.random.experimental.stateless_fold_in(seed, 3), tf.where(
        blended, tf.constant(mixup or 1., tf.float64), tf.constant(cutmix or 1., tf.float64)), dtype=tf.float64)
    share = tf.cast(gammas[0] / tf.reduce_sum(gammas), tf.float32)
    space = tf.cast(size, tf.float32)
    low, high = (tf.clip_by_value(tf.round(u[1:] * space + half * tf.sqrt(1 - share) * space), 0, space)
                 for half in (-0.5, 0.5))
    inside = [(places >= low[axis]) & (places < high[axis])
              for axis, places in enumerate((tf.range(space[0]), tf.range(space[1])))]
    outside = tf.cast(~(inside[0][:, tf.newaxis] & inside[1]), tf.float32)
    return tf.where(blended, tf.fill(size, share), outside)
