"""The corpus generated from CLDR: its size and form, its split by value, and its translations.

Values are read back out of the English text, so the split is checked without the keys by which it was made.
"""
import collections
import datetime
import os
import re
import subprocess
import sys
import unicodedata
from decimal import Decimal

import pytest
from babel import Locale, UnknownLocaleError

from data_prep.text import samples
from support.commands import ROOT

Pair = collections.namedtuple('Pair', 'source target kind')
NUMBERS = {'relative_time', 'duration', 'number', 'compact_number', 'percentage', 'amount', 'named_amount',
           'unit', 'rate'}
DATES = {'date', 'date_interval', 'month', 'datetime'}
TIMES = {'time', 'time_interval', 'time_of_day', 'datetime'}
NAMES = {'territory_list', 'language_list', 'locale'}
SCALES = {'thousand': 3, 'million': 6, 'billion': 9, 'trillion': 12, 'M': 6, 'B': 9, 'T': 12}
MONTHS = ['January', 'February', 'March', 'April', 'May', 'June', 'July', 'August', 'September', 'October',
          'November', 'December']
MONATE = ['Januar', 'Februar', 'März', 'April', 'Mai', 'Juni', 'Juli', 'August', 'September', 'Oktober',
          'November', 'Dezember']
TAGE = ['Montag', 'Dienstag', 'Mittwoch', 'Donnerstag', 'Freitag', 'Samstag', 'Sonntag']


def read(paths):
    corpus = {}
    for split, path in paths.items():
        with open(path, encoding='utf-8', newline='') as file:
            corpus[split] = [Pair(*line.removesuffix('\n').split('\t')) for line in file]
    return corpus


@pytest.fixture(scope='module')
def paths(tmp_path_factory):
    return samples.write_cldr_pairs(str(tmp_path_factory.mktemp('cldr') / 'new'))


@pytest.fixture(scope='module')
def corpus(paths):
    return read(paths)


@pytest.fixture(scope='module')
def pairs(corpus):
    return [pair for split in corpus.values() for pair in split]


def matching(pairs, pattern):
    return [(pair, match) for pair in pairs if (match := re.fullmatch(pattern, pair.source))]


def swap_separators(text):
    return text.translate(str.maketrans(',.', '.,'))


def numbers_in(pair):
    """The numbers that an English line shows; 1.5 million is also a 1500000."""
    for digits, word in re.findall(r'(\d[\d,]*(?:\.\d+)?) ?([A-Za-z]*)', pair.source):
        number = Decimal(digits.replace(',', ''))
        yield number
        if pair.kind == 'compact_number':
            yield number * 10 ** SCALES[word]


def months_in(pair):
    """The (year, month) pairs that an English date, interval, month or quarter shows."""
    for month, year in re.findall(r'(\d+)/\d+/(\d+)', pair.source):
        yield int(year) if len(year) == 4 else 1950 + (int(year) - 50) % 100, int(month)
    years = [int(year) for year in re.findall(r'\b(\d{4})\b', pair.source)]
    names = re.findall(rf'\b({"|".join(month[:3] for month in MONTHS)})', pair.source)
    for place, name in enumerate(names if '/' not in pair.source else []):
        month = [month[:3] for month in MONTHS].index(name) + 1
        yield years[min(place, len(years) - 1)], month
    for quarter in re.findall(r'Q(\d)|(\d).. quarter', pair.source):
        first = 3 * int(''.join(quarter)) - 2
        yield from ((years[0], month) for month in range(first, first + 3))


def times_in(pair):
    return re.findall(r'\b(\d{1,2}:\d\d)', pair.source)


def names_in(pair):
    if pair.kind == 'locale':
        return pair.source.removesuffix(')').split(' (')
    return re.split(r', (?:and|or) |, | and | or ', pair.source)


def shown(corpus, split, values_in, kinds=None):
    chosen = [pair for pair in corpus[split] if kinds is None or pair.kind in kinds]
    return {value for pair in chosen for value in values_in(pair)}


def test_every_kind_is_in_every_split(corpus):
    counts = {split: collections.Counter(pair.kind for pair in corpus[split]) for split in corpus}
    assert len(samples.KINDS) >= 14
    assert counts['train'] == {kind: count for kind, (_, count) in samples.KINDS.items()}
    assert len(corpus['train']) >= 24_000
    for split in ('validation', 'test'):
        assert counts[split].keys() == samples.KINDS.keys()
        assert min(counts[split].values()) >= 40
        assert 900 <= len(corpus[split]) <= 1100


def test_no_source_occurs_twice(pairs):
    assert len({pair.source for pair in pairs}) == len(pairs)


def test_lines_are_short_and_normalised(pairs):
    texts = [text for pair in pairs for text in (pair.source, pair.target)]
    for text in texts:
        assert text and text == unicodedata.normalize('NFKC', text) == ' '.join(text.split())
    assert max(map(len, texts)) < 90
    assert sum(len(text) <= 45 for text in texts) > 0.99 * len(texts)


@pytest.mark.parametrize('held_out', ['validation', 'test'])
@pytest.mark.parametrize('values_in, kinds', [
    (numbers_in, NUMBERS),
    (months_in, DATES),
    (times_in, TIMES),
])
def test_held_out_values_are_not_in_training(corpus, held_out, values_in, kinds):
    for pair in corpus[held_out]:
        assert pair.kind not in kinds or list(values_in(pair)), pair
    values = shown(corpus, held_out, values_in, kinds)
    assert len(values) >= 40
    assert not values & shown(corpus, 'train', values_in, kinds)


def test_no_kind_escapes_the_check_of_its_values():
    assert NUMBERS | DATES | TIMES | NAMES == samples.KINDS.keys()


