"""The result of run_many does not depend on who runs the calls."""

import logging
import math
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator

import joblib
import numpy as np
import pytest

from dco.foundations.parallel import _end, _interrupts_kept_from_children, _listener, run_many


def draw(seed: int) -> float:
    return float(np.random.default_rng(seed).normal())


EXPECTED = [draw(seed) for seed in range(7)]


@pytest.mark.parametrize("n_jobs", [None, 1, 2])
def test_results_come_in_order_and_do_not_depend_on_the_workers(n_jobs):
    seen: list[tuple[int, int]] = []
    with joblib.parallel_config(backend="threading"):
        results = run_many(
            draw, range(7), n_jobs=n_jobs, progress=lambda done, total: seen.append((done, total))
        )
    assert results == EXPECTED
    assert seen == [(i, 7) for i in range(1, 8)]


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_results_are_handed_over_as_calls_finish(n_jobs):
    handed_over: list[float] = []

    def count_before_progress(done: int, total: int) -> None:
        assert len(handed_over) == done

    with joblib.parallel_config(backend="threading"):
        run_many(
            draw,
            range(7),
            n_jobs=n_jobs,
            progress=count_before_progress,
            on_result=handed_over.append,
        )
    assert handed_over == EXPECTED


def test_a_slow_first_call_stays_first():
    def wait(seconds: float) -> float:
        time.sleep(seconds)
        return seconds

    with joblib.parallel_config(backend="threading"):
        assert run_many(wait, [0.3, 0.0, 0.1], n_jobs=2) == [0.3, 0.0, 0.1]


def test_none_follows_the_callers_joblib_configuration():
    threads = set()

    def where(_: int) -> None:
        threads.add(threading.current_thread().name)

    run_many(where, range(4))
    assert threads == {"MainThread"}
    with joblib.parallel_config(backend="threading", n_jobs=2):
        run_many(where, range(4))
    assert len(threads) > 1


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_the_error_of_a_call_reaches_the_caller(n_jobs):
    def fail(item: int) -> int:
        if item == 2:
            raise KeyError("row 2")
        return item

    with joblib.parallel_config(backend="threading"), pytest.raises(KeyError, match="row 2"):
        run_many(fail, range(4), n_jobs=n_jobs)


needs_masks = pytest.mark.skipif(
    not hasattr(signal, "pthread_sigmask"), reason="Windows has no signal masks"
)

BLOCKED = """
import signal
from dco.foundations.parallel import run_many

def is_blocked(_):
    return signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, [])

print(run_many(is_blocked, range(2), n_jobs=2))
"""


@needs_masks
def test_workers_leave_ctrl_c_to_their_parent_from_their_start():
    """A terminal sends it to all of them, and a worker that is importing would print a
    traceback.
    """
    # workers of its own
    run = subprocess.run(
        [sys.executable, "-c", BLOCKED], capture_output=True, text=True, check=True
    )
    assert run.stdout == "[True, True]\n"


@needs_masks
def test_ctrl_c_while_workers_are_started_comes_afterwards():
    started = []
    # a shell's background jobs ignore it
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    def start() -> None:
        with _interrupts_kept_from_children():
            signal.raise_signal(signal.SIGINT)
            started.append("all workers")

    try:
        with pytest.raises(KeyboardInterrupt):
            start()
    finally:
        signal.signal(signal.SIGINT, before)
    assert started == ["all workers"]
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_calls_are_ended_without_a_change_to_the_filters_of_warnings():
    """They belong to all threads: a filter set here for a moment could hide the warnings of
    another, or stay for good.
    """
    seen = []

    def calls() -> Iterator[None]:
        try:
            yield
        finally:
            seen.append(list(warnings.filters))

    running = calls()
    next(running)
    _end(running)
    _end(running)
    assert seen == [list(warnings.filters)]


def test_ctrl_c_between_two_results_ends_the_other_calls(tmp_path):
    go = tmp_path / "go"

    def late(item: int) -> None:
        while item and not go.exists():
            time.sleep(0.05)
        (tmp_path / str(item)).touch()

    def interrupted(done: int, total: int) -> None:
        raise KeyboardInterrupt

    # kept: with the error its frames would go, and the calls with them
    with pytest.raises(KeyboardInterrupt) as told:
        run_many(late, range(3), n_jobs=2, progress=interrupted)
    go.touch()
    time.sleep(1)  # for a call that is still at work
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "go"]
    assert told.traceback


