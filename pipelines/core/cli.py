"""Command line shared by every stage.

Imports little before the flags are parsed, so that `--help` answers at once. Stages run in
`pipelines/core/pipeline.py`.
"""
import argparse
import contextlib
import errno
import io
import os
import re
import signal
import sys
from collections.abc import Callable
from typing import Any

from data_prep import UserError
from keras_models import ModelError
from pipelines.core import commands, machine
from pipelines.core.stage import Stage
from pipelines.engines import dataflow


def parser(command: str, description: str) -> argparse.ArgumentParser:
    """Return a parser with the flags common to all commands."""
    result = argparse.ArgumentParser(prog=f'python -m pipelines.{command}', description=description,
                                     formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    result.add_argument('--config', metavar='FILE', help='YAML file or shipped name (default: the demo)')
    result.add_argument('--set', metavar='KEY=VALUE', action='append', default=[], dest='overrides',
                        help='override one value, for example train.steps=100; may be repeated')
    result.add_argument('--pipeline_root', metavar='DIR', help='artifacts and metadata (default: runs/<name>)')
    result.add_argument('--explain', action='store_true',
                        help='print the resolved configuration and the model\'s size and cost, then exit')
    return result


def positive(text: str) -> int:
    """Parse a flag's value as a whole number of 1 or more."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f'must be a whole number of 1 or more; it is {text!r}')
    return int(text)


def parse(flags: argparse.ArgumentParser, argv: list[str] | None = None) -> argparse.Namespace | None:
    """Parse the flags of a command that is not a stage.

    `--explain` needs no other flag: the configuration is explained here and nothing else is done.

    Returns:
      The flags; None after `--explain`.
    """
    words = sys.argv[1:] if argv is None else argv
    if '--explain' not in words:
        return flags.parse_args(argv)
    for action in flags._actions:  # noqa: SLF001 (argparse has no public list of actions)
        action.required = False
        if not action.option_strings:
            action.nargs = '*'
    args = flags.parse_args(argv)
    run_command(lambda: explain(args))
    return None


def explain(args: argparse.Namespace) -> None:
    """Explain the configuration the flags name; reads no artifacts and writes none."""
    prepare_libraries()
    from pipelines.core import explain
    explain.show(_resolved(args)[0])


def _resolved(args: argparse.Namespace) -> tuple[Any, list[str]]:
    """Return the configuration the flags name, and the overrides."""
    from pipelines.core import config
    overrides = _overrides(args)
    return config.load(args.config, overrides), overrides


def _overrides(args: argparse.Namespace) -> list[str]:
    """Return the values that --set and --strategy override."""
    strategy = getattr(args, 'strategy', None)
    return [*args.overrides, *([f'train.strategy={strategy}'] if strategy else [])]


def find_place(args: argparse.Namespace) -> Any:
    """Return the `places.Place` of the configuration the flags name, for commands that only look at finished work.

    Unlike `open_pipeline` it imports no data and model modules, and so not TensorFlow: 0.2 s instead of 3.5 s.
    """
    prepare_libraries()
    from pipelines.core import places
    overrides = _overrides(args)
    return places.find(args.config, overrides, args.pipeline_root, _flags(args, overrides))


def find_memory(args: argparse.Namespace, rest: list[str]) -> Any:
    """Return the `settled.Memory` of a configuration; None where stages must be looked up each time.

    That is the case for flags of Beam, a root or lineage elsewhere than on a disk, and a configuration that its reader
    has something to say about: what is wrong with it, or was renamed, is then said by `config.load`.
    """
    from pipelines.core import settled, stores
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.suppress(UserError):
        place = find_place(args)
        if not (rest or args.explain or stores.shared() or '://' in place.root or place.raw.old_names
                or said.getvalue()):
            return settled.Memory(place)
    return None


def _flags(args: argparse.Namespace, overrides: list[str]) -> list[str]:
    """Return the flags that name the configuration, for commands in messages."""
    return [part for flag, values in (('--config', [args.config]), ('--set', overrides),
                                      ('--pipeline_root', [args.pipeline_root]))
            for value in values if value for part in (flag, value)]


def main(stage: Stage, flags: argparse.ArgumentParser | None = None, argv: list[str] | None = None) -> dict:
    """Run one stage as a command and return its outputs by key; none with `--explain`."""
    flags = flags or parser(stage.name, sys.modules[stage.execute.__module__].__doc__ or '')
    args, rest = flags.parse_known_args(argv)
    if rest and not stage.takes_beam_flags:
        flags.error(f'unknown argument {rest[0]}; --help lists the flags')

    outputs = {}

    def run():
        memory = find_memory(args, rest)
        if memory and (known := memory.recall([stage.name])):
            known.say()
            outputs.update(known.results[stage.name])
            return
        pipeline = open_pipeline(args, rest)
        if not args.explain:
            outputs.update(pipeline.run(stage))
            if memory:
                memory.remember(pipeline)
    run_command(run)
    return outputs


def open_pipeline(args: argparse.Namespace, rest=()):
    """Return the pipeline for parsed flags; `--explain` prints the configuration and exits instead."""
    prepare_libraries()
    rest = list(rest)
    if rest:  # before the configuration is loaded, which imports TensorFlow
        from pipelines.engines import beam_flags
        rest = beam_flags.check(rest, args.pipeline_root, {*vars(args), 'set'} - {'overrides'})
    from pipelines.core import pipeline, places
    resolved, overrides = _resolved(args)
    if args.explain:
        from pipelines.core import explain
        explain.show(resolved)
    cloud = dataflow.read(rest)
    if cloud:
        dataflow.check_data(resolved.data, resolved.data_spec.splits)
        args.pipeline_root = args.pipeline_root or dataflow.default_root(cloud, resolved.name)
    root = args.pipeline_root or places.default_root(resolved.name)
    return pipeline.Pipeline(resolved, root, rest, _flags(args, overrides))


def prepare_libraries() -> None:
    """Choose TensorFlow's kernels, and silence start-up messages of it, ML Metadata, absl and Google's clients."""
    import logging as python_logging
    import warnings
    machine.prefer_onednn()
    os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
    os.environ.setdefault('GLOG_minloglevel', '4')  # ML Metadata's
    warnings.filterwarnings('ignore', category=FutureWarning)
    warnings.filterwarnings('ignore', category=DeprecationWarning)
    warnings.filterwarnings('ignore', category=UserWarning)
    from absl import logging
    logging.set_verbosity(logging.ERROR)
    python_logging.getLogger('tensorflow').setLevel(python_logging.ERROR)
    # A local Beam worker logs every exception it raises; the exception itself is reported once, here.
    python_logging.getLogger('apache_beam.runners.common').setLevel(python_logging.CRITICAL)


def run_command(work: Callable[[], None]) -> None:
    """Run `work`; report a user's mistake in one sentence with exit code 2, without a traceback.

    Ctrl-C and a closed pipe exit with the shell's codes, 128 plus the signal's number, so that `train | head` is not
    taken for a finished run.
    """
    try:
        work()
        sys.stdout.flush()  # detects a closed pipe now, not while Python shuts down
    except (UserError, ModelError) as error:
        sys.exit(_say_error(str(error)))
    except KeyboardInterrupt:
        print('interrupted: finished work is kept.', file=sys.stderr, flush=True)
        sys.exit(128 + signal.SIGINT)
    except BrokenPipeError:  # `… | head`: the reader has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(128 + signal.SIGPIPE)
    except Exception as error:
        sentence = _environment_sentence(error)
        if sentence is None:
            raise
        sys.exit(_say_error(sentence))


def _say_error(sentence: str) -> int:
    print(f'error: {commands.as_typed_here(sentence)}', file=sys.stderr, flush=True)
    return 2


OWN = ('configs', 'data_prep', 'keras_models', 'pipelines')  # a missing module of these is our own bug
_REMEDIES = {errno.ENOSPC: 'Free some space and run the same command again; it resumes where it stopped',
             errno.EDQUOT: 'Free some of your quota and run the same command again; it resumes where it stopped',
             errno.EFBIG: 'Raise the file size limit (`ulimit -f`), or give a disk that allows larger files with '
                          '--pipeline_root',
             errno.ENOTDIR: 'Give a path whose parents are folders, with --pipeline_root',
             errno.EISDIR: 'Give a file',
             errno.EROFS: 'Give a writable folder, with --pipeline_root',
             errno.EACCES: 'Ask for permission, or give another folder with --pipeline_root',
             errno.EPERM: 'Ask for permission, or give another folder with --pipeline_root'}


def _environment_sentence(error: BaseException) -> str | None:
    """Return a sentence for a full, read-only or forbidden disk, even if a library wrapped the error; else None."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, UserError | ModelError):
            return str(seen)
        if isinstance(seen, ModuleNotFoundError) and (seen.name or '').split('.')[0] not in OWN:
            return (f'{seen.name} is not installed for {sys.executable}. Run `make install`, and use .venv/bin/python '
                    'instead of python.')
        if isinstance(seen, OSError) and seen.errno in _REMEDIES:
            return f'{seen.filename or "A file"}: {os.strerror(seen.errno)}. {_REMEDIES[seen.errno]}.'
        for code, remedy in _REMEDIES.items():  # TensorFlow's file errors carry the text, not the number
            if os.strerror(code) in str(seen):
                return re.sub(r'\{\{.*?\}\}\s*|\s*\[Op:.*?\]', '', str(seen).splitlines()[0]) + f'. {remedy}.'
        seen = seen.__cause__ or seen.__context__
    return None
