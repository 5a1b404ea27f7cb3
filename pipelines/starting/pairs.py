"""Inspect pairs of text: counts, lengths, languages, copies, and records that are empty, damaged or unpaired."""
import collections
import dataclasses
import functools
import os
import pathlib
import re
from typing import Any

import numpy as np
import sacrebleu
import sentencepiece
from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

from data_prep import UserError
from data_prep.core import text_files
from data_prep.core.text_files import Record
from data_prep.text import subwords
from pipelines.starting import languages, recipes, tables
from pipelines.starting.findings import (
    DRIFT,
    SPLIT_NAMES,
    Findings,
    Keys,
    by_name,
    dead_letters_of,
    divided,
    held_out_fraction,
    refuse_empty,
    remaining,
    say,
    spread,
)

SMALL = 20_000  # pairs for the calibration
LOOKED_AT = 200_000  # most pairs inspected; of more, the first
FEWEST = 10
BY_HEART = 60  # up to this many pairs none are held out, since a tenth would be too few to test
MOST_DAMAGED, MOST_EMPTY, MOST_LONG, MOST_REWRITTEN = 0.2, 0.5, 0.5, 0.01
NAMES = {'bleu': 'BLEU', 'chrf': 'chrF'}
_SPLITS = {**SPLIT_NAMES, 'newstest': 'test', 'devtest': 'test', 'newsdev': 'validation', 'eval': 'validation'}


@dataclasses.dataclass(frozen=True)
class _Read:
    """Hold what was read of a split.

    Attributes:
      records: the inspected ones, the first.
      total: the number of all.
    """
    records: list[Record]
    total: int

    @functools.cached_property
    def pairs(self) -> list[tuple[str, ...]]:
        """Usable pairs among the inspected records."""
        return [record.columns for record in self.records
                if not record.reason and all(text.strip() for text in record.columns[:2])]

    @functools.cached_property
    def bad(self) -> list[Record]:
        """Inspected records that cannot be read."""
        return [record for record in self.records if record.reason]

    @property
    def estimated(self) -> int:
        """Usable pairs among all records, approximately."""
        return round(len(self.pairs) * self.total / max(1, len(self.records)))


