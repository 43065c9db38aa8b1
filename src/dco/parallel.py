"""Many independent calls: in this process, on many cores by joblib, or on a Dask cluster by its address."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from dco.extras import require

Item = TypeVar("Item")
Result = TypeVar("Result")


def run_many(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    *,
    n_jobs: int | None = None,
    scheduler: Any = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[Result]:
    """``[function(item) for item in items]``, in that order, wherever the calls run.

    `n_jobs` is joblib's (None is one, unless a ``joblib.parallel_config`` says otherwise; -1 is all cores). `scheduler`
    is the address of a Dask cluster ("tcp://host:8786") or a ``distributed.Client``; calls of a lost worker are run again
    on the others. Randomness must come in with the item (a seed each), so that the result does not depend on who runs
    what. `progress(done, total)` is called in this process as calls end. The first error of a call is raised here.
    """
    work = list(items)
    if scheduler is not None:
        return _on_cluster(function, work, scheduler, progress)
    if n_jobs == 1 or len(work) < 2:
        return _in_order(map(function, work), len(work), progress)
    from joblib import Parallel, delayed, effective_n_jobs  # a base dependency, but slow to import

    if effective_n_jobs(n_jobs) == 1:
        return _in_order(map(function, work), len(work), progress)
    calls = Parallel(n_jobs=n_jobs, return_as="generator")(delayed(function)(item) for item in work)
    return _in_order(calls, len(work), progress)


def _in_order(results: Iterable[Result], total: int, progress: Callable[[int, int], None] | None) -> list[Result]:
    collected: list[Result] = []
    for result in results:
        collected.append(result)
        if progress is not None:
            progress(len(collected), total)
    return collected


def _on_cluster(
    function: Callable[[Item], Result], work: list[Item], scheduler: Any, progress: Callable[[int, int], None] | None
) -> list[Result]:
    distributed = require("distributed", extra="dask")
    if not isinstance(scheduler, str):
        return _gathered(distributed, scheduler, function, work, progress)
    with distributed.Client(scheduler, set_as_default=False) as client:
        return _gathered(distributed, client, function, work, progress)


def _gathered(
    distributed: Any,
    client: Any,
    function: Callable[[Item], Result],
    work: list[Item],
    progress: Callable[[int, int], None] | None,
) -> list[Result]:
    futures = client.map(function, work, pure=False)  # equal items are separate calls: they may write
    try:
        for done, future in enumerate(distributed.as_completed(futures, loop=client.loop), start=1):
            if future.status == "error":
                future.result()  # raises at once, rather than after every other call
            if progress is not None:
                progress(done, len(work))
        results: list[Result] = client.gather(futures)
    finally:
        client.cancel(futures)
    return results
