"""Educate machines that learn by play instead of training, resuming exactly where a killed run stopped.

    python -m pipelines.educate --config learning_machine_nim
    python -m pipelines.educate --config learning_machine_noughts --teacher

With `--teacher`, a person is the schoolmaster of one of them; with `--mechanic`, another person looks into it.
"""
import dataclasses
import sys
import typing

from pipelines.core import cli, stage

if typing.TYPE_CHECKING:  # a command imports little before its flags are read
    from pipelines.core.config import Config


def execute(context: stage.Context) -> None:
    from pipelines.training import education
    facts = education.educate(context.config, context.inputs['examples'].uri, context.outputs['model_run'])
    context.properties.update(dataclasses.asdict(facts))


def check(config: 'Config') -> None:
    """Refuse models that do not learn by play, and settings that are for networks."""
    from data_prep import UserError
    if stage.name_of('train', config) != 'educate':
        raise UserError(f'{config.model_spec.name} does not learn by play; run `python -m pipelines.train`.')
    if config.train.strategy != 'one_device' or config.train.init_from or config.train.monitor or config.train.ema:
        raise UserError('train.strategy, train.init_from, train.monitor and train.ema are for networks. Leave them out '
                        'for machines that learn by play.')
    assert config.model_spec.check_game  # every model that plays has it
    config.model_spec.check_game(config.model, config.data.game, config.data.options)


STAGE = stage.Stage('educate', execute, needs=('prepare',), outputs={'model_run': 'ModelRun'},
                    sections=('model', 'input', 'train'), roles=('data', 'model'), check=check)


def main(argv=None) -> None:
    flags = cli.parser('educate', __doc__ or '')
    flags.add_argument('--teacher', action='store_true', help='teach the best of the machines yourself, by keyboard')
    flags.add_argument('--mechanic', action='store_true', help='look into the machine that --teacher teaches, and put '
                       'it back to an earlier position')
    args, rest = flags.parse_known_args(argv)
    if not (args.teacher or args.mechanic) or args.explain:
        cli.main(STAGE, flags, argv)
        return
    if rest:
        flags.error(f'unknown argument {rest[0]}')
    if args.teacher and args.mechanic:
        flags.error('--teacher and --mechanic are for two persons; give one of them')

    def work():
        pipeline = cli.open_pipeline(args)
        STAGE.check(pipeline.config)
        from pipelines.training import mechanic, teacher
        (teacher.teach if args.teacher else mechanic.inspect)(pipeline, sys.stdin, sys.stdout)
    cli.run_command(work)


if __name__ == '__main__':
    main(sys.argv[1:])
