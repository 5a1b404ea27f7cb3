"""VITON-HD, high-resolution virtual try-on (Choi, Park, Lee, Choo 2021).

Figure 3: of a person and a garment the picture of the person wearing it. Three networks, trained apart, asked as one
graph: the segmentation generator predicts the parse (3.2), the geometric matching module warps the garment (3.3), and
the ALIAS generator makes the picture (3.4).
"""
import dataclasses
from collections.abc import Iterable
from typing import Any, Literal

import numpy as np
import tensorflow as tf
from tensorflow import keras

from keras_models import reason
from keras_models.viton import alias, geometric_matching, geometry, segmentation

UNIT = 'images'
METRICS = ('l1', 'ssim')
PARTS = {'segmentation': segmentation, 'geometric_matching': geometric_matching, 'alias': alias}
CLASSES = segmentation.CLASSES
UPPER = 3  # of the classes of S
# The classes that make each of `alias.GROUPS`.
GROUPED = ((0,), (2, 4, 7, 8, 9, 10, 11), (3,), (1,), (5,), (6,), (12,))
PRESETS: dict[str, dict] = {'paper': {}, 'official': {}}  # of the three networks' own
# One sample at the chain's size, as the data's assets make it of files.
GIVEN = {'agnostic': 3, 'pose': 3, 'cloth': 3, 'cloth_mask': 1}
FILES = ('image', 'parse', 'pose_json', 'pose_image', 'cloth', 'cloth_mask')
PICTURES = ('image', 'parse', 'warped')  # what `look` gives, encoded
# Of CLASSES, for people to look at.
COLOURS = np.array([(40, 40, 40), (120, 70, 20), (235, 190, 150), (60, 140, 220), (70, 70, 150), (250, 150, 110),
                    (250, 110, 150), (120, 190, 110), (70, 150, 90), (200, 200, 60), (160, 160, 40), (150, 90, 190),
                    (200, 200, 200)], np.uint8)


