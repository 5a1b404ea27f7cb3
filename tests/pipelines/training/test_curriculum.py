"""A curriculum: which steps see what, train which networks, and go on after an interruption."""
import numpy as np
import pytest

from data_prep import UserError
from pipelines import train
from pipelines.core import config as configs
from pipelines.training import curriculum, devices, trainer
from support import tiny_people

LEARN = 'model.trainable_networks=[segmentation, geometric_matching]'
PHASES = ('train.curriculum=[{steps: 1, networks: [segmentation], rows: 2, size: [32, 32]}, '
          '{steps: 2, networks: [geometric_matching], size: [32, 32]}]')


@pytest.fixture(scope='module')
def file(tmp_path_factory):
    """A configuration of made people who are never made."""
    path = tmp_path_factory.mktemp('nobody') / 'people.yaml'
    path.write_text(tiny_people.CONFIG.format(folder=path.parent))
    return str(path)


@pytest.fixture(scope='module')
def people(tmp_path_factory):
    """A configuration of made people, and their examples."""
    return tiny_people.prepare(tmp_path_factory.mktemp('people'), 6)


@pytest.fixture
def learner(people, eager):
    file, examples = people
    resolved = configs.load(file, [LEARN, PHASES, 'train.steps=5', 'model.geometric_matching.synchronized=false'])

    def made(step=0):
        it = trainer.Trainer(resolved, devices.choose(resolved, False), examples)
        it.global_step.assign(step)
        return it
    return made


def test_phases_come_first_and_the_configuration_after_them(file):
    resolved = configs.load(file, [LEARN, PHASES, 'train.steps=5'])
    found = curriculum.phases(resolved)
    assert [(phase.start, phase.stop) for phase in found] == [(0, 1), (1, 3), (3, 5)]
    assert [(phase.input.rows, phase.input.size) for phase in found] == [(2, [32, 32]), (4, [32, 32]), (4, [64, 64])]
    assert [phase.model.trainable_networks for phase in found] == [
        ['segmentation'], ['geometric_matching'], ['segmentation', 'geometric_matching']]
    assert [curriculum.at(found, step) for step in range(7)] == [0, 1, 1, 2, 2, 2, 2]
    for steps, stops in (3, [1, 3]), (2, [1, 2]), (1, [1]):
        cut = configs.load(file, [LEARN, PHASES, f'train.steps={steps}'])
        assert [phase.stop for phase in curriculum.phases(cut)] == stops
    [only] = curriculum.phases(configs.load(file, [LEARN]))
    assert (only.start, only.stop, only.model) == (0, 4, configs.load(file, [LEARN]).model)


def test_phases_of_other_batches_share_the_compiled_steps_and_of_other_networks_do_not(file):
    resolved = configs.load(file, [LEARN, 'train.steps=5', 'train.curriculum=[{steps: 1, rows: 2}, '
                                   '{steps: 1, networks: [segmentation]}, {steps: 1, size: [32, 32]}]'])
    assert [curriculum.graph_at(curriculum.phases(resolved), step) for step in range(5)] == [0, 1, 0, 0, 0]


@pytest.mark.slow  # 30 s of eager steps; that one step trains the networks it names is in test_viton_training.py
def test_every_step_has_the_batches_and_trains_the_networks_of_its_phase(learner):
    it, weights = learner(), []
    for number, batch in enumerate(batches(it)):
        batch.pop('id')
        weights.append({name: [each.numpy() for each in net.trainable_variables] for name, net in it.nets.items()})
        it._train(batch, curriculum.at(it.phases, number))
    weights.append({name: [each.numpy() for each in net.trainable_variables] for name, net in it.nets.items()})
    trained = [{name for name in before if any((one != other).any() for one, other in zip(before[name], after[name]))}
               for before, after in zip(weights, weights[1:])]
    parse = {'segmentation', 'segmentation_discriminator'}
    assert trained == [parse, {'geometric_matching'}, {'geometric_matching'}, *[parse | {'geometric_matching'}] * 2]


