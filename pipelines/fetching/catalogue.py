"""The data sets that can be fetched or checked, read from data_sets.yaml."""
import dataclasses
import difflib
import pathlib
from typing import Any

import yaml

from data_prep import UserError

TABLE = pathlib.Path(__file__).with_name('data_sets.yaml')


@dataclasses.dataclass(frozen=True)
class File:
    """One file to download.

    Attributes:
      name: its name in the data set's folder.
      url: where it is published.
      bytes: its published size, or None.
      checksum: `sha256:…`, `md5:…`, `sha256-begins:…`, or nothing if none is published.
      published: who published the checksum.
    """
    name: str
    url: str
    bytes: int | None = None
    checksum: str = ''
    published: str = ''


@dataclasses.dataclass(frozen=True)
class DataSet:
    """One data set; data_sets.yaml explains the fields.

    Attributes:
      makes: arguments of `conversion.make`.
      brings: arguments of `brought.check`.
    """
    name: str
    title: str
    page: str
    licence: str
    citation: str
    folder: str
    root: str = ''
    example: str = ''
    files: tuple[File, ...] = ()
    makes: tuple[dict[str, Any], ...] = ()
    brings: tuple[dict[str, Any], ...] = ()
    get: str = ''

    @property
    def size(self) -> str:
        """Size of the download as text."""
        if self.brings:
            sizes = [f'{row["file"]} {row["size"]}' for row in self.brings if 'size' in row]
            return ', '.join(sizes) or 'not downloaded'
        known = sum(file.bytes or 0 for file in self.files)
        unknown = [file.name for file in self.files if file.bytes is None]
        words = [megabytes(known)] * bool(known) + [f'{name} (size not published)' for name in unknown]
        return ' and '.join(words)

    def provides(self) -> set[str]:
        """Paths in the folder that exist once the data set is fetched or checked."""
        made = {file.name for file in self.files} | {row['name'] for row in self.makes}
        return made | {row.get('file') or row['folder'] for row in self.brings}


def megabytes(count: int) -> str:
    return f'{count / 1e6:,.1f} MB' if count < 1e9 else f'{count / 1e9:,.2f} GB'


def load(path: pathlib.Path = TABLE) -> dict[str, DataSet]:
    """Load every data set by name."""
    table = yaml.safe_load(path.read_text())
    files = {name: File(name, **row) for name, row in table['files'].items()}
    return {name: DataSet(name, **{**row, 'files': tuple(files[file] for file in row.get('files', ())),
                                   'makes': tuple(row.get('makes', ())), 'brings': tuple(row.get('brings', ()))})
            for name, row in table['data_sets'].items()}


def get(name: str) -> DataSet:
    """Load one data set.

    Raises:
      UserError: none has this name.
    """
    data_sets = load()
    if name not in data_sets:
        close = difflib.get_close_matches(name, data_sets, n=1)
        hint = f'Did you mean {close[0]}?' if close else f'Known data sets: {", ".join(data_sets)}.'
        raise UserError(f'{name}: not a data set. {hint}')
    return data_sets[name]
