"""The Transformer of 'Attention Is All You Need' (Vaswani et al. 2017, arXiv v7).

Names are the paper's symbols. `Stacks` has encoder and decoder as plain functions over the layers of `layers(config)`:
called on Keras tensors they make the functional model for training, called on tensors they decode
(`keras_models/text/translator.py`). Training and cached decoding thus share their code.
"""
import dataclasses
from collections.abc import Callable
from typing import Any, Literal

import tensorflow as tf
from tensorflow import keras

from keras_models.core import losses
from keras_models.core import optimizers as rules
from keras_models.core.layers import Dropout, seed_input

PAD, BOS, EOS = 0, 1, 2
THROUGHPUT_UNIT = 'tokens'
TASKS, SERVING = ('text', 'tree'), 'keras_models.text.translator'
METRICS = ('bleu', 'bleu_tokenised', 'chrf', 'exact_match')  # the last is the one shown by slice

# Where tensor2tensor's transformer_base_v3, the code behind the published results, differs from the paper's text.
PRESETS: dict[str, dict] = {
    'paper': {},
    'official': {'norm': 'pre', 'attention_dropout': 0.1, 'relu_dropout': 0.1, 'beta_2': 0.997,
                 'warmup_steps': 8000, 'learning_rate_factor': 2.0},
    # With a warm-up of 4,000 steps a run of a few hundred stays at rates near zero: it output "." for every line.
    'own_data': {'schedule': 'cosine', 'warmup': 0.1, 'clip_norm': 1.0},
}
PEAK = 0.03  # times d_model^-0.5: 0.0027 for 128, 0.0013 for 512; Multi30k: 0.0028 as good as 0.0034 at 128

# Table 3: a row's changes to the base model, and its columns: dev perplexity, dev BLEU, millions of parameters. d_k and
# d_v follow from h and d_model unless a row sets them.
TABLE_3: dict[str, tuple[dict, float, float, int]] = {
    'base': ({}, 4.92, 25.8, 65),
    'A, 1 head': ({'h': 1}, 5.29, 24.9, 65),
    'A, 4 heads': ({'h': 4}, 5.00, 25.5, 65),
    'A, 16 heads': ({'h': 16}, 4.91, 25.8, 65),
    'A, 32 heads': ({'h': 32}, 5.01, 25.4, 65),
    'B, d_k 16': ({'d_k': 16}, 5.16, 25.1, 58),
    'B, d_k 32': ({'d_k': 32}, 5.01, 25.4, 60),
    'C, 2 layers': ({'N': 2}, 6.11, 23.7, 36),
    'C, 4 layers': ({'N': 4}, 5.19, 25.3, 50),
    'C, 8 layers': ({'N': 8}, 4.88, 25.5, 80),
    'C, d_model 256': ({'d_model': 256}, 5.75, 24.5, 28),
    'C, d_model 1024': ({'d_model': 1024}, 4.66, 26.0, 168),
    'C, d_ff 1024': ({'d_ff': 1024}, 5.12, 25.4, 53),
    'C, d_ff 4096': ({'d_ff': 4096}, 4.75, 26.2, 90),
    'D, no dropout': ({'P_drop': 0.0}, 5.77, 24.6, 65),
    'D, P_drop 0.2': ({'P_drop': 0.2}, 4.95, 25.5, 65),
    'D, no smoothing': ({'epsilon_ls': 0.0}, 4.67, 25.3, 65),
    'D, epsilon_ls 0.2': ({'epsilon_ls': 0.2}, 5.47, 25.7, 65),
    'E, learned positions': ({'positions': 'learned'}, 4.92, 25.7, 65),
    'big': ({'d_model': 1024, 'd_ff': 4096, 'h': 16, 'P_drop': 0.3}, 4.33, 26.4, 213),
}


