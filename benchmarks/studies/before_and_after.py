"""Check that a code change changes no result: run every system at a tiny size in two checkouts and compare.

    python benchmarks/studies/before_and_after.py ../before . --work /tmp/before_and_after
    python benchmarks/studies/before_and_after.py ../before . --only vgg transformer

Each checkout prepares, trains 20 steps, exports and evaluates with its own code, in processes of its own. What is
compared, by SHA-256: the bytes of the data set, every tensor of the weights, and the answers to the test split. Leaves
one line a system, and ends with exit code 1 if anything differs. What one checkout gave is kept in `--work` by the
name of its folder and its commit, so a second comparison with it is free.
"""
import argparse
import hashlib
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys

STEPS = ['train.steps=20', 'train.log_every=10', 'train.checkpoint_every=20', 'train.validate_every=20',
         'train.average_checkpoints=1', 'infra_validate.max_seconds=3600']
IMAGES = ['input.rows=16', *STEPS, 'evaluate.thresholds={top1_error: {max: 1.0}}']
CROP_32 = ['input.crop=32', 'input.scales=[36]', 'input.flip=false']

# Of each system the configuration that ships, and what makes it tiny.
SYSTEMS: dict[str, tuple[str, list[str]]] = {
    'transformer': ('demo_translation', [
        *STEPS, 'model.N=1', 'model.d_model=32', 'model.d_ff=64', 'model.h=2',
        'evaluate.thresholds={exact_match: {min: 0}}', 'inference.extra_length=4']),
    'parser': ('treebank_sample_parsing', [
        'data.folder={work}', 'data.train=[bank]', 'data.extra=[]', 'data.test=[]', 'data.validation=[]',
        'data.validation_fraction=0.1', 'data.test_fraction=0.1', 'data.vocab_size=130', 'input.buckets=[24,48,64]',
        'input.tokens=1024', *STEPS, 'model.N=1', 'model.d_model=32', 'model.d_ff=64', 'model.h=2',
        'inference.extra_length=8', 'evaluate.thresholds={well_formed: {min: 0}}']),
    'prelu_net': ('demo_images', IMAGES),
    'vgg': ('vgg_a_tiny_imagenet', [
        'data={module: data_prep.imagenet, samples: digits}', *CROP_32, 'model.width=0.0625', *IMAGES]),
    'alexnet': ('alexnet_cifar10', [
        'data={module: data_prep.imagenet, samples: digits}', 'input.crop=24', 'input.scales=[32]', *IMAGES]),
    'viton_hd': ('demo_tryon', [
        *STEPS, 'data.samples_count=[12,4]', 'data.samples_size=[128,96]', 'input.size=[128,128]',
        'data.validation_fraction=0.2', 'model.low=[64,64]', 'model.segmentation.width=0.125', 'input.rows=2',
        'model.geometric_matching.width=0.125', 'model.alias.width=0.125', 'evaluate.thresholds={ssim: {min: 0}}']),
    'learning_machine': ('learning_machine_nim', [
        *STEPS, 'model.machines=8', 'model.memory=256', 'model.cards=1024',
        'evaluate.thresholds={best_move: {min: 0}}']),
}


def write_bank(folder: pathlib.Path) -> None:
    """Write some generated trees, for the parser."""
    draw = random.Random(1)
    for number in range(20):
        trees = [f'( (S (NP-SBJ (DT the) (NN {draw.choice(["cat", "dog", "tree"])})) (VP (VBZ sees) '
                 f'(NP (CD {draw.randrange(40)}) (NNS birds))) (. .)) )' for _ in range(20)]
        path = folder / 'bank' / f'{number}.mrg'
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():  # its time is part of what a data set is made of
            path.write_text('\n'.join(trees))


def run(checkout: pathlib.Path, system: str, work: pathlib.Path) -> dict[str, str]:
    """Run one system in one checkout. Returns what is compared: name -> SHA-256."""
    root = work / system
    config, overrides = SYSTEMS[system]
    flags = [part for each in overrides for part in ('--set', each.replace('{work}', str(work.parent)))]
    environment = {**os.environ, 'PYTHONPATH': str(checkout), 'CUDA_VISIBLE_DEVICES': '', 'TF_CPP_MIN_LOG_LEVEL': '3'}
    done = subprocess.run([sys.executable, '-m', 'pipelines.run', '--config', config, '--pipeline_root', str(root),
                           *flags], cwd=checkout, env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f'{checkout}: {system}: {done.stdout}{done.stderr}')
    return {**_files(root, 'prepare/*/examples/Split-*/*'), **_weights(root),
            **_files(root, 'evaluate/*/evaluation/predictions.tfrecord')}


def _files(root: pathlib.Path, pattern: str) -> dict[str, str]:
    return {str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(root.glob(pattern)) if path.is_file()}


def _weights(root: pathlib.Path) -> dict[str, str]:
    """SHA-256 of every tensor by its name."""
    import tensorflow as tf
    [index] = root.glob('*/*/model_run/weights.index')
    reader = tf.train.load_checkpoint(str(index).removesuffix('.index'))
    return {f'weights/{name}': hashlib.sha256(reader.get_tensor(name).tobytes()).hexdigest()
            for name in sorted(reader.get_variable_to_shape_map()) if not name.startswith('_')}


def found(checkout: pathlib.Path, systems: list[str], work: pathlib.Path) -> dict[str, dict[str, str]]:
    """Run all systems in one checkout, and keep the result if it has no uncommitted changes."""
    git = ['git', '-C', str(checkout)]
    commit = subprocess.run([*git, 'rev-parse', 'HEAD'], capture_output=True, text=True, check=True).stdout.strip()
    changed = subprocess.run([*git, 'status', '--porcelain', '--', 'data_prep', 'keras_models', 'pipelines', 'configs'],
                             capture_output=True, text=True, check=True).stdout
    results = {}
    for system in systems:
        folder = work / f'{checkout.resolve().name}-{commit[:12]}'
        kept = folder / f'{system}.json'
        if changed:  # nothing says with what
            folder = work / f'{checkout.resolve().name}-changed'
        if changed or not kept.exists():
            shutil.rmtree(folder / system, ignore_errors=True)
            results[system] = run(checkout, system, folder)
            (folder / f'{system}.json').write_text(json.dumps(results[system], indent=1))
        else:
            results[system] = json.loads(kept.read_text())
    return results


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument('before', type=pathlib.Path, help='a checkout')
    flags.add_argument('after', type=pathlib.Path, help='another')
    flags.add_argument('--only', nargs='+', choices=SYSTEMS, default=[*SYSTEMS], help='systems (default: all)')
    flags.add_argument('--work', type=pathlib.Path, default=pathlib.Path('/tmp/before_and_after'))
    args = flags.parse_args()
    work = args.work.resolve()
    write_bank(work)
    different = False
    for system in args.only:
        before, after = (found(checkout.resolve(), [system], work)[system] for checkout in (args.before, args.after))
        names = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
        different = different or bool(names)
        kinds = {kind: sum(name.startswith(kind) for name in before) for kind in ('prepare', 'weights', 'evaluate')}
        print(f'{system}: ' + (f'{len(names)} of {len(before)} differ: {", ".join(names[:5])}' if names else
                               f'{kinds["prepare"]} files of data, {kinds["weights"]} tensors of weights and '
                               f'{kinds["evaluate"]} of answers are the same'), flush=True)
    sys.exit(different)


if __name__ == '__main__':
    main()
