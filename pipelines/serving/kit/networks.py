"""Open the networks of a folder, with TensorFlow Lite or onnxruntime.

pip install tflite-runtime        # for files of the suffix .tflite
pip install onnxruntime           # for files of the suffix .onnx
"""
import pathlib


def load(folder):
    """Return every network of a folder by name: a function of named arrays -> arrays by name."""
    opened = {'.tflite': tflite, '.onnx': onnx}
    return {path.stem: opened[path.suffix](path) for path in sorted(pathlib.Path(folder).iterdir())
            if path.suffix in opened}


def tflite(path):
    """Open a network with TensorFlow Lite: alone (tflite-runtime), or as a part of TensorFlow."""
    try:
        from tflite_runtime.interpreter import Interpreter
    except ImportError:
        from tensorflow.lite.python.interpreter import Interpreter
    return Interpreter(str(path)).get_signature_runner()


def onnx(path):
    """Open a network with onnxruntime."""
    import onnxruntime
    session = onnxruntime.InferenceSession(str(path), providers=['CPUExecutionProvider'])
    names = [output.name for output in session.get_outputs()]
    return lambda **inputs: dict(zip(names, session.run(names, inputs)))
