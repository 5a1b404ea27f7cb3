"""Model a training step on several accelerators in two terms, and compare it with published figures.

    python benchmarks/speed/cost_model.py --out DIR
    python benchmarks/speed/cost_model.py --out DIR --measured runs/bench/side_by_side.json

Nothing here was measured on an accelerator. Operations, parameters and what dense layers take in come from
`keras_models` and `configs/`, what accelerators can do from `pipelines/starting/accelerators.yaml`, and the share of
the ceiling a step reaches from `make bench` (`--measured`), on whatever machine that was. Leaves cost_model.md in DIR.
"""
import argparse
import json
import os
import pathlib
import sys
from typing import NamedTuple

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))
from pipelines.starting.cost_model import (  # noqa: E402
    ASSUMED,
    FLOAT,  # noqa: F401 (what is measured by it is the tests')
    Accelerator,
    Scheme,
    Work,
    accelerators,
    exchanged,
    seconds,
)

SCHEMES: dict[Scheme, str] = {
    'data': 'data parallel', 'sharded': 'dense layers sharded (Krizhevsky 2014)',
    'single': 'dense layers on one device (He et al. 2015)'}
REPLICAS = 1, 2, 4, 8, 32
LENGTH = 64  # tokens, padded, of a sentence from the middle of WMT's

ASSUMPTIONS = """\
- The batch is the configuration's, whatever the number of replicas: this is speed-up at equal work, as the papers have
  it, and not growth of the batch. A batch that cannot be divided by the replicas has no figure.
- A replica computes its part of the operations at its vendor's peak times the share of the ceiling our step reaches
  in `make bench`, which is a share of the rate of a large matrix product on a CPU, or three quarters where that was not
  given. Large matrix products do not reach the peak of an accelerator either, and a small part of a batch reaches less
  than a large one, so times are too short. Speed-ups depend on it less.
- Operations are multiply-adds counted as two, and a backward pass is two forward ones. Reading memory, updates of the
  weights, input and, for ALIAS, its discriminator and VGG-19's features are not counted.
- Gradients of all parameters, 4 bytes each, are summed by a ring: every replica sends 2 (n - 1) / n of them, at its
  published one-way bandwidth and without latency. Past a host the ring is as fast as a host's network ports together.
- Without overlap the sum begins when the backward pass has ended, which is what our trainer does; time is compute plus
  exchange. With full overlap it is the larger of the two. What happens lies between.
- The first number of an efficiency is without overlap, the second with; one is the time of a step on one replica, over
  n times that on n.
"""

# Configuration, and the contest of `make bench` whose share of the ceiling counts.
MODELS = {'Transformer base': ('wmt14_en_de_base', 'transformer_base_step'),
          'Transformer big': ('wmt14_en_de_big', 'transformer_base_step'),
          'VGG-D': ('vgg_d_imagenet', 'vgg16_step'),
          'PReLU A': ('prelu_a_imagenet', 'model_a_step'),
          'VITON-HD ALIAS': ('viton_hd_alias', 'segmentation_step')}

class Published(NamedTuple):
    """A published figure.

    Attributes:
      unit: `s a step`, or `times one`, the speed-up over one replica.
      tokens: target tokens of a batch, where it is not the configuration's.
    """
    model: str
    accelerator: str
    replicas: int
    scheme: Scheme
    value: float
    unit: str
    where: str
    tokens: int = 0


# MLPerf's are 347.5 s for 1,637 steps and 151.2 s for 1,213, of the first run in either folder of results.
PUBLISHED = [
    Published('Transformer base', 'P100', 8, 'data', 0.4, 's a step', 'Vaswani et al. 2017, 5.2'),
    Published('Transformer big', 'P100', 8, 'data', 1.0, 's a step', 'Vaswani et al. 2017, 5.2'),
    Published('Transformer big', 'V100', 8, 'data', 0.2123, 's a step', 'MLPerf v0.7, NVIDIA DGX-1', 74_797),
    Published('Transformer big', 'A100', 8, 'data', 0.1247, 's a step', 'MLPerf v0.7, NVIDIA DGX A100', 100_937),
    Published('VGG-D', 'Titan Black', 4, 'data', 3.75, 'times one', 'Simonyan & Zisserman 2015, 3.3'),
    Published('PReLU A', 'K40', 4, 'single', 3.8, 'times one', 'He et al. 2015, 3'),
    Published('PReLU A', 'K40', 8, 'single', 6.0, 'times one', 'He et al. 2015, 3')]


