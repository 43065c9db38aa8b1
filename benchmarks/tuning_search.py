"""Tuning: 64 candidates on one prediction against evaluating their scores one by one.

python benchmarks/tuning_search.py --rows 5000 --classes 1000
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial

from harness import conditions, in_turn, table, verdict  # isort: skip (sets the threads)

import numpy as np
from label_sets import softmax_rows

from dco import ClassProbabilities
from dco.scores import APS, LAC, RAPS, SAPS, Margin, TopK
from dco.scores.score import Score
from dco.tuning import tune


def candidate_scores() -> list[Score]:
    """64 scores: four without parameters, RAPS on a grid of 6 x 6, SAPS at 24 weights."""
    penalties, free = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3), (0, 1, 2, 3, 5, 8)
    grid: list[Score] = [RAPS(penalty, rank_free) for penalty in penalties for rank_free in free]
    return [
        LAC(),
        APS(),
        Margin(),
        TopK(),
        *grid,
        *(SAPS(float(weight)) for weight in np.linspace(0.01, 0.5, 24)),
    ]


def measure(rows: int, classes: int, repeats: int) -> str:
    """One table."""
    probabilities, y = softmax_rows(rows, classes, spread=2.5, seed=1)
    prediction = ClassProbabilities(probabilities)
    scores = candidate_scores()
    candidates = {repr(score): (score, prediction) for score in scores}
    jobs: dict[str, Callable[[], object]] = {
        "evaluated": lambda: [score.observed(prediction, y) for score in scores],
        "every label": lambda: [score.every_label(prediction) for score in (APS(), RAPS(0.01, 5))],
        "tuned": partial(tune, candidates, y, alpha="0.1"),
    }
    times = in_turn(jobs, repeats)
    tuned = times["tuned"] / times["evaluated"]
    by_all = times["tuned"] / (32 * times["every label"])
    return table(
        [f"{len(scores)} candidates on {rows:,} × {classes:,}", "ratio", "target"],
        [
            [
                "`tune` / their 64 true-label scores, one by one",
                f"{tuned:.2f}",
                verdict(tuned, at_most=3),
            ],
            ["`tune` / scores of every label (64 × the mean of APS and RAPS)", f"{by_all:.3f}", ""],
        ],
    )


def main() -> None:
    """Print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    print(conditions() + "\n")
    print(measure(given.rows, given.classes, given.repeats))


if __name__ == "__main__":
    main()
