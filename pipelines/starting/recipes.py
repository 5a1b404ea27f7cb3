"""Recipes by task and data size: nets from small to large, batches, dropout, and how much training is enough.

Learning rates and schedules are those of `preset: own_data` of each paper's module; these recipes depend on the data.
"""
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from pipelines.starting.findings import Candidate, Findings, Keys, Sections, merged

POOL = '2x2 maxpool, /2'
# PReLU nets in the notation of He et al.'s tables, on the maps of about 32 x 32 that a stem outputs. With the last
# one `prelu_cifar10` reached 12.1% error on CIFAR-10, before it took more layers of fewer filters.
BODIES: dict[str, tuple[list[str], int]] = {  # name -> layers, units of the dense one
    'three narrow convolutions': (['3x3, 16', POOL, '3x3, 32', POOL, '3x3, 64'], 64),
    'three convolutions': (['3x3, 32', POOL, '3x3, 64', POOL, '3x3, 128'], 128),
    'five convolutions': (['3x3, 64', POOL, '3x3, 128', '3x3, 128', POOL, '3x3, 256', '3x3, 256'], 256)}
# Stems, which reduce a crop to those maps: crop -> layers.
STEMS: dict[int, list[str]] = {
    16: [], 24: [], 32: [], 48: ['3x3, 32', POOL], 64: ['3x3, 32, /2'],
    96: ['7x7, 32, /2', POOL], 128: ['7x7, 32, /2', POOL], 224: ['7x7, 64, /2', POOL]}
# Crops and nets for images of more than `SMALL_SIDE` pixels, by the cost of a step; smaller images are seen whole.
SMALL_SIDE = 56
LADDER = [(48, 'three narrow convolutions'), (64, 'three narrow convolutions'), (64, 'three convolutions'),
          (96, 'three convolutions'), (128, 'three convolutions'), (128, 'five convolutions'),
          (224, 'five convolutions')]
ZOOM = 1.25  # the shorter side of an image is up to this many times a crop's side
# Larger images are stored with this shorter side: to decode 12 megapixels takes 32 ms of a core, at every step.
STORED = round(ZOOM * max(crop for crop, _ in LADDER))


class Amount(NamedTuple):
    """A row of a table by number of training examples; the first row whose `up_to` is large enough applies."""
    up_to: float
    values: dict[str, Any]


# Dropout by data size: one half if each image is seen hundreds of times.
IMAGES = [Amount(300, {'rows': 16, 'dropout': 0.5, 'learning_rate': 0.02}),
          Amount(3_000, {'rows': 32, 'dropout': 0.5, 'learning_rate': 0.02}),
          Amount(30_000, {'rows': 64, 'dropout': 0.4, 'learning_rate': 0.03}),
          Amount(math.inf, {'rows': 64, 'dropout': 0.3, 'learning_rate': 0.03})]

# Transformers by layers, width and feed-forward width. The third is `multi30k_en_de`'s, the last the paper's base.
TRANSFORMERS = [{'N': 2, 'd_model': 128, 'd_ff': 256, 'h': 4}, {'N': 4, 'd_model': 128, 'd_ff': 256, 'h': 4},
                {'N': 3, 'd_model': 256, 'd_ff': 1024, 'h': 4},
                {'N': 6, 'd_model': 256, 'd_ff': 1024, 'h': 4}, {'N': 6, 'd_model': 512, 'd_ff': 2048, 'h': 8}]
