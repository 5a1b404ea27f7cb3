"""Four workers as four hosts that lose each other: does every training end as an undisturbed one?

    python benchmarks/robustness/hosts_sweep.py --out /tmp/hosts      # as root, who may make network namespaces

Each worker has a network namespace and an address of its own on one bridge; they share nothing but the disk. One
training runs undisturbed, and one in a single process. In the others a link is slow, or down for a while, or a host is
killed or preempted, each in the middle of the training; or all hosts reach each other through a fifth, which delays
and loses what it forwards, or cuts all connections (`bad_link.py`). If a worker then ends, all are started again, as a
cluster does. Prints a row for each and writes them as JSON; leaves with exit code 1 if weights differ from the
undisturbed training's, or losses from the single process's by over 1e-4. Takes 15 to 25 minutes on two cores.
`--only NAME` runs one disturbance beside the undisturbed training.
"""
import argparse
import contextlib
import dataclasses
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.robustness import hosts, kill_points  # noqa: E402

HOSTS = 4
LINK = HOSTS  # the host that forwards
PORT = 2222  # of every worker; the link forwards PORT + host to it
SETTINGS = ['model.P_drop=0', 'train.log_every=1', 'train.checkpoint_every=10', 'train.validate_every=30']
FLAGS = [word for setting in SETTINGS for word in ('--set', setting)]
SLOW = '2mbit'  # then a step waits for its gradients
CLOSE = 1e-4  # losses of 60 steps; four workers add in another order than one process
LONGEST = 400  # seconds until a training that hangs is killed


@contextlib.contextmanager
def bad_link(flags: tuple[str, ...], said: pathlib.Path) -> Iterator[subprocess.Popen | None]:
    """Run the host that forwards, if there are flags for it; what it says at its end is appended to a file."""
    if not flags:
        yield None
        return
    routes = [f'{PORT + host}={hosts.address(host)}:{PORT}' for host in range(HOSTS)]
    forwarding = hosts.on(LINK, sys.executable, '-m', 'benchmarks.robustness.bad_link', *flags, *routes)
    with subprocess.Popen(forwarding, cwd=ROOT, stdout=subprocess.PIPE, text=True) as link:
        assert link.stdout and link.stdout.readline() == 'ready\n'
        try:
            yield link
        finally:
            link.terminate()
            with open(said, 'a') as file:
                file.write(link.stdout.read())


class Training:
    """All workers of one training, in namespaces of their own.

    Args:
      folder: of what they say and of the root `root`.
      config: the configuration's file.
      link: the host through which they reach each other, if they do.
    """

    def __init__(self, folder: pathlib.Path, config: str, link: subprocess.Popen | None):
        self.folder, self.workers, self.link = folder, [], link
        for host in range(HOSTS):
            addresses = [f'{hosts.address(LINK)}:{PORT + other}' if link and other != host else
                         f'{hosts.address(other)}:{PORT}' for other in range(HOSTS)]
            place = json.dumps({'cluster': {'worker': addresses}, 'task': {'type': 'worker', 'index': host}})
            with open(folder / f'said-{host}', 'a') as said:
                self.workers.append(subprocess.Popen(
                    hosts.on(host, *command('train', config), '--strategy', 'multi_worker_mirrored'), cwd=folder,
                    stdout=said, stderr=said, start_new_session=True,
                    env=environment(TF_CONFIG=place, TF_NUM_INTRAOP_THREADS='1')))

    def said(self) -> str:
        return (self.folder / 'said-0').read_text()

    def until(self, text: str) -> None:
        """Wait until the chief says something."""
        while text not in self.said() and self.workers[0].poll() is None:
            time.sleep(0.05)

    def codes(self) -> list[int]:
        """Wait for all workers; those that hang are killed."""
        deadline = time.monotonic() + LONGEST
        for worker in self.workers:
            with contextlib.suppress(subprocess.TimeoutExpired):
                worker.wait(max(1.0, deadline - time.monotonic()))
        for worker in self.workers:
            if worker.poll() is None:
                os.killpg(worker.pid, signal.SIGKILL)
        return [worker.wait() for worker in self.workers]


def command(stage: str, config: str) -> list[str]:
    return [sys.executable, '-W', 'ignore', '-m', f'pipelines.{stage}', '--pipeline_root', 'root', '--config', config,
            *FLAGS]


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, 'PYTHONPATH': str(ROOT), 'CUDA_VISIBLE_DEVICES': '', **more}


def cut_off(host: int, seconds: float) -> None:
    hosts.run('ip', 'link', 'set', hosts.link(host), 'down')
    time.sleep(seconds)
    hosts.run('ip', 'link', 'set', hosts.link(host), 'up')