@pytest.mark.parametrize('held_out', ['validation', 'test'])
def test_held_out_names_are_new_combinations_of_known_names(corpus, held_out):
    def combinations(split):
        return {frozenset(names_in(pair)) for pair in corpus[split] if pair.kind in NAMES}
    assert not combinations(held_out) & combinations('train')
    assert shown(corpus, held_out, names_in, NAMES) <= shown(corpus, 'train', names_in, NAMES)


def test_every_name_is_often_in_training(corpus):
    named = [pair for pair in corpus['train'] if pair.kind in NAMES]
    counts = collections.Counter(name for pair in named for name in names_in(pair))
    english = Locale.parse('en')
    expected = {english.territories[code] for code in samples.TERRITORIES}
    expected |= {english.languages[code] for code in samples.LANGUAGES}
    assert counts.keys() == expected
    assert min(counts.values()) >= 8
    assert len(samples.TERRITORIES) >= 120 and len(samples.LANGUAGES) >= 60


@pytest.mark.parametrize('kind, english, german', [
    ('date', r'May (\d+), (\d{4})', '{}. Mai {}'),  # in English both long and medium, in German only long
    ('relative_time', r'in (\d\d+) days', 'in {} Tagen'),
    ('relative_time', r'(\d\d+) days ago', 'vor {} Tagen'),
    ('relative_time', r'(\d\d+) hr\. ago', 'vor {} Std.'),
    ('duration', r'(\d\d+) days', '{} Tage'),
    ('duration', r'(\d+) hours and (\d\d) minutes', '{} Stunden und {} Minuten'),
    ('number', r'(-?[\d,.]+)', '{}'),
    ('percentage', r'([\d,.]+)%', '{} %'),
    ('compact_number', r'([\d.]+)B', '{} Mrd.'),
    ('amount', r'€([\d,.]+)', '{} €'),
    ('named_amount', r'([\d,.]+) US dollars', '{} US-Dollar'),
    ('unit', r'([\d,.]+) mph', '{} mi/h'),
    ('rate', r'([\d,.]+) kilograms per hectare', '{} Kilogramm pro Hektar'),
])
def test_values_are_said_as_cldr_says_them(pairs, kind, english, german):
    matched = matching([pair for pair in pairs if pair.kind == kind], english)
    assert matched
    for pair, match in matched:
        assert pair.target == german.format(*map(swap_separators, match.groups())), pair


def test_one_is_singular(pairs):
    german = {pair.source: pair.target for pair in pairs}
    assert (german['in 1 day'], german['1 month ago']) == ('in 1 Tag', 'vor 1 Monat')


def test_full_dates_have_the_right_weekday_and_order(pairs):
    matched = matching(pairs, rf'[A-Z]\w+day, ({"|".join(MONTHS)}) (\d+), (\d{{4}})')
    assert len(matched) > 100
    for pair, match in matched:
        month, day, year = MONTHS.index(match[1]) + 1, int(match[2]), int(match[3])
        weekday = TAGE[datetime.date(year, month, day).weekday()]
        assert pair.target == f'{weekday}, {day}. {MONATE[month - 1]} {year}'


def test_times_have_24_hours(pairs):
    matched = matching(pairs, r'(\d+):(\d\d) ([AP])M')
    assert len(matched) > 100
    for pair, match in matched:
        assert pair.target == f'{int(match[1]) % 12 + 12 * (match[3] == "P"):02}:{match[2]}'


def test_lists_name_the_same_things_without_a_comma_before_und(pairs):
    english, german = Locale.parse('en'), Locale.parse('de')
    names = {english.territories[code]: german.territories[code] for code in samples.TERRITORIES}
    names |= {english.languages[code]: german.languages[code] for code in samples.LANGUAGES}
    listed = [pair for pair in pairs if pair.kind.endswith('_list')]
    assert any(', and ' in pair.source for pair in listed)
    for pair in listed:
        assert re.split(', | und | oder ', pair.target) == [names[name] for name in names_in(pair)]


def test_another_process_writes_the_same_bytes(paths, tmp_path):
    # Another hash seed reorders sets, and another time zone may be another day.
    script = f'from data_prep.text import samples; samples.write_cldr_pairs({str(tmp_path)!r})'
    environment = {**os.environ, 'PYTHONHASHSEED': '1', 'TZ': 'Pacific/Kiritimati', 'LC_ALL': 'C'}
    subprocess.run([sys.executable, '-c', script], check=True, cwd=ROOT, env=environment)
    assert sorted(os.listdir(tmp_path)) == ['test.tsv', 'train.tsv', 'validation.tsv']
    for split, path in paths.items():
        with open(path, 'rb') as first:
            assert first.read() == (tmp_path / f'{split}.tsv').read_bytes()


def test_other_languages_and_seeds(corpus, tmp_path):
    french = read(samples.write_cldr_pairs(str(tmp_path), target='fr', seed=1))
    assert {split: len(french[split]) for split in french} == {split: len(corpus[split]) for split in corpus}
    assert {pair.source for pair in french['test']} != {pair.source for pair in corpus['test']}
    assert not shown(french, 'test', numbers_in, NUMBERS) & shown(corpus, 'train', numbers_in, NUMBERS)
    days = [pair for pair in french['train'] if re.fullmatch(r'in \d\d days', pair.source)]
    assert days and all(re.fullmatch(r'dans \d\d jours', pair.target) for pair in days)


def test_an_unknown_locale_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(UnknownLocaleError):
        samples.write_cldr_pairs(str(tmp_path / 'new'), target='xx')
    assert not os.path.exists(tmp_path / 'new')
