"""Runs robustness/fuzz.py. This name goes with the next version."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))  # it was also run as a module

from moved import run  # noqa: E402

run('robustness/fuzz.py')
