"""PyTorch layers to compare with: spectral normalisation, discriminators and resizing."""
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import spectral_norm

from support.recorder import Recorder, double, numpy_maps, torch_maps

RESIZED = ((295, 250), (250, 295), (1024, 256), (192, 768), (31, 123))


def record_spectral_norm(recorder: Recorder) -> None:
    """Answers before, in and after a training step, which moves u and v; each with the kernel's gradient."""
    layer = spectral_norm(nn.Conv2d(5, 7, 3, padding=1))
    layout = {key: list(value.shape) for key, value in layer.state_dict().items()}
    layer.load_state_dict(recorder.weights(layout))
    maps = torch_maps(recorder.uniform('maps', [2, 8, 6, 5]))
    for step, training in enumerate((False, True, False)):
        layer.train(training).zero_grad()
        answer = layer(maps)
        answer.square().sum().backward()
        recorder.put(f'answer {step}', numpy_maps(answer))
        recorder.put(f'u {step}', layer.weight_u)
        recorder.put(f'v {step}', layer.weight_v)
        recorder.put(f'gradient {step}', layer.weight_orig.grad)


def padded(x, size, stride):
    """As TensorFlow's SAME pads."""
    sides = []
    for n in (x.shape[3], x.shape[2]):
        extra = max(0, (-(-n // stride) - 1) * stride + size - n)
        sides += [extra // 2, extra - extra // 2]
    return F.pad(x, sides)


def discriminator(spectral: bool) -> nn.Module:
    """Two scales of four convolutions and the decisions, an eighth as wide as published."""
    net = nn.Module()
    for scale in range(2):
        layers, before = nn.Module(), 5
        for name, channels, biased in (('conv1', 8, True), ('conv2', 16, False), ('conv3', 32, False),
                                       ('conv4', 64, False), ('decisions', 1, True)):
            convolution = nn.Conv2d(before, channels, 4, bias=biased)
            layers.add_module(name, spectral_norm(convolution) if spectral else convolution)
            before = channels
        net.add_module(f'scale{scale}', layers)
    return net


def record_discriminator(recorder: Recorder) -> None:
    for spectral in (False, True):
        name = 'spectral' if spectral else 'plain'
        net = recorder.network(lambda: discriminator(spectral), name)  # noqa: B023  it is called at once
        x = torch_maps(recorder.uniform('images', [2, 45, 34, 5]))
        for scale, layers in enumerate(net.children()):
            h = x
            for layer, convolution in layers.named_children():
                stride = 2 if layer in ('conv1', 'conv2', 'conv3') else 1
                convolution.stride = (stride, stride)
                h = convolution(padded(h, 4, stride))
                h = F.instance_norm(h, eps=1e-5) if layer in ('conv2', 'conv3', 'conv4') else h
                h = F.leaky_relu(h, 0.2) if layer != 'decisions' else h
                recorder.put(f'{name}/scale{scale}/{layer}', numpy_maps(h), step=2)
            x = F.avg_pool2d(padded(x, 3, 2), 3, 2) / F.avg_pool2d(padded(torch.ones_like(x), 3, 2), 3, 2)


def record_resizing(recorder: Recorder) -> None:
    for n, m in RESIZED:
        line = torch.arange(n, dtype=torch.float32)[None, None]
        chosen = F.interpolate(line, m, mode='nearest')[0, 0].numpy().astype(np.int16)
        recorder.put_exactly({f'nearest {n} to {m}': chosen})
    image = torch_maps(recorder.uniform('image', [2, 9, 6, 3]))
    grid = double(recorder.uniform('grid', [2, 12, 10, 2], -1.3, 1.3))
    recorder.put('bilinear', numpy_maps(F.interpolate(image, (5, 23), mode='bilinear')))
    for mode in ('border', 'zeros'):
        recorder.put(mode, numpy_maps(F.grid_sample(image, grid, padding_mode=mode, align_corners=False)))
