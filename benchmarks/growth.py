"""Runs speed/growth.py. This name goes with the next version."""
from moved import run

run('speed/growth.py')