def test_worker_processes_give_the_same_results_and_no_items_none():
    assert run_many(np.sqrt, [1.0, 4.0, 9.0], n_jobs=2) == [1.0, 2.0, 3.0]
    assert run_many(draw, []) == run_many(draw, iter([]), n_jobs=2) == []


@pytest.mark.parametrize("items", [[], [1], [1, 2]])
@pytest.mark.parametrize("n_jobs", [0, "2", 1.5, [1]])
def test_a_wrong_number_of_jobs_is_refused_however_many_items_there_are(n_jobs, items):
    with pytest.raises(ValueError, match="n_jobs must be None or a whole number other than 0"):
        run_many(abs, items, n_jobs=n_jobs)


@pytest.mark.parametrize(
    ("scheduler", "told"),
    [
        *(
            (address, f"'{address}' is not the address of a Dask scheduler")
            for address in (
                "host",
                "tcp://host",
                "nothing://host:8786",
                "no-such-host.invalid:8786",
            )
        ),
        *(
            (other, "scheduler must be the address of a Dask cluster")
            for other in (8786, ["tcp://127.0.0.1:8786"], {})
        ),
    ],
)
def test_what_is_neither_an_address_nor_a_client_is_refused(scheduler, told):
    pytest.importorskip("distributed")
    with pytest.raises(ValueError, match=told):
        run_many(abs, [1], scheduler=scheduler)


@pytest.fixture
def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        yield free


class Clock:
    """A clock that goes only while somebody sleeps, and may do something at a given time."""

    def __init__(self, at: float = math.inf, act: Callable[[], object] | None = None) -> None:
        self.now, self.at, self.act = 0.0, at, act

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        if self.now >= self.at and self.act is not None:
            self.act()


def test_an_address_where_nobody_answers_is_named_after_five_seconds(free_port, monkeypatch):
    """Dask's own limit is 30."""
    pytest.importorskip("distributed")
    clock = Clock()
    monkeypatch.setattr("dco.foundations.parallel.time", clock)
    address = f"tcp://127.0.0.1:{free_port.getsockname()[1]}"
    with pytest.raises(ConnectionError, match=f"No Dask scheduler answers at '{address}'"):
        run_many(abs, [1], scheduler=address)
    assert 4 < clock.now <= 5


def test_a_listener_that_starts_late_is_waited_for(free_port, monkeypatch):
    clock = Clock(at=3, act=free_port.listen)
    monkeypatch.setattr("dco.foundations.parallel.time", clock)
    _listener(*free_port.getsockname()).close()
    assert clock.now == 3


@pytest.mark.parametrize(
    "greeting",
    [b"", b"SSH-2.0-OpenSSH", b"\0", None],
    ids=["nothing", "text", "too short", "silence"],
)
def test_a_port_where_something_else_listens_is_told_apart(free_port, greeting):
    """Without a probe a Dask client waits there for ever, or asks for exabytes of memory."""
    dask = pytest.importorskip("dask")
    pytest.importorskip("distributed")
    free_port.listen()
    address = f"tcp://127.0.0.1:{free_port.getsockname()[1]}"

    def answer() -> None:
        with free_port.accept()[0] as connection:
            if greeting is None:
                connection.recv(1)  # until the other side gives up
            else:
                connection.sendall(greeting)

    listener = threading.Thread(target=answer)
    listener.start()
    why = "timed out" if greeting is None else "what listens there is not a Dask scheduler"
    patience = "300ms" if greeting is None else "120s"
    with (
        dask.config.set({"distributed.comm.timeouts.connect": patience}),
        pytest.raises(ConnectionError, match=f"No Dask scheduler answers at '{address}': {why}"),
    ):
        run_many(abs, [1], scheduler=address)
    listener.join()


@pytest.fixture(scope="module")
def cluster():
    distributed = pytest.importorskip("distributed")
    with (
        warnings.catch_warnings(),
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            dashboard_address=":0",
            silence_logs=50,
        ) as running,
    ):
        yield running


