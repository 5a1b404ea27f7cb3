"""Test images and a model's five most probable classes (Krizhevsky et al. 2012, figure 4, left)."""
import os

import numpy as np

from pipelines.reporting import contact_sheet
from pipelines.reproduction.experiments import Exhibit, Figure, Study
from pipelines.reproduction.plots import trained
from pipelines.serving import saved_model
from pipelines.serving.layout import FORMAT

NAME = 'top5.png'


def draw(study: Study, setting: str = '', pictures: int = 8, seed: int = 1) -> Exhibit:
    """Draw bars for the exported model of the setting's first run.

    Args:
      pictures: number of images, drawn at random from the test split.
      seed: of that draw.
    """
    run = trained.run(study, setting)
    model = saved_model.load(os.path.join(run.pipeline.outputs('export')['model'].uri, FORMAT))
    test = trained.split(run.pipeline, 'test')
    numbers = np.random.default_rng(seed).choice(len(test), min(pictures, len(test)), replace=False).tolist()
    images, columns = run.pipeline.config.data_spec.examples(test.read(numbers))
    answers = list(saved_model.run(model, images, len(images), False))
    words = dict(zip(*([text.decode() for text in each().numpy()] for each in (model.classes, model.descriptions))))
    contact_sheet.draw(os.path.join(study.out, NAME), [
        contact_sheet.Shown(image, '', found['answers'], found['probabilities'], truth)
        for image, found, truth in zip(images, answers, columns['target'])], words)
    title = f'{len(images)} test images drawn at random, seed {seed}, and their five most probable classes'
    return Exhibit({}, [Figure(title, f'<img src="{NAME}" alt="{title}">', shows_data=True)])
