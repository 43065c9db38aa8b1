"""Calls on a Dask cluster: lost workers, missing workers, and workers with another dco."""

import json
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import numpy as np
import pytest

import dco
from dco.foundations import cluster as cluster_module
from dco.foundations.parallel import run_many

distributed = pytest.importorskip("distributed")
dask = pytest.importorskip("dask")

SOURCE = Path(dco.__file__).parent


def draw(seed):
    return float(np.random.default_rng(seed).normal())


@pytest.fixture(scope="module")
def cluster():
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


@pytest.fixture
def empty_cluster():
    """A cluster in this process without workers, and its client."""
    with (
        distributed.LocalCluster(
            n_workers=0, processes=False, dashboard_address=None, silence_logs=50
        ) as running,
        distributed.Client(running, set_as_default=False) as client,
    ):
        yield running, client


# ---------------------------------------------------------------- results


def test_a_client_serves_as_a_cluster_and_stays_open(cluster):
    with distributed.Client(cluster.scheduler_address, set_as_default=False) as client:
        assert run_many(abs, [-1, -2, -2], scheduler=client) == [1, 2, 2]
        assert run_many(abs, [-3], scheduler=client) == [3]


def test_a_cluster_hands_back_the_error_of_a_call(cluster):
    def fail(item):
        return 1 / (item - 1)

    with pytest.raises(ZeroDivisionError):
        run_many(fail, range(3), scheduler=cluster.scheduler_address)


def test_results_are_reported_as_they_come(cluster):
    results = []
    steps = []
    run_many(
        abs,
        [-1, -2, -3],
        scheduler=cluster.scheduler_address,
        on_result=results.append,
        progress=lambda done, total: steps.append((done, total)),
    )
    assert sorted(results) == [1, 2, 3]
    assert steps == [(1, 3), (2, 3), (3, 3)]


def test_a_lost_worker_changes_no_result(cluster, tmp_path):
    """One call kills the process that runs it, once; the scheduler runs what was lost again."""
    mark = tmp_path / "killed"

    def draw_or_die(seed):
        if seed == 5 and not mark.exists():
            mark.write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGKILL)
        return float(np.random.default_rng(seed).normal()), os.getpid()

    results = run_many(draw_or_die, range(12), scheduler=cluster.scheduler_address)
    assert [value for value, _ in results] == [draw(seed) for seed in range(12)]
    assert not {int(mark.read_text()), os.getpid()} & {process for _, process in results}


# ---------------------------------------------------------------- workers and their dco

PROGRAM = [sys.executable, "-m"]
SCHEDULER = [*PROGRAM, "distributed.cli.dask_scheduler", "--port", "0", "--no-dashboard"]
WORKER = [
    *PROGRAM,
    "distributed.cli.dask_worker",
    "--no-nanny",
    "--nthreads",
    "1",
    "--no-dashboard",
]


