"""The paper's dropout heads on a GPU: those of a whole table trained in one call, against a call
for each split.

    python benchmarks/device_heads.py --features FOLDER

FOLDER holds the CIFAR-100 features; without it DCO_DATA_HOME is looked at. Wall-clock seconds, the
first call (with compilation) and the least of several more. A GPU rounds otherwise in training: what
its heads and those of a CPU know of rows not seen in training is printed side by side, for the
splits that the CPU trains too.
"""

from __future__ import annotations

import argparse
import datetime
import time
from typing import Any

from harness import table, verdict  # isort: skip (sets the threads)

import jax
import numpy as np

from dco.bayes.mc_dropout import MCDropoutClassifier
from dco.datasets import ImageFeatures, load_cifar100_features
from dco.paper.heads import HEADS

Fits = list[list[MCDropoutClassifier]]


def trained(
    datasets: list[tuple[Any, Any]], heads: list[MCDropoutClassifier], repeats: int
) -> tuple[list[float], Fits]:
    """Seconds of each of several runs, and the heads."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        # weights are on the host when it returns
        fits = MCDropoutClassifier.fit_many(datasets, heads)
        seconds.append(time.perf_counter() - start)
    return seconds, fits


def log_likelihoods(fits: Fits, X: Any, y: Any) -> Any:
    """The mean log probability of the true label, head by head."""
    log_mean = [head.predict_log_mean(X) for row in fits for head in row]
    return np.asarray(
        [float(np.mean(np.take_along_axis(each, y[:, None], axis=1))) for each in log_mean]
    )


def measured(data: ImageFeatures, *, splits: int, size: int, on_host: int, repeats: int) -> str:
    """The table of times, and a sentence about the law."""
    heads = [
        MCDropoutClassifier(hidden, dropout, random_state=place)
        for place, (dropout, hidden) in enumerate(HEADS)
    ]
    orders = [np.random.default_rng(split).permutation(len(data)) for split in range(splits)]
    datasets = [(data.features[order[:size]], data.labels[order[:size]]) for order in orders]
    (first, *again), fits = trained(datasets, heads, repeats + 1)
    one, _ = trained(datasets[:1], heads, repeats + 1)
    rows = [
        [
            f"{splits} splits in one call",
            f"{first:.2f}",
            f"{min(again):.2f}",
            verdict(min(again), at_most=2.0),
        ],
        ["one split", f"{one[0]:.2f}", f"{min(one[1:]):.3f}", ""],
    ]
    text = table(
        [
            f"8 heads, {size:,} rows × {data.features.shape[1]:,} features",
            "first, s",
            "again, s",
            "target",
        ],
        rows,
    )
    rest = orders[0][-size:]
    X, y = data.features[rest], data.labels[rest]
    there = log_likelihoods(fits[:on_host], X, y)
    with jax.default_device(jax.devices("cpu")[0]):
        here = log_likelihoods(trained(datasets[:on_host], heads, 1)[1], X, y)
    gap = (there - here).reshape(on_host, -1)
    return (
        f"{text}\n\nMean log probability of the true label on {size:,} other rows, {here.size} "
        f"heads of each: "
        f"{there.mean():.4f} here, {here.mean():.4f} on the CPU; the difference of two heads on "
        f"the same rows is "
        f"{gap.mean():+.4f} on average, ± {2 * gap.std(ddof=1) / np.sqrt(gap.size):.4f}."
    )


def main() -> None:
    """Print Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--features", help="the folder of the CIFAR-100 features")
    parser.add_argument("--splits", type=int, default=50)
    parser.add_argument("--size", type=int, default=2000, help="training rows of a split")
    parser.add_argument("--on-host", type=int, default=2, help="splits that the CPU trains too")
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    (device,) = jax.device_put(0).devices()
    print(
        f"{device.device_kind}, JAX {jax.__version__}, NumPy {np.__version__}, "
        f"{datetime.date.today():%d %B %Y}.\n"
    )
    data = load_cifar100_features(given.features)
    print(
        measured(
            data, splits=given.splits, size=given.size, on_host=given.on_host, repeats=given.repeats
        )
    )


if __name__ == "__main__":
    main()
