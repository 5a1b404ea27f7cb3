"""Put `pipelines.serve` under load with pushes, rollbacks, kills, half-sent and damaged requests and slow readers.

    python benchmarks/robustness/serve_faults.py runs/demo_translation/serving/demo_translation --lines lines.txt
    python benchmarks/robustness/serve_faults.py DIR --lines lines.txt --minutes 2 --pushes 8 --kills 1 --damaged 500

The model is pushed to a folder of its own, so that the one given stays as it is. While clients ask without a pause, it
is rolled back and pushed again in turn, the server is killed (SIGKILL) and started again, and others send bodies that
end in the middle, read an answer a few bytes at a time, or send bodies with random damage.

Exit code 1 if an answer to a whole request differs from `predict`'s, if a request was lost while the server lived, if a
status was 500 or above other than 503, if damage went unanswered for 30 seconds, or if memory grew: the last third of a
life of the server must not need over a tenth more than the third before.
"""
import argparse
import asyncio
import collections
import contextlib
import json
import pathlib
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.robustness import fuzz  # noqa: E402
from benchmarks.speed import serve_load  # noqa: E402

WORDS = (b'"inputs"', b'"instances"', b'"b64"', b'{', b'}', b'[', b']', b'null', b'NaN', b'1e999', b'"\\ud800"',
         b'\xff', b'"signature_name"', b'"text"', b'\0', b'-', b'""')
PATIENCE = 30.0  # seconds
MEMORY_GROWTH = 1.1


class Server:
    """Server process under test, which can be killed and restarted.

    Attributes:
      lives: how often it was started; `up` is False between a kill and the next life.
      memory: gigabytes of resident memory, sampled each second, by life.
    """

    def __init__(self, args: argparse.Namespace):
        self._args, self.port = args, serve_load.free_port()
        self.lives, self.up, self.memory = 0, False, collections.defaultdict(list)
        self.process: subprocess.Popen
        self.start()

    def start(self) -> None:
        self.process = serve_load.start(self._args, 'ours', self.port)
        serve_load.wait_for(self.port, self.process)
        self.lives, self.up = self.lives + 1, True

    async def restart(self) -> None:
        """Kill it as the kernel does when memory runs out, and start it again."""
        self.up = False
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        await asyncio.to_thread(self.start)

    def sample(self) -> None:
        with contextlib.suppress(OSError, StopIteration):  # it is being killed
            self.memory[self.lives].append(serve_load.memory(self.process.pid, 'VmRSS'))


class Fire:
    """All load and faults on a server, and counts of what was observed.

    Attributes:
      seen: event -> count.
      faults: sentences on what must not happen.
    """

    def __init__(self, args: argparse.Namespace, server: Server, name: str, lines: list[str], expected: list[str]):
        self._args, self._server, self._path = args, server, f'/v1/models/{name}:predict'
        self._bodies, self._expected = [serve_load.body(line) for line in lines], expected
        self._end = time.monotonic() + 60 * args.minutes
        self._damage_left = args.damaged
        self.seen: collections.Counter[str] = collections.Counter()
        self.faults: list[str] = []

    async def run(self, publish, rollback) -> None:
        await asyncio.gather(
            *(self._client(seed) for seed in range(self._args.clients)),
            *(self._damager(seed) for seed in range(4)), self._half_sender(), self._slow_reader(),
            self._pusher(publish, rollback), self._killer(), self._watcher())

    def _going(self) -> bool:
        return time.monotonic() < self._end

    async def _exchange(self, body: bytes, what: str) -> tuple[int, bytes] | None:
        """Send one request on its own connection. Returns status and body, or None if a kill cut it off."""
        life = self._server.lives if self._server.up else None
        try:
            async with asyncio.timeout(PATIENCE):
                reader, writer = await asyncio.open_connection('127.0.0.1', self._server.port)
                with contextlib.closing(writer):
                    return await serve_load.post(reader, writer, self._path, body)
        except TimeoutError:
            self._fault(f'{what}: no answer in {PATIENCE:g} seconds')
        except (OSError, asyncio.IncompleteReadError) as error:
            if self._server.up and life == self._server.lives:
                self._fault(f'{what}: lost while the server lived ({error!r})')
            else:
                self.seen[f'{what}: cut off by a kill'] += 1
        return None

    def _fault(self, words: str) -> None:
        self.faults.append(words)

    async def _client(self, seed: int) -> None:
        """Send whole requests in turn and compare every answer."""
        draw = random.Random(seed)
        while self._going():
            number = draw.randrange(len(self._bodies))
            found = await self._exchange(self._bodies[number], 'whole')
            if found is None:
                await asyncio.sleep(0.2)
                continue
            status, content = found
            self.seen[f'whole: {status}'] += 1
            if status == 200 and serve_load.answer_of(json.loads(content)['outputs']) != self._expected[number]:
                self._fault(f'whole: another answer than predict gives to line {number}: {content[:200]!r}')
            elif status not in (200, 429, 503):
                self._fault(f'whole: {status}, {content[:200]!r}')

    async def _damager(self, seed: int) -> None:
        """Send bodies with random damage; any answer but a server error is accepted."""
        draw = random.Random(1000 + seed)
        while self._going() and self._damage_left > 0:
            self._damage_left -= 1
            body = fuzz.mutated(draw, self._bodies, WORDS)
            found = await self._exchange(body, 'damaged')
            if found:
                self.seen[f'damaged: {found[0]}'] += 1
                if found[0] >= 500 and found[0] != 503:
                    self._fault(f'damaged: {found[0]} to {body[:200]!r}')
            await asyncio.sleep(60 * self._args.minutes * 4 / (1.2 * self._args.damaged) * draw.random())

    async def _half_sender(self) -> None:
        draw = random.Random(1)
        while self._going():
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection('127.0.0.1', self._server.port)
                body = draw.choice(self._bodies)
                writer.write(b'POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n'
                             % (self._path.encode(), len(body)) + body[:draw.randrange(len(body))])
                await writer.drain()
                await asyncio.sleep(draw.random())
                writer.close()
                self.seen['half-sent'] += 1
            await asyncio.sleep(0.5)

    async def _slow_reader(self) -> None:
        while self._going():
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection('127.0.0.1', self._server.port)
                body = self._bodies[0]
                writer.write(b'POST %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n'
                             % (self._path.encode(), len(body)) + body)
                while await reader.read(8):
                    await asyncio.sleep(0.05)
                writer.close()
                self.seen['slowly read'] += 1

    async def _pusher(self, publish, rollback) -> None:
        """Push and roll back in turn, evenly over the time."""
        for number in range(self._args.pushes):
            await asyncio.sleep(60 * self._args.minutes / (self._args.pushes + 1))
            await asyncio.to_thread(publish if number % 2 else rollback)
            self.seen['pushes' if number % 2 else 'rollbacks'] += 1

    async def _killer(self) -> None:
        for _ in range(self._args.kills):
            await asyncio.sleep(60 * self._args.minutes / (self._args.kills + 1))
            await self._server.restart()
            self.seen['kills'] += 1

    async def _watcher(self) -> None:
        while self._going():
            self._server.sample()
            await asyncio.sleep(1)


