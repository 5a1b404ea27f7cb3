"""Compute the numbers of an evaluation again from what it stored, without a model and without TensorFlow."""
import collections
import dataclasses
import hashlib
import json
import math
import os
import re
from typing import Any

import numpy as np

from data_prep import UserError
from pipelines.evaluation import chance, corpus, gate, predictions

_ROUNDING = 1e-9  # relative: sums of float64 in another order; the largest difference met was 4e-16


@dataclasses.dataclass(frozen=True)
class Finding:
    """One thing checked.

    Attributes:
      what: such as `bleu`, or `bleu, slice date`.
      recorded, again: what the evaluation recorded, and what its stored files give.
      equal: whether they agree.
    """
    what: str
    recorded: str
    again: str
    equal: bool


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """What an evaluation stored.

    Attributes:
      folder: holds `metrics.json`, `predictions.tfrecord` and `pictures`.
      report: folder of `report.html`, or none if only the evaluation is there.
      found: the content of `metrics.json`.
      rows: the predictions.
    """
    folder: str
    report: str
    found: dict[str, Any]
    rows: list[predictions.Features]

    def numbers(self, model: str, rows: list[predictions.Features]) -> dict[str, float]:
        """Return the metrics of some rows, computed again."""
        answers = [predictions.of_model(row, model) for row in rows]
        return {name: metric.score(np.sum([metric.counts(answer) for answer in answers], axis=0))
                for name, metric in self.metrics().items()}

    def metrics(self) -> dict[str, corpus.Metric]:
        """Return the metrics by name; an evaluation before `target` was recorded names the language in its protocol."""
        names = [*self.found['protocol']]
        said = self.found['protocol'].get('bleu_tokenised', '').partition('Moses tokens of language ')[2]
        target = self.found.get('target', said.partition(',')[0])
        return {name: corpus.metric(name, place, target) for place, name in enumerate(names)}


def opened(path: str) -> Evaluation:
    """Find and read the evaluation of a report.

    Args:
      path: `report.html`, its folder, the evaluation's folder, or the folder of both.

    Raises:
      UserError: there is no evaluation, or its files cannot be read.
    """
    here = os.path.abspath(path if os.path.isdir(path) else os.path.dirname(path))
    places = [os.path.join(here, 'evaluation'), re.sub('report$', 'evaluation', here)]  # a format's: tflite_evaluation
    folder = next((place for place in [here, *places] if os.path.exists(os.path.join(place, 'metrics.json'))), '')
    if not folder:
        raise UserError(f'{path} belongs to no evaluation: no metrics.json is beside it. Give a report.html in its '
                        'folder, such as runs/demo/evaluate/4/report/report.html.')
    try:
        with open(os.path.join(folder, 'metrics.json'), encoding='utf-8') as file:
            found = json.load(file)
        missing = {'metrics', 'protocol', 'examples', 'reasons', 'blessed'} - {*found}
    except (ValueError, AttributeError, TypeError):
        raise UserError(f'{folder}/metrics.json is damaged: it is no JSON object. Evaluate again.') from None
    if missing:
        raise UserError(f'{folder}/metrics.json is damaged: it lacks {", ".join(sorted(missing))}. Evaluate again.')
    report = re.sub('evaluation$', 'report', folder)
    return Evaluation(folder, report if os.path.isdir(report) else '', found,
                      list(predictions.read(os.path.join(folder, 'predictions.tfrecord'))))


def verify(evaluation: Evaluation) -> list[Finding]:
    """Check files, protocols, metrics, changes, verdict and page of an evaluation."""
    found = evaluation.found
    again = evaluation.numbers('candidate', evaluation.rows)
    findings = [*_files(evaluation), Finding('examples', f'{found["examples"]:,}', f'{len(evaluation.rows):,}',
                                             found["examples"] == len(evaluation.rows))]
    findings += [Finding(f'protocol of {name}', found['protocol'][name], metric.protocol,
                         found['protocol'][name] == metric.protocol)
                 for name, metric in evaluation.metrics().items() if metric.protocol]
    findings += [_number(name, value, again[name]) for name, value in found['metrics']['overall'].items()]
    findings += _slices(evaluation)
    if 'thresholds' in found:  # evaluations before it recorded no changes either
        findings += [*_changes(evaluation), *_verdict(evaluation, again)]
    return findings + _page(evaluation)


