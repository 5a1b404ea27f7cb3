"""Beam search: equivalent computations give equal results."""
import dataclasses
import itertools

import numpy as np
import pytest
import tensorflow as tf

from keras_models import transformer
from keras_models.text import attention_maps, decoding
from keras_models.text.translator import Inference, Translator
from keras_models.transformer import BOS, EOS, Config


def sentence(ids):
    ids = ids.tolist()
    return ids[:ids.index(EOS) + 1] if EOS in ids else [i for i in ids if i]

class Told:
    """A 'model' whose next-token scores depend on the sentence and on all tokens so far, and on nothing else.

    It finds the tokens so far in its cache, by `slots`. `asked` is the number of sentences at each step.
    """

    def __init__(self, V, seed, eos_logit=0.0):
        self.V, self.seed, self.eos_logit, self.asked = V, seed, eos_logit, []

    def logits(self, sentence, history):
        z = np.random.default_rng([self.seed, sentence, *history]).normal(0, 2, self.V)
        z[EOS] += self.eos_logit
        z[0] -= 30  # padding is no word
        return z

    def step(self, ids, step, slots, context, cache):
        step, cache, slots = int(step), cache.numpy(), slots.numpy()
        self.asked.append(len(cache))
        cache[:, :, step] = ids
        own = np.take_along_axis(cache, slots, 1)[:, :, :step + 1]  # [B, K, step + 1]
        return tf.constant([[self.logits(int(sentence), history) for history in rows]
                            for sentence, rows in zip(context, own)], tf.float32), tf.constant(cache)

    def search(self, lengths, T, K, alpha, pack=False):
        B = len(lengths)
        ids, scores = decoding.beam_search(self.step, tf.range(B), tf.fill([B, K, T], -1),
                                           tf.constant(lengths), T, K, alpha, BOS, EOS, pack)
        return ids.numpy(), scores.numpy()


def as_written(told, sentence, length, K, alpha):
    """The docstring of `beam_search` for one sentence, in lists: tokens and score."""
    def penalty(n):
        return ((5 + n) / 6) ** alpha
    opened, ended = [(0.0, [BOS])], []
    for n in range(1, length + 1):
        candidates = []
        for logp, history in opened:
            z = told.logits(sentence, history)
            candidates += [(logp + z[t] - np.log(np.exp(z).sum()), [*history, t]) for t in range(told.V)]
        candidates = sorted(candidates, reverse=True)[:2 * K]
        ended += [(logp / penalty(n), history) for logp, history in candidates[:K] if history[-1] == EOS]
        ended = sorted(ended, reverse=True)[:K]
        opened = [(logp, history) for logp, history in candidates if history[-1] != EOS][:K]
        if ended and ended[0][0] >= opened[0][0] / penalty(length):
            break
    score, history = ended[0] if ended else (opened[0][0] / penalty(length), opened[0][1])
    return history[1:], score


LENGTHS = [5, 1, 3, 6, 2, 6, 4]


@pytest.mark.parametrize('pack', [False, True], ids=['as they are', 'packed'])
@pytest.mark.parametrize('K, alpha, eos_logit',
                         [(1, 0., 1.), (2, .6, 0.), (3, .6, 2.), (3, 1.5, -1.), (2, 0., -9.)])
def test_search_is_the_algorithm_as_it_is_written(K, alpha, eos_logit, pack):
    told = Told(9, 3, eos_logit)
    ids, scores = told.search(LENGTHS, 6, K, alpha, pack)
    for b, length in enumerate(LENGTHS):
        words, score = as_written(told, b, length, K, alpha)
        assert ids[b].tolist() == words + [0] * (6 - len(words))
        assert scores[b] == pytest.approx(score, abs=1e-5)
    assert ids.dtype == np.int32 and scores.dtype == np.float32


@pytest.mark.parametrize('pack', [False, True], ids=['as they are', 'packed'])
def test_a_graph_computes_the_same(pack):
    """Packed, the cache may grow from step to step."""
    _, next_token = markov(9, 6)

    def step_fn(ids, step, slots, context, cache):
        logits, cache = next_token(ids, step, slots, context, cache)
        return logits, tf.concat([cache, cache[:, :1]], 1) if pack else cache

    def search(lengths):
        return decoding.beam_search(step_fn, (), tf.zeros([tf.shape(lengths)[0], 1]), lengths, 6, 2, 0.6, BOS,
                                    EOS, pack)
    compiled = tf.function(search, input_signature=[tf.TensorSpec([None], tf.int32)])
    for lengths in (LENGTHS, LENGTHS[:1]):
        for one, other in zip(search(tf.constant(lengths)), compiled(tf.constant(lengths))):
            np.testing.assert_allclose(one, other, rtol=1e-6)
    assert compiled.experimental_get_tracing_count() == 1


