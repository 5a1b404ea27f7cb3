"""Inspect constituency trees: counts, lengths, copies, and records that are not trees with the reason."""
import collections
import os
import re
import tempfile
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from data_prep import UserError, treebank
from data_prep.trees import tree_files, tree_graph
from pipelines.evaluation import parseval
from pipelines.starting import recipes, tree_layout
from pipelines.starting.findings import (
    Findings,
    Keys,
    dead_letters_of,
    divided,
    held_out_fraction,
    refuse_empty,
    remaining,
    say,
    spread,
)
from pipelines.starting.pairs import MOST_DAMAGED, least_subwords, most_subwords

FEWEST = 50
LOOKED_AT = 50_000  # most trees inspected; of more, the first
SMALL = 3_000  # trees for the calibration
SCORED = 300  # trees on which the baseline is computed
MOST_TAGS = 100  # different parts of speech that are learned; of the Penn Treebank's there are 45


class _Read(NamedTuple):
    """Hold what was read of a split.

    Attributes:
      rows: words, linear form and kind of the inspected trees, the first.
      reasons: why inspected records are not trees.
      files: number of files.
      total: number of all records.
    """
    rows: list[tuple[str, ...]]
    reasons: list[str]
    files: int
    total: int

    @property
    def trees(self) -> int:
        """Number of trees, approximately."""
        return round(len(self.rows) * self.total / max(1, len(self.rows) + len(self.reasons)))

    @property
    def damaged(self) -> float:
        """The share of the inspected records that are not trees."""
        return len(self.reasons) / max(1, len(self.rows) + len(self.reasons))


def look(paths: list[str]) -> Findings:
    """Inspect files, folders or archives of trees in brackets.

    Raises:
      UserError: nothing can be learned from them.
    """
    lists = tree_layout.layout(paths)
    say(f'reading {", ".join(lists["train"])} …')
    read = {split: _read(split, listed) for split, listed in lists.items() if listed}
    rows, reasons, files, _ = read['train']
    _refuse(lists['train'], read['train'])
    refuse_empty(lists, {split: len(each.rows) for split, each in read.items()}, 'no tree', 'trees')
    fraction = held_out_fraction(read['train'].trees)
    examples, held = divided(lists, read['train'].trees, lambda split: read[split].trees, fraction, 'name')
    # With few files, a fraction of whole files varies too much.
    by = 'file' if files >= 100 else 'tree'
    for key in held:
        if key.endswith('_fraction'):
            held[key] = held[key][0], f'split off by a hash, whole {by}s'
    data: Keys = {'module': ('data_prep.treebank', ''), 'train': (lists['train'], ''), **held,
                  'split_by': (by, ''), 'remove_duplicates': (True, 'leaves out training trees of the test'),
                  'tags': ('keep', 'parts of speech are learned too; or XX')}
    if (tags := len({part for row in rows for part in row[1].split() if part[0] not in '()'})) > MOST_TAGS:
        data['tags'] = 'XX', f'{tags:,} different parts of speech are too many to learn'
    if any(each.reasons for each in read.values()):
        data['max_dead_letters'] = dead_letters_of({split: (each.damaged, each.total) for split, each in read.items()},
                                                   examples), 'some are not trees'
    words = np.array([row[0].count(' ') + 1 for row in rows])
    baseline = _right_branching(spread(rows, SCORED))
    limit = round(baseline + max(1.0, 0.1 * baseline), 1)
    said = [f'{read["train"].trees:,} trees in {files:,} files, {np.median(words):.0f} words in the median, '
            f'{words.max():,} at most.',
            f'{examples["validation"]:,} are for validation and {examples["test"]:,} for the test.']
    if reasons:
        said.append(f'{len(reasons):,} records are not trees, such as {_usual(reasons)}. They become dead letters.')
    lengths = _about_lengths(rows)
    config = _config(paths)
    if long := int((lengths > config.max_length).sum()):
        said.append(f'About {long:,} have more than {config.max_length} subwords and are not trained on.')
        examples['train'] -= round(examples['train'] * long / len(rows))
    if copies := len(rows) - len({row[:2] for row in rows}):
        said.append(f'{copies:,} are copies of an earlier tree.')
    texts = [row[:2] for row in rows]
    return Findings(
        'trees', said, examples,
        {'data': data, 'evaluate': {'thresholds': ({'bracket_f1': {'min': limit}}, f'above {baseline:.3g}, the F1 of '
                                                   'right branching')}},
        'bracket_f1', baseline, 'right branching', lambda folder: _write_small(rows, folder),
        min(SMALL, len(rows)), '< FILE_OF_SENTENCES',
        {'buckets': recipes.buckets('trees', lengths), 'extra_length': 300,
         'least_subwords': least_subwords(texts) + len(config.symbols),
         'most_subwords': most_subwords(texts, remaining(data), symbols=config.symbols,
                                        split_digits=False, normalization='identity'),
         'seconds': 1e-3})


