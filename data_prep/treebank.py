"""Treebanks: files, tf.Examples and batches of sentences and their constituency trees (Vaswani et al. 6.3).

A record is a pair as in wmt: its source is the words, its target the linear form of the tree (`trees.py`), so the code
for translation also trains and decodes parsing. The Beam job is in `trees/job.py`, the only part that needs Beam.
"""
import dataclasses
import os
from typing import Literal

import tensorflow as tf

from data_prep import wmt
from data_prep.core import splits
from data_prep.core.input_pipeline import InputConfig
from data_prep.text import subwords
from data_prep.trees import trees

SPLITS = wmt.SPLITS
LENGTHS = wmt.LENGTHS
SUBWORDS = wmt.SUBWORDS
UNIT = 'trees'
TASK = 'tree'
JOB = 'data_prep.trees.job'
METRICS = ('complete_match', 'well_formed', 'bracket_precision', 'bracket_recall', 'right_branching_f1', 'bracket_f1')
Input = InputConfig
decoder, decode = wmt.decoder, wmt.decode


@dataclasses.dataclass
class Config(subwords.Config):
    """Location of the trees, and what is kept of them.

    A split is a list of files in Penn Treebank brackets, one tree on one or several lines; of folders, in which every
    file ending in .mrg, .parse, .prd, .psd, .ptb, .tree or .trees is read; of patterns such as `wsj/0[2-9]/*.mrg`; and
    of archives (.tgz, .tar.gz, .tar) or paths inside them: `wsj.tar.gz/wsj/23`. Any file may be gzipped (.gz). `extra`
    is a list like the others, used only for training, of trees made by other parsers.

    For a split without a list, `validation_fraction` or `test_fraction` of the training trees are split off: whole
    files by a hash of the name, or single trees with `split_by: tree`.

    `tags`: `XX` keeps only the part-of-speech tags of punctuation, `keep` all of them. `function_tags` keeps the parts
    of labels beyond the category, such as `-SBJ`, which the score ignores. `symbols` are the bracket labels that are
    one subword each; others are spelled. Training trees longer than `max_length` subwords, in words or linear form, are
    filtered; those also in validation or test are counted, and filtered if `remove_duplicates`.
    """
    folder: str = ''  # base of relative paths in the lists below
    train: list[str] = dataclasses.field(default_factory=list)  # files, folders, patterns or archives of trees
    validation: list[str] = dataclasses.field(default_factory=list)  # as train; empty: validation_fraction of train
    test: list[str] = dataclasses.field(default_factory=list)  # as train; empty: test_fraction of train
    extra: list[str] = dataclasses.field(default_factory=list)
    validation_fraction: float = 0.0
    test_fraction: float = 0.0
    split_by: Literal['file', 'tree'] = 'file'
    tags: Literal['XX', 'keep'] = 'XX'
    function_tags: bool = False
    symbols: list[str] = dataclasses.field(
        default_factory=lambda: [f'{bracket}{label}' for label in trees.LABELS for bracket in '()'])
    normalization: Literal['nmt_nfkc', 'nfkc', 'identity'] = 'identity'  # words are the treebank's own
    remove_duplicates: bool = False
    max_length: int = 512
    max_dead_letters: float = 0.01  # fraction of unreadable trees above which preparation stops
    trees_per_block: int = 2000  # trees read by one Beam element
    trees_per_shard: int = 20000  # trees in one TFRecord file

    def __post_init__(self):
        super().__post_init__()
        if not 0 <= self.max_dead_letters <= 1:
            raise ValueError(f'max_dead_letters is a fraction of the trees, 0 to 1; it is {self.max_dead_letters}')
        if not self.train:
            raise ValueError('train must list files, folders or archives of trees, for example --set '
                             'data.train=[wsj.tar.gz/wsj]')
        splits.check(self, 'files, folders or archives', 'trees')

    def files(self, split: str) -> list[str]:
        """Return a split's files; for a path inside an archive, the archive.

        On other file systems nothing is looked up: there the result includes folders, and for a pattern the folder it
        begins in.
        """
        from data_prep.trees import tree_files
        found = list[str]()
        for path in [*getattr(self, split), *(self.extra if split == 'train' else [])]:
            path = os.path.join(self.folder, path)
            found += [tree_files.above(path)] if '://' in path else tree_files.outermost(path)
        given = [self.subword_model] if split == 'train' and self.subword_model else []
        return list(dict.fromkeys([*found, *given]))


def assets(folder: str, config: InputConfig | None = None) -> subwords.Tokenizer:
    """Return what a served parser needs: the subwords, and the conversion of linear forms to trees."""
    from data_prep.trees import tree_graph
    del config
    return tree_graph.Parser(wmt.subword_model(folder))


def examples(serialized: list[bytes]) -> tuple[list[str], dict[str, list[str]]]:
    """Convert serialized tf.Examples to model inputs and text for people.

    Returns:
      Inputs of a model, the words; and text by column: `source`, `target`, the tree in brackets, and `kind`.
    """
    from data_prep.trees import tree_graph
    asked, columns = wmt.examples(serialized)
    if asked:
        found, _ = tree_graph.delinearise(tf.constant(asked), tf.constant(columns['target']))
        columns = {**columns, 'target': [tree.decode() for tree in found.numpy()]}
    return asked, columns
