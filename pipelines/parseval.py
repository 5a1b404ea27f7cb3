"""How well a tree agrees with the one it should be: labelled brackets, counted as evalb does with COLLINS.prm.

evalb (Sekine, Collins 1997) is what every figure of the Wall Street Journal is of, a C program to be compiled. What
PyPI has in its place is not kept: PYEVALB is of 2016, disco-dop of 2017, supar, a parser, of 2021; benepar starts the
C program, and nltk has no such score. So these are its rules:

- A bracket is a phrase's label and the words it spans, tags are none. TOP is not counted.
- Words tagged as punctuation or traces are taken out, and phrases of nothing else. Which words are, the reference
  says: evalb puts such back as only one side takes for it; where tags agree it is the same.
- ADVP and PRT are equal, and of a label only what comes before the first - or = counts.
- Of n brackets of one label and span in the reference and m in the answer, the smaller number are right.
- Precision, recall and F1 are of the sums over all sentences.

evalb leaves sentences out whose words differ; here these have no bracket right.
"""
import collections
import functools

import numpy as np

from data_prep import trees

_DELETED = trees.PUNCTUATION | {trees.TRACE}
_EQUAL = {'PRT': 'ADVP'}
COUNTS = ('right', 'reference', 'answer', 'complete', 'sentences')
Brackets = collections.Counter[tuple[str, int, int]]


def brackets(tree: trees.Tree, punctuation: list[bool]) -> Brackets:
    """A tree's brackets: (label, first word, word after the last), of words that are no punctuation.

    Args:
      punctuation: of every word, whether it is one.
    """
    # Number of counted words before each, so that spans do not see the others.
    before = np.concatenate([[0], np.cumsum(~np.array(punctuation, bool))]).tolist()
    found: Brackets = collections.Counter()

    def visit(part: trees.Tree, start: int) -> int:
        if part.word:
            return start + 1
        end = start
        for each in part.parts:
            end = visit(each, end)
        label = trees.category(part.label)
        if label not in trees.ROOTS and before[end] > before[start]:
            found[_EQUAL.get(label, label), before[start], before[end]] += 1
        return end
    visit(tree, 0)
    return found


def _read(text: str) -> trees.Tree | None:
    """A tree; of several, as parts of a long sentence give, one that holds them; or None."""
    try:
        return trees.Tree(trees.ROOT, tuple(trees.parse(text)))
    except trees.Malformed:
        return None


@functools.lru_cache(maxsize=4096)  # several metrics ask the same
def counts(reference: str, answer: str) -> np.ndarray:
    """What F1 is made of, `COUNTS`, for one sentence: int64 [5]."""
    gold, found = _read(reference), _read(answer)
    if gold is None:
        return np.array([0, 0, 0, 0, 1], np.int64)
    leaves = list(gold.leaves())
    punctuation = [leaf.label in _DELETED for leaf in leaves]
    wanted, got = brackets(gold, punctuation), Brackets()
    if found is not None and [leaf.word for leaf in found.leaves()] == [leaf.word for leaf in leaves]:
        got = brackets(found, punctuation)
    return np.array([(wanted & got).total(), wanted.total(), got.total(), wanted == got, 1], np.int64)


def right_branching(reference: str) -> str:
    """What a parser that branches to the right says of the reference's words."""
    gold = _read(reference)
    return '' if gold is None or not gold.parts else str(trees.right_branching(gold))


def score(name: str, sums: np.ndarray) -> float:
    """`precision`, `recall` or `f1` in percent, as papers have them, or the fraction `complete`, of summed counts."""
    right, reference, answer, complete, sentences = sums.tolist()
    part, whole = {'precision': (100 * right, answer), 'recall': (100 * right, reference),
                   'f1': (200 * right, reference + answer), 'complete': (complete, sentences)}[name]
    return part / whole if whole else 0.0
