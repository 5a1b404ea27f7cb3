"""The same networks in PyTorch, in its fastest layout for convolutions, channels last."""
import inputs
import numpy as np
import side
import torch
from torch import nn

VGG16 = (64, 64, 'pool', 128, 128, 'pool', 256, 256, 256, 'pool', 512, 512, 512, 'pool', 512, 512, 512, 'pool')


def images(batch: int, size: int) -> torch.Tensor:
    return torch.from_numpy(inputs.pictures(batch, size)).permute(0, 3, 1, 2).contiguous(
        memory_format=torch.channels_last)


def fill(network: nn.Module, first_dense: tuple[int, int, int]) -> None:
    """Gives a network the weights all sides have; `first_dense` is the map [h, w, channels] its first matrix reads."""
    parts = [part for part in network.modules() if isinstance(part, nn.Conv2d | nn.Linear)]
    shapes: list[tuple[int, ...]] = []
    for part in parts:
        shape = tuple(part.weight.shape)
        shapes += [(*shape[2:], *shape[1::-1]), shape[:1]]
    found = inputs.weights(shapes)
    for part, kernel, bias in zip(parts, found[::2], found[1::2]):
        if isinstance(part, nn.Linear) and len(kernel) == np.prod(first_dense):  # its rows are channels first here
            kernel = kernel.reshape(*first_dense, -1).transpose(2, 0, 1, 3).reshape(kernel.shape)
        order = (3, 2, 0, 1) if kernel.ndim == 4 else (1, 0)
        part.weight.data = torch.from_numpy(np.ascontiguousarray(kernel.transpose(order)))
        part.bias.data = torch.from_numpy(bias)


def vgg16() -> nn.Module:
    parts: list[nn.Module] = []
    channels = 3
    for step in VGG16:
        if isinstance(step, str):
            parts.append(nn.MaxPool2d(2))
        else:
            parts += [nn.Conv2d(channels, step, 3, padding=1), nn.ReLU(inplace=True)]
            channels = step
    parts += [nn.Flatten(), nn.Linear(7 * 7 * 512, 4096), nn.ReLU(inplace=True), nn.Linear(4096, 4096),
              nn.ReLU(inplace=True), nn.Linear(4096, 1000)]
    network = nn.Sequential(*parts)
    fill(network, (7, 7, 512))
    return network.eval().to(memory_format=torch.channels_last)


def vgg16_forward(batch: int) -> side.Work:
    network, given = vgg16(), images(batch, 224)

    def once():
        with torch.inference_mode():
            network(given)
        return batch
    with torch.inference_mode():
        return side.Work({'scores': network(given).numpy()}, once)


if __name__ == '__main__':
    side.serve({'vgg16_forward': vgg16_forward})
