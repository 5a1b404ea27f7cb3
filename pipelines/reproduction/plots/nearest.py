"""Training images nearest to test images in the last hidden layer (Krizhevsky et al. 2012, figure 4, right)."""
import os

import numpy as np
import tensorflow as tf
from sklearn.neighbors import NearestNeighbors
from tensorflow import keras

from pipelines.core.pipeline import Pipeline
from pipelines.reporting import contact_sheet
from pipelines.reproduction.experiments import Exhibit, Figure, Study
from pipelines.reproduction.plots import trained

NAME = 'nearest.png'
THUMBNAIL = 32  # side of images compared by pixels
BY = 'last hidden layer', 'pixels'


def draw(study: Study, setting: str = '', pictures: int = 5, neighbours: int = 6, asked: int = 500,
         among: int = 20000, seed: int = 1) -> Exhibit:
    """Find neighbours by the features of the setting's first run, and by pixels, with which the paper contrasts them.

    Args:
      pictures: number of test images shown, drawn at random; `neighbours`: number for each.
      asked: number of test images the table counts, including those shown.
      among: most training images searched, drawn at random if there are more.
      seed: of these draws.
    """
    run = trained.run(study, setting)
    pipeline, random = run.pipeline, np.random.default_rng(seed)
    seen = {name: _drawn(random, len(trained.split(pipeline, name)), most)
            for name, most in (('test', asked), ('train', among))}
    net = hidden(trained.net(pipeline))
    vectors = {name: _vectors(pipeline, net, name, numbers) for name, numbers in seen.items()}
    classes = {name: _content(pipeline, name, numbers)[1] for name, numbers in seen.items()}
    found = [NearestNeighbors(n_neighbors=neighbours, algorithm='brute').fit(vectors['train'][by]).kneighbors(
        vectors['test'][by], return_distance=False) for by in BY]
    values = {(by, run.seed): {
        'of the same class': float(np.mean(classes['train'][near] == classes['test'][:, None])),
        'nearer in pixels': closer(vectors['test']['pixels'], vectors['train']['pixels'], near)}
        for by, near in zip(BY, found)}
    rows = []
    for number in range(min(pictures, len(seen['test']))):
        one = _content(pipeline, 'test', seen['test'][number:number + 1])[0]
        near = _content(pipeline, 'train', [seen['train'][i] for i in found[0][number]])[0]
        rows.append([contact_sheet.Labelled(image, title) for image, title in zip(
            one + near, ['test', *(f'nearest {i}' for i in range(1, neighbours + 1))])])
    contact_sheet.draw_rows(os.path.join(study.out, NAME), rows, tall=1.95)
    title = (f'{len(rows)} test images drawn at random, seed {seed}, and the {neighbours} nearest of '
             f'{len(seen["train"]):,} training images')
    return Exhibit(values, [Figure(title, f'<img src="{NAME}" alt="{title}">', shows_data=True)])


def hidden(net):
    """Return a classifier without its last layer: (image, seed) -> [B, units]."""
    return keras.Model(net.inputs, net.get_layer(net.output_names[0]).input)


def closer(test: np.ndarray, train: np.ndarray, near: np.ndarray) -> float:
    """Return the average share of training images that are nearer in pixels than those retrieved; 1/2 for random ones.

    Args:
      test: [n, d]; `train`: [m, d]; `near`: [n, k], numbers of training images.
    """
    lengths, parts = (train ** 2).sum(1), []
    for one, retrieved in zip(test, near):
        squared = lengths - 2 * train @ one  # without the square of `one`, equal for all
        parts.append(np.mean([np.mean(squared < squared[i]) for i in retrieved]))
    return float(np.mean(parts))


def _drawn(random, n: int, most: int) -> list[int]:
    return random.permutation(n)[:most].tolist()


def _vectors(pipeline: Pipeline, net, name: str, numbers: list[int]) -> dict[str, np.ndarray]:
    """Return the vectors that images are compared by, [n, d]."""

    @tf.function(autograph=False, reduce_retracing=True)
    def one(image):
        small = tf.image.resize(image, [THUMBNAIL, THUMBNAIL], 'area')
        return net([image, tf.zeros([2], tf.int32)], training=False), tf.reshape(small, [-1, THUMBNAIL ** 2 * 3])
    parts = zip(*(one(image) for image in trained.pictures(pipeline, name, numbers)))
    return {by: np.concatenate([part.numpy() for part in each]) for by, each in zip(BY, parts)}


def _content(pipeline: Pipeline, name: str, numbers: list[int]) -> tuple[list[bytes], np.ndarray]:
    """Return the encoded images and their classes."""
    images, columns = pipeline.config.data_spec.examples(trained.split(pipeline, name).read(numbers))
    return images, np.array(columns['target'])
