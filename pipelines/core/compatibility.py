"""Whether a model and data, or weights and data, agree on whose rules make the clothing-agnostic person.

Weights learn from people prepared one way (`data.agnostic`). Of people prepared the other way they make worse pictures
without a word, since all shapes fit.
"""
from typing import Any

from data_prep import UserError


def check(name: str, trained: dict, data: Any, remedy: str = '') -> None:
    """Refuses what was prepared otherwise than the data that weights were trained on.

    Args:
      name: of weights or a model.
      trained: what is recorded of it, `agnostic` among it; nothing is said of a task without people.
      data: the configuration's section.
      remedy: what to do; by default, to ask for data of the model's kind.

    Raises:
      UserError
    """
    own, made = trained.get('agnostic'), getattr(data, 'agnostic', None)
    if own and made and own != made:
        raise UserError(f'{name} was trained on people of data.agnostic: {own}, and these are {made}; '
                        f'{remedy or f"give --set data.agnostic={own}"}.')
