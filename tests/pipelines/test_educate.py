"""Learning machines through the pipeline: trained, evaluated, pushed, served, resumed exactly, taught by hand."""
import io
import json
import re

import numpy as np
import pytest
import tensorflow as tf

from data_prep import UserError
from data_prep.games import job
from keras_models import ModelError, learning_machine, school
from keras_models.learning_machine import Machines
from pipelines import educate
from pipelines.core import config
from pipelines.training import checkpoints, education, mechanic, teacher
from support.commands import command
from support.killed_runs import Killed

CONFIG = """\
name: heap
data: {module: data_prep.examination, game: nim, options: {heaps: 1, highest: 20, most: 2}, validation_fraction: 0.4}
model: {module: keras_models.school, machines: 16, memory: 1000, cards: 1000, combined: 1,
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


def typed(config_file, flag: str, *lines: str) -> str:
    said = command('pipelines.educate', '--config', str(config_file), flag, cwd=config_file.parent,
                   input='\n'.join((*lines, 'quit\n')))
    assert said.returncode == 0 and not said.stderr, said.stderr
    return said.stdout


def test_a_schoolmaster_sees_nothing_inside_and_a_mechanic_everything_and_teaches_nothing(config_file, finished):
    said = typed(config_file, '--teacher', 'a1', 'bad', '-', 'new', 'good dog', 'help')
    assert 'left school' in said.partition('The machine plays a')[0] and 'The machine plays a' in said
    assert said.count('Pain.') == 1 and 'It hears "dog".\n' in said
    assert not re.search('vote|memories|against|pain:|felt', said)
    looked = typed(config_file, '--mechanic', 'positions', 'memories 4', 'votes 4', 'votes x', 'save kept', '+', 'a1',
                   'back 9', 'back 2', 'positions', 'memories 9', 'load kept', 'load nothing', 'positions')
    assert 'was here before' in looked and '\n1 2 3\n' in looked and '\n1 2 3 4\n' in looked
    assert looked.count('it heard word') == 3 + 1 and 'it moved a' in looked  # "dog" was said after position 2
    assert 'It goes by' in looked and re.search(r'a1: [+-]\d.*position \d+ for \d+ against', looked)
    assert 'x is not a position: give 1 numbers.' in looked and (config_file.parent / 'kept.index').exists()
    assert "'+' is not a command of the mechanic" in looked and "'a1' is not a command of the mechanic" in looked
    assert 'has no position 9; there are [1, 2, 3].' in looked
    assert 'nothing has no machine of this configuration' in looked
    assert looked.rstrip().endswith('1 2 3 4 5')


def test_a_question_is_answered_and_the_mechanic_reads_what_was_said(tmp_path):
    machine, out = Machines(learning_machine.Config(game='nim', machines=1, memory=60, cards=400)), io.StringIO()
    machine.tape.supply(1)
    positions = teacher.Positions(machine, str(tmp_path))
    room = teacher.Schoolroom(machine, out, 'is new', positions)
    for line in ('mover?', '+', 'why'):
        assert room.line(line)
    said = re.findall(r'The machine says "(\w+) (\w+) (\w+)"', out.getvalue())
    assert len(said) == 1 and set(said[0]) < set(machine.language.words)
    assert mechanic.Workshop(machine, positions, out).line('memories')
    told = re.findall(r'it (heard|said) (\w+)( \d+)?(: pleasure)?$', out.getvalue(), re.MULTILINE)
    assert [kind for kind, *_ in told] == ['heard', *['said'] * 3, 'heard']
    assert [word for _, word, *_ in told] == ['mover', *said[0], 'word']
    assert [felt for *_, felt in told] == [': pleasure'] * 4 + ['']


def test_killed_and_not_at_all(config_file, tmp_path, monkeypatch):
    resolved = config.load(str(config_file), ['model.machines=4', 'train.steps=12', 'train.checkpoint_every=6',
                                              'train.validate_every=12', 'model.memory=400'])
    examples, kills = str(tmp_path / 'examples'), []
    job.run(resolved.data, examples, [])
    straight, killed = tmp_path / 'straight', tmp_path / 'killed'
    found = education.educate(resolved, examples, str(straight))
    term = school.Config.term

    def term_or_death(self, lesson):
        if kills and lesson == kills[0]:
            kills.pop(0)
            raise Killed
        return term(self, lesson)
    monkeypatch.setattr(school.Config, 'term', term_or_death)
    kills += [7]  # in the term against each other, so that it goes on into that against perfect play
    resumed = []
    while kills:
        with pytest.raises(Killed):
            education.educate(resolved, examples, str(killed))
        resumed.append(checkpoints.step_of(checkpoints.present(str(killed / 'checkpoints'))[-1]))
    again = education.educate(resolved, examples, str(killed))
    assert resumed == [6] and again.resumed_at == 6 and again.last == found.last
    one, other = (tf.train.load_checkpoint(str(run / 'weights')) for run in (straight, killed))
    names = [name for name in one.get_variable_to_shape_map() if name[0] != '_']
    assert len(names) > 10
    for name in names:
        np.testing.assert_array_equal(one.get_tensor(name), other.get_tensor(name), err_msg=name)


@pytest.mark.parametrize('overrides, words', [
    (['model.terms=[]'], 'terms is empty; give at least one term'),
    (['model.terms=[3]'], r'model\.terms must be list'),
    (['model.terms=[{lessons: 3}]'], 'terms: number 1 has lessons; give against and lessons'),
    (['model.terms=[{against: random, lessons: 3}, {against: random, games: 3}]'], '2 has against, games'),
    (['model.terms=[{against: random, lessons: 3, drew: 1}]'], 'number 1 has .*drew, lessons; give'),
    (['model.terms=[{against: random, lessons: many}]'], "lessons of number 1 is 'many'; give 1 or more"),
    (['model.terms=[{against: random, lessons: 0}]'], 'lessons of number 1 is 0; give 1 or more'),
    (['model.terms=[{against: random, lessons: true}]'], 'lessons of number 1 is True; give 1 or more'),
    (['model.terms=[{against: random, lessons: 3, lost: 7}]'], 'lost of number 1 is 7; give 1 for pleasure'),
    (['model.terms=[{against: random, lessons: 3, won: 0.5}]'], r'won of number 1 is 0\.5; give 1 for'),
    (['model.terms=[{against: nobody, lessons: 3}]'], "'nobody' is not an opponent in this game; choose perfect, ran"),
    (['model.terms=[{against: capturing, lessons: 3}]'], "'capturing' is not an opponent in this game; choose per"),
    (['model.game=go', 'model.options={}'], "'perfect' is not an opponent in this game; choose random, capturing"),
    (['model.machines=3'], 'machines is 3, .*; give an even number'),
    (['model.combined=3'], 'combined is 3; .* 2 such indexes at most'),
    (['model.constancy=9'], 'looked_up is 16; give 30 at most and twice constancy, 18, at least'),
    (['model.tape=9'], 'tape is 9, which cannot hold as many 0 as 1'),
    (['model.game=chess'], "there is no game 'chess'; choose of nim, noughts, go"),
    (['model.options={heaps: 1.5}'], r"the game 'nim': heaps is 1\.5; give it as int"),
    (['data.options={heaps: 1.5}'], r'options\.heaps must be a whole number of 1 or more; it is 1\.5'),
    (['input.tokens=5'], 'input: positions have no length; give rows'),
    (['data.validation_fraction=1'], r'data: validation_fraction must be between 0 and 1, .* it is 1')])
def test_what_no_school_could_teach_is_refused_by_its_key(config_file, overrides, words):
    with pytest.raises((UserError, ModelError), match=words) as refused:
        config.load(str(config_file), overrides)
    assert '\n' not in str(refused.value)


def test_terms_are_those_that_are_given(config_file):
    """Whatever the default's are, which is as many terms as one of these, and presses a key of its own."""
    for terms in ([{'against': 'perfect', 'lessons': 3}, {'against': 'random', 'lessons': 2}],
                  [{'against': 'perfect', 'lessons': 3, 'lost': 0},
                   {'against': 'random', 'lessons': 2, 'won': 1}]):
        given = json.dumps(terms)
        assert len(terms) == len(school.Config().terms)
        assert config.load(str(config_file), [f'model.terms={given}']).model.terms == terms


