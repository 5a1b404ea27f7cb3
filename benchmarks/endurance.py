"""Runs robustness/endurance.py. This name goes with the next version."""
from moved import run

run('robustness/endurance.py')
