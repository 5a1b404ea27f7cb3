"""Reads a run for its owner: whether it trained enough, what it confuses, its surest errors, and what to try next.

Everything follows from the curves and the predictions that an evaluation leaves; nothing is run again.
"""
import collections
import dataclasses
import statistics
from collections.abc import Sequence

import matplotlib
import numpy as np
import tensorflow as tf
from markupsafe import Markup
from matplotlib.figure import Figure

from pipelines.reporting import figures

Points = Sequence[tuple[int, float]]
RISEN = 0.03  # of what the validation loss fell by, from which on its rise is one
GAP = 1.3  # times the training loss: a validation loss above that is of what was learned by heart
SURE = 0.9  # probability of a wrong answer from which on its label is worth a look
SHOWN = 12
SAME = 0.2  # share of answers that are one and the same, from which on nothing was learned of the sources
_MOST_CLASSES = 30  # that a table of confusions has room for


@dataclasses.dataclass(frozen=True)
class Reading:
    """What the report says of a run.

    Attributes:
      advice: sentences: too little training or too much, and what to try.
      confusions: target, answer, how often, of how many; the most frequent first.
      sure: wrong answers by their probability: what was asked, target, answer, probability.
      worst: of text, the answers farthest from their reference: source, target, answer.
      figure: the table of confusions as an SVG, or nothing.
    """
    advice: list[str]
    confusions: list[tuple[str, str, int, int]]
    sure: list[tuple[str, str, str, float]]
    worst: list[tuple[str, str, str]]
    figure: Markup | str


def read(curves: dict[str, list[tuple[int, float]]], rows: list[dict[str, str]], certain: list[float],
         task: str) -> Reading:
    """Reads curves and predictions.

    Args:
      curves: tag -> (step, value), as the training run left them.
      rows: predictions as `answers.read` gives them.
      certain: the probability of each row's answer; empty where answers have none.
      task: the data's: image, text, tree or try_on.
    """
    rows = [row for row in rows if {'target', 'candidate'} <= row.keys()]
    advice = of_training(curves.get('loss', []), curves.get('validation/loss', []))
    if task == 'image' and rows:
        confused, sure = confusions(rows), surest(rows, certain)
        return Reading([*advice, *_of_classes(rows, confused, sure)], confused[:SHOWN], sure, [], _table(rows))
    if rows and task == 'text':
        return Reading([*advice, *_of_text(rows)], [], [], _worst(rows), '')
    return Reading(advice, [], [], [], '')


def certainties(path: str) -> list[float]:
    """The probability of every best answer of a file of predictions; empty if they have none."""
    found = []
    if tf.io.gfile.exists(path):
        for serialized in tf.data.TFRecordDataset(path).as_numpy_iterator():
            features = tf.train.Example.FromString(serialized).features.feature
            if 'candidate_probabilities' not in features:
                return []
            found.append(features['candidate_probabilities'].float_list.value[0])
    return found


def of_training(training: Points, validation: Points) -> list[str]:
    """Whether the curves ask for more training, less, or more data."""
    if len(validation) < 3 or len(training) < 3:
        return []
    first, last = validation[0][1], validation[-1][1]
    step, best = min(validation, key=lambda point: point[1])
    fell, end = first - best, validation[-1][0]
    # The mean of the last tenth, as a single point is of some batches only.
    known = statistics.fmean(value for at, value in training if at > 0.9 * end)
    if fell <= 0:
        return ['The validation loss never fell below its first value: nothing was learned that holds for other '
                'examples. Look at whether inputs and targets belong together, then lower the learning rate.']
    if last - best > RISEN * fell and step < 0.9 * end:
        return [f'Too much training for this data: the validation loss was lowest at step {step:,} ({best:.3g}) and '
                f'has risen to {last:.3g} since. More data helps most; else raise dropout, or set train.steps to about '
                f'{step:,}.']
    late = [value for at, value in validation if at >= 0.7 * end]
    falling = late[0] - last > 0.05 * fell
    if last > GAP * known and known > 0:
        return [f'The training loss ({known:.3g}) is far below that of validation ({last:.3g}): examples are being '
                'learned by heart. More data would help more than more time; dropout or a smaller net would, too.']
    if falling:
        return [f'Too little training: the validation loss still fell when training ended ({late[0]:.3g} to '
                f'{last:.3g} over the last third). More steps would help: train.steps, or more --minutes for '
                '`pipelines.init`.']
    return [f'Training has levelled off, and validation ({last:.3g}) is near training ({known:.3g}): nothing is '
            'learned by heart, so a larger net in more minutes would help more than more data.']


