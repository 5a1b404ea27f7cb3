"""Serve pushed models without Docker: TensorFlow Serving's REST and gRPC, and a web page to try each model.

    python -m pipelines.serve
    python -m pipelines.serve demo_translation
    python -m pipelines.serve runs/demo_images/serving/demo_images --rest_port 9001
    python -m pipelines.serve demo_images --format tflite_int8

Without names, every model that pipelines below `runs/` have pushed is served, including later pushes. A push or a
rollback takes effect within seconds, and no request fails because of it. Ctrl-C or SIGTERM stops the server after all
pending requests are answered.
"""
import argparse
import functools
import os
import sys

from data_prep import UserError
from data_prep.photos import BLAZEPOSE
from pipelines.core import cli
from pipelines.formats.table import FORMATS


def main(argv=None) -> None:
    flags = _parser()
    args = flags.parse_args(argv)

    def work():
        cli.prepare_libraries()
        import asyncio

        from pipelines.serving import loaded, models, server
        from pipelines.serving.batching import Limits
        from pipelines.serving.rest import Bounds
        if args.models:
            destinations = models.named(_destination(name, args.runs) for name in args.models)

            def find():
                return destinations
        else:
            def find():
                return models.pushed(args.runs)
        if not find():
            raise UserError(f'Nothing has been pushed below {args.runs}/. Run `python -m pipelines.run`, which trains '
                            'the demo and pushes it, or name the folder of a pushed model.')
        open_version = loaded.load
        if args.format:
            from pipelines.formats import runner, served
            for destination in find().values():
                runner.find(args.format, destination)  # refuses a model without it
            open_version = functools.partial(served.load, args.format)
        settings = server.Settings(
            host=args.host, rest_port=args.rest_port, grpc_port=args.grpc_port, names=tuple(args.allow_host),
            keep=args.keep, labels=_labels(args.label), drain=args.drain_seconds, samples=args.samples,
            studio=_studio(args), poll=args.poll_seconds, open_version=open_version, limits=Limits(
                rows=args.max_batch, delay=args.batch_milliseconds / 1000, queue=args.max_queue),
            bounds=Bounds(body=args.max_body_mb << 20, wait=args.wait_seconds))

        async def serve():
            await server.Server(find, settings).run(_announce)
        asyncio.run(serve())
    cli.run_command(work)


def _parser() -> argparse.ArgumentParser:
    flags = argparse.ArgumentParser(prog='python -m pipelines.serve', description=__doc__, allow_abbrev=False,
                                    formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument('models', nargs='*', metavar='MODEL',
                       help='names of runs, or folders of pushed versions (default: all below --runs)')
    flags.add_argument('--format', choices=[*FORMATS], help='answer with this format of the models, with which all of '
                       'them must have been pushed (default: with the SavedModel)')
    flags.add_argument('--runs', metavar='DIR', default='runs', help='folder of pipelines (default: runs)')
    flags.add_argument('--host', default='127.0.0.1', help='address to listen on (default: 127.0.0.1, only this '
                       'machine); any other gives everyone access without a password: see SECURITY.md')
    flags.add_argument('--rest_port', type=int, default=8501, help='port of REST and the page (default: 8501)')
    flags.add_argument('--grpc_port', type=int, default=8500, help='port of gRPC (default: 8500)')
    flags.add_argument('--allow_host', metavar='NAME', action='append', default=[],
                       help='host name the server is reached by, for example a proxy\'s; may be repeated')
    flags.add_argument('--keep', type=cli.positive, default=1, help='newest versions of a model kept loaded '
                       '(default: 1)')
    flags.add_argument('--label', metavar='MODEL:LABEL=VERSION', action='append', default=[],
                       help='label for a version, which stays loaded; may be repeated')
    flags.add_argument('--samples', metavar='DIR', default='', help='a folder of people and garments in VITON-HD\'s '
                       'layout, shown on the page beside the generated ones')
    flags.add_argument('--parser', metavar='FILE', default='', help='ONNX file of a human parser; with it the try-on '
                       'page accepts photographs')
    flags.add_argument('--parser_labels', metavar='NAME', default='',
                       help="the parser's label map, see `pipelines.photos` (default: lip for 20 labels, atr for 18)")
    flags.add_argument('--blazepose', metavar='DIR', default=BLAZEPOSE,
                       help='folder of BlazePose, for photographs (default: %(default)s)')
    flags.add_argument('--max_batch', type=cli.positive, default=64, help='rows per batch (default: 64)')
    flags.add_argument('--batch_milliseconds', type=float, default=2, help='time a request waits to join a batch '
                       '(default: 2)')
    flags.add_argument('--max_queue', type=cli.positive, default=1024, help='rows that may wait for a model; '
                       'further ones get 429 (default: 1024)')
    flags.add_argument('--max_body_mb', type=cli.positive, default=64, help='larger bodies get 413 (default: 64)')
    flags.add_argument('--wait_seconds', type=float, default=30, help='a request that waits longer gets 503 '
                       '(default: 30)')
    flags.add_argument('--drain_seconds', type=float, default=30, help='time to answer pending requests on exit '
                       '(default: 30)')
    flags.add_argument('--poll_seconds', type=float, default=1, help='interval between checks for new versions '
                       '(default: 1)')
    return flags


def _destination(name: str, runs: str) -> str:
    """Return the folder of versions that a MODEL names.

    Raises:
      UserError: there is none.
    """
    from pipelines.core import artifacts
    from pipelines.serving import models
    run = models.pushed(runs) if os.path.isdir(runs) else {}
    if name in run:
        return run[name]
    if artifacts.version_folders(name):
        return name.rstrip('/')
    known = f'; pushed models: {", ".join(run)}' if run else ''
    raise UserError(f'MODEL {name}: neither a pushed model nor a folder of versions{known}. '
                    f'`python -m pipelines.run --config {os.path.basename(name) or name}` trains and pushes a '
                    'configuration of that name.')


def _studio(args: argparse.Namespace):
    """Return the `Studio` that makes samples from photographs; None without a parser."""
    if not args.parser:
        return None
    from pipelines.serving.studio import Studio
    return Studio(args.blazepose, args.parser, args.parser_labels)


def _labels(given: list[str]) -> dict[str, dict[str, int]]:
    labels: dict[str, dict[str, int]] = {}
    for each in given:
        model, colon, rest = each.rpartition(':')
        label, equals, version = rest.partition('=')
        if not (model and colon and label and equals and version.isdecimal()):
            raise UserError(f'--label {each}: write MODEL:LABEL=VERSION, for example translation:stable=1763722800.')
        labels.setdefault(model, {})[label] = int(version)
    return labels


def _announce(server) -> None:
    from pipelines.serving import access
    host = server.settings.host
    print(f'serve: page and REST at {server.addresses["rest"]}, gRPC at {server.addresses["grpc"]}; Ctrl-C ends it.',
          flush=True)
    if not access.is_loopback(host):
        print(f'serve: --host {host} gives every machine that reaches this one access to the models: there are no '
              'passwords and no encryption. SECURITY.md says what to put in front of it.', flush=True)


if __name__ == '__main__':
    main(sys.argv[1:])
