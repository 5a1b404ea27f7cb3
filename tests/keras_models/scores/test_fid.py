"""FID: the network against recorded PyTorch results, the distance against closed forms."""
import numpy as np
import pytest
import scipy.linalg

from keras_models import ModelError
from keras_models.scores import fid
from support import torch_zip
from support.references import Reference


def statistics(rows) -> fid.Statistics:
    found = fid.Statistics(rows.shape[1])
    for batch in np.array_split(rows, 3):
        found.add(batch)
    return found


def normal(n, size, seed=0):
    draw = np.random.default_rng(seed)
    return draw.standard_normal((n, size)) @ draw.standard_normal((size, size)) + draw.standard_normal(size)


def exact(m, C) -> fid.Statistics:
    """Statistics of which mean and covariance are these."""
    found = fid.Statistics(len(m))
    found.n, found.sum, found.products = 2, 2 * np.array(m, float), C + 2 * np.outer(m, m)
    return found


def test_batches_add_up_to_mean_and_covariance():
    rows = normal(50, 8)
    found = statistics(rows)
    assert found.n == 50
    np.testing.assert_allclose(found.mean(), rows.mean(0))
    np.testing.assert_allclose(found.covariance(), np.cov(rows, rowvar=False))


def test_two_gaussians_in_closed_form():
    # Where covariances are diagonal: |m_a - m_b|^2 + sum over features of (s_a - s_b)^2.
    a, b = exact([1, 2, 3], np.diag([4.0, 9, 0])), exact([1, 0, 6], np.diag([1.0, 16, 25]))
    assert fid.distance(a, b) == pytest.approx(4 + 9 + (2 - 1) ** 2 + (3 - 4) ** 2 + 5 ** 2)
    assert fid.distance(b, a) == pytest.approx(fid.distance(a, b))
    turn, _ = np.linalg.qr(np.random.default_rng(0).standard_normal((3, 3)))  # which no distance sees
    c, d = (exact(turn @ each.mean(), turn @ each.covariance() @ turn.T) for each in (a, b))
    assert fid.distance(c, d) == pytest.approx(fid.distance(a, b))


def test_covariances_that_do_not_commute():
    a, b = statistics(normal(60, 12)), statistics(normal(40, 12, seed=1))
    root = scipy.linalg.sqrtm(a.covariance() @ b.covariance())
    expected = np.sum((a.mean() - b.mean()) ** 2) + np.trace(a.covariance() + b.covariance() - 2 * root.real)
    assert fid.distance(a, b) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize('n', [2, 30, 500])  # fewer and more than features
def test_pictures_are_at_no_distance_from_themselves(n):
    rows = normal(n, 64)
    assert fid.distance(statistics(rows), statistics(rows[::-1])) == pytest.approx(0, abs=1e-6 * np.sum(rows.var(0)))
    assert fid.distance(statistics(rows), statistics(rows + 2)) == pytest.approx(4 * 64)


def test_the_published_networks_features_are_pytorchs(tmp_path, monkeypatch):
    reference = Reference('inception')
    state = reference.weights()
    net = fid.load(torch_zip.write(tmp_path / 'inception.pth', state))
    # torchvision's Inception-v3 has 23,834,568 parameters without its auxiliary classifier; the last layer is
    # 2048 x 1000 + 1000 of them, and the means and variances are as many as scales and offsets.
    assert not net.trainable_weights and net.count_params() == 23_834_568 - 2_049_000 + 2 * 17_216
    found = fid.features(net, reference.uniform('images', [2, 9, 7, 3], 0, 1))
    one, other = reference.arrays['features']
    assert found.shape == (2, 2048) and np.abs(one - other).mean() > 0.1
    reference.compare('features', found, atol=2e-3)
    del state['Mixed_7c.branch_pool.bn.running_var']
    torch_zip.write(tmp_path / 'inception.pth', state)
    monkeypatch.setattr(fid, 'build', lambda: net)  # which takes seconds
    with pytest.raises(ModelError, match='inception.pth has no Mixed_7c.branch_pool.bn.running_var; give pt_inception'):
        fid.load(str(tmp_path / 'inception.pth'))
