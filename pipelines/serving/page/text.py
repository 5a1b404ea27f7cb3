"""Text page, for translating and parsing as one types: output, alternatives, attention and tree."""
import math

import numpy as np

from data_prep.trees import trees
from pipelines.serving.failure import invalid
from pipelines.serving.models import Version, warmup_requests

LONGEST = 5000  # characters


def examples(version: Version) -> list[str]:
    """Return the lines exported with the model, shortest first."""
    found = [line.decode('utf-8', 'replace') for _, inputs in warmup_requests(version.path)
             for line in inputs.get('text', np.array([], object)).tolist()]
    return sorted({line for line in found if line.strip()}, key=len)[:6]


async def ask(page, model, version: Version, given: dict) -> dict:
    """Run the model on one line; models exported by an earlier version have no alternatives."""
    line = given['text']
    if not isinstance(line, str) or len(line) > LONGEST:
        raise invalid(f'text must be a line of at most {LONGEST:,} characters.')
    line = ' '.join(line.split())
    inputs = {'text': np.array([line.encode()], object)}
    found = await page.predict(version, 'serving_default', inputs)
    answer = {'answer': found['text'][0].decode('utf-8', 'replace'), 'score': _number(found['score'][0]),
              'truncated': bool(found['truncated'][0]), 'alternatives': [], 'source': [], 'target': [],
              'attention': []}
    if line and 'explore' in version.signatures:
        more = await page.predict(version, 'explore', inputs)
        answer['alternatives'] = [
            {'text': text.decode('utf-8', 'replace'), 'score': _number(score)}
            for text, score in zip(more['alternatives'][0], more['scores'][0]) if math.isfinite(score) and text][:6]
        source, target = (_words(more[key][0]) for key in ('source', 'target'))
        answer['source'], answer['target'] = ([word for _, _, word in each] for each in (source, target))
        answer['attention'] = [[round(float(more['attention'][0, a:b, c:d].sum(1).mean()), 4) for c, d, _ in source]
                               for a, b, _ in target]
    if version.description['data_module'].endswith('treebank'):
        answer['tree'] = _tree(answer['answer'])
    return answer


def _words(pieces: np.ndarray) -> list[tuple[int, int, str]]:
    """Return the words of subwords: first, last + 1, and text; a word begins at a subword that begins with a blank."""
    texts = [piece.decode('utf-8', 'replace') for piece in pieces.tolist()]
    length = next((n for n, text in enumerate(texts) if not text), len(texts))
    starts = [n for n in range(length) if n == 0 or texts[n].startswith(' ')]
    words = [(a, b, ''.join(texts[a:b]).strip()) for a, b in zip(starts, [*starts[1:], length])]
    return [word for word in words if word[2]]


def _tree(answer: str) -> dict | None:
    """Return a bracketed output as nested phrases, or None if it is not a tree."""
    try:
        found = trees.parse(answer, 60)
    except trees.Malformed:
        return None
    return _nested(found[0]) if len(found) == 1 else None


def _nested(tree: trees.Tree) -> dict:
    return {'label': tree.label, 'word': tree.word, 'parts': [_nested(part) for part in tree.parts]}


def _number(value) -> float | None:
    return round(float(value), 4) if math.isfinite(value) else None


ACTIONS = {'text': ask}
