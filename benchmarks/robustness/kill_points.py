"""SIGKILL at random moments of every stage, then the same command again: does all end as if nothing had happened?

    python benchmarks/robustness/kill_points.py --points 60 --out /tmp/kills
    python benchmarks/robustness/kill_points.py --points 20 --calls --stages train --out /tmp/kills
    python benchmarks/robustness/kill_points.py --points 30 --config demo_images --set train.steps=60 --out /tmp/images

First every stage runs once in a root of its own, undisturbed. Each point then starts from a copy of the root as it was
before its stage, kills the whole process group at a moment drawn uniformly from the time that stage worked (from its
`started.` on: before that it has only imported), starts the same command again and waits for its end. What the stage
left is compared with what the undisturbed run left, file names too. With --calls, training is also killed (by strace)
at every call of the main thread that changes the file system while its second checkpoint is saved.

Prints a table and writes it, with every point, as JSON; leaves with exit code 1 if any point ended otherwise. Flags not
listed are the commands' own. A point takes two starts of a command, about half a minute on a free machine.
"""
import argparse
import collections
import hashlib
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
STAGES = ('prepare', 'train', 'export', 'evaluate', 'infra_validate', 'push')
CALLS = 'write,pwrite64,ftruncate,mkdir,rename,unlink,rmdir'
DIGITS = 'null eins zwei drei vier fünf sechs sieben acht neun'.split()
CONFIG = """\
name: kills
data: {{module: data_prep.wmt, folder: {folder}, train: [train.tsv], validation: [validation.tsv], test: [test.tsv],
       vocab_size: 60}}
input: {{buckets: [16], tokens: 512}}
model: {{module: keras_models.transformer, N: 1, d_model: 32, d_ff: 64, h: 2, warmup_steps: 60}}
inference: {{extra_length: 8, max_input_length: 24}}
train: {{steps: 60, log_every: 5, checkpoint_every: 5, validate_every: 15, average_checkpoints: 3}}
evaluate: {{batch_size: 16, slices: [kind], thresholds: {{bleu: {{min: 0}}}}}}
"""


def make_pairs(folder: pathlib.Path) -> None:
    """Digits in figures and in German words, of two kinds."""
    folder.mkdir()
    draw = random.Random(0)
    for split, count in (('train', 1500), ('validation', 40), ('test', 40)):
        with open(folder / f'{split}.tsv', 'w', encoding='utf-8') as file:
            for _ in range(count):
                digits = draw.choices(range(10), k=draw.randint(1, 7))
                file.write(f'{" ".join(map(str, digits))}\t{" ".join(DIGITS[digit] for digit in digits)}\t'
                           f'{"long" if len(digits) > 3 else "short"}\n')


def command(stage: str, flags: list[str]) -> list[str]:
    return [sys.executable, '-W', 'ignore', '-m', f'pipelines.{stage}', '--pipeline_root', 'root', *flags]


def start(arguments: list[str], folder: pathlib.Path) -> subprocess.Popen:
    with open(folder / 'said', 'w') as said:
        return subprocess.Popen(arguments, cwd=folder, stdout=said, stderr=said, start_new_session=True, env={
            **os.environ, 'PYTHONPATH': str(ROOT), 'CUDA_VISIBLE_DEVICES': ''})


def until_started(child: subprocess.Popen, folder: pathlib.Path) -> float:
    """When the stage announced its start, or ended without."""
    while child.poll() is None and ': started.' not in (folder / 'said').read_text():
        time.sleep(0.02)
    return time.monotonic()


def finish(stage: str, flags: list[str], folder: pathlib.Path) -> tuple[str, float]:
    """Run a stage to its end. Returns what it printed, and the seconds it worked."""
    child = start(command(stage, flags), folder)
    begun = until_started(child, folder)
    code, printed = child.wait(), (folder / 'said').read_text()
    if code:
        raise RuntimeError(f'{stage} left with exit code {code}: {printed.strip()[-500:]}')
    return printed, time.monotonic() - begun


def kill_after(seconds: float, stage: str, flags: list[str], folder: pathlib.Path) -> bool:
    """Start a stage and kill its process group the given time after its start. False: it had already finished."""
    child = start(command(stage, flags), folder)
    until_started(child, folder)
    try:
        child.wait(seconds)
        return False
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        return True


