"""A local web server that truncates, corrupts, redirects or refuses responses, as a test configures it."""
import contextlib
import dataclasses
import http.server
import threading
from collections.abc import Callable, Iterator


@dataclasses.dataclass
class Server:
    """What is asked and answered.

    Attributes:
      url: the address, without a slash at its end.
      answers: one function an expected request, called with the handler; the last one answers all that follow.
      asked: method, path and headers of every request so far.
    """
    url: str
    answers: list[Callable[['Handler'], None]]
    asked: list[tuple[str, str, dict[str, str]]] = dataclasses.field(default_factory=list)

    def ranges(self) -> list[str]:
        return [headers.get('Range', '') for method, _, headers in self.asked if method == 'GET']


class Handler(http.server.BaseHTTPRequestHandler):
    """One request."""
    server_state: Server

    def do_GET(self) -> None:
        state = self.server_state
        state.asked.append((self.command, self.path, dict(self.headers)))
        (state.answers.pop(0) if len(state.answers) > 1 else state.answers[0])(self)
        self.close_connection = True

    do_HEAD = do_GET

    def log_message(self, *_: object) -> None:
        pass

    def say(self, code: int, body: bytes = b'', **headers: str) -> None:
        """Answers with these headers alone, without a Content-Length unless given; underscores become hyphens."""
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name.replace('_', '-'), value)
        self.end_headers()
        if self.command != 'HEAD':
            with contextlib.suppress(OSError):  # the other side may have heard enough
                self.wfile.write(body)


@contextlib.contextmanager
def serve(*answers: Callable[[Handler], None]) -> Iterator[Server]:
    handler = type('Asked', (Handler,), {})
    web = http.server.ThreadingHTTPServer(('127.0.0.1', 0), handler)
    handler.server_state = state = Server(f'http://127.0.0.1:{web.server_port}', list(answers))
    thread = threading.Thread(target=web.serve_forever, kwargs={'poll_interval': 0.01}, daemon=True)
    thread.start()
    try:
        yield state
    finally:
        web.shutdown()
        thread.join()
        web.server_close()


def whole(content: bytes, **headers: str) -> Callable[[Handler], None]:
    """Answers with all of a file, or with the rest if a range is asked for that `If-Range` allows."""
    def answer(handler: Handler) -> None:
        asked, condition = handler.headers.get('Range', ''), handler.headers.get('If-Range')
        if asked and condition in (None, headers.get('ETag')):
            start = int(asked.removeprefix('bytes=').rstrip('-'))
            if start >= len(content):
                handler.say(416, Content_Range=f'bytes */{len(content)}')
            else:
                handler.say(206, content[start:], Content_Length=str(len(content) - start),
                            Content_Range=f'bytes {start}-{len(content) - 1}/{len(content)}', **headers)
        else:
            handler.say(200, content, Content_Length=str(len(content)), **headers)
    return answer


def says(code: int, body: bytes = b'', **headers: str) -> Callable[[Handler], None]:
    return lambda handler: handler.say(code, body, **headers)
