"""Spell commands in messages so that they can be pasted."""
import os
import re
import shlex
import shutil
import sys


def python() -> str:
    """Return `python` if that is the running interpreter, else the interpreter's path."""
    own = os.path.abspath(sys.executable)
    if os.path.abspath(shutil.which('python') or '') == own:
        return 'python'
    below = os.path.relpath(own)
    return own if below.startswith('..') else below


def as_typed_here(sentence: str) -> str:
    """Replace `python` in every `python -m …` of this project with the running interpreter."""
    return re.sub(r'(?<![\w/.])python (?=-m (pipelines|tensorboard|webbrowser)\b)', lambda _: f'{python()} ', sentence)


def line(stage: str, flags: list[str]) -> str:
    """Return the command line of a stage."""
    return shlex.join([python(), '-m', f'pipelines.{stage}', *flags])
