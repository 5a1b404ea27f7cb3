"""How often the gate errs at its bound: pairs of models whose true difference is exactly `max_drop` or `max_rise`.

    python benchmarks/studies/gate_by_chance.py --pairs 1000

The true difference of a pair is that on 20,000 examples. A test set is drawn from them and judged with a bound of
exactly that difference, by `in_doubt: block`, where 1 - confidence of the pairs may pass by chance, and by
`in_doubt: pass`, where so many may be blocked. Prints the shares and their 95% intervals (Clopper, Pearson). Exit code
1 if a share lies above its promise by more than the interval.
"""
import argparse
import sys

import numpy as np
from scipy import stats

from pipelines.evaluation import chance, corpus

POOL, VARIANTS = 20_000, 6
WORDS = [f'w{number}' for number in range(400)]


def variants(draw: np.random.Generator, metric: corpus.Metric, name: str) -> np.ndarray:
    """Return the counts of `VARIANTS` answers to every example, better ones first, [VARIANTS, POOL, size]."""
    hardness, rates = draw.beta(2, 5, POOL), np.linspace(1, 1.6, VARIANTS)
    if name == 'ssim':
        shared = draw.normal(0.8, 0.05, POOL)
        rows = [[corpus.Row([float(x)], '') for x in shared - 0.1 * rate * hardness + draw.normal(0, 0.02, POOL)]
                for rate in rates]
    else:
        lengths = draw.integers(4, 25, POOL) if name in ('bleu', 'chrf') else np.ones(POOL, int)
        targets = [draw.choice(WORDS, length) for length in lengths]
        rows = [[corpus.Row([' '.join(np.where(draw.random(len(words)) < rate * hard, 'wrong', words))],
                            ' '.join(words)) for words, hard in zip(targets, hardness)] for rate in rates]
    return np.array([[metric.counts(row) for row in each] for each in rows], float)


def model(draw: np.random.Generator, counts: np.ndarray) -> np.ndarray:
    """Return the counts of a model that answers each example by a variant drawn by its own distribution."""
    chosen = draw.choice(VARIANTS, POOL, p=draw.dirichlet(np.ones(VARIANTS)))
    return counts[chosen, np.arange(POOL)]


def judged(metric: corpus.Metric, counts: list[np.ndarray], size: int, confidence: float, seed: int) -> tuple:
    """Return whether a test set of a pair passes, at its true difference, by `block` and by `pass`."""
    candidate, blessed = (metric.score(each.sum(0)) for each in counts)
    key, bound = ('max_rise', candidate - blessed) if candidate > blessed else ('max_drop', blessed - candidate)
    drawn = np.random.default_rng(seed).integers(0, POOL, size)
    stored = corpus.Metric(metric.size, lambda row: row, metric.score, '')
    found = chance.change(stored, *(list(each[drawn]) for each in counts), confidence, seed)
    bounds = {key: bound, 'confidence': confidence}
    return tuple(not chance.refusal('', found, {**bounds, 'in_doubt': doubt}) for doubt in ('block', 'pass'))


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument('--pairs', type=int, default=1000)
    flags.add_argument('--examples', type=int, nargs='+', default=[200, 1000], help='sizes of the test set')
    flags.add_argument('--confidence', type=float, default=0.95)
    flags.add_argument('--metrics', nargs='+', default=['top1_error', 'ssim', 'bleu'])
    args = flags.parse_args()
    broken = False
    for name in args.metrics:
        metric = corpus.metric(name)
        counts = variants(np.random.default_rng(0), metric, name)
        for size in args.examples:
            passed = np.zeros(2, int)
            for pair in range(args.pairs):
                draw = np.random.default_rng([pair, size])
                passed += judged(metric, [model(draw, counts), model(draw, counts)], size, args.confidence, pair)
            for option, wrong in (('block', passed[0]), ('pass', args.pairs - passed[1])):
                low, high = stats.binomtest(int(wrong), args.pairs).proportion_ci()
                broken |= low > 1 - args.confidence
                print(f'{name}, {size} examples, in_doubt {option}: {wrong} of {args.pairs} wrong, '
                      f'{100 * wrong / args.pairs:.1f}% ({100 * low:.1f} to {100 * high:.1f})', flush=True)
    sys.exit(broken)


if __name__ == '__main__':
    main()
