"""Many independent calls: in this process, on many cores by joblib, or on a Dask cluster by its
address.
"""

from __future__ import annotations

import logging
import signal
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from numbers import Integral
from typing import Any, TypeVar

from dco.foundations.extras import require

__all__ = [
    "FOLLOWER",
    "Follower",
    "check_n_jobs",
    "followed",
    "on_cluster",
    "run_many",
]

Item = TypeVar("Item")
Result = TypeVar("Result")

_LISTENER_SECONDS = 5.0
_RETRY_SECONDS = 0.25
_POLL_SECONDS = 0.02
_LOOK_SECONDS = 10.0  # between two looks for workers; some may just be starting
_WITHOUT_WORKERS_SECONDS = 300.0
_LOG = logging.getLogger("dco")
_LONGEST_GREETING = 2**20  # bytes; it takes some 60, and text read as a length gives far more
# candidates, the model of each fit, fits done, fits in all
Follower = Callable[[int, list[str], int, int], None]
FOLLOWER: ContextVar[Follower | None] = ContextVar("follower", default=None)
_CLUSTER: ContextVar[Any] = ContextVar("cluster", default=None)


@contextmanager
def followed(follower: Follower) -> Iterator[None]:
    """Every search in here tells `follower` what it does."""
    token = FOLLOWER.set(follower)
    try:
        yield
    finally:
        FOLLOWER.reset(token)


@contextmanager
def on_cluster(scheduler: Any) -> Iterator[None]:
    """Run the calls of every `run_many` in here on the Dask cluster at `scheduler`; None changes
    nothing.
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
    """``[function(item) for item in items]``, in that order, wherever the calls run.

    `n_jobs` is joblib's (None is one, unless a ``joblib.parallel_config`` says otherwise; -1 is all
    cores). `scheduler` is the address of a Dask cluster ("tcp://host:8786") or a
    ``distributed.Client``; if a worker is lost, others repeat its calls. A cluster without workers
    is logged, and a ConnectionError after five minutes or the time of Dask's setting
    ``distributed.scheduler.no-workers-timeout``. Randomness must come with the item (one seed
    each), so that the result does not depend on who runs what. `on_result(result)` and then
    `progress(done, total)` are called in this process as calls finish, so that results can be
    written down at once. The first error of a call is raised.
    """
    check_n_jobs(n_jobs)
    work = list(items)
    scheduler = _CLUSTER.get() if scheduler is None else scheduler
    if scheduler is not None:
        return _on_cluster(function, work, scheduler, progress, on_result)
    running: Iterable[Result] = map(function, work)
    with ExitStack() as stack:
        if n_jobs != 1 and len(work) > 1:
            # a base dependency, but slow to import
            from joblib import Parallel, delayed, effective_n_jobs

            if effective_n_jobs(n_jobs) != 1:
                with _interrupts_kept_from_children():
                    running = Parallel(n_jobs=n_jobs, return_as="generator")(
                        [delayed(function)(item) for item in work]
                    )
                    stack.callback(_end, running)
        collected: list[Result] = []
        for result in running:
            collected.append(result)
            if on_result is not None:
                on_result(result)
            if progress is not None:
                progress(len(collected), len(work))
        return collected


class _GivenUpError(Exception):
    """Calls are given up."""


def _end(running: Any) -> None:
    """End the workers of calls that are left early, as by Ctrl-C; nothing if all have returned."""
    with suppress(_GivenUpError):
        # joblib ends them as by close(), without a warning that counts the calls given up
        running.throw(_GivenUpError)


@contextmanager
def _interrupts_kept_from_children() -> Iterator[None]:
    """Processes that start in here never see Ctrl-C (each would print a traceback); this one sees
    it at the end.

    A terminal sends Ctrl-C to all of them. Children and threads block from their start what their
    process blocks.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    from multiprocessing import resource_tracker

    # joblib would start it; in Python 3.11 its start ends the block
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _on_cluster(
    function: Callable[[Item], Result],
    work: list[Item],
    scheduler: Any,
    progress: Callable[[int, int], None] | None,
    on_result: Callable[[Result], None] | None,
) -> list[Result]:
    distributed = require("distributed", extra="dask")
    if isinstance(scheduler, distributed.Client):
        return _gathered(scheduler, function, work, progress, on_result)
    if not isinstance(scheduler, str):
        raise ValueError(
            "scheduler must be the address of a Dask cluster (tcp://host:8786) or a "
            "distributed.Client, got "
            f"{type(scheduler).__name__}."
        )
    with _connected(distributed, scheduler) as client:
        try:
            return _gathered(client, function, work, progress, on_result)
        # nobody else cancels what this call has submitted
        except distributed.client.FutureCancelledError as problem:
            # its traceback says no more
            logging.getLogger("distributed.client").setLevel(logging.CRITICAL)
            text = (
                f"The Dask scheduler at {scheduler!r} was lost before all {len(work)} calls "
                f"were done"
            )
            raise ConnectionError(f"{text}: start it again, and repeat the run.") from problem


