"""User errors are refused with one sentence that names the place and the remedy.

The tests of each module have more of it.
"""
import importlib
import sys
import tarfile

import numpy as np
import pytest

from data_prep import UserError
from data_prep.core import archives, input_pipeline
from data_prep.image import annotations
from data_prep.text import job as text_job
from data_prep.trees import trees
from keras_models import ModelError
from keras_models.weights import published
from pipelines import evaluate
from pipelines.core import config, shipped
from pipelines.core.pipeline import Pipeline
from pipelines.reporting import attention
from pipelines.reproduction import experiments
from pipelines.serving import predict_images, predict_pairs
from support.commands import command

# ---- values of a configuration


@pytest.mark.parametrize('name, override, words', [
    ('demo_translation', 'model.d_model=33', r'model: d_model must be even, .* it is 33'),
    ('alexnet_imagenet', 'model.crop=50', r'model: crop 50 leaves no maps for the last pooling; give \d+'),
    ('vgg_a_tiny_imagenet', 'model.crop=31', r'model: crop 31 leaves no maps after five poolings; give 32'),
    ('prelu_cifar10', 'model.layers=["spp, {1}", "3x3, 4"]', 'model: layers must be .* then one spp'),
    ('prelu_cifar10', 'model.layers=["fc, 8"]', 'model: layers must be convolutions .* then one spp'),
    ('prelu_cifar10', 'model.crop=2', r'model: crop 2 leaves no map for spp; give a larger one'),
    ('demo_tryon', 'model.trainable_networks=[hat]',
     'model: trainable_networks may name segmentation, .*, alias; it names hat'),
    ('demo_tryon', 'data.samples_count=[1, 2, 3]', r'data: samples_count must be two numbers; it is'),
    ('demo_tryon', 'data.samples_size=[64]', r'data: samples_size must be two numbers; it is \[64\]'),
    ('demo_tryon', 'data.train=[pairs.txt]', 'data: samples come with .* pairs files; leave out train'),
    ('demo_tryon', 'input.size=[64]', r'input: size must be a height and a width; it is \[64\]'),
    ('demo_tryon', 'input.tokens=9', 'input: pictures have no length: give rows, and neither buckets'),
    ('demo_images', 'input.buckets=[9]', 'input: images have no length; give rows, and neither buckets'),
    ('demo_images', 'input.box_inside=2', 'input: box_inside is a fraction of a box, 0 to 1; it is 2'),
    ('demo_images', 'input.scales=[40, 32]', r'input: scales must be one side or .* it is \[40, 32\]'),
    ('demo_images', 'input.scales=[8]', r'input: scales: an image of 8 pixels is smaller than crop')])
def test_a_value_that_cannot_be(name, override, words):
    with pytest.raises(UserError, match=words) as refused:
        config.load(name, [override])
    assert f'{shipped.paths()[name]} with --set {override}: ' in str(refused.value)
    assert '\n' not in str(refused.value)


@pytest.mark.parametrize('name, overrides, words', [
    ('demo_tryon', ['evaluate.thresholds={lpips: {max: 1}}'],
     r'evaluate\.thresholds\.lpips: lpips is not computed: give evaluate\.networks\.alexnet='),
    ('demo_tryon', ['evaluate.networks={alexnet: nowhere.pth}'],
     r'evaluate\.networks\.alexnet: there is no file nowhere\.pth\. Give .* or leave it out'),
    ('demo_tryon', ['evaluate.networks={resnet: nowhere.pth}'],
     r'evaluate\.networks\.resnet: no metric uses such a network; known networks: '),
    ('demo_translation', ['evaluate.networks={alexnet: a.pth}'],
     r'evaluate\.networks\.alexnet: no metric of keras_models\.transformer uses networks\. Leave it out')])
def test_a_gate_that_could_not_be_measured(name, overrides, words):
    with pytest.raises((UserError, ModelError), match=words):
        evaluate.check(config.load(name, overrides))


@pytest.mark.parametrize('tokens, rows', [(None, None), (64, 4)])
def test_a_batch_is_of_tokens_or_of_rows(tokens, rows):
    with pytest.raises(UserError, match='input: give either tokens .* or rows'):
        input_pipeline.rows_per_bucket([8], tokens, rows, 1)


# ---- files

