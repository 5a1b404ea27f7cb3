"""Keys and names of labelled images."""
import dataclasses
import os

from data_prep.core import archives, splits, templates
from data_prep.image import codec

SPLITS = splits.SPLITS
LABELS = 'labels.json'
PIXELS = 'pixels.npz'
SIDES = ('xmin', 'ymin', 'xmax', 'ymax')  # ends of a box, in fractions of width and height


@dataclasses.dataclass
class Config:
    """Location of the images.

    A split is a list of folders and tar archives (.tar, .tar.gz, .tgz) of class folders; a path may continue inside an
    archive, to the folder that holds them: `cifar10_train.tar.gz/train`. A tar counts as a folder of its name. So
    `ILSVRC2012_img_train.tar`, a tar with one tar per class, is listed as it is, and so is Tiny ImageNet's folder, or
    its `val` with `val_annotations.txt` in it.

    For images without class folders, `train_labels` (`validation_labels`, `test_labels`) is a table ending in .csv,
    .tsv or .jsonl of images and classes. `columns` names these by templates, such as `{image: '{id}', class:
    '{breed}'}`; without it, they are the first two. An image is named by its path or file name, with or without ending.
    A table also decides where there are folders, and images it does not name are not used. Kaggle's
    LOC_val_solution.csv is one. Any other file, as for `ILSVRC2012_img_val.tar`, has one class per line in the order of
    the images' names: its id or, with `synsets` (`ILSVRC2012_devkit_t12.tar.gz/ILSVRC2012_devkit_t12/data/meta.mat`, or
    a text with a WordNet id and a number per line), ILSVRC's number.

    For a split without a list, `validation_fraction` or `test_fraction` of the training images are split off by a hash
    of the class and the name in its folder. `train_fraction` keeps a part of the others, by another hash of it, for a
    learning curve: a smaller part is in every larger one. Classes are the training folders in alphabetical order,
    whether or not `train_fraction` leaves an image of each, or the lines of `labels`; `words` gives their descriptions
    (words.txt, LOC_synset_mapping.txt). `boxes` lists folders and archives of Pascal VOC XML, such as
    `ILSVRC2012_bbox_train_v2.tar.gz`. `samples: digits` replaces all of these by scikit-learn's digits.

    A JPEG is kept unchanged if it is RGB or grey, unless `resize` reduces images to a shorter side of at most that; PNG
    and CMYK become JPEG of quality 95. An image larger than `max_pixels` by its header is not decoded. Training images
    that are also in validation or test, byte for byte, are counted, and filtered if `remove_duplicates`. A file that is
    in two classes of a split is a dead letter in both.
    """
    samples: str = ''
    folder: str = ''  # base of relative paths in the lists below
    train: list[str] = dataclasses.field(default_factory=list)  # folders and archives of class folders
    validation: list[str] = dataclasses.field(default_factory=list)  # as train; empty: validation_fraction of train
    test: list[str] = dataclasses.field(default_factory=list)  # as train; empty: test_fraction of train
    validation_fraction: float = 0.0
    test_fraction: float = 0.0
    train_fraction: float = 1.0
    train_labels: str = ''  # table of images and classes, for images outside class folders
    validation_labels: str = ''
    test_labels: str = ''
    columns: dict[str, str] = dataclasses.field(default_factory=dict)  # of these tables: image and class, as '{name}'
    synsets: str = ''
    labels: str = ''
    words: str = ''
    boxes: list[str] = dataclasses.field(default_factory=list)
    resize: int | None = None
    max_pixels: int = codec.MAX_PIXELS
    remove_duplicates: bool = False
    max_dead_letters: float = 0.01  # fraction of unreadable images above which preparation stops
    images_per_block: int = 10000  # images read by one Beam element
    images_per_shard: int = 1000  # images in one TFRecord file

    def __post_init__(self):
        splits.check_fractions(self, 'images')
        templates.check(self.columns, ('image', 'class'), (), "{image: '{id}', class: '{breed}'}")
        if self.columns and not (self.train_labels or self.validation_labels or self.test_labels):
            raise ValueError('columns are those of tables of classes; give train_labels, or leave columns out')
        if self.samples not in ('', 'digits'):
            raise ValueError(f'samples must be digits or empty; it is {self.samples!r}')
        if self.samples:
            if self.train or self.validation_fraction or self.test_fraction:
                raise ValueError('samples come with their own validation and test images; leave out train, '
                                 'validation_fraction and test_fraction')
            return
        if not self.train:
            raise ValueError('train must list folders or archives of class folders, for example --set '
                             'data.train=[photos]')
        splits.check(self, 'folders or archives', 'images')

    def path(self, name: str) -> str:
        return os.path.join(self.folder, name) if name else ''

    def files(self, split: str) -> list[str]:
        """Return a split's files, below `folder` if it is given: archives, and class folders.

        The times of class folders reveal added and removed files.
        """
        listed = getattr(self, split)
        if split == 'train':
            listed = [*listed, *self.boxes, *filter(None, (self.labels, self.words, self.synsets))]
        if (labels := getattr(self, f'{split}_labels')):
            listed = [*listed, labels]
        paths = [archives.split(self.path(file))[0] for file in listed]
        below = [os.path.join(path, name) for path in paths if '://' not in path and os.path.isdir(path)
                 for name in sorted(os.listdir(path))]
        return list(dict.fromkeys([*paths, *filter(os.path.isdir, below)]))
