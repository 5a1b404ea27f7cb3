"""Writes the pages and the JSON Schema that follow from the code: commands, configuration keys, run cards.

    python docs/generate.py            # writes them
    python docs/generate.py --check    # exit code 1 if one is stale

The commands page comes from the commands' own argparse parsers, the configuration page and the schema from the
dataclasses of the sections and of every module that a shipped configuration names. The meaning of a key is the comment
beside its field, else its entry under `Attributes:`, else the sentences of the class's docstring that name it. A key
without a meaning is an error.
"""
import argparse
import ast
import dataclasses
import importlib
import inspect
import itertools
import json
import pathlib
import re
import sys
import textwrap
import types
import typing
from typing import Any, NamedTuple

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import yaml  # noqa: E402

from pipelines import __main__ as landmark  # noqa: E402
from pipelines.core import config as configs  # noqa: E402
from pipelines.core import shipped  # noqa: E402
from pipelines.core.sections import SECTIONS  # noqa: E402

NOTE = '<!-- Written by docs/generate.py from the code. Do not edit: run `python docs/generate.py`. -->'
MODULES = {'data': ('data_prep', {'data': 'Config', 'input': 'Input'}),  # section: (package, section -> class)
           'model': ('keras_models', {'model': 'Config', 'inference': 'Inference'})}
TOP = {'name': 'Name of the run, and of its folder below runs/; by default the file\'s name.',
       'seed': 'Of every draw: weights, permutations, dropout, augmentation.',
       'extends': 'Another configuration, of which this file holds only the differences.',
       'is_demo': 'Whether a stage makes what is missing before it; no file inherits it.'}
FILES = ('docs/commands.md', 'docs/configuration.md', 'docs/configurations.md', 'configs/schema.json')


class _Parser(Exception):
    """Carries a command's parser out of its `main`, before any flag is read."""


class Key(NamedTuple):
    """A configuration key: its type and default as they are written, and its meaning."""
    name: str
    hint: Any
    default: Any
    meaning: str


def pages() -> dict[str, str]:
    """Path from the repository's root -> text, of everything this script writes."""
    owned = {section: {name: importlib.import_module(name) for name in named_modules(section)} for section in MODULES}
    texts = commands(), configuration(owned), run_cards(), json.dumps(schema(owned), indent=1) + '\n'
    return dict(zip(FILES, texts))


# Commands.

def commands() -> str:
    """Return a section for each module of `pipelines` that is a command: its docstring, usage and flags."""
    parts = [NOTE, '# Commands', 'Every command answers `--help` at once. The flags of a stage are the same '
             'everywhere: `--config`, `--set`, `--pipeline_root` and `--explain`.']
    for name in sorted(landmark.commands()):
        parser = parser_of(importlib.import_module(f'pipelines.{name}'))
        parts += [f'## {name}', prose(parser.description or ''), flags(parser)]
    return '\n\n'.join(parts) + '\n'


def parser_of(module: types.ModuleType) -> argparse.ArgumentParser:
    """Return the parser that a command's `main` fills in."""
    def stop(self, *args, **kwargs):
        raise _Parser(self)
    before = argparse.ArgumentParser.parse_known_args
    argparse.ArgumentParser.parse_known_args = stop  # type: ignore[method-assign]
    try:
        module.main([])
    except _Parser as found:
        return found.args[0]
    finally:
        argparse.ArgumentParser.parse_known_args = before  # type: ignore[method-assign]
    raise ValueError(f'{module.__name__}.main reads no flags')


def flags(parser: argparse.ArgumentParser) -> str:
    rows = ['| flag | meaning |', '|---|---|']
    for action in parser._actions:  # noqa: SLF001 (argparse has no other list of them)
        if action.help in (None, argparse.SUPPRESS) or isinstance(action, argparse._HelpAction):  # noqa: SLF001
            continue
        value = action.metavar or ('' if action.choices else action.dest.upper())
        if action.nargs == 0:
            value = ''
        elif isinstance(value, tuple):  # a flag with several values
            value = ' '.join(value)
        choices = ' or '.join(f'`{choice}`' for choice in action.choices or ())
        name = f'{action.option_strings[-1]} {value}' if action.option_strings else value or action.dest
        meaning = cell(sentence((action.help or '') % vars(action))) + (f' One of {choices}.' if choices else '')
        rows.append(f'| `{name.strip()}` | {meaning} |')
    return '\n'.join(rows)


