"""Format a value as one line of YAML, as `--set` takes it."""
import math
from typing import Any

import yaml


def flow(value: Any, sort_keys: bool = True) -> str:
    """Format a value on one line.

    Args:
      sort_keys: False keeps a mapping's order; True gives equal mappings the same text.
    """
    text = yaml.safe_dump(value, default_flow_style=True, width=math.inf, allow_unicode=True, sort_keys=sort_keys)
    return text.strip().removesuffix('...').strip()
