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
from dco.foundations.arrays import AnyArray, Bools, Floats, Integers
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
MOST_CANDIDATES = 15

# The density of coverage is drawn between these quantiles: nearly all of its mass.
_LOWEST_QUANTILE = 0.0005
_HIGHEST_QUANTILE = 0.9995
_POINTS_OF_DENSITY = 200

_CANDIDATE_WIDTH = 52  # characters of a candidate's name in a line


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
    """The coverage of one condition or slice, and a range (low, high) for it.

    Each is None where it is not known.
    """

    name: str
    range: tuple[float, float] | None
    coverage: float | None

    @classmethod
    def of(cls, group: GroupEvaluation) -> Self:
        """Take the coverage that was observed in a group.

        The range is that of the law of coverage, or an exact interval where no law is known.
        """
        coverage_range = (group.coverage_low, group.coverage_high)
        test = group.consistency
        if test is not None:
            coverage_range = (test.low, test.high)
        return cls(name=str(group.group), range=coverage_range, coverage=group.coverage)

    @classmethod
    def expected_of(cls, threshold: CertifiedThreshold) -> Self:
        """Take the range in which the coverage of a threshold is expected, before rows are seen."""
        low = threshold.coverage_low
        high = 1.0 if threshold.coverage_high is None else threshold.coverage_high
        coverage_range = None if low is None else (low, high)
        return cls(name=str(threshold.group), range=coverage_range, coverage=None)


WithRows = TypeVar("WithRows", GroupEvaluation, CertifiedThreshold)


def largest_groups(groups: Sequence[WithRows], most: int) -> list[WithRows]:
    """Return the `most` groups that have most rows, in the order in which they came."""
    largest_first = sorted(range(len(groups)), key=lambda position: -groups[position].n)
    return [groups[position] for position in sorted(largest_first[:most])]


@dataclass(kw_only=True, eq=False, repr=False)
class CoverageDisplay(Display):
    """Coverage on rows with known targets beside the promise, with the law of its rank.

    With `groups` (slices or conditions), one line for each group instead.

    Attributes
    ----------
    promised, coverage, n
        The share of rows that should be covered, the share that is, and the number of rows.
    rank, n_cal
        The threshold is the calibration score of this rank, out of so many: coverage then follows
        Beta(rank, n_cal + 1 - rank).
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
        """Draw the coverage of an evaluation: of all rows, or of groups of them, a line for each.

        Groups are the slices that were asked for, or with `by_condition` the groups of rows that
        have a threshold of their own. Of many, the `most` ones with most rows are drawn.
        """
        groups = evaluation.by_condition if by_condition else evaluation.by_group
        test = evaluation.overall.consistency
        display = cls(
            promised=evaluation.promised,
            coverage=evaluation.coverage,
            n=evaluation.n,
            rank=None if test is None else test.rank,
            n_cal=None if test is None else test.n_cal,
            groups=[CoverageInGroup.of(group) for group in largest_groups(groups, most)],
        )
        return display.plot(ax)

    @classmethod
    def from_certificate(
        cls, certificate: Certificate, *, most: int = MOST_GROUPS, ax: Any = None
    ) -> Self:
        """Draw which coverage is to be expected by the calibration rows, before any new row.

        Groups of rows with a threshold of their own (conditions) get a line each; of many groups,
        the `most` ones with most calibration rows do.
        """
        promised = 1 - certificate.alpha
        thresholds = certificate.thresholds
        is_for_all_rows = len(thresholds) == 1 and thresholds[0].group is None
        if is_for_all_rows:
            (threshold,) = thresholds
            display = cls(promised=promised, rank=threshold.rank, n_cal=threshold.n)
        else:
            conditions = largest_groups(thresholds, most)
            groups = [CoverageInGroup.expected_of(condition) for condition in conditions]
            display = cls(promised=promised, groups=groups)
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
                label = "observed" if line == 0 else None  # once in the legend
                ax.plot(group.coverage, line, "o", color=ORANGE, label=label)

        names = [plain_name(group.name) for group in self.groups]
        ax.set_yticks(range(len(names)), names)
        ax.set_ylim(len(names) - 0.5, -0.5)

    def _draw_law(self, ax: Any) -> None:
        """Draw the density of coverage, where it is known, and the coverage that was observed.

        The coverage of a threshold varies by chance as Beta(rank, n_cal + 1 - rank).
        """
        if self.rank is not None and self.n_cal is not None and self.rank <= self.n_cal:
            law = coverage_law_of_rank(self.rank, self.n_cal)
            low = float(law.ppf(_LOWEST_QUANTILE))
            high = float(law.ppf(_HIGHEST_QUANTILE))
            x = np.linspace(low, high, _POINTS_OF_DENSITY)
            name = f"Beta({self.rank}, {self.n_cal + 1 - self.rank})"
            ax.fill_between(x, law.pdf(x), color=PALE, linewidth=0, label=name)
        if self.coverage is not None:
            ax.axvline(self.coverage, color=ORANGE, label=f"observed on {self.n} rows")
        ax.set_ylabel("density")
        ax.set_ylim(bottom=0)


@dataclass(kw_only=True, eq=False, repr=False)
class SizeDisplay(Display):
    """How large the sets are: a histogram of their sizes, and the mean size.

    Attributes
    ----------
    shares
        The share of rows in each bin; the last one is of all sets that are larger.
    edges
        The ends of the bins, ascending.
    labels
        Whether sizes are numbers of labels, and not lengths.
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
        finite_sizes = sizes[np.isfinite(sizes)]
        if finite_sizes.size == 0:
            finite_sizes = np.ones(1)  # any number: the bins must lie somewhere
        edges = size_edges(finite_sizes, classes=sets.n_classes)
        display = cls(
            shares=count_in_bins(sizes, edges) / len(sizes),
            edges=edges,
            mean=float(sizes.mean()),
            labels=sets.holds_labels,
        )
        return display.plot(ax)

    def draw(self, ax: Any) -> None:
        """Draw the histogram into these axes, with a hatched bar for all larger sets."""
        shares_in_bins = self.shares[:-1]
        larger_share = self.shares[-1]
        ax.stairs(shares_in_bins, self.edges, fill=True, color=PALE)

        if larger_share > 0:
            width = float(self.edges[1] - self.edges[0])
            centre = float(self.edges[-1]) + 1.5 * width  # one bar's width beyond the bins
            hatched = {"color": PALE, "hatch": "///", "edgecolor": BLUE}
            ax.bar(centre, larger_share, width, label="more", **hatched)
            ax.legend(**LEGEND)
        if math.isfinite(self.mean):
            ax.axvline(self.mean, color=INK)
        ax.set_xlabel("labels in the set" if self.labels else "length of the set")
        ax.set_ylabel("share of rows")


