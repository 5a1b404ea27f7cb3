"""Inspect pairs of text: counts, lengths, languages, copies, and records that are empty, damaged or unpaired."""
import collections
import csv
import io
import os
import pathlib
import re
import tempfile
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import sacrebleu

from data_prep import UserError
from data_prep.core import text_files
from data_prep.core.text_files import Record
from data_prep.text import subwords
from pipelines.starting import languages, recipes
from pipelines.starting.findings import DRIFT, SPLIT_NAMES, Findings, Keys, divided, held_out_fraction, say, spread

SMALL = 20_000  # pairs for the calibration
LOOKED_AT = 200_000  # most pairs inspected; of more, the first
FEWEST = 10
BY_HEART = 60  # up to this many pairs none are held out, since a tenth would be too few to test
MOST_DAMAGED, MOST_EMPTY = 0.2, 0.5
_SPLITS = {**SPLIT_NAMES, 'newstest': 'test'}
# Usual names of source and target columns in tables of instructions and of translations.
_SOURCES = ('source', 'src', 'input', 'question', 'instruction', 'prompt', 'text')
_TARGETS = ('target', 'tgt', 'output', 'response', 'answer', 'completion', 'translation', 'label')


class _Table(NamedTuple):
    """Reading of a table: whether its first row names the columns, and the templates of source and target."""
    header: bool
    columns: dict[str, str]


def look(paths: list[str]) -> Findings:
    """Inspect pairs of files, or tables.

    Raises:
      UserError: nothing can be learned from them.
    """
    lists, table = _splits(paths), _table(paths)
    say(f'reading {", ".join(lists["train"])} …')
    read = {split: _read(split, listed, table) for split, listed in lists.items() if listed}
    usable = {split: [record.columns for record in found if not record.reason and all(
        text.strip() for text in record.columns[:2])] for split, found in read.items()}
    pairs = usable['train']
    damaged = _refuse(lists['train'], read['train'], pairs)
    examples, data = _divided(lists, usable)
    copies = len(pairs) - len({(row[0].strip(), row[1].strip()) for row in pairs})
    sides = [_language(lists['train'], pairs, side) for side in (0, 1)]
    data |= {'source': (sides[0] or 'en', '' if sides[0] else 'not recognised; set it'),
             'target': (sides[1] or 'en', '' if sides[1] else 'not recognised; set it')}
    if table.header:
        data['header'] = True, 'the first row names the columns'
    if table.columns:
        data['columns'] = table.columns, 'templates of source and target'
    if damaged:
        data['max_dead_letters'] = round(min(0.5, 2 * damaged / len(read['train']) + 0.01), 3), 'some are damaged'
    if spaced := {*' '.join(row[1] for row in pairs[:1000])} & {*'0123456789'}:
        data['split_digits'] = True, f'numbers with digits such as {min(spaced)} are copied digit by digit'
    held = usable.get('test') or spread(pairs, max(1, examples['test']))
    baseline, words = _baseline(held, pairs)
    limit = round(baseline + max(1.0, 0.1 * baseline), 1)
    said = [f'{len(pairs):,} usable pairs of {len(read["train"]):,}, {sides[0] or "?"} to {sides[1] or "?"}'
            + (f'; {examples["validation"]:,} for validation and {examples["test"]:,} for the test.'),
            'Words: ' + ', '.join(f'{name} {np.median([len(row[side].split()) for row in pairs]):.0f} in the median, '
                                  f'{max(len(row[side].split()) for row in pairs):,} at most'
                                  for side, name in enumerate(('sources', 'targets'))) + '.',
            *_warnings(read['train'], pairs, damaged, copies)]
    return Findings(
        'pairs', said, examples,
        {'data': data, 'evaluate': {'thresholds': ({'bleu': {'min': limit}},
                                                   f'above {baseline:.3g}, the BLEU of {words}'),
                                    'drift': ({'bleu': {'max_drop': 0.5}}, DRIFT)}},
        'bleu', baseline, words, lambda folder: _write_small(pairs, folder), min(SMALL, len(pairs)), '< FILE_OF_LINES',
        {'buckets': recipes.buckets('pairs', _about_lengths(pairs)), 'extra_length': 50,
         'most_subwords': most_subwords(pairs), 'seconds': 1e-4,
         'two_languages': all(sides) and sides[0] != sides[1] and len(pairs) > BY_HEART})