@dataclasses.dataclass
class Config:
    """Table 3's base model by default. `vocab_size` defaults to the data's, `d_k` and `d_v` to d_model / h."""
    # the paper's settings, tensor2tensor's, or settings for small data sets
    preset: Literal['paper', 'official', 'own_data'] = 'paper'
    vocab_size: int | None = None
    N: int = 6  # layers of the encoder, and of the decoder
    d_model: int = 512  # width of embeddings and of every layer's output
    d_ff: int = 2048  # width inside the feed-forward layers
    h: int = 8  # attention heads
    d_k: int | None = None
    d_v: int | None = None
    norm: Literal['post', 'pre'] = 'post'  # layer normalisation after each residual sum, or before each sublayer
    positions: Literal['sinusoidal', 'learned'] = 'sinusoidal'  # sinusoids, or learned embeddings (table 3, E)
    max_positions: int = 1024  # only for learned positions; sinusoids are unbounded
    P_drop: float = 0.1  # dropout of embeddings and sublayers (5.4)
    attention_dropout: float = 0.0  # dropout of attention weights
    relu_dropout: float = 0.0  # dropout inside the feed-forward layers
    epsilon_ls: float = 0.1  # label smoothing (5.4)
    beta_1: float = 0.9  # beta_1 of Adam (5.3)
    beta_2: float = 0.98  # beta_2 of Adam (5.3)
    epsilon: float = 1e-9  # epsilon of Adam (5.3)
    warmup_steps: int = 4000  # steps in which the learning rate rises (eq. 3)
    learning_rate_factor: float = 1.0  # multiplies the learning rate of eq. (3)
    # eq. (3), or a rise to `learning_rate` and a fall to zero at the end of the run
    schedule: Literal['inverse_square_root', 'cosine'] = 'inverse_square_root'
    learning_rate: float | None = None  # peak rate of `cosine`; empty: 0.03 / sqrt(d_model)
    warmup: float = 0.0  # share of the steps in which the rate of `cosine` rises
    steps: int | None = None  # updates that `cosine` spans; empty: train.steps
    clip_norm: float = 0.0  # largest global norm of the gradients; 0 disables clipping

    def __post_init__(self):
        rules.check(self)
        if self.d_model % 2:
            raise ValueError(f'd_model must be even, for pairs of sine and cosine; it is {self.d_model}')
        if self.d_model % self.h and not (self.d_k and self.d_v):
            raise ValueError(f'd_model {self.d_model} is not a multiple of h {self.h}; '
                             'choose another h, or give d_k and d_v')
        self.d_k = self.d_k or self.d_model // self.h
        self.d_v = self.d_v or self.d_model // self.h
        self.learning_rate = self.learning_rate or PEAK * self.d_model ** -0.5


class SharedEmbedding(keras.layers.Layer):
    """One matrix [vocab_size, d_model] for both embeddings and the pre-softmax projection (section 3.4)."""

    def __init__(self, config: Config, name: str = 'embedding'):
        super().__init__(name=name)
        self.config = config

    def build(self, _):
        c = self.config
        self.embeddings = self.add_weight('embeddings', [c.vocab_size, c.d_model],
                                          initializer=keras.initializers.RandomNormal(0.0, c.d_model ** -0.5))

    def call(self, x, to: Literal['vectors', 'logits'] = 'vectors'):
        """Map [...] ids to [..., d_model] times sqrt(d_model), or [..., d_model] to [..., vocab_size] logits."""
        if to == 'vectors':
            # Gather from the value: gathering from the variable makes every other read of it a copy, of 76 MB for the
            # logits of 37,000 words.
            return tf.gather(tf.convert_to_tensor(self.embeddings), x) * self.config.d_model ** 0.5
        # One matrix product, because the gradient of an einsum with leading axes was 25 times slower on a CPU.
        logits = tf.matmul(tf.reshape(x, [-1, self.config.d_model]), self.embeddings, transpose_b=True)
        return tf.reshape(logits, tf.concat([tf.shape(x)[:-1], [self.config.vocab_size]], 0))


class LearnedPositions(keras.layers.Layer):
    """Learned positional embeddings instead of sinusoids (Table 3, row E)."""

    def __init__(self, config: Config, name: str = 'positions'):
        super().__init__(name=name)
        self.config = config

    def build(self, _):
        c = self.config
        self.embeddings = self.add_weight('embeddings', [c.max_positions, c.d_model],
                                          initializer=keras.initializers.RandomNormal(0.0, c.d_model ** -0.5))

    def call(self, pos):
        return tf.gather(tf.convert_to_tensor(self.embeddings), tf.minimum(pos, self.config.max_positions - 1))


