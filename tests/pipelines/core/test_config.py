"""Configurations: which are refused, and with what message."""
import os
import re

import pytest

from data_prep import UserError
from keras_models import transformer
from pipelines.core import config, shipped
from pipelines.reproduction import experiments


@pytest.mark.parametrize('override, message', [
    ('train.stpes=3', r'unknown key train\.stpes\. Did you mean train\.steps\?'),
    ('wavelength=red', 'unknown key wavelength. Known keys: canary, cluster'),
    ('train.steps=abc', r"train\.steps must be int; it is 'abc'"),
    ('train.steps=true', r'train\.steps must be int; it is True'),
    ('train.steps=1.5', r'train\.steps must be int; it is 1\.5'),
    ('train=3', 'train must be a section of'),
    ('model.norm=sideways', r"model\.norm must be Literal\['post', 'pre'\]; it is 'sideways'"),
    ('model.P_drop=[1]', r'model\.P_drop must be float'),
    ('input.buckets=[8,x]', r'input\.buckets must be list\[int\]'),
    ('evaluate.thresholds.bleu.min=high', r'evaluate\.thresholds must be dict'),
    ('train.init_from=5', r'train\.init_from must be str \| list\[str\]; it is 5'),
    ('train.jit=5', r'train\.jit must be'),
    ('model.vocab_size=[]', r'model\.vocab_size must be int \| None; it is \[\]'),
    ('model.h=5', r'model: d_model 32 is not a multiple of h 5'),
    ('model.module=os', r"model\.module must be a module of keras_models, .* it is 'os'"),
    ('model.module=keras_models.transformer.os', r'there is no module keras_models\.transformer\.os'),
    ('model.module=keras_models.nothing', r'there is no module keras_models\.nothing'),
    ('model.module=keras_models.core.losses', 'keras_models.core.losses has no Config'),
    ('data.train=[]', 'data: train must list files'),
    ('train.checkpoint_every=0', r'train\.checkpoint_every must be more than 0; it is 0'),
    ('model.h=0', r'model\.h must be more than 0'),
    ('seed=-1', 'seed must be 0 or more'),
    ('data.max_dead_letters=10', 'max_dead_letters is a fraction'),
    ('model.vocab_size=50', 'model.vocab_size 50 is smaller than data.vocab_size 90'),
    ('inference.prefer_well_formed=true', 'inference.prefer_well_formed is for trees'),
    ('model.beam_size=4', 'unknown key model.beam_size'),
    ('inference.beam=4', r'unknown key inference\.beam\. Did you mean inference\.beam_size\?'),
    ('input.crop=224', r'unknown key input\.crop\. Known keys: buckets, rows'),
    ('train.steps', 'Write section.key=value'),
    ('.steps=3', 'Write section.key=value'),
    ('train.steps.more=3', "'steps' is a single value, not a section"),
    ('train.steps=[', 'is not a YAML value'),
    ('train.steps=' + '[' * 9999, 'is not a YAML value'),
    ('seed=' + '9' * 5000, 'is not a YAML value'),
    ('seed=2147483648', r'seed must be a number up to 2,147,483,647'),
    ('input.buckets=[8, 9999999999]', r'input\.buckets must be a number up to'),
    ('model.P_drop=.nan', r'model\.P_drop must be a number'),
    ('name=../elsewhere', r"name must be usable as a folder name; it is '\.\./elsewhere'"),
    ('data.train=["a\\0b"]', 'a null character or an unpaired surrogate'),
    ('data.train=["\\ud800"]', 'a null character or an unpaired surrogate'),
    ('evaluate.thresholds={as_dict: {min: 1}}', r'evaluate\.thresholds\.as_dict: this name is reserved'),
    ('evaluate.thresholds={bleu: {_locked: 1}}', r'evaluate\.thresholds\.bleu\._locked: this name is reserved'),
    ('tr\x1b[2Jain=1\n', r'unknown key tr\\x1b\[2Jain'),
])
def test_a_mistake_is_one_sentence_that_names_it(config_file, override, message):
    with pytest.raises(UserError, match=message) as error:
        config.load(config_file, [override])
    assert '\n' not in str(error.value)


@pytest.mark.parametrize('text, message', [
    (b'data: [', 'is not YAML'), (b'3', 'must hold `key: value` sections'), (b'\xff\xfe', 'is not UTF-8'),
    (b'data: {module: data_prep.wmt}', 'model.module must be'), (b'data: 5', 'data.module must be'),
    (b'!!python/object/apply:os.system ["true"]', 'is not YAML'), (b'a: &a [1]\nb: [*a, *a]', r'aliases \(\*name\)'),
    (b'seed: !!timestamp 2001-99-99', 'is not YAML'), (b'seed: !!float ""', 'is not YAML'),
    (b'#' * (1 << 21), 'has over')])
