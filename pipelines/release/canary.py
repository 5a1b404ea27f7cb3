"""Push a blessed model as a canary (`push --canary`): beside the served version, for requests with its label."""
import os

from pipelines.core import stage
from pipelines.formats.table import STAGES
from pipelines.release import handover
from pipelines.serving import kit, labels, published, pusher
from pipelines.serving.layout import FORMAT


def execute(context: stage.Context) -> None:
    destination = context.pipeline.destination
    lineage, formats = handover.checked(context)
    labels.read(destination)  # if this fails, nothing has changed yet
    path = pusher.publish(os.path.join(context.inputs['model'].uri, FORMAT), destination, lineage, formats, True)
    labels.write(destination, kit.model_name(destination), canary=published.Version(path).number)
    handover.record(context, 'canary', path, formats)
    promote = f'{context.pipeline.command("push")} --promote'
    print(f'push: {path} has the label {labels.CANARY}. `{promote}` compares it with the served version.', flush=True)


def is_up_to_date(outputs: dict) -> bool:
    """Return whether this canary still has its label, and intact files."""
    pushed = outputs['canary'].properties
    labelled = labels.read(pushed['destination']).get(labels.CANARY)
    return labelled == pushed['version'] and not published.Version(pushed['path']).damage()


STAGE = stage.Stage('canary', execute, needs=('export', 'evaluate', 'infra_validate'), takes=STAGES,
                    outputs={'canary': 'PushedModel'}, sections=('push',),
                    extra_inputs=lambda pipeline: {'name': pipeline.config.name},  # part of the destination
                    is_up_to_date=is_up_to_date, modules=(__name__,))
