"""Files of published image-comparison networks with random weights, written as `torch.save` does."""
import pathlib

import numpy as np

from support import torch_zip
from support.references import Reference

CHANNELS = (64, 192, 384, 256, 256)  # of AlexNet's layers


def write(reference: Reference, path: pathlib.Path) -> str:
    """A recorded network's weights; returns the path."""
    return torch_zip.write(path, reference.weights())


def lins(reference: Reference) -> dict[str, np.ndarray]:
    """Weights of LPIPS's channels."""
    names = {f'lin{layer}.model.1.weight': channels for layer, channels in enumerate(CHANNELS)}
    return {name: reference.uniform(name, [1, channels, 1, 1], 0, 1) for name, channels in names.items()}
