"""Interpret a run for its owner: was it trained enough, what it confuses, its surest errors, and what to try next.

Everything is derived from the curves and predictions of an evaluation; nothing is run again.
"""
import collections
import dataclasses
import statistics
from collections.abc import Sequence

import numpy as np
import sacrebleu
import tensorflow as tf
from markupsafe import Markup
from matplotlib.figure import Figure

from pipelines.evaluation import predictions
from pipelines.reporting import figures

Points = Sequence[tuple[int, float]]
RISEN = 0.03  # of the validation loss's fall: a larger rise is overfitting
GAP = 1.3  # times the training loss: a higher validation loss is overfitting
SURE = 0.9  # probability of a wrong prediction from which its label is suspect
SHOWN = 12
SAME = 0.2  # share of identical outputs from which the model ignores its inputs
_MOST_CLASSES = 30  # classes that fit a confusion matrix
_ON_LIGHT = '#21201d'  # counts on light cells, which stay light on a dark page


@dataclasses.dataclass(frozen=True)
class Reading:
    """The report's interpretation of a run.

    Attributes:
      advice: sentences on too little or too much training, and what to try.
      confusions: target, prediction, count, and count of that target; the most frequent first.
      sure: wrong predictions, most probable first: input, target, prediction, probability.
      worst: for text, the outputs farthest from their reference: source, target, output.
      figure: the confusion matrix as an SVG, or nothing.
    """
    advice: list[str]
    confusions: list[tuple[str, str, int, int]]
    sure: list[tuple[str, str, str, float]]
    worst: list[tuple[str, str, str]]
    figure: Markup | str


def read(curves: dict[str, list[tuple[int, float]]], rows: list[dict[str, str]], certain: list[float],
         task: str, keeps_best: bool = False) -> Reading:
    """Interpret curves and predictions.

    Args:
      curves: tag -> (step, value), from the training run.
      rows: predictions, as returned by `answers.read`.
      certain: probability of each row's prediction; empty if there are none.
      task: the data's: image, text, tree or try_on.
      keeps_best: whether the weights are those of the best validation.
    """
    rows = [row for row in rows if {'target', 'candidate'} <= row.keys()]
    advice = of_training(curves.get('loss', []), curves.get('validation/loss', []), keeps_best)
    if task == 'image' and rows:
        confused, sure = confusions(rows), surest(rows, certain)
        return Reading([*advice, *_of_classes(rows, confused, sure)], confused[:SHOWN], sure, [], _table(rows))
    if rows and task == 'text':
        return Reading([*advice, *_of_text(rows)], [], [], _worst(rows), '')
    return Reading(advice, [], [], [], '')


def certainties(path: str) -> list[float]:
    """Return the probability of every best prediction in a file; empty if the file has none."""
    found = []
    if tf.io.gfile.exists(path):
        for features in predictions.read(path, tf.io.gfile.GFile):
            if 'candidate_probabilities' not in features:
                return []
            found.append(features['candidate_probabilities'][0])
    return found


def of_training(training: Points, validation: Points, keeps_best: bool = False) -> list[str]:
    """Advise more training, less, or more data, from the curves of the loss.

    Args:
      training, validation: (step, loss), by step.
      keeps_best: whether the weights are those of the best validation (`train.monitor`), so that training past it
        costs minutes alone.
    """
    if len(validation) < 3 or len(training) < 3:
        return []
    (start, first), (end, last) = validation[0], validation[-1]
    step, best = min(validation, key=lambda point: point[1])
    fell = first - best
    # Mean over the last tenth, because a single point covers only some batches.
    known = statistics.fmean(value for at, value in training if at > 0.9 * end)
    if fell <= 0:
        return [_never_fell(start, first, last, training[0][1], known)]
    if last - best > RISEN * fell and step < 0.9 * end:
        kept = ('the weights are those of the best validation, so nothing is lost' if keeps_best else
                f'set train.steps to about {step:,}')
        return [f'Too much training for this data: the validation loss was lowest at step {step:,} ({best:.3g}) and '
                f'has risen to {last:.3g} since; {kept}. More data helps most, then a higher dropout.']
    before = [value for at, value in validation if at <= 0.7 * end][-1:] or [first]
    falling, apart = before[0] - last > 0.05 * fell, last > GAP * known > 0
    fall = f'({before[0]:.3g} to {last:.3g} over the last third)'
    if falling and apart:
        return [f'The validation loss was still falling when training ended {fall}, and that of training is far below '
                f'it ({known:.3g}): more steps would help, and more data or a higher dropout as well.']
    if falling:
        return [f'Too little training: the validation loss was still falling when training ended {fall}. More steps '
                'would help: train.steps, or more --minutes for `pipelines.init`.']
    if apart:
        return [f'The training loss ({known:.3g}) is far below that of validation ({last:.3g}): the model is '
                'overfitting. More data would help more than more time; dropout or a smaller net would help too.']
    if known > GAP * last:
        return [f'Training has levelled off, and its loss ({known:.3g}) is above that of validation ({last:.3g}), as '
                'dropout and augmentation make it: the model does not overfit. Less of them, or a larger net with '
                'more minutes, may help.']
    return [f'Training has levelled off, and validation ({last:.3g}) is near training ({known:.3g}): the model does '
            'not overfit, so a larger net with more minutes may help.']


