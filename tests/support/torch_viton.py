"""VITON-HD's three networks in PyTorch, with the authors' weight names.

Written from figures 10 to 12 and the names and shapes in the authors' state dicts, in NCHW, without our own layers.
`width` multiplies all channels but those of inputs and outputs; 1 is the published network.
"""
import functools

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import spectral_norm

from support import viton_inputs
from support.recorder import Recorder, numpy_maps, torch_maps

EPSILON = 1e-5


def scaled(channels: int, width: float) -> int:
    """To the nearest even number."""
    return max(2, 2 * round(channels * width / 2))


def measure(net: nn.Module, *inputs) -> None:
    """Sets the statistics of batch normalisation to those of these inputs, rounded to float32.

    With others, what is alike in all inputs would hide what differs in a network of random weights.
    """
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.reset_running_stats()
            module.momentum = None  # the mean of all passes, of this one
    with torch.no_grad():
        net.train()(*inputs)
        for name, value in net.eval().named_buffers():
            if 'running' in name:
                value.copy_(value.float())


class Segmentation(nn.Module):
    """Figure 10 with the authors' convolution after each upsampling. Twenty-one channels -> probabilities of 13."""

    def __init__(self, width=1.0):
        super().__init__()
        widths = [scaled(channels, width) for channels in (64, 128, 256, 512, 1024)]
        for level, (before, n) in enumerate(zip([21, *widths], widths), 1):
            setattr(self, f'conv{level}', nn.Sequential(*self.layers(before, n), *self.layers(n, n)))
        for level, (below, n) in enumerate(zip(widths[:0:-1], widths[-2::-1]), 6):
            setattr(self, f'up{level}', nn.Sequential(nn.UpsamplingNearest2d(scale_factor=2),
                                                      *self.layers(below, n)))
            setattr(self, f'conv{level}', nn.Sequential(*self.layers(2 * n, n), *self.layers(n, n)))
        self.conv9.append(nn.Conv2d(widths[0], 13, 3, padding=1))

    @staticmethod
    def layers(before, width):
        return nn.Conv2d(before, width, 3, padding=1), nn.InstanceNorm2d(width), nn.ReLU()

    def forward(self, x):
        skips = [self.conv1(x)]
        for block in (self.conv2, self.conv3, self.conv4, self.conv5):
            skips.append(block(F.max_pool2d(skips[-1], 2)))
        x = skips.pop()
        for level in range(6, 10):
            x = torch.cat([skips.pop(), getattr(self, f'up{level}')(x)], 1)
            x = getattr(self, f'conv{level}')(x)
        return torch.sigmoid(x)


class Extractor(nn.Module):
    """Figure 11's left, ReLU before the normalisation; the last convolution has none."""

    def __init__(self, channels, width):
        super().__init__()
        widths = [channels, *(scaled(n, width) for n in (64, 128, 256, 512))]
        self.model = nn.Sequential()
        for before, n in zip(widths, widths[1:]):
            self.model.extend([nn.Conv2d(before, n, 4, 2, 1), nn.ReLU(), nn.BatchNorm2d(n)])
        self.model.extend([nn.Conv2d(n, n, 3, 1, 1), nn.ReLU(), nn.BatchNorm2d(n)])
        self.model.extend([nn.Conv2d(n, n, 3, 1, 1), nn.ReLU()])

    def forward(self, x):
        x = self.model(x)
        return x / x.norm(dim=1, keepdim=True).clamp(min=1e-12)


class Regression(nn.Module):
    """Figure 11's right, at 256x192: correlations with the 16x12 places of the person -> 2 x 25 numbers."""

    def __init__(self, width):
        super().__init__()
        self.conv, before = nn.Sequential(), 192
        for channels, size, stride in ((512, 4, 2), (256, 4, 2), (128, 3, 1), (64, 3, 1)):
            n = scaled(channels, width)
            self.conv.extend([nn.Conv2d(before, n, size, stride, 1), nn.BatchNorm2d(n), nn.ReLU()])
            before = n
        self.linear = nn.Linear(n * 4 * 3, 50)

    def forward(self, x):
        return torch.tanh(self.linear(self.conv(x).flatten(1)))


