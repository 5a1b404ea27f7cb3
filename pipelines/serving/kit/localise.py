"""Find things in images with the networks beside this file, without TensorFlow: a line for each, best class first.

    pip install numpy pillow onnxruntime           # or tflite-runtime, for files of the suffix .tflite
    python localise.py photo.jpg folder/*.png

A line is the file, the class, its probability, the left, upper, right and lower end of its box in fractions of the
image's width and height, and the class's description. Classes are those of the classifier in the folder `classifier`.
"""
import numpy as np

try:
    from pipelines.serving.kit import classify, resampling
except ImportError:  # a copy, with copies of these files beside it
    import classify  # type: ignore[no-redef]
    import resampling  # type: ignore[no-redef]

STRIDE = 32  # pixels between positions of the map
FAR = float('inf')


class Localiser(classify.Classifier):
    """A localiser loaded from a folder as a classifier's, with the folder `classifier` of another in it.

    Its networks give not a class's score but its vector: centre from the left and from above, width and height, as
    fractions of the crop; or one vector for all classes.
    """

    def __init__(self, folder):
        super().__init__(folder)
        self.classifier = self.other('classifier', classify.Classifier)
        self.numbers = {name: i for i, (name, _) in enumerate(self.labels)}
        if 'convolutions' not in self.classifier.networks:
            raise ValueError('inference.classifier was pushed without its score map. Export it with '
                             '--set inference.views=[dense], evaluate it and push it again.')

    def posteriors(self, pixels):
        """Return the classifier's."""
        return self.classifier.posteriors(pixels)

    def answered(self, pixels):
        """Return an answer with the `boxes` [top, 4] and `scores` of its classes, for levels [h, w, 3].

        At every scale the network slides over the image, as do those of fused localisers. A class's boxes are merged,
        and scored by its posterior in the classifier's score map (Simonyan & Zisserman 2015, A.1; Sermanet et al.
        2014).
        """
        answer = super().answered(pixels)
        labels = [self.numbers[name] for name in answer['answers']]
        found, scores = (np.concatenate(part) for part in zip(*self.predictions(pixels, labels)))
        best = [merged(found[:, k], scores[:, k], self.inference['merge']) for k in range(len(labels))]
        return {**answer, 'boxes': [np.clip(box, 0, 1).tolist() for box, _ in best],
                'scores': [float(score) for _, score in best]}

    def predictions(self, pixels, labels):
        """Return what `dense` does, for every scale and every fused net."""
        own = [self.dense(pixels, labels, scale) for scale in self.scales]
        return own + [found for each in self.fused for found in each.predictions(pixels, labels)]

    def dense(self, pixels, labels, scale):
        """Return the boxes [N, k, 4] of k classes at every position, and their posteriors there [N, k]."""
        shown, part = self.located(pixels, scale)
        vectors = self.vectors(shown[np.newaxis], labels)[0]
        h, w, k, _ = vectors.shape
        start = STRIDE * np.stack(np.meshgrid(np.arange(w), np.arange(h)), -1)
        windows = np.concatenate([start, start + self.input['crop']], -1) / np.tile(shown.shape[1::-1], 2)
        inside = within(corners(vectors), windows[:, :, np.newaxis].astype(np.float32))
        scores = classify.softmax(self.classifier.dense_scores(self.classifier.shown(pixels, scale)[np.newaxis]))[0]
        for axis, size in enumerate((h, w)):
            at = (np.arange(size) + 0.5) * scores.shape[axis] / size - 0.5
            scores = resampling.interpolated(scores, axis, at)
        return within(inside, part).reshape(-1, k, 4), scores[..., labels].reshape(-1, k)

    def vectors(self, images, labels):
        """Return the vectors of k classes at every position, [n, h', w', k, 4], for images [n, h, w, 3]."""
        found = self.dense_scores(images)
        found = found.reshape(*found.shape[:3], -1, 4)
        return found[..., labels if found.shape[3] > 1 else [0] * len(labels), :]

    def judged(self, images, names):
        """Return the box of the central crop for the class that each image, a file's bytes, is said to show: [n, 4]."""
        found, crop = [], self.input['crop']
        for image, name in zip(images, names):
            shown, part = self.located(classify.read(image), self.scale)
            size = np.array(shown.shape[:2])
            y, x = (size - crop) // 2
            window = (np.array([x, y, x + crop, y + crop]) / np.tile(size[::-1], 2)).astype(np.float32)
            vector = self.vectors(shown[np.newaxis, y:y + crop, x:x + crop], [self.numbers[name]])[0, 0, 0, 0]
            found.append(np.clip(within(corners(vector), within(window, part)), 0, 1))
        return np.array(found)


def corners(vector):
    """Convert centre, width and height [..., 4] to left, upper, right and lower end."""
    centre, half = vector[..., :2], vector[..., 2:] / 2
    return np.concatenate([centre - half, centre + half], -1)


def within(box, part):
    """Convert a box from fractions of a part of an image to fractions of the image."""
    start, size = part[..., :2], part[..., 2:] - part[..., :2]
    return np.concatenate([start + box[..., :2] * size, start + box[..., 2:] * size], -1)


def mismatch(a, b):
    """Return how little two boxes match: their distance in widths and heights, and the share not in common."""
    size = np.abs(a[..., 2:] - a[..., :2] + b[..., 2:] - b[..., :2]) / 2
    apart = quotient((a[..., 2:] + a[..., :2] - b[..., 2:] - b[..., :2]) / 2, size)
    both = area(np.concatenate([np.maximum(a[..., :2], b[..., :2]), np.minimum(a[..., 2:], b[..., 2:])], -1))
    return np.sqrt((apart ** 2).sum(-1)) + 1 - quotient(both, area(a) + area(b) - both)


def area(box):
    return np.maximum(box[..., 2:] - box[..., :2], 0).prod(-1)


def quotient(a, b):
    """Divide; what is divided by 0 is 0."""
    return np.divide(a, b, out=np.zeros_like(a), where=b != 0)


def merged(box, score, bound):
    """Merge the boxes [N, 4] of a class; return the one with the largest score, and that averaged over all boxes.

    While two match better than `bound`, the best two become their mean, weighted by the numbers of boxes that they
    combine; scores [N] are added.
    """
    box, score, count = box.copy(), score.copy(), np.ones(len(box), np.float32)
    apart = mismatch(box[:, np.newaxis], box)
    np.fill_diagonal(apart, FAR)
    while apart.min() <= bound:
        one, other = np.unravel_index(apart.argmin(), apart.shape)
        box[one] = (count[one] * box[one] + count[other] * box[other]) / (count[one] + count[other])
        score[one] += score[other]
        count[one] += count[other]
        count[other] = 0
        row = np.where(count == 0, FAR, mismatch(box[one], box))
        row[one] = FAR
        apart[one], apart[:, one], apart[other], apart[:, other] = row, row, FAR, FAR
    first = np.where(count > 0, score, -1).argmax()
    return box[first], score[first] / len(box)


load = Localiser

if __name__ == '__main__':
    classify.main(Localiser, __file__, __doc__)
