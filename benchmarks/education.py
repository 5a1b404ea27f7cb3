"""Runs studies/education.py. This name goes with the next version."""
from moved import run

run('studies/education.py')
