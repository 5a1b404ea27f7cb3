"""Make further training trees from a treebank's own by substructure substitution.

A phrase of a tree is replaced by a phrase of the same label from any tree (Shi, Livescu & Gimpel 2021, 'Substructure
Substitution: Structured Data Augmentation for NLP'). A small treebank then shows a label's phrases in many more
contexts. Sentences so made are seldom sensible, but their trees are right by construction.
"""
import hashlib
import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

MOST = 3  # phrases replaced in a tree


class Pair(NamedTuple):
    """A sentence's words, and the tokens of its tree's linear form (`trees.linear`)."""
    words: tuple[str, ...]
    tokens: tuple[str, ...]


class Span(NamedTuple):
    """A phrase's place in a pair: its first token and the one after its last, and likewise of words."""
    start: int
    end: int
    first: int
    last: int

    def of(self, pair: Pair) -> Pair:
        return Pair(pair.words[self.first:self.last], pair.tokens[self.start:self.end])


def substituted(pairs: Sequence[Pair], count: int) -> Iterator[Pair]:
    """Return `count` further pairs for each, in their order.

    One to `MOST` phrases are replaced, each wherever it then stands; the whole sentence is not, nor put into another.
    Draws follow from the pair alone and its number, but what is drawn from is all of `pairs`. A tree without an inner
    phrase is left out.
    """
    phrases: dict[str, list[Pair]] = {}  # by opening bracket
    for pair in pairs:
        for span in inner(pair):
            phrases.setdefault(pair.tokens[span.start], []).append(span.of(pair))
    for pair in pairs:
        seed = hashlib.blake2b('\0'.join([*pair.words, *pair.tokens]).encode(), digest_size=7).digest()
        draw = random.Random(int.from_bytes(seed, 'big'))
        for _ in range(count if inner(pair) else 0):
            made = pair
            for _ in range(draw.randint(1, MOST)):
                old = draw.choice(inner(made))
                made = replaced(made, old, draw.choice(phrases[made.tokens[old.start]]))
            yield made


def inner(pair: Pair) -> list[Span]:
    """Return the places of all phrases but the whole, in the order in which they end."""
    found, opened, word = [], list[tuple[int, int]](), 0
    for place, token in enumerate(pair.tokens):
        if token[0] == '(':
            opened.append((place, word))
        elif token[0] == ')':
            start, first = opened.pop()
            if opened:
                found.append(Span(start, place + 1, first, word))
        else:
            word += 1
    return found


def replaced(pair: Pair, old: Span, new: Pair) -> Pair:
    """Return a pair in which the phrase `new` stands in the place `old`."""
    return Pair((*pair.words[:old.first], *new.words, *pair.words[old.last:]),
                (*pair.tokens[:old.start], *new.tokens, *pair.tokens[old.end:]))