@pytest.mark.parametrize('pack, asked', [(False, [8] * 8), (True, [8, 8, 6, 6, 4, 3, 2, 1])])
def test_packing_leaves_out_who_is_done_as_soon_as_it_is_a_quarter(pack, asked):
    """Nobody ends before the longest allowed, which is 1 to 8 tokens."""
    told = Told(9, 3, -60.)
    ids, _ = told.search([*range(1, 9)], 8, 2, 0.6, pack)
    assert told.asked == asked and (ids != 0).sum(1).tolist() == [*range(1, 9)]


def test_greedy_takes_the_most_probable_token_until_the_end():
    table = np.random.default_rng(2).normal(0, 1.5, (8, 8)).astype(np.float32)
    for token, follows in ((5, 6), (6, EOS), (4, EOS), (3, 7), (7, 3), (EOS, 5)):
        table[token, follows] = 9
    first = np.array([5, 3, 4, 7])

    def logits_fn(inputs, targets):
        before = tf.concat([inputs[:, -1:], targets[:, :-1]], 1)
        return tf.gather(table, before)
    inputs = np.stack([0 * first, 0 * first, first], 1)  # as many columns as rows would hide a confusion
    ids = decoding.greedy(logits_fn, tf.constant(inputs, tf.int32), 6, EOS).numpy()
    assert ids.dtype == np.int32 and [len(sentence(row)) for row in ids] == [2, 6, 1, 6]
    for row, token in zip(ids, first):
        words = []
        while len(words) < 6 and EOS not in words:
            words.append(token := int(table[token].argmax()))
        assert row.tolist() == words + [0] * (6 - len(words))


def markov(V, seed):
    """A 'model' whose next-token scores depend on the last token only, so that all sentences can be listed."""
    table = tf.constant(np.random.default_rng(seed).normal(0, 1.5, (V, V)), tf.float32)

    def step_fn(ids, step, slots, context, cache):
        return tf.gather(table, ids), cache
    return table, step_fn


@pytest.mark.parametrize('alpha', [0.0, 0.6, 1.5])
@pytest.mark.parametrize('seed', range(4))
def test_a_wide_beam_finds_the_best_sentence_there_is(alpha, seed):
    V, T = 5, 4
    table, step_fn = markov(V, seed)
    logp = tf.nn.log_softmax(table).numpy()
    best = (-np.inf, None)
    for n in range(1, T + 1):
        for words in itertools.product([t for t in range(V) if t != EOS], repeat=n - 1):
            path = [BOS, *words, EOS]
            score = sum(logp[a, b] for a, b in zip(path, path[1:])) / decoding.length_penalty(n, alpha)
            best = max(best, (float(score), path[1:]))
    ids, scores = decoding.beam_search(step_fn, (), (), tf.constant([T]), T, 128, alpha, BOS, EOS)
    assert sentence(ids.numpy()[0]) == best[1]
    assert float(scores[0]) == pytest.approx(best[0], abs=1e-4)


def test_of_several_all_are_the_best_sentences_there_are():
    V, T, K, alpha = 5, 4, 128, 0.6
    table, step_fn = markov(V, 0)
    logp = tf.nn.log_softmax(table).numpy()
    every = []
    for n in range(1, T + 1):
        for words in itertools.product([t for t in range(V) if t != EOS], repeat=n - 1):
            path = [BOS, *words, EOS]
            score = sum(logp[a, b] for a, b in zip(path, path[1:])) / decoding.length_penalty(n, alpha)
            every.append((score, path[1:]))
    ids, scores = decoding.beam_search(step_fn, (), (), tf.constant([T]), T, K, alpha, BOS, EOS, several=True)
    ids, scores = ids.numpy()[0], scores.numpy()[0]
    there = np.isfinite(scores)
    found = [(float(score), sentence(row)) for score, row in zip(scores[there], ids[there])]
    known = {tuple(words): float(score) for score, words in every}
    assert len(found) > 40 and len({tuple(words) for _, words in found}) == len(found) and not ids[~there].any()
    np.testing.assert_allclose([score for score, _ in found], [known[tuple(words)] for _, words in found], atol=1e-4)
    assert found == sorted(found, key=lambda each: -each[0])
    np.testing.assert_allclose([score for score, _ in found[:10]], sorted(known.values())[:-11:-1], atol=1e-4)
    best, score = decoding.beam_search(step_fn, (), (), tf.constant([T]), T, K, alpha, BOS, EOS)
    np.testing.assert_array_equal(best[0], ids[0])
    np.testing.assert_array_equal(score[0], scores[0])


