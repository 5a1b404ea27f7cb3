"""One side of a comparison: a process that repeats a piece of work on request, see `side_by_side.py`."""
import json
import resource
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np


class Work(NamedTuple):
    """A prepared piece of work.

    Attributes:
      answer: results by name; both sides must compute the same from equal inputs.
      once: does it once, waits for its end, and returns the number of units.
    """
    answer: dict[str, np.ndarray]
    once: Callable[[], int]


def _value(text: str):
    try:
        return json.loads(text)
    except ValueError:
        return text


def serve(works: dict[str, Callable[..., Work]]) -> None:
    """Serve the runner's protocol on standard input and output, for the work named on the command line.

    `python ours_text.py NAME ANSWER [key=value …]` makes the work ready, writes its answer to the file ANSWER and says
    so; then, for every line, a number of seconds, does the work for as long, and says how many units took how long.
    """
    name, answer, *given = sys.argv[1:]
    said, sys.stdout = sys.stdout, sys.stderr  # keep libraries' output away from the runner
    work = works[name](**{key: _value(value) for key, value in (pair.split('=', 1) for pair in given)})
    np.savez(answer, **work.answer)
    work.once()
    print(json.dumps({'ready': name}), file=said, flush=True)
    for line in sys.stdin:
        units, started = 0, time.perf_counter()
        while not units or time.perf_counter() < started + float(line):
            units += work.once()
        seconds = time.perf_counter() - started
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps({'units': units, 'seconds': seconds, 'peak_mib': peak}), file=said, flush=True)