@pytest.mark.slow  # it makes four trainers
def test_a_resumed_run_reads_the_remaining_batches(learner):
    everything = list(batches(learner()))
    assert [batch['image'].shape.as_list() for batch in everything] == [
        [2, 32, 32, 3], [4, 32, 32, 3], [4, 32, 32, 3], [4, 64, 64, 3], [4, 64, 64, 3]]
    for step in (1, 2, 4):
        remaining = list(batches(learner(step)))
        assert len(remaining) == 5 - step
        for one, other in zip(remaining, everything[step:]):
            for name, value in one.items():
                np.testing.assert_array_equal(value, other[name])


def batches(it):
    return iter(it._dataset('train'))


@pytest.mark.parametrize('phases, said', [
    ('{rows: 2}', r'\[0\] needs steps'),
    ('{steps: 0}', r'\[0\]: steps must be a whole number above 0; it is 0'),
    ('{steps: 2, networks: []}', r'\[0\]: networks is empty, so nothing would be trained'),
    ('{steps: 2, row: 2}', r'\[0\]: unknown key row. Known keys: crop, networks, rows, scales, size, steps, swapped'),
    ('{steps: 2, swapped: true}', r'\[0\]: swapped must be a share, such as 0.5; it is True'),
    ('{steps: 2, swapped: 0.5}', r'\[0\]: swapped: the section input has no such key for data_prep.tryon'),
    ('{steps: 1}, {steps: 1, size: [32]}', r'\[1\]: size must be a height and a width'),
    ('{steps: 1, networks: [alias]}', r'\[0\]: networks: alias is not one of model.trainable_networks'),
])
def test_phases_that_cannot_be_are_refused(file, phases, said):
    resolved = configs.load(file, [LEARN, f'train.curriculum=[{phases}]'])
    with pytest.raises(UserError, match=said):
        train.check(resolved)


@pytest.mark.parametrize('keys, said', [('size: [64, 64]', 'size: the networks of keras_models.vgg take images of one'),
                                        ('crop: 28', 'crop: the networks of keras_models.vgg take images of one size'),
                                        ('networks: [vgg]', 'networks: keras_models.vgg trains all its networks')])
def test_models_without_sizes_or_networks_refuse_them(keys, said):
    with pytest.raises(UserError, match=said):
        train.check(configs.load('vgg_a_tiny_imagenet', [f'train.curriculum=[{{steps: 1, {keys}}}]']))


def test_pairs_go_both_ways_only_in_the_phase_that_says_so():
    phases = 'train.curriculum=[{steps: 2, swapped: 0.5}, {steps: 1, swapped: 0.25}]'
    found = curriculum.phases(configs.load('multi30k_en_de', [phases, 'train.steps=9']))
    assert [(phase.stop, phase.input.swapped) for phase in found] == [(2, 0.5), (3, 0.25), (9, 0.0)]
    with pytest.raises(UserError, match='rows: batches are of input.tokens 4096, not of rows'):
        train.check(configs.load('multi30k_en_de', ['train.curriculum=[{steps: 2, rows: 64}]']))
    with pytest.raises(UserError, match='swapped is a share of the pairs, 0 to 1; it is 1.5'):
        train.check(configs.load('multi30k_en_de', ['train.curriculum=[{steps: 2, swapped: 1.5}]']))


def test_a_net_with_spatial_pyramid_pooling_may_first_see_smaller_crops():
    phases = 'train.curriculum=[{steps: 5, crop: 24, scales: [27, 30]}, {steps: 2, rows: 16}]'
    resolved = configs.load('prelu_cifar10', [phases, 'train.steps=9'])
    found = curriculum.phases(resolved)
    assert [(phase.input.crop, phase.input.scales, phase.input.rows) for phase in found] == [
        (24, [27, 30], 64), (32, [36, 40], 16), (32, [36, 40], 64)]
    assert [phase.model for phase in found[1:]] == [resolved.model] * 2
    assert [curriculum.graph_at(found, step) for step in (0, 5, 7)] == [0, 1, 1]


@pytest.mark.parametrize('keys, said', [('crop: 40', 'an image of 36 pixels is smaller than crop 40'),
                                        ('crop: 3, scales: [3]', 'crop 3 leaves no map for spp')])
def test_crops_that_cannot_be_are_refused(keys, said):
    with pytest.raises(UserError, match=said):
        train.check(configs.load('prelu_cifar10', [f'train.curriculum=[{{steps: 1, {keys}}}]']))
