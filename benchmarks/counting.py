"""The order statistic of scores in many files, by counting on a Dask cluster of two workers,
against a sort of all of them.

    python benchmarks/counting.py --rows 1000000 10000000 100000000

The clock on the wall is what is measured, once: on a busy machine it moves by a factor of two.
"""

from __future__ import annotations

import argparse
import os
import resource
import signal
import tempfile
import threading
import time
from functools import partial
from pathlib import Path

from harness import conditions, table, verdict  # isort: skip (sets the threads)

import numpy as np

from dco import conformal_rank, partitioned_conformal
from dco.foundations.parallel import run_many

PARTS, ALPHA, MOST = 100, 0.1, 1000  # megabytes of a worker


def write_part(part: int, rows: int, folder: str) -> str:
    """A file of scores with some ties."""
    path = Path(folder) / f"part-{part}.npy"
    scores = np.random.default_rng(part).gamma(2.0, size=rows)
    scores[::50] = np.round(scores[::50], 2)
    np.save(path, scores)
    return str(path)


def by_sort(paths: list[str], rows: int) -> float:
    """The score of the same rank among all in memory."""
    scores = np.concatenate([np.load(path) for path in paths])
    rank = conformal_rank(rows, alpha=ALPHA)
    scores.partition(rank - 1)
    return float(scores[rank - 1])


def largest(_: int) -> tuple[int, float]:
    """A worker and its peak memory so far, in megabytes."""
    time.sleep(0.2)  # so that both workers are asked
    return os.getpid(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def kill_one(client: object, after: float) -> None:
    """End a worker while it is at work."""
    time.sleep(after)
    processes = client.run(os.getpid)  # type: ignore[attr-defined]
    os.kill(next(iter(processes.values())), signal.SIGKILL)


def measure(sizes: list[int]) -> str:
    """One row for each number of scores."""
    from distributed import Client, LocalCluster

    rows, times = [], []
    for size in sizes:
        with (
            tempfile.TemporaryDirectory() as folder,
            LocalCluster(
                n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50
            ) as cluster,
            Client(cluster) as client,
        ):
            where = {"scheduler": client}
            paths = run_many(
                partial(write_part, rows=size // PARTS, folder=folder), range(PARTS), **where
            )
            parts = [partial(np.load, path) for path in paths]
            start = time.perf_counter()
            found = partitioned_conformal(parts, alpha=ALPHA, **where)
            times.append(time.perf_counter() - start)
            peak = max(dict(run_many(largest, range(8), **where)).values())
            killer = threading.Thread(target=kill_one, args=(client, times[-1] / 3))
            killer.start()
            again = partitioned_conformal(parts, alpha=ALPHA, **where)
            killer.join()
            wanted = by_sort(paths, size)
        equal = "yes" if found.value == wanted else "NO"
        survived = "yes" if again == found else "NO"
        rows.append(
            [
                f"{size:,}",
                f"{times[-1]:.1f}",
                f"{peak:.0f}",
                verdict(peak, at_most=MOST),
                equal,
                survived,
            ]
        )
    head = [
        "scores",
        "seconds",
        "peak of a worker, MB",
        "target",
        "equal to the sort",
        "the same after a worker was killed",
    ]
    text = table(head, rows)
    if len(sizes) > 1:
        slope = np.polyfit(np.log(sizes), np.log(times), 1)[0]
        text += f"\n\nSlope of log time over log rows: {slope:.2f}."
    return text


def main() -> None:
    """Print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="*", default=[10**6, 10**7, 10**8])
    given = parser.parse_args()
    print(conditions() + "\n")
    print(
        f"`dco.partitioned_conformal`, {PARTS} files on two workers of one machine; seconds on "
        f"the clock, one run.\n"
    )
    print(measure(given.rows))


if __name__ == "__main__":
    main()
