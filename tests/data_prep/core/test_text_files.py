"""Parallel text in WMT's formats: archives, gzip inside of them, and NIST's SGML."""
import csv
import gzip
import io
import json
import os
import re
import tarfile
import tracemalloc

import pytest

from data_prep import UserError, wmt
from data_prep.core import archives, records, text_files
from data_prep.text import job as text_job

SOURCE = [f'the "number" {i} & more' for i in range(60)]
TARGET = [f'die „Zahl“ {i} & mehr' for i in range(60)]
HELD = (['the number here', 'is “here”', ''], ['die Zahl hier', 'ist <hier>', ''])


def text(lines):
    return '\n'.join([*lines, '']).encode()


def sgml(lines, kind='srcset'):
    def escaped(line):
        return line.replace('&', '&amp;').replace('<', '&lt;').replace('>', '&gt;').replace('"', '&quot;')
    segments = '\r\n'.join(f'<seg id="{i + 1}"> {escaped(line)} </seg>' for i, line in enumerate(lines))
    return (f'\ufeff<{kind} setid="newstest2014" srclang="any">\r\n<doc sysid="ref" docid="a" genre="news">\r\n<p>\r\n'
            f'{segments}\r\n</p>\r\n</doc>\r\n</{kind}>\r\n').encode()


def pack(path, members):
    """Writes a tar archive, by gzip unless it ends in .tar."""
    with tarfile.open(path, 'w' if path.suffix == '.tar' else 'w:gz') as tar:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))


@pytest.fixture
def folder(tmp_path):
    """Archives with the member names of WMT14's."""
    pack(tmp_path / 'training-parallel-europarl-v7.tgz', {
        './training/europarl-v7.cs-en.cs': text(SOURCE), './training/europarl-v7.de-en.de': text(TARGET),
        './training/europarl-v7.de-en.en': text(SOURCE)})
    pack(tmp_path / 'training-giga-fren.tar', {
        f'giga-fren.release2.fixed.{language}.gz': gzip.compress(text(lines))
        for language, lines in (('en', SOURCE), ('fr', TARGET))})
    pack(tmp_path / 'dev.tar.gz', {'dev/newstest2013.en': text(HELD[0]), 'dev/newstest2013.de': text(HELD[1])})
    pack(tmp_path / 'test-full.tgz', {'test-full/newstest2014-deen-src.en.sgm': sgml(HELD[0]),
                                      'test-full/newstest2014-deen-ref.de.sgm': sgml(HELD[1], 'refset')})
    return tmp_path


def config(folder, **values):
    europarl = 'training-parallel-europarl-v7.tgz/training/europarl-v7.de-en'
    return wmt.Config(**{
        'folder': str(folder), 'train': [f'{europarl}.en', f'{europarl}.de'],
        'validation': [f'dev.tar.gz/dev/newstest2013.{language}' for language in ('en', 'de')],
        'test': [f'test-full.tgz/test-full/newstest2014-deen-{side}.sgm' for side in ('src.en', 'ref.de')],
        'vocab_size': 60, 'pairs_per_block': 7, 'max_dead_letters': 0.5, **values})


def prepare(config, folder):
    os.makedirs(folder)
    text_job.run(config, str(folder), [])

    def pairs(split):
        part = records.open_split(str(folder), split)
        _, found = wmt.examples(part.read(range(len(part))))
        return found['source'], found['target']
    return {split: pairs(split) for split in wmt.SPLITS}


def unpacked(folder, *names):
    [source] = text_files.sources('train', str(folder), names)
    scratch = folder / 'scratch'
    scratch.mkdir(exist_ok=True)
    plain = text_files.unpack(source, str(scratch))
    blocks = text_files.scan(source, plain, 100, header=False)
    return [record for block in blocks for record in text_files.read(block)]


def test_wmts_own_files_give_their_pairs(folder):
    giga = [f'training-giga-fren.tar/giga-fren.release2.fixed.{language}.gz' for language in ('en', 'fr')]
    (folder / 'plain.en.sgm.gz').write_bytes(gzip.compress(sgml(HELD[0])))
    (folder / 'plain.de').write_bytes(text(HELD[1]))
    first = config(folder)
    second = config(folder, train=giga + first.train, validation=['plain.en.sgm.gz', 'plain.de'])
    assert prepare(first, folder / 'a') == {'train': (SOURCE, TARGET), 'validation': HELD, 'test': HELD}
    assert prepare(second, folder / 'b') == {'train': (SOURCE * 2, TARGET * 2), 'validation': HELD, 'test': HELD}
    assert not os.path.exists(folder / 'b' / 'unpacked')


