"""Coverage in overlapping groups: our cut-offs against MAPIE's ConditionalSplitConformalRegressor
on the same groups.

python benchmarks/overlapping_groups.py --calibrate 1000 --test 1000
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Sequence

from harness import conditions, in_turn, table, verdict  # isort: skip (sets the threads)

import numpy as np

from dco import conditional_conformal

ALPHA = 0.1


def groups(columns: Sequence[int], codes: np.ndarray) -> np.ndarray:
    """A constant and an indicator of each value of each column."""
    marks = [np.eye(values)[codes[:, place].astype(int)] for place, values in enumerate(columns)]
    return np.hstack([np.ones((len(codes), 1)), *marks])


def mapie(
    columns: Sequence[int], codes: np.ndarray, scores: np.ndarray, new: np.ndarray
) -> Callable[[], np.ndarray]:
    """MAPIE as its documentation shows it, exact and without randomisation, on a model that
    predicts 0.
    """
    from mapie.conditional_conformal_prediction import ConditionalSplitConformalRegressor
    from sklearn.dummy import DummyRegressor

    model = DummyRegressor(strategy="constant", constant=0.0).fit(codes, scores)

    def cutoffs() -> np.ndarray:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = ConditionalSplitConformalRegressor(
                lambda X: groups(columns, X), model, confidence_level=1 - ALPHA
            )
            return made.conformalize(codes, scores).predict_interval(new)[1][:, 1, 0]

    return cutoffs


def measure(rows: int, test: int, repeats: int) -> str:
    """One row for each set of columns."""
    found = []
    for columns in ((2, 3), (2, 3, 4), (5, 6, 7)):
        rng = np.random.default_rng(0)
        codes, new = (
            np.stack([rng.integers(0, k, size) for k in columns], axis=1).astype(float)
            for size in (rows, test)
        )
        scores = np.abs(rng.normal(size=rows)) * (1 + codes.sum(axis=1))
        ours_and_theirs = {
            "ours": lambda c=columns, x=codes, s=scores, z=new: conditional_conformal(
                s, groups(c, x), groups(c, z), alpha=ALPHA
            ),
            "MAPIE": mapie(columns, codes, scores, new),
        }
        times = in_turn(ours_and_theirs, repeats)
        ours, theirs = (job() for job in ours_and_theirs.values())
        ratio = times["MAPIE"] / times["ours"]
        same = np.isclose(ours, theirs, rtol=1e-6) | ((ours == np.inf) & (theirs > 1e6))
        found.append(
            [
                f"{len(columns)} columns of {', '.join(map(str, columns))} values",
                len(np.unique(new, axis=0)),
                f"{1e3 * times['ours']:.1f}",
                f"{ratio:,.0f}",
                verdict(ratio, at_least=20),
                f"{np.mean(same):.1%}",
                f"{np.mean(ours <= theirs * (1 + 1e-6)):.1%}",
            ]
        )
    head = [
        "groups",
        "patterns",
        "ours, ms",
        "MAPIE / ours",
        "target",
        "rows with MAPIE's cut-off",
        "ours not larger",
    ]
    return table(head, found)


def main() -> None:
    """Print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calibrate", type=int, default=1_000)
    parser.add_argument("--test", type=int, default=1_000)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    print(conditions() + "\n")
    print(
        f"{given.calibrate:,} calibration and {given.test:,} new rows, alpha {ALPHA}. From scores "
        f"and groups to the "
        "cut-offs of the new rows. Ours solves one program for each pattern of groups, MAPIE one "
        "for each row.\n"
    )
    print(measure(given.calibrate, given.test, given.repeats))


if __name__ == "__main__":
    main()
