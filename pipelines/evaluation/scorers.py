"""Choose a configuration's metrics and the scorer that computes them."""
import functools
from typing import TYPE_CHECKING, Any

from pipelines.core import roles

if TYPE_CHECKING:
    from pipelines.core.config import Config


def scorer(config: 'Config') -> Any:
    """Return a new scorer of the configuration's models, or None if TFMA's metrics compare outputs directly."""
    kind = roles.scorer(config.model_spec)
    return kind(config.evaluate.networks) if kind else None


def names(config: 'Config') -> tuple[str, ...]:
    """Return the metrics of a configuration's models, or else its data's; the last is the one shown by slice."""
    if kind := roles.scorer(config.model_spec):
        return _names(kind, tuple(config.evaluate.networks.items()))
    return config.data_spec.metrics or config.model_spec.metrics


@functools.cache
def _names(kind: type, networks: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    return kind(dict(networks)).names
