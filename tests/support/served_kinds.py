"""A quick model of every kind the page serves, with predictable answers and the signatures of real exports."""
import os
import shutil

import tensorflow as tf

from keras_models import school
from keras_models.turing import educated
from support import served, tiny_classifier

FILES = ('image', 'parse', 'pose_json', 'pose_image', 'cloth', 'cloth_mask')
_NAMED = [tf.TensorSpec([], tf.string, name) for name in FILES]


class Shouting(tf.Module):
    """Translates into capitals, word by word, and says it looked at the word it wrote."""

    def signatures(self):
        return {'serving_default': self.serve, 'explore': self.explore}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, 'text')])
    def serve(self, text):
        return {'text': tf.strings.upper(text), 'score': tf.fill(tf.shape(text), -0.25),
                'truncated': tf.strings.length(text) > 40}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, 'text')])
    def explore(self, text):
        words = tf.strings.split(text).to_tensor('')
        pieces = tf.where(words == '', '', tf.strings.join([' ', words]))
        n, S = tf.unstack(tf.shape(words))
        answers = tf.stack([tf.strings.upper(text), text], 1)
        return {'alternatives': answers, 'scores': tf.tile([[-0.25, -1.5]], [n, 1]), 'source': pieces,
                'target': tf.strings.upper(pieces), 'attention': tf.eye(S, batch_shape=[n])}


class Bracketing(tf.Module):
    """Makes a flat tree of any sentence, and of `?` none."""

    def signatures(self):
        return {'serving_default': self.serve}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, 'text')])
    def serve(self, text):
        leaves = tf.strings.regex_replace(text, r'(\S+)', r'(XX \1)')
        return {'text': tf.where(text == '?', '((', tf.strings.join(['(S ', leaves, ')'])),
                'score': tf.fill(tf.shape(text), -0.5), 'truncated': tf.fill(tf.shape(text), False)}


class Dressing(tf.Module):
    """A try-on whose picture is the garment. Refuses a person whose parse map is no PNG."""

    def signatures(self):
        return {'serving_default': self.serve}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name) for name in FILES])
    def serve(self, image, parse, pose_json, pose_image, cloth, cloth_mask):
        return {'image_bytes': cloth}

    @tf.function(input_signature=_NAMED)
    def look(self, image, parse, pose_json, pose_image, cloth, cloth_mask):
        fine = tf.debugging.Assert(tf.strings.length(pose_json) > 2, ['No person was found'])
        with tf.control_dependencies([fine]):
            return {'image': tf.identity(cloth), 'parse': tf.identity(parse), 'warped': tf.identity(cloth)}


def changed(version: str) -> str:
    """Copies a version's SavedModel beside it, with one file more, so that it counts as another model."""
    folder = f'{version}.changed'
    shutil.copytree(version, folder)
    os.remove(os.path.join(folder, 'landmark.json'))
    with open(os.path.join(folder, 'assets.extra', 'changed'), 'w', encoding='utf-8') as file:
        file.write('yes')
    return folder


def push_all(folder: str) -> dict[str, str]:
    """Pushes one of every kind below a folder. Returns the destinations by name."""
    def push(name, module, data, model, config=None, warmup=()):
        served.push_exported(module, os.path.join(folder, name), {
            'data_module': data, 'model_module': model, 'config': config or {}}, warmup)
    push('translation', Shouting(), 'data_prep.wmt', 'keras_models.transformer',
         {'data': {'source': 'en', 'target': 'de'}},
         ({'text': 'A man rides a bicycle.'}, {'text': 'Two dogs play.'}))
    push('parsing', Bracketing(), 'data_prep.treebank', 'keras_models.transformer', warmup=(
        {'text': 'The cat sat on the mat .'},))
    assets, config = tiny_classifier.Assets(), tiny_classifier.Config()
    push('images', tiny_classifier.serving(tiny_classifier.randomised(config), config, tiny_classifier.Inference(),
                                           assets, jit=False),
         'data_prep.imagenet', 'keras_models.vgg', {'data': {'max_pixels': 100_000}},
         ({'image': tiny_classifier.jpeg(seed=1)}, {'image': tiny_classifier.png(seed=2)}))
    push('try_on', Dressing(), 'data_prep.tryon', 'keras_models.viton.try_on',
         {'data': {'max_pixels': 100_000}, 'input': {'size': [64, 48]}})
    config = school.Config(game='nim', options={'heaps': 2, 'highest': 3, 'most': 3}, machines=2, memory=1024,
                           cards=1024)
    machines = school.build(config)['machines']
    machines.tape.supply(0)
    push('nim', educated.Player(machines.alone(0), educated.Inference()), 'data_prep.examination',
         'keras_models.school', {'model': {'game': 'nim', 'options': config.options, 'machines': 2, 'memory': 1024,
                                           'cards': 1024}})
    return {name: os.path.join(folder, name) for name in ('translation', 'parsing', 'images', 'try_on', 'nim')}
