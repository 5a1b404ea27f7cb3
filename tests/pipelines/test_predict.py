"""`predict` on a stream: invalid UTF-8, overlong lines, a reader that closes, and Ctrl-C."""
import re
import signal

import pytest

from pipelines.serving import pusher
from support import tiny_player
from support.commands import command, start

MOVE = re.compile('[a-c][1-5]')


@pytest.fixture(scope='module')
def asked(tmp_path_factory):
    """The command that asks a pushed player of Nim: positions in, moves out."""
    folder = tmp_path_factory.mktemp('player')
    pusher.publish(tiny_player.save(str(folder / 'saved')), str(folder / 'serving'), {})
    return 'pipelines.predict', '--model', str(folder / 'serving')


def lines(count):
    """As many positions: three heaps."""
    return ''.join(f'{n % 5} {n % 4} 1\n' for n in range(count)).encode()


@pytest.mark.parametrize('before, line, words', [
    pytest.param(0, b'\xff\xfe3 1 1', ('byte 0xff at position 0', 'iconv'), id='utf-16'),
    pytest.param(4100, b'1 1 \xe9', ('byte 0xe9 at position 4', 'iconv'), id='latin-1'),
    pytest.param(4100, b'three', ('three is not a position', 'give 3 numbers'), id='not numbers'),
    pytest.param(70, b'9 1 1', ('9 1 1 is not a position', 'give heaps of 0 to 5'), id='too high'),
    pytest.param(70, b'', ('is not a position', 'give 3 numbers'), id='empty')])
def test_a_line_that_cannot_be_read_is_named_and_those_before_it_are_answered(asked, before, line, words):
    """Lines are read by 4,096 and asked by 64; the number is that of the stream."""
    done = command(*asked, input=lines(before) + line + b'\n' + lines(3))
    assert done.returncode == 2
    assert done.stderr.startswith(f'error: standard input, line {before + 1:,}: ')
    assert done.stderr.count('\n') == 1
    assert all(word in done.stderr for word in words)
    answers = done.stdout.splitlines()
    assert len(answers) == before and all(map(MOVE.fullmatch, answers))


@pytest.mark.parametrize('flags, words', [
    (['a.txt'], 'This model takes lines, not files. Give < a.txt'),
    (['--batch_size', '0'], "--batch_size: must be a whole number of 1 or more; it is '0'"),
    (['--batch_size', 'many'], "--batch_size: must be a whole number of 1 or more; it is 'many'")])
def test_what_a_model_of_lines_cannot_be_asked(asked, flags, words):
    done = command(*asked, *flags, input=lines(1))
    assert done.returncode == 2 and not done.stdout
    assert words in done.stderr and 'Traceback' not in done.stderr


def test_a_reader_that_has_had_enough(asked):
    """As `| head -1`: the pipe is closed long before the last answer."""
    with start(*asked, input=lines(60_000)) as child:
        assert MOVE.fullmatch(child.stdout.readline().strip())
        child.stdout.close()
        assert child.wait() == 128 + signal.SIGPIPE
        child.stderr.seek(0)
        assert child.stderr.read() == ''


def test_ctrl_c_keeps_the_answers_so_far(asked):
    with start(*asked, input=lines(60_000)) as child:
        first = child.stdout.readline()
        child.send_signal(signal.SIGINT)
        rest, errors = child.communicate()
    assert child.returncode == 128 + signal.SIGINT
    assert errors == 'interrupted: finished work is kept.\n'
    whole = (first + rest).splitlines()
    assert 1 <= len(whole) < 60_000 and all(map(MOVE.fullmatch, whole))