@pytest.fixture
def start_process(tmp_path):
    """Start a process that ends with the test."""
    started = []

    def start(words, **environment):
        process = subprocess.Popen(
            words, env=os.environ | environment, stderr=subprocess.DEVNULL, cwd=tmp_path
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


@pytest.fixture
def scheduler(start_process, tmp_path):
    """A scheduler process and its address."""
    file = tmp_path / "scheduler.json"
    process = start_process([*SCHEDULER, "--scheduler-file", str(file)])
    while not file.exists():
        time.sleep(0.05)
    time.sleep(0.2)  # until the file is whole
    return process, json.loads(file.read_text())["address"]


@pytest.fixture
def client(scheduler):
    with distributed.Client(scheduler[1], set_as_default=False) as client:
        yield client


@pytest.fixture
def start_worker(scheduler, client, start_process):
    """Start a worker process that imports dco from these folders; return its address."""

    def start(*folders):
        before = set(client.nthreads())
        start_process([*WORKER, scheduler[1]], PYTHONPATH=os.pathsep.join(map(str, folders)))
        while not set(client.nthreads()) - before:
            time.sleep(0.05)
        return (set(client.nthreads()) - before).pop()

    return start


@pytest.fixture
def without_dco(tmp_path):
    """A folder that hides every dco behind it."""
    hidden = tmp_path / "hidden" / "dco"
    hidden.mkdir(parents=True)
    (hidden / "__init__.py").write_text("raise ModuleNotFoundError('No module named dco')\n")
    return hidden.parent


@pytest.fixture
def with_other_dco(tmp_path):
    """A folder with a copy of this dco in which one line was changed."""
    copy = tmp_path / "copy" / "dco"
    shutil.copytree(SOURCE, copy)
    with (copy / "predictor.py").open("a") as file:
        file.write("ALPHA = 0.5\n")
    return copy.parent


@pytest.mark.parametrize(
    ("folder", "problem"),
    [("without_dco", "has no dco"), ("with_other_dco", "has dco .* with other code")],
)
def test_a_worker_without_this_dco_is_refused_before_the_first_call(
    client, start_worker, request, tmp_path, folder, problem
):
    """The worker is named, and stays in the cluster for other people's work."""
    address = start_worker(request.getfixturevalue(folder))
    touched = tmp_path / "touched"
    sentence = f"worker at {address} {problem}.* Install decoupled-conformal"
    with pytest.raises(dco.UnsuitableWorkerError, match=sentence):
        run_many(touched.touch, [True], scheduler=client)
    assert not touched.exists()
    assert list(client.nthreads()) == [address]


def test_one_bad_worker_among_others_is_found(client, start_worker, without_dco):
    start_worker(SOURCE.parent)
    assert run_many(abs, [-1], scheduler=client) == [1]
    start_worker(without_dco)
    with pytest.raises(dco.UnsuitableWorkerError, match="has no dco"):
        run_many(abs, [-1], scheduler=client)


def test_the_same_dco_from_another_folder_is_the_same(client, start_worker, tmp_path):
    shutil.copytree(SOURCE, tmp_path / "copy" / "dco")
    start_worker(tmp_path / "copy")
    assert run_many(abs, [-1], scheduler=client) == [1]


def test_a_bad_worker_that_comes_in_mid_run_is_found(client, start_worker, with_other_dco):
    start_worker(SOURCE.parent)

    def start_the_other(done, total):
        if done == 1:
            start_worker(with_other_dco)

    with pytest.raises(dco.UnsuitableWorkerError, match="with other code"):
        run_many(abs, [-1, -2], scheduler=client, progress=start_the_other)


def test_other_versions_of_libraries_are_noted(client, start_worker, tmp_path):
    """The worker says that its NumPy is another one."""
    metadata = tmp_path / "other" / "numpy-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: numpy\nVersion: 1.0\n")
    start_worker(metadata.parent, SOURCE.parent)
    with pytest.warns(UserWarning, match=f"has numpy 1.0 .here: {np.__version__}.*: numbers may"):
        run_many(abs, [-1], scheduler=client)


# ---------------------------------------------------------------- no workers, no scheduler


class Clock:
    """A clock that goes only while somebody sleeps, and may do something at a given time."""

    def __init__(self, at=np.inf, act=None):
        self.now = 0.0
        self.at = at
        self.act = act

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds
        if self.now >= self.at and self.act is not None:
            self.act()


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(cluster_module, "time", clock)
    return clock


@pytest.mark.parametrize(("setting", "limit"), [(None, 300), ("40s", 40)])
def test_a_cluster_without_workers_is_told_of_and_given_up(
    empty_cluster, clock, caplog, setting, limit
):
    """Dask waits for ever and says nothing. The limit can be set in Dask's configuration."""
    sentence = f"no workers for {limit} seconds, and 3 of 3 calls are not done. Start workers"
    with (
        dask.config.set({"distributed.scheduler.no-workers-timeout": setting}),
        pytest.raises(ConnectionError, match=sentence),
    ):
        run_many(abs, [-1, -2, -3], scheduler=empty_cluster[1])
    assert limit <= clock.now < limit + 11
    logged = [record.getMessage() for record in caplog.records if record.name == "dco"]
    assert [text.partition("has ")[2] for text in logged] == [
        f"no workers: 3 of 3 calls wait, for at most {limit} seconds."
    ]