def look(paths: list[str]) -> Findings:
    """Inspect pairs of files, or tables.

    Raises:
      UserError: nothing can be learned from them.
    """
    if folder := next((path for path in paths if os.path.isdir(path)), ''):
        raise UserError(f'{folder} is a folder. Name the files in it, such as {folder.rstrip("/")}/train.en '
                        f'{folder.rstrip("/")}/train.de.')
    lists = by_name(paths, _SPLITS)
    say(f'reading {", ".join(lists["train"])} …')
    _check_partners(lists)
    columns = tables.columns(lists)
    read = {split: _read(split, listed, columns) for split, listed in lists.items() if listed}
    pairs = read['train'].pairs
    _refuse(lists['train'], read['train'])
    refuse_empty(lists, {split: len(each.pairs) for split, each in read.items()}, 'no usable pair', 'pairs')
    examples, data = _divided(lists, {split: each.estimated for split, each in read.items()}, _distinct(pairs))
    sides = [_language(lists['train'], pairs, side) for side in (0, 1)]
    data |= {'source': (sides[0] or 'en', '' if sides[0] else 'not recognised; set it'),
             'target': (sides[1] or 'en', '' if sides[1] else 'not recognised; set it')}
    if columns:
        data |= {'header': (True, 'the columns have names'), 'columns': (columns, 'templates of source and target')}
    if any(each.bad for each in read.values()):
        data['max_dead_letters'] = dead_letters_of({split: (len(each.bad) / len(each.records), each.total)
                                                    for split, each in read.items()}, examples), 'some are damaged'
    if spaced := {*' '.join(row[1] for row in pairs[:1000])} & {*'0123456789'}:
        data['split_digits'] = True, f'numbers with digits such as {min(spaced)} are copied digit by digit'
    if rewritten := _rewritten(pairs):
        data['normalization'] = 'identity', f'NFKC would rewrite {rewritten:.0%} of the targets'
    metric, baseline, words = _baseline(
        read['test'].pairs if 'test' in read else spread(pairs, max(1, examples['test'])), pairs)
    # A quarter of what the baseline lacks, if it is so good that a tenth more is more than there can be.
    limit = round(baseline + min(max(1.0, 0.1 * baseline), 0.25 * (100 - baseline)), 1)
    lengths = _about_lengths(pairs)
    long = int((lengths > recipes.LONGEST).sum())
    if long > MOST_LONG * len(pairs):
        remedy = ('Split the texts into sentences' if _median_words(pairs, 0) < 3 * _median_words(pairs, 1) else
                  'Shorten the sources, for example to their first 150 words')
        raise UserError(f'{", ".join(lists["train"])}: {long:,} of {len(pairs):,} pairs have more than about '
                        f'{recipes.LONGEST} subwords on a side, which is too long to learn from. {remedy}.')
    examples['train'] -= round(examples['train'] * long / len(pairs))
    said = [f'{read["train"].estimated:,} usable pairs of {read["train"].total:,}, {sides[0] or "?"} to '
            f'{sides[1] or "?"}; {examples["validation"]:,} for validation and {examples["test"]:,} for the test.',
            'The first pair: ' + ' gives '.join(
                f'{" ".join(text.split())[:60]!r}' + (f' ({columns[part]})' if columns else '')
                for part, text in zip(text_files.PARTS, pairs[0][:2])) + '.',
            'Words: ' + ', '.join(f'{name} {_median_words(pairs, side):.0f} in the median, '
                                  f'{max(len(row[side].split()) for row in pairs):,} at most'
                                  for side, name in enumerate(('sources', 'targets'))) + '.',
            *_warnings(read['train'], long, by_heart=data.get('test', ([], ''))[0] == lists['train'])]
    if metric != 'bleu':
        said.append('Most targets have fewer than four words between spaces, too few for BLEU, so chrF decides.')
    return Findings(
        'pairs', said, examples,
        {'data': data, 'evaluate': {'thresholds': ({metric: {'min': limit}},
                                                   f'above {baseline:.3g}, the {NAMES[metric]} of {words}'),
                                    'drift': ({metric: {'max_drop': 0.5}}, DRIFT)}},
        metric, baseline, words, lambda folder: _write_small(pairs, folder), min(SMALL, len(pairs)), '< FILE_OF_LINES',
        {'buckets': recipes.buckets('pairs', lengths), 'extra_length': 50, 'least_subwords': least_subwords(pairs),
         'most_subwords': most_subwords(
             pairs, remaining(data), normalization=data.get('normalization', ('nmt_nfkc',))[0]), 'seconds': 1e-4,
         'two_languages': all(sides) and sides[0] != sides[1] and len(pairs) > BY_HEART})


def _read(split: str, listed: list[str], columns: dict[str, str]) -> _Read:
    found = text_files.sources(split, '', listed)
    text_files.look_for(found)
    records, total = list[Record](), 0
    for source in found:
        for block in text_files.scan(source, tables.plain(source), 2000, bool(columns), columns):
            total += block.records
            if len(records) < LOOKED_AT:
                records += text_files.read(block, columns)
    return _Read(records, total)


def _check_partners(lists: dict[str, list[str]]) -> None:
    """Refuse files of one language that are listed two by two while others follow."""
    for split, listed in lists.items():
        for source in text_files.sources(split, '', listed):
            codes = [languages.of_name(path) for path in source.files]
            if len(codes) == 2 and codes[0] and codes[0] == codes[1] and len({*map(languages.of_name, listed)}) > 1:
                raise UserError(f'{" and ".join(source.files)} are both {codes[0]} by name. List files two by two, '
                                'such as a.en a.de b.en b.de.')


