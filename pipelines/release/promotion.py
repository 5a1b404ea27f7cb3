"""Compare a canary with the served version, and let it take over if it is not worse.

Metrics: both predict the gate's split, and `evaluate.thresholds` decide, with the served version as the baseline.
Latency: both answer the same recorded requests in turn, one at a time.
"""
import dataclasses
import itertools
import os
import statistics
import tempfile
import time
import typing
from collections.abc import Callable, Mapping

import numpy as np
import tensorflow as tf

from data_prep import UserError
from data_prep.core import records
from pipelines import evaluate
from pipelines.core import config as configs
from pipelines.evaluation import gate
from pipelines.serving import kit, labels, loaded, models, published, pusher, recorded, saved_model

if typing.TYPE_CHECKING:
    from pipelines.core.config import Config
    from pipelines.core.pipeline import Pipeline


@dataclasses.dataclass(frozen=True)
class Replay:
    """Recorded requests, answered by both versions.

    Attributes:
      canary, served: median seconds a request.
      requests: how many different ones there were.
      same: how many of them both answered alike.
    """
    canary: float
    served: float
    requests: int
    same: int

    @property
    def slowdown(self) -> float:
        return self.canary / self.served


def promote(pipeline: 'Pipeline', requests: str | None) -> str:
    """Promote the canary of a pipeline's destination.

    Args:
      requests: a file of recorded requests; by default, the served version's warm-up requests.

    Returns:
      The new version's folder.

    Raises:
      UserError: there is no canary, a file is damaged, or the canary is worse; the message has the numbers.
    """
    destination = pipeline.destination
    labelled = labels.read(destination).get(labels.CANARY)
    found = {version.number: version for version in published.versions(destination)}
    canary = found.get(labelled or 0)
    if canary is None or not canary.is_canary:
        raise UserError(f'{destination} has no canary. Run `{pipeline.command("push")} --canary` first.')
    comparison = {}
    if not pusher.promoted(destination, canary):
        comparison = compare(pipeline, canary, found[max(found)], requests)
    return complete(destination, canary, comparison)


def complete(destination: str, canary: published.Version, comparison: dict) -> str:
    """Publish the canary's files as the version to serve, then move the labels; killed between, it is run again."""
    path = pusher.promote(destination, canary, comparison)
    labels.write(destination, kit.model_name(destination), canary=0)
    return path


def compare(pipeline: 'Pipeline', canary: published.Version, served: published.Version, requests: str | None) -> dict:
    """Compare metrics and latency.

    Returns:
      The numbers, for the promoted version's record.

    Raises:
      UserError: the canary is worse.
    """
    examples = pipeline.outputs('prepare', make=False)['examples'].uri
    config = configs.with_data_set(pipeline.config, records.read_manifest(examples).model)
    _check_thresholds(config)
    for version in (canary, served):
        published.verify(version.path)
    verdict, metrics, changes = _metrics(config, records.open_split(examples, config.evaluate.split), canary, served)
    replayed = replay(_requests(requests, served), {
        name: saved_model.load_version(version.path) for name, version in (('canary', canary), ('served', served))},
        config.canary.requests)
    reasons = [] if verdict.blessed else verdict.reasons
    if replayed.slowdown > config.canary.max_slowdown:
        reasons.append(f'it takes {replayed.slowdown:.3g} times as long, more than canary.max_slowdown '
                       f'{config.canary.max_slowdown:g} allows')
    numbers = ', '.join([*(f'{name} {value:.4g}' + (f' ({changes[name]:+.4g})' if name in changes else '')
                           for name, value in metrics.items()),
                         f'{1e3 * replayed.canary:.3g} ms a request ({1e3 * replayed.served:.3g} ms), '
                         f'{replayed.same} of {replayed.requests} requests answered alike'])
    if reasons:
        raise UserError(f'{canary.path} is not promoted: {"; ".join(reasons)}. Compared with version {served.number}: '
                        f'{numbers}. Push a better canary.')
    print(f'push: canary {canary.number} compared with version {served.number}: {numbers}.', flush=True)
    return {'served': served.number, 'metrics': metrics, 'changes': changes, 'replay': dataclasses.asdict(replayed)}


