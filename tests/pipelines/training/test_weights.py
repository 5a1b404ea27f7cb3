"""Weights by name: saved weights load under any naming, and a net starts from those that fit."""
import dataclasses
import json
import os
import re

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

from data_prep import UserError
from keras_models import ModelError
from keras_models.core.layers import by_name
from pipelines.core import roles
from pipelines.training import checkpoints

KEYS = {('one', 'hidden:kernel'), ('one', 'hidden:bias'), ('one', 'out:kernel'), ('one', 'out:bias')}
PAPER = roles.model('keras_models.transformer')  # it reads no weights but its own


def net(width=3, name='one', seed=0):
    """A net of two layers, every weight random."""
    x = keras.Input([2])
    made = keras.Model(x, keras.layers.Dense(4, name='out')(keras.layers.Dense(width, name='hidden')(x)),
                       name=name)
    draw = np.random.default_rng(seed)
    for variable in made.variables:
        variable.assign(draw.normal(size=variable.shape))
    return made


def values(made):
    return {name: variable.numpy() for name, variable in by_name({'net': made})['net'].items()}


def same(one, other):
    found, expected = values(one), values(other)
    return found.keys() == expected.keys() and all(np.array_equal(found[name], expected[name])
                                                   for name in expected)


def touch(path, text=''):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return str(path)


def test_what_is_saved_is_restored_and_read_by_names(tmp_path):
    path, nets = str(tmp_path / 'weights'), {'one': net(), 'two': net(5, 'two', 1)}
    touch(tmp_path / 'weights_temp' / 'part', 'which a killed write left')
    checkpoints.save(nets, path)
    assert sorted(os.listdir(tmp_path)) == ['weights.data-00000-of-00001', 'weights.index']
    again = {'two': net(5, 'two', 2), 'one': net(seed=3)}
    assert not same(nets['one'], again['one'])
    checkpoints.restore(again, path)
    assert same(nets['one'], again['one']) and same(nets['two'], again['two'])
    read = checkpoints.read(path)
    assert {name: set(weights) for name, weights in read.items()} == dict.fromkeys(
        nets, {'hidden/kernel', 'hidden/bias', 'out/kernel', 'out/bias'})
    np.testing.assert_array_equal(read['two']['hidden/kernel'], nets['two'].get_layer('hidden').kernel)
    checkpoints.restore({'one': again['one']}, path)  # a part of it


def test_whether_a_checkpoint_fits_is_a_matter_of_names_and_shapes(tmp_path):
    path = str(tmp_path / 'weights')
    checkpoints.save({'one': net()}, path)
    assert checkpoints.check({'one': net()}, path).keys() == KEYS
    assert checkpoints.fits({'one': net(seed=9)}, path) is True
    for other in ({'one': net(4)}, {'other': net()}):
        assert checkpoints.fits(other, path) is False
    with pytest.raises(UserError, match=r'one/hidden:kernel has .*\[2, 4\] here, .* holds .*\[2, 3\]'):
        checkpoints.check({'one': net(4)}, path)
    with pytest.raises(UserError, match=r'other/hidden:kernel has .*\[2, 3\] here, .* has no such'):
        checkpoints.check({'other': net()}, path)
    reader = checkpoints._reader(path)
    assert all(reader.has_tensor(key) for key in checkpoints._keys(reader, path).values())


def without_objects(path, name, value):
    """A checkpoint of one tensor, as TensorFlow 1 wrote them."""
    tf.raw_ops.SaveV2(prefix=f'{path}-part', tensor_names=[name], shape_and_slices=[''], tensors=[value])
    tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=[f'{path}-part'], destination_prefix=path)
    return path


def test_a_checkpoint_without_the_names_of_variables_holds_nothing_by_name(tmp_path):
    path = without_objects(str(tmp_path / 'plain'), 'x', tf.zeros([2]))
    assert checkpoints._reader(path).has_tensor('x') and checkpoints.read(path) == {}
    with pytest.raises(UserError, match='one/hidden:kernel .* the checkpoint has no such variable'):
        checkpoints.restore({'one': net()}, path)


