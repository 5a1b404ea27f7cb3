"""Stores of lineage: concurrent writers lose nothing, on a disk, in an object store and in a database."""
import contextlib
import os
import threading

import pytest
from google.api_core import exceptions
from google.cloud import storage

from benchmarks.robustness import metadata_sweep
from data_prep import UserError
from pipelines import lineage
from pipelines.core import metadata, stores
from support import commands, databases, object_server

OBJECT = 'gs://bucket/lineage/metadata.sqlite'


@pytest.fixture
def objects(monkeypatch):
    """An empty object store, which Google's client is led to."""
    with object_server.serving() as served:
        monkeypatch.setenv('STORAGE_EMULATOR_HOST', served.url)
        yield served


@pytest.fixture(scope='module')
def database(tmp_path_factory):
    if not databases.INSTALLED:
        pytest.skip('there is no MariaDB; apt-get install mariadb-server')
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


def test_writers_at_once_lose_nothing(store, tmp_path):
    """Each thread is a machine: it has a connection of its own, and of an object a copy of its own."""
    ids, errors, root = [], [], str(tmp_path)

    def write(first):
        try:
            mine = metadata.of_root(root, 'tiny')
            ids.extend((publish(mine, number), number) for number in range(first, first + 5))
        except Exception as error:
            errors.append(error)
    threads = [threading.Thread(target=write, args=[first]) for first in range(0, 20, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    found = {number: outputs['model'] for number, _, outputs in metadata.opened(root).completed('export')}
    assert {number: outputs.uri for number, outputs in found.items()} == {each: f'/{number}' for each, number in ids}
    assert len(found) == len({artifact.id for artifact in found.values()}) == 20


def test_two_machines_see_what_the_other_wrote_and_no_other_root(store, tmp_path):
    root, below = str(tmp_path / 'root'), str(tmp_path / 'root' / 'below')
    one, two, other = (metadata.of_root(folder, 'tiny') for folder in (root, root, below))
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
    assert metadata.roots() == [root, below]
    assert metadata.root_of(f'{below}/export/1/model') == below
    assert metadata.root_of(f'{root}/export/1') == root and metadata.root_of(str(tmp_path / 'elsewhere')) is None


def test_a_root_whose_lineage_lies_elsewhere_is_refused(tmp_path, monkeypatch):
    """Otherwise its stages would run again, and its versions would lead nowhere."""
    own, moved = str(tmp_path / 'own'), str(tmp_path / 'moved')
    publish(metadata.of_root(own, 'tiny'), 1)
    monkeypatch.setenv(stores.ADDRESS, str(tmp_path / 'shared.sqlite'))
    publish(metadata.of_root(moved, 'tiny'), 2)
    with pytest.raises(UserError, match=rf'{own} has its lineage in {own}/metadata.sqlite, not where LANDMARK_METADATA '
                                        r'says \(.*shared.sqlite\). Unset it, or'):
        metadata.of_root(own, 'tiny')
    monkeypatch.delenv(stores.ADDRESS)
    with pytest.raises(UserError, match=rf'{moved} has its lineage in .*shared.sqlite, .* Set it to .*shared.sqlite'):
        metadata.opened(moved)
    with pytest.raises(UserError, match='has no metadata.sqlite, so no record'):
        metadata.opened(str(tmp_path))


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


def test_a_writer_that_never_gets_through_is_a_sentence(objects, monkeypatch):
    store = metadata.Metadata(OBJECT, 'tiny')
    monkeypatch.setattr(stores, '_MAX_ATTEMPTS', 3)

    def change(_):  # while another writes
        upload(b'', next((each.generation for each in objects.stored.values()), 0))
    with pytest.raises(UserError, match='3 attempts to write lineage failed .*another writer was faster.*same'):
        store._store.write(change)
    objects.error = 403
    for use in (store._store.read, lambda: metadata.Metadata(OBJECT, 'tiny')):
        with pytest.raises(UserError, match='gs://bucket/lineage.*refused a request.*403.*Check that the'):
            use()


@pytest.mark.parametrize('address, said', [
    ('s3://bucket/metadata.sqlite', 'lineage cannot lie in s3://, where one writer can overwrite another. Set LAND'),
    ('mysql://user:hunter2@host/database', 'LANDMARK_METADATA holds a password. Leave it out'),
    ('mysql://host/database', 'this is not an address of the form mysql://USER@HOST:PORT/DATABASE'),
    ('mysql://user@host:port/database', 'this is not an address'), ('mysql://user@host', 'this is not an address'),
    ('mysql://user@host/database?ssl=1', 'this is not an address'),
    ('mysql://user@127.0.0.1:1/database', 'the database does not answer, or refuses this user')])
def test_an_address_that_cannot_be_is_a_sentence_without_the_password(address, said, monkeypatch, capfd):
    monkeypatch.setenv(stores.ADDRESS, address)
    monkeypatch.setenv(stores.PASSWORD, 'hunter2')
    with pytest.raises(SystemExit) as left:
        lineage.main(['--raw', '0' * 64])
    out, error = capfd.readouterr()
    assert left.value.code == 2 and said in error and 'hunter2' not in out + error and error.count('\n') == 1


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
    with pytest.raises(UserError, match=r'LANDMARK_METADATA_PASSWORD_FILE=.*none: No such file.* Name a file'):
        stores.mysql_config(address)


@pytest.mark.cluster
def test_pairs_of_stages_that_end_at_once_lose_nothing(store, tmp_path):
    found = metadata_sweep.sweep(str(tmp_path / 'root'), 4, 1, str(tmp_path / 'log'))
    assert found['wrong'] == [] and found['executions in lineage'] == found['stages'] == 8


@pytest.mark.cluster
def test_processes_that_open_an_empty_database_at_once_make_one_store(database, tmp_path, monkeypatch):
    """ML Metadata refuses a database whose tables another process is creating."""
    monkeypatch.setenv(stores.ADDRESS, database.create())
    monkeypatch.setenv(stores.PASSWORD, database.password)
    children = []
    for number in range(4):
        if not (child := os.fork()):
            with contextlib.suppress(BaseException):
                publish(metadata.of_root(str(tmp_path), 'tiny'), number)
                os._exit(0)
            os._exit(1)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
    assert len(metadata.opened(str(tmp_path)).completed('export')) == 4


@pytest.mark.cluster
def test_a_database_that_refuses_for_a_while_is_waited_for(database, tmp_path, monkeypatch):
    monkeypatch.setenv(stores.ADDRESS, database.create())
    monkeypatch.setenv(stores.PASSWORD, database.password)
    store = metadata.of_root(str(tmp_path), 'tiny')
    database.let_in(False)
    opening = threading.Timer(1, database.let_in, [True])
    opening.start()
    publish(store, 1)
    opening.join()
    assert len(store.completed('export')) == 1
    database.let_in(False)
    monkeypatch.setattr(stores, '_MAX_ATTEMPTS', 2)
    with pytest.raises(UserError, match='2 attempts to write lineage failed .*the database does not answer'):
        publish(store, 2)
    database.let_in(True)


@pytest.mark.cluster
def test_a_whole_run_with_its_lineage_in_a_database_writes_the_password_nowhere(config_file, database, tmp_path):
    address = database.create()
    env = commands.environment(**{stores.ADDRESS: address, stores.PASSWORD: database.password})
    run = ('pipelines.run', '--config', config_file, '--pipeline_root', 'root')
    first, explained = (commands.command(*run, *more, cwd=tmp_path, env=env) for more in ([], ['--explain']))
    assert (first.returncode, explained.returncode) == (0, 0), first.stderr
    assert address in first.stdout
    written = [path.read_bytes() for path in tmp_path.rglob('*') if path.is_file()]
    printed = [text for child in (first, explained) for text in (child.stdout, child.stderr)]
    rows = database.dump(address)
    assert 'PushedModel' in rows and len(written) > 20
    assert not any(database.password.encode() in each for each in [*written, *map(str.encode, [rows, *printed])])
