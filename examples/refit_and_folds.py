"""The table of docs/refit-and-folds.md: what refitting, and tuning by folds, do to the width of the
sets at one level.

Three procedures on the same known rows and the same new rows, split by split. All calibrate on as
many rows, all are valid.

* paper: train on half, tune on a quarter, calibrate on a quarter; the winner stays as it was
  fitted.
* refit: the same, but the winner is fitted again on training and tuning rows before calibration
  rows are opened.
* folds: candidates are ranked by five folds over all rows that do not calibrate, then the winner is
  fitted on all of them.

    DCO_DATA_HOME=data python examples/refit_and_folds.py --seeds 200 --records
    refit_and_folds.jsonl

Each split is one line of the records file as soon as it is done; a run that was stopped continues
where it ended.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.linear_model import RidgeCV
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import dco
from dco.datasets import load_california_housing, load_concrete, load_diabetes
from dco.paper import paired_comparison

ALPHA = 0.1
ROWS = 3000  # of California Housing, always the same ones
PROCEDURES = {"paper": {"refit": False}, "refit": {"refit": True}, "folds": {"tune_folds": 5}}
TITLES = {
    "diabetes": "Diabetes",
    "california": "California Housing (3000 rows)",
    "concrete": "Concrete",
}


def tables(names):
    """The rows of each table, once."""
    load = {
        "diabetes": load_diabetes,
        "california": load_california_housing,
        "concrete": load_concrete,
    }
    found = {name: load[name]() for name in names}
    kept = {
        name: np.sort(np.random.default_rng(0).permutation(len(table))[:ROWS])
        if name == "california"
        else slice(None)
        for name, table in found.items()
    }
    return {name: (table.X[kept[name]], table.y[kept[name]]) for name, table in found.items()}


def candidates():
    """A small fixed class: near-ties among them are what tuning has to decide."""
    boosting = HistGradientBoostingRegressor(max_iter=40, early_stopping=False)
    return {
        "ridge": make_pipeline(StandardScaler(), RidgeCV(np.logspace(-2, 3, 11))),
        "neighbours": make_pipeline(StandardScaler(), KNeighborsRegressor(7, weights="distance")),
        "forest": RandomForestRegressor(15, min_samples_leaf=3, max_features=0.5),
        **dco.grid(boosting, max_leaf_nodes=[4, 12]),
    }


def one_split(X, y, seed):
    """Coverage and mean width of the three procedures on one split: 70 % known rows, 30 % new
    ones.
    """
    shuffled = np.random.default_rng([seed, 1]).permutation(len(y))
    known, new = np.split(shuffled, [round(0.7 * len(y))])
    result = {}
    for name, settings in PROCEDURES.items():
        est = dco.DecoupledRegressor(candidates(), alpha=ALPHA, random_state=seed, **settings).fit(
            X[known], y[known]
        )
        sets = est.predict_set(X[new])
        result[name] = {
            "coverage": float(sets.contains(y[new]).mean()),
            "width": float(sets.sizes().mean()),
            "winner": est.best_candidate_,
            "n": est.certificate_.provenance.rows["calibrate"],
        }
    return result


def measure(names, seeds, path):
    """All splits that the records file does not hold yet; each is written at once."""
    done = {}
    if path is not None and path.exists():
        for line in path.read_text().splitlines():
            entry = json.loads(line)
            done[entry["table"], entry["seed"]] = entry["result"]
    rows = tables(names)
    # seed by seed, so that a run that is stopped has as many splits of each table
    for seed in range(seeds):
        for name in names:
            if (name, seed) in done:
                continue
            done[name, seed] = one_split(*rows[name], seed)
            if path is not None:
                with path.open("a") as file:
                    file.write(
                        json.dumps({"table": name, "seed": seed, "result": done[name, seed]}) + "\n"
                    )
    return {name: [done[name, seed] for seed in range(seeds)] for name in names}


def column(results, procedure, what):
    return np.array([entry[procedure][what] for entry in results])


def change(comparison, *, scale=1.0, digits=1):
    """A mean with its 95 % interval."""
    numbers = (comparison.mean_difference, comparison.low, comparison.high)
    mean, low, high = (round(scale * value, digits) + 0.0 for value in numbers)  # no minus zero
    return f"{mean:+.{digits}f} ({low:+.{digits}f} to {high:+.{digits}f})"


def markdown(found, seeds):
    """The table of the docs: means with 95 % intervals, paired by split, widths relative to the
    first.
    """
    yield f"| {seeds} splits of | | width, % | coverage, points | mean coverage |"
    yield "|---|---|---|---|---|"
    for name, results in found.items():
        for first, second in (("paper", "refit"), ("refit", "folds"), ("paper", "folds")):
            before, after = column(results, first, "width"), column(results, second, "width")
            width = paired_comparison(after / before, np.ones(len(before)))
            covered = [column(results, procedure, "coverage") for procedure in (second, first)]
            coverage = paired_comparison(*covered)
            yield (
                f"| {TITLES[name]} | {first} → {second} | {change(width, scale=100)} "
                f"| {change(coverage, scale=100, digits=2)} | {covered[1].mean():.4f} → "
                f"{covered[0].mean():.4f} |"
            )


def main(arguments=None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--tables", nargs="+", choices=TITLES, default=list(TITLES))
    parser.add_argument(
        "--records", type=Path, default=None, help="JSON lines to go on from and to write to"
    )
    options = parser.parse_args(arguments)
    found = measure(options.tables, options.seeds, options.records)
    print("\n".join(markdown(found, options.seeds)))


if __name__ == "__main__":
    main()
