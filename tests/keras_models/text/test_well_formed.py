"""A search among trees: against all trees of a length, and for random nets in every way to run it."""
import itertools

import numpy as np
import pytest
import tensorflow as tf

from keras_models import ModelError, transformer
from keras_models.text import decoding, well_formed
from keras_models.text.translator import Inference, Translator
from keras_models.transformer import BOS, EOS, Config
from pipelines.serving.kit import well_formed as kit

NAMES = ['', '', '', '', '▁(S', '▁)S', '▁(NP', '▁)NP', '▁N', '▁V', 'b', '-c', '▁w', '▁(X', '▁)']
PLAIN = 10  # names that are words
CLOSING = {4: 5, 6: 7}


def kinds(count: int = len(NAMES)) -> well_formed.Kinds:
    names = NAMES[:count]
    bracket = {'(': [n[1:2] == '(' for n in names], ')': [n[1:2] == ')' for n in names]}
    word = [n.startswith('▁') for n in names]
    return well_formed.Kinds(
        np.array([a and not b and not c for a, b, c in zip(word, *bracket.values())]), *map(np.array, bracket.values()),
        np.array([n != '' and not a for n, a in zip(names, word)]),
        np.array([CLOSING.get(n, -1) for n in range(count)], np.int32))


def is_tree(ids, words: int) -> bool:
    """Whether subwords before EOS are one tree of so many tags, in which no bracket is empty."""
    tokens, stack, tags = ''.join(NAMES[n] for n in ids).replace('▁', ' ').split(), [], 0
    if not tokens or tokens[0][0] != '(':
        return False
    for place, token in enumerate(tokens):
        if place and not stack:
            return False
        if token[0] == '(':
            stack.append(token[1:])
        elif token[0] == ')':
            if stack.pop() != token[1:] or tokens[place - 1][0] == '(':
                return False
        else:
            tags += 1
    return not stack and tags == words


def scores(sentence: int, history) -> np.ndarray:
    """Logits of the next of `PLAIN` tokens, any function of all before."""
    return np.random.default_rng([3, sentence, *history]).normal(0, 2, PLAIN)


def step_fn(ids, step, slots, context, cache):
    """Look tokens up in a cache of them [B, K, T]."""
    del context
    step, cache, slots = int(step), cache.numpy(), slots.numpy()
    cache[:, :, step] = ids
    own = np.take_along_axis(cache, slots, 1)[:, :, :step + 1]
    return tf.constant([[scores(n, history) for history in rows] for n, rows in enumerate(own)],
                       tf.float32), tf.constant(cache)


@pytest.mark.parametrize('alpha', [0.0, 1.0])
def test_the_best_of_all_trees_is_found(alpha):
    """A beam wide enough for all is exhaustive: 7 subwords are 12 trees of one word, and 56 of two."""
    inputs, T, K = tf.constant([[8, EOS, 0], [9, 8, EOS]]), 7, 256
    rule = well_formed.Trees(kinds(PLAIN))
    ids, found = decoding.beam_search(
        step_fn, (), tf.zeros([2, K, T], tf.int32), tf.constant([T, T]), T, K, alpha, BOS, EOS, rule=rule,
        marks=rule.start(inputs, T, K))

    def value(sentence, tokens):
        history, log_p = [BOS], 0.0
        for token in tokens:
            z = scores(sentence, history)
            log_p += z[token] - np.log(np.exp(z).sum())  # of all subwords, whether allowed or not
            history.append(token)
        return log_p / ((5 + len(tokens)) / 6) ** alpha
    for sentence, words, count in ((0, 1, 12), (1, 2, 56)):
        trees = [tokens for n in range(1, T) for tokens in itertools.product(range(4, PLAIN), repeat=n)
                 if is_tree(tokens, words)]
        assert len(trees) == count
        best, tree = max((value(sentence, [*tokens, EOS]), [*tokens, EOS]) for tokens in trees)
        assert [n for n in ids[sentence].numpy() if n] == tree
        np.testing.assert_allclose(found[sentence], best, rtol=1e-5)


@pytest.fixture(scope='module')
def nets():
    config = Config(vocab_size=13, N=1, d_model=16, d_ff=32, h=2)
    made = transformer.build(config)
    draw = np.random.default_rng(5)
    for weight in made['transformer'].weights:
        weight.assign(weight + draw.normal(0, 0.5, weight.shape))
    return made, config