# Configuration.

def named_modules(section: str) -> list[str]:
    """Modules that the shipped configurations name as `data.module` or `model.module`."""
    found = {yaml.safe_load(file.read_text()).get(section, {}).get('module')
             for file in shipped.paths().values()}
    return sorted(found - {None})


def configuration(owned: dict) -> str:
    parts = [NOTE, '# Configuration', textwrap.dedent('''\
        One YAML file holds a whole run. Every key has a default. A misspelt key is refused by name, with the nearest
        one; `--set section.key=value` overrides one key of a file, and `--explain` prints what results. `data.module`
        and `model.module` say whose keys the sections `data`, `input`, `model` and `inference` have. A file with
        `extends: NAME` holds only what differs.

        `configs/schema.json` is the same as a JSON Schema, for editors to complete keys. In VS Code, with the YAML
        extension, put `"yaml.schemas": {"configs/schema.json": ["configs/*/*.yaml", "my*.yaml"]}` into
        `.vscode/settings.json`; elsewhere begin the file with
        `# yaml-language-server: $schema=PATH/configs/schema.json`.''')]
    parts += ['## Top level', table([Key(name, bool if name == 'is_demo' else int if name == 'seed' else str,
                                         1 if name == 'seed' else '', TOP[name]) for name in top_keys()])]
    for section, (_, classes) in MODULES.items():
        for part, cls in classes.items():
            seen: dict[type, str] = {}
            for name, module in owned[section].items():
                owner = keys_of(module, cls)
                parts.append(f'## {part}: {name}')
                if owner in seen:
                    parts.append(f'The keys of `{seen[owner]}`, above.')
                    continue
                seen[owner] = name
                parts += [prose(inspect.getdoc(owner) or ''), table(keys(owner))]
                for network, inner in networks(module).items() if cls == 'Config' else ():
                    parts += [f'### {part}.{network}', prose(inspect.getdoc(inner) or ''), table(keys(inner))]
    for section, owner in SECTIONS.items():
        parts += [f'## {section}', prose(inspect.getdoc(owner) or ''), table(keys(owner))]
    return '\n\n'.join(part for part in parts if part) + '\n'


def keys_of(module: types.ModuleType, cls: str) -> type:
    """Return a dataclass of a module, or of the one it names for serving."""
    return getattr(importlib.import_module(module.SERVING) if cls == 'Inference' else module, cls)


def networks(module: types.ModuleType) -> dict[str, type]:
    """Return the dataclasses of a model's parts that have keys of their own, as VITON-HD's three networks."""
    package = module.__name__.rpartition('.')[0]
    return {name: importlib.import_module(f'{package}.{name}').Config for name in getattr(module, 'PARTS', ())}


def top_keys() -> list[str]:
    return ['name', 'extends', 'seed', *(['is_demo'] if 'is_demo' in inspect.get_annotations(configs.Config) else [])]


def keys(owner: type) -> list[Key]:
    """Return the keys of a section's dataclass, in order.

    Raises:
      ValueError: one has no meaning.
    """
    hints, found, said = typing.get_type_hints(owner), [], {}
    for cls in reversed([cls for cls in owner.__mro__ if dataclasses.is_dataclass(cls)]):
        said |= meanings(cls, {field.name for field in dataclasses.fields(owner)})
    for field in dataclasses.fields(owner):
        if not said.get(field.name):
            where = f'{owner.__module__}.{owner.__qualname__}.{field.name}'
            raise ValueError(f'{where} has no meaning: put a comment beside it.')
        default = field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default
        found.append(Key(field.name, hints[field.name], default, said[field.name]))
    return found


