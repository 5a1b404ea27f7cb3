"""Which subwords may come next in a tree's linear form, without TensorFlow.

The same rule as that of `keras_models/text/well_formed.py`, for one hypothesis at a time: `(S (NP DT NN )NP VBZ )S` has
as many tags as the sentence has words, every bracket is closed by its own label, and none is empty.
"""
import typing

import numpy as np

WORD = '▁'
SPECIAL = 4  # subwords that are no text come first
BOS, EOS = 1, 2


class Label(typing.NamedTuple):
    """An open bracket: its subwords; the id that begins to close it, or None; and whether it holds anything."""
    ids: tuple
    closing: int | None
    blank: bool = True


class State(typing.NamedTuple):
    """A hypothesis: words without a tag, open brackets, the rest of a closing label, and whether it has begun."""
    missing: int
    open: tuple = ()
    rest: tuple | None = None  # None: no closing label was begun, or one without a counterpart
    begun: bool = False


class Trees:
    """The rule for trees, for one vocabulary.

    Args:
      pieces: subwords by id; `▁` marks the beginning of a word.
    """

    def __init__(self, pieces):
        ids = {piece: n for n, piece in enumerate(pieces) if n >= SPECIAL}
        self.closing = {n: ids.get(f'{WORD}){piece[2:]}') for piece, n in ids.items() if piece[:2] == f'{WORD}('}
        self.kinds = {kind: np.zeros(len(pieces), bool) for kind in ('tags', 'opens', 'closes', 'continues', 'end')}
        for piece, n in ids.items():
            word = {'(': 'opens', ')': 'closes'}.get(piece[1:2], 'tags')
            self.kinds[word if piece[:1] == WORD else 'continues'][n] = True
        self.kinds['end'][EOS] = True
        self.unpaired = self.kinds['closes'].copy()
        self.unpaired[[n for n in self.closing.values() if n is not None]] = False

    def start(self, ids):
        """Return the state for a sentence."""
        words = self.kinds['tags'] | self.kinds['opens'] | self.kinds['closes']
        return State(int(words[np.array(ids)].sum()))

    def next(self, state, token):
        """Return the state after a token."""
        kinds, labels = self.kinds, state.open
        missing, rest = state.missing, None
        if kinds['opens'][token]:
            labels = (*filled(labels), Label((token,), self.closing[token]))
        elif kinds['closes'][token]:
            *labels, label = labels
            rest = label.ids[1:] if label.closing is not None else None
            labels = filled(labels)
        elif kinds['tags'][token]:
            missing, labels = missing - 1, filled(labels)
        elif kinds['continues'][token]:
            rest = state.rest[1:] if state.rest else None
            if labels and labels[-1].blank and state.rest is None:
                labels = (*labels[:-1], labels[-1]._replace(ids=(*labels[-1].ids, token)))
        return State(missing, tuple(labels), rest, True)

    def allowed(self, state, left):
        """Return which subwords may come next if so many positions are left, [pieces] of truth values."""
        found, kinds, labels = np.zeros(len(self.unpaired), bool), self.kinds, state.open
        if state.rest:
            found[state.rest[0]] = True
            return found
        blank = bool(labels) and labels[-1].blank
        spare = left - (state.missing + sum(len(label.ids) for label in labels) + 1)
        if state.missing and spare > 1:
            found |= kinds['opens']
        if state.missing and labels:
            found |= kinds['tags']
        if labels and not blank and (len(labels) > 1 or not state.missing):
            if labels[-1].closing is None:
                found |= self.unpaired
            else:
                found[labels[-1].closing] = True
        if state.begun and state.rest is None and spare > blank:
            found |= kinds['continues']
        if not state.missing and not labels:
            found |= kinds['end']
        return found


def filled(labels):
    """Return open brackets of which the innermost holds something."""
    return (*labels[:-1], labels[-1]._replace(blank=False)) if labels else ()
