"""Results as matplotlib plots, in scikit-learn's manner.

``from_estimator`` and its like compute and draw, ``plot(ax)`` draws again. A display keeps the
numbers that it shows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from dco.calibration.facts import CertifiedThreshold
from dco.certificate.certificate import Certificate
from dco.evaluation.evaluate import evaluate
from dco.evaluation.evaluation import Evaluation
from dco.evaluation.group_evaluation import GroupEvaluation
from dco.foundations.arrays import AnyArray, Bools, Floats
from dco.foundations.drawing import (
    BLUE,
    DASHED,
    INK,
    LEGEND,
    LEGEND_ABOVE,
    ORANGE,
    PALE,
    Display,
    plain_name,
)
from dco.foundations.extras import require
from dco.foundations.histograms import count_in_bins, size_edges
from dco.foundations.ranks import Level, Threshold
from dco.foundations.tables import n_rows, take_features
from dco.sets.prediction_sets import PredictionSets
from dco.theory import coverage_law_of_rank
from dco.tuning import Ranking

MOST_ROWS = 60  # that are drawn one by one
MOST_GROUPS = 30


class FittedEstimator(Protocol):
    """A fitted `dco.DecoupledClassifier` or `dco.DecoupledRegressor`."""

    @property
    def ranking_(self) -> Ranking:
        """The candidates, best first."""

    def predict_set(self, X: Any, alpha: Any = None) -> Any:
        """Make the prediction set of each row."""

    def evaluate(self, X: Any, y: Any, *, alpha: Any = None, by: Any = None) -> Any:
        """Evaluate the sets of rows with known targets."""


@dataclass(frozen=True)
class CoverageInGroup:
    """The coverage of one condition or slice, and a range for it; None where it is not known."""

    name: str
    range: tuple[float, float] | None
    coverage: float | None

    @classmethod
    def of(cls, group: GroupEvaluation) -> Self:
        """Take the range of the group's law, or an exact interval where it has none."""
        test = group.consistency
        interval = (group.coverage_low, group.coverage_high)
        return cls(
            name=str(group.group),
            range=interval if test is None else (test.low, test.high),
            coverage=group.coverage,
        )

    @classmethod
    def expected_of(cls, threshold: CertifiedThreshold) -> Self:
        """Take the range of the law of a threshold, before any row is seen."""
        low = threshold.coverage_low
        high = 1.0 if threshold.coverage_high is None else threshold.coverage_high
        return cls(
            name=str(threshold.group),
            range=None if low is None else (low, high),
            coverage=None,
        )


WithRows = TypeVar("WithRows", GroupEvaluation, CertifiedThreshold)


def largest(groups: Sequence[WithRows], most: int) -> list[WithRows]:
    """Return the groups with most rows, in their order."""
    by_size = sorted(range(len(groups)), key=lambda position: -groups[position].n)
    return [groups[position] for position in sorted(by_size[:most])]


