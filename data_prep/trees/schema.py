"""Keys and names of treebanks."""
import dataclasses
import os
from typing import Literal

from data_prep.core import splits
from data_prep.text import schema, subwords
from data_prep.trees import trees

SPLITS = schema.SPLITS
LENGTHS = schema.LENGTHS
SUBWORDS = schema.SUBWORDS


@dataclasses.dataclass
class Config(subwords.Config):
    """Location of the trees, and what is kept of them.

    A split is a list of files in Penn Treebank brackets, one tree on one or several lines; of folders, in which every
    file ending in .mrg, .parse, .prd, .psd, .ptb, .tree or .trees is read; of patterns such as `wsj/0[2-9]/*.mrg`; and
    of archives (.tgz, .tar.gz, .tar) or paths inside them: `wsj.tar.gz/wsj/23`. Any file may be gzipped (.gz). `extra`
    is a list like the others, used only for training, of trees made by other parsers.

    For a split without a list, `validation_fraction` or `test_fraction` of the training trees are split off: whole
    files by a hash of the name, or single trees with `split_by: tree`. `train_fraction` keeps a part of the other
    trees, by another hash, for a learning curve: a smaller part is in every larger one.

    `tags`: `XX` keeps only the part-of-speech tags of punctuation, `keep` all of them. `function_tags` keeps the parts
    of labels beyond the category, such as `-SBJ`, which the score ignores. `symbols` are the bracket labels that are
    one subword each; others are spelled. Training trees longer than `max_length` subwords, in words or linear form, are
    filtered, and trees split off from them that are four times as long; those also in validation or test are counted,
    and filtered if `remove_duplicates`.

    `substitutions`: further training trees made from each, in which phrases are replaced by phrases of the same label
    (`trees/substitution.py`), drawn from the trees of its shard.
    """
    folder: str = ''  # base of relative paths in the lists below
    train: list[str] = dataclasses.field(default_factory=list)  # files, folders, patterns or archives of trees
    validation: list[str] = dataclasses.field(default_factory=list)  # as train; empty: validation_fraction of train
    test: list[str] = dataclasses.field(default_factory=list)  # as train; empty: test_fraction of train
    extra: list[str] = dataclasses.field(default_factory=list)
    validation_fraction: float = 0.0
    test_fraction: float = 0.0
    train_fraction: float = 1.0
    split_by: Literal['file', 'tree'] = 'file'
    tags: Literal['XX', 'keep'] = 'XX'
    function_tags: bool = False
    symbols: list[str] = dataclasses.field(
        default_factory=lambda: [f'{bracket}{label}' for label in trees.LABELS for bracket in '()'])
    normalization: Literal['nmt_nfkc', 'nfkc', 'identity'] = 'identity'  # words are the treebank's own
    remove_duplicates: bool = False
    substitutions: int = 0  # trees made from each training tree by replacing phrases
    max_length: int = 512
    max_dead_letters: float = 0.01  # fraction of unreadable trees above which preparation stops
    trees_per_block: int = 2000  # trees read by one Beam element
    trees_per_shard: int = 20000  # trees in one TFRecord file

    def __post_init__(self):
        super().__post_init__()
        splits.check_fractions(self, 'trees')
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
