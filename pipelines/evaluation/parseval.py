"""Score trees by labelled brackets, counted as evalb does with COLLINS.prm.

evalb (Sekine, Collins 1997) computes the published figures on the Wall Street Journal. It is a C program that has to be
compiled, and PyPI has no maintained port: PYEVALB is of 2016, disco-dop of 2017, supar, a parser, of 2021; benepar runs
the C program, and nltk has no such score. Its rules, implemented here:

- A bracket is a phrase's label and the words it spans. Tags are not brackets; TOP is not counted.
- Words tagged as punctuation or traces are removed, as are phrases that hold nothing else.
- ADVP and PRT are equal. Only the part of a label before the first - or = counts.
- If the reference has n brackets of one label and span and the output m, min(n, m) of them are right.
- Precision, recall and F1 are computed from sums over all sentences.

Three differences remain, found by running evalb (version of 2013) on the same trees:

- evalb removes punctuation from each tree by that tree's own tags. Where only one side tags a word as punctuation, the
  words left differ, and evalb reports `Length unmatch` or `Words unmatch` and leaves the sentence out of every sum
  (after a dozen such sentences it stops). Only new.prm, not COLLINS.prm, makes it put back words, and of those only
  `'`, `"` and `/`. Here the reference alone decides which words are punctuation, and the sentence counts. Where both
  sides tag a word as punctuation, by whichever marks, the counts are evalb's.
- evalb also leaves out sentences whose words differ. Here they have no right brackets.
- evalb as distributed holds 200 words and 200 brackets a sentence and overwrites memory beyond them. Here neither is
  bounded: a deeper output is counted bracket by bracket, as by evalb compiled with larger arrays.

ROOT, S1 and an empty label around a sentence are not counted either; evalb knows only TOP.
"""
import collections
import functools
import math

import numpy as np

from data_prep.trees import trees

_DELETED = trees.PUNCTUATION | {trees.TRACE}
_UNCOUNTED = {*trees.ROOTS, *_DELETED}  # evalb uses one list for labels of phrases and of words
_EQUAL = {'PRT': 'ADVP'}
COUNTS = ('right', 'reference', 'answer', 'complete', 'sentences')
Brackets = collections.Counter[tuple[str, int, int]]


def brackets(tree: trees.Tree, punctuation: list[bool]) -> Brackets:
    """Return a tree's brackets: (label, first word, word after the last), counted without punctuation.

    Args:
      punctuation: for every word, whether it is removed.
    """
    found: Brackets = collections.Counter()
    starts: list[int] = []  # first word of every open phrase
    removed, counted = iter(punctuation), 0
    for what, part in tree.walk():
        if what == 'open':
            starts.append(counted)
        elif what == 'word':
            counted += not next(removed)
        else:
            label, start = trees.category(part.label), starts.pop()
            if label not in _UNCOUNTED and counted > start:
                found[_EQUAL.get(label, label), start, counted] += 1
    return found


def _read(text: str) -> trees.Tree | None:
    """Parse a tree; join several, such as the parts of a long sentence, under a root; None if malformed."""
    try:
        return trees.Tree(trees.ROOT, tuple(trees.parse(text, deepest=math.inf)))
    except trees.Malformed:
        return None


@functools.lru_cache(maxsize=4096)  # several metrics need the same counts
def counts(reference: str, answer: str) -> np.ndarray:
    """Return the counts F1 is computed from, `COUNTS`, for one sentence: int64 [5]."""
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
    """Return the right-branching baseline's tree of the reference's words."""
    gold = _read(reference)
    return '' if gold is None or not gold.parts else str(trees.right_branching(gold))


def score(name: str, sums: np.ndarray) -> float:
    """Compute `precision`, `recall` or `f1` in percent, as papers report them, or the fraction `complete`."""
    right, reference, answer, complete, sentences = sums.tolist()
    part, whole = {'precision': (100 * right, answer), 'recall': (100 * right, reference),
                   'f1': (200 * right, reference + answer), 'complete': (complete, sentences)}[name]
    return part / whole if whole else 0.0
