"""First tries: `pipelines.init` and `pipelines.run` on many data sets, as a stranger types them, nothing tuned by set.

    python benchmarks/studies/first_try.py --data DIR --out DIR
    python benchmarks/studies/first_try.py --data DIR --out DIR --only cifar10_2x100 multi30k_1000_de --seeds 1
    python benchmarks/studies/first_try.py --data DIR --out DIR --seeds 1 --peers .venv-bench/bin/python
    python benchmarks/studies/first_try.py --out DIR --table

A cell is a data set and minutes. It is made in OUT, looked at, trained from, and leaves OUT/CELL/SEED/result.json; one
that is there is not run again, so the same command goes on after an interruption. DIR holds cifar10_train.tar.gz,
tiny_imagenet_20.tar.gz, multi30k/, wmt_sample/, treebank/ and instruct_ko/; cells whose files are not there are
skipped, by name. All cells, two seeds each, take some seven hours on two cores.

With `--peers` every cell is given to a peer too (`first_try_peers.py`), with training, validation and test examples
that `prepare` made for ours, and as many minutes for its training alone as our whole run has. It leaves
OUT/CELL/SEED/peer.json. Trees have no peer.
"""
import argparse
import csv
import gzip
import io
import json
import os
import pathlib
import random
import re
import shutil
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[2]
CIFAR, TINY = 'cifar10_train.tar.gz', 'tiny_imagenet_20.tar.gz'
FORETOLD = re.compile(r'expect ([\d.]+) minutes .*? ([\d.]+) minutes of processor time, and ([\d.]+) GB')
BASELINE = re.compile(r'To beat: (\w+) ([\d.eE+-]+)')


class Cell(NamedTuple):
    """A data set and how long to learn from it.

    Attributes:
      kind: the arguments of `pipelines.init`.
      needs: what DIR must hold.
      make: (DIR, an empty folder) -> the paths `pipelines.init` is given.
      minutes: of the whole run.
    """
    kind: str
    needs: str
    make: Callable[[pathlib.Path, pathlib.Path], list[str]]
    minutes: float = 3


def members(archive: pathlib.Path, below: str) -> Iterator[tuple[str, str, bytes]]:
    """Class, file name and bytes of every image of an archive of class folders."""
    with tarfile.open(archive) as tar:
        for member in tar:
            name = member.name.removeprefix('./')
            if member.isfile() and name.startswith(below) and name.lower().endswith(('.jpg', '.jpeg', '.png')):
                file = tar.extractfile(member)
                assert file is not None
                yield name.removeprefix(below).strip('/').split('/')[0], pathlib.PurePath(name).name, file.read()


def images(archive: str, below: str, classes: int, count: int, wrong: float = 0, rare: int = 0,
           change: Callable[[bytes], bytes] = lambda data: data) -> Callable:
    """Return a maker of images of the first classes, `count` in all.

    A share `wrong` of them is in another class's folder; `rare` limits all classes but the first.
    """
    def make(data: pathlib.Path, folder: pathlib.Path) -> list[str]:
        draw, each = random.Random(1), count // classes
        names = list[str]()
        made: dict[str, int] = {}
        for label, name, content in members(data / archive, below):
            if label not in names:
                if len(names) == classes:
                    continue
                names.append(label)
            if made.get(label, 0) >= (rare if rare and label != names[0] else each):
                continue
            made[label] = made.get(label, 0) + 1
            # Until the second class is met there is nothing else to call an image.
            said = draw.choice([other for other in names if other != label] or [label]) if draw.random() < wrong else (
                label)
            (folder / said).mkdir(exist_ok=True)
            (folder / said / f'{label}_{name}').write_bytes(change(content))
        return [str(folder)]
    return make


def resized(side: int) -> Callable[[bytes], bytes]:
    """Return a function that resizes images to the given side."""
    def change(data: bytes) -> bytes:
        from PIL import Image
        stream = io.BytesIO()
        Image.open(io.BytesIO(data)).convert('RGB').resize((side, side)).save(stream, 'JPEG', quality=85)
        return stream.getvalue()
    return change


