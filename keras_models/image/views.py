"""Test protocols of the image papers: views of an image, and averaging of the outputs.

A view is crops of the rescaled image (`single`, `ten_crop`, `multi_crop`) or the whole image (`dense`). Every view at
every scale gives soft-max posteriors of an image; `posteriors` is their mean.
"""
import dataclasses
from collections.abc import Callable, Sequence

import tensorflow as tf

# Positions of a view's crops: top and left, in quarters of a crop's range in the image.
PLACES: dict[str, list[tuple[int, int]]] = {
    'single': [(2, 2)],
    'ten_crop': [(0, 0), (0, 4), (4, 0), (4, 4), (2, 2)],  # Krizhevsky et al. 4.1: four corners and the centre
    'multi_crop': [(y, x) for y in range(5) for x in range(5)],  # Simonyan & Zisserman 3.2: a regular 5 x 5 grid
}
# Most pixels of a batch: 64 of the papers' crops, each of which takes 35 MB in VGG's D. Requests are processed in
# parts: 64 images of 150 crops at once would take 330 GB.
PIXELS_PER_BATCH = 64 * 224 * 224


@dataclasses.dataclass(frozen=True)
class Net:
    """A trained net, as the protocols use it.

    Attributes:
      crop: side of its training crops.
      logits: [B, crop, crop, 3] -> [B, classes].
      score_map: [B, H, W, 3] -> [B, h, w, classes], for any H and W of at least `crop`.
      activations: the same for the last hidden layer, [B, h, w, D].
    """
    crop: int
    classes: int
    logits: Callable
    score_map: Callable
    activations: Callable


def posteriors(net: Net, image: tf.Tensor, picture: Callable, views: Sequence[str], scales: Sequence[int],
               flips: bool = True) -> tf.Tensor:
    """Return class posteriors, averaged over all views at all scales (Simonyan & Zisserman 4.2, 4.3).

    Args:
      image: [n, ...], inputs of `picture`, such as encoded images.
      picture: (one of `image`, scale) -> [h, w, 3], the preprocessed image whose shorter side is `scale`.
      views: names in `PLACES`, and `dense`.
      scales: Q, each at least `net.crop`.
      flips: also use mirror images, except in `single`.

    Returns:
      [n, classes].
    """
    found = []
    for view in views:
        for scale in scales:
            def rescaled(each, scale=scale):
                return picture(each, scale)
            found.append(dense(net, image, rescaled, flips) if view == 'dense'
                         else cropped(net, image, rescaled, view, flips))
    return tf.add_n(found) / len(found)


def crops(picture: tf.Tensor, crop: int, view: str, flips: bool = True) -> tf.Tensor:
    """Cut [h, w, 3] into a view's crops, [k, crop, crop, 3], followed by their mirror images if `flips`.

    `single` is the view of validation, one crop that is never mirrored.
    """
    room = tf.shape(picture)[:2] - crop
    corners = [room * place // 4 for place in PLACES[view]]
    windows = tf.stack([picture[y:y + crop, x:x + crop] for y, x in map(tf.unstack, corners)])
    if flips and view != 'single':
        windows = tf.concat([windows, mirrored(windows)], 0)
    return tf.ensure_shape(windows, [None, crop, crop, 3])


def mirrored(image: tf.Tensor) -> tf.Tensor:
    """Mirror [B, h, w, 3] left to right."""
    return tf.reverse(image, [2])


def cropped(net: Net, image: tf.Tensor, picture: Callable, view: str, flips: bool = True) -> tf.Tensor:
    """Return posteriors averaged over the crops of a view; the crops of many images share batches.

    Args:
      picture: one of `image` -> [h, w, 3].

    Returns:
      [n, classes].
    """
    k = len(PLACES[view]) * (2 if flips and view != 'single' else 1)
    together = max(1, PIXELS_PER_BATCH // (k * net.crop ** 2))
    several = tf.TensorSpec([k, net.crop, net.crop, 3])

    def part(start):
        here = image[start:start + together]
        windows = tf.map_fn(lambda each: crops(picture(each), net.crop, view, flips), here,
                            fn_output_signature=several)  # [m, k, crop, crop, 3]
        p = tf.nn.softmax(net.logits(tf.reshape(windows, [-1, *several.shape[1:]])))
        p = tf.reduce_mean(tf.reshape(p, [-1, k, net.classes]), 1)  # [m, classes]
        return tf.pad(p, [[0, together - tf.shape(p)[0]], [0, 0]])  # the last part may be shorter
    n = tf.shape(image)[0]
    p = tf.map_fn(part, tf.range(0, n, together), parallel_iterations=1,  # otherwise as many batches in memory
                  fn_output_signature=tf.TensorSpec([together, net.classes]))
    return tf.reshape(p, [-1, net.classes])[:n]


def dense(net: Net, image: tf.Tensor, picture: Callable, flips: bool = True) -> tf.Tensor:
    """Run the net over the whole image (Simonyan & Zisserman 3.2; on feature maps, He et al. 2015, 'Testing').

    Class scores are averaged over all positions, followed by the soft-max; posteriors of the image and its mirror image
    are averaged. Images differ in size, so each is processed alone.

    Args:
      picture: one of `image` -> [h, w, 3].

    Returns:
      [n, classes].
    """
    def one(each):
        scores = tf.reduce_mean(net.score_map(_shown(picture(each), flips)), [1, 2])  # [1 or 2, classes]
        return tf.reduce_mean(tf.nn.softmax(scores), 0)
    return tf.map_fn(one, image, parallel_iterations=1, fn_output_signature=tf.TensorSpec([net.classes]))


def features(net: Net, image: tf.Tensor, picture: Callable, flips: bool = True) -> tf.Tensor:
    """Return the last hidden layer's activations over the whole image (Simonyan & Zisserman, appendix B).

    They are averaged over all positions, and then over the image and its mirror image. Arguments are those of `dense`.

    Returns:
      [n, D].
    """
    def one(each):
        return tf.reduce_mean(net.activations(_shown(picture(each), flips)), [0, 1, 2])
    return tf.map_fn(one, image, parallel_iterations=1, fn_output_signature=tf.float32)


def _shown(picture: tf.Tensor, flips: bool) -> tf.Tensor:
    """Return [h, w, 3] as a batch [1, h, w, 3], or with its mirror image, if `flips`, [2, h, w, 3]."""
    shown = picture[tf.newaxis]
    return tf.concat([shown, mirrored(shown)], 0) if flips else shown
