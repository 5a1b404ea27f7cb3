"""Errors of requests: TensorFlow Serving's codes and their HTTP and gRPC equivalents."""
import math

import tensorflow as tf

HTTP = {'OK': 200, 'INVALID_ARGUMENT': 400, 'FAILED_PRECONDITION': 400, 'OUT_OF_RANGE': 400, 'PERMISSION_DENIED': 403,
        'NOT_FOUND': 404, 'TIMEOUT': 408, 'TOO_LARGE': 413, 'RESOURCE_EXHAUSTED': 429, 'UNAVAILABLE': 503,
        'UNIMPLEMENTED': 501, 'INTERNAL': 500}
GRPC = {'TIMEOUT': 'DEADLINE_EXCEEDED', 'TOO_LARGE': 'RESOURCE_EXHAUSTED'}  # where the names differ


class Failure(Exception):
    """A request that was refused or failed.

    Attributes:
      code: a name in `HTTP`.
      message: what is wrong, for the caller.
      retry_after: seconds after which the same request may succeed, or None.
    """

    def __init__(self, code: str, message: str, retry_after: float | None = None):
        super().__init__(message)
        self.code, self.message, self.retry_after = code, message, retry_after

    @property
    def http_status(self) -> int:
        return HTTP[self.code]

    @property
    def grpc_name(self) -> str:
        return GRPC.get(self.code, self.code)

    def headers(self) -> dict[str, str]:
        return {} if self.retry_after is None else {'Retry-After': str(max(1, math.ceil(self.retry_after)))}


def invalid(message: str) -> Failure:
    return Failure('INVALID_ARGUMENT', message)


def of_model(error: Exception) -> Failure:
    """Map a model's own error to the caller's: either the input was wrong, or the model is."""
    if isinstance(error, Failure):
        return error
    if isinstance(error, tf.errors.InvalidArgumentError | tf.errors.OutOfRangeError):
        return invalid(error.message)
    if isinstance(error, tf.errors.ResourceExhaustedError | MemoryError):
        return Failure('UNAVAILABLE', 'Out of memory. Send fewer rows per request, or try again later.', 1)
    return Failure('INTERNAL', getattr(error, 'message', None) or str(error) or type(error).__name__)
