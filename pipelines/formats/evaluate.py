"""Judge an exported format by what it answers on the evaluated split, against the SavedModel of the same weights."""
import dataclasses
import functools
import os
import typing

from data_prep import UserError
from pipelines import evaluate
from pipelines.core import stage
from pipelines.formats.table import FORMATS, Format
from pipelines.serving.layout import FORMAT

if typing.TYPE_CHECKING:
    from pipelines.core.config import Config

OUTPUTS = {'evaluation': 'ModelEvaluation', 'blessing': 'ModelBlessing', 'report': 'Report'}


def execute(format: Format, context: stage.Context) -> None:
    from pipelines.formats import runner
    outputs = {name: context.outputs[f'{format.name}_{name}'] for name in OUTPUTS}
    model = context.inputs['model']
    context.properties['format'] = format.name
    saved = evaluate.load(context.config, {'baseline': os.path.join(model.uri, FORMAT)})
    evaluate.judge(dataclasses.replace(context, config=with_drift(context.config), outputs=outputs),
                   {'candidate': runner.load(context.inputs[format.name].uri), **saved}, model.digest, 'the SavedModel')


def with_drift(config: 'Config') -> 'Config':
    """Return a configuration whose thresholds bound the value as for the SavedModel, and the change by `drift`."""
    kept = {name: {key: bounds[key] for key in ('min', 'max') if key in bounds}
            for name, bounds in config.evaluate.thresholds.items()}
    both = {name: {**kept.get(name, {}), **config.evaluate.drift.get(name, {})}
            for name in [*kept, *config.evaluate.drift]}
    thresholds = {name: bounds for name, bounds in both.items() if bounds}
    return dataclasses.replace(config, evaluate=dataclasses.replace(config.evaluate, thresholds=thresholds))


def check(config: 'Config') -> None:
    """Refuse what evaluation refuses, and a configuration that does not say what a format may lose."""
    evaluate.check(config)
    if not config.evaluate.drift:
        raise UserError('evaluate.drift is empty, so no format can pass. Bound what a metric may lose against the '
                        'SavedModel, such as --set evaluate.drift.bleu.max_drop=0.5 or '
                        'evaluate.drift.top1_error.max_rise=0.005.')


def stage_of(name: str) -> stage.Stage:
    """Return the stage that judges a format."""
    format = FORMATS[name]
    return stage.Stage(
        f'evaluate-{name}', functools.partial(execute, format), needs=('prepare', 'train', 'export', f'export-{name}'),
        outputs={f'{name}_{output}': kind for output, kind in OUTPUTS.items()}, sections=('model', 'evaluate'),
        roles=('data', 'model', 'serving', 'scorer'), check=check,
        modules=('pipelines.formats.evaluate', *format.modules))
