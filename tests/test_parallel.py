"""The result of run_many does not depend on who runs the calls."""

import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator

import joblib
import numpy as np
import pytest

from dco.foundations.parallel import _end_workers, _keep_interrupts_from_children, run_many


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
        with _keep_interrupts_from_children():
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
    _end_workers(running)
    _end_workers(running)
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
