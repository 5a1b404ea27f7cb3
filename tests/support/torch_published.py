"""The published image-comparison networks in PyTorch (NCHW), with the names of their files."""
import torch
from torch import nn
from torch.nn import functional as F

from support.recorder import Recorder, double, torch_maps

MEAN = torch.tensor([0.485, 0.456, 0.406], dtype=torch.float64)[:, None, None]
DEVIATION = torch.tensor([0.229, 0.224, 0.225], dtype=torch.float64)[:, None, None]
LINS = {f'lin{layer}.model.1.weight': width for layer, width in enumerate((64, 192, 384, 256, 256))}


def vgg19() -> nn.Module:
    """torchvision's, its `features` up to the last ReLU, and of its classifier a weight nobody reads."""
    net, before = nn.Module(), 3
    net.features = nn.Sequential()
    for width, layers in ((64, 2), (128, 2), (256, 4), (512, 4), (512, 4)):
        for _ in range(layers):
            net.features.extend([nn.Conv2d(before, width, 3, padding=1), nn.ReLU()])
            before = width
        net.features.append(nn.MaxPool2d(2, 2))
    net.classifier = nn.Linear(2, 2)
    return net


def vgg19_features(net: nn.Module, picture) -> list:
    """[B, 3, H, W] in [0, 1] -> relu1_1, relu2_1, relu3_1, relu4_1, relu5_1."""
    x, found = (picture - MEAN) / DEVIATION, []
    for number, layer in enumerate(net.features):
        x = layer(x)
        if number in (1, 6, 11, 20, 29):
            found.append(x)
    return found


def alexnet() -> nn.Module:
    """torchvision's, and of its classifier a weight nobody reads."""
    net = nn.Module()
    net.features = nn.Sequential(
        nn.Conv2d(3, 64, 11, 4, 2), nn.ReLU(), nn.MaxPool2d(3, 2),
        nn.Conv2d(64, 192, 5, padding=2), nn.ReLU(), nn.MaxPool2d(3, 2),
        nn.Conv2d(192, 384, 3, padding=1), nn.ReLU(), nn.Conv2d(384, 256, 3, padding=1), nn.ReLU(),
        nn.Conv2d(256, 256, 3, padding=1), nn.ReLU(), nn.MaxPool2d(3, 2))
    net.classifier = nn.Linear(2, 2)
    return net


def lpips(net: nn.Module, lins: dict, made, true):
    """The distance of two pictures [B, 3, H, W] in [-1, 1], as LPIPS takes them -> [B]. `lins`: as in its file."""
    x, total, layer = torch.cat([made, true]), 0, 0
    shift, scale = (torch.tensor(v)[:, None, None] for v in ([-.030, -.088, -.188], [.458, .448, .450]))
    x = (x - shift) / scale
    for module in net.features:
        x = module(x)
        if isinstance(module, nn.ReLU):
            unit = x / (x.square().sum(1, keepdim=True).sqrt() + 1e-10)
            square = (unit[:len(made)] - unit[len(made):]) ** 2
            total = total + F.conv2d(square, lins[f'lin{layer}.model.1.weight']).mean((1, 2, 3))
            layer += 1
    return total


