"""The Transformer against the paper, against two independent implementations, and internal consistency."""
import dataclasses

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_addons as tfa
from official.nlp.modeling import layers as official_layers

from keras_models import transformer
from keras_models.transformer import Config
from pipelines.core import config as configs

SMALL = Config(vocab_size=40, N=2, d_model=16, d_ff=32, h=4)
SEED = np.array([1, 2], np.int32)


def randomised(config, seed=0):
    """A model whose every weight is random: a fresh one has zero biases and unit gains, which would hide mistakes."""
    model = transformer.build(config)['transformer']
    draw = np.random.default_rng(seed)
    for weight in model.weights:
        weight.assign(weight + draw.normal(0, 0.2, weight.shape))
    return model


def batch(B=3, S=7, T=6, vocab=40, seed=0):
    draw = np.random.default_rng(seed)
    ids = [draw.integers(4, vocab, (B, n)).astype(np.int32) for n in (S, T)]
    ids[0][1, 4:] = 0
    ids[1][1, 3:] = 0
    return [tf.constant(x) for x in ids]


@pytest.mark.parametrize('values, count', [
    ({}, 63_045_632),
    pytest.param({'d_model': 1024, 'd_ff': 4096, 'h': 16}, 214_171_648, marks=pytest.mark.slow),
])
def test_parameter_counts_of_base_and_big(values, count):
    config = Config(vocab_size=37000, **values)
    assert transformer.build(config)['transformer'].count_params() == transformer.parameters(config) == count


MILLIONS = {'B, d_k 16': 56.0, 'B, d_k 32': 58.3, 'C, 2 layers': 33.6, 'C, 4 layers': 48.3, 'C, 8 layers': 77.7,
            'C, d_model 256': 26.8, 'C, d_model 1024': 163.8, 'C, d_ff 1024': 50.5, 'C, d_ff 4096': 88.2,
            'E, learned positions': 63.6, 'big': 214.2}  # by hand, at 37,000 tied tokens; every other row is the base's


def test_every_row_of_table_3_has_its_size_within_7_percent_of_the_papers():
    header, rows = transformer.table(Config(vocab_size=37000))
    assert len(rows) == 20 and [row[0] for row in rows] == list(transformer.TABLE_3)
    for row, overrides, ours, paper, *_ in rows:
        assert float(ours) == MILLIONS.get(row, 63.0)
        assert abs(float(ours) / int(paper.split()[0]) - 1) < 0.07
        resolved = configs.load('wmt14_en_de_base', overrides.split())
        assert round(transformer.parameters(resolved.model) / 1e6, 1) == float(ours)
    heads = configs.load('wmt14_en_de_base', ['model.h=32']).model
    assert (heads.d_k, heads.d_v) == (16, 16)  # the computation stays the same
    assert transformer.table(SMALL) is None


@pytest.mark.parametrize('values', [{}, {'norm': 'pre'}, {'positions': 'learned'}, {'d_k': 3, 'd_v': 5}, {'h': 1},
                                    {'preset': 'official', **transformer.PRESETS['official']}])
def test_closed_form_counts_the_built_model(values):
    config = dataclasses.replace(SMALL, d_k=None, d_v=None, **{}) if not values else Config(
        **{'vocab_size': 40, 'N': 2, 'd_model': 16, 'd_ff': 32, 'h': 4, **values})
    assert transformer.build(config)['transformer'].count_params() == transformer.parameters(config)


@pytest.mark.parametrize('norm', ['post', 'pre'])
def test_a_future_target_changes_no_earlier_logit(norm):
    model = randomised(dataclasses.replace(SMALL, norm=norm))
    inputs, targets = batch()
    before = model([inputs, targets, SEED]).numpy()
    for place in range(6):
        changed = tf.tensor_scatter_nd_update(targets, [[0, place]], [39])
        after = model([inputs, changed, SEED]).numpy()
        # Logits at `place` are those *of* the token there, given what is before it, so they do not see it either.
        assert np.array_equal(after[0, :place + 1], before[0, :place + 1])
        if place < 5:
            assert not np.array_equal(after[0, place + 1:], before[0, place + 1:])


