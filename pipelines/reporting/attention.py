"""Draw a Transformer's attention, every layer and head, as figures 3 to 5 of Vaswani et al. 2017 do."""
import os
from collections.abc import Sequence
from typing import NamedTuple

import matplotlib
import numpy as np
import tensorflow as tf
from matplotlib.figure import Figure

from data_prep import UserError, wmt
from data_prep.core import records
from data_prep.text import subwords
from keras_models import transformer
from keras_models.text import attention_maps, translator
from pipelines.core import config as configs
from pipelines.core.pipeline import Pipeline
from pipelines.reporting import pages
from pipelines.training import checkpoints

KINDS = {('encoder', 'self_attention'): 'Encoder, self-attention',
         ('decoder', 'self_attention'): 'Decoder, self-attention',
         ('decoder', 'source_attention'): 'Decoder, attention to the source'}
FAINT = 0.02  # weights below it are not drawn


class Looked(NamedTuple):
    """A model's attention while it read one sentence and wrote another.

    Attributes:
      weights: name (`attention_maps.attention_weights`) -> [h, queries, keys].
      source, target: their subwords.
      sentence, translation: the texts.
    """
    weights: dict[str, np.ndarray]
    source: list[str]
    target: list[str]
    sentence: str
    translation: str


def look(pipeline: Pipeline, sentence: str, target: str = '') -> Looked:
    """Compute the attention of a pipeline's model.

    Args:
      target: a translation; if empty, the model's own.

    Raises:
      UserError: the model is not a Transformer or is not trained, or the sentence is empty.
    """
    if pipeline.config.model_spec.name != transformer.__name__:
        raise UserError(f'{pipeline.config.model_spec.name} has no attention. Give a configuration whose model '
                        'is keras_models.transformer.')
    run = pipeline.outputs('train', make=False)['model_run']
    examples = pipeline.outputs('prepare', make=False)['examples'].uri
    config = configs.with_data_set(pipeline.config, records.read_manifest(examples).model)
    nets = transformer.build(config.model)
    checkpoints.restore(nets, os.path.join(run.uri, 'weights'))
    pieces, tokenizer = subwords.pieces(wmt.subword_model(examples)), config.data_spec.assets(examples)

    def ids(text):
        return tokenizer.tokenize(tf.constant([text])).to_tensor()
    inputs = ids(sentence)
    if inputs.shape[1] < 2:
        raise UserError(f'{sentence!r} holds no subword of the model. Give a sentence.')
    if target:
        targets = ids(target)
    else:
        found, _ = translator.Translator(nets, config.model, config.inference)(inputs, pack=True)
        targets = found[:, :int(tf.reduce_sum(tf.cast(found != 0, tf.int32)))]
        target = tokenizer.detokenize(tf.RaggedTensor.from_tensor(targets)).numpy()[0].decode()
    weights = attention_maps.attention_weights(nets, config.model, inputs, targets)

    def words(row):
        return [pieces[i].replace('▁', ' ').strip() or '␣' for i in row.numpy()]
    return Looked({name: each.numpy() for name, each in weights.items()}, words(inputs[0]), words(targets[0]),
                  sentence, target)


def sides(name: str, source: Sequence[str], target: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the words of queries and keys. A decoder's query predicts the target beside it from those before."""
    if name.startswith('encoder'):
        return [*source], [*source]
    return [*target], [*source] if 'source' in name else ['<s>', *target[:-1]]


def lines(weights, queries: Sequence[str], keys: Sequence[str], title: str, heads: Sequence[int] | None = None,
          only: str = '') -> Figure:
    """Draw a line from each query to each key, as wide as its weight, in one colour per head.

    Args:
      weights: [h, queries, keys].
      heads: the heads to draw; None draws all.
      only: draw only the lines of this query.
    """
    heads = range(len(weights)) if heads is None else heads
    figure = Figure(figsize=(4.2, 0.5 + 0.24 * max(len(queries), len(keys))), layout='constrained')
    axes, colours = figure.add_subplot(), matplotlib.colormaps['tab10']
    for x, words, side in ((0, queries, 'right'), (1, keys, 'left')):
        for y, word in enumerate(words):
            axes.text(x + (x - 0.5) * 0.04, y, word, ha=side, va='center', fontsize=9, parse_math=False)
    for head in heads:
        for i, query in enumerate(queries):
            for j in range(len(keys)):
                if weights[head, i, j] > FAINT and only in ('', query):
                    axes.plot([0, 1], [i, j], color=colours(head % 10), alpha=float(weights[head, i, j]) ** 0.7,
                              linewidth=1 + 3 * float(weights[head, i, j]) / len(heads) ** 0.5, solid_capstyle='round')
    axes.set(title=title, ylim=(max(len(queries), len(keys)) - 0.4, -0.6), xlim=(-0.9, 1.9))
    axes.axis('off')
    return figure


def maps(weights, queries: Sequence[str], keys: Sequence[str], title: str) -> Figure:
    """Draw every head of a layer as a heat map, one row per query."""
    h, columns = len(weights), min(4, len(weights))
    figure = Figure(figsize=(2.4 * columns, 2.5 * -(-h // columns)), layout='constrained')
    figure.suptitle(title, fontsize=10)
    for head, axes in enumerate(figure.subplots(-(-h // columns), columns, squeeze=False).ravel()):
        if head >= h:
            axes.axis('off')
            continue
        axes.imshow(weights[head], cmap='Blues', vmin=0, vmax=1, aspect='auto')
        axes.set_title(f'head {head + 1}', fontsize=8)
        axes.set_xticks(range(len(keys)), keys, rotation=90, fontsize=6)
        axes.set_yticks(range(len(queries)), queries, fontsize=6)
    return figure


def write(looked: Looked, folder: str) -> str:
    """Write the page, with a heat map of each head, and PNGs of each layer beside it; return the page's path."""
    os.makedirs(folder, exist_ok=True)
    sections = []
    for (stack, part), title in KINDS.items():
        names = [name for name in looked.weights if name.startswith(stack) and name.endswith(part)]  # layer by layer
        for n, name in enumerate(names, 1):
            queries, keys = sides(name, looked.source, looked.target)
            for make, suffix in ((lines, 'lines'), (maps, 'heads')):
                figure = make(looked.weights[name], queries, keys, f'{title}, layer {n}')
                figure.savefig(os.path.join(folder, f'{name.replace("/", "_")}_{suffix}.png'), dpi=120)
            sections.append({'title': title, 'layer': n, 'layers': len(names), 'queries': queries, 'keys': keys,
                             'heads': looked.weights[name].tolist()})
    page = pages.environment().get_template('attention.html.j2').render(looked=looked, sections=sections)
    path = os.path.join(folder, 'attention.html')
    records.write_atomically(path, page.encode())
    return path
