"""Label sets from given probabilities: ours and four other libraries, from calibration labels to
prediction sets.

    python benchmarks/label_sets.py

Everything is counted, checking the input included. Figures are the CPU time of another library
divided by ours, both the least of several runs in turn; a library that is not installed is left
out. puncc needs NumPy below 2: `--puncc PYTHON` names the interpreter of its own environment, where
it runs on the same arrays.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

# isort: skip (sets the threads)
from harness import conditions, in_turn, least, table, verdict
from peers import ALPHA, PEERS, PENALTY, RANK_FREE, WEIGHT

from dco import ClassProbabilities, split_conformal
from dco.scores import APS, LAC, RAPS, SAPS, Margin, PosteriorNLL, TopK

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
CLASSES = (3, 5, 10, 17, 30, 100, 300, 1000)
NUMBERS, FEWEST_ROWS = (
    3_000_000,
    30_000,
)  # probabilities of a problem, rows of one with many classes
TARGETS = {"MAPIE": 3.0, "TorchCP": 1.5}  # times as fast as they are
FLAT = (1.0, 0.3)  # spreads of logits at which ours is compared again, with larger sets
SLOW = {"crepes": 400}  # test rows on which a slow library is timed; its time is then scaled
DIFFERENCES = (
    "Sets need not be equal. MAPIE's RAPS tunes its own parameters on a fifth of the calibration "
    "rows; its APS treats the label at the threshold in its own way (include_last_label=True "
    "here). puncc's APS and RAPS add the label that crosses the threshold. TorchCP's SAPS without "
    "randomisation scores a top-ranked true label 0 when it calibrates but p_max when it predicts, "
    "so its threshold can be too low. Libraries that compute in single precision decide a few "
    "labels at the threshold otherwise. crepes has LAC only. All but puncc, whose sets are lists, "
    "give a matrix of all labels."
)


@dataclass(frozen=True)
class Problem:
    """Calibration probabilities with their labels, and the probabilities of test rows."""

    cal: np.ndarray
    y_cal: np.ndarray
    test: np.ndarray

    @classmethod
    def draw(cls, n_rows: int, n_classes: int, *, spread: float, dtype: str) -> Problem:
        """Draw a third of the rows for calibration, the others for the test."""
        cal, y_cal = softmax_rows(n_rows // 3, n_classes, spread=spread, dtype=dtype, seed=1)
        test, _ = softmax_rows(2 * n_rows // 3, n_classes, spread=spread, dtype=dtype, seed=2)
        return cls(cal, y_cal, test)


@dataclass(frozen=True)
class Timed:
    """The CPU seconds of another library and the matrix of its sets."""

    seconds: float
    members: np.ndarray


def softmax_rows(
    n: int, n_classes: int, *, spread: float, seed: int, dtype: str = "float32"
) -> tuple[np.ndarray, np.ndarray]:
    """Draw probabilities of `n` rows, and labels from them."""
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


def our_sets(score: Any, problem: Problem) -> Any:
    """Do all that the others do too: check, score the calibration labels, threshold, sets."""
    scores = score.observed(ClassProbabilities(problem.cal), problem.y_cal)
    return score.sets(ClassProbabilities(problem.test), split_conformal(scores, alpha=ALPHA))


def ratios_by_classes(
    classes: Sequence[int], *, numbers: int, fewest_rows: int, dtype: str, repeats: int
) -> str:
    """Tabulate how many times our time MAPIE and TorchCP take, for few and for many classes."""
    rows = []
    for n_classes in classes:
        n_rows = max(numbers // n_classes, fewest_rows)
        spread = 1.5 if n_classes < 100 else 2.5
        problem = Problem.draw(n_rows, n_classes, spread=spread, dtype=dtype)
        for name, score in COMPARED.items():
            jobs: dict[str, Callable[[], Any]] = {"ours": partial(our_sets, score, problem)}
            jobs |= peer_jobs(name, problem, TARGETS)
            for job in jobs.values():
                job()  # not timed
            seconds = in_turn(jobs, repeats)
            cells = []
            for library, target in TARGETS.items():
                ratio = seconds[library] / seconds["ours"] if library in seconds else None
                cells.append("" if ratio is None else f"{ratio:.1f}")
                cells.append("" if ratio is None else verdict(ratio, at_least=target))
            rows.append([f"{n_classes:,}", f"{n_rows:,}", name, *cells])
    head = ["classes", "rows", "score"]
    for library in TARGETS:
        head += [f"{library} / ours", "target"]
    return table(head, rows)


def peer_jobs(
    score: str, problem: Problem, libraries: Sequence[str] | dict[str, float] = tuple(PEERS)
) -> dict[str, Callable[[], np.ndarray]]:
    """Return what each library runs for a score, of those that are installed and have it."""
    jobs = {}
    for library in libraries:
        test = problem.test[: SLOW.get(library, len(problem.test))]
        try:
            job = PEERS[library](score, problem.cal, problem.y_cal, test)
        except ImportError:
            continue
        if job is not None:
            jobs[library] = job
    return jobs


def missing_libraries(problem: Problem) -> list[str]:
    """Name the libraries that cannot be imported, with the reason."""
    missing = []
    for library, prepare in PEERS.items():
        try:
            prepare("LAC", problem.cal, problem.y_cal, problem.test)
        except ImportError as error:
            missing.append(f"{library} ({error})")
    return missing


def time_puncc(
    problem: Problem, repeats: int, python: str | None
) -> tuple[dict[str, Timed], list[str]]:
    """Run puncc in its own environment; return its times by score, and what could not be had."""
    if python is None:
        return {}, ["puncc (no interpreter named)"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        np.save(folder / "cal.npy", problem.cal)
        np.save(folder / "y_cal.npy", problem.y_cal)
        np.save(folder / "test.npy", problem.test)
        settings = {"alpha": ALPHA, "penalty": PENALTY, "rank_free": RANK_FREE}
        (folder / "settings.json").write_text(json.dumps(settings))

        script = Path(__file__).with_name("peer_puncc.py")
        done = subprocess.run(
            [python, str(script), name, str(repeats)], capture_output=True, text=True, check=False
        )
        if done.returncode:
            return {}, [f"puncc ({done.stderr.strip().splitlines()[-1]})"]

        timed, missing = {}, []
        for score, result in json.loads(done.stdout.strip().splitlines()[-1])["scores"].items():
            if "failed" in result:
                missing.append(f"puncc {score} ({result['failed']})")
                continue
            packed = np.load(folder / f"{score}.npy")
            members = np.unpackbits(packed, axis=1, count=problem.test.shape[1]).astype(bool)
            timed[score] = Timed(result["seconds"], members)
        return timed, missing


def compare_sets(problem: Problem, *, repeats: int, puncc: str | None) -> tuple[str, list[str]]:
    """Tabulate times and sets of every library on one problem; name what could not be had."""
    of_puncc, without_puncc = time_puncc(problem, repeats, puncc)
    rows = []
    for name, score in COMPARED.items():
        members = our_sets(score, problem).to_dense()
        ours = least(partial(our_sets, score, problem), repeats)
        others = {"puncc": of_puncc[name]} if name in of_puncc else {}
        for library, job in peer_jobs(name, problem).items():
            their_members = job().astype(bool)
            scale = len(problem.test) / len(their_members)
            others[library] = Timed(least(job, repeats) * scale, their_members)

        rows.append([f"{name}, ours", "1", "", f"{members.sum(axis=1).mean():.1f}"])
        for library, timed in sorted(others.items(), key=lambda item: item[1].seconds):
            n_rows = len(timed.members)
            is_same = (members[:n_rows] == timed.members).all(axis=1)
            scaled = f" (on {n_rows} test rows, scaled)" if n_rows < len(members) else ""
            rows.append(
                [
                    f"{name}, {library}{scaled}",
                    f"{timed.seconds / ours:.1f}",
                    f"{is_same.mean():.2%}",
                    f"{timed.members.sum(axis=1).mean():.1f}",
                ]
            )
    head = ["score and library", "× ours", "rows with our set", "mean size"]
    return table(head, rows), missing_libraries(problem) + without_puncc


def ratios_by_spread(
    n_rows: int, n_classes: int, *, spreads: Sequence[float], dtype: str, repeats: int
) -> str:
    """Tabulate our time on flatter probabilities, whose sets are larger, against the first ones."""
    peaked = Problem.draw(n_rows, n_classes, spread=2.5, dtype=dtype)
    rows = []
    for spread in spreads:
        flat = Problem.draw(n_rows, n_classes, spread=spread, dtype=dtype)
        for name, score in COMPARED.items():
            size = our_sets(score, flat).sizes().mean()
            jobs = {
                "flat": partial(our_sets, score, flat),
                "peaked": partial(our_sets, score, peaked),
            }
            seconds = in_turn(jobs, repeats)
            ratio = seconds["flat"] / seconds["peaked"]
            rows.append([f"{name}, spread {spread:g}", f"{ratio:.2f}", f"{size:.1f}"])
    return table(["our score", "× at spread 2.5", "mean size"], rows)


def ratios_of_parts(problem: Problem, *, repeats: int) -> str:
    """Tabulate the parts of our scores as multiples of LAC's sets."""
    rng = np.random.default_rng(3)
    calibrate = ClassProbabilities(problem.cal, uniforms=rng.uniform(size=len(problem.cal)))
    test = ClassProbabilities(problem.test, uniforms=rng.uniform(size=len(problem.test)))
    rows = []
    for name, score in OURS.items():
        threshold = split_conformal(score.observed(calibrate, problem.y_cal), alpha=ALPHA)
        lac = split_conformal(LAC().observed(calibrate, problem.y_cal), alpha=ALPHA)
        jobs: dict[str, Callable[[], object]] = {
            "observed": partial(score.observed, calibrate, problem.y_cal),
            "sets": partial(score.sets, test, threshold),
            "sizes": partial(score.sizes, test, threshold),
            "unit": partial(LAC().sets, test, lac),
        }
        seconds = in_turn(jobs, repeats)
        size = score.sizes(test, threshold).mean()
        cells = [f"{seconds[part] / seconds['unit']:.1f}" for part in ("observed", "sets", "sizes")]
        rows.append([name, *cells, f"{size:.1f}"])
    return table(
        ["our score", "calibration scores", "sets", "sizes without sets", "mean size"], rows
    )


