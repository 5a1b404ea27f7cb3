"""The configurations shipped with the project: their paths and run cards, the comments at their heads."""
import importlib.resources
import pathlib
import re
import textwrap

PARTS = ('command', 'data', 'time', 'expect')  # of a run card


def folder() -> pathlib.Path:
    """Return the folder of all shipped configurations, which has a folder for each task."""
    return pathlib.Path(str(importlib.resources.files('configs')))


def paths() -> dict[str, pathlib.Path]:
    """Return each configuration's file by name, sorted by task; the tables in `reproduce/` are not runnable by name."""
    return {path.stem: path for path in sorted(folder().glob('*/*.yaml')) if path.parent.name != 'reproduce'}


def find(path: str) -> tuple[str, str]:
    """Return the file for a name or a path under `configs/`, and a note if the path is an old one.

    Returns:
      Two empty texts if there is no such file. `configs/NAME.yaml`, without the task's folder, is an old path.
    """
    name = re.fullmatch(r'(?:configs/)?(?:(\w+)/)?(\w+)(?:\.ya?ml)?', path)
    own = paths().get(name[2]) if name else None
    if not name or not own or name[1] not in (None, own.parent.name):
        return '', ''
    moved = path.startswith('configs/') and not name[1]
    return str(own), moved * (f'{path} is now configs/{own.parent.name}/{own.name}, or {own.stem} for short; the old '
                              'path works in this version.')


def card(path: pathlib.Path) -> dict[str, str]:
    """Return a run card's parts as texts without line breaks; its first paragraph is `title`."""
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
    """Return whether a card's figure was measured on a whole run; if not, the card says `not run`."""
    return 'not run' not in ' '.join(found.values()).lower()


def listing(width: int = 120) -> str:
    """List all configurations by task with data, time and expected figure, for `pipelines.run --list`."""
    lines: list[str] = []
    task = ''
    for name, path in paths().items():
        if path.parent.name != task:
            task = path.parent.name
            lines += [''] * bool(lines) + [task]
        found = card(path)
        figure = 'measured' if is_measured(found) else 'not run in full by us'
        lines += [f'  {name}']
        for label, text in (('', found['title']), ('data: ', _sentence(found['data'])),
                            ('time: ', _sentence(found['time'])), (f'figure ({figure}): ', _sentence(found['expect']))):
            lines += textwrap.wrap(label + text, width, initial_indent=' ' * 6, subsequent_indent=' ' * 8)
    return '\n'.join([*lines, '', 'Run one by its name: python -m pipelines.run --config NAME', ''])


def _sentence(text: str) -> str:
    """Return a text up to its first full stop or semicolon."""
    return re.split(r'(?<=[^.\d])[.;](?= |$)|(?<=\d)[.;](?= [^\d]|$)', text, maxsplit=1)[0]