def sinusoids(pos: tf.Tensor, d_model: int) -> tf.Tensor:
    """Return section 3.5's PE(pos, 2i) = sin(pos / 10000^(2i/d_model)), PE(pos, 2i+1) = cos of the same angle.

    Maps [...] positions to [..., d_model].
    """
    two_i = tf.range(0, d_model, 2, tf.float32)
    angle = tf.cast(pos, tf.float32)[..., None] / 10000.0 ** (two_i / d_model)
    pair = tf.stack([tf.sin(angle), tf.cos(angle)], -1)
    return tf.reshape(pair, tf.concat([tf.shape(pos), [d_model]], 0))


def layers(config: Config) -> dict[str, keras.layers.Layer]:
    """Return every layer with weights or randomness, by name; both stacks, in the order of figure 1."""
    c, made = config, [SharedEmbedding(config)]
    if c.positions == 'learned':
        made.append(LearnedPositions(c))

    def attention(name):
        made.extend([
            keras.layers.EinsumDense('bld,dhk->blhk', (None, c.h, c.d_k), name=f'{name}/W_Q'),
            keras.layers.EinsumDense('bld,dhk->blhk', (None, c.h, c.d_k), name=f'{name}/W_K'),
            keras.layers.EinsumDense('bld,dhv->blhv', (None, c.h, c.d_v), name=f'{name}/W_V'),
            keras.layers.EinsumDense('blhv,hvd->bld', (None, c.d_model), name=f'{name}/W_O'),
            Dropout(c.attention_dropout, f'{name}/attention_dropout')])

    def sublayer_end(name):
        made.extend([Dropout(c.P_drop, f'{name}/dropout'),
                     keras.layers.LayerNormalization(epsilon=1e-6, name=f'{name}/norm')])

    for stack, attentions in (('encoder', ['self_attention']), ('decoder', ['self_attention', 'source_attention'])):
        made.append(Dropout(c.P_drop, f'{stack}/embedding_dropout'))
        for n in range(c.N):
            for kind in attentions:
                attention(f'{stack}/{n}/{kind}')
                sublayer_end(f'{stack}/{n}/{kind}')
            made.extend([keras.layers.Dense(c.d_ff, 'relu', name=f'{stack}/{n}/ffn/W_1'),
                         Dropout(c.relu_dropout, f'{stack}/{n}/ffn/relu_dropout'),
                         keras.layers.Dense(c.d_model, name=f'{stack}/{n}/ffn/W_2')])
            sublayer_end(f'{stack}/{n}/ffn')
        if c.norm == 'pre':  # otherwise the last sub-layer's output would stay unnormalised
            made.append(keras.layers.LayerNormalization(epsilon=1e-6, name=f'{stack}/norm'))
    return {layer.name: layer for layer in made}


def attention(q, k, v, mask, dropout: Callable = lambda weights: weights):
    """Compute eq. (1): softmax(Q K^T / sqrt(d_k)) V for every head.

    Args:
      q: [B, L, h, d_k].  k: [B, M, h, d_k].  v: [B, M, h, d_v].
      mask: true where a query may attend, broadcast to [B, h, L, M]; all other weights become exactly zero.

    Returns:
      [B, L, h, d_v].
    """
    z = tf.einsum('blhk,bmhk->bhlm', q, k) * k.shape[-1] ** -0.5
    # Adding is faster than selecting on a CPU, and e^-3e4 is exactly zero too; float16 ends at -65,504.
    weights = dropout(tf.nn.softmax(z + tf.cast(tf.where(mask, 0.0, -3e4), z.dtype)))
    return tf.einsum('bhlm,bmhv->blhv', weights, v)