# By training pairs. A batch of fewer tokens allows more steps on a small corpus. `nets`: how many of the nets above are
# worth trying, however fast the machine is. `hurried`: values for minutes that are few for so many pairs. In 3 minutes
# 29,000 captions took 560 steps of 4,096 tokens to 15.8 BLEU, and 2,000 of 1,024 with half the subwords to 25.3; for
# 5,000 captions, two such ways are equal (22.7 and 22.0). From 1,000 captions the second net learned 4.0 BLEU in 3
# minutes, and 13.3 with `norm: pre`; the first learned 15.1. R-Drop (Liang et al. 2021) is for those who have hours:
# of 1,000 captions, steps of half the pairs, each passing twice, gave 1.2 BLEU instead of 12.5 after 1,500, 11.7
# instead of 14.0 after 4,500 (weight 5), and 14.5 after 9,000 (weight 2).
HURRIED = {'tokens': 1024, 'vocab_size': 4000, 'nets': 1}
PAIRS = [Amount(60, {'tokens': 1024, 'vocab_size': 700, 'P_drop': 0.0, 'nets': 1}),  # memorised
         Amount(2_000, {'tokens': 1024, 'vocab_size': 1000, 'P_drop': 0.3, 'nets': 1}),
         Amount(10_000, {'tokens': 2048, 'vocab_size': 3000, 'P_drop': 0.3, 'nets': 3}),
         Amount(100_000, {'tokens': 4096, 'vocab_size': 8000, 'P_drop': 0.3, 'nets': 4, 'hurried': HURRIED}),
         Amount(1_000_000, {'tokens': 4096, 'vocab_size': 16000, 'P_drop': 0.1, 'nets': 5, 'hurried': HURRIED}),
         Amount(math.inf, {'tokens': 8192, 'vocab_size': 32000, 'P_drop': 0.1, 'nets': 5, 'hurried': HURRIED})]
# `substitutions`: see `data_prep/trees/substitution.py`; on 2,723 trees they took F1 from 29.1 to 47.7 by eq. (3).
TREES = [Amount(2_000, {'tokens': 2048, 'vocab_size': 2000, 'P_drop': 0.1, 'nets': 2, 'substitutions': 19}),
         Amount(10_000, {'tokens': 2048, 'vocab_size': 3000, 'P_drop': 0.1, 'nets': 3, 'substitutions': 19}),
         Amount(math.inf, {'tokens': 4096, 'vocab_size': 8000, 'P_drop': 0.1, 'nets': 5, 'substitutions': 0})]

# Passes over the data that a net needs before a larger one is worth its time, and beyond which more passes gain
# little, by number of examples. Values in between are interpolated logarithmically.
PASSES = {'images': ((200, 100, 400), (1_000, 60, 200), (10_000, 20, 80), (50_000, 8, 60), (1_000_000, 10, 60)),
          'pairs': ((20, 200, 800), (1_000, 60, 150), (5_000, 40, 100), (30_000, 15, 60), (1_000_000, 3, 20),
                    (5_000_000, 2, 10)),
          'trees': ((1_000, 60, 200), (3_000, 40, 120), (40_000, 15, 60)),
          'tryon': ((100, 40, 400), (1_000, 10, 100), (12_000, 4, 60))}

# From this many passes on, pairs of two languages are learned in both directions in this share of the steps, the first.
# 1,000 captions of Multi30k, passed 174 times, so have 3.53 instead of 3.71 nats a subword on the validation set (15.7
# instead of 14.9 BLEU to French, 16.3 instead of 16.0 to German); 5,000, passed 41 times, have 2.79 instead of 2.73.
BOTH_WAYS = 100, 1 / 3

# Bucket lengths: the quantiles at these shares of the examples, rounded up to these multiples. Each bucket costs a
# trace, and the few longest examples get one of their own.
BUCKETS = {'pairs': ((0.4, 0.75, 0.95, 0.997), 2), 'trees': ((0.2, 0.45, 0.7, 0.9, 0.99), 8)}
LONGEST = 256  # subwords; longer examples are dropped


def buckets(kind: str, lengths: np.ndarray) -> list[int]:
    """Return bucket lengths for examples of these lengths, in subwords."""
    shares, multiple = BUCKETS[kind]
    return sorted({max(8, int(min(LONGEST, multiple * np.ceil(np.quantile(lengths, share) / multiple))))
                   for share in shares})


def of_lengths(kind: str, inputs: np.ndarray, targets: np.ndarray) -> dict[str, Any]:
    """Return the facts that follow from the subwords of both sides of the training examples.

    The search ends when no open hypothesis, at the longest permitted length, could still win; so `extra_length` decides
    how long it lasts: of Multi30k's captions, 20 takes 0.62 of the processor time of the paper's 50.
    """
    longer = np.quantile(targets.astype(int) - inputs, 0.999)
    return {'buckets': buckets(kind, np.maximum(inputs, targets)), 'extra_length': max(10, math.ceil(1.25 * longer))}


