"""What every benchmark shares: the least CPU time of several runs, and Markdown.

CPU time of this process, not the clock on the wall: on a shared machine other people's work does
not count. It still shifts with what they do to caches and to the clock of the core, so two things
that are compared are timed in turn and only their ratio is reported. Libraries are held to one
thread, or one would be charged for the cores that another leaves idle.
"""

from __future__ import annotations

import os

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    # before NumPy is loaded, which every benchmark does after this module
    os.environ.setdefault(variable, "1")

import platform  # noqa: E402
import time  # noqa: E402
from collections.abc import Callable, Mapping, Sequence  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402


def once(job: Callable[[], Any]) -> tuple[float, Any]:
    """CPU seconds of one run, and what it returned."""
    start = time.process_time()
    result = job()
    return max(time.process_time() - start, 1e-9), result  # a coarse clock may show nothing


def least(job: Callable[[], Any], repeats: int) -> float:
    """The least CPU seconds of several runs."""
    return min(once(job)[0] for _ in range(repeats))


def in_turn(jobs: Mapping[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """The least CPU seconds of each job; they are run in turn, so that a busy spell hits them
    all.
    """
    times: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(repeats):
        for name, job in jobs.items():
            times[name].append(once(job)[0])
    return {name: min(each) for name, each in times.items()}


def compare_and_count(*arrays: np.ndarray) -> int:
    """The floor of label sets: look at every number once."""
    return sum(int(np.count_nonzero(array >= array.dtype.type(0.5))) for array in arrays)


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table; columns after the first are aligned to the right."""
    lines = ["| " + " | ".join(head) + " |", "|---" + "|---:" * (len(head) - 1) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(map(str, row)) + " |" for row in rows)])


def verdict(value: float, *, at_most: float | None = None, at_least: float | None = None) -> str:
    """The target, and whether this run met it."""
    if at_most is not None:
        return f"≤ {at_most:g}: {'met' if value <= at_most else 'MISSED'}"
    assert at_least is not None
    return f"≥ {at_least:g}: {'met' if value >= at_least else 'MISSED'}"


def conditions() -> str:
    """The machine, in one line."""
    load = os.getloadavg()
    model = next(
        (line.split(":")[1].strip() for line in _cpu_lines() if line.startswith("model name")),
        platform.machine(),
    )
    return (
        f"Python {platform.python_version()}, NumPy {np.__version__}, {model}, {os.cpu_count()} "
        f"cores, one thread each, "
        f"load average {load[0]:.1f} at the start."
    )


def _cpu_lines() -> list[str]:
    try:
        with open("/proc/cpuinfo") as file:
            return file.readlines()
    except OSError:
        return []
