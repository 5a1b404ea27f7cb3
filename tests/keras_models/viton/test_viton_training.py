"""Appendix A.3: the losses of the three networks, and their training by the trainer."""
import dataclasses
import functools
import os

import numpy as np
import pytest
import tensorflow as tf

from data_prep import UserError
from keras_models import ModelError
from keras_models.viton import chain, geometric_matching, geometry, try_on
from pipelines import export, train
from pipelines.core import config
from pipelines.training import checkpoints, devices, trainer
from support import tiny_people
from support.tensorflow_state import eagerly

LEARNING = {'segmentation', 'segmentation_discriminator', 'geometric_matching', 'alias', 'alias_discriminator'}
SEED = np.array([1, 2], np.int32)
ROUNDING = 1e-4  # of a variable's largest gradient: 800 eps; the largest difference met was 1.2e-5
# In ALIAS and its discriminators rounding decides on which side of zero a leaky ReLU or the hinge is: inputs changed by
# half an eps change gradients by up to 0.007 of a variable's largest, and by ten times as much by up to 0.1. Two
# replicas differ by 0.007. Half a batch left out changes them by 0.035 to 3.3.
KINKS = 0.05


@pytest.fixture(scope='module')
def people(tmp_path_factory):
    """A configuration of made people, and their examples."""
    return tiny_people.prepare(tmp_path_factory.mktemp('people'), 12)


def made(people, *overrides):
    file, examples = people
    resolved = config.load(file, overrides)
    return trainer.Trainer(resolved, devices.choose(resolved, resolved.train.jit is True), examples)


@pytest.fixture(scope='module')
def whole(people):
    """A trainer of all three networks."""
    return made(people)


def stepped(people, *overrides):
    """A trainer after one eager step, what `first_step` found, and what was kept before."""
    it = made(people, *overrides)
    before = kept(it)
    with eagerly():
        return it, first_step(it), before


def first_step(it):
    """Returns the losses of the first step, and each network's gradients summed over the replicas."""
    gradients = {}
    for name, optimizer in it.optimizers.items():
        optimizer.apply_gradients = functools.partial(record, gradients.setdefault(name, []),
                                                      optimizer.apply_gradients)
    losses = values(it._train(batch_of(it)))
    for optimizer in it.optimizers.values():
        del optimizer.apply_gradients
    return losses, {name: [sum(of_replicas) for of_replicas in zip(*each)] for name, each in gradients.items()}


def record(kept, apply, pairs):
    """Applies gradients as `apply` does, and keeps a copy of them."""
    pairs = list(pairs)
    kept.append([gradient.numpy() for gradient, _ in pairs])
    return apply(pairs)


def assert_same_gradients(it, found, expected, rounding):
    """Sign included, to `rounding` of the largest gradient of each variable.

    The bias of a convolution that a normalisation follows has a gradient of zero, of which rounding leaves at most
    1e-5 of the network's largest one.
    """
    for name, each in expected.items():
        largest = max(np.abs(gradient).max() for gradient in each)
        for variable, one, other in zip(it.nets[name].trainable_variables, each, found[name], strict=True):
            scale = np.abs(one).max()
            bound = 1e-5 * largest if scale < 1e-5 * largest else rounding * scale
            np.testing.assert_allclose(other, one, rtol=0, atol=bound, err_msg=f'{name}: {variable.name}')


def batch_of(it):
    batch = next(iter(it._dataset('train')))
    batch.pop('id')
    return batch


def values(totals):
    return {name: float(value / rows) for name, (value, rows) in totals.items()}


def kept(it):
    """Return what spectral normalisation keeps."""
    return {variable.name: variable.numpy() for net in it.nets.values() for variable in net.variables
            if variable.name.endswith('/u:0')}


def weights(path):
    reader = tf.train.load_checkpoint(path)
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()
            if not name.startswith('save_counter')}


# ---- L_const, eq. (12)

def test_moving_stretching_and_turning_the_grid_costs_nothing():
    spline = geometry.Spline()
    x, y = spline.P.T.reshape(2, 5, 5)
    moved = np.stack([np.stack(each) for each in ((0 * x, 0 * y), (0 * x + 0.3, 0 * y - 0.1), (0.2 * x, -0.4 * y),
                                                  (0.3 * y, -0.2 * x))]).astype(np.float32)
    np.testing.assert_allclose(geometric_matching.second_order(moved, spline), 0, atol=1e-5)


