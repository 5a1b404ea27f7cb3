"""Growth of cost with size: measured exponents against theory.

    python benchmarks/speed/growth.py --out DIR
    python benchmarks/speed/growth.py --out DIR --only corpus --lines 10000 30000 100000 300000 1000000 5000000

Three studies of the code that ships. `tokens`: time a token of a training step of the Transformer's base model, by the
length of sentences, as many tokens in every batch. `images`: time a picture of PReLU net A, whose pyramid pooling takes
any size, forward, by pixels, about as many in every batch. `corpus`: time and memory of the Beam job for parallel text,
by lines, made by `prepare_scale.py`.

Sizes take turns, some rounds of them; a round in which others took more than a twentieth of the processors' time is
dropped and made again, up to as many times as there are rounds. Medians count. The exponent is the slope of a line
through their logarithms, with its 95% interval; beside it stands that of the operations counted in closed form, which
is what it would be if time were operations alone, and the line cost = fixed + each * size.

Leaves growth.json, growth.md and a picture a study in DIR; what was found before is kept, so that it can be done in
parts. Needs 17 GiB of memory, as all sizes wait beside each other, and for a million lines 1 GB in DIR.
"""
import argparse
import contextlib
import json
import os
import pathlib
import resource
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from typing import NamedTuple

from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
from benchmarks.speed import powers, prepare_scale, side_by_side  # noqa: E402
from keras_models import transformer  # noqa: E402
from keras_models.image import classification  # noqa: E402
from pipelines.core import config  # noqa: E402

VOCABULARY = 37_000


class Study(NamedTuple):
    """A study of growth with size.

    `cost` and `scale`: the unit of time shown, and how many there are in a second. `theory`: the predicted count for a
    size, and its unit. `memory`: whether the peak is due to the work; processes that wait beside each other already
    have it when they draw their weights.
    """
    size: str
    cost: str
    scale: float
    theory: Callable[[float], float]
    counted: str
    memory: bool = False


def token_flops(length: float, of: transformer.Config | None = None) -> float:
    """Return the operations of a training step per pair of tokens, by default for the base model.

    They are 6 per parameter, and attention's products: for every query `length` keys and values in each of the
    encoder's one and the decoder's two attentions per layer.
    """
    c = of or transformer.Config(vocab_size=VOCABULARY)
    assert c.d_k and c.d_v
    return transformer.flops_per_unit(c) + 6 * 3 * c.N * c.h * (c.d_k + c.d_v) * length


def picture_flops(pixels: float) -> float:
    """Operations of a square picture's forward pass."""
    net = config.load('prelu_a_imagenet', [f'model.crop={round(pixels ** 0.5)}', 'model.classes=1000']).model
    return 2 * classification.macs(net)


STUDIES = {
    'tokens': Study('tokens a sentence', 'ms a token', 1e3, token_flops, 'operations'),
    'images': Study('pixels a picture', 'ms a picture', 1e3, picture_flops, 'operations'),
    'corpus': Study('lines', 's', 1, lambda lines: lines, 'lines', memory=True),
}


def sentences(lengths: list[int], tokens: int) -> dict[int, str]:
    return {length: f'ours_text.py step batch={max(1, tokens // length)} length={length}' for length in lengths}


def pictures(sides: list[int], pixels: int) -> dict[int, str]:
    return {side ** 2: f'ours_images.py forward net=model_a batch={max(1, round(pixels / side ** 2))} crop={side}'
            for side in sides}


def units(commands: dict[int, str], rounds: int, seconds: float) -> dict:
    """Measure repeated rounds of work: size -> seconds per unit and peak MiB, one list entry per round."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        sides = {}
        for size, command in commands.items():
            sides[str(size)] = side_by_side.Side(command, {'ours': sys.executable, 'peers': sys.executable},
                                                 pathlib.Path(folder) / f'{size}.npz')
            stack.callback(sides[str(size)].close)
            sides[str(size)].say()
        kept, dropped = side_by_side.alternate(sides, rounds, seconds)
    return found([{size: (1 / turn['rate'], turn['peak_mib']) for size, turn in turns.items()}
                  for turns in kept or dropped], len(dropped), bool(kept))


def corpora(folder: pathlib.Path, lines: list[int], rounds: int, flags: list[str]) -> dict:
    """Return the same for whole jobs, without a time limit."""
    kept: list[dict] = []
    dropped: list[dict] = []
    for size in lines:
        prepare_scale.make(folder / str(size), size)
    while len(kept) < rounds and len(dropped) < rounds:
        turns, others = {}, 0.0
        for size in lines:
            busy, own = side_by_side.busy_seconds(), processor_seconds()
            watch, seconds, examples = prepare_scale.prepare(folder / str(size), flags)
            foreign = side_by_side.busy_seconds() - busy - (processor_seconds() - own)
            others = max(others, foreign / seconds / (os.cpu_count() or 1))
            peak = max(watch.peaks.values())
            if wrong := prepare_scale.check(examples, size, peak):
                sys.exit('\n'.join(wrong))
            shutil.rmtree(examples.parents[2])
            turns[str(size)] = seconds, peak / 2 ** 20
        (dropped if others > side_by_side.DISTURBED else kept).append(turns)
    return found(kept or dropped, len(dropped), bool(kept))


def processor_seconds() -> float:
    """Return the processor time of this process and of its children that have ended."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def found(rounds: list[dict], dropped: int, undisturbed: bool) -> dict:
    return {'dropped': dropped, 'undisturbed': undisturbed,
            'seconds': {size: [turns[size][0] for turns in rounds] for size in rounds[0]},
            'mib': {size: [turns[size][1] for turns in rounds] for size in rounds[0]}}


