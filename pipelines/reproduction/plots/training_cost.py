"""What training costs: the last columns of table 2 of Vaswani et al. 2017, and the same counted from configurations.

The paper multiplies hours, devices and what a device computes at its best (6.1, note 5). Here besides: 6 operations for
every parameter and every pair of a source and a target token (Kaplan et al. 2020, 2.1), of a step and of all of them.
"""
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipelines.reproduction.experiments import Exhibit, Study

P100 = 9.5e12  # operations a second, in single precision: the paper's estimate, in note 5


def counted(parameters: int, tokens: int, steps: int) -> dict[str, float]:
    """By the model's size.

    Args:
      parameters: how many learn.
      tokens: of text, on either side of a batch.
      steps: of the whole run.

    Returns:
      Column -> number, in the units that the columns name.
    """
    token = 6 * parameters
    return {'M parameters': parameters / 1e6, 'MFLOP a token': token / 1e6, 'TFLOP a step': token * tokens / 1e12,
            'EFLOP in all': token * tokens * steps / 1e18}


def by_the_clock(hours: float, devices: int = 8, peak: float = P100) -> float:
    """The paper's figure, in 10^18 operations."""
    return hours * 3600 * devices * peak / 1e18


def draw(study: 'Study', runs: dict[str, dict[str, Any]], tokens: int = 25_000) -> 'Exhibit':
    """A row a configuration.

    Args:
      runs: row -> the name of its configuration, `config`, and the `hours` that the paper's run took.
      tokens: of text in a batch, on either side; the paper has about 25,000 (5.1).
    """
    del study
    from pipelines.core import config as configs
    from pipelines.reproduction.experiments import Exhibit
    values = {}
    for name, run in runs.items():
        resolved = configs.load(run['config'])
        assert resolved.model_spec.parameters
        found = counted(resolved.model_spec.parameters(resolved.model), tokens, resolved.train.steps)
        clock = by_the_clock(run['hours'])
        values[name, 0] = {**found, 'EFLOP by the clock': clock, '% of peak': 100 * found['EFLOP in all'] / clock}
    return Exhibit(values)
