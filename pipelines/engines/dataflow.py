"""Check a Dataflow command before anything slow is imported or anything is sent.

Dataflow reports an unknown name only after minutes of retries. Most wrong names are already malformed, and the forms
are documented: those of jobs at https://cloud.google.com/dataflow/docs/reference/pipeline-options, the others' in
`google_names.py`.
"""
import argparse
import os
import pathlib
import re

from data_prep import UserError
from pipelines.engines import google_names

_JOB_NAME = r'[a-z]([a-z0-9-]{0,1022}[a-z0-9])?'
_SETUP = str(pathlib.Path(__file__).resolve().parents[2] / 'setup.py')


def read(flags: list[str]) -> argparse.Namespace | None:
    """Parse the Beam flags a Dataflow job depends on; None for another runner."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for name in ('runner', 'project', 'region', 'temp_location', 'staging_location', 'setup_file', 'job_name',
                 'sdk_container_image', 'template_location'):
        parser.add_argument(f'--{name}', nargs='?', const='')
    parser.add_argument('--extra_package', '--extra_packages', action='append', dest='extra_packages')
    options, _ = parser.parse_known_args(flags)
    name = (options.runner or '').rsplit('.', 1)[-1].lower()
    return options if name.removesuffix('runner') in ('dataflow', 'testdataflow') else None


def problems(options: argparse.Namespace, root: str | None) -> list[str]:
    """Describe every problem of a Dataflow job with these options and this --pipeline_root."""
    found = [*google_names.project('--project', options.project), *google_names.region('--region', options.region)]
    if not options.temp_location:
        found.append('--temp_location is missing; give gs://BUCKET/FOLDER for temporary files')
    for flag, location in (('--temp_location', options.temp_location), ('--staging_location', options.staging_location),
                           ('--pipeline_root', root)):
        found += google_names.folder(flag, location) if location else []
    found += _package(options)
    if options.job_name and not re.fullmatch(_JOB_NAME, options.job_name):
        found.append(f'--job_name {options.job_name!r} must be lower-case letters, digits and hyphens, begin with a '
                     'letter and not end with a hyphen')
    if options.template_location:
        found.append('--template_location only saves the job without running it; give --dry_run instead')
    return found


def _package(options: argparse.Namespace) -> list[str]:
    """Check that workers receive the project's code."""
    if options.setup_file and os.path.basename(options.setup_file) not in ('setup.py', 'pyproject.toml'):
        return [f'--setup_file {options.setup_file!r} must be a file named setup.py or pyproject.toml']
    if options.setup_file and not os.path.isfile(options.setup_file):
        return [f'--setup_file: there is no file {options.setup_file}']
    if options.sdk_container_image:
        return google_names.image('--sdk_container_image', options.sdk_container_image)
    if not (options.setup_file or options.extra_packages or os.path.isfile(_SETUP)):
        return ['--setup_file and --sdk_container_image are missing; give one, or workers lack this package']
    return []


def complete(flags: list[str], options: argparse.Namespace) -> list[str]:
    """Complete the flags with what is known on this machine.

    The package defaults to this checkout's. The setup file gets its full path, because Beam fails on
    `--setup_file setup.py`. `__main__` is not pickled, which Beam would otherwise do for Dataflow.
    """
    result = [*flags, '--no_save_main_session']
    if options.setup_file:
        return [*result, '--setup_file', os.path.abspath(options.setup_file)]  # the last one counts
    return result if options.sdk_container_image or options.extra_packages else [*result, '--setup_file', _SETUP]


def default_root(options: argparse.Namespace, name: str) -> str:
    """Return `runs/<name>` in the bucket of temporary files, since workers cannot write to this machine."""
    return '/'.join([*options.temp_location.split('/')[:3], 'runs', name])


def check_data(data, splits) -> None:
    """Raise `UserError` if a data file lies on this machine, naming the first of each split."""
    local = [(split, [path for path in data.files(split) if '://' not in path]) for split in splits]
    found = [f'data.{split} {paths[0]!r}' + (f' and {len(paths) - 1} more' if paths[1:] else '')
             for split, paths in local if paths]
    if found:
        raise UserError(f'DataflowRunner: workers cannot read files of this machine: {"; ".join(found)}. Copy them to '
                        'a bucket and give their gs:// paths (data.folder is prepended to each).')