def confusions(rows: list[dict[str, str]]) -> list[tuple[str, str, int, int]]:
    """Target, answer, how often, and of how many of that target; the most frequent first."""
    of = collections.Counter(row['target'] for row in rows)
    found = collections.Counter((row['target'], row['candidate']) for row in rows if row['target'] != row['candidate'])
    return [(target, answer, count, of[target]) for (target, answer), count in found.most_common()]


def surest(rows: list[dict[str, str]], certain: list[float]) -> list[tuple[str, str, str, float]]:
    """The wrong answers with the highest probabilities."""
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
        said.append(f'Every answer is {answer!r}: the net tells nothing apart. Train longer, or give the other classes '
                    'more examples.')
    if never := [name for name in wanted if not given[name] and count != len(rows)]:
        said.append(f'Never answered: {", ".join(never[:5])}{" …" if never[5:] else ""}. '
                    'These classes need more examples.')
    if confused and confused[0][2] > 1:
        target, other, often, of = confused[0]
        said.append(f'What is confused most: {target!r} is called {other!r} in {often:,} of {of:,}.')
    if suspicious := sum(row[3] >= SURE for row in sure):
        said.append(f'{suspicious:,} wrong answers{" or more" if suspicious == SHOWN else ""} are surer than '
                    f'{SURE:.0%}: look at these files first, as their labels may be wrong.')
    return said


def _of_text(rows: list[dict[str, str]]) -> list[str]:
    said = []
    answer, count = collections.Counter(row['candidate'] for row in rows).most_common(1)[0]
    if count > max(1, SAME * len(rows)) and len({row['target'] for row in rows}) > 2 * len(rows) / count:
        said.append(f'{count:,} of {len(rows):,} answers are the same, {answer[:60]!r}: too little was learned of the '
                    'sources. Train longer.')
    ratio = statistics.median(len(row['candidate']) / max(1, len(row['target'])) for row in rows)
    if not 0.8 < ratio < 1.25:
        said.append(f'Answers are {ratio:.2f} times as long as their references; try another inference.alpha, which '
                    'needs no training.')
    return said


def _worst(rows: list[dict[str, str]]) -> list[tuple[str, str, str]]:
    """The answers of the lowest chrF."""
    import sacrebleu
    scored = [(sacrebleu.sentence_chrf(row['candidate'], [row['target']]).score, n) for n, row in enumerate(rows)
              if row['target'].strip()]
    return [(rows[n].get('source', ''), rows[n]['target'], rows[n]['candidate']) for _, n in sorted(scored)[:SHOWN]]


def _table(rows: list[dict[str, str]]) -> Markup | str:
    """How often each class is called each, as a picture; nothing for one class or very many."""
    names = sorted({row['target'] for row in rows} | {row['candidate'] for row in rows})
    if not 2 <= len(names) <= _MOST_CLASSES:
        return ''
    number, counts = {name: n for n, name in enumerate(names)}, np.zeros([len(names), len(names)])
    for row in rows:
        counts[number[row['target']], number[row['candidate']]] += 1
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)

    def draw():
        figure = Figure(figsize=(1.5 + 0.28 * len(names), 1.3 + 0.28 * len(names)), layout='constrained')
        axes = figure.add_subplot()
        axes.imshow(shares, cmap='Blues', vmin=0, vmax=1)
        axes.grid(False)
        axes.set_xticks(range(len(names)), names, rotation=90)
        axes.set_yticks(range(len(names)), names)
        axes.set_xlabel('answer')
        axes.set_ylabel('label')
        if len(names) <= 12:
            for (y, x), count in np.ndenumerate(counts):
                if count:
                    axes.text(x, y, f'{count:.0f}', ha='center', va='center', fontsize=7,
                              color='white' if shares[y, x] > 0.6 else matplotlib.rcParams['text.color'])
        return figure
    return Markup(figures.drawn(draw, 'What is called what'))  # noqa: S704 (figures escape)
