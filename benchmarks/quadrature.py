"""Bayesian quadrature: the closed form against 1,000 Dirichlet draws at every threshold that a
search visits.

python benchmarks/quadrature.py --rows 3000
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

from harness import conditions, least, table, verdict  # isort: skip (sets the threads)

import numpy as np

from dco import bayesian_quadrature
from dco.foundations.ranks import _pac_rank

ALPHA, DELTA = 0.1, 0.05


def by_draws(scores: np.ndarray, draws: int, rng: np.random.Generator, *, halving: bool) -> float:
    """The smallest score at which 1 - DELTA of Dirichlet-weighted risks are at most ALPHA, as the
    method is usually coded.

    L+ is a Dirichlet(1, ..., 1) average of the n losses and of one more, taken at its worst. The
    thresholds are visited from the largest down, as in a scan, or by bisection.
    """
    ordered = np.sort(scores)
    n = len(ordered)

    def holds(place: int) -> bool:
        losses = np.append((scores > ordered[place]).astype(float), 1.0)
        weights = rng.dirichlet(np.ones(n + 1), size=draws)
        return float(np.mean(weights @ losses <= ALPHA)) >= 1 - DELTA

    if halving:
        low, high = -1, n - 1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if holds(middle) else (middle, high)
        return float(ordered[high])
    place = n - 1
    while place > 0 and holds(place - 1):
        place -= 1
    return float(ordered[place])


def measure(rows: int, draws: int, repeats: int) -> str:
    """One table."""
    rng = np.random.default_rng(0)
    scores = rng.normal(size=rows)
    inner = 50

    def closed() -> None:
        for _ in range(inner):
            bayesian_quadrature(scores, alpha=ALPHA, delta=DELTA)

    def cold() -> None:
        for _ in range(inner):
            _pac_rank.cache_clear()
            bayesian_quadrature(scores, alpha=ALPHA, delta=DELTA)

    def seconds(job: Callable[[], object], count: int) -> float:
        return least(job, count)

    ours, first = seconds(closed, repeats) / inner, seconds(cold, repeats) / inner
    bisected = seconds(lambda: by_draws(scores, draws, rng, halving=True), max(1, repeats // 3))
    scanned = seconds(lambda: by_draws(scores, draws, rng, halving=False), 1)
    value = bayesian_quadrature(scores, alpha=ALPHA, delta=DELTA)
    sampled = [
        np.searchsorted(np.sort(scores), by_draws(scores, draws, rng, halving=True)) + 1
        for _ in range(3)
    ]
    return table(
        [f"m = {rows:,}, alpha = {ALPHA}, delta = {DELTA}", "measured", "target"],
        [
            [
                "closed form, ms (rank looked up)",
                f"{1e3 * ours:.3f}",
                verdict(1e3 * ours, at_most=0.1),
            ],
            [
                "closed form, ms (rank found anew)",
                f"{1e3 * first:.3f}",
                verdict(1e3 * first, at_most=0.1),
            ],
            [
                f"{draws:,} draws a threshold, scan from the top / closed form found anew",
                f"{scanned / first:,.0f}",
                verdict(scanned / first, at_least=1000),
            ],
            [
                f"{draws:,} draws a threshold, bisection / closed form found anew",
                f"{bisected / first:,.0f}",
                verdict(bisected / first, at_least=1000),
            ],
            [
                "rank by the closed form; by three runs with draws",
                f"{value.rank}; {', '.join(map(str, sampled))}",
                "",
            ],
        ],
    )


def main() -> None:
    """Print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=3_000)
    parser.add_argument("--draws", type=int, default=1_000)
    parser.add_argument("--repeats", type=int, default=9)
    given = parser.parse_args()
    print(conditions() + "\n")
    print(measure(given.rows, given.draws, given.repeats))


if __name__ == "__main__":
    main()
