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

_LISTENER_SECONDS = 5.0  # within which something must listen at the scheduler's address
_RETRY_SECONDS = 0.25
_POLL_SECONDS = 0.02  # between two looks for finished calls
_LOOK_SECONDS = 10.0  # between two looks at the workers; some may just be starting
_WITHOUT_WORKERS_SECONDS = 300.0  # after which a cluster without workers is an error
_LOG = logging.getLogger("dco")
_SHORTEST_TIMEOUT = 0.1  # seconds; 0 would not wait at all
_LENGTH_BYTES = 8  # a message of Dask's begins with its length, in so many bytes
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
        # Nobody else cancels what this call has submitted, so the scheduler is gone.
        except distributed.client.FutureCancelledError as problem:
            # Dask would log a traceback, which says less than this error.
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
    """Run the calls on the workers of a connected Dask client; return the results in order.

    See `run_on_cluster` for the arguments. The first error of a call is raised, and the other calls
    are then cancelled.
    """
    n_calls = len(work)

    # 1. Nothing is sent before there is a worker, and before all workers are checked.
    workers = _Workers(client)
    workers.wait_for_first(f"{n_calls} of {n_calls} calls")
    workers.check()

    # 2. Submit the calls. Not `pure`: equal items are separate calls, since a call may write files.
    futures = client.map(function, work, pure=False)

    # 3. Wait for them. If one fails, or this process is interrupted, the others are cancelled.
    try:
        _wait_for_calls(client, futures, workers, progress, on_result)
        results: list[Result] = client.gather(futures)
    finally:
        client.cancel(futures)

    # 4. Check workers that came meanwhile and may have computed some of the results.
    workers.check()
    return results


def _wait_for_calls(
    client: Any,
    futures: list[Any],
    workers: _Workers,
    progress: Callable[[int, int], None] | None,
    on_result: Callable[[Result], None] | None,
) -> None:
    """Wait until all calls are done, and report each; the first error of a call is raised.

    `futures` are Dask's handles of the calls. Now and then this looks whether there still are
    workers.
    """
    distributed = require("distributed", extra="dask")
    n_calls = len(futures)
    n_done = 0
    completed = distributed.as_completed(futures, loop=client.loop)

    while completed.count():
        # 1. Report the calls that are done by now.
        for future in completed.next_batch(block=False):
            if future.status == "error":
                future.result()  # raises at once, rather than after every other call
            n_done += 1
            if on_result is not None:
                on_result(_fetch(future, workers))
            if progress is not None:
                progress(n_done, n_calls)

        # 2. Wait a moment if no other is.
        if not completed.has_ready():
            time.sleep(_POLL_SECONDS)
            workers.look(f"{n_calls - n_done} of {n_calls} calls")


def _fetch(future: Any, workers: _Workers) -> Any:
    """Return the result of a finished call.

    If the worker that has it is lost, Dask repeats the call elsewhere, for which this waits.
    """
    while True:
        try:
            return future.result(timeout=_LOOK_SECONDS)
        except TimeoutError:
            workers.look("some calls")


# ---------------------------------------------------------------- finding the scheduler


def _connect(distributed: Any, address: str) -> Any:
    """Connect a Dask client to the scheduler at an address, such as tcp://host:8786.

    `distributed` is the module. If the address is none, or no scheduler answers, the error says so.
    """
    try:
        resolved = distributed.comm.resolve_address(address)
    except (OSError, ValueError) as problem:
        raise ValueError(
            f"{address!r} is not the address of a Dask scheduler (tcp://host:8786): {problem}."
        ) from None
    try:
        # only without TLS: a TLS scheduler would log a connection that ends before its handshake
        if resolved.startswith("tcp://"):
            host, port = distributed.comm.get_address_host_port(resolved)
            _await_greeting(host, port)
        return distributed.Client(address, set_as_default=False)
    except OSError as problem:
        raise ConnectionError(
            f"No Dask scheduler answers at {address!r}: {problem}. Is it running there?"
        ) from None


def _await_greeting(host: str, port: int) -> None:
    """Wait until a Dask scheduler answers; raise an OSError if nobody or something else does.

    A Dask client alone would try for 30 seconds and delay the end of Python, and wait for ever if
    something else listens there (Dask's dashboard). A scheduler that is busy has as long to answer
    as Dask's own setting gives it.
    """
    dask = require("dask", extra="dask")
    timeout = dask.utils.parse_timedelta(dask.config.get("distributed.comm.timeouts.connect"))
    with _connect_to_listener(host, port) as connection, connection.makefile("rb") as stream:
        connection.settimeout(timeout)
        length_of_greeting = stream.read(_LENGTH_BYTES)  # a scheduler speaks first

    is_complete = len(length_of_greeting) == _LENGTH_BYTES
    if not is_complete or int.from_bytes(length_of_greeting, "little") > _LONGEST_GREETING:
        raise OSError("what listens there is not a Dask scheduler")


