"""Progress of long tasks: a bar on a terminal (here a pseudo-terminal), plain lines elsewhere."""
import contextlib
import os
import pty
import re
import threading

import tensorflow as tf

from pipelines.core.progress import Progress

ESCAPES = re.compile(r'\x1b\[[0-9;?]*[a-zA-Z]')
HIDE, SHOW = '\x1b[?25l', '\x1b[?25h'  # the cursor


@contextlib.contextmanager
def terminal():
    """Makes standard output a terminal, whose bytes are in the list it gives once the block is left."""
    reader, writer = pty.openpty()
    written: list[bytes] = []

    def read():
        try:
            while part := os.read(reader, 4096):
                written.append(part)
        except OSError:  # the other end is closed
            pass
    thread = threading.Thread(target=read)
    thread.start()
    with contextlib.redirect_stdout(os.fdopen(writer, 'w', encoding='utf-8')) as screen:
        yield written
    screen.close()
    thread.join(10)
    os.close(reader)


def train(first=0):
    """Three loops of a run of 30 steps, the second followed by a validation."""
    step = tf.Variable(first, dtype=tf.int64)
    with Progress(step, 30, 'images', 'train') as progress:
        for loop in range(3):
            step.assign_add(10)
            progress.train_action({'loss': 1 / 2 ** loop, 'learning_rate': 0.1, 'images_per_second': 1234.5})
            if loop == 1:
                progress.eval_action({'validation/loss': 0.75, 'validation/top1_error': 0.25,
                                      'validation/top5_error': 0.125, 'validation/more': 9.0})
    return progress


def test_a_terminal_shows_a_bar_that_is_drawn_over_itself(monkeypatch):
    monkeypatch.setenv('TERM', 'xterm')
    monkeypatch.setenv('COLUMNS', '200')
    for name in ('NO_COLOR', 'FORCE_COLOR', 'TTY_COMPATIBLE', 'TTY_INTERACTIVE'):
        monkeypatch.delenv(name, raising=False)
    with terminal() as written:
        train()
    said = b''.join(written).decode()
    assert '\x1b[2K' in said and said.count(HIDE) == said.count(SHOW) == 1
    assert said.find(HIDE) < said.find(SHOW)
    frames = [frame.strip() for frame in re.split(r'[\r\n]+', ESCAPES.sub('', said)) if frame.strip()]
    assert all(frame.startswith('train ') for frame in frames)
    last = frames[-1]
    assert '━' in last and '30/30' in last and 'loss 0.2500, 1,234 images/s' in last
    assert 'validation/loss 0.7500, validation/top1_error 0.2500, validation/top5_error 0.1250' in last
    assert 'learning_rate' not in said and 'validation/more' not in said and 'left' not in said


def test_elsewhere_there_are_plain_lines(capsys):
    assert train().validation['validation/more'] == 9.0
    lines = capsys.readouterr().out.splitlines()
    assert [re.sub(r'\d+:\d\d left', 'LEFT', line) for line in lines] == [
        'train: step 10/30, loss 1.0000, 1,234 images/s, LEFT',
        'train: step 20/30, loss 0.5000, 1,234 images/s, LEFT',
        'train: step 30/30, loss 0.2500, 1,234 images/s, validation/loss 0.7500, '
        'validation/top1_error 0.2500, validation/top5_error 0.1250, LEFT']
    assert lines[-1].endswith(' 0:00 left')


def test_the_time_left_is_of_the_steps_this_process_took(capsys, monkeypatch):
    """Resumed at 10 of 40, after 5 s and 10 steps: 20 more take 10 s."""
    now = [100.0]
    monkeypatch.setattr('pipelines.core.progress.time.monotonic', lambda: now[0])
    step = tf.Variable(10, dtype=tf.int64)
    with Progress(step, 40, 'tokens') as progress:
        now[0] += 5
        step.assign(20)
        progress.train_action({'loss': 1.0, 'tokens_per_second': 10.0})
    assert capsys.readouterr().out == 'train: step 20/40, loss 1.0000, 10 tokens/s, 0:10 left\n'
