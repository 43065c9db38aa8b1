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

# The Dask cluster on which calls of `run_many` run, unless they name another; see `on_cluster`.
_CLUSTER: ContextVar[Any] = ContextVar("cluster", default=None)


@contextmanager
def on_cluster(scheduler: Any) -> Iterator[None]:
    """Make every `run_many` inside this context run its calls on the Dask cluster at `scheduler`.

    With None they run in this process, or in others on this machine.
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
    """Yield an iterable of the results, in order, of calls that run as joblib's `n_jobs` says.

    With one job, or one call, they run in this process, each when its result is asked for. With
    more, processes are started, which end with this context even if not all results were taken.
    """
    if n_jobs == 1 or len(work) < 2:
        yield map(function, work)
        return

    from joblib import Parallel, delayed, effective_n_jobs  # slow to import

    if effective_n_jobs(n_jobs) == 1:
        yield map(function, work)
        return

    calls = [delayed(function)(item) for item in work]
    results = None
    try:
        # Ctrl-C that comes while workers start is raised at the end of this inner context.
        with _keep_interrupts_from_children():
            results = Parallel(n_jobs=n_jobs, return_as="generator")(calls)
        yield results
    finally:
        if results is not None:
            _end_workers(results)


class _StoppedEarlyError(Exception):
    """Thrown into joblib's generator of results to make it end its workers."""


def _end_workers(results: Any) -> None:
    """End joblib's workers if calls are left early, as by Ctrl-C; do nothing if all returned.

    `results` is joblib's generator. Its close() would end them too, but warn of each call that had
    no result; an error thrown into it does not.
    """
    with suppress(_StoppedEarlyError):
        results.throw(_StoppedEarlyError)


@contextmanager
def _keep_interrupts_from_children() -> Iterator[None]:
    """Make processes that are started inside this context ignore Ctrl-C.

    A terminal sends Ctrl-C to all processes, and each would print a traceback. Here this process
    blocks the signal while it starts others, since they block from their start what it blocks. If
    Ctrl-C is pressed meanwhile, this process gets it at the end of the context.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    from multiprocessing import resource_tracker

    # Joblib would start this helper process inside, and in Python 3.11 its start unblocks the
    # signal: so start it before.
    resource_tracker.ensure_running()
    mask_before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask_before)
