"""Checkpoints interrupted at every moment of writing, damaged in every way, and on a full disk."""
import json
import os
import re
import shutil

import pytest
import tensorflow as tf
from tensorflow.python.ops import io_ops

from pipelines.training import checkpoints
from support import file_events

DATA, INDEX, PART = '.data-00000-of-00001', '.index', 'part-00000-of-00001'
TEMPORARY = 'ckpt-3_temp/' + PART


def write(folder, step, keep=2):
    """A checkpoint that holds its step; large enough for more than one write."""
    return checkpoints.write(tf.train.Checkpoint(value=tf.Variable(tf.fill([40_000], step))), str(folder), step, keep)


def value(path):
    return int(tf.train.load_checkpoint(path).get_tensor('value/.ATTRIBUTES/VARIABLE_VALUE')[0])


def names(folder):
    return sorted(os.listdir(folder))


def whole(*steps, prefix='ckpt'):
    return [f'{prefix}-{step}{suffix}' for step in steps for suffix in (DATA, INDEX, '.sha256')]


@pytest.fixture(scope='module')
def written(tmp_path_factory):
    """Folders after the second and the third checkpoint, of which two are kept."""
    before, after = (tmp_path_factory.mktemp(name) for name in ('before', 'after'))
    for step in (1, 2):
        write(before, step)
    shutil.copytree(before, after, dirs_exist_ok=True)
    write(after, 3)
    assert names(before) == ['checkpoint', *whole(1, 2)] and names(after) == ['checkpoint', *whole(2, 3)]
    return before, after


# What the third write asks of the file system, in order: (call, file it makes or removes, file it came from).
CALLS = [('mkdir', 'ckpt-3_temp'),
         ('write', TEMPORARY + DATA + '.tempstate'), ('rename', TEMPORARY + DATA, TEMPORARY + DATA + '.tempstate'),
         ('write', TEMPORARY + INDEX + '.tempstate'), ('rename', TEMPORARY + INDEX, TEMPORARY + INDEX + '.tempstate'),
         ('rename', 'ckpt-3' + DATA, TEMPORARY + DATA), ('write', 'ckpt-3' + INDEX),
         ('unlink', TEMPORARY + INDEX), ('rmdir', 'ckpt-3_temp'),
         ('write', 'ckpt-3.sha256.tmp-'), ('rename', 'ckpt-3.sha256', 'ckpt-3.sha256.tmp-'),
         ('unlink', 'ckpt-1.sha256'), ('unlink', 'ckpt-1' + DATA), ('unlink', 'ckpt-1' + INDEX),
         ('write', 'checkpoint.tmp-'), ('rename', 'checkpoint', 'checkpoint.tmp-')]


def moments(before, after, folder):
    """Walks a copy of `before` to `after`, a call at a time, and stops where a kill might: (done, is call n over)."""
    def body(name):  # what the file will hold when it has its own name
        if name.startswith(TEMPORARY):
            name = 'ckpt-3' + name.removeprefix(TEMPORARY)
        return (after / re.sub(r'\.(tempstate|tmp-)$', '', name)).read_bytes()
    shutil.copytree(before, folder)
    yield 'nothing'
    for call, name, *source in CALLS:
        path = folder / name
        if call == 'write':
            for part in (0, 0.5, 1):
                path.write_bytes(body(name)[:int(part * len(body(name)))])
                yield f'{name} written to {part:.0%}'
            continue
        getattr(os, call)(*[folder / each for each in source], path)
        yield f'{call} {name}'


def test_a_write_that_ends_anywhere_leaves_a_good_one(written, tmp_path, capsys):
    """And what it left is gone, or set aside, once the next is written."""
    before, after = written
    seen = set()
    for number, moment in enumerate(moments(before, after, tmp_path / 'walk')):
        shutil.copytree(tmp_path / 'walk', folder := tmp_path / str(number))
        [path] = checkpoints.newest_intact([str(folder)], 1)
        step = checkpoints.step_of(path)
        counts = (folder / 'ckpt-3.sha256').exists()
        assert step == value(path) == (3 if counts else 2), moment
        said = capsys.readouterr().out
        unfinished = not counts and (folder / 'damaged-ckpt-3.index').exists()
        assert ('ckpt-3 is damaged: ckpt-3.sha256 is missing' in said) == unfinished == bool(said), moment
        write(folder, 4)
        aside = [name for name in names(folder) if name.startswith('damaged')]
        assert names(folder) == ['checkpoint', *whole(step, 4), *aside], moment
        assert not aside or set(aside) == {f'damaged-ckpt-3{DATA}', f'damaged-ckpt-3{INDEX}'}
        seen.add((step, unfinished))
    assert number == 26 and seen == {(2, False), (2, True), (3, False)}


