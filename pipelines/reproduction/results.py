"""Results of an item: numbers, verdicts and figures, stored in `found.json` and shown on `page.html`."""
import dataclasses
import datetime
import json
import math
import os
import time
from typing import Any

from data_prep.core import records
from pipelines.core import artifacts, config, machine, stage
from pipelines.core.flow import flow
from pipelines.reporting import pages, report
from pipelines.reproduction import experiments
from pipelines.reproduction.experiments import Exhibit, Experiment, Run, Study

FOUND = 'found.json'


@dataclasses.dataclass(frozen=True)
class Found:
    """Results of an item, as stored in `found.json`.

    Attributes:
      item: `<paper>/<item>`.
      scale: `small`, `medium` or `paper`.
      seeds: of the trained settings.
      table: setting -> column -> one number per seed; the file holds `inf` and `nan` as strings.
      verdicts: `claim`, `verdict` and `why` of each claim.
      figures: `title`, `html` and `shows_data` of each, see `experiments.Figure`.
      differing: key, the paper's value and the value here, of every setting that differs.
      commands: of the stages that were run.
      minutes: time of the stages, or of the computation if there are none.
      date: of the last stage, ISO 8601.
      commit: of the source, see `artifacts.commit`.
      hardware: see `machine.describe`.
    """
    item: str
    scale: str
    seeds: list[int]
    table: dict[str, dict[str, list[float]]]
    verdicts: list[dict[str, str]]
    figures: list[dict[str, Any]]
    differing: list[tuple[str, str, str]]
    commands: list[str]
    minutes: float
    date: str
    commit: str
    hardware: str


def gather(experiment: Experiment, scale: str, runs: list[Run], data: str, out: str, overrides: list[str]) -> Found:
    """Measure runs, draw the item's figures and judge its claims.

    Args:
      data: what --data names.
      out: folder for the figures' files; created if missing.
    """
    os.makedirs(out, exist_ok=True)
    started, study = time.monotonic(), Study(runs, data, out, experiments.kind_of(scale))
    shown = [experiments.drawer(each)(study, **{key: value for key, value in each.items() if key != 'draw'})
             for each in experiment.exhibits]
    table = measured(experiment, runs, shown)
    return Found(
        experiment.name, scale, sorted({run.seed for run in runs if run.stages}), table,
        judged(experiment, scale, table),
        [figure._asdict() for exhibit in shown for figure in exhibit.figures], differing(experiment, scale, overrides),
        [run.pipeline.command(stage.name_of(name, run.pipeline.config)) for run in runs for name in run.stages],
        **_origin(runs, time.monotonic() - started))


def judged(experiment: Experiment, scale: str, table: dict[str, dict[str, list[float]]]) -> list[dict[str, str]]:
    """Return `claim`, `verdict` and `why` of each claim, given setting -> column -> one number per seed."""
    chance = experiment.scales[scale].chance
    verdicts = [(claim, claim.judged({setting: columns.get(claim.measure, []) for setting, columns in table.items()},
                                     chance.get(claim.measure, 0.0))) for claim in experiment.claims]
    return [{'claim': claim.says, 'verdict': verdict.word, 'why': verdict.why} for claim, verdict in verdicts]


def measured(experiment: Experiment, runs: list[Run], shown: list[Exhibit]) -> dict[str, dict[str, list[float]]]:
    """Return setting -> column -> one number per seed, from measures and from the plots' findings."""
    table: dict[str, dict[str, list[float]]] = {name: {} for name in experiment.settings}
    for run in runs:
        for column, measure in experiment.measures.items():
            if measure.stage in run.stages:
                table[run.setting].setdefault(column, []).append(measure.of(run))
    for exhibit in shown:
        for (setting, _), columns in exhibit.values.items():
            for column, value in columns.items():
                table.setdefault(setting, {}).setdefault(column, []).append(value)
    return table


def differing(experiment: Experiment, scale: str, overrides: list[str]) -> list[tuple[str, str, str]]:
    """Return the configuration keys that this scale changes: key, the paper's value, this scale's value."""
    if scale == 'paper' or 'paper' not in experiment.scales:
        return []

    def values(which: str, more: list[str]) -> dict[str, str]:
        chosen = experiment.scales[which]
        loaded = config.load(chosen.config, [key.replace('{data}', 'DIR') for key in chosen.set] + more)
        return {key: flow(value) for key, value in report.flat(loaded.values).items()}
    theirs, ours = values('paper', []), values(scale, overrides)
    return [(key, theirs.get(key, '–'), ours.get(key, '–')) for key in {**theirs, **ours}
            if theirs.get(key) != ours.get(key) and key not in ('name', 'seed')]


def _origin(runs: list[Run], seconds: float) -> dict[str, Any]:
    """Return when, where and from which source the stages were run, or this process if there are none."""
    executions: dict[int, artifacts.Execution] = {}
    hardware: dict[str, None] = {}
    for run in runs:
        for name in run.stages:
            outputs = run.pipeline.outputs(name)
            made = run.pipeline.metadata.made(artifact.id for artifact in outputs.values())
            executions |= {execution.id: execution for execution in made}
            if 'model_run' in outputs:
                hardware[outputs['model_run'].properties.get('hardware', 'not recorded')] = None
    if not executions:
        return {'minutes': round(seconds / 60, 1), 'date': datetime.date.today().isoformat(),
                'commit': artifacts.commit(), 'hardware': machine.describe()}
    last = max(executions.values(), key=lambda execution: execution.finished)
    return {'minutes': round(sum(each.finished - each.started for each in executions.values()) / 60, 1),
            'date': datetime.date.fromtimestamp(last.finished).isoformat(), 'commit': last.commit,
            'hardware': '; '.join(hardware) or 'not recorded'}


def write(experiment: Experiment, found: Found, out: str) -> str:
    """Write `found.json` and the page of an item. Returns the page's path."""
    page = os.path.join(out, 'page.html')
    text = pages.environment().get_template('reproduction.html.j2').render(shown(experiment, found))
    records.write_atomically(page, text.encode())
    save(found, os.path.join(out, FOUND))
    return page


def shown(experiment: Experiment, found: Found) -> dict[str, Any]:
    """Return the variables of an item's page."""
    columns = dict.fromkeys(column for rows in (found.table, experiment.paper) for row in rows.values()
                            for column in row)
    rows = dict.fromkeys([*(row for row, columns in found.table.items() if columns), *experiment.paper])
    return {'experiment': experiment, 'found': found, 'columns': list(columns), 'rows': list(rows),
            'number': experiments.number, 'spread': experiments.spread}


def save(found: Found, path: str) -> None:
    """Write results as JSON, which has no `inf` and `nan`."""
    finite = {setting: {column: [value if math.isfinite(value) else str(value) for value in values]
                        for column, values in row.items()} for setting, row in found.table.items()}
    kept = {**dataclasses.asdict(found), 'table': finite}
    records.write_atomically(path, json.dumps(kept, indent=1, ensure_ascii=False).encode())


def read(path: str) -> Found:
    """Read results that `save` wrote.

    Raises:
      FileNotFoundError: there are none.
      TypeError: an earlier version wrote them, with fewer fields.
    """
    with open(path, encoding='utf-8') as file:
        kept = json.load(file)
    table = {setting: {column: [float(value) for value in values] for column, values in row.items()}
             for setting, row in kept.pop('table').items()}
    return Found(table=table, **kept)
