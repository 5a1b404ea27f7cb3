"""Lineage under fire: pairs of stages of two pipelines on one root that end at once, and kills between.

    python benchmarks/robustness/metadata_sweep.py --out /tmp/sweep                          # SQLite on a disk
    LANDMARK_METADATA=gs://BUCKET/metadata.sqlite python benchmarks/robustness/metadata_sweep.py --out /tmp/sweep
    LANDMARK_METADATA=mysql://USER@HOST/DATABASE python benchmarks/robustness/metadata_sweep.py --out /tmp/sweep

Without a bucket, fake-gcs-server keeps generations, too, and STORAGE_EMULATOR_HOST names it:

    go install github.com/fsouza/fake-gcs-server@latest
    fake-gcs-server -scheme http -port 4443 -backend memory

Each pair is an `evaluate` and an `infra_validate` in processes of their own, as on two machines: nothing is shared but
the root and the store. They wait for each other at their last step, so that both publish at once; in half of the pairs
one or both are killed at a random moment of their end, and run again after the last pair.

Leaves with exit code 1 if a run that nobody killed failed, if anything that a run reported is missing from lineage or
other than reported, if two runs got one number, or if a run that was killed could not be made again.
"""
import argparse
import collections
import json
import os
import pathlib
import random
import signal
import sys
import time
import traceback

ROOT = pathlib.Path(__file__).resolve().parents[2]
OUTPUTS = {'evaluate': {'evaluation': 'ModelEvaluation', 'blessing': 'ModelBlessing'},
           'infra_validate': {'infra_blessing': 'InfraBlessing'}}


def run(root: str, number: int, name: str, meet=lambda: None) -> tuple[dict, bool]:
    """Run one stage that writes a text of its own.

    Returns:
      Its outputs as lineage must show them, and whether it was skipped because lineage has them already.
    """
    import tensorflow as tf

    from pipelines.core import config
    from pipelines.core.pipeline import Pipeline
    from pipelines.core.stage import Stage

    def execute(context):
        for key, folder in context.outputs.items():
            with tf.io.gfile.GFile(os.path.join(folder, 'file'), 'w') as file:
                file.write(f'{name} {number} {key}')
        context.properties['number'] = number
        meet()
    pipeline = Pipeline(config.load(None, [f'name=sweep_{number % 2}']), root, [])
    stage = Stage(name, execute, (), OUTPUTS[name], (), extra_inputs=lambda _: {'number': number})
    outputs = {key: [artifact.id, artifact.uri, artifact.digest] for key, artifact in pipeline.run(stage).items()}
    return outputs, bool(pipeline.skipped)


class Child:
    """A stage in a fork of this process. It reports its last step, and waits there for a signal."""

    def __init__(self, root: str, number: int, name: str, log: str):
        self.work, self.outputs, self.code = (number, name), {}, None
        come, self._here = os.pipe()
        result, self._result = os.pipe()
        go, self._go = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            code = 1
            try:
                for stream in (1, 2):
                    os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), stream)

                def meet():
                    os.write(self._here, b'.')
                    os.read(go, 1)
                os.write(self._result, json.dumps(run(root, number, name, meet)[0]).encode())
                code = 0
            except Exception:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(code)
        for end in (self._here, self._result, go):
            os.close(end)
        self._come, self._result = come, result

    def wait_for_last_step(self) -> None:
        os.read(self._come, 1)

    def let_end(self) -> None:
        os.write(self._go, b'.')

    def wait(self) -> None:
        with open(self._result, 'rb') as file:
            found = file.read()
        self.outputs = json.loads(found) if found else {}
        self.code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        for end in (self._come, self._go):
            os.close(end)

    @property
    def killed(self) -> bool:
        return self.code == -signal.SIGKILL


def pair(root: str, number: int, draw: random.Random, log: str, seconds: float) -> tuple[list[Child], float]:
    """Run two stages that end at once; in half of the pairs, kill one or both within `seconds` of their last step.

    Returns:
      The stages, and the seconds from their last step to their end.
    """
    children = [Child(root, number, name, log) for name in OUTPUTS]
    for child in children:
        child.wait_for_last_step()
    victims = draw.choices([[], children[:1], children[1:], children], [3, 1, 1, 1])[0]
    for child in children:
        child.let_end()
    started = time.monotonic()
    for child in victims:
        time.sleep(draw.uniform(0, seconds / len(victims)))
        os.kill(child.pid, signal.SIGKILL)
    for child in children:
        child.wait()
    return children, time.monotonic() - started


def lost(root: str, reported: dict[tuple[int, str], dict]) -> list[str]:
    """Return what lineage lacks, or has otherwise than it was reported."""
    from pipelines.core import artifacts, metadata
    store, wrong = metadata.opened(root), []
    found = collections.defaultdict(list)
    for key in ('evaluation', 'infra_blessing'):
        for execution in store.executions(key):
            found[execution.properties['number'], execution.stage].append(
                {key: [each.id, each.uri, each.digest] for key, each in execution.outputs.items()})
    for work, outputs in reported.items():
        if found[work] != [outputs]:
            wrong.append(f'{work}: {outputs} was reported, lineage has {found[work]}')
        wrong += [f'{uri} is not what was recorded' for _, uri, digest in outputs.values()
                  if not os.path.isdir(uri) or artifacts.digest(uri) != digest]
    ids = [artifact for outputs in reported.values() for artifact, _, _ in outputs.values()]
    wrong += [f'artifact {each} is of two runs' for each, n in collections.Counter(ids).items() if n > 1]
    return wrong


def sweep(root: str, pairs: int, seed: int, log: str) -> dict:
    """Run pairs of stages. Return counts of what was done, and what went wrong."""
    draw, counts, wrong = random.Random(seed), collections.Counter[str](), []
    reported: dict[tuple[int, str], dict] = {}
    killed, seconds = [], 0.0
    for number in range(pairs):
        children, took = pair(root, number, draw, log, seconds)
        if not any(child.killed for child in children):
            seconds = took
        for child in children:
            counts['stages'] += 1
            if child.killed:
                killed.append(child.work)
            elif child.code:
                wrong.append(f'{child.work} left with {child.code}; see {log}')
            if child.outputs:
                reported[child.work] = child.outputs
    for number, name in killed:
        again, skipped = run(root, number, name)
        counts['killed after their record' if skipped else 'killed before their record'] += 1
        if reported.setdefault((number, name), again) != again:
            wrong.append(f'{(number, name)} was reported and made again')
    counts['executions in lineage'] = len(reported)
    return {**counts, 'seconds to end': round(seconds, 3), 'wrong': wrong + lost(root, reported)}


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument('--out', type=pathlib.Path, required=True, help='a new folder')
    flags.add_argument('--pairs', type=int, default=200)
    flags.add_argument('--seed', type=int, default=1)
    args = flags.parse_args()
    os.environ.update(TF_CPP_MIN_LOG_LEVEL='3', CUDA_VISIBLE_DEVICES='')
    sys.path.insert(0, str(ROOT))
    from pipelines.core import cli, pipeline  # noqa: F401 (imported once for all forks)
    cli.prepare_libraries()
    args.out.mkdir(parents=True)
    found = sweep(str(args.out / 'root'), args.pairs, args.seed, str(args.out / 'stages.log'))
    (args.out / 'metadata_sweep.json').write_text(json.dumps(found, indent=1))
    for key, value in found.items():
        print(f'{key:34} {value if value != [] else "nothing"}')
    sys.exit(bool(found['wrong']))


if __name__ == '__main__':
    main()