@dataclass(kw_only=True, eq=False, repr=False)
class CoverageDisplay(Display):
    """Coverage on rows with known targets beside the promise, with the law of its rank.

    With `groups` (slices or conditions), one line for each group instead.
    """

    promised: float | None = None
    coverage: float | None = None
    n: int | None = None
    rank: int | None = None
    n_cal: int | None = None
    groups: Sequence[CoverageInGroup] = ()

    @classmethod
    def from_estimator(
        cls,
        est: FittedEstimator,
        X: Any,
        y: Any,
        *,
        alpha: Level | None = None,
        by: Any = None,
        ax: Any = None,
    ) -> Self:
        """Evaluate a fitted estimator on new rows, by condition or by the slices `by`."""
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
        """Evaluate prediction sets made at the level `alpha`, or by the `threshold` given."""
        return cls.from_evaluation(evaluate(sets, y, threshold=threshold, alpha=alpha), ax=ax)

    @classmethod
    def from_evaluation(
        cls,
        evaluation: Evaluation,
        *,
        by_condition: bool = False,
        most: int = MOST_GROUPS,
        ax: Any = None,
    ) -> Self:
        """Draw an evaluation: by the slices that were asked for, or by condition.

        At most so many groups are drawn, those with most rows.
        """
        groups = evaluation.by_condition if by_condition else evaluation.by_group
        test = evaluation.overall.consistency
        display = cls(
            promised=evaluation.promised,
            coverage=evaluation.coverage,
            n=evaluation.n,
            rank=None if test is None else test.rank,
            n_cal=None if test is None else test.n_cal,
            groups=[CoverageInGroup.of(group) for group in largest(groups, most)],
        )
        return display.plot(ax)

    @classmethod
    def from_certificate(
        cls, certificate: Certificate, *, most: int = MOST_GROUPS, ax: Any = None
    ) -> Self:
        """Draw what the calibration rows imply of coverage, before any new row is seen."""
        first = certificate.thresholds[0]
        has_one = len(certificate.thresholds) == 1 and first.group is None
        conditions = [] if has_one else largest(certificate.thresholds, most)
        display = cls(
            promised=1 - certificate.alpha,
            rank=first.rank if has_one else None,
            n_cal=first.n if has_one else None,
            groups=[CoverageInGroup.expected_of(condition) for condition in conditions],
        )
        return display.plot(ax)

    def draw(self, ax: Any) -> None:
        """Draw into these axes."""
        if self.promised is not None:
            ax.axvline(self.promised, **DASHED, label="promised")
        if self.groups:
            self._draw_groups(ax)
        else:
            self._draw_law(ax)
        ax.set_xlabel("coverage")
        ax.legend(**LEGEND_ABOVE, ncols=3)

    def _draw_groups(self, ax: Any) -> None:
        """Draw a line for each group: a bar for the range, a dot for the coverage."""
        for line, group in enumerate(self.groups):
            if group.range is not None:
                ax.plot(group.range, [line, line], color=PALE, linewidth=5, solid_capstyle="butt")
            if group.coverage is not None:
                label = "observed" if line == 0 else None
                ax.plot(group.coverage, line, "o", color=ORANGE, label=label)
        names = [plain_name(group.name) for group in self.groups]
        ax.set_yticks(range(len(names)), names)
        ax.set_ylim(len(names) - 0.5, -0.5)

    def _draw_law(self, ax: Any) -> None:
        """Draw the density of coverage, where it is known, and the coverage that was observed."""
        if self.rank is not None and self.n_cal is not None and self.rank <= self.n_cal:
            law = coverage_law_of_rank(self.rank, self.n_cal)
            x = np.linspace(float(law.ppf(0.0005)), float(law.ppf(0.9995)), 200)
            name = f"Beta({self.rank}, {self.n_cal + 1 - self.rank})"
            ax.fill_between(x, law.pdf(x), color=PALE, linewidth=0, label=name)
        if self.coverage is not None:
            ax.axvline(self.coverage, color=ORANGE, label=f"observed on {self.n} rows")
        ax.set_ylabel("density")
        ax.set_ylim(bottom=0)


@dataclass(kw_only=True, eq=False, repr=False)
class SizeDisplay(Display):
    """How large the sets are: shares of rows in bins `edges`, and the mean size.

    The last share is of all sets that are larger.
    """

    shares: Floats
    edges: Floats
    mean: float
    labels: bool

    @classmethod
    def from_estimator(
        cls,
        est: FittedEstimator,
        X: Any,
        y: Any = None,
        *,
        alpha: Level | None = None,
        ax: Any = None,
    ) -> Self:
        """Draw the sizes of the sets of these rows; `y` is not needed."""
        return cls.from_predictions(est.predict_set(X, alpha=alpha), ax=ax)

    @classmethod
    def from_predictions(
        cls, sets: PredictionSets, y: ArrayLike | None = None, *, ax: Any = None
    ) -> Self:
        """Draw the sizes of prediction sets; `y` is not needed."""
        sizes = np.asarray(sets.sizes(), dtype=np.float64)
        finite = sizes[np.isfinite(sizes)]
        edges = size_edges(finite if finite.size else np.ones(1), classes=sets.n_classes)
        display = cls(
            shares=count_in_bins(sizes, edges) / len(sizes),
            edges=edges,
            mean=float(sizes.mean()),
            labels=sets.holds_labels,
        )
        return display.plot(ax)

    def draw(self, ax: Any) -> None:
        """Draw into these axes."""
        ax.stairs(self.shares[:-1], self.edges, fill=True, color=PALE)
        if self.shares[-1] > 0:
            width = float(self.edges[1] - self.edges[0])
            beyond = float(self.edges[-1]) + 1.5 * width
            style = {"color": PALE, "hatch": "///", "edgecolor": BLUE}
            ax.bar(beyond, self.shares[-1], width, label="more", **style)
            ax.legend(**LEGEND)
        if math.isfinite(self.mean):
            ax.axvline(self.mean, color=INK)
        ax.set_xlabel("labels in the set" if self.labels else "length of the set")
        ax.set_ylabel("share of rows")