@dataclass(kw_only=True, eq=False, repr=False)
class SetsDisplay(Display):
    """The sets themselves, with true values as dots.

    Intervals are drawn along a feature, or sorted by their middle; label sets are a grid.

    Attributes
    ----------
    y
        The true values of the rows, if they are known.
    x, name
        A feature of the rows and its name, for intervals.
    target
        The name of the target.
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
        """Draw the sets of at most `most` rows, which are picked evenly from all rows of X.

        Intervals are drawn along the column `feature` of X, if it is given.
        """
        rows = pick_evenly(n_rows(X), most)
        picked_X = take_features(X, rows)
        display = cls(
            sets=est.predict_set(picked_X, alpha=alpha),
            y=None if y is None else np.asarray(y)[rows],
            x=None if feature is None else feature_values(picked_X, feature),
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
        """Draw the sets of all rows; intervals along a feature `x`, if its values are given."""
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
        """Draw each row's set as vertical lines, one for each piece, and true values as dots."""
        sets: Any = self.sets  # of numbers: they have a hull and pieces
        positions = rank_by_middle(sets.hull()) if self.x is None else np.asarray(self.x)
        piece_positions, lower, upper = list_pieces(sets, positions)

        # A piece without an end reaches to the edge of the plot.
        drawn_values = [lower, upper]
        if self.y is not None:
            drawn_values.append(self.y)
        bottom, top = finite_range(np.concatenate(drawn_values))
        lower = lower.clip(bottom, top)
        upper = upper.clip(bottom, top)

        ax.vlines(piece_positions, lower, upper, color=PALE, linewidth=3, label="set")
        if self.y is not None:
            draw_dots(ax, positions, self.y, sets.contains(self.y))
        if self.x is None:
            ax.set_xlabel("rows, sorted by the middle of the set")
        else:
            ax.set_xlabel(plain_name(self.name))
        ax.set_ylabel(plain_name(self.target))
        ax.legend(**LEGEND_ABOVE, ncols=3)

    def _draw_grid(self, ax: Any) -> None:
        """Draw a grid with a column for each row and a line for each label.

        The cells of the labels in a row's set are filled, and the true label is a dot.
        """
        sets: Any = self.sets  # of labels
        labels = np.arange(sets.n_classes) if sets.classes is None else np.asarray(sets.classes)
        colours = require("matplotlib.colors", extra="report").ListedColormap(["none", PALE])
        is_in_set = sets.to_dense().T.astype(float)
        ax.pcolormesh(is_in_set, cmap=colours, vmin=0, vmax=1, edgecolors="white", linewidth=0.5)

        to_middle_of_cell = 0.5
        if self.y is not None:
            line_of_label = {label: line for line, label in enumerate(labels.tolist())}
            # A label that the fit does not know has no line, and no dot.
            lines = [line_of_label.get(label, math.nan) for label in self.y.tolist()]
            dots_x = np.arange(len(sets)) + to_middle_of_cell
            dots_y = np.array(lines) + to_middle_of_cell
            draw_dots(ax, dots_x, dots_y, sets.contains(self.y))
            ax.legend(**LEGEND_ABOVE, ncols=2)

        label_names = [plain_name(label) for label in labels]
        ax.set_yticks(np.arange(len(labels)) + to_middle_of_cell, label_names)
        ax.set(xlabel="row", ylabel="label")