@pytest.mark.parametrize('inside', [False, True])
def test_the_calls_are_those_tensorflow_makes(written, tmp_path, monkeypatch, inside):
    """Else the walk above would be of a write as it is imagined.

    To watch a folder that TensorFlow makes and fills at once, it is made first; TensorFlow's own mkdir is
    seen when only the folder above is watched.
    """
    folder, save = str(tmp_path / 'folder'), io_ops.save_v2
    shutil.copytree(written[0], folder)
    with file_events.Watch() as watch:
        def watched(prefix, *args, **kwargs):
            temporary = os.path.dirname(prefix.numpy().decode())
            os.mkdir(temporary)
            watch.add(temporary)
            return save(prefix, *args, **kwargs)
        if inside:
            monkeypatch.setattr(io_ops, 'save_v2', watched)
        watch.add(folder)
        write(folder, 3)
        found = [(call, *(re.sub(r'(tempstate|tmp-)\w+$', r'\1', path.removeprefix(f'{folder}/'))
                          for path in paths)) for call, *paths in watch.calls()]
    if inside:
        assert found == CALLS
    else:
        above = [tuple(part for part in call if not part.startswith(TEMPORARY)) for call in CALLS]
        assert found == [call for call in above if len(call) > 1]


@pytest.mark.parametrize('damage, message', [
    (lambda path: os.truncate(path + DATA, 1000),
     f'ckpt-2{DATA} has changed since it was written (its SHA-256 differs)'),
    (lambda path: flip(path + DATA), f'ckpt-2{DATA} has changed since it was written (its SHA-256 differs)'),
    (lambda path: flip(path + INDEX), 'ckpt-2.index has changed since it was written (its SHA-256 differs)'),
    (lambda path: flip(path + '.sha256'), 'ckpt-2'),
    (lambda path: os.remove(path + DATA), f'ckpt-2{DATA} is missing'),
    (lambda path: os.remove(path + INDEX), 'ckpt-2.index is missing'),
    (lambda path: os.remove(path + '.sha256'), 'ckpt-2.sha256 is missing'),
    (lambda path: os.truncate(path + '.sha256', 0), 'ckpt-2.sha256 cannot be read'),
    (lambda path: open(path + '.sha256', 'w').write('[1]'), 'ckpt-2.sha256 cannot be read'),
    (lambda path: shutil.copy(path + DATA, path + DATA.replace('1', '2')), 'ckpt-2.data-00000-of-00002 has changed')],
    ids=['data cut', 'data altered', 'index altered', 'hashes altered', 'no data', 'no index', 'no hashes',
         'empty hashes', 'hashes in a list', 'another file'])
def test_a_damaged_newest_one_is_named_set_aside_and_the_one_before_is_used(written, tmp_path, capsys, damage, message):
    shutil.copytree(written[0], folder := tmp_path / 'folder')
    damage(str(folder / 'ckpt-2'))
    left = {name.removeprefix('ckpt-2'): (folder / name).read_bytes() for name in names(folder) if 'ckpt-2' in name}
    assert checkpoints.newest_intact([str(folder)], 2) == [str(folder / 'ckpt-1')]
    said = capsys.readouterr().out
    assert said.startswith(f'{folder}/ckpt-2 is damaged: {message}') and said.count('\n') == 1
    assert said.endswith('It is set aside as damaged-ckpt-2, and the one before is used.\n')
    assert {suffix: (folder / f'damaged-ckpt-2{suffix}').read_bytes() for suffix in left} == left
    assert checkpoints.newest_intact([str(folder)], 2) == [str(folder / 'ckpt-1')] and not capsys.readouterr().out


def flip(path):
    with open(path, 'r+b') as file:
        middle = os.path.getsize(path) // 2
        file.seek(middle)
        byte = file.read(1)
        file.seek(middle)
        file.write(bytes([byte[0] ^ 1]))


def test_the_newest_of_both_folders_and_of_the_good_ones(tmp_path):
    """A mean takes the last ones that are good; what is older is not even looked at."""
    scheduled, interrupted = tmp_path / 'checkpoints', tmp_path / 'interrupted'
    for step in (8, 9, 10, 100):
        write(scheduled, step, keep=4)
    write(interrupted, 101, keep=1)
    flip(str(scheduled / f'ckpt-10{DATA}'))
    flip(str(scheduled / f'ckpt-8{DATA}'))
    assert checkpoints.present(str(scheduled)) == [str(scheduled / f'ckpt-{n}') for n in (8, 9, 10, 100)]
    both = [str(scheduled), str(interrupted)]
    assert checkpoints.newest_intact(both, 1) == [str(interrupted / 'ckpt-101')]
    assert checkpoints.newest_intact(both[:1], 2) == [str(scheduled / name) for name in ('ckpt-9', 'ckpt-100')]
    assert 'damaged-ckpt-10.index' in names(scheduled) and 'ckpt-8.index' in names(scheduled)
    assert checkpoints.newest_intact([str(tmp_path / 'nowhere')], 1) == []


def test_tensorflows_own_tools_find_the_newest(written):
    assert tf.train.latest_checkpoint(str(written[1])) == str(written[1] / 'ckpt-3')
    assert json.loads((written[1] / 'ckpt-3.sha256').read_text()).keys() == {f'ckpt-3{DATA}', 'ckpt-3.index'}
