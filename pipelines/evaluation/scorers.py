"""Which metrics a configuration's models have, and who computes them."""
from typing import TYPE_CHECKING, Any

from pipelines.core import roles

if TYPE_CHECKING:
    from pipelines.core.config import Config


def scorer(config: 'Config') -> Any:
    """Returns a new scorer of the configuration's models, or None where TFMA's metrics compare answers."""
    kind = roles.scorer(config.model_spec)
    return kind(config.evaluate.networks, config.model) if kind else None


def names(config: 'Config') -> tuple[str, ...]:
    """Returns the metrics of a configuration's models, or those its data has; the last is the one shown by slice."""
    found = scorer(config)
    return found.names if found else config.data_spec.metrics or config.model_spec.metrics
