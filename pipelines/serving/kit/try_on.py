"""Dress people in garments with the networks beside this file, without TensorFlow: an image for each pair.

    pip install numpy pillow onnxruntime           # or tflite-runtime, for files of the suffix .tflite
    python try_on.py people/test_pairs.txt
    python try_on.py --out results people/test_pairs.txt

A line of a pairs file names a person and a garment. Their files lie beside it in VITON-HD's folders: image, cloth,
cloth-mask, image-parse, openpose-json, and optionally openpose-img. `TryOn.given` makes the networks' inputs of them;
copy it where the networks run in another language.
"""
import io
import json
import pathlib

import numpy as np
from PIL import Image

try:
    from pipelines.serving.kit import networks, pairs, people, resampling
except ImportError:  # a copy, with copies of these files beside it
    import networks  # type: ignore[no-redef]
    import pairs  # type: ignore[no-redef]
    import people  # type: ignore[no-redef]
    import resampling  # type: ignore[no-redef]

PICTURES = {'image': 'image_levels', 'warped': 'warped_levels'}  # of a result, and the outputs they are drawn from


class TryOn:
    """A try-on model loaded from a folder of networks and landmark.json."""

    def __init__(self, folder):
        folder = pathlib.Path(folder)
        description = json.loads((folder / 'landmark.json').read_text('utf-8'))
        self.size = tuple(description['config']['input']['size'])
        self.official = description['agnostic'] == 'official'
        self.networks = networks.load(folder)

    def predict(self, inputs):
        """Dress people, pair by pair.

        Args:
          inputs: for each pair, the content of its files by the names of `pairs.FILES`.

        Returns:
          A dict per pair: `image`, `parse` and `warped` as PNG, and `error`. For files that cannot be used only
          `error`, which says why.
        """
        results = []
        for files in inputs:
            try:
                found = self.dressed(self.given(files))
            except pairs.Refused as error:
                results.append({'error': str(error)})
            else:
                results.append({**{name: png(found[key][0]) for name, key in PICTURES.items()},
                                'parse': png(found['colours'][0]), 'error': ''})
        return results

    def dressed(self, given):
        """Run all networks on the arrays of `given`; the parse is predicted."""
        found = self.networks['segmentation'](**given)
        return found | self.networks['try_on'](**given | {'parse': found['parse']})

    def judged(self, files):
        """Return everything to compare for one pair, at one size, images with levels from 0 to 1.

        Returns:
          `image`, the output, and `parse` [H, W], the predicted classes; `reconstructed`, `warped` and `warped_mask`,
          made with the person's own parse; and, from the files, `true_image`, `true_parse`, `agnostic_parse`, `removed`
          and `cloth`.

        Raises:
          Refused: a file cannot be used.
        """
        given = self.given(files)
        made, again = self.dressed(given), self.networks['try_on'](**given)
        pictures = {'image': made['image'], 'reconstructed': again['image'], 'warped': again['warped'],
                    'true_image': given['image'], 'cloth': given['cloth']}
        levels = {name: np.clip(picture[0] / 2 + np.float32(0.5), 0, 1) for name, picture in pictures.items()}
        return levels | {'parse': made['parse'][0], 'warped_mask': again['warped_mask'][0],
                         'true_parse': given['parse'][0], 'agnostic_parse': given['agnostic_parse'][0],
                         'removed': given['removed'][0]}

    def given(self, files):
        """Return the networks' inputs, [1, H, W, …] each.

        `image`, `agnostic`, `pose` and `cloth` have three channels with levels from -1 to 1 and `cloth_mask` one of 0
        and 1; `parse` and `agnostic_parse` are classes, and `removed` is 1 where `agnostic` is grey.

        Raises:
          Refused: a file cannot be used.
        """
        try:
            return {name: array[np.newaxis] for name, array in self.sample(**files).items()}
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:  # Pillow raises all of them
            raise pairs.Refused(error) from error

    def sample(self, image, parse, pose_json, cloth, cloth_mask, pose_image=b''):
        pixels, labels = decoded(image), people.labels(parse)
        points, count = people.keypoints(pose_json)
        people.check(points, count, self.official)
        if labels.shape != pixels.shape[:2]:
            raise ValueError('image and parse must be of one size')
        points = points.astype(np.float64 if self.official else np.float32)
        person = self.networks['person'](image=pixels, labels=labels, points=points)
        size = np.array(labels.shape, np.int32)
        pose = decoded(pose_image) if pose_image else self.networks['pose'](points=points, size=size)['pose']
        mask = np.asarray(Image.open(io.BytesIO(cloth_mask)).convert('L'))
        return {'image': self.resized(unit(pixels)), 'agnostic': self.resized(person['agnostic']),
                'pose': self.resized(unit(pose)), 'cloth': self.resized(unit(decoded(cloth))),
                'cloth_mask': (self.nearest(mask) >= 128).astype(np.float32)[..., np.newaxis],
                **{name: self.nearest(person[name]) for name in ('parse', 'agnostic_parse', 'removed')}}

    def resized(self, picture):
        """Return levels [h, w, 3] at the networks' size."""
        if picture.shape[:2] == self.size:
            return picture
        return resampling.resampled(picture, self.size, (0, 0), self.size)

    def nearest(self, labels):
        return resampling.nearest(labels, self.size)


def decoded(encoded):
    """Decode a JPEG or PNG file to uint8 [h, w, 3]; transparency is dropped."""
    return np.array(Image.open(io.BytesIO(encoded)).convert('RGB'))


def unit(pixels):
    """Scale levels from 0 to 255 to -1 to 1."""
    return pixels.astype(np.float32) / np.float32(127.5) - 1


def png(pixels):
    """Encode uint8 [h, w, 3] as PNG."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, 'PNG')
    return file.getvalue()


load = TryOn


def main():
    args = pairs.flags(__doc__).parse_args()
    model = TryOn(pathlib.Path(__file__).parent)

    def dress(files):
        [found] = model.predict([files])
        if found['error']:
            raise pairs.Refused(found['error'])
        return found['image']
    pairs.write(args.files, args.out, dress)


if __name__ == '__main__':
    main()
