"""Runs speed/cost_model.py. This name goes with the next version."""
from moved import run

run('speed/cost_model.py')
