"""Score try-on models with the metrics of VITON-HD's 4.3 and B.1, beside baselines without its networks.

If a person wears the requested garment, the expected output is the person's own image I.
"""
import functools
import hashlib
import math
from typing import Any

import numpy as np
import tensorflow as tf

from keras_models import ModelError, reason
from keras_models.scores import colour, fid, lpips
from keras_models.viton.chain import COLOURS, UPPER
from keras_models.viton.serving import FILES

NETWORKS = {'alexnet': lpips.ALEXNET, 'lpips': lpips.LIN, 'inception': fid.SOURCE}  # accepted networks and their source
NEEDED = {'lpips': ('alexnet', 'lpips'), 'fid': ('inception',)}  # networks by metric
BACKGROUND = 0  # class of S
ARMS = (5, 6)
PARSED = (UPPER, *ARMS, BACKGROUND)  # the background includes the neck
PICTURES = 8  # pairs whose images are kept
WINDOW = 11  # window of SSIM, in pixels
SCALES = (0.0448, 0.2856, 0.3001, 0.2363, 0.1333)  # MS-SSIM's weights, finest scale first
THIRDS = ('small', 'medium', 'large')  # thirds of the paired samples, by misaligned area (figure 9)

# How each metric is computed, apart from what they share. The last is the main one.
PROTOCOLS = {
    'l1': 'mean |I^ - I| of levels 0 to 1, I^ made with the true parse (4.3)',
    'chain_l1': 'l1 of the whole chain, with the predicted parse',
    'warp_l1': 'mean |I_c - W(c, theta)| of eq. (11), levels 0 to 1, I_c on white, warped by the true parse',
    'warp_l1_identity': 'warp_l1 of the unwarped garment',
    'warp_ssim': 'mean SSIM of W(c, theta) and I_c over the true garment\'s pixels, all others black in both; {ssim}',
    'misaligned': 'M_misalign of the true parse (eq. 4), as a fraction of the image',
    'mask_ssim': 'mean SSIM of I^ and I over the true garment\'s pixels, I^ made with the true parse; {ssim}',
    'mask_ssim_pasted': 'mask_ssim of the image of ssim_pasted',
    'ms_ssim': 'MS-SSIM of I^ and I at {scales} of 5 scales (tf.image.ssim_multiscale), weights scaled to sum 1, I^ '
               'made with the true parse; {ssim}',
    'parse_iou': 'intersection over union of S^ and S inside the removed part of the person, summed over pairs, mean '
                 'over upper, left arm, right arm and background with neck',
    'parse_iou_copied': 'parse_iou of S_a, the input parse',
    'garment_lab': 'mean distance of I^ and I in CIE 1976 L*a*b* (D65) over the true garment\'s pixels, mean over '
                   'pairs, I^ made with the true parse (4.3)',
    'chain_garment_lab': 'garment_lab of the whole chain, with the predicted parse',
    'arms_lab': 'garment_lab over the pixels of the true arms, mean over pairs that show any',
    'chain_arms_lab': 'arms_lab of the whole chain, with the predicted parse',
    'lpips': 'LPIPS 0.1 with AlexNet of I^ and I, I^ made with the true parse (4.3)',
    'fid': 'FID by pytorch-fid\'s Inception, resized to 299 x 299 (bilinear), between outputs with the predicted parse '
           'and the persons\' own images, over all pairs, paired or not',
    'chain_ssim': 'ssim of the whole chain, with the predicted parse',
    'ssim_pasted': 'ssim without a network: the unwarped garment over the true garment\'s pixels, other '
                   'removed pixels in the mean colour of the remaining background',
    'ssim': 'SSIM of I^ and I, I^ made with the true parse (4.3); {ssim}'}


