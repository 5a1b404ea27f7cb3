"""Check the form of Google Cloud's names, offline: a wrong one would be refused only after minutes.

Projects: https://cloud.google.com/resource-manager/docs/creating-managing-projects; regions:
https://cloud.google.com/dataflow/docs/concepts/regional-endpoints; buckets:
https://cloud.google.com/storage/docs/buckets#naming. Each check returns its objections as sentences that name the flag.
"""
import re

_PROJECT = r'([a-z0-9.-]+:)?[a-z][a-z0-9-]{4,28}[a-z0-9]'  # before the colon: an old project's domain
_REGION = r'([a-z]+-){1,2}[a-z]+[1-9]\d?'
_IMAGE = r'[a-z0-9][a-z0-9._:-]*(/[a-z0-9][a-z0-9._-]*)*(:\w[\w.-]{0,127})?(@sha256:[0-9a-f]{64})?'


def project(flag: str, value: str | None) -> list[str]:
    if not value:
        return [f'{flag} is missing; give the id of a Google Cloud project']
    if value.isdigit():
        return [f'{flag} {value} is a project number; give the project\'s id']
    if not re.fullmatch(_PROJECT, value):
        return [f'{flag} {value!r} is not a project id, which has 6 to 30 lower-case letters, digits and hyphens, '
                'begins with a letter and does not end with a hyphen']
    return []


def region(flag: str, value: str | None) -> list[str]:
    if not value:
        return [f'{flag} is missing; give one, for example us-central1']
    if re.fullmatch(_REGION + '-[a-z]', value):
        return [f'{flag} {value} is a zone; give its region, {value[:-2]}']
    if not re.fullmatch(_REGION, value):
        return [f'{flag} {value!r} is not the name of a region; write it like us-central1']
    return []


def folder(flag: str, value: str) -> list[str]:
    """Check a folder in a bucket."""
    match = re.fullmatch(r'gs://([^/]*)/([^\r\n]*)', value)
    if not match:
        use = ', since workers cannot write to this machine' if flag == '--pipeline_root' else ''
        return [f'{flag} {value!r} must be gs://BUCKET/FOLDER{use}']
    bucket, path = match.groups()
    whole = (re.fullmatch(r'[a-z0-9][a-z0-9._-]+[a-z0-9]', bucket) and len(bucket) <= 222
             and all(0 < len(part) <= 63 for part in bucket.split('.')) and not re.fullmatch(r'(\d+\.){3}\d+', bucket))
    if not whole or bucket.startswith('goog') or 'google' in bucket:
        return [f'{flag} {value!r}: {bucket!r} is not a valid bucket name, which has 3 to 63 lower-case letters, '
                'digits, dashes, underscores and dots, begins and ends with a letter or digit and does not contain '
                'google']
    if re.search(r'@[\d*]', path):
        return [f'{flag} {value!r}: no digit or asterisk may follow an @ there']
    return []


def image(flag: str, value: str) -> list[str]:
    """Check a container image's name, of any registry."""
    if re.fullmatch(_IMAGE, value):
        return []
    return [f'{flag} {value!r} is not the name of an image, as REGION-docker.pkg.dev/PROJECT/REPOSITORY/landmark:1']
