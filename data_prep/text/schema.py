"""Keys and names of parallel text."""
import dataclasses
import os

from data_prep.core import archives, splits, templates
from data_prep.text import subwords

SPLITS = ('train', 'validation', 'test')
LENGTHS = ('inputs', 'targets')
SUBWORDS = 'subwords.model'


@dataclasses.dataclass
class Config(subwords.Config):
    """Location of the pairs, and their preparation.

    A split is a list of files: two by two, source and target line by line (`[a.en, a.de, b.en, b.de]`), or tables
    ending in .tsv, .csv or .jsonl with the columns source, target and, optionally, kind; a single file of another name
    is read as a .tsv. Any may be gzipped (.gz). A file ending in .sgm or .sgml is NIST's SGML, the format of WMT's test
    sets; every `<seg>` is a line. A file inside an archive (.tgz, .tar.gz, .tar) is named by a path that continues
    inside it, such as `training-parallel-europarl-v7.tgz/training/europarl-v7.de-en.en` or, gzipped inside a tar,
    `training-giga-fren.tar/giga-fren.release2.fixed.en.gz`.

    With `header`, a table's first row names its columns, and `columns` may define source, target and kind by templates:
    `{source: '{Instruction} {Input}', target: '{Response}'}`. JSON lines (.jsonl, .ndjson or .json: an object per line)
    always have names, those of the first 200 records, and what a record lacks is empty; a name inside another is
    `{translation.de}`. A CSV file's delimiter is the comma, semicolon or tab that cuts its first 200 records into
    equally many cells.

    For a split without a list, `validation_fraction` or `test_fraction` of the training pairs are split off by a hash
    of the source text, so pairs with the same source stay together. `train_fraction` keeps a part of the others, by
    another hash of it, for a learning curve: a smaller part is in every larger one.

    `samples: cldr` replaces files by the corpus of `data_prep/text/samples.py`. Training pairs longer than `max_length`
    subwords on either side are filtered; of pairs split off from them, those longer than four times as many. A
    validation or test list keeps every pair. Training pairs that are also in validation or test, identical except for
    white space at the ends, are counted, and filtered if `remove_duplicates` (the paper does not say whether it did).
    """
    samples: str = ''
    source: str = 'en'  # language of the input, by its ISO 639 code
    target: str = 'de'  # language of the output
    folder: str = ''  # base of relative paths in the lists below
    train: list[str] = dataclasses.field(default_factory=list)  # files to train with
    validation: list[str] = dataclasses.field(default_factory=list)  # files to validate with
    test: list[str] = dataclasses.field(default_factory=list)  # files to test with
    validation_fraction: float = 0.0
    test_fraction: float = 0.0
    train_fraction: float = 1.0
    header: bool = False
    columns: dict[str, str] = dataclasses.field(default_factory=dict)
    remove_duplicates: bool = False
    max_length: int = 256
    max_dead_letters: float = 0.01  # fraction of unreadable lines above which preparation stops
    pairs_per_block: int = 2000  # pairs read by one Beam element
    pairs_per_shard: int = 200000  # pairs in one TFRecord file

    def __post_init__(self):
        super().__post_init__()
        splits.check_fractions(self, 'records')
        self._check_columns()
        if self.samples not in ('', 'cldr'):
            raise ValueError(f'samples must be cldr or empty; it is {self.samples!r}')
        if self.samples:
            return
        if not self.train:
            raise ValueError('train must list files, for example --set data.train=[train.en,train.de]')
        splits.check(self, 'files', 'pairs')

    def _check_columns(self):
        if self.columns and not self.header:
            raise ValueError('columns needs header: true, a first row that names the columns')
        templates.check(self.columns, ('source', 'target'), ('kind',),
                        "{source: '{Instruction} {Input}', target: '{Response}'}")

    def files(self, split: str) -> list[str]:
        """Return the split's files, below `folder` if one is given; for a path inside an archive, the archive."""
        paths = [archives.split(os.path.join(self.folder, file))[0] for file in getattr(self, split)]
        given = [self.subword_model] if split == 'train' and self.subword_model else []
        return list(dict.fromkeys([*paths, *given]))
