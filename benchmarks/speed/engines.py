"""Prepare the same data by each of Beam's engines on the same cores: pairs and images a second.

    python benchmarks/speed/engines.py --pairs 200000 --images DIR --engines prism flink spark --out /tmp/engines

`make prism`, `make flink` and `make spark` fetch the engines. DIR holds Tiny ImageNet's twenty classes as
`python -m pipelines.fetch tiny_imagenet_20` leaves them; the pairs are made from a seed. Flink and Spark have two hosts
of this machine, network namespaces, so they need root. Each job is a new process, and its seconds are all of it but
imports. Prints a row for each and writes them as JSON; leaves with exit code 1 if an engine's bytes are not the
DirectRunner's.
"""
import argparse
import contextlib
import json
import pathlib
import re
import shutil
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / 'tests')]

from benchmarks.speed import prepare_scale  # noqa: E402
from support import beam_clusters, commands  # noqa: E402

PROGRAMS = {'prism': 'prism/prism', 'flink': 'flink', 'spark': 'spark'}  # as `make` leaves them
KEEP_WORKERS = ['--environment_cache_millis', '600000']
SAID = re.compile(r'prepare: (?P<read>[\d,]+) (?P<unit>\w+) in (?P<seconds>[\d,]+) s')


def prepare(root: pathlib.Path, flags: list[str]) -> tuple[float, str, dict[str, bytes]]:
    """Run the stage in a new root. Returns rate, unit and the files of the data set."""
    shutil.rmtree(root, ignore_errors=True)
    done = commands.command('pipelines.prepare', '--pipeline_root', str(root), *flags, new_process=True)
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    said = SAID.search(done.stdout)
    read, seconds = (float(said[name].replace(',', '')) for name in ('read', 'seconds'))
    return read / seconds, said['unit'], beam_clusters.examples(root)


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument('--pairs', type=int, required=True)
    flags.add_argument('--images', type=pathlib.Path, required=True, metavar='DIR')
    flags.add_argument('--engines', nargs='+', choices=[*PROGRAMS], default=[*PROGRAMS])
    flags.add_argument('--venv', type=pathlib.Path, default=ROOT / '.venv', help='where `make` left the engines')
    flags.add_argument('--out', type=pathlib.Path, required=True, help='a folder; 1 GB a million pairs')
    args = flags.parse_args()
    out = args.out.resolve()
    prepare_scale.make(out, args.pairs)
    jobs = {'text': ['--config', str(out / 'scale.yaml')],
            'images': ['--config', 'vgg_a_tiny_imagenet', '--set', f'data.folder={args.images.resolve()}']}
    wrong, rows, expected = [], [], {}
    for engine in ('direct', *args.engines):
        with contextlib.ExitStack() as stack:
            sent: list[str] = []
            if engine != 'direct':
                logs = out / engine
                shutil.rmtree(logs, ignore_errors=True)
                logs.mkdir()
                start = getattr(beam_clusters, engine)
                sent = stack.enter_context(start(args.venv.resolve() / PROGRAMS[engine], logs)).flags + KEEP_WORKERS
            for kind, job in jobs.items():
                rate, unit, made = prepare(out / f'root-{engine}-{kind}', [*job, *sent])
                if made != expected.setdefault(kind, made):
                    wrong.append(f"{engine}, {kind}: other bytes than the DirectRunner's")
                rows.append({'engine': engine, 'kind': kind, 'unit': f'{unit}/s', 'rate': round(rate, 1)})
                print(json.dumps(rows[-1]), flush=True)
    (out / 'engines.json').write_text(json.dumps(rows, indent=1))
    sys.exit('\n'.join(wrong) or 0)


if __name__ == '__main__':
    main()
