"""Read pairs of a person and a garment, and write an image of each.

A line of a pairs file names a person and a garment. Their files lie beside it in VITON-HD's folders: image, cloth,
cloth-mask, image-parse, openpose-json, and optionally openpose-img.
"""
import argparse
import pathlib
import sys

# Model input -> the folders it may be in, and the file endings after the stem of the person or the garment.
PICTURES = ('.jpg', '.png', '.jpeg')
FILES = {'image': (('image',), PICTURES), 'cloth': (('cloth',), PICTURES),
         'cloth_mask': (('cloth-mask', 'cloth_mask'), PICTURES),
         'parse': (('image-parse-v3', 'image-parse-new', 'image-parse'), ('.png',)),
         'pose_json': (('openpose-json', 'openpose_json', 'pose'), ('_keypoints.json',)),
         'pose_image': (('openpose-img', 'openpose_img'), ('_rendered.png', '_rendered.jpg', '.png', '.jpg'))}


class Refused(ValueError):
    """A pair that cannot be used; its message says why."""


def flags(description):
    """Return a program's parser of flags, with the pairs files and the folder of the images."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('files', nargs='+', type=pathlib.Path, metavar='PAIRS', help='pairs files')
    parser.add_argument('--out', type=pathlib.Path, default=pathlib.Path('pictures'),
                        help='folder for the images (default: %(default)s)')
    return parser


def write(files, out, dress):
    """Write an image of every pair of the pairs files, print its path, and exit: with code 1 if a pair was refused.

    Args:
      dress: (content of the files in `FILES`, by name) -> content of an image file. Raises `Refused`.
    """
    out.mkdir(parents=True, exist_ok=True)
    refused = 0
    for path in files:
        for root, person, garment in pairs(path):
            try:
                image = dress(contents(root, person, garment))
            except Refused as error:
                print(f'error: {person} {garment}: {error}', file=sys.stderr)
                refused += 1
                continue
            target = out / f'{"_".join(pathlib.PurePosixPath(each).stem for each in (person, garment))}.png'
            target.write_bytes(image)
            print(target, flush=True)
    sys.exit(1 if refused else 0)


def pairs(path):
    """Yield data folder, person and garment of every line of a pairs file."""
    lines = content(path).decode('utf-8', 'replace').splitlines()
    split = path.stem.removesuffix('_pairs')
    root = path.parent / split if (path.parent / split).is_dir() else path.parent
    for number, line in enumerate(lines, 1):
        words = line.split()
        if len(words) not in (0, 2):
            sys.exit(f'error: {path}, line {number}: write a person and a garment, such as 00001_00.jpg 00002_00.jpg.')
        if words:
            yield root, *words


def contents(root, person, garment):
    """Return the content of a pair's files, by model input; empty for the pose map if it is missing."""
    inputs = {}
    for key in FILES:
        path = found(root, garment if key.startswith('cloth') else person, key)
        if path is None and key != 'pose_image':  # drawn from pose_json if it is missing
            sys.exit(f'error: {root}: {garment if key.startswith("cloth") else person} has no file in '
                     f'{" or ".join(FILES[key][0])}. Give a pairs file that lies beside these folders.')
        inputs[key] = content(path) if path else b''
    return inputs


def found(root, name, key):
    """Return the file of a model input, or None."""
    folders, endings = FILES[key]
    paths = (root / folder / f'{pathlib.PurePosixPath(name).with_suffix("")}{ending}'
             for folder in folders for ending in dict.fromkeys([pathlib.PurePosixPath(name).suffix, *endings])
             if ending in endings)
    return next(filter(pathlib.Path.is_file, paths), None)


def content(path):
    try:
        return path.read_bytes()
    except OSError as error:
        sys.exit(f'error: {path} cannot be read ({error.strerror}). Check the path.')
