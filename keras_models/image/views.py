"""Testing protocols of the image papers: what a trained net is shown of a picture, and how its answers are averaged.

A view is crops of the rescaled picture (`single`, `ten_crop`, `multi_crop`) or all of it at once (`dense`). Every view
at every scale gives soft-max posteriors of a picture; `posteriors` is their mean.
"""
import dataclasses
from collections.abc import Callable, Sequence

import tensorflow as tf

# Where the crops of a view are: top and left, in quarters of the room a crop has in the picture.
PLACES: dict[str, list[tuple[int, int]]] = {
    'single': [(2, 2)],
    'ten_crop': [(0, 0), (0, 4), (4, 0), (4, 4), (2, 2)],  # Krizhevsky et al. 4.1: four corners and the centre
    'multi_crop': [(y, x) for y in range(5) for x in range(5)],  # Simonyan & Zisserman 3.2: a regular 5 x 5 grid
}
# A batch through the net holds no more pixels than this: 64 of the papers' crops, of which VGG's D takes 35 MB each. So
# a request is taken in parts: 64 pictures of 150 crops at once would take it 330 GB.
PIXELS_PER_BATCH = 64 * 224 * 224


@dataclasses.dataclass(frozen=True)
class Net:
    """What the protocols ask of a trained net.

    Attributes:
      crop: side of the pictures it was trained on.
      logits: [B, crop, crop, 3] -> [B, classes].
      score_map: [B, H, W, 3] -> [B, h, w, classes], for any H and W of at least `crop`.
      activations: the same, of the last hidden layer, [B, h, w, D].
    """
    crop: int
    classes: int
    logits: Callable
    score_map: Callable
    activations: Callable


def posteriors(net: Net, image: tf.Tensor, picture: Callable, views: Sequence[str], scales: Sequence[int],
               flips: bool = True) -> tf.Tensor:
    """Class posteriors, averaged over all views at all scales (Simonyan & Zisserman 4.2, 4.3).

    Args:
      image: [n, ...], what `picture` takes, such as encoded pictures.
      picture: (one of `image`, scale) -> [h, w, 3], the picture as the net sees it, its shorter side `scale`.
      views: of `PLACES` and `dense`.
      scales: Q, each at least `net.crop`.
      flips: show mirror images too, except to `single`.

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
    """[h, w, 3] -> [k, crop, crop, 3]: the crops of a view, and behind them, if `flips`, each one's mirror image.

    `single` is the view of validation, one crop that is never mirrored.
    """
    room = tf.shape(picture)[:2] - crop
    corners = [room * place // 4 for place in PLACES[view]]
    windows = tf.stack([picture[y:y + crop, x:x + crop] for y, x in map(tf.unstack, corners)])
    if flips and view != 'single':
        windows = tf.concat([windows, mirrored(windows)], 0)
    return tf.ensure_shape(windows, [None, crop, crop, 3])


def mirrored(image: tf.Tensor) -> tf.Tensor:
    """[B, h, w, 3], left and right exchanged."""
    return tf.reverse(image, [2])


def cropped(net: Net, image: tf.Tensor, picture: Callable, view: str, flips: bool = True) -> tf.Tensor:
    """Posteriors averaged over the crops of a view; many pictures' crops go through the net together.

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
    p = tf.map_fn(part, tf.range(0, n, together), parallel_iterations=1,  # else as many batches in memory
                  fn_output_signature=tf.TensorSpec([together, net.classes]))
    return tf.reshape(p, [-1, net.classes])[:n]


def dense(net: Net, image: tf.Tensor, picture: Callable, flips: bool = True) -> tf.Tensor:
    """The net over the whole picture (Simonyan & Zisserman 3.2; on feature maps, He et al. 2015, 'Testing').

    The class scores of all places are averaged; then comes the soft-max; then posteriors of the picture and of its
    mirror image are averaged. Pictures differ in size, so each goes through the net alone.

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
    """The last hidden layer's activations over the whole picture (Simonyan & Zisserman, appendix B): averaged over all
    places, and then over the picture and its mirror image. Arguments as for `dense`.

    Returns:
      [n, D].
    """
    def one(each):
        return tf.reduce_mean(net.activations(_shown(picture(each), flips)), [0, 1, 2])
    return tf.map_fn(one, image, parallel_iterations=1, fn_output_signature=tf.float32)


def _shown(picture: tf.Tensor, flips: bool) -> tf.Tensor:
    """[h, w, 3] -> [1, h, w, 3], or if `flips` [2, h, w, 3], the second its mirror image."""
    shown = picture[tf.newaxis]
    return tf.concat([shown, mirrored(shown)], 0) if flips else shown
