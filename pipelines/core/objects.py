"""An object in Google Cloud Storage whose writers never replace a generation they have not seen."""
import contextlib
from collections.abc import Iterator

from data_prep import UserError


class Stale(Exception):
    """Raised when another writer has replaced the object since it was read."""


class Object:
    """One object; it need not exist.

    Every method raises UserError if the service refuses a request, or does not answer it within `seconds`.

    Args:
      address: gs://BUCKET/NAME.
      seconds: how long one request is repeated.

    Raises:
      UserError: there are no credentials.
    """

    def __init__(self, address: str, seconds: float = 120.0):
        from google.auth import exceptions
        from google.cloud import storage
        from google.cloud.storage import retry
        self._address, self._seconds, self._retry = address, seconds, retry.DEFAULT_RETRY.with_timeout(seconds)
        bucket, _, self._name = address.removeprefix('gs://').partition('/')
        try:
            self._bucket = storage.Client(project=None).bucket(bucket)
        except exceptions.DefaultCredentialsError as error:
            raise UserError(f'{address}: there are no credentials for Google Cloud Storage. Run '
                            '`gcloud auth application-default login`.') from error

    def state(self) -> tuple[int, dict[str, str]]:
        """Return the object's generation, 0 if it does not exist, and its metadata."""
        with self._errors():
            blob = self._bucket.get_blob(self._name, timeout=self._seconds, retry=self._retry)
            return (blob.generation, blob.metadata or {}) if blob else (0, {})

    def download(self, path: str) -> None:
        with self._errors():
            self._bucket.blob(self._name).download_to_filename(path, timeout=self._seconds, retry=self._retry)

    def upload(self, content: bytes, expected: int, metadata: dict[str, str] | None = None) -> int:
        """Write the object if its generation is the expected one, and return the new generation.

        Raises:
          Stale: the object has another generation, perhaps this writer's own, if an answer was lost on its way.
        """
        blob = self._bucket.blob(self._name)
        blob.metadata = metadata
        with self._errors():
            blob.upload_from_string(content, if_generation_match=expected, timeout=self._seconds, retry=self._retry)
            return blob.generation

    def delete(self, expected: int) -> None:
        """Delete the object if its generation is the expected one.

        Raises:
          Stale: the object has another generation.
        """
        with self._errors():
            self._bucket.blob(self._name).delete(
                if_generation_match=expected, timeout=self._seconds, retry=self._retry)

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn the service's errors into ours."""
        import requests
        from google.api_core import exceptions
        from google.auth.exceptions import GoogleAuthError
        try:
            yield
        except exceptions.PreconditionFailed as error:
            raise Stale(f'{self._address}: another writer was faster') from error
        except (exceptions.GoogleAPIError, GoogleAuthError, requests.RequestException) as error:
            raise UserError(f'{self._address}: Google Cloud Storage refused a request, or did not answer '
                            f'({str(error).splitlines()[0]}). Check that the bucket exists and that you may write '
                            'there, and run the same command again.') from error
