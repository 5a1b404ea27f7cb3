"""Asks a pushed or exported model: lines in, translations out, in order; pictures in, a table and sheets out; pairs of
persons and garments in, pictures and sheets out.

    python -m pipelines.predict < lines.txt
    python -m pipelines.predict --model runs/demo_translation/serving/demo_translation < lines.txt
    python -m pipelines.predict --config demo_images photos/ more.jpg
    python -m pipelines.predict --config viton_hd people/test_pairs.txt
"""
import argparse
import contextlib
import importlib
import json
import os
import re
import sys
import types

from data_prep import UserError
from pipelines import stage
from pipelines.export import DESCRIPTION


def load(path: str):
    """Loads an exported model.

    Args:
      path: a SavedModel, or a folder of integer versions, of which the highest is taken as serving does.

    Raises:
      UserError: there is no exported model, or its files are not those that were recorded.
    """
    import tensorflow as tf
    import tensorflow_text  # noqa: F401 (registers the tokenizer's ops)

    from pipelines import artifacts, strategy
    if not tf.io.gfile.exists(path):
        raise UserError(f'--model {path}: there is no such folder.')
    if not tf.io.gfile.exists(os.path.join(path, 'saved_model.pb')):
        versions = artifacts.version_folders(path)
        if not versions:
            raise UserError(f'--model {path}: neither a SavedModel nor a folder of pushed versions; '
                            'run `python -m pipelines.push` to make one.')
        path = versions[-1]
    check_hashes(path)
    try:
        with tf.io.gfile.GFile(os.path.join(path, DESCRIPTION)) as file:
            description = json.loads(file.read())
        strategy.share_cores(getattr(_module(description), 'AT_ONCE', 1))
        model = tf.saved_model.load(path)  # noqa: TID251 (after check_hashes)
        model.description = description
    except (OSError, ValueError, tf.errors.OpError) as error:
        raise UserError(f'--model {path} cannot be loaded ({str(error).splitlines()[0]}); '
                        'remove it and push again.') from error
    return model


def check_hashes(saved_model: str) -> None:
    """Refuses a SavedModel whose files are not those that were recorded: it is a program, and runs when it is asked.

    A pushed version has their hashes with it; those of an exported model are in its pipeline's metadata.

    Raises:
      UserError: they differ, or nothing is recorded of them.
    """
    import tensorflow as tf

    from pipelines import artifacts, pusher
    if tf.io.gfile.exists(os.path.join(saved_model, pusher.RECORD)):
        pusher.verify(saved_model)
        return
    folder = os.path.dirname(saved_model.rstrip('/'))
    recorded, root = None, artifacts.root_of(folder)
    if root:
        place = os.path.join('/', *folder.split('/')[-3:])  # export/<execution>/model
        with artifacts.opened(root) as store:
            recorded = next((digest for _, uri, digest in store.digests('Model') if f'/{uri}'.endswith(place)), None)
    if not recorded:
        raise UserError(f'{saved_model} is not loaded, for nothing says which files it should have: it has no '
                        f'{pusher.RECORD} and no pipeline recorded it; give a pushed version, or an exported model '
                        'where its pipeline left it.')
    if artifacts.digest(folder) != recorded:
        raise UserError(f'{saved_model} is not loaded: its files are not those that were exported (SHA-256 differs); '
                        f'remove {folder} and run the pipeline again.')


def run(model, inputs: list, batch_size: int | None = None, jit: bool = False) -> list[dict]:
    """Answers of a loaded model, in order, by the batching of the system it is of, which knows a good size, too."""
    module = _module(model.description)
    compiled = jit or model.description['config']['export']['jit']
    size = {'batch_size': batch_size} if batch_size else {}
    return module.predict(model, inputs, **size, jit=compiled)


def _module(description: dict) -> types.ModuleType:
    """The system a model is of."""
    name = description['model_module']
    if not re.fullmatch(r'keras_models(\.\w+)+', name):
        raise UserError(f'{DESCRIPTION} names {name!r}, which is no model of this project.')
    return importlib.import_module(name)


def main(argv=None) -> None:
    flags = stage.parser('predict', __doc__)
    flags.add_argument('files', nargs='*', metavar='FILE',
                       help='for a model of pictures: pictures, or folders that are searched for them; for try-on: '
                            'pairs files, and possibly the folder of what they name')
    flags.add_argument('--out', metavar='DIR', default='predictions',
                       help='where the table and the pictures go (default: predictions)')
    flags.add_argument('--model', metavar='DIR', help='a pushed or exported model (default: the one last pushed)')
    flags.add_argument('--batch_size', type=_positive, help='at once (default: 128 lines or 64 pictures)')
    flags.add_argument('--jit', action='store_true', help='compile decoding by XLA')
    args = flags.parse_args(argv)

    def work():
        if args.model:
            stage.quiet_libraries()
            model = load(args.model)
            _check_data(args, model)
        else:
            with contextlib.redirect_stdout(sys.stderr):  # standard output is for answers alone
                pushed = stage.open_pipeline(args).outputs('push')['pushed_model']
            model = load(pushed.properties['path'])
        asked = {*model.signatures['serving_default'].structured_input_signature[1]}
        if ('image' in asked) != bool(args.files):
            raise UserError(f'This model takes lines on standard input, not files: < {args.files[0]}' if args.files else
                            'This model is asked about pictures: name files or folders.' if asked == {'image'} else
                            'This model is asked about pairs: name a pairs file.')
        if 'cloth' in asked:
            from pipelines import predict_pairs
            predict_pairs.write(model, args.files, args.out)
            return
        if args.files:
            from pipelines import predict_images
            predict_images.write(model, args.files, args.out, args.batch_size, args.jit)
            return
        for first, block in _blocks(sys.stdin.buffer):
            for number, result in enumerate(run(model, block, args.batch_size, args.jit), first):
                if result.get('error'):
                    raise UserError(f'standard input, line {number:,}: {result["error"]}.')
                print(' '.join(result['answers'][0].splitlines()))
            sys.stdout.flush()
    stage.run_command(work)


def _check_data(args: argparse.Namespace, model) -> None:
    """Refuses a named model beside a configuration whose data are prepared otherwise."""
    if args.config or args.overrides:
        from pipelines import config, preparation
        preparation.check(f'--model {args.model}', model.description, config.load(args.config, args.overrides).data)


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f'it must be a whole number of 1 or more, and is {text!r}')
    return int(text)


def _blocks(stream, size: int = 4096):
    """Blocks of lines, each with the number of its first, so that memory does not grow with their number and
    answers come before the input ends."""
    block: list[str] = []
    for number, line in enumerate(stream, 1):
        try:
            block.append(line.decode('utf-8').rstrip('\r\n'))
        except UnicodeDecodeError as error:
            if block:  # those before it are answered
                yield number - len(block), block
            raise UserError(f'standard input, line {number:,}: not UTF-8 (byte 0x{line[error.start]:02x} at '
                            f'position {error.start}); convert it first, for example with iconv.') from error
        if len(block) == size:
            yield number - size + 1, block
            block = []
    if block:
        yield number - len(block) + 1, block


if __name__ == '__main__':
    main(sys.argv[1:])
