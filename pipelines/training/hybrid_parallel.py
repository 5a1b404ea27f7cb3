"""Hybrid parallelism of He et al. 2015, 'Multi-GPU Implementation'.

Every device runs the convolutions on its share of a batch; a single device runs the layers from the first dense one on,
for the whole batch. Dense layers have few of the operations and most of the weights: in VGG-D a thirtieth and nine
tenths. The devices therefore exchange those layers' inputs and the gradients of these, and no gradient of the weights.
"""
import tensorflow as tf
from tensorflow import keras

from data_prep import UserError
from keras_models.core import layers, rematerialisation
from pipelines.core.config import Config


def check(config: Config) -> None:
    """Check that `train.dense_layers: one_device` is possible.

    Raises:
      UserError: replicas are on several machines or on TPU cores, gradients are accumulated or scaled, weights
        are averaged, or the net has no such layers.
    """
    if config.train.dense_layers == 'every_device':
        return
    if config.train.strategy not in ('one_device', 'mirrored'):
        raise UserError(f'train.dense_layers: one_device needs devices of one machine, but train.strategy is '
                        f'{config.train.strategy}. Leave one of them out.')
    if config.train.gradient_accumulation_steps > 1:
        raise UserError('train.dense_layers: one_device needs whole batches. Set '
                        'train.gradient_accumulation_steps=1.')
    if getattr(config.model, 'clip_norm', 0):
        raise UserError('train.dense_layers: one_device applies each device\'s gradients separately, so that they have '
                        'no common norm. Set model.clip_norm=0.')
    if config.train.ema or config.train.precision == 'float16':
        raise UserError('train.dense_layers: one_device updates dense layers by itself, without a moving average or '
                        'loss scaling. Leave train.ema out, and give another train.precision than float16.')
    if not config.model_spec.dense_layers_apart:
        raise UserError(f'train.dense_layers: one_device needs a convolutional net that ends in dense layers, and '
                        f'{config.model_spec.name} has none. Leave it out.')


class Hybrid:
    """Run and update a functional net in hybrid parallelism; losses and weights equal those of data parallelism.

    Every device holds the dense layers' weights, but only the first one's are used and updated; checkpoints and
    exported models contain those. Dropout there is drawn for the whole batch from the first replica's seed.

    Args:
      net: (image, seed) -> logits.
      compiled: whether XLA compiles both halves.
      recompute: whether the backward pass recomputes the convolutions, see `rematerialisation`.
    """

    def __init__(self, net: keras.Model, compiled: bool, recompute: bool):
        steps = rematerialisation.graph(net)
        first = next(n for n, step in enumerate(steps) if isinstance(step.layer, keras.layers.Dense))
        [features] = steps[first].takes
        lower = layers.of_any_size(keras.Model(net.inputs, features))
        upper = keras.Model([features, *net.inputs[1:]], net.outputs)
        self._net, self._dense = net, _called(upper, compiled)
        self._convolutions = _called(rematerialisation.Rematerialised(lower) if recompute else lower, compiled)
        self._on_first = upper.trainable_variables

    def __call__(self, inputs: list, training: bool):
        """Call the net in a replica context."""
        replica = tf.distribute.get_replica_context()
        number = tf.get_static_value(replica.replica_id_in_sync_group)
        kept: dict = {}  # the first replica's functions do the work shared by all

        def forward(strategy, features, others):
            with tf.device(_first(strategy)), tf.GradientTape() as tape:
                whole = tf.concat(strategy.experimental_local_results(features), 0)
                tape.watch(whole)
                others = [strategy.experimental_local_results(each)[0] for each in others]
                logits = self._dense([whole, *others], training)
            kept.update(tape=tape, features=whole, logits=logits)
            return tf.split(logits, strategy.num_replicas_in_sync)

        def backward(strategy, gradients):
            weights = [strategy.experimental_local_results(weight)[0] for weight in self._on_first]
            with tf.device(_first(strategy)):
                of_features, *of_weights = kept['tape'].gradient(
                    kept['logits'], [kept['features'], *weights],
                    tf.concat(strategy.experimental_local_results(gradients), 0))
                return tf.split(of_features, strategy.num_replicas_in_sync), of_weights

        @tf.custom_gradient
        def logits(features, *weights):
            def gradient(of_logits):
                of_features, of_weights = replica.merge_call(backward, (of_logits,))
                return of_features[number], *(of_weights if number == 0 else [None] * len(weights))
            return replica.merge_call(forward, (features, inputs[1:]))[number], gradient
        return logits(self._convolutions(inputs, training), *self._on_first)

    def update(self, optimizer: keras.optimizers.Optimizer, gradients: list) -> None:
        """Apply the gradients of the net's variables in a replica context; sum those of convolutions over replicas."""
        on_first = {id(variable) for variable in self._on_first}
        shared: list[tuple] = []
        own: list[tuple] = []
        for gradient, variable in zip(gradients, self._net.trainable_variables):
            (own if id(variable) in on_first else shared).append((gradient, variable))

        def update(strategy, gradients):
            def step(*gradients):
                for gradient, (_, variable) in zip(gradients, own):
                    optimizer.update_step(gradient, variable)
            strategy.extended.update_non_slot((_first(strategy),), step, [
                strategy.experimental_local_results(gradient)[0] for gradient in gradients])
        optimizer.apply_gradients(shared)  # also sets the learning rate
        tf.distribute.get_replica_context().merge_call(update, ([gradient for gradient, _ in own],))


def _first(strategy: tf.distribute.Strategy) -> str:
    return strategy.extended.worker_devices[0]


def _called(net, compiled: bool):
    def call(inputs, training):
        return net(inputs, training=training)
    return tf.function(call, autograph=False, jit_compile=True) if compiled else call
