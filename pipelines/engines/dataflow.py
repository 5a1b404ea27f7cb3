"""Check a Dataflow command before anything slow is imported or anything is sent.

Dataflow reports an unknown name only after minutes of retries. Most wrong names are already malformed, and the forms
are documented: project ids (https://cloud.google.com/resource-manager/docs/creating-managing-projects), buckets
(https://cloud.google.com/storage/docs/buckets#naming), regions
(https://cloud.google.com/dataflow/docs/concepts/regional-endpoints), locations and job names
(https://cloud.google.com/dataflow/docs/reference/pipeline-options).
"""
import argparse
import os
import pathlib
import re

from data_prep import UserError

_PROJECT = r'([a-z0-9.-]+:)?[a-z][a-z0-9-]{4,28}[a-z0-9]'  # before the colon: an old project's domain
_REGION = r'([a-z]+-){1,2}[a-z]+[1-9]\d?'
_JOB_NAME = r'[a-z]([a-z0-9-]{0,1022}[a-z0-9])?'
_IMAGE = r'[a-z0-9][a-z0-9._:-]*(/[a-z0-9][a-z0-9._-]*)*(:\w[\w.-]{0,127})?(@sha256:[0-9a-f]{64})?'
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
    found = [*_project(options.project), *_region(options.region)]
    if not options.temp_location:
        found.append('--temp_location is missing; give gs://BUCKET/FOLDER for temporary files')
    for flag, location in (('--temp_location', options.temp_location), ('--staging_location', options.staging_location),
                           ('--pipeline_root', root)):
        found += _location(flag, location) if location else []
    found += _package(options)
    if options.job_name and not re.fullmatch(_JOB_NAME, options.job_name):
        found.append(f'--job_name {options.job_name!r} must be lower-case letters, digits and hyphens, begin with a '
                     'letter and not end with a hyphen')
    if options.template_location:
        found.append('--template_location only saves the job without running it; give --dry_run instead')
    return found


def _project(project: str | None) -> list[str]:
    if not project:
        return ['--project is missing; give the id of a Google Cloud project']
    if project.isdigit():
        return [f'--project {project} is a project number; give the project\'s id']
    if not re.fullmatch(_PROJECT, project):
        return [f'--project {project!r} is not a project id, which has 6 to 30 lower-case letters, digits and hyphens, '
                'begins with a letter and does not end with a hyphen']
    return []


def _region(region: str | None) -> list[str]:
    if not region:
        return ['--region is missing; give one, for example us-central1']
    if re.fullmatch(_REGION + '-[a-z]', region):
        return [f'--region {region} is a zone; give its region, {region[:-2]}']
    if not re.fullmatch(_REGION, region):
        return [f'--region {region!r} is not the name of a region; write it like us-central1']
    return []


def _location(flag: str, location: str) -> list[str]:
    match = re.fullmatch(r'gs://([^/]*)/([^\r\n]*)', location)
    if not match:
        use = ', since workers cannot write to this machine' if flag == '--pipeline_root' else ''
        return [f'{flag} {location!r} must be gs://BUCKET/FOLDER{use}']
    bucket, folder = match.groups()
    whole = (re.fullmatch(r'[a-z0-9][a-z0-9._-]+[a-z0-9]', bucket) and len(bucket) <= 222
             and all(0 < len(part) <= 63 for part in bucket.split('.')) and not re.fullmatch(r'(\d+\.){3}\d+', bucket))
    if not whole or bucket.startswith('goog') or 'google' in bucket:
        return [f'{flag} {location!r}: {bucket!r} is not a valid bucket name, which has 3 to 63 lower-case letters, '
                'digits, dashes, underscores and dots, begins and ends with a letter or digit and does not contain '
                'google']
    if re.search(r'@[\d*]', folder):
        return [f'{flag} {location!r}: no digit or asterisk may follow an @ there']
    return []


def _package(options: argparse.Namespace) -> list[str]:
    """Check that workers receive the project's code."""
    if options.setup_file and os.path.basename(options.setup_file) not in ('setup.py', 'pyproject.toml'):
        return [f'--setup_file {options.setup_file!r} must be a file named setup.py or pyproject.toml']
    if options.setup_file and not os.path.isfile(options.setup_file):
        return [f'--setup_file: there is no file {options.setup_file}']
    if options.sdk_container_image and not re.fullmatch(_IMAGE, options.sdk_container_image):
        return [f'--sdk_container_image {options.sdk_container_image!r} is not the name of an image, as '
                'REGION-docker.pkg.dev/PROJECT/REPOSITORY/landmark-worker:1']
    if not (options.setup_file or options.sdk_container_image or options.extra_packages or os.path.isfile(_SETUP)):
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
