"""Raw data -> TFRecord shards with an index and a manifest -> batches. Knows nothing of models or stages."""
import re

_CONTROL = re.compile('[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]')
_LONGEST = 1500  # characters


class UserError(Exception):
    """A mistake only the user can mend: one sentence that names the file, key or value and the remedy.

    Commands print it without a traceback and leave with exit code 2. Whatever of a file's or flag's text is in it, it
    is one line, of no more than 1,500 characters, and moves no terminal's cursor.
    """

    def __str__(self) -> str:
        text = _CONTROL.sub(lambda match: ascii(match[0])[1:-1], super().__str__())
        return text if len(text) <= _LONGEST else f'{text[:_LONGEST * 2 // 3]} … {text[-_LONGEST // 4:]}'
