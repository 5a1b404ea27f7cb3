"""Growth in long runs and how the benchmark detects it; the long runs are `benchmarks/robustness/endurance.py`."""
import gc
import os
import random
import threading

import pytest

from benchmarks.robustness import endurance
from pipelines import predict
from pipelines.core import config, progress
from pipelines.training import trainer


def samples(each, noise=0.0):
    draw = random.Random(0)
    return [endurance.Sample(done, int(5e8 + each * done + draw.gauss(0, noise)), 10, 3)
            for done in range(0, 100_000, 1000)]


@pytest.mark.parametrize('each', [0, 480, -20])
def test_slope_of_a_line_in_noise(each):
    middle, low, high = endurance.slope(samples(each, noise=1e4), 'memory')
    assert low < each < high and middle == pytest.approx(each, abs=2) and high - low < 2
    assert endurance.slope(samples(each), 'memory') == pytest.approx((each,) * 3)
    assert endurance.slope(samples(each, noise=1e4), 'files') == (0, 0, 0)


def test_growth_is_told():
    assert not [*endurance.report('steps', samples(480, 1e4), 1000)]
    [memory] = endurance.report('steps', samples(2000, 1e4), 1000)
    assert memory.startswith('steps: memory grew by 2000 each')
    leaking = [each._replace(files=10 + each.done // 5000) for each in samples(0)]
    [files] = endurance.report('steps', leaking, 1000)
    assert files.startswith('steps: files grew by 0.0002')


def test_answers_that_are_missing_misplaced_or_wrong_are_told():
    lines = [f'line {n}' for n in range(5000)]
    right = [line.upper() for line in lines]
    assert not [*endurance.check(lines, right, right[::-1], right)]
    assert [*endurance.check(lines, right[:-1], right[::-1], right)] == ['5,000 lines, 4,999 and 5,000 answers']
    swapped = [right[1], right[0], *right[2:]]
    assert [*endurance.check(lines, swapped, right[::-1], right)] == [
        '2 answers are others in reverse order, 2 are wrong']


def test_lines_are_taken_in_blocks_and_none_is_lost():
    lines = [str(n) for n in range(10_000)]
    blocks = [*predict._blocks(f'{line}\n'.encode() for line in lines)]
    assert [(first, len(block)) for first, block in blocks] == [(1, 4096), (4097, 4096), (8193, 1808)]
    assert [line for _, block in blocks for line in block] == lines


def _target(descriptor):
    try:
        return os.readlink(f'/proc/self/fd/{descriptor}')
    except FileNotFoundError:  # of the folder that was just listed
        return ''


@pytest.mark.slow  # a tool of the benchmarks
def test_a_training_run_keeps_nothing_of_its_steps(config_file, examples, tmp_path, monkeypatch):
    found, show = {}, progress.Progress.train_action

    def watched(self, output):
        show(self, output)
        if not (done := int(self.step.numpy())) % 20:
            gc.collect()
            files = sorted(path for path in map(_target, os.listdir('/proc/self/fd'))
                           if path.startswith(str(tmp_path)))
            found[done] = len(gc.get_objects()), files, sorted(each.name for each in threading.enumerate())
    monkeypatch.setattr(progress.Progress, 'train_action', watched)
    each = ['train.steps=80', 'train.log_every=2', 'train.checkpoint_every=10', 'train.validate_every=10']
    trainer.train(config.load(config_file, each), examples, str(tmp_path))
    (_, *before), (_, *after) = found[40], found[80]
    counts = [found[done][0] for done in (20, 40, 60, 80)]
    # Less than one a step at best; a checkpoint leaves two, regular expressions that Python keeps.
    assert min(later - earlier for earlier, later in zip(counts, counts[1:])) < 20
    # its files and Python's threads; TensorFlow starts its own when it needs them
    assert after == before and before[0]
