"""Treebanks as others publish them: splits, lines between trees, and trees of other label sets."""
import re

import pytest

from data_prep import UserError
from pipelines.starting import tree_layout, trees
from pipelines.starting.findings import values
from support.tiny_treebank import corpus


def write(path, rows, between=''):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(''.join(f'{between}{row}\n' for row in rows), encoding='utf-8')
    return str(path)


def flat(count, seed=0):
    return [' '.join(tree.split()) for tree in corpus(count, seed)]


@pytest.mark.parametrize('files, train, validation, test', [
    ('wsj.train.trees wsj.dev.trees wsj.test.trees', 'wsj.train.trees', 'wsj.dev.trees', 'wsj.test.trees'),
    ('data/train/a.parse data/train/b/c.parse data/development/a.parse data/test/a.parse x/README.mrg',
     'data/train', 'data/development', 'data/test'),
    (' '.join(f'{n:02}/wsj_{n:02}01.mrg' for n in range(25)), ' '.join(f'{n:02}' for n in range(2, 22)), '22', '23'),
    ('wsj_02-21.mrg wsj_22.mrg wsj_23.mrg wsj_24.mrg', 'wsj_02-21.mrg', 'wsj_22.mrg', 'wsj_23.mrg'),
    ('train/a.mrg b/c.mrg', '.', '', ''), ('wsj_0101.mrg wsj_0201.mrg wsj_2301.mrg', '.', '', ''),
    ('02/a.mrg 03/a.mrg 24/a.mrg', '.', '', '')])
def test_the_splits_of_a_folder_are_found(tmp_path, capsys, files, train, validation, test):
    for name in files.split():
        write(tmp_path / name, ['(S (NN a) (VB b))'])
    found = tree_layout.layout([str(tmp_path)])
    wanted = {'train': train, 'validation': validation, 'test': test}
    assert found == {split: [str(tmp_path / name) for name in names.split()] for split, names in wanted.items()}
    assert ('not used' in capsys.readouterr().err) == ('22' in validation)
    if not test:
        assert found['train'] == [str(tmp_path)]


@pytest.mark.parametrize('files, train, validation, test', [
    ('02-21.10way.clean 22.auto.clean 23.auto.clean 24.auto.clean', '02-21.10way.clean', '22.auto.clean',
     '23.auto.clean'),
    ('a/train b/devel c/test', 'a/train', 'b/devel', 'c/test'), ('x.mrg y.tst.mrg', 'x.mrg', '', 'y.tst.mrg'),
    ('wsj_0001.mrg wsj_0023.mrg', 'wsj_0001.mrg wsj_0023.mrg', '', '')])
def test_the_splits_of_named_files_are_found(files, train, validation, test):
    assert tree_layout.layout(files.split()) == {
        'train': train.split(), 'validation': validation.split(), 'test': test.split()}


@pytest.mark.parametrize('between', ['%% Sent 7\n', '# sent_id = 7\n', '; a remark\n', '<S ID=7>\n', '*x*  *x*\n',
                                     '\n'])
def test_lines_between_trees_are_no_records(tmp_path, between):
    found = trees.look([write(tmp_path / 'a.mrg', corpus(60), between)])
    assert '60 trees in 1 files' in found.said[0] and not re.search('not trees', ' '.join(found.said))


@pytest.mark.parametrize('margin', ['', ' ', '\t'])
def test_a_missing_bracket_costs_its_tree_alone(tmp_path, margin):
    """In a file of which all trees are indented, too."""
    rows = [margin + tree for tree in flat(80)]
    rows[30] = rows[30][:-3]
    found = trees.look([write(tmp_path / 'a.mrg', rows)])
    assert '79 trees in 1 files' in found.said[0] and '1 records are not trees' in ' '.join(found.said)


def test_many_tags_become_one_and_long_trees_are_counted(tmp_path):
    tagged = [re.sub(r'\((NNS?|DT) ', lambda match, n=n: f'({match[1]}:{n} ', tree) for n, tree in enumerate(flat(80))]
    data = values(trees.look([write(tmp_path / 'a.mrg', tagged)]).sections)['data']
    assert data['tags'] == 'XX' and values(trees.look([write(tmp_path / 'b.mrg', flat(80))]).sections)[
        'data']['tags'] == 'keep'
    long = f'(S (NP {"(DT the) " * 600}(NN cat)) (VP (VBZ sits)))'
    found = trees.look([write(tmp_path / 'c.mrg', [*flat(80), long])])
    assert 'About 1 have more than 512 subwords' in ' '.join(found.said)


@pytest.mark.parametrize('root', ['VROOT', 'Top', 'PSEUDO', 'TOP', ''])
def test_a_root_without_information_is_no_bracket(tmp_path, root):
    rows = [f'({root} {tree[1:]}' for tree in flat(80)]
    found = trees.look([write(tmp_path / 'a.mrg', rows)])
    assert found.baseline == trees.look([write(tmp_path / 'b.mrg', flat(80))]).baseline > 1


def test_another_encoding_is_named(tmp_path):
    path = tmp_path / 'a.mrg'
    path.write_bytes('\n'.join(tree.replace('the', '这棵树') for tree in flat(80)).encode('gbk'))
    with pytest.raises(UserError, match='not UTF-8.*records are not trees. Save the files as UTF-8'):
        trees.look([str(path)])
