"""Runs speed/side_by_side.py. This name goes with the next version."""
from moved import run

run('speed/side_by_side.py')
