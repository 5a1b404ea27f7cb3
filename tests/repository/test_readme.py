"""The commands of README and docs/: run here, linked to the test that runs them, or marked as needing a cloud."""
import ast
import os
import random
import re
import subprocess
import sys

import numpy as np
import pytest
from packaging import requirements, utils
from PIL import Image
from sklearn import datasets

from data_prep.text import samples
from keras_models.core import optimizers
from pipelines.core import config
from support.commands import ROOT, command
from support.text_data import write_pairs

README = (ROOT / 'README.md').read_text()
# Pages that docs/generate.py writes are held by test_docs.py, and these have tests of their own.
ELSEWHERE_PAGES = {'commands', 'configuration', 'configurations', 'adding-a-paper', 'turing'}
PAGES = {path: path.read_text() for path in sorted([*(ROOT / 'docs').rglob('*.md'), ROOT / 'CONTRIBUTING.md'])
         if path.stem not in ELSEWHERE_PAGES and not {'_build', 'api', 'results'} & {*path.relative_to(ROOT).parts}}
TEXT = '\n'.join([README, *PAGES.values()])
PACKAGES = 'configs', 'data_prep', 'keras_models', 'pipelines'
PAIRS, PICTURES = (re.findall(r'```yaml\n(.*?)```', (ROOT / 'docs' / 'tasks' / page).read_text(), re.S)[0]
                   for page in ('translation.md', 'images.md'))
