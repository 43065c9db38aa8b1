"""From a table to prediction sets: ours beside MAPIE on the same rows, and what is ours beside the
models' own work.

    python benchmarks/end_to_end.py --rows 500000

MAPIE is given X and y, cuts a quarter off with scikit-learn's `train_test_split`, fits the model on
the rest and conformalizes on the quarter. Ours is timed as it comes (it tunes on a quarter, so it
fits the model twice) and without tuning rows, which is MAPIE's job; both calibrate on as many rows
as MAPIE. Each has one run that is not timed.
"""

from __future__ import annotations

import argparse
import time
import tracemalloc
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

from harness import conditions, in_turn, once, table, verdict  # isort: skip (sets the threads)

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import train_test_split

from dco import DecoupledClassifier, DecoupledRegressor
from dco.scores import APS, AbsoluteResidual

COLUMNS, CLASSES, LEVELS = 20, 5, (0.01, 0.02, 0.05, 0.1, 0.2)
SMALL, MOST_MS = 1_000, 6.0
MOST_FIT = {"Ridge": 6.0, "LogisticRegression": 2.0}
MOST_SETS, MOST_OWN, MOST_MEMORY = 0.5, 0.10, 2.5


def rows_of(n: int, *, classes: int = 0, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Normal columns; a target with a line, a wave and noise, or classes of equal size cut
    from it.
    """
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, COLUMNS))
    y = X[:, 0] + np.sin(3 * X[:, 1]) + rng.normal(size=n)
    return X, np.digitize(y, np.quantile(y, np.arange(1, classes) / classes)) if classes else y


def ours(model: Any, X: np.ndarray, y: np.ndarray, **options: Any) -> Any:
    """Ours with one model and one score."""
    if isinstance(model, LogisticRegression):
        return DecoupledClassifier(model, APS(), random_state=0, **options).fit(X, y)
    return DecoupledRegressor(model, AbsoluteResidual(), random_state=0, **options).fit(X, y)


def cut(X: np.ndarray, y: np.ndarray) -> list[np.ndarray]:
    """Three quarters to fit on and a quarter to calibrate on."""
    parts: list[np.ndarray] = train_test_split(X, y, test_size=0.25, random_state=0)
    return parts


def mapie(model: Any, parts: list[np.ndarray]) -> Any:
    """MAPIE's split conformal prediction with the same model and score."""
    from mapie.classification import SplitConformalClassifier
    from mapie.regression import SplitConformalRegressor

    fit_on, calibrate_on, y_fit, y_calibrate = parts
    made: Any = SplitConformalRegressor(clone(model), confidence_level=0.9, prefit=False)
    if isinstance(model, LogisticRegression):
        made = SplitConformalClassifier(
            clone(model), confidence_level=0.9, conformity_score="aps", prefit=False
        )
    return made.fit(fit_on, y_fit).conformalize(calibrate_on, y_calibrate)


def beside_mapie(rows: int, repeats: int) -> str:
    """Fits and sets, ours and MAPIE's, and what could not be had."""
    fits, sets, missing = [], [], ""
    for model, n in ((Ridge(), SMALL), (Ridge(), rows), (LogisticRegression(), rows)):
        labels = isinstance(model, LogisticRegression)
        X, y = rows_of(n, classes=CLASSES if labels else 0)
        parts, name = cut(X, y), type(model).__name__
        jobs: dict[str, Callable[[], Any]] = {
            "alone": partial(clone(model).fit, parts[0], parts[2]),
            "ours": partial(ours, model, X, y),
            "same": partial(ours, model, X, y, tune_size=0),
        }
        try:
            theirs = mapie(model, parts)
            jobs |= {
                "MAPIE": lambda m=model, X=X, y=y: mapie(m, cut(X, y)),
                "given": partial(mapie, model, parts),
            }
        except ImportError as problem:
            theirs, missing = None, f"\n\nNot measured: MAPIE ({problem})."
        fitted = [job() for job in jobs.values()][1]
        times = in_turn(jobs, repeats * (20 if n == SMALL else 1))
        ms = {key: f"{1000 * seconds:.3g}" for key, seconds in times.items()}
        ratio = {
            key: times[key] / times["MAPIE"] if theirs else float("nan") for key in ("ours", "same")
        }
        target = verdict(ratio["ours"], at_most=MOST_FIT[name]) if theirs else ""
        if n == SMALL:
            target = verdict(1000 * times["ours"], at_most=MOST_MS).replace(":", " ms:")
        given = f"{times['same'] / times['given']:.2f}" if theirs else ""
        shown = [
            ms["alone"],
            ms.get("MAPIE", ""),
            ms["ours"],
            f"{ratio['ours']:.2f}",
            target,
            f"{ratio['same']:.2f}",
            given,
        ]
        fits.append([f"{name}, {n:,} rows", *shown])
        if n != SMALL:
            new, _ = rows_of(n // 2, seed=1)
            asked: dict[str, Callable[[], Any]] = {"ours": partial(fitted.predict_set, new)}
            inside = fitted.predictor_.structure.model
            asked["alone"] = partial(inside.predict_proba if labels else inside.predict, new)
            if theirs:
                asked["MAPIE"] = partial(
                    theirs.predict_set if labels else theirs.predict_interval, new
                )
            found = in_turn(asked, repeats)
            ratio_sets = found["ours"] / found["MAPIE"] if theirs else float("nan")
            target = verdict(ratio_sets, at_most=MOST_SETS) if labels and theirs else ""
            cells = [
                f"{1000 * found[key]:.3g}" if key in found else ""
                for key in ("alone", "MAPIE", "ours")
            ]
            sets.append([f"{name}, {n // 2:,} rows", *cells, f"{ratio_sets:.2f}", target])
    head = ["`fit`", "model alone, ms", "MAPIE, ms", "ours, ms", "ours / MAPIE", "target"]
    head += ["MAPIE's job: ours / MAPIE", "the same, with MAPIE's rows cut beforehand"]
    new_head = [
        "sets of new rows",
        "prediction alone, ms",
        "MAPIE, ms",
        "ours, ms",
        "ours / MAPIE",
        "target",
    ]
    return table(head, fits) + "\n\n" + table(new_head, sets) + missing


class Clocked:
    """Counts the CPU time that a model spends in its own methods."""

    seconds = 0.0
    inside = False

    def _timed(self, method: Callable[..., Any], *given: Any) -> Any:
        if Clocked.inside:  # one of the model's methods calls another
            return method(*given)
        Clocked.inside, start = True, time.process_time()
        try:
            return method(*given)
        finally:
            Clocked.inside, Clocked.seconds = False, Clocked.seconds + time.process_time() - start

    def fit(self, X: Any, y: Any) -> Any:
        """Timed."""
        return self._timed(super().fit, X, y)  # type: ignore[misc]

    def predict(self, X: Any) -> Any:
        """Timed."""
        return self._timed(super().predict, X)  # type: ignore[misc]


class ClockedClasses(Clocked):
    """The same for a classifier."""

    def predict_proba(self, X: Any) -> Any:
        """Timed."""
        return self._timed(super().predict_proba, X)  # type: ignore[misc]


class TimedRidge(Clocked, Ridge):
    """Ridge."""


class TimedBoosting(Clocked, HistGradientBoostingRegressor):
    """Boosted trees."""


class TimedLogistic(ClockedClasses, LogisticRegression):
    """Logistic regression."""


class TimedBoostedClasses(ClockedClasses, HistGradientBoostingClassifier):
    """Boosted trees of classes."""


def own_share(job: Callable[[], Any]) -> tuple[float, float, Any]:
    """The CPU seconds of a job, the share of them that no model spends, and what it returns."""
    Clocked.seconds = 0.0
    total, result = once(job)
    return total, 1 - Clocked.seconds / total, result


def shares(boosting: int, rows: int) -> str:
    """What is not the models' own work: of a large fit, of folds, and of sets at several
    levels.
    """
    X, y = rows_of(boosting)
    one = DecoupledRegressor(TimedBoosting(random_state=0), AbsoluteResidual(), random_state=0)
    clone(one).fit(X[:1000], y[:1000])
    lines = [
        (f"boosted trees, {boosting:,} rows: `fit`", *own_share(partial(clone(one).fit, X, y))[:2])
    ]
    del X, y
    numbers = {"ridge": TimedRidge(), "boosting": TimedBoosting(random_state=0)}
    labels = {"logistic": TimedLogistic(), "boosting": TimedBoostedClasses(random_state=0)}
    for kind, models, classes in (
        (DecoupledRegressor, numbers, 0),
        (DecoupledClassifier, labels, CLASSES),
    ):
        X, y = rows_of(rows, classes=classes)
        what = "5 classes" if classes else "numbers"
        made = kind(models, random_state=0, tune_folds=5)
        clone(made).fit(X[:1000], y[:1000]).predict_set(X[:10])
        total, share, fitted = own_share(partial(made.fit, X, y))
        lines.append((f"{what}, {rows:,} rows, two models: `fit` with 5 folds", total, share))
        asked = own_share(partial(fitted.predict_set, rows_of(rows, seed=1)[0], alpha=list(LEVELS)))
        lines.append((f"{what}, {rows:,} rows: `predict_set` at {len(LEVELS)} levels", *asked[:2]))
    cells = [
        [name, f"{total:.2f}", f"{share:.1%}", verdict(share, at_most=MOST_OWN)]
        for name, total, share in lines
    ]
    return table(["job", "CPU s", "not the models' own", "target"], cells)


class Nothing(RegressorMixin, BaseEstimator):
    """A model that needs no memory of its own: it predicts the first column."""

    def fit(self, X: Any, y: Any) -> Nothing:
        """Learn nothing."""
        self.fitted_ = True
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The first column."""
        first = (
            X.iloc[:, 0]
            if hasattr(X, "iloc")
            else X[:, [0]].toarray()[:, 0]
            if sparse.issparse(X)
            else X[:, 0]
        )
        return np.array(first, dtype=np.float64)  # no view, which would keep the rows


def peak(X: Any, y: np.ndarray, *, model: Any = None, **options: Any) -> float:
    """The most memory that `fit` has in use at a time beside the table, in bytes."""
    tracemalloc.start()
    try:
        DecoupledRegressor(model or Nothing(), AbsoluteResidual(), random_state=0, **options).fit(
            X, y
        )
        return float(tracemalloc.get_traced_memory()[1])
    finally:
        tracemalloc.stop()


def memory(rows: int) -> str:
    """The peak of `fit`, the table included, as a multiple of the table."""
    X, y = rows_of(rows)
    tables: dict[str, tuple[Any, int, dict[str, Any]]] = {
        "float64": (X, X.nbytes, {}),
        "float64, 5 folds": (X, X.nbytes, {"tune_folds": 5}),
        "float32": (X.astype(np.float32), X.nbytes // 2, {}),
    }
    thin = sparse.random_array(
        (rows, 10 * COLUMNS), density=0.1, format="csr", rng=np.random.default_rng(0)
    )
    held = thin.data.nbytes + thin.indices.nbytes + thin.indptr.nbytes
    tables["sparse, a tenth of 200 columns"] = sparse.csr_matrix(thin), held, {}
    try:
        import pandas

        frame = pandas.DataFrame(X).rename(columns="column {}".format)
        frame["text"] = pandas.Categorical(np.where(X[:, 1] > 0, "a", "b"))
        tables["pandas, with a category"] = frame, int(frame.memory_usage(deep=True).sum()), {}
    except ImportError:
        pass
    peak(X[:1000], y[:1000], tune_folds=5)  # what is loaded on first use
    cells = []
    for name, (given, size, options) in tables.items():
        ratio = 1 + peak(given, y, **options) / (size + y.nbytes)
        cells.append(
            [name, f"{size / 1e6:.0f}", f"{ratio:.2f}", verdict(ratio, at_most=MOST_MEMORY)]
        )
    return table([f"table of {rows:,} rows", "MB", "peak of `fit` / table", "target"], cells)


def main() -> None:
    """Print four Markdown tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--boosting", type=int, default=1_000_000)
    parser.add_argument("--models", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    warnings.simplefilter("ignore")  # what other libraries warn about is theirs
    print(conditions())
    print(
        f"\nTables of {COLUMNS} normal columns; APS with {CLASSES} classes. MAPIE is given X and "
        f"y: it cuts a quarter off, "
        "fits the model on the rest and conformalizes on the quarter. Ours deals rows to roles, "
        "fingerprints and seals "
        "them, fits the model on half, tunes on a quarter, fits again on both and calibrates on "
        "the last quarter; without "
        "tuning rows (MAPIE's job) it fits once.\n"
    )
    print(beside_mapie(given.rows, given.repeats))
    print(
        "\nThe share of CPU time outside the models' own `fit` and `predict`, all scores of ours "
        "for folds:\n"
    )
    print(shares(given.boosting, given.models))
    print("\nPeak memory with a model that needs none, the table itself counted:\n")
    print(memory(given.rows))


if __name__ == "__main__":
    main()
