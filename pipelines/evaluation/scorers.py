"""Choose a configuration's metrics and the scorer that computes them."""
from typing import TYPE_CHECKING, Any

from pipelines.core import roles

if TYPE_CHECKING:
    from pipelines.core.config import Config


def scorer(config: 'Config') -> Any:
    """Return a new scorer of the configuration's models, or None if TFMA's metrics compare outputs directly.

    It is cheap: networks are loaded when they are first used.
    """
    kind = roles.scorer(config.model_spec)
    return kind(config.evaluate.networks, config.model) if kind else None


def names(config: 'Config') -> tuple[str, ...]:
    """Return the metrics of a configuration's models, or else its data's; the last is the one shown by slice."""
    found = scorer(config)
    return found.names if found else config.data_spec.metrics or config.model_spec.metrics
