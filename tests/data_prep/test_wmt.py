"""Parallel text through the Beam job: every supported format and every kind of damage."""
import gzip
import hashlib
import json
import os
import random

import numpy as np
import pytest
import tensorflow as tf

from data_prep import UserError, wmt
from data_prep.core import records
from data_prep.text import examples, subwords
from data_prep.text import job as text_job
from keras_models import transformer

SOURCE = [f'the number {i} is here' for i in range(60)]
TARGET = [f'die Zahl {i} ist hier' for i in range(60)]


@pytest.fixture
def files(tmp_path):
    """train.en and train.de, and held-out pairs; returns a Config factory for them."""
    write(tmp_path, 'train.en', SOURCE)
    write(tmp_path, 'train.de', TARGET)
    write(tmp_path, 'held.en', ['the number here', 'is here'])
    write(tmp_path, 'held.de', ['die Zahl hier', 'ist hier'])

    def config(**values):
        held = ['held.en', 'held.de']
        return wmt.Config(**{'folder': str(tmp_path), 'train': ['train.en', 'train.de'], 'validation': held,
                             'test': held, 'vocab_size': 48, 'pairs_per_block': 7, 'pairs_per_shard': 21, **values})
    return config


def write(folder, name, lines, newline='\n'):
    (folder / name).write_bytes(newline.join([*lines, '']).encode())


def prepare(config, folder):
    os.makedirs(folder)
    return text_job.run(config, str(folder), [])


def texts(folder, split='train'):
    part = records.open_split(str(folder), split)
    return wmt.examples(part.read(range(len(part))))[1]


@pytest.mark.parametrize('held_out', [
    {}, {'validation': [], 'test': [], 'validation_fraction': .2, 'test_fraction': .1}])
def test_halves_of_the_training_pairs_are_in_each_other(files, tmp_path, held_out):
    """Keep held-out pairs as they are, split off or listed, and a source's pairs together."""
    sources = [f'the number {i // 2} is here' for i in range(400)]
    write(tmp_path, 'train.en', sources)
    write(tmp_path, 'train.de', [f'die Zahl {i} ist hier' for i in range(400)])
    found = {}
    for fraction in (1.0, 0.5, 0.25):
        prepare(files(**held_out, pairs_per_shard=1000, train_fraction=fraction), tmp_path / str(fraction))
        found[fraction] = {split: set(zip(*(texts(tmp_path / str(fraction), split)[side]
                                            for side in ('source', 'target')))) for split in wmt.SPLITS}
    for fraction, more in ((0.5, 1.0), (0.25, 0.5)):
        kept, of = found[fraction]['train'], len(found[1.0]['train'])
        assert kept < found[more]['train'] and len({source for source, _ in kept}) == len(kept) / 2
        assert abs(len(kept) - of * fraction) < 4 * np.sqrt(2 * of * fraction * (1 - fraction))
        assert all(found[fraction][split] == found[1.0][split] for split in wmt.SPLITS[1:])


def test_two_files_line_by_line(files, tmp_path):
    manifest = prepare(files(), tmp_path / 'out')
    nothing = {'filtered_empty': 0, 'filtered_duplicate': 0, 'filtered_long': 0, 'dead_letters': 0}
    assert manifest.counts == {'train': {'read': 60, 'written': 60, **nothing, 'in_validation': 0, 'in_test': 0},
                                  'validation': {'read': 2, 'written': 2, **nothing, 'in_test': 2},
                                  'test': {'read': 2, 'written': 2, **nothing}}
    assert len(manifest.splits['train']) == 3  # 60 pairs, 21 a shard
    found = texts(tmp_path / 'out')
    assert (found['source'], found['target']) == (SOURCE, TARGET)


def test_gzip_tables_and_windows_lines_give_the_same_pairs(files, tmp_path):
    (tmp_path / 'train.en.gz').write_bytes(gzip.compress((tmp_path / 'train.en').read_bytes()))
    write(tmp_path, 'windows.de', TARGET, '\r\n')
    write(tmp_path, 'table.tsv', [f'{s}\t{t}\tcount' for s, t in zip(SOURCE, TARGET)])
    for name, train in {'mixed': ['train.en.gz', 'windows.de'], 'table': ['table.tsv']}.items():
        prepare(files(train=train), tmp_path / name)
        found = texts(tmp_path / name)
        assert (found['source'], found['target']) == (SOURCE, TARGET)
    assert set(found['kind']) == {'count'}
    assert not os.path.exists(tmp_path / 'mixed' / 'unpacked')