def test_workers_that_go_and_come_again_lose_nothing(empty_cluster, caplog, monkeypatch):
    """The only worker goes after the first call, which is told of; then another comes."""
    running, client = empty_cluster
    running.scale(1)
    client.wait_for_workers(1)

    class StartWorker(logging.Handler):
        def emit(self, record):
            running.scale(1)

    def stop_worker(done, total):
        if done == 1:
            running.scale(0)
            while client.nthreads():
                time.sleep(0.05)

    def negate_slowly(item):
        time.sleep(0.2)
        return -item

    monkeypatch.setattr(cluster_module, "_LOOK_SECONDS", 0.2)
    handler = StartWorker()
    logging.getLogger("dco").addHandler(handler)
    try:
        results = run_many(negate_slowly, range(12), scheduler=client, progress=stop_worker)
    finally:
        logging.getLogger("dco").removeHandler(handler)
    assert results == [-item for item in range(12)]
    assert any("has no workers" in record.getMessage() for record in caplog.records)


def test_a_scheduler_that_is_lost_in_mid_run_is_one_sentence(scheduler, start_worker):
    process, address = scheduler
    start_worker(SOURCE.parent)
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "2s"}),
        pytest.raises(ConnectionError, match="was lost before all 3 calls were done: start it"),
    ):
        run_many(time.sleep, [0, 3, 3], scheduler=address, progress=lambda *_: process.kill())


# ---------------------------------------------------------------- addresses


@pytest.mark.parametrize(
    "address", ["host", "tcp://host", "nothing://host:8786", "no-such-host.invalid:8786"]
)
def test_what_is_no_address_is_refused(address):
    with pytest.raises(ValueError, match=f"'{address}' is not the address of a Dask scheduler"):
        run_many(abs, [1], scheduler=address)


@pytest.mark.parametrize("scheduler", [8786, ["tcp://127.0.0.1:8786"], {}], ids=str)
def test_what_is_neither_an_address_nor_a_client_is_refused(scheduler):
    with pytest.raises(ValueError, match="scheduler must be the address of a Dask cluster"):
        run_many(abs, [1], scheduler=scheduler)


@pytest.fixture
def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        yield free


def address_of(port):
    return f"tcp://127.0.0.1:{port.getsockname()[1]}"


def test_an_address_where_nobody_answers_is_named_after_five_seconds(free_port, clock):
    """Dask's own limit is 30."""
    address = address_of(free_port)
    with pytest.raises(ConnectionError, match=f"No Dask scheduler answers at '{address}'"):
        run_many(abs, [1], scheduler=address)
    assert 4 < clock.now <= 5


def test_a_listener_that_starts_late_is_waited_for(free_port, clock):
    """It is no scheduler, which is found out once it listens."""
    clock.at = 3
    clock.act = free_port.listen
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "200ms"}),
        pytest.raises(ConnectionError, match="timed out"),
    ):
        run_many(abs, [1], scheduler=address_of(free_port))
    assert clock.now == 3


@pytest.mark.parametrize(
    "greeting",
    [b"", b"SSH-2.0-OpenSSH", b"\0", None],
    ids=["nothing", "text", "too short", "silence"],
)
def test_a_port_where_something_else_listens_is_told_apart(free_port, greeting):
    """Without a probe a Dask client waits there for ever, or asks for exabytes of memory."""
    free_port.listen()

    def answer():
        with free_port.accept()[0] as connection:
            if greeting is None:
                connection.recv(1)  # until the other side gives up
            else:
                connection.sendall(greeting)

    listener = threading.Thread(target=answer)
    listener.start()
    why = "timed out" if greeting is None else "what listens there is not a Dask scheduler"
    patience = "300ms" if greeting is None else "120s"
    address = address_of(free_port)
    with (
        dask.config.set({"distributed.comm.timeouts.connect": patience}),
        pytest.raises(ConnectionError, match=f"No Dask scheduler answers at '{address}': {why}"),
    ):
        run_many(abs, [1], scheduler=address)
    listener.join()
