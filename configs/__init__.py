"""YAML files, one a runnable experiment. They ship with the package, so an installed wheel runs from any folder."""