def test_a_full_memory_is_an_error_of_the_key_to_raise(config_file, tmp_path):
    resolved = config.load(str(config_file), ['model.machines=4', 'train.steps=24', 'model.memory=20'])
    job.run(resolved.data, str(tmp_path / 'examples'), [])
    with pytest.raises(UserError, match=r'^model\.memory: a machine has filled its memory of 20 moments; give it '):
        education.educate(resolved, str(tmp_path / 'examples'), str(tmp_path / 'run'))


@pytest.mark.parametrize('overrides, words', [
    (['train.strategy=mirrored'], r'train\.strategy, train\.init_from, .* Leave them out'),
    (['train.init_from=somewhere'], r'train\.strategy, train\.init_from, .* Leave them out'),
    (['model.options={heaps: 2}'], r"model\.game nim with {'heaps': 2} is not the game of the data set"),
    (['model.game=noughts', 'model.options={}'], r'model\.game noughts with {} is not .* data set, nim')])
def test_what_would_fail_after_the_lessons_is_refused_before_them(config_file, overrides, words):
    with pytest.raises((UserError, ModelError), match=words):
        educate.check(config.load(str(config_file), overrides))


def test_educate_is_for_what_learns_by_play(tmp_path):
    with pytest.raises(UserError, match=r'keras_models\.transformer does not learn by play; run .*train'):
        educate.check(config.load('demo_translation'))
    (tmp_path / 'odd.yaml').write_text('data: {module: data_prep.wmt, samples: cldr}\n'
                                       'model: {module: keras_models.school, game: nim}\n')
    with pytest.raises(UserError, match='prepares data for the task text, and keras_models.school is for'):
        config.load(str(tmp_path / 'odd.yaml'))


@pytest.mark.parametrize('flags, words', [
    (['--set', 'model.terms=[]'], 'terms is empty'), (['--set', 'train.strategy=mirrored'], 'train.strategy'),
    (['--set', 'model.game=noughts', '--set', 'model.options={}'], 'model.game noughts'),
    (['--teacher', '--sets', 'x'], 'unknown argument --sets'),
    (['--teacher', '--mechanic'], '--teacher and --mechanic are for two persons')])
def test_a_refusal_is_one_line_and_exit_code_2_and_leaves_nothing(config_file, tmp_path, flags, words):
    done = command('pipelines.educate', '--config', str(config_file), *flags, cwd=tmp_path)
    assert done.returncode == 2 and not done.stdout
    assert words in done.stderr and 'Traceback' not in done.stderr
    assert 'error: ' in done.stderr.splitlines()[-1]
    assert not [*tmp_path.iterdir()]


def test_train_names_the_command_for_what_learns_by_play(config_file):
    done = command('pipelines.train', '--config', str(config_file), cwd=config_file.parent)
    assert done.returncode == 2 and 'pipelines.educate' in done.stderr and 'Traceback' not in done.stderr
