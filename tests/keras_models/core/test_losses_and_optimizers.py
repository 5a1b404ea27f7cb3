"""Closed forms: label smoothing and its gradient, learning rates, Adam, and momentum with weight decay."""
import numpy as np
import pytest
import tensorflow as tf

from keras_models import transformer
from keras_models.core import losses, optimizers


@pytest.mark.parametrize('epsilon_ls', [0.0, 0.1])
def test_smoothed_cross_entropy_is_the_one_with_the_smoothed_distribution(epsilon_ls):
    draw = np.random.default_rng(0)
    z = tf.Variable(draw.normal(0, 3, (2, 5, 7)), dtype=tf.float32)
    y = tf.constant(draw.integers(0, 7, (2, 5)))
    weights = tf.constant(draw.random((2, 5)), tf.float32)
    q = (1 - epsilon_ls) * tf.one_hot(y, 7) + epsilon_ls / 7
    with tf.GradientTape(persistent=True) as tape:
        ours, nll = losses.cross_entropy(z, y, epsilon_ls)
        dense = tf.nn.softmax_cross_entropy_with_logits(q, z)
        plain = tf.nn.sparse_softmax_cross_entropy_with_logits(y, z)
        ours_both, dense_both = (tf.reduce_sum(a * weights + 2 * b) for a, b in ((ours, nll), (dense, plain)))
    np.testing.assert_allclose(ours, dense, rtol=1e-5)
    np.testing.assert_allclose(nll, plain, rtol=1e-5)
    np.testing.assert_allclose(tape.gradient(ours_both, z), tape.gradient(dense_both, z), atol=1e-5)
    far = tf.constant([[1e4, -1e4, 0.0]] * 3)  # where e^z and most of softmax leave float32
    np.testing.assert_allclose(losses.cross_entropy(far, tf.range(3))[0], [0, 2e4, 1e4])


@pytest.mark.parametrize('shape', [(7,), (3, 7), (2, 3, 4, 7)], ids=str)
@pytest.mark.parametrize('logits, labels', [(tf.float32, tf.int64), (tf.bfloat16, tf.int32),
                                            (tf.float16, tf.int32)])
