"""The project's server on its own ports, in a thread of the test process, and models that build quickly."""
import asyncio
import contextlib
import dataclasses
import json
import os
import threading
import urllib.error
import urllib.request

import tensorflow as tf

from pipelines import export
from pipelines.serving import pusher, server
from pipelines.serving.layout import DESCRIPTION


class HalfPlusTwo(tf.Module):
    """The model of TensorFlow Serving's own examples: x / 2 + 2."""

    def __init__(self, more: float = 2.0):
        super().__init__()
        self.more = tf.Variable(more)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, 'x')])
    def serve(self, x):
        return {'y': x / 2 + self.more}


class Mixed(tf.Module):
    """Inputs and outputs of several types; refuses rows whose number is negative."""

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32, 'pair'),
                                  tf.TensorSpec([None], tf.int32, 'number'), tf.TensorSpec([None], tf.string, 'text')])
    def serve(self, pair, number, text):
        with tf.control_dependencies([tf.debugging.assert_non_negative(number, 'number is negative')]):
            return {'total': tf.reduce_sum(pair, 1), 'double': 2 * tf.identity(number), 'even': number % 2 == 0,
                    'text': tf.strings.upper(text), 'text_bytes': text}

    @tf.function(input_signature=[tf.TensorSpec([], tf.int64, 'n')])
    def single(self, n):
        return {'squared': n * n, 'text': tf.strings.as_string(n)}


def push(module, destination: str, signatures: dict) -> str:
    """Saves a module and pushes it. Returns the version's folder."""
    folder = f'{destination}.saved'
    tf.saved_model.save(module, folder, signatures=signatures)
    return pusher.publish(folder, destination, {})


def push_exported(module, destination: str, description: dict, warmup: tuple[dict, ...] = ()) -> str:
    """Saves and pushes a module with `signatures()` as `export` does. Returns the version's folder."""
    folder = f'{destination}.saved'
    tf.saved_model.save(module, folder, signatures=module.signatures())
    os.makedirs(os.path.join(folder, 'assets.extra'), exist_ok=True)
    name = os.path.basename(destination)
    config = {'export': {'jit': False}, 'data': {}, 'model': {}, **description.pop('config', {})}
    with open(os.path.join(folder, DESCRIPTION), 'w', encoding='utf-8') as file:
        json.dump({'name': name, 'config': config, **description}, file)
    export.write_warmup(folder, name, list(warmup))
    return pusher.publish(folder, destination, {})


@dataclasses.dataclass
class Running:
    """A server that answers; `rest` and `grpc` are its addresses."""
    server: server.Server
    loop: asyncio.AbstractEventLoop
    rest: str
    grpc: str

    def look(self) -> None:
        """Has it look for new versions now, not within a second."""
        asyncio.run_coroutine_threadsafe(self.server.models.look(), self.loop).result(60)

    def stop(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: it has stopped already
            self.loop.call_soon_threadsafe(self.server.stop)


@contextlib.contextmanager
def running(destinations: dict[str, str], **settings):
    """Serves destinations by name; the server has ended afterwards."""
    started, found = threading.Event(), {}

    def ready(serving):
        found.update(server=serving, loop=asyncio.get_running_loop(), **serving.addresses)
        started.set()

    def work():
        try:
            asyncio.run(serve())
        except BaseException as error:
            found['error'] = error
        finally:
            started.set()

    async def serve():
        asked = {'rest_port': 0, 'grpc_port': 0, 'poll': 3600.0, **settings}
        await server.Server(lambda: destinations, server.Settings(**asked)).run(ready)
    thread = threading.Thread(target=work)
    thread.start()
    started.wait()
    if 'error' in found:
        raise found['error']
    running = Running(**found)
    try:
        yield running
    finally:
        running.stop()
        thread.join()
        if 'error' in found:
            raise found['error']


def ask(url: str, body=None, headers=(), method=None) -> tuple[int, dict]:
    """Sends a request: an object as JSON, bytes as they are. Returns the status and the answer's JSON."""
    status, answer, _ = ask_raw(url, body, headers, method)
    return status, json.loads(answer)


def ask_raw(url: str, body=None, headers=(), method=None) -> tuple[int, bytes, dict]:
    data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    request = urllib.request.Request(url, data, dict(headers), method=method)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=60) as response:
            return response.status, response.read(), dict(response.headers)
    except urllib.error.HTTPError as error:
        return error.code, error.read(), dict(error.headers)


def version_of(path: str) -> int:
    return int(os.path.basename(path))