class Scorer:
    """Scorer of one model on one split, pair by pair.

    Attributes:
      CORPUS: metrics over all pairs together; the others are means over pairs.
      names: all its metrics.
      missing: metrics it cannot compute, each with a sentence on what it needs.
      pictures: images of the first `PICTURES` pairs: name -> PNG.

    Args:
      networks: files of published weights by the names of `NETWORKS`.
      config: the model's.

    Raises:
      ModelError: another name is given.
    """
    CORPUS = ('parse_iou', 'parse_iou_copied', 'fid')

    def __init__(self, networks: dict[str, str], config=None):
        del config  # metrics do not depend on it
        if unknown := {*networks} - {*NETWORKS}:
            raise ModelError(f'evaluate.networks.{min(unknown)}: no metric uses such a network; known networks: '
                             f'{", ".join(NETWORKS)}.')
        lacking = {metric: [name for name in needed if not networks.get(name)] for metric, needed in NEEDED.items()}
        self.missing = {metric: f'{metric} is not computed: give ' + ' and '.join(
            f'evaluate.networks.{name}={NETWORKS[name]}' for name in names) + '.'
            for metric, names in lacking.items() if names}
        self.names = tuple(name for name in PROTOCOLS if name not in self.missing)
        self.pictures: list[dict[str, bytes]] = []
        self._networks, self._size, self._worn = networks, (0, 0), 0
        self._pairs: list[str] = []
        self._misaligned: list[float] = []
        self._overlaps = np.zeros([2, 2, len(PARSED)])  # S^ and S_a; intersection and union; class
        self._features = {name: fid.Statistics() for name in ('true_image', 'image')} if 'fid' in self.names else {}

    @functools.cached_property
    def _lpips(self):
        return lpips.load(self._networks['alexnet'], self._networks['lpips'])

    @functools.cached_property
    def _inception(self):
        return fid.load(self._networks['inception'])

    def __call__(self, model, inputs: list[dict[str, bytes]], rows: list[dict[str, Any]]) -> list[dict]:
        """Run a model on pairs and compare its outputs.

        Args:
          model: as loaded by `tf.saved_model.load` from an exported `TryOn`, or a program that runs another format.
          inputs: files by the names of `FILES`.
          rows: `person` and `garment` of each pair, and `target`, which is empty for an unpaired garment.

        Returns:
          A dict per pair: the metrics except `CORPUS`, NaN without a target; or only `error`, which says why its files
          cannot be used.
        """
        results: list[dict] = []
        for files, row in zip(inputs, rows):
            found = _judged(model, files)
            if 'error' in found:
                results.append(found)
                continue
            self._note(found, row)
            results.append(self._compared(found) if row['target'] else
                           {name: math.nan for name in self.names if name not in self.CORPUS})
            self._misaligned.append(results[-1]['misaligned'])
        return results

    def _note(self, found: dict, row: dict) -> None:
        """Record a pair."""
        self._pairs.append(f'{row["person"]} {row["garment"]}\n')
        self._size = tuple(found['image'].shape[:2])
        if len(self.pictures) < PICTURES:
            self.pictures.append(_drawn(found))
        for name, statistics in self._features.items():
            statistics.add(fid.features(self._inception, found[name][tf.newaxis]))

    def _compared(self, found: dict) -> dict[str, float]:
        self._worn += 1
        self._overlaps += [overlap(found[name], found['true_parse'], found['removed'])
                           for name in ('parse', 'agnostic_parse')]
        numbers = compared(found)
        if 'lpips' in self.names:
            [numbers['lpips']] = lpips.distance(self._lpips, found['reconstructed'][tf.newaxis],
                                                found['true_image'][tf.newaxis])
        return {name: float(number) for name, number in numbers.items()}

    def corpus(self) -> dict[str, float]:
        """Return the metrics over all pairs together; NaN without pairs, for FID with fewer than two."""
        found = dict(zip(self.CORPUS, map(mean_iou, self._overlaps)))
        if 'fid' in self.names:
            made, true = self._features['image'], self._features['true_image']
            found['fid'] = fid.distance(made, true) if made.n > 1 else math.nan
        return found

    def slices(self) -> list[dict[str, str]]:
        """Return the slice of every usable pair, in order.

        It is `misalignment`, the pair's third of all paired samples by misaligned area (4.3); empty for an unpaired
        garment.
        """
        bounds = np.quantile([area for area in self._misaligned if not math.isnan(area)] or [0], [1 / 3, 2 / 3])
        return [{} if math.isnan(area) else {'misalignment': THIRDS[np.searchsorted(bounds, area)]}
                for area in self._misaligned]

    def protocol(self) -> dict[str, str]:
        """Describe how each metric was computed: parse, library, size, resizing, and a hash of the list of pairs.

        The hash is of its sorted lines `person garment`, as by `sort | sha256sum`.
        """
        digest = hashlib.sha256(''.join(sorted(self._pairs)).encode()).hexdigest()
        words = {'scales': len(scales(min(self._size))),
                 'ssim': f'tf.image.ssim of TensorFlow {tf.__version__}, RGB, Gaussian window of {WINDOW}, sigma 1.5'}
        height, width = self._size
        common = (f'at {height} x {width} (other sizes resampled, antialiasing triangle), {self._worn} of '
                  f'{len(self._pairs)} pairs paired, list {digest[:16]}')
        return {name: f'{PROTOCOLS[name].format(**words)}; {common}' for name in self.names}


def _judged(model, files: dict[str, bytes]) -> dict:
    """Return what `TryOn.judged` does, of a SavedModel or of another format's program; or only `error`."""
    if hasattr(model, 'predict'):
        try:
            return {name: tf.constant(array) for name, array in model.judged(files).items()}
        except ValueError as error:
            return {'error': str(error)}
    try:
        return model.judged(**{name: tf.constant(files.get(name, b'')) for name in FILES})
    except tf.errors.InvalidArgumentError as error:
        return {'error': reason(error)}


