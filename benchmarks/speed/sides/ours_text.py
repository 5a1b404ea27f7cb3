"""Our Transformer, and CTranslate2 with what `python -m pipelines.export --to ctranslate2` gives it."""
import functools
import os
import tempfile

import inputs
import numpy as np
import side
import tensorflow as tf
import trained

from keras_models import transformer
from keras_models.formats import transformer_ctranslate2
from keras_models.text import translator
from pipelines.core import config
from pipelines.serving import saved_model

VOCABULARY = f'model.vocab_size={inputs.BASE["V"]}'
CHECKED = 'encoder/0/ffn/W_1/kernel', 'decoder/5/self_attention/W_V/kernel', 'embedding/embeddings'


def filled(net: tf.keras.Model) -> None:
    weights = inputs.transformer(**inputs.BASE)
    net.set_weights([weights[weight.name.removesuffix(':0')] for weight in net.weights])


def step(batch: int, length: int, precision: str = 'float32', jit: bool = False) -> side.Work:
    """Return a training step with dropout; what is compared is the loss and gradients without."""
    trainer = trained.Trained('wmt14_en_de_base', VOCABULARY, f'train.precision={precision}',
                              f'train.jit={str(jit).lower()}')
    filled(trainer.net)
    given = {'inputs': tf.constant(inputs.sentences(batch, length, inputs.BASE['V'])),
             'targets': tf.constant(inputs.sentences(batch, length, inputs.BASE['V'], seed=4))}
    loss, norms = trainer.undropped(given, *CHECKED)

    def once():
        trainer.step(given)
        return batch * length
    return side.Work({'loss': np.array(loss), 'gradients': np.array(norms)}, once)


def decode(sentences: int, length: int, longer: int, engine: str = 'ours', jit: bool = False) -> side.Work:
    """Beam search of 4 over sentences of one length, to hypotheses of one length; a unit is a token of an answer."""
    resolved = config.load('wmt14_en_de_base', [VOCABULARY, 'inference.alpha=0', f'inference.extra_length={longer}'])
    nets = transformer.build(resolved.model)
    filled(nets['transformer'])
    given = inputs.sentences(sentences, length, inputs.BASE['V'])
    search = {'ours': ours, 'ctranslate2': ctranslate2}[engine](nets, resolved, given, jit)

    def once():
        search()
        return sentences * (length + longer)
    return side.Work({'log probabilities': search()}, once)


def ours(nets, resolved, given, jit):
    translate = translator.Translator(nets, resolved.model, resolved.inference)
    search = tf.function(lambda ids: translate(ids, pack=not jit), jit_compile=jit or None)  # as it is served
    return lambda: search(tf.constant(given))[1].numpy()


def ctranslate2(nets, resolved, given, jit):
    del jit
    import ctranslate2
    pieces = [str(i) for i in range(resolved.model.vocab_size)]
    length = given.shape[1] + resolved.inference.extra_length
    with tempfile.TemporaryDirectory() as folder:
        made = transformer_ctranslate2.specification(nets, resolved.model, pieces, 3, length)
        transformer_ctranslate2.save(made, folder)
        engine = ctranslate2.Translator(folder, inter_threads=1, intra_threads=os.cpu_count(), compute_type='float32')
    words = [[pieces[i] for i in row[:-1]] for row in given]  # it adds the end itself
    return lambda: np.array([found.scores[0] for found in engine.translate_batch(
        words, beam_size=4, length_penalty=0, max_decoding_length=length, return_scores=True)])


def translate(model: str, lines: str, engine: str = 'ours', compute_type: str = 'float32') -> side.Work:
    """Lines of text to lines of text, by an exported model; a unit is a line."""
    with open(lines, encoding='utf-8') as file:
        given = file.read().splitlines()
    by_engine = functools.partial(loaded_by_ctranslate2, compute_type=compute_type)
    read = {'ours': loaded, 'ctranslate2': by_engine}[engine](model)

    def once():
        read(given)
        return len(given)
    return side.Work({'lines': np.array(read(given))}, once)


def loaded(folder: str):
    model = saved_model.load(folder)
    return lambda lines: [found['answers'][0] for found in saved_model.run(model, lines)]


def loaded_by_ctranslate2(folder: str, compute_type: str):
    """`folder` is what `export --to ctranslate2` wrote, beside it."""
    import ctranslate2
    import sentencepiece
    engine = ctranslate2.Translator(folder, inter_threads=1, intra_threads=os.cpu_count(), compute_type=compute_type)
    pieces = sentencepiece.SentencePieceProcessor(model_file=os.path.join(folder, 'subwords.model'))

    def read(lines):
        found = engine.translate_batch(pieces.encode(lines, out_type=str, num_threads=os.cpu_count()), beam_size=4,
                                       length_penalty=0, max_batch_size=128, max_decoding_length=256)
        return pieces.decode([each.hypotheses[0] for each in found])
    return read


if __name__ == '__main__':
    side.serve({'step': step, 'decode': decode, 'translate': translate})