def test_cross_entropy_of_any_shape_is_in_float32(shape, logits, labels):
    draw = np.random.default_rng(1)
    z = tf.cast(draw.normal(0, 3, shape), logits)
    y = tf.constant(draw.integers(0, 7, shape[:-1]), labels)
    with tf.GradientTape() as tape:
        tape.watch(z)
        loss, nll = losses.cross_entropy(z, y)
    expected = tf.nn.sparse_softmax_cross_entropy_with_logits(y, tf.cast(z, tf.float32))
    assert loss.dtype == nll.dtype == tf.float32 and loss.shape == nll.shape == shape[:-1]
    # of a sum of seven, and a logarithm near 1
    np.testing.assert_allclose(nll, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(loss, nll)
    gradient = tape.gradient([loss, nll], z)
    p = tf.nn.softmax(tf.cast(z, tf.float32))
    step = {tf.float32: 2**-23, tf.bfloat16: 2**-8, tf.float16: 2**-11}[logits]
    np.testing.assert_allclose(tf.cast(gradient, tf.float32), 2 * (p - tf.one_hot(y, 7)), atol=8 * step)
    assert gradient.dtype == logits


@pytest.mark.parametrize('kind', [tf.float32, tf.float16, tf.uint8])
def test_row_means_are_of_all_but_the_first_axis_and_in_float32(kind):
    x = tf.cast(tf.reshape(tf.range(24), [2, 3, 2, 2]) * 10, kind)
    found = losses.row_means(x)
    assert found.dtype == tf.float32 and found.numpy().tolist() == [55, 175]
    # float16 ends at 65,504, and the sum is 1.6 million
    large = tf.fill([2, 40], tf.constant(4e4, tf.float16))
    np.testing.assert_allclose(losses.row_means(large), [4e4, 4e4], rtol=1e-3)
    np.testing.assert_array_equal(losses.row_means(tf.constant([3., 4.])), [3, 4])  # nothing to average


@pytest.mark.parametrize('step, rate', [
    (1, 512 ** -0.5 * 4000 ** -1.5), (4000, 512 ** -0.5 * 4000 ** -0.5), (100_000, 512 ** -0.5 * 100_000 ** -0.5)])
def test_learning_rate_of_equation_3(step, rate):
    schedule = optimizers.InverseSquareRoot(512, 4000)
    # The optimizer counts finished updates, so the paper's step 1 is its 0.
    np.testing.assert_allclose(schedule(tf.constant(step - 1)), rate, rtol=1e-6)
    doubled = optimizers.InverseSquareRoot(512, 8000, factor=2.0)
    assert float(doubled(tf.constant(7999))) == pytest.approx(2 * (512 * 8000) ** -0.5)


def test_one_update_is_adams():
    config = transformer.Config(vocab_size=8, d_model=4, h=2, warmup_steps=2)
    optimizer = transformer.optimizers(config)['transformer']
    x = tf.Variable([1.0, -2.0])
    m, v, expected = np.zeros(2), np.zeros(2), np.array([1.0, -2.0])
    for step in (1, 2, 3):
        g = np.array([0.5, -0.1]) * step
        optimizer.apply_gradients([(tf.constant(g, tf.float32), x)])
        m, v = 0.9 * m + 0.1 * g, 0.98 * v + 0.02 * g ** 2
        rate = 4 ** -0.5 * min(step ** -0.5, step * 2 ** -1.5)
        expected -= rate * (m / (1 - 0.9 ** step)) / (np.sqrt(v / (1 - 0.98 ** step)) + 1e-9)
    np.testing.assert_allclose(x, expected, rtol=1e-5)


def test_updates_are_krizhevskys():
    """v := 0.9 v - 0.0005 e w - e g; w := w + v, with a rate that changes; biases and slopes feel no decay."""
    rate = optimizers.Plateau(0.01, 'top1_error', max_drops=2)
    optimizer = optimizers.Momentum(rate, 0.9, 0.0005)
    names = ('conv1/kernel', 'conv1/bias', 'conv1/prelu/a', 'alpha/kernel')
    variables = [tf.Variable([30.0, -20.0], name=name) for name in names]
    optimizer.build(variables)
    step = tf.function(lambda *gradients: optimizer.apply_gradients(zip(gradients, variables)))
    w, v = np.full([4, 2], [30.0, -20.0]), np.zeros([4, 2])
    decay = np.array([0.0005, 0, 0, 0.0005])[:, None]
    for i, e in enumerate([0.01, 0.01, 0.001, 0.001, 0.0001]):
        g = np.array([0.05, -0.01]) * (i + 1) * np.array([[1], [2], [3], [4]])
        step(*tf.constant(g, tf.float32))
        assert float(optimizer.learning_rate) == pytest.approx(e)
        v = 0.9 * v - decay * e * w - e * g
        w = w + v
        np.testing.assert_allclose([variable.numpy() for variable in variables], w, rtol=1e-6)
        if i in (1, 3):
            for _ in range(2):  # 0.5 sets the mark once, and three times is no improvement: two drops are all there are
                rate.after_validation({'top1_error': 0.5})
    assert optimizer.schedule is rate and step.experimental_get_tracing_count() == 1


def test_decay_makes_the_difference_the_formula_says():
    def moved(decay, name='w/kernel', steps=2):
        variable = tf.Variable([1000.0], name=name)
        optimizer = optimizers.Momentum(0.1, 0.9, decay)
        for _ in range(steps):
            optimizer.apply_gradients([(tf.constant([0.0]), variable)])
        return 1000 - variable.numpy()[0]
    # 0.05 w at once, then 0.9 of that and 0.05 of what is left: outside the velocity it would be 50 + 47.5.
    assert moved(0.5) == pytest.approx(50 + 0.9 * 50 + 0.05 * 950)
    assert moved(0.5, 'w/bias') == 0 and moved(0.0) == 0


@pytest.mark.parametrize('errors, settings, rates', [
    ([.5, .4, .3, .2], {}, [1, 1, 1, 1]),
    ([.5, .5, .4, .4, .4, .4], {}, [1, .1, .1, .01, .001, .001]),  # an equal value is no improvement; three drops
    ([.5, .6, .6, .6, .6], {'patience': 2}, [1, 1, .1, .1, .01]),
    ([.5, .495, .485, .48, .485], {'min_delta': .01}, [1, .1, .1, .01, .001]),  # against the best, not the last
    ([float('nan'), .5, float('nan')], {}, [.1, .1, .01]),
    ([.1, .1, .2], {}, [1, .1, .01]),  # to all digits of a float64
    ([.5, .4, .4, .3, .3], {'patience': 2}, [1, 1, 1, 1, 1]),  # whoever improves waits anew
    ([.5, .5, .5], {'max_drops': 1, 'factor': 2}, [1, .5, .5])])
def test_plateau(errors, settings, rates):
    schedule, found = optimizers.Plateau(1.0, 'top1_error', **settings), []
    for error in errors:
        schedule.after_validation({'loss': 0.0, 'top1_error': error})
        found.append(float(schedule(tf.constant(7))))
    np.testing.assert_allclose(found, rates, rtol=1e-6)
    with pytest.raises(ValueError, match="'top1_error'; choose one of loss"):
        schedule.after_validation({'loss': 0.0})


def test_the_defaults_are_krizhevskys():
    """Section 5: momentum 0.9, decay 0.0005, rate 0.01, by ten 'three times prior to termination'."""
    optimizer = optimizers.descent(optimizers.Descent())
    variable = tf.Variable([2.0], name='conv1/kernel')
    rates, drops = [0.01, 0.001, 0.0001, 0.00001, 0.00001], []
    w, v = 2.0, 0.0
    for e in rates:
        optimizer.apply_gradients([(tf.constant([3.0]), variable)])
        v = 0.9 * v - 0.0005 * e * w - e * 3.0
        w += v
        np.testing.assert_allclose(variable, [w], rtol=1e-6)
        validations = 0
        while validations < 20 and float(optimizer.schedule(0)) > 0.5 * e:  # until a plateau is seen
            # which is no progress
            optimizer.schedule.after_validation({'top1_error': 0.5 - 1e-5 * validations})
            validations += 1
        drops.append(validations)
    assert drops[1:] == [5, 5, 20, 20] and drops[0] == 6  # the very first validation sets the mark
    slow = optimizers.descent(optimizers.Descent()).schedule
    for error in [0.5] * 5 + [0.4985] + [0.499] * 4:
        slow.after_validation({'top1_error': error})
    assert float(slow(0)) == np.float32(0.01)  # a tenth of a percent is progress
    assert not optimizer.schedule.state.trainable_variables  # or a net that holds them would train them


def test_keys_of_a_configuration_go_where_they_belong():
    config = optimizers.Descent(0.3, 0.7, 0.25, 4.0, 2, 'loss', 3, 0.125)
    optimizer = optimizers.descent(config, spared=('fc8',))
    assert optimizer.schedule.get_config() == {'rate': 0.3, 'monitor': 'loss', 'factor': 4.0, 'max_drops': 2,
                                               'patience': 3,
                                               'min_delta': 0.125}
    variables = [tf.Variable([8.0], name=name)
                 for name in ('fc7/kernel', 'fc8/kernel', 'fc7/bias', 'conv/prelu/a')]
    for _ in range(2):
        optimizer.apply_gradients([(tf.constant([1.0]), variable) for variable in variables])
    first = 8 - 0.3 * (1 + 0.25 * 8)
    decayed = first + 0.7 * (first - 8) - 0.3 * (1 + 0.25 * first)
    plain = 8 - 0.3 + 0.7 * -0.3 - 0.3
    np.testing.assert_allclose(variables, [[decayed]] + 3 * [[plain]], rtol=1e-6)


@pytest.mark.parametrize('kind', [tf.float32, tf.float64])
def test_updates_are_in_the_type_of_the_variable(kind):
    """A rate is float32 and a step's number an integer, whatever the net is of."""
    eps = {tf.float32: 2**-23, tf.float64: 2**-52}[kind]
    variable = tf.Variable([3.0], dtype=kind, name='w/kernel')
    optimizers.Momentum(0.25, 0.5, 0.125).apply_gradients([(tf.constant([1.0], kind), variable)])
    assert variable.numpy()[0] == 3 - 0.25 * (1 + 0.125 * 3)  # powers of two
    plain = tf.Variable([3.0], dtype=kind, name='w/kernel')
    optimizer = optimizers.Momentum(0.25)  # momentum 0.9 and no decay
    for _ in range(2):
        optimizer.apply_gradients([(tf.constant([1.0], kind), plain)])
    np.testing.assert_allclose(plain, [3 - 0.25 - 0.25 - 0.9 * 0.25], rtol=2e-7)  # 0.9 in float32
    adam, variable = optimizers.Adam(0.25, 0.5, 0.75, epsilon=1.0), tf.Variable([3.0], dtype=kind)
    adam.apply_gradients([(tf.constant([2.0], kind), variable)])
    np.testing.assert_allclose(variable, [3 - 0.25 * 2 / (2 + 1 / 0.5)], rtol=4 * eps)


def test_a_schedule_or_rule_that_is_made_again_from_its_configuration_is_the_same():
    rate = optimizers.InverseSquareRoot(8, 5, 3.0)
    again = optimizers.InverseSquareRoot.from_config(rate.get_config())
    assert [float(again(step)) for step in range(9)] == [float(rate(step)) for step in range(9)]
    plateau = optimizers.Plateau(0.5, 'loss', 4.0, 2, 3, 0.125)
    plateaus = plateau, optimizers.Plateau.from_config(plateau.get_config())
    for loss in (1, 0.95, 0.95, 0.95, 0.95, 0.8, 0.8, 0.8, 0.8, 0.8, 0.8, 0.8):
        for each in plateaus:
            each.after_validation({'loss': loss})
        assert float(plateaus[0](0)) == float(plateaus[1](0))
    assert float(plateau(0)) == 0.5 / 4 ** 2
    rule = optimizers.Momentum(0.25, 0.5, 0.125, ['spared'])
    variables = [[tf.Variable([3.0], name=name) for name in ('w/kernel', 'spared/kernel', 'w/bias')]
                 for _ in range(2)]
    for each, own in zip((rule, optimizers.Momentum.from_config({
            name: rule.get_config()[name] for name in ('learning_rate', 'momentum', 'decay', 'undecayed')})),
            variables):
        for _ in range(2):
            each.apply_gradients([(tf.constant([1.0]), variable) for variable in own])
    np.testing.assert_array_equal(*variables)
    assert variables[0][0] != variables[0][1] and variables[0][0] == variables[0][2]


def test_plateau_goes_on_from_a_checkpoint(tmp_path):
    first, second = (optimizers.Plateau(1.0, 'loss', patience=3) for _ in range(2))
    for loss in (3.0, 4.0, 4.0, 4.0, 4.0, 4.0):
        first.after_validation({'loss': loss})
    path = tf.train.Checkpoint(state=first.state).write(str(tmp_path / 'plateau'))
    tf.train.Checkpoint(state=second.state).read(path).assert_consumed()
    assert float(second(0)) == pytest.approx(0.1)
    for schedule in (first, second):  # the third in a row
        schedule.after_validation({'loss': 3.0})
        assert float(schedule(0)) == pytest.approx(0.01)
    assert [int(second.state.waited), int(second.state.dropped), float(second.state.best)] == [0, 2, 3.0]


def test_momentum_and_plateau_on_two_replicas():
    def train(strategy):
        with strategy.scope():
            variables = [tf.Variable([1.0, 2.0], name=name) for name in ('conv1/kernel', 'conv1/bias')]
            schedule = optimizers.Plateau(0.1, 'loss', factor=2.0)
            optimizer = optimizers.Momentum(schedule, 0.9, 0.1)
            optimizer.build(variables)

        @tf.function
        def step():
            def update():
                replicas = tf.distribute.get_replica_context().num_replicas_in_sync
                optimizer.apply_gradients([(tf.constant([1.0, -1.0]) / replicas, variable) for variable in variables])
            strategy.run(update)
        for _ in range(3):
            step()
            for loss in (1.0, 1.0):
                schedule.after_validation({'loss': loss})
        assert float(schedule(0)) == pytest.approx(0.1 / 8)
        return [[part.numpy() for part in strategy.experimental_local_results(variable)] for variable in variables]
    one = train(tf.distribute.OneDeviceStrategy('CPU:0'))
    two = train(tf.distribute.MirroredStrategy(['CPU:0', 'CPU:1']))
    for [alone], pair in zip(one, two):
        assert len(pair) == 2
        np.testing.assert_array_equal(*pair)
        np.testing.assert_allclose(pair[0], alone, rtol=1e-6)
    assert abs(two[0][0] - two[1][0]).min() > 1e-3  # the bias had no decay


def test_keys_that_are_not_the_papers_change_nothing_by_default():
    config = optimizers.Descent()
    assert isinstance(optimizers.descent(config).schedule, optimizers.Plateau)
    assert (config.schedule, config.warmup, config.clip_norm, config.label_smoothing) == ('plateau', 0, 0, 0)


@pytest.mark.parametrize('warmup', [0.0, 0.25])
def test_a_cosine_is_chosen_by_name(warmup):
    """It rises over its share of the steps, and falls to zero after the last one."""
    config = optimizers.Descent(learning_rate=0.5, momentum=0, weight_decay=0, schedule='cosine', steps=8,
                                warmup=warmup)
    optimizer, weight, rates = optimizers.descent(config), tf.Variable(0.0), []
    for _ in range(8):
        before = float(weight)
        optimizer.apply_gradients([(tf.constant(1.0), weight)])
        rates.append(before - float(weight))
    rise = max(1, 8 * warmup)
    expected = [0.5 * n / rise if n < rise else 0.25 + 0.25 * np.cos(np.pi * (n - rise) / (9 - rise))
                for n in range(1, 9)]
    np.testing.assert_allclose(rates, expected, atol=1e-6)
    for wrong in (-0.1, 1.0):
        with pytest.raises(ValueError, match='warmup must be a share of the steps, from 0 to below 1'):
            optimizers.Descent(warmup=wrong)
