"""The gate's decision against its definition, for every combination of thresholds and values.

TFMA's validator is given the metrics; that its pipeline computes them is shown by test_pipeline.py.
"""
import itertools
import math
import types

import pytest
from tensorflow_model_analysis.evaluators import metrics_validator
from tensorflow_model_analysis.metrics import metric_types
from tensorflow_model_analysis.proto import validation_result_pb2
from tensorflow_model_analysis.utils import config_util

from pipelines import evaluate
from pipelines.core import roles
from pipelines.evaluation import gate


def configured(**thresholds):
    """A configuration of text with these thresholds, metric -> bounds."""
    evaluation = types.SimpleNamespace(thresholds=thresholds, drift={}, slices=[], networks={})
    return types.SimpleNamespace(evaluate=evaluation, model=None, data=types.SimpleNamespace(target='de'),
                                 model_spec=roles.model('keras_models.transformer'),
                                 data_spec=roles.data('data_prep.wmt'))


def validated(config, values, baseline=None):
    """Return what TFMA says of metrics of these values, name -> number; None is a metric it did not find."""
    models = ['candidate'] if baseline is None else ['candidate', 'baseline']
    eval_config, found = config_util.update_eval_config_with_defaults(
        evaluate.tfma_config(config, models), has_baseline=baseline is not None), {}
    for name, value in values.items():
        def key(model, name=name, **more):
            return metric_types.MetricKey(name, model_name=model, example_weighted=False, **more)
        if value is None:
            continue
        found[key('candidate' if baseline else '')] = value
        if baseline:
            found[key('baseline')] = baseline[name]
            found[key('candidate', is_diff=True)] = value - baseline[name]
    return metrics_validator.validate_metrics(((), found), eval_config)


def decide(config, values, baseline=None):
    return gate.decide(config.evaluate.thresholds, validated(config, values, baseline), baseline and {})


CHANGES = [{}, *({key: by} for key in ('max_drop', 'max_rise') for by in (0., .25))]
BOUNDS = [{**least, **most, **change} for least in ({}, {'min': .5}) for most in ({}, {'max': .5})
          for change in CHANGES]


def violated(bounds, value, before):
    """The bounds that a value does not keep: the definition."""
    change = 0 if before is None else value - before
    kept = {'min': value >= bounds.get('min', value), 'max': value <= bounds.get('max', value),
            'max_drop': -change <= bounds.get('max_drop', math.inf),
            'max_rise': change <= bounds.get('max_rise', math.inf)}
    return [key for key in bounds if not kept[key]]


@pytest.mark.parametrize('before', [None, 0., .25, .5, .75], ids=lambda value: f'blessed {value}')
def test_blessed_is_what_keeps_all_its_bounds(before):
    """Bounds themselves are kept: the numbers are halves and quarters, so that equal is equal."""
    verdicts, baseline = set(), None if before is None else {'bleu': before}
    for bounds, value in itertools.product(BOUNDS[1:], (.25, .5, .75)):
        blessed, reasons, failed = decide(configured(bleu=bounds), {'bleu': value}, baseline)
        broken = violated(bounds, value, before)
        assert blessed == (not broken) == (not failed), (bounds, value)
        if before:  # of changes from 0 TFMA says no
            assert validated(configured(bleu=bounds), {'bleu': value}, {'bleu': before}).validation_ok == blessed
        of_value, of_change = {'min', 'max'} & {*broken}, {'max_drop', 'max_rise'} & {*broken}
        assert len(reasons) == (bool(of_value) + bool(of_change) or 1 + (before is None and len(bounds) > len(
            {'min', 'max'} & {*bounds})))
        said = '; '.join(reasons)
        assert (f'bleu is {value:g}, outside' in said) == bool(of_value)
        assert before is None or (f'bleu changed by {value - before:+g} from' in said) == bool(of_change)
        for key in broken:  # with the number it did not keep
            assert f'{key} {bounds[key]:g}' in said
        assert ('all thresholds are met' in said) == blessed == gate.holds(bounds, value, before, None)
        verdicts.add(blessed)
    assert verdicts == {True, False}


@pytest.mark.parametrize('first, second', [
    (.5, .25), (.25, .5), (.25, .25), (.5, .5), (.75, .25), (.25, .75)])
@pytest.mark.parametrize('before', [None, {'bleu': .0, 'exact_match': .0}, {'bleu': .5, 'exact_match': .75}])
def test_every_metric_must_keep_its_own_bounds(first, second, before):
    bounds = {'bleu': {'min': .5, 'max_drop': .25}, 'exact_match': {'max': .5, 'max_drop': .25}}
    values = {'bleu': first, 'exact_match': second}
    blessed, reasons, failed = decide(configured(**bounds), values, before)
    broken = {name: violated(bounds[name], values[name], before and before[name]) for name in values}
    assert blessed == (not any(broken.values())) and failed == sorted(name for name in broken if broken[name])
    if not blessed:
        assert sorted(reason.split()[0] for reason in reasons) == sorted(
            name for name, keys in broken.items() for _ in keys)


def test_no_threshold_blesses_nothing():
    assert gate.decide({}, None, None).blessed is gate.decide({}, None, {}).blessed is False


def test_what_could_not_be_compared_is_named():
    bounds = {'bleu': {'min': .5, 'max_drop': .25}, 'exact_match': {'max_rise': 0.}}
    blessed, [met, skipped], _ = decide(configured(**bounds), {'bleu': .5, 'exact_match': 1.})
    assert blessed and 'bleu.max_drop, exact_match.max_rise could not be checked' in skipped
    assert decide(configured(**bounds), {'bleu': .5, 'exact_match': 0.},
                  {'bleu': .5, 'exact_match': 0.}) == (True, [met], [])


@pytest.mark.parametrize('value', [math.nan, -math.inf, math.inf])
@pytest.mark.parametrize('bounds', [{'min': .5, 'max': 1.}, {'max_drop': .25}, {'max_rise': .25}], ids=str)
def test_what_is_no_number_is_not_blessed(bounds, value):
    better = value == {'max_drop': math.inf, 'max_rise': -math.inf}.get([*bounds][0])
    assert decide(configured(bleu=bounds), {'bleu': value}, {'bleu': .5}).blessed is better


@pytest.mark.parametrize('bounds', [{'min': .5}, {'max': .5}, {'max_drop': .25}, {'max_rise': .25}], ids=str)
def test_a_metric_that_is_missing_is_not_blessed(bounds):
    """Nor is its change, though it counts as 0."""
    verdict = decide(configured(bleu=bounds), {'bleu': None}, {'bleu': .5})
    assert verdict == (False, ['TFMA computed no bleu to compare'], ['bleu'])


@pytest.mark.parametrize('bounds, with_baseline, blessed', [
    ({'min': .5}, False, False), ({'max': .5}, True, False), ({'max_drop': .25}, True, False),
    # no threshold was there for TFMA to check
    ({'max_drop': .25}, False, True), ({'max_rise': .25}, False, True),
    ({'min': .5, 'max_drop': .25}, False, False)], ids=str)
def test_a_slice_that_is_missing_is_not_blessed(bounds, with_baseline, blessed):
    """TFMA then says that all is not well, and names no failure."""
    nothing = validation_result_pb2.ValidationResult(validation_ok=False)
    verdict = gate.decide({'bleu': bounds}, nothing, {} if with_baseline else None)
    assert verdict.blessed is blessed and ('TFMA found a metric or slice missing' in verdict.reasons) == (not blessed)
    assert verdict.failed == []
