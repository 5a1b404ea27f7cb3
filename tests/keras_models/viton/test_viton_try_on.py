"""The three networks as one graph, in memory and as an exported model."""
import dataclasses
import functools
import json
import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from data_prep import tryon
from data_prep.core import records
from data_prep.people import pairs_files, sample_people
from keras_models.viton import chain, geometric_matching, serving, try_on
from pipelines.core import config as configs

SIZE = [128, 128]
SMALL = try_on.Config(preset='official', **try_on.PRESETS['official'], size=SIZE, low=[64, 64],
                      segmentation={'width': 0.125}, geometric_matching={'width': 0.25}, alias={'width': 0.125})
SEED = np.array([1, 0], np.int32)


@pytest.mark.parametrize('preset, counts', [('paper', (31_395_597, 19_042_290, 100_495_107)),
                                            ('official', (34_531_149, 19_042_290, 100_498_115))])
def test_parameters_of_the_papers_networks(preset, counts):
    config = try_on.Config(preset=preset, size=[1024, 768])
    assert try_on.parameters(config) == sum(counts)
    assert [row[3] for row in try_on.table(config)[1]] == [f'{count:,}' for count in counts]


def test_every_class_is_in_one_group_and_the_garment_alone_in_its():
    groups = chain.grouped(tf.eye(13)).numpy()
    assert (groups.sum(1) == 1).all() and groups[chain.UPPER].argmax() == 2 and groups[:, 2].sum() == 1


def test_keys_of_the_networks_are_checked_by_name():
    with pytest.raises(ValueError, match='alias.widht: there is no such key; known keys: .*width'):
        try_on.Config(alias={'widht': 1})
    with pytest.raises(ValueError, match='size must be a height and a width, multiples of 64'):
        try_on.Config(size=[1000, 768])


@pytest.fixture(scope='module')
def nets():
    tf.keras.utils.set_random_seed(0)
    made = try_on.build(SMALL)
    for variable in made['alias'].variables:
        if 'noise_scale' in variable.name:  # zero to begin with
            variable.assign(tf.random.normal(variable.shape))
    return made


def given(seed=0):
    draw = np.random.default_rng(seed)
    sample = {name: draw.uniform(-1, 1, (1, *SIZE, channels)).astype(np.float32)
              for name, channels in {'agnostic': 3, 'pose': 3, 'cloth': 3, 'cloth_mask': 1}.items()}
    sample['cloth_mask'] = (sample['cloth_mask'] > 0).astype(np.float32)
    return {name: tf.constant(value) for name, value in sample.items()} | {
        'agnostic_parse': tf.constant(draw.integers(0, 13, (1, *SIZE)), tf.int32)}


def test_what_the_warp_leaves_bare_is_an_eighth_class(nets):
    """Eq. (4): the garment is split between its covered part and M_misalign, and nothing else changes."""
    told = {}

    def net(inputs, training):
        told.update(inputs)
        return inputs['inputs'][..., :3]
    parse = tf.one_hot(given()['agnostic_parse'], 13)
    mask = tf.constant(np.random.default_rng(1).integers(0, 2, (1, *SIZE, 1)), tf.float32)
    chain.synthesise(net, given(), parse, given()['cloth'], mask, SEED)
    S, S_div, M_misalign = (told[name].numpy() for name in ('S', 'S_div', 'M_misalign'))
    np.testing.assert_array_equal(S_div[..., 2:3] + M_misalign, S[..., 2:3])
    np.testing.assert_array_equal(np.delete(S_div, [2, 7], -1), np.delete(S, 2, -1))
    np.testing.assert_array_equal(M_misalign[..., 0], (S[..., 2] == 1) & (mask.numpy()[..., 0] == 0))


def test_without_a_warp_the_garment_stays_where_it_is():
    """`paper`: theta of zero is the identity."""
    config = dataclasses.replace(SMALL, preset='paper')
    own = try_on.part(config, 'geometric_matching')
    net = geometric_matching.build(own)['geometric_matching']
    last = net.get_layer('regression/linear')
    last.set_weights([np.zeros_like(value) for value in last.get_weights()])
    sample = given()
    cloth, mask = chain.warp(net, config, sample, sample['cloth_mask'])
    np.testing.assert_allclose(cloth, sample['cloth'], atol=1e-4)
    np.testing.assert_allclose(mask, sample['cloth_mask'], atol=1e-4)


def made(nets, seed):
    return chain.try_on(nets, SMALL, given(), tf.constant(seed))


def test_the_seed_alone_decides(nets):
    first, again, other = made(nets, [1, 0]), made(nets, [1, 0]), made(nets, [2, 0])
    np.testing.assert_array_equal(first['image'], again['image'])
    assert np.abs(first['image'] - other['image']).max() > 1e-4


@pytest.mark.slow  # test_compiled_steps.py compiles the same networks
def test_xla_computes_the_same(nets):
    first = made(nets, [1, 0])
    compiled = tf.function(functools.partial(made, nets), jit_compile=True)([1, 0])
    same = np.argmax(first['parse'], -1) == np.argmax(compiled['parse'], -1)  # near ties may fall either way
    assert same.mean() > 0.999
    np.testing.assert_allclose(first['warped'], compiled['warped'], atol=5e-3)
    assert np.mean(np.abs(first['image'] - compiled['image'])) < 1e-3