class Stacks:
    """Encoder and decoder over a dict of layers, for one configuration.

    Args:
      seed: the step's dropout seed, int32 [2]; None disables dropout.
    """

    def __init__(self, layers: dict[str, keras.layers.Layer], config: Config, seed=None):
        self.layers, self.config, self.seed = layers, config, seed

    def _dropout(self, name: str, x):
        return x if self.seed is None else self.layers[name](x, self.seed)

    def _sublayer(self, name: str, x, fn: Callable):
        """Apply section 3.1: LayerNorm(x + Dropout(fn(x))); with `norm: pre` x + Dropout(fn(LayerNorm(x)))."""
        norm = self.layers[f'{name}/norm']
        if self.config.norm == 'pre':
            return x + self._dropout(f'{name}/dropout', fn(norm(x)))
        return norm(x + self._dropout(f'{name}/dropout', fn(x)))

    def _ffn(self, name: str, x):
        """Apply eq. (2): max(0, x W_1 + b_1) W_2 + b_2."""
        hidden = self._dropout(f'{name}/relu_dropout', self.layers[f'{name}/W_1'](x))
        return self.layers[f'{name}/W_2'](hidden)

    def keys_values(self, name: str, memory):
        """Map [B, M, d_model] to K [B, M, h, d_k] and V [B, M, h, d_v] of section 3.2.2."""
        return self.layers[f'{name}/W_K'](memory), self.layers[f'{name}/W_V'](memory)

    def multi_head(self, name: str, x, k, v, mask):
        """Apply section 3.2.2: Concat(head_1, …, head_h) W_O, with head_i = Attention(x W_Q_i, K_i, V_i)."""
        q = self.layers[f'{name}/W_Q'](x)
        heads = attention(q, k, v, mask, lambda weights: self._dropout(f'{name}/attention_dropout', weights))
        return self.layers[f'{name}/W_O'](heads)

    def positions(self, pos):
        """Map [L] positions to [L, d_model] (section 3.5)."""
        c = self.config
        return self.layers['positions'](pos) if c.positions == 'learned' else sinusoids(pos, c.d_model)

    def embed(self, stack: str, ids, pos):
        """Embed [B, L] ids at positions `pos` [L] (or [1]): [B, L, d_model]."""
        x = self.layers['embedding'](ids)
        x += tf.cast(self.positions(pos), x.dtype)
        return self._dropout(f'{stack}/embedding_dropout', x)

    def _end(self, stack: str, x):
        return self.layers[f'{stack}/norm'](x) if self.config.norm == 'pre' else x

    def encoder(self, inputs):
        """Encode [B, S] ids to z [B, S, d_model]."""
        mask = source_mask(inputs)
        x = self.embed('encoder', inputs, tf.range(tf.shape(inputs)[1]))
        for n in range(self.config.N):
            name = f'encoder/{n}'
            x = self._sublayer(f'{name}/self_attention', x, lambda x, name=f'{name}/self_attention':
                               self.multi_head(name, x, *self.keys_values(name, x), mask))
            x = self._sublayer(f'{name}/ffn', x, lambda x, name=f'{name}/ffn': self._ffn(name, x))
        return self._end('encoder', x)

    def source_keys_values(self, z) -> list[tuple]:
        """Return the source's keys and values for the decoder, one (K, V) per layer, computed once per sentence."""
        return [self.keys_values(f'decoder/{n}/source_attention', z) for n in range(self.config.N)]

    def decoder(self, y, self_attention: Callable, source_attention: Callable):
        """Map embedded targets to the vectors before the softmax layer.

        Args:
          y: [B, L, d_model].
          self_attention, source_attention: (layer number, name, x) -> masked attention; with or without a cache.
        """
        for n in range(self.config.N):
            name = f'decoder/{n}'
            y = self._sublayer(f'{name}/self_attention', y, lambda x, n=n, name=f'{name}/self_attention':
                               self_attention(n, name, x))
            y = self._sublayer(f'{name}/source_attention', y, lambda x, n=n, name=f'{name}/source_attention':
                               source_attention(n, name, x))
            y = self._sublayer(f'{name}/ffn', y, lambda x, name=f'{name}/ffn': self._ffn(name, x))
        return self._end('decoder', y)

    def logits(self, inputs, targets):
        """Map [B, S], [B, T] ids to [B, T, vocab_size]: logits of each target, given the targets before it."""
        # Shifted right by one, so that position i sees only earlier ones (section 3.1).
        before = tf.pad(targets[:, :-1], [[0, 0], [1, 0]], constant_values=BOS)
        pos = tf.range(tf.shape(targets)[1])
        causal = pos[None, :] <= pos[:, None]  # [T, T]: query row, key column

        def self_attention(_, name, x):
            return self.multi_head(name, x, *self.keys_values(name, x), causal)
        source, mask = self.source_keys_values(self.encoder(inputs)), source_mask(inputs)

        def source_attention(n, name, x):
            return self.multi_head(name, x, *source[n], mask)
        y = self.decoder(self.embed('decoder', before, pos), self_attention, source_attention)
        return self.layers['embedding'](y, to='logits')


def source_mask(inputs):
    """Map [B, S] ids to [B, 1, 1, S], true where there is a token."""
    return tf.expand_dims(tf.expand_dims(inputs != PAD, 1), 1)  # TensorFlow Lite knows no new axes in a slice