@dataclass(kw_only=True, eq=False, repr=False)
class SetsDisplay(Display):
    """The sets themselves, with true values as dots.

    Intervals stand along a feature `x`, or sorted by their middle; label sets are a grid.
    """

    sets: PredictionSets
    y: AnyArray | None = None
    x: AnyArray | None = None
    name: str = ""
    target: str = "target"

    @classmethod
    def from_estimator(
        cls,
        est: FittedEstimator,
        X: Any,
        y: Any = None,
        *,
        alpha: Level | None = None,
        feature: str | int | None = None,
        most: int = MOST_ROWS,
        ax: Any = None,
    ) -> Self:
        """Draw the sets of at most `most` rows, evenly picked; `feature` is a column of X."""
        n = n_rows(X)
        rows = np.unique(np.linspace(0, n - 1, min(most, n)).round().astype(np.int64))
        picked = take_features(X, rows)
        display = cls(
            sets=est.predict_set(picked, alpha=alpha),
            y=None if y is None else np.asarray(y)[rows],
            x=None if feature is None else feature_values(picked, feature),
            name=f"feature {feature}" if isinstance(feature, int) else str(feature),
            target=str(getattr(y, "name", None) or "target"),
        )
        return display.plot(ax)

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
        """Draw the sets of all rows, along `x` if it is given."""
        display = cls(
            sets=sets,
            y=None if y is None else np.asarray(y),
            x=None if x is None else np.asarray(x),
            name=name,
        )
        return display.plot(ax)

    def draw(self, ax: Any) -> None:
        """Draw into these axes."""
        if self.sets.holds_labels:
            self._draw_grid(ax)
        else:
            self._draw_pieces(ax)

    def _draw_pieces(self, ax: Any) -> None:
        """Draw the pieces of each row's set as vertical lines."""
        sets: Any = self.sets  # of numbers: they have a hull and pieces
        positions = rank_by_middle(sets.hull()) if self.x is None else np.asarray(self.x)
        pieces = []
        for row, position in enumerate(positions.tolist()):
            for low, high in sets.pieces(row).tolist():
                if low <= high:
                    pieces.append((position, low, high))
        positions_of_pieces, lows, highs = np.array(pieces, dtype=np.float64).reshape(-1, 3).T

        # a piece without an end reaches to the edge of the plot
        shown = [lows, highs] if self.y is None else [lows, highs, self.y]
        bottom, top = finite_range(np.concatenate(shown))
        ax.vlines(
            positions_of_pieces,
            lows.clip(bottom, top),
            highs.clip(bottom, top),
            color=PALE,
            linewidth=3,
            label="set",
        )
        if self.y is not None:
            draw_dots(ax, positions, self.y, sets.contains(self.y))
        if self.x is None:
            ax.set_xlabel("rows, sorted by the middle of the set")
        else:
            ax.set_xlabel(plain_name(self.name))
        ax.set_ylabel(plain_name(self.target))
        ax.legend(**LEGEND_ABOVE, ncols=3)

    def _draw_grid(self, ax: Any) -> None:
        """Draw a column for each row and a line for each label, with the labels in its set."""
        sets: Any = self.sets  # of labels
        labels = np.arange(sets.n_classes) if sets.classes is None else np.asarray(sets.classes)
        colours = require("matplotlib.colors", extra="report").ListedColormap(["none", PALE])
        cells = sets.to_dense().T.astype(float)
        ax.pcolormesh(cells, cmap=colours, vmin=0, vmax=1, edgecolors="white", linewidth=0.5)

        if self.y is not None:
            line_of = {label: line for line, label in enumerate(labels.tolist())}
            lines = np.array([line_of.get(label, math.nan) for label in self.y.tolist()])
            columns = np.arange(len(sets))
            draw_dots(ax, columns + 0.5, lines + 0.5, sets.contains(self.y))
            ax.legend(**LEGEND_ABOVE, ncols=2)
        ax.set_yticks(np.arange(len(labels)) + 0.5, [plain_name(label) for label in labels])
        ax.set(xlabel="row", ylabel="label")


