"""Check that an exported model's files are the recorded ones."""
import os

import tensorflow as tf

from data_prep import UserError
from pipelines.core import artifacts, metadata
from pipelines.serving import published


def check_hashes(saved_model: str) -> None:
    """Refuse a SavedModel whose files differ from the record, because running it executes it as a program.

    A pushed version contains its hashes; those of an exported model are in its pipeline's metadata.

    Raises:
      UserError: the files differ, or no hashes are recorded.
    """
    if tf.io.gfile.exists(os.path.join(saved_model, published.RECORD)):
        published.verify(saved_model)
    else:
        check_artifact(os.path.dirname(saved_model.rstrip('/')), saved_model)


def check_artifact(folder: str, loaded: str = '') -> None:
    """Refuse a folder whose files differ from those its pipeline recorded.

    Args:
      loaded: the part of it to be loaded, for the message; by default all of it.
    """
    loaded = loaded or folder
    recorded, root = None, metadata.root_of(folder)
    if root:
        place = os.path.join('/', *folder.rstrip('/').split('/')[-3:])  # export/<execution>/model
        recorded = next((digest for _, uri, digest in metadata.opened(root).digests('Model')
                         if f'/{uri}'.endswith(place)), None)
    if not recorded:
        raise UserError(f'{loaded} is not loaded because nothing records its hashes: it has no '
                        f'{published.RECORD} and no pipeline recorded it. Give a pushed version, or an exported model '
                        'where its pipeline wrote it.')
    if artifacts.digest(folder) != recorded:
        raise UserError(f'{loaded} is not loaded: its files are not those that were exported (SHA-256 differs). '
                        f'Remove {folder} and run the pipeline again.')
