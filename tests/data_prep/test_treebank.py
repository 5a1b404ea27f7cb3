"""Treebanks: files to trees, trees to their linear form and back, and the Beam job over them."""
import collections
import gzip
import hashlib
import io
import itertools
import json
import os
import tarfile

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from nltk import Tree as NltkTree

from data_prep import UserError, treebank, wmt
from data_prep.core import records
from data_prep.text import subwords
from data_prep.trees import job as tree_job
from data_prep.trees import substitution, tree_files, tree_graph, trees
from data_prep.trees.trees import Malformed, Tree
from pipelines.serving.kit import parse
from support.tiny_treebank import corpus

# As the Penn Treebank writes them: over several lines, with traces, function tags and an empty outer bracket.
GOLD = """
( (S
    (NP-SBJ-1 (NNP Ada) (NNP Byron) )
    (VP (VBD was)
      (VP (VBN asked)
        (S
          (NP-SBJ (-NONE- *-1) )
          (VP (TO to)
            (VP (VB write)
              (NP
                (NP (DT the) (NNS notes) )
                (SBAR
                  (WHNP-2 (-NONE- 0) )
                  (S
                    (NP-SBJ (PRP we) )
                    (VP (VBP read)
                      (NP (-NONE- *T*-2) ))))))))))
    (. .) ))
( (SINV (`` ``)
    (S-TPC-1 (NP=2 (PRP It)) (VP (VBZ weaves)) )
    (, ,) ('' '')
    (VP (VBD wrote) (S (-NONE- *T*-1)))
    (NP-SBJ (PRP she)) (PRN (-LRB- -LRB-) (PP-TMP (IN in) (NP (CD 1843))) (-RRB- -RRB-))
    (. .) ))
( (NP (NN word)) )
"""
CLEAN = ["(S (NP (NNP Ada) (NNP Byron)) (VP (VBD was) (VP (VBN asked) (S (VP (TO to) (VP (VB write) (NP (NP (DT the) "
         '(NNS notes)) (SBAR (S (NP (PRP we)) (VP (VBP read)))))))))) (. .))',
         "(SINV (`` ``) (S (NP (PRP It)) (VP (VBZ weaves))) (, ,) ('' '') (VP (VBD wrote)) (NP (PRP she)) (PRN (-LRB- "
         '-LRB-) (PP (IN in) (NP (CD 1843))) (-RRB- -RRB-)) (. .))', '(NP (NN word))']
LINEAR = ['(S (NP XX XX )NP (VP XX (VP XX (S (VP XX (VP XX (NP (NP XX XX )NP (SBAR (S (NP XX )NP (VP XX )VP )S )SBAR '
          ')NP )VP )VP )S )VP )VP . )S',
          "(SINV `` (S (NP XX )NP (VP XX )VP )S , '' (VP XX )VP (NP XX )NP (PRN XX (PP XX (NP XX )NP )PP XX )PRN . "
          ')SINV', '(NP XX )NP']


def delinearise(*pairs):
    """Trees, and whether each was well formed: what the SavedModel gives, and so does the program for other formats."""
    found, well_formed = tree_graph.delinearise(*(tf.constant(column) for column in zip(*pairs)))
    both = [tree.decode() for tree in found.numpy()], well_formed.numpy().tolist()
    assert [*zip(*both)] == [parse.bracketed(*pair) for pair in pairs]
    return both


def test_the_penn_treebanks_rules():
    kept = [str(trees.clean(tree, 'keep')) for tree in trees.parse(GOLD)]
    assert kept == CLEAN
    assert [trees.linear(trees.clean(tree))[1] for tree in trees.parse(GOLD)] == LINEAR
    assert trees.linear(trees.clean(trees.parse(GOLD)[1]))[0] == (
        "`` It weaves , '' wrote she -LRB- in 1843 -RRB- .")
    assert str(trees.clean(trees.parse(GOLD)[0], 'keep', function_tags=True)).startswith('(S (NP-SBJ-1 (NNP Ada)')


def test_trees_are_read_as_nltk_reads_them():
    def plain(tree):
        return Tree(tree.label(), word=tree[0]) if isinstance(tree[0], str) else Tree(tree.label(),
                                                                                      tuple(map(plain, tree)))
    for text in GOLD.strip().split('\n( '):
        text = text if text.startswith('( ') else f'( {text}'
        assert trees.parse(text) == [plain(NltkTree.fromstring(text))]