def meanings(cls: type, names: set[str]) -> dict[str, str]:
    """Return a class's descriptions of its keys: comments beside fields take precedence over docstring sentences."""
    source = textwrap.dedent(inspect.getsource(cls))
    lines, doc = source.splitlines(), ast.get_docstring(ast.parse(source).body[0]) or ''
    text, _, attributes = doc.partition('Attributes:')
    said = {}
    for names_of, meaning in re.findall(r'^ +([\w, ]+): (.*(?:\n {4,}.*)*)', attributes, re.M):
        for name in names_of.split(', '):
            said[name] = sentence(' '.join(meaning.split()))
    sentences = re.split(r'(?<=[.])(?<!al\.) (?=[A-Z`])', ' '.join(text.split()))
    for name in names - said.keys():
        if about := [each for each in sentences if re.search(rf'`{name}(:[^`]*)?`|(^|[;,] ){name}(, \w+)*: ', each)]:
            said[name] = ' '.join(sentence(each) for each in about)
    for node in ast.parse(source).body[0].body:  # type: ignore[attr-defined]
        if isinstance(node, ast.AnnAssign):
            above = [*itertools.takewhile(lambda line: line.startswith('# '),
                                          (line.strip() for line in lines[node.lineno - 2::-1]))]
            beside = re.search(r'  # (?!type:|noqa)(.*)', lines[node.end_lineno - 1])
            if beside or above:
                said[node.target.id] = sentence(beside[1] if beside else ' '.join(line[2:] for line in above[::-1]))
    return said


def table(found: list[Key]) -> str:
    rows = ['| key | type | default | meaning |', '|---|---|---|---|']
    for key in found:
        parts = f'`{key.name}`', cell(type_name(key.hint)), f'`{cell(shown(key.default))}`', cell(key.meaning)
        rows.append(f'| {" | ".join(parts)} |')
    return '\n'.join(rows)


def shown(value) -> str:
    text = {True: 'true', False: 'false', None: 'empty'}.get(value) if isinstance(value, bool | None) else None
    return text or (json.dumps(value, ensure_ascii=False) if not isinstance(value, float) else f'{value:g}')


def type_name(hint) -> str:
    """Return a type in a user's words: `text or list of text`."""
    arguments = typing.get_args(hint)
    if typing.get_origin(hint) is typing.Literal:
        return ' or '.join(f'`{shown(value)}`' if not isinstance(value, str) else f'`{value}`' for value in arguments)
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return ' or '.join('empty' if each is type(None) else type_name(each) for each in arguments)
    if typing.get_origin(hint) is list:
        return f'list of {type_name(arguments[0])}'
    if typing.get_origin(hint) is dict:
        return f'mapping of text to {type_name(arguments[1])}'
    return {int: 'whole number', float: 'number', str: 'text', bool: 'true or false'}.get(hint, 'anything')


# The run cards: the heads of the shipped configurations.

def run_cards() -> str:
    """Return the head of every shipped configuration, as a page."""
    parts = [NOTE, '# Shipped configurations', 'The head of each file: what it trains, the command, the data, the '
             'time and the figure to expect. `DIR` is the folder of the data.']
    for file in sorted(shipped.paths().values(), key=lambda file: file.stem):
        head = re.match(r'(?:#.*\n)+', file.read_text())
        if head:
            card = '\n'.join(line[2:] for line in head[0].splitlines())
            parts += [f'## {file.stem}', f'```text\n{card.strip()}\n```']
    return '\n\n'.join(parts) + '\n'


# The schema.

