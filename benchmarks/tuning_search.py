"""Tuning: 64 candidates on one prediction against evaluating their scores one by one; several
levels against one.

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
from dco.tuning.search import tune_levels

LEVELS = ("0.05", "0.1", "0.2", "0.3")
SEVERAL = (
    "Several levels do not cost exactly one. They share the true-label scores, the sort and the "
    "pass over probabilities; "
    "each adds its own search along the ranks, its own sizes and its own ranking. The target is "
    "therefore at most twice one "
    "level, where four calls of `tune` would cost four times."
)


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
    one = {"APS": (APS(), prediction)}
    jobs: dict[str, Callable[[], object]] = {
        "evaluated": lambda: [score.observed(prediction, y) for score in scores],
        "every label": lambda: [score.every_label(prediction) for score in (APS(), RAPS(0.01, 5))],
        "tuned": partial(tune, candidates, y, alpha="0.1"),
        "four levels": partial(tune_levels, candidates, y, alphas=LEVELS),
        "one candidate": partial(tune, one, y, alpha="0.1"),
        "one candidate, four levels": partial(tune_levels, one, y, alphas=LEVELS),
    }
    times = in_turn(jobs, repeats)
    tuned, four = times["tuned"] / times["evaluated"], times["four levels"] / times["evaluated"]
    levels = times["four levels"] / times["tuned"]
    alone = times["one candidate, four levels"] / times["one candidate"]
    by_all = times["tuned"] / (32 * times["every label"])
    return table(
        [f"{len(scores)} candidates on {rows:,} × {classes:,}", "ratio", "target"],
        [
            [
                "`tune` / their 64 true-label scores, one by one",
                f"{tuned:.2f}",
                verdict(tuned, at_most=3),
            ],
            ["`tune_levels` at 4 levels / the same", f"{four:.2f}", verdict(four, at_most=3)],
            [
                "`tune_levels` at 4 levels / `tune` at one",
                f"{levels:.2f}",
                verdict(levels, at_most=2),
            ],
            ["the same for one candidate (APS)", f"{alone:.2f}", verdict(alone, at_most=2)],
            ["`tune` / scores of every label (64 × the mean of APS and RAPS)", f"{by_all:.3f}", ""],
        ],
    ) + (f"\n\n{SEVERAL}")


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
