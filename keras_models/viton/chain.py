"""Figure 3 of VITON-HD: three networks run as one graph.

The segmentation generator predicts the parse (3.2), the geometric matching module warps the garment (3.3), and the
ALIAS generator makes the image (3.4).
"""
import dataclasses
from typing import Any, Literal

import numpy as np
import tensorflow as tf
from tensorflow import keras

from keras_models.core import resizing
from keras_models.viton import alias, geometric_matching, geometry, segmentation

PARTS = {'segmentation': segmentation, 'geometric_matching': geometric_matching, 'alias': alias}
CLASSES = segmentation.CLASSES
UPPER = 3  # class of S
BLUR = 0.75  # standard deviation of the enlarged parse's blur, in pixels of the parse before
# Classes in each of `alias.GROUPS`.
GROUPED = ((0,), (2, 4, 7, 8, 9, 10, 11), (3,), (1,), (5,), (6,), (12,))
# Presets of the chain, beside those of the networks.
PRESETS: dict[str, dict] = {'paper': {}, 'official': {'levels': 'truncated'}, 'own_data': {}}
# Display colours of CLASSES.
COLOURS = np.array([(40, 40, 40), (120, 70, 20), (235, 190, 150), (60, 140, 220), (70, 70, 150), (250, 150, 110),
                    (250, 110, 150), (120, 190, 110), (70, 150, 90), (200, 200, 60), (160, 160, 40), (150, 90, 190),
                    (200, 200, 200)], np.uint8)


@dataclasses.dataclass
class Config:
    """Settings of the whole chain.

    `size`: height and width of images, by default the data's. The parse and the warp are predicted at `low` (4.1).
    `segmentation`, `geometric_matching` and `alias` hold keys of the networks, which override the preset.

    `trainable_networks`: which of the three a run trains. A run that trains the ALIAS generator, the last, or nothing
    holds all three, so that it can be exported; any other holds only what it trains. `features`: published weights of
    VGG-19, or a run of it, for the perceptual loss. `levels`: how outputs become whole levels: rounded or, as the
    authors save theirs, truncated.
    """
    # the paper's settings, those of the published code, or those for small data sets
    preset: Literal['paper', 'official', 'own_data'] = 'paper'
    size: list[int] | None = None
    low: list[int] = dataclasses.field(default_factory=lambda: [256, 192])
    segmentation: dict[str, Any] = dataclasses.field(default_factory=dict)
    geometric_matching: dict[str, Any] = dataclasses.field(default_factory=dict)
    alias: dict[str, Any] = dataclasses.field(default_factory=dict)
    trainable_networks: list[str] = dataclasses.field(default_factory=lambda: [*PARTS])
    steps: int | None = None  # updates in which rates fall whose `decay_updates` is empty; empty: train.steps
    features: str = ''
    levels: Literal['rounded', 'truncated'] = 'rounded'

    def __post_init__(self):
        if unknown := {*self.trainable_networks} - {*PARTS}:
            raise ValueError(f'trainable_networks may name {", ".join(PARTS)}; it names {min(unknown)}')
        for name in PARTS:
            part(self, name)


def preset_values(config: Config) -> dict[str, dict[str, Any]]:
    """Return the keys in which presets differ, such as `alias.noise`: key -> value in each preset and in `config`."""
    shared = {'low': config.low, 'size': config.size, 'steps': config.steps}
    found = {preset: _values(Config(**{**own, **shared, 'preset': preset})) for preset, own in PRESETS.items()}
    found['this run'] = _values(config)
    return {name: {key: values[key] for key in _changed()} for name, values in found.items()}


def _changed() -> list[str]:
    own = [f'{name}.{key}' for name, module in PARTS.items() for values in module.PRESETS.values() for key in values]
    return [*dict.fromkeys([*(key for values in PRESETS.values() for key in values), *own])]


def _values(config: Config) -> dict[str, Any]:
    own = {f'{name}.{key}': value for name in PARTS for key, value in vars(part(config, name)).items()}
    return {**vars(config), **own}


def part(config: Config, name: str) -> Any:
    """Return the configuration of one of the networks.

    Raises:
      ValueError: a key is unknown, or a value is invalid.
    """
    module, own = PARTS[name], getattr(config, name)
    known = {field.name for field in dataclasses.fields(module.Config)} - {'preset', 'size'}
    if unknown := {*own} - known:
        raise ValueError(f'{name}.{min(unknown)}: there is no such key; known keys: {", ".join(sorted(known))}')
    values = {**module.PRESETS[config.preset], **own, 'preset': config.preset}
    if values.get('decay_updates', 0) is None:
        values['decay_updates'] = config.steps or 0
    size = config.size if name == 'alias' else config.low
    return module.Config(**values, **({'size': size} if size else {}))


def pixels(picture, levels: Literal['rounded', 'truncated'] = 'rounded') -> tf.Tensor:
    """Convert levels in [-1, 1] to uint8, see `Config`."""
    if levels == 'truncated':  # in the authors' order of operations, because float32 rounding matters at whole numbers
        return tf.cast(tf.clip_by_value((picture + 1) * 0.5 * 255, 0, 255), tf.uint8)
    return tf.cast(tf.round(127.5 * (tf.clip_by_value(picture, -1, 1) + 1)), tf.uint8)


def noise(seed, shape):
    """Return 1 where a standard normal draw exceeds 1, else 0: the authors' noise for the segmentation generator."""
    return tf.cast(tf.random.stateless_normal(shape, seed, alg='philox') > 1, tf.float32)


def segmentation_noise(own: segmentation.Config, n, seed) -> dict[str, tf.Tensor]:
    """Return the noise of n samples as an input; nothing if the segmentation generator takes none."""
    return {'noise': noise(seed, tf.stack([n, *own.size, 1]))} if 'noise' in own.inputs else {}


