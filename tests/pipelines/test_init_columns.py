"""Tables and files of text as others publish them: which columns, which files, and what `init` refuses or says."""
import csv
import io
import random
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_prep import UserError
from data_prep.core import cutters, text_files
from pipelines.starting import findings, languages, pairs
from pipelines.starting.findings import values

WORDS = 'the a cat dog house tree runs sees near big small red blue and under over with from into'.split()


def sentence(n):
    draw = random.Random(n)
    return ' '.join(draw.choices(WORDS, k=draw.randint(5, 9)))


def table(path, names, row, count=80):
    """A table of rows made from a number, by the ending of its name."""
    with open(path, 'w', newline='', encoding='utf-8') as file:
        writer = csv.writer(file, delimiter='\t' if path.suffix == '.tsv' else ',')
        writer.writerows([*([names] if names else []), *(row(n) for n in range(count))])
    return str(path)


def texts(*others):
    """A row of sentences, or what a function of the number gives."""
    return lambda n: [each(n) if callable(each) else sentence(1000 * n + place) for place, each in enumerate(others)]


@pytest.mark.parametrize('names, row, chosen', [
    (['English words/sentences', 'French words/sentences'], texts(0, 0),
     ('English words/sentences', 'French words/sentences')),
    (['text_en', 'text_fr'], texts(0, 0), ('text_en', 'text_fr')),
    (['Chinese (Simplified)', 'English'], texts(0, 0), ('Chinese (Simplified)', 'English')),
    (['French', 'English translation'], texts(0, 0), ('French', 'English translation')),
    (['question', 'sql'], texts(0, 0), ('question', 'sql')),
    (['db_id', 'query', 'question'], texts(lambda n: f'db{n % 7}', 0, 0), ('question', 'query')),
    (['informal', 'formal'], texts(0, 0), ('informal', 'formal')),
    (['Normal', 'Simple'], texts(0, 0), ('Normal', 'Simple')),
    (['class', 'before', 'after'], texts(lambda n: 'PLAIN PUNCT'.split()[n % 2], 0, 0), ('before', 'after')),
    (['lp', 'src', 'mt', 'ref'], texts(lambda n: 'en-de', 0, 0, 0), ('src', 'ref')),
    (['url', 'body', 'title'], texts(lambda n: f'https://a.org/{n}', 0, 0), ('body', 'title')),
    (['path', 'sentence', 'translation'], texts(lambda n: f'common_voice_{n}.mp3', 0, 0), ('sentence', 'translation')),
    (['author', 'date', 'headlines', 'text'], texts(lambda n: f'A. Writer {n % 9}', lambda n: f'{n % 28} May', 0, 0),
     ('text', 'headlines')),
    (['case', 'label_id', 'said', 'meant'], texts(lambda n: n, lambda n: f'x{n}', 0, 0), ('said', 'meant'))])
@pytest.mark.parametrize('ending', ['csv', 'tsv'])
def test_columns_are_chosen_by_name_and_by_what_is_in_them(tmp_path, names, row, chosen, ending):
    found = pairs.look([table(tmp_path / f'a.{ending}', names, row)])
    data = values(found.sections)['data']
    assert data['columns'] == {'source': f'{{{chosen[0]}}}', 'target': f'{{{chosen[1]}}}'} and data['header']
    assert found.examples['train'] + found.examples['validation'] + found.examples['test'] == 80
    example = dict(zip(names, row(0)))
    assert f"{example[chosen[0]]!r} ({{{chosen[0]}}}) gives {example[chosen[1]]!r}" in ' '.join(found.said)


@pytest.mark.parametrize('names, row', [
    (['Error Type', 'Ungrammatical Statement', 'Standard English'], texts(lambda n: f'kind {n % 5}', 0, 0)),
    (['first', 'second', 'third'], texts(0, 0, 0))])
def test_columns_that_nothing_tells_apart_are_asked_for(tmp_path, names, row):
    with pytest.raises(UserError, match=f'which of {", ".join(names)} are source and target'):
        pairs.look([table(tmp_path / 'a.csv', names, row)])


@pytest.mark.parametrize('row', [
    texts(0, 0, lambda n: f'CC-BY 2.0 (France) Attribution: tatoeba.org #{n} (CK) & #{n + 7} (a contributor)'),
    texts(0, 0, lambda n: ('noun', 'verb')[n % 2]), texts(0, 0)])
def test_tables_without_names_have_the_first_two_columns(tmp_path, row):
    found = pairs.look([table(tmp_path / 'a.tsv', None, row)])
    assert 'columns' not in values(found.sections)['data'] and found.examples['train'] > 30
    assert f'The first pair: {row(0)[0]!r} gives {row(0)[1]!r}.' in found.said


def test_a_column_of_few_texts_is_no_source(tmp_path):
    path = table(tmp_path / 'a.csv', ['source', 'target'], texts(lambda n: f'class {n % 4}', 0), 300)
    with pytest.raises(UserError, match='the sources of 300 pairs have only 4 different texts'):
        pairs.look([path])


