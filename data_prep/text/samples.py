"""Generate a small parallel corpus from CLDR, for demonstrations without downloads.

Unicode's Common Locale Data Repository describes how several hundred languages write dates, times, numbers, amounts,
units, lists and names; Babel ships its data (Unicode licence, unicode.org/license.txt). One value written in two
languages is a sentence pair, and its translation is right by construction:

    Tuesday, March 5, 2024      Dienstag, 5. März 2024
    in 3 days                   in 3 Tagen
    €1,234.50                   1.234,50 €

The split is by value, not by line: a stable hash of a value's canonical key decides its split, and a pair is made only
of values of one split. Held-out values therefore cannot be memorised from training:

    numbers     are keyed by their amount, in one namespace: a held-out 3847 occurs in training neither as a
                number nor as a price, a length or a count of days. Whole numbers below 10 are for training.
    dates       are keyed by their quarter: a held-out 'March 2024' is in no training date or interval.
    times       are keyed by their minute on a 12-hour dial: a held-out 2:35 is in training neither AM nor PM.
    names       are keyed by their combination: single names are in training, held-out combinations are not.
"""
import contextlib
import datetime
import hashlib
import os
import random
import unicodedata
import uuid
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import partial

from babel import Locale, dates, lists, numbers, units

from data_prep import UserError

SPLITS = ('train', 'validation', 'test')
HELD_OUT = 52  # pairs of each kind in each of the two held-out splits

# The inventories are small so that every name occurs often enough to be learned.
TERRITORIES = (
    'AL AM AR AT AU AZ BD BE BG BO BR BW CA CH CL CM CN CO CU CV CY CZ DE DJ DK DZ EC EE EG EH ES ET FI FJ '
    'FO FR GA GE GH GL GR HR HT HU ID IE IL IN IQ IR IS IT JM JO JP KE KG KH KM KP KR KW KZ LB LI LK LT LU '
    'LV LY MA MC MD MG MN MR MT MV MX MZ NA NC NG NL NO NP NZ OM PA PE PH PK PL PT PY QA RO RS RU RW SA SE '
    'SG SI SK SN SS SY TD TH TJ TN TR TZ UA UG UY UZ VA VN YE ZA ZM ZW').split()
LANGUAGES = (
    'af ar az be bg bn bs ca cs cy da de el en es et eu fa fi fr ga gl he hi hr hu hy id is it ja ka kk km '
    'ko ku la lo lt lv mk mn ms mt ne nl no pl pt ro ru sk sl sq sr sv th tr uk vi zh').split()
CURRENCIES = (
    'EUR USD GBP CHF JPY CNY INR AUD CAD SEK NOK DKK PLN CZK HUF TRY BRL MXN ZAR KRW NZD ILS THB HKD ISK'
).split()
# Babel omits CLDR's space between a letter code and its amount; these currencies have symbols.
SYMBOLS = 'EUR USD GBP JPY CNY INR AUD CAD BRL MXN KRW NZD ILS HKD'.split()
UNITS = (
    'kilometer meter centimeter mile foot light-year kilogram gram tonne pound ounce liter milliliter gallon '
    'hectare celsius fahrenheit kilometer-per-hour meter-per-second mile-per-hour knot kilowatt '
    'kilowatt-hour horsepower gigabyte').split()
NUMERATORS = 'kilogram gram tonne liter milliliter gigabyte kilowatt-hour'.split()
DENOMINATORS = 'second minute hour day week month year hectare square-meter'.split()
SPANS = dict(dates.TIMEDELTA_UNITS)  # 'day' -> 86400
PAIRED_SPANS = (('year', 'day', 364), ('hour', 'minute', 59), ('minute', 'second', 59))
FIRST_DAY, DAYS = datetime.date(1950, 1, 1), 36_525  # one century: a two-digit year is unambiguous

Value = Decimal | datetime.date | datetime.time | tuple[str, ...]
Say = Callable[..., str]  # takes locale=


