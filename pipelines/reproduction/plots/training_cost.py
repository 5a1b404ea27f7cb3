"""Training cost: the last columns of table 2 of Vaswani et al. 2017, and the same counted from configurations.

The paper multiplies hours, devices and a device's sustained rate (6.1, note 5). This also counts 6 operations for each
parameter and each pair of a source and a target token (Kaplan et al. 2020, 2.1), per step and in total.
"""
from typing import Any

from pipelines.core import config as configs
from pipelines.reproduction.experiments import Exhibit, Study

P100 = 9.5e12  # operations per second in single precision, the paper's estimate in note 5


def counted(parameters: int, tokens: int, steps: int) -> dict[str, float]:
    """Count the cost from the model's size.

    Args:
      parameters: trainable parameters.
      tokens: tokens of a batch, on either side.
      steps: steps of the whole run.

    Returns:
      Column -> number, in the units that the columns name.
    """
    token = 6 * parameters
    return {'M parameters': parameters / 1e6, 'MFLOP a token': token / 1e6, 'TFLOP a step': token * tokens / 1e12,
            'EFLOP in all': token * tokens * steps / 1e18}


def by_the_clock(hours: float, devices: int = 8, peak: float = P100) -> float:
    """Return the paper's figure, in 10^18 operations."""
    return hours * 3600 * devices * peak / 1e18


def draw(study: 'Study', runs: dict[str, dict[str, Any]], tokens: int = 25_000) -> 'Exhibit':
    """Return a row for each configuration.

    Args:
      runs: row -> the name of its configuration, `config`, and the `hours` of the paper's run.
      tokens: tokens of a batch, on either side; the paper has about 25,000 (5.1).
    """
    del study
    values = {}
    for name, run in runs.items():
        resolved = configs.load(run['config'])
        assert resolved.model_spec.parameters
        found = counted(resolved.model_spec.parameters(resolved.model), tokens, resolved.train.steps)
        clock = by_the_clock(run['hours'])
        values[name, 0] = {**found, 'EFLOP by the clock': clock, '% of peak': 100 * found['EFLOP in all'] / clock}
    return Exhibit(values)