def test_names_that_cannot_be_parsed_are_damage(tmp_path):
    path = without_objects(str(tmp_path / 'plain'), '_CHECKPOINTABLE_OBJECT_GRAPH', tf.constant(b'\xff' * 9))
    with pytest.raises(UserError, match=f'{re.escape(path)} cannot be read as a checkpoint .*pars'):
        checkpoints.read(path)


@pytest.mark.parametrize('file', ['index', 'data-00000-of-00001'])
def test_damage_is_named_with_what_to_remove(tmp_path, file):
    path = str(tmp_path / 'ckpt-7')
    checkpoints.save({'one': net()}, path)
    os.truncate(f'{path}.{file}', os.path.getsize(f'{path}.{file}') // 2)
    expected = rf'^{re.escape(path)} cannot be read as a checkpoint \(.*\. Remove ckpt-7\.\* from {tmp_path} '
    for work in (checkpoints.restore, lambda nets, path: checkpoints.read(path),
                 lambda nets, path: checkpoints.assign_mean(nets, [path], moving=False)):
        with pytest.raises(UserError, match=expected):
            work({'one': net()}, path)


def test_the_mean_is_taken_in_more_than_float32_and_given_back_in_the_variables_type(tmp_path):
    paths = []
    for number, value in enumerate((1e8, 1.0, 1.0, -1e8)):  # float32 has no 1e8 + 1
        made = net()
        made.get_layer('out').bias.assign(tf.fill([4], value))
        made.get_layer('out').kernel.assign(tf.fill([3, 4], float(number)))
        paths.append(str(tmp_path / str(number)))
        checkpoints.save({'one': made}, paths[-1])
    found = net(seed=9)
    checkpoints.assign_mean({'one': found}, paths, moving=False)
    np.testing.assert_array_equal(found.get_layer('out').bias, [0.5] * 4)
    np.testing.assert_array_equal(found.get_layer('out').kernel, np.full([3, 4], 1.5))
    assert found.get_layer('hidden').kernel.dtype == tf.float32


# --- start: what training begins with --------------------------------------------------------------------

def saved(tmp_path, **nets):
    path = str(tmp_path / '-'.join(nets))
    checkpoints.save(nets, path)
    return path


def test_each_net_starts_with_the_first_weights_that_hold_it(tmp_path):
    first, both = saved(tmp_path, one=net(seed=1)), saved(tmp_path, one=net(seed=2), two=net(5, 'two', 3))
    nets = {'one': net(), 'two': net(5, 'two'), 'three': net(6, 'three')}
    before = values(nets['three'])
    assert checkpoints.start(nets, [first, both], {'three'}, PAPER, None) == ['three']
    assert same(nets['one'], net(seed=1)) and same(nets['two'], net(5, 'two', 3))
    np.testing.assert_equal(values(nets['three']), before)
    assert checkpoints.start({'one': net()}, [both], (), PAPER, None) == []


def test_weights_that_are_of_no_use_or_lacking_are_refused(tmp_path):
    other, one = saved(tmp_path, other=net()), saved(tmp_path, one=net())
    refusal = rf'train.init_from: {re.escape(other)} .* it holds no one and no two\.'
    with pytest.raises(UserError, match=refusal):
        checkpoints.start({'one': net(), 'two': net()}, [other], ('one', 'two'), PAPER, None)
    # the first gave all it could
    with pytest.raises(UserError, match=rf'{re.escape(one)} .* it holds no one\.'):
        checkpoints.start({'one': net()}, [one, one], ('one',), PAPER, None)
    with pytest.raises(UserError, match='train.init_from: no weights for two and three, '):
        checkpoints.start({'one': net(), 'two': net(), 'three': net()}, [one], ('one',), PAPER, None)


def paper(**functions):
    return dataclasses.replace(PAPER, **functions)


def test_a_module_says_what_starts_as_which_other_net(tmp_path):
    theirs, calls = saved(tmp_path, classifier=net(5, 'classifier', 4)), []

    def warm_start(nets, weights):
        calls.append((sorted(nets), sorted(weights)))
        nets['localiser'].get_layer('out').bias.assign(weights['classifier']['out/bias'])
    module = paper(warm_start_names={'localiser': 'classifier'}, warm_start=warm_start)
    nets = {'localiser': net()}
    assert checkpoints.start(nets, [theirs], (), module, None) == []
    assert calls == [(['localiser'], ['classifier'])]
    np.testing.assert_array_equal(nets['localiser'].get_layer('out').bias,
                                  net(5, 'classifier', 4).get_layer('out').bias)
    own = saved(tmp_path, localiser=net(seed=6))
    checkpoints.start(nets, [own], (), module, None)  # fits as it is
    assert same(nets['localiser'], net(seed=6)) and len(calls) == 1

    def refuse(nets, weights):
        raise ModelError('classifier has another width')
    module = paper(warm_start=refuse, warm_start_names={'localiser': 'classifier'})
    with pytest.raises(UserError, match=r'^train.init_from: classifier has another width\.$'):
        checkpoints.start({'localiser': net()}, [theirs], (), module, None)


def test_a_file_of_another_program_is_read_by_the_module(tmp_path):
    expected, file = net(seed=7), touch(tmp_path / 'published.h5')
    module = paper(weight_readers={'.h5': lambda path, config: {
        'one': {name.replace(':', '/'): value for name, value in values(expected).items()
                if (path, config) == (file, 5)}}})
    nets = {'one': net()}
    assert checkpoints.start(nets, [file], (), module, 5) == [] and same(nets['one'], expected)
    assert checkpoints.find(file, module) == file
    for path, reader in ((file, PAPER), (str(tmp_path / 'other.h5'), module),
                         (touch(tmp_path / 'x.pth'), module)):
        with pytest.raises(UserError, match=f'{re.escape(path)} holds no weights'):
            checkpoints.find(path, reader)


# --- find: what a user may name --------------------------------------------------------------------------

@pytest.mark.parametrize('named, lies', [
    ('run/weights', 'run/weights'), ('run', 'run/weights'), ('model', 'model/variables/variables'),
    ('exported', 'exported/Format-Serving/variables/variables'),
    ('served', 'served/30/variables/variables'),  # of pushed versions the highest number
    ('root', 'root/train/12/model_run/weights')])  # of training runs the last
def test_weights_are_found_in_whatever_holds_them(tmp_path, named, lies):
    for path in ('run/weights', 'model/variables/variables', 'exported/Format-Serving/variables/variables',
                 'served/9/variables/variables', 'served/30/variables/variables',
                 'root/train/12/model_run/weights',
                 'root/train/9/model_run/weights', 'root/train/.partial-13/model_run/weights'):
        touch(tmp_path / f'{path}.index')
    assert checkpoints.find(str(tmp_path / named), PAPER) == str(tmp_path / lies)


def test_the_nearest_weights_count_and_none_is_a_sentence(tmp_path):
    for path in ('run.index', 'run/weights.index', 'run/variables/variables.index'):
        touch(tmp_path / path)
    run = str(tmp_path / 'run')
    assert checkpoints.find(run, PAPER) == run
    os.remove(f'{run}.index')
    assert checkpoints.find(run, PAPER) == f'{run}/weights'
    assert checkpoints.sources(run, PAPER) == [f'{run}/weights']
    assert checkpoints.sources([run, '', f'{run}/variables/variables'], PAPER) == [
        f'{run}/weights', f'{run}/variables/variables']
    assert checkpoints.sources('', PAPER) == []
    with pytest.raises(UserError, match=r'nowhere holds no weights\. Give a checkpoint, '):
        checkpoints.find(str(tmp_path / 'nowhere'), PAPER)


@pytest.mark.parametrize('record, weights', [
    ('run/run.json', 'run/weights'), ('run/run.json', 'run/checkpoints/ckpt-3'),
    ('served/9/assets.extra/landmark.json', 'served/9/variables/variables'),
    ('made/weights.json', 'made/weights')])
def test_what_was_said_of_weights_is_found_beside_them(tmp_path, record, weights):
    touch(tmp_path / record, '{"vocabulary": 7}')
    assert checkpoints.recorded(str(tmp_path / weights)) == {'vocabulary': 7}
    assert checkpoints.recorded(str(tmp_path / 'elsewhere' / 'weights')) == {}


def test_whose_weights_they_are_stays_with_them(tmp_path):
    def given(name, foreign):
        touch(tmp_path / name / 'weights.index')
        touch(tmp_path / name / 'run.json', json.dumps({'foreign': foreign} if foreign else {'steps': 3}))
        return str(tmp_path / name)
    one = given('one', {'source': 'A', 'licence': 'MIT', 'files': ['a'], 'year': 1})
    two = given('two', {'source': 'B', 'licence': 'MIT', 'files': ['b', 'c'], 'year': 2})
    ours = given('ours', None)
    assert checkpoints.foreign(ours, PAPER) == checkpoints.foreign('', PAPER) == {}
    assert checkpoints.foreign([ours, two], PAPER) == {'source': 'B', 'licence': 'MIT', 'files': ['b', 'c'],
                                                       'year': 2}
    assert checkpoints.foreign([one, ours, two], PAPER) == {
        'source': 'A and B', 'licence': 'MIT', 'files': ['a', 'b', 'c'], 'year': 1}


# --- resume ----------------------------------------------------------------------------------------------

def run(optimizer, seed=0):
    made = net(seed=seed)
    optimizer.build(made.trainable_variables)
    return tf.train.Checkpoint(nets=by_name({'one': made}), optimizers={'one': optimizer}), {'one': made}


def test_a_run_resumes_with_its_optimizer_or_says_whose_it_is(tmp_path):
    checkpoint, nets = run(keras.optimizers.SGD(0.1, momentum=0.9), 1)
    checkpoint.optimizers['one'].momentums[0].assign_add(tf.ones([2, 3]))
    path = checkpoints.write(checkpoint, str(tmp_path), 4, keep=1)
    again, their_nets = run(keras.optimizers.SGD(0.1, momentum=0.9), 2)
    checkpoints.resume(again, their_nets, path)
    assert same(their_nets['one'], nets['one']) and np.all(again.optimizers['one'].momentums[0] == tf.ones([2, 3]))
    with pytest.raises(UserError, match=r'ckpt-4 is of another optimizer \(.*\)\. Give the configuration'):
        checkpoints.resume(*run(keras.optimizers.Adam()), path)  # two slots for each variable
    with pytest.raises(UserError, match='it has no accumulator/hidden/bias for one'):
        checkpoints.resume(*run(keras.optimizers.Adagrad()), path)  # slots of the same shapes
    adams = checkpoints.write(run(keras.optimizers.Adam())[0], str(tmp_path / 'adam'), 3, keep=1)
    with pytest.raises(UserError, match='its v/hidden/bias for one belongs to no optimizer here'):
        checkpoints.resume(again, their_nets, adams)
    plain = checkpoints.write(tf.train.Checkpoint(nets=by_name(nets)), str(tmp_path / 'plain'), 5, keep=1)
    with pytest.raises(UserError, match=r'ckpt-5 is of another optimizer'):  # of none
        checkpoints.resume(again, their_nets, plain)
    wider = net(4)
    with pytest.raises(UserError, match='ckpt-4 is a checkpoint of another model: one/hidden:kernel has'):
        checkpoints.resume(tf.train.Checkpoint(nets=by_name({'one': wider})), {'one': wider}, path)
    os.truncate(f'{path}.data-00000-of-00001', 10)
    with pytest.raises(UserError, match='ckpt-4 cannot be read as a checkpoint'):
        checkpoints.resume(again, their_nets, path)
