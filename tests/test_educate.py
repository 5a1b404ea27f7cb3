"""Learning machines through the one frame: schooled, judged, pushed, asked; resumed to the bit; taught by hand."""
import json

import numpy as np
import pytest
import tensorflow as tf

from data_prep import examination
from keras_models import school
from pipelines import checkpoints, config, education
from support.commands import command

CONFIG = """\
name: heap
data: {module: data_prep.examination, game: nim, options: {heaps: 1, highest: 20, most: 2}, validation_fraction: 0.4}
model: {module: keras_models.school, machines: 16, memory: 500, cards: 100, combined: 1,
        terms: [{against: random, lessons: 5}, {against: each other, lessons: 3}, {against: perfect, lessons: 90}]}
train: {steps: 98, log_every: 7, checkpoint_every: 14, validate_every: 49, average_checkpoints: 1}
export: {warmup_requests: 1}
evaluate: {slices: [], thresholds: {best_move: {min: 0.9}}}
"""


@pytest.fixture(scope='module')
def config_file(tmp_path_factory):
    path = tmp_path_factory.mktemp('config') / 'heap.yaml'
    path.write_text(CONFIG)
    return path


@pytest.fixture(scope='module')
def finished(config_file):
    done = command('pipelines.run', '--config', str(config_file), cwd=config_file.parent)
    assert done.returncode == 0, done.stderr
    return config_file.parent / 'runs' / 'heap'


def test_the_frame_educates_judges_and_pushes_a_machine_that_plays(config_file, finished):
    run, = finished.glob('educate/*/model_run/run.json')
    last = json.loads(run.read_text())['last']
    assert last['validation/degree/of the best'] >= last['validation/degree'] > 0.7
    version, = (finished / 'serving' / 'heap').iterdir()
    assert (version / 'saved_model.pb').exists()
    asked = [heap for heap in range(1, 21) if heap % 3]
    answers = command('pipelines.predict', '--config', str(config_file), cwd=config_file.parent,
                      input=''.join(f'{heap}\n' for heap in asked))
    assert answers.returncode == 0, answers.stderr
    right = [answer.split()[0] == f'a{heap % 3}' for heap, answer in zip(asked, answers.stdout.splitlines())]
    assert len(right) == len(asked) and np.mean(right) >= 0.9


def test_a_person_teaches_by_keyboard(config_file, finished):
    """Where pain has always come after a word, the word hurts."""
    said = command('pipelines.educate', '--config', str(config_file), '--teacher', cwd=config_file.parent,
                   input='a1\nwhy\n' + 'bad\n-\n' * 3 + 'bad\nnew\nback\ngood dog\nsave kept\nhelp\nquit\n')
    assert said.returncode == 0 and not said.stderr, said.stderr
    assert 'left school' in said.stdout.partition('a1')[0]
    assert 'The machine plays a' in said.stdout and 'position: ' in said.stdout
    assert said.stdout.count('Pain.') == 3 and said.stdout.count('It hears "bad". That hurt it.') == 1
    assert 'It is as it was before this game.' in said.stdout and 'It hears "dog".\n' in said.stdout
    assert (config_file.parent / 'kept.index').exists()


class Killed(BaseException):
    """Nothing in the loop catches it, so that it writes no more than after SIGKILL."""


def test_killed_and_not_at_all(config_file, tmp_path, monkeypatch):
    resolved = config.load(str(config_file), ['model.machines=4', 'train.steps=24', 'train.checkpoint_every=6',
                                              'train.validate_every=12', 'model.memory=40'])
    examples, kills = str(tmp_path / 'examples'), []
    examination.prepare(resolved.data, examples, [])
    straight, killed = tmp_path / 'straight', tmp_path / 'killed'
    found = education.educate(resolved, examples, str(straight))
    term = school.Config.term

    def term_or_death(self, lesson):
        if kills and lesson == kills[0]:
            kills.pop(0)
            raise Killed
        return term(self, lesson)
    monkeypatch.setattr(school.Config, 'term', term_or_death)
    kills += [7, 22]  # in the term against each other, and in that against perfect play
    resumed = []
    while kills:
        with pytest.raises(Killed):
            education.educate(resolved, examples, str(killed))
        resumed.append(checkpoints.step_of(checkpoints.present(str(killed / 'checkpoints'))[-1]))
    again = education.educate(resolved, examples, str(killed))
    assert resumed == [6, 18] and again['resumed_at'] == 18 and again['last'] == found['last']
    one, other = (tf.train.load_checkpoint(str(run / 'weights')) for run in (straight, killed))
    names = [name for name in one.get_variable_to_shape_map() if name[0] != '_']
    assert len(names) > 10
    for name in names:
        np.testing.assert_array_equal(one.get_tensor(name), other.get_tensor(name), err_msg=name)


def test_train_names_the_command_for_what_learns_by_play(config_file):
    done = command('pipelines.train', '--config', str(config_file), cwd=config_file.parent)
    assert done.returncode == 2 and 'pipelines.educate' in done.stderr and 'Traceback' not in done.stderr