def test_length_penalty_is_wus():
    assert float(decoding.length_penalty(1, 0.6)) == 1.0
    assert float(decoding.length_penalty(25, 0.6)) == pytest.approx(5 ** 0.6)


def test_the_loop_ends_when_all_sentences_are_done():
    steps = tf.Variable(0)

    def step_fn(ids, step, slots, context, cache):
        steps.assign_add(1)
        return tf.tile(tf.one_hot([EOS], 6)[:, None] * 50, [2, 4, 1]), cache
    decoding.beam_search(step_fn, (), (), tf.constant([40, 40]), 40, 4, 0.6, BOS, EOS)
    assert int(steps) == 1


@pytest.mark.parametrize('V, n', [(37_000, 8), (8_000, 8), (360, 8), (360, 2), (37, 8), (64, 8), (9, 8),
                                  (1009, 2)])
@pytest.mark.parametrize('levels', [3, 10_000])
def test_the_best_are_found_in_blocks(V, n, levels):
    """`tf.math.top_k` has them: of equals, of which there are many on 3 levels, those of the lowest ids first."""
    logits = tf.cast(tf.random.stateless_uniform([5, 4, V], [V, levels], 0, levels, tf.int32), tf.float32)
    for found, expected in zip(decoding._top(logits, n), tf.math.top_k(logits, n)):
        np.testing.assert_array_equal(found, expected)
    logp, ids = decoding._best(logits / levels, n)
    expected, expected_ids = tf.math.top_k(tf.nn.log_softmax(logits / levels), n)
    np.testing.assert_allclose(logp, expected, rtol=1e-5)
    np.testing.assert_array_equal(ids, expected_ids)


def test_of_fewer_than_are_wanted_all_are_the_best():
    logits = tf.constant([[[2., 3., 1.]]])
    logp, ids = decoding._best(logits, 8)
    assert ids.numpy().tolist() == [[[1, 0, 2]]]
    np.testing.assert_allclose(logp, np.sort(tf.nn.log_softmax(logits))[..., ::-1], rtol=1e-6)


# --- The Transformer's cache -----------------------------------------------------------------------------

CONFIG = Config(vocab_size=30, N=2, d_model=16, d_ff=32, h=4)
INFERENCE = Inference(extra_length=6)
INPUTS = np.array([[5, 6, 7, 2, 0, 0], [8, 9, 10, 11, 12, 2], [4, 2, 0, 0, 0, 0], [21, 5, 5, 2, 0, 0]], np.int32)


@pytest.fixture(scope='module', params=['post', pytest.param('pre', marks=pytest.mark.slow)])
def model(request):
    """A random model that likes to end sentences now and then."""
    config = dataclasses.replace(CONFIG, norm=request.param)
    nets = transformer.build(config)
    draw = np.random.default_rng(5)
    for weight in nets['transformer'].weights:
        weight.assign(weight + draw.normal(0, 0.35, weight.shape))
    return nets, config


def translating(model, jit=None, pack=False, **values):
    """A function of int32 [B, S] that is traced once a shape."""
    nets, config = model
    translator = Translator(nets, config, dataclasses.replace(INFERENCE, **values))
    return tf.function(lambda inputs: translator(inputs, pack), jit_compile=jit)


def translate(model, inputs=INPUTS, **values):
    ids, scores = translating(model, **values)(tf.constant(inputs))
    return ids.numpy(), scores.numpy()


@pytest.fixture(scope='module')
def translated(model):
    """Ids and scores of INPUTS."""
    return translate(model)


def uncached(model, inputs, beam_size, alpha):
    """The same search with the whole teacher-forced model run anew at every step: no cache at all."""
    nets, config = model
    T = inputs.shape[1] + INFERENCE.extra_length
    lengths = tf.reduce_sum(tf.cast(inputs != 0, tf.int32), 1)

    def step_fn(last, step, slots, inputs, ids):  # the "cache" is the tokens so far
        B, K = last.shape
        ids = tf.concat([ids[:, :, :step], last[:, :, None], ids[:, :, step + 1:]], 2)
        own = tf.gather(tf.transpose(ids, [0, 2, 1]), tf.transpose(slots, [0, 2, 1]), batch_dims=2)
        targets = tf.concat([tf.transpose(own, [0, 2, 1])[:, :, 1:], tf.zeros([B, K, 1], tf.int32)], 2)
        targets = tf.reshape(targets, [B * K, T])
        logits = nets['transformer']([tf.repeat(inputs, K, 0), targets, tf.zeros([2], tf.int32)])
        return tf.reshape(logits[:, int(step)], [B, K, -1]), ids
    return decoding.beam_search(step_fn, inputs, tf.zeros([inputs.shape[0], beam_size, T], tf.int32),
                                lengths + INFERENCE.extra_length, T, beam_size, alpha, BOS, EOS)


