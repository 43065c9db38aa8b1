"""Watching rows in service: how soon a fall of coverage is found, by `dco.Monitor` and MAPIE's
monitors.

python benchmarks/watching.py --streams 60
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator

from harness import conditions, once, table, verdict  # isort: skip (sets the threads)

import numpy as np
from scipy.stats import norm
from sklearn.dummy import DummyRegressor
from sklearn.frozen import FrozenEstimator

import dco

ALPHA, ERROR_RATE = 0.1, 0.05
BEFORE, AFTER = 500, 1_500
# what a monitor says after each row: an alarm comes when it is at most the error rate, or some
# other cut
Path = np.ndarray


def streams(
    n: int, count: int, coverage: float, seed: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Calibration targets, then targets in service: standard normal, wider from row 500 on: this
    share is covered.
    """
    rng = np.random.default_rng(seed)
    scale = np.repeat(
        [1.0, norm.ppf(1 - ALPHA / 2) / norm.ppf((1 + coverage) / 2)], [BEFORE, AFTER]
    )
    for _ in range(count):
        yield rng.normal(size=n), scale * rng.normal(size=BEFORE + AFTER)


def zero() -> DummyRegressor:
    """A model that predicts 0, so that the score of a row is the size of its target."""
    return DummyRegressor(strategy="constant", constant=0.0).fit(np.zeros((2, 1)), np.zeros(2))


def as_column(y: np.ndarray) -> np.ndarray:
    """Features that tell the rows apart and say nothing."""
    return np.arange(y.size, dtype=float)[:, None]


def ours(name: str) -> Callable[[np.ndarray, np.ndarray], Path]:
    """The p-values of `dco.Monitor`: of coverage, or of the scores."""

    def watched(y: np.ndarray, new: np.ndarray) -> Path:
        est = dco.DecoupledRegressor(
            FrozenEstimator(zero()), dco.scores.AbsoluteResidual(), tune_size=0, alpha=ALPHA
        )
        monitor = dco.Monitor(est.fit(as_column(y), y), error_rate=ERROR_RATE)
        monitor.update(as_column(new), new)
        return monitor.timeline()[name]

    return watched


def mapie_martingale(method: str) -> Callable[[np.ndarray, np.ndarray], Path]:
    """1 / the martingale, begun on the calibration rows as its documentation says; rows of these
    cannot raise an alarm.
    """

    def watched(y: np.ndarray, new: np.ndarray) -> Path:
        from mapie.exchangeability_testing import OnlineMartingaleTest
        from mapie.regression import SplitConformalRegressor

        model = SplitConformalRegressor(zero(), prefit=True)
        test = OnlineMartingaleTest(
            model, task="regression", test_method=method, warn=False, random_state=0
        )
        values = np.concatenate([y, new])
        test.update(as_column(values), values)
        return 1 / np.maximum(np.asarray(test.martingale_value_history)[y.size :], 1e-300)

    return watched


def mapie_risk(tolerance: float) -> Callable[[np.ndarray, np.ndarray], Path]:
    """MAPIE's RiskMonitoring of misses, against those of the calibration rows.

    An alarm comes when its lower bound of the misses is above its threshold. What is returned is
    the error rate when that is so, and moves away from it with the difference.
    """

    def watched(y: np.ndarray, new: np.ndarray) -> Path:
        from mapie.exchangeability_testing import RiskMonitoring

        cut = dco.split_conformal(np.abs(y), alpha=ALPHA).value
        covered = [(np.abs(values) <= cut).astype(int) for values in (y, new)]
        test = RiskMonitoring("accuracy", test_level=ERROR_RATE, tolerance=tolerance, warn=False)
        test.compute_threshold(np.ones(y.size, dtype=int), covered[0])
        test.update(np.ones(new.size, dtype=int), covered[1])
        return ERROR_RATE + test.threshold - test.online_risk_lower_bound_sequence_history

    return watched


MONITORS: dict[str, Callable[[np.ndarray, np.ndarray], Path]] = {
    "dco.Monitor, alarm": ours("p_value"),
    "dco.Monitor, drift": ours("drift_p_value"),
    "MAPIE, jumper martingale": mapie_martingale("jumper_martingale"),
    "MAPIE, risk monitoring (tolerance .05, its default)": mapie_risk(0.05),
    "MAPIE, risk monitoring (tolerance 0)": mapie_risk(0.0),
}
PLUG_IN = {"MAPIE, plug-in martingale": mapie_martingale("plugin_martingale")}


