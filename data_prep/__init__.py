"""Raw data -> TFRecord shards with an index and a manifest -> batches. Independent of models and stages."""
import re

_CONTROL = re.compile('[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]')
_LONGEST = 1500  # characters


class UserError(Exception):
    """A mistake only the user can fix: one sentence that names the file, key or value and the remedy.

    Commands print it without a traceback and exit with code 2. It is a single line of at most 1,500 characters without
    control characters, even if it quotes a file or a flag.
    """

    def __str__(self) -> str:
        text = _CONTROL.sub(lambda match: ascii(match[0])[1:-1], super().__str__())
        return text if len(text) <= _LONGEST else f'{text[:_LONGEST * 2 // 3]} … {text[-_LONGEST // 4:]}'
