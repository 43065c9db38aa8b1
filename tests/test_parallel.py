"""The result of run_many does not depend on who runs the calls."""

import signal
import subprocess
import sys
import threading
import time
import warnings

import joblib
import numpy as np
import pytest
from joblib.parallel import ThreadingBackend

from dco.foundations.parallel import run_many


def draw(seed: int) -> float:
    return float(np.random.default_rng(seed).normal())


DRAWN = [draw(seed) for seed in range(7)]
numbers_of_jobs = pytest.mark.parametrize("n_jobs", [None, 1, 2])


@pytest.fixture
def threads():
    """Have joblib run calls in threads, which share the lists of a test."""
    with joblib.parallel_config(backend="threading"):
        yield


# ---------------------------------------------------------------------------------------- results


@pytest.mark.usefixtures("threads")
@numbers_of_jobs
def test_results_come_in_order_and_do_not_depend_on_the_workers(n_jobs):
    assert run_many(draw, range(7), n_jobs=n_jobs) == DRAWN


@pytest.mark.usefixtures("threads")
@numbers_of_jobs
def test_progress_is_reported_after_each_call(n_jobs):
    reports: list[tuple[int, int]] = []
    run_many(
        draw,
        range(7),
        n_jobs=n_jobs,
        progress=lambda done, total: reports.append((done, total)),
    )
    assert reports == [(done, 7) for done in range(1, 8)]


@pytest.mark.usefixtures("threads")
@numbers_of_jobs
def test_results_are_handed_over_as_calls_finish_and_before_progress_is_reported(n_jobs):
    handed_over: list[float] = []
    counts: list[int] = []
    run_many(
        draw,
        range(7),
        n_jobs=n_jobs,
        progress=lambda done, total: counts.append(len(handed_over)),
        on_result=handed_over.append,
    )
    assert handed_over == DRAWN
    assert counts == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.usefixtures("threads")
def test_a_slow_first_call_stays_first():
    def wait(seconds: float) -> float:
        time.sleep(seconds)
        return seconds

    assert run_many(wait, [0.3, 0.0, 0.1], n_jobs=2) == [0.3, 0.0, 0.1]


def test_worker_processes_give_the_same_results():
    assert run_many(np.sqrt, [1.0, 4.0, 9.0], n_jobs=2) == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("n_jobs", [None, 2])
@pytest.mark.parametrize("make_items", [list, lambda: iter([])], ids=["list", "iterator"])
def test_no_items_have_no_results(n_jobs, make_items):
    assert run_many(draw, make_items(), n_jobs=n_jobs) == []


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_the_error_of_a_call_reaches_the_caller(n_jobs):
    def fail(item: int) -> int:
        if item == 2:
            raise KeyError("row 2")
        return item

    with pytest.raises(KeyError, match="row 2"):
        run_many(fail, range(4), n_jobs=n_jobs)


# -------------------------------------------------------------------------------- number of workers


def threads_that_run(n_calls: int) -> set[str]:
    """Run some calls; return the names of the threads that ran them."""

    def thread_name(_: int) -> str:
        time.sleep(0.01)  # so that one thread cannot run all of them
        return threading.current_thread().name

    return set(run_many(thread_name, range(n_calls)))


def test_calls_run_in_this_thread_by_default():
    assert threads_that_run(4) == {"MainThread"}


def test_a_joblib_configuration_of_the_caller_is_followed():
    with joblib.parallel_config(backend="threading", n_jobs=2):
        names = threads_that_run(4)
    assert len(names) > 1


@pytest.mark.parametrize("items", [[], [1], [1, 2]], ids=["no items", "one item", "two items"])
@pytest.mark.parametrize("n_jobs", [0, "2", 1.5, [1]], ids=repr)
def test_a_wrong_number_of_jobs_is_refused_however_many_items_there_are(n_jobs, items):
    with pytest.raises(ValueError, match="n_jobs must be None or a whole number other than 0"):
        run_many(abs, items, n_jobs=n_jobs)


# ------------------------------------------------------------------------------------------- Ctrl-C

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
    """A terminal sends it to all of them, and a worker that is importing would print a traceback.

    The calls run in a process of their own, so that its workers are new.
    """
    run = subprocess.run(
        [sys.executable, "-c", BLOCKED], capture_output=True, text=True, check=True
    )
    assert run.stdout == "[True, True]\n"


class InterruptedStart(ThreadingBackend):
    """Threads of joblib during whose start somebody presses Ctrl-C."""

    def __init__(self) -> None:
        super().__init__()
        self.has_started = False

    def configure(self, *args, **options):
        signal.raise_signal(signal.SIGINT)
        n_jobs = super().configure(*args, **options)
        self.has_started = True
        return n_jobs


@pytest.fixture
def ctrl_c_is_an_error():
    """Have Ctrl-C raise an error also in the background jobs of a shell, which ignore it."""
    handler_before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, handler_before)


@needs_masks
@pytest.mark.usefixtures("ctrl_c_is_an_error")
def test_ctrl_c_while_workers_are_started_comes_afterwards():
    backend = InterruptedStart()
    with joblib.parallel_config(backend=backend, n_jobs=2), pytest.raises(KeyboardInterrupt):
        run_many(draw, range(3))
    assert backend.has_started


@needs_masks
@pytest.mark.usefixtures("ctrl_c_is_an_error", "threads")
def test_ctrl_c_is_not_blocked_once_workers_have_started():
    blocked: set[bool] = set()

    def look(done: int, total: int) -> None:
        blocked.add(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, []))

    run_many(draw, range(3), n_jobs=2, progress=look)
    assert blocked == {False}


def interrupt(done: int, total: int) -> None:
    """Report progress as somebody presses Ctrl-C."""
    raise KeyboardInterrupt


class WatchedEnd(ThreadingBackend):
    """Threads of joblib that write down the filters of warnings when they are ended early."""

    def __init__(self) -> None:
        super().__init__()
        self.filters: list[object] = []

    def abort_everything(self, ensure_ready: bool = True) -> None:
        self.filters.append(list(warnings.filters))
        super().abort_everything(ensure_ready)


def test_calls_are_ended_without_a_change_to_the_filters_of_warnings():
    """They belong to all threads: a filter set here for a moment could hide the warnings of
    another, or stay for good.
    """
    backend = WatchedEnd()
    with joblib.parallel_config(backend=backend, n_jobs=2), pytest.raises(KeyboardInterrupt):
        run_many(time.sleep, [0.0, 0.5, 0.5, 0.5], progress=interrupt)
    assert backend.filters == [list(warnings.filters)]


@pytest.mark.usefixtures("threads")
def test_calls_that_are_ended_early_cause_no_warning():
    with pytest.raises(KeyboardInterrupt):
        run_many(time.sleep, [0.0, 0.5, 0.5, 0.5], n_jobs=2, progress=interrupt)


def test_ctrl_c_between_two_results_ends_the_other_calls(tmp_path):
    go = tmp_path / "go"

    def wait_for_go(item: int) -> None:
        while item > 0 and not go.exists():
            time.sleep(0.05)
        (tmp_path / str(item)).touch()

    # the error is kept until the end: with it its frames would go, and the calls with them
    with pytest.raises(KeyboardInterrupt) as caught:
        run_many(wait_for_go, range(3), n_jobs=2, progress=interrupt)
    go.touch()
    time.sleep(1)  # for a call that is still at work

    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "go"]
    assert caught.traceback
