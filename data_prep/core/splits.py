"""Divide examples into splits and shards by a stable hash; only packs of names are shuffled, never file contents."""
import hashlib
import json
import zlib
from collections.abc import Callable, Iterator
from typing import Any

SPLITS = ('train', 'validation', 'test')
Pack = tuple[str, tuple[int, bytes]]  # split, number of items, items


def check(config, files: str, examples: str) -> None:
    """Check that every split is listed, or that a fraction of the training examples is split off for it.

    Args:
      config: has a list and, except for training, a fraction for each split: `validation`, `validation_fraction`.
      files: what a split lists, for the message.
      examples: what is split off, for the message.

    Raises:
      ValueError: a split has neither or both, or nothing is left for training.
    """
    for split in SPLITS[1:]:
        if bool(getattr(config, split)) == bool(fraction(config, split)):
            raise ValueError(f'{split} must list {files}, or {split}_fraction must be set to a part of the '
                             f'training {examples}, for example --set data.{split}_fraction=0.1')
    if not config.validation_fraction + config.test_fraction < 1:
        raise ValueError('validation_fraction and test_fraction leave nothing for training')


def check_fractions(config, examples: str) -> None:
    """Refuse a `max_dead_letters` or `train_fraction` that is no fraction of the `examples`.

    Raises:
      ValueError: it is below 0 or above 1, or nothing is left for training.
    """
    if not 0 <= config.max_dead_letters <= 1:
        raise ValueError(f'max_dead_letters is a fraction of the {examples}, 0 to 1; it is {config.max_dead_letters}')
    if not 0 < config.train_fraction <= 1:
        raise ValueError(f'train_fraction is a fraction of the training {examples}, above 0 and at most 1; it is '
                         f'{config.train_fraction}')


def fraction(config, split: str) -> float:
    """Return the fraction of the training examples that is split off for a split; 0 for training itself."""
    return 0.0 if split == 'train' else getattr(config, f'{split}_fraction')


def order(text: str) -> tuple[int, int]:
    """Return two numbers below 2^64 that depend only on a text: one decides its split, one its place."""
    digest = hashlib.blake2b(text.encode(), digest_size=16).digest()
    return int.from_bytes(digest[:8], 'big'), int.from_bytes(digest[8:], 'big')


def split_of(config, split: str, number: int) -> str:
    """Return an example's split, its source's or one split off from training, by the first number of `order`."""
    if split == 'train':
        place = number / (1 << 64)
        for other in SPLITS[1:]:
            place -= fraction(config, other)
            if place < 0:
                return other
    return split


def is_left_out(config, split: str, text: str) -> bool:
    """Return whether an example is for training and `train_fraction` leaves it out; `text` is what `order` takes of it.

    What a fraction leaves out, every smaller one leaves out, too. The decision is independent of the split and of the
    place, which depend on the hash of the text alone.
    """
    kept = config.train_fraction
    return split == 'train' and kept < 1 and order(f'{text} of the training examples')[0] >= kept * 2 ** 64


def pack(rows: list) -> bytes:
    """Compress what is shuffled, mostly names, to a quarter of its size."""
    return zlib.compress(json.dumps(rows).encode(), 1)


def unpack(packed: bytes) -> list:
    return json.loads(zlib.decompress(packed))


def count(pack: Pack) -> tuple[str, int]:
    return pack[0], pack[1][0]


def deal(dealt: Pack, a_shard: int, place: Callable[[list], int],
         totals: dict[str, int]) -> Iterator[tuple[tuple[str, int], bytes]]:
    """Yield a pack's items by shard, with about `a_shard` items per shard: ((split, shard), items)."""
    split, (_, items) = dealt
    shards = -(-totals[split] // a_shard)
    parts: dict[int, list[Any]] = {}
    for item in unpack(items):
        parts.setdefault(place(item) % shards, []).append(item)
    yield from (((split, shard), pack(part)) for shard, part in parts.items())