def test_the_files_whose_changes_matter_are_the_archives(folder):
    assert config(folder).files('train') == [str(folder / 'training-parallel-europarl-v7.tgz')]
    assert config(folder, train=['a.en', 'b.de.gz']).files('train') == [str(folder / 'a.en'), str(folder / 'b.de.gz')]


def test_a_folder_may_be_called_like_an_archive(tmp_path):
    for name in ('unpacked.tgz', 'x.tar'):
        (tmp_path / name).mkdir()
        pack(tmp_path / name / 'inner.tgz', {'a.en': b'one\n', 'a.de': b'eins\n'})
        (tmp_path / name / 'a.de').write_bytes(b'eins\n')
        [record] = unpacked(tmp_path, f'{name}/inner.tgz/a.en', f'{name}/a.de')
        assert record.columns == ('one', 'eins')


def test_an_archive_is_read_once_for_both_its_files(folder, monkeypatch):
    opened, open_plain = [], text_files.open_plain
    monkeypatch.setattr(text_files, 'open_plain', lambda path: opened.append(path) or open_plain(path))
    [source] = text_files.sources('train', str(folder), config(folder).train)
    text_files.unpack(source, str(folder))
    assert opened == [str(folder / 'training-parallel-europarl-v7.tgz')]


def test_memory_does_not_grow_with_the_archive(tmp_path):
    big = (b'word ' * 200 + b'\n') * 30000  # 30 MB
    pack(tmp_path / 'big.tgz', {'other': big, 'a.en': big, 'a.de.gz': gzip.compress(big, 1)})
    [source] = text_files.sources('train', str(tmp_path), ['big.tgz/a.en', 'big.tgz/a.de.gz'])
    tracemalloc.start()
    plain = text_files.unpack(source, str(tmp_path))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [os.path.getsize(path) for path in plain] == [len(big)] * 2
    assert peak < 8e6


def test_a_dead_letter_names_member_and_segment(folder):
    bad = sgml(HELD[0]).replace('“'.encode(), b'\xe2')
    pack(folder / 'test-full.tgz', {'test-full/newstest2014-deen-src.en.sgm': bad,
                                    'test-full/newstest2014-deen-ref.de.sgm': sgml(HELD[1], 'refset')})
    assert prepare(config(folder), folder / 'out')['test'] == (['the number here', ''], ['die Zahl hier', ''])
    [letter] = [json.loads(line) for path in (folder / 'out' / 'dead_letters').iterdir() for line in open(path)]
    assert letter['file'] == str(folder / 'test-full.tgz/test-full/newstest2014-deen-src.en.sgm')
    assert (letter['line'], letter['reason']) == (2, 'not UTF-8: byte 0xe2 at position 3')


class Trickle(io.BytesIO):
    """Gives three bytes a read, as a network may."""

    def read(self, size=-1):
        return super().read(min(size, 3))


def test_segments():
    content = (b'<SRCSET><hl><SEG ID=1>AT&amp;T &#38; &quot;&apos;&lt;b&gt;&quot; &#x2014; &amp;lt; R&D &no;</SEG></hl>'
               b'<p><seg id="2">two</seg><seg id="3"></seg>\r\n<seg\nid="4">\r\n  over\r\n two&#10;lines\t</seg ></p>')
    expected = ['AT&T & "\'<b>" — &lt; R&D &no;', 'two', '', 'over two lines']
    for stream in (io.BytesIO(content), Trickle(content)):
        assert b''.join(archives.segments(stream, 'a.sgm')).decode() == '\n'.join([*expected, ''])


def truncate(path, keep):
    content = path.read_bytes()
    path.write_bytes(content[:int(len(content) * keep)])


def change_segments(folder):
    lines = [*HELD[1], 'one more']
    pack(folder / 'test-full.tgz', {'test-full/newstest2014-deen-src.en.sgm': sgml(HELD[0]),
                                    'test-full/newstest2014-deen-ref.de.sgm': sgml(lines, 'refset')})


