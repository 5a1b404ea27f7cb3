"""The whole VITON-HD at published width against the authors' networks in PyTorch on generated people (H7)."""
import pytest

from data_prep.people import sample_people


@pytest.fixture(scope='module', params=[(256, 192), (1024, 768)], ids=['256x192', '1024x768'])
def prepared(request, tmp_path_factory):
    """Both sides' networks, and two people."""
    try:
        from support import torch_try_on
    except ImportError:
        pytest.fail('There is no PyTorch in this environment: run `make torch` first.')
    size, folder = list(request.param), tmp_path_factory.mktemp('people')
    _, pairs = sample_people.write_people(str(folder), 1, 2, request.param)
    return torch_try_on, torch_try_on.ours(size), torch_try_on.theirs(), torch_try_on.people(pairs, size)


@pytest.mark.torch
@pytest.mark.parametrize('batch', [1, 2])
def test_networks_agree_to_1e_4_and_the_chain_but_for_single_pixels(prepared, batch):
    torch_try_on, (nets, config), peers, samples = prepared
    found = torch_try_on.compare(nets, config, peers, samples[:batch])
    assert max(found.segmentation, found.theta, found.alias) <= 1e-4, found
    assert found.flips <= 20 and found.within_1 >= 0.995, found
