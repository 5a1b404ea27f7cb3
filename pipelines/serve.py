"""Serves pushed models without Docker: TensorFlow Serving's REST and gRPC, and a page to try each model on.

    python -m pipelines.serve
    python -m pipelines.serve demo_translation
    python -m pipelines.serve runs/demo_images/serving/demo_images --rest_port 9001

Without names, everything that pipelines below `runs/` have pushed is served, also what they push later. A push or a
rollback takes over within seconds; no request fails by it. Ctrl-C or SIGTERM ends the server once all requests are
answered.
"""
import argparse
import os
import sys

from data_prep import UserError
from pipelines.core import cli


def main(argv=None) -> None:
    flags = _parser()
    args = flags.parse_args(argv)

    def work():
        cli.quiet_libraries()
        import asyncio

        from pipelines.serving import models, server
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
        settings = server.Settings(
            host=args.host, rest_port=args.rest_port, grpc_port=args.grpc_port, names=tuple(args.allow_host),
            keep=args.keep, labels=_labels(args.label), drain=args.drain_seconds, samples=args.samples,
            studio=_studio(args), poll=args.poll_seconds, limits=Limits(
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
                       help='names of runs, or folders that were pushed to (default: all below --runs)')
    flags.add_argument('--runs', metavar='DIR', default='runs', help='where pipelines are (default: runs)')
    flags.add_argument('--host', default='127.0.0.1', help='address to listen on (default: 127.0.0.1, this machine '
                       'alone); any other lets others ask, without passwords: see SECURITY.md')
    flags.add_argument('--rest_port', type=int, default=8501, help='REST and the page (default: 8501)')
    flags.add_argument('--grpc_port', type=int, default=8500, help='gRPC (default: 8500)')
    flags.add_argument('--allow_host', metavar='NAME', action='append', default=[],
                       help='a name by which the server is reached, as of a proxy before it; may be repeated')
    flags.add_argument('--keep', type=cli.positive, default=1, help='newest versions of a model that stay loaded '
                       '(default: 1)')
    flags.add_argument('--label', metavar='MODEL:LABEL=VERSION', action='append', default=[],
                       help='a label of a version, which then stays loaded; may be repeated')
    flags.add_argument('--samples', metavar='DIR', default='', help='a folder of people and garments in VITON-HD\'s '
                       'layout, shown on the page beside the made ones')
    flags.add_argument('--parser', metavar='FILE', default='', help='an ONNX file of a human parser; with it the page '
                       'of a try-on takes photographs')
    flags.add_argument('--parser_labels', metavar='NAME', default='',
                       help="the parser's label map, see `pipelines.photos` (default: lip of 20 labels, atr of 18)")
    flags.add_argument('--blazepose', metavar='DIR', default='weights/blazepose',
                       help='where BlazePose is, for photographs (default: weights/blazepose)')
    flags.add_argument('--max_batch', type=cli.positive, default=64, help='rows computed together (default: 64)')
    flags.add_argument('--batch_milliseconds', type=float, default=2, help='a request waits so long for others '
                       '(default: 2)')
    flags.add_argument('--max_queue', type=cli.positive, default=1024, help='rows of a model that may wait; more get '
                       '429 (default: 1024)')
    flags.add_argument('--max_body_mb', type=cli.positive, default=64, help='a larger body gets 413 (default: 64)')
    flags.add_argument('--wait_seconds', type=float, default=30, help='a request that waited so long gets 503 '
                       '(default: 30)')
    flags.add_argument('--drain_seconds', type=float, default=30, help='time to answer at the end (default: 30)')
    flags.add_argument('--poll_seconds', type=float, default=1, help='between looks for new versions (default: 1)')
    return flags


def _destination(name: str, runs: str) -> str:
    """The folder of versions that a MODEL means.

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
    known = f'; pushed are {", ".join(run)}' if run else ''
    raise UserError(f'MODEL {name}: neither a pushed model nor a folder of versions{known}. '
                    f'`python -m pipelines.run --config {os.path.basename(name) or name}` trains and pushes a '
                    'configuration of that name.')


def _studio(args: argparse.Namespace):
    """What makes samples of photographs; None without a parser."""
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
            raise UserError(f'--label {each}: write MODEL:LABEL=VERSION, as translation:stable=1763722800.')
        labels.setdefault(model, {})[label] = int(version)
    return labels


def _announce(server) -> None:
    from pipelines.serving import access
    host = server.settings.host
    print(f'serve: page and REST at {server.addresses["rest"]}, gRPC at {server.addresses["grpc"]}; Ctrl-C ends it.',
          flush=True)
    if not access.is_loopback(host):
        print(f'serve: --host {host} lets every machine that reaches this one ask these models: there are no passwords '
              'and no encryption. SECURITY.md says what to put before it.', flush=True)


if __name__ == '__main__':
    main(sys.argv[1:])
