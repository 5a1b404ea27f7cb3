"""Commands in messages, as one types them here."""
import os
import re
import shutil
import sys


def python() -> str:
    """Returns the interpreter that runs this: `python` if that is the one, else its path."""
    own = os.path.abspath(sys.executable)
    if os.path.abspath(shutil.which('python') or '') == own:
        return 'python'
    below = os.path.relpath(own)
    return own if below.startswith('..') else below


def as_typed_here(sentence: str) -> str:
    """Returns a sentence in which every `python -m …` of the project names the interpreter that works."""
    return re.sub(r'(?<![\w/.])python (?=-m (pipelines|tensorboard|webbrowser)\b)', lambda _: f'{python()} ', sentence)
