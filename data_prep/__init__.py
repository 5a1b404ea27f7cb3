"""Raw data -> TFRecord shards with an index and a manifest -> batches. Knows nothing of models or stages."""


class UserError(Exception):
    """A mistake only the user can mend: one sentence that names the file, key or value and the remedy.

    Commands print it without a traceback and leave with exit code 2.
    """
