"""Our preparation of raw files and our input pipeline, with its bounds: JPEG decoding, and a step that never waits.

Pictures are a folder `train` of class folders, text is `train.en.gz` and `train.de.gz`. Preparation is the Beam job as
`python -m pipelines.prepare` runs it without further flags, into a new folder every time: its worker is in this
process, and decodes pictures, or cuts text, in as many threads as there are processors. Starting the job is counted,
starting Python is not. `times` lists what is prepared so many times over, since a job of few files is all start.
"""
import dataclasses
import gzip
import itertools
import math
import pathlib
import tempfile
import time
from collections.abc import Iterator

import inputs
import numpy as np
import side
import tensorflow as tf

from data_prep import imagenet, wmt
from data_prep.core import input_pipeline, records
from data_prep.image import augmentation
from data_prep.image import job as image_job
from data_prep.text import job as text_job
from data_prep.text import subwords

CROP, SCALE = 224, 256
PASSES = 8  # over the pictures, in one piece of work
SLOWER = 1.2  # a step than its input


def read(folder: str, split: str, features: dict) -> Iterator[dict[str, np.ndarray]]:
    """Yield the tf.Examples of a split, in its order."""
    part = records.open_split(folder, split)
    for record in part.read(range(len(part))):
        yield {name: value.numpy() for name, value in tf.io.parse_single_example(record, features).items()}


def prepare_pictures(pictures: str, folder: str, resize: int | None = None, times: int = 1) -> int:
    """Return the number of images; a tenth each becomes validation and test, which a data set needs."""
    config = imagenet.Config(folder=pictures, train=['train'] * times, validation_fraction=0.1, test_fraction=0.1,
                             resize=resize)
    return sum(counts['written'] for counts in image_job.run(config, folder, []).counts.values())


def imagenet_preparation(pictures: str, times: int) -> side.Work:
    """Unlike the peer, this also finds equal files, adds up training pixels and indexes records."""
    def once():
        with tempfile.TemporaryDirectory() as folder:
            return prepare_pictures(pictures, folder, SCALE, times)

    features = {name: tf.io.FixedLenFeature([], tf.string) for name in ('file', 'image')}
    with tempfile.TemporaryDirectory() as folder:
        prepare_pictures(pictures, folder, SCALE)
        found = {row['file']: inputs.blocks(augmentation.decoded(row['image']).numpy(), 8)
                 for split in imagenet.SPLITS for row in read(folder, split, features)}
    return side.Work({'blocks': np.concatenate([found[name] for name in sorted(found)])}, once)


def prepare_text(text: str, model: bytes, folder: str, times: int = 1) -> int:
    """Return the number of pairs; one further pair is held out, because a data set needs it."""
    held_out, subword_model = pathlib.Path(folder, 'held_out.tsv'), pathlib.Path(folder, 'given.model')
    held_out.write_text('held\tout\n')
    subword_model.write_bytes(model)
    config = wmt.Config(folder=text, train=['train.en.gz', 'train.de.gz'] * times, validation=[str(held_out)],
                        test=[str(held_out)], subword_model=str(subword_model), max_length=1 << 16)
    return text_job.run(config, folder, []).counts['train']['written']


def wmt_preparation(text: str, times: int) -> side.Work:
    """Use 8,000 subwords, which both sides learn from the same text before timing."""
    lines = itertools.chain.from_iterable(gzip.open(pathlib.Path(text, f'train.{language}.gz'), 'rt', newline='\n')
                                          for language in ('en', 'de'))
    model = subwords.learn((line.rstrip('\n') for line in lines), subwords.Config(vocab_size=8000))

    def once():
        with tempfile.TemporaryDirectory() as folder:
            return prepare_text(text, model, folder, times)

    features = {name: tf.io.RaggedFeature(tf.int64) for name in wmt.LENGTHS}
    with tempfile.TemporaryDirectory() as folder:
        prepare_text(text, model, folder)
        rows = list(read(folder, 'train', features))
    return side.Work({name: np.concatenate([row[name] for row in rows]) for name in wmt.LENGTHS}, once)


def training_set(pictures: str, rows: int) -> tuple[records.Split, input_pipeline.Batches, list]:
    """Images in their original form, which the ImageNet configurations keep.

    Returns:
      The records; which are in a batch; and two decoders: as a net is trained, crops mirrored, less the mean colour and
      altered in colour, and the same crops only mirrored.
    """
    with tempfile.TemporaryDirectory() as folder:
        prepare_pictures(pictures, folder)
        split = records.open_split(folder, 'train')
        split.read(range(len(split)))  # maps the files, which stay readable when the folder is gone
        config = imagenet.Input(rows=rows, crop=CROP, scales=[SCALE], mean='rgb')
        plain = dataclasses.replace(config, mean='none', colour=0.0)
        decoders = [imagenet.decoder(folder, each, training=True) for each in (config, plain)]
    return split, input_pipeline.Batches(split, [], [rows], seed=0), decoders


