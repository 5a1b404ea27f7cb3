"""The same networks in PyTorch, in its fastest layout for convolutions, channels last."""
import tempfile

import inputs
import numpy as np
import onnxruntime
import side
import torch
from torch import nn
from torch.nn import functional


class Pyramid(nn.Module):
    """Spatial pyramid pooling. `bins`: of all levels together."""

    def __init__(self, *levels: int):
        super().__init__()
        self.levels = levels

    def forward(self, x):
        return torch.cat([functional.adaptive_max_pool2d(x, level).flatten(1) for level in self.levels], 1)


def dense(inputs: int, *, hidden=nn.ReLU) -> list[nn.Module]:
    return [nn.Linear(inputs, 4096), hidden(), nn.Linear(4096, 4096), hidden(), nn.Linear(4096, 1000)]


def vgg16() -> nn.Module:
    parts: list[nn.Module] = []
    channels = 3
    for maps, times in (64, 2), (128, 2), (256, 3), (512, 3), (512, 3):
        for _ in range(times):
            parts += [nn.Conv2d(channels, maps, 3, padding=1), nn.ReLU(inplace=True)]
            channels = maps
        parts.append(nn.MaxPool2d(2))
    return filled(nn.Sequential(*parts, nn.Flatten(), *dense(7 * 7 * 512)), [7], 512)


def alexnet() -> nn.Module:
    def normalised():
        return [nn.ReLU(inplace=True), nn.LocalResponseNorm(5, 5 * 1e-4, 0.75, 2.0), nn.MaxPool2d(3, 2)]
    parts = [nn.ZeroPad2d((1, 2, 1, 2)), nn.Conv2d(3, 96, 11, 4), *normalised(),
             nn.Conv2d(96, 256, 5, padding=2, groups=2), *normalised(),
             nn.Conv2d(256, 384, 3, padding=1), nn.ReLU(inplace=True),
             nn.Conv2d(384, 384, 3, padding=1, groups=2), nn.ReLU(inplace=True),
             nn.Conv2d(384, 256, 3, padding=1, groups=2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2)]
    return filled(nn.Sequential(*parts, nn.Flatten(), *dense(6 * 6 * 256)), [6], 256)


def model_a() -> nn.Module:
    parts = [nn.Conv2d(3, 96, 7, 2, 3), nn.PReLU(96), nn.MaxPool2d(2)]
    channels = 96
    for n, maps in enumerate((256, 512, 512)):
        parts += [nn.MaxPool2d(2)] if n else []
        for _ in range(5):
            parts += [nn.Conv2d(channels, maps, 3, padding=1), nn.PReLU(maps)]
            channels = maps
    levels = 7, 3, 2, 1
    bins = sum(level ** 2 for level in levels)
    network = nn.Sequential(*parts, Pyramid(*levels), *dense(bins * 512, hidden=lambda: nn.PReLU(4096)))
    return filled(network, levels, 512)


NETWORKS = {'vgg16': vgg16, 'alexnet': alexnet, 'model_a': model_a}


def filled(network: nn.Module, sides, channels: int) -> nn.Module:
    """Assign the weights shared by all sides to a network.

    The first matrices read square maps of these `sides`, whose channels are the last axis there and the first here.
    """
    parts = [part for part in network.modules() if isinstance(part, nn.Conv2d | nn.Linear | nn.PReLU)]
    shapes: list[tuple[int, ...]] = []
    for part in parts:
        shape = tuple(part.weight.shape)
        shapes += [shape] if len(shape) == 1 else [(*shape[2:], *shape[1::-1]), shape[:1]]
    found = iter(inputs.weights(shapes))
    first = True
    for part in parts:
        kernel = next(found)
        if isinstance(part, nn.Linear) and first:
            blocks = np.split(kernel, np.cumsum([side ** 2 * channels for side in sides])[:-1])
            kernel = np.concatenate([block.reshape(-1, channels, 4096).transpose(1, 0, 2).reshape(-1, 4096)
                                     for block in blocks])
            first = False
        if kernel.ndim > 1:
            kernel = kernel.transpose(3, 2, 0, 1) if kernel.ndim == 4 else kernel.T
            part.bias.data = torch.from_numpy(next(found))
        part.weight.data = torch.from_numpy(np.ascontiguousarray(kernel))
    return network.to(memory_format=torch.channels_last)


def images(batch: int) -> torch.Tensor:
    return torch.from_numpy(inputs.pictures(batch, 224)).permute(0, 3, 1, 2).contiguous(
        memory_format=torch.channels_last)


def forward(net: str, batch: int, file: str = '') -> side.Work:
    """Scores of images; or by the `file`, onnx, in onnxruntime."""
    network, given = NETWORKS[net]().eval(), images(batch)
    if file == 'onnx':
        return of_onnx(network, given)

    def once():
        with torch.inference_mode():
            network(given)
        return batch
    with torch.inference_mode():
        return side.Work({'scores': network(given).numpy()}, once)


def of_onnx(network: nn.Module, given: torch.Tensor) -> side.Work:
    with tempfile.TemporaryDirectory() as folder:
        path = f'{folder}/network.onnx'
        torch.onnx.export(network, (given,), path, input_names=['image'], opset_version=17, dynamo=False)
        session = onnxruntime.InferenceSession(path, providers=['CPUExecutionProvider'])
    pictures = given.numpy()

    def once():
        session.run(None, {'image': pictures})
        return len(pictures)
    return side.Work({'scores': session.run(None, {'image': pictures})[0]}, once)


def step(net: str, batch: int) -> side.Work:
    network, given = NETWORKS[net]().train(), images(batch)
    labels = torch.from_numpy(inputs.labels(batch)).long()
    groups = [[weight for weight in network.parameters() if (weight.ndim > 1) is decays] for decays in (True, False)]
    optimizer = torch.optim.SGD([{'params': groups[0], 'weight_decay': inputs.DECAY}, {'params': groups[1]}],
                                inputs.RATE, inputs.MOMENTUM)

    def train() -> float:
        loss = functional.cross_entropy(network(given), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    def once():
        train()
        return batch
    return side.Work({'losses': np.array([train(), train()])}, once)


if __name__ == '__main__':
    side.serve({'forward': forward, 'step': step})
