"""Read predictions back, and choose the few a report shows."""
import difflib
import random
import re
from collections.abc import Sequence

import tensorflow as tf

from pipelines.evaluation import predictions

Pieces = list[tuple[str, bool]]
SHOWN, SHOWN_WRONG = 20, 12
# Units a reader compares: single digits, otherwise words.
_PIECES = re.compile(r'\d|[^\W\d]+|\s+|.', re.DOTALL)


def read(path: str) -> list[dict[str, str]]:
    """Return the rows of a file of predictions: features of one text or number by name, without score vectors.

    Of a list of outputs, the best is under its name and the others, joined, under `<name>_others`.
    """
    if not tf.io.gfile.exists(path):
        return []
    rows = []
    for features in predictions.read(path, tf.io.gfile.GFile):
        row = {}
        for name, values in features.items():
            if values and isinstance(values[0], str):
                row[name], *others = values
                if others:
                    row[f'{name}_others'] = ', '.join(others)
            elif len(values) == 1:
                row[name] = f'{values[0]:.6g}'
        rows.append(row)
    return rows


def choose(rows: list[dict[str, str]], slices: Sequence[str], seed: int) -> dict | None:
    """Choose the predictions to show: wrong ones first, then others, both drawn by the seed.

    Args:
      rows: predictions with `target` and `candidate` and, if available, `source` or `file`, and `baseline`.
      slices: features that name the kind of example.

    Returns:
      The chosen `rows` with their `differences` from the reference marked, the counts `total` and `wrong`, and, with a
      baseline, how many of its wrong outputs were `mended` and right ones `broken`; None if outputs are not text.
    """
    if not rows or not all({'target', 'candidate'} <= row.keys() for row in rows):
        return None
    wrong = [row for row in rows if row['candidate'] != row['target']]
    right = [row for row in rows if row['candidate'] == row['target']]
    draw = random.Random(seed)
    some = draw.sample(wrong, min(len(wrong), max(SHOWN_WRONG, SHOWN - len(right))))
    some += draw.sample(right, min(len(right), SHOWN - len(some)))
    result: dict = {'total': len(rows), 'wrong': len(wrong), 'has': set.intersection(*(set(row) for row in rows)),
                    'rows': [_shown(row, slices) for row in some]}
    if 'baseline' in result['has']:
        result['mended'] = sum(row['baseline'] != row['target'] for row in right)
        result['broken'] = sum(row['baseline'] == row['target'] for row in wrong)
    return result


def _shown(row: dict[str, str], slices: Sequence[str]) -> dict:
    # With several outputs each is a class name, and names differ as a whole.
    compare = whole_differences if 'candidate_others' in row else differences
    target, candidate = compare(row['target'], row['candidate'])
    shown = {'wrong': row['target'] != row['candidate'], 'target': target, 'candidate': candidate,
             'source': [(row.get('source', row.get('file', '')), False)], 'others': row.get('candidate_others', ''),
             'kind': ', '.join(row[key] for key in slices if row.get(key))}
    if 'baseline' in row:
        shown['baseline'] = compare(row['target'], row['baseline'])[1]
    return shown


def whole_differences(one: str, other: str) -> tuple[Pieces, Pieces]:
    """Return both texts whole, in the form of `differences`."""
    return [(one, one != other)], [(other, one != other)]


def differences(one: str, other: str) -> tuple[Pieces, Pieces]:
    """Split both texts into (piece, whether the other text lacks it)."""
    a, b = _PIECES.findall(one), _PIECES.findall(other)
    left: Pieces = []
    right: Pieces = []
    for tag, a0, a1, b0, b1 in difflib.SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        for side, pieces in ((left, a[a0:a1]), (right, b[b0:b1])):
            if pieces:
                side.append((''.join(pieces), tag != 'equal'))
    return left, right
