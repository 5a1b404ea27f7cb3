"""Write the last hidden layer's features of images, for a classifier of your own.

    python -m pipelines.features --config pictures.yaml --scales 112 160 photos/ more.jpg
    python -m pipelines.features --model DIR --model OTHER_DIR --scales 256 384 512 --stack photos/

Writes one .npz: `files`, the images' paths, and `features`, one row of unit length per image (Simonyan & Zisserman
2015, appendix B; see `keras_models/image/deep_features.py`). Images that cannot be decoded are named and left out.
"""
import sys

from data_prep import UserError
from pipelines.core import cli


def write(models: list, paths: list[str], scales: list[int], stack: bool, out: str) -> None:
    """Compute the features of images and write the file.

    Args:
      models: as returned by `saved_model.load`.
      paths: images, and folders to search for images.

    Raises:
      UserError: no image can be read; ModelError: as `deep_features.describe`.
    """
    import io

    import numpy as np

    from data_prep.core import records
    from keras_models.image import deep_features
    from pipelines.serving import predict_images
    files: list[str] = []
    x = deep_features.describe(models, _readable(models[0], predict_images.find(paths), files), scales, stack)
    if not files:
        raise UserError(f'{", ".join(paths)}: no images ({", ".join(predict_images.SUFFIXES)}). Give images.')
    content = io.BytesIO()
    np.savez_compressed(content, files=np.array(files), features=x)
    records.write_atomically(out, content.getvalue())
    print(f'features: {out}: {x.shape[0]:,} images, {x.shape[1]:,} numbers each.', flush=True)


def _readable(model, paths, files: list[str]):
    """Yield the contents of images that can be decoded, and append their paths to `files`."""
    import tensorflow as tf

    from data_prep.image import codec
    from keras_models.image import serving
    for path in paths:
        with tf.io.gfile.GFile(path, 'rb') as file:
            content = file.read()
        try:
            codec.header(content, model.description['config']['data']['max_pixels'])
            error = serving.undecodable(model, content)
        except codec.Unreadable as unreadable:
            error = str(unreadable)
        if error:
            print(f'features: {path} left out: {error}', file=sys.stderr, flush=True)
            continue
        files.append(path)
        yield content


def main(argv=None) -> None:
    flags = cli.parser('features', __doc__)
    flags.add_argument('files', nargs='+', metavar='FILE', help='images, or folders to search for them')
    flags.add_argument('--scales', nargs='+', type=int, required=True, metavar='Q',
                       help='shorter sides in pixels to which images are rescaled')
    flags.add_argument('--stack', action='store_true', help='stack the features of several scales; otherwise average')
    flags.add_argument('--model', action='append', metavar='DIR',
                       help='a pushed or exported model (default: the last pushed); several are stacked')
    flags.add_argument('--out', metavar='FILE', default='features.npz', help='output file (default: features.npz)')
    args = cli.parse(flags, argv)
    if not args:
        return

    def work():
        cli.prepare_libraries()
        from pipelines.serving import saved_model
        folders = args.model
        if not folders:
            pipeline = cli.open_pipeline(args)
            if pipeline.config.data_spec.task != 'image':
                raise UserError(f'{pipeline.config.name} has no image model. Name a configuration that has one with '
                                '--config, or an exported model with --model.')
            folders = [pipeline.outputs('push', make=False)['pushed_model'].properties['path']]
        write([saved_model.load(folder) for folder in folders], args.files, args.scales, args.stack, args.out)
    cli.run_command(work)


if __name__ == '__main__':
    main(sys.argv[1:])
