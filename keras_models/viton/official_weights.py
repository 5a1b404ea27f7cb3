"""Map the weights published by VITON-HD's authors to the names and layout of our networks, preset `official`.

The names are those of the state dicts of their repository's networks (facts; none of its code is here).
"""
import dataclasses
import re
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow import keras

from keras_models import ModelError
from keras_models.viton import alias, geometric_matching, segmentation

SOURCE = {
    'source': 'https://github.com/shadow2496/VITON-HD',
    'licence': 'CC BY-NC 4.0 (https://creativecommons.org/licenses/by-nc/4.0/)',
    'terms': 'for non-commercial purposes, with credit to the authors and changes named',
    'attribution': 'Seunghwan Choi, Sunghyun Park, Minsoo Lee, Jaegul Choo: VITON-HD: High-Resolution Virtual Try-On '
                   'via Misalignment-Aware Normalization, CVPR 2021',
    'preset': 'official',
}
DATA = {'agnostic': 'official'}  # how their training data was prepared
# Last part of a variable's name; a kernel with spectral normalisation is `weight_orig`.
VARIABLES = {'kernel': 'weight', 'bias': 'bias', 'u': 'weight_u', 'v': 'weight_v', 'noise_scale': 'noise_scale',
             'gamma': 'weight', 'beta': 'bias', 'moving_mean': 'running_mean', 'moving_variance': 'running_var'}
BLOCKS = ('head_0', 'G_middle_0', 'G_middle_1', 'up_0', 'up_1', 'up_2', 'up_3', 'up_4')
ALIAS = {**{f'block_{level}': name for level, name in enumerate(BLOCKS)},
         **{f'input_{level}': f'conv_{level}' for level in range(len(BLOCKS))},
         'output': 'conv_img', 'shared': 'conv_shared.0', 'gamma': 'conv_gamma', 'beta': 'conv_beta'}
# Ignored: a count of batches, and the spline's constants, which some versions of the authors' code saved.
NEEDLESS = re.compile(r'.*\.num_batches_tracked|gridGen\.(grid_[XY]|P_[XY](_base)?|Li)')
LISTED = 5


def _segmentation(layer: str) -> str:
    """Convert names such as conv1_1 and up6; theirs also count normalisations, ReLUs and upsampling."""
    block, _, number = layer.partition('_')
    return f'{block}.{3 * int(number) - 3 if number else 1}'


def _geometric_matching(layer: str) -> str:
    """Convert names such as person/conv1, cloth/norm2 and regression/linear."""
    part, name = layer.split('/')
    if name == 'linear':
        return 'regression.linear'
    sequence = {'person': 'extractionA.model', 'cloth': 'extractionB.model', 'regression': 'regression.conv'}[part]
    number = 3 * (int(name.removeprefix('conv').removeprefix('norm')) - 1)
    if name.startswith('norm'):
        number += 1 if part == 'regression' else 2  # after the ReLU
    return f'{sequence}.{number}'


def _alias(layer: str) -> str:
    """Convert names such as block_0/norm_1/shared, block_3/conv_s, input_0 and output."""
    return '.'.join(ALIAS.get(part, part) for part in layer.split('/'))


LAYERS = {'segmentation': _segmentation, 'geometric_matching': _geometric_matching, 'alias': _alias}
NETS = tuple(LAYERS)  # in the order of their files


def build(net: str) -> keras.Model:
    """Build one of NETS."""
    module: Any = {'segmentation': segmentation, 'geometric_matching': geometric_matching, 'alias': alias}[net]
    return module.build(dataclasses.replace(module.Config(), preset='official', **module.PRESETS['official']))[net]


def names(net: str, model: keras.Model) -> dict[str, tf.Variable]:
    """Return the authors' name of every variable."""
    ours = {variable.name.split(':')[0]: variable for variable in model.variables}
    found = {}
    for name, variable in ours.items():
        layer, _, last = name.rpartition('/')
        spectral = last == 'kernel' and f'{layer}/u' in ours
        found[f'{LAYERS[net](layer)}.{VARIABLES[last]}{"_orig" * spectral}'] = variable
    return found


def assign(net: str, model: keras.Model, tensors: dict[str, np.ndarray]) -> None:
    """Give a network the weights of a state dict.

    Args:
      net: one of NETS.
      tensors: the authors' names -> values.

    Raises:
      ModelError: names missing, unknown and misshapen tensors; no variable is changed then
    """
    expected = names(net, model)
    shapes = {name: _their_shape(variable) for name, variable in expected.items()}
    wrong = {
        'lacks': [name for name in expected if name not in tensors],
        'has besides': [name for name in tensors if name not in expected and not NEEDLESS.fullmatch(name)],
        'has in another shape': [f'{name} {tensors[name].shape} for {shape}' for name, shape in shapes.items()
                                 if name in tensors and tensors[name].shape != shape]}
    if any(wrong.values()):
        raise ModelError('; '.join(f'it {what} {_listed(which)}' for what, which in wrong.items() if which))
    for name, variable in expected.items():
        value = tensors[name]
        if name.endswith('.weight_v'):  # one number per input of a kernel: maps, height, width
            inputs = tensors[f'{name.removesuffix("v")}orig'].shape[1:]
            value = value.reshape(inputs).transpose(1, 2, 0).ravel()
        elif value.ndim > 1:  # [kernels, maps, height, width] -> [height, width, maps, kernels]
            value = value.transpose(*range(2, value.ndim), 1, 0)
        variable.assign(value)


def _their_shape(variable: tf.Variable) -> tuple[int, ...]:
    shape = tuple(variable.shape)
    return shape if len(shape) == 1 else (shape[-1], shape[-2], *shape[:-2])


def _listed(found: list[str]) -> str:
    more = len(found) - LISTED
    return ', '.join(f'{name:.99}' for name in found[:LISTED]) + (f' and {more} more' if more > 0 else '')
