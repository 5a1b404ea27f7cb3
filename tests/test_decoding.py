"""Beam search: every way of computing the same answer gives the same answer."""
import dataclasses
import itertools

import numpy as np
import pytest
import tensorflow as tf

from keras_models import decoding, transformer
from keras_models.transformer import BOS, EOS, Config, Inference
from keras_models.translator import Translator

CONFIG = Config(vocab_size=30, N=2, d_model=16, d_ff=32, h=4)
INFERENCE = Inference(extra_length=6)
INPUTS = tf.constant([[5, 6, 7, 2, 0, 0], [8, 9, 10, 11, 12, 2], [4, 2, 0, 0, 0, 0], [21, 5, 5, 2, 0, 0]])


@pytest.fixture(scope='module', params=['post', 'pre'])
def model(request):
    """A random model that likes to end sentences now and then."""
    config = dataclasses.replace(CONFIG, norm=request.param)
    nets = transformer.build(config)
    draw = np.random.default_rng(5)
    for weight in nets['transformer'].weights:
        weight.assign(weight + draw.normal(0, 0.35, weight.shape))
    return nets, config


def translate(model, inputs=INPUTS, jit=None, pack=False, **values):
    nets, config = model
    translator = Translator(nets, config, dataclasses.replace(INFERENCE, **values))
    ids, scores = tf.function(lambda inputs: translator(inputs, pack), jit_compile=jit)(inputs)
    return ids.numpy(), scores.numpy()


def sentence(ids):
    ids = ids.tolist()
    return ids[:ids.index(EOS) + 1] if EOS in ids else [i for i in ids if i]


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


@pytest.mark.parametrize('beam_size, alpha', [(1, 0.0), (4, 0.6)])
def test_cached_equals_uncached_token_for_token(model, beam_size, alpha):
    ids, scores = translate(model, beam_size=beam_size, alpha=alpha)
    slow_ids, slow_scores = uncached(model, INPUTS, beam_size, alpha)
    np.testing.assert_array_equal(ids, slow_ids)
    np.testing.assert_allclose(scores, slow_scores, atol=1e-4)


def test_a_beam_of_one_without_penalty_is_greedy(model):
    nets, config = model
    ids, _ = translate(model, beam_size=1, alpha=0.0)

    def logits_fn(inputs, targets):
        return nets['transformer']([inputs, targets, tf.zeros([2], tf.int32)])
    for row, source in zip(ids, INPUTS):
        limit = int((source.numpy() != 0).sum()) + INFERENCE.extra_length
        greedy = decoding.greedy(logits_fn, source[None], limit, EOS)
        assert sentence(row) == sentence(greedy.numpy()[0])


def test_a_batch_of_mixed_lengths_equals_one_by_one(model):
    ids, scores = translate(model)
    for i, source in enumerate(INPUTS):
        alone = source[None, :int((source.numpy() != 0).sum())]
        one, score = translate(model, alone)
        assert sentence(one[0]) == sentence(ids[i])
        np.testing.assert_allclose(score[0], scores[i], atol=1e-4)


@pytest.mark.parametrize('other', [{'jit': True}, {'pack': True}])
def test_compiled_and_packed_change_nothing(model, other):
    ids, scores = translate(model)
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
    lengths = (INPUTS.numpy() != 0).sum(1)
    assert all(len(sentence(row)) <= n + 2 for row, n in zip(ids, lengths))


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


@pytest.mark.parametrize('V, n', [(37_000, 8), (8_000, 8), (360, 8), (360, 2), (37, 8), (64, 8), (9, 8)])
@pytest.mark.parametrize('levels', [3, 10_000])
def test_the_best_are_found_in_blocks(V, n, levels):
    """As `tf.math.top_k` has them: of equals, of which there are many on 3 levels, those of the lowest ids first."""
    logits = tf.cast(tf.random.stateless_uniform([5, 4, V], [V, levels], 0, levels, tf.int32), tf.float32)
    for found, expected in zip(decoding._top(logits, n), tf.math.top_k(logits, n)):
        np.testing.assert_array_equal(found, expected)
