"""Check Beam's flags before any work: unknown flags, and values the runner cannot start with."""
import contextlib
import difflib
import io
from collections.abc import Collection

from data_prep import UserError
from pipelines.engines import dataflow

# Seen with Beam 2.72 and dask 2026.8.0: `transform_evaluator.ParDo` forgets the tag of an output, so the blocks of a
# scan arrive as its problems, too. It also computes a side input again in every step that takes it.
_DASK = ("--runner {}: Beam's runner for Dask gives each output of a step the elements of all its outputs, so it would "
         'prepare wrong data; give FlinkRunner, SparkRunner or PrismRunner')


def check(flags: list[str], root: str | None, known: Collection[str]) -> list[str]:
    """Refuse, all at once, flags unknown to the stage and to Beam, and values the runner cannot start with.

    Args:
      flags: Beam's.
      root: --pipeline_root, if given.
      known: names of the command's own flags, to suggest for a misspelt one.

    Returns:
      The flags, completed for the runner.

    Raises:
      UserError: names every flag at fault.
    """
    options = dataflow.read(flags)
    found = _beam_problems(flags, known, check_runner=options is None)
    if options:
        found += dataflow.problems(options, root)
    if found:
        raise UserError('; '.join(found) + ('' if found[-1].endswith('?') else '.'))
    return dataflow.complete(flags, options) if options else flags


def _beam_problems(flags: list[str], own: Collection[str], check_runner: bool) -> list[str]:
    """Return what Beam would ignore with a warning, or fail on with a traceback, as sentences."""
    from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions

    from pipelines.engines import portable
    if not flags[0].startswith('-'):
        return [f'{flags[0]!r} is not a flag; give a configuration as --config {flags[0]}; --help lists all flags']
    if any(flag.split('=')[0] == '--dry_run' for flag in flags):  # given to `pipelines.run`, for example
        return ['--dry_run is only a flag of `python -m pipelines.prepare`']
    with contextlib.redirect_stderr(io.StringIO()) as said:
        try:
            options = PipelineOptions(flags)
            runner = options.view_as(StandardOptions).runner or ''
            if runner.rpartition('.')[2].lower() in ('dask', 'daskrunner'):
                return [_DASK.format(runner)]
            known = options.get_all_options()
            unknown = portable.unknown_flags(
                options, set(options.get_all_options(retain_unknown_options=True)) - set(known))
        except SystemExit:  # raised by argparse for a missing value or one of the wrong type
            return [said.getvalue().rsplit('error: ', 1)[-1].removeprefix('argument ').strip()]
    every = {*known, *own}
    close = {name: difflib.get_close_matches(name, every, n=1) for name in unknown}
    found = [f'--{name} is a flag of neither this command nor Beam' + (f'; did you mean --{near[0]}?' if near else '')
             for name, near in close.items()]
    return found or (_runner_problems(options) if check_runner else [])


def _runner_problems(options) -> list[str]:
    from apache_beam.options.pipeline_options import StandardOptions
    from apache_beam.options.pipeline_options_validator import PipelineOptionsValidator
    from apache_beam.runners import create_runner

    from pipelines.engines import portable
    name = options.view_as(StandardOptions).runner or 'DirectRunner'
    try:
        runner = create_runner(name)
    except (ValueError, ImportError, AttributeError):
        near = difflib.get_close_matches(name, StandardOptions.KNOWN_RUNNER_NAMES, n=1)
        return [f'there is no --runner {name}' + (f'; did you mean {near[0]}?' if near else '')]
    found = [error.strip().rstrip('.') for error in PipelineOptionsValidator(options, runner).validate()]
    return found + portable.problems(options, type(runner).__name__)