def records_to_batches(pictures: str, rows: int) -> side.Work:
    """Turn records into batches in several passes; each pass starts with nothing decoded ahead."""
    split, batches, (decode, plain) = training_set(pictures, rows)
    steps = batches.steps_per_epoch
    trained_on = input_pipeline.dataset(split, batches, decode, 0, PASSES * steps)

    def once():
        for _ in trained_on:
            pass
        return PASSES * len(split)

    crops = [(batch['id'].numpy(), batch['image'].numpy().mean((1, 2)))
             for batch in input_pipeline.dataset(split, batches, plain, 0, steps)]
    ids, colours = map(np.concatenate, zip(*crops))
    return side.Work({'colours': colours[np.argsort(ids)][-len(split):]}, once)  # empty rows, -1, come first


def windows(sizes: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Return the part of images [n, 2] under the crops our pipeline draws at these places: whole pixels, [n, 4]."""
    drawn = np.stack([tf.random.stateless_uniform([4], [0, place], alg='philox') for place in places])[:, 1:3]
    whole = np.stack([augmentation.rescaled(size, SCALE) for size in sizes])
    offsets = (drawn * (whole - CROP + 1).astype(np.float32)).astype(np.int32)
    start = np.floor(offsets * sizes / whole)
    stop = np.minimum(np.ceil((offsets + CROP) * sizes / whole), sizes)
    return np.concatenate([start, stop - start], 1).astype(np.int32)


def jpeg_decoding(pictures: str, rows: int) -> side.Work:
    """Return the same crops of the same files, from memory: decoded only, neither rescaled nor made batches."""
    split, batches, _ = training_set(pictures, rows)
    features = {'image': tf.io.FixedLenFeature([], tf.string), 'height': tf.io.FixedLenFeature([], tf.int64),
                'width': tf.io.FixedLenFeature([], tf.int64)}
    parsed = tf.io.parse_example(split.read(range(len(split))), features)
    sizes = np.stack([parsed['height'], parsed['width']], 1).astype(np.int32)
    drawn = [batches[step][1] for step in range(PASSES * batches.steps_per_epoch)]
    ids = np.concatenate(drawn)
    places = np.concatenate([step * rows + np.arange(len(part)) for step, part in enumerate(drawn)])
    options = tf.data.Options()
    options.autotune.enabled = False  # as in `input_pipeline`, whose end would wait for it, too
    given = tf.data.Dataset.from_tensor_slices((ids, windows(sizes[ids], places))).with_options(options)

    def decoded(measure):
        return given.map(lambda number, window: measure(tf.io.decode_and_crop_jpeg(
            parsed['image'][number], window, channels=3, dct_method='INTEGER_ACCURATE')), tf.data.AUTOTUNE)
    shapes = decoded(tf.shape).batch(rows).prefetch(2)

    def once():
        for _ in shapes:
            pass
        return len(ids)

    first = decoded(lambda pixels: tf.reduce_mean(tf.cast(pixels, tf.float32), [0, 1])).take(len(split))
    colours = np.stack([*first.as_numpy_iterator()])
    return side.Work({'colours': colours[np.argsort(ids[:len(split)])]}, once)


def input_beside_a_step(pictures: str, rows: int, fed: bool) -> side.Work:
    """Training steps of fixed duration, in which this process waits as for an accelerator.

    A step takes 1.2 times as long as the input alone takes for its batch. It is fed by the pipeline, which works
    meanwhile, or with one batch always. A unit is a millisecond of steps, so that of a second 1,000 would be all.
    """
    split, batches, (decode, _) = training_set(pictures, rows)
    endless = iter(input_pipeline.dataset(split, batches, decode, 0, 1 << 24))
    first = next(endless)
    taken = []
    for _ in range(3):  # what disturbs only slows
        started = time.perf_counter()
        for _ in range(PASSES * batches.steps_per_epoch):
            next(endless)
        taken.append(time.perf_counter() - started)
    milliseconds = math.ceil(1000 * SLOWER * rows * min(taken) / (PASSES * len(split)))

    def once():
        if fed:
            next(endless)
        time.sleep(milliseconds / 1000)
        return milliseconds
    return side.Work({name: first[name].numpy() for name in ('image', 'label', 'id')}, once)


if __name__ == '__main__':
    side.serve({'imagenet_preparation': imagenet_preparation, 'wmt_preparation': wmt_preparation,
                'image_input': records_to_batches, 'jpeg_decoding': jpeg_decoding,
                'input_beside_a_step': input_beside_a_step})