class GeometricMatching(nn.Module):
    """Person [B, 7, 256, 192], garment [B, 3, 256, 192] -> theta [B, 50]: the 25 x, then the 25 y."""

    def __init__(self, width=1.0):
        super().__init__()
        self.extractionA, self.extractionB = Extractor(7, width), Extractor(3, width)
        self.regression = Regression(width)

    def forward(self, person, garment):
        a, b = self.extractionA(person), self.extractionB(garment)
        correlation = torch.einsum('bcyx,bchw->bxyhw', a, b)  # the person's places down the columns
        return self.regression(correlation.flatten(1, 2))


def warp(theta, height, width, extent=0.9):
    """The authors' sampling grid [B, height, width, 2]: spline through the control points, by a linear solver.

    Control point k is (x, y) = (c[k // 5], c[k % 5]): their x and y are swapped against the usual order.
    """
    c = torch.linspace(-extent, extent, 5, dtype=torch.float64)
    control = torch.stack([c.repeat_interleave(5), c.repeat(5)], 1)  # [25, 2]
    y, x = torch.meshgrid(torch.linspace(-extent, extent, height, dtype=torch.float64),
                          torch.linspace(-extent, extent, width, dtype=torch.float64), indexing='ij')
    places = torch.stack([x.flatten(), y.flatten()], 1)

    def basis(points):
        square = torch.cdist(points, control, compute_mode='donot_use_mm_for_euclid_dist') ** 2
        return torch.cat([torch.xlogy(square, square), torch.ones(len(points), 1), points], 1)  # [n, 28]
    affine = torch.cat([torch.ones(25, 1), control], 1)
    system = torch.cat([basis(control), torch.cat([affine.T, torch.zeros(3, 3)], 1)], 0)
    targets = control + theta.double().reshape(-1, 2, 25).transpose(1, 2)  # [B, 25, 2]
    solved = torch.linalg.solve(system, F.pad(targets, (0, 0, 0, 3)))
    return (basis(places) @ solved).reshape(-1, height, width, 2)


class Norm(nn.Module):
    """ALIAS normalisation, its noise given: [B, H, W]."""

    def __init__(self, channels, classes, hidden):
        super().__init__()
        self.noise_scale = nn.Parameter(torch.zeros(channels))
        self.conv_shared = nn.Sequential(nn.Conv2d(classes, hidden, 3, padding=1), nn.ReLU())
        self.conv_gamma = nn.Conv2d(hidden, channels, 3, padding=1)
        self.conv_beta = nn.Conv2d(hidden, channels, 3, padding=1)

    def forward(self, x, segmentation, misaligned, noise):
        x = x + self.noise_scale[:, None, None] * noise[:, None]
        regions = [torch.ones_like(x[:, :1])] if misaligned is None else [misaligned, 1 - misaligned]
        normal = sum(standardised(x, region) for region in regions)
        shared = self.conv_shared(segmentation)
        return normal * (1 + self.conv_gamma(shared)) + self.conv_beta(shared)


def standardised(x, region):
    """Mean 0 and deviation 1 in a region [B, 1, H, W], and 0 elsewhere. The variance that gets epsilon is of the whole
    picture with the region's mean outside it."""
    pixels = region.sum((2, 3), keepdim=True).clamp(min=1)
    share = pixels / (x.shape[2] * x.shape[3])
    deviation = region * (x - (region * x).sum((2, 3), keepdim=True) / pixels)
    return deviation * (share / (deviation.square().mean((2, 3), keepdim=True) + EPSILON)).sqrt()


