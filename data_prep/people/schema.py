"""Keys and names of try-on data."""
import dataclasses
import os
from typing import Literal

from data_prep.core import splits
from data_prep.people import person

SPLITS = splits.SPLITS


@dataclasses.dataclass
class Config:
    """Location of the images.

    A split is a list of pairs files with lines `person.jpg garment.jpg`, and optionally a third word, the `group` by
    which metrics can be sliced. The folders `image`, `cloth`, `cloth-mask`, `image-parse` (or `image-parse-v3`,
    `image-parse-new`), `openpose-json` (or `pose`) and, if there is one, `openpose-img` lie in the folder the file is
    named after, as VITON-HD ships them, `train/image` beside `train_pairs.txt`, or beside the file. For a split that
    lists nothing, `validation_fraction` or `test_fraction` of the training people are split off, by a hash of the name.
    `train_fraction` keeps a part of the others, by another hash of it, for a learning curve: a smaller part is in every
    larger one. `samples: people` replaces all of it by generated people, `samples_count` to train with and to test
    with, in images of `samples_size`.

    Training and validation take the pairs whose person wears the garment: of the same name, or `<name>_1` of
    `<name>_0`. The test takes each person with the garment worn, whatever its file lists, unless `pairing` is unpaired.
    A pair that a split lists twice is used once.

    `agnostic`: rules that make the clothing-agnostic person: the paper's (A.1), or those of the authors' published
    preprocessing (`person_official.py`), which their weights need. `padding`: widening of the removed part by the
    paper's rules, in pixels of an image that is 1,024 high. An image larger than `max_pixels` by its header is not
    decoded.
    """
    samples: str = ''
    samples_count: list[int] = dataclasses.field(default_factory=lambda: [200, 40])
    samples_size: list[int] = dataclasses.field(default_factory=lambda: [256, 192])
    # patterns and poses that only people to test with have, such as [checks, raised]; `group` then tells them apart
    samples_held_out: list[str] = dataclasses.field(default_factory=list)
    folder: str = ''  # where relative paths of the lists below begin
    train: list[str] = dataclasses.field(default_factory=list)  # pairs files to train with
    validation: list[str] = dataclasses.field(default_factory=list)  # pairs files to validate with
    test: list[str] = dataclasses.field(default_factory=list)  # pairs files to test with
    validation_fraction: float = 0.0
    test_fraction: float = 0.0
    train_fraction: float = 1.0
    pairing: Literal['paired', 'unpaired'] = 'paired'
    agnostic: Literal['paper', 'official'] = 'paper'
    padding: float = person.PADDING
    max_pixels: int = 16_000_000
    max_dead_letters: float = 0.01  # fraction of bad samples above which preparation stops
    pairs_per_block: int = 10000  # pairs read by one Beam element
    pairs_per_shard: int = 200  # pairs in one TFRecord file

    def __post_init__(self):
        splits.check_fractions(self, 'pairs')
        if self.samples not in ('', 'people'):
            raise ValueError(f'samples must be people or empty; it is {self.samples!r}')
        if self.samples:
            if self.train or self.validation or self.test or self.test_fraction:
                raise ValueError('samples come with their own pairs files; leave out train, validation, test and '
                                 'test_fraction')
            for key in ('samples_count', 'samples_size'):
                if len(getattr(self, key)) != 2:
                    raise ValueError(f'{key} must be two numbers; it is {getattr(self, key)}')
            return
        if not self.train:
            raise ValueError('train must list pairs files; for example --set data.train=[train_pairs.txt]')
        splits.check(self, 'pairs files', 'people')

    def files(self, split: str) -> list[str]:
        """Return a split's pairs files and, on this machine, its folders, whose times show changes."""
        from data_prep.people import pairs_files
        paths = [os.path.join(self.folder, name) for name in getattr(self, split)]
        roots = [pairs_files.root(path) for path in paths if '://' not in path]
        below = [os.path.join(root, name) for root in roots for names in pairs_files.FOLDERS.values() for name in names]
        return list(dict.fromkeys([*paths, *filter(os.path.isdir, below)]))
