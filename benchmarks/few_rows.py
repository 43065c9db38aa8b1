"""What each way to use few rows costs: mean widths at 90 % from 20 to 150 rows of two tables of
scikit-learn, over draws of the rows.

    python benchmarks/few_rows.py                       # some minutes on one core
    python benchmarks/few_rows.py --draws 3 --rows 20 40

Widths are in units of the table's target; "coverage" is the share of new rows that are covered,
over all draws. Defaults of the full conformal regressor were chosen on Diabetes and on other targets
than the alcohol of wines. A draw with an infinite set has an infinite mean width, which the table shows.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from sklearn.datasets import load_diabetes, load_wine
from sklearn.linear_model import RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import dco

ALPHA = 0.1
MOST_NEW_ROWS = 200


@dataclass(frozen=True, eq=False)
class Table:
    """A table with a numeric target."""

    name: str
    X: np.ndarray
    y: np.ndarray


@dataclass(frozen=True)
class Result:
    """The mean width and the coverage of one fit on new rows."""

    width: float
    coverage: float


def load_tables() -> list[Table]:
    """Load Diabetes, and the alcohol of wines as a function of what else was measured."""
    diabetes = load_diabetes(return_X_y=True)
    wine = load_wine().data
    return [Table("Diabetes", *diabetes), Table("Wine, alcohol", wine[:, 1:], wine[:, 0])]


def fit_split_ridge(seed: int) -> dco.DecoupledRegressor:
    """Make a ridge regression that half of the rows train and half calibrate."""
    ridge = make_pipeline(StandardScaler(), RidgeCV(alphas=np.logspace(-2, 3, 11)))
    score = dco.scores.AbsoluteResidual()
    return dco.DecoupledRegressor(ridge, score, alpha=ALPHA, calibrate_size=0.5, random_state=seed)


WAYS: dict[str, Callable[[int], object]] = {
    "full conformal, smooth": lambda seed: dco.FullConformalRegressor(alpha=ALPHA),
    "full conformal, linear": lambda seed: dco.FullConformalRegressor("linear", alpha=ALPHA),
    "split ridge": fit_split_ridge,
    "DecoupledRegressor()": lambda seed: dco.DecoupledRegressor(alpha=ALPHA, random_state=seed),
}


def measure(way: str, table: Table, *, n_rows: int, draw: int) -> Result:
    """Fit on rows drawn at random, and measure the sets of others."""
    mixed = np.random.default_rng(draw).permutation(len(table.y))
    rows = mixed[:n_rows]
    new_rows = mixed[n_rows:][:MOST_NEW_ROWS]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        est = WAYS[way](draw).fit(table.X[rows], table.y[rows])
        sets = est.predict_set(table.X[new_rows])
    return Result(
        width=float(np.mean(sets.sizes())),
        coverage=float(np.mean(sets.contains(table.y[new_rows]))),
    )


def summarise(results: list[Result]) -> str:
    """Write the mean and the standard deviation of the widths, and the mean coverage."""
    widths = np.array([result.width for result in results])
    coverage = np.mean([result.coverage for result in results])
    if np.isinf(widths).any():
        return f"infinite in {int(np.isinf(widths).sum())} of {len(widths)} draws ({coverage:.2f})"
    return f"{np.mean(widths):.3g} ± {np.std(widths, ddof=1):.2g} ({coverage:.2f})"


def main(arguments: list[str] | None = None) -> None:
    """Print one row for each table and number of rows, and one column for each way."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--draws", type=int, default=25)
    parser.add_argument("--rows", type=int, nargs="+", default=[20, 40, 80, 150])
    options = parser.parse_args(arguments)

    print("| table, rows |", " | ".join(WAYS), "|")
    print("|---" * (len(WAYS) + 1) + "|")
    for table in load_tables():
        for n_rows in options.rows:
            cells = []
            for way in WAYS:
                results = [
                    measure(way, table, n_rows=n_rows, draw=draw) for draw in range(options.draws)
                ]
                cells.append(summarise(results))
            print(f"| {table.name} {n_rows} |", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    main()
