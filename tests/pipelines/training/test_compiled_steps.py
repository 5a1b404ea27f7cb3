"""An XLA-compiled step of every system with users' default flags; other tests use faster flags."""
import json

from support.commands import command, environment

# How far a step that XLA compiled may be from TensorFlow's graph: sums of up to 1e4 float32 products in another order,
# sqrt(1e4) eps. VITON-HD's is geometric matching, which normalises by the deviation of two values.
APART = {'learning machine': 0, 'Transformer': 2e-5, 'AlexNet': 2e-5, 'VGG': 2e-5, 'PReLU net': 2e-5,
         'geometric matching': 2e-3}


def test_a_compiled_step_of_every_system_computes_what_the_graph_does():
    usual = environment()
    usual.pop('XLA_FLAGS')
    done = command('support.compiled_steps', *APART, env=usual)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert not found['flags'] and found['apart'].keys() == APART.keys()
    assert {name: max(shares) for name, shares in found['apart'].items() if max(shares) > APART[name]} == {}
