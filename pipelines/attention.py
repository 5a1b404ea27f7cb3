"""Draw a Transformer's attention, every layer and head, as figures 3 to 5 of Vaswani et al. 2017 do.

    python -m pipelines.attention "Thursday, July 16, 2026"
    python -m pipelines.attention --config my.yaml --target "Er schläft." "He sleeps."

Write `attention.html`, one self-contained page, and a PNG of every layer. Without --target, the attention is that of
the model's own translation.
"""
import sys

from pipelines.core import cli


def main(argv=None) -> None:
    flags = cli.parser('attention', __doc__ or '')
    flags.add_argument('sentence', help='input sentence')
    flags.add_argument('--target', default='', help='translation to draw (default: the model\'s own)')
    flags.add_argument('--out', metavar='DIR', default='attention',
                       help='folder for the page and images (default: attention)')
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