ELSEWHERE = {  # command -> the test that runs it
    'python -m pipelines.run': 'test_pipeline.py: the `finished` fixture',
    'python -m pipelines.prepare': 'test_readme.py: test_your_own_pairs',
    'python -m pipelines.prepare --config my.yaml --runner PrismRunner --prism_location .venv/prism/prism':
        'test_clusters.py, by `make prism`',
    'python -m pipelines.export': 'test_start.py: the `imported` fixture',
    'python -m pipelines.export --to tflite': 'test_formats.py',
    'python -m pipelines.evaluate --format tflite': 'test_formats.py',
    'python -m pipelines.predict --format tflite < lines.txt': 'test_formats.py',
    'python -m pipelines.serve --format tflite': 'test_formats.py: test_the_server_answers_with_it_as_predict_does',
    'python classify.py photo.jpg': 'test_formats.py',
    'python localise.py photo.jpg': 'test_localisation.py',
    "python translate.py 'A man rides a bicycle.'": 'test_ctranslate2.py',
    "python parse.py 'The cat sees the dog .'": 'test_parsing.py',
    'python try_on.py people/test_pairs.txt': 'test_tryon_formats.py',
    'python -m pipelines.evaluate': 'test_start.py: the `imported` fixture',
    'python -m pipelines.learning_curve': 'test_learning_curve.py',
    'python -m pipelines.learning_curve --config my.yaml': 'test_learning_curve.py',
    'python -m pipelines.infra_validate': 'test_start.py: the `imported` fixture',
    'python -m pipelines.train': 'test_readme.py: test_strategy_mirrored_as_typed',
    'python -m pipelines.push': 'test_push.py',
    'python -m pipelines.serve': 'test_serve.py, on ports of its own',
    'python -m pipelines.reproduce --publish docs/results': 'test_reproduce.py: the `published` fixture',
    'python -m pipelines.push --list': 'test_push.py',
    'python -m pipelines.push --canary': 'test_push.py, test_promotion.py',
    'python -m pipelines.push --promote --requests requests.tfrecord': 'test_pipeline.py, test_promotion.py',
    'python -m pipelines.verify REPORT': 'test_verify.py',
    'python -m pipelines.verify runs/NAME/evaluate/4/report/report.html': 'test_verify.py',
    'python -m pipelines.push --rollback': 'test_push.py',
    'python -m pipelines.init images photos/ --minutes 20 > my.yaml': 'test_init.py',
    'python -m pipelines.init pairs train.en train.de --minutes 20 > my.yaml': 'test_init.py',
    'python -m pipelines.init trees treebank/ --minutes 60 > my.yaml': 'test_init.py',
    'python -m pipelines.init tryon DIR --minutes 120 > my.yaml': 'test_init.py, in its parts',
    'python -m pipelines.predict --config my.yaml holiday/ one_more.png':
        'test_image_pipeline.py: test_predict_on_a_folder_writes_a_table_and_a_sheet',
    'python -m pipelines.predict --config learning_machine_nim': 'test_educate.py',
    'python -m pipelines.predict < lines.txt': 'test_pipeline.py: test_predict_answers_every_line_in_order',
    'python -m pipelines.attention "Thursday, July 16, 2026"': 'test_attention_maps.py, of a smaller model',
    'python -m pipelines.train --strategy mirrored': 'test_readme.py: test_strategy_mirrored_as_typed',
    'python -m pipelines.train --explain': 'test_explain.py',
    'python -m pipelines.reproduce --list': 'test_reproduce.py',
    'python -m pipelines': 'test_cli.py',
    'python -m pipelines.run --list': 'test_shipped.py',
    'python -m pipelines.reproduce FILE.yaml': 'test_reproduce.py',
    'python -m pipelines.reproduce prelu/fig3 --data DIR':
        'nowhere: by hand, on files that cannot be shipped; test_reproduce.py runs an item of the demo',
    'python -m pipelines.train --config wmt14_en_de_base --explain': 'test_explain.py, test_transformer.py',
    'python -m pipelines.run --config wmt14_en_de_base --set data.folder=DIR --set train.strategy=mirrored':
        'nowhere whole: days on 8 GPUs; test_config.py, test_text_files.py and test_trainer.py hold its parts',
    'python -m pipelines.train --config my.yaml --strategy multi_worker_mirrored --pipeline_root /shared/runs/my':
        'test_multi_worker.py',
    'python -m pipelines.run --config my.yaml --pipeline_root gs://BUCKET/runs/my':
        'test_stores.py, with a database and a root on a disk',
    'python -m pipelines.run --config my.yaml --compile pipeline.yaml --image IMAGE --pipeline_root gs://BUCKET/runs/my':
        'test_kubeflow.py',
    'python -m pipelines.run --config my.yaml --compile pipeline.yaml '
    '--image REGION-docker.pkg.dev/PROJECT/REPOSITORY/landmark:1 --pipeline_root gs://BUCKET/runs/my '
    '--vertex_project PROJECT --vertex_region REGION': 'test_kubeflow.py',
    'python -m pipelines.train --config my.yaml --manifest job.yaml --image IMAGE --workers 4 '
    '--pipeline_root gs://BUCKET/runs/my': 'test_jobset.py',
    'python -m pipelines.fetch --list': 'test_fetch.py',
    'python -m pipelines.fetch NAME': 'test_fetch.py, of a server of its own',
    'python -m pipelines.run --config my.yaml': 'test_readme.py: test_your_own_pairs',
    'python -m pipelines.run --config instructions --set data.folder=DIR':
        'test_instructions.py, on a table of its own',
    'python -m pipelines.run --config pictures.yaml': 'test_readme.py: test_your_own_pictures',
    'python -m pipelines.predict --config pictures.yaml holiday/ one_more.png':
        'test_image_pipeline.py: test_predict_on_a_folder_writes_a_table_and_a_sheet',
    'python -m pipelines.features --config pictures.yaml --scales 112 160 holiday/':
        'test_deep_features.py: test_features_of_a_folder',
    'python -m pipelines.run --config treebank_sample_parsing --set data.folder=DIR':
        'nowhere: by hand, on files that cannot be shipped; test_parsing.py, on made trees',
    'python -m pipelines.predict --config treebank_sample_parsing --set data.folder=DIR':
        'test_parsing.py, on made trees',
    'python -m pipelines.run --config wsj_parsing --set data.folder=DIR --set train.strategy=mirrored':
        'nowhere whole: it needs LDC99T42 and GPUs; test_parsing.py, on made trees',
    'python -m pipelines.run --config demo_images':
        'nowhere: by hand, in two minutes; test_image_pipeline.py holds its parts',
    'python -m pipelines.run --config vgg_a_tiny_imagenet --set data.folder=DIR':
        'nowhere: it needs the pictures; test_localisation.py runs both kinds on pictures of its own',
    'python -m pipelines.run --config vgg_tiny_imagenet_localisation --set data.folder=DIR': 'the same',
    'python -m pipelines.predict --config vgg_tiny_imagenet_localisation --set data.folder=DIR holiday/':
        'test_localisation.py: test_predict_writes_boxes_and_draws_them',
    'python -m pipelines.run --config vgg_d_imagenet --set data.folder=DIR --set train.strategy=mirrored':
        'nowhere whole: weeks on 4 GPUs; test_vgg.py and test_image_pipeline.py hold its parts',
    'python -m pipelines.run --config vgg_d_imagenet --set data.folder=DIR --set train.steps=0 '
    '--set train.init_from=vgg16_weights_tf_dim_ordering_tf_kernels.h5':
        'test_vgg.py: such a file; test_image_pipeline.py: no step',
    'python -m pipelines.run --config learning_machine_nim':
        'test_educate.py, with fewer machines',
    'python -m pipelines.educate --config learning_machine_nim --teacher': 'test_educate.py',
    'python -m pipelines.lineage': 'test_lineage.py',
    'python -m pipelines.lineage PATH': 'test_lineage.py',
    'python -m pipelines.lineage --raw FILE': 'test_lineage.py',
    'python -m pipelines.run --config demo_tryon':
        'nowhere: by hand, in six minutes; test_tryon_pipeline.py holds its parts',
    'python -m pipelines.prepare --config viton_hd_segmentation --set data.folder=DIR':
        'test_tryon_pipeline.py, at a small size',
    'python -m pipelines.prepare --config viton_hd_geometric_matching --set data.folder=DIR': 'the same',
    'python -m pipelines.train --config viton_hd_segmentation --set data.folder=DIR':
        'nowhere whole: days on GPUs; test_viton_training.py: test_three_runs_make_one_model',
    'python -m pipelines.train --config viton_hd_geometric_matching --set data.folder=DIR': 'the same',
    'python -m pipelines.run --config viton_hd_alias --set data.folder=DIR': 'the same',
    'python -m pipelines.import_weights viton_hd seg_final.pth gmm_final.pth alias_final.pth':
        'test_import_weights.py, on files PyTorch writes',
    'python -m pipelines.run --config viton_hd --set data.folder=DIR':
        'test_tryon_pipeline.py, at a small size',
    'python -m pipelines.predict --config viton_hd --set data.folder=DIR DIR/test_pairs.txt':
        'test_tryon_pipeline.py: test_predict_writes_a_picture_a_pair_a_table_and_a_sheet',
    'python -m pipelines.predict --config demo_tryon runs/demo_tryon/prepare/1/examples/raw/test_pairs.txt': 'the same',
    'python -m pipelines.fetch blazepose': 'conftest.py: blazepose, for the slow tests of photographs',
    'python -m pipelines.photos --person me.jpg --garment shirt.jpg --parser parsing_lip.onnx --out mine':
        'test_photo_folder.py: test_photographs_of_drawn_people_become_a_try_on, with the parser of the tests',
    'python -m pipelines.photos --person people/ --garment garments/ --pairs pairs.txt --parser parsing_atr.onnx --out '
    'mine': 'the same',
    'python -m pipelines.predict --config viton_hd mine/test_pairs.txt': 'the same, with another configuration',
    'python -m pipelines.serve --parser parsing_lip.onnx':
        'test_serve_page.py: test_two_photographs_become_a_try_on, with the parser of the tests',
}
CLOUD = ('--runner DataflowRunner', '--runner FlinkRunner', '--runner SparkRunner', '--runner PortableRunner',
         '--strategy tpu')


