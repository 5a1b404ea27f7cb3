"""An exported model that builds quickly: an untrained learning machine that plays Nim."""
import json
import os

import tensorflow as tf

from keras_models import school
from keras_models.turing import educated
from pipelines.serving.layout import DESCRIPTION


def save(folder: str) -> str:
    """Saves the model of a pipeline `nim` as `export` does. Returns `folder`."""
    config = school.Config(game='nim', machines=2, memory=16, cards=64)
    machines = school.build(config)['machines']
    machines.tape.supply(0)
    player = educated.Player(machines.alone(0), educated.Inference())
    tf.saved_model.save(player, folder, signatures=player.signatures())
    os.makedirs(os.path.join(folder, 'assets.extra'), exist_ok=True)
    with open(os.path.join(folder, DESCRIPTION), 'w', encoding='utf-8') as file:
        json.dump({'name': 'nim', 'model_module': 'keras_models.school',
                   'config': {'export': {'jit': False}}}, file)
    return folder
