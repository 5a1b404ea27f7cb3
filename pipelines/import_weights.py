"""Import published weights of others as a checkpoint that training and export can start from.

    python -m pipelines.import_weights viton_hd seg_final.pth gmm_final.pth alias_final.pth
    python -m pipelines.run --config my.yaml --set train.init_from=weights/viton_hd --set train.steps=0

The files are PyTorch's, and nothing in them is executed. Their licence is written beside the weights, as text and in
weights.json, and applies to everything made from them.
"""
import argparse
import importlib
import json
import os
import sys
import types

from data_prep import UserError
from pipelines.core import cli

# Each is a module with NETS, SOURCE, DATA (how its training data was prepared), `build(net)` and
# `assign(net, model, tensors)`.
SYSTEMS = {'viton_hd': 'keras_models.viton.official_weights'}

LICENSE = '''# Weights of {system}, trained by others

{attribution}

- published at {source}
- licence: {licence}: {terms}
- changed here: the file format and the order of axes; no value

| network | file | SHA-256 |
|---|---|---|
{rows}
'''


def run(system: str, paths: list[str], out: str) -> None:
    """Write a checkpoint for `train.init_from`: `weights`, with weights.json and LICENSE.md.

    Args:
      paths: a PyTorch file for each network, in the order of the system's NETS.
      out: a new folder.

    Raises:
      UserError: a file cannot be read or belongs to another network, one is missing, or `out` is in use.
    """
    import tensorflow as tf

    from data_prep.core import records
    from data_prep.core.files import sha256
    from pipelines.training import checkpoints
    module = importlib.import_module(SYSTEMS[system])
    if len(paths) != len(module.NETS):
        raise UserError(f'{system} needs {len(module.NETS)} files, but {len(paths)} were given. Name those of '
                        f'{", ".join(module.NETS)}, in this order.')
    if tf.io.gfile.exists(out) and (not tf.io.gfile.isdir(out) or tf.io.gfile.listdir(out)):
        raise UserError(f'{out} is not empty. Give another --out, or remove it.')
    nets = {net: _take_over(module, net, path) for net, path in zip(module.NETS, paths)}
    digests = {net: sha256(path)[0] for net, path in zip(module.NETS, paths)}
    files = [os.path.basename(path) for path in paths]
    rows = '\n'.join(f'| {net} | {file} | {digests[net]} |' for net, file in zip(module.NETS, files))
    tf.io.gfile.makedirs(out)
    # Before the weights, so that they never exist without their licence.
    foreign = {'system': system, **module.SOURCE, 'files': files, 'sha256': digests}
    for name, content in {'LICENSE.md': LICENSE.format(system=system, rows=rows, **module.SOURCE),
                          'weights.json': json.dumps({'foreign': foreign, **module.DATA}, indent=1)}.items():
        records.write_atomically(os.path.join(out, name), content.encode())
    checkpoints.save(nets, os.path.join(out, 'weights'))
    print(f'import_weights: train.init_from={out} starts from them; licence {module.SOURCE["licence"]}.', flush=True)


def _take_over(module: types.ModuleType, net: str, path: str):
    """Return a network with the weights in a file."""
    from keras_models import ModelError
    from keras_models.weights import torch_file
    try:
        tensors = torch_file.read(path)
    except ModelError as error:
        raise UserError(f'{error}.') from error
    model = module.build(net)
    try:
        module.assign(net, model, tensors)
    except ModelError as error:
        raise UserError(f'{path} does not fit {net}: {error}. Give the files of {", ".join(module.NETS)}, in this '
                        'order.') from error
    print(f'import_weights: {net} has the {len(tensors)} tensors of {path}.', flush=True)
    return model


def main(argv=None) -> None:
    flags = argparse.ArgumentParser(prog='python -m pipelines.import_weights', description=__doc__, allow_abbrev=False,
                                    formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument('system', choices=SYSTEMS, help='system whose weights to import')
    flags.add_argument('files', nargs='+', metavar='FILE',
                       help='its .pth files; for viton_hd, those of segmentation, geometric matching and ALIAS')
    flags.add_argument('--out', metavar='DIR', help='new folder for the weights (default: weights/<system>)')
    args = flags.parse_args(argv)

    def work():
        cli.prepare_libraries()
        run(args.system, args.files, args.out or os.path.join('weights', args.system))
    cli.run_command(work)


if __name__ == '__main__':
    main(sys.argv[1:])
