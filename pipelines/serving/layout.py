"""Where the parts of an exported model lie."""
import os

FORMAT = 'Format-Serving'  # the SavedModel, in a Model artifact
DESCRIPTION = os.path.join('assets.extra', 'landmark.json')
WARMUP = os.path.join('assets.extra', 'tf_serving_warmup_requests')
