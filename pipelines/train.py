"""Trains the model of a configuration, and resumes exactly where a killed run stopped.

    python -m pipelines.train --strategy mirrored
    python -m pipelines.train --config my.yaml --set train.steps=20000
"""
import sys

from pipelines.core import cli, stage


def execute(context: stage.Context) -> None:
    from pipelines.training import trainer
    found = trainer.train(context.config, context.inputs['examples'].uri, context.outputs['model_run'])
    context.properties.update(found)


def check(config) -> None:
    from data_prep import UserError
    from pipelines.training import hybrid_parallel, strategy
    if (name := stage.name_of('train', config)) != 'train':
        raise UserError(f'{config.model_spec.name} is not trained; run `python -m pipelines.{name}`.')
    strategy.check(config.train)
    hybrid_parallel.check(config)
    given_weights(config)


def given_weights(config) -> list[str]:
    """The files of weights that training reads: what it starts from, and what its losses ask.

    Raises:
      UserError, ModelError: one is not there, or none is named that is needed.
    """
    import tensorflow as tf

    from data_prep import UserError
    from pipelines.training import checkpoints
    asked: list[str] = config.model_spec.files(config.model)
    for path in asked:
        if not tf.io.gfile.exists(path) and not tf.io.gfile.exists(f'{path}.index'):
            raise UserError(f'{path}: there is no such file; give the weights the losses ask, or do without.')
    return [*checkpoints.sources(config.train.init_from, config.model_spec), *asked]


def initial_weights(pipeline) -> dict:
    """Their sizes and times."""
    import tensorflow as tf
    found = {}
    for path in given_weights(pipeline.config):
        stat = tf.io.gfile.stat(f'{path}.index' if tf.io.gfile.exists(f'{path}.index') else path)
        found[path] = [stat.length, stat.mtime_nsec]
    return found


def is_worker(config) -> bool:
    from pipelines.training import strategy
    return strategy.is_worker(config.train)


STAGE = stage.Stage('train', execute, needs=('prepare',), outputs={'model_run': 'ModelRun'},
                    sections=('model', 'input', 'train'), roles=('data', 'model'),
                    extra_inputs=initial_weights, check=check, is_worker=is_worker)


def main(argv=None) -> None:
    flags = cli.parser('train', __doc__)
    flags.add_argument('--strategy', choices=['one_device', 'mirrored', 'multi_worker_mirrored', 'tpu'],
                       help='how replicas are distributed (train.strategy)')
    cli.main(STAGE, flags, argv)


if __name__ == '__main__':
    main(sys.argv[1:])
