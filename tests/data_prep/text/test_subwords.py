"""Subwords of every kind: reversible, equal in the graph and the Beam job, and of exactly the requested number."""
import collections
import json
import re
import unicodedata

import babel
import pytest
import tensorflow as tf
from hypothesis import example, given
from hypothesis import strategies as st

from data_prep import UserError
from data_prep.text import subwords
from support.commands import ROOT, command

KINDS = {'bpe': {'subword_kind': 'bpe'}, 'unigram': {'subword_kind': 'unigram'},
         'wordpiece': {'subword_kind': 'wordpiece', 'normalization': 'nfkc'},
         'wordpiece bytes': {'subword_kind': 'wordpiece', 'normalization': 'nfkc', 'byte_fallback': True}}
WORDPIECES = [kind for kind in KINDS if 'wordpiece' in kind]
VOCAB_SIZE = 900
ODD = ['', ' ', '▁', 'a▁b ▁▁ c', '</s> <s> <pad> <unk> <0x41>', '##a # ## ###', '\0', 'a\0b', 'Ā', '\ue000\ue0ff',
       '漢字', '👩\u200d👩\u200d👧 \U0001f1eb\U0001f1f7', '\x1c\x1d\x7f\x80\x9f', 'a\u2028b\u0085c',
       'tab\tand\nline\r\n', '\ufeff\ufffe\uffff', 'ﬁ ½ … ｆｕｌｌ', 'e\u0301 \u0301', '한국어']


def corpus():
    """English prose and names in French: real text that is on every machine."""
    names = babel.Locale('fr')
    return [*(ROOT / 'LICENSE').read_text().split('\n'), *names.territories.values(), *names.languages.values()]


@pytest.fixture(scope='module')
def learned():
    return {kind: subwords.learn(corpus(), config(kind)) for kind in KINDS}


def config(kind, **values):
    return subwords.Config(**{'vocab_size': VOCAB_SIZE, **KINDS[kind], **values})


def ids_of(model, lines):
    return subwords.Tokenizer(model).tokenize(tf.constant(lines)).to_list()


def back(model, ids):
    dense = tf.ragged.constant(ids, tf.int32).to_tensor(subwords.PAD)
    return [line.decode() for line in subwords.Tokenizer(model).detokenize(dense).numpy()]


# Characters assigned since Unicode 3.2, so that every library normalises them alike.
KNOWN = [chr(i) for i in range(0x110000) if unicodedata.ucd_3_2_0.category(chr(i)) not in ('Cn', 'Cs')]
ALPHABETS = ['abc  ▁\0\t', KNOWN[:400], KNOWN, 'éèà e\u0301\u0327 ', [*'the of and ', '漢', '\ue0e2', '##']]


def lines_of(*alphabets):
    """Some lines, each of one alphabet."""
    return st.lists(st.one_of(*(st.lists(st.sampled_from(alphabet), max_size=30).map(''.join)
                                for alphabet in alphabets)), min_size=5, max_size=20)


def expected_text(line, normalization):
    line = unicodedata.normalize('NFKC', line) if normalization == 'nfkc' else line
    return ' '.join(re.findall(r'[^ \t\n\v\f\r]+', line))


@pytest.mark.parametrize('normalization', ['nfkc', 'identity'])
def test_word_pieces_give_back_every_string(normalization):
    model = subwords.learn(corpus() + 20 * ODD, config('wordpiece bytes', normalization=normalization))

    @given(lines_of(*ALPHABETS))
    @example(ODD + corpus())
    def check(lines):
        ids = ids_of(model, lines)
        assert not any(subwords.UNK in row for row in ids)
        assert back(model, ids) == [expected_text(line, normalization) for line in lines]
    check()


def test_a_word_may_have_any_length(learned):
    for line in ('x' * 300000, '漢' * 20000):
        ids = ids_of(learned['wordpiece bytes'], [line])
        assert subwords.UNK not in ids[0] and back(learned['wordpiece bytes'], ids) == [line]


def greedy(line, pieces, byte_fallback):
    """Wu et al.'s segmentation by its definition: for each word, again and again the longest piece."""
    numbers = {piece: i for i, piece in enumerate(pieces) if i > (259 if byte_fallback else 3)}
    longest, ids = max(map(len, numbers)), []
    for word in expected_text(line, 'nfkc').split(' ') if expected_text(line, 'nfkc') else []:
        text, start = '▁' + word, 0
        while start < len(text):
            candidates = [text[start:start + size] for size in range(longest, 0, -1)]
            known = [piece for piece in candidates if piece in numbers and '▁' not in piece[start == 0:]]
            if known:
                ids.append(numbers[known[0]])
            elif byte_fallback:
                ids += [4 + byte for byte in text[start].encode()]
            else:
                ids.append(subwords.UNK)
            start += len(known[0]) if known else 1
    return [*ids, subwords.EOS]


@pytest.mark.parametrize('kind', WORDPIECES)
def test_words_are_cut_greedily_longest_piece_first(learned, kind):
    model, pieces = learned[kind], subwords.pieces(learned[kind])

    @given(lines_of(*ALPHABETS, [piece.replace('▁', ' ') for piece in pieces[300:]]))
    @example(ODD + pieces)
    def check(lines):
        assert ids_of(model, lines) == [greedy(line, pieces, 'bytes' in kind) for line in lines]
    check()