def row(table: list[Amount], examples: int) -> dict[str, Any]:
    """Return a table's values for this many training examples."""
    return next(amount.values for amount in table if examples <= amount.up_to)


def passes(kind: str, examples: int) -> tuple[float, float]:
    """Return how often a net should see each example: at least, before a larger net is tried, and at most."""
    points = PASSES[kind]
    x = min(max(examples, points[0][0]), points[-1][0])
    for (low, *lows), (high, *highs) in zip(points, points[1:]):
        if x <= high:
            t = math.log(x / low) / math.log(high / low)
            least, most = (a * (b / a) ** t for a, b in zip(lows, highs))
            return least, most
    raise ValueError(kind)


def candidates(found: Findings) -> Iterator[Candidate]:
    """Yield the nets to try on this data, from small to large."""
    return {'images': _nets, 'pairs': _transformers, 'trees': _parsers, 'tryon': _try_on}[found.kind](found)


def _nets(found: Findings) -> Iterator[Candidate]:
    amount, side = row(IMAGES, found.examples['train']), found.facts['side']
    if side > SMALL_SIDE:
        order = [(crop, name) for crop, name in LADDER if crop <= 1.2 * side]
        crop, last = order[-1]
        order += [(crop, name) for name in [*BODIES][[*BODIES].index(last) + 1:]]
    else:
        crop = max(crop for crop in STEMS if crop <= max(1.2 * side, min(STEMS)))
        order = [(crop, name) for name in BODIES]
    for crop, name in order:
        yield _net(found, amount, crop, name)


def _net(found: Findings, amount: dict[str, Any], crop: int, name: str) -> Candidate:
    convolutions, units = BODIES[name]
    side = crop
    for line in [*STEMS[crop], *convolutions]:
        side = side // 2 if line.endswith('/2') else side
    levels = [level for level in (4, 3, 2, 1) if level <= side and level != (3 if side >= 4 else 4)]
    grey = found.facts['grey']
    layers = [*STEMS[crop], *convolutions, f'spp, {{{", ".join(map(str, levels))}}}', f'fc, {units}']
    unbalanced = _unbalanced(found.facts['class_counts'])
    views = Keys({'views': (['dense'], 'the whole image; or single, ten_crop, multi_crop')})
    if grey:
        views['flips'] = False, ''
    return Candidate(f'a PReLU net of {name}, at {crop} pixels', {
        'input': {
            'rows': (amount['rows'], 'images per batch'), 'crop': (crop, 'side in pixels of the crops the net sees,'),
            'scales': ([crop, round(ZOOM * crop)], 'range of the rescaled shorter side'),
            'flip': (not grey, 'mirrors half of the images; false where left and right matter, as in letters'),
            'colour': (0.0 if grey else 0.1, 'colour augmentation of Krizhevsky et al. 4.1'),
            'mean': ('rgb', ''), 'standardise': (True, 'standardises levels; without it these rates soon give NaN'),
            **unbalanced.get('input', {})},
        'model': {
            'module': ('keras_models.prelu_net', 'or vgg or alexnet, without layers'),
            'preset': ('own_data', 'rate rises and falls with the run, gradients clipped, labels smoothed; or paper'),
            'layers': (layers, ''), 'learning_rate': (amount['learning_rate'], 'peak learning rate'),
            'dropout': (amount['dropout'], f'for {found.examples["train"]:,} training images'),
            **unbalanced.get('model', {})},
        'inference': views}, amount['rows'])


def _unbalanced(counts: list[int]) -> Sections:
    """Return the keys that make classes of these sizes count alike; none if there are no counts.

    Of 1,600 airplanes and 16 cars of CIFAR-10, seen for two minutes, the mean error over 1,000 others of each was 22.7
    and 22.4% with `class_counts` alone (two seeds), 17.8 and 17.4% with mixup of 0.4, and 14.6 and 15.2% with CutMix,
    which shows the few images of a rare class in many others. On balanced classes it gains nothing in minutes: of ten
    classes of 100 images, 52 instead of 46% of the validation were wrong.
    """
    if not counts:
        return {}
    return {'input': {'cutmix': (1.0, 'mixes images in pairs, so that the few of a rare class are memorised later')},
            'model': {'label_smoothing': (0.0, ''),
                      'class_counts': (counts, 'makes rare classes count as much; leave it out to count images')}}


