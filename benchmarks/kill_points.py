"""Runs robustness/kill_points.py. This name goes with the next version."""
from moved import run

run('robustness/kill_points.py')
