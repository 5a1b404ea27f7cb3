"""Estimation of growth exponents, on costs of known growth, and on one corpus through the Beam job."""
import pathlib
import statistics

import numpy as np
import pytest

from benchmarks.speed import growth, powers, prepare_scale, side_by_side
from keras_models import transformer

SIZES = [32, 64, 128, 256, 512]
SIDE = """\
import sys, time
sys.path.insert(0, {sides!r})
import numpy as np
import side

def work(size):
    def once():
        time.sleep(0.01 * size)
        return 1
    return side.Work({{'answer': np.zeros(1)}}, once)
side.serve({{'work': work}})
"""


@pytest.mark.parametrize('exponent', [0, 0.5, 1, 2])
def test_exponent_of_a_power_in_noise(exponent):
    draw = np.random.default_rng(0)
    exact = powers.power(SIZES, [3 * size ** exponent for size in SIZES])
    assert exact == pytest.approx((exponent,) * 3, abs=1e-6)
    inside = 0
    for _ in range(400):
        found = powers.power(SIZES, [3 * size ** exponent * np.exp(draw.normal(0, 0.1)) for size in SIZES])
        inside += found.low <= exponent <= found.high
    assert 0.91 < inside / 400 < 0.98  # what 95% means


def test_a_line_is_found_and_what_it_leaves_is_told():
    assert powers.line(SIZES, [5 + 0.25 * size for size in SIZES]) == pytest.approx((5, 0.25, 0), abs=1e-9)
    assert powers.line([1e4, 1e6], [30 - 1e-6 * size for size in (1e4, 1e6)]).each == 0  # nothing shrinks
    assert powers.line([1, 2, 4], [1, 2, 8]).worst > 0.2


def test_operations_a_token_by_hand():
    """Of the base model: a query meets n keys and n values of 512 numbers, in 6 x 3 attentions, 6 operations each."""
    c = transformer.Config(vocab_size=37_000)
    assert growth.token_flops(0) == 6 * 63_045_632
    assert growth.token_flops(64) - growth.token_flops(0) == 6 * 18 * 64 * (512 + 512)
    assert growth.token_flops(64) / transformer.flops_per_unit(c) < 1.05  # as that one's docstring says
    assert growth.token_flops(100, transformer.Config(vocab_size=8, N=1, d_model=8, d_ff=8, h=2)) - growth.token_flops(
        0, transformer.Config(vocab_size=8, N=1, d_model=8, d_ff=8, h=2)) == 6 * 3 * 100 * 16


def test_operations_of_a_picture_follow_its_pixels():
    dense = 2 * (63 * 512 * 4096 + 4096 ** 2 + 4096 * 1000)
    at = {side: growth.picture_flops(side ** 2) - dense for side in (64, 128, 256)}
    assert at[128] == 4 * at[64] and at[256] == 16 * at[64]


def test_every_batch_has_as_many_tokens_and_about_as_many_pixels():
    assert set(growth.sentences([32, 512], 2048).values()) == {
        'ours_text.py step batch=64 length=32', 'ours_text.py step batch=4 length=512'}
    assert growth.pictures([64, 512], 8 * 224 ** 2) == {
        64 ** 2: 'ours_images.py forward net=model_a batch=98 crop=64',
        512 ** 2: 'ours_images.py forward net=model_a batch=2 crop=512'}


@pytest.mark.slow  # rates, by the clock
def test_a_side_that_takes_as_long_as_it_is_large(tmp_path, monkeypatch):
    script = tmp_path / 'sleeper.py'
    script.write_text(SIDE.format(sides=str(pathlib.Path(growth.__file__).parent / 'sides')))
    monkeypatch.setattr(side_by_side, 'DISTURBED', 1.1)
    result = growth.units({size: f'{script} work size={size}' for size in (1, 4, 16)}, rounds=3, seconds=0.2)
    sizes, seconds = growth.medians(result, 'seconds')
    assert sizes == [1, 4, 16] and powers.power(sizes, seconds).exponent == pytest.approx(1, abs=0.1)
    text = growth.markdown('corpus', result)
    assert text.count('\n|') == 5 and '3 rounds, 0 dropped.' in text
    growth.draw('corpus', result, str(tmp_path / 'corpus.png'))
    assert (tmp_path / 'corpus.png').read_bytes().startswith(b'\x89PNG')


@pytest.mark.slow  # a tool of the benchmarks
def test_a_corpus_is_prepared_measured_and_taken_away(tmp_path, monkeypatch):
    monkeypatch.setattr(side_by_side, 'DISTURBED', 1.1)
    monkeypatch.setattr(prepare_scale, 'HELD_OUT', 20)
    result = growth.corpora(tmp_path, [300], 1, ['--set', 'data.vocab_size=300'])
    assert statistics.median(result['seconds']['300']) > 0 and 100 < result['mib']['300'][0] < 2048
    assert sorted(path.name for path in (tmp_path / '300').iterdir() if path.is_dir()) == []
    assert len((tmp_path / '300' / 'train.en').read_text().splitlines()) == 300
