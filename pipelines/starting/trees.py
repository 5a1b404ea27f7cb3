"""Inspect constituency trees: counts, lengths, copies, and records that are not trees with the reason."""
import os
import shutil
import tempfile
from typing import Any

import numpy as np
import tensorflow as tf

from data_prep import UserError, treebank
from data_prep.trees import tree_files, tree_graph
from pipelines.evaluation import parseval
from pipelines.starting import recipes
from pipelines.starting.findings import Findings, Keys, held_out_fraction, say, spread
from pipelines.starting.pairs import MOST_DAMAGED, most_subwords

FEWEST = 50
LOOKED_AT = 50_000  # most trees read; of more, the first
SMALL = 3_000  # trees for the calibration, approximately
SCORED = 300  # trees on which the baseline is computed


def look(paths: list[str]) -> Findings:
    """Inspect files, folders or archives of trees in brackets.

    Raises:
      UserError: nothing can be learned from them.
    """
    say(f'reading {", ".join(paths)} …')
    rows, reasons, files = _read(paths)
    total = len(rows) + len(reasons)
    if len(reasons) > MOST_DAMAGED * total:
        raise UserError(f'{reasons[0]}; {len(reasons):,} of {total:,} records are not trees. Give files in Penn '
                        'Treebank brackets, such as (S (NP (DT the) (NN cat)) (VP (VBZ sits))).')
    if len(rows) < FEWEST:
        raise UserError(f'{", ".join(paths)}: {len(rows):,} trees are too few to train and test with. Give '
                        f'{FEWEST} or more; a thousand is a good start.')
    fraction = held_out_fraction(len(rows))
    held = round(len(rows) * fraction)
    examples = {'train': len(rows) - 2 * held, 'validation': held, 'test': held}
    # With few files, a fraction of whole files varies too much.
    by = 'file' if files >= 100 else 'tree'
    data: Keys = {'module': ('data_prep.treebank', ''), 'train': (paths, ''),
                  'validation_fraction': (fraction, f'split off by a hash, whole {by}s'),
                  'test_fraction': (fraction, ''),
                  'split_by': (by, ''), 'remove_duplicates': (True, 'leaves out training trees of the test'),
                  'tags': ('keep', 'parts of speech are learned too; or XX')}
    if reasons:
        data['max_dead_letters'] = round(min(0.5, 2 * len(reasons) / total + 0.01), 3), 'some are not trees'
    words = np.array([row[0].count(' ') + 1 for row in rows])
    baseline = _right_branching(spread(rows, SCORED))
    limit = round(baseline + max(1.0, 0.1 * baseline), 1)
    said = [f'{len(rows):,} trees in {files:,} files, {np.median(words):.0f} words in the median, {words.max():,} at '
            'most.']
    if reasons:
        said.append(f'{len(reasons):,} records are not trees, such as {reasons[0]}. They become dead letters.')
    if copies := len(rows) - len({row[:2] for row in rows}):
        said.append(f'{copies:,} are copies of an earlier tree.')
    return Findings(
        'trees', said, examples,
        {'data': data, 'evaluate': {'thresholds': ({'bracket_f1': {'min': limit}}, f'above {baseline:.3g}, the F1 of '
                                                   'right branching')}},
        'bracket_f1', baseline, 'right branching', lambda folder: _write_small(paths, files, len(rows), folder),
        min(SMALL, len(rows)), '< FILE_OF_SENTENCES',
        {'buckets': recipes.buckets('trees', _about_lengths(rows)), 'extra_length': 300,
         'most_subwords': most_subwords([(row[0], row[0]) for row in rows]) + 200,
         'seconds': 1e-3})


def _config(paths: list[str]) -> treebank.Config:
    return treebank.Config(train=paths, validation_fraction=0.1, test_fraction=0.1, split_by='tree', tags='keep')


def _read(paths: list[str]) -> tuple[list[tuple[str, ...]], list[str], int]:
    """Return words, linear form and kind of every tree; why others are not trees; and the number of files."""
    rows, reasons, names, config = list[tuple[str, ...]](), list[str](), set[str](), _config(paths)
    tree_files.look_for(tree_files.Source('train', path) for path in paths)
    for path in paths:
        with tempfile.TemporaryDirectory(prefix='landmark-init-') as scratch:
            for block in tree_files.scan(tree_files.Source('train', path), scratch, config):
                if len(rows) >= LOOKED_AT:
                    break
                names.add(block.file)
                for file, line, _, columns, reason in tree_files.read(block, config):
                    if reason:
                        reasons.append(f'line {line:,} of {file}: {reason}')
                    else:
                        rows.append(columns)
    return rows, reasons, len(names)


def _right_branching(rows: list[tuple[str, ...]]) -> float:
    """Return the F1 of the right-branching baseline by evalb's rules."""
    found, _ = tree_graph.delinearise(tf.constant([row[0] for row in rows]), tf.constant([row[1] for row in rows]))
    references = [tree.decode() for tree in found.numpy()]
    sums = np.sum([parseval.counts(tree, parseval.right_branching(tree)) for tree in references], 0)
    return parseval.score('f1', sums)


def _about_lengths(rows: list[tuple[str, ...]]) -> np.ndarray:
    """Estimate how many subwords linear forms have; each bracket and word has one or a few."""
    return np.array([len(row[1].split()) + 0.3 * (row[0].count(' ') + 1) for row in rows])


def _write_small(paths: list[str], files: int, count: int, folder: str) -> dict[str, Any]:
    """Choose files that hold enough trees, or the whole archive; return the keys of `data`."""
    found = [name for path in paths for name in tree_files.outermost(path)]
    some = spread(found, max(1, round(len(found) * min(1, SMALL / count)))) if len(found) == files else found
    listed = []
    for number, path in enumerate(some):
        listed.append(os.path.join(folder, f'{number}_{os.path.basename(path)}'))
        shutil.copy(path, listed[-1])
    return {'module': 'data_prep.treebank', 'train': listed, 'validation_fraction': 0.1, 'test_fraction': 0.1,
            'split_by': 'tree', 'max_dead_letters': 0.9}
