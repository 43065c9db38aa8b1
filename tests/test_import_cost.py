"""`import dco` is light: no optional package, no scikit-learn; every public name is there all the same."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import dco

HEAVY = ("matplotlib", "jax", "torch", "optuna", "dask", "distributed", "pandas", "polars", "sklearn", "numpyro", "pyarrow")


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_importing_dco_loads_no_heavy_package() -> None:
    loaded = json.loads(run("import dco, sys, json; print(json.dumps(sorted(sys.modules)))"))
    assert not set(HEAVY) & set(loaded)


def test_the_array_core_loads_no_heavy_package() -> None:
    code = (
        "import dco, sys, json, numpy as np\n"
        "p = dco.ClassProbabilities(np.full((20, 2), 0.5))\n"
        "s = dco.scores.LAC()\n"
        "t = dco.split_conformal(s.observed(p, np.zeros(20, dtype=int)), alpha=0.1)\n"
        "s.sets(p, t).sizes()\n"
        "print(json.dumps(sorted(sys.modules)))"
    )
    assert not set(HEAVY) & set(json.loads(run(code)))


def processor_seconds(code: str) -> float:
    """The least processor time of five runs, less the interpreter's own start: other programs do not count."""
    resource = pytest.importorskip("resource")  # not on Windows

    def once(text: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        run(text)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)

    return min(once(code) for _ in range(5)) - min(once("pass") for _ in range(5))


def test_importing_dco_takes_less_than_half_a_second_of_processor_time() -> None:
    assert processor_seconds("import dco") < 0.5


def test_the_help_of_the_command_takes_less_than_seven_tenths_of_a_second_of_processor_time() -> None:
    code = "import sys; sys.argv = ['dco', '--help']\ntry:\n from dco.cli import main; main()\nexcept SystemExit: pass"
    assert processor_seconds(code) < 0.7


def test_the_clock_sees_work() -> None:
    """The check itself can fail: a loop that works is seen, and sleep is not."""
    loop = "import time\nwhile time.process_time() < 0.3: pass"
    assert processor_seconds(loop) > 0.1
    assert processor_seconds("import time; time.sleep(0.2)") < 0.1


def test_every_public_name_can_be_loaded() -> None:
    for name in dco.__all__:
        assert getattr(dco, name) is not None


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        dco.no_such_name  # noqa: B018
