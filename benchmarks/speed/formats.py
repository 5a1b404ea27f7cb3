"""Size, latency, throughput and drift of every format that was exported and evaluated in a pipeline root.

    python benchmarks/speed/formats.py --config NAME --pipeline_root DIR [--set KEY=VALUE …] [--inputs 200]

Latency is of one test example at a time, from its bytes or text to its answer, in this process; formats take turns at
each example, so that other work on the machine meets all of them alike. The first ten examples only warm up. Throughput
is of all examples in one call, in turns again, the median of `ROUNDS`. Drift is what `evaluate --format` recorded.
Prints a table.
"""
import argparse
import os
import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
WARM_UP = 10
ROUNDS = 3


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument('--config', required=True)
    flags.add_argument('--pipeline_root', required=True)
    flags.add_argument('--set', action='append', default=[], dest='overrides')
    flags.add_argument('--inputs', type=int, default=200, help='test examples (default: %(default)s)')
    args = flags.parse_args()
    from pipelines.core import cli
    cli.prepare_libraries()
    from pipelines.core import config
    from pipelines.core.pipeline import Pipeline
    from pipelines.formats.table import FORMATS
    pipeline = Pipeline(config.load(args.config, args.overrides), args.pipeline_root, [])
    names = [name for name in FORMATS if pipeline.finished(f'evaluate-{name}')]
    models, folders = opened(pipeline, names)
    inputs = examples(pipeline, args.inputs + WARM_UP)
    seconds, rates = latencies(models, inputs), throughputs(models, inputs)
    metrics = pipeline.outputs('evaluate')['blessing'].properties['metrics']['overall']
    print(f'| format | MB | ms, p50 | p99 | a second | {" | ".join(metrics)} | gate |')
    print(f'|---|---:|---:|---:|---:|{"---:|" * len(metrics)}---|')
    for name, folder in folders.items():
        stage = f'evaluate-{name}' if name in names else 'evaluate'
        found = pipeline.outputs(stage)[f'{name}_blessing' if name in names else 'blessing'].properties
        cuts = statistics.quantiles(seconds[name], n=100)
        numbers = [f'{size(folder) / 1e6:.2f}', f'{1e3 * cuts[49]:.1f}', f'{1e3 * cuts[98]:.1f}',
                   f'{rates[name]:.1f}', *(f'{found["metrics"]["overall"][metric]:.4g}' for metric in metrics)]
        print(f'| {name} | {" | ".join(numbers)} | {"blessed" if found["blessed"] else "refused"} |')


def opened(pipeline, names: list[str]) -> tuple[dict, dict]:
    """Load the SavedModel and every format: models and folders by name."""
    from pipelines.formats import runner
    from pipelines.serving import saved_model
    from pipelines.serving.layout import FORMAT
    folders = {'SavedModel': os.path.join(pipeline.outputs('export')['model'].uri, FORMAT)}
    folders |= {name: pipeline.outputs(f'export-{name}')[name].uri for name in names}
    return {name: runner.load(folder) if name in names else saved_model.load(folder)
            for name, folder in folders.items()}, folders


def examples(pipeline, count: int) -> list:
    """Return the first inputs of the evaluated split."""
    from data_prep.core import records
    split = records.open_split(pipeline.outputs('prepare')['examples'].uri, pipeline.config.evaluate.split)
    inputs, _ = pipeline.config.data_spec.examples(split.read(range(min(count, len(split)))))
    return inputs


def latencies(models: dict, inputs: list) -> dict[str, list[float]]:
    """Return the seconds of every prediction, by model."""
    seconds: dict[str, list[float]] = {name: [] for name in models}
    for each in inputs:
        for name, model in models.items():
            seconds[name].append(timed(model, [each]))
    return {name: found[WARM_UP:] for name, found in seconds.items()}


def throughputs(models: dict, inputs: list) -> dict[str, float]:
    """Return the predictions per second in one call with all inputs, by model."""
    rounds = [{name: timed(model, inputs) for name, model in models.items()} for _ in range(ROUNDS)]
    return {name: len(inputs) / statistics.median(seconds[name] for seconds in rounds) for name in models}


def timed(model, inputs: list) -> float:
    """Return the seconds of a call."""
    from pipelines.serving import saved_model
    started = time.perf_counter()
    saved_model.run(model, inputs)
    return time.perf_counter() - started


def size(folder: str) -> int:
    return sum(path.stat().st_size for path in pathlib.Path(folder).rglob('*') if path.is_file())


if __name__ == '__main__':
    main()
