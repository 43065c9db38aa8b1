"""Many independent calls: in this process, on many cores by joblib, or on a Dask cluster."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from numbers import Integral
from typing import Any, TypeVar

__all__ = [
    "check_n_jobs",
    "on_cluster",
    "run_many",
]

Item = TypeVar("Item")
Result = TypeVar("Result")

_CLUSTER: ContextVar[Any] = ContextVar("cluster", default=None)


@contextmanager
def on_cluster(scheduler: Any) -> Iterator[None]:
    """Run the calls of every `run_many` in here on the Dask cluster at `scheduler`.

    None changes nothing.
    """
    token = _CLUSTER.set(scheduler)
    try:
        yield
    finally:
        _CLUSTER.reset(token)


def check_n_jobs(n_jobs: int | None) -> None:
    """Refuse a number of jobs that joblib would refuse, however many items there are."""
    if n_jobs is not None and (not isinstance(n_jobs, Integral) or n_jobs == 0):
        raise ValueError(
            f"n_jobs must be None or a whole number other than 0 (-1 is all cores), got {n_jobs!r}."
        )


def run_many(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    *,
    n_jobs: int | None = None,
    scheduler: Any = None,
    progress: Callable[[int, int], None] | None = None,
    on_result: Callable[[Result], None] | None = None,
) -> list[Result]:
    """Return ``[function(item) for item in items]``, in that order, wherever the calls run.

    `n_jobs` is joblib's: None is one, unless a ``joblib.parallel_config`` says otherwise; -1 is all
    cores. `scheduler` is the address of a Dask cluster ("tcp://host:8786") or a
    ``distributed.Client``; see `run_on_cluster`. Randomness must come with the item (one seed
    each), so that the result does not depend on who runs what. `on_result(result)` and then
    `progress(done, total)` are called in this process as calls finish, so that results can be
    written down at once. The first error of a call is raised.
    """
    check_n_jobs(n_jobs)
    work = list(items)
    if scheduler is None:
        scheduler = _CLUSTER.get()
    if scheduler is not None:
        from dco.foundations.cluster import run_on_cluster

        return run_on_cluster(function, work, scheduler, progress=progress, on_result=on_result)

    results: list[Result] = []
    with _start_calls(function, work, n_jobs=n_jobs) as running:
        for result in running:
            results.append(result)
            if on_result is not None:
                on_result(result)
            if progress is not None:
                progress(len(results), len(work))
    return results


@contextmanager
def _start_calls(
    function: Callable[[Item], Result], work: list[Item], *, n_jobs: int | None
) -> Iterator[Iterable[Result]]:
    """Start calls in this process or in others; yield their results in order."""
    if n_jobs == 1 or len(work) < 2:
        yield map(function, work)
        return

    from joblib import Parallel, delayed, effective_n_jobs  # slow to import

    if effective_n_jobs(n_jobs) == 1:
        yield map(function, work)
        return

    with _keep_interrupts_from_children():
        running = Parallel(n_jobs=n_jobs, return_as="generator")(
            [delayed(function)(item) for item in work]
        )
    try:
        yield running
    finally:
        _give_up(running)


class _GivenUpError(Exception):
    """Calls are given up."""


def _give_up(running: Any) -> None:
    """End the workers of calls that are left early, as by Ctrl-C; do nothing if all returned."""
    with suppress(_GivenUpError):
        # joblib ends them as by close(), without a warning that counts the calls given up
        running.throw(_GivenUpError)


@contextmanager
def _keep_interrupts_from_children() -> Iterator[None]:
    """Keep Ctrl-C from processes that start in here; this one sees it at the end.

    A terminal sends Ctrl-C to all processes, and each would print a traceback. Children and threads
    block from their start what their process blocks.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    from multiprocessing import resource_tracker

    # joblib would start it; in Python 3.11 its start ends the block
    resource_tracker.ensure_running()
    mask_before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask_before)
