"""Run the whole pipeline: raw data in, a gated and pushed SavedModel out. Stages that are up to date are skipped.

    python -m pipelines.run
    python -m pipelines.run --config my.yaml
    python -m pipelines.run --list
    python -m pipelines.run --compile pipeline.yaml --image IMAGE --pipeline_root gs://BUCKET/runs/my

With --compile it runs nothing: it writes the stages as a pipeline for Kubeflow Pipelines or Vertex AI.
"""
import argparse
import json
import os
import shlex
import shutil
import sys
import time
import typing

from pipelines.core import cli, commands, shipped, stage

if typing.TYPE_CHECKING:  # keep imports light until the flags are parsed
    from rich.console import Console

    from pipelines.core.config import Config
    from pipelines.core.pipeline import Pipeline
    from pipelines.core.places import Place


def main(argv=None) -> None:
    flags = cli.parser('run', __doc__)
    flags.add_argument('--strategy', choices=['one_device', 'mirrored', 'multi_worker_mirrored', 'tpu'],
                       help='distribution of replicas (train.strategy)')
    flags.add_argument('--list', action='store_true', help='list the shipped configurations')
    flags.add_argument('--compile', metavar='FILE', help='write a Kubeflow pipeline of the stages into this YAML file')
    flags.add_argument('--image', default='', help='with --compile: container image of the steps')
    for name in ('project', 'region'):
        flags.add_argument(f'--vertex_{name}', default='', metavar=name.upper(),
                           help=f'with --compile: for Vertex AI, in this {name}')
    args, rest = flags.parse_known_args(argv)
    if not args.compile and (args.image or args.vertex_project or args.vertex_region):
        flags.error('--image, --vertex_project and --vertex_region need --compile FILE')
    if args.list:
        return cli.run_command(lambda: print(shipped.listing(shutil.get_terminal_size((120, 24)).columns)))

    def work():
        started = time.monotonic()
        memory = None if args.compile else cli.find_memory(args, rest)
        if memory and (known := memory.recall()):
            known.say()
            summary(memory.place, known.results, known.example, f'0 stages run, {len(known.results)} skipped', started)
            return
        pipeline = cli.open_pipeline(args, rest)
        if args.explain:
            return
        if args.compile:
            compile_stages(args, pipeline.config, rest)
            return
        results: dict[str, dict] = {}
        for name in stage.STAGES:
            stage.get(name, pipeline.config).check(pipeline.config)
        for name in stage.STAGES:
            outputs = pipeline.run(stage.get(name, pipeline.config))
            if not outputs:
                print(f'run: {name} is done; the chief continues.', flush=True)
                return
            results[name] = outputs
        example = try_out(pipeline, results)
        done = f'{len(pipeline.seconds)} stages run, {len(pipeline.skipped)} skipped'
        summary(pipeline, results, example, done, started)
        if memory:
            memory.remember(pipeline, example)
    return cli.run_command(work)


def compile_stages(args: argparse.Namespace, config: 'Config', beam: list[str]) -> None:
    """Write the pipeline's file and print the command that runs it."""
    from pipelines.core import stores
    from pipelines.engines import cluster, kubeflow
    target = cluster.Target(args.image, args.pipeline_root or '', args.vertex_project, args.vertex_region,
                            stores.environment())
    kubeflow.write(args.compile, config, {name: stage.get(name, config) for name in stage.STAGES}, target, beam)
    submit = ['kfp', 'run', 'create', '--experiment-name', config.name, '--package-file', args.compile]
    if target.is_vertex:
        name, file, root, project, region = map(json.dumps, (
            config.name, args.compile, f'{args.pipeline_root}/vertex', args.vertex_project, args.vertex_region))
        submit = [commands.python(), '-c', 'from google.cloud import aiplatform; aiplatform.PipelineJob('
                  f'{name}, {file}, pipeline_root={root}, project={project}, location={region}).submit()']
    print(f'run: {args.compile} holds the pipeline, a step for each stage. Next:\n  {shlex.join(submit)}', flush=True)


def try_out(pipeline: 'Pipeline', results: dict[str, dict]) -> dict[str, str]:
    """Print predictions of a newly made model for a few unseen inputs.

    Returns:
      Input for the command `predict`: a `line` of text, or the `argument` to give.
    """
    if pipeline.config.data_spec.task == 'try_on':  # outputs are images, which a table cannot show
        return {'argument': 'PAIRS_FILE'}
    from rich.table import Table
    inputs, shown, references = unseen(pipeline.config, results['prepare']['examples'].uri)
    if inputs and pipeline.seconds:  # loading the model takes 3 s, half of a run that skips every stage
        from pipelines.serving import saved_model
        model = saved_model.load(results['push']['pushed_model'].properties['path'])
        table = Table('input', 'pushed model\'s output', 'reference', title='Unseen inputs', title_justify='left')
        for source, reference, answer in zip(shown, references, saved_model.run(model, inputs)):
            table.add_row(source, answer['answers'][0], reference)
        _console().print(table)
    return {'line': inputs[0]} if inputs == shown else {'argument': 'FOLDER_OR_PICTURE'}


def summary(place: 'Place | Pipeline', results: dict[str, dict], example: dict[str, str], done: str,
            started: float) -> None:
    """Print where outputs are, and the next commands.

    Args:
      example: see `try_out`.
      done: how many stages were run and skipped.
      started: when, by the monotonic clock.
    """
    from rich.table import Table

    from pipelines.core import stores
    console = _console()
    found = {key: artifact for outputs in results.values() for key, artifact in outputs.items()}
    artifacts = Table('artifact', 'where', title='Artifacts', title_justify='left')
    for key in ('examples', 'model_run', 'model', 'report', 'pushed_model'):
        where = found[key].properties['path'] if key == 'pushed_model' else found[key].uri
        artifacts.add_row(found[key].type, _shown(where))
    artifacts.add_row('lineage', _shown(stores.address(place.root)))
    console.print(artifacts)
    console.print(f'{done}, {time.monotonic() - started:.0f} s. Next:')
    ask, python = place.command('predict'), commands.python()
    for line in (f'echo "{example["line"]}" | {ask}' if 'line' in example else f'{ask} {example["argument"]}',
                 f'{python} -m webbrowser -t {_shown(os.path.join(found["report"].uri, "report.html"))}',
                 f'{python} -m tensorboard.main --logdir {_shown(found["model_run"].uri)}',
                 f'{place.command("push")} --list'):
        console.print(f'  {line}')


def _console() -> 'Console':
    from rich.console import Console
    return Console(soft_wrap=True, highlight=False, markup=False)  # [x] in a --set is not markup


def _shown(path: str) -> str:
    return path if '://' in path else os.path.relpath(path)


def unseen(config: 'Config', examples: str, count: int = 6):
    """Return inputs spread evenly over the held-out split, what to show of each, and references."""
    from data_prep.core import records
    split = records.open_split(examples, config.evaluate.split)
    step = max(1, len(split) // count)
    inputs, columns = config.data_spec.examples(split.read(range(step // 2, len(split), step)[:count]))
    return inputs, columns['source' if 'source' in columns else 'file'], columns['target']


if __name__ == '__main__':
    main(sys.argv[1:])
