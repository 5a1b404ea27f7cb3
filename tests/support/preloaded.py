"""Import the libraries and the project in the fork server, so that no child imports them."""
import gc
import importlib
import logging
import pkgutil

import data_prep
import keras_models
import pipelines
from pipelines.core import artifacts, cli
from pipelines.training import strategy
from support import garbage, quick_beam, tensorflow_state

cli.prepare_libraries()
gc.disable()
for name in ('tensorflow', 'tensorflow_text', 'tensorflow_model_analysis', 'tensorflow_data_validation', 'orbit',
             'ml_metadata', 'matplotlib.pyplot', 'rich.console', 'rich.table', 'jinja2', 'sacrebleu', 'sklearn.svm'):
    importlib.import_module(name)
modules = [module.name for package in (data_prep, keras_models, pipelines)
           for module in pkgutil.walk_packages(package.__path__, f'{package.__name__}.')
           if not module.name.startswith('pipelines.serving.kit.')]  # clients, which run elsewhere
for name in modules:
    importlib.import_module(name)
artifacts.closure(modules)  # it remembers the sources that it parsed, which every stage asks for
quick_beam.install()
tensorflow_state.rewrite_graphs(False)
logging.root.handlers.clear()  # one of the libraries sets up logging; a command that does not import it has none
# Forked with its threads gone, a started TensorFlow would hang; and no child could set up its devices.
assert not strategy._started(), 'importing the project started TensorFlow'
garbage.begin()  # no child goes through what it shares with its siblings
