"""Detection of lines unlike a model's training text."""
import os

import numpy as np
import pytest

from pipelines import predict
from pipelines.serving import familiarity

# As people describe photographs.
CAPTIONS = [
    'A brown dog jumps over a fallen log in the snow.', 'Two women in blue aprons are selling oranges at a market.',
    'A boy rides his bicycle down a steep hill.', 'Workers repair the roof of an old barn.',
    'Three children are building a castle at the beach.', 'A man with a guitar sings for people at a bus stop.',
    'The girl in the red coat feeds pigeons.', 'Several runners wait behind a white line.', 'hello world',
    'An elderly couple dances slowly in an empty ballroom.']


@pytest.fixture(scope='module')
def corpus(tmp_path_factory):
    """English sides of the demo's corpus: split -> lines."""
    from data_prep.text import samples
    folder = str(tmp_path_factory.mktemp('cldr'))
    samples.write_cldr_pairs(folder)
    return {split: [line.split('\t')[0] for line in open(os.path.join(folder, f'{split}.tsv'), encoding='utf-8')]
            for split in ('train', 'validation', 'test')}


def test_of_the_demos_corpus_its_own_test_lines_are_like_it_and_captions_are_not(corpus):
    profile = familiarity.learn(corpus['train'], corpus['validation'])
    assert np.mean([profile.is_unlike(line) for line in corpus['test']]) <= 0.01
    assert all(profile.is_unlike(line) for line in CAPTIONS)


def test_a_share_is_that_of_known_4_grams():
    """' abc ' has two, ' abc' and 'abc '; of ' abq ' none is known, of ' abcd ' the first alone, of its three."""
    profile = familiarity.learn(['abc', 'am 24.'], [])
    shares = [profile.share(line) for line in ('abc', 'ABC', 'abq', 'abcd', 'am 57.', '')]
    assert shares == [1, 1, 0, pytest.approx(1 / 3), 1, 1]  # figures are alike; a line without text is like any


def test_validation_lines_set_the_bound_but_never_above_the_most():
    assert familiarity.learn(['abcdef'], ['abcdef'] * 9).least == 0.8
    odd = familiarity.learn(['abcdef'], ['abcdef', 'abcdzz'] * 9)  # ' abc', 'abcd' of six
    assert odd.least == pytest.approx(2 / 5) and not odd.is_unlike('abcdzz') and odd.is_unlike('zzzzzz')


def test_the_first_lines_are_named_and_the_others_counted(capsys):
    doubts = predict.Doubts(familiarity.learn(['abcdef'] * 3, ['abcdef']))
    doubts.look(1, ['abcdef', 'zzzzzz'])
    doubts.look(3, ['zzzzzz'] * 4 + ['abcdef'])
    doubts.close()
    said = capsys.readouterr()
    notes = said.err.splitlines()
    assert not said.out and [note.split()[2] for note in notes[:3]] == ['2', '3', '4']
    assert notes[3:] == ['note: 2 more lines are also unlike it.']
    assert all('is unlike the training text: 0% of its character sequences' in note for note in notes[:3])


def test_a_model_without_a_profile_raises_no_doubts(tmp_path, capsys):
    assert familiarity.read(str(tmp_path)) is None
    doubts = predict.Doubts(None)
    doubts.look(1, ['zzz'])
    doubts.close()
    assert capsys.readouterr().err == ''