def feature_values(X: Any, feature: str | int) -> AnyArray:
    """Return one column of X, by name or number."""
    if isinstance(feature, str):
        return np.asarray(X[feature])
    return np.asarray(X)[:, feature]


def rank_by_middle(hull: Any) -> AnyArray:
    """Return the position of each interval when they are sorted by their middle.

    Empty sets and the whole line have no middle, and come last.
    """
    with np.errstate(invalid="ignore"):
        middle = (hull.lower + hull.upper) / 2
    return np.argsort(np.argsort(middle, kind="stable"))


def finite_range(values: Floats) -> tuple[float, float]:
    """Return the smallest and the largest finite value; 0 and 1 if there is none."""
    finite = values[np.isfinite(values)]
    if finite.size == 0:
        return 0.0, 1.0
    return float(finite.min()), float(finite.max())


def draw_dots(ax: Any, x: AnyArray, y: AnyArray, is_covered: Bools) -> None:
    """Draw true values, those that are missed in another colour."""
    ax.plot(x[is_covered], y[is_covered], ".", color=INK, label="covered")
    ax.plot(x[~is_covered], y[~is_covered], ".", color=ORANGE, label="missed")


@dataclass(kw_only=True, eq=False, repr=False)
class RankingDisplay(Display):
    """Candidates on the tuning rows, best first: mean sizes and P95 sizes. It certifies nothing."""

    ranking: Ranking
    most: int = 15

    @classmethod
    def from_estimator(
        cls, est: FittedEstimator, X: Any = None, y: Any = None, *, most: int = 15, ax: Any = None
    ) -> Self:
        """Draw the ranking of a fitted estimator; `X` and `y` are not needed."""
        return cls.from_ranking(est.ranking_, most=most, ax=ax)

    @classmethod
    def from_ranking(cls, ranking: Ranking, *, most: int = 15, ax: Any = None) -> Self:
        """Draw the first `most` candidates."""
        return cls(ranking=ranking, most=most).plot(ax)

    def draw(self, ax: Any) -> None:
        """Draw into these axes."""
        candidates = self.ranking.table[: self.most]
        if not candidates:
            ax.text(0.5, 0.5, "one candidate: nothing was compared", ha="center", va="center")
            ax.set_axis_off()
            return

        lines = np.arange(len(candidates))
        means = [candidate.mean_size for candidate in candidates]
        p95s = [candidate.p95_size for candidate in candidates]
        winner_first = [BLUE] + [PALE] * (len(candidates) - 1)
        ax.barh(lines, means, color=winner_first, label="mean size")
        ax.plot(p95s, lines, "|", color=INK, markersize=12, label="P95 size")

        ax.set_yticks(lines, [two_lines(candidate.name) for candidate in candidates], fontsize=7)
        ax.set_ylim(len(candidates) - 0.5, -0.5)
        ax.set_xlabel(f"set size on {self.ranking.n} tuning rows")
        ax.legend(**LEGEND_ABOVE, ncols=2)


def two_lines(candidate_name: str) -> str:
    """Write the model and the score of a candidate below each other."""
    parts = candidate_name.split(" / ", 1)
    return "\n".join(plain_name(part, longest=52) for part in parts)
