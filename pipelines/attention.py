"""Draws where a trained Transformer looks, as figures 3 to 5 of Vaswani et al. 2017: every layer, every head.

    python -m pipelines.attention "Thursday, July 16, 2026"
    python -m pipelines.attention --config my.yaml --target "Er schläft." "He sleeps."

Leaves `attention.html`, one page that needs no network, and PNGs of every layer. Without --target the model's own
translation is looked at.
"""
import sys

from pipelines.core import cli


def main(argv=None) -> None:
    flags = cli.parser('attention', __doc__ or '')
    flags.add_argument('sentence', help='what the model reads')
    flags.add_argument('--target', default='', help='the translation to look at (default: the model\'s own)')
    flags.add_argument('--out', metavar='DIR', default='attention',
                       help='where the page and images go (default: attention)')
    args = cli.parse(flags, argv)
    if not args:
        return

    def work():
        pipeline = cli.open_pipeline(args)
        from pipelines.reporting import attention
        print(attention.write(attention.look(pipeline, args.sentence, args.target), args.out))
    cli.run_command(work)


if __name__ == '__main__':
    main(sys.argv[1:])
