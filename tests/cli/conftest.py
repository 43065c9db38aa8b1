"""Small tables and models that the tests of the commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner, Result

from dco.cli.main import main


def run_dco(*arguments: object, status: int = 0) -> Result:
    """Run the command in this process and check its exit status; there is never a traceback."""
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exit_code == status, f"{arguments}: {result.exit_code}\n{result.output}\n{result.exception!r}"
    assert "Traceback" not in result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result


@pytest.fixture(scope="session")
def dco() -> Callable[..., Result]:
    return run_dco


def table(n: int, seed: int) -> pd.DataFrame:
    """Numbers with holes, two columns of text (one with holes), a quantity and a label to predict."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": rng.normal(50, 10, n).round(2),
            "dose": rng.gamma(2.0, size=n).round(3),
            "site": rng.choice(["north", "south", "east"], size=n),
            "ward": rng.choice(["A1", "B2", "C3"], size=n),
        }
    )
    frame["outcome"] = (0.1 * frame["age"] + frame["dose"] + (frame["site"] == "north") + rng.normal(size=n)).round(4)
    frame["grade"] = np.select([frame["outcome"] > 9, frame["outcome"] > 7], ["high", "mid"], "low")
    frame["patient"] = rng.integers(0, n // 4, size=n)
    frame.loc[rng.random(n) < 0.1, "age"] = np.nan
    frame.loc[rng.random(n) < 0.1, "ward"] = None
    return frame


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with tables and two fitted models. Tests must not write into it."""
    folder = tmp_path_factory.mktemp("tables")
    table(320, 0).to_csv(folder / "rows.csv", index=False)
    table(320, 0).to_parquet(folder / "rows.parquet")
    table(200, 1).to_csv(folder / "new.csv", index=False)
    table(200, 1).to_parquet(folder / "new.parquet", row_group_size=64)
    table(200, 1).to_feather(folder / "new.feather")
    common = ("--drop", "patient", "--models", "linear", "--seed", 3)
    run_dco("fit", folder / "rows.csv", "--target", "outcome", "--drop", "grade", *common, "--out", folder / "numbers.dco")
    run_dco("fit", folder / "rows.csv", "--target", "grade", "--drop", "outcome", *common, "--out", folder / "labels.dco")
    return folder
