"""A candidate search on a Dask cluster: two workers against one, and what a task costs beyond its
work.

    python benchmarks/cluster.py

The clock on the wall is what a cluster is for, so here, alone among the benchmarks, it is what is
measured; the least of several runs. On a machine whose cores are busy with other work two workers
cannot be twice as fast: the line below the table says what two plain processes reached side by side
at the same time.

Dask starts its workers with MALLOC_TRIM_THRESHOLD_ set, so that they give memory back at once;
large arrays are then mapped anew by the system every time they are made. What that costs is shown
by the CPU time of a candidate in a worker with that setting and in one without.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

from harness import conditions, table  # isort: skip (sets the threads)

from label_sets import softmax_rows

from dco import ClassProbabilities
from dco.foundations.parallel import run_many
from dco.scores import RAPS
from dco.tuning import tune

# What Dask's nanny sets beside MALLOC_TRIM_THRESHOLD_.
ONE_THREAD = {"OMP_NUM_THREADS": 1, "MKL_NUM_THREADS": 1, "OPENBLAS_NUM_THREADS": 1}


def candidate(seed: int, rows: int, classes: int) -> float:
    """One candidate as a worker sees it: a model's predictions (here drawn) and the size of its
    sets on tuning rows.
    """
    probabilities, y = softmax_rows(rows, classes, spread=2.0 + 0.01 * seed, seed=seed)
    score = RAPS(penalty=0.01, rank_free=5)
    return (
        tune({"raps": (score, ClassProbabilities(probabilities))}, y, alpha="0.1")
        .table[0]
        .mean_size
    )


def own_seconds(seed: int, rows: int, classes: int) -> float:
    """CPU seconds of one candidate where it runs, whatever else its process does."""
    start = time.thread_time()
    candidate(seed, rows, classes)
    return time.thread_time() - start


def nothing(item: int) -> int:
    """A task without work."""
    return item


def wall(job: Callable[[], object], repeats: int) -> float:
    """The least seconds on the clock."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        job()
        times.append(time.perf_counter() - start)
    return min(times)


def measure(tasks: int, empty: int, rows: int, classes: int, repeats: int) -> str:
    """One table."""
    import dask
    from distributed import Client, LocalCluster

    work = partial(candidate, rows=rows, classes=classes)
    items = list(range(tasks))
    alone = wall(lambda: run_many(work, items, n_jobs=1), repeats)
    own = partial(own_seconds, rows=rows, classes=classes)
    few = items[: 2 + tasks // 4]
    here = min(run_many(own, few, n_jobs=1))
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        list(pool.map(work, items[:2]))
        plain = wall(lambda: list(pool.map(work, items)), repeats)
    times: dict[int, float] = {}
    idle: dict[int, float] = {}
    # CPU seconds of a candidate in a worker, by whether Dask's setting is on
    there: dict[bool, float] = {}
    # Dask writes its setting into the environment of this process too, so what is to be without it
    # comes first.
    for workers, trimmed in ((1, False), (1, True), (2, True)):
        with (
            dask.config.set({} if trimmed else {"distributed.nanny.pre-spawn-environ": ONE_THREAD}),
            LocalCluster(
                n_workers=workers, threads_per_worker=1, dashboard_address=None
            ) as cluster,
            Client(cluster, set_as_default=False) as client,
        ):
            run_many(work, items[:workers], scheduler=client)  # workers import what they need
            if workers == 1:
                there[trimmed] = min(run_many(own, few, scheduler=client))
            if trimmed:
                times[workers] = wall(partial(run_many, work, items, scheduler=client), repeats)
                idle[workers] = (
                    wall(partial(run_many, nothing, range(empty), scheduler=client), repeats)
                    / empty
                )
    each, one, two = alone / tasks, times[1], times[2]
    return table(
        [f"{tasks} candidates, {rows:,} × {classes:,} each", "ratio"],
        [
            ["one worker / two workers", f"{one / two:.2f}"],
            ["this process / two workers (what the cluster gained)", f"{alone / two:.2f}"],
            ["this process / two plain processes (what the machine gave)", f"{alone / plain:.2f}"],
            ["one worker / this process", f"{one / alone:.2f}"],
            ["CPU time of a candidate, in a worker / in this process", f"{there[True] / here:.2f}"],
            [
                "the same in a worker without Dask's MALLOC_TRIM_THRESHOLD_",
                f"{there[False] / here:.2f}",
            ],
            ["overhead of a task, one worker / the work of a candidate", f"{idle[1] / each:.3f}"],
            ["overhead of a task, two workers / the work of a candidate", f"{idle[2] / each:.3f}"],
        ],
    ) + (
        f"\n\nOverhead of a task: {1e3 * idle[1]:.2f} ms with one worker, {1e3 * idle[2]:.2f} ms "
        f"with two ({empty} tasks "
        f"without work); a candidate was {1e3 * each:.0f} ms of work. The overhead of tasks does "
        f"not explain a "
        "worker that is slower than this process. The rows of CPU time say how much of that is "
        "memory which Dask's workers "
        "give back and map again."
    )


def main() -> None:
    """Print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=32)
    parser.add_argument("--empty", type=int, default=500)
    parser.add_argument("--rows", type=int, default=5_000)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=2)
    given = parser.parse_args()
    print(conditions() + "\n")
    print(measure(given.tasks, given.empty, given.rows, given.classes, given.repeats))


if __name__ == "__main__":
    main()