@pytest.mark.parametrize('names, lists', [
    ('train.en train.de tst2013.en tst2013.de', 'train train test test'),
    ('a.en a.de newsdev2016.en newsdev2016.de devtest.en devtest.de', 'train train validation validation test test'),
    ('eng.trn eng.dev eng.tst', 'train validation test'), ('data.csv eval.csv', 'train validation'),
    ('train/a.en train/a.de valid/a.en valid/a.de test/a.en test/a.de', 'train train validation validation test test'),
    ('test/train.en test/train.de', 'train train'), ('test/a.en test/a.de', 'train train'),
    ('x/train.en y/a.de', 'train train')])
def test_splits_by_the_names_of_files_or_else_of_folders(names, lists):
    found = findings.by_name(names.split(), pairs._SPLITS)  # noqa: SLF001
    assert [next(split for split, listed in found.items() if name in listed) for name in names.split()] == lists.split()


def lines(path, rows):
    path.write_text(''.join(f'{row}\n' for row in rows), encoding='utf-8')
    return str(path)


def test_files_that_are_no_partners_are_refused(tmp_path):
    named = [lines(tmp_path / name, map(sentence, range(60))) for name in ('a.en', 'b.en', 'a.de', 'b.de')]
    with pytest.raises(UserError, match='a.en and .*b.en are both en by name. List files two by two'):
        pairs.look(named)
    shards = [lines(tmp_path / name, (f'{sentence(n)}\t{sentence(-n)}' for n in range(60))) for name in ('one', 'two')]
    with pytest.raises(UserError, match='both sides of most records hold tabs, so these are tables'):
        pairs.look(shards)
    assert pairs.look([named[0], lines(tmp_path / 'c.en', map(sentence, range(99, 159)))]).examples['train'] > 30


def test_lines_of_markup_are_counted(tmp_path):
    rows = [sentence(n) if n % 3 else f'<url>http://a.org/{n}</url>' for n in range(60)]
    found = pairs.look([lines(tmp_path / 'a.en', rows), lines(tmp_path / 'a.de', rows[30:] + rows[:30])])
    assert '20 begin with < on both sides' in ' '.join(found.said)


@pytest.mark.parametrize('targets, kept', [
    ([f'你好，世界 {n}！' for n in range(60)], True), ([f'น้ำ {n}' for n in range(60)], True),
    ([f'das Haus\u00a0{n} \u2009und' for n in range(60)], False), ([f'Größe {n} für 5 €' for n in range(60)], False)])
def test_targets_that_nfkc_would_rewrite_are_kept_as_they_are(tmp_path, targets, kept):
    """White space does not count: such a model outputs another space, which metrics of text do not see."""
    changed = [unicodedata.normalize('NFKC', text) != text for text in targets]
    assert all(changed) or not any(changed)
    path = table(tmp_path / 'a.tsv', ['source', 'target'], lambda n: [sentence(n), targets[n % 60]])
    data = pairs.look([path]).sections['data']
    assert data.get('normalization', (None,))[0] == ('identity' if kept else None)


def test_languages_are_told_by_more_than_letters():
    assert languages.of_text(['C C ( = O ) N c 1 a o e'] * 50) == ''
    assert languages.of_text(['o cão vê a casa que está em uma rua com o gato e não foge'] * 9) == 'pt'
    assert not languages.of_column('body') and languages.of_column('sentence_eng_Latn') and languages.of_column('deu')


@pytest.mark.parametrize('text, whole', [
    ('a "word" here,b\nc 5" pipe,d\ne,f\n', 3), ('"a, ""b""",c\n"two\nlines",d\ne,f\n', 3), ('a,"b\nc",d\ne,f,g\n', 2),
    ('5",a\n6",b\n7",c\n', 3), ('6" pipe,"6-Zoll-\nRohr"\na,b\n', 2), ('"a\n\n""b"",c\n",d\n"e",f\n', 2)])
def test_a_stray_quote_in_a_cell_swallows_no_rows(tmp_path, text, whole):
    """Open a cell at a quote where the cell begins, and nowhere else, as csv.reader does."""
    path = tmp_path / 'a.csv'
    path.write_text(text)
    [source] = text_files.sources('train', '', [str(path)])
    found = [record for block in text_files.scan(source, (str(path),), 100, False)
             for record in text_files.cells(block)]
    assert [record.columns for record in found] == [tuple(row) for row in csv.reader(open(path, newline=''))]
    assert len(found) == whole and not any(record.reason for record in found)


@given(st.lists(st.lists(st.text('ab",;\n\t ', max_size=6), min_size=2, max_size=3), min_size=1, max_size=6))
@settings(max_examples=200, deadline=None)
def test_what_csv_writes_is_cut_as_it_was_written(rows):
    """Empty rows are no records."""
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator='\n').writerows(rows)
    data = text.getvalue().encode()
    cut = [record for record, _ in cutters.csv_records(io.BytesIO(data))]
    assert b''.join(cut) == data
    assert [next(csv.reader(io.StringIO(record.decode(), newline=''))) for record in cut] == rows