@pytest.mark.parametrize('damage, message', [
    (lambda folder: truncate(folder / 'test-full.tgz', 0.5), r'/test-full\.tgz is not a whole archive'),
    (lambda folder: truncate(folder / 'test-full.tgz', 0.98), r'/test-full\.tgz is not a whole archive'),
    (lambda folder: truncate(folder / 'training-giga-fren.tar', 0.055), r'release2\.fixed\.en\.gz is not a whole gzip'),
    (lambda folder: truncate(folder / 'training-giga-fren.tar', 0), r'training-giga-fren\.tar is not a whole archive'),
    (lambda folder: (folder / 'test-full.tgz').write_bytes(b'<html>404</html>'), r'test-full\.tgz is not a whole arch'),
    (lambda folder: (folder / 'training-giga-fren.tar').write_bytes(b'<html>404</html>' * 99),
     r'training-giga-fren\.tar is not a whole archive'),
    (lambda folder: (folder / 'test-full.tgz').unlink(),
     r'data\.test: there is no file \S*/test-full\.tgz\. Set data\.folder'),
    (lambda folder: pack(folder / 'test-full.tgz', {'test/newstest2014-deen-src.en.sgm': b'', 'other': b''}),
     r'test-full\.tgz has no file test-full/newstest2014-deen-\S+; it has test/newstest2014-deen-src\.en\.sgm …\.$'),
    (lambda folder: pack(folder / 'training-giga-fren.tar', {
        f'giga-fren.release2.fixed.{language}.gz': gzip.compress(text(SOURCE))[:-9] for language in ('en', 'fr')}),
     r'training-giga-fren\.tar/giga-fren\.release2\.fixed\.en\.gz is not a whole gzip file'),
    (lambda folder: pack(folder / 'test-full.tgz', {
        f'test-full/newstest2014-deen-{side}.sgm': text(SOURCE) for side in ('src.en', 'ref.de')}),
     r'test-full\.tgz/test-full/newstest2014-deen-src\.en\.sgm has no <seg>'),
    (lambda folder: pack(folder / 'test-full.tgz', {
        f'test-full/newstest2014-deen-{side}.sgm': sgml(HELD[0])[:-60] for side in ('src.en', 'ref.de')}),
     r'newstest2014-deen-src\.en\.sgm: segment 2 is not closed'),
    (change_segments, r'src\.en\.sgm has 3 segments, but \S*ref\.de\.sgm has 4 segments\. Line n of one'),
])
def test_what_cannot_be_read_is_one_sentence(folder, damage, message):
    damage(folder)
    giga = [f'training-giga-fren.tar/giga-fren.release2.fixed.{language}.gz' for language in ('en', 'fr')]
    with pytest.raises(UserError, match=message):
        prepare(config(folder, train=giga), folder / 'out')


def test_a_missing_end_tag_inside_the_file_is_named():
    content = sgml(['one', 'two', 'three']).replace(b'one </seg>', b'one')
    with pytest.raises(UserError, match='a.sgm: segment 1 is not closed'):
        list(archives.segments(io.BytesIO(content), 'a.sgm'))


