"""Runs robustness/push_sweep.py. This name goes with the next version."""
from moved import run

run('robustness/push_sweep.py')
