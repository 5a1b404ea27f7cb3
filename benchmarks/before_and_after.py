"""Runs studies/before_and_after.py. This name goes with the next version."""
from moved import run

run('studies/before_and_after.py')
