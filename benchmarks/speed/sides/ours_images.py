"""Our image classifiers."""
import tempfile

import inputs
import numpy as np
import side
import tensorflow as tf
import trained

from keras_models.image import portable, serving
from pipelines.core import config
from pipelines.formats import networks
from pipelines.formats.table import FORMATS
from pipelines.serving.kit import networks as kit

CONFIGS = {'vgg16': 'vgg_d_imagenet', 'alexnet': 'alexnet_imagenet', 'model_a': 'prelu_a_imagenet'}
KEYS = ['model.dropout=0.0', 'model.crop=224', 'model.classes=1000']


def forward(net: str, batch: int, jit: bool = False, crop: int = 224, file: str = '') -> side.Work:
    """Scores of images, as in `predict`; or by the `file` that `export --to` writes, tflite or onnx."""
    resolved = config.load(CONFIGS[net], [*KEYS, f'model.crop={crop}'])
    nets = resolved.model_spec.build(resolved.model)
    [model] = nets.values()
    model.set_weights(inputs.weights([weight.shape for weight in model.weights]))
    pictures = inputs.pictures(batch, crop)
    if file:
        [part] = portable.networks(nets, resolved.model, serving.Inference(), None).values()
        return of_file(part, file, pictures)
    images, seed = tf.constant(pictures), tf.constant(trained.SEED)
    scores = tf.function(lambda images: model([images, seed], training=False), jit_compile=jit or None)

    def once():
        scores(images).numpy()
        return batch
    return side.Work({'scores': scores(images).numpy()}, once)


def of_file(part, kind: str, pictures: np.ndarray) -> side.Work:
    """Scores by a network's file, opened as its folder's program opens it."""
    with tempfile.TemporaryDirectory() as folder:
        networks.write_parts(FORMATS[kind], {'classifier': part}, folder)
        [scores] = kit.load(folder).values()

    def once():
        scores(image=pictures)
        return len(pictures)
    return side.Work({'scores': scores(image=pictures)['logits']}, once)


def step(net: str, batch: int, jit: bool = False) -> side.Work:
    """Return a training step; without dropout, because every library draws differently."""
    trainer = trained.Trained(CONFIGS[net], *KEYS, f'train.jit={str(jit).lower()}',
                              f'model.learning_rate={inputs.RATE}')
    trainer.net.set_weights(inputs.weights([weight.shape for weight in trainer.net.weights]))
    given = {'image': tf.constant(inputs.pictures(batch, 224)), 'label': tf.constant(inputs.labels(batch))}
    found = [trainer.step(given), trainer.step(given)]

    def once():
        trainer.step(given)
        return batch
    return side.Work({'losses': np.array(found)}, once)


if __name__ == '__main__':
    side.serve({'forward': forward, 'step': step})