def _connected(distributed: Any, address: str) -> Any:
    """A client of the scheduler at an address."""
    try:
        resolved = distributed.comm.resolve_address(address)
    except (OSError, ValueError) as problem:
        raise ValueError(
            f"{address!r} is not the address of a Dask scheduler (tcp://host:8786): {problem}."
        ) from None
    try:
        # a TLS scheduler would log a connection that ends before its handshake
        if resolved.startswith("tcp://"):
            _await_greeting(*distributed.comm.get_address_host_port(resolved))
        return distributed.Client(address, set_as_default=False)
    except OSError as problem:
        raise ConnectionError(
            f"No Dask scheduler answers at {address!r}: {problem}. Is it running there?"
        ) from None


def _await_greeting(host: str, port: int) -> None:
    """Return when a Dask scheduler answers; OSError if nothing listens for 5 seconds, or if it is
    something else.

    Without this, a Dask client tries for 30 seconds and delays the end of Python; if something else
    listens (the dashboard), it waits forever. A scheduler that listens and is busy has the time
    that Dask gives it.
    """
    dask = require("dask", extra="dask")
    patience = dask.utils.parse_timedelta(dask.config.get("distributed.comm.timeouts.connect"))
    with _listener(host, port) as connection, connection.makefile("rb") as stream:
        connection.settimeout(patience)
        # a scheduler speaks first: the length of its message, in eight bytes
        greeting = stream.read(8)
    if len(greeting) < 8 or int.from_bytes(greeting, "little") > _LONGEST_GREETING:
        raise OSError("what listens there is not a Dask scheduler")


def _listener(host: str, port: int) -> socket.socket:
    """A connection to what listens there, within 5 seconds: a scheduler may just be starting."""
    end = time.monotonic() + _LISTENER_SECONDS
    while True:
        try:
            return socket.create_connection((host, port), timeout=max(0.1, end - time.monotonic()))
        except OSError:
            if time.monotonic() > end - _RETRY_SECONDS:
                raise
        time.sleep(_RETRY_SECONDS)


def _gathered(
    client: Any,
    function: Callable[[Item], Result],
    work: list[Item],
    progress: Callable[[int, int], None] | None,
    on_result: Callable[[Result], None] | None,
) -> list[Result]:
    distributed = require("distributed", extra="dask")
    # equal items are separate calls: they may write
    futures = client.map(function, work, pure=False)
    done, workers = 0, _Watch(client)
    try:
        completed = distributed.as_completed(futures, loop=client.loop)
        while completed.count():
            for future in completed.next_batch(block=False):
                if future.status == "error":
                    future.result()  # raises at once, rather than after every other call
                if on_result is not None:
                    on_result(future.result())
                done += 1
                if progress is not None:
                    progress(done, len(work))
            if not completed.has_ready():
                time.sleep(_POLL_SECONDS)
                workers.look(f"{len(work) - done} of {len(work)} calls")
        results: list[Result] = client.gather(futures)
    finally:
        client.cancel(futures)
    return results


class _Watch:
    """Checks every few seconds whether a cluster has workers: without any, calls would wait forever
    in silence.
    """

    def __init__(self, client: Any) -> None:
        dask = require("dask", extra="dask")
        given = dask.config.get("distributed.scheduler.no-workers-timeout", None)
        self.limit = (
            _WITHOUT_WORKERS_SECONDS if given is None else float(dask.utils.parse_timedelta(given))
        )
        self.client, self.told = client, False
        self.looked = self.seen = time.monotonic()

    def look(self, waiting: str) -> None:
        """Log once that there is no worker; too long without one, a ConnectionError."""
        now = time.monotonic()
        if now < self.looked + _LOOK_SECONDS:
            return
        self.looked = now
        if self.client.nthreads():
            self.seen, self.told = now, False
            return
        cluster = f"The Dask cluster at {self.client.scheduler.address}"
        if now - self.seen >= self.limit:
            text = (
                f"{cluster} has had no workers for {self.limit:g} seconds, and {waiting} are "
                f"not done"
            )
            raise ConnectionError(f"{text}. Start workers, then run again.")
        if not self.told:  # not a warning, which the commands would show only at their end
            _LOG.warning(
                "%s has no workers: %s wait, for at most %g seconds.", cluster, waiting, self.limit
            )
            self.told = True
