"""Open the networks of a folder, with TensorFlow Lite or onnxruntime.

pip install tflite-runtime        # for files of the suffix .tflite
pip install onnxruntime           # for files of the suffix .onnx
"""
import pathlib

import numpy as np


def load(folder):
    """Return every network of a folder by name: a function of named arrays -> arrays by name."""
    return {path.stem: network(path) for path in sorted(pathlib.Path(folder).iterdir())
            if path.suffix in ('.tflite', '.onnx')}


def network(path):
    """Open one file. Arrays that it does not take are ignored; those in NAME.fixed.npz are the same in every call."""
    run, names = {'.tflite': tflite, '.onnx': onnx}[path.suffix](path)
    beside = path.with_suffix('.fixed.npz')
    fixed = dict(np.load(beside, allow_pickle=False)) if beside.exists() else {}
    return lambda **arrays: run({name: fixed[name] if name in fixed else arrays[name] for name in names})


def tflite(path):
    """Open a file with TensorFlow Lite, alone (tflite-runtime) or as part of TensorFlow; give it and what it takes."""
    try:
        from tflite_runtime.interpreter import Interpreter
    except ImportError:
        from tensorflow.lite.python.interpreter import Interpreter
    runner = Interpreter(str(path)).get_signature_runner()
    return lambda arrays: runner(**arrays), [*runner.get_input_details()]


def onnx(path):
    """Open a file with onnxruntime; give it and the names of what it takes."""
    import onnxruntime
    session = onnxruntime.InferenceSession(str(path), providers=['CPUExecutionProvider'])
    names = [output.name for output in session.get_outputs()]
    return (lambda arrays: dict(zip(names, session.run(names, arrays)))), [each.name for each in session.get_inputs()]
