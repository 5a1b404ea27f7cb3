"""Run a pushed or exported model on lines, images, or pairs of person and garment.

Lines give their translations in order; images give a table and contact sheets; pairs give images and contact sheets.

    python -m pipelines.predict < lines.txt
    python -m pipelines.predict --model runs/demo_translation/serving/demo_translation < lines.txt
    python -m pipelines.predict --config demo_images photos/ more.jpg
    python -m pipelines.predict --config viton_hd people/test_pairs.txt
    python -m pipelines.predict --config demo_images --format tflite photos/
"""
import argparse
import contextlib
import sys

from data_prep import UserError
from pipelines.core import cli
from pipelines.formats.table import FORMATS


def main(argv=None) -> None:
    flags = cli.parser('predict', __doc__)
    flags.add_argument('files', nargs='*', metavar='FILE',
                       help='for a model of images: images, or folders to search for them; for try-on: '
                            'pairs files, and optionally the folder of the images they name')
    flags.add_argument('--out', metavar='DIR', default='predictions',
                       help='folder for the table and images (default: predictions)')
    flags.add_argument('--model', metavar='DIR', help='a pushed or exported model (default: the last pushed)')
    flags.add_argument('--format', choices=[*FORMATS], help='run the model in this format, if it was pushed with it')
    flags.add_argument('--batch_size', type=cli.positive, help='inputs per batch (default: 128 lines or 64 images)')
    flags.add_argument('--jit', action='store_true', help='compile decoding with XLA')
    args = cli.parse(flags, argv)
    if not args:
        return

    def work():
        cli.prepare_libraries()
        from pipelines.serving import saved_model
        path = args.model
        if not path:
            with contextlib.redirect_stdout(sys.stderr):  # standard output holds only predictions
                memory = cli.find_memory(args, [])
                known = memory and memory.recall(['push'])
                outputs = known.results['push'] if known else cli.open_pipeline(args).outputs('push', make=False)
                path = outputs['pushed_model'].properties['path']
        if args.format:
            from pipelines.formats import runner
            model = runner.load(runner.find(args.format, path))
        else:
            model = saved_model.load(path)
        if args.model:
            _check_data(args, model)
        task = saved_model.spec_of(model.description).tasks[0]
        if (task in ('image', 'try_on')) != bool(args.files):
            raise UserError(f'This model takes lines, not files. Give < {args.files[0]}' if args.files else
                            'This model takes images. Name files or folders.' if task == 'image' else
                            'This model takes pairs. Name a pairs file.')
        if task == 'try_on':
            from pipelines.serving import predict_pairs
            predict_pairs.write(model, args.files, args.out)
            return
        if args.files:
            from pipelines.serving import predict_images
            predict_images.write(model, args.files, args.out, args.batch_size, args.jit)
            return
        from pipelines.serving import familiarity
        doubts = Doubts(familiarity.read(model.path))
        for first, block in _blocks(sys.stdin.buffer):
            doubts.look(first, block)
            for number, result in enumerate(saved_model.run(model, block, args.batch_size, args.jit), first):
                if result.get('error'):
                    raise UserError(f'standard input, line {number:,}: {result["error"]}.')
                print(' '.join(result['answers'][0].splitlines()))
            sys.stdout.flush()
        doubts.close()
    cli.run_command(work)


class Doubts:
    """Warn on standard error about lines unlike the training text, whose outputs may be nonsense.

    Args:
      profile: `familiarity.Profile` of the model; None disables the warnings.
    """
    MOST = 3  # lines reported individually

    def __init__(self, profile):
        self._profile, self._count = profile, 0

    def look(self, first: int, lines: list[str]) -> None:
        """Check lines, numbered from `first`."""
        for number, line in enumerate(lines if self._profile else [], first):
            if self._profile.is_unlike(line):
                self._count += 1
                if self._count <= self.MOST:
                    print(f'note: line {number:,} is unlike the training text: {self._profile.share(line):.0%} of its '
                          'character sequences occur there. Its output may be nonsense.', file=sys.stderr, flush=True)

    def close(self) -> None:
        if self._count > self.MOST:
            print(f'note: {self._count - self.MOST:,} more lines are also unlike it.', file=sys.stderr, flush=True)


def _check_data(args: argparse.Namespace, model) -> None:
    """Refuse a named model together with a configuration whose data is prepared by other rules."""
    if args.config or args.overrides:
        from pipelines.core import compatibility, config
        compatibility.check(f'--model {args.model}', model.description, config.load(args.config, args.overrides).data)


def _blocks(stream, size: int = 4096):
    """Yield blocks of lines, each with the number of its first line.

    Blocks bound the memory and give outputs before the input ends.
    """
    block: list[str] = []
    for number, line in enumerate(stream, 1):
        try:
            block.append(line.decode('utf-8').rstrip('\r\n'))
        except UnicodeDecodeError as error:
            if block:  # process the lines before the bad one
                yield number - len(block), block
            raise UserError(f'standard input, line {number:,}: not UTF-8 (byte 0x{line[error.start]:02x} at '
                            f'position {error.start}). Convert it first, for example with iconv.') from error
        if len(block) == size:
            yield number - size + 1, block
            block = []
    if block:
        yield number - len(block) + 1, block


if __name__ == '__main__':
    main(sys.argv[1:])
