"""Kill a compiled pipeline at random moments, run it again: does all end as `pipelines.run` ends?

    python benchmarks/robustness/kubeflow_sweep.py --points 20 --out /tmp/sweep

The pipeline is the file of `pipelines.run --compile`. kfp's SubprocessRunner runs it here without Docker, each step in
processes of its own, of the same command as in a cluster. `pipelines.run` first does the same work in a root of its
own. Each point starts with an empty root, kills the whole process group at a moment drawn uniformly from the time of an
undisturbed pipeline, and runs the file again. Its outputs, file names and lineage are compared with those of
`pipelines.run`, as `kill_points.py` compares them.

Prints a table and writes it, with every point, as JSON; leaves with exit code 1 if any point ended otherwise. A point
takes 1.5 pipelines, 1 to 3 minutes.
"""
import argparse
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.robustness import kill_points  # noqa: E402

LOCALLY = """\
import sys
from kfp import components, local
file, root, work = sys.argv[1:]
local.init(local.SubprocessRunner(use_venv=False), pipeline_root=work)
components.load_component_from_file(file)(root=root)
"""


def compile_pipeline(config: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    """Compile the configuration's pipeline. Returns its file."""
    file = folder / 'pipeline.yaml'
    subprocess.run([sys.executable, '-W', 'ignore', '-m', 'pipelines.run', '--config', config, '--compile', file,
                    '--image', 'landmark', '--pipeline_root', folder / 'root'], cwd=ROOT, check=True)
    return file


def run(file: pathlib.Path, folder: pathlib.Path, kill_after: float | None = None) -> tuple[int, float]:
    """Run a compiled pipeline with the root `folder/root`, for at most some seconds.

    Returns:
      The exit code, and the seconds it took. What the steps printed is in `folder/said`.
    """
    begun = time.monotonic()
    child = kill_points.start([sys.executable, '-W', 'ignore', '-c', LOCALLY, str(file), str(folder / 'root'),
                               str(folder / 'kfp')], folder)
    try:
        code = child.wait(kill_after)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        code = child.wait()
    return code, time.monotonic() - begun


def outcome(root: pathlib.Path) -> dict[str, dict[str, str]]:
    """Return the results of all stages."""
    return {stage: kill_points.result(stage, root) for stage in kill_points.STAGES}


def lineage_is_whole(config: pathlib.Path, root: pathlib.Path) -> bool:
    """Return whether lineage has one completed run of each stage, of this configuration, and each read the former's."""
    from pipelines.core import config as configs
    from pipelines.core import pipeline
    found = pipeline.Pipeline(configs.load(str(config)), str(root), [])
    return found.finished('push') and all(len(found.metadata.completed(stage)) == 1 for stage in kill_points.STAGES)


def point(file: pathlib.Path, config: pathlib.Path, whole: pathlib.Path, folder: pathlib.Path, moment: float) -> dict:
    """Kill one pipeline and run it again."""
    for share in (1.0, 0.7, 0.4):  # the machine may be quicker now than it was
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        if killed := run(file, folder, share * moment)[0] == -signal.SIGKILL:
            break
    step = re.findall(r'Executing task \S*?\'([\w-]+)\'|(\w+): started\.', (folder / 'said').read_text())
    inside = bool(step and step[-1][1])
    found = {'moment': round(moment, 2), 'killed': killed, 'step': ''.join(step[-1]) if step else '', 'inside': inside,
             'finished': run(file, folder)[0] == 0, 'identical': False, 'lineage': False, 'still there': []}
    if found['finished']:
        more = kill_points.names(folder / 'root') - kill_points.names(whole / 'root')
        found |= {'identical': outcome(folder / 'root') == outcome(whole / 'root'), 'still there': sorted(more),
                  'lineage': lineage_is_whole(config, folder / 'root')}
    return found | {'good': found['identical'] and found['lineage'] and not found['still there']}


def table(points: list[dict]) -> str:
    rows = [('killed in', 'kills', 'while it worked', 'finished afterwards', 'identical', 'lineage whole')]
    for step in dict.fromkeys(each['step'].replace('-', '_') for each in points if each['killed']):
        of = [each for each in points if each['step'].replace('-', '_') == step and each['killed']]
        rows.append((step or 'no step', len(of), *(sum(bool(each[key]) for each in of) for key in (
            'inside', 'finished', 'identical', 'lineage'))))
    return '\n'.join(' | '.join(f'{cell:>{len(head)}}' for cell, head in zip(row, rows[0])) for row in rows)


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument('--points', type=int, default=20)
    flags.add_argument('--out', type=pathlib.Path, required=True, help='a new folder')
    flags.add_argument('--seed', type=int, default=0)
    args = flags.parse_args()
    os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
    out = args.out.resolve()
    (out / 'whole').mkdir(parents=True)
    (out / 'undisturbed').mkdir()
    kill_points.make_pairs(out / 'raw')
    config = out / 'kills.yaml'
    config.write_text(kill_points.CONFIG.format(folder=out / 'raw'))
    kill_points.finish('run', ['--config', str(config)], out / 'whole')
    file = compile_pipeline(config, out)
    code, seconds = run(file, out / 'undisturbed')
    same = code == 0 and outcome(out / 'undisturbed' / 'root') == outcome(out / 'whole' / 'root')
    print(f'undisturbed: {seconds:.1f} s, {"as" if same else "NOT as"} pipelines.run', flush=True)
    draw, points = random.Random(args.seed), []
    for number in range(args.points):
        folder = out / f'point-{number}'
        points.append(point(file, config, out / 'whole', folder, draw.uniform(0, seconds)))
        print(f'{number + 1} of {args.points}: {json.dumps(points[-1])}', flush=True)
        if points[-1]['good']:
            shutil.rmtree(folder)  # the others stay to be looked at
    (out / 'kubeflow_sweep.json').write_text(json.dumps({'undisturbed': seconds, 'points': points}, indent=1))
    print(table(points))
    sys.exit(not (same and all(each['good'] for each in points)))


if __name__ == '__main__':
    main()
