"""The papers, one module each: `Config`, `build`, `loss_fn`, `optimizers`, `Inference`, `serving`. No files, no stages.
"""
import re


class ModelError(ValueError):
    """What a user asks of a model cannot be had of it: one sentence with the key, the value and the remedy."""


def reason(error) -> str:
    """What a tf.errors.OpError says is wrong, in a line, without where in the graph that was."""
    lines = [line for line in error.message.splitlines() if line and line[0] not in ' \t<'
             and not line.startswith(('Graph execution error', 'Detected at node', 'File '))]
    asserted = re.search(r'assertion failed: \[([^]]+)', error.message)
    return asserted[1] if asserted else (lines or ['it cannot be read'])[0]
