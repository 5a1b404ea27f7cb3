"""Check that weights and data use the same rules for the clothing-agnostic person.

Weights are trained on people prepared by one set of rules (`data.agnostic`). On people prepared by the other they
silently give worse images, because all shapes fit.
"""
from typing import Any

from data_prep import UserError


def check(name: str, trained: dict, data: Any, remedy: str = '') -> None:
    """Refuse data prepared by other rules than those the weights were trained on.

    Args:
      name: of the weights or model, for the message.
      trained: its recorded facts; without `agnostic` (tasks without people) nothing is checked.
      data: the configuration's data section.
      remedy: what the user should do; by default, prepare data by the model's rules.

    Raises:
      UserError: the rules differ.
    """
    own, made = trained.get('agnostic'), getattr(data, 'agnostic', None)
    if own and made and own != made:
        raise UserError(f'{name} was trained with data.agnostic: {own}, but this data has {made}. '
                        f'{remedy or f"Give --set data.agnostic={own}"}.')
