"""Size, latency and drift of every format that was exported and evaluated in a pipeline root.

    python benchmarks/speed/formats.py --config NAME --pipeline_root DIR [--set KEY=VALUE …] [--inputs 200]

Latency is of one test example at a time, from its bytes or text to its answer, in this process; formats take turns at
each example, so that other work on the machine meets all of them alike. The first ten examples only warm up. Drift is
what `evaluate --format` recorded. Prints a table.
"""
import argparse
import os
import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
WARM_UP = 10


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument('--config', required=True)
    flags.add_argument('--pipeline_root', required=True)
    flags.add_argument('--set', action='append', default=[], dest='overrides')
    flags.add_argument('--inputs', type=int, default=200, help='test examples (default: %(default)s)')
    args = flags.parse_args()
    from pipelines.core import cli
    cli.quiet_libraries()
    from pipelines.core import config
    from pipelines.core.pipeline import Pipeline
    from pipelines.formats.table import FORMATS
    pipeline = Pipeline(config.load(args.config, args.overrides), args.pipeline_root, [])
    names = [name for name in FORMATS if pipeline.finished(f'evaluate-{name}')]
    models, folders = opened(pipeline, names)
    seconds = latencies(pipeline, models, args.inputs)
    metrics = pipeline.outputs('evaluate')['blessing'].properties['metrics']['overall']
    print(f'| format | MB | ms, p50 | p99 | {" | ".join(metrics)} | gate |')
    print(f'|---|---:|---:|---:|{"---:|" * len(metrics)}---|')
    for name, folder in folders.items():
        stage = f'evaluate-{name}' if name in names else 'evaluate'
        found = pipeline.outputs(stage)[f'{name}_blessing' if name in names else 'blessing'].properties
        cuts = statistics.quantiles(seconds[name], n=100)
        numbers = [f'{size(folder) / 1e6:.2f}', f'{1e3 * cuts[49]:.1f}', f'{1e3 * cuts[98]:.1f}',
                   *(f'{found["metrics"]["overall"][metric]:.4g}' for metric in metrics)]
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


def latencies(pipeline, models: dict, count: int) -> dict[str, list[float]]:
    """Return the seconds of every prediction, by model."""
    from data_prep.core import records
    from pipelines.serving import saved_model
    split = records.open_split(pipeline.outputs('prepare')['examples'].uri, pipeline.config.evaluate.split)
    inputs, _ = pipeline.config.data_spec.examples(split.read(range(min(count + WARM_UP, len(split)))))
    seconds: dict[str, list[float]] = {name: [] for name in models}
    for each in inputs:
        for name, model in models.items():
            started = time.perf_counter()
            saved_model.run(model, [each])
            seconds[name].append(time.perf_counter() - started)
    return {name: found[WARM_UP:] for name, found in seconds.items()}


def size(folder: str) -> int:
    return sum(path.stat().st_size for path in pathlib.Path(folder).rglob('*') if path.is_file())


if __name__ == '__main__':
    main()
