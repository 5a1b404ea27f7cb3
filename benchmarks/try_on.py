"""Runs studies/try_on.py. This name goes with the next version."""
from moved import run

run('studies/try_on.py')
