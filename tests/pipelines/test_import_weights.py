"""Weights of VITON-HD's authors, against recorded results of the same networks in PyTorch."""
import dataclasses
import functools
import hashlib
import json
import os
import pathlib
import sys

import numpy as np
import pytest
import tensorflow as tf

from keras_models import ModelError
from keras_models.viton import alias, geometric_matching, official_weights, segmentation
from pipelines import import_weights
from pipelines.core import roles
from pipelines.training import checkpoints
from support import torch_zip, viton_inputs
from support.references import Reference

MODULES = {'segmentation': segmentation, 'geometric_matching': geometric_matching, 'alias': alias}
FILES = {'segmentation': 'seg_final.pth', 'geometric_matching': 'gmm_final.pth', 'alias': 'alias_final.pth'}
PARAMETERS = {'segmentation': 34_531_149, 'geometric_matching': 19_042_290, 'alias': 100_498_115}
STATE = ('.weight_u', '.weight_v', '.running_mean', '.running_var', '.num_batches_tracked')  # no parameters
SPEC = roles.model('keras_models.viton.try_on')


def configured(reference: str):
    """The preset `official` as wide as a reference's network."""
    net, width, size = viton_inputs.CASES[reference]
    module = MODULES[net]
    return dataclasses.replace(module.Config(), preset='official', width=width, size=size,
                               **module.PRESETS['official'])


def narrow(net: str):
    """In place of `official_weights.build`."""
    return MODULES[net].build(configured(net))[net]


def convert(folder: pathlib.Path, suffix: str = '') -> None:
    """Writes files as the authors', of random weights, and runs the command on them."""
    for net, name in FILES.items():
        torch_zip.write(folder / name, Reference(net + suffix).weights())
    files = [str(folder / name) for name in FILES.values()]
    import_weights.main(['viton_hd', *files, '--out', str(folder / 'made')])


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    """Files of networks an eighth as wide as published, and what the command makes of them."""
    folder = tmp_path_factory.mktemp('weights')
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(official_weights, 'build', narrow)
        convert(folder)
    return folder


@pytest.fixture
def narrow_networks(monkeypatch):
    monkeypatch.setattr(official_weights, 'build', narrow)


def imported(folder, reference: str):
    """A network as a training run begins with it."""
    net, *_ = viton_inputs.CASES[reference]
    config = configured(reference)
    nets = MODULES[net].build(config)
    checkpoints.start(nets, [checkpoints.find(str(folder / 'made'), SPEC)], (), SPEC, config)
    return nets[net], config


# 840 times float32's epsilon, of numbers up to 1 after up to 50 layers. Errors of 3.4e-5 at most were
# measured, with AVX-512, AVX2 and without oneDNN.
TOLERANCE = 1e-4


def compare_segmentation(folder, name: str) -> None:
    reference, (model, config) = Reference(name), imported(folder, name)
    inputs = viton_inputs.segmentation(reference, config.size)
    assert list(inputs) == config.inputs and reference.deviation('probabilities') > 0.1
    found = segmentation.probabilities(model({**inputs, 'seed': tf.constant([3, 4])}), config)
    reference.compare('probabilities', found, atol=TOLERANCE)


def compare_matching(folder, name: str) -> None:
    reference, (model, config) = Reference(name), imported(folder, name)
    theta = model(viton_inputs.matching(reference, config.size))
    one, other = reference.arrays['theta']
    assert reference.deviation('theta') > 0.1 and np.abs(one - other).max() > 0.1
    reference.compare('theta', tf.reshape(theta, [2, 50]), atol=TOLERANCE)
    reference.compare('grid', geometric_matching.spline(config).grid(theta, 16, 12), atol=TOLERANCE)


def compare_alias(folder, name: str, monkeypatch) -> None:
    """With noise that both sides draw: a normalisation asks for that of its site."""
    reference, (model, config) = Reference(name), imported(folder, name)
    monkeypatch.setattr(alias, 'noise_map', lambda seed, batch, height, width: tf.constant(
        viton_inputs.noise(reference, int(seed[0]), height, width)))
    found = model({**viton_inputs.alias(reference, config.size), 'seed': tf.zeros([2], tf.int32)})
    assert reference.deviation('picture') > 0.3
    reference.compare('picture', found, atol=TOLERANCE)


def test_segmentation_answers_as_in_pytorch(folder):
    compare_segmentation(folder, 'segmentation')


def test_geometric_matching_answers_and_warps_as_in_pytorch(folder):
    compare_matching(folder, 'geometric_matching')


def test_alias_answers_as_in_pytorch(folder, monkeypatch):
    compare_alias(folder, 'alias', monkeypatch)


@pytest.mark.parametrize('name, compare', [
    ('segmentation_person', compare_segmentation),
    pytest.param('alias_person', compare_alias, marks=pytest.mark.slow)])  # of other inputs it is compared above