def split_of(value: Value) -> str:
    """Return the split of a value; it does not depend on kind, seed or process.

    Args:
      value: a positive number, a date, a time of day, or the codes of names that occur together.

    Returns:
      'train' for eight in ten values, otherwise 'validation' or 'test'.
    """
    if isinstance(value, Decimal):
        # Grammar depends on the smallest numbers (1 day, 2 days), which are too few to hold any out.
        if value in range(10):
            return 'train'
        key = f'number:{value.normalize():f}'
    elif isinstance(value, datetime.date):
        key = f'quarter:{value.year}-{(value.month + 2) // 3}'
    elif isinstance(value, datetime.time):
        key = f'time:{value.hour % 12}:{value.minute:02}'
    elif len(value) == 1:
        return 'train'
    else:
        key = f'names:{",".join(sorted(value))}'
    tenth = int.from_bytes(hashlib.sha256(key.encode()).digest()[:4], 'big') % 10
    return {0: 'validation', 1: 'test'}.get(tenth, 'train')


class _Draw(random.Random):
    """A random generator that records the values it drew, which decide the split of the pair."""

    def __init__(self, seed: str):
        super().__init__(seed)
        self.values: list[Value] = []

    def number(self, high: int, decimals: int = 0, low: int = 0) -> Decimal:
        """Return a positive number of `low` to `high`; numbers of each length are about equally frequent."""
        top = min(high, 10 ** self.randint(1, len(str(high))))
        scale = 10 ** self.randint(0, decimals)
        self.values.append(Decimal(self.randint(low * scale or 1, top * scale)) / scale)
        return self.values[-1]

    def price(self, currency: str) -> Decimal:
        """Return an amount with all of its printed decimals, because 1.00 and 1 have different plurals."""
        precision = numbers.get_currency_precision(currency)
        return self.number(999_999, precision).quantize(Decimal(1).scaleb(-precision))

    def days(self, *gap: int) -> list[datetime.date]:
        """Draw one day, or two in order, 1 to `gap` days apart."""
        offsets = [self.randrange(DAYS - sum(gap))]
        offsets += [offsets[0] + self.randint(1, most) for most in gap]
        self.values += (days := [FIRST_DAY + datetime.timedelta(offset) for offset in offsets])
        return days

    def times(self, count: int = 1) -> list[datetime.time]:
        """Draw different full minutes of a day, in order."""
        minutes = sorted(self.sample(range(24 * 60), count))
        self.values += (times := [datetime.time(*divmod(minute, 60)) for minute in minutes])
        return times

    def names(self, *names: str) -> tuple[str, ...]:
        """Record these names as one value and return them."""
        self.values.append(names)
        return names


# A kind draws values and yields the ways to write them, the most explicit first. CLDR's narrow widths are left out:
# Babel does not follow their aliases, and prints identifiers ('3 kilometer-per-hour') in some languages.

def _date(draw: _Draw) -> Iterator[Say]:
    day, = draw.days()
    for width in ('full', 'long', 'medium', 'short'):
        yield partial(dates.format_date, day, width)
    yield partial(dates.format_skeleton, 'yMMMEd', day)


def _date_interval(draw: _Draw) -> Iterator[Say]:
    start, end = draw.days(draw.choice((20, 200, 800)))
    for skeleton in ('yMMMEd', 'yMMMd', 'yMd'):
        yield partial(dates.format_interval, start, end, skeleton)


def _month(draw: _Draw) -> Iterator[Say]:
    day, = draw.days()
    for skeleton in ('yMMMM', 'yMMM', 'yQQQQ', 'yQQQ'):
        yield partial(dates.format_skeleton, skeleton, day)


def _time(draw: _Draw) -> Iterator[Say]:
    time, = draw.times()
    for width in ('medium', 'short'):
        yield partial(dates.format_time, time.replace(second=draw.randrange(60)), width)


def _hours(skeleton: str, locale: Locale) -> str:
    """Replace CLDR's 'j' in a skeleton by the language's preferred hours: 'Ejm' -> 'Ehm' or 'EHm'."""
    return skeleton.replace('j', 'H' if 'H' in dates.get_time_format('short', locale).pattern else 'h')


def _time_interval(draw: _Draw) -> Iterator[Say]:
    start, end = (datetime.datetime.combine(FIRST_DAY, time) for time in draw.times(2))
    yield lambda locale: dates.format_interval(start, end, _hours('jm', locale), locale=locale)


