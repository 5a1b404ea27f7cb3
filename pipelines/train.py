"""Trains the model of a configuration, and resumes exactly where a killed run stopped.

    python -m pipelines.train --strategy mirrored
    python -m pipelines.train --config my.yaml --set train.steps=20000
"""
import sys

from pipelines import stage


def execute(context: stage.Context) -> None:
    from pipelines import trainer
    found = trainer.train(context.config, context.inputs['examples'].uri, context.outputs['model_run'])
    context.properties.update(found)


def check(config) -> None:
    from pipelines import checkpoints, strategy
    strategy.check(config.train)
    if config.train.init_from:
        checkpoints.find(config.train.init_from, config.model_module)


def initial_weights(pipeline) -> dict:
    """Size and time of the weights training starts from."""
    import tensorflow as tf

    from pipelines import checkpoints
    if not pipeline.config.train.init_from:
        return {}
    path = checkpoints.find(pipeline.config.train.init_from, pipeline.config.model_module)
    stat = tf.io.gfile.stat(f'{path}.index' if tf.io.gfile.exists(f'{path}.index') else path)
    return {path: [stat.length, stat.mtime_nsec]}


def follows(config) -> bool:
    from pipelines import strategy
    return strategy.follows(config.train)


STAGE = stage.Stage('train', execute, needs=('prepare',), outputs={'model_run': 'ModelRun'},
                    sections=('model', 'input', 'train'), also=initial_weights, check=check, follows=follows)


def main(argv=None) -> None:
    flags = stage.parser('train', __doc__)
    flags.add_argument('--strategy', choices=['one_device', 'mirrored', 'multi_worker_mirrored', 'tpu'],
                       help='how replicas are distributed (train.strategy)')
    stage.main(STAGE, flags, argv)


if __name__ == '__main__':
    main(sys.argv[1:])
