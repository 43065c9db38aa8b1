"""`import dco` is light: no optional package, no scikit-learn; every public name is there all the
same.
"""

import json
import subprocess
import sys

import pytest

import dco

HEAVY = (
    "matplotlib",
    "jax",
    "torch",
    "optuna",
    "dask",
    "distributed",
    "pandas",
    "polars",
    "sklearn",
    "numpyro",
    "pyarrow",
)


def run(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout


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


def loaded_by(code: str) -> set[str]:
    """The modules that some code loads, beside those of Python itself."""
    around = (
        f"import sys, json\nbefore = set(sys.modules)\n{code}\n"
        "new = [name for name in set(sys.modules) - before if name.split('.')[0] not in "
        "sys.stdlib_module_names]\n"
        "print(json.dumps(new))"
    )
    return set(json.loads(run(around).splitlines()[-1]))


def test_importing_dco_loads_one_module() -> None:
    assert loaded_by("import dco") == {"dco"}


def test_the_help_of_the_command_loads_click_and_no_command() -> None:
    code = (
        "sys.argv = ['dco', '--help']\ntry:\n from dco.cli.main import main; main()\nexcept "
        "SystemExit: pass"
    )
    found = loaded_by(code)
    assert {name for name in found if name.startswith("dco")} == {"dco", "dco.cli", "dco.cli.main"}
    assert {name.split(".")[0] for name in found} <= {"dco", "click", "colorama"}


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        dco.no_such_name  # noqa: B018
