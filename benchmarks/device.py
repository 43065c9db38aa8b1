"""Label sets of probabilities that are on a GPU: ours, plain torch and TorchCP, from calibration
labels to prediction sets.

    python benchmarks/device.py --calibrate 10000 --test 50000 --classes 1000

Times are wall-clock milliseconds between two synchronisations, the least of several runs in turn,
and multiples of the floor: one compare-and-count pass over the same tensors. All make a matrix of
zeros and ones. Before anything is timed, our sets are compared with those that NumPy makes of the same
probabilities: they must be equal to the last bit. TorchCP is left out where it is not installed.
Without a GPU the CPU is timed, which shows only that everything runs.
"""

from __future__ import annotations

import argparse
import datetime
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from harness import table, verdict  # isort: skip (sets the threads)

import numpy as np
import torch

from dco import ClassProbabilities, split_conformal
from dco.scores import APS, LAC, RAPS, SAPS

ALPHA, PENALTY, RANK_FREE, WEIGHT = 0.1, 0.01, 5, 0.2
OURS: dict[str, Any] = {
    "LAC": LAC(),
    "APS": APS(),
    "RAPS": RAPS(penalty=PENALTY, rank_free=RANK_FREE),
    "SAPS": SAPS(weight=WEIGHT),
}
FLOORS = {"LAC": 3.0, "APS": 12.0, "RAPS": 12.0, "SAPS": 12.0}


def drawn_logits(
    n: int, k: int, *, spread: float, device: str, dtype: torch.dtype, seed: int
) -> tuple[Any, Any]:
    """Normal logits, and labels drawn from their softmax."""
    generator = torch.Generator(device=device).manual_seed(seed)
    logits = spread * torch.randn(n, k, device=device, generator=generator)
    noise = -torch.log(
        -torch.log(torch.rand(n, k, device=device, generator=generator).clamp(1e-20, 1 - 1e-7))
    )
    return logits.to(dtype), (logits + noise).argmax(dim=1)


def compare_and_count(*arrays: Any) -> int:
    """The floor: look at every number once."""
    return sum(int(torch.count_nonzero(array >= 0.5)) for array in arrays)


def our_sets(
    score: Any, cal: Any, y_cal: Any, test: Any, make: Callable[[Any], Any] = ClassProbabilities
) -> Any:
    """Check, score the calibration labels, threshold, sets: all on the device."""
    threshold = split_conformal(score.observed(make(cal), y_cal), alpha=ALPHA)
    return score.sets(make(test), threshold)


def plain_torch(name: str, cal: Any, y_cal: Any, test: Any) -> Any:
    """A short script for the mask of all labels: single precision, no checks, ties as they fall."""

    def scores(p: Any) -> Any:
        if name == "LAC":
            return 1 - p
        values, order = p.sort(dim=1, descending=True)
        return torch.empty_like(p).scatter_(1, order, values.cumsum(dim=1))

    observed = scores(cal).gather(1, y_cal[:, None])[:, 0]
    rank = int(np.ceil((len(observed) + 1) * (1 - ALPHA)))
    return scores(test) <= observed.kthvalue(rank).values


def torchcp(name: str, cal: Any, y_cal: Any, test: Any, kind: str) -> Callable[[], Any]:
    """The same by TorchCP up to its 0/1 matrix on the device; `kind`: "identity" for probabilities,
    "softmax" for logits.
    """
    from torchcp.classification import score as peer
    from torchcp.classification.predictor import SplitPredictor

    def job() -> Any:
        score = {
            "LAC": partial(peer.LAC, score_type=kind),
            "APS": partial(peer.APS, score_type=kind, randomized=False),
            "RAPS": partial(
                peer.RAPS, score_type=kind, randomized=False, penalty=PENALTY, kreg=RANK_FREE
            ),
            "SAPS": partial(peer.SAPS, score_type=kind, randomized=False, weight=WEIGHT),
        }[name]()
        predictor = SplitPredictor(score, alpha=ALPHA, device=test.device)
        predictor.calculate_threshold(cal, y_cal, ALPHA)
        return predictor.predict_with_logits(test)

    return job


def least_in_turn(
    jobs: dict[str, Callable[[], Any]], repeats: int, device: str
) -> dict[str, float]:
    """The least milliseconds of each job; right before each timed run the same job is run untimed,
    so that all are warm.
    """
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    times: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(repeats):
        for name, job in jobs.items():
            job()
            wait()
            start = time.perf_counter()
            job()
            wait()
            times[name].append(1e3 * (time.perf_counter() - start))
    return {name: min(each) for name, each in times.items()}


def check_equal(cal: Any, y_cal: Any, test: Any) -> str:
    """Sets on the device and NumPy's, which must be the same to the last bit."""
    here = cal.cpu().numpy(), y_cal.cpu().numpy(), test.cpu().numpy()
    for name, score in OURS.items():
        theirs, ours = our_sets(score, cal, y_cal, test), our_sets(score, *here)
        assert test.device.type == "cpu" or theirs.members.device == test.device, name
        np.testing.assert_array_equal(theirs.to_dense(), ours.to_dense(), err_msg=name)
    return (
        f"Sets of {', '.join(OURS)} on {test.device} and in NumPy are equal to the last bit "
        f"on {len(test):,} rows."
    )


