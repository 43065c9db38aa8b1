"""Many independent calls on a Dask cluster whose workers have the same dco as this process."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from dco.foundations.errors import UnsuitableWorkerError
from dco.foundations.extras import require
from dco.foundations.notes import Note, show

__all__ = [
    "run_on_cluster",
]

Item = TypeVar("Item")
Result = TypeVar("Result")

_LISTENER_SECONDS = 5.0
_RETRY_SECONDS = 0.25
_POLL_SECONDS = 0.02
_LOOK_SECONDS = 10.0  # between two looks at the workers; some may just be starting
_WITHOUT_WORKERS_SECONDS = 300.0
_LOG = logging.getLogger("dco")
_LONGEST_GREETING = 2**20  # bytes; it takes some 60, and text read as a length gives far more

_DISTRIBUTION = "decoupled-conformal"
_LIBRARIES = ("numpy", "scipy", "scikit-learn")  # other versions may compute other numbers


def run_on_cluster(
    function: Callable[[Item], Result],
    work: list[Item],
    scheduler: Any,
    *,
    progress: Callable[[int, int], None] | None = None,
    on_result: Callable[[Result], None] | None = None,
) -> list[Result]:
    """Call the function for every item on a Dask cluster; return the results in order.

    `scheduler` is an address or a ``distributed.Client``; see `run_many` for the rest. Every worker
    is asked for its dco before it gets a call: one that has none, or another one, is an
    UnsuitableWorkerError. If a worker is lost, others repeat its calls. A cluster without workers
    is logged, and is a ConnectionError after five minutes or the time of Dask's setting
    ``distributed.scheduler.no-workers-timeout``.
    """
    distributed = require("distributed", extra="dask")
    if isinstance(scheduler, distributed.Client):
        return _run(scheduler, function, work, progress, on_result)
    if not isinstance(scheduler, str):
        raise ValueError(
            "scheduler must be the address of a Dask cluster (tcp://host:8786) or a "
            f"distributed.Client, got {type(scheduler).__name__}."
        )

    with _connect(distributed, scheduler) as client:
        try:
            return _run(client, function, work, progress, on_result)
        # nobody else cancels what this call has submitted
        except distributed.client.FutureCancelledError as problem:
            # its traceback says no more
            logging.getLogger("distributed.client").setLevel(logging.CRITICAL)
            raise ConnectionError(
                f"The Dask scheduler at {scheduler!r} was lost before all {len(work)} calls were "
                "done: start it again, and repeat the run."
            ) from problem


def _run(
    client: Any,
    function: Callable[[Item], Result],
    work: list[Item],
    progress: Callable[[int, int], None] | None,
    on_result: Callable[[Result], None] | None,
) -> list[Result]:
    """Submit the calls to workers that have been checked, and gather the results."""
    distributed = require("distributed", extra="dask")
    workers = _Workers(client)
    workers.wait_for_first(f"{len(work)} of {len(work)} calls")
    workers.check()

    # equal items are separate calls: they may write
    futures = client.map(function, work, pure=False)
    n_done = 0
    try:
        completed = distributed.as_completed(futures, loop=client.loop)
        while completed.count():
            for future in completed.next_batch(block=False):
                if future.status == "error":
                    future.result()  # raises at once, rather than after every other call
                n_done += 1
                if on_result is not None:
                    on_result(_fetch(future, workers))
                if progress is not None:
                    progress(n_done, len(work))
            if not completed.has_ready():
                time.sleep(_POLL_SECONDS)
                workers.look(f"{len(work) - n_done} of {len(work)} calls")
        results: list[Result] = client.gather(futures)
    finally:
        client.cancel(futures)

    workers.check()  # those that came meanwhile
    return results


def _fetch(future: Any, workers: _Workers) -> Any:
    """Return the result of a finished call, again from another worker if its own is lost."""
    while True:
        try:
            return future.result(timeout=_LOOK_SECONDS)
        except TimeoutError:
            workers.look("some calls")


# ---------------------------------------------------------------- finding the scheduler


def _connect(distributed: Any, address: str) -> Any:
    """Connect a client to the scheduler at an address."""
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
    """Return when a Dask scheduler answers; raise an OSError if nobody or something else does.

    Without this, a Dask client tries for 30 seconds and delays the end of Python; if something else
    listens (the dashboard), it waits forever. A scheduler that listens and is busy has the time
    that Dask gives it.
    """
    dask = require("dask", extra="dask")
    patience = dask.utils.parse_timedelta(dask.config.get("distributed.comm.timeouts.connect"))
    with _connect_to_listener(host, port) as connection, connection.makefile("rb") as stream:
        connection.settimeout(patience)
        # a scheduler speaks first: the length of its message, in eight bytes
        greeting = stream.read(8)
    if len(greeting) < 8 or int.from_bytes(greeting, "little") > _LONGEST_GREETING:
        raise OSError("what listens there is not a Dask scheduler")


def _connect_to_listener(host: str, port: int) -> socket.socket:
    """Connect within 5 seconds to what listens there: a scheduler may just be starting."""
    end = time.monotonic() + _LISTENER_SECONDS
    while True:
        try:
            return socket.create_connection((host, port), timeout=max(0.1, end - time.monotonic()))
        except OSError:
            if time.monotonic() > end - _RETRY_SECONDS:
                raise
        time.sleep(_RETRY_SECONDS)


# ---------------------------------------------------------------- the workers


class _Workers:
    """The workers of a cluster: whether there are any, and whether they have this dco."""

    def __init__(self, client: Any) -> None:
        dask = require("dask", extra="dask")
        limit = dask.config.get("distributed.scheduler.no-workers-timeout", None)
        self._seconds_allowed = _WITHOUT_WORKERS_SECONDS
        if limit is not None:
            self._seconds_allowed = float(dask.utils.parse_timedelta(limit))
        self._client = client
        self._checked: set[str] = set()
        self._has_warned = False
        self._last_look = time.monotonic()
        self._last_time_with_workers = time.monotonic()

    def wait_for_first(self, calls: str) -> None:
        """Wait until there is a worker: without any, calls would wait for ever in silence."""
        while not self._client.nthreads():
            time.sleep(_RETRY_SECONDS)
            self.look(calls)

    def check(self) -> None:
        """Refuse workers without this dco; each is asked once."""
        new_workers = set(self._client.nthreads()) - self._checked
        check_workers(self._client, sorted(new_workers))
        self._checked |= new_workers

    def look(self, calls: str) -> None:
        """Look every few seconds for workers that came or went.

        Log once that there is none; too long without one is a ConnectionError.
        """
        now = time.monotonic()
        if now < self._last_look + _LOOK_SECONDS:
            return
        self._last_look = now

        if self._client.nthreads():
            self._last_time_with_workers = now
            self._has_warned = False
            self.check()
            return

        cluster = f"The Dask cluster at {self._client.scheduler.address}"
        if now - self._last_time_with_workers >= self._seconds_allowed:
            raise ConnectionError(
                f"{cluster} has had no workers for {self._seconds_allowed:g} seconds, and {calls} "
                "are not done. Start workers, then run again."
            )
        if not self._has_warned:  # not a warning, which the commands would show only at their end
            _LOG.warning(
                "%s has no workers: %s wait, for at most %g seconds.",
                cluster,
                calls,
                self._seconds_allowed,
            )
            self._has_warned = True


@dataclass(frozen=True)
class Environment:
    """What a process would compute with: the digest of its dco and the versions of packages."""

    dco_digest: str | None
    versions: dict[str, str]


def check_workers(client: Any, addresses: list[str]) -> None:
    """Refuse workers that have no dco or another one; note those with other libraries."""
    if not addresses:
        return
    probe = make_probe()
    packages = [_DISTRIBUTION, *_LIBRARIES]
    here = Environment(**probe(packages))
    answers = client.run(probe, packages, workers=addresses, on_error="return")

    for address, answer in answers.items():
        if isinstance(answer, Exception):
            continue  # lost meanwhile: its calls are repeated elsewhere
        there = Environment(**answer)
        problem = _compare_dco(here, there)
        if problem is not None:
            raise UnsuitableWorkerError(f"The Dask worker at {address} {problem}")
        _note_other_libraries(address, here, there)


def make_probe() -> Callable[[list[str]], dict[str, Any]]:
    """Make a function that describes the process in which it is called.

    It is sent to workers as code, which needs nothing but Python's own library: a worker without
    dco would fail on anything that is named by a module of ours, and leave the cluster.
    """

    def describe_environment(packages: list[str]) -> dict[str, Any]:
        import contextlib
        import hashlib
        import importlib
        import pathlib
        from importlib import metadata

        versions = {}
        for package in packages:
            with contextlib.suppress(metadata.PackageNotFoundError):
                versions[package] = metadata.version(package)

        try:
            origin = importlib.import_module("dco").__file__
        except ImportError:
            return {"dco_digest": None, "versions": versions}

        digest = hashlib.sha256()
        folder = pathlib.Path(str(origin)).parent
        for file in sorted(folder.rglob("*.py")):
            digest.update(file.relative_to(folder).as_posix().encode())
            digest.update(file.read_bytes().replace(b"\r\n", b"\n"))
        return {"dco_digest": digest.hexdigest(), "versions": versions}

    return describe_environment


def _compare_dco(here: Environment, there: Environment) -> str | None:
    """Say what is wrong with the dco of a worker, and what to install; None if it is the same."""
    version_here = here.versions.get(_DISTRIBUTION, "of unknown version")
    version_there = there.versions.get(_DISTRIBUTION, "of unknown version")
    advice = f"Install {_DISTRIBUTION} {version_here} there, as in this process, then run again."

    if there.dco_digest is None:
        return f"has no dco. {advice}"
    if there.dco_digest == here.dco_digest:
        return None
    if version_there != version_here:
        return f"has dco {version_there}, and this process has {version_here}. {advice}"
    return (
        f"has dco {version_there} with other code than this process (SHA-256 of its files "
        f"{there.dco_digest[:12]} there, {str(here.dco_digest)[:12]} here). {advice}"
    )


def _note_other_libraries(address: str, here: Environment, there: Environment) -> None:
    """Note libraries whose version on a worker is another one than here."""
    others = [
        f"{library} {there.versions.get(library, 'missing')} (here: {here.versions.get(library)})"
        for library in _LIBRARIES
        if there.versions.get(library) != here.versions.get(library)
    ]
    if others:
        text = f"The Dask worker at {address} has {', '.join(others)}: numbers may differ."
        show([Note("other-versions", text, "Install the same versions there.")])