def test_csv_keeps_quoted_commas_and_line_ends(files, tmp_path):
    rows = ['source,target', '"Hello, world","Hallo, Welt"', '"two\nlines","zwei\nZeilen"', '"a ""b""",c'] + [
        f'{s},{t}' for s, t in zip(SOURCE, TARGET)]
    (tmp_path / 'table.csv').write_bytes(b'\xef\xbb\xbf' + '\n'.join(rows).encode())
    manifest = prepare(files(train=['table.csv'], header=True, pairs_per_block=1), tmp_path / 'out')
    found = texts(tmp_path / 'out')
    assert found['source'][:3] == ['Hello, world', 'two\nlines', 'a "b"']
    assert found['target'][:3] == ['Hallo, Welt', 'zwei\nZeilen', 'c']
    assert manifest.counts['train']['read'] == 63


def test_the_same_bytes_whatever_the_blocks(files, tmp_path):
    digests = []
    for name, block in (('a', 7), ('b', 3)):
        prepare(files(pairs_per_block=block), tmp_path / name)
        digests.append({str(path.relative_to(tmp_path / name)): hashlib.sha256(path.read_bytes()).hexdigest()
                        for path in sorted((tmp_path / name).rglob('*')) if path.is_file()})
    assert digests[0] == digests[1]


def test_a_message_filled_again_is_one_made_anew():
    """Bytes of rows that follow longer and shorter ones, with and without a kind and ids."""
    rows = [('one two', 'ein zwei', 'date'), ('é', ''), ('a', 'b', ''), ('one two three', 'x', 'number')]
    ids = [([5, 300, 70000, 2], [2]), ([2], []), ([], [9, 2]), ([7, 2], [8, 9, 2])]
    serialize = examples.serializer()
    for row, (inputs, targets) in zip(rows, ids):
        texts = dict(zip(('source', 'target', 'kind'), (*row, '')))
        feature = {name: tf.train.Feature(bytes_list=tf.train.BytesList(value=[text.encode()]))
                   for name, text in texts.items()}
        feature |= {name: tf.train.Feature(int64_list=tf.train.Int64List(value=each))
                    for name, each in (('inputs', inputs), ('targets', targets))}
        anew = tf.train.Example(features=tf.train.Features(feature=feature))
        assert serialize(row, inputs, targets) == anew.SerializeToString(deterministic=True)


def test_counts_reconcile_and_dead_letters_say_where(files, tmp_path):
    lines = [line.encode() for line in SOURCE]
    lines[3], lines[10], lines[11] = b'caf\xe9', b'', b'word ' * 400
    (tmp_path / 'train.en').write_bytes(b'\n'.join(lines) + b'\n')
    counts = prepare(files(max_dead_letters=0.05), tmp_path / 'out').counts['train']
    assert counts == {'read': 60, 'written': 57, 'filtered_empty': 1, 'filtered_duplicate': 0, 'filtered_long': 1,
                      'dead_letters': 1, 'in_validation': 0, 'in_test': 0}
    [letter] = [json.loads(line) for path in (tmp_path / 'out' / 'dead_letters').iterdir() for line in open(path)]
    assert letter == {'file': str(tmp_path / 'train.en'), 'line': 4, 'offset': sum(len(line) + 1 for line in lines[:3]),
                      'reason': 'not UTF-8: byte 0xe9 at position 3'}


@pytest.mark.parametrize('change, message', [
    (lambda folder: write(folder, 'train.de', TARGET[:-2]), r'train\.en has 60 lines, but .*train\.de has 58 lines'),
    (lambda folder: (folder / 'train.de').unlink(), r'there is no file .*train\.de'),
    (lambda folder: write(folder, 'train.en', []) or write(folder, 'train.de', []), 'data.train holds no usable pair'),
    (lambda folder: write(folder, 'train.en', ['']*60), r'data\.train holds no usable pair: 60 read, 60 empty'),
    (lambda folder: (folder / 'train.en').write_bytes(b'\xff\n' * 60), r'60 of the 60 train records cannot be read'),
    (lambda folder: write(folder, 'train.en', ['x'] * 60) or write(folder, 'train.de', ['y'] * 60),
     r'data\.vocab_size 48 does not fit the training text'),
])
def test_what_cannot_be_prepared_is_one_sentence_and_no_data_set(files, tmp_path, change, message):
    change(tmp_path)
    with pytest.raises(UserError, match=message):
        prepare(files(), tmp_path / 'out')
    with pytest.raises(UserError, match='has no manifest.json'):
        records.open_split(str(tmp_path / 'out'), 'train')