def digits(data: pathlib.Path, folder: pathlib.Path) -> list[str]:
    """scikit-learn's digits as grey files of 8 x 8."""
    import numpy as np
    from PIL import Image
    from sklearn import datasets
    found = datasets.load_digits()
    for number, (image, label) in enumerate(zip(found.images, found.target)):
        (folder / str(label)).mkdir(exist_ok=True)
        Image.fromarray((image * 255 / 16).astype(np.uint8)).save(folder / str(label) / f'{number}.png')
    return [str(folder)]


def garments(data: pathlib.Path, folder: pathlib.Path) -> list[str]:
    """Draw 1,000 tops as the try-on demo does, laid flat, in a folder for each pattern."""
    import numpy as np
    from PIL import Image

    from data_prep.people import sample_garments
    frame = sample_garments.Frame((128, 96))
    for number in range(1_000):
        made = sample_garments.lay_flat(np.random.default_rng([1, number]), frame)
        (folder / made.pattern).mkdir(exist_ok=True)
        Image.fromarray(made.picture).save(folder / made.pattern / f'{number}.jpg', quality=92)
    return [str(folder)]


def pairs(language: str, count: int, both: bool = False) -> Callable:
    """Return the first captions of Multi30k, with its validation and test files if `both`."""
    def make(data: pathlib.Path, folder: pathlib.Path) -> list[str]:
        found = []
        for split, name in (('train', 'train'), *((('dev', 'val'), ('test', 'test_2016_flickr')) if both else ())):
            for code in ('en', language):
                with gzip.open(data / 'multi30k' / f'{name}.{code}.gz', 'rt', encoding='utf-8') as file:
                    lines = [line for n, line in enumerate(file) if split != 'train' or n < count]
                path = folder / f'{split}.{code}'
                path.write_text(''.join(lines), encoding='utf-8')
                found.append(str(path))
        return found
    return make


def wmt(data: pathlib.Path, folder: pathlib.Path) -> list[str]:
    """Return the WMT sample, two files."""
    found = []
    for code in ('en', 'de'):
        with gzip.open(data / 'wmt_sample' / f'train.{code}.gz') as file:
            (folder / f'train.{code}').write_bytes(file.read())
        found.append(str(folder / f'train.{code}'))
    return found


def cldr(data: pathlib.Path, folder: pathlib.Path) -> list[str]:
    """Return the demo's corpus, one table."""
    from data_prep.text import samples
    made = samples.write_cldr_pairs(str(folder), source='en', target='de')
    return [made[split] for split in ('train', 'validation', 'test')]


def instructions(data: pathlib.Path, folder: pathlib.Path) -> list[str]:
    """Return a table with a header, of instructions, inputs and responses."""
    [table] = (data / 'instruct_ko').glob('*.csv')
    with open(table, encoding='utf-8-sig', newline='') as file:
        assert next(csv.reader(file))
    return [str(shutil.copy(table, folder))]


def trees(data: pathlib.Path, folder: pathlib.Path) -> list[str]:
    """Return the treebank sample, unpacked."""
    [archive] = (data / 'treebank').glob('*.tar.gz')
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter='data')
    return [str(folder)]


def cells() -> dict[str, Cell]:
    """Return all cells by name; the six of 15 minutes last."""
    below = 'tiny-imagenet-200/train'
    found = {f'cifar10_{classes}x{count // classes}': Cell('images', CIFAR, images(CIFAR, 'train', classes, count))
             for classes in (2, 10) for count in (100, 1_000, 10_000)}
    found |= {
        'cifar10_10x5000': Cell('images', CIFAR, images(CIFAR, 'train', 10, 50_000)),
        'cifar10_2x100_of_200': Cell('images', CIFAR, images(CIFAR, 'train', 2, 200)),
        'tiny_imagenet_20': Cell('images', TINY, images(TINY, below, 20, 10_000)),
        'digits': Cell('images', '.', digits),
        'garments': Cell('images', '.', garments),
        'sides_of_16': Cell('images', CIFAR, images(CIFAR, 'train', 2, 1_000, change=resized(16))),
        'sides_of_4000': Cell('images', TINY, images(TINY, below, 2, 100, change=resized(4_000))),
        'unbalanced_1_to_100': Cell('images', CIFAR, images(CIFAR, 'train', 2, 4_000, rare=20)),
        'wrong_labels_10_percent': Cell('images', CIFAR, images(CIFAR, 'train', 2, 2_000, wrong=0.1))}
    found |= {f'multi30k_{count}_{language}': Cell('pairs', 'multi30k', pairs(language, count, both=count > 10_000))
              for language in ('de', 'fr') for count in (1_000, 5_000, 29_000)}
    found |= {'cldr': Cell('pairs', '.', cldr), 'wmt_sample': Cell('pairs', 'wmt_sample', wmt),
              'instructions': Cell('pairs', 'instruct_ko', instructions), 'treebank': Cell('trees', 'treebank', trees)}
    longer = ('cifar10_2x100_of_200', 'cifar10_10x1000', 'tiny_imagenet_20', 'multi30k_5000_de', 'multi30k_29000_de',
              'treebank')
    return found | {f'{name}_15_minutes': found[name]._replace(minutes=15) for name in longer}


