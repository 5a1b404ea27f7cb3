"""Runs speed/prepare_scale.py. This name goes with the next version."""
from moved import run

run('speed/prepare_scale.py')
