"""Every hot path is one XLA cluster without transfers to the host, as the graph and the HLO show."""
import functools
import inspect
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest
import tensorflow as tf

from data_prep import tryon
from data_prep.text import subwords
from keras_models import learning_machine, transformer
from keras_models.image import serving as image_serving
from keras_models.text import translator
from keras_models.turing import educated
from keras_models.viton import serving as viton_serving
from support import learners, tiny_classifier
from support.learners import LEARNERS, SEED

# What in HLO reaches out of a program. A custom call may be anything: of these the targets are listed that compute, on
# the spot: TopK is XLA:CPU's own, of tf.math.top_k; the others are products and what is fused with them.
HOST = r'\b(?:infeed|outfeed|send|recv)(?:-done)?\('
COMPUTING = {'TopK', '__onednn$matmul', '__onednn$softmax', '__onednn$layernorm'}
# Beside the cluster a training step holds the normalisers, the rate and the updates, one kernel a variable, and nothing
# else; whoever asks a trained model may do what he likes there, but for what the cluster is for. (Products with sparse
# matrices bring pictures to their size before it.)
UPDATES = ('Const|Placeholder|NoOp|Identity|IdentityN|Pack|Cast|Pow|AddV2|Mul|Minimum|DivNoNan|IsFinite|SelectV2|'
           'ReadVariableOp|AssignVariableOp|AssignAddVariableOp|ResourceApplyAdam|ResourceApplyKerasMomentum')
LAYERS = '(?!SparseTensor).*(Conv|MatMul|Einsum|BatchNorm|Pool)'


class HotPath(NamedTuple):
    """`whole` calls `compiled` and does what is to be done besides; `arguments` are of `compiled`, and `stage` says how
    far XLA is to bring it: see STARTED."""
    whole: tf.types.experimental.ConcreteFunction
    compiled: tf.types.experimental.GenericFunction
    arguments: tuple
    stage: str = 'optimized_hlo'


def operations(function) -> Iterator[tf.compat.v1.NodeDef]:
    """Those of a concrete function and of the functions it calls, but for compiled ones: these are a node each."""
    graph = function.graph.as_graph_def()
    library, todo, seen = {each.signature.name: each for each in graph.library.function}, [graph.node], {''}
    while todo:
        for node in todo.pop():
            yield node
            if not is_cluster(node):
                called = {value.func.name for value in node.attr.values()} - seen
                todo += [library[name].node_def for name in called]
                seen |= called


def is_cluster(node) -> bool:
    return node.attr['_XlaMustCompile'].b


def clusters(function, may_be_outside: Callable[[str], bool]) -> int:
    """The compiled calls of a concrete function, beside which there is nothing but what `may_be_outside`."""
    found = [*operations(function)]
    assert not {node.op for node in found if not is_cluster(node) and not may_be_outside(node.op)}
    return sum(map(is_cluster, found))


def assert_stays_on_the_device(function, *arguments, stage='optimized_hlo'):
    """XLA takes all of `function`, as one module that waits for nobody.

    Raises:
      ValueError: an operation is not XLA's, and would be the host's.
    """
    hlo = function.experimental_get_compiler_ir(*arguments)(stage=stage)
    assert len(re.findall('^HloModule ', hlo, re.M)) == len(re.findall('^ENTRY ', hlo, re.M)) == 1
    assert not re.findall(HOST, hlo)
    assert {*re.findall('custom_call_target="(.*?)"', hlo)} <= COMPUTING


# ---- Training: forward and backward of every paper's network

@pytest.fixture(scope='module')
def learner(tmp_path_factory):
    """The compiled trainer of one of LEARNERS, made once."""
    with learners.making(str(tmp_path_factory.mktemp('examples'))) as make:
        yield functools.cache(lambda name: make(name, True))


# How far XLA is to bring a step: to the program it runs, or, where XLA:CPU would take minutes for that, to the one it
# starts with, in which whatever asks the host is already.
STARTED = {'segmentation', 'geometric matching', 'ALIAS'}


@pytest.mark.parametrize('name', [pytest.param(name, marks=pytest.mark.slow if name in STARTED else ())
                                  for name in LEARNERS])
def test_a_training_step_is_one_cluster_and_updates(name, learner):
    batch, it = learners.batch(name), learner(name)
    assert clusters(it._train.get_concrete_function(batch), re.compile(UPDATES).fullmatch) == 1
    assert_stays_on_the_device(it._compute, batch, tf.constant(SEED), False, -1,
                               stage='hlo' if name in STARTED else 'optimized_hlo')


# ---- Serving, and looking up

def beam_search() -> HotPath:
    model = transformer.Config(vocab_size=40, N=1, d_model=16, d_ff=32, h=2)
    lines = ['one two three four five six seven eight nine ten eleven twelve'] * 9
    tokenizer = subwords.Tokenizer(subwords.learn(lines, subwords.Config(vocab_size=40)))
    asked = translator.Inference(extra_length=4)
    served = translator.serving(transformer.build(model), model, asked, tokenizer, True)
    return HotPath(served.serve.get_concrete_function(), compiled(lambda ids: served.decode_fixed(ids)),
                   (learners.batch('Transformer')['inputs'],))


