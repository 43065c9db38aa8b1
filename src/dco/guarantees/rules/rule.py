"""What every rule of `guarantee=` offers, and the two that deploy one order statistic: split conformal and its PAC twin.

A member gives a rank for each number of calibration rows; its threshold is the order statistic of that rank. It says what it
certifies, whether it needs a delta, and whether exchangeable rows are enough. A new rule is one class with `rank` and
`smallest_n`, registered by `register_rule`: estimators, command line, certificate and verification then know it by its name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from numpy.typing import ArrayLike

from dco.foundations import ranks
from dco.foundations.arrays import Floats, Integers
from dco.foundations.ranks import Guarantee, Level, Threshold, as_rational, checked_scores, conformal_rank, order_statistic
from dco.guarantees.rules.grouped import grouped_threshold
from dco.guarantees.rules.overlapping import pattern_cutoffs
from dco.guarantees.rules.weighted import rounded_up


class Rule(ABC):
    """A rule whose threshold is one order statistic of the calibration scores.

    `alpha` is the miscoverage, `delta` the failure probability; rules that do not need a delta ignore it.
    """

    name: ClassVar[str]  # what guarantee= says
    certifies: ClassVar[Guarantee]
    needs_delta: ClassVar[bool]
    exchangeable: ClassVar[bool]  # whether exchangeable rows are enough; if not, rows must be i.i.d.
    one_per_cluster: ClassVar[bool]  # of rows that belong together, the caller hands over one, picked before scores are seen
    overlaps: ClassVar[bool] = False  # whether it has cut-offs for groups that overlap
    weighs: ClassVar[bool] = False  # whether it is known for rows with weights (`weighted_conformal`)
    claim: ClassVar[str]  # what is claimed, as messages name it: "marginal coverage"
    # The guarantee in one sentence. {level} and {sure} are 1 - alpha and 1 - delta in percent, {who} is the new row, {many}
    # are new rows; {where} is empty, or says in which conditions it holds.
    sentence: ClassVar[str]

    @abstractmethod
    def rank(self, n: int, *, alpha: Level, delta: Level | None = None) -> int:
        """The rank of the score that is deployed, of n; n + 1 if no finite threshold has this guarantee."""

    @abstractmethod
    def smallest_n(self, *, alpha: Level, delta: Level | None = None) -> int:
        """The least n with a finite threshold."""

    def threshold(
        self, scores: Floats, *, alpha: Level, delta: Level | None = None, clusters: Integers | None = None
    ) -> Threshold:
        """The threshold of checked scores, without a warning if it is infinite.

        `clusters` holds a code for each row; rows that belong together share one. None if rows are not clustered.
        """
        if clusters is not None:
            return self.clustered(scores, clusters, alpha=alpha)
        rank = self.rank(scores.size, alpha=alpha, delta=delta)
        failure = float(as_rational(delta, name="delta")) if self.needs_delta and delta is not None else None
        level = float(as_rational(alpha))
        return Threshold(order_statistic(scores, rank), rank, scores.size, self.certifies, level, failure)

    def overlapping(self, scores: Floats, features: Floats, new: Floats, *, alpha: Level) -> Floats:
        """A cut-off for each row of `new`, for groups that overlap: `features` mark those of each checked score."""
        raise ValueError(f'the rule "{self.name}" has no cut-offs for groups that overlap.')

    def clustered(self, scores: Floats, clusters: Integers, *, alpha: Level) -> Threshold:
        """The threshold of clustered rows, for rules that weigh whole clusters."""
        raise ValueError(f'the rule "{self.name}" takes one score for each cluster of rows, and no clusters.')


RULES: dict[str, Rule] = {}


def register_rule(rule: Rule) -> Rule:
    """Make the rule known by its name; another rule of that name is an error."""
    if RULES.setdefault(rule.name, rule) != rule:
        raise ValueError(f'there is a rule named "{rule.name}" already; give this one another name.')
    return rule


@dataclass(frozen=True)
class SplitConformal(Rule):
    """`split_conformal` for checked scores; rows that belong together weigh as one (`grouped_conformal`)."""

    name = "marginal"
    certifies = "marginal"
    needs_delta = False
    exchangeable = True
    one_per_cluster = False
    overlaps = True
    weighs = True
    claim = "marginal coverage"
    sentence = "For {who}, the prediction set contains the true value with probability at least {level}{where}."

    def rank(self, n: int, *, alpha: Level, delta: Level | None = None) -> int:
        """`conformal_rank`."""
        return conformal_rank(n, alpha=alpha)

    def smallest_n(self, *, alpha: Level, delta: Level | None = None) -> int:
        """`smallest_marginal_n`."""
        return ranks.smallest_marginal_n(alpha=alpha)

    def clustered(self, scores: Floats, clusters: Integers, *, alpha: Level) -> Threshold:
        """The quantile in which each cluster weighs the same."""
        return grouped_threshold(scores, clusters, alpha=alpha)

    def overlapping(self, scores: Floats, features: Floats, new: Floats, *, alpha: Level) -> Floats:
        """`conditional_conformal`."""
        return pattern_cutoffs(rounded_up(scores), features, new, level=as_rational(alpha))


@dataclass(frozen=True)
class Pac(Rule):
    """`bayesian_quadrature` for checked scores."""

    name = "pac"
    certifies = "pac"
    needs_delta = True
    exchangeable = False
    one_per_cluster = True
    claim = "a PAC statement"
    sentence = (
        "With confidence at least {sure} over the draw of the calibration rows, the prediction sets contain the true value "
        "for at least {level} of {many}{where}."
    )

    def rank(self, n: int, *, alpha: Level, delta: Level | None = None) -> int:
        """`pac_rank`."""
        return ranks.pac_rank(n, alpha=alpha, delta=delta)  # type: ignore[arg-type]  # None is refused there

    def smallest_n(self, *, alpha: Level, delta: Level | None = None) -> int:
        """`smallest_pac_n`."""
        return ranks.smallest_pac_n(alpha=alpha, delta=delta)  # type: ignore[arg-type]  # None is refused there


SPLIT_CONFORMAL = register_rule(SplitConformal())
PAC = register_rule(Pac())


def split_conformal(scores: ArrayLike, *, alpha: Level) -> Threshold:
    """The k-th smallest score, k = ceil((n + 1)(1 - alpha)); +inf if k = n + 1.

    Theorem 3.1 of the paper: a new row exchangeable with the n calibration rows is covered with probability >= 1 - alpha
    (and with probability k / (n + 1) when scores have no ties). It needs exchangeability and nothing else.
    """
    return with_warning(SPLIT_CONFORMAL, SPLIT_CONFORMAL.threshold(checked_scores(scores), alpha=alpha), alpha, None)


def bayesian_quadrature(scores: ArrayLike, *, alpha: Level, delta: Level) -> Threshold:
    """The smallest score whose risk bound L+ is at most alpha with probability at least 1 - delta.

    Bayesian quadrature (Snell and Griffiths 2025) for 0/1 loss, in closed form. With e uncovered rows, L+ is a sum of e + 1
    of n + 1 uniform Dirichlet weights, hence Beta(e + 1, n - e), and no sampling is needed: the threshold is the (n - e)-th
    smallest score for the largest e with I_alpha(e + 1, n - e) >= 1 - delta.
    Claim (i.i.d. rows): P(coverage >= 1 - alpha) >= 1 - delta over the draw of the calibration rows.
    """
    return with_warning(PAC, PAC.threshold(checked_scores(scores), alpha=alpha, delta=delta), alpha, delta)


def with_warning(rule: Rule, threshold: Threshold, alpha: Level, delta: Level | None) -> Threshold:
    """The threshold, with a warning if there are too few rows for a finite one."""
    if threshold.rank == threshold.n + 1:
        at = f"alpha = {threshold.alpha:g}" + ("" if threshold.delta is None else f", delta = {threshold.delta:g}")
        ranks.warn_infeasible(threshold.n, rule.smallest_n(alpha=alpha, delta=delta), f"{rule.claim} at {at}")
    return threshold