@dataclasses.dataclass
class Config:
    """`size`: height and width of pictures, the data's if empty. The parse is predicted and the warp found at `low`
    (A.3). `segmentation`, `geometric_matching` and `alias` hold keys of the networks' own, over those of the preset."""
    preset: Literal['paper', 'official'] = 'paper'
    size: list[int] | None = None
    low: list[int] = dataclasses.field(default_factory=lambda: [256, 192])
    segmentation: dict[str, Any] = dataclasses.field(default_factory=dict)
    geometric_matching: dict[str, Any] = dataclasses.field(default_factory=dict)
    alias: dict[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        for name in PARTS:
            part(self, name)


def part(config: Config, name: str) -> Any:
    """The configuration of one of the networks.

    Raises:
      ValueError: a key is unknown, or a value is not the network's.
    """
    module, own = PARTS[name], getattr(config, name)
    known = {field.name for field in dataclasses.fields(module.Config)} - {'preset', 'size'}
    if unknown := {*own} - known:
        raise ValueError(f'{name}.{min(unknown)}: there is no such key; there are {", ".join(sorted(known))}')
    values = {**module.PRESETS[config.preset], **own, 'preset': config.preset}
    size = config.size if name == 'alias' else config.low
    return module.Config(**values, **({'size': size} if size else {}))


def build(config: Config) -> dict[str, keras.Model]:
    """The three networks, each as its own module builds it."""
    return {name: net for name, module in PARTS.items() for net in module.build(part(config, name)).values()}


def optimizers(config: Config) -> dict:
    """None: the networks are trained apart, each by a configuration of its module."""
    return {}


def noise(seed, shape):
    """1 where a standard normal draw is over 1, else 0: what the authors' code gives the segmentation generator."""
    return tf.cast(tf.random.stateless_normal(shape, seed, alg='philox') > 1, tf.float32)


def segment(net: keras.Model, config: Config, given: dict, seed) -> tf.Tensor:
    """(b) of figure 3: S^ [B, H, W, 13], 1 at a place's class and 0 elsewhere."""
    own = part(config, 'segmentation')
    assert config.size
    cloth = given['cloth'] * given['cloth_mask'] if 'cloth_mask' in own.inputs else given['cloth']
    full = {**given, 'cloth': cloth, 'agnostic_parse': tf.one_hot(given['agnostic_parse'], CLASSES)}
    low = {name: geometry.bilinear(full[name], *own.size) for name in own.inputs if name != 'noise'}
    if 'noise' in own.inputs:
        low['noise'] = noise(seed, tf.concat([tf.shape(cloth)[:1], own.size, [1]], 0))
    scores = segmentation.probabilities(tf.cast(net({**low, 'seed': seed}, training=False), tf.float32), own)
    # Edges of enlarged pixels are stairs; a blur makes them lines again.
    scores = geometry.gaussian_blur(geometry.bilinear(scores, *config.size))
    return tf.one_hot(tf.argmax(scores, -1), CLASSES)


def warp(net: keras.Model, config: Config, given: dict, parse_cloth) -> tuple[tf.Tensor, tf.Tensor]:
    """(c): the garment and its mask as they lie on the person, W(c, theta) and W(c_m, theta).

    parse_cloth: S^_c [B, H, W, 1].
    """
    own = part(config, 'geometric_matching')
    assert config.size
    low = {name: geometry.nearest(picture, *own.size) for name, picture in (
        ('parse_cloth', parse_cloth), ('pose', given['pose']), ('agnostic', given['agnostic']),
        ('cloth', given['cloth']))}
    theta = net(low, training=False)  # [B, 2, 5, 5]
    grid = geometric_matching.spline(own).grid(theta, *config.size)
    both = geometry.sample(tf.concat([given['cloth'], given['cloth_mask']], -1), grid)
    return both[..., :3], both[..., 3:]


def grouped(parse) -> tf.Tensor:
    """S [B, H, W, 13] -> [B, H, W, 7], the groups the ALIAS generator is told."""
    return tf.stack([tf.add_n([parse[..., one] for one in classes]) for classes in GROUPED], -1)


def synthesise(net: keras.Model, given: dict, parse, warped, warped_mask, seed) -> tf.Tensor:
    """(d): the picture [B, H, W, 3] in [-1, 1].

    parse: S^ [B, H, W, 13]; what of its garment W(c_m, theta) leaves bare is M_misalign (eq. 4).
    """
    S = grouped(parse)
    M_misalign = tf.nn.relu(S[..., 2:3] - warped_mask)
    S_div = tf.concat([S[..., :2], S[..., 2:3] - M_misalign, S[..., 3:], M_misalign], -1)
    inputs = tf.concat([given['agnostic'], given['pose'], warped], -1)
    return net({'inputs': inputs, 'S': S, 'S_div': S_div, 'M_misalign': M_misalign, 'seed': seed}, training=False)


def try_on(nets: dict[str, keras.Model], config: Config, given: dict, seed) -> dict[str, tf.Tensor]:
    """All of figure 3.

    Args:
      given: `agnostic` I_a, `pose` P and `cloth` c [B, H, W, 3] in [-1, 1], `cloth_mask` [B, H, W, 1], and
        `agnostic_parse` S_a, int [B, H, W], classes.
      seed: int32 [2], of all noise.

    Returns:
      `image` [B, H, W, 3] in [-1, 1], and what led to it: `parse` S^ [B, H, W, 13], `warped` W(c, theta) and
      `warped_mask`.
    """
    parse = segment(nets['segmentation'], config, given, seed)
    warped, mask = warp(nets['geometric_matching'], config, given, parse[..., UPPER:UPPER + 1])
    image = synthesise(nets['alias'], given, parse, warped, mask, seed)
    return {'image': tf.cast(image, tf.float32), 'parse': parse, 'warped': warped, 'warped_mask': mask}


@dataclasses.dataclass
class Inference:
    """`seed`: of the noise; the same gives the same picture."""
    seed: int = 1

    def words(self) -> list[str]:
        return [f'noise of seed {self.seed}']


class TryOn(tf.Module):
    """The exported model: files of a person and of a garment in, the picture as PNG out.

    Signatures, [n] strings each; pairs are worked at one by one, so memory does not depend on n:
      serving_default: `image`, the person; `parse`, its parse map; `pose_json`, OpenPose's; `pose_image`, the pose map
        or '' to have it drawn from that; `cloth` and `cloth_mask` -> `image`, PNG files.
      tf_examples: `examples`, serialized tf.Examples with features of these names -> the same.

    `look` takes the same of one pair and gives `PICTURES`: the parse in colours and the warped garment, too.

    Args:
      nets, config: as `build` makes and takes them.
      assets: what the data set knows: `sample(**files)`.
      jit: whether XLA compiles the networks.
    """

    def __init__(self, nets: dict[str, keras.Model], config: Config, inference: Inference, assets, jit: bool = False):
        super().__init__()
        self.nets, self._assets = nets, assets

        def one(given):
            batch = {name: given[name][tf.newaxis] for name in (*GIVEN, 'agnostic_parse')}
            found = try_on(self.nets, config, batch, tf.constant([inference.seed, 0]))
            return {name: value[0] for name, value in found.items()}
        self._try_on = tf.function(one, jit_compile=jit or None)

    def signatures(self) -> dict:
        return {'serving_default': self.serve, 'tf_examples': self.serve_examples}

    def _given(self, files: dict) -> dict:
        """A sample of a fixed size, for which alone there are networks."""
        given = self._assets.sample(**files)
        height, width = self._assets.size
        given = {name: tf.ensure_shape(given[name], [height, width, channels]) for name, channels in GIVEN.items()} | {
            'agnostic_parse': tf.ensure_shape(given['agnostic_parse'], [height, width])}
        return given

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name) for name in FILES])
    def serve(self, image, parse, pose_json, pose_image, cloth, cloth_mask):
        files = dict(zip(FILES, (image, parse, pose_json, pose_image, cloth, cloth_mask)))
        made = tf.map_fn(lambda row: _png(self._try_on(self._given(row))['image']), files, parallel_iterations=1,
                         fn_output_signature=tf.string)
        return {'image': made}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, 'examples')])
    def serve_examples(self, examples):
        features = {name: tf.io.FixedLenFeature([], tf.string, '') for name in FILES}
        parsed = tf.io.parse_example(examples, features)
        return self.serve(*(parsed[name] for name in FILES))

    @tf.function(input_signature=[tf.TensorSpec([], tf.string, name) for name in FILES])
    def look(self, image, parse, pose_json, pose_image, cloth, cloth_mask):
        found = self._try_on(self._given(dict(zip(FILES, (image, parse, pose_json, pose_image, cloth, cloth_mask)))))
        colours = tf.gather(COLOURS, tf.argmax(found['parse'], -1))
        return {'image': _png(found['image']), 'parse': tf.io.encode_png(colours), 'warped': _png(found['warped'])}


