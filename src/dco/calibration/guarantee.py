"""Guarantees that one order statistic gives: a family whose members register themselves by name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, TypeVar

from dco.foundations.arrays import Floats
from dco.foundations.ranks import Guarantee, Threshold, order_statistic, warn_infeasible


@dataclass(frozen=True)
class RankGuarantee(ABC):
    """Take the score of one rank, which follows from the number of scores and the level alone.

    A new guarantee is one subclass: `rank`, `smallest_size` and the words below. `register` makes
    it known by its name to estimators, commands, certificates and verification.
    """

    delta: Fraction | None = None  # the failure probability, if the guarantee has one

    name: ClassVar[str]  # what guarantee= says
    certifies: ClassVar[Guarantee]
    needs_delta: ClassVar[bool] = False
    needs_independent_rows: ClassVar[bool] = False  # if not, exchangeable rows are enough
    # Whether rows of unequal weight may be calibrated by the weighted quantile at the same level:
    # clusters, groups that overlap, known weights. If not, one row of each cluster is taken.
    weighs_rows: ClassVar[bool] = False
    claim: ClassVar[str]  # what messages call the claim, such as "marginal coverage"
    # The guarantee in one sentence. {level} and {sure} are 1 - alpha and 1 - delta in percent,
    # {who} is the new row, {many} are new rows, {where} says in which conditions it holds.
    sentence: ClassVar[str]

    @abstractmethod
    def rank(self, n: int, *, alpha: Fraction) -> int:
        """Return the rank of the score to take of n; n + 1 if no finite one has this guarantee."""

    @abstractmethod
    def smallest_size(self, *, alpha: Fraction) -> int:
        """Return the smallest number of scores with a finite threshold."""

    def threshold(self, scores: Floats, *, alpha: Fraction) -> Threshold:
        """Take the threshold of checked scores."""
        rank = self.rank(scores.size, alpha=alpha)
        return Threshold(
            value=order_statistic(scores, rank),
            rank=rank,
            n=scores.size,
            guarantee=self.certifies,
            alpha=float(alpha),
            delta=None if self.delta is None else float(self.delta),
        )

    def warn_if_infinite(self, threshold: Threshold, *, alpha: Fraction) -> None:
        """Warn if there are too few scores for a finite threshold."""
        if threshold.rank != threshold.n + 1:
            return

        levels = f"alpha = {threshold.alpha:g}"
        if threshold.delta is not None:
            levels += f", delta = {threshold.delta:g}"
        smallest = self.smallest_size(alpha=alpha)
        warn_infeasible(threshold.n, smallest, f"{self.claim} at {levels}")


GUARANTEES: dict[str, type[RankGuarantee]] = {}

Kind = TypeVar("Kind", bound=type[RankGuarantee])


def register(kind: Kind) -> Kind:
    """Make a guarantee known by its name; two of the same name are an error."""
    if GUARANTEES.setdefault(kind.name, kind) is not kind:
        raise ValueError(
            f'There is a guarantee named "{kind.name}" already: give this one another name.'
        )
    return kind


def guarantee_called(name: str, *, delta: Fraction | None) -> RankGuarantee:
    """Return the guarantee of this name, with its delta if it needs one."""
    if name not in GUARANTEES:
        names = " or ".join(f'"{other}"' for other in GUARANTEES)
        raise ValueError(f"guarantee must be {names}, got {name!r}.")
    kind = GUARANTEES[name]
    return kind(delta) if kind.needs_delta else kind()


def trusted_names() -> tuple[str, ...]:
    """Return the full names of all guarantees, which model files may hold."""
    return tuple(f"{kind.__module__}.{kind.__qualname__}" for kind in GUARANTEES.values())