def _time_of_day(draw: _Draw) -> Iterator[Say]:
    weekday = FIRST_DAY + datetime.timedelta(draw.randrange(7))
    time = datetime.datetime.combine(weekday, *draw.times())
    yield lambda locale: dates.format_skeleton(_hours('Ejm', locale), time, locale=locale)
    for skeleton in ('EBhm', 'Bhm'):
        yield partial(dates.format_skeleton, skeleton, time)


def _datetime(draw: _Draw) -> Iterator[Say]:
    time = datetime.datetime.combine(*draw.days(), *draw.times()).replace(second=draw.randrange(60))
    for width in ('long', 'medium', 'short'):  # 'full' only spells out the time zone
        yield partial(dates.format_datetime, time, width)


def _say_spans(spans: list[tuple[int, str]], width: str, directed: bool = False, *, locale: Locale) -> str:
    """Write spans in exactly their units; an infinite threshold keeps 48 hours from becoming 2 days."""
    said = [dates.format_timedelta(count * SPANS[unit], unit, float('inf'), directed, width, locale)
            for count, unit in spans]
    return lists.format_list(said, locale=locale)


def _relative_time(draw: _Draw) -> Iterator[Say]:
    spans = [(int(draw.number(999)) * draw.choice((1, -1)), draw.choice(list(SPANS)))]
    for width in ('long', 'short'):
        yield partial(_say_spans, spans, width, True)


def _duration(draw: _Draw) -> Iterator[Say]:
    if draw.random() < 0.4:
        spans = [(int(draw.number(999)), draw.choice(list(SPANS)))]
    else:
        large, small, most = draw.choice(PAIRED_SPANS)
        spans = [(int(draw.number(99)), large), (int(draw.number(most)), small)]
    for width in ('long', 'short'):
        yield partial(_say_spans, spans, width)


def _number(draw: _Draw) -> Iterator[Say]:
    yield partial(numbers.format_decimal, draw.number(9_999_999, decimals=3) * draw.choice((1, 1, 1, -1)))


def _compact_number(draw: _Draw) -> Iterator[Say]:
    short, power = draw.number(999, decimals=1, low=1), draw.choice((3, 6, 9, 12))
    number = Decimal(int(short * 10 ** power))
    draw.values.append(number)  # 1.5 million is both a 1.5 and a 1500000
    # Short forms of thousands do not exist in every language: German CLDR has 1500 for 1.5K.
    for width in ('long',) if power == 3 else ('long', 'short'):
        yield partial(numbers.format_compact_decimal, number, format_type=width, fraction_digits=1)


def _percentage(draw: _Draw) -> Iterator[Say]:
    yield partial(numbers.format_percent, draw.number(999, decimals=2) / 100, decimal_quantization=False)


def _amount(draw: _Draw) -> Iterator[Say]:
    currency = draw.choice(SYMBOLS)
    yield partial(numbers.format_currency, draw.price(currency), currency)


def _named_amount(draw: _Draw) -> Iterator[Say]:
    currency = draw.choice(CURRENCIES)
    yield partial(numbers.format_currency, draw.price(currency), currency, format_type='name')


def _unit(draw: _Draw) -> Iterator[Say]:
    number, unit = draw.number(9_999, decimals=1), draw.choice(UNITS)
    # Babel's German says some short singulars in the long width ('1 Meter' beside '2 m').
    for width in ('long',) if number == 1 else ('long', 'short'):
        yield partial(units.format_unit, number, unit, width)


def _rate(draw: _Draw) -> Iterator[Say]:
    yield partial(units.format_compound_unit, draw.number(9_999, decimals=1), draw.choice(NUMERATORS),
                  denominator_unit=draw.choice(DENOMINATORS), length='long')


def _territory_list(draw: _Draw) -> Iterator[Say]:
    codes, style = draw.names(*draw.sample(TERRITORIES, draw.randint(1, 3))), draw.choice(('standard', 'or'))
    yield lambda locale: lists.format_list([locale.territories[code] for code in codes], style, locale)


def _language_list(draw: _Draw) -> Iterator[Say]:
    codes, style = draw.names(*draw.sample(LANGUAGES, draw.randint(1, 3))), draw.choice(('standard', 'or'))
    yield lambda locale: lists.format_list([locale.languages[code] for code in codes], style, locale)


def _locale(draw: _Draw) -> Iterator[Say]:
    language, territory = draw.names(draw.choice(LANGUAGES), draw.choice(TERRITORIES))
    yield lambda locale: f'{locale.languages[language]} ({locale.territories[territory]})'


