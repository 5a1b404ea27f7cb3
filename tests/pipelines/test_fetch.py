"""Fetching data sets from a local server that truncates, corrupts, redirects or refuses responses."""
import hashlib
import json
import shutil
import types

import pytest

from data_prep import UserError
from data_prep.photos import BLAZEPOSE
from pipelines import fetch
from pipelines.fetching import catalogue, checksums, download
from support.bad_server import says, serve, whole

CONTENT = bytes(range(256)) * 4000
OTHER = CONTENT[:-1] + b'?'
SIZE = len(CONTENT)
SHA256 = f'sha256:{hashlib.sha256(CONTENT).hexdigest()}'


def md5(content):
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


@pytest.fixture(autouse=True)
def waits(monkeypatch):
    """Seconds that would have been waited."""
    found = []
    monkeypatch.setattr('time.sleep', found.append)
    return found


def file_at(server, checksum=SHA256, size=SIZE, path='/file.bin'):
    return catalogue.File('file.bin', server.url + path, size, checksum, 'a list')


def check(folder):
    """Whether the file is there and whole, and nothing but it and the record."""
    assert (folder / 'file.bin').read_bytes() == CONTENT
    assert {path.name for path in folder.iterdir()} == {'file.bin', checksums.RECORD}


def refused(server, folder, *words, **fields):
    with pytest.raises(UserError) as error:
        download.fetch(file_at(server, **fields), folder)
    assert all(word in str(error.value) for word in (*words, server.url)), error.value
    assert '\n' not in str(error.value) and not (folder / 'file.bin').exists()


def test_a_file_is_downloaded_verified_recorded_and_not_downloaded_again(tmp_path):
    with serve(whole(CONTENT)) as server:
        assert 'checksum correct (a list)' in download.fetch(file_at(server), tmp_path)
        assert 'already there' in download.fetch(file_at(server), tmp_path)
        assert len(server.asked) == 1
        row = json.loads((tmp_path / checksums.RECORD).read_text())['file.bin']
    check(tmp_path)
    assert row == {'url': f'{server.url}/file.bin', 'bytes': len(CONTENT), 'sha256': SHA256[7:],
                   'checksum': f'{SHA256}, a list'}


@pytest.mark.parametrize('size', [len(CONTENT), None], ids=['size known', 'size unknown'])
def test_what_is_cut_continues_where_it_was(tmp_path, size):
    half = len(CONTENT) // 2
    with serve(says(200, CONTENT[:half], Content_Length=str(len(CONTENT)), ETag='"1"'),
               whole(CONTENT, ETag='"1"')) as server:
        download.fetch(file_at(server, size=size), tmp_path)
        assert server.ranges() == ['', f'bytes={half}-']
        assert server.asked[1][2]['If-Range'] == '"1"'
    check(tmp_path)


def test_a_later_command_continues_too(tmp_path):
    with serve(says(200, CONTENT[:1000], Content_Length=str(len(CONTENT)))) as server:
        refused(server, tmp_path, 'cut after', 'continues where it stopped')
        assert len(server.asked) == 1 + download.RETRIES
    assert (tmp_path / 'file.bin.part').read_bytes() == CONTENT[:1000]
    with serve(whole(CONTENT)) as server:
        download.fetch(file_at(server), tmp_path)
        assert server.ranges() == ['bytes=1000-']
    check(tmp_path)


@pytest.mark.parametrize('second', [
    says(200, CONTENT, Content_Length=str(len(CONTENT))),
    says(206, CONTENT[10:], Content_Length=str(len(CONTENT) - 10), Content_Range='bytes 10-1023999/1024000'),
    says(206, CONTENT[10:], Content_Length=str(len(CONTENT) - 10)),
    says(416, Content_Range='bytes */10')], ids=['ignored', 'another part', 'no place named', 'refused'])
def test_a_server_that_cannot_continue_begins_anew(tmp_path, second):
    (tmp_path / 'file.bin.part').write_bytes(CONTENT[:1000])
    with serve(second, whole(CONTENT)) as server:
        download.fetch(file_at(server), tmp_path)
        assert server.ranges()[0] == 'bytes=1000-'
    check(tmp_path)


def test_a_changed_file_is_not_continued_without_a_checksum(tmp_path):
    """The server's validator decides where no checksum would find the mixture."""
    with serve(says(200, OTHER[:1000], Content_Length=str(len(CONTENT)), ETag='"old"'),
               whole(CONTENT, ETag='"new"')) as server:
        download.fetch(file_at(server, checksum='', size=None), tmp_path)
        assert server.ranges() == ['', 'bytes=1000-']
    check(tmp_path)
    (tmp_path / 'file.bin').unlink()
    (tmp_path / checksums.RECORD).unlink()
    (tmp_path / 'file.bin.part').write_bytes(OTHER[:1000])  # of a server that gave no validator
    with serve(whole(CONTENT)) as server:
        download.fetch(file_at(server, checksum='', size=None), tmp_path)
        assert server.ranges() == ['']
    check(tmp_path)


