"""Sends pairs of a person and a garment to a served try-on model over REST and writes its pictures.

    python try_on_client.py people/test_pairs.txt
    python try_on_client.py --url http://host:8501 --out results people/test_pairs.txt

A line of a pairs file names a person and a garment; their files lie in the folders beside it as VITON-HD lays them out:
image, cloth, cloth-mask, image-parse, openpose-json, and possibly openpose-img. Needs rest_client.py beside it.
"""
import argparse
import base64
import pathlib
import sys

from rest_client import Refused, content, model_flags, predict_rest

# Input of the model -> the folders it may lie in, and what its file has behind the stem of the person or the garment.
PICTURES = ('.jpg', '.png', '.jpeg')
FILES = {'image': (('image',), PICTURES), 'cloth': (('cloth',), PICTURES),
         'cloth_mask': (('cloth-mask', 'cloth_mask'), PICTURES),
         'parse': (('image-parse-v3', 'image-parse-new', 'image-parse'), ('.png',)),
         'pose_json': (('openpose-json', 'openpose_json', 'pose'), ('_keypoints.json',)),
         'pose_image': (('openpose-img', 'openpose_img'), ('_rendered.png', '_rendered.jpg', '.png', '.jpg'))}


def found(root, name, key):
    """The file of one of the model's inputs, or None."""
    folders, endings = FILES[key]
    paths = (root / folder / f'{pathlib.PurePosixPath(name).with_suffix("")}{ending}'
             for folder in folders for ending in dict.fromkeys([pathlib.PurePosixPath(name).suffix, *endings])
             if ending in endings)
    return next(filter(pathlib.Path.is_file, paths), None)


def pair_inputs(root, person, garment):
    """The model's inputs of a pair, each a list of one file's content."""
    inputs = {}
    for key in FILES:
        path = found(root, garment if key.startswith('cloth') else person, key)
        if path is None and key != 'pose_image':  # which is drawn from pose_json where there is none
            sys.exit(f'error: {root}: {garment if key.startswith("cloth") else person} has no file in '
                     f'{" or ".join(FILES[key][0])}; give a pairs file that lies beside these folders.')
        inputs[key] = [content(path) if path else b'']
    return inputs


def pairs(path):
    """Person and garment of every line of a pairs file, and the folder they lie in."""
    lines = content(path).decode('utf-8', 'replace').splitlines()
    split = path.stem.removesuffix('_pairs')
    root = path.parent / split if (path.parent / split).is_dir() else path.parent
    for number, line in enumerate(lines, 1):
        words = line.split()
        if len(words) not in (0, 2):
            sys.exit(f'error: {path}, line {number}: write a person and a garment, as 00001_00.jpg 00002_00.jpg.')
        if words:
            yield root, *words


def main():
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument('files', nargs='+', type=pathlib.Path, metavar='PAIRS', help='pairs files')
    flags.add_argument('--out', type=pathlib.Path, default=pathlib.Path('pictures'),
                       help='where the pictures go (default: %(default)s)')
    flags.add_argument('--url', default='http://localhost:8501', help='the server (default: %(default)s)')
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
            target.write_bytes(base64.b64decode(outputs[0]['b64']))  # the one output, so it has no name
            print(target, flush=True)
    sys.exit(1 if refused else 0)


if __name__ == '__main__':
    main()
