"""A value as YAML on one line, as `--set` takes it."""
import math
from typing import Any

import yaml


def flow(value: Any, sort_keys: bool = True) -> str:
    """Returns a value on one line.

    Args:
      sort_keys: False keeps the order in which a mapping was written; True makes equal ones the same text.
    """
    text = yaml.safe_dump(value, default_flow_style=True, width=math.inf, allow_unicode=True, sort_keys=sort_keys)
    return text.strip().removesuffix('...').strip()
