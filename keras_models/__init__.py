"""The papers, one module each: `Config`, `build`, `loss_fn`, `optimizers`, `Inference`, `serving`."""
import re


class ModelError(ValueError):
    """Raised when a model cannot do what the configuration asks: a sentence with key, value and remedy."""


def reason(error) -> str:
    """Return the message of a tf.errors.OpError on one line, without its location in the graph."""
    lines = [line for line in error.message.splitlines() if line and line[0] not in ' \t<'
             and not line.startswith(('Graph execution error', 'Detected at node', 'File '))]
    asserted = re.search(r'assertion failed: \[([^]]+)', error.message)
    return asserted[1] if asserted else (lines or ['it cannot be read'])[0]