@tf.function(autograph=False)
def compared(found: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Return a pair's metrics that need no other network, by name: scalars.

    Means over an invisible garment or invisible arms are NaN. `found` is as returned by `TryOn.judged`.
    """
    true, made, warped, cloth = (found[name] for name in ('true_image', 'reconstructed', 'warped', 'cloth'))
    S_c = found['true_parse'] == UPPER  # [H, W]
    M_misalign = tf.nn.relu(tf.cast(S_c[..., tf.newaxis], tf.float32) - tf.cast(found['warped_mask'], tf.float32))
    pasted = tf.where(S_c[..., tf.newaxis], cloth, without(true, found['true_parse'], found['removed']))
    on_white = tf.where(S_c[..., tf.newaxis], true, 1)  # like photographs of garments
    I_c, W_c = (tf.where(S_c[..., tf.newaxis], picture, 0) for picture in (true, warped))
    return {'l1': l1(made, true), 'chain_l1': l1(found['image'], true),
            'warp_l1': l1(warped, on_white), 'warp_l1_identity': l1(cloth, on_white),
            'warp_ssim': ssim(W_c, I_c, S_c), 'misaligned': tf.reduce_mean(M_misalign),
            'mask_ssim': ssim(made, true, S_c), 'mask_ssim_pasted': ssim(pasted, true, S_c),
            'ms_ssim': ms_ssim(made, true), 'chain_ssim': ssim(found['image'], true),
            'ssim_pasted': ssim(pasted, true), 'ssim': ssim(made, true), **colours(found)}


def colours(found: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Return the mean colour differences of both outputs over the true garment and the true arms."""
    S = found['true_parse']
    masks = {'garment_lab': S == UPPER, 'arms_lab': tf.reduce_any(S[..., tf.newaxis] == ARMS, -1)}
    apart = {'': colour.distance(found['reconstructed'], found['true_image']),
             'chain_': colour.distance(found['image'], found['true_image'])}  # [H, W]
    return {f'{prefix}{name}': tf.reduce_mean(tf.boolean_mask(distance, mask))
            for prefix, distance in apart.items() for name, mask in masks.items()}


def without(picture, parse, removed):
    """Return an image [H, W, 3] whose removed pixels have the mean colour of the remaining background."""
    there = tf.cast((parse == BACKGROUND) & (removed == 0), tf.float32)[..., tf.newaxis]
    colour = tf.math.divide_no_nan(tf.reduce_sum(there * picture, [0, 1]), tf.reduce_sum(there))
    return tf.where(removed[..., tf.newaxis] > 0, colour, picture)


def l1(a, b):
    """Return the mean absolute difference of [H, W, 3]."""
    return tf.reduce_mean(tf.abs(a - b))


def ssim(a, b, mask=None):
    """Return the mean SSIM over windows within the images and, with a mask, centred in it."""
    index = tf.image.ssim(a, b, 1.0, WINDOW, return_index_map=True)  # [H - 10, W - 10]
    edge = WINDOW // 2
    return tf.reduce_mean(index if mask is None else tf.boolean_mask(index, mask[edge:-edge, edge:-edge]))


def scales(side: int) -> np.ndarray:
    """Return the weights of those scales of MS-SSIM at which an image of this shorter side still has a window."""
    fit = [weight for k, weight in enumerate(SCALES) if math.ceil(side / 2 ** k) >= WINDOW]
    return np.array(fit, np.float32) / np.sum(fit, dtype=np.float32)


def ms_ssim(a, b):
    return tf.image.ssim_multiscale(a, b, 1.0, scales(min(a.shape[:2])), WINDOW)


def overlap(parse, true, removed) -> np.ndarray:
    """Count removed pixels of each class in both and in either parse, each [H, W]: [2, classes of PARSED]."""
    a, b = (np.equal(np.asarray(each)[..., np.newaxis], PARSED) & (np.asarray(removed)[..., np.newaxis] > 0)
            for each in (parse, true))
    return np.stack([(a & b).sum((0, 1)), (a | b).sum((0, 1))])


def mean_iou(overlaps: np.ndarray) -> float:
    """Return the mean intersection over union of the classes that occur, from sums of `overlap`."""
    intersection, union = overlaps
    there = union > 0
    return float(np.mean(intersection[there] / union[there])) if there.any() else math.nan


def _drawn(found: dict) -> dict[str, bytes]:
    pictures = {'person': 'true_image', 'garment': 'cloth', 'warped': 'warped', 'made': 'image',
                'reconstruction': 'reconstructed'}
    levels = {what: tf.cast(tf.round(255 * found[name]), tf.uint8) for what, name in pictures.items()}
    levels['parse'] = tf.gather(COLOURS, found['parse'])
    return {what: tf.io.encode_png(picture).numpy() for what, picture in levels.items()}
