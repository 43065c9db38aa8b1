"""Regression scores against the arithmetic they need, and mixture densities against a SciPy grid.

    python benchmarks/densities.py

Every figure is a ratio of two CPU times measured in this run, each the least of several; only the
highest-density mass, which is slow, is timed once. The 400-point grid is timed on a hundred rows
and scaled to all of them (it is linear in rows: each row is by itself).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial

from harness import conditions, in_turn, least, verdict  # isort: skip (sets the threads)

import numpy as np
from scipy.special import logsumexp

from dco.predictions import GaussianMixtures, Points, PointsWithSpread, Quantiles
from dco.scores.density import HighestDensityMass, PredictiveDensity
from dco.scores.regression import AbsoluteResidual, NormalisedResidual, QuantileResidual


def alternating(
    ours: Callable[[], object], floor: Callable[[], object], repeats: int
) -> tuple[float, float]:
    """Both timed in turn."""
    times = in_turn({"ours": ours, "floor": floor}, repeats)
    return times["ours"], times["floor"]


def residuals(rows: int, repeats: int) -> None:
    rng = np.random.default_rng(0)
    mean, spread, y = rng.normal(size=rows), rng.uniform(0.5, 2, size=rows), rng.normal(size=rows)
    low, high = mean - spread, mean + spread
    middle = mean + 0.1 * spread
    points, centred = partial(Points, mean), partial(PointsWithSpread, mean, spread)
    pair, triple = partial(Quantiles, low, high), partial(Quantiles, low, high, middle)
    t = 1.3

    def plain_sets() -> tuple[object, object]:
        return mean - t, mean + t

    def scaled_sets() -> tuple[object, object]:
        half = t * spread
        return mean - half, mean + half

    def relative_observed() -> object:
        return np.maximum(low - y, y - high) / (high - low)

    def relative_sets() -> tuple[object, object]:
        half = t * (high - low)
        return low - half, high + half

    def median_observed() -> object:
        return np.maximum((low - y) / (middle - low), (y - high) / (high - middle))

    def median_sets() -> tuple[object, object]:
        return low - t * (middle - low), high + t * (high - middle)

    cases = [
        (AbsoluteResidual(), points, lambda: np.abs(y - mean), plain_sets),
        (NormalisedResidual(), centred, lambda: np.abs(y - mean) / spread, scaled_sets),
        (
            QuantileResidual(),
            pair,
            lambda: np.maximum(low - y, y - high),
            lambda: (low - t, high + t),
        ),
        (QuantileResidual("relative"), pair, relative_observed, relative_sets),
        (QuantileResidual("median"), triple, median_observed, median_sets),
    ]
    print(
        f"\n{rows:,} rows: time over that of the bare NumPy arithmetic. *Checked* counts the "
        f"record too, which looks for "
        "values that are not finite or not in order; it is made once for all that follows.\n"
    )
    print(
        "| score | observed | sets | contains | sizes | target | checked, observed | target | "
        "checked, sets | target |"
    )
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    for score, record, observed, ends in cases:
        ratios = []
        prediction = record()
        sets = score.sets(prediction, t)

        def compare(observed: Callable[[], np.ndarray] = observed) -> object:
            return observed() <= t

        def lengths(ends: Callable[[], tuple[np.ndarray, np.ndarray]] = ends) -> object:
            lower, upper = ends()
            return upper - lower

        for ours, floor in (
            (lambda s=score, p=prediction: s.observed(p, y), observed),
            (lambda s=score, p=prediction: s.sets(p, t), ends),
            (lambda c=sets: c.contains(y), compare),
            (lambda s=score, p=prediction: s.sizes(p, t), lengths),
            (lambda s=score, r=record: s.observed(r(), y), observed),
            (lambda s=score, r=record: s.sets(r(), t), ends),
        ):
            mine, bare = alternating(ours, floor, repeats)
            ratios.append(mine / bare)
        cells = [f"{ratio:.2f}" for ratio in ratios]
        without, *checked = (verdict(ratio, at_most=3) for ratio in (max(ratios[:4]), *ratios[4:]))
        print(
            f"| {score!r} | "
            + " | ".join([*cells[:4], without, cells[4], checked[0], cells[5], checked[1]])
            + " |"
        )


def grid_sets(mixtures: GaussianMixtures, level: float, points: int = 400) -> np.ndarray:
    """What people do: the log-density on a grid, row by row; the ends by linear interpolation."""
    log_peaks = -np.log(mixtures.sds) - 0.5 * np.log(2 * np.pi) - np.log(mixtures.means.shape[0])
    ends = np.empty((len(mixtures), 2))
    for row, means in enumerate(mixtures.means.T):
        grid = np.linspace(means.mean() - 6, means.mean() + 6, points)
        heights = (
            logsumexp(log_peaks - 0.5 * ((grid[:, None] - means) / mixtures.sds) ** 2, axis=1)
            - level
        )
        inside = np.flatnonzero(heights >= 0)
        for side, (a, b) in enumerate(((inside[0] - 1, inside[0]), (inside[-1], inside[-1] + 1))):
            ends[row, side] = grid[a] + (grid[b] - grid[a]) * heights[a] / (heights[a] - heights[b])
    return ends


def exact_ends(mixtures: GaussianMixtures, level: float, start: np.ndarray) -> np.ndarray:
    """Float64 brute force: bisection of SciPy's log-density from the grid's answer, to the last
    bit.
    """
    log_peaks = -np.log(mixtures.sds) - 0.5 * np.log(2 * np.pi) - np.log(mixtures.means.shape[0])
    ends = np.empty_like(start)
    for side, outward in enumerate((-0.05, 0.05)):
        inside, outside = start[:, side] - outward, start[:, side] + outward
        for _ in range(50):
            middle = 0.5 * (inside + outside)
            heights = logsumexp(
                log_peaks - 0.5 * ((middle[:, None] - mixtures.means.T) / mixtures.sds) ** 2, axis=1
            )
            held = heights >= level
            inside, outside = np.where(held, middle, inside), np.where(held, outside, middle)
        ends[:, side] = inside
    return ends


def densities(rows: int, draws: int, sample: int, repeats: int) -> None:
    rng = np.random.default_rng(1)
    means = rng.normal(size=(rows, 1)) + 0.25 * rng.normal(size=(rows, draws))
    sds = 0.7 * np.exp(0.05 * rng.normal(size=draws))
    mixtures = GaussianMixtures(means, sds, draws_first=False)
    few = mixtures.take(slice(0, sample))
    assert isinstance(few, GaussianMixtures)
    y = means[:, 0] + 0.7 * rng.normal(size=rows)
    score = PredictiveDensity()
    t = float(np.quantile(score.observed(mixtures, y), 0.9))

    ours, grid = alternating(lambda: score.sets(mixtures, t), lambda: grid_sets(few, -t), repeats)
    grid *= rows / sample
    one_pass = least(lambda: score.observed(mixtures, y), repeats)
    by_grid = grid_sets(few, -t)
    truth = exact_ends(few, -t, by_grid)
    sets = score.sets(few, t)
    error = max(np.abs(sets.lower - truth[:, 0]).max(), np.abs(sets.upper - truth[:, 1]).max())
    mass = HighestDensityMass()
    mass_observed = least(lambda: mass.observed(mixtures, y), 1)
    mass_sets = least(lambda: mass.sets(mixtures, 0.9), 1)

    print(
        f"\n{rows:,} rows × {draws:,} draws, one density each; the grid timed on {sample} rows "
        f"and scaled\n"
    )
    print("| what | result | target |")
    print("|---|---:|---:|")
    print(
        f"| 400-point SciPy grid / our sets | {grid / ours:.0f} | "
        f"{verdict(grid / ours, at_least=20)} |"
    )
    print(
        f"| our sets / one evaluation of the density a row (the floor) | {ours / one_pass:.1f} | |"
    )
    print(f"| highest-density mass observed / the same floor | {mass_observed / one_pass:.1f} | |")
    print(f"| highest-density mass sets / the same floor | {mass_sets / one_pass:.1f} | |")
    print(f"| 400-point SciPy grid / highest-density mass sets | {grid / mass_sets:.0f} | |")
    print(f"| largest error of our ends | {error:.1e} | {verdict(error, at_most=1e-6)} |")
    print(
        f"| largest error of the grid's ends, interpolated | "
        f"{np.abs(by_grid - truth).max():.1e} | |"
    )


def growth(draws: int, repeats: int) -> None:
    rng = np.random.default_rng(2)
    sizes = np.array([500, 1000, 2000, 4000])
    times = []
    for rows in sizes:
        mixtures = GaussianMixtures(
            rng.normal(size=(rows, 1)) + 0.25 * rng.normal(size=(rows, draws)),
            np.full(draws, 0.7),
            draws_first=False,
        )
        times.append(least(lambda m=mixtures: PredictiveDensity().sets(m, 2.0), repeats))
    slope = np.polyfit(np.log(sizes), np.log(times), 1)[0]
    print(
        f"| growth in rows, slope of log time over log rows at {', '.join(map(str, sizes))} "
        f"rows | {slope:.2f} | |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="a tenth of the rows, to see that it runs"
    )
    quick = parser.parse_args().quick
    print(conditions())
    residuals(100_000 if quick else 1_000_000, repeats=5 if quick else 15)
    densities(
        1_000 if quick else 10_000, 1_000, sample=20 if quick else 100, repeats=2 if quick else 3
    )
    growth(500, repeats=3)


if __name__ == "__main__":
    main()