def _number(what: str, recorded: float, again: float) -> Finding:
    equal = math.isclose(recorded, again, rel_tol=_ROUNDING, abs_tol=1e-12) or (
        math.isnan(recorded) and math.isnan(again))
    return Finding(what, f'{recorded:.10g}', f'{again:.10g}', equal)


def _files(evaluation: Evaluation) -> list[Finding]:
    """Compare files with the SHA-256 recorded of them; of images, this is all that is looked at."""
    findings = []
    for name, recorded in evaluation.found.get('files', {}).items():
        try:
            with open(os.path.join(evaluation.folder, name), 'rb') as file:
                again = hashlib.sha256(file.read()).hexdigest()
        except OSError:
            again = 'missing'
        findings.append(Finding(f'SHA-256 of {name}', recorded[:12], again[:12], recorded == again))
    return findings


def _slices(evaluation: Evaluation) -> list[Finding]:
    rows: dict[str, list] = collections.defaultdict(list)
    for key in evaluation.found.get('slices', ()):
        for row in evaluation.rows:
            for value in row.get(key, ()):
                rows[str(value)].append(row)
    findings = []
    for name, recorded in evaluation.found['metrics'].items():
        if name in rows:
            again = evaluation.numbers('candidate', rows[name])
            findings += [_number(f'{metric}, slice {name}', value, again[metric])
                         for metric, value in recorded.items()]
    return findings


def _changes(evaluation: Evaluation) -> list[Finding]:
    """Draw the intervals of the changes from the blessed model again."""
    rows = {model: [predictions.of_model(row, model) for row in evaluation.rows] for model in ('candidate', 'baseline')}
    metrics, findings = evaluation.metrics(), []
    for name, recorded in evaluation.found['changes'].items():
        again = chance.change(metrics[name], rows['candidate'], rows['baseline'], recorded['confidence'],
                              evaluation.found['seed'])
        findings += [_number(f'change of {name}, {part}', recorded[part], getattr(again, part))
                     for part in ('value', 'low', 'high', 'smallest')]
    return findings


def _verdict(evaluation: Evaluation, again: dict[str, float]) -> list[Finding]:
    found = evaluation.found
    blessed = evaluation.numbers('baseline', evaluation.rows) if found['baseline'] else {}
    changes = {name: chance.Change(**change) for name, change in found['changes'].items()}
    failed = sorted(name for name, bounds in found['thresholds'].items()
                    if not gate.holds(bounds, again[name], blessed.get(name), changes.get(name)))
    verdict = 'blessed' if found['thresholds'] and not failed else 'not blessed'
    recorded = 'blessed' if found['blessed'] else 'not blessed'
    return [Finding('verdict', recorded, verdict, recorded == verdict),
            Finding('outside thresholds', ', '.join(found['failed']) or 'none', ', '.join(failed) or 'none',
                    found['failed'] == failed)]


def _page(evaluation: Evaluation) -> list[Finding]:
    """Look every metric up in the report, which holds it in full."""
    path = os.path.join(evaluation.report, 'report.html')
    if not evaluation.report or not os.path.exists(path):
        return []
    with open(path, encoding='utf-8') as file:
        page = file.read()
    shown = {name: f'title="{value}"' in page for name, value in evaluation.found['metrics']['overall'].items()}
    return [Finding(f'{name} in report.html', f'{evaluation.found["metrics"]["overall"][name]:.10g}',
                    'shown' if there else 'another', there) for name, there in shown.items()]
