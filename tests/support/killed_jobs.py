"""Prepare a data set in processes that kill themselves at successive file-system calls, each resuming the last.

    python tests/support/killed_jobs.py ROOT FILE.yaml=5,40,manifest,data …

A kill is before the call of that number or, at `manifest`, before the one that makes the manifest appear, and at `data`
before the next. A job goes to the folder in ROOT that is called like its file. Prints JSON: of every file and kill what
`train` said of it, and how many records could be read from what was left.

Processes are forked before TensorFlow has threads: importing it takes longer than a job.
"""
import contextlib
import functools
import json
import os
import pathlib
import signal
import sys
from collections.abc import Callable

os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
sys.path.insert(0, str(pathlib.Path(__file__).parents[2]))

import tensorflow as tf

from data_prep import UserError
from data_prep.core import records, statistics  # noqa: F401 (before any fork)
from data_prep.image import job as image_job  # noqa: F401 (before any fork)
from data_prep.people import job as people_job  # noqa: F401 (before any fork)
from data_prep.text import job as text_job  # noqa: F401 (before any fork)
from pipelines import prepare
from pipelines.core import cli, config
from pipelines.core.pipeline import Pipeline

# Whatever a job changes on the disk, it changes through these.
CALLS = [(tf.io.gfile, 'rename'), (tf.io.gfile, 'makedirs'), (tf.io.gfile, 'remove'), (tf.io.gfile, 'rmtree'),
         (tf.io.gfile.GFile, 'write'), (tf.io.gfile.GFile, 'close'), (os, 'rename')]


def run(file: str, root: str, at: str) -> None:
    """Runs the stage and dies before a call, if there is one `at` that place."""
    calls = after = 0

    def counted(call: Callable):
        @functools.wraps(call)
        def wrapper(*args, **kwargs):
            nonlocal calls, after
            calls += 1
            after += bool(after or str(args[-1]).endswith(records.MANIFEST))
            if at == str(calls) or (at, after) in (('manifest', 1), ('data', 2)):
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **kwargs)
        return wrapper
    for owner, name in CALLS:
        setattr(owner, name, counted(getattr(owner, name)))
    Pipeline(config.load(file), root, []).run(prepare.STAGE)


def look(file: str, root: str) -> tuple[str, int]:
    """What a root with unfinished work in it is to `train`, and to whoever reads that work as a data set."""
    said, count = '', 0
    try:
        Pipeline(config.load(file), root, []).outputs('prepare')
    except UserError as error:
        said = str(error)
    for folder in map(str, pathlib.Path(root).glob('prepare/.partial-*/examples')):
        with contextlib.suppress(UserError):
            for split in records.read_manifest(folder).splits:
                part = records.open_split(folder, split)
                count += len(part.read(range(len(part))))
    return said, count


def forked(work: Callable[[], object], answer: pathlib.Path) -> object:
    """What `work` returns in a process of its own, by a file, or `killed`."""
    child = os.fork()
    if not child:
        status = 1
        try:
            answer.write_text(json.dumps(work()))
            status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return 'killed'
    assert status == 0, f'exit status {status}'
    return json.loads(answer.read_text())


def kill_and_finish(file: str, root: pathlib.Path, moments: list[str]) -> list:
    root.mkdir(parents=True)
    said = []
    for moment in moments:
        assert forked(lambda at=moment: run(file, str(root), at), root / 'answer') == 'killed', f'over before {moment}'
        said.append(forked(lambda: look(file, str(root)), root / 'answer'))
    forked(lambda: run(file, str(root), ''), root / 'answer')
    return said


def main(root: str, *jobs: str) -> None:
    cli.prepare_libraries()
    found = {}
    with contextlib.redirect_stdout(sys.stderr):
        for file, moments in (job.split('=') for job in jobs):
            found[file] = kill_and_finish(file, pathlib.Path(root, pathlib.Path(file).stem), moments.split(','))
    print(json.dumps(found))


if __name__ == '__main__':
    main(*sys.argv[1:])