def test_a_corrupt_file_is_fetched_again_and_never_kept(tmp_path, capsys):
    with serve(whole(OTHER), whole(CONTENT)) as server:
        download.fetch(file_at(server), tmp_path)
    assert capsys.readouterr() == ('fetch: file.bin: its checksum is wrong; attempt 2 of 6, 0.0 MB are kept\n', '')
    check(tmp_path)
    (tmp_path / 'file.bin').unlink()
    with serve(whole(OTHER)) as server:
        refused(server, tmp_path, 'does not have the checksum of a list')
        assert len(server.asked) == 1 + download.RETRIES
    assert {path.name for path in tmp_path.iterdir()} == {checksums.RECORD}


def test_a_corrupt_beginning_is_not_continued_for_ever(tmp_path):
    (tmp_path / 'file.bin.part').write_bytes(OTHER[::-1][:1000])
    with serve(whole(CONTENT)) as server:
        download.fetch(file_at(server), tmp_path)
        assert server.ranges() == ['bytes=1000-', '']
    check(tmp_path)


@pytest.mark.parametrize('checksum, good', [
    (f'md5:{md5(CONTENT)}', True), (f'sha256-begins:{SHA256[7:15]}', True), (f'md5:{md5(OTHER)}', False),
    ('sha256-begins:01234567', False)])
def test_every_kind_of_checksum_decides(tmp_path, checksum, good):
    with serve(whole(CONTENT)) as server:
        if good:
            download.fetch(file_at(server, checksum=checksum), tmp_path)
            check(tmp_path)
        else:
            refused(server, tmp_path, 'does not have the checksum', checksum=checksum)


def test_an_unpublished_checksum_is_recorded_and_holds_from_then_on(tmp_path):
    with serve(whole(CONTENT), whole(OTHER)) as server:
        said = download.fetch(file_at(server, checksum=''), tmp_path)
        assert 'no checksum is published; its SHA-256 is now recorded' in said
        row = json.loads((tmp_path / checksums.RECORD).read_text())['file.bin']
        assert row['checksum'] == 'recorded at the first download, not published' and row['sha256'] == SHA256[7:]
        (tmp_path / 'file.bin').unlink()
        refused(server, tmp_path, 'does not have the checksum', checksum='')


def test_redirects_are_followed_to_their_end(tmp_path):
    with serve(says(302, Location='/elsewhere.bin', Content_Length='0'), whole(CONTENT)) as server:
        download.fetch(file_at(server), tmp_path)
        assert [path for _, path, _ in server.asked] == ['/file.bin', '/elsewhere.bin']
    check(tmp_path)
    (tmp_path / 'file.bin').unlink()
    with serve(says(302, Location='/file.bin', Content_Length='0')) as server:
        refused(server, tmp_path, 'redirects do not end')
        assert len(server.asked) == 31  # of one attempt, not of six
    with serve(says(302, Location='file:///etc/passwd', Content_Length='0')) as server:
        refused(server, tmp_path, 'not http or https')
        assert len(server.asked) == 1


def test_an_unchecked_file_does_not_come_unencrypted(tmp_path):
    """A redirect from https to http is followed only where a checksum vouches for what arrives."""
    file = catalogue.File('file.bin', 'https://a.example/file.bin')
    first = types.SimpleNamespace(url=file.url)
    answer = types.SimpleNamespace(url='http://b.example/file.bin', history=[first], status_code=200)
    download._Resuming(file, tmp_path / 'part', True, '')._check_answer(answer)
    with pytest.raises(UserError, match='redirects to http://b.example/file.bin, which is not encrypted'):
        download._Resuming(file, tmp_path / 'part', False, '')._check_answer(answer)


def test_a_busy_server_is_asked_again_after_the_time_it_names(tmp_path, waits, capsys):
    with serve(says(503, Retry_After='7'), says(429, Retry_After='100000'), whole(CONTENT)) as server:
        download.fetch(file_at(server), tmp_path)
    check(tmp_path)
    assert 'the server answers 503 Service Unavailable; attempt 2 of 6' in capsys.readouterr().out
    assert 7 in waits and download.LONGEST_WAIT in waits and max(waits) == download.LONGEST_WAIT
    (tmp_path / 'file.bin').unlink()
    with serve(says(503)) as server:
        refused(server, tmp_path, '503 Service Unavailable', 'Run the command again')
        assert len(server.asked) == 1 + download.RETRIES
    with serve(says(404)) as server:
        refused(server, tmp_path, '404 Not Found')
        assert len(server.asked) == 1


