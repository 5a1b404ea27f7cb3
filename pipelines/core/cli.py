"""The command line every stage shares.

Imports little before the flags are read, so that `--help` answers at once; the frame itself is in
`pipelines/core/pipeline.py`.
"""
import argparse
import errno
import os
import re
import signal
import sys
from collections.abc import Callable
from typing import Any

from data_prep import UserError
from keras_models import ModelError
from pipelines.core import commands
from pipelines.core.stage import Stage
from pipelines.engines import dataflow


def parser(command: str, description: str) -> argparse.ArgumentParser:
    """The flags every command takes."""
    result = argparse.ArgumentParser(prog=f'python -m pipelines.{command}', description=description,
                                     formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    result.add_argument('--config', metavar='FILE', help='YAML file, or the name of a shipped one (default: the demo)')
    result.add_argument('--set', metavar='KEY=VALUE', action='append', default=[], dest='overrides',
                        help='override one value, as train.steps=100; may be repeated')
    result.add_argument('--pipeline_root', metavar='DIR', help='where artifacts and metadata go (default: runs/<name>)')
    result.add_argument('--explain', action='store_true',
                        help='print the resolved configuration, the model\'s size and cost, and leave')
    return result


def positive(text: str) -> int:
    """Reads a flag that is a whole number of 1 or more."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f'it must be a whole number of 1 or more, and is {text!r}')
    return int(text)


def parse(flags: argparse.ArgumentParser, argv: list[str] | None = None) -> argparse.Namespace | None:
    """Parses the flags of a command that is no stage.

    With `--explain` nothing else is required, and nothing else is done: the configuration is explained here.

    Returns:
      The flags; None after `--explain`.
    """
    words = sys.argv[1:] if argv is None else argv
    if '--explain' not in words:
        return flags.parse_args(argv)
    for action in flags._actions:  # noqa: SLF001 (argparse has no other list of them)
        action.required = False
        if not action.option_strings:
            action.nargs = '*'
    args = flags.parse_args(argv)
    run_command(lambda: explain(args))
    return None


def explain(args: argparse.Namespace) -> None:
    """Prints what `--explain` shows of the configuration that the flags name; makes and looks up nothing."""
    quiet_libraries()
    from pipelines.core import explain
    explain.show(_resolved(args)[0])


def _resolved(args: argparse.Namespace) -> tuple[Any, list[str]]:
    """The configuration that the flags name, and the values they override."""
    from pipelines.core import config
    overrides = list(args.overrides)
    if getattr(args, 'strategy', None):
        overrides.append(f'train.strategy={args.strategy}')
    return config.load(args.config, overrides), overrides


def main(stage: Stage, flags: argparse.ArgumentParser | None = None, argv: list[str] | None = None) -> dict:
    """Runs one stage as a command. Returns its outputs by key; none with `--explain`."""
    flags = flags or parser(stage.name, sys.modules[stage.execute.__module__].__doc__ or '')
    args, rest = flags.parse_known_args(argv)
    if rest and stage.name != 'prepare':  # only a Beam job passes flags on
        flags.error(f'unknown argument {rest[0]}')

    outputs = {}

    def run():
        pipeline = open_pipeline(args, rest)
        if not args.explain:
            outputs.update(pipeline.run(stage))
    run_command(run)
    return outputs


def open_pipeline(args: argparse.Namespace, rest=()):
    """The pipeline for parsed flags; with `--explain` it is printed instead of run."""
    quiet_libraries()
    rest = list(rest)
    if rest:  # before the configuration is loaded, which imports TensorFlow
        from pipelines.engines import beam_flags
        rest = beam_flags.check(rest, args.pipeline_root, {*vars(args), 'set'} - {'overrides'})
    from pipelines.core import pipeline
    resolved, overrides = _resolved(args)
    if args.explain:
        from pipelines.core import explain
        explain.show(resolved)
    cloud = dataflow.read(rest)
    if cloud:
        dataflow.check_data(resolved.data, resolved.data_spec.splits)
        args.pipeline_root = args.pipeline_root or dataflow.default_root(cloud, resolved.name)
    flags = [part for flag, values in (('--config', [args.config]), ('--set', overrides),
                                       ('--pipeline_root', [args.pipeline_root]))
             for value in values if value for part in (flag, value)]
    return pipeline.Pipeline(resolved, args.pipeline_root or os.path.join('runs', resolved.name), rest, flags)


def quiet_libraries() -> None:
    """Keeps start-up chatter of TensorFlow, absl and Google's clients off the user's screen."""
    import logging as python_logging
    import warnings
    os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
    warnings.filterwarnings('ignore', category=FutureWarning)
    warnings.filterwarnings('ignore', category=DeprecationWarning)
    warnings.filterwarnings('ignore', category=UserWarning)
    from absl import logging
    logging.set_verbosity(logging.ERROR)
    python_logging.getLogger('tensorflow').setLevel(python_logging.ERROR)
    # A local Beam worker logs every exception it passes on; what it passes on is reported here, once.
    python_logging.getLogger('apache_beam.runners.common').setLevel(python_logging.CRITICAL)


def run_command(work: Callable[[], None]) -> None:
    """Runs `work`. A user's mistake becomes one sentence and exit code 2, never a traceback.

    Ctrl-C and a closed pipe end it with the shell's codes, 128 plus the signal's number: `train | head` did
    not train.
    """
    try:
        work()
        sys.stdout.flush()  # a closed pipe is found here, not while Python shuts down
    except (UserError, ModelError) as error:
        sys.exit(_say_error(str(error)))
    except KeyboardInterrupt:
        print('interrupted: finished work is kept.', file=sys.stderr, flush=True)
        sys.exit(128 + signal.SIGINT)
    except BrokenPipeError:  # `… | head`: the reader has had enough
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


OWN = ('configs', 'data_prep', 'keras_models', 'pipelines')  # a module missing in these is a fault of ours
_REMEDIES = {errno.ENOSPC: 'free some space and start the same command again; it goes on where it was',
             errno.EDQUOT: 'free some of your quota and start the same command again; it goes on where it was',
             errno.EFBIG: 'raise the limit of file sizes (`ulimit -f`), or choose a disk that takes larger '
                          'files, with --pipeline_root',
             errno.ENOTDIR: 'choose a path below folders, with --pipeline_root',
             errno.EISDIR: 'give a file',
             errno.EROFS: 'choose a folder that can be written, with --pipeline_root',
             errno.EACCES: 'ask for the right to it, or choose another place, with --pipeline_root',
             errno.EPERM: 'ask for the right to it, or choose another place, with --pipeline_root'}


def _environment_sentence(error: BaseException) -> str | None:
    """A sentence for a full, read-only or forbidden disk, however a library wrapped the error; else None."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, UserError | ModelError):
            return str(seen)
        if isinstance(seen, ModuleNotFoundError) and (seen.name or '').split('.')[0] not in OWN:
            return (f'{seen.name} is not installed for {sys.executable}; run `make install`, and use .venv/bin/python '
                    'in place of python.')
        if isinstance(seen, OSError) and seen.errno in _REMEDIES:
            return f'{seen.filename or "A file"}: {os.strerror(seen.errno)}; {_REMEDIES[seen.errno]}.'
        for code, remedy in _REMEDIES.items():  # TensorFlow's file errors carry the text, not the number
            if os.strerror(code) in str(seen):
                return re.sub(r'\{\{.*?\}\}\s*|\s*\[Op:.*?\]', '', str(seen).splitlines()[0]) + f'; {remedy}.'
        seen = seen.__cause__ or seen.__context__
    return None