def medians(result: dict, what: str) -> tuple[list[int], list[float]]:
    """Sizes, and the median cost of each."""
    return [int(size) for size in result[what]], [statistics.median(each) for each in result[what].values()]


def markdown(name: str, result: dict) -> str:
    """Return a table of sizes, and the fits as sentences."""
    study, (sizes, times), (_, memory) = STUDIES[name], medians(result, 'seconds'), medians(result, 'mib')
    line, rounds = powers.line(sizes, times), len(next(iter(result['seconds'].values())))
    rows = [f'| {study.size} | {study.cost} | least to most | times the first | {study.counted}, times the first | '
            'fitted line | peak memory |', '|---:|---:|---:|---:|---:|---:|---:|']
    for size, each, mib in zip(sizes, times, memory):
        least, most = (bound(result['seconds'][str(size)]) * study.scale for bound in (min, max))
        rows.append(f'| {size:,} | {each * study.scale:.4g} | {least:.4g} to {most:.4g} | {each / times[0]:.2f} | '
                    f'{study.theory(size) / study.theory(sizes[0]):.2f} | '
                    f'{(line.fixed + line.each * size) * study.scale:.4g} | {mib:,.0f} MiB |')
    counted = [study.theory(size) for size in sizes]
    by_theory = powers.line(sizes, counted)
    told = [f'- Time grows with the exponent {powers.power(sizes, times)} (95% interval); by {study.counted} it would '
            f'be {powers.power(sizes, counted).exponent:.2f}.'
            + (f' Memory: {powers.power(sizes, memory)}.' if study.memory else ''),
            f'- {study.cost} = {line.fixed * study.scale:.3g} + {line.each * study.scale:.3g} a '
            f'{study.size.split()[0].removesuffix("s")}, at most {line.worst:.0%} off. '
            f'Both parts are as large at {crossing(line)}; by {study.counted} at {crossing(by_theory)}.',
            f'- {rounds} rounds, {result["dropped"]} dropped'
            + ('.' if result['undisturbed'] else ': others were at work in all of them, so none of this counts.')]
    return f'### {name}\n\n' + '\n'.join(rows) + '\n\n' + '\n'.join(told) + '\n'


def crossing(line: powers.Line) -> str:
    """Return the size at which the growing cost equals the fixed cost."""
    return f'{line.fixed / line.each:,.0f}' if line.each else 'no size'


def draw(name: str, result: dict, path: str) -> None:
    """Draw time, and memory if it is due to the work, over size on logarithmic axes, with every round as a dot.

    The dashed line has theory's slope.
    """
    study = STUDIES[name]
    panels = 1 + study.memory
    figure = Figure(figsize=(5 * panels, 4.2), layout='constrained')
    for axes, what, unit, scale in zip(figure.subplots(1, panels, squeeze=False)[0], ('seconds', 'mib'),
                                       (study.cost, 'MiB at most'), (study.scale, 1)):
        sizes, costs = medians(result, what)
        for size in sizes:
            axes.plot([size] * len(result[what][str(size)]), [each * scale for each in result[what][str(size)]], '.',
                      color='#bbbbbb')
        axes.plot(sizes, [cost * scale for cost in costs], 'o-', color='#2468a8', label='median')
        if what == 'seconds':
            axes.plot(sizes, [costs[-1] * scale * study.theory(size) / study.theory(sizes[-1]) for size in sizes], '--',
                      color='#d1642a', label=f'in proportion to {study.counted}')
            axes.legend()
        axes.set(xscale='log', yscale='log', xlabel=study.size, ylabel=unit, xticks=sizes,
                 xticklabels=[f'{size:,}' for size in sizes],
                 title=f'{name}: {what} ~ size^{powers.power(sizes, costs)}')
        axes.tick_params(axis='x', rotation=30)
        axes.xaxis.set_minor_locator(NullLocator())
    figure.savefig(path, dpi=120)


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument('--out', type=pathlib.Path, required=True)
    flags.add_argument('--only', nargs='+', choices=STUDIES, default=[*STUDIES])
    flags.add_argument('--lengths', nargs='+', type=int, default=[32, 64, 128, 256, 512])
    flags.add_argument('--tokens', type=int, default=1024, help='a batch, on either side')
    flags.add_argument('--sides', nargs='+', type=int, default=[64, 96, 128, 192, 256, 384, 512])
    flags.add_argument('--pixels', type=int, default=8 * 224 ** 2, help='a batch, about')
    flags.add_argument('--lines', nargs='+', type=int, default=[10_000, 30_000, 100_000, 300_000, 1_000_000])
    flags.add_argument('--rounds', type=int, default=5)
    flags.add_argument('--seconds', type=float, default=5, help='that a size has in a round, at least one batch')
    args, rest = flags.parse_known_args()  # what is not known is the Beam job's, as --set data.vocab_size=8000
    args.out.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
    results = args.out / 'growth.json'
    all_found = json.loads(results.read_text()) if results.exists() else {}
    for name in args.only:
        begun = time.monotonic()
        all_found[name] = (
            corpora(args.out / 'corpus', args.lines, args.rounds, rest) if name == 'corpus' else
            units(sentences(args.lengths, args.tokens) if name == 'tokens' else pictures(args.sides, args.pixels),
                  args.rounds, args.seconds))
        results.write_text(json.dumps(all_found, indent=1))
        draw(name, all_found[name], str(args.out / f'growth_{name}.png'))
        print(f'{markdown(name, all_found[name])}\n({time.monotonic() - begun:.0f} s)\n', flush=True)
    (args.out / 'growth.md').write_text('\n'.join(markdown(name, all_found[name]) for name in STUDIES
                                                  if name in all_found))


if __name__ == '__main__':
    main()
