"""Convert raw data to TFRecords with a Beam job, on this machine or on Dataflow.

    python -m pipelines.prepare --set data.train=[train.en,train.de]
    python -m pipelines.prepare --runner DataflowRunner --project … --region … --temp_location gs://… --dry_run

Flags not listed here are passed on to Beam. On Dataflow, --pipeline_root defaults to runs/<name> in the bucket of
--temp_location, and workers install this checkout unless --setup_file or --sdk_container_image is given.
"""
import argparse
import os
import shutil
import sys
import time
import typing

from data_prep import UserError
from pipelines.core import cli, stage
from pipelines.engines import dataflow

if typing.TYPE_CHECKING:  # keep imports light until the flags are parsed
    from pipelines.core.config import Config
    from pipelines.core.pipeline import Pipeline


def execute(context: stage.Context) -> None:
    from data_prep.core import statistics
    from pipelines.core import roles
    from pipelines.core.pipeline import fresh
    config, started = context.config, time.monotonic()
    folder, before = fresh(context.outputs['examples']), stats(context.pipeline)
    manifest = roles.job(config.data_spec).run(config.data, folder, context.argv)
    raw = list_raw_files(context, folder, before)
    described = [fresh(context.outputs[key]) for key in ('statistics', 'schema', 'anomalies')]
    findings = statistics.describe(folder, *described)
    context.properties.update(counts=manifest.counts, findings=findings, raw=raw)
    for finding in findings:
        print(f'prepare: {finding}', flush=True)
    for split, counts in manifest.counts.items():
        ordered = {name: counts[name] for name in ('read', 'written')} | counts
        print(f'prepare: {split}: ' + ', '.join(f'{value:,} {name.replace("_", " ")}'
                                                for name, value in ordered.items() if value), flush=True)
    seconds, unit = time.monotonic() - started, config.data_spec.unit
    read = sum(counts['read'] for counts in manifest.counts.values())
    print(f'prepare: {read:,} {unit} in {seconds:,.0f} s with statistics, {read / seconds:,.0f} {unit}/s.', flush=True)


def list_raw_files(context: stage.Context, folder: str, before: dict) -> dict:
    """Record the raw files a data set was made from; see `raw_files.run`.

    Args:
      folder: the data set.
      before: `stats` from before the files were read.

    Raises:
      UserError: a file changed while it was read, so the data set may mix two versions of it.
    """
    import tensorflow as tf

    from data_prep.core import raw_files
    drawn = os.path.join(folder, 'raw')  # generated raw files of `data.samples`
    found = raw_files.run([*before, *([drawn] if tf.io.gfile.isdir(drawn) else [])], folder, context.argv)
    if changed := [path for path, stat in stats(context.pipeline).items() if stat != before.get(path)]:
        raise UserError(f'{changed[0]} changed while it was read. Run `{context.pipeline.command("prepare")}` again '
                        'when no process writes to it.')
    return found


def stats(pipeline: 'Pipeline') -> dict:
    """Return sizes and times of the raw files, which reveal changes without reading them."""
    import tensorflow as tf
    found = {}
    for path in raw_paths(pipeline.config):
        stat = tf.io.gfile.stat(path) if tf.io.gfile.exists(path) else None
        found[path] = [stat.length, stat.mtime_nsec] if stat else None
    return found


def raw_paths(config: 'Config') -> list[str]:
    """Return the raw files of all splits."""
    return [path for split in config.data_spec.splits for path in config.data.files(split)]


def dry_run(pipeline: 'Pipeline') -> None:
    """Build the job and write the file Dataflow would receive, without submitting it or accessing a bucket.

    What would be uploaded is written beside it: `pipeline.pb`, the steps, and `workflow.tar.gz`, which workers install.
    """
    import apache_beam as beam
    from apache_beam.options.pipeline_options import DebugOptions, GoogleCloudOptions, PipelineOptions, WorkerOptions

    from pipelines.core import roles
    from pipelines.core.pipeline import fresh
    config = pipeline.config
    options = PipelineOptions([*pipeline.argv, '--dry_run=True', '--no_auth'])
    path = options.view_as(DebugOptions).dataflow_job_file
    if path and '://' in path:
        raise UserError(f'--dataflow_job_file {path}: a dry run writes it on this machine. Give a local path.')
    here = os.path.join('runs', config.name) if '://' in pipeline.root else pipeline.root
    path = path or os.path.join(fresh(os.path.join(here, 'dataflow')), 'job.json')
    folder = os.path.join(pipeline.root, 'prepare', 'dry_run', 'examples')
    with beam.Pipeline(options=options) as graph:
        roles.job(config.data_spec).build(graph, config.data, folder)
    job = graph.result.job
    write_job(job, path)
    cloud, image = job.options.view_as(GoogleCloudOptions), job.options.view_as(WorkerOptions).sdk_container_image
    files = sum(len(config.data.files(split)) for split in config.data_spec.splits)
    print(f'prepare: dry run, nothing was submitted: {cloud.job_name} would run in {cloud.project}, {cloud.region}, on '
          f'workers {f"of image {image}" if image else "that install workflow.tar.gz"}, '
          f'reading {f"{files} files, not checked to exist," if files else "the generated corpus"} and writing '
          f'below {pipeline.root}; statistics of its output would be computed here.')
    print(f'prepare: job file: {path}', flush=True)


def write_job(job, path: str) -> None:
    """Write the job as Beam would submit it, and beside it the files Beam would upload.

    Beam's own `--dataflow_job_file` is written only during a submission. This uses Beam's internal client, because no
    public interface writes the job.

    Args:
      job: `apache_beam.runners.dataflow.internal.apiclient.Job` of a dry run.
      path: a local file.
    """
    from apache_beam.options.pipeline_options import GoogleCloudOptions, TestOptions
    from apache_beam.runners.dataflow.internal import apiclient

    folder = os.path.dirname(os.path.abspath(path))
    os.makedirs(folder, exist_ok=True)

    class Client(apiclient.DataflowApplicationClient):
        def stage_file(self, gcs_or_local_path, file_name, stream, mime_type='', total_size=None):
            with open(os.path.join(folder, file_name), 'wb') as file:
                shutil.copyfileobj(stream, file)

    client = Client(job.options, job.root_staging_location)
    job.options.view_as(TestOptions).dry_run = job.options.view_as(GoogleCloudOptions).no_auth = False  # as submitted
    client.create_job_description(job)
    with open(path, 'w') as file:
        file.write(str(job))


STAGE = stage.Stage('prepare', execute, needs=(), sections=('data',), roles=('data', 'job'), extra_inputs=stats,
                    watched=raw_paths, seeded=False, takes_beam_flags=True, outputs={
    'examples': 'Examples', 'statistics': 'ExampleStatistics', 'schema': 'Schema', 'anomalies': 'ExampleAnomalies'})


def _parser() -> argparse.ArgumentParser:
    flags = cli.parser('prepare', sys.modules[execute.__module__].__doc__ or '')
    flags.add_argument('--dry_run', nargs='?', const='True', default='False', choices=['True', 'False'],
                       help='write the Dataflow job\'s file without submitting it')
    return flags


def main(argv=None) -> None:
    flags = _parser()
    args, rest = flags.parse_known_args(argv)
    if args.dry_run == 'False' or args.explain:
        cli.main(STAGE, flags, argv)
        return

    def work():
        if not dataflow.read(rest):
            raise UserError('--dry_run writes the file of a Dataflow job. Give --runner DataflowRunner with it.')
        dry_run(cli.open_pipeline(args, rest))
    cli.run_command(work)


if __name__ == '__main__':
    main(sys.argv[1:])
