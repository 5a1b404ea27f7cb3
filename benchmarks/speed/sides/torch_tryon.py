"""VITON-HD by its authors' networks, `authors` being the folder of their networks.py, in PyTorch's fastest layout."""
import importlib
import sys
import types

import inputs_tryon
import numpy as np
import side
import torch
from torch import nn
from torch.nn import functional as F

BLUR, SIGMA = 15, 3
UPPER = 3
GROUPS = ((0,), (2, 4, 7, 8, 9, 10, 11), (3,), (1,), (5,), (6,), (12,))  # of the classes, for the ALIAS generator
SCALES = 2

torch.Tensor.cuda = lambda self: self  # ALIAS normalisation puts its noise there


def load(authors: str) -> types.ModuleType:
    sys.path.append(authors)
    return importlib.import_module('networks')


def options(size: list[int]) -> types.SimpleNamespace:
    """Return the authors' options for the published weights."""
    return types.SimpleNamespace(load_height=size[0], load_width=size[1], semantic_nc=len(GROUPS), grid_size=5, ngf=64,
                                 norm_G='spectralaliasinstance', num_upsampling_layers='most', init_type='xavier',
                                 init_variance=0.02)


def filled(network: nn.Module) -> nn.Module:
    """With the weights shared by all sides."""
    shapes = {name: tuple(value.shape) for name, value in network.state_dict().items() if value.ndim}
    network.load_state_dict({name: torch.from_numpy(value) for name, value in inputs_tryon.weights(shapes).items()},
                            strict=False)  # batches are not counted
    return network.to(memory_format=torch.channels_last)


def segmentation(networks: types.ModuleType) -> nn.Module:
    return filled(networks.SegGenerator(options(inputs_tryon.LOW), inputs_tryon.CLASSES + 8, inputs_tryon.CLASSES))


def matching(networks: types.ModuleType, size: list[int]) -> nn.Module:
    """Return the geometric matching module, for garments of a size."""
    network = networks.GMM(options([1024, 768]), 7, 3)  # that size over 64 is its correlation's
    del network.gridGen  # whose constants have no layout of channels last
    filled(network).gridGen = networks.TpsGridGen(options(size))
    return network


def pairs(batch: int, size: list[int]) -> dict[str, torch.Tensor]:
    """Persons and garments, and what the segmentation generator draws; classes are [batch, height, width]."""
    found = inputs_tryon.pairs(batch, size) | {'noise': inputs_tryon.noise(batch)}
    return {name: torch.from_numpy(value).permute(0, 3, 1, 2) if value.ndim == 4 else torch.from_numpy(value).long()
            for name, value in found.items()}


def one_hot(parse: torch.Tensor) -> torch.Tensor:
    return (parse[..., None] == torch.arange(inputs_tryon.CLASSES)).permute(0, 3, 1, 2).float()


def joined(*maps: torch.Tensor) -> torch.Tensor:
    return torch.cat(maps, 1).contiguous(memory_format=torch.channels_last)


def shown(given: dict[str, torch.Tensor], resize) -> list[torch.Tensor]:
    """Return the inputs of the segmentation generator and its discriminator."""
    return [resize(each) for each in (given['cloth_mask'], given['cloth'] * given['cloth_mask'],
                                      one_hot(given['agnostic_parse']), given['pose'])]


def low(picture: torch.Tensor, mode: str) -> torch.Tensor:
    return F.interpolate(picture, inputs_tryon.LOW, mode=mode)


