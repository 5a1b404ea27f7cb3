"""Name the hardware that a number was measured on, and choose kernels for it."""
import functools
import os
import pathlib
import platform
from collections.abc import Sequence


@functools.cache
def cpu() -> tuple[str, frozenset[str]]:
    """Return the processor's model name and instruction sets, as Linux names them; empty if it names none."""
    file = pathlib.Path('/proc/cpuinfo')
    lines = [line.partition(':') for line in file.read_text().split('\n\n')[0].splitlines()] if file.exists() else []
    found = {key.strip(): value.strip() for key, _, value in lines}
    return found.get('model name', ''), frozenset(found.get('flags', '').split())


def cores() -> list[int]:
    """Return the cores this process may use; all where the system does not tell."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else [*range(os.cpu_count() or 1)]


def prefer_onednn() -> None:
    """Let TensorFlow use oneDNN on every processor with AVX2, unless the environment says otherwise.

    By itself, TensorFlow 2.15 uses it only on those with VNNI or bfloat16 instructions. Held to AVX2, every net that
    was measured is faster with it (`docs/scaling.md`). TensorFlow reads the variable when it is imported.
    """
    if 'avx2' in cpu()[1]:
        os.environ.setdefault('TF_ENABLE_ONEDNN_OPTS', '1')


def describe(accelerators: Sequence[str] = ()) -> str:
    """Describe the hardware, such as `Intel(R) Xeon(R) Processor, 2 cores, AVX-512`.

    Args:
      accelerators: names of the accelerators in use.
    """
    model, flags = cpu()
    count = len(cores())
    vectors = next((name for flag, name in (('avx512f', 'AVX-512'), ('avx2', 'AVX2')) if flag in flags), '')
    parts = [*accelerators, model or platform.machine(), f'{count} core' + 's' * (count > 1), vectors]
    return ', '.join(part for part in parts if part)
