"""VITON-HD's three networks in PyTorch, as the authors' weights have them: what the tests of importing compare with.

Written from figures 10 to 12 and the names and shapes in the authors' state dicts, in NCHW, without our own layers.
"""
import functools

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import spectral_norm

EPSILON = 1e-5


def randomise(net: nn.Module, seed: int) -> nn.Module:
    """Random values for every parameter and buffer, large enough for nothing to vanish; in the mode that predicts.

    Spectral normalisation is left as training leaves it: its vectors are of the weights before the last step.
    """
    draw = torch.Generator().manual_seed(seed)
    state = net.state_dict()
    for name, value in state.items():
        if name.endswith('running_var'):
            value.uniform_(0.5, 2, generator=draw)
        elif value.ndim > 1:
            value.normal_(0, (1 / value[0].numel()) ** 0.5, generator=draw)
        elif value.is_floating_point():
            value.normal_(1.0 if name.endswith('weight') else 0.0, 0.3, generator=draw)
    for name in [name.removesuffix('_orig') for name in state if name.endswith('_orig')]:
        u, v, weight = state[f'{name}_u'], state[f'{name}_v'], state[f'{name}_orig'].flatten(1)
        v.copy_(F.normalize(weight.T @ u, dim=0))
        u.copy_(F.normalize(weight @ v, dim=0))
        weight.mul_(1 + 0.1 * torch.randn(weight.shape, generator=draw))
    return net.eval()


def measure(net: nn.Module, *inputs) -> None:
    """Sets the statistics of batch normalisation to those of these inputs: else what is alike in all of them hides, in
    a random network, what differs."""
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.reset_running_stats()
            module.momentum = None  # the mean of all passes, of this one
    with torch.no_grad():
        net.train()(*inputs)
    net.eval()


class Segmentation(nn.Module):
    """Figure 10 with the authors' convolution after each upsampling. Twenty-one channels -> probabilities of 13."""
    WIDTHS = 64, 128, 256, 512, 1024

    def __init__(self):
        super().__init__()
        for level, (before, width) in enumerate(zip((21, *self.WIDTHS), self.WIDTHS), 1):
            setattr(self, f'conv{level}', nn.Sequential(*self.layers(before, width), *self.layers(width, width)))
        for level, width in enumerate(self.WIDTHS[-2::-1], 6):
            setattr(self, f'up{level}', nn.Sequential(nn.UpsamplingNearest2d(scale_factor=2),
                                                      *self.layers(2 * width, width)))
            setattr(self, f'conv{level}', nn.Sequential(*self.layers(2 * width, width), *self.layers(width, width)))
        self.conv9.append(nn.Conv2d(64, 13, 3, padding=1))

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

    def __init__(self, channels):
        super().__init__()
        widths = [channels, 64, 128, 256, 512]
        self.model = nn.Sequential()
        for before, width in zip(widths, widths[1:]):
            self.model.extend([nn.Conv2d(before, width, 4, 2, 1), nn.ReLU(), nn.BatchNorm2d(width)])
        self.model.extend([nn.Conv2d(512, 512, 3, 1, 1), nn.ReLU(), nn.BatchNorm2d(512)])
        self.model.extend([nn.Conv2d(512, 512, 3, 1, 1), nn.ReLU()])

    def forward(self, x):
        x = self.model(x)
        return x / x.norm(dim=1, keepdim=True).clamp(min=1e-12)


class Regression(nn.Module):
    """Figure 11's right, at 256x192: correlations with the 16x12 places of the person -> 2 x 25 numbers."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential()
        for before, width, size, stride in ((192, 512, 4, 2), (512, 256, 4, 2), (256, 128, 3, 1), (128, 64, 3, 1)):
            self.conv.extend([nn.Conv2d(before, width, size, stride, 1), nn.BatchNorm2d(width), nn.ReLU()])
        self.linear = nn.Linear(64 * 4 * 3, 50)

    def forward(self, x):
        return torch.tanh(self.linear(self.conv(x).flatten(1)))


class GeometricMatching(nn.Module):
    """Person [B, 7, 256, 192], garment [B, 3, 256, 192] -> theta [B, 50]: the 25 x, then the 25 y."""

    def __init__(self):
        super().__init__()
        self.extractionA, self.extractionB, self.regression = Extractor(7), Extractor(3), Regression()

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
    return (basis(places) @ solved).reshape(-1, height, width, 2).float()


class Norm(nn.Module):
    """ALIAS normalisation, its noise given: [B, H, W]."""

    def __init__(self, channels, classes):
        super().__init__()
        self.noise_scale = nn.Parameter(torch.zeros(channels))
        self.conv_shared = nn.Sequential(nn.Conv2d(classes, 128, 3, padding=1), nn.ReLU())
        self.conv_gamma = nn.Conv2d(128, channels, 3, padding=1)
        self.conv_beta = nn.Conv2d(128, channels, 3, padding=1)

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

    def __init__(self, before, channels, masked):
        super().__init__()
        middle, classes = min(before, channels), 8 if masked else 7
        self.masked = masked
        self.conv_0 = spectral_norm(nn.Conv2d(before, middle, 3, padding=1))
        self.conv_1 = spectral_norm(nn.Conv2d(middle, channels, 3, padding=1))
        self.norm_0, self.norm_1 = Norm(before, classes), Norm(middle, classes)
        if before != channels:
            self.conv_s = spectral_norm(nn.Conv2d(before, channels, 1, bias=False))
            self.norm_s = Norm(before, classes)

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
    BLOCKS = {'head_0': (1024, 1024), 'G_middle_0': (1040, 1024), 'G_middle_1': (1040, 1024), 'up_0': (1040, 512),
              'up_1': (528, 256), 'up_2': (272, 128), 'up_3': (144, 64), 'up_4': (80, 32)}

    def __init__(self):
        super().__init__()
        for level, (name, (before, channels)) in enumerate(self.BLOCKS.items()):
            setattr(self, f'conv_{level}', nn.Conv2d(9, 16 if level else 1024, 3, padding=1))
            setattr(self, name, Block(before, channels, masked=level < 5))
        self.conv_img = nn.Conv2d(32, 3, 3, padding=1)

    def forward(self, x, parse, divided, misaligned, noise):
        maps = None
        for level, name in enumerate(self.BLOCKS):
            step = 2 ** (7 - level)
            injected = getattr(self, f'conv_{level}')(x[:, :, ::step, ::step])
            if maps is not None:
                injected = torch.cat([maps.repeat_interleave(2, 2).repeat_interleave(2, 3), injected], 1)
            maps = getattr(self, name)(injected, parse, divided, misaligned, functools.partial(noise, level))
        return torch.tanh(self.conv_img(F.leaky_relu(maps, 0.2)))