def test_a_file_that_is_no_configuration_is_named(tmp_path, text, message):
    path = tmp_path / 'odd.yaml'
    path.write_bytes(text)
    with pytest.raises(UserError, match=message):
        config.load(str(path))
    with pytest.raises(UserError, match='There is no configuration'):
        config.load(str(tmp_path / 'missing.yaml'))


def test_values_come_from_preset_then_file_then_override(config_file):
    loaded = config.load(config_file, ['model.preset=official'])
    assert loaded.model.norm == 'pre' and loaded.model.beta_2 == 0.997
    assert loaded.model.warmup_steps == 60  # the file's own value
    assert config.load(config_file, ['model.preset=official', 'model.norm=post']).model.norm == 'post'


def test_the_models_vocabulary_is_the_datas_unless_given(config_file):
    assert config.load(config_file).model.vocab_size == 90
    assert config.load(config_file, ['model.vocab_size=100']).model.vocab_size == 100


def test_1e_9_is_a_number(config_file):
    assert config.load(config_file, ['model.epsilon=1e-9']).model.epsilon == 1e-9


def test_without_a_file_it_is_the_demo():
    demo = config.load()
    assert demo.name == 'demo_translation' and demo.is_demo and demo.data.samples == 'cldr'
    assert transformer.parameters(demo.model) > 0


def test_a_file_may_extend_another(tmp_path, config_file):
    child = tmp_path / 'child.yaml'
    child.write_text(f'extends: {config_file}\nmodel: {{N: 2}}\ninput: {{buckets: [16]}}\n')
    loaded, parent = config.load(str(child)), config.load(config_file)
    assert loaded.name == 'child' and loaded.model.N == 2 and loaded.input.buckets == [16]
    assert loaded.model.d_model == parent.model.d_model and loaded.data == parent.data
    big = config.load('wmt14_en_fr_big')  # by way of two others, by name, from any folder
    assert (big.data.target, big.model.d_model, big.model.P_drop, big.model.N) == ('fr', 1024, 0.1, 6)
    for text, message in (('extends: child.yaml', 'not itself'), ('extends: 5', 'must name another configuration'),
                          ('extends: nowhere', 'child.yaml: extends: There is no configuration')):
        child.write_text(text)
        with pytest.raises(UserError, match=message):
            config.load(str(child))


@pytest.mark.parametrize('name, d_model, P_drop, steps, averaged, bleu', [
    ('wmt14_en_de_base', 512, 0.1, 100000, 5, 27.3), ('wmt14_en_de_big', 1024, 0.3, 300000, 20, 28.4),
    ('wmt14_en_fr_base', 512, 0.1, 100000, 5, 38.1), ('wmt14_en_fr_big', 1024, 0.1, 300000, 20, 41.8)])
