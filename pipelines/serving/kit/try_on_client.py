"""Send pairs of a person and a garment to a served try-on model over REST and write its images.

    python try_on_client.py people/test_pairs.txt
    python try_on_client.py --url http://host:8501 --out results people/test_pairs.txt

A line of a pairs file names a person and a garment. Their files lie beside it in VITON-HD's folders: image, cloth,
cloth-mask, image-parse, openpose-json, and optionally openpose-img. Needs pairs.py and rest_client.py beside it.
"""
import base64

import pairs
from rest_client import Refused, model_flags, predict_rest


def main():
    flags = pairs.flags(__doc__)
    flags.add_argument('--url', default='http://localhost:8501', help='address of the server (default: %(default)s)')
    model_flags(flags, timeout=600)
    args = flags.parse_args()
    url = f'{args.url.rstrip("/")}/v1/models/{args.model}'

    def dress(files):
        try:
            outputs = predict_rest(url, {name: [content] for name, content in files.items()}, args.timeout)
        except Refused as error:
            raise pairs.Refused(error) from error
        return base64.b64decode(outputs[0]['b64'])  # a single output has no name
    pairs.write(args.files, args.out, dress)


if __name__ == '__main__':
    main()