def compared(cal: Any, y_cal: Any, test: Any, *, repeats: int, device: str) -> tuple[str, str]:
    """The table of times, and a note on what could not be had."""
    p_cal, p_test = (torch.softmax(logits.float(), dim=1) for logits in (cal, test))
    jobs: dict[str, Callable[[], Any]] = {"floor": partial(compare_and_count, p_cal, p_test)}
    jobs |= {
        f"{name}, plain torch": partial(plain_torch, name, p_cal, y_cal, p_test)
        for name in ("LAC", "APS")
    }
    missing = ""
    try:
        for name in OURS:
            jobs[f"{name}, TorchCP"] = torchcp(name, p_cal, y_cal, p_test, "identity")
            jobs[f"{name}, TorchCP from logits"] = torchcp(
                name, cal.float(), y_cal, test.float(), "softmax"
            )
    except ImportError as problem:
        missing = f"TorchCP was not measured ({problem})."
    for name, score in OURS.items():
        jobs[f"{name}, ours"] = partial(our_sets, score, p_cal, y_cal, p_test)
        jobs[f"{name}, ours from logits"] = partial(
            our_sets, score, cal, y_cal, test, ClassProbabilities.from_logits
        )
    times = least_in_turn(jobs, repeats, device)
    rows = []
    for name, milliseconds in times.items():
        score, _, who = name.partition(", ")
        target = (
            verdict(milliseconds / times["floor"], at_most=FLOORS[score]) if who == "ours" else ""
        )
        peer = times.get(name.replace("ours", "TorchCP")) if who.startswith("ours") else None
        ratio = verdict(peer / milliseconds, at_least=1.5) if peer and score != "LAC" else ""
        times_peer = f"{peer / milliseconds:.1f}" if peer else ""
        rows.append(
            [
                name,
                f"{milliseconds:.2f}",
                f"{milliseconds / times['floor']:.1f}",
                target,
                times_peer,
                ratio,
            ]
        )
    return table(
        ["score and who", "ms", "× the floor", "target", "TorchCP / ours", "target"], rows
    ), missing


def set_count(score: Any, logits: Any, threshold: Any) -> int:
    """Make the sets of one batch, and count the labels that they hold."""
    return int(score.sets(ClassProbabilities.from_logits(logits), threshold).sizes().sum())


def streamed(n: int, k: int, batch: int, *, device: str) -> str:
    """Sets of many rows, batch after batch; each is drawn on the device, untimed, and its sets are
    left there.
    """
    make = partial(drawn_logits, k=k, spread=2.5, device=device, dtype=torch.bfloat16)
    cal, y_cal = make(10_000, seed=1)
    thresholds = {
        name: split_conformal(
            score.observed(ClassProbabilities.from_logits(cal), y_cal), alpha=ALPHA
        )
        for name, score in OURS.items()
    }
    milliseconds, labels = dict.fromkeys(OURS, 0.0), dict.fromkeys(OURS, 0)
    for number in range(n // batch):
        test, _ = make(batch, seed=2 + number)
        for name, score in OURS.items():
            job = partial(set_count, score, test, thresholds[name])
            milliseconds[name] += least_in_turn({name: job}, 1, device)[name]
            labels[name] += job()
    rows = [
        [name, f"{spent / 1e3:.3f}", f"{n / spent / 1e3:.2f}", f"{labels[name] / n:.1f}"]
        for name, spent in milliseconds.items()
    ]
    head = [
        f"ours, {n:,} × {k:,} bfloat16 logits in batches of {batch:,}",
        "s",
        "million rows a second",
        "mean size",
    ]
    return table(head, rows)


def main() -> None:
    """Print Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calibrate", type=int, default=10_000)
    parser.add_argument("--test", type=int, default=50_000)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows that are streamed")
    parser.add_argument("--batch", type=int, default=50_000)
    parser.add_argument(
        "--spread", type=float, default=2.5, help="standard deviation of the logits"
    )
    parser.add_argument("--dtype", choices=["float32", "float16", "bfloat16"], default="float32")
    parser.add_argument("--repeats", type=int, default=10)
    given = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    make = partial(
        drawn_logits, spread=given.spread, device=device, dtype=getattr(torch, given.dtype)
    )
    cal, y_cal = make(given.calibrate, given.classes, seed=1)
    test, _ = make(given.test, given.classes, seed=2)
    machine = torch.cuda.get_device_name() if device == "cuda" else "CPU"
    print(
        f"{machine}, torch {torch.__version__}, NumPy {np.__version__}, "
        f"{datetime.date.today():%d %B %Y}.\n"
    )
    print(
        f"{given.calibrate:,} calibration and {given.test:,} test rows × {given.classes:,} "
        f"classes on the device, logits in "
        f"{given.dtype}, alpha {ALPHA}, spread {given.spread:g}; the least of {given.repeats} "
        f"runs, wall-clock.\n"
    )
    rows = min(given.test, 5000)
    print(
        check_equal(
            *(
                torch.softmax(part.float(), dim=1) if part.ndim == 2 else part
                for part in (cal, y_cal, test[:rows])
            )
        )
    )
    text, missing = compared(cal, y_cal, test, repeats=given.repeats, device=device)
    print(f"\n{text}\n")
    if missing:
        print(missing + "\n")
    print(streamed(given.rows, given.classes, given.batch, device=device))


if __name__ == "__main__":
    main()
