"""Weights of VITON-HD's authors, against the same networks in PyTorch."""
import dataclasses
import functools
import hashlib
import json
import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from keras_models import ModelError
from keras_models.viton import alias, geometric_matching, official_weights, segmentation
from pipelines import checkpoints, import_weights
from support.commands import ROOT

torch = pytest.importorskip('torch')
from support import torch_viton  # noqa: E402  which needs it

TWINS = {'segmentation': torch_viton.Segmentation, 'geometric_matching': torch_viton.GeometricMatching,
         'alias': torch_viton.Alias}
FILES = {'segmentation': 'seg_final.pth', 'geometric_matching': 'gmm_final.pth', 'alias': 'alias_final.pth'}
PARAMETERS = {'segmentation': 34_531_149, 'geometric_matching': 19_042_290, 'alias': 100_498_115}
SEED = tf.constant([3, 4])


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    """Files as the authors', of random networks, and what the command makes of them."""
    folder = tmp_path_factory.mktemp('weights')
    for number, (net, twin) in enumerate(TWINS.items()):
        model = torch_viton.randomise(twin(), number)
        if net == 'geometric_matching':
            torch_viton.measure(model, to_torch(random(4, 256, 192, 7)), to_torch(random(4, 256, 192, 3)))
        torch.save(model.state_dict(), folder / FILES[net])
        del model
    import_weights.main(['viton_hd', *(str(folder / name) for name in FILES.values()), '--out', str(folder / 'made')])
    yield folder
    for name in [*FILES.values(), 'made/weights.data-00000-of-00001']:
        os.remove(folder / name)


def twin(folder, net):
    with torch.device('meta'):  # without a copy of the weights
        model = TWINS[net]()
    model.load_state_dict(torch.load(folder / FILES[net], mmap=True), assign=True)
    return model.eval()


def imported(folder, module, **changes):
    """A network as a training run begins with it."""
    config = dataclasses.replace(module.Config(), **module.PRESETS['official'], **changes)
    nets = module.build(config)
    checkpoints.start(nets, [checkpoints.find(str(folder / 'made'), module)], (), module, config)
    [model] = nets.values()
    return model, config


def random(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def to_torch(x):
    return torch.from_numpy(np.array(x)).permute(0, 3, 1, 2).contiguous()


def to_numpy(x):
    return x.detach().permute(0, 2, 3, 1).numpy()


def test_segmentation_answers_as_in_pytorch(folder):
    model, config = imported(folder, segmentation)
    assert model.count_params() == PARAMETERS['segmentation']
    given = {name: random(1, 256, 192, segmentation.CHANNELS[name], seed=i) for i, name in enumerate(config.inputs)}
    found = segmentation.probabilities(model({**given, 'seed': SEED}), config)
    with torch.no_grad():
        expected = to_numpy(twin(folder, 'segmentation')(to_torch(np.concatenate(list(given.values()), -1))))
    assert expected.std() > 0.1
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_geometric_matching_answers_and_warps_as_in_pytorch(folder):
    model, config = imported(folder, geometric_matching)
    assert sum(np.prod(variable.shape) for variable in model.trainable_variables) == PARAMETERS['geometric_matching']
    given = {name: random(2, 256, 192, channels, seed=i) for i, (name, channels) in
             enumerate({**geometric_matching.PERSON, **geometric_matching.CLOTH}.items())}
    theta = model(given)
    *person, cloth = given.values()
    with torch.no_grad():
        expected = twin(folder, 'geometric_matching')(to_torch(np.concatenate(person, -1)), to_torch(cloth))
        grid = torch_viton.warp(expected, 64, 48)
    assert expected.std() > 0.1 and abs(expected[0] - expected[1]).max() > 0.1
    np.testing.assert_allclose(tf.reshape(theta, [2, 50]), expected, atol=1e-4)
    np.testing.assert_allclose(geometric_matching.spline(config).grid(theta, 64, 48), grid, atol=1e-4)


def test_alias_answers_as_in_pytorch(folder):
    height, width = 256, 128
    model, _ = imported(folder, alias, size=[height, width])
    assert sum(np.prod(variable.shape) for variable in model.trainable_variables) == PARAMETERS['alias']
    draw = np.random.default_rng(0)
    S = np.eye(7, dtype=np.float32)[draw.integers(7, size=(1, height // 8, width // 8))].repeat(8, 1).repeat(8, 2)
    M_misalign = S[..., 2:3] * np.float32(draw.integers(2, size=(1, height, width, 1)))
    M_misalign[:, :128, :128] = 0
    M_misalign[:, 0, 0] = 1  # which is one of the two places the first block sees
    S_div = np.concatenate([S[..., :2], S[..., 2:3] - M_misalign, S[..., 3:], M_misalign], -1)
    given = {'inputs': random(1, height, width, 9), 'S': S, 'S_div': S_div, 'M_misalign': M_misalign}

    def noise(level, norm, height, width):
        site = getattr(model.get_layer(f'block_{level}'), norm).site
        return torch.from_numpy(alias.noise_map(SEED + [site, 0], 1, height, width).numpy()[..., 0])
    found = model({**given, 'seed': SEED})
    with torch.no_grad():
        expected = to_numpy(twin(folder, 'alias')(*map(to_torch, given.values()), noise))
    assert expected.std() > 0.3
    np.testing.assert_allclose(found, expected, atol=1e-4)


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
    assert checkpoints.recorded(checkpoints.find(str(made), segmentation))['foreign'] == foreign


@functools.cache
def matching():
    """The smallest network, and a state dict that fits it."""
    config = dataclasses.replace(geometric_matching.Config(), **geometric_matching.PRESETS['official'])
    state = torch_viton.GeometricMatching().state_dict()
    return geometric_matching.build(config)['geometric_matching'], {name: x.numpy() for name, x in state.items()}


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


def test_mistakes_are_sentences(folder, tmp_path, capsys):
    seg, gmm, whole = (folder / name for name in FILES.values())
    out = tmp_path / 'out'
    assert refused(capsys, seg, gmm, '--out', out) == (
        'error: viton_hd takes 3 files, and 2 were given; name those of segmentation, geometric_matching, alias, '
        'in this order.\n')
    (tmp_path / 'page.pth').write_text('<html>')
    assert refused(capsys, tmp_path / 'page.pth', gmm, whole, '--out', out).endswith(
        'page.pth is no archive as PyTorch writes them; give a .pth file.\n')
    said = refused(capsys, gmm, seg, whole, '--out', out)
    assert ('gmm_final.pth does not fit segmentation: it lacks conv1.0.weight, conv1.0.bias, conv1.3.weight, '
            'conv1.3.bias, conv2.0.weight and 41 more; ') in said
    assert 'it has besides extractionA.model.0.weight, ' in said and said.endswith(
        'give the files of segmentation, geometric_matching, alias, in this order.\n')
    assert not out.exists()
    assert 'made is not empty; give another --out, or remove it' in refused(
        capsys, seg, gmm, whole, '--out', folder / 'made')


def test_help_comes_at_once():
    program = ('import sys; from pipelines import import_weights\n'
               'try: import_weights.main(["--help"])\n'
               'except SystemExit: print(sorted({"tensorflow", "keras", "torch"} & {*sys.modules}))')
    said = subprocess.run([sys.executable, '-c', program], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert 'seg_final.pth' in said and said.endswith('[]\n')