def test_a_cluster_loses_a_worker_midway_and_the_result_is_unchanged(cluster, tmp_path):
    """One call kills the process that runs it, once; the scheduler runs what was lost again."""
    mark = str(tmp_path / "killed")

    def draw_or_die(seed: int) -> tuple[float, int]:
        import os as worker_os
        import signal as worker_signal

        if seed == 5 and not worker_os.path.exists(mark):
            with open(mark, "w") as file:
                file.write(str(worker_os.getpid()))
            worker_os.kill(worker_os.getpid(), worker_signal.SIGKILL)
        return float(np.random.default_rng(seed).normal()), worker_os.getpid()

    seen: list[int] = []
    results = run_many(
        draw_or_die,
        range(12),
        scheduler=cluster.scheduler_address,
        progress=lambda done, total: seen.append(done),
    )
    assert [value for value, _ in results] == [draw(seed) for seed in range(12)]
    with open(mark) as file:
        killed = int(file.read())
    assert killed not in {process for _, process in results}
    assert os.getpid() not in {process for _, process in results}
    assert seen[-1] == 12


def test_a_cluster_hands_back_the_error_of_a_call(cluster):
    def fail(item: int) -> float:
        return 1 / (item - 1)

    with pytest.raises(ZeroDivisionError):
        run_many(fail, range(3), scheduler=cluster.scheduler_address)


def test_a_client_serves_as_a_cluster_and_stays_open(cluster):
    from distributed import Client

    with Client(cluster.scheduler_address, set_as_default=False) as client:
        handed_over: list[int] = []
        results = run_many(abs, [-1, -2, -2], scheduler=client, on_result=handed_over.append)
        assert results == [1, 2, 2]
        assert sorted(handed_over) == [1, 2, 2]
        assert run_many(abs, [-3], scheduler=client) == [3]


@pytest.fixture
def empty_cluster():
    """A cluster in this process without workers, and its client."""
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=0, processes=False, dashboard_address=None, silence_logs=50
        ) as running,
        distributed.Client(running, set_as_default=False) as client,
    ):
        yield running, client


@pytest.mark.parametrize(("setting", "limit"), [(None, 300), ("40s", 40)])
def test_a_cluster_without_workers_is_told_of_and_given_up(
    empty_cluster, monkeypatch, caplog, setting, limit
):
    """Dask waits for ever and says nothing. The limit can be set in Dask's configuration."""
    import dask

    clock = Clock()
    monkeypatch.setattr("dco.foundations.parallel.time", clock)
    with (
        dask.config.set({"distributed.scheduler.no-workers-timeout": setting}),
        pytest.raises(
            ConnectionError,
            match=f"no workers for {limit} seconds, and 3 of 3 calls are not done. Start workers",
        ),
    ):
        run_many(abs, [-1, -2, -3], scheduler=empty_cluster[1])
    assert limit <= clock.now < limit + 11
    assert [
        record.getMessage().split("has ")[1] for record in caplog.records if record.name == "dco"
    ] == [f"no workers: 3 of 3 calls wait, for at most {limit} seconds."]


def test_workers_that_go_and_come_again_lose_nothing(empty_cluster, caplog):
    """The only worker goes after the first call, which is told of, and another comes when that is
    told.
    """
    cluster, client = empty_cluster
    cluster.scale(1)
    client.wait_for_workers(1)

    class Comes(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            cluster.scale(1)

    def gone(done: int, total: int) -> None:
        if done == 1:
            cluster.scale(0)
            while client.nthreads():
                time.sleep(0.05)

    def slow(item: int) -> int:
        time.sleep(0.2)
        return -item

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dco.foundations.parallel._LOOK_SECONDS", 0.2)
        handler = Comes()
        logging.getLogger("dco").addHandler(handler)
        try:
            assert run_many(slow, range(12), scheduler=client, progress=gone) == [
                -item for item in range(12)
            ]
        finally:
            logging.getLogger("dco").removeHandler(handler)
    assert any("has no workers" in record.getMessage() for record in caplog.records)


def test_a_scheduler_that_is_lost_in_mid_run_is_one_sentence(monkeypatch) -> None:
    """As Dask tells it: every future is cancelled. On a real cluster this takes half a minute."""
    from contextlib import nullcontext

    from dco.foundations import parallel

    client = pytest.importorskip("distributed.client")

    def lost(*_: object) -> None:
        raise client.FutureCancelledError("key", "scheduler-connection-lost")

    monkeypatch.setattr(parallel, "_connected", lambda *_: nullcontext())
    monkeypatch.setattr(parallel, "_gathered", lost)
    with pytest.raises(
        ConnectionError,
        match="was lost before all 3 calls were done: start it again, and repeat the run",
    ):
        parallel.run_many(abs, [1, 2, 3], scheduler="tcp://127.0.0.1:8786")
