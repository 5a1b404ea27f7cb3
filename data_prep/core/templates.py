"""Check templates of a table's columns, such as `{source: '{Instruction} {Input}', target: '{Response}'}`."""
import re
from collections.abc import Mapping, Sequence


def check(columns: Mapping[str, str], parts: Sequence[str], optional: Sequence[str], example: str) -> None:
    """Check that templates are given for all parts or none, and that each names a column.

    Args:
      columns: part -> template.
      parts: what templates are needed of.
      optional: what they may be given of, too.
      example: of them, for the message.

    Raises:
      ValueError: one is missing, unknown or without a column.
    """
    if columns and not set(parts) <= set(columns) <= {*parts, *optional}:
        also = f' (and {", ".join(optional)})' if optional else ''
        raise ValueError(f'columns needs templates of {" and ".join(parts)}{also}, such as {example}; columns names '
                         f'{", ".join(sorted(columns))}')
    for part, template in columns.items():
        if not re.search(r'\{[^{}]+\}', template):
            raise ValueError(f"columns.{part} {template!r} names no column in braces, such as '{{name}}'")