def work(name: str, share: float) -> Work:
    """Return a step of a shipped configuration, from its model's own counts."""
    from pipelines.core import config
    resolved = config.load(name)
    model, module = resolved.model, resolved.model_spec
    if resolved.input.tokens:
        from benchmarks.speed import growth
        rows = resolved.input.tokens // LENGTH // 32 * 32  # as --set input.rows_multiple_of=32 makes them
        return Work(growth.token_flops(LENGTH, model) * rows * LENGTH, module.parameters(model), rows, share)
    rows = resolved.input.rows
    flops = rows * module.flops_per_unit(model)
    if not module.costs:
        return Work(flops, learned(model, module), rows, share)
    dense = [cost for cost in module.costs(model) if cost.name.startswith('fc')]
    return Work(flops, module.parameters(model), rows, share, 6 * rows * sum(cost.macs for cost in dense),
                sum(cost.parameters for cost in dense), tuple(cost.macs // cost.channels for cost in dense))


def learned(model, module) -> int:
    """Parameters of the try-on networks a run teaches, and of the discriminators beside them."""
    from keras_models.viton import chain
    nets = module.discriminators(model).values()
    return (sum(chain.PARTS[part].parameters(chain.part(model, part)) for part in model.trainable_networks)
            + sum(variable.shape.num_elements() for net in nets for variable in net.trainable_variables))


def efficiency(step: Work, on: Accelerator, n: int, scheme: Scheme = 'data', overlap: bool = False) -> float:
    return seconds(step, on, 1, scheme) / n / seconds(step, on, n, scheme, overlap)


def predictions(steps: dict[str, Work], machines: dict[str, Accelerator]) -> str:
    """Efficiency at several numbers of replicas, without and with overlap."""
    rows = ['| accelerator | model | a step on one | ' + ' | '.join(map(str, REPLICAS)) + ' |',
            '|---|---|---:|' + '---:|' * len(REPLICAS)]
    for name, on in machines.items():
        for model, step in steps.items():
            found = [f'{efficiency(step, on, n):.0%} to {efficiency(step, on, n, overlap=True):.0%}'
                     if not step.rows % n and (on.beyond or n <= on.together) else '' for n in REPLICAS]
            rows.append(f'| {name}, {on.precision} | {model} | {seconds(step, on, 1):.3g} s | '
                        + ' | '.join(found) + ' |')
    return '\n'.join(rows)


def predicted(figure: Published, step: Work, on: Accelerator) -> float:
    """Return what the model says, without overlap, in the figure's unit."""
    if figure.tokens:
        step = step._replace(flops=step.flops * figure.tokens / (step.rows * LENGTH))
    found = seconds(step, on, figure.replicas, figure.scheme)
    return found if figure.unit == 's a step' else seconds(step, on, 1, figure.scheme) / found


def exchange_table(steps: dict[str, Work]) -> str:
    """Return a table of each scheme's traffic per step, for nets with dense layers."""
    rows = ['| net | batch | scheme | MB a replica sends: of 2 | of 4 | of 8 | computed by one alone |',
            '|---|---:|---|---:|---:|---:|---:|']
    for model, step in steps.items():
        for scheme, words in SCHEMES.items() if step.dense_inputs else ():
            sent = ' | '.join(f'{exchanged(step, n, scheme) / 1e6:,.1f}' for n in (2, 4, 8))
            alone = step.dense_flops / step.flops if scheme == 'single' else 0
            rows.append(f'| {model} | {step.rows} | {words} | {sent} | {alone:.1%} |')
    return '\n'.join(rows)


def markdown(steps: dict[str, Work]) -> str:
    machines = accelerators()
    published = ['| model | on | scheme | published | this model | its ratio to that | where |',
                 '|---|---|---|---:|---:|---:|---|']
    for figure in PUBLISHED:
        ours = predicted(figure, steps[figure.model], machines[figure.accelerator])
        published.append(f'| {figure.model} | {figure.replicas} {figure.accelerator} | {SCHEMES[figure.scheme]} | '
                         f'{figure.value:g} {figure.unit} | {ours:.3g} | {ours / figure.value:.2f} | {figure.where} |')
    counted = '\n'.join(f'- {model}: {step.flops:.3g} operations a step, {step.parameters:,} parameters, '
                        f'{step.share:.0%} of the ceiling.' for model, step in steps.items())
    sources = '\n'.join(f'- {name}: {on.source}.' for name, on in machines.items())
    parts = {'Assumptions': ASSUMPTIONS, 'Steps': counted, 'Accelerators': sources,
             'Efficiency by replicas': predictions(steps, machines), 'Beside what was published': '\n'.join(published),
             'What is exchanged': exchange_table(steps)}
    return '\n'.join(f'## {title}\n\n{text.strip()}\n' for title, text in parts.items())


def all_steps(measured: dict) -> dict[str, Work]:
    """Return a step of every model, with the share of the ceiling that `side_by_side.json` holds."""
    return {model: work(name, measured[contest]['sides']['ours']['of the ceiling'] if contest in measured else ASSUMED)
            for model, (name, contest) in MODELS.items()}


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument('--out', type=pathlib.Path, required=True)
    flags.add_argument('--measured', type=pathlib.Path, help='the side_by_side.json of `make bench`')
    args = flags.parse_args()
    os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
    args.out.mkdir(parents=True, exist_ok=True)
    text = markdown(all_steps(json.loads(args.measured.read_text()) if args.measured else {}))
    (args.out / 'cost_model.md').write_text(text)
    print(text)


if __name__ == '__main__':
    main()