def _check_thresholds(config: 'Config') -> None:
    evaluate.check(config)
    if not any({'max_drop', 'max_rise'} & {*bounds} for bounds in config.evaluate.thresholds.values()):
        raise UserError(f'{config.source}: evaluate.thresholds bounds no change, so nothing says when a canary is '
                        'worse. Give a metric a max_drop or max_rise, such as {bleu: {max_drop: 0.5}}.')


def _metrics(config: 'Config', split, canary: published.Version, served: published.Version
             ) -> tuple[gate.Verdict, dict[str, float], dict[str, float]]:
    """Return the gate's verdict, the canary's metrics on the whole split, and their changes from the served version."""
    folders = {'candidate': canary.path, 'baseline': served.path}
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, evaluate.PREDICTIONS)
        evaluate.write_predictions(config, split, evaluate.load(config, folders), path)
        metrics, validation = evaluate.analyse(config, path, folder, [*folders])
        changes = evaluate.compare(config, path)
    verdict = gate.decide(config.evaluate.thresholds, validation, changes)
    return verdict, metrics['overall'], {name: change.value for name, change in changes.items()}


def _requests(path: str | None, served: published.Version) -> list[recorded.Request]:
    """Return the requests of a file, or those exported with the served version."""
    try:
        found = list(recorded.read(path) if path else models.warmup_requests(served.path))
    except tf.errors.OpError as error:
        raise UserError(f'--requests {path}: this file cannot be read ({error.message}). Give TFRecords of '
                        'PredictionLog, as TensorFlow Serving logs requests.') from error
    if not found:
        raise UserError(f'{path or served.path} holds no Predict requests to replay. Give others with --requests FILE.')
    return found


def replay(requests: list[recorded.Request], versions: Mapping[str, typing.Any], count: int,
           clock: Callable[[], float] = time.perf_counter) -> Replay:
    """Send requests to both versions in turn; the first round, in which programs are built, is not timed.

    Args:
      versions: the loaded models by name, `canary` and `served`.
      count: requests timed; they are repeated, or cut off.
      clock: returns seconds.

    Raises:
      UserError: the canary fails on a request that the served version answers.
    """
    answered = [(signature, inputs, answers) for number, (signature, inputs) in enumerate(requests)
                if (answers := _both(number, signature, inputs, versions))]
    if not answered:
        raise UserError('The served version answers none of the recorded requests, so there is nothing to compare. '
                        'Give others with --requests FILE.')
    seconds: dict[str, list[float]] = {name: [] for name in versions}
    order = [*versions]
    for signature, inputs, _ in itertools.islice(itertools.cycle(answered), count):
        order.reverse()  # whoever comes second may find warmer caches
        for name in order:
            start = clock()
            loaded.run_signature(versions[name].signatures[signature], inputs)
            seconds[name].append(clock() - start)
    return Replay(statistics.median(seconds['canary']), statistics.median(seconds['served']), len(answered),
                  sum(_alike(answers) for *_, answers in answered))


def _both(number: int, signature: str, inputs: Mapping[str, np.ndarray], versions: Mapping[str, typing.Any]) -> dict:
    """Return both versions' outputs; nothing if the served version cannot answer."""
    answers = {}
    for name in ('served', 'canary'):
        try:
            answers[name] = loaded.run_signature(versions[name].signatures[signature], inputs)
        except (KeyError, ValueError, TypeError, tf.errors.OpError) as error:
            if name == 'served':
                return {}
            raise UserError(f'The canary is not promoted: it fails on recorded request {number + 1}, which the served '
                            f'version answers ({str(error).splitlines()[0]}). Push a better canary.') from error
    return answers


def _alike(answers: dict[str, dict[str, np.ndarray]]) -> bool:
    """Return whether all outputs are equal, numbers to the rounding of float32."""
    served, canary = answers['served'], answers['canary']
    return {*served} == {*canary} and all(map(_equal, served.values(), (canary[name] for name in served)))


def _equal(one: np.ndarray, other: np.ndarray) -> bool:
    if one.shape == other.shape and np.issubdtype(one.dtype, np.floating):
        return np.allclose(one, other, rtol=1e-5, atol=1e-6)
    return np.array_equal(one, other)