def blur() -> torch.Tensor:
    """Return a Gaussian for every class."""
    weights = np.exp(-0.5 * ((np.arange(BLUR) - BLUR // 2) / SIGMA) ** 2)
    kernel = torch.tensor(np.outer(weights, weights) / weights.sum() ** 2, dtype=torch.float32)
    return kernel.expand(inputs_tryon.CLASSES, 1, BLUR, BLUR).contiguous()


def viton_hd_forward(size: list[int], authors: str) -> side.Work:
    networks = load(authors)
    predict, match = segmentation(networks).eval(), matching(networks, size).eval()
    synthesise, given, kernel = filled(networks.ALIASGenerator(options(size), 9)).eval(), pairs(1, size), blur()

    @torch.inference_mode()
    def made():
        scores = predict(joined(*shown(given, lambda each: low(each, 'bilinear')), given['noise']))
        scores = F.conv2d(F.interpolate(scores, size, mode='bilinear'), kernel, padding=BLUR // 2, groups=len(kernel))
        parse = one_hot(scores.argmax(1))
        S = joined(*(parse[:, classes].sum(1, keepdim=True) for classes in GROUPS))
        agnostic, pose, cloth = given['agnostic'], given['pose'], given['cloth']
        person = [low(each, 'nearest') for each in (parse[:, UPPER:UPPER + 1], pose, agnostic)]
        grid = match(joined(*person), low(cloth, 'nearest'))[1]
        warped, mask = (F.grid_sample(each, grid, padding_mode='border', align_corners=False)
                        for each in (cloth, given['cloth_mask']))
        bare = F.relu(S[:, 2:3] - mask)
        S_div = joined(S[:, :2], S[:, 2:3] - bare, S[:, 3:], bare)
        return {'parse': parse, 'warped': warped,
                'image': synthesise(joined(agnostic, pose, warped), S, S_div, bare)}

    def once():
        made()
        return 1
    found = {name: value.permute(0, 2, 3, 1).numpy() for name, value in made().items()}
    return side.Work(inputs_tryon.answer(found), once)


def adam(network: nn.Module, rate: float) -> torch.optim.Adam:
    return torch.optim.Adam(network.parameters(), rate, (0.5, 0.999), fused=True)


def norms(generator: str, network: nn.Module) -> dict[str, np.ndarray]:
    """Norms of the compared gradients."""
    kernels = dict(network.named_parameters())
    return {name: kernels[name].grad.norm().numpy() for name in inputs_tryon.WATCHED[generator]}


def second_order(theta: torch.Tensor, spline: nn.Module) -> torch.Tensor:
    """Neighbours of a control point on either side shall be equally far from it and in one line (eq. 12)."""
    at = (theta + torch.cat([spline.P_X_base, spline.P_Y_base])[:, 0]).view(-1, 2, 5, 5)
    found = torch.zeros([])
    for one, other in ((at[..., :-2, 1:-1], at[..., 2:, 1:-1]), (at[..., 1:-1, :-2], at[..., 1:-1, 2:])):
        one, other = one - at[..., 1:-1, 1:-1], other - at[..., 1:-1, 1:-1]
        lengths = [torch.sqrt(each.square().sum(1) + 1e-12) for each in (one, other)]
        cross = one[:, 1] * other[:, 0] - other[:, 1] * one[:, 0]
        found = found + (lengths[0] - lengths[1]).abs() + cross.abs()
    return found.sum((1, 2)).mean()


def geometric_step(batch: int, authors: str) -> side.Work:
    network = matching(load(authors), inputs_tryon.LOW).train()
    given, optimizer = pairs(batch, inputs_tryon.LOW), adam(network, 2e-4)

    def learn():
        """Return the loss, with gradients left in the weights."""
        worn = (given['parse'] == UPPER)[:, None].float()
        theta, grid = network(joined(worn, given['pose'], given['agnostic']), given['cloth'])
        warped = F.grid_sample(given['cloth'], grid, padding_mode='border', align_corners=False)
        loss = F.l1_loss(warped, given['image'] * worn + (1 - worn)) + 0.04 * second_order(theta, network.gridGen)
        optimizer.zero_grad()
        loss.backward()
        return loss.detach().numpy()

    def once():
        learn()
        optimizer.step()
        return batch
    return side.Work({'loss of geometric_matching': learn(), **norms('geometric_matching', network)}, once)


def patches(maps: int) -> nn.Sequential:
    """One of the discriminators: C64-C128-C256-C512 and the decisions."""
    found = nn.Sequential()
    for number, channels in enumerate((64, 128, 256, 512), 1):
        how = {'stride': 2, 'padding': 1} if number < 4 else {'padding': 'same'}
        found.add_module(f'conv{number}', nn.Conv2d(maps, channels, 4, bias=number == 1, **how))
        if number > 1:
            found.add_module(f'norm{number}', nn.InstanceNorm2d(channels))
        found.add_module(f'rectifier{number}', nn.LeakyReLU(0.2))
        maps = channels
    found.add_module('decisions', nn.Conv2d(maps, 1, 4, padding='same'))
    return found


def decisions(scales: nn.ModuleList, x: torch.Tensor) -> list[torch.Tensor]:
    found = []
    for network in scales:
        found.append(network(x))
        x = F.avg_pool2d(x, 3, 2, ceil_mode=True, count_include_pad=False)
    return found


def segmentation_step(batch: int, authors: str) -> side.Work:
    network = segmentation(load(authors)).train()
    network.sigmoid = nn.Identity()  # the cross-entropy is of logits
    given = pairs(batch, inputs_tryon.LOW)
    judge = filled(nn.ModuleList(patches(2 * inputs_tryon.CLASSES + 7) for _ in range(SCALES)))
    optimizers = adam(network, 4e-4), adam(judge, 4e-4)

    def learn():
        """Return the losses of both, with gradients left in the weights."""
        X = shown(given, lambda each: each)
        logits = network(joined(*X, given['noise']))
        fake = decisions(judge, joined(*X, logits.sigmoid()))
        real = decisions(judge, joined(*X, one_hot(given['parse'])))
        loss = sum(((each - 1) ** 2).mean() for each in fake) + 10 * F.cross_entropy(logits, given['parse'])
        judged = sum(((one - 1) ** 2).mean() + (other ** 2).mean() for one, other in zip(real, fake)) / 2
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward(inputs=[*network.parameters()], retain_graph=True)
        judged.backward(inputs=[*judge.parameters()])
        return loss.detach().numpy(), judged.detach().numpy()

    def once():
        learn()
        for optimizer in optimizers:
            optimizer.step()
        return batch
    network.drop.p = 0.0  # for the answer, as what is drawn is not the same on all sides
    loss, judged = learn()
    network.drop.p = 0.5
    return side.Work({'loss of segmentation': loss, 'loss of segmentation_discriminator': judged,
                      **norms('segmentation', network)}, once)


if __name__ == '__main__':
    side.serve({'viton_hd_forward': viton_hd_forward, 'geometric_step': geometric_step,
                'segmentation_step': segmentation_step})
