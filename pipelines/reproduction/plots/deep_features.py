"""Tables 11 and 12 of Simonyan & Zisserman 2015: a linear SVM on deep features, beside one on raw pixels."""
import io
import os
from typing import Any

import numpy as np
from PIL import Image

from data_prep import UserError
from data_prep.core import records
from keras_models.image import deep_features
from pipelines.reproduction.experiments import Exhibit, Study
from pipelines.serving import saved_model
from pipelines.serving.layout import FORMAT

PIXELS = 'raw pixels'
SIDE = 32  # side of the images used as raw pixels


def draw(study: Study, target: str, scales: dict[str, list[int]], rows: dict[str, dict], train: int = 30,
         test: int = 50, splits: int = 3, split: str = 'train') -> Exhibit:
    """Compute mean class recall and mAP over random splits, for each of `rows` and for raw pixels.

    Args:
      target: the setting whose data is classified; of its stages only `prepare` runs.
      scales: Q, at each scale of the experiment.
      rows: name -> `nets`, the settings whose exported models describe an image; `stack: true` to stack scales instead
        of averaging them; `only`, the single scale to use; `box: true` to also describe, stacked, the bounding box that
        comes with an image.
      train, test, splits: images per class, as in `deep_features.splits`, and number of splits.
      split: the part of the target's data set they are drawn from.
    """
    [home] = [run for run in study.runs if run.setting == target][:1]
    examples = home.pipeline.outputs('prepare')['examples'].uri
    module = home.pipeline.config.data_spec
    label = labels(examples, split, module)
    drawn = [deep_features.splits(label, train, test, number) for number in range(splits)]
    needed = sorted({row for parts in drawn for part in parts for row in part.tolist()})
    shown = pictures(examples, split, module, needed, any(row.get('box') for row in rows.values()))

    def measured(x) -> dict[str, float]:
        place = {row: i for i, row in enumerate(needed)}
        found = [deep_features.judged(*(deep_features.Known(x[[place[row] for row in part]], label[part])
                                        for part in parts)) for parts in drawn]
        return {name: float(np.mean([each[name] for each in found])) for name in ('mean class recall', 'mAP')}
    values = {(PIXELS, 0): measured(pixels(shown['picture']))}
    for seed in sorted({run.seed for run in study.runs}):
        models = {net: saved_model.load(_exported(study, net, seed))
                  for net in dict.fromkeys(net for asked in rows.values() for net in asked['nets'])}
        found = {(net, part): [deep_features.features(model, each, scale) for scale in scales[study.kind]]
                 for net, model in models.items() for part, each in shown.items()}
        for name, asked in rows.items():
            one = slice(asked['only'], asked['only'] + 1) if 'only' in asked else slice(None)
            parts = ['picture', 'box'] if asked.get('box') else ['picture']
            values[name, seed] = measured(deep_features.joined([
                deep_features.combined(found[net, part][one], asked.get('stack', False))
                for part in parts for net in asked['nets']]))
    return Exhibit(values)


def _exported(study: Study, setting: str, seed: int) -> str:

    for run in study.runs:
        if (run.setting, run.seed) == (setting, seed):
            return os.path.join(run.pipeline.outputs('export')['model'].uri, FORMAT)
    raise UserError(f'exhibit deep_features: {setting!r} is not a setting that is run.')


def labels(examples: str, split: str, module) -> Any:
    """Return the classes of a split's images as numbers [n]."""
    held, names = records.open_split(examples, split), []
    for start in range(0, len(held), 1000):
        names += module.examples(held.read(range(start, min(start + 1000, len(held)))))[1]['target']
    return np.unique(names, return_inverse=True)[1]


def pictures(examples: str, split: str, module, rows: list[int], boxes: bool) -> dict[str, list[bytes]]:
    """Return the encoded images of these rows, `picture`, and on request their first `box`, or else the whole image."""
    found, text = module.examples(records.open_split(examples, split).read(rows))
    return {'picture': found, **({'box': [cut(each, box) for each, box in zip(found, text['boxes'])]} if boxes else {})}


def cut(picture: bytes, box: list[float]) -> bytes:
    """Crop a box, its ends in fractions of width and height, and return it as a PNG."""
    if not box:
        return picture
    with Image.open(io.BytesIO(picture)) as image:
        left, upper, right, lower = (round(end * side) for end, side in zip(box, image.size * 2))
        part, out = image.convert('RGB').crop((left, upper, max(right, left + 1), max(lower, upper + 1))), io.BytesIO()
        part.save(out, 'PNG')
    return out.getvalue()


def pixels(shown: list[bytes]) -> Any:
    """Return images rescaled to SIDE x SIDE, less their mean, as descriptors of unit length [n, 3 SIDE^2]."""
    found = np.stack([np.asarray(Image.open(io.BytesIO(each)).convert('RGB').resize((SIDE, SIDE))) for each in shown])
    flat = found.reshape(len(found), -1).astype(np.float32)
    return deep_features.unit(flat - flat.mean(0))