@pytest.mark.parametrize('damage', [lambda data: data[:len(data) // 2], lambda data: b'not gzip at all',
                                    lambda data: data[:-6] + b'\0' * 6],
                         ids=['half', 'no gzip', 'another checksum'])
def test_a_gzip_file_cut_short_or_damaged_is_named(files, tmp_path, damage):
    (tmp_path / 'train.en.gz').write_bytes(damage(gzip.compress((tmp_path / 'train.en').read_bytes())))
    with pytest.raises(UserError, match=r'train\.en\.gz is not a whole gzip file'):
        prepare(files(train=['train.en.gz', 'train.de']), tmp_path / 'out')


@pytest.mark.parametrize('block', [2, 7, 100])
def test_duplicates_between_splits_are_counted_and_can_be_removed(files, tmp_path, block):
    draw = random.Random(0)
    splits = {}
    for split, n in (('train', 200), ('validation', 40), ('test', 40)):
        splits[split] = [(f'{"one two three four".split()[draw.randrange(4)]} {draw.randrange(9)}',
                          f'Zahl {draw.randrange(2)}') for _ in range(n)]
        splits[split] += [('', ''), ('word ' * 400, 'Wort')]  # blank and too long ones are alike everywhere
        write(tmp_path, f'{split}.tsv', [f'{draw.choice(["", " "])}{s}\t{t} ' for s, t in splits[split]])
    sets = {split: set(rows) - {('', '')} for split, rows in splits.items()}
    found = {}
    for removed in (False, True):
        config = files(train=['train.tsv'], validation=['validation.tsv'], test=['test.tsv'], pairs_per_block=block,
                       remove_duplicates=removed, vocab_size=40)
        found[removed] = prepare(config, tmp_path / str(removed)).counts
        for counts in found[removed].values():
            assert counts['read'] == sum(counts[name] for name in counts if name == 'written' or name == 'dead_letters'
                                         or name.startswith('filtered_'))

    def among(split, *others):
        return sum(any(row in sets[other] for other in others) for row in splits[split])
    for counts in found.values():
        assert (counts['train']['in_validation'], counts['train']['in_test']) == (
            among('train', 'validation'), among('train', 'test'))
        assert counts['validation']['in_test'] == among('validation', 'test') > 1
        assert not any(name.startswith('in_') for name in counts['test'])
    assert (found[False]['train']['filtered_duplicate'], found[False]['train']['filtered_long']) == (0, 1)
    assert found[True]['train']['filtered_duplicate'] == among('train', 'validation', 'test') < 200
    assert found[True]['train']['filtered_long'] == 0  # it was taken out as a duplicate
    kept = texts(tmp_path / 'True')
    assert [(s.strip(), t.strip()) for s, t in zip(kept['source'], kept['target'])] == [
        row for row in splits['train'] if row not in sets['validation'] | sets['test'] | {('', '')}]


def test_a_corpus_held_out_whole_is_told(files, tmp_path):
    with pytest.raises(UserError, match='no usable pair: 60 read, 0 empty, 60 also held out, 0 too long'):
        prepare(files(test=['train.en', 'train.de'], remove_duplicates=True), tmp_path / 'out')


def test_word_pieces_from_text_to_batch(files, tmp_path):
    config = files(subword_kind='wordpiece', normalization='nfkc', byte_fallback=True, vocab_size=300)
    manifest = prepare(config, tmp_path / 'out')
    assert manifest.vocabulary['size'] == 300
    part, tokenizer = records.open_split(str(tmp_path / 'out'), 'train'), wmt.assets(str(tmp_path / 'out'))
    batch = wmt.decode(tf.constant(part.read(range(60))), tf.constant(30, tf.int64))
    for name, lines in (('inputs', SOURCE), ('targets', TARGET)):
        np.testing.assert_array_equal(batch[name], tokenizer.tokenize(tf.constant(lines)).to_tensor(shape=[60, 30]))
        assert [line.decode() for line in tokenizer.detokenize(batch[name]).numpy()] == lines


@pytest.mark.parametrize('kind', ['bpe', 'unigram'])
def test_pairs_are_split_at_random_into_other_subwords(files, tmp_path, kind):
    """Find each pair as it is and three times more, held-out pairs only as they are.

    Every process draws others: between 4 and 94 of the 180 were split as usual in four of them.
    """
    config = files(subword_kind=kind, vocab_size=40, subword_samples=3, sampling_alpha=0.3)
    manifest = prepare(config, tmp_path / 'out')
    counts = manifest.counts['train']
    assert (counts['read'], counts['made'], counts['written']) == (60, 180, 240)
    assert 'made' not in manifest.counts['test'] and manifest.counts['test']['written'] == 2
    plain = subwords.encoder(wmt.subword_model(str(tmp_path / 'out')))
    part, tokenizer = records.open_split(str(tmp_path / 'out'), 'train'), wmt.assets(str(tmp_path / 'out'))
    serialized = part.read(range(240))
    found, batch = wmt.examples(serialized)[1], wmt.decode(tf.constant(serialized), tf.constant(99, tf.int64))
    for side, name in (('source', 'inputs'), ('target', 'targets')):
        said = [text.decode() for text in tokenizer.detokenize(batch[name]).numpy()]
        assert said == [text.decode() for text in
                        tokenizer.detokenize(tokenizer.tokenize(found[side]).to_tensor(0)).numpy()]
        ids = [tuple(i for i in row if i) for row in batch[name].numpy().tolist()]
        usual = [tuple(row) for row in plain(found[side])]
        as_usual = [one == other for one, other in zip(ids, usual)]
        assert 60 <= sum(as_usual) < 200 and len({*zip(found[side], ids)}) > 1.5 * len({*found[side]})
    prepare(config, tmp_path / 'again')
    assert records.open_split(str(tmp_path / 'again'), 'train').read(range(240)) == serialized


@pytest.mark.parametrize('values, message', [
    ({'sampling_alpha': 1.0}, 'sampling_alpha must be between 0 and 1; it is 1.0'),
    ({'subword_samples': 1, 'subword_kind': 'wordpiece', 'normalization': 'nfkc'}, 'draws pieces of SentencePiece')])
def test_sampling_that_cannot_be(files, values, message):
    with pytest.raises(ValueError, match=message):
        files(**values)


def test_other_data_can_be_cut_by_the_same_subwords(files, tmp_path):
    """Fine-tuning needs the model of one data set, taken as it is for another."""
    first = prepare(files(), tmp_path / 'first')
    write(tmp_path, 'train.en', ['here is another number', 'is it here', 'the end'])
    write(tmp_path, 'train.de', ['hier ist andere Zahl', 'ist hier', 'das Ende'])
    given = str(tmp_path / 'first' / 'subwords.model')
    second = prepare(files(subword_model=given), tmp_path / 'second')
    assert second.vocabulary == first.vocabulary and second.counts['train']['written'] == 3
    assert prepare(files(), tmp_path / 'third').vocabulary != first.vocabulary
    assert given in files(subword_model=given).files('train')  # a change of it is a change of the data
    for values, message in (({'vocab_size': 20}, 'is below the 48 pieces'),
                            ({'subword_model': 'no'}, 'no is not a subword model'),
                            ({'subword_model': str(tmp_path / 'train.en')}, 'train.en is not a subword model')):
        folder = tmp_path / f'refused-{len(message)}'
        with pytest.raises(UserError, match=message):
            prepare(files(**{'subword_model': given, **values}), folder)
        assert not (folder / 'manifest.json').exists()


def test_a_stray_quote_costs_no_record(files, tmp_path):
    rows = [f'{s},{t}' for s, t in zip(SOURCE, TARGET)]
    rows[5:5] = ['5" pipe,5-Zoll-Rohr', 'next,"never closed', '"Open, he said', '6" pipe,"6-Zoll-\nRohr"']
    (tmp_path / 'table.csv').write_text('\n'.join(rows) + '\n')
    counts = prepare(files(train=['table.csv'], max_dead_letters=0.5), tmp_path / 'out').counts['train']
    assert (counts['read'], counts['written'], counts['dead_letters']) == (64, 63, 1)
    assert texts(tmp_path / 'out')['source'][-1] == SOURCE[-1]


def test_an_unknown_language_is_named(files, tmp_path):
    with pytest.raises(UserError, match="data.target 'xx' is not a language of CLDR"):
        prepare(files(samples='cldr', target='xx'), tmp_path / 'out')


def test_a_source_without_partner_is_named(files, tmp_path):
    with pytest.raises(UserError, match=r'train\.en has no partner'):
        prepare(files(train=['train.en']), tmp_path / 'out')


def test_tensorflow_text_and_sentencepiece_agree(examples):
    with open(os.path.join(examples, wmt.SUBWORDS), 'rb') as file:
        model = file.read()
    lines = ['one two three', '', 'fünf  sechs\tzwölf', 'Ｆｕｌｌ ｗｉｄｔｈ', '日本', ' lead and trail ']
    ids = subwords.Tokenizer(model).tokenize(tf.constant(lines))
    expected = [row + [subwords.EOS] for row in subwords.processor(model).encode(lines)]
    assert ids.to_list() == expected
    dense = ids.to_tensor(subwords.PAD)
    back = [line.decode() for line in subwords.Tokenizer(model).detokenize(dense).numpy()]
    assert back == [subwords.processor(model).decode(row) for row in subwords.processor(model).encode(lines)]


def test_detokenised_text_is_the_normalised_text():
    lines = ['Ein Satz mit Ｂｒｅｉｔｅ, “Zitat” und 1 234,5 €.', 'a  b', '…', 'naïve ﬁne']
    model = subwords.learn(lines * 20, subwords.Config(vocab_size=75))
    processor = subwords.processor(model)
    tokenizer = subwords.Tokenizer(model)
    back = tokenizer.detokenize(tokenizer.tokenize(tf.constant(lines)).to_tensor()).numpy()
    assert [line.decode() for line in back] == [processor.normalize(line).replace('▁', ' ').strip() for line in lines]


def test_special_ids_are_the_models():
    assert (subwords.PAD, subwords.BOS, subwords.EOS) == (transformer.PAD, transformer.BOS, transformer.EOS)


def test_a_batch_holds_the_ids_that_were_written(examples):
    split = records.open_split(examples, 'train')
    batch = wmt.decode(tf.constant([*split.read([5, 9]), b'']), tf.constant(24, tf.int64))
    for row, number in enumerate([5, 9]):
        for name in wmt.LENGTHS:
            length = int(split.index[name][number])
            ids = batch[name][row].numpy()
            assert ids[length - 1] == subwords.EOS and (ids[:length] != 0).all() and (ids[length:] == 0).all()
    assert not np.any(batch['inputs'][2])


def test_swapped_shows_a_share_of_the_pairs_from_target_to_source(files, tmp_path):
    """By each row's seed alone, so however a batch is split; and never in evaluation."""
    folder = str(tmp_path / 'out')
    prepare(files(), folder)
    part = records.open_split(folder, 'train')
    length, seeds = tf.constant(24, tf.int64), np.stack([np.full(60, 7), np.arange(60)], 1).astype(np.int32)
    given = tf.constant(np.array(part.read(range(60)), object))
    plain = {name: each.numpy() for name, each in wmt.decode(given, length).items()}

    def rows(share, of=slice(None), training=True):
        found = wmt.decoder(folder, wmt.Input(swapped=share), training)(given[of], length, tf.constant(seeds[of]))
        return {name: each.numpy() for name, each in found.items()}
    np.testing.assert_array_equal(rows(1.0)['inputs'], plain['targets'])
    np.testing.assert_array_equal(rows(1.0)['targets'], plain['inputs'])
    np.testing.assert_array_equal(rows(0.0)['inputs'], plain['inputs'])
    np.testing.assert_array_equal(rows(0.5, training=False)['inputs'], plain['inputs'])
    half = rows(0.5)
    swap = (half['inputs'] == plain['targets']).all(1)
    assert 15 < swap.sum() < 45  # within four deviations of 30
    np.testing.assert_array_equal(half['targets'], np.where(swap[:, np.newaxis], plain['inputs'], plain['targets']))
    np.testing.assert_array_equal(half['inputs'], np.where(swap[:, np.newaxis], plain['targets'], plain['inputs']))
    for replica in range(2):
        np.testing.assert_array_equal(rows(0.5, slice(replica, None, 2))['inputs'], half['inputs'][replica::2])