def test_one_point_moved_is_eq_12_by_hand():
    """The middle one by (a, 0): it is unlike its neighbours left and right, and so are four others of one of theirs."""
    a, d, spline = 0.1, 0.5, geometry.Spline()
    theta = np.zeros([1, 2, 5, 5], np.float32)
    theta[0, 0, 2, 2] = a
    # Itself: left and right differ by 2a in length and not in direction; above and below are equally far, and
    # d0 x d1 is (-a)(d) - (d)(a)... of slopes: dy0 dx1 - dy1 dx0 = -d (-a) - d (-a) = 2 a d.
    own = 2 * a + 2 * a * d
    beside = 2 * a                                        # left and right of it: one neighbour is a nearer or farther
    above = 2 * (np.hypot(a, d) - d) + 2 * a * d          # above and below of it: longer, and its slope is not vertical
    found = geometric_matching.second_order(theta, spline)
    np.testing.assert_allclose(found, [own + beside + above], rtol=1e-4)


def test_gradients_are_finite_where_nothing_is_moved_and_where_points_meet():
    spline, theta = geometry.Spline(), tf.Variable(np.zeros([2, 2, 5, 5], np.float32))
    theta[1, 0, 2, 2].assign(0.5)  # onto its neighbour
    with tf.GradientTape() as tape:
        loss = geometric_matching.second_order(theta, spline)
    assert np.isfinite(tape.gradient(loss, theta)).all()


# ---- the loss of the garment's mask

def square(left: int, side: int = 8) -> np.ndarray:
    """Return a mask of 32 x 32 with a square in its upper half."""
    mask = np.zeros([1, 32, 32, 1], np.float32)
    mask[:, 4:4 + side, left:left + side] = 1
    return mask


def test_masks_are_apart_by_pixels_and_by_squares_of_4_and_16():
    """Move one by two pixels: two columns of 8 pixels on either side, half a square of 4 in each of their two rows."""
    assert geometric_matching.mask_loss(square(4), square(4)) == 0
    pixels, squares = 2 * 2 * 8 / 32 ** 2, 2 * 2 * 0.5 / 8 ** 2
    np.testing.assert_allclose(geometric_matching.mask_loss(square(6), square(4)), (pixels + squares + 0) / 3)
    # In the next square of 16 columns, and two further: pixels and squares of 4 do not say which is nearer.
    one, other = (float(geometric_matching.mask_loss(square(left), square(4))) for left in (12, 20))
    assert other - one == pytest.approx(((2 - 2 * 0.5) * 64 / 16 ** 2 / 4) / 3)


def test_a_spline_fits_a_garment_to_a_person_by_its_mask_alone(eager):
    """Reach a square of twice the side, elsewhere: without a network, by gradients of theta."""
    spline, theta = geometry.Spline(), tf.Variable(np.zeros([1, 2, 5, 5], np.float32))
    cloth, worn, adam = square(8), square(10, 16), tf.keras.optimizers.Adam(0.02)

    def warped():
        return geometry.sample(cloth, spline.grid(theta, 32, 32))
    for _ in range(150):
        with tf.GradientTape() as tape:
            loss = geometric_matching.mask_loss(warped(), worn) + 0.001 * geometric_matching.second_order(theta, spline)
        adam.apply_gradients([(tape.gradient(loss, theta), theta)])
    found = warped().numpy()
    assert np.minimum(found, worn).sum() / np.maximum(found, worn).sum() > 0.9


# ---- the losses together, and in the trainer

def test_losses_are_sums_of_their_parts_by_the_papers_weights(whole, eager):
    losses, parts = (values(found) for found in try_on.loss_fn(whole.nets, batch_of(whole), SEED, False,
                                                               whole.config.model))
    assert {*losses} == LEARNING
    assert losses['segmentation'] == pytest.approx(parts['L_cGAN/segmentation'] + 10 * parts['L_CE'], rel=1e-5)
    assert losses['geometric_matching'] == pytest.approx(parts['L_warp'] + 0.04 * parts['L_const'], rel=1e-5)
    assert losses['alias'] == pytest.approx(parts['L_cGAN/alias'] + 10 * parts['L_FM'], rel=1e-5)


def test_the_mask_is_part_of_the_loss_if_it_has_a_weight(whole, eager):
    model = dataclasses.replace(whole.config.model, trainable_networks=['geometric_matching'], geometric_matching={
        **whole.config.model.geometric_matching, 'lambda_mask': 2.0, 'lambda_const': 0.01})
    losses, parts = (values(found) for found in try_on.loss_fn(whole.nets, batch_of(whole), SEED, False, model))
    assert parts['L_mask'] > 0 and losses == pytest.approx(
        {'geometric_matching': parts['L_warp'] + 0.01 * parts['L_const'] + 2 * parts['L_mask']}, rel=1e-5)
    assert any('lambda_mask' in note for note in try_on.notes(model))