def _transformers(found: Findings) -> Iterator[Candidate]:
    amount = row(PAIRS, found.examples['train'])
    if 'hurried' in amount:
        yield from _sequence(found, amount | amount['hurried'], {})
    yield from _sequence(found, amount, {})


def _parsers(found: Findings) -> Iterator[Candidate]:
    amount = row(TREES, found.examples['train'])
    more = {'substitutions': (amount['substitutions'], 'trees made from each by replacing phrases')}
    yield from _sequence(found, amount, {
        'data': more if amount['substitutions'] else {},
        'inference': {'alpha': (1.0, ''), 'prefer_well_formed': (True, 'of the beam, the best that is a tree')},
        'model': {'norm': ('pre', 'trains more stably on long outputs')}})


def _sequence(found: Findings, amount: dict[str, Any], more: Sections) -> Iterator[Candidate]:
    # Every letter is a subword: Chinese has more letters than a small corpus is given subwords.
    vocabulary = min(max(amount['vocab_size'], found.facts['least_subwords']), found.facts['most_subwords'])
    buckets = found.facts['buckets']
    rows_of_longest = 8 * buckets[-1]
    tokens = max(amount['tokens'], rows_of_longest)
    longer = found.facts['extra_length']
    for net in TRANSFORMERS[:amount['nets']]:
        model: Keys = {'module': ('keras_models.transformer', ''),
                       'preset': ('own_data', 'rate rises and falls with the run, gradients clipped; or paper')}
        model |= {key: (value, '') for key, value in net.items()}
        model['P_drop'] = amount['P_drop'], f'dropout, for {found.examples["train"]:,} training examples'
        yield Candidate(
            'a Transformer of {N} + {N} layers, {d_model} wide, '.format(**net)
            + f'{vocabulary:,} subwords, batches of {tokens:,}',
            merged({'data': {'vocab_size': (vocabulary, 'subwords')},
                    'input': {'buckets': (buckets, 'lengths in subwords; one compiled shape each'),
                              'tokens': (tokens, 'about this many per batch, on either side')},
                    'inference': {'extra_length': (longer, 'subwords by which an answer may exceed its source')},
                    'model': model}, more), tokens)


# VITON-HD's networks, by share of their width and image height. In 6 minutes on 400 drawn people `preset: own_data` has
# SSIM 0.792, a colour difference of garments of 26.7 and a parse IoU of 0.75; constant rates with discriminators and
# without lambda_mask had 0.763, 32.8 and 0.60.
TRY_ON = ((0.25, 192), (0.25, 256), (0.5, 256), (0.5, 512))
_SIDES = 64  # sides are multiples of this, because ALIAS doubles its maps that often and half-size inputs halve them
_SQUEEZED = 0.08  # largest change of people's aspect ratio


def _try_on(found: Findings) -> Iterator[Candidate]:
    height, width = found.facts['size']
    done: list[tuple] = []
    for share, tall in TRY_ON:
        high = min(tall, height)
        size = [max(1, round(side / _SIDES)) * _SIDES for side in (high, high * width / height)]
        squeezed = abs(size[1] / size[0] / (width / height) - 1) > _SQUEEZED
        if (share, size) in done or (squeezed and tall < 256):
            continue
        done.append((share, size))
        yield Candidate(
            f"VITON-HD's three networks at {share:g} of their width, {size[0]} x {size[1]} pixels", {
                'input': {'rows': (4, 'people per batch'), 'size': (size, 'height and width'),
                          'flip': (True, 'mirrors half of the people')},
                'model': {'module': ('keras_models.viton.try_on', ''),
                          'preset': ('own_data', 'rates fall with the run, warped masks are learned, and L1 replaces '
                                     'the discriminators; or paper'),
                          'low': ([side // 2 for side in size], 'size of predicted parses and warped garments'),
                          'segmentation': ({'width': share}, "share of the paper's channels"),
                          'geometric_matching': ({'width': min(1.0, 2 * share)}, ''),
                          'alias': ({'width': share}, '')}}, 4)
