"""`--explain` prints the paper's counts and omits what a model module does not provide."""
import dataclasses
import re

from pipelines.core import config as configs
from pipelines.core import explain


def test_explain_counts_table_3(capsys):
    base = ['model.N=6', 'model.d_model=512', 'model.d_ff=2048', 'model.h=8', 'data.vocab_size=37000']
    explain.show(configs.load(None, [*base, 'model.preset=paper', 'input.tokens=1000', 'train.steps=2000']))
    out = capsys.readouterr().out
    assert re.search(r'parameters +63,045,632', out) and f'{6 * 63045632:,}' in out and 'about 7.6e+14' in out
    assert re.search(r'beta_2 +0.98 +0.997 +0.98', out) and re.search(r'norm +post +pre +post', out)
    assert 'vocab_size: 37000' in out and '\x1b' not in out


def test_explain_leaves_out_what_a_module_does_not_count(capsys):
    config = configs.load()
    silent = {'parameters': None, 'flops_per_unit': None, 'presets': {}, 'table': lambda model: None}
    config = dataclasses.replace(config, model_spec=dataclasses.replace(config.model_spec, **silent))
    explain.show(config)
    out = capsys.readouterr().out
    assert 'module: keras_models.transformer' in out and 'parameters' not in out and 'Presets' not in out


def test_explain_shows_where_the_presets_of_viton_hds_networks_differ(capsys):
    explain.show(configs.load('viton_hd', ['data.folder=none', 'model.alias={slope: 0.1}']))
    out = capsys.readouterr().out
    for key, paper, official, own in (
            ('levels', 'rounded', 'truncated', 'truncated'), ('segmentation.output', 'softmax', 'sigmoid', 'sigmoid'),
            ('segmentation.convolve_upsampled', 'False', 'True', 'True'), ('alias.noise', 'False', 'True', 'True'),
            ('geometric_matching.extent', '1.0', '0.9', '0.9'), ('alias.slope', '0.0', '0.2', '0.1')):
        assert re.search(rf'{key} +{paper} +{official} +{paper} +{own}', out), key
    assert 'this run key paper official own_data (official)' in ' '.join(out.split()) and 'lambda_FM ' not in out
