"""Photographs of people and of garments -> a folder in VITON-HD's layout, as one Beam job.

No picture passes a shuffle: an element is a path, and its worker reads the photograph and writes what it makes. Then
each person and each garment is read once more, in one pair, by what prepares try-on data, so that what it would refuse
is found here. A rerun gives the same bytes.
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
from data_prep.photos import folder as folders
from data_prep.photos import making, pose
from data_prep.photos.folder import Photo, Row
from data_prep.photos.grading import Finding
from data_prep.photos.parser import Parser, Ready


@dataclasses.dataclass
class Config:
    """What is made, and of what.

    `people` and `garments` are photographs, or folders of them. `pairs` is a file of two of their names a line; empty
    stands for each person with each garment. `blazepose` is the folder of the pose networks. `parser` is an ONNX file
    and `parser_labels` its label map; without one, parse maps are those that are in the folder already. `size` is
    height and width of what is made.
    """
    people: list[str]
    garments: list[str]
    pairs: str = ''
    blazepose: str = pose.FOLDER
    parser: str = ''
    parser_labels: str = ''
    size: tuple[int, int] = making.SIZE

    def __post_init__(self):
        if self.size[0] * 3 != self.size[1] * 4 or self.size[0] < 128:
            raise UserError(f'--size {self.size[0]} {self.size[1]}: it must be a height of 128 or more and a width, '
                            '4 to 3, as 1024 768.')

    def tools(self) -> tuple[pose.BlazePose, Parser | None]:
        return pose.BlazePose(self.blazepose), Parser(self.parser, self.parser_labels) if self.parser else None


def run(config: Config, folder: str, argv: list[str]) -> list[Row]:
    """Makes a try-on folder of photographs.

    Args:
      argv: Beam's own flags.

    Returns:
      What was made of each photograph, people first, by name.

    Raises:
      UserError: a path or model is missing, two photographs have one name, or a pairs file names another.
    """
    photos = folders.photos(folders.PERSON, config.people) + folders.photos(folders.GARMENT, config.garments)
    listed = folders.pairs(config.pairs, photos)
    config.tools()  # a mistake in them is reported before workers start
    with beam.Pipeline(options=PipelineOptions(argv)) as pipeline:
        made = (pipeline
                | 'Photographs' >> beam.Create(photos)
                | 'Spread' >> beam.Reshuffle()
                | 'Make' >> beam.ParDo(_Make(config, folder)))
        once = pipeline | 'Once' >> beam.Create([folder])
        refusals = (once
                    | 'Pair' >> beam.FlatMap(lambda _, rows: folders.enough(rows), beam.pvalue.AsList(made))
                    | 'Spread pairs' >> beam.Reshuffle()
                    | 'Check' >> beam.Map(lambda pair: folders.refusal(folder, pair, codec.MAX_PIXELS))
                    | 'Refused' >> beam.Filter(lambda refusal: refusal is not None))
        _ = once | 'Commit' >> beam.Map(_commit, listed, beam.pvalue.AsList(made), beam.pvalue.AsList(refusals))
    return folders.read(folder)


class _Make(beam.DoFn):
    """Photo -> its row; writes the files."""

    def __init__(self, config: Config, folder: str):
        self._config, self._folder = config, folder

    def setup(self):
        self._blazepose, self._parser = self._config.tools()

    def process(self, photo: Photo) -> Iterator[Row]:
        content, size = files.read(photo.path, 0, -1), self._config.size
        if photo.kind == folders.PERSON:
            made = making.of_person(content, self._blazepose, self._parser or self._ready(photo), size)
        else:
            made = making.of_garment(content, size)
        for key, value in made.files.items():
            self._write(folders.PLACES[key].format(photo.stem), value)
        steps = {title: f'{folders.STEPS}/{photo.kind}_{photo.stem}_{number}.jpg'
                 for number, title in enumerate(made.steps, 1)}
        for title, path in steps.items():
            self._write(path, made.steps[title])
        findings = list(made.findings)
        if 'image' in made.files and not {'parse'} & {*made.files, *(finding.step for finding in findings)}:
            findings.append(Finding('parse', True, 'There is no parse map, and no try-on without one. Give --parser '
                                    'FILE.onnx, a human parser with the labels of LIP, ATR or CIHP; or put a map of '
                                    f'{photo.name} at {self._place(photo)} and run this again.'))
        yield Row(*photo, sorted(made.files), steps, findings)

    def _ready(self, photo: Photo) -> Ready | None:
        """The parse map that is in the folder already."""
        path = self._place(photo)
        return Ready(path, files.read(path, 0, -1)) if tf.io.gfile.exists(path) else None

    def _place(self, photo: Photo) -> str:
        return os.path.join(self._folder, folders.PLACES['parse'].format(photo.stem))

    def _write(self, path: str, content: bytes) -> None:
        path = os.path.join(self._folder, path)
        tf.io.gfile.makedirs(os.path.dirname(path))
        records.write_atomically(path, content)


def _commit(folder: str, listed: list[tuple[str, str]], rows: list[Row],
            refusals: list[tuple[str, str, Finding]]) -> None:
    for row in rows:
        row.findings += [finding for kind, name, finding in sorted(refusals) if (kind, name) == (row.kind, row.name)]
    folders.write(folder, rows, listed)
