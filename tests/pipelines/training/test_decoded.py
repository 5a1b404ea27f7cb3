"""The best checkpoint by a metric of decoded validation examples: the gate's number, to the bit after kills, too."""
import pytest
import tensorflow as tf

from data_prep import UserError
from data_prep.core import records
from pipelines import train as train_stage
from pipelines.core import artifacts, config, roles
from pipelines.evaluation import corpus
from pipelines.reporting import report
from pipelines.serving import saved_model
from pipelines.training import checkpoints, trainer
from support import killed_runs

# Checkpoints at every second step, validations at every third; chrF, because BLEU stays 0 for so short a training.
SETTINGS = ['input.buckets=[16]', 'train.steps=6', 'train.log_every=3', 'train.checkpoint_every=2',
            'train.validate_every=3', 'train.monitor=chrf', 'train.monitor_mode=max', 'train.monitor_examples=20',
            'model.warmup_steps=5', 'inference.beam_size=2']


def load(config_file, *overrides):
    return config.load(config_file, [*SETTINGS, *overrides])


def gates(loaded, examples, run):
    """The metric as the gate computes it, with the SavedModel of the run's weights, and the answers."""
    nets = loaded.model_spec.build(loaded.model)
    checkpoints.restore(nets, str(run / 'weights'))
    module = loaded.model_spec.serving(nets, loaded.model, loaded.inference, loaded.data_spec.assets(examples), False)
    tf.saved_model.save(module, str(run / 'saved'), signatures=module.signatures())
    model = tf.saved_model.load(str(run / 'saved'))
    model.description = {'model_module': loaded.model_spec.name, 'config': loaded.values}
    split = records.open_split(examples, 'validation')
    spread = [i * len(split) // 20 for i in range(20)]
    inputs, columns = loaded.data_spec.examples(split.read(spread))
    answers = [found['answers'] for found in saved_model.run(model, inputs)]
    metric = corpus.metric('chrf')
    return metric.score(sum(metric.counts(corpus.Row(*row)) for row in zip(answers, columns['target']))), answers


@pytest.mark.slow  # six trainings that decode; the next test compares the number, test_ema.py kills with more state
def test_killed_at_every_checkpoint_it_ends_as_undisturbed_with_the_number_of_the_gate(config_file, examples, tmp_path):
    loaded, straight, killed = load(config_file), tmp_path / 'straight', tmp_path / 'killed'
    found = trainer.train(loaded, examples, str(straight))
    again, done = killed_runs.after_each_checkpoint(lambda: trainer.train(loaded, examples, str(killed)))
    assert {('checkpoints', 2), ('best', 3), ('checkpoints', 4), ('checkpoints', 6)} <= {*done}
    assert (again.steps, again.best, again.averaged) == (found.steps, found.best, found.averaged)
    for name in ('weights', 'checkpoints/ckpt-6', f'best/ckpt-{found.best["step"]}'):
        killed_runs.same(killed_runs.stored(straight / name), killed_runs.stored(killed / name))
    curve = dict(report.curves(str(straight / 'tensorboard'))['validation/chrf'])
    assert [*curve] == [3, 6] and found.best['step'] == max(curve, key=curve.get)
    number, answers = gates(loaded, examples, straight)
    assert found.best == {'metric': 'chrf', 'value': number, 'step': found.best['step']} and number > 0
    assert found.averaged['validation/chrf'] == number and len({*map(tuple, answers)}) > 1


def test_however_it_trains_it_decodes_as_the_export(config_file, examples, tmp_path):
    """On one device, in float32, and with the averaged weights, which are exported."""
    loaded = load(config_file, 'train.steps=3', 'input.rows_multiple_of=2', 'train.strategy=mirrored',
                  'train.precision=float16', 'train.ema=0.9')
    found = trainer.train(loaded, examples, str(tmp_path))
    assert found.best['value'] == gates(loaded, examples, tmp_path)[0]


def test_training_depends_on_the_decoder_if_it_decodes(config_file):
    def closure(*overrides):
        return {*artifacts.closure(roles.sources(load(config_file, *overrides), train_stage.STAGE.roles))}
    decoder = {'pipelines.evaluation.decoded', 'pipelines.evaluation.corpus', 'keras_models.text.translator'}
    assert decoder <= closure() and not decoder & closure('train.monitor=loss')


def test_mistakes_are_sentences(config_file, examples, tmp_path):
    with pytest.raises(UserError, match=r'train\.monitor: bleu is better when higher\. Set train\.monitor_mode=max'):
        train_stage.check(load(config_file, 'train.monitor=bleu', 'train.monitor_mode=min'))
    with pytest.raises(UserError, match=r"validation computes no 'blue'\. Give one of loss, .*bleu, .*chrf"):
        trainer.train(load(config_file, 'train.monitor=blue', 'train.steps=3'), examples, str(tmp_path))
