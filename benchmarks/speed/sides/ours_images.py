"""Our image classifiers."""
import inputs
import numpy as np
import side
import tensorflow as tf
import trained

from pipelines.core import config

CONFIGS = {'vgg16': 'vgg_d_imagenet', 'alexnet': 'alexnet_imagenet', 'model_a': 'prelu_a_imagenet'}
KEYS = ['model.dropout=0.0', 'model.crop=224', 'model.classes=1000']


def forward(net: str, batch: int, jit: bool = False, crop: int = 224) -> side.Work:
    """Scores of images, as in `predict`."""
    resolved = config.load(CONFIGS[net], [*KEYS, f'model.crop={crop}'])
    [model] = resolved.model_spec.build(resolved.model).values()
    model.set_weights(inputs.weights([weight.shape for weight in model.weights]))
    images, seed = tf.constant(inputs.pictures(batch, crop)), tf.constant(trained.SEED)
    scores = tf.function(lambda images: model([images, seed], training=False), jit_compile=jit or None)

    def once():
        scores(images).numpy()
        return batch
    return side.Work({'scores': scores(images).numpy()}, once)


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
