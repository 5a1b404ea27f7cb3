"""Classify images with the networks beside this file, without TensorFlow: a line for each, best class first.

    pip install numpy pillow onnxruntime           # or tflite-runtime, for files of the suffix .tflite
    python classify.py photo.jpg folder/*.png

`Classifier.shown` prepares an image as in training, and `Classifier.views` cuts it as the paper's test does; copy them
where a network runs in another language. What they follow is in landmark.json, labels.json and pixels.npz.
"""
import argparse
import functools
import io
import json
import pathlib
import sys

import numpy as np
from PIL import Image

try:
    from pipelines.serving.kit import networks, resampling
except ImportError:  # a copy, with copies of these files beside it
    import networks  # type: ignore[no-redef]
    import resampling  # type: ignore[no-redef]

# Positions of a view's crops: top and left, in quarters of a crop's range in the image.
PLACES = {'single': [(2, 2)], 'ten_crop': [(0, 0), (0, 4), (4, 0), (4, 4), (2, 2)],
          'multi_crop': [(y, x) for y in range(5) for x in range(5)]}
SIDE = 256  # side of the mean image
LONGEST = 8  # largest aspect ratio; of longer images the middle is used
BATCH = 64  # crops that a network sees at once


class Classifier:
    """A classifier loaded from a folder of networks, landmark.json, labels.json and pixels.npz.

    A model of several nets (Simonyan & Zisserman 2015, 4.4) holds the others in folders of their own, fuse/0 and so on.

    Attributes:
      labels: (class, description), in the order of the networks' outputs.
      fused: the other nets.
    """

    def __init__(self, folder):
        self.folder = folder = pathlib.Path(folder)
        settings = json.loads((folder / 'landmark.json').read_text('utf-8'))['config']
        self.input, self.inference = settings['input'], settings['inference']
        self.labels = json.loads((folder / 'labels.json').read_text('utf-8'))
        self.pixels = dict(np.load(folder / 'pixels.npz', allow_pickle=False))
        self.networks = networks.load(folder)
        self.fused = [self.other(f'fuse/{i}', type(self)) for i in range(len(self.inference['fuse']))]

    def other(self, name, kind):
        """Load the model in a folder of this one, with the same classes."""
        model = kind(self.folder / name)
        if [label for label, _ in model.labels] != [label for label, _ in self.labels]:
            raise ValueError(f'inference.{name.partition("/")[0]} has other classes. Give models of one data set.')
        return model

    def predict(self, images):
        """Classify the bytes of JPEG or PNG files.

        Returns:
          A dict per image: `answers` (classes), `descriptions` and `probabilities`, best first, and `error`, which says
          why an image cannot be read; then the others are empty.
        """
        return [self._answer(image) for image in images]

    def _answer(self, image):
        try:
            pixels = read(image)
        except (OSError, Image.DecompressionBombError) as error:
            return {'answers': [], 'descriptions': [], 'probabilities': [], 'error': str(error)}
        return {**self.answered(pixels), 'error': ''}

    def answered(self, pixels):
        """Return the answer to an image without its error, for levels [h, w, 3]."""
        probabilities = self.posteriors(pixels)
        best = np.argsort(-probabilities, kind='stable')[:self.inference['top']]
        return {'answers': [self.labels[i][0] for i in best], 'descriptions': [self.labels[i][1] for i in best],
                'probabilities': probabilities[best].tolist()}

    @property
    def scales(self):
        """Shorter sides to which an image is rescaled."""
        return self.inference['scales'] or [self.scale]

    @property
    def scale(self):
        """Shorter side in validation."""
        return (self.input['scales'][0] + self.input['scales'][-1]) // 2

    def posteriors(self, pixels):
        """Return the probability of every class for levels [h, w, 3].

        It is the mean of all views at all scales, and then of all nets.
        """
        found = []
        for scale in self.scales:
            shown = self.shown(pixels, scale)
            found += [softmax(self.logits(shown, view)).mean(0) for view in self.inference['views']]
        return np.mean([np.mean(found, 0), *(each.posteriors(pixels) for each in self.fused)], 0)

    def logits(self, shown, view):
        """Return the class scores of every crop of a view, [k, classes]; a dense view's are means over the map."""
        if view == 'dense':
            images = np.stack([shown, shown[:, ::-1]] if self.inference['flips'] else [shown])
            return self.dense_scores(images).mean((1, 2))
        crops = self.views(shown, view)
        return np.concatenate([self.of_crops(crops[start:start + BATCH]) for start in range(0, len(crops), BATCH)])

    def of_crops(self, crops):
        """Map [k, crop, crop, 3] to class scores [k, classes]."""
        if 'classifier' in self.networks:
            return self.networks['classifier'](image=crops)['logits']
        maps = self.networks['convolutions'](image=crops)['maps']
        return self.networks['dense'](maps=maps)['logits']

    def dense_scores(self, images):
        """Map whole images [k, h, w, 3] to the scores of every crop that the maps hold, [k, h', w', classes]."""
        side, maps = self.side, self.networks['convolutions'](image=images)['maps']
        windows = np.lib.stride_tricks.sliding_window_view(maps, (side, side), (1, 2))  # [k, h, w, C, side, side]
        places = windows.shape[:3]
        windows = np.ascontiguousarray(windows.transpose(0, 1, 2, 4, 5, 3)).reshape(-1, side, side, maps.shape[-1])
        scores = [self.networks['dense'](maps=windows[start:start + BATCH])['logits']
                  for start in range(0, len(windows), BATCH)]
        return np.concatenate(scores).reshape(*places, -1)

    @functools.cached_property
    def side(self):
        """Side of the maps of a crop."""
        crop = self.input['crop']
        return self.networks['convolutions'](image=np.zeros([1, crop, crop, 3], np.float32))['maps'].shape[1]

    def views(self, shown, view):
        """Cut [h, w, 3] into a view's crops, [k, crop, crop, 3], followed by their mirror images if `flips`."""
        crop = self.input['crop']
        room = [side - crop for side in shown.shape[:2]]
        corners = [[side * place // 4 for side, place in zip(room, places)] for places in PLACES[view]]
        crops = np.stack([shown[y:y + crop, x:x + crop] for y, x in corners])
        return np.concatenate([crops, crops[:, :, ::-1]]) if self.inference['flips'] and view != 'single' else crops

    def shown(self, pixels, scale):
        """Rescale levels [h, w, 3] until the shorter side is `scale`, and subtract the mean: float32 [h', w', 3]."""
        return self.located(pixels, scale)[0]

    def located(self, pixels, scale):
        """Return what `shown` does, and the part of the image it shows.

        The part's left, upper, right and lower end are in fractions of width and height.
        """
        size = np.array(pixels.shape[:2])
        whole = (2 * scale * size + size.min()) // (2 * size.min())
        space = np.full(2, whole.min()) if self.input['square'] else whole  # the area that crops are cut from
        shown = np.minimum(space, LONGEST * whole.min())
        inside = (whole - space) // 2 + (space - shown) // 2
        image = resampling.resampled(pixels, whole, inside, shown) - self.mean(whole, space, inside, shown)
        if self.input['standardise']:
            image = image / np.sqrt(np.maximum(np.diag(self.pixels['covariance']), 1)).astype(np.float32)
        ends = np.stack([inside, inside + shown]) / whole
        return image, ends[:, ::-1].reshape(4).astype(np.float32)

    def mean(self, whole, space, inside, shown):
        """Return what is subtracted: the mean image, scaled to the area of crops, or the mean colour, or 0."""
        if self.input['mean'] != 'pixel':
            return self.pixels['mean_rgb'].astype(np.float32) if self.input['mean'] == 'rgb' else np.float32(0)
        image = self.pixels['mean_image'].astype(np.float32)
        for axis in (0, 1):
            offset = inside[axis] - (whole[axis] - space[axis]) // 2
            at = (np.arange(offset, offset + shown[axis]) + 0.5) * SIDE / space[axis] - 0.5
            image = resampling.interpolated(image, axis, at)
        return image


def read(image):
    """Return levels [h, w, 3] of the bytes of a JPEG or PNG file."""
    return np.asarray(Image.open(io.BytesIO(image)).convert('RGB'))


def softmax(logits):
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


load = Classifier


def main(kind, file, description):
    """Answer images with the model beside a program: its kind, its file and its description."""
    flags = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument('images', nargs='+', metavar='IMAGE', help='JPEG or PNG files')
    args = flags.parse_args()
    classifier = kind(pathlib.Path(file).parent)
    for path in args.images:
        [found] = classifier.predict([pathlib.Path(path).read_bytes()])
        if found['error']:
            print(f'{path}: {found["error"]}', file=sys.stderr)
        else:
            box = [f'{end:.4f}' for end in found.get('boxes', [[]])[0]]
            print(path, found['answers'][0], f'{found["probabilities"][0]:.4f}', *box, found['descriptions'][0],
                  sep='\t')


if __name__ == '__main__':
    main(Classifier, __file__, __doc__)