def run(command: list[str], log: pathlib.Path) -> tuple[int, float, float, float]:
    """Run a command, its output in files. Returns exit code, wall and processor minutes, and largest gigabytes."""
    began = time.monotonic()
    with open(log.with_suffix('.out'), 'wb') as out, open(log.with_suffix('.err'), 'wb') as err:
        process = os.posix_spawn(command[0], command, {**os.environ, 'PYTHONPATH': str(ROOT)}, file_actions=[
            (os.POSIX_SPAWN_DUP2, out.fileno(), 1), (os.POSIX_SPAWN_DUP2, err.fileno(), 2)])
        _, status, usage = os.wait4(process, 0)
    return (os.waitstatus_to_exitcode(status), (time.monotonic() - began) / 60,
            (usage.ru_utime + usage.ru_stime) / 60, usage.ru_maxrss / (1 << 20))


def try_first(name: str, cell: Cell, data: pathlib.Path, out: pathlib.Path, seed: int) -> dict:
    """Make a cell's data if necessary, create a configuration, and run it."""
    here, raw = out / name / str(seed), out / name / 'data'
    here.mkdir(parents=True, exist_ok=True)
    listed = out / name / 'paths.json'
    if not listed.exists():
        shutil.rmtree(raw, ignore_errors=True)
        raw.mkdir(parents=True)
        listed.write_text(json.dumps(cell.make(data, raw)))
    paths = json.loads(listed.read_text())
    code, wall, _, _ = run([sys.executable, '-m', 'pipelines.init', cell.kind, *paths, '--minutes',
                            f'{cell.minutes:g}'], here / 'init')
    found: dict = {'cell': name, 'seed': seed, 'init_minutes': wall, 'init_exit': code}
    said = (here / 'init.err').read_text()
    if code:
        return found | {'error': said.strip().split('\n')[-1]}
    foretold, baseline = FORETOLD.search(said), BASELINE.search(said)
    assert foretold and baseline, said
    shutil.copy(here / 'init.out', here / 'my.yaml')
    shutil.rmtree(here / 'root', ignore_errors=True)
    code, wall, cpu, memory = run([sys.executable, '-m', 'pipelines.run', '--config', str(here / 'my.yaml'), '--set',
                                   f'seed={seed}', '--pipeline_root', str(here / 'root')], here / 'run')
    printed, errors = (here / 'run.out').read_text(), (here / 'run.err').read_text()
    value = re.search(rf'evaluate: .*?\b{baseline[1]} ([\d.eE+-]+|nan)', printed)
    found |= {'exit': code, 'metric': baseline[1], 'baseline': float(baseline[2]),
              'value': float(value[1]) if value else None, 'blessed': 'NOT_BLESSED' not in printed and code == 0,
              'foretold': {'minutes': float(foretold[1]), 'cpu_minutes': float(foretold[2]),
                           'memory': float(foretold[3])},
              'real': {'minutes': wall, 'cpu_minutes': cpu, 'memory': memory}}
    return found | ({'error': errors.strip().split('\n')[-1]} if errors.strip() and code else {})