def kill_at(call: str, number: int, stage: str, flags: list[str], folder: pathlib.Path) -> bool:
    """Start a stage and kill it at its main thread's n-th call of one name; return whether it was killed."""
    return start(['strace', '-o', os.devnull, '-e', call, '-e', f'inject={call}:signal=SIGKILL:when={number}',
                  *command(stage, flags)], folder).wait() == -signal.SIGKILL


def calls_of_a_checkpoint(flags: list[str], folder: pathlib.Path) -> list[tuple[str, int]]:
    """Return the calls that save the second checkpoint, each with the main thread's calls of its name until then."""
    log = folder / 'strace'
    start(['strace', '-y', '-s', '0', '-o', str(log), '-e', CALLS, *command('train', flags)], folder).wait()
    counts: collections.Counter = collections.Counter()
    saves: dict[str, list[tuple[str, int]]] = {}
    for call, rest in re.findall(r'^(\w+)\((.*)', log.read_text(), re.MULTILINE):
        counts[call] += 1
        if checkpoint := re.search(r'/checkpoints/(ckpt-[0-9]+)', rest):
            saves.setdefault(checkpoint[1], []).append((call, counts[call]))
    return list(saves.values())[1]


def sha256(path: pathlib.Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def result(stage: str, root: pathlib.Path) -> dict[str, str]:
    """Return a stage's outputs without times and places, which differ between runs: name -> digest or value."""
    if stage == 'push':
        return pushed(root)
    made = max(root.glob(f'{stage}/[0-9]*'), key=lambda path: int(path.name))
    kept = {'prepare': '**/*', 'train': 'model_run/weights*', 'export': 'model/Format-Serving/[av]*/**/*',
            'evaluate': '*/predictions.tfrecord', 'infra_validate': '*/INFRA*'}[stage]
    found = {str(path.relative_to(made)): sha256(path) for path in made.glob(kept) if path.is_file()}
    if stage == 'train':
        from pipelines.reporting import report
        run = json.loads((made / 'model_run' / 'run.json').read_text())
        found |= {key: str(run[key]) for key in ('last', 'averaged', 'averaged_checkpoints')}
        found |= {tag: str(points) for tag, points in report.curves(str(made / 'model_run' / 'tensorboard')).items()
                  if not tag.endswith('per_second')}
    if stage == 'evaluate':
        metrics = json.loads((made / 'evaluation' / 'metrics.json').read_text())
        found |= {key: json.dumps(metrics[key], sort_keys=True) for key in ('metrics', 'blessed', 'reasons')}
    if stage == 'infra_validate':
        found = {name: re.sub(r'in \d+ s$', 'in N s', (made / name).read_text()) for name in found}
    return found


def pushed(root: pathlib.Path) -> dict[str, str]:
    """Check that every version is complete, and that the newest is the exported model."""
    from pipelines.serving import published
    [destination] = [path for path in root.glob('serving/*') if not path.name.endswith('.kit')]
    files = [published.verify(version.path)['files'] for version in published.versions(str(destination))]
    exported = next(root.glob('export/[0-9]*/model/Format-Serving'))
    return {f'of the exported model: {name}': str(sha256(exported / name) == digest)
            for name, digest in files[-1].items()}


def names(root: pathlib.Path) -> set[str]:
    """Return all files and folders, without the numbers, times and random parts of their names."""
    varying = re.compile(r'(?<=/)[0-9]{1,12}(?=/|$)|(?<=\.lock-)\w+|(?<=tfevents\.).*')
    return {varying.sub('N', str(path.relative_to(root.parent))) for path in root.rglob('*')}


def point(stage: str, kill, whole: pathlib.Path, folder: pathlib.Path, flags: list[str]) -> dict:
    """One kill and the resumed run's result. `kill(folder, share of the moment)` returns whether it was in time."""
    begun = time.monotonic()
    for share in (1.0, 0.7, 0.4):  # the machine may be quicker now than it was
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(whole / f'before-{stage}', folder / 'root')
        if killed := kill(folder, share):
            break
    left = sorted(names(folder / 'root') - names(whole / f'after-{stage}' / 'root'))
    found = {'stage': stage, 'killed': killed, 'left': left, 'finished': False, 'identical': False, 'orphans': 0,
             'set aside': [], 'still there': []}
    try:
        printed, _ = finish(stage, flags, folder)
    except RuntimeError as error:
        return {**found, 'error': str(error)}
    expected, other = result(stage, whole / f'after-{stage}' / 'root'), result(stage, folder / 'root')
    resumed = re.search(r'resuming at step ([0-9,]+)', printed)
    # An execution killed between its rename and its record stays beside that of the second run.
    orphans = len(list((folder / 'root' / stage).glob('[0-9]*'))) - 1
    more = sorted(names(folder / 'root') - names(whole / f'after-{stage}' / 'root'))
    still, aside = ([name for name in more if ('/damaged-ckpt-' in name) == aside] for aside in (False, True))
    return {**found, 'finished': True, 'identical': expected == other, 'orphans': orphans, 'still there': still,
            'set aside': aside,
            'differs': sorted(key for key in {*expected, *other} if expected.get(key) != other.get(key)),
            'resumed at': resumed and resumed[1], 'seconds': round(time.monotonic() - begun, 1)}


def undisturbed(whole: pathlib.Path, flags: list[str], stages: list[str]) -> dict[str, float]:
    """Run every stage once, keeping the root before and after it. Returns the seconds each worked."""
    seconds = {}
    (whole / 'root').mkdir(parents=True)
    for stage in STAGES[:max(map(STAGES.index, stages)) + 1]:
        shutil.copytree(whole / 'root', whole / f'before-{stage}')
        _, seconds[stage] = finish(stage, flags, whole)
        shutil.copytree(whole / 'root', whole / f'after-{stage}' / 'root')
        print(f'{stage}: {seconds[stage]:.1f} s undisturbed', flush=True)
    return seconds


def table(points: list[dict]) -> str:
    rows = [('stage', 'kills', 'finished afterwards', 'identical', 'left something', 'set aside', 'not cleaned',
             'orphans')]
    for stage in STAGES:
        of = [each for each in points if each['stage'] == stage and each['killed']]
        if of:
            rows.append((stage, len(of), *(sum(bool(each[key]) for each in of) for key in (
                'finished', 'identical', 'left', 'set aside', 'still there')), sum(each['orphans'] for each in of)))
    return '\n'.join(' | '.join(f'{cell:>{len(head)}}' for cell, head in zip(row, rows[0])) for row in rows)


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument('--points', type=int, default=60, help='kills at random moments, spread over the stages')
    flags.add_argument('--out', type=pathlib.Path, required=True, help='a new folder')
    flags.add_argument('--config', help='as of the commands (default: pairs made here)')
    flags.add_argument('--stages', nargs='+', choices=STAGES, default=list(STAGES))
    flags.add_argument('--calls', action='store_true', help='also kill at every call of a checkpoint')
    flags.add_argument('--seed', type=int, default=0)
    args, rest = flags.parse_known_args()
    os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
    out = args.out.resolve()
    out.mkdir(parents=True)
    if not args.config:
        make_pairs(out / 'raw')
        (out / 'kills.yaml').write_text(CONFIG.format(folder=out / 'raw'))
    given = args.config and os.path.exists(args.config)  # or the name of a shipped one
    common = ['--config', os.path.abspath(args.config) if given else args.config or str(out / 'kills.yaml'), *rest]
    seconds, draw, points = undisturbed(out / 'whole', common, args.stages), random.Random(args.seed), []
    todo = []
    for number in range(args.points):
        stage = args.stages[number % len(args.stages)]
        moment = draw.uniform(0, seconds[stage])
        todo.append((stage, {'moment': round(moment, 3)}, lambda folder, share, s=stage, m=moment: kill_after(
            m * share, s, common, folder)))
    if args.calls:
        shutil.copytree(out / 'whole' / 'before-train', out / 'calls' / 'root')
        todo += [('train', {'call': f'{call} {n}'}, lambda folder, _, call=call, n=n: kill_at(
            call, n, 'train', common, folder)) for call, n in calls_of_a_checkpoint(common, out / 'calls')]
    for number, (stage, what, kill) in enumerate(todo):
        folder = out / f'point-{number}'
        found = {**what, **point(stage, kill, out / 'whole', folder, common)}
        points.append(found)
        print(f'{number + 1} of {len(todo)}: {json.dumps(found | {"left": len(found["left"])})}', flush=True)
        if found['identical'] and not found['still there']:
            shutil.rmtree(folder)  # the others stay to be looked at
    good = all(each['identical'] and not each['still there'] and not each['orphans'] for each in points)
    (out / 'kill_points.json').write_text(json.dumps({'undisturbed': seconds, 'points': points}, indent=1))
    print(table(points))
    sys.exit(not good)


if __name__ == '__main__':
    main()
