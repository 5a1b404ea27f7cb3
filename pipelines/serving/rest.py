"""TensorFlow Serving's REST API (version 2.15, `g3doc/api_rest.md`) on aiohttp."""
import asyncio
import dataclasses
import re
import time
from urllib.parse import unquote

from aiohttp import web
from google.protobuf import json_format

from pipelines.serving import guard, json_tensors, monitoring, status
from pipelines.serving.failure import Failure, invalid, of_model
from pipelines.serving.models import Models

_PREDICT = re.compile(
    r'/v1/models/([^/:]+)(?:/versions/(\d+)|/labels/([^/:]+))?:(classify|regress|predict)', re.IGNORECASE)
_STATUS = re.compile(
    r'/v1/models(?:/([^/:]+))?(?:/versions/(\d+)|/labels/([^/:]+))?(?:/(metadata))?', re.IGNORECASE)
_SMALL = 32 << 10  # bodies up to this many bytes are parsed on the event loop, in 0.1 ms


@dataclasses.dataclass(frozen=True)
class Bounds:
    """Bounds of a request.

    Attributes:
      body: bytes.
      bodies: bytes of all requests being read together.
      read: seconds to receive a whole body, or to send a whole answer.
      wait: seconds until a worker is free.
    """
    body: int = 64 << 20
    bodies: int = 512 << 20
    read: float = 60
    wait: float = 30


class Rest:
    """Request handlers of one server."""

    def __init__(self, models: Models, bounds: Bounds):
        self.models, self.bounds = models, bounds
        self._reading = 0  # bytes of bodies being read

    def routes(self) -> list[web.RouteDef]:
        return [web.get(monitoring.PATH, self.metrics), web.route('*', '/v1/{rest:.*}', self.handle)]

    async def metrics(self, request: web.Request) -> web.Response:
        return web.Response(text=self.models.monitor.page(), content_type='text/plain')

    async def handle(self, request: web.Request) -> web.Response:
        """Answer a request and count it."""
        start, model, api = time.monotonic(), '', ''
        try:
            path = request.rel_url.raw_path
            if request.method == 'POST' and (match := _PREDICT.fullmatch(path)):
                model, api = unquote(match[1]), match[4].lower()
                body = await self._post(request, model, match)
            elif request.method == 'GET' and (match := _STATUS.fullmatch(path)):
                model, api = unquote(match[1] or ''), 'metadata' if match[4] else 'status'
                body = self._get(model, match)
            else:
                raise invalid(f'Malformed request: {request.method} {path}')
            code, response = 'OK', web.Response(body=body, content_type='application/json')
        except Failure as failure:
            code, response = failure.code, refusal(failure)
        known = model if model in self.models.models else ''  # a caller may send any name
        self.models.monitor.request(known, code, api, 'REST', time.monotonic() - start)
        return response

    def _get(self, model: str, match: re.Match) -> bytes:
        if not model:
            raise invalid('Missing model name in request.')
        number, label = _version(match)
        if match[4]:
            message = status.metadata(self.models, model, number, label)
            return status.metadata_json(message).encode()
        message = status.status(self.models, model, number)
        return json_format.MessageToJson(message, including_default_value_fields=True,
                                         preserving_proto_field_name=True).encode()

    async def _post(self, request: web.Request, model: str, match: re.Match) -> bytes:
        number, label = _version(match)
        body = await self.read(request)
        loop = asyncio.get_running_loop()
        with self.models.use(model, number, label) as version:
            def parse():
                document = json_tensors.parse(body)
                signature = version.signature(json_tensors.signature_name(document))
                if match[4].lower() != 'predict':
                    raise status.wrong_method(match[4].lower(), signature)
                inputs, as_rows = json_tensors.inputs(document, signature)
                guard.check(inputs, version.description)
                return signature.name, inputs, as_rows
            off = len(body) > _SMALL
            signature, inputs, as_rows = await loop.run_in_executor(None, parse) if off else parse()
            outputs = await self.models.predict(version, signature, inputs, self.bounds.wait)
        if sum(value.size for value in outputs.values()) > 1000:
            return await loop.run_in_executor(None, json_tensors.response, outputs, as_rows)
        return json_tensors.response(outputs, as_rows)

    async def read(self, request: web.Request, limit: int | None = None) -> bytes:
        """Read a request's body within its bounds.

        Raises:
          Failure: it is too large or too slow, or too many others are being read.
        """
        limit = min(limit or self.bounds.body, self.bounds.body)
        if (request.content_length or 0) > limit:
            raise _too_large(limit)
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self.bounds.read):
                while part := await request.content.readany():
                    size += len(part)
                    self._reading += len(part)
                    if size > limit:
                        raise _too_large(limit)
                    if self._reading > self.bounds.bodies:
                        raise Failure('UNAVAILABLE', 'Too many bodies are being read. Try again later.', 1)
                    parts.append(part)
        except TimeoutError as error:
            raise Failure('TIMEOUT', f'The body did not arrive within {self.bounds.read:g} s.') from error
        except (ConnectionError, web.RequestPayloadError, ValueError) as error:  # truncated or wrongly encoded
            raise invalid('The body could not be read.') from error
        finally:
            self._reading -= size
        return b''.join(parts)


def refusal(failure: Failure) -> web.Response:
    """Return an error in TensorFlow Serving's format."""
    body = json_tensors.encoded({'error': failure.message})
    response = web.Response(body=body, status=failure.http_status, headers=failure.headers(),
                            content_type='application/json')
    if failure.code in ('TOO_LARGE', 'TIMEOUT'):  # the rest of the body is not read
        response.force_close()
    return response


@web.middleware
async def failures(request: web.Request, handler) -> web.StreamResponse:
    """Turn uncaught exceptions into JSON answers."""
    try:
        return await handler(request)
    except web.HTTPException:
        raise
    except ConnectionError:
        raise
    except Exception as error:
        failure = of_model(error)
        if failure.code == 'INTERNAL':
            print(f'serve: {request.method} {request.path}: {type(error).__name__}: {error}', flush=True)
        return refusal(failure)


def _version(match: re.Match) -> tuple[int | None, str | None]:
    if match[2] and int(match[2]) >= 2 ** 63:
        raise invalid(f'Failed to convert version: {match[2]} to numeric.')
    return int(match[2]) if match[2] else None, unquote(match[3]) if match[3] else None


def _too_large(limit: int) -> Failure:
    return Failure('TOO_LARGE', f'The body is larger than {limit:,} bytes.')
