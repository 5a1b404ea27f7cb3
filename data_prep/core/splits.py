"""How pictures are divided: into splits and shards by a stable hash, as names in packs, which alone pass a shuffle."""
import hashlib
import json
import zlib
from collections.abc import Callable, Iterator
from typing import Any

SPLITS = ('train', 'validation', 'test')
Pack = tuple[str, tuple[int, bytes]]  # split, number of items, items


def check(config, files: str, examples: str) -> None:
    """Whether every split is listed, or a part of the training examples is split off for it.

    Args:
      config: has a list and, but for training, a fraction a split: `validation`, `validation_fraction`.
      files: what a split lists, in words.
      examples: what is split off, in words.

    Raises:
      ValueError
    """
    for split in SPLITS[1:]:
        if bool(getattr(config, split)) == bool(fraction(config, split)):
            raise ValueError(f'{split} must list {files}, or {split}_fraction split a part off the training {examples};'
                             f' for example --set data.{split}_fraction=0.1')
    if not config.validation_fraction + config.test_fraction < 1:
        raise ValueError('validation_fraction and test_fraction leave nothing for training')


def fraction(config, split: str) -> float:
    """How much of the training examples is split off for a split."""
    return getattr(config, f'{split}_fraction', 0.0)


def order(text: str) -> tuple[int, int]:
    """Two numbers below 2^64 that depend on a text alone: for a split, for a place."""
    digest = hashlib.blake2b(text.encode(), digest_size=16).digest()
    return int.from_bytes(digest[:8], 'big'), int.from_bytes(digest[8:], 'big')


def split_of(config, split: str, number: int) -> str:
    """An example's split, by the first number of `order`: its source's, or one that it is split off for."""
    if split == 'train':
        place = number / (1 << 64)
        for other in SPLITS[1:]:
            place -= fraction(config, other)
            if place < 0:
                return other
    return split


def pack(rows: list) -> bytes:
    """What passes a shuffle, names mostly, in a quarter of the bytes."""
    return zlib.compress(json.dumps(rows).encode(), 1)


def unpack(packed: bytes) -> list:
    return json.loads(zlib.decompress(packed))


def count(pack: Pack) -> tuple[str, int]:
    return pack[0], pack[1][0]


def deal(dealt: Pack, a_shard: int, place: Callable[[list], int],
         totals: dict[str, int]) -> Iterator[tuple[tuple[str, int], bytes]]:
    """A pack's items by shard, of about `a_shard` items: ((split, shard), items)."""
    split, (_, items) = dealt
    shards = -(-totals[split] // a_shard)
    parts: dict[int, list[Any]] = {}
    for item in unpack(items):
        parts.setdefault(place(item) % shards, []).append(item)
    yield from (((split, shard), pack(part)) for shard, part in parts.items())
