"""Turns raw data into TFRecords with a Beam job, on this machine or on Dataflow.

    python -m pipelines.prepare --set data.train=[train.en,train.de]
    python -m pipelines.prepare --runner DataflowRunner --project … --region … --temp_location gs://… \
        --setup_file ./setup.py

Flags not listed here are passed on to Beam.
"""
import sys

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


STAGE = stage.Stage('prepare', execute, needs=(), sections=('data',), also=raw_files, outputs={
    'examples': 'Examples', 'statistics': 'ExampleStatistics', 'schema': 'Schema'})


def main(argv=None) -> None:
    stage.main(STAGE, argv=argv)


if __name__ == '__main__':
    main(sys.argv[1:])