def schema(owned: dict) -> dict:
    """Return a JSON Schema (draft 7, which editors know) of a configuration file."""
    definitions: dict[str, dict] = {}
    kinds = {'seed': 'integer', 'is_demo': 'boolean'}
    properties: dict[str, dict] = {
        key: {'type': kinds.get(key, 'string'), 'description': TOP[key]} for key in top_keys()}
    rules = []
    for section, (package, classes) in MODULES.items():
        for part, cls in classes.items():
            known = [*owned[section]]
            for name in known:
                module = owned[section][name]
                extra = {'module': {'const': name}} if part == section else {}
                inner = networks(module) if cls == 'Config' else {}
                extra |= {net: section_schema(keys(owner), {}) for net, owner in inner.items()}
                definitions[f'{part}:{name}'] = section_schema(keys(keys_of(module, cls)), extra)
            own = {'type': 'object'}  # a module of the user's own, whose keys nobody knows here
            if part == section:
                own |= {'required': ['module'], 'properties': {'module': {
                    'type': 'string', 'pattern': rf'^{package}\.', 'not': {'enum': known}}}}
            properties[part] = {'anyOf': [*({'$ref': f'#/definitions/{part}:{name}'} for name in known), own]}
        for name in known:
            rules.append({'if': {'required': [section], 'properties': {section: {
                              'required': ['module'], 'properties': {'module': {'const': name}}}}},
                          'then': {'properties': {part: {'$ref': f'#/definitions/{part}:{name}'} for part in classes}}})
    for section, owner in SECTIONS.items():
        properties[section] = section_schema(keys(owner), {})
    return {'$schema': 'http://json-schema.org/draft-07/schema#', 'title': 'A Landmark configuration', 'type': 'object',
            'additionalProperties': False, 'properties': properties, 'allOf': rules, 'definitions': definitions}


def section_schema(found: list[Key], extra: dict) -> dict:
    own = {key.name: type_schema(key.hint) | {'description': plain(key.meaning)}
           | ({} if key.default is None else {'default': key.default}) for key in found}
    return {'type': 'object', 'additionalProperties': False, 'properties': own | extra}


def type_schema(hint) -> dict:
    arguments = typing.get_args(hint)
    if typing.get_origin(hint) is typing.Literal:
        return {'enum': [*arguments]}
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return {'anyOf': [type_schema(each) for each in arguments]}
    if typing.get_origin(hint) is list:
        return {'type': 'array', 'items': type_schema(arguments[0])}
    if typing.get_origin(hint) is dict:
        return {'type': 'object', 'additionalProperties': type_schema(arguments[1])}
    names = {int: 'integer', float: 'number', str: 'string', bool: 'boolean', type(None): 'null'}
    return {'type': names[hint]} if hint in names else {}


# Text.

def sentence(text: str) -> str:
    """Text that begins with a capital, unless with code or a symbol, and ends with a full stop."""
    text = text.strip()
    first = text.split(' ')[0]
    text = text[0].upper() + text[1:] if first.islower() and first.isalpha() and len(first) > 1 else text
    return text if text.endswith(('.', '!', '?')) else f'{text}.'


def cell(text: str) -> str:
    """Text that stays inside a table's cell."""
    return text.replace('|', '\\|').replace('<', '&lt;') if '`' not in text else text.replace('|', '\\|')


def plain(text: str) -> str:
    return text.replace('`', '')


def prose(doc: str) -> str:
    """Return a docstring as Markdown: indented blocks are commands, `Attributes:` are in the table."""
    text = inspect.cleandoc(doc).partition('Attributes:')[0].strip()
    blocks = []
    for block in re.split(r'\n\n+', text):
        code = all(line.startswith('    ') for line in block.splitlines())
        blocks.append(f'```console\n{textwrap.dedent(block)}\n```' if code and block else block.replace('<', '\\<'))
    return '\n\n'.join(blocks)


def main(argv=None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--check', action='store_true', help='write nothing; exit code 1 if a file is stale')
    check, stale = parser.parse_args(argv).check, []
    for name, text in pages().items():
        path = ROOT / name
        if not path.exists() or path.read_text() != text:
            stale.append(name)
            if not check:
                path.write_text(text)
    print(f'{"stale" if check else "written"}: {", ".join(stale) or "none"}')
    sys.exit(1 if check and stale else 0)


if __name__ == '__main__':
    main(sys.argv[1:])