def grown(samples: list[float]) -> bool:
    """Return whether memory grew by more than `MEMORY_GROWTH` from the second to the last third of a life."""
    third = len(samples) // 3
    before, last = samples[third:2 * third], samples[-third:]
    return third >= 20 and statistics.fmean(last) > MEMORY_GROWTH * statistics.fmean(before)


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument('model', type=pathlib.Path, help='a folder of pushed versions')
    flags.add_argument('--lines', type=pathlib.Path, required=True, help='a file of lines to send')
    flags.add_argument('--minutes', type=float, default=30)
    flags.add_argument('--clients', type=int, default=16)
    flags.add_argument('--pushes', type=int, default=100, help='and rollbacks, together (default: 100)')
    flags.add_argument('--kills', type=int, default=3)
    flags.add_argument('--damaged', type=int, default=10_000, help='bodies with random damage (default: 10,000)')
    args = flags.parse_args()
    from pipelines.core import cli
    cli.prepare_libraries()
    from pipelines.serving import published, pusher
    with tempfile.TemporaryDirectory() as scratch:
        newest = published.versions(str(args.model))[-1].path
        destination = pathlib.Path(scratch, args.model.name)
        other = shutil.copytree(newest, pathlib.Path(scratch, 'other'))
        (other / 'assets.extra' / 'other.txt').write_text('')  # another model, to roll back from, with the same answers
        for model in (newest, other):
            pusher.publish(str(model), str(destination), {})
        options = argparse.Namespace(model=str(destination), lines=args.lines, images=None, most=1000, rounds=1)
        lines = serve_load.read(options)
        ceiling, _ = serve_load.start(options, 'ceiling', 0).communicate()
        expected = json.loads(ceiling.splitlines()[-1])['answers']
        server = Server(options)
        fire = Fire(args, server, args.model.name, lines, expected)
        try:
            asyncio.run(fire.run(lambda: pusher.publish(str(other), str(destination), {}),
                                 lambda: pusher.rollback(str(destination))))
        finally:
            server.process.terminate()
        code = server.process.wait(60)
    report(fire, server, code)


def report(fire: Fire, server: Server, code: int) -> None:
    for name, count in sorted(fire.seen.items()):
        if count:
            print(f'{name}: {count:,}')
    for samples in server.memory.values():
        third = max(1, len(samples) // 3)
        parts = [statistics.fmean(samples[i * third:(i + 1) * third] or samples) for i in range(3)]
        print(f'memory of a life of {len(samples)} s, by thirds: {", ".join(f"{part:.2f}" for part in parts)} GB')
    faults = [*fire.faults, *(f'memory grew in a life of {len(samples)} s' for samples in server.memory.values()
                              if grown(samples))]
    if code:
        faults.append(f'the server ended with code {code} after SIGTERM')
    for fault in faults[:20]:
        print(f'FAULT {fault}')
    print(f'{len(faults)} faults')
    sys.exit(bool(faults))


if __name__ == '__main__':
    main()