def test_an_interpolated_parse_is_the_share_of_each_class(whole, eager):
    """Compare (9) with the cross-entropy to the mean of 2 x 2 pixels of S, by NumPy."""
    model = dataclasses.replace(whole.config.model, trainable_networks=['segmentation'], segmentation={
        **whole.config.model.segmentation, 'lambda_cGAN': 0.0, 'interpolate_parse': True})
    own = chain.part(model, 'segmentation')
    batch = {name: x[:3] for name, x in batch_of(whole).items()}  # the fourth fills up
    logits = whole.nets['segmentation']({**chain.segmentation_inputs(own, batch, SEED), 'seed': SEED}, training=False)
    height, width = own.size
    assert batch['parse'].shape[1:] == (2 * height, 2 * width)
    S = np.eye(chain.CLASSES)[batch['parse'].numpy()].reshape([-1, height, 2, width, 2, chain.CLASSES]).mean((2, 4))
    scores = logits.numpy().astype(np.float64)
    expected = -np.mean(np.sum(S * (scores - np.log(np.sum(np.exp(scores), -1, keepdims=True))), -1))
    found = values(try_on.loss_fn(whole.nets, batch, SEED, False, model)[1])
    assert found['L_CE'] == pytest.approx(expected, rel=1e-5)
    assert ((0 < S) & (S < 1)).any()


def test_rows_that_fill_up_a_batch_count_nothing(whole, eager):
    batch, model = batch_of(whole), whole.config.model
    two = try_on.loss_fn(whole.nets, {name: x[:2] for name, x in batch.items()}, SEED, False, model)
    filled = {name: tf.concat([x[:2], tf.zeros_like(x[2:])], 0) for name, x in batch.items()}
    for one, other in zip(two, try_on.loss_fn(whole.nets, filled, SEED, False, model)):
        assert values(one) == pytest.approx(values(other), rel=1e-4)


def test_the_papers_rates_and_an_optimizer_for_each():
    rates = {name: (round(float(each.learning_rate), 9), each.beta_1, each.beta_2)
             for name, each in try_on.optimizers(chain.Config()).items()}
    assert rates == {'segmentation': (4e-4, 0.5, 0.999), 'segmentation_discriminator': (4e-4, 0.5, 0.999),
                     'geometric_matching': (2e-4, 0.5, 0.999), 'alias': (1e-4, 0, 0.9),
                     'alias_discriminator': (4e-4, 0, 0.9)}


def test_the_perceptual_loss_is_off_only_if_told():
    with pytest.raises(ModelError, match='model.features: .*VGG-19.*lambda_percept=0'):
        try_on.files(chain.Config())
    assert try_on.files(chain.Config(features='vgg.pth')) == ['vgg.pth']
    off = chain.Config(alias={'lambda_percept': 0.0})
    assert try_on.files(off) == [] and 'was off' in try_on.notes(off)[0]


@pytest.fixture(scope='module')
def alias(people):
    """A trainer of ALIAS alone after one eager step, what `first_step` found, and what normalisation kept before."""
    return stepped(people, ALIAS)


ALIAS = 'model.trainable_networks=[alias]'


@pytest.mark.parametrize('learn', [pytest.param(ALIAS, marks=pytest.mark.slow),  # 29 s
                                   'model.trainable_networks=[segmentation, geometric_matching]'])
def test_two_replicas_change_nothing(people, eager, learn, request):
    """One step: losses and gradients. ALIAS apart from the others: what it is given by batch normalisation of four
    maps of one place, as they are here, would turn rounding into digits that count.

    Later steps cannot be compared: Adam with beta_1 0 moves a weight whose gradient is all but zero by its whole rate,
    to the side rounding decides.
    """
    it, (losses, gradients), _ = request.getfixturevalue('alias') if learn == ALIAS else stepped(people, learn)
    found, others = first_step(made(people, learn, 'train.strategy=mirrored'))
    assert found == pytest.approx(losses, rel=1e-4, abs=1e-5)
    assert_same_gradients(it, others, gradients, KINKS if learn == ALIAS else ROUNDING)


@pytest.mark.slow  # 13 s; test_trainer.py accumulates, too
def test_a_batch_in_two_parts_is_the_same_step(people, alias, eager):
    """Rematerialised, too: losses, gradients, and what spectral normalisation keeps, which moves once a step, not once
    a part. Of ALIAS alone, as batch normalisation in geometric matching is each part's.
    """
    whole, (losses, gradients), before = alias
    parted = made(people, ALIAS, 'train.gradient_accumulation_steps=2', 'train.rematerialise=true')
    found, others = first_step(parted)
    assert found == pytest.approx(losses, rel=1e-4, abs=1e-5)
    assert_same_gradients(whole, others, gradients, KINKS)
    for name, value in kept(whole).items():
        np.testing.assert_allclose(kept(parted)[name], value, atol=1e-5, err_msg=name)
    assert any(np.abs(value - before[name]).max() > 1e-3 for name, value in kept(whole).items())


