"""Runs of an item go side by side, each on its share of the cores, and wait for what they need."""
import json
import os
import threading
from concurrent import futures

import pytest

from data_prep import UserError
from pipelines.core import children
from pipelines.reproduction import experiments, running
from support.commands import command
from support.forked_stages import fork_stages

ITEM = '''
title: Two rates
source: a test
stages: [prepare, train]
scales:
  small: {config: demo_images, seeds: [1, 2], time: 1 min,
          set: [train.steps=4, train.validate_every=4, train.checkpoint_every=4, input.rows=16]}
settings:
  usual: {}
  no rate: {set: [model.learning_rate=1e-9]}
  goes on: {set: ['train.init_from={run: usual}']}
  the same: {set: ['evaluate.slices=[]']}
measures:
  error: {metric: top1_error, take: averaged}
'''


class Stages:
    """Stand in for pipelines and processes: what was finished, in which order, and what ran beside what."""

    def __init__(self, jobs: int):
        self.finished, self.order, self.beside = set(), [], set()
        self._running, self._both = set(), threading.Barrier(jobs)

    def pipeline(self, config, root, argv, flags):
        return Pipeline(self, config)

    def run(self, command, title, beside_others):
        work = tuple(json.loads(command))
        assert work not in self._running | self.finished, 'twice'
        self._running.add(work)
        if work[0] == 'train' and work[1] != 'goes on':
            self._both.wait(60)  # breaks if nothing runs beside it
        self.beside |= {(work, other) for other in self._running - {work}}
        self.order.append((title, work))
        self._running.remove(work)
        self.finished.add(work)


class Pipeline:
    """The part of a pipeline that the runs use; `the same` is trained as `usual` is."""

    def __init__(self, stages: Stages, config):
        self._stages, self._seed = stages, config.seed
        self._net = ('no rate' if config.model.learning_rate < 1e-8 else
                     'goes on' if config.train.init_from else 'usual')

    def work(self, name):
        return name, *((self._net, self._seed) if name == 'train' else ())

    def finished(self, name):
        return self.work(name) in self._stages.finished

    def full_command(self, name):
        return json.dumps(self.work(name))

    def outputs(self, name):
        assert self.finished(name), 'read too early'
        return {'model_run': type('ModelRun', (), {'uri': 'earlier'})}

    def perform(self, name, title):
        assert self.finished(name), f'{title} was left out'


def test_independent_runs_go_side_by_side_and_shared_work_is_done_once(tmp_path, monkeypatch):
    (tmp_path / 'rates.yaml').write_text(ITEM)
    stages = Stages(jobs=2)
    monkeypatch.setattr(running, 'Pipeline', stages.pipeline)
    monkeypatch.setattr(children, 'run', stages.run)
    found = running.run(experiments.load(str(tmp_path / 'rates.yaml')), 'small', '', str(tmp_path), [], jobs=2)
    assert [(run.setting, run.seed) for run in found] == [
        (setting, seed) for setting in ('usual', 'no rate', 'goes on', 'the same') for seed in (1, 2)]
    works = [work for _, work in stages.order]
    assert works[0] == ('prepare',) and works.count(('prepare',)) == 1
    assert {*works[1:]} == {('train', net, seed) for net in ('usual', 'no rate', 'goes on') for seed in (1, 2)}
    assert len(works) == 7
    assert all(works.index(('train', 'usual', seed)) < works.index(('train', 'goes on', seed)) for seed in (1, 2))


def test_a_failure_ends_the_item_when_what_runs_beside_it_has_ended(tmp_path, monkeypatch):
    (tmp_path / 'rates.yaml').write_text(ITEM)
    stages, both, ended = Stages(jobs=1), threading.Barrier(2), []

    def run(command, title, beside_others):
        if command.startswith('["train", "usual"'):
            both.wait(60)
            if 'seed 2' in title:
                raise SystemExit(2)
        stages.finished.add(tuple(json.loads(command)))
        ended.append(title)
    monkeypatch.setattr(running, 'Pipeline', stages.pipeline)
    monkeypatch.setattr(children, 'run', run)
    with pytest.raises(SystemExit) as failed:
        running.run(experiments.load(str(tmp_path / 'rates.yaml')), 'small', '', str(tmp_path), [], jobs=2)
    assert failed.value.code == 2 and 'usual, seed 1' in ended[1:]


def test_cores_are_divided_among_jobs():
    mine = sorted(os.sched_getaffinity(0))
    assert children.shares(1) == [mine]
    assert sorted(core for share in children.shares(len(mine)) for core in share) == mine
    assert all(len(share) == 1 and share[0] in mine for share in children.shares(len(mine) + 3))
    with futures.ThreadPoolExecutor(1, initializer=children.confine, initargs=[children.shares(len(mine))]) as pool:
        confined = pool.submit(os.sched_getaffinity, 0).result()
    assert confined == {mine[-1]} and os.sched_getaffinity(0) == {*mine}


def test_a_process_says_which_run_it_is_of(capfd):
    children.run('python -c "import sys; print(1); print(2, file=sys.stderr)"', 'usual, seed 1', True)
    assert sorted(capfd.readouterr().out.splitlines()[1:]) == ['[usual, seed 1] 1', '[usual, seed 1] 2']
    children.run('python -c "print(3)"', 'usual, seed 1')
    assert capfd.readouterr().out.splitlines() == ['[usual, seed 1] python -c "print(3)"', '3']


@pytest.mark.parametrize('beside_others', [False, True])
def test_a_process_that_fails_is_told(beside_others):
    with pytest.raises(SystemExit) as failed:
        children.run('python -c "raise SystemExit(3)"', 'a', beside_others)
    assert failed.value.code == 3
    with pytest.raises(UserError, match='was ended by SIGKILL. If memory was short'):
        children.run('python -c "import os; os.kill(os.getpid(), 9)"', 'a', beside_others)


@pytest.mark.slow
def test_side_by_side_the_numbers_are_the_same(tmp_path):
    """Starts seven processes that import TensorFlow, two at a time; then forks as many, one at a time."""
    (tmp_path / 'ours').mkdir()
    (tmp_path / 'ours' / 'rates.yaml').write_text(ITEM)
    tables = []
    for jobs, before in (('2', None), ('1', fork_stages)):
        done = command('pipelines.reproduce', 'ours/rates.yaml', '--out', f'jobs_{jobs}', '--jobs', jobs, cwd=tmp_path,
                       before=before)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count('prepare: started') == 1 and done.stdout.count('train: started') == 6
        assert ('[no rate, seed 2] train: started' in done.stdout) == (jobs == '2')
        tables.append(json.loads((tmp_path / f'jobs_{jobs}' / 'ours' / 'rates' / 'found.json').read_text())['table'])
    for setting, row in tables[0].items():
        assert row['error'] == pytest.approx(tables[1][setting]['error'], abs=0.01)  # sums of one thread and of two


def test_no_jobs_are_refused(tmp_path):
    done = command('pipelines.reproduce', 'alexnet/fig2', '--jobs', '0', cwd=tmp_path)
    assert done.returncode == 2 and '--jobs must be 1 or more; it is 0' in done.stderr
