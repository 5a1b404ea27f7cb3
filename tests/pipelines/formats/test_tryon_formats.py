"""Try-on models in other formats: the same pictures as ours, one gate, and a program of their own."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from data_prep import tryon
from data_prep.core import records
from data_prep.people import pairs_files, sample_people
from keras_models import ModelError
from keras_models.formats import tflite_file
from keras_models.viton import alias, chain, portable
from pipelines import predict
from pipelines.core import config, stage
from pipelines.core.pipeline import Pipeline
from pipelines.evaluation import verification
from pipelines.formats import export, networks
from pipelines.formats.table import FORMATS
from pipelines.serving import published
from pipelines.serving.kit import pairs, try_on
from support import quick_stages, tiny_people

OFFICIAL = ('data.agnostic=official', 'model.preset=official')
TOLERANCE = {'tflite': 1e-4, 'onnx': 1e-4, 'tflite_float16': 0.05}  # of levels from -1 to 1, after a hundred layers


def files_of(people: pathlib.Path) -> list[dict[str, bytes]]:
    """The files of the test pairs, by a model's inputs; without pose maps, which are drawn."""
    folders = pairs_files.folders(str(people / 'test'))
    found = [pairs_files.read(folders, *line.split()) for line in (people / 'test_pairs.txt').open()]
    return [{name: files['keypoints' if name == 'pose_json' else name].content for name in pairs.FILES
             if name != 'pose_image'} for files in found]


def written(name: str, folder: pathlib.Path, overrides: tuple[str, ...] = ()) -> tuple:
    """Untrained nets, their configuration, and the program over the files of a format."""
    file, examples = tiny_people.prepare(folder / 'people', 4, *overrides)
    loaded = config.load(file, list(overrides))
    nets = loaded.model_spec.build(loaded.model)
    for layer in nets['alias'].layers:
        for variable in layer.weights:
            if 'noise_scale' in variable.name:  # 0 at first, so that no noise would be seen
                variable.assign(np.random.default_rng(0).normal(0, 0.3, variable.shape))
    (out := folder / name).mkdir()
    networks.write(FORMATS[name], export.Trained(nets, loaded, examples), str(out))
    return nets, loaded, tryon.assets(examples, loaded.input), opened(out, loaded, examples)


def opened(folder: pathlib.Path, loaded: config.Config, examples: str) -> try_on.TryOn:
    rules = records.read_manifest(examples).properties.get('agnostic')
    (folder / 'landmark.json').write_text(json.dumps({'config': loaded.values, 'agnostic': rules}))
    return try_on.load(folder)


def compare_given(program: try_on.TryOn, files: dict[str, bytes], sample: dict[str, tf.Tensor]) -> None:
    given = program.given(files)
    for name, expected in sample.items():
        np.testing.assert_allclose(given[name][0], expected, rtol=0, atol=1e-4, err_msg=name)


def sample_of(assets: tryon.Assets, files: dict[str, bytes]) -> dict[str, tf.Tensor]:
    return assets.sample(**{name: tf.constant(files.get(name, b'')) for name in pairs.FILES})


