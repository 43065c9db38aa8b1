"""The examples run without a warning and say what they claim."""

import json
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


def run(name: str, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    before, sys.argv = sys.argv, [name, *arguments]
    try:
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    finally:
        sys.argv = before
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "package", "said"),
    [
        (
            "lightgbm_regression.py",
            "lightgbm",
            ("loaded copy gives the same sets: True", "consistent with the guarantee"),
        ),
        (
            "own_logits.py",
            "numpy",
            ("rank 381 of 400: coverage at least 95%", "consistent with the guarantee"),
        ),
        # calibration scores are tied: the law is a lower bound
        (
            "fitted_pipeline.py",
            "pandas",
            ("training rows: not checked", "not below what the guarantee allows"),
        ),
        ("diabetes.py", "numpy", ("quantiles / QuantileResidual", "consistent with the guarantee")),
    ],
)
def test_an_example_says_what_it_claims(
    name: str, package: str, said: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip(package)
    printed = run(name, capsys)
    assert all(words in printed for words in said)


def test_refit_and_folds_goes_on_where_it_stopped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = tmp_path / "records.jsonl"
    arguments = ("--tables", "diabetes", "--records", str(records))
    run("refit_and_folds.py", capsys, "--seeds", "1", *arguments)
    first = records.read_text()
    printed = run("refit_and_folds.py", capsys, "--seeds", "2", *arguments)
    assert records.read_text().startswith(first)
    entries = [json.loads(line) for line in records.read_text().splitlines()]
    assert [entry["seed"] for entry in entries] == [0, 1]
    # equal levels, equal ranks
    assert {result["n"] for entry in entries for result in entry["result"].values()} == {77}
    assert "| Diabetes | paper → refit |" in printed
    widths = [
        entry["result"]["folds"]["width"] / entry["result"]["paper"]["width"] for entry in entries
    ]
    assert f"| {100 * (sum(widths) / 2 - 1):+.1f} (" in printed


def test_every_example_is_run_by_a_test() -> None:
    tests = "".join(path.read_text() for path in Path(__file__).parent.rglob("test_*.py"))
    missing = [
        path.name
        for path in EXAMPLES.glob("*.py")
        if f'"{path.name}"' not in tests and f'"{path.stem}"' not in tests
    ]
    assert not missing


def test_bikes_by_month_on_a_year_whose_summer_is_new(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The public table is not here: one of the same columns, in which rentals double from the
    fourth month on.
    """
    pd = pytest.importorskip("pandas")
    pytest.importorskip("matplotlib")
    rng, n = np.random.default_rng(0), 12 * 200
    table = pd.DataFrame(
        {
            "mnth": np.repeat([f"m{month}" for month in range(12)], 200),
            "hr": rng.integers(24, size=n).astype(float),
            **{name: rng.uniform(size=n) for name in ("temp", "hum", "windspeed")},
            **{name: rng.integers(2, size=n) for name in ("weekday", "workingday", "holiday")},
            "weathersit": rng.choice(["clear", "rain"], size=n),
        }
    )
    table["bikers"] = (20 + 4 * table["hr"] + 10 * rng.uniform(size=n)) * (
        1 + (np.arange(n) >= 600)
    )
    table.to_csv(tmp_path / "bikes.csv", index=False)
    printed = run(
        "bikes_by_month.py",
        capsys,
        str(tmp_path / "bikes.csv"),
        "--figure",
        str(tmp_path / "bikes.svg"),
    )
    first, second = printed.split("Calibrated again on 400 rows of m4 and m5; the same model:")
    assert "winter:  300 rows" in first
    assert "ALARM" in first
    assert "ALARM" not in second
    assert (tmp_path / "bikes.svg").stat().st_size > 10_000
