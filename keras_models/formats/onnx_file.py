"""Convert a network for ONNX, the exchange format that onnxruntime runs on CPUs, on GPUs and in browsers."""
import logging

import numpy as np
import tensorflow as tf

from keras_models.protocol import Part

OPSET = 17  # onnxruntime reads it from version 1.12 on, its build for browsers too


def convert(part: Part) -> bytes:
    """Return a network's ONNX file, with inputs and outputs of the names of its function.

    tf2onnx copies constants so often that VGG's 531 MB took 18 GB. Here weights are inputs of the graph it converts,
    and become constants of the file afterwards: 4.2 GB.
    """
    import onnx
    import tf2onnx
    logging.getLogger('tf2onnx').setLevel(logging.ERROR)
    function = part.function.get_concrete_function()
    graph, weights = _fed(function)
    inputs = [tensor.name for tensor in function.inputs if tensor.dtype != tf.resource]
    names = {name: name.removesuffix(':0') for name in inputs}
    names |= {tensor.name: name for name, tensor in function.structured_outputs.items()}
    model, _ = tf2onnx.convert.from_graph_def(
        graph, input_names=[*inputs, *(f'{name}:0' for name in weights)], opset=OPSET, tensors_to_rename=names,
        output_names=[tensor.name for tensor in function.outputs])
    for given in list(model.graph.input):
        if (name := given.name.removesuffix(':0')) in weights:
            model.graph.input.remove(given)
            model.graph.initializer.append(onnx.numpy_helper.from_array(weights[name], given.name))
    onnx.checker.check_model(model)
    return model.SerializeToString()


def _fed(function) -> tuple[tf.compat.v1.GraphDef, dict[str, np.ndarray]]:
    """Return a function's graph with an input in place of every read of a variable, and the variables' values by it."""
    graph = function.graph.as_graph_def()
    variables = {placeholder.op.name: variable for captured, placeholder in function.graph.captures
                 for variable in function.variables if captured is variable.handle}
    weights = {}
    for node in graph.node:
        if node.op == 'ReadVariableOp':
            variable = variables[node.input[0]]
            weights[node.name] = variable.numpy()
            node.op = 'Placeholder'
            del node.input[:]
            node.attr['shape'].shape.CopyFrom(variable.shape.as_proto())
    nodes = [node for node in graph.node if node.name not in variables]
    del graph.node[:]
    graph.node.extend(nodes)
    return graph, weights
