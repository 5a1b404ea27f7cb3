"""The same images and pairs by OpenCV and SentencePiece, which write only their output."""
import gzip
import io
import itertools
import multiprocessing
import pathlib
import struct
import tempfile

import cv2
import inputs
import numpy as np
import sentencepiece
import side

SHORTER_SIDE, QUALITY = 256, 95
DECODE = cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION


def prepared(path: str) -> bytes:
    """Return an image with a shorter side of at most 256; smaller ones stay unchanged."""
    content = pathlib.Path(path).read_bytes()
    pixels = cv2.imdecode(np.frombuffer(content, np.uint8), DECODE)
    size, short = pixels.shape[:2], min(pixels.shape[:2])
    if short <= SHORTER_SIDE:
        return content
    height, width = ((2 * SHORTER_SIDE * length + short) // (2 * short) for length in size)
    smaller = cv2.resize(pixels, (width, height), interpolation=cv2.INTER_AREA)
    return cv2.imencode('.jpg', smaller, [cv2.IMWRITE_JPEG_QUALITY, QUALITY])[1].tobytes()


def write(path: str, files: list[str]) -> None:
    """Images one after the other, each after its length."""
    with open(path, 'wb') as target:
        for file in files:
            encoded = prepared(file)
            target.write(struct.pack('<Q', len(encoded)) + encoded)


def blocks(content: bytes) -> np.ndarray:
    return inputs.blocks(cv2.imdecode(np.frombuffer(content, np.uint8), DECODE)[..., ::-1], 8)


def imagenet_preparation(pictures: str, times: int) -> side.Work:
    """Two processes, each for half of the files, started before timing.

    OpenCV reduces by the mean of what is under a pixel, ours by a triangle of twice its width: of what OpenCV has, that
    is nearest.
    """
    files = sorted(map(str, pathlib.Path(pictures, 'train').glob('*/*')))
    halves = [files[:len(files) // 2] * times, files[len(files) // 2:] * times]
    pool = multiprocessing.Pool(2, cv2.setNumThreads, [1])

    def once():
        with tempfile.TemporaryDirectory() as folder:
            pool.starmap(write, [(f'{folder}/{number}', half) for number, half in enumerate(halves)], chunksize=1)
        return times * len(files)
    return side.Work({'blocks': np.concatenate([blocks(prepared(file)) for file in files])}, once)


def lines(path: pathlib.Path) -> list[str]:
    with gzip.open(path, 'rt', newline='\n') as file:
        return [line.rstrip('\n') for line in file]


def wmt_preparation(text: str, times: int) -> side.Work:
    """Lines to ids in two threads, with 8,000 subwords that both sides learn from the same text; ids are written.

    It does not look for pairs that lack a side, so the text must have none.
    """
    paths = [pathlib.Path(text, f'train.{language}.gz') for language in ('en', 'de')]
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=itertools.chain.from_iterable(map(lines, paths)), model_writer=model, vocab_size=8000,
        model_type='bpe', pad_id=0, bos_id=1, eos_id=2, unk_id=3, normalization_rule_name='nmt_nfkc',
        character_coverage=1.0, max_sentence_length=1 << 16, minloglevel=2)
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())

    def ids(path):
        rows = processor.encode(lines(path), num_threads=2, add_eos=True)
        return len(rows), np.fromiter(itertools.chain.from_iterable(rows), np.int32)

    def once():
        with tempfile.TemporaryDirectory() as folder:
            for number, path in enumerate(paths * times):
                rows, found = ids(path)
                found.tofile(f'{folder}/{number}')
        return times * rows
    return side.Work({name: ids(path)[1] for name, path in zip(('inputs', 'targets'), paths)}, once)


if __name__ == '__main__':
    side.serve({'imagenet_preparation': imagenet_preparation, 'wmt_preparation': wmt_preparation})