def test_of_a_person_they_answer_as_in_pytorch(name, compare, monkeypatch):
    """A made one. With moments summed over all places at once, segmentation was 1.9e-4 apart."""
    net, config = viton_inputs.CASES[name][0], configured(name)
    nets = MODULES[net].build(config)
    official_weights.assign(net, nets[net], Reference(name).weights())
    monkeypatch.setattr(sys.modules[__name__], 'imported', lambda folder, reference: (nets[net], config))
    compare(None, name, *[monkeypatch] * (net == 'alias'))


@pytest.mark.parametrize('net', MODULES)
def test_a_published_file_has_as_many_parameters(net):
    layout = Reference(f'{net}_full').layouts['net']
    assert sum(np.prod(shape, dtype=int) for name, shape in layout.items()
               if not name.endswith(STATE)) == PARAMETERS[net]
    assert MODULES[net].parameters(configured(f'{net}_full')) == PARAMETERS[net]


@pytest.mark.slow
def test_files_of_the_published_width_answer_as_in_pytorch(tmp_path, monkeypatch):
    convert(tmp_path, '_full')
    try:
        compare_segmentation(tmp_path, 'segmentation_full')
        compare_matching(tmp_path, 'geometric_matching_full')
        compare_alias(tmp_path, 'alias_full', monkeypatch)
    finally:  # 1.2 GB
        for name in [*FILES.values(), 'made/weights.data-00000-of-00001']:
            os.remove(tmp_path / name)


def test_the_licence_stays_with_the_weights(folder):
    made = folder / 'made'
    foreign = json.loads((made / 'weights.json').read_text())['foreign']
    assert foreign['source'] == 'https://github.com/shadow2496/VITON-HD'
    assert foreign['licence'].startswith('CC BY-NC 4.0')
    assert foreign['system'] == 'viton_hd' and foreign['preset'] == 'official'
    assert foreign['files'] == list(FILES.values())
    license_ = (made / 'LICENSE.md').read_text()
    assert 'non-commercial' in license_ and 'Seunghwan Choi' in license_
    for net, name in FILES.items():
        digest = hashlib.sha256((folder / name).read_bytes()).hexdigest()
        assert foreign['sha256'][net] == digest and f'| {net} | {name} | {digest} |' in license_
    assert checkpoints.recorded(checkpoints.find(str(made), SPEC))['foreign'] == foreign


@functools.cache
def matching():
    """A small network, and a state dict that fits it."""
    return narrow('geometric_matching'), Reference('geometric_matching').weights()


def assign(tensors):
    official_weights.assign('geometric_matching', matching()[0], tensors)


def test_what_does_not_fit_is_named_and_nothing_is_changed():
    model, tensors = matching()
    before = [variable.numpy() for variable in model.variables]
    with pytest.raises(ModelError) as error:
        assign({**{name: x for name, x in tensors.items() if not name.startswith('extractionB.model.12')},
                'regression.linear.bias': np.ones(18, np.float32), 'model.module': np.ones(1)})
    assert str(error.value) == (
        'it lacks extractionB.model.12.weight, extractionB.model.12.bias; it has besides model.module; '
        'it has in another shape regression.linear.bias (18,) for (50,)')
    for variable, value in zip(model.variables, before):
        np.testing.assert_array_equal(variable, value)


def test_constants_some_versions_saved_are_passed_over():
    _, tensors = matching()
    assert 'extractionA.model.2.num_batches_tracked' in tensors
    constants = ('grid_X', 'grid_Y', 'P_X', 'P_Y', 'P_X_base', 'P_Y_base', 'Li')
    assign({**tensors, **{f'gridGen.{name}': np.ones(1) for name in constants}})
    with pytest.raises(ModelError, match='it has besides gridGen.other$'):
        assign({**tensors, 'gridGen.other': np.ones(1)})


def refused(capsys, *arguments) -> str:
    with pytest.raises(SystemExit) as end:
        import_weights.main(['viton_hd', *map(str, arguments)])
    assert end.value.code == 2
    return capsys.readouterr().err


def test_mistakes_are_sentences(folder, narrow_networks, tmp_path, capsys):
    seg, gmm, whole = (folder / name for name in FILES.values())
    out = tmp_path / 'out'
    assert refused(capsys, seg, gmm, '--out', out) == (
        'error: viton_hd needs 3 files, but 2 were given. Name those of segmentation, geometric_matching, alias, '
        'in this order.\n')
    (tmp_path / 'page.pth').write_text('<html>')
    assert refused(capsys, tmp_path / 'page.pth', gmm, whole, '--out', out).endswith(
        'page.pth is not an archive in PyTorch\'s format; give a .pth file.\n')
    said = refused(capsys, gmm, seg, whole, '--out', out)
    assert ('gmm_final.pth does not fit segmentation: it lacks conv1.0.weight, conv1.0.bias, conv1.3.weight, '
            'conv1.3.bias, conv2.0.weight and 41 more; ') in said
    assert 'it has besides extractionA.model.0.weight, ' in said and said.endswith(
        'Give the files of segmentation, geometric_matching, alias, in this order.\n')
    assert not out.exists()
    assert 'made is not empty. Give another --out, or remove it' in refused(
        capsys, seg, gmm, whole, '--out', folder / 'made')