def _splits(paths: list[str]) -> dict[str, list[str]]:
    """Sort files into training, validation and test by their names; files without such a name are for training."""
    lists: dict[str, list[str]] = {'train': [], 'validation': [], 'test': []}
    for path in paths:
        words = re.findall('[a-z]+', pathlib.PurePath(path).name.lower())
        lists[next((_SPLITS[word] for word in words if word in _SPLITS), 'train')].append(path)
    if not lists['train']:
        raise UserError(f'{", ".join(paths)}: by name all are for validation or the test. Give training files '
                        'too, such as train.en train.de.')
    return lists


def _table(paths: list[str]) -> _Table:
    """Return how the tables among the files are read, from the first row of the first one."""
    tables = [path for path in paths if path.removesuffix('.gz').endswith(('.csv', '.tsv'))]
    if not tables:
        return _Table(False, {})
    [source, *_] = text_files.sources('train', '', tables[:1])
    if not os.path.exists(tables[0]):
        raise UserError(f'{tables[0]}: there is no such file. Check the path.')
    with open(tables[0], encoding='utf-8-sig', errors='replace', newline='') as file:
        first = file.readline()
    names = next(csv.reader(io.StringIO(first), delimiter='\t' if source.format == 'tsv' else ','), [])
    lower = [name.strip().lower() for name in names]
    targets = [name for name, word in zip(names, lower) if word in _TARGETS]
    sources = [name for name, word in zip(names, lower) if word in _SOURCES]
    if lower[:2] == ['source', 'target']:
        return _Table(True, {})
    if sources and targets:
        return _Table(True, {'source': ' '.join(f'{{{name}}}' for name in sources), 'target': f'{{{targets[0]}}}'})
    if len(names) < 2:
        raise UserError(f'{tables[0]} has one column, but a source and a target are needed. Give a table of two '
                        'columns, or two files.')
    return _Table(False, {})


def _read(split: str, listed: list[str], table: _Table) -> list[Record]:
    return list(_records(split, listed, table))


def _records(split: str, listed: list[str], table: _Table) -> Iterator[Record]:
    found = text_files.sources(split, '', listed)
    text_files.look_for(found)
    left = LOOKED_AT
    for source in found:
        with tempfile.TemporaryDirectory(prefix='landmark-init-') as scratch:
            plain = text_files.unpack(source, scratch)
            for block in text_files.scan(source, plain, 2000, table.header, table.columns):
                if left <= 0:
                    return
                left -= block.records
                yield from text_files.read(block, table.columns)


def _refuse(paths: list[str], read: list[Record], pairs: list) -> int:
    """Return how many records cannot be read; refuse data from which nothing can be learned."""
    where, bad = ', '.join(paths), [record for record in read if record.reason]
    if len(bad) > MOST_DAMAGED * len(read):
        raise UserError(f'{where}: {len(bad):,} of {len(read):,} records cannot be read, the first in line '
                        f'{bad[0].line:,}: {bad[0].reason}. Save the files as UTF-8, with two columns in every row.')
    good = [record.columns for record in read if not record.reason]
    for side, name in enumerate(('source', 'target')):
        empty = sum(not row[side].strip() for row in good)
        if good and empty > MOST_EMPTY * len(good):
            raise UserError(f'{where}: the {name} is empty in {empty:,} of {len(good):,} records, so there is nothing '
                            'to learn. Fill the column, or name others in data.columns.')
    if len(pairs) < FEWEST:
        raise UserError(f'{where}: {len(pairs):,} usable pairs are too few to learn from. Give {FEWEST} or more to '
                        'memorise them, and a thousand or more for anything else.')
    if len({row[1].strip() for row in pairs}) == 1:
        raise UserError(f'{where}: all targets are the same, {pairs[0][1][:60]!r}, so there is nothing to learn.')
    return len(bad)


