"""What `dco fit`, `evaluate` and `compare` cost as they come: CPU seconds, and how many threads
want a core at a time.

    python benchmarks/commands.py --rows 200000

No variable that counts threads is set, as for a user. A thread wants a core while it runs or waits
for one; Linux counts both for each thread (`/proc/PID/task/TID/schedstat`), so what else the
machine does changes nothing. Processes that load their modules and joblib's two watchers, which
sleep after their start, are left out of "while models are fitted".
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from harness import conditions, table, verdict  # isort: skip (sets the threads)

import numpy as np
import pandas as pd
from sklearn.datasets import load_diabetes

SMALL, COLUMNS = 133, 16
MOST_SECONDS, MOST_RATIO = 45.0, 1.5
WINDOW = 0.5  # seconds
LOADED = 1.5  # CPU seconds in which a process has loaded its modules
COUNTS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
PLAIN = {name: value for name, value in os.environ.items() if name not in COUNTS}


def write_tables(folder: Path, rows: int) -> None:
    """The first rows of Diabetes, and a made table of 16 columns of numbers, two of text and a
    label.
    """
    small = load_diabetes(as_frame=True).frame.iloc[:SMALL]
    small.to_csv(folder / "small.csv", index=False)
    rng = np.random.default_rng(0)
    numbers = rng.normal(size=(rows, COLUMNS))
    chance = 1 / (1 + np.exp(-numbers[:, 0] - np.sin(3 * numbers[:, 1])))
    large = pd.DataFrame(numbers.round(4)).add_prefix("number ")
    large["text"], large["more text"] = (
        rng.choice(list("abcdef"), rows),
        rng.choice(list("xyz"), rows),
    )
    large["target"] = np.where(rng.uniform(size=rows) < chance, "yes", "no")
    large.to_csv(folder / "large.csv", index=False)


def wanted(process: int) -> dict[tuple[int, int], tuple[float, bool]]:
    """For each thread below a process: seconds that it has run or waited, and whether its process
    computes by now.
    """
    found, left = {}, [process]
    while left:
        pid = left.pop()
        try:
            watcher = b"resource_tracker" in Path(f"/proc/{pid}/cmdline").read_bytes()
            tasks = list(Path(f"/proc/{pid}/task").iterdir())
            times = [
                [int(each) for each in (task / "schedstat").read_text().split()[:2]]
                for task in tasks
            ]
            left += [
                int(child) for task in tasks for child in (task / "children").read_text().split()
            ]
        except OSError:  # it has ended
            continue
        loaded = not watcher and sum(run for run, _ in times) / 1e9 > LOADED
        found |= {
            (pid, int(t.name)): (sum(each) / 1e9, loaded)
            for t, each in zip(tasks, times, strict=True)
        }
    return found


def run(
    arguments: Sequence[str], folder: Path, environment: dict[str, str]
) -> tuple[float, float, float]:
    """CPU seconds of a command, and the most threads that want a core in a window: of all, and
    while models are fitted.
    """
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "dco", *arguments]
    running = subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    before, then, most, most_fitting = wanted(running.pid), time.monotonic(), 0.0, 0.0
    while running.poll() is None:
        time.sleep(WINDOW)
        after, now = wanted(running.pid), time.monotonic()
        shares = {
            key: (spent - before[key][0]) / (now - then)
            for key, (spent, _) in after.items()
            if key in before
        }
        most = max(most, sum(shares.values()))
        most_fitting = max(
            most_fitting, sum(share for key, share in shares.items() if before[key][1])
        )
        before, then = after, now
    if running.returncode:
        raise RuntimeError(f"{' '.join(arguments)} failed")
    end = resource.getrusage(resource.RUSAGE_CHILDREN)
    return end.ru_utime + end.ru_stime - used.ru_utime - used.ru_stime, most, most_fitting


@contextmanager
def busy_machine(processes: int) -> Iterator[None]:
    """As many processes that never rest."""
    spinning = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)
    ]
    try:
        yield
    finally:
        for each in spinning:
            each.kill()
            each.wait()


def measure(rows: int, repeats: int) -> str:
    """Three commands on a large table, and a fit of few rows on a busy machine with and without a
    number of threads.
    """
    cores, cells = os.cpu_count() or 1, []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_tables(folder, rows)
        fit = ("fit", "large.csv", "--target", "target", "--force", "--out", "large.dco")
        jobs: dict[str, tuple[str, ...]] = {
            f"`fit`, {rows:,} rows, 19 columns": fit,
            f"`fit --jobs -1`, {rows:,} rows": (*fit, "--jobs", "-1"),
            f"`evaluate`, {rows:,} rows": ("evaluate", "large.dco", "large.csv"),
            f"`compare --jobs -1`, {SMALL} rows": (
                "compare",
                "small.csv",
                "--target",
                "target",
                "--jobs",
                "-1",
            ),
        }
        for job, arguments in jobs.items():
            seconds, most, fitting = run(arguments, folder, PLAIN)
            target = verdict(seconds, at_most=MOST_SECONDS) if arguments == fit else ""
            on_cores = verdict(round(fitting, 1), at_most=cores)
            cells.append([job, f"{seconds:.1f}", target, f"{most:.1f}", f"{fitting:.1f}", on_cores])
        small = ("fit", "small.csv", "--target", "target", "--force", "--out", "small.dco")
        with busy_machine(2 * cores):
            plain, one = [], []
            for _ in range(repeats):
                plain.append(run(small, folder, PLAIN)[0])
                one.append(run(small, folder, PLAIN | dict.fromkeys(COUNTS, "1"))[0])
    ratio = min(plain) / min(one)
    head = [
        "command",
        "CPU s",
        "target",
        "most threads that want a core",
        "while models are fitted",
        "target: cores",
    ]
    busy = (
        f"`fit` of {SMALL} rows beside {2 * cores} processes that never rest: "
        f"{min(plain):.1f} CPU s as it comes,"
    )
    busy += (
        f" {min(one):.1f} with one thread for everything: ratio {ratio:.2f}, "
        f"{verdict(ratio, at_most=MOST_RATIO)}."
    )
    return f"{table(head, cells)}\n\n{busy}"


def main() -> None:
    """Print a Markdown table and a sentence."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    print(conditions().replace("one thread each, ", ""))
    print()
    print(measure(given.rows, given.repeats))


if __name__ == "__main__":
    main()
