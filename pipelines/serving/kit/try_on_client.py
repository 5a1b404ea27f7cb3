"""Send pairs of a person and a garment to a served try-on model over REST and write its images.

    python try_on_client.py people/test_pairs.txt
    python try_on_client.py --url http://host:8501 --out results people/test_pairs.txt

A line of a pairs file names a person and a garment. Their files lie beside it in VITON-HD's folders: image, cloth,
cloth-mask, image-parse, openpose-json, and optionally openpose-img. Needs rest_client.py beside it.
"""
import argparse
import base64
import pathlib
import sys

from rest_client import Refused, content, model_flags, predict_rest

# Model input -> the folders it may be in, and the file endings after the stem of the person or the garment.
PICTURES = ('.jpg', '.png', '.jpeg')
FILES = {'image': (('image',), PICTURES), 'cloth': (('cloth',), PICTURES),
         'cloth_mask': (('cloth-mask', 'cloth_mask'), PICTURES),
         'parse': (('image-parse-v3', 'image-parse-new', 'image-parse'), ('.png',)),
         'pose_json': (('openpose-json', 'openpose_json', 'pose'), ('_keypoints.json',)),
         'pose_image': (('openpose-img', 'openpose_img'), ('_rendered.png', '_rendered.jpg', '.png', '.jpg'))}


def found(root, name, key):
    """Return the file of a model input, or None."""
    folders, endings = FILES[key]
    paths = (root / folder / f'{pathlib.PurePosixPath(name).with_suffix("")}{ending}'
             for folder in folders for ending in dict.fromkeys([pathlib.PurePosixPath(name).suffix, *endings])
             if ending in endings)
    return next(filter(pathlib.Path.is_file, paths), None)


def pair_inputs(root, person, garment):
    """Return the model's inputs of a pair, each a list of one file's content."""
    inputs = {}
    for key in FILES:
        path = found(root, garment if key.startswith('cloth') else person, key)
        if path is None and key != 'pose_image':  # drawn from pose_json if it is missing
            sys.exit(f'error: {root}: {garment if key.startswith("cloth") else person} has no file in '
                     f'{" or ".join(FILES[key][0])}. Give a pairs file that lies beside these folders.')
        inputs[key] = [content(path) if path else b'']
    return inputs


def pairs(path):
    """Yield person, garment and data folder of every line of a pairs file."""
    lines = content(path).decode('utf-8', 'replace').splitlines()
    split = path.stem.removesuffix('_pairs')
    root = path.parent / split if (path.parent / split).is_dir() else path.parent
    for number, line in enumerate(lines, 1):
        words = line.split()
        if len(words) not in (0, 2):
            sys.exit(f'error: {path}, line {number}: write a person and a garment, such as 00001_00.jpg 00002_00.jpg.')
        if words:
            yield root, *words


def main():
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument('files', nargs='+', type=pathlib.Path, metavar='PAIRS', help='pairs files')
    flags.add_argument('--out', type=pathlib.Path, default=pathlib.Path('pictures'),
                       help='folder for the images (default: %(default)s)')
    flags.add_argument('--url', default='http://localhost:8501', help='address of the server (default: %(default)s)')
    model_flags(flags, timeout=600)
    args = flags.parse_args()
    url = f'{args.url.rstrip("/")}/v1/models/{args.model}'
    args.out.mkdir(parents=True, exist_ok=True)
    refused = 0
    for path in args.files:
        for root, person, garment in pairs(path):
            try:
                outputs = predict_rest(url, pair_inputs(root, person, garment), args.timeout)
            except Refused as error:
                print(f'error: {person} {garment}: {error}', file=sys.stderr)
                refused += 1
                continue
            target = args.out / f'{"_".join(pathlib.PurePosixPath(each).stem for each in (person, garment))}.png'
            target.write_bytes(base64.b64decode(outputs[0]['b64']))  # a single output has no name
            print(target, flush=True)
    sys.exit(1 if refused else 0)


if __name__ == '__main__':
    main()
