"""Train the model of a configuration, or resume exactly where a killed run stopped.

    python -m pipelines.train --strategy mirrored
    python -m pipelines.train --config my.yaml --set train.steps=20000
    python -m pipelines.train --manifest job.yaml --image IMAGE --workers 4 --pipeline_root gs://BUCKET/runs/my

With --manifest it trains nothing: it writes a JobSet that trains on several machines of a Kubernetes cluster.
"""
import argparse
import dataclasses
import shlex
import sys
import typing

from pipelines.core import cli, stage

if typing.TYPE_CHECKING:  # keep imports light until the flags are parsed
    from pipelines.core.config import Config
    from pipelines.core.pipeline import Pipeline


def execute(context: stage.Context) -> None:
    from pipelines.training import trainer
    facts = trainer.train(context.config, context.inputs['examples'].uri, context.outputs['model_run'])
    context.properties.update(dataclasses.asdict(facts))


def check(config: 'Config') -> None:
    from data_prep import UserError
    from pipelines.training import curriculum, hybrid_parallel, strategy
    from pipelines.training import ema as averages
    if (name := stage.name_of('train', config)) != 'train':
        raise UserError(f'{config.model_spec.name} is not trained by gradient steps. Run `python -m pipelines.{name}`.')
    if config.train.patience and not config.train.monitor:
        raise UserError('train.patience needs a metric to wait for. Set train.monitor, such as train.monitor=loss.')
    if config.decodes_validation and config.train.monitor_mode == 'min':
        raise UserError(f'train.monitor: {config.train.monitor} is better when higher. Set train.monitor_mode=max.')
    strategy.check(config.train)
    averages.check(config.train)
    hybrid_parallel.check(config)
    curriculum.phases(config)
    given_weights(config)


def given_weights(config: 'Config') -> list[str]:
    """Return the weight files that training reads: initial weights, and networks its losses use.

    Raises:
      UserError, ModelError: one does not exist, or a required one is not named.
    """
    import tensorflow as tf

    from data_prep import UserError
    from pipelines.training import checkpoints
    asked: list[str] = config.model_spec.files(config.model)
    for path in asked:
        if not tf.io.gfile.exists(path) and not tf.io.gfile.exists(f'{path}.index'):
            raise UserError(f'{path} not found. Give the loss network\'s weights, or set its loss weight to 0.')
    return [*checkpoints.sources(config.train.init_from, config.model_spec), *asked]


def extra_inputs(pipeline: 'Pipeline') -> dict:
    """Return sizes and times of those files, and the settings with which validation decodes, if it does."""
    import tensorflow as tf
    values, found = pipeline.config.values, {}
    if pipeline.config.decodes_validation:
        found = {'inference': values['inference'], 'target': values['data'].get('target')}
    for path in given_weights(pipeline.config):
        stat = tf.io.gfile.stat(f'{path}.index' if tf.io.gfile.exists(f'{path}.index') else path)
        found[path] = [stat.length, stat.mtime_nsec]
    return found


def watched(config: 'Config') -> list[str] | None:
    """Return the weight files whose names the configuration gives; None if they must be searched for."""
    if config.train.init_from:
        return None
    return [file for path in given_weights(config) for file in (path, f'{path}.index')]


def is_worker(config: 'Config') -> bool:
    from pipelines.training import strategy
    return strategy.is_worker(config.train)


STAGE = stage.Stage('train', execute, needs=('prepare',), outputs={'model_run': 'ModelRun'},
                    sections=('model', 'input', 'train'), roles=('data', 'model', 'decoded'),
                    extra_inputs=extra_inputs, watched=watched, check=check, is_worker=is_worker)


def main(argv=None) -> None:
    flags = cli.parser('train', __doc__)
    flags.add_argument('--strategy', choices=['one_device', 'mirrored', 'multi_worker_mirrored', 'tpu'],
                       help='distribution of replicas (train.strategy)')
    flags.add_argument('--manifest', metavar='FILE', help='write a JobSet of several workers into this YAML file')
    flags.add_argument('--image', default='', help='with --manifest: container image of the workers')
    flags.add_argument('--workers', type=cli.positive, default=2, help='with --manifest: their number (default: 2)')
    args, rest = flags.parse_known_args(argv)
    if args.image and not args.manifest:
        flags.error('--image needs --manifest FILE')
    if args.manifest and not rest and not args.explain:
        cli.run_command(lambda: write_manifest(args))
    else:
        cli.main(STAGE, flags, argv)


def write_manifest(args: argparse.Namespace) -> None:
    """Write the manifest of a JobSet, and print the command that submits it."""
    config = cli.open_pipeline(args).config
    from pipelines.core import stores
    from pipelines.engines import jobset
    from pipelines.engines.cluster import Target
    from pipelines.training.loop import PREEMPTED
    jobset.write(args.manifest, config, Target(args.image, args.pipeline_root or '', environment=stores.environment()),
                 args.workers, PREEMPTED)
    print(f'train: {args.manifest} holds the job. Next:\n  {shlex.join(["kubectl", "apply", "-f", args.manifest])}',
          flush=True)


if __name__ == '__main__':
    main(sys.argv[1:])
