"""The Transformer in idiomatic Keras with its attention layers, in graph mode."""
import inputs
import keras
import numpy as np
import side
import tensorflow as tf
from keras import layers


class Embedding(layers.Layer):
    """Shared by both stacks and the last projection."""

    def __init__(self, V: int, d: int):
        super().__init__(name='embedding')
        self.V, self.d = V, d

    def build(self, _):
        self.embeddings = self.add_weight('embeddings', [self.V, self.d])

    def call(self, x, logits=False):
        if logits:
            return tf.matmul(x, self.embeddings, transpose_b=True)
        return tf.gather(self.embeddings, x) * self.d ** 0.5 + inputs.sinusoids(1024, self.d)[:x.shape[1]]


def network(length: int, V: int, d: int, ff: int, h: int, N: int) -> keras.Model:
    source, before = (keras.Input([length], dtype=tf.int32) for _ in range(2))
    embedding = Embedding(V, d)

    def sublayer(name, x, y):
        return layers.LayerNormalization(epsilon=1e-6, name=f'{name}/norm')(x + layers.Dropout(0.1)(y))

    def attention(name, x, memory, **masks):
        made = layers.MultiHeadAttention(h, d // h, name=name)
        return sublayer(name, x, made(x, memory, **masks))

    def ffn(name, x):
        return sublayer(name, x, layers.Dense(d, name=f'{name}/W_2')(layers.Dense(ff, 'relu', name=f'{name}/W_1')(x)))
    mask = (source != inputs.PAD)[:, None, :]
    x, y = (layers.Dropout(0.1)(embedding(ids)) for ids in (source, before))
    for n in range(N):
        x = ffn(f'encoder/{n}/ffn', attention(f'encoder/{n}/self_attention', x, x, attention_mask=mask))
    for n in range(N):
        y = attention(f'decoder/{n}/self_attention', y, y, use_causal_mask=True)
        y = ffn(f'decoder/{n}/ffn', attention(f'decoder/{n}/source_attention', y, x, attention_mask=mask))
    return keras.Model([source, before], embedding(y, logits=True))


def fill(model: keras.Model, weights: dict[str, np.ndarray]) -> None:
    for layer in model.layers:
        for variable in layer.weights:
            name = variable.name.removesuffix(':0')
            for theirs, own in ('query', 'W_Q'), ('key', 'W_K'), ('value', 'W_V'), ('attention_output', 'W_O'):
                name = name.replace(f'/{theirs}/', f'/{own}/')
            variable.assign(weights[name] if name in weights else tf.zeros_like(variable))


def step(batch: int, length: int) -> side.Work:
    """Return a training step with dropout; what is compared is the loss and gradients without."""
    model = network(length, **inputs.BASE)
    fill(model, inputs.transformer(**inputs.BASE))
    source, target = (tf.constant(inputs.sentences(batch, length, inputs.BASE['V'], seed=seed)) for seed in (3, 4))
    before = tf.pad(target[:, :-1], [[0, 0], [1, 0]], constant_values=inputs.BOS)
    optimizer = keras.optimizers.Adam(1e-5, 0.9, 0.98, 1e-9)
    optimizer.build(model.trainable_variables)
    smoothed = keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=0.1)

    def gradients(training):
        with tf.GradientTape() as tape:
            loss = smoothed(tf.one_hot(target, inputs.BASE['V']), model([source, before], training=training))
        return loss, tape.gradient(loss, model.trainable_variables)

    @tf.function
    def train():
        loss, found = gradients(training=True)
        optimizer.apply_gradients(zip(found, model.trainable_variables))
        return loss
    loss, found = gradients(training=False)
    named = {variable.name: gradient for variable, gradient in zip(model.trainable_variables, found)}
    checked = [named[name] for name in ('encoder/0/ffn/W_1/kernel:0', 'decoder/5/self_attention/value/kernel:0',
                                        'embedding/embeddings:0')]
    answer = {'loss': loss.numpy(), 'gradients': np.array([float(tf.norm(tf.convert_to_tensor(each)))
                                                           for each in checked])}

    def once():
        train().numpy()
        return batch * length
    return side.Work(answer, once)


if __name__ == '__main__':
    side.serve({'step': step})
