"""Forward TCP connections over a bad link, which delays what is sent and loses some of it.

    python -m benchmarks.robustness.bad_link --delay 0.02 --loss 0.02 2301=10.77.0.1:2222 2302=10.77.0.2:2222

TCP repeats a lost segment after at least 0.2 s, and what follows it waits: so a chunk that is lost here arrives that
much later. SIGUSR1 cuts all open connections; new ones are accepted. Prints `ready` once it listens, and, when SIGTERM
ends it, the chunks forwarded, those lost, and the connections cut.
"""
import argparse
import asyncio
import contextlib
import functools
import random
import signal
import socket
import struct

CHUNK = 1 << 16  # bytes read at once
WAITING = 64  # chunks under way in a direction; then the sender waits
REPEATED = 0.2  # seconds until a lost segment is sent again, the least that Linux waits


class Link:
    """A bad link.

    Args:
      delay: seconds from one end to the other.
      loss: share of chunks that are lost and sent again.
      seed: of the draws.
    """

    def __init__(self, delay: float = 0.0, loss: float = 0.0, seed: int = 0):
        self.forwarded = self.lost = self.cuts = 0
        self._delay, self._loss, self._draw = delay, loss, random.Random(seed)
        self._ends: set[asyncio.StreamWriter] = set()

    async def listen(self, host: str, port: int, there: tuple[str, int]) -> asyncio.Server:
        """Forward every connection to a port of this host; 0 chooses one."""
        return await asyncio.start_server(functools.partial(self._connected, there), host, port)

    def cut(self) -> None:
        """Cut all open connections: both ends are reset, and what is under way is gone."""
        self.cuts += len(self._ends) // 2
        for end in self._ends:
            _reset(end)

    async def _connected(self, there: tuple[str, int], reader: asyncio.StreamReader,
                         writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(*there)
        except OSError:  # the host refuses, so the link does
            _reset(writer)
            return
        ends = {writer, far_writer}
        self._ends |= ends
        ways = [asyncio.ensure_future(self._forward(reader, far_writer)),
                asyncio.ensure_future(self._forward(far_reader, writer))]
        with contextlib.suppress(OSError):
            await asyncio.gather(*ways)
        for way in ways:
            way.cancel()
        self._ends -= ends
        for end in ends:
            end.transport.abort()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward one direction until its end, in order."""
        under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(WAITING)

        async def arrive() -> None:
            while True:
                at, data = await under_way.get()
                await asyncio.sleep(at - asyncio.get_running_loop().time())
                if not data:
                    return writer.write_eof()
                writer.write(data)
                await writer.drain()

        async def leave() -> None:
            data = b' '
            while data:
                data = await reader.read(CHUNK)
                await under_way.put((asyncio.get_running_loop().time() + self._seconds(), data))
        await asyncio.gather(leave(), arrive())

    def _seconds(self) -> float:
        """Return how long the next chunk is under way."""
        is_lost = self._draw.random() < self._loss
        self.forwarded += 1
        self.lost += is_lost
        return self._delay + REPEATED * is_lost


def _reset(end: asyncio.StreamWriter) -> None:
    """Close a connection as a host that has gone: the other end reads an error, no end of file."""
    end.get_extra_info('socket').setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
    end.transport.abort()


async def forward(link: Link, routes: dict[int, tuple[str, int]]) -> None:
    """Forward ports to addresses until SIGTERM."""
    ended, loop = asyncio.Event(), asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGUSR1, link.cut)
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    for port, there in routes.items():
        await link.listen('0.0.0.0', port, there)  # noqa: S104 (a namespace of its own)
    print('ready', flush=True)
    await ended.wait()
    print(f'{link.forwarded} chunks, {link.lost} lost, {link.cuts} connections cut', flush=True)


def _route(text: str) -> tuple[int, tuple[str, int]]:
    port, _, there = text.partition('=')
    host, _, far_port = there.rpartition(':')
    return int(port), (host, int(far_port))


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument('routes', nargs='+', type=_route, metavar='PORT=HOST:PORT', help='what to forward where')
    flags.add_argument('--delay', type=float, default=0.0, help='seconds from one end to the other')
    flags.add_argument('--loss', type=float, default=0.0, help='share of chunks that are lost and sent again')
    flags.add_argument('--seed', type=int, default=0, help='of what is lost')
    args = flags.parse_args()
    asyncio.run(forward(Link(args.delay, args.loss, args.seed), dict(args.routes)))


if __name__ == '__main__':
    main()