def _refuse(paths: list[str], read: _Read) -> None:
    """Refuse data from which nothing can be learned."""
    where, bad, pairs = ', '.join(paths), read.bad, read.pairs
    if len(bad) > MOST_DAMAGED * len(read.records):
        raise UserError(f'{where}: {len(bad):,} of {len(read.records):,} records cannot be read, the first in line '
                        f'{bad[0].line:,}: {bad[0].reason}. Save the files as UTF-8, with two columns in every row.')
    good = [record.columns for record in read.records if not record.reason]
    if sum(all('\t' in text for text in row[:2]) for row in good) > 0.9 * len(good) > 0:
        raise UserError(f'{where}: both sides of most records hold tabs, so these are tables. Give one at a time, or '
                        'name them .tsv.')
    if sum('\0' in text for row in good for text in row) > len(good) / 2:
        raise UserError(f'{where}: most records hold NUL characters, as UTF-16 does when read as UTF-8. Save the files '
                        'as UTF-8.')
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
    if all(row[0].strip() == row[1].strip() for row in pairs):
        raise UserError(f'{where}: every target equals its source, so there is nothing to learn.')
    if 10 * _distinct(pairs) < len(pairs) and _distinct(pairs) <= BY_HEART:
        raise UserError(f'{where}: the sources of {len(pairs):,} pairs have only {_distinct(pairs):,} different texts, '
                        f'such as {pairs[0][0][:60]!r}. Name the right column in a row of names, source or target.')


def _distinct(pairs: list) -> int:
    """Return the number of different sources, by whose hash pairs are divided."""
    return len({row[0].strip() for row in pairs})


def _divided(lists: dict[str, list[str]], usable: dict[str, int], distinct: int) -> tuple[dict[str, int], Keys]:
    """Return how many examples each split has, and the keys that define them.

    Args:
      usable: pairs of each given split.
      distinct: different sources in training; copies of one fall into the same split.
    """
    count, few = usable['train'], distinct <= BY_HEART
    # With a thousand test lines chance is about 1 BLEU; more take minutes to translate.
    fraction = min(held_out_fraction(count), max(1_000 / count, 0.0005))
    by_heart = [split for split in ('validation', 'test') if not lists[split] and few]
    examples, keys = divided(lists | {split: lists['train'] for split in by_heart}, count,
                             lambda split: count if split in by_heart else usable[split], fraction, 'source')
    data: Keys = {'module': ('data_prep.wmt', ''), 'train': (lists['train'], ''), **keys}
    for split in by_heart:
        data[split] = [*lists['train']], 'the same: with so few pairs the model memorises them'
    if not by_heart:
        data['remove_duplicates'] = True, 'leaves training pairs out that are also in the test'
    return examples, data


def _language(paths: list[str], pairs: list, side: int) -> str:
    named = languages.of_name(paths[side]) if len(paths) > 1 and not text_files.table_format(paths[side]) else ''
    return named if languages.is_language(named) else languages.of_text(row[side] for row in pairs[:2000])


def _median_words(pairs: list, side: int) -> float:
    return float(np.median([len(row[side].split()) for row in pairs]))


def _rewritten(pairs: list) -> float:
    """Return the share of targets that NFKC changes, not counting white space; 0 if it is small.

    Such a model cannot output them: of Chinese its comma and full stop, of Thai a vowel, of Persian joins of words.
    """
    some = [' '.join(row[1].split()) for row in spread(pairs, SMALL)]
    normalize = sentencepiece.SentencePieceNormalizer(rule_name='nmt_nfkc', escape_whitespaces=False).normalize
    changed = sum(' '.join(normalize(text).split()) != text for text in some)
    return changed / len(some) if changed > MOST_REWRITTEN * len(some) else 0.0