@pytest.mark.parametrize('model', ['post', 'pre'], indirect=True)
@pytest.mark.parametrize('beam_size, alpha', [(1, 0.0), (4, 0.6)])
def test_cached_equals_uncached_token_for_token(model, beam_size, alpha):
    ids, scores = translate(model, beam_size=beam_size, alpha=alpha)
    slow_ids, slow_scores = uncached(model, INPUTS, beam_size, alpha)
    np.testing.assert_array_equal(ids, slow_ids)
    np.testing.assert_allclose(scores, slow_scores, atol=1e-4)


@pytest.mark.parametrize('alpha', [0.0, 1.0])
def test_packing_changes_none_of_several(model, alpha):
    nets, config = model
    translator = Translator(nets, config, dataclasses.replace(INFERENCE, alpha=alpha))
    ids, scores = translator.hypotheses(tf.constant(INPUTS))
    packed, again = translator(tf.constant(INPUTS), pack=True, several=True)
    np.testing.assert_array_equal(packed, ids)
    np.testing.assert_allclose(again, scores, atol=1e-5)
    assert np.isfinite(scores[:, 0]).all()


def test_a_beam_of_one_without_penalty_is_greedy(model):
    nets, config = model
    ids, _ = translate(model, beam_size=1, alpha=0.0)

    def logits_fn(inputs, targets):
        return nets['transformer']([inputs, targets, tf.zeros([2], tf.int32)])
    for row, source in zip(ids, INPUTS):
        limit = int((source != 0).sum()) + INFERENCE.extra_length
        greedy = decoding.greedy(logits_fn, source[None], limit, EOS)
        assert sentence(row) == sentence(greedy.numpy()[0])


def test_a_batch_of_mixed_lengths_equals_one_by_one(model, translated):
    ids, scores = translated
    translator = translating(model)
    for i, source in enumerate(INPUTS):
        alone = source[None, :int((source != 0).sum())]
        one, score = translator(tf.constant(alone))
        assert sentence(one.numpy()[0]) == sentence(ids[i])
        np.testing.assert_allclose(score[0], scores[i], atol=1e-4)


def test_where_it_looked_is_the_mean_of_all_heads_and_of_a_batch_what_it_is_alone(model):
    nets, config = model
    targets = np.array([[7, 8, 2], [9, 2, 0], [2, 0, 0], [4, 6, 2]], np.int32)
    layers = {layer.name: layer for layer in nets['transformer'].layers}
    found = attention_maps.source_attention(layers, config, INPUTS, targets).numpy()
    for row, (source, target) in enumerate(zip(INPUTS, targets)):
        S, T = (int((ids != 0).sum()) for ids in (source, target))
        weights = attention_maps.attention_weights(nets, config, source[None, :S], target[None, :T])
        mean = np.mean([each.numpy().mean(0) for name, each in weights.items() if 'source' in name], 0)
        np.testing.assert_allclose(found[row, :T, :S], mean, atol=1e-5)
        np.testing.assert_allclose(found[row, :T].sum(-1), 1, atol=1e-5)


@pytest.mark.parametrize('other', [{'jit': True}, {'pack': True}])
def test_compiled_and_packed_change_nothing(model, translated, other):
    ids, scores = translated
    others, other_scores = translate(model, **other)
    np.testing.assert_array_equal(ids, others)
    np.testing.assert_allclose(scores, other_scores, atol=1e-4)


def test_packing_survives_sentences_leaving_at_any_time(model):
    """40 sentences of 1 to 20 tokens and up to 20 more: of 40 rows to none."""
    draw = np.random.default_rng(7)
    inputs = np.zeros([40, 20], np.int32)
    for row in inputs:
        n = draw.integers(1, 21)
        row[:n] = [*draw.integers(3, 30, n - 1), EOS]
    ids, scores = translate(model, tf.constant(inputs), extra_length=20)
    packed, packed_scores = translate(model, tf.constant(inputs), pack=True, extra_length=20)
    np.testing.assert_array_equal(ids, packed)
    np.testing.assert_allclose(scores, packed_scores, atol=1e-4)
    assert len({len(sentence(row)) for row in ids}) > 10


def test_no_answer_is_longer_than_allowed(model):
    ids, _ = translate(model, extra_length=2)
    lengths = (INPUTS != 0).sum(1)
    assert all(len(sentence(row)) <= n + 2 for row, n in zip(ids, lengths))
