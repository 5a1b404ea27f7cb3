"""Random weights of a net, and a file of VGG's as Keras Applications publishes it."""
import h5py
import numpy as np

from keras_models import vgg


def fill(model, seed=0):
    """Draws every weight of a model, large enough for nothing to vanish."""
    draw = np.random.default_rng(seed)
    for weight in model.weights:
        n = np.prod(weight.shape[:-1])
        weight.assign(draw.standard_normal(weight.shape, np.float32) * ((2 / n) ** 0.5 if n > 1 else 0.3))


def published(path, config, change=None):
    """Writes random weights as Keras Applications publishes them, in Keras 1's names. Returns them by layer."""
    layers, values = {}, np.random.default_rng(0)
    for name, shapes in vgg._shapes(config).items():
        theirs = {'fc6': 'fc1', 'fc7': 'fc2', 'fc8': 'predictions'}
        layer = theirs.get(name) or f'block{name[4]}_conv{name[6:]}'
        layers[layer] = [values.normal(size=shape).astype(np.float32) for shape in shapes]
    if change:
        change(layers)
    with h5py.File(path, 'w') as file:
        for layer in ('input_1', *layers, 'flatten'):
            group, names = file.create_group(layer), []
            for part, value in zip('Wb', layers.get(layer, [])):
                names.append(f'{layer}_{part}_1:0'.encode())
                group[names[-1]] = value
            group.attrs['weight_names'] = np.array(names, 'S')
    return layers
