"""The cost model of accelerators: closed forms, limits, and published figures."""

import numpy as np
import pytest
import yaml

from benchmarks.speed import cost_model
from keras_models import prelu_net, vgg


@pytest.fixture(scope='module')
def steps():
    return cost_model.all_steps({})


def test_a_step_is_counted_from_the_nets_themselves(steps):
    [net] = vgg.build(vgg.Config(variant='D', classes=1000, crop=224)).values()
    dense = [weight.shape for weight in net.weights if weight.name.startswith('fc')]
    assert steps['VGG-D'].parameters == net.count_params() == 138_357_544
    assert steps['VGG-D'].dense_parameters == sum(int(np.prod(shape)) for shape in dense)
    assert steps['VGG-D'].dense_inputs == tuple(shape[0] for shape in dense if len(shape) == 2)
    assert steps['VGG-D'].flops == pytest.approx(256 * 6 * 15.47e9, rel=1e-3)
    slopes = sum(cost.channels for cost in prelu_net.costs(prelu_net.Config(classes=1000, crop=224))[-3:-1])
    a = steps['PReLU A']
    assert a.dense_parameters == 63 * 512 * 4096 + 4096 ** 2 + 4096 * 1000 + 4096 * 2 + 1000 + slopes
    assert steps['VITON-HD ALIAS'].parameters > 100_495_107  # its discriminator's besides (H4: the generator's)


@pytest.mark.parametrize('n', [2, 4, 8])
def test_bytes_of_a_ring_counted_message_by_message(n):
    """Each replica sends one of n chunks to its neighbour, n - 1 times to sum and n - 1 times to spread."""
    values = 5 * n
    chunks = np.random.default_rng(0).normal(size=(n, n, 5))
    total, sent = chunks.sum(0), np.zeros(n)
    for turn in range(2 * (n - 1)):
        chunk = [(r - turn) % n if turn < n - 1 else (r + 1 - (turn - n + 1)) % n for r in range(n)]
        messages = [chunks[r, chunk[r]].copy() for r in range(n)]
        for r, message in enumerate(messages):
            to = (r + 1) % n
            chunks[to, chunk[r]] = message + (chunks[to, chunk[r]] if turn < n - 1 else 0)
            sent[r] += message.size
    np.testing.assert_allclose(chunks, np.broadcast_to(total, chunks.shape))
    step = cost_model.Work(1, values, n, 1)
    assert set(sent * cost_model.FLOAT) == {cost_model.exchanged(step, n)}


def test_schemes_differ_by_what_the_dense_layers_exchange(steps):
    step = steps['VGG-D']
    convolutions = step.parameters - step.dense_parameters
    assert cost_model.exchanged(step, 8, 'single') == pytest.approx(7 / 4 * 4 * (convolutions + 256 * 25_088))
    assert cost_model.exchanged(step, 8, 'sharded') == pytest.approx(
        7 / 4 * 4 * (convolutions + 256 * (25_088 + 4096 + 4096)))
    for scheme in cost_model.SCHEMES:
        assert cost_model.exchanged(step, 1, scheme) == 0
        assert scheme == 'data' or cost_model.exchanged(step, 8, scheme) < cost_model.exchanged(step, 8) / 4


def test_efficiency_has_its_limits(steps):
    a100 = cost_model.accelerators()['A100']
    endless = a100._replace(bandwidth=1e30, beyond=1e30)
    for step in steps.values():
        found = [cost_model.efficiency(step, a100, n) for n in (1, 2, 4, 8, 32)]
        assert found[0] == 1 and found == sorted(found, reverse=True)
        assert cost_model.efficiency(step, endless, 32) == pytest.approx(1)
        assert cost_model.efficiency(step, a100, 8, overlap=True) >= found[3]
    step = steps['PReLU A']  # what one replica computes alone bounds the others: Amdahl's law
    alone = step.dense_flops / step.flops
    assert 8 * cost_model.efficiency(step, endless, 8, 'single') == pytest.approx(1 / (alone + (1 - alone) / 8))


def test_published_figures_are_as_near_as_the_table_says(steps):
    """Times are of a model without memory, updates or small kernels, so too short; speed-ups need no such thing."""
    machines = cost_model.accelerators()
    found = {figure: cost_model.predicted(figure, steps[figure.model], machines[figure.accelerator])
             for figure in cost_model.PUBLISHED}
    ratios = {(each.model, each.accelerator, each.replicas): ours / each.value for each, ours in found.items()}
    assert 0.4 < ratios[('Transformer base', 'P100', 8)] < 1
    assert 0.5 < ratios[('Transformer big', 'P100', 8)] < 1
    assert ratios[('Transformer big', 'V100', 8)] == pytest.approx(0.66, abs=0.05)
    assert ratios[('Transformer big', 'A100', 8)] == pytest.approx(0.60, abs=0.05)
    assert ratios[('VGG-D', 'Titan Black', 4)] == pytest.approx(1, abs=0.05)
    assert ratios[('PReLU A', 'K40', 4)] == pytest.approx(1, abs=0.05)
    assert ratios[('PReLU A', 'K40', 8)] == pytest.approx(1, abs=0.3)
    speed = {each.replicas: ours for each, ours in found.items() if each.model == 'PReLU A'}
    assert speed[4] / 4 > speed[8] / 8  # the shape: 3.8 of 4, 6.0 of 8


def test_every_accelerator_has_figures_and_their_source():
    for name, on in cost_model.accelerators().items():
        assert all(isinstance(value, float) for value in (on.peak, on.bandwidth)) and on.together > 1, name
        assert len(on.source) > 40 and on.precision in ('float32', 'bfloat16', 'float16')


def test_the_page_has_every_part_and_no_figure_for_a_batch_that_cannot_be_divided(steps):
    text = cost_model.markdown(steps)
    assert all(f'## {part}' in text for part in ('Assumptions', 'Steps', 'Accelerators', 'Efficiency by replicas',
                                                 'Beside what was published', 'What is exchanged'))
    [row] = [line for line in text.splitlines() if line.startswith('| A100, bfloat16 | VITON-HD ALIAS')]
    assert row.endswith('|  |  |')  # four pairs do not make eight parts


def test_shares_of_the_ceiling_are_those_make_bench_found(steps):
    contests = yaml.safe_load((cost_model.HERE / 'contests.yaml').read_text())
    assert all(contest in contests and 'flops' in contests[contest] for _, contest in cost_model.MODELS.values())
    found = cost_model.all_steps({'vgg16_step': {'sides': {'ours': {'of the ceiling': 0.5}}}})
    assert found['VGG-D'].share == 0.5 and found['PReLU A'] == steps['PReLU A']
    on = cost_model.accelerators()['P100']
    assert cost_model.seconds(found['VGG-D'], on, 1) == pytest.approx(1.5 * cost_model.seconds(steps['VGG-D'], on, 1))