def commands():
    text = TEXT.replace('\\\n', ' ')
    found = re.findall(r'^(?:\$ )?(?:echo .*\| )?(?:\.venv/bin/)?(python -m pipelines[^#\n`]*)', text, re.M)
    return {' '.join(line.split()) for line in found + re.findall(r'`(python -m pipelines[^`]*)`', text)}


def test_every_command_is_accounted_for():
    unknown = {line for line in commands() if line not in ELSEWHERE and not any(word in line for word in CLOUD)}
    assert unknown == {'python -m pipelines.predict'}  # the echo line: test_predict_answers_every_line_in_order
    text = ' '.join(TEXT.replace('\\\n', ' ').split())
    for line in ELSEWHERE:
        assert line in text


def test_strategy_mirrored_as_typed(tmp_path):
    """From an empty folder, without a configuration: prepares the demo on the way and trains on two logical CPUs.

    In one bucket, as each is traced for both.
    """
    done = command('pipelines.train', '--strategy', 'mirrored', '--set', 'train.steps=4', '--set', 'train.log_every=2',
                   '--set', 'input.buckets=[28]', cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert 'prepare: started' in done.stdout and 'step 4/4' in done.stdout
    [run] = (tmp_path / 'runs' / 'demo_translation' / 'train').glob('*/model_run/run.json')
    assert '"replicas": 2' in run.read_text()


def test_strategy_tpu_without_one_is_a_sentence(tmp_path):
    for address in ('', 'grpc://127.0.0.1:9'):
        done = command('pipelines.train', '--strategy', 'tpu', '--set', f'train.tpu={address!r}', cwd=tmp_path)
        assert done.returncode == 2 and 'Traceback' not in done.stderr
        assert done.stderr.startswith('error: --strategy tpu: ') and done.stderr.count('\n') == 1
        assert 'started' not in done.stdout  # at once, before anything is prepared


def test_your_own_pairs(tmp_path):
    """The my.yaml of docs/tasks/translation.md, as it stands, prepares pairs in files named as it names them."""
    (tmp_path / 'my.yaml').write_text(PAIRS)
    for split, n in (('train', 400), ('dev', 20), ('test', 20)):
        write_pairs(tmp_path, split, n, n)
        rows = [line.split('\t') for line in (tmp_path / f'{split}.tsv').read_text().splitlines()]
        for side, language in enumerate(('en', 'de')):
            (tmp_path / f'{split}.{language}').write_text('\n'.join(row[side] for row in rows) + '\n')
    assert config.load(str(tmp_path / 'my.yaml')).evaluate.thresholds == {'bleu': {'min': 20, 'max_drop': 0.5}}
    done = command('pipelines.prepare', '--config', 'my.yaml', '--set', 'data.vocab_size=90', cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert 'train: 400 read, 400 written' in done.stdout
    missing = command('pipelines.export', '--config', 'my.yaml', '--set', 'data.vocab_size=90', cwd=tmp_path)
    assert missing.returncode == 2
    assert 'Run `python -m pipelines.train --config my.yaml --set data.vocab_size=90` first.' in missing.stderr


def losses(printed):
    """Return what `train` says of the loss, every ten steps."""
    return [float(loss) for loss in re.findall(r'^train: step \d+0/100, loss ([\w.]+),', printed, re.M)]


def test_the_recipe_for_pairs_rises_and_falls_with_the_run(tmp_path):
    """A run of minutes has some hundred steps; the paper's schedule reaches a tenth of its rate in 400."""
    (tmp_path / 'my.yaml').write_text(PAIRS)
    for steps in (300, 20_000):
        model = config.load(str(tmp_path / 'my.yaml'), [f'train.steps={steps}']).model
        rate = optimizers.Cosine(model.learning_rate, model.steps, model.warmup)
        assert model.schedule == 'cosine' and model.steps == steps
        assert float(rate(steps // 10 - 1)) == pytest.approx(0.03 / 16) and float(rate(steps - 1)) < 1e-5


@pytest.mark.slow  # 30 CPU seconds, of a net of 6 million parameters
def test_the_recipe_for_pairs_learns_within_100_steps(tmp_path):
    """On the demo's pairs: dates, numbers, amounts and units from Unicode's CLDR. With a warm-up of 4,000
    steps the loss falls from 8.5 to 6.0 only, near the ln 500 = 6.2 of answers that are all equally likely."""
    (tmp_path / 'my.yaml').write_text(PAIRS)
    samples.write_cldr_pairs(str(tmp_path))
    for split, name, n in (('train', 'train', 2000), ('validation', 'dev', 50), ('test', 'test', 50)):
        rows = [line.split('\t') for line in (tmp_path / f'{split}.tsv').read_text().splitlines()]
        rows = random.Random(0).sample(rows, n)
        for side, language in enumerate(('en', 'de')):
            (tmp_path / f'{name}.{language}').write_text('\n'.join(row[side] for row in rows) + '\n')
    few = ('--config', 'my.yaml', '--set', 'data.vocab_size=500', '--set', 'input.buckets=[16]', '--set',
           'input.tokens=256', '--set', 'train.steps=100', '--set', 'train.log_every=10')
    assert command('pipelines.prepare', *few, cwd=tmp_path).returncode == 0
    done = command('pipelines.train', *few, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = losses(done.stdout)
    assert len(found) == 10 and found[-1] < 5.6 < found[0]


@pytest.mark.slow  # 16 CPU seconds, of a whole command; test_image_pipeline.py trains on such a folder
def test_the_recipe_for_pictures_learns_within_100_steps(tmp_path):
    """On small photographs: crops of the two that scikit-learn brings, a temple in China and a flower."""
    (tmp_path / 'pictures.yaml').write_text(PICTURES)
    draw = np.random.default_rng(0)
    for name in ('china', 'flower'):
        (tmp_path / 'photos' / name).mkdir(parents=True)
        photograph = datasets.load_sample_image(f'{name}.jpg')
        for i in range(100):
            top, left = draw.integers(0, np.array(photograph.shape[:2]) - 48)
            Image.fromarray(photograph[top:top + 48, left:left + 48]).save(tmp_path / 'photos' / name / f'{i}.jpg')
    small = ('--config', 'pictures.yaml', '--set', 'input.crop=28', '--set', 'input.scales=[32, 40]', '--set',
             'train.steps=100', '--set', 'train.log_every=10')
    assert command('pipelines.prepare', *small, cwd=tmp_path).returncode == 0
    done = command('pipelines.train', *small, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = losses(done.stdout)
    # Labels are smoothed by 0.1, so no net gets below 0.199; chance is 0.693.
    assert len(found) == 10 and found[-1] < 0.45 < found[0]


@pytest.mark.slow  # test_image_pipeline.py holds every part
def test_your_own_pictures(tmp_path):
    """The pictures.yaml of docs/tasks/images.md, as it stands, prepares a folder of class folders and takes a step."""
    (tmp_path / 'pictures.yaml').write_text(PICTURES)
    draw = np.random.default_rng(0)
    for name in ('cat', 'dog'):
        (tmp_path / 'photos' / name).mkdir(parents=True)
        for i in range(40):
            pixels = draw.integers(0, 256, (140, 150, 3), np.uint8)
            Image.fromarray(pixels).save(tmp_path / 'photos' / name / f'{i}.{"png" if i % 2 else "jpg"}')
    assert config.load(str(tmp_path / 'pictures.yaml')).evaluate.thresholds == {'top1_error': {'max': 0.3}}
    done = command('pipelines.run', '--config', 'pictures.yaml', '--set', 'train.steps=1',
                   '--set', 'evaluate.thresholds.top1_error.max=1', cwd=tmp_path)  # one step tosses a coin
    assert done.returncode == 0, done.stderr
    assert 'step 1/1' in done.stdout and re.search(r'; BLESSED: all thresholds are met\.$', done.stdout, re.M)
    assert len([*tmp_path.glob('runs/*/serving/pictures/[0-9]*/saved_model.pb')]) == 1


def test_make_refuses_another_python_in_one_line():
    done = subprocess.run(['make', '-C', str(ROOT), 'install', f'PYTHON={sys.executable}', 'VENV=/nonexistent/x', '-n'],
                          capture_output=True, text=True)
    assert 'sys.version_info[:2] != (3, 11)' in done.stdout  # what the recipe checks before anything else
    line = next(line for line in done.stdout.splitlines() if 'version_info' in line)
    assert done.stdout.index(line) < done.stdout.index('-m venv')


def test_the_lock_pins_every_requirement_within_its_range():
    """And nothing twice; setup.py's lists are the extras that `make install` takes."""
    pinned = re.findall(r'^([a-z0-9._-]+)==(\S+) ', (ROOT / 'requirements.lock').read_text(), re.M)
    versions = {utils.canonicalize_name(name): version for name, version in pinned}
    tree = ast.parse((ROOT / 'setup.py').read_text())
    lists = {node.targets[0].id: ast.literal_eval(node.value) for node in tree.body
             if isinstance(node, ast.Assign) and isinstance(node.value, ast.List)}
    wanted = [requirements.Requirement(text) for text in lists['CORE'] + lists['TRAIN'] + lists['CTRANSLATE2']
              + lists['ONNX'] + lists['KUBEFLOW'] + lists['GPU'] + lists['PHOTOS'] + lists['TEST']
              if isinstance(text, str)]
    assert len(wanted) > 30 and len(versions) == len(pinned)
    for requirement in wanted:
        version = versions.get(utils.canonicalize_name(requirement.name))
        assert version and requirement.specifier.contains(version), f'{requirement} is not {version}'


def test_every_make_target_that_is_told_is_one():
    targets = {*re.findall(r'^([a-z-]+):', (ROOT / 'Makefile').read_text(), re.M)}
    told = {*re.findall(r'`make ([a-z-]+)|^(?:\$ )?make ([a-z-]+)', TEXT, re.M)}
    assert {'run', 'test', 'lint', 'docs'} <= {name for pair in told for name in pair if name} <= targets
    assert {*re.findall(r'^make ([a-z-]+)', (ROOT / '.ci' / 'run').read_text(), re.M)} <= targets
    assert os.access(ROOT / '.ci' / 'run', os.X_OK)


def test_every_file_that_is_named_is_there():
    missing = set()
    for path, text in {ROOT / 'README.md': README, **PAGES}.items():
        links = {link for link in re.findall(r'\]\(([^)#]+)', text) if '://' not in link}
        links |= {*re.findall(r'^```\{image\} (\S+)', text, re.M)}
        missing |= {(path.name, link) for link in links if not (path.parent / link).exists()}
        named = {name for name in re.findall(r'`([\w./-]+\.(?:md|py|yaml|json|lock))`', text)
                 if name.split('/')[0] in (*PACKAGES, 'benchmarks', 'docs', 'tests')
                 or name.isupper() or name.endswith('.lock')}
        missing |= {(path.name, name) for name in named if not (ROOT / name).exists()}
    assert not missing, missing


def test_readme_is_short():
    assert len(README.splitlines()) <= 180


def test_the_licence_is_the_one_that_the_package_says():
    text = (ROOT / 'LICENSE').read_text()
    assert 'Apache License' in text and 'Version 2.0' in text and 'END OF TERMS AND CONDITIONS' in text
    assert "license='Apache-2.0'" in (ROOT / 'setup.py').read_text()
    third = (ROOT / 'THIRD_PARTY.md').read_text()
    changed = (ROOT / 'CHANGELOG.md').read_text()
    assert third.startswith('# ') and changed.startswith('# ')
    assert len(re.findall(r'^(## |- )', changed, re.M)) > 3