def main() -> None:
    """Print Markdown tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--numbers", type=int, default=NUMBERS, help="probabilities of a problem")
    parser.add_argument("--rows", type=int, default=FEWEST_ROWS, help="rows, of many classes")
    parser.add_argument("--classes", type=int, nargs="*", default=CLASSES)
    parser.add_argument("--dtype", choices=["float32", "float64"], default="float32")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--puncc", help="the Python of an environment that has puncc")
    options = parser.parse_args()
    sizes = {"dtype": options.dtype, "repeats": options.repeats}

    print(conditions())
    print(
        f"\nFrom calibration labels to sets, a third of the rows calibrating, {options.dtype}, "
        f"alpha {ALPHA}; softmax of normal logits of standard deviation 1.5 (below 100 classes) "
        f"and 2.5. CPU time divided by ours, each the least of {options.repeats} runs in turn.\n"
    )
    print(
        ratios_by_classes(
            options.classes, numbers=options.numbers, fewest_rows=options.rows, **sizes
        )
    )
    many = max(options.classes)
    problem = Problem.draw(options.rows, many, spread=2.5, dtype=options.dtype)
    text, missing = compare_sets(problem, repeats=options.repeats, puncc=options.puncc)
    print(
        f"\nEvery library on {options.rows:,} rows × {many:,} classes:\n\n{text}\n\n{DIFFERENCES}"
    )
    if missing:
        print("\nNot measured: " + "; ".join(missing) + ".")
    print("\nOurs on flatter probabilities, which make larger sets:\n")
    print(ratios_by_spread(options.rows, many, spreads=FLAT, **sizes))
    print("\nOurs in parts, as multiples of the sets of LAC:\n")
    print(ratios_of_parts(problem, repeats=options.repeats))


if __name__ == "__main__":
    main()
