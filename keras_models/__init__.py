"""The papers, one module each: `Config`, `build`, `loss_fn`, `optimizers`, `Inference`, `serving`. No files, no stages.
"""


class ModelError(ValueError):
    """What a user asks of a model cannot be had of it: one sentence with the key, the value and the remedy."""
