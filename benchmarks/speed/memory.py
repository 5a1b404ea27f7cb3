"""Memory of a training step of each big net under several settings, and the largest batch that fits.

    python benchmarks/speed/memory.py --out DIR [--only VGG-D …] [--limit 16]

Every figure is the peak of a process of its own that makes two whole steps of the trainer (forward, backward, update)
of a shipped configuration on a made batch. First one batch: as it is, in bfloat16, in parts
(`train.gradient_accumulation_steps`), rematerialised (`train.rematerialise`), and both; the first loss must be the
same. Then the largest batch within --limit GiB, as it is and rematerialised: by the line through the peaks of two
batches, made smaller until a step of it is shown to fit, with a twentieth of room for later ones.

Leaves memory.json and memory.md in DIR, keeping what was found there before for other nets. Leaves with exit code 1 if
losses differed.
"""
import argparse
import json
import math
import os
import pathlib
import resource
import subprocess
import sys
import time
from typing import NamedTuple

HERE = pathlib.Path(__file__).resolve().parent
GIB = 1 << 30
PARTS = 4
WAYS = {'as it is': [], 'bfloat16': ['train.precision=bfloat16'],
        f'{PARTS} parts': [f'train.gradient_accumulation_steps={PARTS}'],
        'rematerialised': ['train.rematerialise=true'],
        f'rematerialised, {PARTS} parts': ['train.rematerialise=true', f'train.gradient_accumulation_steps={PARTS}']}
MORE = 0.05  # of the first step's peak later ones may take: the fourth took AlexNet 0.043, the Transformer 0.009
TOLERANCE = {'bfloat16': 0.03}  # relative, of the loss; float32 sums in another order differ by less than 1e-3


class Net(NamedTuple):
    """A big net: its configuration, what of it is overridden, what a batch is made of, and rows of the first batch."""
    config: str
    keys: list[str]
    batch: str
    rows: int
    unit: str = 'pictures'


DRY = ['model.dropout=0', 'model.crop=224', 'model.classes=1000']
NETS = {
    'Transformer base': Net('wmt14_en_de_base', ['model.vocab_size=37000', 'model.P_drop=0'], 'sentences', 64,
                            'pairs of 32 + 32 tokens'),
    'Transformer big': Net('wmt14_en_de_big', ['model.vocab_size=37000', 'model.P_drop=0'], 'sentences', 32,
                           'pairs of 32 + 32 tokens'),
    'AlexNet': Net('alexnet_imagenet', DRY, 'pictures', 128),
    'VGG-D': Net('vgg_d_imagenet', [*DRY, 'train.init_from=""'], 'pictures', 16),
    'VGG-E': Net('vgg_e_imagenet', [*DRY, 'train.init_from=""'], 'pictures', 16),
    'PReLU model A': Net('prelu_a_imagenet', DRY, 'pictures', 16),
    'PReLU model C': Net('prelu_c_imagenet', DRY, 'pictures', 16),
    'VITON-HD segmentation': Net('viton_hd_segmentation', [], 'people', 4, 'pairs'),
    'VITON-HD ALIAS, 512 x 384': Net('viton_hd_alias', ['input.size=[512,384]', 'train.init_from=""',
                                                        'model.alias.lambda_percept=0'], 'people', 4, 'pairs')}


def batch_of(net: Net, trainer, rows: int) -> dict:
    """Tensors in the form of the net's data module."""
    import inputs
    import inputs_tryon
    import tensorflow as tf
    if net.batch == 'sentences':
        made = {name: inputs.sentences(rows, 32, trainer.config.model.vocab_size, seed=seed)
                for name, seed in (('inputs', 3), ('targets', 4))}
    elif net.batch == 'pictures':
        made = {'image': inputs.pictures(rows, 224), 'label': inputs.labels(rows)}
    else:
        made = inputs_tryon.pairs(rows, trainer.config.model.size) | {'real': inputs.np.ones(rows, 'float32')}
    return {name: tf.constant(value) for name, value in made.items()}


