"""Results as matplotlib plots, by scikit-learn's convention: ``from_...`` computes and draws,
``plot(ax)`` draws again.

A display keeps the numbers that it shows, and after ``plot`` the axes as ``ax_`` and the figure as
``figure_``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike

from dco.evaluation.evaluate import Evaluation, evaluate
from dco.evaluation.sizes import size_counts, size_edges
from dco.foundations.extras import require
from dco.rows.rows import n_rows, take_features
from dco.sets.labels import LabelSets
from dco.theory import coverage_law_of_rank

if TYPE_CHECKING:
    from dco.foundations.arrays import AnyArray, Floats
    from dco.foundations.ranks import Level, Threshold
    from dco.sets.prediction_sets import PredictionSets
    from dco.tuning import Ranking

BLUE, PALE, SEEN, INK = "#1d5a9e", "#bcd4ee", "#a8420f", "#1b1d22"
DASHED: dict[str, Any] = {"color": INK, "linestyle": (0, (3, 3)), "linewidth": 1}
SMALL: dict[str, Any] = {"frameon": False, "fontsize": 8}
ABOVE: dict[str, Any] = {**SMALL, "loc": "lower center", "bbox_to_anchor": (0.5, 1.0)}
_LONGEST = 30  # characters of a name beside an axis


def plain_name(name: Any, longest: int = _LONGEST) -> str:
    """A name as plain text: matplotlib would read dollar signs as mathematics."""
    text = str(name)
    return (text if len(text) <= longest else text[: longest - 1] + "…").replace("$", r"\$")


class Display:
    """A plot of numbers that are kept; `plot` draws them into axes, new ones if none are given."""

    ax_: Any
    figure_: Any

    def plot(self, ax: Any = None) -> Self:
        """Draw into `ax`, or into a new figure of pyplot."""
        if ax is None:
            _, ax = require("matplotlib.pyplot", extra="report").subplots(layout="constrained")
        self._draw(ax)
        self.ax_, self.figure_ = ax, ax.figure
        return self

    def _draw(self, ax: Any) -> None:
        raise NotImplementedError


@dataclass(kw_only=True, eq=False, repr=False)
class CoverageDisplay(Display):
    """Coverage on rows with known targets beside the promise: with the law of its rank, or in each
    group.

    `groups` holds name, range and coverage (or None) of each group. The range is the one of the
    group's own law where it has a threshold of its own, else an exact 95 % interval for its
    coverage.
    """

    promised: float | None = None
    coverage: float | None = None
    n: int | None = None
    rank: int | None = None
    n_cal: int | None = None
    groups: Sequence[tuple[Any, tuple[float, float] | None, float | None]] = ()

    @classmethod
    def from_estimator(
        cls, est: Any, X: Any, y: Any, *, alpha: Any = None, by: Any = None, ax: Any = None
    ) -> Self:
        """Evaluate a fitted estimator on new rows, at its own level or at `alpha`, by group or by
        the slices `by`.
        """
        return cls.from_evaluation(est.evaluate(X, y, alpha=alpha, by=by), ax=ax)

    @classmethod
    def from_predictions(
        cls,
        sets: PredictionSets,
        y: ArrayLike,
        *,
        alpha: Level | None = None,
        threshold: Threshold | None = None,
        ax: Any = None,
    ) -> Self:
        """Evaluate prediction sets made at the level `alpha`; with the `threshold` that made them,
        its level and law are drawn.
        """
        return cls.from_evaluation(evaluate(sets, y, threshold=threshold, alpha=alpha), ax=ax)

    @classmethod
    def from_evaluation(cls, evaluation: Evaluation, *, ax: Any = None) -> Self:
        """Draw what `evaluate` found."""
        law, groups = evaluation.consistency, []
        for row in evaluation.by_group:
            own = (
                (row.coverage_low, row.coverage_high)
                if (at := row.consistency) is None
                else (at.low, at.high)
            )
            groups.append((row.group, own, row.coverage))
        rank, n_cal = (None, None) if law is None else (law.rank, law.n_cal)
        seen, n = evaluation.coverage, evaluation.n
        return cls(
            promised=evaluation.promised,
            coverage=seen,
            n=n,
            rank=rank,
            n_cal=n_cal,
            groups=groups,
        ).plot(ax)

    def _draw(self, ax: Any) -> None:
        if self.promised is not None:
            ax.axvline(self.promised, **DASHED, label="promised")
        if self.groups:
            for place, (_, ends, seen) in enumerate(self.groups):
                if ends is not None:
                    ax.plot(ends, [place, place], color=PALE, linewidth=5, solid_capstyle="butt")
                if seen is not None:
                    ax.plot(seen, place, "o", color=SEEN, label="seen" if place == 0 else None)
            ax.set_yticks(range(len(self.groups)), [plain_name(name) for name, *_ in self.groups])
            ax.set_ylim(len(self.groups) - 0.5, -0.5)
        else:
            if self.rank is not None and self.n_cal is not None and self.rank <= self.n_cal:
                law = coverage_law_of_rank(self.rank, self.n_cal)
                x = np.linspace(float(law.ppf(0.0005)), float(law.ppf(0.9995)), 200)
                name = f"Beta({self.rank}, {self.n_cal + 1 - self.rank})"
                ax.fill_between(x, law.pdf(x), color=PALE, linewidth=0, label=name)
            if self.coverage is not None:
                ax.axvline(self.coverage, color=SEEN, label=f"seen on {self.n} rows")
            ax.set_ylabel("density")
            ax.set_ylim(bottom=0)
        ax.set_xlabel("coverage")
        ax.legend(**ABOVE, ncols=3)


@dataclass(kw_only=True, eq=False, repr=False)
class SizeDisplay(Display):
    """How large the sets are: shares of rows in bins `edges`, a last share for all that are larger,
    and the mean.
    """

    shares: Floats
    edges: Floats
    mean: float
    labels: bool

    @classmethod
    def from_estimator(
        cls, est: Any, X: Any, y: Any = None, *, alpha: Any = None, ax: Any = None
    ) -> Self:
        """The sets of rows of X; `y` is not needed."""
        return cls.from_predictions(est.predict_set(X, alpha=alpha), ax=ax)

    @classmethod
    def from_predictions(cls, sets: PredictionSets, y: Any = None, *, ax: Any = None) -> Self:
        """The sizes of prediction sets; `y` is not needed."""
        sizes, classes = (
            np.asarray(sets.sizes(), dtype=np.float64),
            sets.n_classes,
        )
        finite = sizes[np.isfinite(sizes)]
        edges = size_edges(finite if finite.size else np.ones(1), classes=classes)
        shares = size_counts(sizes, edges) / len(sizes)
        return cls(
            shares=shares, edges=edges, mean=float(sizes.mean()), labels=classes is not None
        ).plot(ax)

    def _draw(self, ax: Any) -> None:
        ax.stairs(self.shares[:-1], self.edges, fill=True, color=PALE)
        if self.shares[-1] > 0:
            width = float(self.edges[1] - self.edges[0])
            beyond = float(self.edges[-1]) + 1.5 * width
            ax.bar(
                beyond,
                self.shares[-1],
                width,
                color=PALE,
                hatch="///",
                edgecolor=BLUE,
                label="more",
            )
            ax.legend(**SMALL)
        if math.isfinite(self.mean):
            ax.axvline(self.mean, color=INK)
        ax.set_xlabel("labels in the set" if self.labels else "length of the set")
        ax.set_ylabel("share of rows")


@dataclass(kw_only=True, eq=False, repr=False)
class SetsDisplay(Display):
    """The sets: intervals along a feature or sorted by their middle, label sets as a grid; true
    values as dots.
    """

    sets: PredictionSets
    y: AnyArray | None = None
    x: AnyArray | None = None
    name: str = ""
    target: str = "target"

    @classmethod
    def from_estimator(
        cls,
        est: Any,
        X: Any,
        y: Any = None,
        *,
        alpha: Any = None,
        feature: Any = None,
        most: int = 60,
        ax: Any = None,
    ) -> Self:
        """The sets of at most `most` rows, evenly picked; `feature` is a column of X, by name or
        number.
        """
        count = n_rows(X)
        rows = np.unique(np.linspace(0, count - 1, min(most, count)).round().astype(np.int64))
        part = take_features(X, rows)
        x, name, target = None, "", str(getattr(y, "name", None) or "target")
        if feature is not None:
            x = np.asarray(
                part[feature] if isinstance(feature, str) else np.asarray(part)[:, feature]
            )
            name = feature if isinstance(feature, str) else f"feature {feature}"
        known = None if y is None else np.asarray(y)[rows]
        return cls(
            sets=est.predict_set(part, alpha=alpha), y=known, x=x, name=name, target=target
        ).plot(ax)

    @classmethod
    def from_predictions(
        cls,
        sets: PredictionSets,
        y: ArrayLike | None = None,
        *,
        x: ArrayLike | None = None,
        name: str = "",
        ax: Any = None,
    ) -> Self:
        """Sets of all rows, along `x` if it is given."""
        known, along = (None if values is None else np.asarray(values) for values in (y, x))
        return cls(sets=sets, y=known, x=along, name=name).plot(ax)

    def _draw(self, ax: Any) -> None:
        sets: Any = self.sets
        if sets.holds_labels:
            self._draw_grid(ax, sets)
            return
        hull = sets.hull()
        pieces = [sets.pieces(row).tolist() for row in range(len(sets))]
        # empty sets and the whole line have no middle, and come last
        with np.errstate(invalid="ignore"):
            order = np.argsort((hull.lower + hull.upper) / 2, kind="stable")
        at = np.argsort(order) if self.x is None else self.x  # the place of each row
        ends = [
            (place, *end)
            for place, row in zip(at.tolist(), pieces, strict=True)
            for end in row
            if end[0] <= end[1]
        ]
        places, lows, highs = np.array(ends, dtype=np.float64).reshape(-1, 3).T
        seen = np.concatenate([lows, highs, np.zeros(0) if self.y is None else self.y])
        seen = seen[np.isfinite(seen)] if np.isfinite(seen).any() else np.array([0.0, 1.0])
        # no end: to the edge of the plot
        lows, highs = (np.clip(side, seen.min(), seen.max()) for side in (lows, highs))
        ax.vlines(places, lows, highs, color=PALE, linewidth=3, label="set")
        if self.y is not None:
            _dots(ax, np.asarray(at), self.y, sets.contains(self.y))
        ax.set_xlabel(
            plain_name(self.name) if self.x is not None else "rows, sorted by the middle of the set"
        )
        ax.set_ylabel(plain_name(self.target))
        ax.legend(**ABOVE, ncols=3)

    def _draw_grid(self, ax: Any, sets: LabelSets) -> None:
        classes = np.arange(sets.n_classes) if sets.classes is None else np.asarray(sets.classes)
        colours = require("matplotlib.colors", extra="report").ListedColormap(["none", PALE])
        ax.pcolormesh(
            sets.to_dense().T.astype(float),
            cmap=colours,
            vmin=0,
            vmax=1,
            edgecolors="white",
            linewidth=0.5,
        )
        if self.y is not None:
            hits, places = (
                sets.contains(self.y),
                {label: place for place, label in enumerate(classes.tolist())},
            )
            at = np.array([places.get(label, math.nan) for label in self.y.tolist()]) + 0.5
            _dots(ax, np.arange(len(sets)) + 0.5, at, hits)
            ax.legend(**ABOVE, ncols=2)
        ax.set_yticks(np.arange(len(classes)) + 0.5, [plain_name(label) for label in classes])
        ax.set(xlabel="row", ylabel="label")


def _dots(ax: Any, x: AnyArray, y: AnyArray, hits: AnyArray) -> None:
    for shown, colour, name in ((hits, INK, "covered"), (~hits, SEEN, "missed")):
        ax.plot(x[shown], y[shown], ".", color=colour, label=name)


@dataclass(kw_only=True, eq=False, repr=False)
class RankingDisplay(Display):
    """Candidates on the tuning rows, best first: mean size as bars, P95 size as marks. It certifies
    nothing.
    """

    ranking: Ranking
    most: int = 15

    @classmethod
    def from_estimator(
        cls, est: Any, X: Any = None, y: Any = None, *, most: int = 15, ax: Any = None
    ) -> Self:
        """The ranking of a fitted estimator; `X` and `y` are not needed."""
        return cls.from_ranking(est.ranking_, most=most, ax=ax)

    @classmethod
    def from_ranking(cls, ranking: Ranking, *, most: int = 15, ax: Any = None) -> Self:
        """The first `most` candidates."""
        return cls(ranking=ranking, most=most).plot(ax)

    def _draw(self, ax: Any) -> None:
        rows = self.ranking.table[: self.most]
        places = np.arange(len(rows))
        ax.barh(
            places,
            [row.mean_size for row in rows],
            color=[BLUE] + [PALE] * (len(rows) - 1),
            label="mean size",
        )
        ax.plot(
            [row.p95_size for row in rows], places, "|", color=INK, markersize=12, label="P95 size"
        )
        # model, score
        names = [
            "\n".join(plain_name(part, 52) for part in row.name.split(" / ", 1)) for row in rows
        ]
        ax.set_yticks(places, names, fontsize=7)
        ax.set_ylim(len(rows) - 0.5, -0.5)
        ax.set_xlabel(f"set size on {self.ranking.n} tuning rows")
        ax.legend(**ABOVE, ncols=2)