def test_the_papers_settings(name, d_model, P_drop, steps, averaged, bleu):
    """Sections 5 and 6.1."""
    c = config.load(name)
    m = c.model
    assert (m.N, m.d_model, m.d_ff, m.h, m.d_k) == (6, d_model, 4 * d_model, d_model // 64, 64)
    assert (m.P_drop, m.epsilon_ls, m.norm, m.positions) == (P_drop, 0.1, 'post', 'sinusoidal')
    assert (m.beta_1, m.beta_2, m.epsilon, m.warmup_steps, m.learning_rate_factor) == (0.9, 0.98, 1e-9, 4000, 1)
    assert (c.inference.beam_size, c.inference.alpha, c.inference.extra_length) == (4, 0.6, 50)
    assert (c.train.steps, c.train.average_checkpoints, c.model.vocab_size) == (
        steps, averaged, 37000 if 'de' in name else 32000)
    assert c.data.subword_kind == ('bpe' if c.data.target == 'de' else 'wordpiece')
    assert bleu - 1.5 < c.evaluate.thresholds['bleu_tokenised']['min'] <= bleu


@pytest.mark.parametrize('name, parameters, batch, scales, mean, steps, views, test_scales, top1, top5', [
    *((f'vgg_{net}_{scale}', parameters, 256, [scale], 'rgb', 370_000, ['dense'], [scale], top1, top5)
      for net, parameters, errors in (('c', 133_638_952, [(256, 0.281, 0.094), (384, 0.281, 0.093)]),
                                      ('d', 138_357_544, [(256, 0.27, 0.088), (384, 0.268, 0.087)]),
                                      ('e', 143_667_240, [(256, 0.273, 0.09), (384, 0.269, 0.087)]))
      for scale, top1, top5 in errors),
    ('alexnet', 60_965_224, 128, [256], 'pixel', 900_000, ['ten_crop'], [], 0.407, 0.182),
    ('vgg_a', 132_863_336, 256, [256], 'rgb', 370_000, ['dense'], [256], 0.296, 0.104),
    ('vgg_b', 133_047_848, 256, [256], 'rgb', 370_000, ['dense'], [256], 0.287, 0.099),
    ('vgg_c', 133_638_952, 256, [256, 512], 'rgb', 370_000, ['dense'], [256, 384, 512], 0.263, 0.082),
    ('vgg_d', 138_357_544, 256, [256, 512], 'rgb', 370_000, ['dense'], [256, 384, 512], 0.248, 0.075),
    ('vgg_e', 143_667_240, 256, [256, 512], 'rgb', 370_000, ['dense'], [256, 384, 512], 0.248, 0.075),
    ('prelu_14', None, 128, [256], 'pixel', 750_000, ['ten_crop'], [], 0.3264, 0.1275),
    ('prelu_a', None, 128, [256, 512], 'pixel', 800_000, ['dense'], [256, 384, 480], 0.2297, 0.0628),
    ('prelu_b', None, 128, [256, 512], 'pixel', 800_000, ['dense'], [256, 384, 480], 0.2285, 0.0627),
    ('prelu_c', None, 128, [256, 512], 'pixel', 800_000, ['dense'], [256, 384, 480], 0.2159, 0.0571)])
def test_the_image_papers_settings(name, parameters, batch, scales, mean, steps, views, test_scales, top1, top5):
    """Krizhevsky et al. 4.1, 5; Simonyan & Zisserman 3.1, tables 3 and 4; He et al. 2015, 3, tables 2 and 6."""
    c = config.load(f'{name}_imagenet')
    m = c.model
    pretrained = name.startswith('vgg') and scales != [256]  # by the same net at another scale
    assert m.learning_rate == (0.001 if pretrained else 0.01)
    assert (m.momentum, m.weight_decay, m.dropout, m.factor) == (0.9, 5e-4, 0.5, 10)
    assert m.max_drops == (2 if name.startswith('prelu') else 3) and (m.classes, m.crop, m.width) == (1000, 224, 1)
    assert parameters in (None, c.model_spec.parameters(m))
    assert (c.input.rows, c.input.crop, c.input.scales, c.input.mean) == (batch, 224, scales, mean)
    assert c.input.square == (name == 'alexnet') and c.input.flip and c.input.colour == 0.1
    assert (c.inference.views, c.inference.scales, c.train.steps) == (views, test_scales, steps)
    for metric, error in (('top1_error', top1), ('top5_error', top5)):
        assert error < c.evaluate.thresholds[metric]['max'] < error + 0.015


def began(config_name):
    """The net a configuration begins with, which it names as pushed versions; its head says so, too."""
    init_from = config.load(config_name).train.init_from
    if not init_from:
        return ''
    name = os.path.basename(init_from)
    assert init_from == f'runs/{name}/serving/{name}'
    head = shipped.paths()[config_name].read_text().split('\nextends:')[0]
    assert all(line.startswith('#') for line in head.splitlines())
    assert name in head and 'pushed' in head and '(3.1)' in head
    return name


@pytest.mark.parametrize('net', ['C', 'D', 'E'])
def test_vgg_with_scale_jitter_begins_with_384_and_that_with_256_and_that_with_a(net):
    """Simonyan & Zisserman 3.1: S = 384 at a rate of 10^-3, then all layers of it at many scales."""
    chain = [f'vgg_{net.lower()}_imagenet']
    while following := began(chain[-1]):
        chain.append(following)
    settings = [(c.model.variant, c.input.scales, c.model.learning_rate) for c in map(config.load, chain)]
    assert settings == [(net, [256, 512], 0.001), (net, [384], 0.001), (net, [256], 0.01), ('A', [256], 0.01)]
    assert chain[0].replace('_imagenet', '_384_imagenet') == chain[1] and chain[-1] == 'vgg_a_imagenet'
    assert began('vgg_b_imagenet') == 'vgg_a_imagenet'


@pytest.mark.parametrize('item', [name for name in experiments.names() if name.startswith('vgg/')])
def test_items_at_the_papers_scale_begin_as_their_configurations_do(item):
    """`{run: NAME}` in place of pushed versions."""
    experiment = experiments.load(item)
    if 'paper' not in experiment.scales:
        return
    configs = {name: setting.config.get('paper', experiment.scales['paper'].config)
               for name, setting in experiment.settings.items() if 'paper' in setting.scales}
    for name, used in configs.items():
        setting = experiment.settings[name]
        overrides = [*setting.set, *setting.paper]
        if not setting.stages and not experiment.stages or 'imagenet' not in used or used.endswith('localisation'):
            continue
        named = [re.search(r'\{run: (.*)\}', override)[1] for override in overrides if 'init_from' in override]
        assert [configs[other] for other in named] == [began(used)] * bool(began(used)), name
