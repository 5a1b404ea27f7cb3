"""Server of pushed models: REST, gRPC and the web page on one event loop, from start to drain."""
import asyncio
import contextlib
import dataclasses
import os
import signal
from collections.abc import Callable

import grpc
from aiohttp import web
from tensorflow_serving.apis import model_service_pb2_grpc, prediction_service_pb2_grpc

from data_prep import UserError
from pipelines.serving import access, grpc_service, loaded
from pipelines.serving.batching import Limits
from pipelines.serving.failure import Failure
from pipelines.serving.loaded import Loaded
from pipelines.serving.models import AVAILABLE, Models
from pipelines.serving.monitoring import Monitor
from pipelines.serving.rest import Bounds, Rest, failures, refusal
from pipelines.serving.studio import Studio

# The page's JavaScript and styles are static files; nothing else may run, be requested or frame the page.
POLICY = ("default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'; "
          "base-uri 'none'; form-action 'none'; frame-ancestors 'none'")


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of a server; see the flags of `pipelines.serve`."""
    host: str = '127.0.0.1'
    rest_port: int = 8501
    grpc_port: int = 8500
    names: tuple[str, ...] = ()
    poll: float = 1.0
    drain: float = 30.0
    keep: int = 1
    labels: dict[str, dict[str, int]] = dataclasses.field(default_factory=dict)
    samples: str = ''
    studio: Studio | None = None
    bounds: Bounds = Bounds()
    limits: Limits = Limits()
    open_version: Callable[[str], Loaded] = loaded.load


class Server:
    """One server.

    Args:
      find: returns the destinations to serve, by name.
    """

    def __init__(self, find: Callable[[], dict[str, str]], settings: Settings):
        self.settings = settings
        self.models = Models(find, settings.limits, Monitor(), max(2, os.cpu_count() or 1), settings.keep,
                             settings.labels, settings.open_version)
        self.rest = Rest(self.models, settings.bounds)
        self.draining = False
        self.addresses: dict[str, str] = {}
        self._access = access.Access(settings.host, settings.names)
        self._stop = asyncio.Event()
        self._open = 0

    async def run(self, ready: Callable[['Server'], None] | None = None) -> None:
        """Serve until SIGTERM or SIGINT, then answer pending requests and return.

        Args:
          ready: called once the server accepts requests.

        Raises:
          UserError: no version could be loaded, or a port is taken.
        """
        loop = asyncio.get_running_loop()
        await self.models.look()
        if not any(version.state == AVAILABLE for model in self.models.models.values()
                   for version in model.versions.values()):
            raise UserError('no version could be loaded. `python -m pipelines.push --list` says what is wrong with '
                            'each.')
        with contextlib.suppress(NotImplementedError, RuntimeError):  # a test's thread receives no signals
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, self.stop)
        runner, rpc = await self._listen_rest(), None
        try:
            rpc = await self._listen_grpc()
            poll = loop.create_task(self._poll())
            if ready:
                ready(self)
            await self._stop.wait()
            poll.cancel()
            await self._drain(runner, rpc)
        finally:
            await runner.cleanup()
            if rpc:
                await rpc.stop(None)
            self.models.close()

    def stop(self) -> None:
        """Stop the server once all pending requests are answered."""
        self._stop.set()

    async def _listen_rest(self) -> web.AppRunner:
        from pipelines.serving import page
        app = web.Application(middlewares=[failures, self._guarded], client_max_size=self.settings.bounds.body)
        app.add_routes(self.rest.routes())
        app.add_routes(page.Page(self).routes())
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1, keepalive_timeout=75)
        await runner.setup()
        try:
            site = web.TCPSite(runner, self.settings.host, self.settings.rest_port, backlog=1024)
            await site.start()
        except OSError as error:
            await runner.cleanup()
            raise UserError(f'--rest_port {self.settings.rest_port} on {self.settings.host} cannot be opened '
                            f'({error.strerror or error}). Give another port.') from error
        port = runner.addresses[0][1]
        self.addresses['rest'] = f'http://{_in_url(self.settings.host)}:{port}'
        return runner

    async def _listen_grpc(self) -> grpc.aio.Server:
        size = self.settings.bounds.body
        rpc = grpc.aio.server(options=[('grpc.max_receive_message_length', size), ('grpc.so_reuseport', 0),
                                       ('grpc.max_send_message_length', -1)])
        prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(
            grpc_service.PredictionService(self.models, self.settings.bounds), rpc)
        model_service_pb2_grpc.add_ModelServiceServicer_to_server(grpc_service.ModelService(self.models), rpc)
        address = f'{_in_url(self.settings.host)}:{self.settings.grpc_port}'
        try:
            port = rpc.add_insecure_port(address)
        except RuntimeError:
            port = 0
        if not port:
            raise UserError(f'--grpc_port {self.settings.grpc_port} on {self.settings.host} cannot be opened. Give '
                            'another port.')
        await rpc.start()
        self.addresses['grpc'] = f'{_in_url(self.settings.host)}:{port}'
        return rpc

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(self.settings.poll)
            try:
                await self.models.look()
            except Exception as error:  # a temporarily missing folder must not stop the server
                print(f'serve: looking for new versions: {error}', flush=True)

    async def _drain(self, runner: web.AppRunner, rpc: grpc.aio.Server) -> None:
        """Accept no more connections, answer pending requests, and ask clients of open connections to leave."""
        print('serve: draining.', flush=True)
        self.draining = True
        for site in list(runner.sites):
            await site.stop()
        stopping = asyncio.get_running_loop().create_task(rpc.stop(self.settings.drain))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.settings.drain):
                await self.models.drain()
                while self._open:
                    await asyncio.sleep(0.01)
                await stopping
        print('serve: ended.', flush=True)

    @web.middleware
    async def _guarded(self, request: web.Request, handler) -> web.StreamResponse:
        """Refuse requests of other sites and those after the end; send answers within a time limit."""
        if refused := self._access.allows(request):
            return refusal(Failure('PERMISSION_DENIED', refused))
        if self.draining:
            response: web.StreamResponse = refusal(Failure('UNAVAILABLE', 'The server is shutting down.', 1))
            response.force_close()
            return response
        self._open += 1
        try:
            response = await handler(request)
            for name, value in (*access.HEADERS.items(), ('Content-Security-Policy', POLICY)):
                response.headers.setdefault(name, value)
            if self.draining:
                response.force_close()
            try:
                async with asyncio.timeout(self.settings.bounds.read):
                    await response.prepare(request)
                    await response.write_eof()
            except TimeoutError:  # a slow reader must not hold memory
                if request.transport:
                    request.transport.abort()
            except ConnectionError:  # the client has left
                pass
            return response
        finally:
            self._open -= 1


def _in_url(host: str) -> str:
    return f'[{host}]' if ':' in host else host