@pytest.mark.parametrize('text, why', [
    ('(S (NP (NN a))', '1 bracket not closed'), ('(S (NN a)))', 'closing bracket without an opening one'),
    ('(S )', "an empty bracket 'S'"), ('()', 'an empty bracket'), ('(NP the man)', "'the' has no tag of its"),
    ('(NP (DT the) man)', "'man' has no tag"), ('loose (S (NN a))', "'loose' is outside"),
    ('(S ' * 300, 'over 200 nested brackets')])
def test_what_is_no_tree_is_told(text, why):
    with pytest.raises(Malformed, match=why):
        trees.parse(text)


@pytest.mark.parametrize('text, clean', [
    ('(TOP (S (NP (NN a))))', '(S (NP (NN a)))'), ('( (S (NN a)) (S (NN b)) )', '(TOP (S (NN a)) (S (NN b)))'),
    ('(NN a)', '(TOP (NN a))'), ('( (NN a) )', '(TOP (NN a))'), ('(S (ADVP|PRT (RB up)))', '(S (ADVP|PRT (RB up)))'),
    ('(S1 (S (NP-SBJ=2-1 (NN a))))', '(S (NP (NN a)))')])
def test_outer_brackets_and_labels(text, clean):
    assert str(trees.clean(*trees.parse(text), tags='keep')) == clean


@pytest.mark.parametrize('text', ['(S (-NONE- *))', '(S ( (NN a) (NN b)) (NN c))'])
def test_what_is_left_must_be_a_tree(text):
    with pytest.raises(Malformed):
        trees.clean(*trees.parse(text))


def test_linear_forms_come_back_as_the_trees_they_are_of():
    whole = [trees.clean(tree, tags) for tree in trees.parse(GOLD) for tags in ('XX', 'keep')]
    assert delinearise(*map(trees.linear, whole)) == ([str(tree) for tree in whole], [True] * 6)


LABELS = st.sampled_from(['S', 'NP', 'VP', 'SBAR', 'X-Y', 'ADVP|PRT', 'Ü'])
WORD = st.text(st.characters(codec='utf-8', exclude_categories=['Z', 'C'], exclude_characters='()'), min_size=1)
LEAF = st.builds(lambda tag, word: Tree(tag, word=word), st.sampled_from(['XX', 'NN', ',', '-LRB-', 'PRP$']), WORD)
PHRASE = st.recursive(st.builds(lambda label, parts: Tree(label, tuple(parts)), LABELS, st.lists(LEAF, min_size=1)),
                      lambda inner: st.builds(lambda label, parts: Tree(label, tuple(parts)), LABELS,
                                              st.lists(inner | LEAF, min_size=1, max_size=4)), max_leaves=12)


@settings(max_examples=60, deadline=None)
@given(st.lists(PHRASE, min_size=1, max_size=9))
def test_any_tree_comes_back(those):
    assert [trees.parse(str(tree)) for tree in those] == [[tree] for tree in those]
    assert delinearise(*map(trees.linear, those)) == ([str(tree) for tree in those], [True] * len(those))


@pytest.mark.parametrize('said, tree', [
    ('(S (NP XX )NP (VP XX XX )VP )S', '(S (NP (XX a)) (VP (XX b) (XX c)))'),  # nothing to mend
    ('', '(S (XX a) (XX b) (XX c))'),
    ('(S (NP NN )NP (VP VB )VP )S', '(S (NP (NN a)) (VP (VB b) (XX c)))'),  # words left
    ('(S (NP XX XX XX XX )NP )S', '(S (NP (XX a) (XX b) (XX c)))'),  # a tag too many
    ('(S (NP XX )NP (VP XX (NP XX', '(S (NP (XX a)) (VP (XX b) (NP (XX c))))'),  # cut off
    ('(S (NP XX (PP XX )NP XX )S', '(S (NP (XX a) (PP (XX b))) (XX c))'),  # one bracket forgotten
    ('(S XX )VP XX )NP )NP XX )S', '(S (XX a) (XX b) (XX c))'),  # none to close
    ('(S (NP )NP XX (VP (PP )PP )VP XX XX )S', '(S (XX a) (XX b) (XX c))'),  # brackets without words
    ('(S )S', '(S (XX a) (XX b) (XX c))'),
    ('(S XX XX )S (NP XX )NP', '(S (XX a) (XX b) (NP (XX c)))'),  # more after the end
    ('XX (NP XX )NP XX )S', '(S (XX a) (NP (XX b)) (XX c))'),  # no bracket to begin with
    ('( ) (S (X)X XX (( )) NN)P XX )', '(S (S (XX (XX a) (NNP b) (XX c))))'),  # brackets out of place
    ('(S (NP XX (NP XX )NP XX', '(S (NP (XX a) (NP (XX b)) (XX c)))'),
    ('(S (NP A B )NP (VP C (NP D E )NP )VP F )S', '(S (NP (B a)) (VP (NP (D b))) (F c))'),  # twice as many tags
])
def test_what_a_model_says_is_mended(said, tree):
    assert delinearise(('a b c', said), ('', said)) == ([tree, ''], [said.startswith('(S (NP XX )NP (VP XX XX'), False])


