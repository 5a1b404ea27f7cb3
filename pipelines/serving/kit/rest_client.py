"""Send lines of text, or images, to a served model over REST and print one line of output for each.

python rest_client.py 'A man rides a bicycle.'
python rest_client.py --url http://host:8501 < lines.txt > answers.txt
python rest_client.py --pictures photo.jpg folder/*.png
"""
import argparse
import base64
import http.client
import itertools
import json
import pathlib
import sys
import urllib.error
import urllib.request


class Refused(Exception):
    """The server answered with an error."""


def parser(description):
    """Return the flags of both clients."""
    flags = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument('lines', nargs='*', metavar='LINE', help='text to send (default: standard input, by lines)')
    flags.add_argument('--pictures', action='store_true', help='the lines name JPEG or PNG files to classify')
    flags.add_argument('--batch_size', type=int, help='lines per request (default: 32; 1 for images)')
    model_flags(flags)
    return flags


def model_flags(flags, timeout=60):
    """Add the flags that name the model and its timeout."""
    flags.add_argument('--model', default=pathlib.Path(__file__).resolve().parent.name.removesuffix('.kit'),
                       help='name the model is served under (default: %(default)s, from this folder\'s name)')
    flags.add_argument('--timeout', type=float, default=timeout, help='seconds per request (default: %(default)s)')


def run(args, predict):
    """Send all lines, or the images they name, in batches.

    Args:
      args: parsed flags.
      predict: input name and values -> outputs by name, each a list with one item per value. Raises Refused.
    """
    for stream in (sys.stdin, sys.stdout):  # a file name may have any bytes
        stream.reconfigure(encoding='utf-8', errors='surrogateescape' if args.pictures else 'strict')
    typing = not args.lines and sys.stdin.isatty()  # then answer each line immediately
    default = 1 if args.pictures else 32  # so that a refused image does not affect others
    size = 1 if typing else default if args.batch_size is None else args.batch_size
    lines, sent = (line.rstrip('\r\n') for line in args.lines or sys.stdin), 0
    while batch := list(itertools.islice(lines, max(1, size))):
        try:
            if args.pictures:
                classify(predict, batch)
            else:
                answer(predict, batch, sent)
        except Refused as error:
            sys.exit(f'error: {", ".join(batch)}: {error}' if args.pictures else f'error: {error}')
        sent += len(batch)


def answer(predict, lines, sent):
    """Print the model's output for each line."""
    outputs = predict('text', lines)
    for number, text in enumerate(outputs['text']):
        print(' '.join(text.splitlines()), flush=True)  # print one line per input, whatever the model outputs
        if outputs.get('truncated', [False] * len(lines))[number]:
            print(f'line {sent + number + 1} is too long; only its beginning was used', file=sys.stderr)


def classify(predict, files):
    """Print each file, its best label, the label's probability, and its description unless it equals the label."""
    outputs = predict('image', [content(file) for file in files])
    best = ([row[0] for row in outputs[name]] for name in ('labels', 'probabilities', 'descriptions'))
    for file, label, probability, description in zip(files, *best):
        print(file, label, f'{probability:.4f}', *{description} - {label}, sep='\t', flush=True)


def content(file):
    try:
        with open(file, 'rb') as stream:
            return stream.read()
    except (OSError, ValueError) as error:  # a name with a null byte raises ValueError
        reason = getattr(error, 'strerror', error)
        sys.exit(f'error: {file} cannot be read ({reason}). Give names of JPEG or PNG files.')


def predict_rest(url, inputs, timeout):
    """Call TensorFlow Serving's REST interface in its column format.

    Args:
      url: the model's, such as http://localhost:8501/v1/models/name.
      inputs: name -> values, strings or bytes.

    Returns:
      The outputs, name -> values; only the values if there is a single output.
    """
    body = json.dumps({'inputs': {name: [encoded(value) for value in values] for name, values in inputs.items()}})
    request = urllib.request.Request(  # noqa: S310 (the user gives the URL)
        f'{url}:predict', body.encode(), {'Content-Type': 'application/json'})
    try:
        with urllib.request.urlopen(request, timeout=timeout) as response:  # noqa: S310 (as above)
            return json.load(response)['outputs']
    except urllib.error.HTTPError as error:
        body = error.read().decode('utf-8', 'replace').strip()
        try:
            body = json.loads(body)['error']
        except (ValueError, KeyError, TypeError):
            pass
        raise Refused(f'{url} answered {error.code}: {body}') from error
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, 'reason', error)
        sys.exit(f'error: {url} cannot be reached ({reason}). Start the server as README.md says, or give --url.')
    except (ValueError, KeyError, TypeError):
        sys.exit(f'error: {url} does not answer like TensorFlow Serving. Check that --url is its REST port.')


def encoded(value):
    """Return bytes as the JSON object that encodes them."""
    return {'b64': base64.b64encode(value).decode()} if isinstance(value, bytes) else value


def main():
    flags = parser(__doc__)
    flags.add_argument('--url', default='http://localhost:8501', help='address of the server (default: %(default)s)')
    args = flags.parse_args()
    url = f'{args.url.rstrip("/")}/v1/models/{args.model}'
    run(args, lambda name, values: predict_rest(url, {name: values}, args.timeout))


if __name__ == '__main__':
    main()
