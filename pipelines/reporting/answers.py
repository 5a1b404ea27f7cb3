"""Predictions read back, and the few of them a report shows."""
import difflib
import random
import re
from collections.abc import Sequence

import tensorflow as tf

Pieces = list[tuple[str, bool]]
SHOWN, SHOWN_WRONG = 20, 12
# Digit by digit, else word by word: what a reader compares.
_PIECES = re.compile(r'\d|[^\W\d]+|\s+|.', re.DOTALL)


def read(path: str) -> list[dict[str, str]]:
    """Rows of a file of predictions: features of one text or number by name; score vectors are left out.

    Of a list of answers, the best by its name and the others together as `<name>_others`.
    """
    if not tf.io.gfile.exists(path):
        return []
    rows = []
    for serialized in tf.data.TFRecordDataset(path).as_numpy_iterator():
        row = {}
        for name, feature in tf.train.Example.FromString(serialized).features.feature.items():
            kind = feature.WhichOneof('kind')
            values = getattr(feature, kind).value if kind else []
            if kind == 'bytes_list' and values:
                row[name], *others = [text.decode('utf-8', 'replace') for text in values]
                if others:
                    row[f'{name}_others'] = ', '.join(others)
            elif len(values) == 1:
                row[name] = f'{values[0]:.6g}'
        rows.append(row)
    return rows


def choose(rows: list[dict[str, str]], slices: Sequence[str], seed: int) -> dict | None:
    """What to show of the answers: wrong ones first, then others, both drawn by the seed.

    Args:
      rows: predictions with `target` and `candidate`, and where there are such `source` or `file`, and `baseline`.
      slices: the features that say what kind of example a row is.

    Returns:
      `rows` to show, their `differences` from the reference marked, how many there are in all (`total`, `wrong`),
      and of the baseline, if there is one, how many wrong answers were `mended` and right ones `broken`; or None
      where answers are no text.
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
    # Of several answers each is a name, and names differ as a whole.
    compare = whole_differences if 'candidate_others' in row else differences
    target, candidate = compare(row['target'], row['candidate'])
    shown = {'wrong': row['target'] != row['candidate'], 'target': target, 'candidate': candidate,
             'source': [(row.get('source', row.get('file', '')), False)], 'others': row.get('candidate_others', ''),
             'kind': ', '.join(row[key] for key in slices if row.get(key))}
    if 'baseline' in row:
        shown['baseline'] = compare(row['target'], row['baseline'])[1]
    return shown


def whole_differences(one: str, other: str) -> tuple[Pieces, Pieces]:
    """Both texts uncut, as `differences` gives them."""
    return [(one, one != other)], [(other, one != other)]


def differences(one: str, other: str) -> tuple[Pieces, Pieces]:
    """Both texts cut into (piece, whether the other text lacks it)."""
    a, b = _PIECES.findall(one), _PIECES.findall(other)
    left: Pieces = []
    right: Pieces = []
    for tag, a0, a1, b0, b1 in difflib.SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        for side, pieces in ((left, a[a0:a1]), (right, b[b0:b1])):
            if pieces:
                side.append((''.join(pieces), tag != 'equal'))
    return left, right