def classifier() -> HotPath:
    model = tiny_classifier.Config()
    served = tiny_classifier.serving(tiny_classifier.build(model), model, image_serving.Inference(views=['ten_crop']),
                                     tiny_classifier.Assets(), True)
    return HotPath(served.serve.get_concrete_function(), served._net.logits, (tf.zeros([10, 12, 12, 3]),))


def try_on_serving(learner) -> HotPath:
    it = learner('ALIAS')
    assets = tryon.assets(it._examples, it.config.input)
    served = viton_serving.serving(it.nets, it.config.model, viton_serving.Inference(), assets, True)
    given = {name: value[0] for name, value in learners.batch('ALIAS').items() if name != 'real'}
    given['removed'] = tf.zeros([64, 64])
    return HotPath(served.serve.get_concrete_function(), compiled(lambda *arguments: served._try_on(*arguments)),
                   (given, tf.constant(False)), 'hlo')


def machines(n: int) -> learning_machine.Machines:
    return learning_machine.Machines(learning_machine.Config(machines=n, memory=60, cards=400, tape=40))


def looking_up() -> HotPath:
    population = machines(4)
    population.jit = True
    rows, board = tf.range(4), tf.zeros([4, population.game.size], tf.int32)
    return HotPath(tf.function(population.think, autograph=False).get_concrete_function(rows, board),
                   compiled(population._think), (rows, board))


def educated_machine() -> HotPath:
    player = educated.Player(machines(1), educated.Inference(), True)
    return HotPath(player.serve.get_concrete_function(), player._think, (tf.zeros([3, 9], tf.int32),))


@pytest.mark.parametrize('make, inside', [(beam_search, f'{LAYERS}|While'), (classifier, LAYERS),
                                          pytest.param(try_on_serving, LAYERS, marks=pytest.mark.slow),
                                          (looking_up, 'While'), (educated_machine, 'While')],
                         ids=lambda value: getattr(value, '__name__', 'inside'))
def test_a_question_is_one_cluster(make, inside, request):
    path = make(*map(request.getfixturevalue, inspect.signature(make).parameters))
    assert clusters(path.whole, lambda op: not re.match(inside, op)) == 1
    assert_stays_on_the_device(path.compiled, *path.arguments, stage=path.stage)


# ---- What is found out

def compiled(function):
    return tf.function(function, autograph=False, jit_compile=True)


@pytest.mark.parametrize('function, named', [
    (lambda x: 2 * tf.py_function(lambda y: y + 1, [x], tf.float32), 'EagerPyFunc'),
    (lambda x: 2 * tf.numpy_function(lambda y: y + 1, [x], tf.float32), 'PyFunc'),
    (lambda x: (tf.print(x), 2 * x)[1], 'StringFormat'),
    (lambda x: tf.strings.length(tf.strings.as_string(x)), 'AsString')])
def test_work_of_the_host_in_a_cluster_is_found_out(function, named):
    with pytest.raises(ValueError, match=f'unsupported operations .*{named}'):
        assert_stays_on_the_device(compiled(function), tf.ones([2]))


@pytest.mark.parametrize('line', [
    'x = (f32[2], token[]) infeed(token[] t)', 'x = token[] outfeed(f32[2] y, token[] t)',
    'x = (f32[2], u32[], token[]) send(f32[2] y, token[] t), channel_id=1, is_host_transfer=true',
    'x = (f32[2], token[]) recv-done((f32[2], u32[], token[]) y), channel_id=2',
    'x = f32[2] custom-call(f32[2] y), custom_call_target="xla_python_cpu_callback"'])
def test_a_transfer_in_the_program_is_found_out(line):
    class Given:
        def experimental_get_compiler_ir(self):
            return lambda stage: f'HloModule m\n\nENTRY main {{\n  {line}\n}}\n'
    with pytest.raises(AssertionError):
        assert_stays_on_the_device(Given())


def test_two_clusters_and_work_beside_one_are_found_out():
    double = compiled(lambda x: 2 * x)

    def counted(function):
        return clusters(tf.function(function, autograph=False).get_concrete_function(tf.ones([2, 2])),
                        re.compile(UPDATES).fullmatch)
    assert counted(double) == 1 and counted(lambda x: double(double(x))) == 2 and counted(lambda x: 2 * x) == 0
    in_a_loop = tf.function(lambda x: tf.while_loop(lambda x: True, lambda x: (tf.matmul(x, x),), [x])[0])
    for beside in (lambda x: tf.matmul(x, x), lambda x: (tf.print(x), x)[1], in_a_loop):
        with pytest.raises(AssertionError):
            counted(lambda x, beside=beside: double(beside(x)))