def slow_down(training: Training, host: int) -> None:
    shape = ('dev', hosts.link(host), 'root')
    hosts.run('tc', 'qdisc', 'add', *shape, 'tbf', 'rate', SLOW, 'burst', '32kbit', 'latency', '400ms')
    training.codes()
    hosts.run('tc', 'qdisc', 'delete', *shape)


def end(training: Training, host: int, by: signal.Signals) -> None:
    os.killpg(training.workers[host].pid, by)


def cut_connections(training: Training) -> None:
    assert training.link
    training.link.send_signal(signal.SIGUSR1)


@dataclasses.dataclass(frozen=True)
class Disturbance:
    """Disturbance of a training: an act in its middle, or a link that is bad all the time, given by its flags."""
    act: Callable[[Training], None] = lambda training: None
    link: tuple[str, ...] = ()


UNDISTURBED = 'undisturbed'
DISTURBANCES = {
    UNDISTURBED: Disturbance(),
    f'a host at {SLOW}': Disturbance(lambda training: slow_down(training, 2)),
    'a host cut off for 2 s': Disturbance(lambda training: cut_off(2, 2)),
    'a host cut off for 60 s': Disturbance(lambda training: cut_off(2, 60)),
    'the chief cut off for 60 s': Disturbance(lambda training: cut_off(0, 60)),
    'a host killed': Disturbance(lambda training: end(training, 3, signal.SIGKILL)),
    'the chief killed': Disturbance(lambda training: end(training, 0, signal.SIGKILL)),
    'a host preempted': Disturbance(lambda training: end(training, 1, signal.SIGTERM)),
    'hosts 20 ms apart': Disturbance(link=('--delay', '0.02')),
    'one chunk in a hundred lost': Disturbance(link=('--delay', '0.001', '--loss', '0.01')),
    'all connections cut': Disturbance(cut_connections, ('--delay', '0.001'))}


def train(folder: pathlib.Path, prepared: pathlib.Path, config: str, disturbance: Disturbance) -> list[list[int]]:
    """Train with one disturbance, then again until all workers end well. Returns the exit codes of each start."""
    shutil.copytree(prepared, folder / 'root')
    with bad_link(disturbance.link, folder / 'said-by-the-link') as link:
        training = Training(folder, config, link)
        training.until('step 25/')
        disturbance.act(training)
        codes = [training.codes()]
        while any(codes[-1]) and len(codes) < 4:
            codes.append(Training(folder, config, link).codes())
    return codes


def outcome(root: pathlib.Path) -> dict[str, str]:
    return kill_points.result('train', root)


def losses(root: pathlib.Path) -> dict[str, dict[int, float]]:
    from pipelines.reporting import report
    [events] = root.glob('train/[0-9]*/model_run/tensorboard')
    return {tag: dict(points) for tag, points in report.curves(str(events)).items() if tag.endswith('loss')}


def difference(one: dict, other: dict) -> float:
    """Return the largest difference of two trainings' losses at the same steps."""
    assert {tag: [*points] for tag, points in one.items()} == {tag: [*points] for tag, points in other.items()}
    return max(abs(one[tag][step] - other[tag][step]) for tag in one for step in one[tag])


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument('--out', type=pathlib.Path, required=True, help='a new folder')
    flags.add_argument('--only', choices=[*DISTURBANCES], metavar='NAME', help='one disturbance')
    args = flags.parse_args()
    out = args.out.resolve()
    os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
    (out / 'alone').mkdir(parents=True)
    kill_points.make_pairs(out / 'raw')
    config = str(out / 'kills.yaml')
    pathlib.Path(config).write_text(kill_points.CONFIG.format(folder=out / 'raw'))
    for stage in ('prepare', 'train'):
        subprocess.run(command(stage, config), cwd=out / 'alone', env=environment(), check=True,
                       stdout=subprocess.DEVNULL)
        if stage == 'prepare':
            shutil.copytree(out / 'alone' / 'root', out / 'prepared')
    alone, rows = losses(out / 'alone' / 'root'), []
    with hosts.network(HOSTS + 1):  # and the link
        for name, disturbance in DISTURBANCES.items():
            if args.only and name not in (UNDISTURBED, args.only):
                continue
            folder = out / name.replace(' ', '-')
            folder.mkdir()
            begun = time.monotonic()
            codes = train(folder, out / 'prepared', config, disturbance)
            row = {'disturbance': name, 'exit codes': codes, 'seconds': round(time.monotonic() - begun),
                   'identical': False}
            if not any(codes[-1]):
                found = outcome(folder / 'root')
                row |= {'identical': found == outcome(out / UNDISTURBED / 'root'),
                        'loss': difference(losses(folder / 'root'), alone)}
            rows.append(row)
            print(json.dumps(row), flush=True)
    (out / 'hosts_sweep.json').write_text(json.dumps(rows, indent=1))
    sys.exit(not all(row['identical'] and row['loss'] <= CLOSE for row in rows))


if __name__ == '__main__':
    main()
