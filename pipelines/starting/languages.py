"""Recognise the language of lines, by file name or by their words and letters."""
import functools
import pathlib
import re
from collections.abc import Iterable

import babel
from babel.core import get_global

# The most frequent short words of each language, which most sentences contain.
WORDS = {'en': 'the of and to in is that it was for on are with his they at be this from', 'de':
         'der die und in den von zu das mit sich des auf für ist im dem nicht ein eine', 'fr':
         'de la le et les des en un du une que est pour qui dans sur avec il par', 'es':
         'de la que el en y los se del las un por con no una su para es al', 'it':
         'di e il la che in un del per una sono con non della le si da gli', 'nl':
         'de van het een en in is dat op te zijn met voor niet aan er om', 'pt':
         'de a o que e do da em um para com não uma os no se na por mais'}
# Letters used by one of the languages only, or nearly so.
SCRIPTS = {'ko': '\uac00-\ud7a3', 'ja': '\u3040-\u30ff', 'zh': '\u4e00-\u9fff', 'ru': '\u0400-\u04ff',
           'el': '\u0370-\u03ff', 'ar': '\u0600-\u06ff', 'he': '\u0590-\u05ff', 'hi': '\u0900-\u097f',
           'th': '\u0e00-\u0e7f'}
# Words of a column's name beside that of its language.
_GENERIC = {'text', 'texts', 'sentence', 'sentences', 'sent', 'string', 'strings', 'word', 'words', 'phrase', 'phrases',
            'translation', 'translations', 'latn', 'cyrl', 'hans', 'hant', 'arab', 'deva'}
_REGION = re.compile(r'[-_]([a-z]{2}|hans|hant|latn|cyrl)$')
_SUFFIX = re.compile(r'[._-]([a-z]{2})$')


@functools.cache
def _known() -> set[str]:
    """Return codes of two and three letters and English names of languages, in small letters."""
    named = babel.Locale('en').languages
    return {word.lower() for word in (*named.keys(), *named.values(), *get_global('language_aliases'))}


def of_column(name: str) -> bool:
    """Return whether a column is named after one language, such as `de`, `text_en` or `English words/sentences`."""
    words = [word for word in re.findall(r'[^\W_]+', re.sub(r'\(.*\)', '', name.lower())) if word not in _GENERIC]
    return is_language(name) or (len(words) == 1 and is_language(words[0]))


def is_language(word: str) -> bool:
    """Return whether a word is a language's code, such as de, deu or de-DE, or English name, as in a table's header."""
    return _REGION.sub('', word.strip().lower()) in _known()


def of_name(path: str) -> str:
    """Return the language in a file's name, such as `train.en.gz`, or nothing."""
    name = pathlib.PurePath(path).name.removesuffix('.gz').removesuffix('.txt').removesuffix('.sgm')
    found = _SUFFIX.search(name)
    return found[1] if found else ''


def of_text(lines: Iterable[str]) -> str:
    """Return the language most of the text is in, or nothing if it is none of the known ones."""
    text = ' '.join(lines)[:1_000_000]
    for code, letters in SCRIPTS.items():
        if len(re.findall(f'[{letters}]', text)) > 0.2 * len(re.findall(r'\w', text)):
            return code
    words = re.findall(r'\w+', text.lower())
    # Words of one letter are also those of formulas and of spelled words.
    known = {code: {word for word in frequent.split() if len(word) > 1} for code, frequent in WORDS.items()}
    shares = {code: sum(word in frequent for word in words) / max(1, len(words)) for code, frequent in known.items()}
    best = max(shares, key=shares.__getitem__)
    return best if shares[best] > 0.1 and len({*words} & known[best]) > 2 else ''