TOKENS = st.lists(st.sampled_from(['(S', '(NP', '(VP', ')S', ')NP', ')VP', 'XX', '.', '(', ')', '()', '⁇', 'a)b']),
                  max_size=25)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 6), TOKENS | st.text(max_size=20).map(str.split)), min_size=1, max_size=6))
def test_whatever_a_model_says_becomes_one_tree_of_the_words(said):
    asked = [(' '.join(f'w{i}' for i in range(words)), ' '.join(tokens)) for words, tokens in said]
    for (sentence, text), tree, well_formed in zip(asked, *delinearise(*asked)):
        found = trees.parse(tree)
        assert len(found) == bool(sentence)
        assert ' '.join(leaf.word for each in found for leaf in each.leaves()) == sentence
        assert well_formed == (bool(found) and trees.linear(found[0]) == (sentence, ' '.join(text.split())))
        if found:  # what was mended once is well formed
            assert delinearise(trees.linear(found[0])) == ([tree], [True])


def test_words_stay_as_they_were_typed_but_for_brackets():
    typed, tree = '(Ｆｕｌｌ ﬁne) 1\\/2', '(NP (XX -LRB-Ｆｕｌｌ) (XX ﬁne-RRB-) (XX 1\\/2))'
    assert delinearise((typed, '(NP XX XX XX )NP')) == ([tree], [True])


# The job.

@pytest.fixture
def bank(tmp_path):
    """wsj/00 … 03 with five files of ten trees each; returns a Config factory."""
    for section in range(4):
        (tmp_path / 'wsj' / f'0{section}').mkdir(parents=True)
        for file in range(5):
            text = '\n'.join(corpus(10, 10 * section + file))
            (tmp_path / 'wsj' / f'0{section}' / f'wsj_0{section}0{file}.mrg').write_text(f'\n{text}\n')
    (tmp_path / 'wsj' / 'README').write_text('no trees')

    def config(**values):
        return treebank.Config(**{'folder': str(tmp_path), 'train': ['wsj/0[01]'], 'validation': ['wsj/02'],
                                  'test': ['wsj/03'], 'vocab_size': 130, 'trees_per_block': 4, 'trees_per_shard': 30,
                                  **values})
    return config


def prepare(config, folder):
    os.makedirs(folder)
    return tree_job.run(config, str(folder), [])


def texts(folder, split='train'):
    part = records.open_split(str(folder), split)
    return treebank.examples(part.read(range(len(part))))[1]


def letters(folder):
    return [json.loads(line) for path in sorted((folder / 'dead_letters').iterdir()) for line in open(path)]


def test_sections_of_a_treebank(bank, tmp_path):
    manifest = prepare(bank(), tmp_path / 'out')
    nothing = {'filtered_empty': 0, 'filtered_duplicate': 0, 'filtered_long': 0, 'dead_letters': 0}
    for split, n in (('train', 100), ('validation', 50), ('test', 50)):
        counts = {key: value for key, value in manifest.counts[split].items() if not key.startswith('in_')}
        assert counts == {'read': n, 'written': n, **nothing}
    assert len(manifest.splits['train']) == 4  # two listed folders, of 50 trees each, 30 a shard
    expected = [trees.clean(*trees.parse(tree)) for section in (0, 1) for file in range(5)
                for tree in corpus(10, 10 * section + file)]
    found = texts(tmp_path / 'out')
    assert found['target'] == [str(tree) for tree in expected]
    assert found['source'] == [trees.linear(tree)[0] for tree in expected]
    assert set(found['kind']) == {'up to 10 words', '11 to 20 words'}