def _never_fell(start: int, first: float, last: float, trained: float, known: float) -> str:
    """Say what a validation loss means that was lowest at its first value; training's is `known` after `trained`."""
    if trained - known > RISEN * abs(trained):
        return (f'The validation loss was lowest at the first validation, step {start:,} ({first:.3g}), and is '
                f'{last:.3g} now, while that of training fell to {known:.3g}: too much training, or inputs and targets '
                f'that do not belong together. Validate sooner (train.validate_every) and set train.steps to about '
                f'{start:,}, or check the data.')
    return ('The validation loss never fell below its first value, nor did that of training: the model learned '
            'nothing. Check that inputs and targets belong together, then lower the learning rate.')


def confusions(rows: list[dict[str, str]]) -> list[tuple[str, str, int, int]]:
    """Return target, prediction, count, and the count of that target; the most frequent first."""
    of = collections.Counter(row['target'] for row in rows)
    found = collections.Counter((row['target'], row['candidate']) for row in rows if row['target'] != row['candidate'])
    return [(target, answer, count, of[target]) for (target, answer), count in found.most_common()]


def surest(rows: list[dict[str, str]], certain: list[float]) -> list[tuple[str, str, str, float]]:
    """Return the wrong predictions with the highest probabilities."""
    wrong = [(row.get('file', row.get('source', '')), row['target'], row['candidate'], probability)
             for row, probability in zip(rows, certain) if row['target'] != row['candidate']]
    return sorted(wrong, key=lambda row: -row[3])[:SHOWN]


def _of_classes(rows: list[dict[str, str]], confused: list[tuple[str, str, int, int]],
                sure: list[tuple[str, str, str, float]]) -> list[str]:
    said = []
    given = collections.Counter(row['candidate'] for row in rows)
    answer, count = given.most_common(1)[0]
    wanted = collections.Counter(row['target'] for row in rows)
    if count == len(rows) and len(wanted) > 1:
        said.append(f'Every prediction is {answer!r}: the net tells no classes apart. Train longer, or give the other '
                    'classes more examples.')
    if never := [name for name in wanted if not given[name] and count != len(rows)]:
        said.append(f'Never predicted: {", ".join(never[:5])}{" …" if never[5:] else ""}. '
                    'These classes need more examples.')
    if confused and confused[0][2] > 1:
        target, other, often, of = confused[0]
        said.append(f'The most frequent confusion: {target!r} is predicted as {other!r} in {often:,} of {of:,}.')
    if suspicious := sum(row[3] >= SURE for row in sure):
        more = ' or more' if suspicious == SHOWN else ''
        said.append(f'A wrong prediction has a probability over {SURE:.0%}: check its file first, because its label '
                    'may be wrong.' if suspicious == 1 else
                    f'{suspicious:,} wrong predictions{more} have a probability over {SURE:.0%}: check these files '
                    'first, because their labels may be wrong.')
    return said


def _of_text(rows: list[dict[str, str]]) -> list[str]:
    said = []
    answer, count = collections.Counter(row['candidate'] for row in rows).most_common(1)[0]
    if count > max(1, SAME * len(rows)) and len({row['target'] for row in rows}) > 2 * len(rows) / count:
        said.append(f'{count:,} of {len(rows):,} outputs are the same, {answer[:60]!r}: the model hardly uses its '
                    'input. Train longer.')
    ratio = statistics.median(len(row['candidate']) / max(1, len(row['target'])) for row in rows)
    if not 0.8 < ratio < 1.25:
        said.append(f'Outputs are {ratio:.2f} times as long as their references. Try another inference.alpha, which '
                    'needs no training.')
    return said


def _worst(rows: list[dict[str, str]]) -> list[tuple[str, str, str]]:
    """Return the outputs with the lowest chrF, of those that differ from their reference."""
    scored = [(sacrebleu.sentence_chrf(row['candidate'], [row['target']]).score, n) for n, row in enumerate(rows)
              if row['target'].strip() and row['candidate'] != row['target']]
    return [(rows[n].get('source', ''), rows[n]['target'], rows[n]['candidate']) for _, n in sorted(scored)[:SHOWN]]


def _table(rows: list[dict[str, str]]) -> Markup | str:
    """Draw the confusion matrix; nothing for a single class or very many."""
    names = sorted({row['target'] for row in rows} | {row['candidate'] for row in rows})
    if not 2 <= len(names) <= _MOST_CLASSES:
        return ''
    number, counts = {name: n for n, name in enumerate(names)}, np.zeros([len(names), len(names)])
    for row in rows:
        counts[number[row['target']], number[row['candidate']]] += 1
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)

    width = 1.5 + 0.28 * len(names)

    def draw():
        figure = Figure(figsize=(width, width - 0.2), layout='constrained')
        axes = figure.add_subplot()
        axes.imshow(shares, cmap='Blues', vmin=0, vmax=1)
        axes.grid(False)
        axes.set_xticks(range(len(names)), names, rotation=90)
        axes.set_yticks(range(len(names)), names)
        axes.set_xlabel('prediction')
        axes.set_ylabel('label')
        if len(names) <= 12:
            for (y, x), count in np.ndenumerate(counts):
                if count:
                    axes.text(x, y, f'{count:.0f}', ha='center', va='center', fontsize=7,
                              color='white' if shares[y, x] > 0.6 else _ON_LIGHT)
        return figure
    # At its own size, because names of thirty classes cannot be read in a column's width.
    own_size = f'<svg style="width: {width:.2f}in; max-width: none"'
    drawn = figures.drawn(draw, 'Confusion matrix').replace('<svg', own_size, 1)
    return Markup(drawn)  # noqa: S704 (figures escape)
