"""Runs speed/machine_moves.py. This name goes with the next version."""
from moved import run

run('speed/machine_moves.py')