def _png(picture) -> tf.Tensor:
    """[h, w, 3] in [-1, 1] -> an encoded picture."""
    return tf.io.encode_png(tf.cast(tf.round(127.5 * (tf.clip_by_value(picture, -1, 1) + 1)), tf.uint8))


def serving(nets: dict[str, keras.Model], config: Config, inference: Inference, assets, jit: bool = False) -> TryOn:
    """The module to export; see `TryOn`."""
    return TryOn(nets, config, inference, assets, jit)


def predict(model, inputs: Iterable[dict[str, bytes]], batch_size: int = 64, jit: bool = False) -> list[dict]:
    """Asks a loaded SavedModel, pair by pair.

    Args:
      model: what `tf.saved_model.load` gives for an exported `TryOn`.
      inputs: files by the names of `FILES`.

    Returns:
      A dict a pair: `PICTURES`, encoded, and `error`. Of files that cannot be used `error` alone, saying why;
      they cost the others nothing.
    """
    del batch_size, jit  # memory is for one pair; what XLA compiles is settled at export
    results: list[dict] = []
    for files in inputs:
        try:
            found = model.look(**{name: tf.constant(files.get(name, b'')) for name in FILES})
            results.append({name: found[name].numpy() for name in PICTURES} | {'error': ''})
        except tf.errors.InvalidArgumentError as error:
            results.append({'error': reason(error)})
    return results


def scores(files: dict[str, bytes], result: dict, row: dict) -> list[float]:
    """METRICS of an answer.

    Args:
      files: what was asked.
      result: as `predict` gives it.
      row: the example's text; its `target` names the person if the garment asked for is the one worn, so that the
        person's picture is what should come out.

    Returns:
      Mean absolute difference of levels 0 to 1, and SSIM; not a number each without a target.
    """
    if not row['target']:
        return [float('nan')] * len(METRICS)
    made, true = (tf.cast(tf.io.decode_image(each, 3, expand_animations=False), tf.float32) / 255
                  for each in (result['image'], files['image']))
    if made.shape != true.shape:
        true = tf.image.resize(true, made.shape[:2], 'area')
    return [float(tf.reduce_mean(tf.abs(made - true))), float(tf.image.ssim(made, true, 1.0))]


def _sum(config: Config, what: str) -> int:
    return sum(getattr(module, what)(part(config, name)) for name, module in PARTS.items())


def parameters(config: Config) -> int:
    """Number of parameters of all three, in closed form."""
    return _sum(config, 'parameters')


def macs(config: Config) -> int:
    """Multiply-adds of one picture."""
    return _sum(config, 'macs')


def flops_per_unit(config: Config) -> int:
    """Operations a picture: the networks are only asked here."""
    return 2 * macs(config)


def table(config: Config) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """The three networks: where the paper has them, their size, parameters and cost."""
    rows: list[tuple[str, ...]] = []
    for (name, module), figure in zip(PARTS.items(), (10, 11, 12)):
        own: Any = part(config, name)
        rows.append((name, str(figure), ' x '.join(map(str, own.size)), f'{module.parameters(own):,}',
                     f'{module.macs(own) / 1e9:.2f}'))
    return ('network', 'figure', 'size', 'parameters', 'GMACs'), rows
