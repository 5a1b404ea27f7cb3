"""Requests a second of `pipelines.serve` under load, beside a plain loop and beside `predict`, the ceiling.

    python benchmarks/speed/serve_load.py runs/demo_translation/serving/demo_translation --lines lines.txt
    python benchmarks/speed/serve_load.py runs/demo_images/serving/demo_images --images photos/

ours     `pipelines.serve`: requests are batched, work runs off the event loop.
plain    an aiohttp handler that calls the SavedModel's `serving_default` on each request, one after the other.
ceiling  the same lines or images given to the paper's own `predict` in one go, in a process of its own.

Rates are by the clock; beside other work the processor's seconds a row say more, of the server alone: `predict`'s over
a server's is the share of the ceiling the server would reach on idle cores, had clients cores of their own.

Every client sends a request of one line or image, waits for the answer, and sends the next. Servers and clients share
this machine's cores. Rounds of ours and plain alternate; a figure is the median round's. The answers of both servers
are compared with those of the ceiling: texts and labels must be equal.
"""
import argparse
import asyncio
import base64
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
CLIENTS = (1, 8, 64)


def main():
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument('model', help='a folder of pushed versions')
    flags.add_argument('--lines', type=pathlib.Path, help='a file of lines to send')
    flags.add_argument('--images', type=pathlib.Path, help='a folder of images to send')
    flags.add_argument('--seconds', type=float, default=20, help='of a round (default: 20)')
    flags.add_argument('--rounds', type=int, default=3, help='of each server and number of clients (default: 3)')
    flags.add_argument('--most', type=int, default=1000, help='lines or images, at most (default: 1000)')
    flags.add_argument('--out', type=pathlib.Path, help='where to write the figures as JSON')
    flags.add_argument('--as', dest='role', choices=['plain', 'ceiling'], help=argparse.SUPPRESS)
    flags.add_argument('--port', type=int, default=0, help=argparse.SUPPRESS)
    args = flags.parse_args()
    inputs = read(args)
    if args.role == 'plain':
        plain(args, inputs)
    elif args.role == 'ceiling':
        ceiling(args, inputs)
    else:
        compare(args, inputs)


def read(args) -> list:
    """Return the lines, as text, or the images' bytes."""
    if args.lines:
        lines = args.lines.read_text('utf-8').splitlines()
        return [line for line in lines if line.strip()][:args.most]
    files = sorted(path for path in args.images.rglob('*') if path.suffix.lower() in ('.jpg', '.jpeg', '.png'))
    return [path.read_bytes() for path in files][:args.most]


def body(value) -> bytes:
    """Return a request of one row."""
    if isinstance(value, bytes):
        return json.dumps({'inputs': {'image': [{'b64': base64.b64encode(value).decode()}]}}).encode()
    return json.dumps({'inputs': {'text': [value]}}).encode()


def answer_of(outputs: dict) -> str:
    found = outputs.get('text') or outputs['labels']
    return json.dumps(found[0])


# The three sides.

def ceiling(args, inputs: list) -> None:
    """Print the rows per second of several runs of `predict`, and its answers."""
    from pipelines.core import cli
    cli.prepare_libraries()
    from pipelines.serving import saved_model
    model, rates, processor = saved_model.load(args.model), [], []
    saved_model.run(model, inputs[:64])
    for _ in range(args.rounds):
        start, used = time.monotonic(), time.process_time()
        found = saved_model.run(model, inputs)
        rates.append(len(inputs) / (time.monotonic() - start))
        processor.append((time.process_time() - used) / len(inputs))
    answers = [json.dumps(row['answers'][0] if args.lines else row['answers']) for row in found]
    print(json.dumps({'rates': rates, 'processor': statistics.median(processor), 'answers': answers}))


def plain(args, inputs: list) -> None:
    """Serve without batches, as in a simple first version."""
    from pipelines.core import cli
    cli.prepare_libraries()
    import tensorflow as tf
    from aiohttp import web

    from pipelines.serving import saved_model
    serve = saved_model.load(args.model).signatures['serving_default']

    async def handle(request):
        [(name, values)] = (await request.json())['inputs'].items()
        values = [base64.b64decode(value['b64']) if isinstance(value, dict) else value for value in values]
        outputs = serve(**{name: tf.constant(values)})
        return web.json_response({'outputs': {key: _plain(value.numpy().tolist()) for key, value in outputs.items()}})
    app = web.Application(client_max_size=64 << 20)
    app.router.add_post('/v1/models/{name}:predict', handle)
    serve(**{'text' if args.lines else 'image': tf.constant(inputs[:1])})
    web.run_app(app, host='127.0.0.1', port=args.port, access_log=None, print=None)


def _plain(value):
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return value.decode() if isinstance(value, bytes) else value


def start(args, role: str, port: int) -> subprocess.Popen:
    environment = {**os.environ, 'PYTHONPATH': str(ROOT), 'PYTHONUNBUFFERED': '1'}
    if role == 'ours':
        command = ['-m', 'pipelines.serve', args.model, '--rest_port', str(port), '--grpc_port', '0']
    else:
        command = [__file__, args.model, '--as', role, '--port', str(port), '--rounds', str(args.rounds),
                   '--most', str(args.most), *(['--lines', str(args.lines)] if args.lines else ['--images',
                                                                                               str(args.images)])]
    return subprocess.Popen([sys.executable, '-W', 'ignore', *command], env=environment, stdout=subprocess.PIPE,
                            stderr=subprocess.DEVNULL, text=True)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(('127.0.0.1', 0))
        return found.getsockname()[1]


