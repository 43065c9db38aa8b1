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

from dco.calibration.guarantee import GUARANTEES, guarantee_called
from dco.foundations.display import counted
from dco.foundations.ranks import Guarantee, as_rational
from dco.scores.thresholds import LOWEST_SCORE

_LAW_DIGITS = 1e-9  # points of a Beta law may differ from one version of SciPy to the next

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
    """One threshold: the `rank`-th smallest of `n` calibration scores, for all rows or for one
    group of them.

    `expected_coverage` is rank / (n + 1): the mean coverage when scores are distinct, a lower bound
    when some near the threshold are tied (`expected_is_exact` says which). `coverage_low` and
    `coverage_high` are the 5 % and 95 % points of coverage given the calibration rows, Beta(rank, n
    + 1 - rank); they need i.i.d. rows, and with ties only the lower one holds.
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
        """Return whether two thresholds agree; points of their laws up to the last digits."""
        with_law_of_other = replace(
            self,
            expected_coverage=other.expected_coverage,
            coverage_low=other.coverage_low,
            coverage_high=other.coverage_high,
        )
        return (
            with_law_of_other == other
            and _nearly_equal(self.expected_coverage, other.expected_coverage)
            and _nearly_equal(self.coverage_low, other.coverage_low)
            and _nearly_equal(self.coverage_high, other.coverage_high)
        )


def _nearly_equal(a: float | None, b: float | None) -> bool:
    """Return whether two points of laws agree up to the last digits, or both are None."""
    if a is None or b is None:
        return a is b
    return abs(a - b) < _LAW_DIGITS


def certified_threshold(
    value: float, *, rank: int | None, n: int, is_tied: bool, group: str | None = None
) -> CertifiedThreshold:
    """Work out what follows from a rank: expected coverage, and its 5 % and 95 % points.

    Full sets cover everything.
    """
    if rank is None:
        return CertifiedThreshold(group, n, None, value, None, False, None, None)
    if rank > n or value == math.inf:
        return CertifiedThreshold(group, n, rank, value, 1.0, True, 1.0, 1.0)

    from scipy.special import betaincinv

    low, high = betaincinv(rank, n + 1 - rank, [0.05, 0.95])
    return CertifiedThreshold(
        group=group,
        n=n,
        rank=rank,
        value=value,
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
        """State the guarantee; `like` narrows what new rows are like (" drawn like ...")."""

    def assumption(self) -> str:
        """State what must be true of calibration rows and new ones."""
        how = "exchangeable"
        if GUARANTEES[self.rule].needs_independent_rows:
            how = "independent and identically distributed"
        unit = "groups of rows" if self.is_clustered else "rows"
        text = f"Calibration {unit} and the new one are {how}, given the training and tuning rows."
        if self.is_clustered:
            text += (
                " A row that is not picked at random (the last visit, say) needs rows "
                "exchangeable within groups as well."
            )
        return text

    @abstractmethod
    def origin(self, threshold: CertifiedThreshold) -> str:
        """Say in words what a threshold was taken from, such as "rank 91 of 100"."""

    def lines(self, *, n_rows: int) -> Iterator[str]:
        """Print the thresholds and what follows from them, of `n_rows` calibration rows."""
        for threshold in self.thresholds:
            yield threshold_in_words(threshold, self.origin(threshold))

    def checks(self, *, n_rows: int, n_labels: int | None) -> Iterator[Check]:
        """Check that the numbers agree with each other, and with the other facts of the fit."""
        levels = {"alpha": self.alpha, "delta": self.delta}
        for name, level in levels.items():
            if level is not None and not 0 < level < 1:
                yield Check(name, False, f"{level} is not between 0 and 1")
        if self.rule not in GUARANTEES:
            yield Check("rule", False, f"there is no rule {self.rule!r}")
        elif GUARANTEES[self.rule].needs_delta == (self.delta is None):
            has = "has" if self.delta is None else "has no"
            yield Check("delta", False, f"the rule {self.rule} {has} delta")

    def state(self, *, who: str, many: str, where: str = "") -> str:
        """Fill in the sentence of the guarantee."""
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
        where = ""
        has_groups = any(threshold.group is not None for threshold in self.thresholds)
        if has_groups and GUARANTEES[self.rule].needs_delta:
            where = ", in each group separately"
        elif has_groups:
            where = ", whichever of the groups it belongs to"

        if self.is_clustered:
            return self.state(who=row_of_cluster(like), many=rows_of_clusters(like), where=where)
        return self.state(who=new_row(like), many=new_rows(like), where=where)

    def origin(self, threshold: CertifiedThreshold) -> str:
        return f"rank {threshold.rank} of {threshold.n}"

    def checks(self, *, n_rows: int, n_labels: int | None) -> Iterator[Check]:
        # 1. Levels and rule; ranks follow from these, so they must make sense first.
        failed_checks = list(super().checks(n_rows=n_rows, n_labels=n_labels))
        yield from failed_checks
        if not failed_checks:
            for threshold in self.thresholds:
                yield from self._check_rank(threshold)

        # 2. Each calibration row gives one score; a cluster of them gives one together.
        if self.is_clustered:
            yield check_clusters_counted(self.thresholds, n_rows)
        else:
            yield check_all_rows_counted(self.thresholds, n_rows)

        # 3. There are no more thresholds than labels.
        if self.condition_on == repr("label"):
            enough = (n_labels or 0) >= len(self.thresholds)
            yield Check("labels", enough, "each threshold is for a label that the fit knows")

    def _check_rank(self, threshold: CertifiedThreshold) -> Iterator[Check]:
        """Check that the rank follows from n and the levels, and the law from the rank."""
        name = "rank" if threshold.group is None else f"rank of group {threshold.group}"
        if threshold.rank is None:
            yield Check(name, False, "an order statistic has a rank")
            return

        delta = None if self.delta is None else as_rational(self.delta, name="delta")
        guarantee = guarantee_called(self.rule, delta=delta)
        rank = guarantee.rank(threshold.n, alpha=as_rational(self.alpha))
        what = f"rank for n = {threshold.n}, alpha = {self.alpha:g}"
        yield compare(name, threshold.rank, rank, what)
        if rank > threshold.n:
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
    """A threshold for each combination of groups; `groups` are the groups with their rows."""

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
        values = [threshold.value for threshold in self.thresholds]
        spread = f" from {cutoff(min(values))} to {cutoff(max(values))}" if values else ""
        yield f"{counted(len(values), 'threshold')}{spread}, one for each combination of groups"

        # Coverage is at most d / ((n + 1) P(group)) above its level, with d independent groups.
        # Each row is in one group of each condition, so the groups hold it once for each.
        n_conditions = sum(rows for _, rows in self.groups) // max(n_rows, 1)
        n_independent = 1 + len(self.groups) - n_conditions
        for name, rows in self.groups:
            upper_bound = min(1.0, 1 - self.alpha + n_independent / rows)
            yield (
                f"{name}: {counted(rows, 'row')}, expected coverage {1 - self.alpha:.6g} to about "
                f"{upper_bound:.3f} where scores are distinct"
            )

    def checks(self, *, n_rows: int, n_labels: int | None) -> Iterator[Check]:
        yield from super().checks(n_rows=n_rows, n_labels=n_labels)
        for threshold in self.thresholds:
            yield from check_has_no_rank(threshold)
        yield check_all_rows_counted(self.thresholds, n_rows)
        sizes = [rows for _, rows in self.groups]
        is_whole = sum(sizes) % max(n_rows, 1) == 0 and min(sizes, default=0) > 0
        detail = "each calibration row is in one group of each condition"
        yield Check("overlapping groups", is_whole, detail)


@dataclass(frozen=True)
class WeightFacts:
    """Weights on a certificate: of what ("x" or "label"), as described, whether estimated, and how
    unequal they are.

    So many equally weighted rows would vary as much (``effective_n``), and the largest weight is
    ``most`` times the mean.
    """

    of: str
    given: str
    estimated: bool
    effective_n: float
    most: float


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
        of = self.weights.of
        rest = "y given x is as before" if of == "x" else "x given the label is as before"
        return (
            f"Calibration rows and the new one are independent, given the training and tuning "
            f"rows, the weights are how much more frequent each {of} is among new rows than among "
            f"calibration rows, and {rest}."
        )

    def lines(self, *, n_rows: int) -> Iterator[str]:
        yield (
            f"Weights: {self.weights.given}; {n_rows} calibration rows have the effect of "
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
    """Print one threshold, where it comes from, and the law of coverage that follows."""
    name = "" if threshold.group is None else f"{threshold.group}: "

    law = ""
    if threshold.expected_coverage is not None:
        at_least = "" if threshold.expected_is_exact else " at least"
        law += f", expected coverage{at_least} {threshold.expected_coverage:.4f}"
    if threshold.coverage_low is not None:
        high = threshold.coverage_high
        upper_end = "or more" if high is None else f"to {high:.3f}"
        law += f", 90 % range {threshold.coverage_low:.3f} {upper_end}"

    return f"{name}threshold {cutoff(threshold.value)}, {origin}{law}"


def cutoff(value: float) -> str:
    """Write a threshold with six digits, or in words if it is the lowest score."""
    if value == LOWEST_SCORE:
        return "the lowest score (only the most probable label)"
    return f"{value:.6g}"


# ----------------------------------------------------------------------------------------------
# checks


def compare(name: str, stated: object, computed: object, what: str) -> Check:
    """Check that a certificate states what is computed."""
    if stated == computed:
        return Check(name, True, f"{what}: {computed}")
    return Check(name, False, f"{what}: the certificate says {stated}, recomputed {computed}")


def check_law(threshold: CertifiedThreshold) -> Check:
    """Check that the law of coverage follows from the rank."""
    name = "rank" if threshold.group is None else f"rank of group {threshold.group}"
    computed = certified_threshold(
        threshold.value,
        rank=threshold.rank,
        n=threshold.n,
        is_tied=not threshold.expected_is_exact,
        group=threshold.group,
    )
    what = "no rank, no law"
    if threshold.rank is not None:
        what = f"mean, 5 % and 95 % points for rank {threshold.rank} of {threshold.n}"
    return Check(f"{name}: coverage law", threshold.agrees_with(computed), what)


def check_has_no_rank(threshold: CertifiedThreshold) -> Iterator[Check]:
    """Check that a threshold that is no order statistic states no rank and no law."""
    if threshold.rank is not None:
        name = "rank" if threshold.group is None else f"rank of group {threshold.group}"
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
