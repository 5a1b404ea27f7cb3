"""Treebanks: sentences and their constituency trees, as files, as tf.Examples and as batches (Vaswani et al. 6.3).

A pair of wmt's, whose source is the words and whose target the linear form of the tree (`trees.py`), so that what
trains and decodes is what translates. The Beam job is in `trees/job.py`, which alone needs Beam.
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
    """Where the trees are and what of them is to be found.

    A split is a list of files in Penn Treebank brackets, one tree on one or several lines; of folders, of which every
    file below that ends in .mrg, .parse, .prd, .psd, .ptb, .tree or .trees is read; of patterns, as
    `wsj/0[2-9]/*.mrg`; and of archives (.tgz, .tar.gz, .tar), or what is in them: `wsj.tar.gz/wsj/23`. Any file may be
    gzipped (.gz). `extra` is listed as the others and only learned from, as trees that other parsers made.

    Of a split that lists nothing, `validation_fraction` or `test_fraction` of the training trees are split off, whole
    files by a hash of the name, or with `split_by: tree` single trees.

    `tags`: `XX` leaves no part of speech but punctuation's, `keep` all of them. `function_tags` keeps what labels say
    beyond the phrase's kind, as `-SBJ`, which the score does not look at. `symbols` are the brackets' labels that are
    one subword each; others are spelled. Training trees longer than `max_length` subwords, words or linear form, are
    filtered, and those also in validation or test are counted, and filtered if `remove_duplicates`.
    """
    folder: str = ''  # where relative paths of the lists below begin
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
            raise ValueError('train must list files, folders or archives of trees; for example --set '
                             'data.train=[wsj.tar.gz/wsj]')
        splits.check(self, 'files, folders or archives', 'trees')

    def files(self, split: str) -> list[str]:
        """What a split is made of: files, and of what lies in an archive, the archive. Elsewhere than on this machine
        nothing is looked for: there it is folders, too, and for a pattern the folder it begins in."""
        from data_prep.trees import tree_files
        found = list[str]()
        for path in [*getattr(self, split), *(self.extra if split == 'train' else [])]:
            path = os.path.join(self.folder, path)
            found += [tree_files.above(path)] if '://' in path else tree_files.outermost(path)
        given = [self.subword_model] if split == 'train' and self.subword_model else []
        return list(dict.fromkeys([*found, *given]))


def assets(folder: str, config: InputConfig | None = None) -> subwords.Tokenizer:
    """What a served parser needs of the data set: its subwords, and the way from linear forms to trees."""
    from data_prep.trees import tree_graph
    del config
    return tree_graph.Parser(wmt.subword_model(folder))


def examples(serialized: list[bytes]) -> tuple[list[str], dict[str, list[str]]]:
    """Serialized tf.Examples as people and models see them.

    Returns:
      What a model is asked, the words; and all text by column: `source`, `target`, the tree in brackets, and `kind`.
    """
    from data_prep.trees import tree_graph
    asked, columns = wmt.examples(serialized)
    if asked:
        found, _ = tree_graph.delinearise(tf.constant(asked), tf.constant(columns['target']))
        columns = {**columns, 'target': [tree.decode() for tree in found.numpy()]}
    return asked, columns