KINDS: dict[str, tuple[Callable[[_Draw], Iterator[Say]], int]] = {  # function, and number of training pairs
    'date': (_date, 2000),
    'date_interval': (_date_interval, 1800),
    'month': (_month, 1000),
    'time': (_time, 1200),
    'time_interval': (_time_interval, 1200),
    'time_of_day': (_time_of_day, 1500),
    'datetime': (_datetime, 1500),
    'relative_time': (_relative_time, 1500),
    'duration': (_duration, 1500),
    'number': (_number, 1400),
    'compact_number': (_compact_number, 1200),
    'percentage': (_percentage, 800),
    'amount': (_amount, 1500),
    'named_amount': (_named_amount, 1500),
    'unit': (_unit, 1600),
    'rate': (_rate, 1000),
    'territory_list': (_territory_list, 1500),
    'language_list': (_language_list, 1000),
    'locale': (_locale, 1500),
}


def _clean(text: str) -> str:
    """Replace U+00A0, U+202F and U+2009 by plain spaces, and apply NFKC.

    SentencePiece applies the same rule before it splits a text, so a detokeniser can produce nothing else: a reference
    that kept the other spaces could never be matched.
    """
    return ' '.join(unicodedata.normalize('NFKC', text).split())


def _lines(kind: str, split: str, locales: tuple[Locale, ...], seed: int, seen: set[str]) -> Iterator[str]:
    """Yield the lines of one kind in one split; `seen` holds the source texts of every kind and split."""
    ways_to_say, count = KINDS[kind]
    left = count if split == 'train' else HELD_OUT
    draw = _Draw(f'{seed}/{split}/{kind}')
    for _ in range(1000 * left):
        draw.values.clear()
        ways = list(ways_to_say(draw))
        if any(split_of(value) != split for value in draw.values):
            continue
        # If two ways look alike, the first counts: 'May 5, 2024' is both a long and a medium date in English, but in
        # German the two differ.
        pairs: dict[str, str] = {}
        for say in ways:
            # Babel lacks some patterns that a language inherits in CLDR, such as a short German 'in 3 mo.'.
            with contextlib.suppress(KeyError):
                source, target = (_clean(say(locale=locale)) for locale in locales)
                pairs.setdefault(source, target)
        if fresh := [source for source in pairs if source not in seen]:
            source = draw.choice(fresh)
            seen.add(source)
            yield f'{source}\t{pairs[source]}\t{kind}\n'
            left -= 1
            if not left:
                return
    raise UserError(f'{locales[0]} to {locales[1]}: too few pairs of {kind}. Lower its count in KINDS.')


def write_cldr_pairs(folder: str, *, source: str = 'en', target: str = 'de', seed: int = 0) -> dict[str, str]:
    """Write a parallel corpus, split by value, as three files of tab-separated lines.

    A line is `source text <tab> target text <tab> kind`, in UTF-8; there is no header. No source text occurs
    twice in the three files, so none has two translations. The same arguments give the same bytes.

    Args:
      folder: folder for `train.tsv`, `validation.tsv` and `test.tsv`; created if missing.
      source: the CLDR locale to translate from, such as 'en'.
      target: the CLDR locale to translate to, such as 'de' or 'pt_BR'.
      seed: decides the drawn values; the split of a value does not depend on it.

    Returns:
      The path of each file by split: 'train', 'validation' and 'test'.

    Raises:
      babel.UnknownLocaleError: Babel has no data for a locale.
      UserError: two languages have too few different pairs of a kind.
    """
    locales = Locale.parse(source), Locale.parse(target)
    seen: set[str] = set()
    lines = {split: [line for kind in KINDS for line in _lines(kind, split, locales, seed, seen)]
             for split in SPLITS}
    os.makedirs(folder, exist_ok=True)
    paths = {split: os.path.join(folder, f'{split}.tsv') for split in SPLITS}
    for split, path in paths.items():
        random.Random(f'{seed}/{split}').shuffle(lines[split])
        temporary = f'{path}.tmp-{uuid.uuid4().hex[:8]}'
        with open(temporary, 'w', encoding='utf-8', newline='\n') as file:
            file.writelines(lines[split])
        os.replace(temporary, path)
    return paths