@pytest.mark.slow  # 23 s; test_tryon_resumed.py cuts a run, too
def test_a_run_in_two_parts_ends_as_one_in_one_to_the_bit(people, whole, eager, tmp_path):
    """Generators, discriminators, what spectral and batch normalisation keep, and five optimizers."""
    it = whole
    it._train(batch_of(it))
    path = tf.train.CheckpointManager(it.checkpoint, str(tmp_path / 'half'), 1).save(it.global_step)
    again = made(people)
    with again.strategy.scope():
        checkpoints.resume(again.checkpoint, again.nets, path)
    assert again.global_step == it.global_step
    ids = []
    for one in (it, again):
        batches = iter(one._dataset('train'))
        for _ in range(2):
            batch = next(batches)
            ids.append(batch.pop('id').numpy().tolist())
            one._train(batch)
    assert ids[:2] == ids[2:]
    one, two = (weights(each.checkpoint.write(str(tmp_path / name))) for name, each in (('one', it), ('two', again)))
    assert {*one} == {*two} and {name.split('/')[1] for name in one if name.startswith('optimizers')} == LEARNING
    assert any(name.startswith('nets/alias_discriminator') and name.split('/')[2].endswith(':u') for name in one)
    for name, value in one.items():
        np.testing.assert_array_equal(value, two[name], err_msg=name)


@pytest.mark.slow  # 24 s; test_weights.py starts nets from several runs
def test_three_runs_make_one_model(people, eager, tmp_path):
    """Each stage learns in a run of its own; the last starts from the others, which it leaves as they are."""
    file, examples = people
    once = ['train.steps=1', 'train.checkpoint_every=1', 'train.validate_every=1', 'train.log_every=1']
    phase = 'train.curriculum=[{steps: 1, size: [32, 32], rows: 2}]'  # of which this step is the first
    for name in ('segmentation', 'geometric_matching'):
        alone = config.load(file, [f'model.trainable_networks=[{name}]', *once, phase])
        found = trainer.train(alone, examples, str(tmp_path / name))
        assert {*found.parameters} - {'segmentation_discriminator'} == {name}
        with pytest.raises(ModelError, match=f'only trains {name} holds no .*cannot be exported'):
            export.check(alone)
    runs = [str(tmp_path / name) for name in ('segmentation', 'geometric_matching')]
    alone = ['model.trainable_networks=[alias]', *once]
    with pytest.raises(UserError, match='no weights for geometric_matching, which this run does not train'):
        trainer.train(config.load(file, [*alone, f'train.init_from={runs[0]}']), examples, str(tmp_path / 'lost'))
    last = config.load(file, [*alone, f'train.init_from=[{", ".join(runs)}]'])
    train.check(last)
    found = trainer.train(last, examples, str(tmp_path / 'alias'))
    assert {*found.parameters} == {'segmentation', 'geometric_matching', 'alias', 'alias_discriminator'}
    before, after = checkpoints.read(os.path.join(runs[1], 'weights')), checkpoints.read(
        str(tmp_path / 'alias' / 'weights'))
    for name, value in before['geometric_matching'].items():
        np.testing.assert_array_equal(value, after['geometric_matching'][name])
    assert 'was off' in found.notes[0]


def test_the_garment_learns_to_lie_on_the_person(people):
    """Twelve people by heart: L_warp falls below two thirds of what leaving the garment where it is costs."""
    it = made(people, 'model.trainable_networks=[geometric_matching]', 'model.geometric_matching.width=0.25',
              'model.geometric_matching.learning_rate=1e-3')
    batch = batch_of(it)
    still = dataclasses.replace(it.config.model, geometric_matching={})
    inputs = chain.matching_inputs(chain.part(still, 'geometric_matching'), batch, tf.zeros([4, 64, 64, 1]))
    assert inputs['cloth'].shape == (4, 32, 32, 3)
    first = values(it._train(batch))['L_warp']
    for _ in range(60):
        last = values(it._train(batch))['L_warp']
    assert last < 2 / 3 * first


def test_a_checkpoint_takes_states_from_the_first_replica(whole):
    """A mean over replicas is a collective operation, in which workers that do not save would not take part."""
    states = [variable for net in whole.nets.values() for variable in net.variables
              if variable.synchronization == tf.VariableSynchronization.ON_READ]
    assert {variable.name.split('/')[-1] for variable in states} >= {'moving_mean:0', 'moving_variance:0', 'u:0', 'v:0'}
    assert {variable.aggregation for variable in states} == {tf.VariableAggregation.ONLY_FIRST_REPLICA}