def archived(folder, packed, pattern='**/*'):
    """The treebank as an archive, some of its files gzipped."""
    with tarfile.open(folder / packed, 'w:gz' if packed.endswith('gz') else 'w') as tar:
        for path in sorted((folder / 'wsj').glob(pattern)):
            if path.is_file():
                content, name = path.read_bytes(), str(path.relative_to(folder))
                if path.stem.endswith('3'):
                    content, name = gzip.compress(content), f'{name}.gz'
                entry = tarfile.TarInfo(name)
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))


@pytest.mark.parametrize('train', [
    ['wsj/00', 'wsj/01'], ['wsj/0[01]/*.mrg'], ['wsj.tar.gz/wsj/0[01]'], ['wsj.tar.gz/wsj/00', 'wsj.tar.gz/wsj/01'],
    ['wsj.tar/wsj/00', 'wsj/01'], ['lines.parse.gz'], ['section*.tgz']])
def test_the_same_trees_however_they_are_listed(bank, tmp_path, train):
    archived(tmp_path, 'wsj.tar.gz')
    archived(tmp_path, 'wsj.tar')
    for section in '01':
        archived(tmp_path, f'section{section}.tgz', f'0{section}/*')
    every = [tree for section in (0, 1) for file in range(5) for tree in corpus(10, 10 * section + file)]
    lines = ''.join(' '.join(tree.split()) + '\n' for tree in every)
    (tmp_path / 'lines.parse.gz').write_bytes(gzip.compress(lines.encode()))
    config = bank(train=train)
    prepare(config, tmp_path / 'out')
    assert texts(tmp_path / 'out')['target'] == [str(trees.clean(*trees.parse(tree))) for tree in every]
    assert all(os.path.exists(path) for path in config.files('train'))
    assert not os.path.exists(tmp_path / 'out' / 'unpacked')


@pytest.mark.parametrize('by', ['file', 'tree'])
def test_a_part_is_split_off_by_a_hash_wherever_the_treebank_lies(bank, tmp_path, by):
    archived(tmp_path, 'wsj.tar')
    found = {}
    for name, train in {'folder': ['wsj'], 'archive': ['wsj.tar/wsj']}.items():
        values = {'validation': [], 'test': [], 'validation_fraction': .2, 'test_fraction': .25, 'split_by': by}
        found[name] = prepare(bank(train=train, **values), tmp_path / name).counts
    sizes = [found['folder'][split]['written'] for split in treebank.SPLITS]
    assert sum(sizes) == 200 and all(size % 10 == 0 for size in sizes) == (by == 'file')
    assert sizes[0] >= 60 and min(sizes) >= 10
    for split in treebank.SPLITS:
        assert sorted(texts(tmp_path / 'folder', split)['target']) == sorted(
            texts(tmp_path / 'archive', split)['target'])


@pytest.mark.parametrize('by', ['file', 'tree'])
def test_halves_of_the_training_trees_are_in_each_other(bank, tmp_path, by):
    """By trees, even where whole files are held out."""
    values = {'validation': [], 'test': [], 'validation_fraction': .2, 'test_fraction': .25, 'split_by': by}
    found = {}
    for fraction in (1.0, 0.5, 0.25):
        prepare(bank(**values, train_fraction=fraction), tmp_path / str(fraction))
        found[fraction] = {split: collections.Counter(texts(tmp_path / str(fraction), split)['target'])
                           for split in treebank.SPLITS}
    for fraction, more in ((0.5, 1.0), (0.25, 0.5)):
        kept, of = found[fraction]['train'], found[1.0]['train'].total()
        assert kept < found[more]['train']
        assert abs(kept.total() - of * fraction) < 4 * np.sqrt(of * fraction * (1 - fraction))
        assert all(found[fraction][split] == found[1.0][split] for split in treebank.SPLITS[1:])


def test_extra_trees_are_learned_from_and_never_split_off(bank, tmp_path):
    extra = corpus(40, 99)
    (tmp_path / 'extra.txt').write_text(''.join(' '.join(tree.split()) + '\n' for tree in extra))
    counts = prepare(bank(validation=[], validation_fraction=.3, extra=['extra.txt']), tmp_path / 'out').counts
    without = prepare(bank(validation=[], validation_fraction=.3), tmp_path / 'without').counts
    assert counts['train']['written'] == without['train']['written'] + 40
    assert counts['validation'] == without['validation']
    assert texts(tmp_path / 'out')['target'][-40:] == [str(trees.clean(*trees.parse(tree))) for tree in extra]


