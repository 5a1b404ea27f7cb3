"""The same jobs on Prism, and on Flink and Spark with two hosts, Beam's workers in processes of their own."""
import os
import pathlib
import shutil
import time

import pytest

from support import beam_clusters
from support.beam_clusters import examples
from support.commands import command, start

KINDS = {'images': ['--config', 'demo_images'],
         'try-on': ['--config', 'demo_tryon', '--set', 'data.samples_count=[60, 6]']}
# Each imports for seconds. With this, Spark gives a repeated step the worker that died: none is to be killed then.
KEEP_WORKERS = ['--environment_cache_millis', '60000']
ENGINES = [('prism', []), ('flink', KEEP_WORKERS), ('spark', KEEP_WORKERS)]
pytestmark = pytest.mark.cluster


def home(engine: str) -> pathlib.Path:
    """Where `make` put an engine."""
    if not (path := os.environ.get(engine.upper())):
        pytest.skip(f'{engine.upper()} names no {engine.title()}; `make {engine}` fetches one')
    if engine != 'prism' and (os.geteuid() or not shutil.which('ip')):
        pytest.skip('only root can make the hosts, with iproute2')
    return pathlib.Path(path)


def prepare(root: pathlib.Path, *flags: str) -> dict[str, bytes]:
    # Beam stops its Prism when an interpreter ends, which a forked command does not do.
    done = command('pipelines.prepare', '--pipeline_root', str(root), *flags, new_process=True)
    assert done.returncode == 0, done.stdout + done.stderr
    print(done.stdout.splitlines()[-1])  # the rate
    return examples(root)


@pytest.mark.parametrize('engine, kept', ENGINES, ids=[name for name, _ in ENGINES])
def test_an_engine_writes_the_bytes_of_the_direct_runner(config_file, tmp_path, engine, kept):
    blocks = ['--set', 'data.pairs_per_block=200', '--set', 'data.pairs_per_shard=1000']  # several a shard, and shards
    with getattr(beam_clusters, engine)(home(engine), tmp_path) as cluster:
        for kind, chosen in {'text': ['--config', config_file, *blocks], **KINDS}.items():
            made = prepare(tmp_path / kind / engine, *chosen, *cluster.flags, *kept)
            assert made == prepare(tmp_path / kind / 'direct', *chosen)
            assert 'manifest.json' in made


@pytest.mark.parametrize('engine, kept', [('flink', KEEP_WORKERS), ('spark', [])], ids=['flink', 'spark'])
def test_an_engine_goes_on_after_a_worker_is_killed_while_it_writes(tmp_path, engine, kept):
    """The demo's 28,176 pairs are written for seconds."""
    with getattr(beam_clusters, engine)(home(engine), tmp_path) as cluster, \
            start('pipelines.prepare', '--pipeline_root', str(tmp_path / engine), *cluster.flags, *kept) as job:
        while not (killed := cluster.kill_a_worker_that_writes('Split-train')) and job.poll() is None:
            time.sleep(0.005)
        said = ''.join(job.communicate())
    assert killed and job.returncode == 0, said
    assert examples(tmp_path / engine) == prepare(tmp_path / 'direct')
