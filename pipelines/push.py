"""Push a blessed model to where TensorFlow Serving finds it; list what was pushed; roll back to the version before.

    python -m pipelines.push
    python -m pipelines.push --set push.destination=gs://bucket/models/translation
    python -m pipelines.push --list
    python -m pipelines.push --rollback

Only a model blessed by both evaluation and infra validation is pushed. TFX's Pusher takes a missing blessing for given;
here it blocks the push.
"""
import json
import os
import sys

from data_prep import UserError
from pipelines.core import cli, stage
from pipelines.serving.layout import FORMAT


def execute(context: stage.Context) -> None:
    from data_prep.core import records
    from pipelines.serving import pusher
    inputs = {key: context.inputs[key] for key in ('model', 'blessing', 'infra_blessing')}
    check_blessings(inputs)
    for key, artifact in inputs.items():
        _check_unchanged(key, artifact)
    saved_model = os.path.join(context.inputs['model'].uri, FORMAT)
    config = context.config
    destination = config.push.folder(context.pipeline.root, config.name)
    lineage = {'pipeline': config.name, 'artifacts': {
        key: {'id': artifact.id, 'digest': artifact.digest} for key, artifact in inputs.items()}}
    path = pusher.publish(saved_model, destination, lineage)
    pushed = {'destination': destination, 'version': int(os.path.basename(path)), 'path': path}
    records.write_atomically(os.path.join(context.outputs['pushed_model'], 'pushed_model.json'),
                             json.dumps(pushed, indent=1).encode())
    context.properties.update(pushed)
    print(f'push: {path} is the version to serve; {_write_kit(context, path, destination)}', flush=True)


def _write_kit(context: stage.Context, path: str, destination: str) -> str:
    """Write the serving kit; the push succeeds even if the kit cannot be written."""
    import tensorflow as tf

    from pipelines.serving import kit as serving_kit
    try:
        kit = serving_kit.write(path, destination, context.pipeline.command('push'))
    except tf.errors.OpError as error:
        return f'the serving kit could not be written beside it ({error.message}).'
    except UserError as error:
        return f'the serving kit is incomplete: {error}'
    return f'{os.path.join(kit, "README.md")} says how to serve it.'


def is_up_to_date(outputs: dict) -> bool:
    """Return whether these outputs are of the last push to their destination, so that pushing again changes nothing.

    A rollback since then is kept: it stands until another model is pushed.
    """
    from pipelines.serving import published
    pushed = outputs['pushed_model'].properties
    found = published.versions(pushed['destination'])
    pushes = [version for version in found if 'rolled_back_to' not in version.record]
    current = bool(pushes) and pushes[-1].number == pushed['version'] and not pushes[-1].damage()
    if current and pushes[-1] is not found[-1]:
        print(f'push: version {pushed["version"]} was rolled back and stays so until another model is pushed. Remove '
              f'{outputs["pushed_model"].uri} to push it again.', flush=True)
    return current


def check_blessings(inputs: dict) -> None:
    """Refuse a model that lacks either blessing.

    Raises:
      UserError: with the reasons given by evaluation and infra validation.
    """
    objections = [*_objections('blessed by evaluation', inputs['blessing'].uri, 'BLESSED', 'NOT_BLESSED',
                               'train it further or change evaluate.thresholds'),
                  *_objections('blessed by infra validation', inputs['infra_blessing'].uri, 'INFRA_BLESSED',
                               'INFRA_NOT_BLESSED', 'fix what keeps it from being served and export it again')]
    if objections:
        raise UserError(f'not pushed: {"; and ".join(objections)}.')


def _objections(what: str, folder: str, positive: str, negative: str, remedy: str) -> list[str]:
    import tensorflow as tf
    yes, no = (tf.io.gfile.exists(os.path.join(folder, name)) for name in (positive, negative))
    if yes and not no:
        return []
    if not no:
        return [f'the model is not {what}: {folder} has neither {positive} nor {negative}, so remove that folder '
                'and run the pipeline again']
    with tf.io.gfile.GFile(os.path.join(folder, negative), 'rb') as file:
        lines = file.read().decode('utf-8', 'replace').splitlines()
    reasons = ', '.join(line.strip().rstrip('.') for line in lines if line.strip())
    both = f', though {positive} is there too' if yes else ''
    return [f'the model is not {what} ({reasons or f"{folder} gives no reason"}){both}: {remedy}']


def _check_unchanged(key: str, artifact) -> None:
    """Refuse a model or blessing edited since the check, which covered other bytes."""
    from pipelines.core import artifacts
    if artifacts.digest(artifact.uri) != artifact.digest:
        raise UserError(f'not pushed: {artifact.uri} was changed after the pipeline wrote it, so this {key} is '
                        'not the one that was checked. Remove that folder and run the pipeline again.')


STAGE = stage.Stage('push', execute, needs=('export', 'evaluate', 'infra_validate'),
                    outputs={'pushed_model': 'PushedModel'}, sections=('push',),
                    extra_inputs=lambda pipeline: {'name': pipeline.config.name},  # part of the destination
                    is_up_to_date=is_up_to_date)


def show(destination: str) -> None:
    """Print the versions in a destination, newest first, and check the files of each."""
    from pipelines.serving import published
    found = published.versions(destination)
    if not found:
        raise UserError(f'Nothing has been pushed to {destination}. Run `python -m pipelines.push` first.')
    print(f'{destination} holds {len(found)} version{"s" if len(found) > 1 else ""}, newest first:')
    for version in reversed(found):
        lineage = version.record.get('lineage', {})
        model = lineage.get('artifacts', {}).get('model', {}).get('digest', 'unknown')
        remarks = [f'damaged: {wrong}' if (wrong := version.damage()) else 'whole']
        if 'rolled_back_to' in version.record:
            remarks.append(f'rollback from {version.record["rolled_back_from"]} to {version.origin}')
        if version is found[-1]:
            remarks.append('serving loads this one')
        print(f'  {version.number}  {version.record.get("pushed", "date unknown")}  '
              f'{lineage.get("pipeline", "pipeline unknown")}  model {model[:12]}  {", ".join(remarks)}')


def roll_back(destination: str) -> None:
    """Go back to the model served before, and print its version."""
    from pipelines.serving import kit, labels, published, pusher
    labels.read(destination)  # if this fails, nothing has changed yet
    path = pusher.rollback(destination)
    record = published.verify(path)
    labels.write(destination, kit.model_name(destination))
    print(f'push: {path} is served now, with the files of version {record["rolled_back_to"]} instead of those of '
          f'{record["rolled_back_from"]}.', flush=True)


def main(argv=None) -> None:
    flags = cli.parser('push', __doc__)
    instead = flags.add_mutually_exclusive_group()
    instead.add_argument('--list', action='store_true', help='list the pushed versions and check their files')
    instead.add_argument('--rollback', action='store_true', help='serve the version that was served before')
    args, rest = flags.parse_known_args(argv)
    if not (args.list or args.rollback) or args.explain:
        cli.main(STAGE, flags, argv)
        return
    if rest:
        flags.error(f'unknown argument {rest[0]}; --help lists the flags')

    def work():
        (show if args.list else roll_back)(cli.find_place(args).destination)
    cli.run_command(work)


if __name__ == '__main__':
    main(sys.argv[1:])
