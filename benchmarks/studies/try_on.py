"""Seconds and memory of VITON-HD's chain, stage by stage, on random weights and pictures.

python benchmarks/studies/try_on.py --height 1024 --width 768 --preset official
"""
import argparse
import resource
import statistics
import time

import tensorflow as tf

from keras_models.viton import chain, try_on


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument('--height', type=int, default=1024)
    flags.add_argument('--width', type=int, default=768)
    flags.add_argument('--preset', choices=try_on.PRESETS, default='official')
    flags.add_argument('--rounds', type=int, default=3)
    args = flags.parse_args()
    config = try_on.Config(preset=args.preset, size=[args.height, args.width])
    nets, seed = try_on.build(config), tf.constant([1, 0])
    given = {name: tf.random.stateless_uniform([1, *config.size, channels], [1, number], -1.0, 1.0)
             for number, (name, channels) in enumerate({'agnostic': 3, 'pose': 3, 'cloth': 3, 'cloth_mask': 1}.items())}
    given['cloth_mask'] = tf.cast(given['cloth_mask'] > 0, tf.float32)
    given['agnostic_parse'] = tf.random.stateless_uniform([1, *config.size], [1, 9], 0, chain.CLASSES, tf.int32)
    parse = tf.one_hot(given['agnostic_parse'], chain.CLASSES)
    stages = {
        'segmentation': lambda: chain.segment(nets['segmentation'], config, given, seed),
        'geometric_matching and warp': lambda: chain.warp(nets['geometric_matching'], config, given,
                                                           given['cloth_mask']),
        'alias': lambda: chain.synthesise(nets['alias'], given, parse, given['cloth'], given['cloth_mask'], seed),
        'whole chain': lambda: chain.try_on(nets, config, given, seed)}
    for name, compute in stages.items():
        run, seconds = tf.function(compute), []
        for _ in range(args.rounds + 1):  # the first one traces
            started = time.monotonic()
            tf.nest.map_structure(lambda x: x.numpy(), run())
            seconds.append(time.monotonic() - started)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2 ** 20
        print(f'{name}: {statistics.median(seconds[1:]):.2f} s ({min(seconds[1:]):.2f} to {max(seconds[1:]):.2f}), '
              f'peak memory so far {peak:.2f} GiB', flush=True)


if __name__ == '__main__':
    main()
