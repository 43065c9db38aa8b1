"""What a certificate states of a calibration: plain data, from which its words and checks follow.

Each way of calibrating has a class of facts. A certificate that is read from a file finds it by its
`kind`, and needs neither rows nor model to say what is guaranteed and whether the numbers agree.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar, TypeVar

from scipy.special import betaincinv

from dco.calibration.guarantee import GUARANTEES, guarantee_called
from dco.foundations.display import counted
from dco.foundations.ranks import Guarantee, as_rational
from dco.scores.thresholds import LOWEST_SCORE

# How far points of the same Beta law may lie apart: they differ between versions of SciPy.
_LAW_ROUNDING = 1e-9

ESTIMATED = (
    "the weights were estimated. Coverage is at least the level minus the total variation between "
    "the mix that they describe and the true mix of new rows (half the mean error of the weights, "
    "scaled to mean 1). To lose at most a point of coverage, that must be at most 0.01, and nobody "
    "knows it"
)


@dataclass(frozen=True)
class Check:
    """One fact that was computed again."""

    name: str
    holds: bool
    detail: str


@dataclass(frozen=True)
class CertifiedThreshold:
    """One threshold: the `rank`-th smallest of `n` calibration scores, and what follows from it.

    Attributes
    ----------
    group
        The name of the condition whose rows it is for; None if it is for all rows.
    n, rank, value
        How many calibration scores there are, and the rank and value of the one that was taken.
        The rank is None if the threshold is no order statistic.
    expected_coverage, expected_is_exact
        rank / (n + 1): the mean coverage if scores are distinct (exact), a lower bound if some near
        the threshold are tied.
    coverage_low, coverage_high
        The 5 % and 95 % points of Beta(rank, n + 1 - rank), the law of coverage over draws of the
        calibration rows. They need i.i.d. rows; with ties only the lower one holds.
    """

    group: str | None
    n: int
    rank: int | None
    value: float
    expected_coverage: float | None
    expected_is_exact: bool
    coverage_low: float | None
    coverage_high: float | None

    def agrees_with(self, other: CertifiedThreshold) -> bool:
        """Return whether two thresholds are equal, but for rounding in the coverage they state.

        The three numbers on coverage may differ in their last digits, since they are computed by
        SciPy; all other fields must be equal.
        """
        with_coverage_of_other = replace(
            self,
            expected_coverage=other.expected_coverage,
            coverage_low=other.coverage_low,
            coverage_high=other.coverage_high,
        )
        are_other_fields_equal = with_coverage_of_other == other
        return (
            are_other_fields_equal
            and _nearly_equal(self.expected_coverage, other.expected_coverage)
            and _nearly_equal(self.coverage_low, other.coverage_low)
            and _nearly_equal(self.coverage_high, other.coverage_high)
        )


def _nearly_equal(a: float | None, b: float | None) -> bool:
    """Return whether two numbers of a law are equal up to the last digits, or both are None."""
    if a is None or b is None:
        return a is b
    return abs(a - b) < _LAW_ROUNDING


def certified_threshold(
    value: float, *, rank: int | None, n: int, is_tied: bool, group: str | None = None
) -> CertifiedThreshold:
    """Make the record of a threshold, with the coverage that follows from its rank.

    `value` is the `rank`-th smallest of `n` calibration scores. Over draws of the calibration rows
    coverage is then Beta(rank, n + 1 - rank). `is_tied` says whether scores near the threshold are
    equal, so that coverage may be higher. Without a rank nothing follows.
    """
    without_coverage = CertifiedThreshold(
        group=group,
        n=n,
        rank=rank,
        value=value,
        expected_coverage=None,
        expected_is_exact=False,
        coverage_low=None,
        coverage_high=None,
    )
    if rank is None:
        return without_coverage

    if rank > n or value == math.inf:  # full sets, which cover every row
        return replace(
            without_coverage,
            expected_coverage=1.0,
            expected_is_exact=True,
            coverage_low=1.0,
            coverage_high=1.0,
        )

    low, high = betaincinv(rank, n + 1 - rank, [0.05, 0.95])
    return replace(
        without_coverage,
        expected_coverage=rank / (n + 1),
        expected_is_exact=not is_tied,
        coverage_low=float(low),
        coverage_high=None if is_tied else float(high),
    )


@dataclass(frozen=True, kw_only=True)
class CalibrationFacts(ABC):
    """The level, the thresholds, and what they guarantee.

    `rule` is the guarantee that was asked for, `condition_on` describes what gives rows a threshold
    of their own.
    """

    kind: ClassVar[str]  # names the class in a file

    rule: str
    alpha: float
    delta: float | None = None
    condition_on: str | None = None
    thresholds: tuple[CertifiedThreshold, ...]

    @property
    def guarantee(self) -> Guarantee:
        """What is certified; "none" if nothing is."""
        if self.rule not in GUARANTEES or self.reason is not None:
            return "none"
        return GUARANTEES[self.rule].certifies

    @property
    def reason(self) -> str | None:
        """Why nothing is guaranteed; None if something is."""
        return None

    @property
    def is_clustered(self) -> bool:
        """Whether rows belong together, so that the statement is about one row of a new cluster."""
        return False

    @property
    def groups_overlap(self) -> bool:
        """Whether a row may belong to several groups, each with the guarantee."""
        return False

    @property
    def no_law(self) -> str | None:
        """What is known of coverage where no law is, in a sentence; None if a law is known."""
        return None

    @property
    def why_no_slack(self) -> str | None:
        """Why no bound is known for a level that is picked by its result; None if one is."""
        return None

    @property
    def n_scores_combined(self) -> int:
        """How many scores a threshold may be a sum of, each with its rounding."""
        return 1

    @abstractmethod
    def sentence(self, *, like: str = "") -> str:
        """State the guarantee in one sentence.

        `like` goes after "a row", to say which new rows it is about: " drawn like ...". Without it
        they are called "a new row".
        """

    def assumption(self) -> str:
        """State what must be true of calibration rows and new ones for the guarantee to hold."""
        relation = "exchangeable"
        if GUARANTEES[self.rule].needs_independent_rows:
            relation = "independent and identically distributed"
        given = "given the training and tuning rows"

        if not self.is_clustered:
            return f"Calibration rows and the new one are {relation}, {given}."
        return (
            f"Calibration groups of rows and the new one are {relation}, {given}. "
            "A row that is not picked at random (the last visit, say) needs rows "
            "exchangeable within groups as well."
        )

    @abstractmethod
    def origin(self, threshold: CertifiedThreshold) -> str:
        """Say in words what a threshold was taken from, such as "rank 91 of 100"."""

    def lines(self, *, n_rows: int) -> Iterator[str]:
        """Print the thresholds and what follows from them, of `n_rows` calibration rows."""
        for threshold in self.thresholds:
            yield threshold_in_words(threshold, self.origin(threshold))

    def checks(self, *, n_rows: int, n_labels: int | None) -> Iterator[Check]:
        """Check that the numbers agree with each other, and with other facts of the fit.

        `n_rows` is the number of calibration rows, and `n_labels` that of labels (None for
        regression). Here alpha, delta and the rule ("marginal" or "pac") are checked, and only what
        is wrong is reported. Subclasses go on with their thresholds.
        """
        levels = {"alpha": self.alpha, "delta": self.delta}
        for name, level in levels.items():
            if level is not None and not 0 < level < 1:
                yield Check(name, False, f"{level} is not between 0 and 1")

        if self.rule not in GUARANTEES:
            yield Check("rule", False, f"there is no rule {self.rule!r}")
            return
        needs_delta = GUARANTEES[self.rule].needs_delta
        if needs_delta and self.delta is None:
            yield Check("delta", False, f"the rule {self.rule} has delta")
        if not needs_delta and self.delta is not None:
            yield Check("delta", False, f"the rule {self.rule} has no delta")

    def state(self, *, who: str, many: str, where: str = "") -> str:
        """Fill in the sentence of the guarantee.

        `who` is the new row ("a new row"), `many` the same in the plural, and `where` says in which
        groups of rows it holds (", in each group separately"), if there are any.
        """
        level = all_but(as_rational(self.alpha))
        sure = ""
        if self.delta is not None:
            sure = all_but(as_rational(self.delta, name="delta"))

        template = GUARANTEES[self.rule].sentence
        return template.format(level=level, sure=sure, who=who, many=many, where=where)


FACTS: dict[str, type[CalibrationFacts]] = {}

Facts = TypeVar("Facts", bound=type[CalibrationFacts])


def register_facts(facts: Facts) -> Facts:
    """Make a class of facts known by its kind, so that certificates in files can be read."""
    FACTS[facts.kind] = facts
    return facts


@register_facts
@dataclass(frozen=True, kw_only=True)
class OrderStatisticFacts(CalibrationFacts):
    """Thresholds that are order statistics: one for all rows, or one for each condition.

    `takes_one_of_each_cluster`: rows belong together, and one of each cluster was taken.
    """

    kind = "order statistic"

    takes_one_of_each_cluster: bool = False

    @property
    def is_clustered(self) -> bool:
        return self.takes_one_of_each_cluster

    def sentence(self, *, like: str = "") -> str:
        """State the guarantee for a new row, in each group if there are groups.

        For example: "For a new row, the prediction set contains the true value with probability at
        least 90 %, whichever of the groups it belongs to." `like` says which new rows it is about,
        such as " drawn like ..."; without it they are any.
        """
        has_groups = any(threshold.group is not None for threshold in self.thresholds)
        is_pac = GUARANTEES[self.rule].needs_delta  # a statement on many rows, not on one
        where = ""
        if has_groups and is_pac:
            where = ", in each group separately"
        elif has_groups:
            where = ", whichever of the groups it belongs to"

        if self.is_clustered:
            return self.state(who=row_of_cluster(like), many=rows_of_clusters(like), where=where)
        return self.state(who=new_row(like), many=new_rows(like), where=where)

    def origin(self, threshold: CertifiedThreshold) -> str:
        return f"rank {threshold.rank} of {threshold.n}"

    def checks(self, *, n_rows: int, n_labels: int | None) -> Iterator[Check]:
        """Check that thresholds follow from the levels, and count all rows and known labels.

        `n_rows` is the number of calibration rows, and `n_labels` that of labels (None for
        regression).
        """
        # 1. The rank of a threshold follows from alpha and delta, if these make sense.
        failures_of_levels = list(super().checks(n_rows=n_rows, n_labels=n_labels))
        yield from failures_of_levels
        if not failures_of_levels:
            for threshold in self.thresholds:
                yield from self._check_rank(threshold)

        # 2. Each calibration row gives one score. Where rows belong together in clusters (the
        # visits of a patient), each cluster gives one.
        if self.is_clustered:
            yield check_clusters_counted(self.thresholds, n_rows)
        else:
            yield check_all_rows_counted(self.thresholds, n_rows)

        # 3. If each label has a threshold, there are no more thresholds than labels.
        is_by_label = self.condition_on == repr("label")
        if is_by_label:
            has_label_for_each = len(self.thresholds) <= (n_labels or 0)
            detail = "each threshold is for a label that the fit knows"
            yield Check("labels", has_label_for_each, detail)

    def _check_rank(self, threshold: CertifiedThreshold) -> Iterator[Check]:
        """Check the rank of a threshold, and the numbers that follow from it.

        The threshold is the calibration score of this rank, which follows from the number of scores
        n, alpha and delta. The coverage that the threshold states follows from the rank.
        """
        name = name_check("rank", threshold.group)
        if threshold.rank is None:
            yield Check(name, False, "an order statistic has a rank")
            return

        # 1. Compute the rank again.
        delta = None if self.delta is None else as_rational(self.delta, name="delta")
        guarantee = guarantee_called(self.rule, delta=delta)
        computed_rank = guarantee.rank(threshold.n, alpha=as_rational(self.alpha))
        what = f"rank for n = {threshold.n}, alpha = {self.alpha:g}"
        yield compare(name, threshold.rank, computed_rank, what)

        # 2. Check what follows from it. There is no score of rank n + 1: infinity stands for it.
        if computed_rank > threshold.n:
            is_infinite = threshold.value == math.inf
            detail = "rank n + 1 asks for an infinite threshold"
            yield Check(f"{name}: infinite", is_infinite, detail)
        yield check_law(threshold)


@register_facts
@dataclass(frozen=True, kw_only=True)
class ClusterFacts(CalibrationFacts):
    """One threshold for rows of new clusters, where every cluster weighs the same."""

    kind = "weighted clusters"

    @property
    def is_clustered(self) -> bool:
        return True

    @property
    def no_law(self) -> str:
        return "Rows come in clusters: the promise holds, but no exact law of coverage is known."

    @property
    def why_no_slack(self) -> str:
        return "rows belong together in groups"

    def sentence(self, *, like: str = "") -> str:
        return self.state(who=row_of_cluster(like), many=rows_of_clusters(like))

    def origin(self, threshold: CertifiedThreshold) -> str:
        return f"weighted over {counted(threshold.n, 'cluster')} of rows"

    def checks(self, *, n_rows: int, n_labels: int | None) -> Iterator[Check]:
        yield from super().checks(n_rows=n_rows, n_labels=n_labels)
        for threshold in self.thresholds:
            yield from check_has_no_rank(threshold)
        yield check_clusters_counted(self.thresholds, n_rows)


@register_facts
@dataclass(frozen=True, kw_only=True)
class OverlappingFacts(CalibrationFacts):
    """A threshold for each combination of groups, such as "sex=F & region=north".

    `groups` has the name of each group ("sex=F") and the number of its calibration rows.
    """

    kind = "overlapping groups"

    groups: tuple[tuple[str, int], ...]

    @property
    def groups_overlap(self) -> bool:
        return True

    @property
    def no_law(self) -> str:
        return (
            "Groups overlap: each group has the promise, a combination of groups has none, and no "
            "law of coverage is known."
        )

    @property
    def why_no_slack(self) -> str:
        return "groups overlap"

    @property
    def n_scores_combined(self) -> int:
        return 1 + len(self.groups)

    def sentence(self, *, like: str = "") -> str:
        overlap = f"any one of {len(self.groups)} groups, which overlap"
        return self.state(
            who=new_row(like), many=new_rows(like), where=f", given that it belongs to {overlap}"
        )

    def origin(self, threshold: CertifiedThreshold) -> str:
        return f"by all rows, {counted(threshold.n, 'row')} with this combination of groups"

    def lines(self, *, n_rows: int) -> Iterator[str]:
        """Print the range of the thresholds, and for each group the coverage to expect.

        `n_rows` is the number of calibration rows. Coverage of a group is between 1 - alpha and
        about 1 - alpha + d / (rows of the group), where d is the number of independent features
        among the constant 1 and a 0/1 feature for each group (`conditional_conformal`).
        """
        # 1. The thresholds.
        values = [threshold.value for threshold in self.thresholds]
        n_thresholds = counted(len(values), "threshold")
        value_range = f" from {cutoff(min(values))} to {cutoff(max(values))}" if values else ""
        yield f"{n_thresholds}{value_range}, one for each combination of groups"

        # 2. The number d. Each row is in one group of each column, sex and region say, so that the
        # features of a column add up to the constant: for each column, one of them is dependent.
        n_rows_in_groups = sum(group_rows for _, group_rows in self.groups)
        n_columns = n_rows_in_groups // max(n_rows, 1)
        n_independent = 1 + len(self.groups) - n_columns

        # 3. The groups.
        level = 1 - self.alpha
        for name, group_rows in self.groups:
            upper_bound = min(1.0, level + n_independent / group_rows)
            yield (
                f"{name}: {counted(group_rows, 'row')}, expected coverage {level:.6g} to about "
                f"{upper_bound:.3f} where scores are distinct"
            )

    def checks(self, *, n_rows: int, n_labels: int | None) -> Iterator[Check]:
        """Check the levels, and that thresholds and groups count each calibration row.

        `n_rows` is the number of calibration rows, and `n_labels` that of labels (None for
        regression), which the levels do not depend on.
        """
        yield from super().checks(n_rows=n_rows, n_labels=n_labels)
        for threshold in self.thresholds:
            yield from check_has_no_rank(threshold)
        yield check_all_rows_counted(self.thresholds, n_rows)

        # A row is in one group of each column (sex, region ...). So the groups of a column have
        # n_rows rows together, and those of all columns a multiple of n_rows.
        group_sizes = [group_rows for _, group_rows in self.groups]
        counts_all_rows = sum(group_sizes) % max(n_rows, 1) == 0
        has_no_empty_group = min(group_sizes, default=0) > 0
        detail = "each calibration row is in one group of each condition"
        yield Check("overlapping groups", counts_all_rows and has_no_empty_group, detail)


@dataclass(frozen=True)
class WeightFacts:
    """The weights of the calibration rows on a certificate.

    Attributes
    ----------
    depends_on
        What the weight of a row depends on: "x" or "label".
    ratios
        The function of X or dict of labels that gives the weights, in words.
    estimated
        Whether the weights were estimated from rows, so that nothing is guaranteed.
    effective_n
        How many equally weighted rows would vary as much.
    largest_over_mean
        The largest weight, in units of the mean weight.
    """

    depends_on: str
    ratios: str
    estimated: bool
    effective_n: float
    largest_over_mean: float


@register_facts
@dataclass(frozen=True, kw_only=True)
class WeightedFacts(CalibrationFacts):
    """A threshold for each new row, by its weight. The one that is stated is at the mean weight."""

    kind = "known weights"

    weights: WeightFacts

    @property
    def reason(self) -> str | None:
        return ESTIMATED if self.weights.estimated else None

    @property
    def no_law(self) -> str:
        return (
            "Each row has a threshold by its weight: given the weights the promise holds, but no "
            "law is known."
        )

    @property
    def why_no_slack(self) -> str:
        return "rows have weights"

    def sentence(self, *, like: str = "") -> str:
        sentence = self.state(who=new_row(like), many=new_rows(like))
        return sentence.removesuffix(".") + ", given the stated weights."

    def assumption(self) -> str:
        """State what must be true of rows and weights for the guarantee to hold."""
        weighted = self.weights.depends_on  # "x" or "label"
        unchanged = "x given the label is as before"
        if weighted == "x":
            unchanged = "y given x is as before"
        return (
            f"Calibration rows and the new one are independent, given the training and tuning "
            f"rows, the weights are how much more frequent each {weighted} is among new rows than "
            f"among calibration rows, and {unchanged}."
        )

    def lines(self, *, n_rows: int) -> Iterator[str]:
        yield (
            f"Weights: {self.weights.ratios}; {n_rows} calibration rows have the effect of "
            f"{self.weights.effective_n:.0f}"
        )
        yield from super().lines(n_rows=n_rows)

    def origin(self, threshold: CertifiedThreshold) -> str:
        rows = counted(threshold.n, "row")
        return f"at a new row of mean weight, by {rows}; every new row has its own"

    def checks(self, *, n_rows: int, n_labels: int | None) -> Iterator[Check]:
        yield from super().checks(n_rows=n_rows, n_labels=n_labels)
        for threshold in self.thresholds:
            yield from check_has_no_rank(threshold)
        yield check_all_rows_counted(self.thresholds, n_rows)


# ----------------------------------------------------------------------------------------------
# words


def new_row(like: str) -> str:
    """Name the row that a statement is about."""
    return f"a row{like}" if like else "a new row"


def new_rows(like: str) -> str:
    """Name the rows that a PAC statement is about."""
    return f"rows{like}" if like else "new rows"


def row_of_cluster(like: str) -> str:
    """Name a row of a new cluster. Clusters weigh the same, so it is no share of all rows."""
    return f"a row picked at random from a {_new_cluster(like)}"


def rows_of_clusters(like: str) -> str:
    """Name rows of new clusters, one of each."""
    return f"rows picked at random, one from each {_new_cluster(like)}"


def _new_cluster(like: str) -> str:
    return f"new group of rows{like}" if like else "new group"


def all_but(level: Fraction) -> str:
    """Write 1 - level in percent, rounded down: "90 %" for 1/10.

    It has up to four decimal places, and more where a small level would not be seen in these.
    """
    places = max(4, -math.floor(math.log10(level)))
    percent_as_whole_number = math.floor(100 * (1 - level) * 10**places)
    whole, decimals = divmod(percent_as_whole_number, 10**places)
    return f"{whole}.{decimals:0{places}d}".rstrip("0").rstrip(".") + " %"


def threshold_in_words(threshold: CertifiedThreshold, origin: str) -> str:
    """Print one threshold, where it comes from, and the law of coverage that follows.

    With the `origin` "rank 91 of 100", for example: "threshold 1.25, rank 91 of 100, expected
    coverage 0.9010, 90 % range 0.848 to 0.945". Parts that are not known are left out.
    """
    parts = [f"threshold {cutoff(threshold.value)}", origin]
    if threshold.group is not None:
        parts[0] = f"{threshold.group}: {parts[0]}"

    if threshold.expected_coverage is not None:
        at_least = "" if threshold.expected_is_exact else " at least"
        parts.append(f"expected coverage{at_least} {threshold.expected_coverage:.4f}")

    if threshold.coverage_low is not None:
        high = threshold.coverage_high
        upper_end = "or more" if high is None else f"to {high:.3f}"
        parts.append(f"90 % range {threshold.coverage_low:.3f} {upper_end}")

    return ", ".join(parts)


def cutoff(value: float) -> str:
    """Write a threshold with six digits, or in words if it is the lowest score."""
    if value == LOWEST_SCORE:
        return "the lowest score (only the most probable label)"
    return f"{value:.6g}"


# ----------------------------------------------------------------------------------------------
# checks


def name_check(subject: str, group: str | None) -> str:
    """Name a check of a threshold: "rank", or "rank of group north" for the one of a group."""
    return subject if group is None else f"{subject} of group {group}"


def compare(name: str, stated: object, computed: object, what: str) -> Check:
    """Make a check that holds if the certificate states what was computed again.

    `what` says in a few words what that is, for the line that a report prints.
    """
    if stated == computed:
        return Check(name, True, f"{what}: {computed}")
    return Check(name, False, f"{what}: the certificate says {stated}, recomputed {computed}")


def check_law(threshold: CertifiedThreshold) -> Check:
    """Check that the coverage stated with a threshold follows from the threshold's rank.

    It is stated by its mean and its 5 % and 95 % points; a threshold without a rank has none of
    these.
    """
    recomputed = certified_threshold(
        threshold.value,
        rank=threshold.rank,
        n=threshold.n,
        is_tied=not threshold.expected_is_exact,
        group=threshold.group,
    )

    detail = "no rank, no law"
    if threshold.rank is not None:
        detail = f"mean, 5 % and 95 % points for rank {threshold.rank} of {threshold.n}"
    name = name_check("rank", threshold.group)
    return Check(f"{name}: coverage law", threshold.agrees_with(recomputed), detail)


def check_has_no_rank(threshold: CertifiedThreshold) -> Iterator[Check]:
    """Check that a threshold that is no order statistic states no rank and no law."""
    if threshold.rank is not None:
        name = name_check("rank", threshold.group)
        yield Check(name, False, "these thresholds are no order statistics and have no rank")
    yield check_law(threshold)


def check_all_rows_counted(thresholds: tuple[CertifiedThreshold, ...], n_rows: int) -> Check:
    """Check that the thresholds were taken from as many scores as there are calibration rows."""
    n_scores = sum(threshold.n for threshold in thresholds)
    detail = f"{n_scores} scores from {n_rows} calibration rows"
    return Check("rows", n_scores == n_rows, detail)


def check_clusters_counted(thresholds: tuple[CertifiedThreshold, ...], n_rows: int) -> Check:
    """Check that the thresholds state no more clusters than there are calibration rows."""
    n_clusters = sum(threshold.n for threshold in thresholds)
    detail = f"{n_clusters} groups from {n_rows} calibration rows"
    return Check("rows", n_clusters <= n_rows, detail)