@pytest.mark.parametrize('text, words', [
    (b'n0144 a fish', r'data\.synsets: s\.txt has no line with a WordNet id and a number'),
    (b'', r'data\.synsets: s\.txt has no line with a WordNet id and a number')])
def test_synsets_without_any(text, words):
    with pytest.raises(UserError, match=words):
        annotations.synsets(text, 's.txt')


@pytest.mark.parametrize('text, words', [
    (b'<annotation><size>', 'not XML: '), (b'1.jpg 3 4 5', 'not four numbers'), (b'1.jpg 1 2 x 4', "'x'"),
    (b'<a><bndbox><xmin>1</xmin></bndbox></a>', 'could not convert'), (b'1.jpg 1 2 nan 4', 'nan is not a position'),
    (b'1.jpg 1 2 inf 4', 'inf is not a position')])
def test_boxes_that_are_none(text, words):
    """The reason is for the dead letters."""
    with pytest.raises(ValueError, match=words):
        annotations.fractions(text, 10, 10)


def test_an_archive_whose_end_is_missing(tmp_path):
    (tmp_path / 'a.jpg').write_bytes(b'x' * 700)
    with tarfile.open(tmp_path / 'whole.tar', 'w') as tar:
        tar.add(tmp_path / 'a.jpg', 'a.jpg')
    whole = (tmp_path / 'whole.tar').read_bytes()
    (tmp_path / 'cut.tar').write_bytes(whole[:512 + 1024])  # after the file's last block
    with open(tmp_path / 'whole.tar', 'rb') as stream:
        assert [found.name for found in archives.ranges(stream, 'whole.tar')] == ['a.jpg']
    with open(tmp_path / 'cut.tar', 'rb') as stream, pytest.raises(
            UserError, match=r'cut\.tar is not a whole archive \(.*\)\. Fetch it again'):
        list(archives.ranges(stream, 'cut.tar'))


def test_a_phrase_without_label():
    [tree] = trees.parse('(S ((NN a)) (NN b))')
    with pytest.raises(trees.Malformed, match='a bracket without label'):
        trees.clean(tree)
    [outer] = trees.parse('((S (NN a) (NN b)))')
    assert str(trees.clean(outer)).startswith('(S ')  # around the sentence it is how treebanks are written


@pytest.mark.parametrize('missing, module, words', [
    ('cv2', 'data_prep.people.sample_garments', r'data\.samples: .* OpenCV, .* run `pip install opencv'),
    ('sklearn', 'data_prep.image.sample_images', r'data\.samples: .* scikit-learn, .* Run `pip install scikit')])
def test_a_sample_whose_package_is_missing(monkeypatch, tmp_path, missing, module, words):
    monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.delitem(sys.modules, module, raising=False)
    with pytest.raises(UserError, match=words):
        importlib.import_module(module).write_digits(str(tmp_path))


def test_weights_of_another_network():
    found = {'features.0.weight': np.zeros([11, 11, 3, 64])}
    published.check({'features.0.weight': (11, 11, 3, 64)}, found, 'a.pth', 'that file')
    with pytest.raises(ModelError, match=r'a\.pth has no features\.0\.bias; give that file'):
        published.check({'features.0.bias': (64,)}, found, 'a.pth', 'that file')
    with pytest.raises(ModelError, match=r'a\.pth has features\.0\.weight of shape .* \(height, .*give that'):
        published.check({'features.0.weight': (3, 3, 3, 64)}, found, 'a.pth', 'that file')


def test_a_text_file_without_its_partner(config_file):
    resolved = config.load(config_file, ['data.train=[a.en, a.de, b.en]'])
    with pytest.raises(UserError, match=r'data\.train: .*b\.en has no partner\. List files two by two'):
        text_job.run(resolved.data, 'nowhere', [])


# ---- what models are asked

def test_no_pictures_are_there(tmp_path):
    (tmp_path / 'notes.txt').write_text('x')
    with pytest.raises(UserError, match=r'no images \(\.jpg, \.jpeg, \.png\)'):
        predict_images.write(None, [str(tmp_path)], str(tmp_path / 'out'), None, False)
    with pytest.raises(UserError, match='gone.jpg: there is no such file or folder'):
        predict_images.write(None, [str(tmp_path / 'gone.jpg')], str(tmp_path / 'out'), None, False)
    assert not (tmp_path / 'out').exists()


