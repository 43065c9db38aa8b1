"""Small tables and models that the tests of the commands share."""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner, Result

from dco.cli.main import main


class Dco:
    """The command, run in this process. There is never a traceback."""

    def __call__(self, *arguments: object, status: int = 0) -> Result:
        """Run it and check its exit status."""
        result = CliRunner().invoke(main, [str(argument) for argument in arguments])
        assert result.exit_code == status, (
            f"{arguments}: {result.exit_code}\n{result.output}\n{result.exception!r}"
        )
        assert "Traceback" not in result.output
        assert result.exception is None or isinstance(result.exception, SystemExit)
        return result

    def json(self, *arguments: object, status: int = 0) -> Any:
        """What it prints with --json."""
        return json.loads(self(*arguments, "--json", status=status).output)

    def refuses(self, *arguments: object) -> str:
        """The sentence with which it ends, on one line."""
        return " ".join(self(*arguments, status=2).output.split())


@pytest.fixture(scope="session")
def dco() -> Dco:
    return Dco()


@pytest.fixture
def no_name_for(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """``with no_name_for("part-2.parquet", error) as names``: the disk raises the error when a
    finished file should get this name; `names` has the names that files got before.
    """

    @contextmanager
    def refuse(refused: str, error: BaseException) -> Iterator[list[str]]:
        rename = os.replace
        names: list[str] = []

        def rename_or_fail(source: Path, target: Path) -> None:
            if target.name == refused:
                raise error
            rename(source, target)
            names.append(target.name)

        with monkeypatch.context() as disk:
            disk.setattr(os, "replace", rename_or_fail)
            yield names

    return refuse


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """``small_batches(70)``: tables are read in batches of 70 rows."""
    return lambda rows: monkeypatch.setattr("dco.cli.tables.files.BATCH_ROWS", rows)


def features_of(model: Any, frame: pd.DataFrame) -> pd.DataFrame:
    """The columns of a table that a model was fitted on."""
    return frame[list(model.feature_names_in_)]


def make_table(n: int, seed: int) -> pd.DataFrame:
    """Numbers with holes, two columns of text (one with holes), a quantity and a label to
    predict.
    """
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": rng.normal(50, 10, n).round(2),
            "dose": rng.gamma(2.0, size=n).round(3),
            "site": rng.choice(["north", "south", "east"], size=n),
            "ward": rng.choice(["A1", "B2", "C3"], size=n),
        }
    )
    frame["outcome"] = (
        0.1 * frame["age"] + frame["dose"] + (frame["site"] == "north") + rng.normal(size=n)
    ).round(4)
    frame["grade"] = np.select([frame["outcome"] > 9, frame["outcome"] > 7], ["high", "mid"], "low")
    frame["patient"] = rng.integers(0, n // 4, size=n)
    frame.loc[rng.random(n) < 0.1, "age"] = np.nan
    frame.loc[rng.random(n) < 0.1, "ward"] = None
    return frame


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with tables and two fitted models. Tests must not write into it."""
    folder = tmp_path_factory.mktemp("tables")
    for name, seed, n in (("rows", 0, 320), ("new", 1, 200)):
        frame = make_table(n, seed)
        frame.to_csv(folder / f"{name}.csv", index=False)
        frame.to_parquet(folder / f"{name}.parquet", row_group_size=64)
    make_table(200, 1).to_feather(folder / "new.feather")

    fit = ("fit", folder / "rows.csv", "--drop", "patient", "--models", "linear", "--seed", 3)
    run = Dco()
    run(*fit, "--target", "outcome", "--drop", "grade", "--out", folder / "numbers.dco")
    run(*fit, "--target", "grade", "--drop", "outcome", "--out", folder / "labels.dco")
    return folder


@pytest.fixture
def new(home: Path) -> pd.DataFrame:
    return pd.read_csv(home / "new.csv")


@pytest.fixture
def rows(home: Path) -> pd.DataFrame:
    return pd.read_csv(home / "rows.csv")


@pytest.fixture
def table(tmp_path: Path) -> Callable[[pd.DataFrame], Path]:
    """``table(frame)`` is the path of a CSV with its rows."""

    def write(frame: pd.DataFrame) -> Path:
        frame.to_csv(tmp_path / "t.csv", index=False)
        return tmp_path / "t.csv"

    return write


@pytest.fixture
def parts_of(tmp_path: Path) -> Callable[..., Path]:
    """A folder with a frame in Parquet files of equal length."""

    def write(frame: pd.DataFrame, parts: int = 4, name: str = "in") -> Path:
        folder = tmp_path / name
        folder.mkdir()
        n_rows = len(frame) // parts
        for index in range(parts):
            part = frame.iloc[index * n_rows : (index + 1) * n_rows]
            part.to_parquet(folder / f"part-{index}.parquet", index=False)
        return folder

    return write