@pytest.mark.parametrize('kind', KINDS)
def test_the_graph_and_the_job_cut_alike(learned, kind):
    # Two ways to cut "iii" are equally likely; SentencePiece's two releases choose differently.
    lines = [line for line in ODD + corpus() if '\0' not in line and 'iii' not in line]
    in_graph = tf.function(subwords.Tokenizer(learned[kind]).tokenize)
    assert subwords.encoder(learned[kind])(lines) == in_graph(tf.constant(lines)).to_list()


@pytest.mark.parametrize('kind', KINDS)
def test_as_many_pieces_as_asked_for_and_the_same_again(learned, kind):
    assert len(subwords.pieces(learned[kind])) == VOCAB_SIZE
    assert max(max(row) for row in ids_of(learned[kind], corpus() + ODD)) < VOCAB_SIZE
    assert subwords.learn(iter(corpus()), config(kind)) == learned[kind]


@pytest.mark.parametrize('kind', WORDPIECES)
def test_what_a_piece_is_made_of_is_a_piece(learned, kind):
    pieces = subwords.pieces(learned[kind])
    first = 260 if 'bytes' in kind else 4
    single = {piece for piece in pieces[first:] if len(piece) == 1} | {chr(i) for i in range(first - 4) if i < 128}
    assert set(''.join(pieces[first:])) <= single
    assert not any(subwords.UNK in row for row in ids_of(learned[kind], corpus()))


@pytest.mark.parametrize('kind', WORDPIECES)
def test_frequent_words_are_whole(learned, kind):
    words = collections.Counter(word for line in corpus() for word in line.split() if word.isalpha())
    frequent = [word for word, _ in words.most_common(40)]
    assert {'the', 'of', 'and', 'Work', 'Îles'} <= set(frequent)
    assert [len(row) for row in ids_of(learned[kind], frequent)] == [2] * 40  # the word, and EOS


def test_an_unknown_character_is_one_unk(learned):
    mark = subwords.pieces(learned['wordpiece']).index('▁')
    assert ids_of(learned['wordpiece'], ['漢字']) == [[mark, subwords.UNK, subwords.UNK, subwords.EOS]]
    assert back(learned['wordpiece'], ids_of(learned['wordpiece'], ['the 漢 of'])) == ['the  ⁇  of']


def test_what_is_no_text_becomes_a_replacement_character(learned):
    model = learned['wordpiece bytes']
    assert ids_of(model, [b'caf\xe9 x']) == ids_of(model, ['caf\ufffd x'])
    assert back(model, [[4 + 0xe6, 4 + 0xbc, subwords.EOS]]) == ['\ufffd']


def test_digits_can_be_split(learned):
    lines = ['in 1998 and 1999, 3rd of 1998', 'on 12/1998 at 12:30'] * 30
    model = subwords.learn(lines, config('wordpiece', vocab_size=36, split_digits=True))
    assert not [piece for piece in subwords.pieces(model) if len(piece) > 1 and re.search(r'\d', piece)]


def test_rare_characters_leave_the_alphabet():
    lines = ['the usual letters'] * 300 + ['漢']
    pieces = subwords.pieces(subwords.learn(lines, config('wordpiece', vocab_size=40, character_coverage=0.999)))
    assert len(pieces) == 40 and '漢' not in pieces


@pytest.mark.parametrize('kind, size', [('wordpiece', 50), ('wordpiece bytes', 265), ('wordpiece bytes', 100000)])
def test_a_vocabulary_that_does_not_fit_is_named(kind, size):
    with pytest.raises(UserError, match=f'data.vocab_size {size} does not fit the training text') as error:
        subwords.learn(corpus(), config(kind, vocab_size=size))
    if 'bytes' in kind:  # the remedy it names is one
        nearest = int(re.findall(r'\d+', str(error.value))[-1])
        assert len(subwords.pieces(subwords.learn(corpus(), config(kind, vocab_size=nearest)))) == nearest


def test_what_word_pieces_cannot_have_is_refused(learned):
    with pytest.raises(ValueError, match='with subword_kind wordpiece it must be nfkc or identity'):
        subwords.Config(subword_kind='wordpiece')
    with pytest.raises(UserError, match='the data set has word pieces'):
        subwords.processor(learned['wordpiece'])


def test_a_second_process_answers_the_same(learned, tmp_path):
    lines = ODD + corpus()
    tokenizer, module = subwords.Tokenizer(learned['wordpiece bytes']), tf.Module()
    module.pieces = tokenizer.resource
    module.tokenize = tf.function(lambda text: tokenizer.tokenize(text).to_tensor(subwords.PAD),
                                  input_signature=[tf.TensorSpec([None], tf.string)])
    module.detokenize = tf.function(tokenizer.detokenize, input_signature=[tf.TensorSpec([None, None], tf.int32)])
    tf.saved_model.save(module, str(tmp_path / 'model'))
    done = command('support.tokens_of', str(tmp_path / 'model'), input=json.dumps(lines))
    assert done.returncode == 0, done.stderr
    ids, text = json.loads(done.stdout)
    assert ids == tokenizer.tokenize(tf.constant(lines)).to_tensor(subwords.PAD).numpy().tolist()
    assert text == [expected_text(line, 'nfkc') for line in lines]
