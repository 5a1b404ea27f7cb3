"""Attention heads of a trained Transformer: figures 3 to 5 of Vaswani et al. 2017, as plots and numbers."""
import os
from collections.abc import Sequence
from typing import Literal

import numpy as np

from data_prep import UserError
from pipelines.core.pipeline import Pipeline
from pipelines.reporting import attention, figures
from pipelines.reproduction.experiments import Exhibit, Figure, Study

Heads = Literal['all', 'following', 'apart']


def far(weights: np.ndarray, query: int, places: int = 3, least: float = 0.25) -> int:
    """Count the heads that attend far away.

    A head counts if its largest weight is at least `least` and lies `places` or more from the query. (Uniform attention
    also lies mostly far away, but follows nothing.)

    Args:
      weights: [h, n, n], whose rows are queries and sum to 1.
    """
    there = weights[:, query].argmax(-1)
    return int(((np.abs(there - query) >= places) & (weights[:, query].max(-1) >= least)).sum())


def apart(weights: np.ndarray) -> np.ndarray:
    """Return how differently two heads attend, [h, h], from weights [h, n, m].

    This is the total variation distance, the weight that would have to move, averaged over queries: 0 for equal heads,
    1 for heads that attend to disjoint positions.
    """
    return np.abs(weights[:, None] - weights[None]).sum(-1).mean(-1) / 2


def followed(weights: np.ndarray, query: int, key: int) -> np.ndarray:
    """Return how much more weight each head, [h], gives a key from one query than from three quarters of the others.

    A head that attends to one place from everywhere, or from half of the sentence, follows nothing. A quarter of the
    other words may look there, too: those that belong to it.
    """
    given = weights[:, :, key]
    return given[:, query] - np.quantile(np.delete(given, query, axis=1), 0.75, axis=1, method='lower')


def chosen(weights: np.ndarray, query: int | None, key: int | None, heads: Heads) -> list[int]:
    """Return all heads; the two that most follow a key from a query, see `followed`; or the two farthest apart."""
    if heads == 'all':
        return list(range(len(weights)))
    if heads == 'apart':
        return sorted(int(i) for i in np.unravel_index(apart(weights).argmax(), [len(weights)] * 2))
    if query is None or key is None:
        raise UserError('looks: heads that are following need a `word` and its partner, `to`.')
    return sorted(int(i) for i in np.argsort(-followed(weights, query, key), kind='stable')[:2])


def measured(weights: np.ndarray, source: Sequence[str], word: str = '', to: str = '') -> dict[str, float]:
    """Summarise attention in numbers.

    Args:
      weights: [h, n, n] of an encoder's layer.
      word: a query whose attention is measured besides that of all.
      to: what it should attend to: of all heads, the one counts that follows it most, see `followed`.
    """
    pairs = apart(weights)[np.triu_indices(len(weights), 1)]
    found = {'difference of heads': float(pairs.mean()) if len(pairs) else 0.0}
    if word:
        query = place(source, word)
        found |= {'heads that look far from the word': far(weights, query),
                  'sharpest weight of the word': float(weights[:, query].max())}
    if to:
        found['weight on its partner, more than three quarters of the others give'] = float(
            followed(weights, place(source, word), place(source, to)).max())
    return found


def place(source: Sequence[str], word: str) -> int:
    """Return the position of a word.

    Raises:
      UserError: it does not occur as one subword.
    """
    if word not in source:
        raise UserError(f'{word!r} is not a subword of the sentence, {" ".join(source)}. Name one of these.')
    return list(source).index(word)


def draw(study: 'Study', looks: dict[str, dict], setting: str = '', pictures: Sequence[dict] = ({},)) -> 'Exhibit':
    """Draw the encoder's self-attention in the first run of a setting, and measure it in all of its runs.

    Args:
      looks: `small` and `paper` -> a `sentence`; the `layer`, counted from 1; a `word` of it and its partner, `to`, see
        `measured`.
      setting: by default the first.
      pictures: for each plot the `heads`, see `chosen`, and whether `only` the word's attention is drawn.
    """
    runs = [run for run in study.runs if run.setting == (setting or study.runs[0].setting)]
    look = looks[study.kind]
    layer, word, to = look['layer'], look.get('word', ''), look.get('to', '')
    seen = [_look(run.pipeline, look['sentence'], layer) for run in runs]
    values = {(run.setting, run.seed): measured(*each, word, to) for run, each in zip(runs, seen)}
    drawn, where = [], f'Layer {layer} of {runs[0].pipeline.config.model.N}'
    for number, picture in enumerate(pictures, 1):
        make, title = _picture(*seen[0], where, word, to, **picture)
        drawn.append(Figure(title, figures.drawn(make, title, os.path.join(study.out, f'attention_{number}.png'))))
    return Exhibit(values, drawn)


def _look(pipeline: Pipeline, sentence: str, layer: int) -> tuple[np.ndarray, list[str]]:
    """Return the weights [h, n, n] of a layer of the encoder, and the subwords of the sentence."""
    looked = attention.look(pipeline, sentence, target=sentence)
    weights, source = looked.weights, looked.source  # only the encoder
    name = f'encoder/{layer - 1}/self_attention'
    if name not in weights:
        raise UserError(f'There is no layer {layer}: the encoder has {pipeline.config.model.N}.')
    return weights[name], source


def _picture(weights: np.ndarray, source: list[str], where: str, word: str, to: str, heads: Heads = 'all',
             only: bool = False):
    """Return the function that draws a plot, and its title."""
    query, key = (place(source, each) if each else None for each in (word, to))
    which = chosen(weights, query, key, heads)
    title = (f'{where}, head{"s" * (len(which) > 1)} {", ".join(str(head + 1) for head in which)}'
             + (f', from “{word}”' if only else ''))
    return lambda: attention.lines(weights, source, source, title, which, word if only else ''), title
