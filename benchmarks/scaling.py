"""Runs speed/scaling.py. This name goes with the next version."""
from moved import run

run('speed/scaling.py')
