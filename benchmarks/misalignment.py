"""Runs studies/misalignment.py. This name goes with the next version."""
from moved import run

run('studies/misalignment.py')
