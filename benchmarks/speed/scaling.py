"""Measure what distribution costs: one step on one device, two logical devices and two workers, on equal cores.

    python benchmarks/speed/scaling.py --out DIR

The batch, the weights and the cores are the same, so all that is added is what distribution takes: gradients that are
exchanged, weights that are updated once a replica, and the wait for the slower one. Before anything is timed the losses
of three steps are compared. The runner is that of `side_by_side.py`: sides take turns, disturbed rounds are dropped,
and the median of the rounds' ratios is what counts.

Two workers are two processes on this machine. TensorFlow gives each of them threads for all cores; `a thread each`
gives each its half (TF_NUM_INTRAOP_THREADS), as `mirrored` does to logical devices. `dense layers on one` is He et
al.'s scheme, train.dense_layers=one_device.

Leaves scaling.json, scaling.md and scaling.png in DIR, and in the second the bytes replicas would exchange in VGG-D and
PReLU net A if their dense layers were not data parallel. With exit code 1 if losses differ.
"""
import argparse
import json
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from benchmarks.speed import cost_model, side_by_side  # noqa: E402

AIM = 0.1  # of a step's time, at most
BATCHES = {'transformer': 32, 'vgg': 64, 'alexnet': 64}  # rows, of all replicas; see sides/ours_scaling.py
SIDES = {'one device': 'strategy=one_device', 'two logical devices': 'strategy=mirrored',
         'two workers': 'strategy=multi_worker_mirrored',
         'two workers, a thread each': 'strategy=multi_worker_mirrored threads=1'}
HYBRID = {'two logical devices, dense layers on one': 'strategy=mirrored dense_layers=one_device'}  # of image nets


def contest(net: str, rows: int) -> side_by_side.Contest:
    """One device is the first side; the others' ratio is its rate over theirs, so 1.1 is a tenth more time."""
    known = SIDES if net == 'transformer' else SIDES | HYBRID
    sides = {name: f'ours_scaling.py step net={net} batch={rows} {values}' for name, values in known.items()}
    return side_by_side.Contest('steps', sides, {name: 1 + AIM for name in [*sides][1:]})


def markdown(found: dict[str, dict]) -> str:
    rows = ['| net | on | steps/s | more time than one device | processors\' s a step | peak memory of a process | '
            'rounds |', '|---|---|---:|---:|---:|---:|---:|']
    for net, result in found.items():
        for name, side in result['sides'].items():
            more, last = '', f'{len(result["rounds"])}, {result["dropped"]} dropped'
            if name in result['ratios']:
                middle, least, most = (ratio - 1 for ratio in result['ratios'][name])
                more, last = f'{middle:+.1%} ({least:+.1%} to {most:+.1%})', ''
            rows.append(f'| {net} | {name} | {side["rate"]:.3g} | {more} | {side["processor"]:.3g} | '
                        f'{side["peak_mib"]:,.0f} MiB | {last} |')
    return '\n'.join(rows)


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument('--out', type=pathlib.Path, required=True)
    flags.add_argument('--only', nargs='+', choices=BATCHES, default=[*BATCHES])
    flags.add_argument('--rounds', type=int, default=5)
    flags.add_argument('--seconds', type=float, default=5, help='that a side works in a round, at least one step')
    args = flags.parse_args()
    os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
    args.out.mkdir(parents=True, exist_ok=True)
    results = args.out / 'scaling.json'
    found = json.loads(results.read_text()) if results.exists() else {}
    contests = {net: contest(net, rows) for net, rows in BATCHES.items()}
    for net in args.only:
        found[net] = side_by_side.hold(contests[net], {'ours': sys.executable}, args.rounds, args.seconds)
        results.write_text(json.dumps(found, indent=1))
        print(markdown({net: found[net]}), flush=True)
    steps = {model: step for model, step in cost_model.all_steps({}).items() if step.dense_inputs}
    (args.out / 'scaling.md').write_text(
        f'{markdown(found)}\n\nWhat replicas would exchange:\n\n{cost_model.exchange_table(steps)}\n')
    side_by_side.draw(contests, found, str(args.out / 'scaling.png'))
    sys.exit(any(far > contests[net].tolerance for net, result in found.items()
                 for far in result['differences'].values()))


if __name__ == '__main__':
    main()
