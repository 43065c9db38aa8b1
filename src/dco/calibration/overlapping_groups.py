"""Coverage in every one of several groups at once, although they overlap."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from dco.calibration.base import (
    CalibratedCondition,
    Calibration,
    Calibrator,
    ConditionRows,
)
from dco.calibration.conditions import (
    Condition,
    PatternCondition,
    PooledCondition,
    check_condition_ignores_other_rows,
    distinct_names,
)
from dco.calibration.facts import OverlappingFacts
from dco.calibration.pattern_cutoffs import solve_cutoffs
from dco.foundations.arrays import AnyArray, Floats, Integers, as_real_numbers
from dco.foundations.display import are, counted, first_few, have
from dco.foundations.notes import Message, Note, show
from dco.foundations.ranks import (
    Level,
    Threshold,
    as_rational,
    checked_scores,
    round_up,
    smallest_marginal_n,
)
from dco.rows.conditions import rows_by_condition
from dco.structure import ScoredRows

# Groups overlap where several columns (or functions of the row) give groups at once. With the
# columns sex and region, the groups of a row are (0, "F") and (1, "north"): the number of a column
# and a value of it. Its pattern is its combination of values, ("F", "north").
Group: TypeAlias = tuple[int, Hashable]
Pattern: TypeAlias = tuple[Hashable, ...]

_FEWEST_TUNING_ROWS = 20  # of a pattern with a quantile of its own


@dataclass(frozen=True)
class OverlappingGroups(Calibrator):
    """Cut the scores by quantile regression on group indicators (`conditional_conformal`).

    A row is in one group for each column or function. Every group is covered with probability at
    least 1 - alpha.
    """

    condition: PatternCondition

    def calibrate(self, scored: ScoredRows, *, alpha: Fraction) -> ThresholdPerPattern:
        return ThresholdPerPattern(self, scored, alpha)

    def smallest_size(self, *, alpha: Fraction) -> int:
        return smallest_marginal_n(alpha=alpha)

    def with_guarantee(self, guarantee: str, *, delta: Fraction | None) -> OverlappingGroups:
        """Return this kind for "marginal", the only guarantee that it has."""
        if guarantee != "marginal":
            raise ValueError(
                Message(
                    f"No {guarantee.upper()} statement is known for groups that overlap: use "
                    f"⟨guarantee=marginal⟩, or name one condition in ⟨condition_on⟩."
                )
            )
        return self

    def covariates(self, X: Any, y: AnyArray) -> AnyArray:
        return self.condition.of_rows(X, y)

    def check_covariates(self, X: Any, y: AnyArray, covariates: AnyArray | None) -> None:
        assert covariates is not None
        check_condition_ignores_other_rows(self.condition, X, y, covariates)

    def condition_for_tuning(self, X: Any, y: AnyArray) -> Condition:
        """Pool the patterns of few tuning rows, whose quantiles would be too uncertain."""
        n_rows_of = Counter(self.condition.of_rows(X, y).tolist())
        common = [pattern for pattern, n_rows in n_rows_of.items() if n_rows >= _FEWEST_TUNING_ROWS]
        return PooledCondition(self.condition, frozenset(common))

    def is_conditioned_on(self, source: Any) -> bool:
        return self.condition.comes_from(source)

    def condition_in_words(self) -> str:
        return self.condition.in_words()


@dataclass(frozen=True, eq=False)
class ThresholdPerPattern(Calibration):
    """A threshold for each combination of groups; also for those without calibration rows."""

    calibrator: OverlappingGroups

    no_law = "groups overlap, and only a lower bound on the coverage of each is known"

    @cached_property
    def conditions(self) -> tuple[CalibratedCondition, ...]:
        """Compute a threshold for each combination of groups that calibration rows have.

        A combination is a tuple such as ("F", "north"), shown as "sex=F & region=north". No law
        (distribution of coverage over calibrations) is known for any of them.
        """
        rows_of_pattern = self._rows_of_pattern
        threshold_of = self._compute_thresholds(list(rows_of_pattern))
        joined_names = {pattern: self._join_group_names(pattern) for pattern in rows_of_pattern}
        name_of = distinct_names(joined_names)

        conditions = []
        for pattern, rows in rows_of_pattern.items():
            condition = CalibratedCondition(
                key=pattern,
                value=name_of[pattern],
                name=name_of[pattern],
                threshold=threshold_of[pattern],
                scores=self.scored.scores[rows],
                law=None,
            )
            conditions.append(condition)
        return tuple(conditions)

    def thresholds(self, X: Any, labels: AnyArray | None = None) -> Floats:
        """Look up the threshold of each row of X, by its combination of groups.

        Combinations such as ("F", "north") that no calibration row has are computed now. The result
        is (n,), or (n, 1) if `labels` (K,) are tried in every row: groups do not depend on them.
        """
        # 1. The combination of each row.
        pattern_of_row = self.calibrator.condition.of_trials(X, labels)
        patterns = pattern_of_row.ravel().tolist()

        # 2. The threshold of each combination.
        threshold_of: dict[Any, Threshold] = {
            condition.key: condition.threshold for condition in self.conditions
        }
        distinct_patterns = dict.fromkeys(patterns)  # in the order of the rows, as a set is not
        new_patterns = [pattern for pattern in distinct_patterns if pattern not in threshold_of]
        threshold_of.update(self._compute_thresholds(new_patterns))

        values = [threshold_of[pattern].value for pattern in patterns]
        return np.array(values, dtype=np.float64).reshape(pattern_of_row.shape)

    def p_values(
        self,
        scores: Floats,
        X: Any,
        *,
        targets: AnyArray | None = None,
        labels: AnyArray | None = None,
    ) -> Floats:
        """Raise a ValueError: no p-values are known for groups that overlap.

        Thresholds come from a quantile regression, which is solved for one level at a time, and a
        p-value would need those of all levels. The arguments are those of other calibrations.
        """
        raise ValueError(
            "p-values are not known for groups that overlap: ask for sets, at each level."
        )

    def condition_positions(self, X: Any, y: AnyArray) -> Integers:
        """Find the pattern of each row in `conditions`; -1 for one without calibration rows."""
        position_of = {
            condition.key: position for position, condition in enumerate(self.conditions)
        }
        patterns = self.calibrator.condition.of_rows(X, y).tolist()
        return np.array([position_of.get(pattern, -1) for pattern in patterns], dtype=np.int64)

    def evaluated_groups(self, X: Any, y: AnyArray) -> tuple[ConditionRows, ...]:
        """List the groups of some rows, such as "sex=F", each with the numbers of its rows.

        A row is in one group for each column that makes groups: "sex=F" and "region=north". Groups
        come in the order of the columns, and those of a column by name.
        """
        # 1. Find the rows of each group. A group is a pair (number of the column, value in it).
        patterns = self.calibrator.condition.of_rows(X, y).tolist()
        rows_of_group: dict[Group, list[int]] = defaultdict(list)
        for row, pattern in enumerate(patterns):
            for group in groups_of(pattern):
                rows_of_group[group].append(row)

        # 2. Name the groups. Those of the calibration rows are named with them, so that a name
        # never stands for two groups.
        name_of = self._name_groups([*self._group_sizes, *rows_of_group])

        # 3. Sort them.
        def column_and_name(group: Group) -> tuple[int, str]:
            column, _ = group
            return column, name_of[group]

        return tuple(
            ConditionRows(value=name_of[group], rows=np.array(rows_of_group[group]), law=None)
            for group in sorted(rows_of_group, key=column_and_name)
        )

    def new_conditions(self, X: Any) -> Counter[str]:
        """Count rows by the first of their groups that has no calibration rows."""
        n_rows_of: Counter[Group] = Counter()
        for pattern in self.calibrator.condition.of_rows(X, np.empty(0)).tolist():
            new_groups = [group for group in groups_of(pattern) if group not in self._group_sizes]
            if new_groups:
                n_rows_of[new_groups[0]] += 1

        name_of = self._name_groups([*self._group_sizes, *n_rows_of])
        return Counter({repr(name_of[group]): n_rows for group, n_rows in n_rows_of.items()})

    def facts(self) -> OverlappingFacts:
        """State the level, the threshold of each pattern, and the number of rows in each group."""
        sizes = {self._group_names[group]: size for group, size in self._group_sizes.items()}
        return OverlappingFacts(
            rule="marginal",
            alpha=float(self.alpha),
            condition_on=self.calibrator.condition_in_words(),
            thresholds=tuple(condition.certified() for condition in self.conditions),
            groups=tuple(sorted(sizes.items())),
        )

    def notes(self, *, n_in_fit: int | None = None, classes: AnyArray | None = None) -> list[Note]:
        """Say how many thresholds are infinite, and which groups have too few rows."""
        n_infinite = sum(np.isinf(condition.threshold.value) for condition in self.conditions)
        if n_infinite == 0:
            return []

        # 1. Give examples: groups that have fewer rows than a finite threshold needs.
        smallest = self.calibrator.smallest_size(alpha=self.alpha)
        small_groups = [
            f"{self._group_names[group]!r}: {counted(size, 'row')}"
            for group, size in self._group_sizes.items()
            if size < smallest
        ]
        examples = f" ({first_few(small_groups)})" if small_groups else ""

        # 2. Write the note. Conditions are combinations of groups.
        n_combinations = counted(len(self.conditions), "combination")
        text = (
            f"{n_infinite} of {n_combinations} of groups {have(n_infinite)} too few calibration "
            f"rows for alpha = {float(self.alpha):g}{examples}: their thresholds are infinite and "
            f"rule nothing out (valid, but useless)."
        )
        remedy = (
            f"At least {counted(smallest, 'row')} {are(smallest)} needed in each group, and more "
            f"where many groups overlap."
        )
        return [Note("infeasible", text, remedy)]

    @cached_property
    def _rows_of_pattern(self) -> dict[Pattern, Integers]:
        """The calibration rows of each pattern."""
        assert self.scored.covariates is not None
        return rows_by_condition(self.scored.covariates)

    @cached_property
    def _group_sizes(self) -> dict[Group, int]:
        """How many calibration rows each group has."""
        sizes: Counter[Group] = Counter()
        for pattern, rows in self._rows_of_pattern.items():
            for group in groups_of(pattern):
                sizes[group] += len(rows)
        return dict(sizes)

    @cached_property
    def _group_names(self) -> dict[Group, str]:
        return self._name_groups(list(self._group_sizes))

    def _join_group_names(self, pattern: Pattern) -> str:
        """Write a pattern as its groups: "sex=F & region=north"."""
        return " & ".join(self._group_names[group] for group in groups_of(pattern))

    def _name_groups(self, groups: Sequence[Group]) -> dict[Group, str]:
        """Name each group, a pair (number of its column, value), such as (0, "F") -> "sex=F".

        If two values look the same, such as the number 1 and the text "1", their names are
        "sex=1" and "sex='1'".
        """
        column_names = self.calibrator.condition.part_names()
        short_names: dict[Group, str] = {}
        for column, value in groups:
            short_names[column, value] = f"{column_names[column]}={_value_text(value)}"

        n_groups_called = Counter(short_names.values())
        name_of: dict[Group, str] = {}
        for (column, value), short_name in short_names.items():
            name_of[column, value] = short_name
            if n_groups_called[short_name] > 1:
                name_of[column, value] = f"{column_names[column]}={value!r}"
        return name_of

    def _compute_thresholds(self, patterns: Sequence[Pattern]) -> dict[Pattern, Threshold]:
        """Compute the threshold of each pattern, whether calibration rows have it or not.

        A pattern is a combination of groups, such as ("F", "north"). Its threshold is that of a
        quantile regression of all calibration scores on 0/1 features, one for each group.
        """
        groups = list(self._group_sizes)
        n_rows_of = {pattern: len(rows) for pattern, rows in self._rows_of_pattern.items()}

        # 1. List the calibration rows, one pattern after the other.
        no_rows = np.arange(0)  # np.concatenate needs an array even if there are no patterns
        rows = np.concatenate([*self._rows_of_pattern.values(), no_rows])
        scores = round_up(self.scored.scores[rows])

        # 2. Make the features of these rows: they are those of their patterns.
        features_of_patterns = group_indicators(n_rows_of, groups)
        features = np.repeat(features_of_patterns, list(n_rows_of.values()), axis=0)

        # 3. Solve for the thresholds.
        new_features = group_indicators(patterns, groups)
        values = solve_cutoffs(scores, features, new_features, alpha=self.alpha)
        thresholds = {}
        for pattern, value in zip(patterns, values, strict=True):
            thresholds[pattern] = Threshold(
                value=value,
                rank=None,
                n=n_rows_of.get(pattern, 0),
                guarantee="marginal",
                alpha=float(self.alpha),
            )
        return thresholds


def groups_of(pattern: Pattern) -> list[Group]:
    """List the groups that rows of a pattern are in: ("F", "north") -> [(0, "F"), (1, "north")]."""
    return list(enumerate(pattern))


def group_indicators(patterns: Iterable[Pattern], groups: Sequence[Group]) -> Floats:
    """Make a row of 0/1 features for each pattern: a constant 1, then one for each of the `groups`.

    A pattern is a combination of values, and a group a pair (number of the column, value). With the
    groups (0, "F") and (1, "north"), the patterns ("F", "north") and ("F", "south") give the rows
    [1, 1, 1] and [1, 1, 0]: (1, "south") is not among the groups and has no feature.
    """
    patterns = list(patterns)
    feature_of_group = {group: feature for feature, group in enumerate(groups, start=1)}

    indicators = np.zeros((len(patterns), 1 + len(groups)))
    indicators[:, 0] = 1.0
    for row, pattern in enumerate(patterns):
        for group in groups_of(pattern):
            if group in feature_of_group:
                indicators[row, feature_of_group[group]] = 1.0
    return indicators


def _value_text(value: Any) -> str:
    """Write 1 and 1.0 alike: missing values turn a column of whole numbers into floats."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def conditional_conformal(
    scores: ArrayLike, features: ArrayLike, new_features: ArrayLike, *, alpha: Level
) -> Floats:
    """Compute a cut-off for each new row, with coverage 1 - alpha in groups that may overlap.

    Features say which groups a row is in: column j is 1 for rows of group j, and 0 for others. A
    value of y belongs to a new row's prediction set if its score is at most the row's cut-off.

    Method (Gibbs, Cherian and Candès 2025): with S_i and f_i the scores and features of calibration
    rows, and phi the features of the new row, the cut-off is

        c = min phi'b over the b that minimise sum_i pinball(S_i - f_i'b) - (1 - alpha) phi'b,

    the value at phi of the lowest linear quantile regression at 1 - alpha, with the new row taken
    to lie above it; c is +inf where that sum has no minimum.

    Claim: if rows are exchangeable, each group is covered with probability >= 1 - alpha, whether
    groups overlap or not. For distinct scores its coverage is at most d / ((n + 1) P(group)) above
    that, with d the number of independent columns. In general, E[w(X) (covered - (1 - alpha))] >= 0
    for every combination w >= 0 of the columns. With a constant column alone the cut-off is that of
    `split_conformal`; groups that do not overlap get one such threshold each, to the last bit.

    Parameters
    ----------
    scores
        The scores S_i of the calibration rows, (n,). The least float, which `NeverEmpty` gives the
        label that every set holds, counts as 0: a score of -1.8e308 would decide every sum.
    features
        The features f_i of the calibration rows, (n, d): any numbers, such as a 0/1 column for each
        group. No constant is added: without one nothing is said of all rows together.
    new_features
        The features phi of new rows, (m, d). Outside the span of the calibration rows' features (a
        group without calibration rows), or where all are 0, the cut-off is +inf.
    alpha
        One minus the coverage wanted.

    Returns
    -------
    The cut-offs, (m,). A warning says how many are infinite.
    """
    # 1. Check the arguments.
    row_scores = checked_scores(scores)
    calibration_features = _check_features(features, "features")
    features_of_new = _check_features(new_features, "new_features")
    has_row_per_score = len(calibration_features) == row_scores.size
    has_same_columns = calibration_features.shape[1] == features_of_new.shape[1]
    if not (has_row_per_score and has_same_columns):
        raise ValueError(
            f"features must have one row for each of {row_scores.size} scores and as many "
            f"columns as new_features, got shapes {calibration_features.shape} and "
            f"{features_of_new.shape}."
        )

    # 2. Compute the cut-offs, and warn of infinite ones.
    cutoffs = solve_cutoffs(
        round_up(row_scores), calibration_features, features_of_new, alpha=as_rational(alpha)
    )
    n_infinite = int(np.count_nonzero(cutoffs == np.inf))
    if n_infinite:
        text = (
            f"{n_infinite} of {counted(len(cutoffs), 'cut-off')} {are(n_infinite)} infinite, and "
            f"sets are full there (valid, but useless): too few calibration rows share these "
            f"features."
        )
        show([Note("infeasible", text, "More of them are needed.")])
    return cutoffs


def _check_features(values: Any, name: str) -> Floats:
    """Return features as a matrix of float64, (n, d), or raise if some are not finite numbers.

    `name` is the parameter that the error message speaks of.
    """
    features = as_real_numbers(values, name=name).astype(np.float64)
    if features.ndim != 2 or features.shape[1] == 0:
        raise ValueError(
            f"{name} must be a matrix with one row of features for each row, got shape "
            f"{features.shape}."
        )
    is_finite = np.isfinite(features).all(axis=1)
    if not is_finite.all():
        row = int(np.argmin(is_finite))
        raise ValueError(
            f"{name} must be finite numbers; row {row} is {features[row].tolist()}. Give missing "
            f"values a column."
        )
    return features
