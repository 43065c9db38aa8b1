"""Label sets from given probabilities: ours and four other libraries, from calibration labels to
prediction sets.

    python benchmarks/label_sets.py --calibrate 10000 --test 20000 --classes 1000

Everything is counted, checking the input included. Figures are multiples of the floor, one
compare-and-count pass over the same arrays; a library that is not installed is left out. puncc
needs NumPy below 2: `--puncc PYTHON` names the interpreter of its own environment, where it runs on
the same arrays; its CPU time is divided by the floor measured here. Every library, ours included,
has one run that is not timed, then several in turn with the floor. Libraries do not take turns with
each other: one that gives its memory back made the next one pay for getting it anew, up to five
times its own work.

A label in a set must be written, so large sets cost more: our scores are timed on flat
probabilities too.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

# isort: skip (sets the threads)
from harness import compare_and_count, conditions, in_turn, table, verdict
from peers import ALPHA, PEERS, PENALTY, RANK_FREE, WEIGHT

from dco import ClassProbabilities, split_conformal
from dco.scores import APS, LAC, RAPS, SAPS, Margin, PosteriorNLL, TopK
from dco.scores.ranks import _comparisons

COMPARED: dict[str, Any] = {
    "LAC": LAC(),
    "APS": APS(),
    "RAPS": RAPS(penalty=PENALTY, rank_free=RANK_FREE),
    "SAPS": SAPS(weight=WEIGHT),
}
OURS: dict[str, Any] = {
    **COMPARED,
    "APS, randomised": APS(randomised=True),
    "RAPS, randomised": RAPS(penalty=PENALTY, rank_free=RANK_FREE, randomised=True),
    "SAPS, randomised": SAPS(weight=WEIGHT, randomised=True),
    "TopK": TopK(),
    "Margin": Margin(),
    "PosteriorNLL": PosteriorNLL(),
}
LIMITS = {"LAC": 5.0, "APS": 40.0, "RAPS": 40.0, "SAPS": 40.0}
DIFFERENCES = (
    "Sets need not be equal. MAPIE's RAPS tunes its own parameters on a fifth of the calibration "
    "rows; its APS treats the "
    "label at the threshold in its own way (include_last_label=True here). puncc's APS and RAPS "
    "add the label that crosses "
    "the threshold. TorchCP's SAPS without randomisation scores a top-ranked true label 0 when it "
    "calibrates but p_max when "
    "it predicts, so its threshold can be too low. Libraries that compute in single precision "
    "decide a few labels at the "
    "threshold otherwise. crepes has LAC only. Each library gives its sets in its own form: ours "
    "and puncc's are the labels "
    "of each row, the others' a matrix of all labels."
)
LARGER_SETS = (
    "The table above is for spread {spread:g}. Flatter probabilities make larger sets, and every "
    "label in a set is found "
    "and written: the floor stays the same, the output grows with the mean size (and where a set "
    "may reach most of a row, "
    "the whole row is sorted). Ours on flatter probabilities, by the same targets:"
)
FEW_CLASSES = (
    "Ours with few classes, which are held as one bit for each label. Sizes, coverage and the "
    "matrix of all labels need no "
    "more; the labels of each row as numbers, with a pointer of eight bytes for each row however "
    "few its labels, are made "
    "on first use, and the second column counts these too. The lines of plain NumPy are what such "
    "output alone costs: one "
    "comparison with a given number, the codes and the pointers of the members, no check, no "
    "calibration rows, no ranks."
)
NEEDED = (
    "Where these miss 12 floors, it is for the number of passes over memory, of which NumPy needs "
    "one for each elementary "
    "step. Three that every score by ranks needs are timed bare below: all numbers are stored by "
    "columns; the lines of the "
    "test rows are compared in Batcher's network, in 16 bits (2, 18, 64 and 356 passes over the "
    "test rows); "
    "and the probabilities of the calibration rows are compared, masked and summed in double "
    "precision, for scores are "
    "exact. What is left of 12 floors has to do for some twenty shorter passes: the check of the "
    "input, label, place and "
    "score of each calibration row, the threshold among them, the sums along the ranks, two "
    "comparisons with the limits, "
    "the last value in each set, membership and marks."
)
FEW = (2, 5, 10, 30)  # classes of usual tables
FLAT = (1.0, 0.3)  # spreads of logits at which ours are timed again
# test rows on which a slow library is timed; its time is then scaled to all of them
SLOW = {"crepes": 400}


def softmax_rows(
    n: int, n_classes: int, *, spread: float, seed: int, dtype: str = "float32"
) -> tuple[np.ndarray, np.ndarray]:
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


def our_sets(
    score: Any, cal: np.ndarray, y_cal: np.ndarray, test: np.ndarray, uniforms: Any = (None, None)
) -> Any:
    """All that the others do too: check, score the calibration labels, threshold, sets."""
    observed = score.observed(ClassProbabilities(cal, uniforms=uniforms[0]), y_cal)
    return score.sets(
        ClassProbabilities(test, uniforms=uniforms[1]), split_conformal(observed, alpha=ALPHA)
    )


# CPU seconds and sets, by (library, score)
Found: TypeAlias = dict[tuple[str, str], tuple[float, np.ndarray]]


def prepared_peers(
    cal: np.ndarray, y_cal: np.ndarray, test: np.ndarray
) -> tuple[dict[tuple[str, str], Callable[[], np.ndarray]], list[str]]:
    """What each library runs, by (library, score), and what could not be had; a slow one gets its
    first test rows.
    """
    jobs: dict[tuple[str, str], Callable[[], np.ndarray]] = {}
    missing: list[str] = []
    for library, prepare in PEERS.items():
        for score in COMPARED:
            try:
                job = prepare(score, cal, y_cal, test[: SLOW.get(library, len(test))])
            except ImportError as problem:
                missing.append(f"{library} ({problem})")
                break
            if job is not None:
                jobs[library, score] = job
    return jobs, missing


def of_puncc(
    cal: np.ndarray, y_cal: np.ndarray, test: np.ndarray, repeats: int, python: str | None
) -> tuple[Found, list[str]]:
    """puncc in its own environment."""
    if python is None:
        return {}, ["puncc (no interpreter named)"]
    found: Found = {}
    missing: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for key, array in (("cal", cal), ("y_cal", y_cal), ("test", test)):
            np.save(folder / f"{key}.npy", array)
        settings = {"alpha": ALPHA, "penalty": PENALTY, "rank_free": RANK_FREE}
        (folder / "settings.json").write_text(json.dumps(settings))
        script = Path(__file__).with_name("peer_puncc.py")
        done = subprocess.run(
            [python, str(script), name, str(repeats)], capture_output=True, text=True, check=False
        )
        if done.returncode:
            return {}, [f"puncc ({done.stderr.strip().splitlines()[-1]})"]
        for score, result in json.loads(done.stdout.strip().splitlines()[-1])["scores"].items():
            if "failed" in result:
                missing.append(f"puncc {score} ({result['failed']})")
                continue
            packed = np.load(folder / f"{score}.npy")
            found["puncc", score] = (
                result["seconds"],
                np.unpackbits(packed, axis=1, count=test.shape[1]).astype(bool),
            )
    return found, missing


def times_floor(
    job: Callable[[], object], cal: np.ndarray, test: np.ndarray, repeats: int
) -> tuple[float, float]:
    """The least CPU time of a job as a multiple of the floor, run in turn with it, and the floor in
    seconds.
    """
    times = in_turn({"floor": partial(compare_and_count, cal, test), "job": job}, repeats)
    return times["job"] / times["floor"], times["floor"]


def compared(
    cal: np.ndarray, y_cal: np.ndarray, test: np.ndarray, *, repeats: int, puncc: str | None
) -> tuple[str, list[str]]:
    """The table of ours against the others, and what could not be had."""
    prepared, missing = prepared_peers(cal, y_cal, test)
    elsewhere, without = of_puncc(cal, y_cal, test, repeats, puncc)
    rows = []
    for name, score in COMPARED.items():
        sets = our_sets(score, cal, y_cal, test).to_dense()  # the run that is not timed
        ours, floor = times_floor(partial(our_sets, score, cal, y_cal, test), cal, test, repeats)
        rows.append(
            [
                f"{name}, ours",
                f"{ours:.1f}",
                "1",
                verdict(ours, at_most=LIMITS[name]),
                "",
                f"{sets.sum(1).mean():.1f}",
            ]
        )
        members, multiples = {}, {}
        for library in (library for library, which in prepared if which == name):
            job = prepared[library, name]
            members[library] = made = job().astype(bool)
            # calibration is scaled with the test rows of a slow library too, a small part
            multiples[library] = times_floor(job, cal, test, repeats)[0] * len(test) / len(made)
        if ("puncc", name) in elsewhere:
            seconds, members["puncc"] = elsewhere["puncc", name]
            multiples["puncc"] = seconds / floor
        for library, multiple in sorted(multiples.items(), key=lambda item: item[1]):
            made = members[library]
            same = np.mean((sets[: len(made)] == made).all(axis=1))
            fastest = multiple == min(multiples.values()) and name != "LAC"
            scaled = f" (on {len(made)} test rows, scaled)" if len(made) < len(test) else ""
            rows.append(
                [f"{name}, {library}{scaled}", f"{multiple:.0f}", f"{multiple / ours:.1f}"]
                + [
                    verdict(multiple / ours, at_least=8.0) if fastest else "",
                    f"{same:.2%}",
                    f"{made.sum(1).mean():.1f}",
                ]
            )
    head = [
        "score and library",
        "× the floor",
        "× ours",
        "target",
        "rows with our set",
        "mean size",
    ]
    return table(head, rows), missing + without


def by_spread(
    calibrate: int, test: int, classes: int, *, spreads: Sequence[float], dtype: str, repeats: int
) -> str:
    """Our scores where probabilities are flatter and sets larger."""
    rows = []
    for spread in spreads:
        cal, y_cal = softmax_rows(calibrate, classes, spread=spread, dtype=dtype, seed=1)
        deploy, _ = softmax_rows(test, classes, spread=spread, dtype=dtype, seed=2)
        for name, score in COMPARED.items():
            size = our_sets(score, cal, y_cal, deploy).sizes().mean()
            ours, _ = times_floor(
                partial(our_sets, score, cal, y_cal, deploy), cal, deploy, repeats
            )
            rows.append(
                [
                    f"{name}, spread {spread:g}",
                    f"{ours:.1f}",
                    verdict(ours, at_most=LIMITS[name]),
                    f"{size:.1f}",
                ]
            )
    return table(["our score", "× the floor", "target", "mean size"], rows)


def bare_sets(test: np.ndarray, least: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Compressed rows of the labels with at least this probability: LAC without a record,
    calibration or a check.
    """
    n, k = test.shape
    sizes, codes, step = np.empty(n, dtype=np.uint8), [], 2**18 // k
    for start in range(0, n, step):
        members = test[start : start + step] >= least
        places = np.flatnonzero(members).astype(np.int32)
        codes.append(places - places // np.int32(k) * np.int32(k))
        np.asfortranarray(members).view(np.uint8).sum(
            axis=1, dtype=np.uint8, out=sizes[start : start + step]
        )
    pointers = np.zeros(n + 1, dtype=np.int64)
    np.cumsum(sizes, out=pointers[1:])
    return pointers, np.concatenate(codes)


def by_classes(elements: int, *, dtype: str, repeats: int) -> str:
    """Our scores where there are few classes, as in most tables: as many numbers, in more rows."""
    rows = []
    for classes in FEW:
        cal, y_cal = softmax_rows(
            elements // classes // 3, classes, spread=1.5, dtype=dtype, seed=1
        )
        deploy, _ = softmax_rows(
            2 * elements // classes // 3, classes, spread=1.5, dtype=dtype, seed=2
        )
        threshold = split_conformal(LAC().observed(ClassProbabilities(cal), y_cal), alpha=ALPHA)
        least = np.array(1 - threshold.value, dtype=dtype)
        bare_sets(deploy, least)
        bare, _ = times_floor(partial(bare_sets, deploy, least), cal, deploy, repeats)
        rows.append(
            [f"sets of LAC alone, by plain NumPy, {classes} classes", "", "", f"{bare:.1f}"]
        )
        for name, score in COMPARED.items():
            job = partial(our_sets, score, cal, y_cal, deploy)
            job()
            ours, listed = (
                times_floor(each, cal, deploy, repeats)[0]
                for each in (job, lambda job=job: compressed(job()))
            )
            target = verdict(ours, at_most=12.0) if name != "LAC" else ""
            rows.append([f"{name}, {classes} classes", f"{ours:.1f}", target, f"{listed:.1f}"])
    return table(
        ["our score", "× the floor", "target", "with the labels of each row, × the floor"], rows
    )


def needed_passes(cal: np.ndarray, test: np.ndarray) -> dict[str, Callable[[], object]]:
    """Parts of every score by ranks as bare passes of NumPy over rows of few labels."""
    k = test.shape[1]
    step = 2**18 // max(k, 8)
    stored, bits = (
        np.zeros((k, step), dtype=cal.dtype),
        list(np.zeros((2 * k + 1, step), dtype=np.uint16)),
    )

    def columns() -> None:
        for array in (cal, test):
            for start in range(0, len(array) - step + 1, step):
                np.copyto(stored, array[start : start + step].T)

    def sort() -> None:
        for _ in range(0, len(test) - step + 1, step):
            for first, second, larger, smaller in _comparisons(k):
                np.minimum(bits[first], bits[second], out=bits[smaller])
                np.maximum(bits[first], bits[second], out=bits[larger])

    def sums() -> None:
        for _ in range(0, len(cal) - step + 1, step):
            (stored * (stored > stored[0])).sum(axis=0, dtype=np.float64)

    return {"columns": columns, "sort": sort, "sums": sums}


def least_of_ranks(elements: int, *, dtype: str, repeats: int) -> str:
    """The bare passes that scores by ranks need, where there are few classes."""
    rows = []
    for classes in FEW:
        cal, _ = softmax_rows(elements // classes // 3, classes, spread=1.5, dtype=dtype, seed=1)
        test, _ = softmax_rows(
            2 * elements // classes // 3, classes, spread=1.5, dtype=dtype, seed=2
        )
        parts = [
            times_floor(job, cal, test, repeats)[0] for job in needed_passes(cal, test).values()
        ]
        rows.append([f"{classes}", *(f"{part:.1f}" for part in parts), f"{12 - sum(parts):.1f}"])
    return table(["classes", "by columns", "network", "masses", "left of 12 floors"], rows)


def compressed(sets: Any) -> tuple[np.ndarray, np.ndarray]:
    """Row pointers and codes."""
    return sets.row_pointers, sets.codes


def stages(
    cal: np.ndarray, y_cal: np.ndarray, test: np.ndarray, y_test: np.ndarray, *, repeats: int
) -> str:
    """Our scores in their parts."""
    rng = np.random.default_rng(3)
    calibrate = ClassProbabilities(cal, uniforms=rng.uniform(size=len(cal)))
    deploy = ClassProbabilities(test, uniforms=rng.uniform(size=len(test)))
    rows = []
    for name, score in OURS.items():
        threshold = split_conformal(score.observed(calibrate, y_cal), alpha=ALPHA)
        jobs: dict[str, Callable[[], object]] = {
            "observed": partial(score.observed, calibrate, y_cal),
            "sets": partial(score.sets, deploy, threshold),
            "sizes": partial(score.sizes, deploy, threshold),
            "floor": partial(compare_and_count, cal, test),
        }
        times = in_turn(jobs, repeats)
        made = score.sets(deploy, threshold)
        cells = [f"{times[part] / times['floor']:.1f}" for part in ("observed", "sets", "sizes")]
        rows.append(
            [name, *cells, f"{made.sizes().mean():.1f}", f"{made.contains(y_test).mean():.4f}"]
        )
    return table(
        ["our score", "calibration scores", "sets", "sizes without sets", "mean size", "coverage"],
        rows,
    )


def main() -> None:
    """Print three Markdown tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calibrate", type=int, default=10_000)
    parser.add_argument("--test", type=int, default=20_000)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument(
        "--spread", type=float, default=2.5, help="standard deviation of the logits"
    )
    parser.add_argument("--dtype", choices=["float32", "float64"], default="float32")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--puncc", help="the Python of an environment that has puncc")
    parser.add_argument("--no-stages", action="store_true", help="leave out the last table")
    given = parser.parse_args()

    cal, y_cal = softmax_rows(
        given.calibrate, given.classes, spread=given.spread, dtype=given.dtype, seed=1
    )
    test, y_test = softmax_rows(
        given.test, given.classes, spread=given.spread, dtype=given.dtype, seed=2
    )
    print(conditions())
    print(
        f"\n{given.calibrate:,} calibration and {given.test:,} test rows × {given.classes:,} "
        f"classes, {given.dtype}, alpha "
        f"{ALPHA}; softmax of normal logits of standard deviation {given.spread:g} (the spread), "
        f"which makes peaked "
        f"probabilities. CPU time, the least of {given.repeats} runs after one that is not timed, "
        f"as a multiple of one "
        "compare-and-count pass over both arrays, in turn with it; for ours and the others alike. "
        "puncc runs as often, in a "
        "process of its own.\n"
    )
    text, missing = compared(cal, y_cal, test, repeats=given.repeats, puncc=given.puncc)
    print(text)
    print(f"\n{DIFFERENCES}")
    if missing:
        print("\nNot measured: " + "; ".join(missing) + ".")
    print(f"\n{LARGER_SETS.format(spread=given.spread)}\n")
    sizes = (given.calibrate, given.test, given.classes)
    print(by_spread(*sizes, spreads=FLAT, dtype=given.dtype, repeats=given.repeats))
    print(f"\n{FEW_CLASSES}\n")
    print(by_classes(given.classes * 3000, dtype=given.dtype, repeats=given.repeats))
    print(f"\n{NEEDED}\n")
    print(least_of_ranks(given.classes * 3000, dtype=given.dtype, repeats=given.repeats))
    if not given.no_stages:
        print("\nOur scores in their parts, as multiples of the same floor, at the first spread.\n")
        print(stages(cal, y_cal, test, y_test, repeats=given.repeats))


if __name__ == "__main__":
    main()