def _divided(lists: dict[str, list[str]], usable: dict[str, list]) -> tuple[dict[str, int], Keys]:
    """Return how many examples each split has, and the keys that define them."""
    count = len(usable['train'])
    # With a thousand test lines chance is about 1 BLEU; more take minutes to translate.
    fraction = min(held_out_fraction(count), max(1_000 / count, 0.0005))
    by_heart = [split for split in ('validation', 'test') if not lists[split] and count <= BY_HEART]
    examples, keys = divided(lists | {split: lists['train'] for split in by_heart}, count,
                             lambda split: count if split in by_heart else len(usable[split]), fraction, 'source')
    data: Keys = {'module': ('data_prep.wmt', ''), 'train': (lists['train'], ''), **keys}
    for split in by_heart:
        data[split] = lists['train'], 'the same: with so few pairs the model memorises them'
    if lists['test'] or count > BY_HEART:
        data['remove_duplicates'] = True, 'leaves training pairs out that are also in the test'
    return examples, data


def _language(paths: list[str], pairs: list, side: int) -> str:
    named = languages.of_name(paths[side]) if len(paths) > 1 and not paths[side].endswith(('.csv', '.tsv')) else ''
    return named or languages.of_text(row[side] for row in pairs[:2000])


def _baseline(held: list, pairs: list) -> tuple[float, str]:
    """Return the BLEU of the better baseline, and its name: copying the source, or the most frequent target."""
    references = [[row[1].strip() for row in held]]
    common = collections.Counter(row[1].strip() for row in pairs).most_common(1)[0][0]
    found = {'copying the source': [row[0].strip() for row in held],
             'always the most frequent target': [common] * len(held)}
    scores = {words: sacrebleu.corpus_bleu(answers, references, force=True).score for words, answers in found.items()}
    best = max(scores, key=scores.__getitem__)
    return scores[best], best


def _about_lengths(pairs: list) -> np.ndarray:
    """Estimate how many subwords the longer side of each pair has.

    With some thousand subwords, a word has 1.5. Writing without spaces has 0.7 per character, but counts only as 0.3.
    """
    return np.array([max(max(1.5 * len(text.split()), 0.3 * len(text)) for text in row[:2]) + 1 for row in pairs])


def most_subwords(pairs: list) -> int:
    """Return a vocabulary size that fits the text: a piece for every other word, plus the letters, if it has as many.

    Digits are pieces of their own, so they do not tell words apart: of 20,000 distinct words of dates and measures,
    1,300 differ otherwise, and 3,979 subwords are the most that can be learned.
    """
    lines = [text for row in spread(pairs, SMALL) for text in row[:2]]
    text = ' '.join(lines)
    letters, words = len(set(text)), len(set(re.sub(r'\d', ' ', text).split()))
    fitting = max(letters + 50, int(0.5 * words) + letters) // 50 * 50 + 50
    return subwords.possible(lines, subwords.Config(vocab_size=fitting, split_digits=True))


def _warnings(read: list[Record], pairs: list, damaged: int, copies: int) -> list[str]:
    said = []
    if damaged:
        bad = next(record for record in read if record.reason)
        said.append(f'{damaged:,} cannot be read, such as line {bad.line:,} of {bad.file}: {bad.reason}. They become '
                    'dead letters.')
    if empty := len(read) - damaged - len(pairs):
        said.append(f'{empty:,} have an empty side and are left out.')
    if copies:
        said.append(f'{copies:,} are copies of an earlier pair.')
    if len(pairs) <= BY_HEART:
        said.append('The test repeats all of them, so it only shows whether they were memorised.')
    elif len(pairs) < 1_000:
        said.append('So few pairs can be memorised, but hardly generalise: check the outputs in the report.')
    ratio = np.median([len(row[1]) / max(1, len(row[0])) for row in pairs])
    far = sum(not ratio / 4 < len(row[1]) / max(1, len(row[0])) < ratio * 4 for row in pairs)
    if far > 0.01 * len(pairs):
        said.append(f'{far:,} have sides of very different lengths: check whether lines have shifted.')
    return said


def _write_small(pairs: list, folder: str) -> dict[str, Any]:
    """Write an even sample of the pairs as two files; return the keys of `data`."""
    some = spread(pairs, SMALL)
    for side, name in enumerate(('source', 'target')):
        lines = (' '.join(row[side].split()) + '\n' for row in some)
        pathlib.Path(folder, name).write_text(''.join(lines), encoding='utf-8')
    return {'module': 'data_prep.wmt', 'train': [f'{folder}/source', f'{folder}/target'], 'header': False,
            'columns': {}, **({split: [f'{folder}/source', f'{folder}/target'] for split in ('validation', 'test')}
                              if len(some) <= BY_HEART else {'validation_fraction': 0.2, 'test_fraction': 0.2})}
