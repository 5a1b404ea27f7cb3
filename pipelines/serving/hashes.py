"""Whether the files of an exported model are those that were recorded."""
import os

import tensorflow as tf

from data_prep import UserError
from pipelines.core import artifacts, metadata
from pipelines.serving import pusher


def check_hashes(saved_model: str) -> None:
    """Refuses a SavedModel whose files are not those that were recorded: it is a program, and runs when it is asked.

    A pushed version has their hashes with it; those of an exported model are in its pipeline's metadata.

    Raises:
      UserError: they differ, or nothing is recorded of them.
    """
    if tf.io.gfile.exists(os.path.join(saved_model, pusher.RECORD)):
        pusher.verify(saved_model)
        return
    folder = os.path.dirname(saved_model.rstrip('/'))
    recorded, root = None, metadata.root_of(folder)
    if root:
        place = os.path.join('/', *folder.split('/')[-3:])  # export/<execution>/model
        recorded = next((digest for _, uri, digest in metadata.opened(root).digests('Model')
                         if f'/{uri}'.endswith(place)), None)
    if not recorded:
        raise UserError(f'{saved_model} is not loaded, for nothing says which files it should have: it has no '
                        f'{pusher.RECORD} and no pipeline recorded it; give a pushed version, or an exported model '
                        'where its pipeline left it.')
    if artifacts.digest(folder) != recorded:
        raise UserError(f'{saved_model} is not loaded: its files are not those that were exported (SHA-256 differs); '
                        f'remove {folder} and run the pipeline again.')
