"""Where lineage lies: concurrent writers lose nothing, on a disk, in an object store and in a database."""
import os
import random
import threading

import pytest
from google.api_core import exceptions
from google.cloud import storage

from benchmarks import metadata_sweep
from data_prep import UserError
from pipelines import lineage
from pipelines.core import artifacts, cli, metadata, stores
from support import databases, object_server

OBJECT = 'gs://bucket/lineage/metadata.sqlite'


@pytest.fixture
def objects(monkeypatch):
    """An empty object store, which Google's client is led to."""
    with object_server.serving() as served:
        monkeypatch.setenv('STORAGE_EMULATOR_HOST', served.url)
        yield served


@pytest.fixture(scope='module')
def database(tmp_path_factory):
    with databases.serving(tmp_path_factory.mktemp('mariadb')) as served:
        yield served


@pytest.fixture(params=['disk', 'object', pytest.param('database', marks=pytest.mark.cluster)])
def store(request, tmp_path, monkeypatch):
    """The address of an empty store of each kind, which the environment names."""
    if request.param == 'disk':
        address = str(tmp_path / 'shared.sqlite')
    elif request.param == 'object':
        request.getfixturevalue('objects')
        address = OBJECT
    else:
        served = request.getfixturevalue('database')
        address = served.create()
        monkeypatch.setenv(stores.PASSWORD, served.password)
    monkeypatch.setenv(stores.ADDRESS, address)
    return address


def publish(store, number: int, stage: str = 'export', inputs=()) -> int:
    """Records one execution with one output; returns its id."""
    execution = store.begin(stage, str(number), 's', 'c')
    store.publish(execution, inputs, {'model': ('Model', f'/{number}', f'd{number}')}, {'number': number})
    return execution.id


def upload(content: bytes, generation: int) -> int:
    blob = storage.Client().bucket('bucket').blob('lineage/metadata.sqlite')
    blob.upload_from_string(content, if_generation_match=generation)
    return blob.generation


def test_the_server_of_these_tests_refuses_a_stale_generation(objects):
    first = upload(b'one', 0)
    second = upload(b'two', first)
    for stale in (0, first):
        with pytest.raises(exceptions.PreconditionFailed):
            upload(b'three', stale)
    [blob] = [storage.Client().bucket('bucket').get_blob('lineage/metadata.sqlite')]
    assert blob.generation == second and blob.download_as_bytes() == b'two' and objects.refused == 2


