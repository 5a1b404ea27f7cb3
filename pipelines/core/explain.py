"""Print what `--explain` shows: run card, differences from the defaults, model size and cost, and all values."""
import dataclasses
import pathlib
import sys
from typing import Any

import yaml
from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Column, Table

from pipelines.core import config as configs
from pipelines.core import shipped
from pipelines.core.config import Config
from pipelines.core.flow import flow


def show(config: Config) -> None:
    """Print the run card, differences from the defaults, model size and cost, presets, and the whole configuration.

    What a model module does not offer (`parameters`, `flops_per_unit`, `presets`) is left out.
    """
    console = Console(file=sys.stdout, highlight=False, markup=False, width=None if sys.stdout.isatty() else 110)
    card = shipped.card(pathlib.Path(config.source))
    console.print(f'{config.name}: {card.pop("title") or config.source}')
    for part, text in card.items():
        console.print(Padding(f'{part}: {text}', (0, 0, 0, 2)))
    console.print()
    tables = [('Differs from the defaults', ('key', 'this run', 'default'), differing(config)),
              ('Model', ('', ''), costs(config)), ('Presets', *presets(config))]
    if not configs.empty_keys(config) and (
            found := config.model_spec.table(config.model)):
        tables.append(('The paper\'s variations', *found))
    for title, header, rows in tables:
        if rows:
            console.print(_table(console, title, header, rows))
            console.print()
    print('The whole configuration')
    print(yaml.safe_dump(config.values, sort_keys=False, allow_unicode=True))


def differing(config: Config) -> list[tuple[str, str, str]]:
    """Return (key, this run's value, default) for each key that differs; a preset's values count as defaults."""
    known = config.model_spec.presets.get(getattr(config.model, 'preset', ''), {})
    rows = []
    for section in (name for name, value in config.values.items() if isinstance(value, dict)):
        for field in dataclasses.fields(getattr(config, section)):
            default: Any = field.default
            if field.default_factory is not dataclasses.MISSING:
                default = field.default_factory()
            if section == 'model':
                default = known.get(field.name, default)
            value = config.values[section][field.name]
            if default not in (None, value):
                rows.append((f'{section}.{field.name}', flow(value), '' if default is dataclasses.MISSING else
                             flow(default)))
    return rows


def costs(config: Config) -> list[tuple[str, str]]:
    """Return the model's size and cost, as far as its module can count them."""
    module, rows, empty = config.model_spec, [], configs.empty_keys(config)
    if empty:
        return [('parameters', f'known once the data set is prepared, which sets model.{", model.".join(empty)}')]
    if module.parameters:
        rows.append(('parameters', f'{module.parameters(config.model):,}'))
    if module.flops_per_unit:
        flops, units = module.flops_per_unit(config.model), config.input.tokens or config.input.rows
        rows += [(f'training operations per {module.unit.removesuffix("s")}', f'{flops:,}'),
                 ('in the whole run, padding included' if config.input.tokens else 'in the whole run',
                  f'about {config.train.steps * units * flops:.2g} '
                  f'({config.train.steps:,} steps of {units:,} {module.unit})')]
    return rows


def presets(config: Config) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the keys that presets change: a header, and rows of key, its value in every preset, and this run's value.

    A model of several networks lists what its presets change in `preset_values`.
    """
    this_run = f'this run ({getattr(config.model, "preset", "")})'
    if config.model_spec.preset_values and not configs.empty_keys(config):
        *values, own = config.model_spec.preset_values(config.model).items()
        return (('key', *(preset for preset, _ in values), this_run),
                [(key, *(str(each[key]) for _, each in values), str(value)) for key, value in own[1].items()])
    known = config.model_spec.presets
    keys = dict.fromkeys(key for values in known.values() for key in values)
    default = type(config.model)  # a dataclass keeps its defaults as class attributes
    rows = [(key, *(str(values.get(key, getattr(default, key, ''))) for values in known.values()),
             str(getattr(config.model, key))) for key in keys]
    return ('key', *known, this_run), rows


def _table(console: Console, title: str, header, rows) -> Table:
    table = Table(Column(header[0], no_wrap=True), *header[1:], title=title, title_justify='left',
                  show_header=any(header), box=box.SIMPLE if console.is_terminal else None)
    for row in rows:
        table.add_row(*row)
    return table