@pytest.mark.parametrize('text', [b'<seg>', b'<seg ', b'</seg>', b'<', b'<seg id="1"> '])
def test_tags_without_end_take_no_longer_than_others(text):
    """A million of them: where each looked for its end through all the rest, that took hours."""
    with pytest.raises(UserError, match='a.sgm'):
        list(archives.segments(io.BytesIO(text * (4_000_000 // len(text))), 'a.sgm'))


def test_characters_that_are_none(folder):
    content = b'<seg>&#xD800; &#1114112; &#' + b'9' * 5000 + b'; &#99999999;</seg>'
    assert b''.join(archives.segments(io.BytesIO(content), 'a.sgm')).decode() == (
        '\ufffd \ufffd &#' + '9' * 5000 + '; &#99999999;\n')


def test_a_line_longer_than_any_is_a_dead_letter(tmp_path):
    (tmp_path / 'a.en').write_bytes(b'one\n' + 'ä'.encode() * (1 << 20) + b'\nthree\n')
    (tmp_path / 'a.de').write_bytes(b'eins\nzwei\ndrei\n')
    first, long, last = unpacked(tmp_path, 'a.en', 'a.de')
    assert (first.columns, last.columns) == (('one', 'eins'), ('three', 'drei')) and long.columns == ()
    assert long.reason == '2,097,153 bytes in one record, but at most 1,048,576 are allowed'
    assert (long.file, long.line, long.offset, last.offset) == (str(tmp_path / 'a.en'), 2, 4, 2_097_157)


def test_memory_does_not_grow_with_a_line(tmp_path):
    for name in ('a.en', 'a.de'):
        (tmp_path / name).write_bytes(b'x' * 30_000_000)
    tracemalloc.start()
    [record] = unpacked(tmp_path, 'a.en', 'a.de')
    assert record.reason and tracemalloc.get_traced_memory()[1] < 1e7
    tracemalloc.stop()


def test_what_unpacks_to_far_more_than_it_is_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(archives, '_ANYHOW', 1 << 22)
    (tmp_path / 'a.en.gz').write_bytes(gzip.compress(bytes(1 << 23)))
    (tmp_path / 'a.de').write_bytes(b'')
    pack(tmp_path / 'a.tgz', {'a.en': bytes(1 << 23), 'a.de': b''})
    for names, kind in ((['a.en.gz', 'a.de'], 'gzip file'), (['a.tgz/a.en', 'a.tgz/a.de'], 'archive')):
        with pytest.raises(UserError, match=f'is not a whole {kind} .unpacked it is more than 200 times as large'):
            unpacked(tmp_path, *names)


def header(name, kind, size, content=b''):
    """A tar's header that says so, its checksum right, and what follows it."""
    entry = tarfile.TarInfo(name)
    entry.type, entry.size = kind, size
    return entry.tobuf(tarfile.GNU_FORMAT) + content + bytes(-len(content) % 512)


GOOD = header('a.en', tarfile.REGTYPE, 4, b'one\n') + header('a.de', tarfile.REGTYPE, 5, b'eins\n')


@pytest.mark.parametrize('first, message', [
    (header('x', tarfile.REGTYPE, -512), 'a member of -512 bytes'),
    (header('x', tarfile.XHDTYPE, 14, b'14 size=-5120\n'), 'a member of -5,120 bytes'),
    (header('x', tarfile.REGTYPE, 1 << 39), 'unexpected end of data'),
    (header('x', tarfile.REGTYPE, 1 << 61), 'a member of 2,305,843,009,213,693,952 bytes'),
    (header('x', tarfile.XHDTYPE, 1 << 60), 'a name or header of 1,152,921,504,606,846,976 bytes'),
    (header('x', tarfile.GNUTYPE_LONGNAME, 1 << 20, bytes(1 << 20)), 'a name or header of 1,048,576 bytes'),
    (header('x', tarfile.XHDTYPE, 12, b'12 path=abc\n') * 2000, 'recursion'),
    (header('x', tarfile.XHDTYPE, 44, b'22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n')
     + header('a', tarfile.REGTYPE, 512, bytes(512)), 'not enough values')])
def test_a_tar_whose_headers_lie_is_refused(tmp_path, first, message):
    (tmp_path / 'a.tar').write_bytes(first + GOOD + bytes(1024))
    with pytest.raises(UserError, match=rf'a\.tar is not a whole archive \(.*{message}'):
        unpacked(tmp_path, 'a.tar/a.en', 'a.tar/a.de')
    with open(tmp_path / 'a.tar', 'rb') as file, pytest.raises(UserError, match=rf'a\.tar is not a whole .*{message}'):
        list(archives.ranges(file, 'a.tar'))


def test_a_member_of_holes_is_none(tmp_path):
    (tmp_path / 'a.tar').write_bytes(header('a.en', tarfile.GNUTYPE_SPARSE, 0) + GOOD[1024:] + bytes(1024))
    with pytest.raises(UserError, match=r'a\.tar has no file a\.en'):
        unpacked(tmp_path, 'a.tar/a.en', 'a.tar/a.de')


def test_an_archive_needs_a_file_in_it(folder):
    with pytest.raises(UserError, match=r'data\.train: \S+europarl-v7\.tgz is an archive\. Continue with the file'):
        prepare(config(folder, train=['training-parallel-europarl-v7.tgz'] * 2), folder / 'out')


def rows(path, columns=text_files._AS_THEY_COME, header=False, a_block=2):
    [source] = text_files.sources('train', '', [str(path)])
    return [record for block in text_files.scan(source, (str(path),), a_block, header, columns)
            for record in text_files.read(block, columns)]


@pytest.mark.parametrize('columns', [{}, {'source': '{de} ({en})', 'target': '{en}'}])
def test_json_lines_are_read_as_the_same_table_is(tmp_path, columns):
    """Give values that CSV must quote; the order of names, which JSON leaves open, is the first record's."""
    pairs = [('a, "b"', 'ein\nzwei'), ('c', 'ü\u2028ä'), ('', 'drei'), ('7', 'd')]
    with open(tmp_path / 'a.csv', 'w', encoding='utf-8', newline='') as file:
        csv.writer(file).writerows([('en', 'de'), *pairs])
    records = [{'en': source, 'de': target} for source, target in pairs]
    records[1] = dict(reversed(records[1].items()))
    records[2]['more'] = [1, 2]
    (tmp_path / 'a.jsonl').write_text('\ufeff' + '\n'.join(map(json.dumps, records)) + '\n', encoding='utf-8')
    table, lines = rows(tmp_path / 'a.csv', columns, header=True), rows(tmp_path / 'a.jsonl', columns, bool(columns))
    assert [record.columns[:2] for record in lines] == [record.columns for record in table] and len(table) == 4
    assert not any(record.reason for record in lines)
    content = (tmp_path / 'a.jsonl').read_bytes()
    assert [record.offset for record in lines] == [0, *(n + 1 for n, byte in enumerate(content) if byte == 10)][:-1]


def test_values_of_json_become_text_and_names_within_names_are_joined(tmp_path):
    first = {'translation': {'en': 3.5, 'de': None}, 'id': [1, 'ä']}
    (tmp_path / 'a.json').write_text(json.dumps(first) + '\n{"id": 4}')
    found = rows(tmp_path / 'a.json', {'source': '{translation.en}/{translation.de}', 'target': '{id}'}, True)
    assert [record.columns for record in found] == [('3.5/', '[1, "ä"]'), ('/', '4')]


@pytest.mark.parametrize('line, reason', [
    ('{"en": "a"', 'not an object of JSON: .*delimiter'), ('"a", "b"', 'not an object of JSON'),
    ('{}', 'names with values are expected'), (r'{"en": "\ud800", "de": "a"}', 'surrogates not allowed'),
    ('{"a": ' * 100_000, 'recursion'), ('\xff', 'not UTF-8')])
def test_a_line_that_is_no_record_of_json(tmp_path, line, reason):
    """Make it the first, too: the others' names count. A file without any other is refused."""
    good, line = b'{"en": "a", "de": "b"}', line.encode('latin-1')
    for lines, bad in (([good, line, good], 1), ([line, good], 0)):
        (tmp_path / 'a.jsonl').write_bytes(b'\n'.join(lines))
        found = rows(tmp_path / 'a.jsonl')
        assert [number for number, record in enumerate(found) if record.reason] == [bad]
        assert re.search(reason, found[bad].reason)
    (tmp_path / 'a.jsonl').write_bytes(b'no JSON\n' * 3)
    with pytest.raises(UserError, match='a.jsonl: its first line is not an object of JSON.*one object per'):
        rows(tmp_path / 'a.jsonl')


def test_an_array_of_json_is_refused_with_the_command_that_converts_it(tmp_path):
    for text in ('[{"en": "a", "de": "b"}]', '[\n  {\n "en": "a"}]', '[' * 100_000):
        (tmp_path / 'a.json').write_text(text)
        with pytest.raises(UserError, match=r"is one JSON array.* as by `jq -c '\.\[\]' \S+a.json > lines.jsonl`"):
            rows(tmp_path / 'a.json')


def test_names_that_the_first_record_of_json_lacks(tmp_path):
    """Drop what no record has to have, such as the input of an instruction."""
    (tmp_path / 'a.jsonl').write_text('{"do": "add", "out": "3"}\n{"do": "add", "in": "1, 2", "out": "3"}\n')
    found = rows(tmp_path / 'a.jsonl', {'source': '{do} {in}', 'target': '{out}'}, True)
    assert [record.columns for record in found] == [('add', '3'), ('add 1, 2', '3')]


@pytest.mark.parametrize('name', ['a.csv', 'a.JSONL'])
def test_empty_lines_between_records_are_passed_over(tmp_path, name):
    lines = ['', '{"en": "a", "de": "b"}', '', '', '{"en": "c", "de": "d"}', ''] if 'J' in name else [
        '', 'a,b', '', '', 'c,"d\n\nd"', '']
    (tmp_path / name).write_bytes('\r\n'.join(lines).encode())
    found = rows(tmp_path / name, a_block=1)
    assert [record.columns for record in found] == [('a', 'b'), ('c', 'd' if 'J' in name else 'd\n\nd')]
    assert [record.offset for record in found] == [0, 2 + len(lines[1]) + 2]


@pytest.mark.parametrize('delimiter', [',', ';', '\t'])
def test_the_delimiter_of_csv_is_found(tmp_path, delimiter):
    """Spreadsheets of most of Europe write semicolons; commas within texts then vary."""
    pairs = [('a, "b"', 'c;d'), ('e', 'f\ng'), ('h, i, j', 'k\tl')]
    with open(tmp_path / 'a.csv', 'w', encoding='utf-8', newline='') as file:
        csv.writer(file, delimiter=delimiter).writerows(pairs)
    assert [record.columns for record in rows(tmp_path / 'a.csv', a_block=1)] == pairs


def test_a_template_names_what_a_record_of_json_has(tmp_path):
    (tmp_path / 'a.jsonl').write_text('{"en": "a", "de": "b"}\n')
    with pytest.raises(UserError, match="has no column 'fr'; it has en, de"):
        rows(tmp_path / 'a.jsonl', {'source': '{en}', 'target': '{fr}'}, True)
