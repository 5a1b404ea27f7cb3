"""A server on this machine that speaks as much of Google Cloud Storage as one object with generations needs."""
import contextlib
import dataclasses
import email.parser
import http.server
import json
import threading
import urllib.parse
from collections.abc import Iterator


@dataclasses.dataclass
class Objects:
    """What lies in the buckets.

    Attributes:
      url: the address, for STORAGE_EMULATOR_HOST.
      stored: quoted path -> (generation, bytes).
      refused: how many uploads were refused for a generation that is no longer the newest.
      unanswered: how many uploads still to come are stored but get no answer.
    """
    url: str
    stored: dict[str, tuple[int, bytes]] = dataclasses.field(default_factory=dict)
    refused: int = 0
    unanswered: int = 0
    lock: threading.Lock = dataclasses.field(default_factory=threading.Lock)


class Handler(http.server.BaseHTTPRequestHandler):
    """One request."""
    objects: Objects
    protocol_version = 'HTTP/1.1'

    def do_GET(self) -> None:
        path, _, query = self.path.partition('?')
        generation, content = self.objects.stored.get(path[path.index('/b/'):], (0, b''))
        if not generation:
            self._answer(404, b'{}')
        elif 'alt=media' in query:
            self._answer(200, content)
        else:
            self._answer(200, json.dumps({'generation': str(generation)}).encode())

    def do_POST(self) -> None:
        path, _, query = self.path.partition('?')
        expected = int(urllib.parse.parse_qs(query)['ifGenerationMatch'][0])
        body = self.rfile.read(int(self.headers['Content-Length']))
        parts = email.parser.BytesParser().parsebytes(
            b'Content-Type: ' + self.headers['Content-Type'].encode() + b'\r\n\r\n' + body).get_payload()
        name = urllib.parse.quote(json.loads(parts[0].get_payload())['name'], safe='')
        key = f'{path[path.index("/b/"):]}/{name}'
        with self.objects.lock:
            generation = self.objects.stored.get(key, (0, b''))[0]
            if generation != expected:
                self.objects.refused += 1
                self._answer(412, b'{"error": {"message": "conditionNotMet"}}')
                return
            self.objects.stored[key] = (generation + 1, parts[1].get_payload(decode=True))
            if self.objects.unanswered:
                self.objects.unanswered -= 1
                self.close_connection = True
                return
        self._answer(200, json.dumps({'generation': str(generation + 1)}).encode())

    def _answer(self, code: int, content: bytes) -> None:
        self.send_response(code)
        self.send_header('Content-Length', str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def serving() -> Iterator[Objects]:
    """Serves until the block ends."""
    handler = type('Bound', (Handler,), {})
    with http.server.ThreadingHTTPServer(('127.0.0.1', 0), handler) as server:
        handler.objects = Objects(f'http://127.0.0.1:{server.server_port}')
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield handler.objects
        finally:
            server.shutdown()
