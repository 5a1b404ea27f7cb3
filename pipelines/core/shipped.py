"""The configurations that ship with the project: where each is, and what its head, the run card, says."""
import importlib.resources
import pathlib
import re
import textwrap

PARTS = ('command', 'data', 'time', 'expect')  # of a run card


def folder() -> pathlib.Path:
    """Returns the folder of all configurations, which has a folder for each task."""
    return pathlib.Path(str(importlib.resources.files('configs')))


def paths() -> dict[str, pathlib.Path]:
    """Returns the file of each configuration by its name, task by task; items of `reproduce/` have no names."""
    return {path.stem: path for path in sorted(folder().glob('*/*.yaml')) if path.parent.name != 'reproduce'}


def find(path: str) -> tuple[str, str]:
    """Returns the file that a name or path under `configs/` stands for, and a note if that path is an old one.

    Returns:
      Two empty texts if there is none. `configs/NAME.yaml`, where files lay side by side, is an old path.
    """
    name = re.fullmatch(r'(?:configs/)?(?:(\w+)/)?(\w+)(?:\.ya?ml)?', path)
    own = paths().get(name[2]) if name else None
    if not name or not own or name[1] not in (None, own.parent.name):
        return '', ''
    moved = path.startswith('configs/') and not name[1]
    return str(own), moved * (f'{path} is now configs/{own.parent.name}/{own.name}, or {own.stem} for short; the old '
                              'path works in this version.')


def card(path: pathlib.Path) -> dict[str, str]:
    """Returns the parts of a run card, each a text without line breaks, its first paragraph as `title`."""
    head = re.match(r'(?:#.*\n)+', path.read_text(encoding='utf-8'))
    lines = [line[1:].strip() for line in head[0].splitlines()] if head else []
    found, key = {'title': ''}, 'title'
    for line in lines:
        if part := re.match(rf'({"|".join(PARTS)}): +', line):
            key, line = part[1], line[part.end():]
        elif not line:
            key = ''
        if key:
            found[key] = f'{found.get(key, "")} {line}'.strip()
    return found


def is_measured(found: dict[str, str]) -> bool:
    """Whether a card's figure was measured on a whole run; otherwise the card says `not run`."""
    return 'not run' not in ' '.join(found.values()).lower()


def listing(width: int = 120) -> str:
    """Returns all configurations by task, each with its data, time and expected figure, for `pipelines.run --list`."""
    lines: list[str] = []
    task = ''
    for name, path in paths().items():
        if path.parent.name != task:
            task = path.parent.name
            lines += [''] * bool(lines) + [task]
        found = card(path)
        figure = 'measured' if is_measured(found) else 'not run whole by us'
        lines += [f'  {name}']
        for label, text in (('', found['title']), ('data: ', _sentence(found['data'])),
                            ('time: ', _sentence(found['time'])), (f'figure ({figure}): ', _sentence(found['expect']))):
            lines += textwrap.wrap(label + text, width, initial_indent=' ' * 6, subsequent_indent=' ' * 8)
    return '\n'.join([*lines, '', 'Run one by its name: python -m pipelines.run --config NAME', ''])


def _sentence(text: str) -> str:
    """The first part of a text, up to a full stop or semicolon."""
    return re.split(r'(?<=[^.\d])[.;](?= |$)|(?<=\d)[.;](?= [^\d]|$)', text, maxsplit=1)[0]