def test_what_is_no_tree_is_a_dead_letter_and_costs_no_other(bank, tmp_path):
    good = [' '.join(tree.split()) for tree in corpus(6)]
    bad = {'( (S (NP (NN cut)': '3 brackets not closed', '*** a heading ***': "'***' is outside of all brackets",
           '(S (NN caf\udce9))': 'not UTF-8: byte 0xe9 at position 10', '( (S (-NONE- *)))': 'it has no words',
           f'{good[0]} {good[1]}': '2 trees on one line', '(S (NN a)))': 'closing bracket without an opening one'}
    lines = [line for pair in zip(good, bad) for line in pair]
    path = tmp_path / 'lines.mrg'
    path.write_bytes('\n'.join(lines).encode('utf-8', 'surrogateescape'))
    config = bank(train=['lines.mrg', 'wsj/00'], max_dead_letters=.2)
    counts = prepare(config, tmp_path / 'out').counts['train']
    assert (counts['read'], counts['written'], counts['dead_letters']) == (62, 56, 6)
    content = path.read_bytes()
    for letter, (text, why) in zip(letters(tmp_path / 'out'), bad.items()):
        assert letter['file'] == str(path) and why in letter['reason']
        assert letter['line'] == lines.index(text) + 1
        assert content[letter['offset']:].startswith(text.encode('utf-8', 'surrogateescape'))
    with pytest.raises(UserError, match='6 of the 62 train records cannot be read'):
        prepare(bank(train=['lines.mrg', 'wsj/00']), tmp_path / 'refused')


def test_the_same_bytes_again_and_the_same_trees_whatever_the_blocks(bank, tmp_path):
    digests = []
    for name, block in (('a', 4), ('b', 4), ('c', 3)):
        prepare(bank(trees_per_block=block), tmp_path / name)
        digests.append({str(path.relative_to(tmp_path / name)): hashlib.sha256(path.read_bytes()).hexdigest()
                        for path in sorted((tmp_path / name).rglob('*')) if path.is_file()})
    assert digests[0] == digests[1]
    assert texts(tmp_path / 'a') == texts(tmp_path / 'c')


def productions(tree):
    return {str(production) for production in NltkTree.fromstring(tree).productions()}


