"""Draws where a trained Transformer looks, as figures 3 to 5 of Vaswani et al. 2017: every layer, every head.

    python -m pipelines.attention "Thursday, July 16, 2026"
    python -m pipelines.attention --config my.yaml --target "Er schläft." "He sleeps."

Leaves `attention.html`, one page that needs no network, and PNGs of every layer. Without --target the model's own
translation is looked at.
"""
import os
import sys
from collections.abc import Sequence

from data_prep import UserError
from pipelines.core import cli

KINDS = {('encoder', 'self_attention'): 'Encoder, self-attention',
         ('decoder', 'self_attention'): 'Decoder, self-attention',
         ('decoder', 'source_attention'): 'Decoder, attention to the source'}
FAINT = 0.02  # weights below it are not drawn


def look(pipeline, sentence: str, target: str = '') -> tuple[dict, list[str], list[str]]:
    """Weights by name (`attention_maps.attention_weights`), and the subwords of sentence and target.

    Raises:
      UserError: the model is no Transformer, nothing of it is trained, or there is nothing in the sentence.
    """
    import tensorflow as tf

    from data_prep import wmt
    from data_prep.core import records
    from data_prep.text import subwords
    from keras_models import transformer
    from keras_models.text import attention_maps, translator
    from pipelines.core import config as configs
    from pipelines.training import checkpoints
    if pipeline.config.model_spec.name != transformer.__name__:
        raise UserError(f'{pipeline.config.model_spec.name} has no attention; give a configuration whose model '
                        'is keras_models.transformer.')
    run, examples = pipeline.outputs('train')['model_run'], pipeline.outputs('prepare')['examples'].uri
    config = configs.with_data_set(pipeline.config, records.read_manifest(examples))
    nets = transformer.build(config.model)
    checkpoints.restore(nets, os.path.join(run.uri, 'weights'))
    pieces, tokenizer = subwords.pieces(wmt.subword_model(examples)), config.data_spec.assets(examples)

    def ids(text):
        return tokenizer.tokenize(tf.constant([text])).to_tensor()
    inputs = ids(sentence)
    if inputs.shape[1] < 2:
        raise UserError(f'{sentence!r} holds nothing the model can see; give a sentence.')
    if target:
        targets = ids(target)
    else:
        found, _ = translator.Translator(nets, config.model, config.inference)(inputs, pack=True)
        targets = found[:, :int(tf.reduce_sum(tf.cast(found != 0, tf.int32)))]
    weights = attention_maps.attention_weights(nets, config.model, inputs, targets)

    def words(row):
        return [pieces[i].replace('▁', ' ').strip() or '␣' for i in row.numpy()]
    return {name: each.numpy() for name, each in weights.items()}, words(inputs[0]), words(targets[0])


def sides(name: str, source: Sequence[str], target: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words of queries and keys. A decoder's query predicts the target beside it, and sees those before."""
    if name.startswith('encoder'):
        return [*source], [*source]
    return [*target], [*source] if 'source' in name else ['<s>', *target[:-1]]


def lines(weights, queries: Sequence[str], keys: Sequence[str], title: str, heads: Sequence[int] | None = None,
          only: str = ''):
    """A line from each query to each key, as wide as the weight; a colour a head.

    Args:
      weights: [h, queries, keys].
      heads: which are drawn; all, if none are named.
      only: a query whose lines alone are drawn.

    Returns:
      A matplotlib Figure.
    """
    import matplotlib
    from matplotlib.figure import Figure
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


def maps(weights, queries: Sequence[str], keys: Sequence[str], title: str):
    """Every head of a layer as a picture, a row a query: what a glance at all of them needs. Returns a Figure."""
    from matplotlib.figure import Figure
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


def write(weights: dict, source: Sequence[str], target: Sequence[str], folder: str) -> str:
    """The page, and PNGs beside it. Returns the page's path."""
    import html

    from data_prep.core import records
    from pipelines.reporting import figures
    os.makedirs(folder, exist_ok=True)
    parts = [f'<!DOCTYPE html><meta charset="utf-8"><title>Attention</title><style>{STYLE}</style>',
             f'<h1>{html.escape(" ".join(source))} → {html.escape(" ".join(target))}</h1>']
    for (stack, part), title in KINDS.items():
        names = [name for name in weights if name.startswith(stack) and name.endswith(part)]  # in the order of layers
        for n, name in enumerate(names):
            queries, keys = sides(name, source, target)
            drawn = f'{title}, layer {n + 1}'
            parts.append(f'<h2>{drawn}</h2><div>')
            for make, suffix in ((lines, 'lines'), (maps, 'heads')):
                figure = make(weights[name], queries, keys, drawn)
                figure.savefig(os.path.join(folder, f'{name.replace("/", "_")}_{suffix}.png'), dpi=120)
                parts.append(figures.svg(figure, drawn))
            parts.append('</div>')
    path = os.path.join(folder, 'attention.html')
    records.write_atomically(path, '\n'.join(parts).encode())
    return path


STYLE = '''body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem; color: #21201d; background: #fbfaf7; }
div { display: flex; flex-wrap: wrap; gap: 2rem; align-items: flex-start; }
svg { max-width: 46rem; flex: 1 1 24rem; }'''


def main(argv=None) -> None:
    flags = cli.parser('attention', __doc__ or '')
    flags.add_argument('sentence', help='what the model reads')
    flags.add_argument('--target', default='', help='what it is to have said (default: what it says)')
    flags.add_argument('--out', metavar='DIR', default='attention', help='where to (default: attention)')
    args = flags.parse_args(argv)

    def work():
        pipeline = cli.open_pipeline(args)
        if not args.explain:
            print(write(*look(pipeline, args.sentence, args.target), args.out))
    cli.run_command(work)


if __name__ == '__main__':
    main(sys.argv[1:])
