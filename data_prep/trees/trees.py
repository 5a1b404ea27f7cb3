"""Constituency trees: Penn Treebank brackets, cleaning for training, and their linear form.

The linear form is that of 'Grammar as a Foreign Language' (Vinyals et al. 2015), which section 6.3 of 'Attention Is All
You Need' follows: the tree depth first, with typed closing brackets and without words.

    (S (NP (NNP John)) (VP (VBZ has) (NP (DT a) (NN dog))) (. .))
    (S (NP XX )NP (VP XX (NP XX XX )NP )VP . )S

Vinyals et al. replaced every part-of-speech tag by XX, since the score ignores tags, and gained one point of F1;
tensor2tensor kept them. Here all become XX except those of punctuation, which the score uses: it removes such words.
`keep` keeps them all. `tree_graph.py` is the inverse.
"""
import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

PUNCTUATION = frozenset([',', ':', '``', "''", '.'])  # tags evalb's COLLINS.prm deletes
TRACE = '-NONE-'
ANY_TAG = 'XX'
# Brackets around a sentence without information.
ROOTS = ('', 'TOP', 'Top', 'ROOT', 'root', 'S1', 'VROOT', 'PSEUDO')
ROOT = 'TOP'
# Penn Treebank II's labels (Bies et al. 1995), each of whose brackets is one subword.
LABELS = ('ADJP', 'ADVP', 'CONJP', 'FRAG', 'INTJ', 'LST', 'NAC', 'NP', 'NX', 'PP', 'PRN', 'PRT', 'QP', 'RRC', 'S',
          'SBAR', 'SBARQ', 'SINV', 'SQ', 'TOP', 'UCP', 'VP', 'WHADJP', 'WHADVP', 'WHNP', 'WHPP', 'X')
_TOKEN = re.compile(r'[()]|[^()\s]+', re.ASCII)
_DEEPEST = 200  # deepest nesting in a file; the deepest of 3,401 sentences of the Wall Street Journal has 30


class Malformed(ValueError):
    """Text that is not a tree; the message says why."""


class Tree(NamedTuple):
    """A phrase and its parts, or a tag (`label`) and its `word`."""
    label: str
    parts: tuple['Tree', ...] = ()
    word: str = ''

    def __str__(self) -> str:
        pieces = []
        for what, part in self.walk():
            if what == 'close':
                pieces.append(')')
            else:
                pieces.append(f' ({part.label} {part.word})' if part.word else f' ({part.label}')
        return ''.join(pieces)[1:]

    def walk(self) -> Iterator[tuple[Literal['open', 'word', 'close'], 'Tree']]:
        """Visit every phrase before and after its parts, and every word, in the order of the text.

        Not recursive, because an output may be nested deeper than Python's 1,000 calls.
        """
        waiting: list[tuple[Literal['open', 'word', 'close'], Tree]] = [('open', self)]
        while waiting:
            what, part = waiting.pop()
            if what == 'open' and part.word:
                yield 'word', part
                continue
            yield what, part
            if what == 'open':
                waiting.append(('close', part))
                waiting += [('open', each) for each in reversed(part.parts)]

    def leaves(self) -> Iterator['Tree']:
        """Return the tagged words, in order."""
        return (part for what, part in self.walk() if what == 'word')


def parse(text: str, deepest: float = _DEEPEST) -> list[Tree]:
    """Parse the trees of a bracketed text, unchanged.

    Raises:
      Malformed: brackets do not balance or are nested more than `deepest` levels, words have no tag or stand outside,
        or a bracket is empty.
    """
    found: list[Tree] = []
    levels: list[list] = []  # parts so far of every open bracket: words, or trees
    labels: list[str] = []
    tokens = _TOKEN.findall(text)
    for place, token in enumerate(tokens):
        if token == '(':
            follows = tokens[place + 1] if place + 1 < len(tokens) else ''
            labels.append('' if follows in ('(', ')') else follows)
            levels.append([])
            if len(levels) > deepest:
                raise Malformed(f'over {deepest} nested brackets')
        elif token == ')':
            if not levels:
                raise Malformed('a closing bracket without an opening one')
            tree = _tree(labels.pop(), levels.pop())
            (levels[-1] if levels else found).append(tree)
        elif not levels:
            raise Malformed(f'{token[:40]!r} is outside of all brackets')
        elif tokens[place - 1] != '(':
            levels[-1].append(token)
    if levels:
        raise Malformed(f'{len(levels)} bracket{"s" * (len(levels) > 1)} not closed')
    return found