def first(path: Path, cut: float) -> float:
    """The number of rows until the first alarm; infinite if there is none."""
    below = np.flatnonzero(path <= cut)
    return float(below[0] + 1) if below.size else np.inf


def delays(paths: list[Path], cut: float) -> tuple[float, float]:
    """Of the streams without an alarm before the change: the median number of rows after it, and
    the share found.
    """
    found = np.array([first(path, cut) for path in paths])
    after = found[found > BEFORE] - BEFORE
    return (
        (float(np.median(after)), float(np.mean(np.isfinite(after))))
        if after.size
        else (np.nan, np.nan)
    )


def measure(
    n: int,
    count: int,
    coverage: float,
    monitors: dict[str, Callable[[np.ndarray, np.ndarray], Path]],
) -> str:
    """One row for each monitor: at its own error rate, and with its cut moved to 5 % of the streams
    without a change.
    """
    rows = []
    for name, watched in monitors.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            calm = [watched(*stream) for stream in streams(n, count, 1 - ALPHA, seed=1)]
            seconds, changed = once(
                lambda w=watched: [w(*stream) for stream in streams(n, count, coverage, seed=2)]
            )
        false = np.mean([np.isfinite(first(path, ERROR_RATE)) for path in calm])
        median, found = delays(changed, ERROR_RATE)
        equal = np.quantile([path.min() for path in calm], ERROR_RATE, method="lower")
        equal_median, _ = delays(changed, equal)
        target = (
            verdict(median, at_most=150)
            if (name, n, coverage) == ("dco.Monitor, alarm", 1000, 0.8)
            else ""
        )
        shown = [
            f"{value:.0f}" if np.isfinite(value) else "not found"
            for value in (median, equal_median)
        ]
        rows.append(
            [
                name,
                f"{false:.1%}",
                shown[0],
                target,
                f"{found:.0%}",
                shown[1],
                f"{1e6 * seconds / count / 2000:.0f}",
            ]
        )
    head = [
        "monitor",
        "false alarms",
        "median delay",
        "target",
        "found",
        "delay at equal false alarms",
        "µs per row",
    ]
    return table(head, rows)


def main() -> None:
    """Print Markdown tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=60)
    parser.add_argument(
        "--plug-in",
        type=int,
        default=0,
        help="streams for MAPIE's plug-in martingale, which is slow",
    )
    parser.add_argument("--calibrate", type=int, nargs="*", default=[200, 1_000])
    parser.add_argument("--coverage", type=float, nargs="*", default=[0.8, 0.6])
    given = parser.parse_args()
    print(conditions() + "\n")
    print(
        f"Streams of {BEFORE + AFTER:,} rows: scores are like those of the calibration rows up to "
        f"row {BEFORE}, and larger "
        "after it, so that coverage falls from .90 to what is named. All monitors see the same "
        "rows, at error rate .05. "
        f"False alarms: of {given.streams} streams without a change. Delay: rows after the "
        f"change, median over the streams "
        "without an alarm before it. The last delay is at the cut that 5 % of the streams without "
        "a change reach, for each "
        "monitor its own.\n"
    )
    for n in given.calibrate:
        for coverage in given.coverage:
            print(f"{n:,} calibration rows, coverage falls to {coverage:.2f}:\n")
            print(measure(n, given.streams, coverage, MONITORS) + "\n")
    if given.plug_in:
        print(f"MAPIE's plug-in martingale on {given.plug_in} streams of the last kind:\n")
        print(measure(given.calibrate[-1], given.plug_in, given.coverage[-1], PLUG_IN) + "\n")
    print(
        "Risk monitoring compares with an upper bound of the misses on rows of reference "
        "(Hoeffding) and adds a tolerance, "
        "so it looks for a fall beyond that bound; rows of calibration serve it as reference. The "
        "martingales look for any "
        "change of the scores, falls and rises; ours of drift does the same. dco.Monitor's alarm "
        "is about coverage alone, "
        "and its law includes the chance of the calibration rows. MAPIE's plug-in martingale "
        "takes some 7 ms per "
        "row, and runs only with --plug-in."
    )


if __name__ == "__main__":
    main()