def test_substituted_trees_are_new_and_of_the_same_grammar():
    """Every label stands over parts that it has in an original, and the sentence's bracket over its own."""
    originals = [trees.clean(tree, 'keep') for tree in trees.parse('\n'.join([GOLD, *corpus(20)]))]
    pairs = [substitution.Pair(*(tuple(text.split(' ')) for text in trees.linear(tree))) for tree in originals]
    made = [*substitution.substituted(pairs, 5)]
    assert made == [*substitution.substituted(pairs, 5)]
    there = [tree for tree in originals if any(part.parts for part in tree.parts)]
    assert len(made) == 5 * len(there) < 5 * len(originals)  # a word alone has nothing to replace
    known = set().union(*(productions(str(tree)) for tree in originals))
    texts_of, well_formed = delinearise(*((' '.join(words), ' '.join(tokens)) for words, tokens in made))
    assert all(well_formed)
    found = [tree for text in texts_of for tree in trees.parse(text)]
    assert set().union(*(productions(str(tree)) for tree in found)) <= known
    for number, tree in enumerate(found):
        of = there[number // 5]
        assert (tree.label, [part.label for part in tree.parts]) == (of.label, [part.label for part in of.parts])
    assert len({*made} - {*pairs}) > len(made) / 2


def test_trees_to_train_with_are_substituted_within_their_shards(bank, tmp_path):
    plain, changed = (prepare(bank(substitutions=n), tmp_path / name) for n, name in ((0, 'plain'), (3, 'changed')))
    assert plain.counts['test'] == changed.counts['test']
    counts = changed.counts['train']
    assert (counts['read'], counts['made'], counts['written']) == (100, 300, 400)
    known = texts(tmp_path / 'plain')['target']
    found = texts(tmp_path / 'changed')['target']
    shards = [0]
    for shard in plain.splits['train']:
        shards.append(shards[-1] + shard['records'])
    for begin, end in itertools.pairwise(shards):
        assert found[4 * begin:4 * begin + end - begin] == known[begin:end]
        parts = set().union(*map(productions, known[begin:end]))
        assert set().union(*map(productions, found[4 * begin:4 * end])) == parts
    prepare(bank(substitutions=3, trees_per_block=3), tmp_path / 'blocks')
    assert texts(tmp_path / 'blocks') == texts(tmp_path / 'changed')


@pytest.mark.parametrize('values, message', [
    ({'train': ['nowhere']}, r'data\.train: there is no file or folder .*nowhere'),
    ({'extra': ['no*.txt']}, r'data\.extra: there is no file or folder .*no\*\.txt'),
    ({'train': ['wsj.tar/other']}, r'data\.train: .*wsj\.tar/other holds no file of trees'),
    ({'train': ['broken.tar.gz']}, 'is not a whole archive'), ({'train': ['broken.mrg.gz']}, 'not a whole gzip file'),
    ({'train': ['wsj/README']}, 'cannot be read, more than data.max_dead_letters'),
    ({'vocab_size': 40}, r'data\.vocab_size 40 does not fit the training text')])
def test_what_cannot_be_prepared_is_one_sentence_and_no_data_set(bank, tmp_path, values, message):
    archived(tmp_path, 'wsj.tar')
    archived(tmp_path, 'wsj.tar.gz')
    (tmp_path / 'broken.tar.gz').write_bytes((tmp_path / 'wsj.tar.gz').read_bytes()[:900])
    (tmp_path / 'broken.mrg.gz').write_bytes(b'not gzip at all')
    with pytest.raises(UserError, match=message):
        prepare(bank(**values), tmp_path / 'out')
    assert not (tmp_path / 'out' / 'manifest.json').exists()


@pytest.mark.parametrize('values, message', [
    ({'train': []}, 'train must list'), ({'validation_fraction': .1}, 'validation must list'),
    ({'subword_kind': 'wordpiece'}, 'symbols are pieces of SentencePiece')])
def test_settings_that_cannot_be(bank, values, message):
    with pytest.raises(ValueError, match=message):
        bank(**values)


@pytest.mark.parametrize('tags', ['XX', 'keep'])
def test_brackets_are_one_subword_each_and_all_come_back(bank, tmp_path, tags):
    prepare(bank(tags=tags, vocab_size=160), tmp_path / 'out')
    parser = treebank.assets(str(tmp_path / 'out'))
    pieces = subwords.pieces(wmt.subword_model(str(tmp_path / 'out')))
    assert {f'{subwords.WORD}{symbol}' for symbol in bank().symbols} <= set(pieces)
    part = records.open_split(str(tmp_path / 'out'), 'train')
    asked, columns = treebank.examples(part.read(range(100)))
    batch = treebank.decode(tf.constant(part.read(range(100))), tf.constant(120, tf.int64))
    answer = parser.answer(tf.constant(asked), batch['targets'])
    assert [tree.decode() for tree in answer['text'].numpy()] == columns['target']
    assert answer['well_formed'].numpy().all()
    linear = [trees.linear(*trees.parse(tree))[1] for tree in columns['target']]
    lengths = np.count_nonzero(batch['targets'], axis=1)
    if tags == 'XX':
        assert [len(line.split()) + 1 for line in linear] == lengths.tolist()  # and the end


def test_a_long_line_ends_its_tree_and_memory_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(tree_files, '_LONGEST', 64)
    content = b'(S (NN ' + b'a' * 500 + b'))\n(S (NN b))\n'
    runs = list(tree_files._runs(io.BytesIO(content), 0, -1))
    assert [(line, offset, size) for line, offset, _, size in runs] == [(1, 0, 510), (2, 510, 11)]
    assert len(runs[0][2]) <= 192 and runs[1][2] == b'(S (NN b))\n'


def test_nothing_is_looked_for_where_the_network_is(monkeypatch):
    def look(path):
        raise AssertionError(path)
    for name in ('exists', 'glob', 'isdir'):
        monkeypatch.setattr(tf.io.gfile, name, look)
    config = treebank.Config(folder='gs://bucket/x', train=['wsj/0[2-9]/*.mrg', 'a.tar.gz/wsj', 'b'],
                             validation_fraction=.1, test_fraction=.1)
    assert config.files('train') == ['gs://bucket/x/wsj', 'gs://bucket/x/a.tar.gz', 'gs://bucket/x/b']
