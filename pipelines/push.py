"""Push a blessed model to where TensorFlow Serving finds it; list what was pushed; roll back; try a canary, promote it.

    python -m pipelines.push
    python -m pipelines.push --set push.destination=gs://bucket/models/translation
    python -m pipelines.push --list
    python -m pipelines.push --rollback
    python -m pipelines.push --canary
    python -m pipelines.push --promote --requests requests.tfrecord

Only a model blessed by both evaluation and infra validation is pushed. TFX's Pusher takes a missing blessing for given;
here it blocks the push. Other formats of the model (`export --to`) go with it if `evaluate --format` has blessed them.

A canary is served beside the version to serve, to those who ask for the label `canary`. It is promoted, to be the
version to serve, if it is not worse on the gate's split and not slower on recorded requests.
"""
import os
import sys
import typing

from data_prep import UserError
from pipelines.core import cli, stage
from pipelines.formats.table import STAGES
from pipelines.serving.layout import FORMAT

if typing.TYPE_CHECKING:  # keep imports light until the flags are parsed
    from pipelines.core.pipeline import Pipeline


def execute(context: stage.Context) -> None:
    from pipelines.release import handover
    from pipelines.serving import published, pusher
    destination = context.pipeline.destination
    lineage, formats = handover.checked(context)
    before = published.versions(destination)
    path = pusher.publish(os.path.join(context.inputs['model'].uri, FORMAT), destination, lineage, formats)
    handover.record(context, 'pushed_model', path, formats)
    print(f'push: {path} is the version to serve; {_write_kit(context, path, destination)}', flush=True)
    if formats:
        print(f'push: it holds {", ".join(formats)} too, in {os.path.join(path, published.FORMATS)}.', flush=True)
    if lost := [name for name in (before[-1].formats if before else []) if name not in formats]:
        print(f'push: the version before held {", ".join(lost)} too. To push them again, export and evaluate them.',
              flush=True)


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


STAGE = stage.Stage('push', execute, needs=('export', 'evaluate', 'infra_validate'),
                    takes=STAGES,
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
        if version.formats:
            remarks.append(f'with {", ".join(version.formats)}')
        if 'rolled_back_to' in version.record:
            remarks.append(f'rollback from {version.record["rolled_back_from"]} to {version.origin}')
        if 'promoted_from' in version.record:
            remarks.append(f'promotion of {version.record["promoted_from"]}')
        if version.is_canary:
            remarks.append('canary')
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


def promote(pipeline: 'Pipeline', requests: str | None) -> None:
    """Let the canary be the version to serve, if it is not worse, and print its version."""
    from pipelines.release import promotion
    from pipelines.serving import published
    path = promotion.promote(pipeline, requests)
    tried = published.verify(path)['promoted_from']
    print(f'push: {path} is served now, with the files of canary {tried}.', flush=True)


def main(argv=None) -> None:
    flags = cli.parser('push', __doc__)
    instead = flags.add_mutually_exclusive_group()
    instead.add_argument('--list', action='store_true', help='list the pushed versions and check their files')
    instead.add_argument('--rollback', action='store_true', help='serve the version that was served before')
    instead.add_argument('--canary', action='store_true', help='serve the model beside the version to serve')
    instead.add_argument('--promote', action='store_true', help='serve the canary to everyone, if it is not worse')
    flags.add_argument('--requests', metavar='FILE', help='with --promote: requests that TensorFlow Serving recorded, '
                       'for the latency (default: the warm-up requests)')
    args, rest = flags.parse_known_args(argv)
    if args.requests and not args.promote:
        flags.error('--requests needs --promote')
    if not (args.list or args.rollback or args.promote) or args.explain:
        cli.main(stage.get('release.canary') if args.canary else STAGE, flags, argv)
        return
    if rest:
        flags.error(f'unknown argument {rest[0]}; --help lists the flags')

    def work():
        if args.promote:
            promote(cli.open_pipeline(args), args.requests)
        else:
            (show if args.list else roll_back)(cli.find_place(args).destination)
    cli.run_command(work)


if __name__ == '__main__':
    main(sys.argv[1:])