# The load.

async def load(port: int, name: str, bodies: list[bytes], clients: int, seconds: float) -> dict:
    """Send requests from so many clients for so long.

    Returns:
      `rate`, requests a second; `p50` and `p99` in milliseconds; `answers` by the number of the body.
    """
    latencies: list[float] = []
    answers: dict[int, str] = {}
    begin = time.monotonic()
    end = begin + seconds
    number = iter(range(10 ** 9))

    async def client():
        reader, writer = await asyncio.open_connection('127.0.0.1', port)
        while time.monotonic() < end:
            which = next(number) % len(bodies)
            sent = time.monotonic()
            status, answer = await post(reader, writer, f'/v1/models/{name}:predict', bodies[which])
            assert status == 200, answer
            latencies.append(time.monotonic() - sent)
            answers[which] = answer_of(json.loads(answer)['outputs'])
        writer.close()
    await asyncio.gather(*(client() for _ in range(clients)))
    latencies.sort()
    return {'count': len(latencies), 'rate': len(latencies) / (time.monotonic() - begin),
            'p50': 1000 * latencies[len(latencies) // 2],
            'p99': 1000 * latencies[min(len(latencies) - 1, int(0.99 * len(latencies)))], 'answers': answers}


async def post(reader, writer, path: str, content: bytes) -> tuple[int, bytes]:
    """One request on an open connection, without a client library, which would cost more than the server."""
    writer.write(b'POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n'
                 % (path.encode(), len(content)) + content)
    head = await reader.readuntil(b'\r\n\r\n')
    size = next(int(line.split(b':')[1]) for line in head.split(b'\r\n') if line.lower().startswith(b'content-length'))
    return int(head.split()[1]), await reader.readexactly(size)


def processor(pid: int) -> float:
    """Seconds of the processor that a process has used."""
    fields = pathlib.Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK')


def memory(pid: int, field: str = 'VmHWM') -> float:
    """Return a field of a process's status in GB: VmHWM, its peak, or VmRSS, its resident memory."""
    status = pathlib.Path(f'/proc/{pid}/status').read_text()
    return int(next(line for line in status.splitlines() if line.startswith(field)).split()[1]) / 1e6


def wait_for(port: int, server: subprocess.Popen, seconds: float = 600) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if server.poll() is not None:
            sys.exit(f'a server ended with code {server.returncode}')
        try:
            socket.create_connection(('127.0.0.1', port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.2)
    sys.exit('a server did not begin to listen')


def compare(args, inputs: list) -> None:
    from pipelines.serving.kit import model_name
    name, bodies = model_name(args.model.rstrip('/')), [body(value) for value in inputs]
    print(f'{len(inputs)} {"lines" if args.lines else "images"} to {args.model}', flush=True)
    child = start(args, 'ceiling', 0)
    output, _ = child.communicate()
    found = json.loads(output.splitlines()[-1])
    best, expected, least = statistics.median(found['rates']), found['answers'], found['processor']
    rates = ', '.join(f'{rate:.1f}' for rate in found['rates'])
    print(f'ceiling: {best:.1f} rows/s ({rates}), {1000 * least:.1f} ms of the processor a row', flush=True)
    servers, figures = {}, {}
    for role in ('ours', 'plain'):
        port = free_port()
        servers[role] = (start(args, role, port), port)
        wait_for(port, servers[role][0])
    try:
        for clients in CLIENTS:
            rounds: dict[str, list] = {'ours': [], 'plain': []}
            for _ in range(args.rounds):
                for role, (server, port) in servers.items():
                    asyncio.run(load(port, name, bodies, clients, min(2, args.seconds)))  # warms it up
                    used = processor(server.pid)
                    found = asyncio.run(load(port, name, bodies, clients, args.seconds))
                    rounds[role].append({**found, 'processor': (processor(server.pid) - used) / found.pop('count')})
            for role, all_ in rounds.items():
                wrong = [n for each in all_ for n, answer in each.pop('answers').items() if answer != expected[n]]
                middle = sorted(all_, key=lambda each: each['rate'])[len(all_) // 2]
                cost = statistics.median(each['processor'] for each in all_)
                figures[f'{role}, {clients}'] = {**middle, 'processor': cost, 'wrong': len(wrong),
                                                 'of_ceiling': middle['rate'] / best,
                                                 'rates': [each['rate'] for each in all_]}
                rates = ', '.join(f'{each["rate"]:.1f}' for each in all_)
                print(f'{role:6} {clients:3} clients: {middle["rate"]:7.1f}/s ({middle["rate"] / best:.0%} of the '
                      f'ceiling), p50 {middle["p50"]:.0f} ms, p99 {middle["p99"]:.0f} ms, {1000 * cost:.1f} ms of the '
                      f'processor a row ({least / cost:.0%} of the ceiling), {len(wrong)} answers differ; '
                      f'rounds {rates}', flush=True)
        for role, (server, _) in servers.items():
            figures[f'{role}, GB'] = memory(server.pid)
            print(f'{role:6} peak memory {memory(server.pid):.2f} GB', flush=True)
    finally:
        for server, _ in servers.values():
            server.terminate()
            server.wait()
    if args.out:
        args.out.write_text(json.dumps({'ceiling': best, 'ceiling, processor': least, **figures}, indent=1))


if __name__ == '__main__':
    main()
