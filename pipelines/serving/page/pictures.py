"""Image page: class scores as bars, the dense score map over the image, boxes, and each class's confusions."""
import numpy as np
import tensorflow as tf

from pipelines.serving import guard
from pipelines.serving.failure import invalid, of_model
from pipelines.serving.models import Version, warmup_requests


def examples(version: Version) -> list[int]:
    """Return the numbers of the images exported with the model."""
    return list(range(min(8, len(_images(version)))))


def example(version: Version, number: int) -> bytes | None:
    found = _images(version)
    return found[number] if number < len(found) else None


def _images(version: Version) -> list[bytes]:
    return [image for _, inputs in warmup_requests(version.path)
            for image in inputs.get('image', np.array([], object)).tolist()]


async def ask(page, model, version: Version, image: bytes) -> dict:
    """Classify one image."""
    if not isinstance(image, bytes):
        raise invalid('Send the bytes of one image.')
    inputs = {'image': np.array([image], object)}
    await page.call(guard.check, inputs, version.description)
    found = await page.predict(version, 'serving_default', inputs)
    classes = [{'label': label.decode(), 'description': text.decode(), 'probability': round(float(p), 5)}
               for label, text, p in zip(found['labels'][0], found['descriptions'][0], found['probabilities'][0])]
    for each, box in zip(classes, found['boxes'][0].tolist() if 'boxes' in found else []):
        each['box'] = [round(end, 4) for end in box]
    confusions = await page.cards.confusions(model, version)
    for each in classes:
        taken = confusions.get(each['label'], {})
        each['taken_for'] = [[label, count] for label, count in taken.items() if label != each['label']]
        each['tested'] = sum(taken.values())
    answer = {'classes': classes}
    if hasattr(version.model, 'score_map'):
        answer['map'] = await page.call(_map, version, image, [each['label'] for each in classes[:3]])
    return answer


def _map(version: Version, image: bytes, labels: list[str]) -> dict:
    """Return the best classes' posteriors at every place of the dense view, at the scale the net sees."""
    try:
        scale = min(version.model.picture(tf.constant(image)).shape[:2])
        scores = version.model.score_map(tf.constant(image), tf.constant(scale)).numpy()
        names = [name.decode() for name in version.model.classes().numpy()]
    except tf.errors.OpError as error:
        raise of_model(error) from error
    return {'height': scores.shape[0], 'width': scores.shape[1],
            'scores': {label: np.round(scores[..., names.index(label)], 4).reshape(-1).tolist() for label in labels}}


ACTIONS = {'image': ask}