def test_own_data_has_the_papers_networks_and_rates_that_fall_with_the_run(tmp_path):
    path = tmp_path / 'own.yaml'
    path.write_text('data: {module: data_prep.tryon, samples: people, validation_fraction: 0.1}\n'
                    'model: {module: keras_models.viton.try_on, preset: own_data, alias: {decay_updates: 70}}\n'
                    'train: {steps: 300}\n')
    config = configs.load(str(path)).model
    for name, module in chain.PARTS.items():
        own = chain.part(config, name)
        assert module.parameters(dataclasses.replace(own, size=module.Config().size)) == module.parameters(
            module.Config())
        assert own.decay_updates == (70 if name == 'alias' else 300)
    assert {*try_on.optimizers(config)} == {*chain.PARTS}  # no discriminators
    assert chain.part(chain.Config(), 'alias').decay_updates == 0  # the paper's are constant


def test_levels_are_rounded_or_cut_off_as_the_authors_save_them():
    """Theirs: (x + 1) * 0.5 * 255 in float32, between 0 and 255, its fraction dropped."""
    x = np.random.default_rng(0).uniform(-1.1, 1.1, (100, 100, 3)).astype(np.float32)
    theirs = ((x + np.float32(1)) * np.float32(0.5) * np.float32(255)).clip(0, 255).astype('uint8')
    np.testing.assert_array_equal(chain.pixels(x, 'truncated'), theirs)
    nearest = np.rint((x.clip(-1, 1) + 1) * np.float32(127.5))
    np.testing.assert_array_equal(chain.pixels(x), nearest)
    assert try_on.PRESETS == {'paper': {}, 'official': {'levels': 'truncated'}, 'own_data': {}}
    assert (theirs < nearest).mean() > 0.4


@pytest.fixture(scope='module')
def people(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp('people'))
    sample_people.write_people(folder, 3, 2, SIZE)
    return folder


@pytest.fixture(scope='module')
def exported(nets, people, tmp_path_factory):
    examples = str(tmp_path_factory.mktemp('examples'))
    records.write_manifest(examples, [], (), {}, {'padding': 40})
    assets = tryon.assets(examples, tryon.Input(size=SIZE))
    module = serving.serving(nets, SMALL, serving.Inference(), assets)
    folder = str(tmp_path_factory.mktemp('model') / '1')
    tf.saved_model.save(module, folder, signatures=module.signatures())
    return folder, assets


def requests(people):
    pairs = os.path.join(people, 'test_pairs.txt')
    folders = pairs_files.folders(pairs_files.root(pairs))
    asked = {'image': 'image', 'parse': 'parse', 'pose_json': 'keypoints', 'cloth': 'cloth', 'cloth_mask': 'cloth_mask'}
    for pair in pairs_files.pairs(pairs):
        files = pairs_files.read(folders, pair.person, pair.garment)
        yield {name: files[key].content for name, key in asked.items()}


FRESH = """
import json, sys
import numpy as np, tensorflow as tf
folder, files, out = sys.argv[1:]
model = tf.saved_model.load(folder)
files = np.load(files)
names = ('image', 'parse', 'pose_json', 'pose_image', 'cloth', 'cloth_mask')
rows = {name: tf.constant([bytes(files[f'{name}/{i}']) for i in range(2)]) for name in names}
found = model.signatures['serving_default'](**rows)['image_bytes'].numpy()
def feature(value):
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))
examples = [tf.train.Example(features=tf.train.Features(feature={
    name: feature(rows[name][i].numpy()) for name in names})).SerializeToString() for i in range(2)]
tf.config.optimizer.set_experimental_options({'disable_meta_optimizer': True})  # which rewrote the net once already
again = model.signatures['tf_examples'](examples=tf.constant(examples))['image_bytes'].numpy()
np.savez(out, *[tf.io.decode_png(each).numpy() for each in [*found, *again]])
assert 'keras_models' not in sys.modules
"""


@pytest.mark.slow  # of the published code's networks, of both signatures; test_tryon_pipeline.py has the paper's
def test_a_server_answers_files_with_the_picture_of_the_chain_in_memory(nets, people, exported, tmp_path):
    folder, assets = exported
    asked = [{'pose_image': b'', **files} for files in requests(people)]
    np.savez(tmp_path / 'files.npz', **{f'{name}/{i}': np.frombuffer(value, np.uint8)
                                        for i, files in enumerate(asked) for name, value in files.items()})
    subprocess.run([sys.executable, '-c', FRESH, folder, str(tmp_path / 'files.npz'), str(tmp_path / 'found.npz')],
                   check=True, cwd=tmp_path, env={**os.environ, 'CUDA_VISIBLE_DEVICES': ''}, timeout=300)
    found = np.load(tmp_path / 'found.npz')
    for i, files in enumerate(asked):
        sample = assets.sample(**{name: tf.constant(value) for name, value in files.items()})
        image = chain.try_on(nets, SMALL, {name: value[tf.newaxis] for name, value in sample.items()}, SEED)['image']
        expected = chain.pixels(image[0], 'truncated').numpy().astype(int)
        for each in (i, 2 + i):  # of either signature; a level, where it is cut off
            np.testing.assert_allclose(found[f'arr_{each}'], expected, rtol=0, atol=1)


@pytest.mark.slow  # test_tryon_pipeline.py gives `predict` a bad pair among good ones
def test_one_bad_pair_costs_the_others_nothing(people, exported):
    good, other = requests(people)
    nobody = {**good, 'pose_json': json.dumps({'people': []}).encode()}
    model = tf.saved_model.load(exported[0])
    found = serving.predict(model, [good, nobody, {**good, 'image': b'text'}, other])
    assert [bool(result['error']) for result in found] == [False, True, True, False]
    assert 'one person' in found[1]['error']
    for result in (found[0], found[3]):
        for name in serving.PICTURES:
            assert tf.io.decode_png(result[name]).shape == (*SIZE, 3)
    assert found[0]['image'] != found[3]['image']