@pytest.mark.parametrize('files, words', [
    (['empty.txt'], r'empty\.txt: no pairs are listed\. Write one `person\.jpg garment\.jpg` per line'),
    (['gone.txt'], r'gone\.txt: there is no such file'), (['.'], 'give pairs files, and at most one folder'),
    (['.', '.', 'empty.txt'], 'give pairs files, and at most one folder')])
def test_no_pairs_are_there(tmp_path, files, words):
    class Model:
        description = {'config': {'data': {'padding': 0.1, 'max_pixels': 1000}}}
    (tmp_path / 'empty.txt').write_text('\n')
    for folder in ('image', 'cloth', 'cloth-mask', 'image-parse', 'openpose-json'):
        (tmp_path / folder).mkdir()
    with pytest.raises(UserError, match=words):
        predict_pairs.write(Model, [str(tmp_path / file) for file in files], str(tmp_path / 'out'))


def test_attention_is_a_transformers(tmp_path):
    with pytest.raises(UserError, match=r'keras_models\..* has no attention\. Give .*transformer'):
        attention.look(Pipeline(config.load('demo_images'), str(tmp_path), []), 'a line', '')


# ---- tables and figures

ITEM = '''
title: t
source: s
stages: [prepare]
scales: {small: {config: demo_images}}
settings: {a: {}}
measures: {error: {metric: top1_error}}
'''


@pytest.mark.parametrize('text, words', [
    ('scales: {small: {config: demo_images}, large: {config: demo_images}}', 'small, medium, paper; not large'),
    ('claims: [{says: It is., measure: loss, at_most: {a: 1}}]', "uses 'loss', which is not among measures"),
    ('claims: [{says: It is., measure: error}]', "'It is.' needs one of rises, at_least, at_most, ratio"),
    ('scales: {small: {config: demo_images, chance: {loss: 1}}}', "'loss', which no claim uses"),
    ('instead: see there', 'it must have either scales or instead'), ('colour: red', 'colour'),
    ('measures: {error: {take: worst}}', 'take'), ('settings: 5', ''), ('title: [', '')])
def test_an_item_that_leads_nowhere(tmp_path, text, words):
    key = text.partition(':')[0]
    kept = [line for line in ITEM.strip().splitlines() if not line.startswith(f'{key}:')]
    file = tmp_path / 'item.yaml'
    file.write_text(ITEM)
    experiments.load(str(file))
    file.write_text('\n'.join([*kept, text]))
    with pytest.raises(UserError, match='item.yaml: .*') as refused:
        experiments.load(str(file))
    assert words in str(refused.value)


# ---- the commands

@pytest.mark.parametrize('args, words', [
    (['attention', '--config', 'demo_images', 'a line'], ['has no attention', 'keras_models.transformer']),
    (['features', '.', '--model', 'nowhere', '--scales', '32'], ['--model nowhere', 'no such folder']),
    (['lineage', '--config', 'demo_images'], ['holds no version', 'pipelines.push --config demo_images']),
    (['lineage', '--raw', 'gone.txt'], ['--raw gone.txt', 'there is no such file']),
    (['reproduce', 'transformer/fig1'], ['transformer/fig1 cannot be run']),
    (['reproduce', 'transformer/table4'], ['transformer/table4 needs --data', 'treebank']),
    (['push', '--rollback'], ['nothing to roll back', 'pipelines.push']),
    (['prepare', '--set', 'data.train'], ['--set data.train', 'section.key=value']),
    (['train', '--set', 'train.stpes=3'], ['train.stpes', 'train.steps']),
    (['export', '--set', 'inference.beam=2'], ['inference.beam', 'inference.beam_size']),
    (['evaluate', '--set', 'evaluate.split=tset'], ['evaluate.split', "'tset'"]),
    (['infra_validate', '--config', 'nowhere.yaml'], ['nowhere.yaml']),
    (['import_weights', 'viton_hd', *['gone.pth'] * 3, '--out', 'x'], ['gone.pth']),
    (['run', '--set', 'model.d_model=33'], ['model: d_model must be even'])])
def test_a_mistake_ends_a_command_with_one_sentence_and_exit_code_2(tmp_path, args, words):
    name, *flags = args
    done = command(f'pipelines.{name}', *flags, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith('error: ') and done.stderr.count('\n') == 1, done.stderr
    assert all(word in done.stderr for word in words), done.stderr
    assert not [*tmp_path.glob('runs/*/*/.partial-*')] and not [*tmp_path.glob('x*')]