def steps(name: str, rows: int, number: int, keys: list[str]) -> dict:
    """Step in this process: its peak in bytes, the first loss, seconds of processor time of the last step."""
    sys.path[:0] = [str(HERE / 'sides'), str(HERE.parents[1])]
    import trained
    net = NETS[name]
    trainer = trained.Trained(net.config, *net.keys, *keys)
    batch = batch_of(net, trainer, rows)
    losses = []
    for _ in range(number):
        started = time.process_time()  # which what else is at work changes less
        losses.append(trainer.step(batch))
    seconds = time.process_time() - started
    return {'peak': resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, 'loss': losses[0], 'seconds': seconds}


def measured(name: str, rows: int, number: int, keys: list[str]) -> dict:
    """Return the same in a process of its own; no peak if it was killed for want of memory."""
    done = subprocess.run([sys.executable, '-W', 'ignore', __file__, '--step', name, str(rows), str(number), *keys],
                          stdout=subprocess.PIPE, text=True, env=os.environ | {'TF_CPP_MIN_LOG_LEVEL': '3'})
    if done.returncode < 0:
        return {'peak': float('inf'), 'loss': float('nan'), 'seconds': float('nan')}
    if done.returncode:
        sys.exit(f'{name}: a step failed with exit code {done.returncode}.')
    return json.loads(done.stdout.splitlines()[-1])


def largest(name: str, keys: list[str], small: tuple[int, float], limit: float) -> dict:
    """Return the most rows whose peak, plus MORE, is within `limit`; `small` is a number of rows and their peak."""
    def of(some):
        return measured(name, some, 1, keys)['peak'] * (1 + MORE)
    rows, peak = small[0], small[1] * (1 + MORE)
    other = 2 * rows if 2 * peak < limit else rows // 2
    a_row = (of(other) - peak) / (other - rows)
    most = int((limit - peak) / a_row) + rows
    while (found := of(most)) > limit:
        most -= max(1, most // 32 if math.isinf(found) else math.ceil((found - limit) / a_row))
    return {'rows': most, 'peak': found, 'a row': a_row}


def table(found: dict, limit: int) -> str:
    lines = []
    for name, result in found.items():
        net, plain = NETS[name], result['ways']['as it is']
        lines += [f'**{name}**, {net.rows} {net.unit}', '',
                  '| | peak, GiB | saved | processor time of a step | first loss |', '|---|---|---|---|---|']
        lines += [f'| {way} | {one["peak"] / GIB:.2f} | {1 - one["peak"] / plain["peak"]:.0%} | '
                  f'{one["seconds"] / plain["seconds"]:.2f} | {one["loss"]:.4f} |'
                  for way, one in result['ways'].items()]
        fits = [f'{most["rows"]} {way} ({most["peak"] / GIB:.1f} GiB)' for way, most in result['largest'].items()]
        lines += ['', f'Within {limit} GiB: {", ".join(fits)}.', '']
    return '\n'.join(lines)


def differences(result: dict) -> list[str]:
    """Ways whose first loss differs."""
    plain = result['ways']['as it is']['loss']
    return [way for way, one in result['ways'].items() if not abs(one['loss'] / plain - 1) < TOLERANCE.get(way, 1e-3)]


def main():
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument('--out', type=pathlib.Path, required=True)
    flags.add_argument('--only', nargs='+', choices=NETS, default=[*NETS])
    flags.add_argument('--limit', type=int, default=16, help='GiB')
    args = flags.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    path, wrong = args.out / 'memory.json', []
    found = json.loads(path.read_text()) if path.exists() else {}
    for name in args.only:
        rows = NETS[name].rows
        ways = {}
        for way, keys in WAYS.items():
            ways[way] = measured(name, rows, 2, keys)
            print(f'{name}: {rows} {way}: {ways[way]["peak"] / GIB:.2f} GiB', flush=True)
        most = {way: largest(name, WAYS[way], (rows, ways[way]['peak']), args.limit * GIB)
                for way in ('as it is', 'rematerialised')}
        found[name] = {'ways': ways, 'largest': most}
        wrong += [f'{name} {way}' for way in differences(found[name])]
        path.write_text(json.dumps(found, indent=1))
        (args.out / 'memory.md').write_text(table(found, args.limit))
    print(table({name: found[name] for name in args.only}, args.limit))
    if wrong:
        sys.exit(f'Another loss: {", ".join(wrong)}.')


if __name__ == '__main__':
    if sys.argv[1:2] == ['--step']:
        print(json.dumps(steps(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5:])))
    else:
        main()