def test_writers_at_once_lose_nothing(store):
    """Each of the threads is a machine: it has a connection, and in an object store a copy, of its own."""
    ids, errors = [], []

    def write(first):
        try:
            mine = metadata.of_root('/root', 'tiny')
            ids.extend((publish(mine, number), number) for number in range(first, first + 5))
        except Exception as error:
            errors.append(error)
    threads = [threading.Thread(target=write, args=[first]) for first in range(0, 20, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    found = {number: outputs['model'] for number, _, outputs in metadata.of_root('/root').completed('export')}
    assert {number: outputs.uri for number, outputs in found.items()} == {each: f'/{number}' for each, number in ids}
    assert len(found) == len({artifact.id for artifact in found.values()}) == 20


def test_two_machines_see_what_the_other_wrote_and_no_other_root(store):
    one, two, other = (metadata.of_root(root, 'tiny') for root in ('/root', '/root', '/root/below'))
    publish(one, 1)
    publish(other, 2)
    assert [outputs['model'].uri for _, _, outputs in two.completed('export')] == ['/1']
    execution = publish(two, 3, inputs=[two.completed('export')[0][2]['model']])
    assert [each.stage for each in one.made(one.inputs_of(execution))] == ['export']
    assert [uri for _, uri, _ in one.digests('Model')] == ['/3', '/1']
    assert [each.properties for each in other.executions('model')] == [{'number': 2}]
    running = two.begin('export', '4', 's', 'c')
    assert other.unrecorded('export', '4') == [] and one.unrecorded('export', '4') == [running.id]
    one.fail(running)
    assert metadata.roots() == ['/root', '/root/below']
    assert metadata.root_of('/root/below/export/1/model') == '/root/below'
    assert metadata.root_of('/root/export/1') == '/root' and metadata.root_of('/elsewhere/1') is None
    with pytest.raises(UserError, match='/elsewhere has no .*, so nothing is known'):
        metadata.opened('/elsewhere')


def test_an_upload_whose_answer_is_lost_counts_once(objects, monkeypatch):
    """The client sends it again, is refused for its own generation, and looks at what lies there."""
    store = metadata.Metadata(OBJECT, 'tiny')
    execution = store.begin('export', '1', 's', 'c')
    objects.unanswered = 1
    store.publish(execution, [], {'model': ('Model', '/1', 'd')}, {})
    assert objects.refused == 1 and len(store.digests('Model')) == 1
    objects.unanswered = 1
    publish(store, 2)
    assert objects.refused == 2 and len(store.completed('export')) == 2


def test_a_change_that_fails_leaves_nothing_in_an_object_store(objects):
    store = metadata.Metadata(OBJECT, 'tiny')
    publish(store, 1)

    def change(connection):
        connection.put_context_type(stores.mlmd.ContextType(name='half'))
        raise RuntimeError
    with pytest.raises(RuntimeError):
        store._store.write(change)
    publish(store, 2)
    names = [kind.name for kind in metadata.Metadata(OBJECT, 'tiny')._store.read().get_context_types()]
    assert 'half' not in names and len(store.completed('export')) == 2


def test_a_writer_that_never_gets_through_says_so(objects, monkeypatch):
    store = metadata.Metadata(OBJECT, 'tiny')
    monkeypatch.setattr(stores, '_MAX_ATTEMPTS', 3)
    monkeypatch.setattr(stores, '_MAX_WAIT_SECONDS', 0)

    def change(_):  # while another writes
        upload(b'', store._store._generation or next(iter(objects.stored.values()), (0, b''))[0])
    with pytest.raises(UserError, match='3 attempts to write lineage met other writers; set LANDMARK_METADATA to mysql'):
        store._store.write(change)


@pytest.mark.parametrize('address, said', [
    ('s3://bucket/metadata.sqlite', 'lineage cannot lie in s3://, where writers may overwrite each other; set LANDMARK'),
    ('mysql://user:hunter2@host/database', 'LANDMARK_METADATA holds a password; leave it out'),
    ('mysql://host/database', 'it must have the form mysql://USER@HOST:PORT/DATABASE'),
    ('mysql://user@host:port/database', 'it must have the form'), ('mysql://user@host', 'it must have the form'),
    ('mysql://user@host/database?ssl=1', 'it must have the form'),
    ('mysql://user@127.0.0.1:1/database', 'the database does not answer or does not let this user in')])
def test_an_address_that_cannot_be_is_a_sentence_without_its_password(address, said, monkeypatch, capsys):
    monkeypatch.setenv(stores.ADDRESS, address)
    with pytest.raises(SystemExit) as left:
        lineage.main(['--raw', '0' * 64])
    error = capsys.readouterr().err
    assert left.value.code == 2 and said in error and 'hunter2' not in error


def test_a_password_comes_from_the_environment_or_a_file(tmp_path, monkeypatch):
    address = 'mysql://a%40b@host/database?ssl_ca=/ca.pem'
    monkeypatch.setenv(stores.PASSWORD, 'from the environment')
    config = stores.mysql_config(address)
    assert config.mysql.password == 'from the environment' and config.mysql.user == 'a@b'
    assert config.mysql.port == 3306 and config.mysql.ssl_options.ca == '/ca.pem'
    (tmp_path / 'password').write_text('from a file\n')
    monkeypatch.setenv(stores.PASSWORD_FILE, str(tmp_path / 'password'))
    assert stores.mysql_config(address).mysql.password == 'from a file'
    monkeypatch.setenv(stores.PASSWORD_FILE, str(tmp_path / 'none'))
    with pytest.raises(UserError, match=r'LANDMARK_METADATA_PASSWORD_FILE=.*none: No such file'):
        stores.mysql_config(address)


def test_pairs_of_stages_that_end_at_once_lose_nothing(store, tmp_path):
    found = metadata_sweep.sweep(str(tmp_path / 'root'), 4, 1, str(tmp_path / 'log'))
    assert found['wrong'] == [] and found['executions in lineage'] == found['stages'] == 8