def build(config: Config) -> dict[str, keras.Model]:
    """Return the functional model, (inputs [B, S], targets [B, T], seed [2]) -> logits [B, T, vocab_size]."""
    inputs = keras.Input([None], dtype=tf.int32, name='inputs')
    targets = keras.Input([None], dtype=tf.int32, name='targets')
    seed = seed_input()
    logits = Stacks(layers(config), config, seed).logits(inputs, targets)
    return {'transformer': keras.Model([inputs, targets, seed], logits, name='transformer')}


def loss_fn(nets: dict, batch: dict, seed: tf.Tensor, training: bool, config: Config):
    """Return the label-smoothed cross-entropy (section 5.4) over the tokens of a batch.

    Args:
      batch: `inputs` [B, S] and `targets` [B, T]; padding is ignored.

    Returns:
      Losses and metrics, each name -> (sum, normaliser).
    """
    targets = batch['targets']
    logits = nets['transformer']([batch['inputs'], targets, seed], training=training)
    real = tf.cast(targets != PAD, tf.float32)
    tokens = tf.reduce_sum(real)
    loss, nll = (tf.reduce_sum(each * real) for each in losses.cross_entropy(logits, targets, config.epsilon_ls))
    is_best = tf.gather(logits, targets, batch_dims=2) >= tf.reduce_max(logits, -1)
    right = tf.reduce_sum(tf.cast(is_best, tf.float32) * real)
    return {'transformer': (loss, tokens)}, {'nll': (nll, tokens), 'accuracy': (right, tokens)}


def optimizers(config: Config) -> dict[str, keras.optimizers.Optimizer]:
    """Return section 5.3's optimizer."""
    c = config
    if c.schedule == 'cosine':
        assert c.learning_rate and c.steps is not None
        rate: Any = rules.Cosine(c.learning_rate, c.steps, c.warmup)
    else:
        rate = rules.InverseSquareRoot(c.d_model, c.warmup_steps, c.learning_rate_factor)
    return {'transformer': rules.Adam(rate, c.beta_1, c.beta_2, c.epsilon, global_clipnorm=c.clip_norm or None)}


def parameters(config: Config) -> int:
    """Return the number of parameters, in closed form."""
    c = config
    assert c.vocab_size and c.d_k and c.d_v
    embedding = c.vocab_size * c.d_model + (c.max_positions * c.d_model if c.positions == 'learned' else 0)
    attention = 2 * c.d_model * c.h * (c.d_k + c.d_v)
    ffn = 2 * c.d_model * c.d_ff + c.d_ff + c.d_model
    norm = 2 * c.d_model
    ends = 2 * norm if c.norm == 'pre' else 0
    return embedding + c.N * (attention + ffn + 2 * norm) + c.N * (2 * attention + ffn + 3 * norm) + ends


def table(config: Config) -> tuple[tuple[str, ...], list[tuple[str, ...]]] | None:
    """Return table 3 at this vocabulary, if this model has the size of one of its rows.

    Returns:
      The header, and for every row the overrides that select it, its size here and in the paper (no single vocabulary
      gives all of those), and the paper's quality on newstest2013.
    """
    sizes = [dataclasses.replace(Config(vocab_size=config.vocab_size), **{'d_k': None, 'd_v': None, **changes})
             for changes, *_ in TABLE_3.values()]
    if not any(parameters(config) == parameters(row) for row in sizes):
        return None
    rows: list[tuple[str, ...]] = []
    for (name, (changes, perplexity, bleu, millions)), model in zip(TABLE_3.items(), sizes):
        ours = parameters(model) / 1e6
        overrides = ' '.join(f'model.{key}={value}' for key, value in changes.items())
        rows.append((name, overrides, f'{ours:.1f}', f'{millions} ({ours / millions - 1:+.1%})', f'{perplexity:.2f}',
                     f'{bleu}'))
    return ('Table 3', '--set, on the base model', 'million parameters', 'paper', 'perplexity', 'BLEU'), rows


def flops_per_unit(config: Config) -> int:
    """Return the training operations per source-target token pair: 6 per parameter (Kaplan et al. 2020, 2.1).

    That is forward and backward. Attention products, which grow with the length, are left out: under 5% at length 64
    for the base model.
    """
    return 6 * parameters(config)
