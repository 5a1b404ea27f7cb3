"""A server on this machine that answers as Google Cloud Storage does for single objects with generations."""
import contextlib
import dataclasses
import email.parser
import http.server
import json
import threading
import urllib.parse
from collections.abc import Iterator


@dataclasses.dataclass
class Stored:
    """One object."""
    generation: int
    content: bytes
    metadata: dict[str, str]


@dataclasses.dataclass
class Objects:
    """What lies in the buckets, and how requests are answered.

    Attributes:
      url: the address, for STORAGE_EMULATOR_HOST.
      stored: quoted path -> object.
      refused: how many uploads were refused because their generation was no longer the newest.
      unanswered: how many uploads still to come are stored but get no answer.
      error: the HTTP status of every answer; 0 if requests are served.
    """
    url: str
    stored: dict[str, Stored] = dataclasses.field(default_factory=dict)
    refused: int = 0
    unanswered: int = 0
    error: int = 0
    lock: threading.Lock = dataclasses.field(default_factory=threading.Lock)


class Handler(http.server.BaseHTTPRequestHandler):
    """One request."""
    objects: Objects
    protocol_version = 'HTTP/1.1'

    def do_GET(self) -> None:
        key, query = self._key()
        found = self.objects.stored.get(key)
        if self.objects.error or not found:
            self._answer(self.objects.error or 404)
        elif 'alt' in query:
            self._answer(200, found.content)
        else:
            self._answer(200, self._described(found))

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers['Content-Length']))
        parts = email.parser.BytesParser().parsebytes(
            b'Content-Type: ' + self.headers['Content-Type'].encode() + b'\r\n\r\n' + body).get_payload()
        resource = json.loads(parts[0].get_payload())
        folder, query = self._key()
        key = f'{folder}/{urllib.parse.quote(resource["name"], safe="")}'
        with self.objects.lock:
            if not self._is_newest(key, query):
                return
            new = self.objects.stored[key] = Stored(
                int(query['ifGenerationMatch']) + 1, parts[1].get_payload(decode=True), resource.get('metadata', {}))
            if self.objects.unanswered:
                self.objects.unanswered -= 1
                self.close_connection = True
                return
        self._answer(200, self._described(new))

    def do_DELETE(self) -> None:
        key, query = self._key()
        with self.objects.lock:
            if self._is_newest(key, query):
                del self.objects.stored[key]
                self._answer(204)

    def _key(self) -> tuple[str, dict[str, str]]:
        path, _, query = self.path.partition('?')
        return path[path.index('/b/'):], dict(urllib.parse.parse_qsl(query))

    def _is_newest(self, key: str, query: dict[str, str]) -> bool:
        """Return whether a writer names the newest generation; otherwise answer that it does not."""
        found = self.objects.stored.get(key)
        newest = int(query['ifGenerationMatch']) == (found.generation if found else 0)
        if self.objects.error:
            self._answer(self.objects.error)
        elif not newest:
            self.objects.refused += 1
            self._answer(412)
        return newest and not self.objects.error

    def _described(self, found: Stored) -> bytes:
        return json.dumps({'generation': str(found.generation), 'metadata': found.metadata}).encode()

    def _answer(self, code: int, content: bytes = b'{}') -> None:
        self.send_response(code)
        self.send_header('Content-Length', str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


class Server(http.server.ThreadingHTTPServer):
    """A thread a connection."""

    def handle_error(self, *_: object) -> None:
        pass  # clients that are killed are part of the tests


@contextlib.contextmanager
def serving() -> Iterator[Objects]:
    """Serve until the block ends."""
    handler = type('Bound', (Handler,), {})
    with Server(('127.0.0.1', 0), handler) as server:
        handler.objects = Objects(f'http://127.0.0.1:{server.server_port}')
        threading.Thread(target=server.serve_forever, args=[0.02], daemon=True).start()
        try:
            yield handler.objects
        finally:
            server.shutdown()