def segmentation_inputs(own: segmentation.Config, given: dict, seed) -> dict[str, tf.Tensor]:
    """Return the segmentation generator's inputs at its size: X of eq. (10), and noise, unless `given` has it."""
    cloth = given['cloth'] * given['cloth_mask'] if 'cloth_mask' in own.inputs else given['cloth']
    full = {**given, 'cloth': cloth, 'agnostic_parse': tf.one_hot(given['agnostic_parse'], CLASSES)}
    low = {name: resizing.bilinear(full[name], *own.size) for name in own.inputs if name != 'noise'}
    if 'noise' in given:
        return low | {'noise': given['noise']}
    return low | segmentation_noise(own, tf.shape(cloth)[0], seed)


def segment(net: keras.Model, config: Config, given: dict, seed) -> tf.Tensor:
    """Predict S^ [B, H, W, 13], (b) of figure 3, as one-hot classes."""
    own = part(config, 'segmentation')
    inputs = segmentation_inputs(own, given, seed)
    scores = segmentation.probabilities(tf.cast(net({**inputs, 'seed': seed}, training=False), tf.float32), own)
    height, width = given['cloth'].shape[1:3]
    # Enlarged pixels have jagged edges, which a blur smooths: 15 x 15 with sigma 3 in the authors' code, which enlarges
    # fourfold. At 192 x 128, enlarged twice, that blur would cost a parse that is right at 96 x 64 0.04 of its IoU.
    scores = geometry.gaussian_blur(resizing.bilinear(scores, height, width), BLUR * height / own.size[0])
    return tf.one_hot(tf.argmax(scores, -1), CLASSES)


def matching_inputs(own: geometric_matching.Config, given: dict, parse_cloth) -> dict[str, tf.Tensor]:
    """Return the geometric matching module's inputs at its size; `parse_cloth` is S_c [B, H, W, 1]."""
    return {name: resizing.nearest(picture, *own.size) for name, picture in (
        ('parse_cloth', parse_cloth), ('pose', given['pose']), ('agnostic', given['agnostic']),
        ('cloth', given['cloth']))}


def warp(net: keras.Model, config: Config, given: dict, parse_cloth,
         precision: tf.DType = tf.float64) -> tuple[tf.Tensor, tf.Tensor]:
    """Warp the garment and its mask onto the person, (c), see `warped`; `parse_cloth` is S^_c [B, H, W, 1]."""
    theta = net(matching_inputs(part(config, 'geometric_matching'), given, parse_cloth), training=False)
    return warped(config, given, theta, precision)


def warped(config: Config, given: dict, theta, precision: tf.DType = tf.float64) -> tuple[tf.Tensor, tf.Tensor]:
    """Return W(c, theta) [B, H, W, 3] and W(c_m, theta) [B, H, W, 1] for theta [B, 2, 5, 5], see `Spline.grid`."""
    height, width = given['cloth'].shape[1:3]
    spline = geometric_matching.spline(part(config, 'geometric_matching'))
    grid = spline.grid(theta, height, width, precision)
    both = geometry.sample(tf.concat([given['cloth'], given['cloth_mask']], -1), grid)
    return both[..., :3], both[..., 3:]


def grouped(parse) -> tf.Tensor:
    """Group S [B, H, W, 13] to [B, H, W, 7], the ALIAS generator's groups."""
    return tf.stack([tf.add_n([parse[..., one] for one in classes]) for classes in GROUPED], -1)


def alias_inputs(given: dict, parse, warped, warped_mask) -> dict[str, tf.Tensor]:
    """Return the ALIAS generator's inputs.

    parse: S [B, H, W, 13]; the part of its garment that W(c_m, theta) leaves bare is M_misalign (eq. 4).
    """
    S = grouped(parse)
    M_misalign = tf.nn.relu(S[..., 2:3] - warped_mask)
    S_div = tf.concat([S[..., :2], S[..., 2:3] - M_misalign, S[..., 3:], M_misalign], -1)
    inputs = tf.concat([given['agnostic'], given['pose'], warped], -1)
    return {'inputs': inputs, 'S': S, 'S_div': S_div, 'M_misalign': M_misalign}


def synthesise(net: keras.Model, given: dict, parse, warped, warped_mask, seed) -> tf.Tensor:
    """Generate the image, (d): [B, H, W, 3] in [-1, 1]."""
    return net({**alias_inputs(given, parse, warped, warped_mask), 'seed': seed}, training=False)


def try_on(nets: dict[str, keras.Model], config: Config, given: dict, seed, parse=None) -> dict[str, tf.Tensor]:
    """Run all of figure 3.

    Args:
      given: `agnostic` I_a, `pose` P and `cloth` c [B, H, W, 3] in [-1, 1], `cloth_mask` [B, H, W, 1], and
        `agnostic_parse` S_a, int [B, H, W], classes; other keys are ignored.
      seed: int32 [2], of all noise.
      parse: S [B, H, W, 13] if it is known, as when pairs are reconstructed (4.3); otherwise it is predicted.

    Returns:
      `image` [B, H, W, 3] in [-1, 1], and intermediate results: `parse` S^ [B, H, W, 13], `warped` W(c, theta) and
      `warped_mask`.
    """
    parse = segment(nets['segmentation'], config, given, seed) if parse is None else parse
    warped, mask = warp(nets['geometric_matching'], config, given, parse[..., UPPER:UPPER + 1])
    image = synthesise(nets['alias'], given, parse, warped, mask, seed)
    return {'image': tf.cast(image, tf.float32), 'parse': parse, 'warped': warped, 'warped_mask': mask}
