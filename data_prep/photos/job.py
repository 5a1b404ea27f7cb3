"""Make a folder in VITON-HD's layout from photographs of people and garments, in one Beam job.

No image passes a shuffle: an element is a path, and its worker reads the photograph and writes the results. Then the
reader of `prepare` checks each person and each garment in one pair, so its refusals are found here. A rerun gives the
same bytes.
"""
import dataclasses
import os
from collections.abc import Iterator

import apache_beam as beam
import tensorflow as tf
from apache_beam.options.pipeline_options import PipelineOptions

from data_prep import UserError
from data_prep.core import files, records
from data_prep.image import codec
from data_prep.photos import BLAZEPOSE, making, pose
from data_prep.photos import folder as folders
from data_prep.photos.folder import Photo, Row
from data_prep.photos.grading import Finding
from data_prep.photos.parser import ExistingMap, Parser


@dataclasses.dataclass
class Config:
    """Photographs, networks and size of a job.

    Attributes:
      people, garments: photographs, or folders of them.
      pairs: file with the names of a person and a garment on each line; '' pairs each person with each garment.
      blazepose: folder of the pose networks.
      parser: ONNX file of a human parser; '' uses the parse maps that are already in the folder.
      parser_labels: the parser's label map; see `labels.choose`.
      size: height and width of the images made.

    Raises:
      UserError: `size` is not 4 to 3, or too small.
    """
    people: list[str]
    garments: list[str]
    pairs: str = ''
    blazepose: str = BLAZEPOSE
    parser: str = ''
    parser_labels: str = ''
    size: tuple[int, int] = making.SIZE

    def __post_init__(self):
        if self.size[0] * 3 != self.size[1] * 4 or self.size[0] < 128:
            raise UserError(f'--size {self.size[0]} {self.size[1]}: height and width must be 4 to 3, and the height at '
                            'least 128, for example 1024 768.')

    def load_networks(self) -> tuple[pose.BlazePose, Parser | None]:
        """Load the pose networks and, if given, the parser; each worker does so once."""
        return pose.BlazePose(self.blazepose), Parser(self.parser, self.parser_labels) if self.parser else None


def run(config: Config, folder: str, argv: list[str]) -> list[Row]:
    """Make a try-on folder from photographs.

    Args:
      config: see `Config`.
      folder: the folder to write.
      argv: Beam's flags.

    Returns:
      The result for each photograph: people first, sorted by name.

    Raises:
      UserError: a path or network is missing, two photographs share a name, or the pairs file names an unknown one.
    """
    photos = folders.photos(folders.PERSON, config.people) + folders.photos(folders.GARMENT, config.garments)
    listed = folders.pairs(config.pairs, photos)
    config.load_networks()  # reports a wrong file before workers start
    with beam.Pipeline(options=PipelineOptions(argv)) as pipeline:
        made = (pipeline
                | 'Photographs' >> beam.Create(photos)
                | 'Spread' >> beam.Reshuffle()
                | 'Make' >> beam.ParDo(_Make(config, folder)))
        once = pipeline | 'Once' >> beam.Create([folder])
        refusals = (once
                    | 'Pair' >> beam.FlatMap(lambda _, rows: folders.covering_pairs(rows), beam.pvalue.AsList(made))
                    | 'Spread pairs' >> beam.Reshuffle()
                    | 'Check' >> beam.Map(lambda pair: folders.refusal(folder, pair, codec.MAX_PIXELS))
                    | 'Refused' >> beam.Filter(lambda refusal: refusal is not None))
        _ = once | 'Commit' >> beam.Map(_commit, listed, beam.pvalue.AsList(made), beam.pvalue.AsList(refusals))
    return folders.read(folder)


class _Make(beam.DoFn):
    """Make the files of a photograph and emit its row."""

    def __init__(self, config: Config, folder: str):
        self._config, self._folder = config, folder

    def setup(self):
        self._blazepose, self._parser = self._config.load_networks()

    def process(self, photo: Photo) -> Iterator[Row]:
        content, size = files.read(photo.path, 0, -1), self._config.size
        if photo.kind == folders.PERSON:
            made = making.of_person(content, self._blazepose, self._parser or self._existing_map(photo), size)
        else:
            made = making.of_garment(content, size)
        for key, value in made.files.items():
            self._write(folders.PLACES[key].format(photo.stem), value)
        steps = {title: f'{folders.STEPS}/{photo.kind}_{photo.stem}_{number}.jpg'
                 for number, title in enumerate(made.steps, 1)}
        for title, path in steps.items():
            self._write(path, made.steps[title])
        findings = list(made.findings)
        if 'image' in made.files and 'parse' not in {*made.files, *(finding.step for finding in findings)}:
            findings.append(Finding('parse', True, 'Try-on needs a parse map, and there is none. Give --parser '
                                    'FILE.onnx, a human parser with the labels of LIP, ATR or CIHP, or save a map of '
                                    f'{photo.name} as {self._map_path(photo)} and run the same command again.'))
        yield Row(*photo, sorted(made.files), steps, findings)

    def _existing_map(self, photo: Photo) -> ExistingMap | None:
        """Return the parse map that is already in the folder, if any."""
        path = self._map_path(photo)
        return ExistingMap(path, files.read(path, 0, -1)) if tf.io.gfile.exists(path) else None

    def _map_path(self, photo: Photo) -> str:
        return os.path.join(self._folder, folders.PLACES['parse'].format(photo.stem))

    def _write(self, path: str, content: bytes) -> None:
        path = os.path.join(self._folder, path)
        tf.io.gfile.makedirs(os.path.dirname(path))
        records.write_atomically(path, content)


def _commit(folder: str, listed: list[tuple[str, str]], rows: list[Row],
            refusals: list[tuple[str, str, Finding]]) -> None:
    """Add the refusals to their rows and write pairs and rows; runs once, after all files are written."""
    for row in rows:
        row.findings += [finding for kind, name, finding in sorted(refusals) if (kind, name) == (row.kind, row.name)]
    folders.write(folder, rows, listed)
