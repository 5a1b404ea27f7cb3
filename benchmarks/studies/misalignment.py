"""Figure 9 of VITON-HD on generated people: ALIAS against instance normalisation where the garment leaves skin bare.

    python benchmarks/studies/misalignment.py --out DIR

Both learn alone, from the parse and warp networks the configuration starts from, on the same batches, once a seed. They
are compared on the test's people with the true parse (4.3): mean absolute difference (levels 0 to 1) and SSIM of the
misaligned pixels, in three bins of as many people by how many such pixels there are. Differences are of one person and
seed, so a negative one in L1 and a positive one in SSIM speak for ALIAS; intervals are of 95%, by resampling people.

On made people of 192 x 128, a quarter of the width, 1,000 steps, seeds 1 and 2, the paper's claim does not show: plain
instance normalisation was better by SSIM in all three bins (0.458, 0.470, 0.435 against 0.407, 0.403, 0.394) and by L1
in two (0.149 and 0.171 against 0.165 and 0.181; among small misalignments there was no difference).
"""
import argparse
import json
import os

import numpy as np
import scipy.stats
import tensorflow as tf

from data_prep.core import records
from keras_models.viton import chain, judge, try_on
from pipelines.core import cli, config, pipeline, stage
from pipelines.training import checkpoints, trainer

VARIANTS = {'ALIAS': 'model.alias.masked=5', 'instance': 'model.alias.masked=0'}
BINS = ('small', 'medium', 'large')
LEAST = 20  # misaligned pixels of a person that is counted


def weights(examples: str, name: str, overrides: list[str], folder: str) -> tuple[config.Config, str]:
    """Return a run of the one trainer, resumed or made. Returns its configuration and its weights."""
    resolved, path = config.load(name, overrides), os.path.join(folder, 'weights')
    if not tf.io.gfile.exists(f'{path}.index'):
        os.makedirs(folder, exist_ok=True)
        trainer.train(resolved, examples, folder)
    return resolved, path


def scores(resolved: config.Config, path: str, examples: str) -> np.ndarray:
    """Return the misaligned pixels of every person, and L1 and SSIM of them: [people, 3]."""
    nets = try_on.build(resolved.model)
    checkpoints.restore(nets, path)
    decode = resolved.data_spec.decoder(examples, resolved.input, False)

    @tf.function(autograph=False)
    def one(serialized):
        batch = decode(serialized, tf.zeros([1], tf.int32), tf.zeros([1, 2], tf.int32))
        S = tf.one_hot(batch['parse'], chain.CLASSES)
        cloth, mask = chain.warp(nets['geometric_matching'], resolved.model, batch,
                                 S[..., chain.UPPER:chain.UPPER + 1])
        made = chain.synthesise(nets['alias'], batch, S, cloth, mask, tf.constant([1, 0]))
        bare = chain.alias_inputs(batch, S, cloth, mask)['M_misalign'][0, ..., 0] > 0.5
        true, made = (tf.clip_by_value(picture[0] / 2 + 0.5, 0, 1) for picture in (batch['image'], made))
        different = tf.boolean_mask(tf.abs(true - made), bare)
        return tf.stack([tf.reduce_sum(tf.cast(bare, tf.float32)), tf.reduce_mean(different),
                         judge.ssim(made, true, bare)])
    split = records.open_split(examples, 'test')
    return np.array([one(tf.constant(split.read([i]))).numpy() for i in range(len(split))])


def interval(differences: np.ndarray) -> tuple[float, float, float]:
    """Return the mean, and the bounds of its 95% interval, of [seeds, people], by resampling people."""
    a_person = differences.mean(0)
    found = scipy.stats.bootstrap((a_person,), np.mean, n_resamples=10_000, method='percentile', random_state=0)
    return float(a_person.mean()), *map(float, found.confidence_interval)


def verdict(better: int, found: tuple[float, float, float]) -> str:
    _, low, high = found
    if low <= 0 <= high:
        return 'no difference shown'
    return 'ALIAS is better' if (low > 0) == (better > 0) else 'plain instance normalisation is better'


def table(found: dict[str, np.ndarray]) -> list[dict]:
    """Return a row a bin and measure. found: variant -> [seeds, people, 3]."""
    pixels, rows = found['ALIAS'][0, :, 0], []
    people = np.flatnonzero(pixels >= LEAST)
    for name, chosen in zip(BINS, np.array_split(people[np.argsort(pixels[people])], len(BINS))):
        for place, measure, better in ((1, 'L1', -1), (2, 'SSIM', 1)):
            alias, plain = (found[variant][:, chosen, place] for variant in VARIANTS)
            there = np.isfinite(alias + plain).all(0)  # SSIM has no windows at the picture's edge
            difference = interval((alias - plain)[:, there])
            rows.append({'bin': name, 'measure': measure, 'people': int(there.sum()),
                         'pixels': [int(pixels[chosen].min()), int(pixels[chosen].max())],
                         'ALIAS': float(alias[:, there].mean()), 'instance': float(plain[:, there].mean()),
                         'difference': difference, 'verdict': verdict(better, difference)})
    return rows


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument('--config', default='tryon_people')
    flags.add_argument('--set', action='append', default=[], dest='overrides', metavar='KEY=VALUE')
    flags.add_argument('--pipeline_root', help='where its data is or will be prepared (default: runs/<config>)')
    flags.add_argument('--steps', type=int, default=1000, help='of each run of the ALIAS generator')
    flags.add_argument('--seeds', type=int, nargs='+', default=[1, 2])
    flags.add_argument('--out', required=True, help='a folder for runs and results; what is there is taken up again')
    args = flags.parse_args()
    cli.prepare_libraries()
    root = args.pipeline_root or os.path.join('runs', args.config)
    made = pipeline.Pipeline(config.load(args.config, args.overrides), root, [], []).run(stage.get('prepare'))
    examples = made['examples'].uri
    found: dict[str, list] = {name: [] for name in VARIANTS}
    for seed in args.seeds:
        for name, override in VARIANTS.items():
            resolved, path = weights(examples, args.config, [
                *args.overrides, override, f'seed={seed}', f'train.steps={args.steps}'],
                os.path.join(args.out, f'{name}-{seed}'))
            found[name].append(scores(resolved, path, examples))
    rows = table({name: np.array(runs) for name, runs in found.items()})
    records.write_atomically(os.path.join(args.out, 'figure9.json'), json.dumps(rows, indent=1).encode())
    print(f'{"misaligned":22}{"people":>7} {"":6}{"ALIAS":>8}{"instance":>10}  difference [95%]')
    for row in rows:
        size = f'{row["bin"]}, {row["pixels"][0]} to {row["pixels"][1]}'
        mean, low, high = row['difference']
        print(f'{size:22}{row["people"]:7} {row["measure"]:6}{row["ALIAS"]:8.4f}{row["instance"]:10.4f}  '
              f'{mean:+.4f} [{low:+.4f}, {high:+.4f}] {row["verdict"]}')


if __name__ == '__main__':
    main()