class Inception:
    """Inception-v3 of 2015-12-05 (Szegedy et al. 2015, figures 5 to 7, widths of the published file).

    Called with images [B, 3, 299, 299] in [-1, 1], it returns features [B, 2048].

    Args:
      state: the state dict.
      measuring: statistics of batch normalisation are first set to those of the images, rounded to float32.
        With others, what is alike in all images would hide what differs in a network of random weights.
    """
    KINDS = (('Mixed_5b', 'a', 32), ('Mixed_5c', 'a', 64), ('Mixed_5d', 'a', 64), ('Mixed_6a', 'b', 0),
             ('Mixed_6b', 'c', 128), ('Mixed_6c', 'c', 160), ('Mixed_6d', 'c', 160), ('Mixed_6e', 'c', 192),
             ('Mixed_7a', 'd', 0), ('Mixed_7b', 'e', F.avg_pool2d), ('Mixed_7c', 'e', F.max_pool2d))

    def __init__(self, state, measuring):
        self.state, self.measuring = state, measuring

    def conv(self, x, name, width, size, stride=1, padding=0):
        """Convolution without bias, batch normalisation, ReLU."""
        x = F.conv2d(x, self.state[f'{name}.conv.weight'], None, stride, padding)
        parts = 'running_mean', 'running_var', 'weight', 'bias'
        mean, var, scale, offset = (f'{name}.bn.{part}' for part in parts)
        if self.measuring:
            self.state |= {mean: x.mean((0, 2, 3)).float().double(), var: x.var((0, 2, 3)).float().double()}
        return F.relu(F.batch_norm(x, *(self.state[each] for each in (mean, var, scale, offset)), eps=0.001))

    def chain(self, x, name, *layers):
        """Layers (width, size, stride, padding) one after another, numbered from 1."""
        for number, layer in enumerate(layers, 1):
            x = self.conv(x, f'{name}_{number}', *layer)
        return x

    def a(self, x, name, pooled):
        return [self.conv(x, f'{name}.branch1x1', 64, 1),
                self.chain(x, f'{name}.branch5x5', (48, 1), (64, 5, 1, 2)),
                self.chain(x, f'{name}.branch3x3dbl', (64, 1), (96, 3, 1, 1), (96, 3, 1, 1)),
                self.conv(mean(x), f'{name}.branch_pool', pooled, 1)]

    def b(self, x, name, _):
        return [self.conv(x, f'{name}.branch3x3', 384, 3, 2),
                self.chain(x, f'{name}.branch3x3dbl', (64, 1), (96, 3, 1, 1), (96, 3, 2)), F.max_pool2d(x, 3, 2)]

    def c(self, x, name, n):
        across, down = ((1, 7), 1, (0, 3)), ((7, 1), 1, (3, 0))
        return [self.conv(x, f'{name}.branch1x1', 192, 1),
                self.chain(x, f'{name}.branch7x7', (n, 1), (n, *across), (192, *down)),
                self.chain(x, f'{name}.branch7x7dbl', (n, 1), (n, *down), (n, *across), (n, *down), (192, *across)),
                self.conv(mean(x), f'{name}.branch_pool', 192, 1)]

    def d(self, x, name, _):
        return [self.chain(x, f'{name}.branch3x3', (192, 1), (320, 3, 2)),
                self.chain(x, f'{name}.branch7x7x3', (192, 1), (192, (1, 7), 1, (0, 3)), (192, (7, 1), 1, (3, 0)),
                           (192, 3, 2)), F.max_pool2d(x, 3, 2)]

    def e(self, x, name, pool):
        def fork(x, name):
            return [self.conv(x, f'{name}a', 384, (1, 3), 1, (0, 1)), self.conv(x, f'{name}b', 384, (3, 1), 1, (1, 0))]
        pooled = mean(x) if pool is F.avg_pool2d else pool(x, 3, 1, 1)
        return [self.conv(x, f'{name}.branch1x1', 320, 1),
                *fork(self.conv(x, f'{name}.branch3x3_1', 384, 1), f'{name}.branch3x3_2'),
                *fork(self.chain(x, f'{name}.branch3x3dbl', (448, 1), (384, 3, 1, 1)), f'{name}.branch3x3dbl_3'),
                self.conv(pooled, f'{name}.branch_pool', 192, 1)]

    def __call__(self, x):
        for name, layer in (('1a_3x3', (32, 3, 2)), ('2a_3x3', (32, 3)), ('2b_3x3', (64, 3, 1, 1))):
            x = self.conv(x, f'Conv2d_{name}', *layer)
        x = F.max_pool2d(x, 3, 2)
        for name, layer in (('3b_1x1', (80, 1)), ('4a_3x3', (192, 3))):
            x = self.conv(x, f'Conv2d_{name}', *layer)
        x = F.max_pool2d(x, 3, 2)
        for name, kind, what in self.KINDS:
            x = torch.cat(getattr(self, kind)(x, name, what), 1)
        return x.mean((2, 3))


def mean(x):
    """Of 3 x 3, without what lies outside."""
    return F.avg_pool2d(x, 3, 1, 1, count_include_pad=False)


class Layout(Inception):
    """Notes the shape of every weight, without computing any."""

    def __init__(self):
        super().__init__({'fc.weight': [1008, 2048], 'fc.bias': [1008]}, False)
        self(torch.empty([1, 3, 299, 299], device='meta'))

    def conv(self, x, name, width, size, stride=1, padding=0):
        height, across = size if isinstance(size, tuple) else (size, size)
        shape = [width, x.shape[1], height, across]
        parts = 'weight', 'bias', 'running_mean', 'running_var'
        self.state |= {f'{name}.conv.weight': shape, **{f'{name}.bn.{part}': [width] for part in parts},
                       f'{name}.bn.num_batches_tracked': []}
        return F.conv2d(x, torch.empty(shape, device='meta'), None, stride, padding)


def record_inception(recorder: Recorder) -> None:
    state = recorder.weights(Layout().state)
    images = torch_maps(recorder.uniform('images', [2, 9, 7, 3], 0, 1))
    shown = 2 * F.interpolate(images, (299, 299), mode='bilinear', align_corners=False) - 1
    features = Inception(state, measuring=True)(shown)
    recorder.put_measured({name: value for name, value in state.items() if 'running' in name})
    recorder.put('features', features)


def record_lpips(recorder: Recorder) -> None:
    net = recorder.network(alexnet, gain=2.0)
    lins = {name: double(recorder.uniform(name, [1, width, 1, 1], 0, 1)) for name, width in LINS.items()}
    made, true = (torch_maps(recorder.uniform(name, [2, 80, 67, 3], 0, 1)) for name in ('made', 'true'))
    recorder.put('distance', lpips(net, lins, 2 * made - 1, 2 * true - 1))


def record_vgg19(recorder: Recorder) -> None:
    net = recorder.network(vgg19, gain=2.0)
    image = torch_maps(recorder.uniform('image', [1, 48, 33, 3]))
    for number, maps in enumerate(vgg19_features(net, (image + 1) / 2), 1):
        recorder.put(f'relu{number}_1', maps.permute(0, 2, 3, 1), step=4 if number < 4 else 1)