def _tree(label: str, parts: list) -> Tree:
    words = [part for part in parts if isinstance(part, str)]
    if not parts:
        raise Malformed(f'an empty bracket{f" {label[:40]!r}" if label else ""}')
    if words and (len(parts) > 1 or not label):
        raise Malformed(f'{words[0][:40]!r} has no tag of its own')
    return Tree(label, word=words[0]) if words else Tree(label, tuple(parts))


def clean(tree: Tree, tags: Literal['XX', 'keep'] = 'XX', function_tags: bool = False) -> Tree:
    """Clean a tree for training, by the usual rules for parsers of the Wall Street Journal.

    Traces are removed, and phrases of nothing but traces; `NP-SBJ` and `NP=2` become NP; an uninformative bracket
    around the whole sentence is removed if it holds one phrase.

    Raises:
      Malformed: no word is left, or an inner phrase has no label.
    """
    left = _without_traces(tree, tags, function_tags)
    if left is None:
        raise Malformed('it has no words')
    while left.label in ROOTS and len(left.parts) == 1 and not left.parts[0].word:
        [left] = left.parts
    if left.word or left.label in ROOTS:  # several sentences, or a single word: no phrase can replace it
        left = Tree(ROOT, (left,) if left.word else left.parts)
    if any(not label for part in left.parts for label in _labels(part)):
        raise Malformed('a bracket without label')
    return left


def _without_traces(tree: Tree, tags: str, function_tags: bool) -> Tree | None:
    if tree.word:
        plain = tags == 'keep' or tree.label in PUNCTUATION
        return None if tree.label == TRACE else tree if plain else Tree(ANY_TAG, word=tree.word)
    parts = tuple(left for part in tree.parts if (left := _without_traces(part, tags, function_tags)) is not None)
    return Tree(tree.label if function_tags else category(tree.label), parts) if parts else None


def category(label: str) -> str:
    """Reduce `NP-SBJ-1` to `NP`; labels that begin with a hyphen, such as `-LRB-`, stay."""
    return re.split('(?<=.)[-=]', label, maxsplit=1)[0] if not label.startswith('-') else label


def _labels(tree: Tree) -> Iterator[str]:
    yield tree.label
    for part in tree.parts:
        yield from _labels(part)


def linear(tree: Tree) -> tuple[str, str]:
    """Return a clean tree's words, and its linear form."""
    return ' '.join(leaf.word for leaf in tree.leaves()), ' '.join(_linear(tree))


def _linear(tree: Tree) -> Iterator[str]:
    if tree.word:
        yield tree.label
        return
    yield f'({tree.label}'
    for part in tree.parts:
        yield from _linear(part)
    yield f'){tree.label}'


def right_branching(tree: Tree) -> Tree:
    """Return the right-branching baseline's tree for a tree's words.

    Every word begins a phrase that extends to the end, except for final punctuation, which stays outside. The whole is
    S, all other phrases are VP, the most frequent label of phrases that end with the sentence.
    """
    words = list(tree.leaves())
    outside = [words.pop()] if len(words) > 1 and words[-1].label in PUNCTUATION else []
    rest = words[1:][-1:]
    for word in words[-2:0:-1]:
        rest = [Tree('VP', (word, *rest))]
    return Tree('S', (*words[:1], *rest, *outside))