def _baseline(held: list, pairs: list) -> tuple[str, float, str]:
    """Return the metric, and value and name of the better baseline: copying the source, or the commonest target.

    BLEU counts four consecutive tokens, separated by spaces or punctuation. Where fewer than half of the references
    have as many, as in Chinese or for single words, the metric is chrF.
    """
    references = [row[1].strip() for row in held]
    tokens = Tokenizer13a()
    enough = sum(len(tokens(text).split()) >= 4 for text in references) >= len(references) / 2
    metric, score = ('bleu', sacrebleu.corpus_bleu) if enough else ('chrf', sacrebleu.corpus_chrf)
    common = collections.Counter(row[1].strip() for row in pairs).most_common(1)[0][0]
    found = {'copying the source': [row[0].strip() for row in held],
             'always the most frequent target': [common] * len(held)}
    scores = {words: score(answers, [references]).score for words, answers in found.items()}
    best = max(scores, key=scores.__getitem__)
    return metric, scores[best], best


def _about_lengths(pairs: list) -> np.ndarray:
    """Estimate how many subwords the longer side of each pair has.

    With some thousand subwords, a word has 1.5. Writing without spaces has 0.7 per character, but counts only as 0.3.
    """
    return np.array([max(max(1.5 * len(text.split()), 0.3 * len(text)) for text in row[:2]) + 1 for row in pairs])


def least_subwords(pairs: list) -> int:
    """Return the least size of a vocabulary: a piece for every letter, of which unseen text has a tenth more."""
    return round(1.1 * len({letter for row in pairs for text in row[:2] for letter in text})) + 50


def most_subwords(pairs: list, share: float = 1.0, **settings) -> int:
    """Return a vocabulary size that fits the text: a piece for every other word, plus the letters, if it has as many.

    Digits are pieces of their own, so they do not tell words apart: of 20,000 distinct words of dates and measures,
    1,300 differ otherwise, and 3,979 subwords are the most that can be learned.

    Args:
      share: of the pairs that remain for training, from which so many must be learned.
      settings: of `subwords.Config`.
    """
    # A tenth less where a hash divides them, which leaves some more or fewer.
    kept = len(pairs) if share == 1 else int(0.9 * share * len(pairs))
    lines = [text for row in spread(pairs, min(SMALL, max(FEWEST, kept))) for text in row[:2]]
    text = ' '.join(lines)
    letters, words = len(set(text)) + len(settings.get('symbols', ())), len(set(re.sub(r'\d', ' ', text).split()))
    fitting = max(letters + 50, int(0.5 * words) + letters) // 50 * 50 + 50
    return subwords.possible(lines, subwords.Config(vocab_size=fitting, **{'split_digits': True, **settings}))


def _warnings(read: _Read, long: int, by_heart: bool) -> list[str]:
    said, pairs = [], read.pairs
    if read.total > len(read.records):
        said.append(f'The first {len(read.records):,} records were inspected; what follows is of these.')
    if read.bad:
        bad = read.bad[0]
        said.append(f'{len(read.bad):,} cannot be read, such as line {bad.line:,} of {bad.file}: {bad.reason}. They '
                    'become dead letters.')
    if empty := len(read.records) - len(read.bad) - len(pairs):
        said.append(f'{empty:,} have an empty side and are left out.')
    if copies := len(pairs) - len({(row[0].strip(), row[1].strip()) for row in pairs}):
        said.append(f'{copies:,} are copies of an earlier pair.')
    if marked := sum(all(text.lstrip().startswith('<') for text in row[:2]) for row in pairs):
        said.append(f'{marked:,} begin with < on both sides, as mark-up does, and would be learned. If that is not '
                    'wanted, remove these lines from both files.')
    if long:
        said.append(f'About {long:,} have more than {recipes.LONGEST} subwords on a side and are not trained on.')
    if by_heart:
        said.append('The test repeats all of them, so it only shows whether they were memorised.')
    elif _distinct(pairs) < 1_000:
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
    named = [f'{folder}/source', f'{folder}/target']
    return {'module': 'data_prep.wmt', 'train': named, 'header': False,
            'columns': {}, **({'validation': named, 'test': named, 'remove_duplicates': False}
                              if _distinct(some) <= BY_HEART else {'validation_fraction': 0.2, 'test_fraction': 0.2})}
