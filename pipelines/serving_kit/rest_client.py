"""Sends lines of text to a served model over REST and prints its answers, one line for each.

    python rest_client.py 'A man rides a bicycle.'
    python rest_client.py --url http://host:8501 < lines.txt > answers.txt
"""
import argparse
import http.client
import itertools
import json
import pathlib
import sys
import urllib.error
import urllib.request


def parser(description):
    """The flags both clients take."""
    flags = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument('lines', nargs='*', metavar='LINE', help='text to send (default: standard input, by lines)')
    flags.add_argument('--model', default=pathlib.Path(__file__).resolve().parent.name.removesuffix('.kit'),
                       help='name the model is served under (default: %(default)s, from this folder\'s name)')
    flags.add_argument('--batch_size', type=int, default=32, help='lines a request (default: %(default)s)')
    flags.add_argument('--timeout', type=float, default=60, help='seconds for a request (default: %(default)s)')
    return flags


def run(args, predict):
    """Sends all lines in batches.

    Args:
      args: parsed flags.
      predict: lines -> outputs by name, each a list as long as the lines.
    """
    for stream in (sys.stdin, sys.stdout):
        stream.reconfigure(encoding='utf-8')
    typing = not args.lines and sys.stdin.isatty()  # then each line is answered at once
    size = 1 if typing else args.batch_size
    lines, sent = (line.rstrip('\r\n') for line in args.lines or sys.stdin), 0
    while batch := list(itertools.islice(lines, max(1, size))):
        outputs = predict(batch)
        for number, text in enumerate(outputs['text']):
            print(' '.join(text.splitlines()), flush=True)  # an answer is one line, whatever the model says
            if outputs.get('truncated', [False] * len(batch))[number]:
                print(f'line {sent + number + 1} is too long; only its beginning was read', file=sys.stderr)
        sent += len(batch)


def predict_rest(url, lines, timeout):
    """Asks TensorFlow Serving's REST interface, in its column format.

    Args:
      url: the model's, as http://localhost:8501/v1/models/name.
    """
    request = urllib.request.Request(f'{url}:predict', json.dumps({'inputs': {'text': lines}}).encode(),
                                     {'Content-Type': 'application/json'})
    try:
        with urllib.request.urlopen(request, timeout=timeout) as response:
            return json.load(response)['outputs']
    except urllib.error.HTTPError as error:
        body = error.read().decode('utf-8', 'replace').strip()
        try:
            body = json.loads(body)['error']
        except (ValueError, KeyError, TypeError):
            pass
        sys.exit(f'error: {url} answered {error.code}: {body}')
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, 'reason', error)
        sys.exit(f'error: {url} cannot be reached ({reason}); start the server as README.md says, or give --url.')
    except (ValueError, KeyError, TypeError):
        sys.exit(f'error: {url} does not answer as TensorFlow Serving does; see that --url is its REST port.')


def main():
    flags = parser(__doc__)
    flags.add_argument('--url', default='http://localhost:8501', help='the server (default: %(default)s)')
    args = flags.parse_args()
    url = f'{args.url.rstrip("/")}/v1/models/{args.model}'
    run(args, lambda lines: predict_rest(url, lines, args.timeout))


if __name__ == '__main__':
    main()
