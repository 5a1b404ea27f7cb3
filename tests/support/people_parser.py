"""Train the tests' human parser on drawn people and save it as ONNX, in two minutes.

    PYTHONPATH=.:tests python -m support.people_parser

Landmark includes no published parser. This one has their inputs and outputs: 20 labels at a quarter of the input's
size. It is trained on drawn people only and is useless on photographs.
"""
import pathlib

import numpy as np
import onnx
import tensorflow as tf
from onnx import TensorProto, helper, numpy_helper

from data_prep.people import person, sample_people

PATH = pathlib.Path(__file__).with_name('people_parser.onnx')
HEIGHT, WIDTH, CELLS = 256, 192, (64, 48)
LABELS = len(person.LABELS)
# Channels, stride and dilation of each 3 x 3 convolution; a final 1 x 1 convolution follows.
LAYERS = ((12, 2, 1), (24, 2, 1), (24, 1, 1), (24, 1, 2), (24, 1, 4), (24, 1, 8), (24, 1, 1))
PEOPLE, STEPS, BATCH, SEED = 160, 900, 8, 30
MEAN, STDDEV = (0.406, 0.456, 0.485), (0.225, 0.224, 0.229)


def examples() -> tuple[np.ndarray, np.ndarray]:
    """Return inputs, float32 [n, h, w, 3] in BGR, and labels with corners aligned to them, [n, h', w']."""
    people = [sample_people.make_person(SEED, number, (HEIGHT, WIDTH)) for number in range(PEOPLE)]
    rows, columns = (np.round(np.linspace(0, whole - 1, cells)).astype(int)
                     for whole, cells in zip((HEIGHT, WIDTH), CELLS))
    images = np.stack([each.image for each in people])[..., ::-1] / np.float32(255)
    return (images - MEAN) / STDDEV, np.stack([each.parse[np.ix_(rows, columns)] for each in people])


def train() -> list[tuple[np.ndarray, np.ndarray]]:
    """Train the net; return kernel and bias of every convolution."""
    tf.keras.utils.set_random_seed(SEED)
    layers = [tf.keras.layers.Conv2D(channels, 3, stride, 'same', dilation_rate=dilation, activation='relu')
              for channels, stride, dilation in LAYERS]
    net = tf.keras.Sequential([tf.keras.Input([HEIGHT, WIDTH, 3]), *layers, tf.keras.layers.Conv2D(LABELS, 1)])
    rate = tf.keras.optimizers.schedules.CosineDecay(3e-3, STEPS)
    net.compile(tf.keras.optimizers.Adam(rate), tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    data = tf.data.Dataset.from_tensor_slices(examples()).repeat().shuffle(PEOPLE, SEED).batch(BATCH)
    net.fit(data, steps_per_epoch=STEPS, verbose=2)
    return [tuple(layer.get_weights()) for layer in net.layers]


def graph(weights: list[tuple[np.ndarray, np.ndarray]]) -> onnx.ModelProto:
    """Build the ONNX model of the trained convolutions."""
    nodes, constants, at = [], [], 'input'
    for number, (kernel, bias) in enumerate(weights):
        _, stride, dilation = LAYERS[number] if number < len(LAYERS) else (0, 1, 0)
        # With stride 2, Keras pads an even side by one, at its end.
        pads = [0, 0, 1, 1] if stride == 2 else [dilation] * 4
        constants += [numpy_helper.from_array(kernel.transpose(3, 2, 0, 1).copy(), f'kernel_{number}'),
                      numpy_helper.from_array(bias, f'bias_{number}')]
        last = number == len(LAYERS)
        out = 'fusion' if last else f'sum_{number}'
        nodes.append(helper.make_node('Conv', [at, f'kernel_{number}', f'bias_{number}'], [out], pads=pads,
                                      strides=[stride] * 2, dilations=[max(1, dilation)] * 2))
        if not last:
            nodes.append(helper.make_node('Relu', [out], [f'layer_{number}']))
        at = f'layer_{number}'
    float_tensor = helper.make_tensor_value_info
    made = helper.make_graph(nodes, 'people_parser',
                             [float_tensor('input', TensorProto.FLOAT, [1, 3, HEIGHT, WIDTH])],
                             [float_tensor('fusion', TensorProto.FLOAT, [1, LABELS, *CELLS])], constants)
    return helper.make_model(made, opset_imports=[helper.make_opsetid('', 13)], ir_version=8)


if __name__ == '__main__':
    PATH.write_bytes(graph(train()).SerializeToString())
    print(PATH, PATH.stat().st_size)