def _connect_to_listener(host: str, port: int) -> socket.socket:
    """Connect to whatever listens at a port; try for 5 seconds, as a scheduler may be starting."""
    deadline = time.monotonic() + _LISTENER_SECONDS
    while True:
        timeout = max(_SHORTEST_TIMEOUT, deadline - time.monotonic())
        try:
            return socket.create_connection((host, port), timeout=timeout)
        except OSError:
            if time.monotonic() > deadline - _RETRY_SECONDS:
                raise
        time.sleep(_RETRY_SECONDS)


# ---------------------------------------------------------------- the workers


class _Workers:
    """The workers of a cluster: whether there are any, and whether they have this dco."""

    def __init__(self, client: Any) -> None:
        """Watch the workers of a connected Dask client."""
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
        """Wait until there is a worker: without any, calls would wait for ever in silence.

        `calls` names in messages what waits, such as "3 of 10 calls".
        """
        while not self._client.nthreads():
            time.sleep(_RETRY_SECONDS)
            self.look(calls)

    def check(self) -> None:
        """Refuse workers that have no dco, or another one than here; each is asked once."""
        new_workers = set(self._client.nthreads()) - self._checked
        check_workers(self._client, sorted(new_workers))
        self._checked |= new_workers

    def look(self, calls: str) -> None:
        """Look for workers that came or went, if the last look was some seconds ago.

        New workers are checked. Without any worker this is logged once, and is a ConnectionError
        after too long. `calls` names in messages what waits, such as "3 of 10 calls".
        """
        now = time.monotonic()
        if now < self._last_look + _LOOK_SECONDS:
            return
        self._last_look = now

        # 1. There are workers.
        if self._client.nthreads():
            self._last_time_with_workers = now
            self._has_warned = False
            self.check()
            return

        # 2. There is none: warn, and give up after some minutes.
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
    """What a process would compute with: a digest of dco's files and the versions of packages.

    The digest is None where dco is not installed; packages that are not installed have no version.
    """

    dco_digest: str | None
    versions: dict[str, str]


def check_workers(client: Any, addresses: list[str]) -> None:
    """Ask the workers at these addresses what they would compute with.

    One without dco, or with another one than here, is an error; one with other versions of NumPy,
    SciPy or scikit-learn is noted.
    """
    if not addresses:
        return
    probe = make_probe()
    packages = [_DISTRIBUTION, *_LIBRARIES]
    here = Environment(**probe(packages))
    answers = client.run(probe, packages, workers=addresses, on_error="return")

    for address, answer in answers.items():
        is_lost = isinstance(answer, Exception)
        if is_lost:
            continue  # Dask repeats its calls elsewhere
        there = Environment(**answer)
        problem = _compare_dco(here, there)
        if problem is not None:
            raise UnsuitableWorkerError(f"The Dask worker at {address} {problem}")
        _note_other_libraries(address, here, there)


def make_probe() -> Callable[[list[str]], dict[str, Any]]:
    """Make a function that describes the process in which it is called, as fields of `Environment`.

    Dask sends a function of a module by the module's name, and a nested function by its code. This
    one must go by its code, and import only Python's own library: a worker without dco would fail
    on a name of ours, and leave the cluster.
    """

    def describe_environment(packages: list[str]) -> dict[str, Any]:
        """Return the digest of dco's files and the versions of these packages."""
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
            # On Windows lines may end by \r\n, which is no difference in code.
            digest.update(file.read_bytes().replace(b"\r\n", b"\n"))
        return {"dco_digest": digest.hexdigest(), "versions": versions}

    return describe_environment


def _compare_dco(here: Environment, there: Environment) -> str | None:
    """Say what is wrong with the dco of a worker, and what to install; None if it is the same.

    The sentence continues "The Dask worker at ADDRESS ...". `here` is this process, `there` the
    worker's.
    """
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
    """Warn of libraries whose version on a worker is another one than here."""
    differences = []
    for library in _LIBRARIES:
        version_here = here.versions.get(library)
        version_there = there.versions.get(library)
        if version_there != version_here:
            differences.append(f"{library} {version_there or 'missing'} (here: {version_here})")
    if differences:
        text = f"The Dask worker at {address} has {', '.join(differences)}: numbers may differ."
        show([Note("other-versions", text, "Install the same versions there.")])
