"""Choose a configuration's metrics and the scorer that computes them."""
from typing import TYPE_CHECKING, Any

from pipelines.core import roles
from pipelines.evaluation.thresholds import OPTIONAL

if TYPE_CHECKING:
    from pipelines.core.config import Config


def scorer(config: 'Config') -> Any:
    """Return a new scorer of the configuration's models, or None if TFMA's metrics compare outputs directly.

    It is cheap: networks are loaded when they are first used.
    """
    kind = roles.scorer(config.model_spec)
    return kind(config.evaluate.networks, config.model) if kind else None


def names(config: 'Config') -> tuple[str, ...]:
    """Return the metrics of a configuration's models, or else its data's; the last is the one shown by slice.

    Optional ones are among them if a threshold names them.
    """
    asked = {*config.evaluate.thresholds, *config.evaluate.drift}
    return tuple(name for name in known(config) if name in asked or name not in OPTIONAL)


def known(config: 'Config') -> tuple[str, ...]:
    """Return the metrics that thresholds may name."""
    if found := scorer(config):
        return found.names
    always = config.data_spec.metrics or config.model_spec.metrics
    return (*(name for name, other in OPTIONAL.items() if other in always), *always)
