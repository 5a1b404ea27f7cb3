"""Layout of an exported model."""
import os

FORMAT = 'Format-Serving'  # folder of the SavedModel in a Model artifact
DESCRIPTION = os.path.join('assets.extra', 'landmark.json')
WARMUP = os.path.join('assets.extra', 'tf_serving_warmup_requests')
