"""Label sets from given probabilities: calibration scores, threshold and sets, as multiples of a floor.

The floor is one compare-and-count pass over the same arrays. Every figure is the least CPU time of several runs in one
process; set OMP_NUM_THREADS=1 so that no library spends the time of several cores:

    python benchmarks/label_sets.py --calibrate 10000 --test 20000 --classes 1000
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from dco import ClassProbabilities, split_conformal
from dco.scores import APS, LAC, RAPS, SAPS, Margin, PosteriorNLL, TopK

SCORES: dict[str, Any] = {
    "LAC": LAC(),
    "APS": APS(),
    "APS, randomised": APS(randomised=True),
    "RAPS": RAPS(penalty=0.01, rank_free=5),
    "RAPS, randomised": RAPS(penalty=0.01, rank_free=5, randomised=True),
    "SAPS": SAPS(weight=0.02),
    "SAPS, randomised": SAPS(weight=0.02, randomised=True),
    "TopK": TopK(),
    "Margin": Margin(),
    "PosteriorNLL": PosteriorNLL(),
}


def softmax_rows(n: int, n_classes: int, *, spread: float, dtype: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities of `n` rows, and labels drawn from them."""
    rng = np.random.default_rng(seed)
    probabilities = np.empty((n, n_classes), dtype=dtype)
    labels = np.empty(n, dtype=np.int64)
    for start in range(0, n, 1000):
        rows = slice(start, min(start + 1000, n))
        logits = spread * rng.standard_normal((rows.stop - start, n_classes))
        weights = np.exp(logits - logits.max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        probabilities[rows] = weights
        reached = np.cumsum(weights, axis=1) < rng.uniform(size=(rows.stop - start, 1))
        labels[rows] = np.minimum(reached.sum(axis=1), n_classes - 1)
    return probabilities, labels


def seconds(job: Callable[[], object], repeats: int) -> float:
    """The least CPU time of several runs."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        job()
        times.append(time.process_time() - start)
    return min(times)


def compare_and_count(*arrays: np.ndarray) -> int:
    """The floor: look at every number once."""
    return sum(int(np.count_nonzero(array >= array.dtype.type(0.5))) for array in arrays)


def main() -> None:
    """Print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calibrate", type=int, default=10_000)
    parser.add_argument("--test", type=int, default=20_000)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--spread", type=float, default=2.5, help="standard deviation of the logits")
    parser.add_argument("--dtype", choices=["float32", "float64"], default="float32")
    parser.add_argument("--alpha", default="0.1")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=list(SCORES))
    given = parser.parse_args()

    cal, y_cal = softmax_rows(given.calibrate, given.classes, spread=given.spread, dtype=given.dtype, seed=1)
    test, y_test = softmax_rows(given.test, given.classes, spread=given.spread, dtype=given.dtype, seed=2)
    rng = np.random.default_rng(3)
    calibrate = ClassProbabilities(cal, uniforms=rng.uniform(size=len(cal)))
    deploy = ClassProbabilities(test, uniforms=rng.uniform(size=len(test)))
    floor = seconds(lambda: compare_and_count(cal, test), 5 * given.repeats)

    print(
        f"{given.calibrate} calibration and {given.test} test rows x {given.classes} classes, {given.dtype}. CPU time, best"
    )
    print(f"of {given.repeats}, as a multiple of one compare-and-count pass over both arrays ({1e3 * floor:.1f} ms).\n")
    print("| score | calibration scores | sets | together | sizes only | mean size | coverage |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for name in given.only:
        score = SCORES[name]
        threshold = split_conformal(score.observed(calibrate, y_cal), alpha=given.alpha)
        observed = seconds(lambda s=score: s.observed(calibrate, y_cal), given.repeats)
        sets = seconds(lambda s=score, t=threshold: s.sets(deploy, t), given.repeats)
        sizes = seconds(lambda s=score, t=threshold: s.sizes(deploy, t), given.repeats)
        made = score.sets(deploy, threshold)
        print(
            f"| {name} | {observed / floor:.1f} x | {sets / floor:.1f} x | {(observed + sets) / floor:.1f} x "
            f"| {sizes / floor:.1f} x | {made.sizes().mean():.1f} | {made.contains(y_test).mean():.4f} |"
        )


if __name__ == "__main__":
    main()