@pytest.mark.parametrize('answer, fields, words, requests', [
    (says(200, CONTENT, Content_Length='2000000'), {}, 'offers 2,000,000 bytes, but the published file has', 1),
    (says(200, CONTENT, Content_Length='1000'), {}, 'offers 1,000 bytes', 1),
    (says(200, CONTENT, Content_Length='1000'), {'size': None}, 'does not have the checksum', 6),
    (says(200, CONTENT, Content_Length='2000000'), {'size': None}, 'cut after', 6),
    (says(200, CONTENT * 2), {}, 'sends more than the 1,024,000 bytes', 1),
    (says(200, CONTENT[:1000]), {}, 'cut after', 6),
    (says(200, CONTENT[:1000]), {'size': None}, 'does not have the checksum', 6)],
    ids=['too much said', 'too little said', 'too little said, size unknown', 'too much said, size unknown',
         'endless', 'ends early', 'ends early, size unknown'])
def test_lies_about_lengths(tmp_path, answer, fields, words, requests):
    with serve(answer) as server:
        refused(server, tmp_path, words, **fields)
        assert len(server.asked) == requests


def test_a_packed_file_stays_packed(tmp_path):
    """Some servers call every .tgz an encoding."""
    with serve(whole(CONTENT, Content_Encoding='x-gzip')) as server:
        download.fetch(file_at(server), tmp_path)
        assert server.asked[0][2]['Accept-Encoding'] == 'identity'
    check(tmp_path)


def test_a_file_of_the_users_is_not_overwritten(tmp_path):
    (tmp_path / 'file.bin').write_bytes(b'mine')
    with serve(whole(CONTENT)) as server, pytest.raises(UserError, match='Remove the file and run'):
        download.fetch(file_at(server), tmp_path)
    assert (tmp_path / 'file.bin').read_bytes() == b'mine' and not server.asked


@pytest.mark.parametrize('text', ['{', '[]', '{"file.bin": 1}', '{"file.bin": {}}'])
def test_a_damaged_record_is_named(tmp_path, text):
    (tmp_path / checksums.RECORD).write_text(text)
    with pytest.raises(UserError, match='fetched.json: not .* Remove it'):
        checksums.read(tmp_path)


def data_set(*files, **fields):
    return catalogue.DataSet('letters', 'Letters', 'a page', 'CC0', 'Nobody 2000', 'data/letters', files=files,
                             **fields)


def test_size_licence_and_citation_come_first(tmp_path, capsys):
    with serve(whole(CONTENT)) as server:
        fetch.run(data_set(file_at(server), example='multi30k_en_de', root='below'), str(tmp_path / 'new' / 'folder'))
    check(tmp_path / 'new' / 'folder')
    lines = capsys.readouterr().out.splitlines()
    assert [line.strip().split(':')[0] for line in lines[:6]] == ['Letters', 'page', 'size', 'licence', 'cite',
                                                                 'folder']
    assert '1.0 MB' in lines[2] and 'CC0' in lines[3] and 'Nobody 2000' in lines[4]
    assert lines[-1].endswith(f'--set data.folder={tmp_path}/new/folder/below')


def test_a_small_disk_is_refused_before_the_download(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, 'disk_usage', lambda path: shutil._ntuple_diskusage(2**40, 2**40, 1_500_000))
    made = ({'name': 'made', 'room': 400_000},)
    with serve(whole(CONTENT)) as server:
        small = file_at(server, size=None)  # its size is the server's answer to HEAD
        with pytest.raises(UserError, match=r'only 1\.5 MB are free; letters needs 2\.0 MB.*--out'):
            fetch.run(data_set(small, makes=({'name': 'made', 'room': 1_000_000},)), str(tmp_path / 'new'))
        assert [method for method, _, _ in server.asked] == ['HEAD'] and not (tmp_path / 'new').exists()
        fetch._check_space(data_set(small, makes=made), tmp_path)
        big = file_at(server, size=1_600_000)
        with pytest.raises(UserError, match='needs 1.6 MB'):
            fetch._check_space(data_set(big), tmp_path)
        (tmp_path / 'file.bin.part').write_bytes(bytes(200_000))
        fetch._check_space(data_set(big), tmp_path)  # what is there already needs no room


def test_mistakes_end_with_code_2_and_a_sentence(tmp_path, capsys):
    (tmp_path / 'file').touch()
    for argv, words in [(['multi30'], 'Did you mean multi30k?'), (['xyzzy'], 'Known data sets: wmt14_en_de'),
                        (['multi30k', '--out', str(tmp_path / 'file')], 'with --out'),
                        (['multi30k', '--out', '/proc/nope'], 'with --out')]:
        with pytest.raises(SystemExit) as left:
            fetch.main(argv)
        assert left.value.code == 2
        assert words in capsys.readouterr().err
    fetch.main([])
    listed = capsys.readouterr().out
    assert [line.split()[0] for line in listed.splitlines()] == list(catalogue.load())


def test_the_pose_networks_are_fetched_to_where_photographs_need_them():
    assert catalogue.get('blazepose').folder == BLAZEPOSE
