"""Learning by the exported machine: its state is a session's own, and the version stays as it was."""
import concurrent.futures
import hashlib

import pytest
import tensorflow as tf

from keras_models.learning_machine import Config, Machines
from keras_models.turing import educated
from keras_models.turing.memory import PAIN, PLEASURE


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    """An export of a machine of Nim that has one game behind it."""
    machine = Machines(Config(game='nim', machines=1, memory=60, cards=400, tape=64))
    machine.tape.supply(1)
    rows, active = tf.range(1), tf.constant([True])
    machine.move(rows, tf.constant([[3, 4, 5]]), active)
    machine.feel(rows, tf.constant([PAIN]))
    player = educated.Player(machine, educated.Inference())
    path = str(tmp_path_factory.mktemp('version'))
    tf.saved_model.save(player, path, signatures=player.signatures())
    return path


@pytest.fixture(scope='module')
def model(folder):
    return tf.saved_model.load(folder)


def learn(model, session: str, outcome: int, position: str) -> tuple[str, str]:
    found = model.signatures['learn'](session=tf.constant(session), outcome=tf.constant(outcome),
                                      position=tf.constant(position))
    return found['session'].numpy().decode(), found['move'].numpy().decode()


def digests(folder: str) -> list[str]:
    return [hashlib.sha256(tf.io.gfile.GFile(path, 'rb').read()).hexdigest()
            for path in sorted(tf.io.gfile.glob(f'{folder}/*') + tf.io.gfile.glob(f'{folder}/*/*'))
            if not tf.io.gfile.isdir(path)]


def lesson(model, session: str, keys: dict[str, int], games: int) -> tuple[str, list[str]]:
    """Show a position so many times; the key pressed for each move is PAIN unless `keys` has another."""
    moves = []
    for _ in range(games):
        session, move = learn(model, session, 0, '0 0 2')
        session, _ = learn(model, session, keys.get(move, PAIN), '')
        moves.append(move)
    return session, moves


def test_a_session_learns_and_neither_the_version_nor_another_session_does(folder, model):
    before, answer = digests(folder), model.serve(tf.constant(['0 0 2', '3 4 5']))
    one, moves = lesson(model, '', {'c2': PLEASURE}, 6)
    other, contrary = lesson(model, '', {'c1': PLEASURE}, 6)
    assert {*moves[-3:]} == {'c2'} and {*contrary[-3:]} == {'c1'}
    assert learn(model, one, 0, '0 0 2')[1] == 'c2' and learn(model, other, 0, '0 0 2')[1] == 'c1'
    assert learn(model, one, 0, '0 0 0')[1] == '' == learn(model, one, PLEASURE, '')[1]
    after = model.serve(tf.constant(['0 0 2', '3 4 5']))
    assert all((answer[name].numpy() == after[name].numpy()).all() for name in answer)
    assert digests(folder) == before


def test_a_session_grows_with_what_it_learned_and_is_that_of_a_machine_in_memory(model):
    first, _ = learn(model, '', 0, '1 2 3')
    later, _ = lesson(model, first, {}, 10)
    assert len(first) < len(later) / 2 < 20_000
    again, _ = lesson(model, learn(model, '', 0, '1 2 3')[0], {}, 10)
    assert again == later  # the tape is the only chance


def test_sessions_at_the_same_time_do_not_meet(model):
    keys = [{'c2': PLEASURE}, {'c1': PLEASURE}, {}, {'c1': 0, 'c2': 0}]
    alone = [lesson(model, '', each, 4) for each in keys]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert [*pool.map(lambda each: lesson(model, '', each, 4), keys)] == alone


@pytest.mark.parametrize('session, position, words', [
    ('', 'three', 'is not a position'), ('', '9 9 9', 'heaps of 0 to 5'), ('AAAA', '1 1 1', 'Could not parse'),
    ('another', '1 1 1', 'another version of this machine; begin a new one'), ('', '', None)])
def test_what_is_no_session_or_position_is_refused(model, session, position, words):
    if session == 'another':
        session = tf.io.encode_base64(tf.io.serialize_tensor(tf.constant(['of another version']))).numpy().decode()
    if words:
        with pytest.raises(tf.errors.InvalidArgumentError, match=words):
            learn(model, session, 0, position)
    else:
        assert learn(model, session, 0, position)[1] == ''
    assert learn(model, '', 0, '0 0 1')[1] == 'c1'  # the lock is free again


def test_a_session_says_when_the_memory_is_full(model):
    with pytest.raises(tf.errors.InvalidArgumentError, match='filled its memory of 60 moments'):
        lesson(model, '', {}, 60)