def _refuse(paths: list[str], read: _Read) -> None:
    """Refuse files from which nothing can be learned."""
    if read.damaged > MOST_DAMAGED:
        usual = _usual(read.reasons)
        remedy = ('Save the files as UTF-8' if 'not UTF-8' in usual else
                  'Give files in Penn Treebank brackets, such as (S (NP (DT the) (NN cat)) (VP (VBZ sits)))')
        raise UserError(f'{usual}; {len(read.reasons):,} of {len(read.rows) + len(read.reasons):,} records are not '
                        f'trees. {remedy}.')
    if len(read.rows) < FEWEST:
        raise UserError(f'{", ".join(paths)}: {len(read.rows):,} trees are too few to train and test with. Give '
                        f'{FEWEST} or more; a thousand is a good start.')


def _usual(reasons: list[str]) -> str:
    """Return the first reason of the commonest kind: places and numbers do not count."""
    kinds = [re.sub(r'^.*?: |0x\w+|\d+', '', reason) for reason in reasons]
    return reasons[kinds.index(max(kinds, key=collections.Counter(kinds).__getitem__))]


def _config(paths: list[str]) -> treebank.Config:
    return treebank.Config(train=paths, validation_fraction=0.1, test_fraction=0.1, split_by='tree', tags='keep')


def _read(split: str, paths: list[str]) -> _Read:
    rows, reasons, names, config = list[tuple[str, ...]](), list[str](), set[str](), _config(paths)
    sources, total = [tree_files.Source(split, path) for path in paths], 0
    tree_files.look_for(sources)
    for source in sources:
        with tempfile.TemporaryDirectory(prefix='landmark-init-') as scratch:
            for block in tree_files.scan(source, scratch, config):
                names.add(block.file)
                total += block.records
                for file, line, _, columns, reason in tree_files.read(block, config) if len(rows) < LOOKED_AT else ():
                    if reason:
                        reasons.append(f'line {line:,} of {file}: {reason}')
                    else:
                        rows.append(columns)
    return _Read(rows, reasons, len(names), total)


def _right_branching(rows: list[tuple[str, ...]]) -> float:
    """Return the F1 of the right-branching baseline by evalb's rules."""
    references = _in_brackets(rows)
    sums = np.sum([parseval.counts(tree, parseval.right_branching(tree)) for tree in references], 0)
    return parseval.score('f1', sums)


def _about_lengths(rows: list[tuple[str, ...]]) -> np.ndarray:
    """Estimate how many subwords linear forms have; each bracket and word has one or a few."""
    return np.array([len(row[1].split()) + 0.3 * (row[0].count(' ') + 1) for row in rows])


def _write_small(rows: list[tuple[str, ...]], folder: str) -> dict[str, Any]:
    """Write an even sample of the trees, a line each; return the keys of `data`."""
    path = os.path.join(folder, 'some.mrg')
    with open(path, 'w', encoding='utf-8') as file:
        file.writelines(f'{tree}\n' for tree in _in_brackets(spread(rows, SMALL)))
    return {'module': 'data_prep.treebank', 'train': [path], 'validation_fraction': 0.1, 'test_fraction': 0.1,
            'split_by': 'tree', 'max_dead_letters': 0.9}


def _in_brackets(rows: list[tuple[str, ...]]) -> list[str]:
    found, _ = tree_graph.delinearise(tf.constant([row[0] for row in rows]), tf.constant([row[1] for row in rows]))
    return [tree.decode() for tree in found.numpy()]