def test_padding_leaves_real_positions_alone():
    model = randomised(SMALL)
    inputs, targets = batch()
    longer = model([tf.pad(inputs, [[0, 0], [0, 5]]), tf.pad(targets, [[0, 0], [0, 4]]), SEED])[:, :6]
    np.testing.assert_allclose(longer, model([inputs, targets, SEED]), atol=1e-5)


def test_positions_are_the_papers_sinusoids():
    pe = transformer.sinusoids(tf.range(50), 8).numpy()
    for pos in (0, 1, 49):
        for i in range(4):
            angle = pos / 10000 ** (2 * i / 8)
            np.testing.assert_allclose(pe[pos, 2 * i:2 * i + 2], [np.sin(angle), np.cos(angle)], atol=1e-5)


def numpy_transformer(w, c, inputs, targets):
    """Sections 3.1 to 3.5 once more, in NumPy, a loop a sentence, head and position: slow and plain."""
    def softmax(z):
        e = np.exp(z - z.max())
        return e / e.sum()

    def layer_norm(name, x):
        mean, var = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
        return (x - mean) / np.sqrt(var + 1e-6) * w[f'{name}/norm/gamma'] + w[f'{name}/norm/beta']

    def position(pos):
        return np.array([(np.sin if i % 2 == 0 else np.cos)(pos / 10000 ** (i // 2 * 2 / c.d_model))
                         for i in range(c.d_model)])

    def embed(ids):
        return np.array([w['embedding/embeddings'][t] * np.sqrt(c.d_model) + position(i) for i, t in enumerate(ids)])

    def attend(name, x, memory, allowed):
        out = np.zeros((len(x), c.h, c.d_v))
        for head in range(c.h):
            q, k, v = (side @ w[f'{name}/{part}/kernel'][:, head] for side, part in
                       ((x, 'W_Q'), (memory, 'W_K'), (memory, 'W_V')))
            for i in range(len(x)):
                seen = [j for j in range(len(memory)) if allowed(i, j)]
                out[i, head] = softmax(k[seen] @ q[i] / np.sqrt(c.d_k)) @ v[seen]
        return np.einsum('lhv,hvd->ld', out, w[f'{name}/W_O/kernel'])

    def ffn(name, x):
        hidden = np.maximum(0, x @ w[f'{name}/W_1/kernel'] + w[f'{name}/W_1/bias'])
        return hidden @ w[f'{name}/W_2/kernel'] + w[f'{name}/W_2/bias']

    def sublayer(name, x, fn):
        if c.norm == 'post':
            return layer_norm(name, x + fn(x))
        return x + fn(layer_norm(name, x))

    def end(stack, x):
        return x if c.norm == 'post' else layer_norm(stack, x)

    logits = []
    for source, target in zip(inputs, targets):
        z = embed(source)
        for n in range(c.N):
            z = sublayer(f'encoder/{n}/self_attention', z, lambda x, n=n, source=source: attend(
                f'encoder/{n}/self_attention', x, x, lambda i, j: source[j] != 0))
            z = sublayer(f'encoder/{n}/ffn', z, lambda x, n=n: ffn(f'encoder/{n}/ffn', x))
        z = end('encoder', z)
        y = embed([transformer.BOS, *target[:-1]])
        for n in range(c.N):
            y = sublayer(f'decoder/{n}/self_attention', y, lambda x, n=n: attend(
                f'decoder/{n}/self_attention', x, x, lambda i, j: j <= i))
            y = sublayer(f'decoder/{n}/source_attention', y, lambda x, n=n, z=z, source=source: attend(
                f'decoder/{n}/source_attention', x, z, lambda i, j: source[j] != 0))
            y = sublayer(f'decoder/{n}/ffn', y, lambda x, n=n: ffn(f'decoder/{n}/ffn', x))
        logits.append(end('decoder', y) @ w['embedding/embeddings'].T)
    return np.array(logits)


@pytest.mark.parametrize('norm', ['post', 'pre'])
def test_equals_the_equations_written_in_numpy(norm):
    config = dataclasses.replace(SMALL, norm=norm)
    model = randomised(config)
    weights = {weight.name.split(':')[0]: weight.numpy().astype(np.float64) for weight in model.weights}
    inputs, targets = batch()
    expected = numpy_transformer(weights, config, inputs.numpy(), targets.numpy())
    np.testing.assert_allclose(model([inputs, targets, SEED]), expected, atol=2e-4)


def test_attention_equals_tensorflow_addons():
    draw = np.random.default_rng(0)
    x, memory = (tf.constant(draw.normal(size=(2, n, 16)), tf.float32) for n in (5, 7))
    stacks = transformer.Stacks(transformer.layers(SMALL), SMALL)
    name = 'decoder/0/source_attention'
    mask = tf.constant(draw.random((2, 1, 5, 7)) < 0.7)
    mask |= tf.reduce_all(~mask, -1, keepdims=True)
    ours = stacks.multi_head(name, x, *stacks.keys_values(name, memory), mask)
    theirs = tfa.layers.MultiHeadAttention(head_size=4, num_heads=4, output_size=16, use_projection_bias=False)
    theirs([x, memory], mask=mask)
    kernels = [stacks.layers[f'{name}/{part}'].kernel for part in ('W_Q', 'W_K', 'W_V')]
    theirs.set_weights([*(tf.transpose(kernel, [1, 0, 2]) for kernel in kernels), stacks.layers[f'{name}/W_O'].kernel])
    np.testing.assert_allclose(ours, theirs([x, memory], mask=mask), atol=1e-5)


def test_an_encoder_layer_equals_the_model_gardens():
    """tf-models-official's TransformerEncoderBlock, post-norm, with our weights copied in."""
    config = dataclasses.replace(SMALL, N=1)
    model = randomised(config)
    layers = {layer.name: layer for layer in model.layers}
    theirs = official_layers.TransformerEncoderBlock(
        num_attention_heads=4, inner_dim=32, inner_activation='relu', norm_first=False, norm_epsilon=1e-6)
    inputs, _ = batch()
    stacks = transformer.Stacks(layers, config)
    x = stacks.embed('encoder', inputs, tf.range(7))
    mask = tf.cast(tf.tile((inputs != 0)[:, None, :], [1, 7, 1]), tf.float32)
    theirs([x, mask])
    name = 'encoder/0'
    copies = {'query/kernel': f'{name}/self_attention/W_Q', 'key/kernel': f'{name}/self_attention/W_K',
              'value/kernel': f'{name}/self_attention/W_V', 'attention_output/kernel': f'{name}/self_attention/W_O'}
    for variable in theirs.weights:
        key = variable.name.split(':')[0]
        part = '/'.join(key.split('/')[-2:])
        if part in copies:
            variable.assign(layers[copies[part]].kernel)
        elif key.split('/')[-2] in ('query', 'key', 'value', 'attention_output'):
            variable.assign(tf.zeros_like(variable))  # the paper's projections have no bias
        else:
            ours = {'self_attention_layer_norm': f'{name}/self_attention/norm', 'output_layer_norm': f'{name}/ffn/norm',
                    'intermediate': f'{name}/ffn/W_1', 'output': f'{name}/ffn/W_2'}[key.split('/')[-2]]
            variable.assign(getattr(layers[ours], key.split('/')[-1]))
    np.testing.assert_allclose(stacks.encoder(inputs), theirs([x, mask]), atol=1e-5)


def test_dropout_depends_on_seed_and_site_alone():
    config = dataclasses.replace(SMALL, P_drop=0.3, attention_dropout=0.2, relu_dropout=0.2)
    model = randomised(config)
    inputs, targets = batch()

    graph, compiled = (tf.function(lambda seed: model([inputs, targets, seed], training=True), jit_compile=jit)
                       for jit in (None, True))
    for run in (graph, compiled):
        np.testing.assert_array_equal(run(SEED), run(SEED))
    np.testing.assert_allclose(graph(SEED), compiled(SEED), atol=1e-5)  # the same masks, compiled or not
    assert np.abs(graph(SEED) - graph(SEED + 1)).max() > 0.1
    x = tf.ones([4, 1000])
    kept = [model.get_layer(f'encoder/{n}/ffn/dropout')(x, SEED, training=True).numpy() for n in range(2)]
    assert not np.array_equal(*kept)
    assert abs((kept[0] == 0).mean() - 0.3) < 0.03
    assert np.unique(kept[0]).tolist() == [0.0, pytest.approx(1 / 0.7, rel=1e-5)]  # a rate is one of 2^16


def test_loss_is_a_sum_over_real_tokens():
    model = randomised(SMALL)
    inputs, targets = batch()
    nets = {'transformer': model}

    def both(inputs, targets):
        return transformer.loss_fn(nets, {'inputs': inputs, 'targets': targets}, SEED, False, SMALL)
    losses, metrics = both(inputs, targets)
    total, tokens = losses['transformer']
    assert int(tokens) == int((targets.numpy() != 0).sum())
    parts = [both(inputs[i:i + 1], targets[i:i + 1]) for i in range(3)]
    np.testing.assert_allclose(total, sum(part[0]['transformer'][0] for part in parts), rtol=1e-5)
    np.testing.assert_allclose(metrics['nll'][0], sum(part[1]['nll'][0] for part in parts), rtol=1e-5)


def test_the_official_preset_learns_as_tensor2tensor_does():
    """transformer_base_v3: 2 * linear_warmup * rsqrt_decay * rsqrt_hidden_size, and Adam's beta2 of 0.997."""
    config = Config(vocab_size=40, d_model=16, h=2, **transformer.PRESETS['official'])
    [optimizer] = transformer.optimizers(config).values()
    for step in (1, 100, 8000, 8001, 32_000):
        rate = 2.0 * min(1.0, step / 8000) / max(step, 8000) ** 0.5 / 16 ** 0.5
        np.testing.assert_allclose(optimizer._learning_rate(tf.constant(step - 1)), rate, rtol=1e-6)
    x = tf.Variable([0.0])
    for g in (1.0, 0.0):
        optimizer.apply_gradients([(tf.constant([g]), x)])
    # of 1 - 0.997 in float32
    np.testing.assert_allclose(optimizer._velocities[0], [0.003 * 0.997], rtol=1e-5)


def test_the_official_preset_normalises_before_and_drops_in_three_places():
    """Stacks end with a norm, and a tenth is dropped of weights of attention and behind ReLU, too."""
    def gone(preset):
        config = Config(vocab_size=40, N=1, d_model=16, d_ff=32, h=2, **preset)
        model = transformer.build(config)['transformer']
        layers = {layer.name: layer for layer in model.layers}
        ones = tf.ones([4, 1000])
        dropped = {}
        for name, layer in layers.items():
            if (kind := name.rpartition('/')[2]).endswith('dropout'):
                share = float(np.mean(layer(ones, SEED, training=True) == 0))
                dropped.setdefault(kind, []).append(share)
        return {name for name in layers if '/' in name}, dropped
    (layers, paper), (official_layers, official) = gone({}), gone(transformer.PRESETS['official'])
    assert official_layers - layers == {'encoder/norm', 'decoder/norm'}
    for kind, count in (('attention_dropout', 3), ('relu_dropout', 2), ('dropout', 5),
                        ('embedding_dropout', 2)):
        # five deviations
        assert official[kind] == pytest.approx([0.1] * count, abs=5 * (0.1 * 0.9 / 4000) ** 0.5)
        assert paper[kind] == ([0] * count if count < 4 and 'embedding' not in kind else official[kind])


def test_impossible_sizes_are_refused():
    with pytest.raises(ValueError, match='not a multiple of h'):
        Config(vocab_size=9, d_model=16, h=3)
    with pytest.raises(ValueError, match='must be even'):
        Config(vocab_size=9, d_model=15, h=3)