def test_a_program_prepares_files_as_training_does(tmp_path):
    """Here by the two networks without weights."""
    file, examples = tiny_people.prepare(tmp_path / 'people', 4)
    loaded = config.load(file)
    assets = tryon.assets(examples, loaded.input)
    for name, part in portable.preparation(assets).items():
        (tmp_path / f'{name}.tflite').write_bytes(tflite_file.convert(part))
    program = opened(tmp_path, loaded, examples)
    for files in files_of(tmp_path / 'people'):
        compare_given(program, files, sample_of(assets, files))
    pose = json.loads(files['pose_json'])
    with pytest.raises(pairs.Refused, match='one person'):
        program.given({**files, 'pose_json': json.dumps({'people': pose['people'] * 2}).encode()})
    with pytest.raises(pairs.Refused, match='one size'):
        program.given({**files, 'image': try_on.png(np.zeros([8, 8, 3], np.uint8))})
    for lost in ('image', 'cloth', 'cloth_mask', 'parse'):
        with pytest.raises(pairs.Refused):
            program.given({**files, lost: files[lost][:len(files[lost]) // 2]})


@pytest.mark.slow  # 33 s each; the gate below asks the same networks
@pytest.mark.parametrize('name, overrides', [
    pytest.param('tflite', (), id='tflite'), pytest.param('tflite_float16', (), id='float16'),
    pytest.param('onnx', (), id='onnx'), pytest.param('onnx', OFFICIAL, id='onnx-official')])
def test_a_program_makes_the_picture_of_the_chain(tmp_path, name, overrides):
    nets, loaded, assets, program = written(name, tmp_path, overrides)
    files = files_of(tmp_path / 'people')[0]
    sample = sample_of(assets, files)
    compare_given(program, files, sample)
    batch = {each: value[tf.newaxis] for each, value in sample.items()}
    ours = chain.try_on(nets, loaded.model, batch, tf.constant([loaded.inference.seed, 0]))
    given, parse = program.given(files), tf.argmax(ours['parse'], -1, tf.int32).numpy()
    found = program.dressed(given)
    assert np.mean(found['parse'] != parse) <= (0.01 if name == 'tflite_float16' else 0)  # two classes may be alike
    found = program.networks['try_on'](**given | {'parse': parse})
    for each in ('warped', 'warped_mask', 'image'):
        np.testing.assert_allclose(found[each], ours[each], rtol=0, atol=TOLERANCE[name], err_msg=each)
    if name == 'onnx':  # every weight once, and the spline's 25 functions and 3 of the plane at every pixel
        numbers = sum(nets[each].count_params() for each in ('alias', 'geometric_matching')) + 28 * np.prod(assets.size)
        assert (tmp_path / 'onnx/try_on.onnx').stat().st_size < 1.1 * 4 * numbers + 1e6


@pytest.mark.slow  # prepares people once more
def test_rules_in_float64_are_refused_by_name(tmp_path):
    with pytest.raises(ModelError, match='float64.*--to onnx'):
        written('tflite', tmp_path, OFFICIAL[:1])


def test_noise_that_is_given_is_the_noise_of_the_seed():
    c = alias.Config(preset='official', **alias.PRESETS['official'], size=[64, 64], width=0.0625)
    seed = tf.constant([3, 0])
    assert all(noise.shape == [1, *size, 1] for noise, size in zip(
        alias.noise_maps(c, seed).values(), alias.noise_sizes(c).values(), strict=True))
    [site] = [site for site in alias.noise_sizes(c) if site == 'block_7/norm_s']
    layer = alias.AliasNorm(c, [*alias.blocks(c)][-1], 4, site)
    h, parse, misaligned = tf.random.normal([1, 64, 64, 4]), tf.random.normal([1, 64, 64, 7]), tf.zeros([1, 64, 64, 1])
    layer(h, parse, misaligned, seed)
    layer.noise_scale.assign([1, 2, 3, 4])
    np.testing.assert_array_equal(layer(h, parse, misaligned, seed),
                                  layer(h, parse, misaligned, alias.noise_maps(c, seed)[site]))


# The whole way, once by each engine.

@pytest.fixture(scope='module', params=['tflite', 'onnx'])
def dressed(request, tmp_path_factory):
    """The name of a format, a folder with people and a finished root, and the pushed version."""
    name, folder = request.param, tmp_path_factory.mktemp('dressed')
    sample_people.write_people(str(folder / 'people'), 4, 2, (160, 120))
    text = tiny_people.CONFIG.format(folder=folder / 'people').replace('steps: 4', 'steps: 0')
    (folder / 'people.yaml').write_text(text + 'evaluate: {thresholds: {ssim: {min: 0.0}}, drift: {ssim: {max_drop: '
                                        '0.01}}}\nexport: {warmup_requests: 1}\n')
    pipeline = Pipeline(config.load(str(folder / 'people.yaml')), str(folder / 'root'), [])
    for each in (*stage.STAGES[:-1], f'export-{name}', f'evaluate-{name}'):
        pipeline.run(quick_stages.get(each))
    return name, folder, pipeline.run(quick_stages.get('push'))['pushed_model'].properties['path']


@pytest.mark.slow  # 60 s; the program's own test and test_formats.py hold its parts
def test_the_gate_judges_it_by_the_metrics_of_the_saved_model(dressed):
    name, folder, version = dressed
    assert published.Version(version).formats == [name]
    [report] = (folder / 'root').glob(f'evaluate-{name}/*/{name}_report/report.html')
    findings = verification.verify(verification.opened(str(report)))
    assert {'ssim', 'l1', 'parse_iou'} <= {each.what for each in findings} and all(each.equal for each in findings)
    both = [json.loads(file.read_text())['metrics']['overall'] for file in (
        *(folder / 'root').glob('evaluate/*/evaluation/metrics.json'),
        *(folder / 'root').glob(f'evaluate-{name}/*/{name}_evaluation/metrics.json'))]
    assert {*both[0]} <= {*both[1]}
    for metric in ('ssim', 'l1', 'chain_ssim', 'warp_l1', 'parse_iou', 'garment_lab'):
        assert both[0][metric] == pytest.approx(both[1][metric], rel=1e-3), metric


@pytest.mark.slow  # as above
def test_predict_runs_it_and_its_program_needs_no_tensorflow(dressed, tmp_path, monkeypatch):
    name, folder, version = dressed
    shutil.copytree(folder / 'people', tmp_path / 'people')
    first = (tmp_path / 'people' / 'test_pairs.txt').read_text().split()[0]
    [pose] = (tmp_path / 'people' / 'test' / 'openpose-json').glob(f'{pathlib.Path(first).stem}_keypoints.json')
    said = json.loads(pose.read_text())
    pose.write_text(json.dumps({**said, 'people': said['people'] * 2}))
    monkeypatch.chdir(tmp_path)
    for flags in ([], ['--format', name]):
        predict.main(['--model', version, *flags, '--out', f'out{len(flags)}', 'people/test_pairs.txt'])
    program = os.path.join(version, 'formats', name, 'try_on.py')
    blocked = 'import sys; sys.modules["tensorflow"] = None; ' if name == 'onnx' else ''
    script = (f'{blocked}import runpy, sys; sys.argv.pop(0); sys.path.insert(0, sys.argv[0].rpartition("/")[0]); '
              'runpy.run_path(sys.argv[0], run_name="__main__")')
    done = subprocess.run([sys.executable, '-c', script, program, '--out', 'alone', 'people/test_pairs.txt'],
                          capture_output=True, text=True, env={**os.environ, 'PYTHONPATH': ''})
    assert done.returncode == 1
    assert re.search(rf'^error: {first} \S+: pose_json must hold one person\n$', done.stderr, re.MULTILINE)
    [made] = pathlib.Path('alone').iterdir()
    ours, by_format, alone = (np.asarray(Image.open(pathlib.Path(out, made.name))).astype(int)
                              for out in ('out0', 'out2', 'alone'))
    np.testing.assert_array_equal(by_format, alone)
    np.testing.assert_allclose(ours, alone, rtol=0, atol=1)  # a level apart where rounding falls either way
