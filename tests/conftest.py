"""Nothing in the suite is left to chance: a test gives the same answer in every run, on a busy
machine too.
"""

import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

import dco.foundations.seeds

# by which rich takes any output for a terminal
for asks_for_colours in ("FORCE_COLOR", "TTY_COMPATIBLE"):
    os.environ.pop(asks_for_colours, None)
settings.register_profile(
    "fixed", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("fixed")
# Hypothesis takes constants from the modules of dco that happen to be loaded, so that examples
# would depend on the tests that ran before in the same worker.
providers._get_local_constants = lambda: providers._local_constants


QUIET = ["quic", "background-networking", "component-update", "sync"]
BROWSER_ARGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    *(f"--disable-{name}" for name in QUIET),
]


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Bytes stay out of test names: a compressed table carries the second it was made in, and two
    workers then collect different tests.
    """
    return argname if isinstance(val, bytes) else None


@pytest.fixture(scope="session")
def data_home() -> str | None:
    """Find the folder with the data files: DCO_DATA_HOME, or shared/data beside the checkout."""
    beside = Path(__file__).parents[2] / "shared" / "data"
    return os.environ.get("DCO_DATA_HOME") or (str(beside) if beside.is_dir() else None)


@pytest.fixture(autouse=True)
def ctrl_c_as_before() -> Iterator[None]:
    """A command that has finished ignores Ctrl-C, and tests run commands in this process."""
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True)
def fixed_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seeds for what names none: our own `random_state=None`, and models that draw from NumPy's
    global state.
    """
    rng = np.random.default_rng(0)
    monkeypatch.setattr(dco.foundations.seeds, "fresh_seed", lambda: int(rng.integers(2**32)))
    np.random.seed(0)  # noqa: NPY002 - scikit-learn's own default


def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> None:
    """The same for what is made once for many tests, which comes before the seeds of the first of
    them.
    """
    if fixturedef.scope != "function":
        np.random.seed(0)  # noqa: NPY002


@pytest.fixture
def lines_run() -> Callable[..., int]:
    """How many lines of Python a call runs: work without a clock. A call of NumPy is one, a turn of
    a loop at least one.
    """

    def count(call: Callable[[], object], *, at_most: int) -> int:
        n_lines = 0

        def trace(frame: FrameType, event: str, argument: Any) -> Any:
            nonlocal n_lines
            n_lines += event == "line"
            # at once: it might never end
            assert n_lines <= at_most, f"more than {at_most:,} lines of Python were run"
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            call()
        finally:
            sys.settrace(before)
        assert n_lines <= at_most  # also where the call caught the error above
        return n_lines

    return count


BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """The Chromium of this machine, started once in a process: Playwright refuses a second one
    beside it.
    """
    paths = [path for name in BROWSERS if (path := shutil.which(name))]
    if not paths:
        pytest.skip(f"no Chromium on this machine (looked for {', '.join(BROWSERS)} on PATH)")
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="the package playwright is not installed"
    )
    with playwright.sync_playwright() as tools:
        started = tools.chromium.launch(
            executable_path=paths[0], args=BROWSER_ARGS, timeout=120_000
        )
        yield started
        started.close()
