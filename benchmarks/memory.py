"""Runs speed/memory.py. This name goes with the next version."""
from moved import run

run('speed/memory.py')
