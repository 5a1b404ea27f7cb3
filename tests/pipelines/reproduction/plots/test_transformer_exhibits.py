"""Computations of the Transformer's pages, against closed forms and the paper's printed numbers."""
import dataclasses
import pathlib

import numpy as np
import pytest

from data_prep import UserError
from keras_models import transformer
from pipelines.core import config
from pipelines.reproduction import experiments, results, running
from pipelines.reproduction.plots import complexity, heads, training_cost

ITEMS = [name for name in experiments.names() if name.startswith('transformer/')]


def test_table_1_is_the_papers_orders():
    n, d, k, r = 81, 512, 3, 9
    found = complexity.table(n, d, k, r)
    assert list(map(list, map(dict.values, found.values()))) == [
        [n * n * d, 1, 1], [n * d * d, n, n], [k * n * d * d, 1, pytest.approx(4)], [r * n * d, 1, 9]]
    assert complexity.table(d, d, k, r)['Self-attention'][complexity.COLUMNS[0]] == complexity.table(
        d, d, k, r)['Recurrent'][complexity.COLUMNS[0]]  # as many where the length is the width


def test_a_separable_convolution_over_all_is_attention_and_a_point_wise_layer():
    for n, d in ((10, 512), (700, 64)):
        alone = complexity.table(n, d, 3, 5)['Self-attention'][complexity.COLUMNS[0]]
        assert complexity.separable(n, d, n) == alone + complexity.point_wise(n, d)


def test_training_costs_are_the_papers():
    base = config.load('wmt14_en_de_base').model
    found = training_cost.counted(transformer.parameters(base), 25_000, 100_000)
    assert found['EFLOP in all'] == pytest.approx(6 * 63_045_632 * 25_000 * 100_000 / 1e18)
    assert found['EFLOP in all'] == pytest.approx(0.95, abs=0.005)
    assert found['MFLOP a token'] * 1e6 == transformer.flops_per_unit(base)
    assert found['TFLOP a step'] * 100_000 / 1e6 == pytest.approx(found['EFLOP in all'])
    assert training_cost.by_the_clock(12) == pytest.approx(3.3, abs=0.05)
    assert training_cost.by_the_clock(3.5 * 24) == pytest.approx(23, abs=0.05)


def one_hot(*rows):
    return np.eye(4)[np.array(rows)]


def test_heads_are_told_apart():
    previous, itself, first = [0, 0, 1, 2], [0, 1, 2, 3], [0, 0, 0, 0]
    weights = one_hot(previous, itself, first, itself)
    np.testing.assert_allclose(heads.apart(weights), [
        [0, .75, .5, .75], [.75, 0, .75, 0], [.5, .75, 0, .75], [.75, 0, .75, 0]])
    assert heads.chosen(weights, None, None, 'apart') == [0, 1]
    assert heads.chosen(weights, None, None, 'all') == [0, 1, 2, 3]
    even = np.full((1, 4, 4), .25)
    assert heads.chosen(np.concatenate([even, weights[[2, 0, 3]]]), 3, 2, 'following') == [0, 2]
    assert heads.apart(np.concatenate([even, weights]))[0, 1] == .75
    assert heads.far(weights, 3) == 1 and heads.far(weights, 0) == 0 and heads.far(np.full((1, 5, 5), .2), 4) == 0
    found = heads.measured(weights, ['An', 'old', 'man', 'walks'], 'walks', 'man')
    assert found == {'difference of heads': pytest.approx(3.5 / 6), 'heads that look far from the word': 1,
                     'sharpest weight of the word': 1,
                     'weight on its partner, more than three quarters of the others give': 1}
    with pytest.raises(UserError, match="'runs' is not a subword of the sentence, An old"):
        heads.measured(weights, ['An', 'old', 'man', 'walks'], 'runs')


@pytest.mark.parametrize('looks, more', [
    ([0, 0, 0, 0, 4], 1),  # from the last word alone
    ([0, 4, 0, 0, 4], 1),  # and from one that belongs to it
    ([4, 4, 0, 0, 4], 0),  # from half of the sentence, where the mean of the others is 0.5 less
    ([4, 4, 4, 4, 4], 0),
    ([4, 4, 4, 4, 0], -1),
])
def test_a_head_follows_what_most_other_words_do_not_look_at(looks, more):
    assert heads.followed(np.eye(5)[np.array([looks])], 4, 4).tolist() == [more]


def test_every_row_of_table_3_is_asked_for_as_the_paper_has_it():
    """The items' settings at the paper's scale are the rows of `transformer.TABLE_3`, and print its numbers."""
    rows = {}
    for item in map(experiments.load, ITEMS):
        if 'table3' not in item.name:
            continue
        for setting in running.run(without_stages(item), 'paper', 'DIR', 'nowhere', []):
            model = dataclasses.replace(setting.pipeline.config.model, steps=1)  # big's run is three times as long
            rows[dataclasses.astuple(model)] = item.paper.get(setting.setting, {})
    base = config.load('wmt14_en_de_base').model
    for name, (changes, perplexity, bleu, _) in transformer.TABLE_3.items():
        wanted = dataclasses.replace(base, **{'d_k': None, 'd_v': None, 'learning_rate': None, 'steps': 1, **changes})
        found = rows.pop(dataclasses.astuple(wanted))
        assert not found or (found['perplexity'], found['BLEU']) == (perplexity, bleu), name
    assert not rows


def without_stages(item):
    scale = dataclasses.replace(item.scales['paper'], stages=[])
    return dataclasses.replace(item, stages=[], scales={'paper': scale})


def test_every_item_names_the_paper():
    assert all('Vaswani' in experiments.load(name).source for name in ITEMS)


def test_computed_items_bear_their_claims_out(tmp_path):
    for name, not_measured in (('table1', 0), ('table2', 2)):
        item = experiments.load(f'transformer/{name}')
        found = running.run(item, 'small', '', str(tmp_path), [])
        facts = results.gather(item, 'small', found, '', str(tmp_path / name), [])
        words = [verdict['verdict'] for verdict in facts.verdicts]
        assert words.count('not measured') == not_measured and words.count('shows') == len(words) - not_measured
        assert not facts.commands and facts.table
        assert 'paper: ' in pathlib.Path(results.write(item, facts, str(tmp_path / name))).read_text()
    assert (tmp_path / 'table1' / 'complexity.png').stat().st_size > 1000
