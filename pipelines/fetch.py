"""Fetch a data set: download it, verify its checksums, and convert it for the configurations.

    python -m pipelines.fetch --list
    python -m pipelines.fetch multi30k
    python -m pipelines.run --config multi30k_en_de --set data.folder=data/multi30k

An interrupted download resumes where it stopped. For a data set that needs an account, the command names its source and
checks the files you put into the folder.
"""
import argparse
import errno
import os
import pathlib
import shutil
import sys
import typing

from data_prep import UserError
from pipelines.core import cli, commands

if typing.TYPE_CHECKING:
    from pipelines.fetching.catalogue import DataSet


def run(data_set: 'DataSet', out: str) -> None:
    """Fetch a data set into a folder, or check the files the user put there.

    Raises:
      UserError: the disk is too small; or a file cannot be downloaded, is missing, or differs from the published one.
    """
    folder = pathlib.Path(out)
    _describe(data_set, folder)
    try:
        if data_set.brings:
            _check(data_set, folder)
        else:
            _fetch(data_set, folder)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST, errno.ENAMETOOLONG):
            raise
        raise UserError(f'{error.filename or folder}: {os.strerror(error.errno)}. Choose another folder with --out.'
                        ) from error
    if data_set.example:
        root = folder / data_set.root if data_set.root else folder
        print('Next: ' + commands.line('run', ['--config', data_set.example, '--set', f'data.folder={root}']))


def _describe(data_set: 'DataSet', folder: pathlib.Path) -> None:
    print(f'{data_set.title}\n  page: {data_set.page}\n  size: {data_set.size}\n  licence: {data_set.licence}\n'
          f'  cite: {data_set.citation}\n  folder: {folder}', flush=True)


def _fetch(data_set: 'DataSet', folder: pathlib.Path) -> None:
    from pipelines.fetching import conversion, download
    _check_space(data_set, folder)
    folder.mkdir(parents=True, exist_ok=True)
    for file in data_set.files:
        print(f'fetch: {file.name}: {download.fetch(file, folder)}', flush=True)
    for row in data_set.makes:
        print(f'fetch: {row["name"]}: {conversion.make(folder, **row)}', flush=True)


def _check_space(data_set: 'DataSet', folder: pathlib.Path) -> None:
    """Raise `UserError` if the disk has no room for the remaining files."""
    from pipelines.fetching import catalogue, download
    need, unknown = 0, list[str]()
    for file in data_set.files:
        path = folder / file.name
        if not path.exists():
            size, part = download.size(file), download.part_of(path)
            need += (size or 0) - (part.stat().st_size if part.exists() else 0)
            unknown += [file.name] if size is None else []
    need += sum(row.get('room', 0) for row in data_set.makes if not (folder / row['name']).exists())
    there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.is_dir())
    free = shutil.disk_usage(there).free
    if need > free:
        raise UserError(f'{there}: only {catalogue.megabytes(free)} are free; {data_set.name} needs '
                        f'{catalogue.megabytes(need)}. Free some space, or choose another disk with --out.')
    for name in unknown:
        print(f'fetch: {name}: its size is unknown, so it is left out of the check for disk space', flush=True)


def _check(data_set: 'DataSet', folder: pathlib.Path) -> None:
    from pipelines.fetching import brought
    faults = brought.check(folder, data_set.brings)
    if faults:
        more = f' and {len(faults) - 3} more faults' if len(faults) > 3 else ''
        raise UserError(f'{data_set.name}: {"; ".join(faults[:3])}{more}. {data_set.get} Put the files into {folder}, '
                        'or name their folder with --out.')
    print(f'fetch: {data_set.name}: every file is present and matches its published checks', flush=True)


def _list() -> None:
    from pipelines.fetching import catalogue
    for name, data_set in catalogue.load().items():
        how = 'you provide it' if data_set.brings else data_set.size
        print(f'{name:<18}{data_set.title}: {how}. Licence: {data_set.licence}.')


def main(argv: list[str] | None = None) -> None:
    flags = argparse.ArgumentParser(prog='python -m pipelines.fetch', description=__doc__, allow_abbrev=False,
                                    formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument('name', nargs='?', help='data set to fetch')
    flags.add_argument('--list', action='store_true', help='list the data sets with sizes and licences (the default)')
    flags.add_argument('--out', metavar='DIR', help='folder for the data (default: one below data/ or weights/)')
    args = flags.parse_args(argv)

    def work() -> None:
        if args.list or not args.name:
            _list()
            return
        from pipelines.fetching import catalogue
        data_set = catalogue.get(args.name)
        run(data_set, args.out or data_set.folder)
    cli.run_command(work)


if __name__ == '__main__':
    main(sys.argv[1:])
