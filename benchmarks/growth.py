"""Sets of many rows in batches: CPU time at four sizes, and peak memory, which the batch sets.

    python benchmarks/growth.py --rows 1000000 --classes 1000 --batch 1000

Batches come from a generator and sets are used and dropped, as a service or a file writer would.
Sixteen batches of probabilities are made beforehand and handed out in turn, each copied when it is
handed out, because drawing 10^9 random numbers would take longer than all that is measured.
"""

from __future__ import annotations

import argparse
import resource
import tracemalloc
from collections.abc import Iterator

from harness import conditions, least, table  # isort: skip (sets the threads)

import numpy as np
from label_sets import softmax_rows

from dco import ClassProbabilities, split_conformal
from dco.scores import APS, LAC
from dco.scores.score import Score


def batches(made: list[np.ndarray], rows: int) -> Iterator[np.ndarray]:
    """Fresh batches until `rows` rows have gone by."""
    for number in range(rows // len(made[0])):
        yield made[number % len(made)].copy()


def total_size(score: Score, threshold: float, source: Iterator[np.ndarray]) -> int:
    """Make every set, use it (here: add up sizes) and drop it."""
    return sum(
        int(score.sets(ClassProbabilities(batch), threshold).sizes().sum()) for batch in source
    )


def peak(score: Score, threshold: float, made: list[np.ndarray], rows: int) -> float:
    """The most memory in use at a time beyond the made batches, in MB."""
    tracemalloc.start()
    try:
        total_size(score, threshold, batches(made, rows))
        return tracemalloc.get_traced_memory()[1] / 1e6
    finally:
        tracemalloc.stop()


def measure(rows: int, classes: int, batch: int, repeats: int) -> str:
    """One table and the slopes."""
    cal, y_cal = softmax_rows(max(batch, 500), classes, spread=2.5, seed=1)
    sizes = [rows // 8, rows // 4, rows // 2, rows]
    lines, slopes = [], []
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for name, score in (("LAC", LAC()), ("APS", APS())):
        threshold = float(
            split_conformal(score.observed(ClassProbabilities(cal), y_cal), alpha=0.1)
        )
        for rows_a_batch in (batch, 4 * batch):
            made = [
                softmax_rows(rows_a_batch, classes, spread=2.5, seed=2 + i)[0]
                for i in range(16 * batch // rows_a_batch)
            ]
            if rows_a_batch == batch:
                resident = max(resident, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
                times = [
                    least(
                        lambda n=n, m=made, s=score, t=threshold: total_size(s, t, batches(m, n)),
                        repeats,
                    )
                    for n in sizes
                ]
                slope = np.polyfit(np.log(sizes), np.log(times), 1)[0]
                slopes.append(f"{name} {slope:.3f}")
                relative = [f"{seconds / times[0]:.2f}" for seconds in times]
            else:
                relative = ["", "", "", ""]
            peaks = [
                peak(score, threshold, made, max(n, rows_a_batch)) for n in (sizes[0], sizes[-1])
            ]
            size = made[0].nbytes / 1e6
            lines.append(
                [
                    f"{name}, {rows_a_batch:,} rows a batch ({size:.1f} MB)",
                    *relative,
                    *(f"{p:.1f}" for p in peaks),
                ]
            )
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - resident) / 1024
    head = [
        "sets in batches",
        *(f"time, {n:,} rows" for n in sizes),
        f"peak MB, {sizes[0]:,} rows",
        f"peak MB, {rows:,} rows",
    ]
    whole = rows * classes * 4 / 1e9
    return (
        table(head, lines)
        + f"\n\nTimes are multiples of the first. Slope of log time over log rows (1 is linear): "
        f"{', '.join(slopes)}. All "
        f"rows at once would be {whole:.1f} GB of probabilities; the process grew by {grown:.0f} "
        f"MB while sets were made."
    )


def main() -> None:
    """Print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=1_000)
    parser.add_argument("--repeats", type=int, default=2)
    given = parser.parse_args()
    print(conditions() + "\n")
    print(measure(given.rows, given.classes, given.batch, given.repeats))


if __name__ == "__main__":
    main()