def try_peer(cell: Cell, here: pathlib.Path, python: pathlib.Path) -> dict:
    """Give the examples of a run of ours to a peer."""
    [examples] = (here / 'root' / 'prepare').glob('*/examples')
    code, wall, cpu, memory = run([str(python.absolute()), str(pathlib.Path(__file__).with_name('first_try_peers.py')),
                                   cell.kind, str(examples), '--minutes', f'{cell.minutes:g}'], here / 'peer')
    real = {'exit': code, 'minutes': wall, 'cpu_minutes': cpu, 'memory': memory}
    if code:
        return real | {'error': (here / 'peer.err').read_text().strip().split('\n')[-1]}
    return real | json.loads((here / 'peer.out').read_text().strip().split('\n')[-1])


def store(path: pathlib.Path, found: dict) -> None:
    temporary = path.with_suffix('.tmp')
    temporary.write_text(json.dumps(found, indent=1))
    temporary.rename(path)


def table(out: pathlib.Path) -> str:
    """Return the results as Markdown."""
    names = ('cell', 'seed', 'metric', 'baseline', 'reached', 'better', 'peer', 'blessed', 'minutes foretold', 'real',
             'processor minutes foretold', 'real', 'GB foretold', 'real')
    rows = ['| ' + ' | '.join(names) + ' |', '|---' * len(names) + '|']
    for path in sorted(out.glob('*/*/result.json')):
        row = json.loads(path.read_text())
        if 'foretold' not in row or row['value'] is None:
            rows.append(f'| {row["cell"]} | {row["seed"]} | {row.get("error", "no value")} |' + ' |' * 11)
            continue
        peer = path.with_name('peer.json')
        found = json.loads(peer.read_text()) if peer.exists() else {}
        # A peer of images also has the metric of unbalanced ones.
        theirs = found.get(row['metric'], found.get('value'))
        other = found.get('error', '') if theirs is None else f'{theirs:.3g}'
        lower = row['metric'].endswith('error')
        better = row['value'] < row['baseline'] if lower else row['value'] > row['baseline']
        costs = ' | '.join(f'{row[when][what]:.1f}' for what in ('minutes', 'cpu_minutes', 'memory')
                           for when in ('foretold', 'real'))
        rows.append(f'| {row["cell"]} | {row["seed"]} | {row["metric"]} | {row["baseline"]:.3g} | {row["value"]:.3g} | '
                    f'{"yes" if better else "NO"} | {other} | {"yes" if row["blessed"] else "no"} | {costs} |')
    return '\n'.join(rows)


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument('--out', type=pathlib.Path, required=True)
    flags.add_argument('--data', type=pathlib.Path, default=pathlib.Path())
    flags.add_argument('--only', nargs='+', metavar='CELL', default=[])
    flags.add_argument('--seeds', nargs='+', type=int, default=[1, 2])
    flags.add_argument('--peers', type=pathlib.Path, metavar='PYTHON',
                       help='run the peers, too, by this interpreter (`make .venv-bench/.installed`)')
    flags.add_argument('--table', action='store_true', help='print the results so far, and run nothing')
    args = flags.parse_args()
    if args.table:
        print(table(args.out))
        return
    sys.path.insert(0, str(ROOT))
    os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
    known = cells()
    if unknown := set(args.only) - set(known):
        flags.error(f'unknown cell {sorted(unknown)[0]}; there are {", ".join(known)}')
    for seed in args.seeds:
        for name in args.only or known:
            cell, here = known[name], args.out.absolute() / name / str(seed)
            result, peer = here / 'result.json', here / 'peer.json'
            if not (args.data / cell.needs).exists():
                print(f'{name}: skipped, {args.data / cell.needs} is not there', flush=True)
                continue
            if not result.exists():
                print(f'{name}, seed {seed} …', flush=True)
                store(result, found := try_first(name, cell, args.data.absolute(), args.out.absolute(), seed))
                print(f'{name}, seed {seed}: {json.dumps(found)}', flush=True)
            if args.peers and cell.kind != 'trees' and not peer.exists() and (here / 'root' / 'prepare').exists():
                store(peer, found := try_peer(cell, here, args.peers))
                print(f'{name}, seed {seed}, peer: {json.dumps(found)}', flush=True)


if __name__ == '__main__':
    main()
