"""The same jobs on Prism, and on Flink with Beam's workers in processes of their own."""
import contextlib
import os
import pathlib
import time

import pytest

from support import beam_clusters
from support.commands import command, start

TEXT = ['--set', 'data.pairs_per_block=200', '--set', 'data.pairs_per_shard=1000']  # several blocks a shard, shards
KEEP_WORKERS = ['--environment_cache_millis', '60000']  # from one step to the next; each imports for seconds
pytestmark = pytest.mark.cluster


def home(engine: str) -> pathlib.Path:
    """Where `make` put an engine."""
    if not (path := os.environ.get(engine.upper())):
        pytest.skip(f'{engine.upper()} names no {engine.title()}; `make {engine}` fetches one')
    return pathlib.Path(path)


@contextlib.contextmanager
def prism(program: pathlib.Path, folder: pathlib.Path):
    yield beam_clusters.Cluster(['--runner', 'PrismRunner', '--prism_location', str(program)], None)


def examples(root: pathlib.Path) -> dict[str, bytes]:
    [folder] = root.glob('prepare/*/examples')
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob('*') if path.is_file()}


def prepare(root: pathlib.Path, *flags: str) -> dict[str, bytes]:
    done = command('pipelines.prepare', '--pipeline_root', str(root), *flags)
    assert done.returncode == 0, done.stdout + done.stderr
    print(done.stdout.splitlines()[-1])  # the rate
    return examples(root)


@pytest.mark.parametrize('engine, started, kept, demos', [
    ('prism', prism, [], ['demo_images']), ('flink', beam_clusters.flink, KEEP_WORKERS, ['demo_images', 'demo_tryon'])],
    ids=['prism', 'flink'])
def test_an_engine_writes_the_bytes_of_the_direct_runner(config_file, tmp_path, engine, started, kept, demos):
    with started(home(engine), tmp_path) as cluster:
        for name, chosen in [('text', ['--config', config_file, *TEXT]),
                             *((demo, ['--config', demo]) for demo in demos)]:
            made = prepare(tmp_path / name / engine, *chosen, *cluster.flags, *kept)
            assert made == prepare(tmp_path / name / 'direct', *chosen)
            assert 'manifest.json' in made


def test_flink_goes_on_after_a_worker_is_killed_while_it_writes(tmp_path):
    """The demo's 28,176 pairs are written for seconds."""
    with beam_clusters.flink(home('flink'), tmp_path) as cluster, \
            start('pipelines.prepare', '--pipeline_root', str(tmp_path / 'flink'), *cluster.flags,
                  *KEEP_WORKERS) as job:
        while not (killed := cluster.kill_a_worker_that_writes('Split-train')) and job.poll() is None:
            time.sleep(0.005)
        said = ''.join(job.communicate())
    assert killed and job.returncode == 0, said
    assert examples(tmp_path / 'flink') == prepare(tmp_path / 'direct')