class Block(nn.Module):
    """An ALIAS ResBlk."""

    def __init__(self, before, channels, masked, hidden):
        super().__init__()
        middle, classes = min(before, channels), 8 if masked else 7
        self.masked = masked
        self.conv_0 = spectral_norm(nn.Conv2d(before, middle, 3, padding=1))
        self.conv_1 = spectral_norm(nn.Conv2d(middle, channels, 3, padding=1))
        self.norm_0, self.norm_1 = Norm(before, classes, hidden), Norm(middle, classes, hidden)
        if before != channels:
            self.conv_s = spectral_norm(nn.Conv2d(before, channels, 1, bias=False))
            self.norm_s = Norm(before, classes, hidden)

    def forward(self, x, parse, divided, misaligned, noise):
        step = parse.shape[2] // x.shape[2]
        segmentation = (divided if self.masked else parse)[:, :, ::step, ::step]
        misaligned = misaligned[:, :, ::step, ::step] if self.masked else None

        def norm(name, x):
            return getattr(self, name)(x, segmentation, misaligned, noise(name, *x.shape[2:]))
        shortcut = self.conv_s(norm('norm_s', x)) if hasattr(self, 'conv_s') else x
        y = self.conv_0(F.leaky_relu(norm('norm_0', x), 0.2))
        return shortcut + self.conv_1(F.leaky_relu(norm('norm_1', y), 0.2))


class Alias(nn.Module):
    """Figure 12. Nine channels, seven classes, those with the misaligned eighth, and it alone -> a picture.

    noise(block, norm, height, width) gives the noise [B, height, width] of a normalisation; blocks count from 0.
    """
    BLOCKS = {'head_0': 1024, 'G_middle_0': 1024, 'G_middle_1': 1024, 'up_0': 512, 'up_1': 256, 'up_2': 128,
              'up_3': 64, 'up_4': 32}

    def __init__(self, width=1.0):
        super().__init__()
        before = first = scaled(1024, width)
        injected, hidden = scaled(16, width), scaled(128, width)
        for level, (name, channels) in enumerate(self.BLOCKS.items()):
            n = scaled(channels, width)
            setattr(self, f'conv_{level}', nn.Conv2d(9, injected if level else first, 3, padding=1))
            setattr(self, name, Block(before, n, level < 5, hidden))
            before = n + injected
        self.conv_img = nn.Conv2d(n, 3, 3, padding=1)

    def forward(self, x, parse, divided, misaligned, noise):
        maps = None
        for level, name in enumerate(self.BLOCKS):
            step = 2 ** (7 - level)
            injected = getattr(self, f'conv_{level}')(x[:, :, ::step, ::step])
            if maps is not None:
                height, width = injected.shape[2:]  # 192 is a pixel and a half of the first maps
                maps = maps.repeat_interleave(2, 2).repeat_interleave(2, 3)[..., :height, :width]
                injected = torch.cat([maps, injected], 1)
            maps = getattr(self, name)(injected, parse, divided, misaligned, functools.partial(noise, level))
        return torch.tanh(self.conv_img(F.leaky_relu(maps, 0.2)))


def record_segmentation(recorder: Recorder) -> None:
    _, width, size = viton_inputs.CASES[recorder.reference]
    net = recorder.network(lambda: Segmentation(width))
    given = [torch_maps(each) for each in viton_inputs.segmentation(recorder, size).values()]
    step = 4 if recorder.reference == 'segmentation' else 8
    recorder.put('probabilities', numpy_maps(net(torch.cat(given, 1))), step=step)


def record_matching(recorder: Recorder) -> None:
    _, width, size = viton_inputs.CASES[recorder.reference]
    net = recorder.network(lambda: GeometricMatching(width))
    first = [torch_maps(recorder.uniform(f'measured {name}', [4, *size, channels]))
             for name, channels in (('person', 7), ('cloth', 3))]
    measure(net, *first)
    recorder.put_measured({name: value for name, value in net.state_dict().items() if 'running' in name})
    *person, cloth = (torch_maps(each) for each in viton_inputs.matching(recorder, size).values())
    theta = net(torch.cat(person, 1), cloth)
    recorder.put('theta', theta)
    recorder.put('grid', warp(theta, 16, 12))


def record_alias(recorder: Recorder) -> None:
    _, width, size = viton_inputs.CASES[recorder.reference]
    net = recorder.network(lambda: Alias(width))

    def noise(block, norm, height, width):
        site = viton_inputs.site_of(block, norm)
        return torch_maps(viton_inputs.noise(recorder, site, height, width))[:, 0]
    given = [torch_maps(each) for each in viton_inputs.alias(recorder, size).values()]
    recorder.put('picture', numpy_maps(net(*given, noise)), step=8 if size[1] > 256 else 4)