def pick_evenly(n: int, most: int) -> Integers:
    """Pick at most `most` of the positions 0 ... n - 1, evenly: (9, 3) -> [0, 4, 8]."""
    positions = np.linspace(0, n - 1, min(most, n))
    return np.unique(positions.round().astype(np.int64))


def list_pieces(sets: Any, positions: AnyArray) -> tuple[Floats, Floats, Floats]:
    """List the pieces of all rows' sets, as three arrays with a number for each piece.

    These are the position of its row, its lower end and its upper end. `sets` are of numbers, and
    `positions` are where the rows are drawn. Empty pieces are left out.
    """
    pieces = []
    for row, position in enumerate(positions.tolist()):
        for lower_end, upper_end in sets.pieces(row).tolist():
            if lower_end <= upper_end:
                pieces.append((position, lower_end, upper_end))
    columns = np.array(pieces, dtype=np.float64).reshape(-1, 3)
    return columns[:, 0], columns[:, 1], columns[:, 2]


def feature_values(X: Any, feature: str | int) -> AnyArray:
    """Return one column of X, by its name (of a frame) or number (of an array)."""
    if isinstance(feature, str):
        return np.asarray(X[feature])
    return np.asarray(X)[:, feature]


def rank_by_middle(hull: Any) -> AnyArray:
    """Return the position of each interval when they are sorted by their middle.

    Middles [5, 1, 3] -> [2, 0, 1]. Empty sets and the whole line have no middle, and come last.
    """
    with np.errstate(invalid="ignore"):
        middles = (hull.lower + hull.upper) / 2
    smallest_first = np.argsort(middles, kind="stable")
    return np.argsort(smallest_first)


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
    most: int = MOST_CANDIDATES

    @classmethod
    def from_estimator(
        cls,
        est: FittedEstimator,
        X: Any = None,
        y: Any = None,
        *,
        most: int = MOST_CANDIDATES,
        ax: Any = None,
    ) -> Self:
        """Draw the ranking of a fitted estimator; `X` and `y` are not needed."""
        return cls.from_ranking(est.ranking_, most=most, ax=ax)

    @classmethod
    def from_ranking(cls, ranking: Ranking, *, most: int = MOST_CANDIDATES, ax: Any = None) -> Self:
        """Draw the first `most` candidates."""
        return cls(ranking=ranking, most=most).plot(ax)

    def draw(self, ax: Any) -> None:
        """Draw a line for each candidate: a bar for its mean size, a mark for its P95 size."""
        candidates = self.ranking.table[: self.most]
        if not candidates:
            ax.text(0.5, 0.5, "one candidate: nothing was compared", ha="center", va="center")
            ax.set_axis_off()
            return

        lines = np.arange(len(candidates))
        mean_sizes = [candidate.mean_size for candidate in candidates]
        p95_sizes = [candidate.p95_size for candidate in candidates]
        colours = [BLUE] + [PALE] * (len(candidates) - 1)  # the winner comes first
        ax.barh(lines, mean_sizes, color=colours, label="mean size")
        ax.plot(p95_sizes, lines, "|", color=INK, markersize=12, label="P95 size")

        names = [name_in_two_lines(candidate.name) for candidate in candidates]
        ax.set_yticks(lines, names, fontsize=7)
        ax.set_ylim(len(candidates) - 0.5, -0.5)
        ax.set_xlabel(f"set size on {self.ranking.n} tuning rows")
        ax.legend(**LEGEND_ABOVE, ncols=2)


def name_in_two_lines(candidate_name: str) -> str:
    """Write the model and the score of a candidate below each other.

    "Ridge / AbsoluteResidual" -> "Ridge", and "AbsoluteResidual" in the second line.
    """
    parts = candidate_name.split(" / ", 1)
    return "\n".join(plain_name(part, longest=_CANDIDATE_WIDTH) for part in parts)
