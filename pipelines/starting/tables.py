"""Recognise which columns of a table are source and target, by their names and by what stands in them."""
import contextlib
import functools
import itertools
import json
import re
import tempfile

from data_prep import UserError
from data_prep.core import text_files
from pipelines.starting import languages
from pipelines.starting.findings import scratch

FIRST_ROWS = 200  # rows from which columns are recognised
# Usual names of sources and of targets, together in tables of translations, of answers, and of summaries or labels.
_SOURCES = (('source', 'src'), ('instruction', 'context', 'input', 'question', 'prompt'),
            ('article', 'document', 'dialogue', 'text'),
            ('informal', 'incorrect', 'ungrammatical', 'normal', 'complex', 'original', 'before'))
_TARGETS = (('target', 'tgt', 'reference', 'ref'), ('output', 'response', 'answer', 'completion', 'sql', 'query'),
            ('highlight', 'headline', 'summary', 'translation', 'label'),
            ('formal', 'correct', 'corrected', 'grammatical', 'simple', 'simplified', 'after'))
_TOGETHER = sorted(itertools.product(range(3), repeat=2), key=lambda pair: pair[0] != pair[1]) + [(3, 3)]
_IDENTIFIERS = ('id', 'ids', 'key', 'index', 'idx', 'guid', 'uuid', 'no', 'url', 'uri', 'path', 'file', 'filename')
_ENDING = re.compile(r'[ _-](text|sentence|string)s?$|(?<=[a-z]{4})s$')
_HEADER = 40  # letters of a column's name at most, in a first row that is taken for a header
_PLACE = re.compile(r'\s*(https?://|www\.|/)\S+\s*|\s*\S+\.[a-z0-9]{2,4}\s*', re.ASCII | re.IGNORECASE)  # URL or file


@functools.cache
def plain(source: text_files.Source) -> tuple[str, ...]:
    """Return a source's files in seekable form, unpacked once."""
    return text_files.unpack(source, tempfile.mkdtemp(dir=scratch()))


def columns(lists: dict[str, list[str]]) -> dict[str, str]:
    """Return templates of source and target for the tables among the files, from the first rows of the first one.

    Without templates there are no tables, or their columns have no names and the first two are meant.

    Raises:
      UserError: it does not exist or is empty, has one column, or it is not clear which columns are source and target.
    """
    tables = [source for split, listed in lists.items()
              for source in text_files.sources(split, '', listed) if source.format != 'lines']
    if not tables:
        return {}
    names, rows = _first_rows(tables[0])
    found = _named(names)
    if found or not names:  # if nothing can be read, the caller reports it
        return _templates(*found) if found else {}
    return _by_content(tables[0], names, rows)


def _first_rows(source: text_files.Source) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the first row of a table, or the names of JSON lines, and the rows after it, with all columns.

    Raises:
      UserError: the table does not exist or is empty.
    """
    text_files.look_for([source])
    for block in text_files.scan(source, plain(source), FIRST_ROWS, False):
        rows = [record.columns for record in text_files.cells(block) if not record.reason]
        return (block.names, rows) if block.names else (rows[0] if rows else (), rows[1:])
    raise UserError(f'{source.files[0]} is empty. Give a table of two columns, or two files.')


def _named(names: tuple[str, ...]) -> tuple[list[str], str] | None:
    """Return the columns of the source and that of the target, if their names tell them."""
    words = {name: _ENDING.sub('', name.rpartition('.')[2].strip().lower()) for name in names}
    for one, other in _TOGETHER:
        sources, targets = ([name for name in names if words[name] in family]
                            for family in (_SOURCES[one], _TARGETS[other]))
        if sources and targets:
            return sources, targets[0]
    coded = [name for name in names if languages.of_column(words[name])]
    if coded and len(names) > 2 and words[coded[0]] in _IDENTIFIERS:  # rather than Indonesian or Norwegian
        coded = coded[1:]
    return (coded[:1], coded[1]) if len(coded) > 1 else None


def _by_content(source: text_files.Source, names: tuple[str, ...], rows: list[tuple[str, ...]]
                ) -> dict[str, str]:
    """Choose the two columns of text; of a table whose first row is not known to be a header, the first two."""
    path, has_names = source.files[0], source.format == 'jsonl'
    if len(names) < 2:
        raise UserError(f'{path} has one name in a record, {names[0]}, but a source and a target are needed.'
                        if has_names else
                        f'{path} has one column, but a source and a target are needed. Separate columns by commas '
                        'in .csv and by tabs in .tsv, or give two files.')
    cells = [[row[n] for row in rows if n < len(row)] for n in range(len(names))]
    texts = [n for n, column in enumerate(cells) if not _is_no_column(column)]
    if len(texts) > 2:  # one that always says the same, such as en-de, is none of the two
        texts = [n for n in texts if len({*cells[n]}) > 1]
    if has_names or (len(names) > 2 and _is_header(names, rows)):
        texts = [n for n in texts if re.split(r'[^a-z]+', names[n].strip().lower())[-1] not in _IDENTIFIERS]
        if len(texts) != 2:
            raise UserError(f'{path}: which of {", ".join(names)} are source and target? Call one source and one '
                            'target.')
        return _templates([names[texts[0]]], names[texts[1]])
    if len(texts) < 2 or texts[:2] == [0, 1]:
        return {}
    # Numbers, such as an index, stand before the texts or between them.
    first, second = (names[n] for n in texts[:2])
    if not (first.strip() and second.strip()) or any(
            name.strip() and _is_no_text(name) for n, name in enumerate(names) if n not in texts):
        remedy = (f', as by `cut -f{texts[0] + 1},{texts[1] + 1} {path} > pairs.tsv`' if source.format == 'tsv' else
                  ', or begin with a row of names such as id,source,target')
        raise UserError(f'{path}: columns of numbers stand among those of text, and no header names them. Leave those '
                        f'columns out{remedy}.')
    return _templates([first], second)


def _templates(sources: list[str], target: str) -> dict[str, str]:
    return {'source': ' '.join(f'{{{name}}}' for name in sources), 'target': f'{{{target}}}'}


def _is_header(names: tuple[str, ...], rows: list[tuple[str, ...]]) -> bool:
    """Return whether a first row looks like names: different short texts, none of which stands in its column below."""
    return (len({*names}) == len(names) and all(name.strip() and len(name) <= _HEADER and not _is_no_text(name)
                                                for name in names)
            and len(rows) > 1 and not any(name == row[n] for row in rows for n, name in enumerate(names[:len(row)])))


def _is_no_column(cells: list[str]) -> bool:
    """Return whether a column cannot be source or target, because it has only numbers, lists, URLs or files."""
    return all(map(_is_no_text, cells)) or all(map(_PLACE.fullmatch, filter(None, cells)))


def _is_no_text(value: str) -> bool:
    """Return whether a cell is empty, a number or a list."""
    with contextlib.suppress(ValueError):
        float(value or 'nan')
        return True
    with contextlib.suppress(ValueError, RecursionError):
        return isinstance(json.loads(value), list)
    return False
