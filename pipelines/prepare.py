"""Turns raw data into TFRecords with a Beam job, on this machine or on Dataflow.

    python -m pipelines.prepare --set data.train=[train.en,train.de]
    python -m pipelines.prepare --runner DataflowRunner --project … --region … --temp_location gs://… \
        --setup_file ./setup.py

Flags not listed here are passed on to Beam.
"""
import sys

from data_prep import UserError
from pipelines import stage


def execute(context: stage.Context) -> None:
    from data_prep import statistics
    from pipelines.pipeline import fresh
    config = context.config
    folder = fresh(context.outputs['examples'])
    manifest = config.data_module.prepare(config.data, folder, context.argv)
    anomalies = statistics.describe(folder, fresh(context.outputs['statistics']), fresh(context.outputs['schema']),
                                    context.argv)
    context.properties.update(counts=manifest['counts'], anomalies=anomalies)
    for split, found in anomalies.items():
        print(f'prepare: {split} departs from the schema of the training split: {"; ".join(found)}', flush=True)
    for split, counts in manifest['counts'].items():
        print(f'prepare: {split}: ' + ', '.join(f'{value:,} {name.replace("_", " ")}'
                                                for name, value in counts.items() if value), flush=True)


def raw_files(pipeline) -> dict:
    """Sizes and times of the raw files: what tells that they changed, without reading them."""
    import tensorflow as tf
    data, found = pipeline.config.data, {}
    for split in pipeline.config.data_module.SPLITS:
        for path in data.files(split):
            stat = tf.io.gfile.stat(path) if tf.io.gfile.exists(path) else None
            found[path] = [stat.length, stat.mtime_nsec] if stat else None
    return found


def check_beam_flags(flags: list[str]) -> None:
    """Refuses what neither a stage nor Beam knows; Beam itself would only drop it with a warning."""
    from apache_beam.options.pipeline_options import PipelineOptions
    known = PipelineOptions(flags).get_all_options()
    unknown = sorted(set(PipelineOptions(flags).get_all_options(retain_unknown_options=True)) - set(known))
    if unknown or not flags[0].startswith('-'):
        what = f'there is no flag --{unknown[0]}, neither here nor in Beam' if unknown else f'{flags[0]!r} is no flag'
        raise UserError(f'{what}; --help lists those of this command.')


STAGE = stage.Stage('prepare', execute, needs=(), sections=('data',), also=raw_files, outputs={
    'examples': 'Examples', 'statistics': 'ExampleStatistics', 'schema': 'Schema'})


def main(argv=None) -> None:
    stage.main(STAGE, argv=argv)


if __name__ == '__main__':
    main(sys.argv[1:])