@pytest.mark.parametrize('beam_size', [1, 4])
def test_whatever_a_net_has_learned_its_outputs_are_trees(nets, beam_size):
    """Sentences of one to six words, of which some are several subwords, as are some labels."""
    lines = [[12, 10, EOS], [12, 12, 10, 10, EOS], [12] * 6 + [EOS], [9, 10, 8, 12, EOS], [8, EOS]]
    inputs = tf.ragged.constant(lines, tf.int32).to_tensor()
    net, config = nets
    free, bound = (Translator(net, config, Inference(beam_size, 0.6, extra_length=12), rule)
                   for rule in (None, kinds(config.vocab_size)))

    def trees(ids):
        rows = [list(row[:list(row).index(EOS)]) if EOS in row else [] for row in ids.numpy()]
        return [is_tree(row, sum(NAMES[n].startswith('▁') for n in line)) for row, line in zip(rows, lines)]
    ids, score = bound(inputs)
    assert all(trees(ids)) and not any(trees(free(inputs)[0]))
    compiled = tf.function(bound, jit_compile=True)
    for other, again in (bound(inputs, pack=True), compiled(inputs)):
        np.testing.assert_array_equal(other, ids)
        np.testing.assert_allclose(again, score, atol=1e-5)
    several, each = bound.hypotheses(inputs)
    for n in range(beam_size):
        assert all(np.array(trees(several[:, n])) | np.isinf(each[:, n]))


def told(tokens, length: int, words: int) -> list[set[int]]:
    """What is allowed before each of the tokens, and after them."""
    rule = well_formed.Trees(kinds())
    marks = rule.start(tf.constant([[12] * words + [EOS]]), length, 1)
    allowed, slots = [], tf.zeros([1, 1, length], tf.int32)
    for step, last in enumerate([BOS, *tokens]):
        may, marks = rule(tf.constant([[last]]), tf.constant(step), slots, tf.constant([length]), marks)
        allowed.append({n for n in range(len(NAMES)) if may[0, 0, n]})
    return allowed


TAGS, OPENS, CONTINUES = {8, 9, 12}, {4, 6, 13}, {10, 11}


def test_a_label_of_several_subwords_is_closed_by_the_same():
    """`(NP-cb (S N )S )NP-cb`, in ten positions with the end."""
    allowed = told([6, 11, 10, 4, 8, 5, 7, 11, 10], 10, 1)
    start = TAGS | OPENS | CONTINUES
    assert allowed == [OPENS, start, start, start, TAGS, {5}, {7}, {11}, {10}, {EOS}]


def test_a_label_without_a_counterpart_is_closed_by_another_of_those():
    """`▁)` is no counterpart of `▁(X`, whose closing bracket has other subwords."""
    assert told([13, 8, 14, 10], 7, 1) == [OPENS, TAGS | OPENS | CONTINUES, {14} | CONTINUES, {EOS} | CONTINUES,
                                           {EOS} | CONTINUES]


@pytest.mark.parametrize('seed', range(8))
def test_without_tensorflow_the_same_is_allowed(seed):
    """Random choices among what is allowed, to the end."""
    draw, length, words = np.random.default_rng(seed), 40, seed % 4 + 1
    rule, theirs = well_formed.Trees(kinds()), kit.Trees(NAMES)
    sentence, slots = [12] * words + [EOS], tf.zeros([1, 1, length], tf.int32)
    marks, state, token = rule.start(tf.constant([sentence]), length, 1), theirs.start(sentence), BOS
    for step in range(length):
        may, marks = rule(tf.constant([[token]]), tf.constant(step), slots, tf.constant([length]), marks)
        state = theirs.next(state, token) if step else state
        assert may[0, 0].numpy().tolist() == theirs.allowed(state, length - step).tolist()
        if (token := int(draw.choice(np.flatnonzero(may[0, 0])))) == EOS:
            break
    assert token == EOS


def test_text_without_trees_is_refused():
    with pytest.raises(ModelError, match='inference.well_formed is for trees'):
        well_formed.kinds(object(), Config(vocab_size=9), Inference(well_formed=True))
    assert well_formed.kinds(object(), Config(vocab_size=9), Inference()) is None
