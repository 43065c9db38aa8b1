"""The result of an evaluation: coverage, sizes, and whether the promise held."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from dco.evaluation import evaluation_text
from dco.evaluation.group_evaluation import GroupEvaluation
from dco.evaluation.slices import OWN_KINDS
from dco.foundations.display import ShownAsPrinted
from dco.foundations.notes import Note
from dco.theory import Consistency

DOUBTFUL = 0.01  # below this p-value coverage is called too low


@dataclass(frozen=True)
class Evaluation(ShownAsPrinted):
    """What prediction sets did on rows with known targets.

    Attributes
    ----------
    overall
        Coverage and sizes of all rows.
    by_condition
        The same for each condition: the rows that have a threshold of their own.
    slices
        The same by class, by fifth of the prediction, by condition, and by what was asked for. A
        guarantee for all rows together promises nothing about any of them.
    alpha
        The level that the sets were made at; None where it is not known.
    no_verdict
        Why these rows can prove nothing, where they can prove nothing.
    left_out, left_out_rows
        How many rows were left out because they equal rows of the fit, and their positions (empty
        where rows were counted in parts).
    notes
        What a reader should know besides, such as classes that are covered rarely.
    """

    overall: GroupEvaluation
    by_condition: tuple[GroupEvaluation, ...] = ()
    slices: tuple[GroupEvaluation, ...] = ()
    alpha: float | None = None
    no_verdict: str | None = None
    left_out: int = 0
    left_out_rows: tuple[int, ...] = ()
    notes: tuple[Note, ...] = ()

    @property
    def n(self) -> int:
        """The number of rows."""
        return self.overall.n

    @property
    def coverage(self) -> float:
        """The share of rows whose set holds the target."""
        return self.overall.coverage

    @property
    def mean_size(self) -> float:
        """The mean size of the sets, infinite if one set is."""
        return self.overall.sizes.mean

    @property
    def consistency(self) -> Consistency | None:
        """The test of the coverage of all rows; None where no law of it is known."""
        return self.overall.consistency

    @property
    def promised(self) -> float | None:
        """The share of rows that was promised to be covered; None where it is not known."""
        return None if self.alpha is None else 1 - self.alpha

    @property
    def coverage_tests(self) -> dict[Any, Consistency]:
        """The tests behind the verdict: of all rows, under None, or of each condition."""
        if self.no_verdict is not None:
            return {}
        if self.consistency is not None:
            return {None: self.consistency}
        return {
            condition.group: condition.consistency
            for condition in self.by_condition
            if condition.consistency is not None
        }

    @property
    def too_low(self) -> tuple[Any, ...]:
        """The keys of `coverage_tests` whose coverage is too low.

        p must be below 0.01 over the number of tests, so that many may be looked at. A label that
        not even full sets can hold breaks the promise too.
        """
        tests = self.coverage_tests
        return tuple(
            name
            for name, test in tests.items()
            if test.unknown_labels > 0 or is_too_low(test, n_tests=len(tests))
        )

    @property
    def verdict(self) -> Literal["held", "failed", "unchecked"]:
        """Whether the promise held on these rows; "unchecked" if no law of coverage applies.

        Coverage above its law keeps the promise.
        """
        if not self.coverage_tests:
            return "unchecked"
        return "failed" if self.too_low else "held"

    def slices_by(self, by: str) -> tuple[GroupEvaluation, ...]:
        """Return the slices of one kind, such as "class"."""
        return tuple(row for row in self.slices if row.by == by)

    @property
    def by_group(self) -> tuple[GroupEvaluation, ...]:
        """The slices that were asked for with ``by=``, or else the conditions."""
        requested = tuple(row for row in self.slices if row.by not in OWN_KINDS)
        return requested or self.by_condition

    def in_words(self) -> str:
        """Say whether the promise held on these rows, and what to do if it did not."""
        return f"{self.verdict_in_words()} {self.advice()}".rstrip()

    def verdict_in_words(self) -> str:
        """Say in one sentence whether the promise held on these rows."""
        return evaluation_text.verdict_in_words(self)

    def advice(self) -> str:
        """Say what to do where the promise did not hold; empty where it did."""
        return evaluation_text.advice(self)

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers and texts, nested, with the verdict; infinity stays a float."""
        main = {
            "verdict": self.verdict,
            "n": self.n,
            "coverage": self.coverage,
            "mean_size": self.mean_size,
        }
        return {**main, **asdict(self)}

    def __str__(self) -> str:
        return evaluation_text.as_text(self)

    def _repr_html_(self) -> str:
        return evaluation_text.as_html(self)


def is_too_low(test: Consistency, *, n_tests: int) -> bool:
    """Decide whether coverage is below its law by more than chance, among several tests."""
    is_below = test.coverage < test.expected_coverage
    return is_below and test.p_value * n_tests < DOUBTFUL
