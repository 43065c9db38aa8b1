"""Evaluate a fitted predictor on rows with known targets, by the laws of its thresholds: at once,
or in parts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dco.calibration.calibration import Statement
from dco.evaluation.evaluate import Evaluation, Outcomes, evaluate, law_of_counts
from dco.evaluation.evenness import share_interval
from dco.foundations.arrays import AnyArray, Integers, as_labels
from dco.foundations.display import first_few
from dco.foundations.notes import Note
from dco.rows.conditions import (
    check_condition,
    condition_values,
    groups_of,
    is_label,
    rows_by_condition,
)
from dco.rows.fingerprints import row_fingerprints
from dco.structure import Structure
from dco.theory import Consistency

if TYPE_CHECKING:
    from dco.predictor import DecoupledPredictor

WEIGHTED = (
    "each row has a threshold of its own, by its weight, and such sets have no known law "
    "of coverage"
)
IN_GROUPS = (
    "the law of coverage is for independent rows, and rows of this fit belong together in groups"
)


def evaluate_on_rows(
    own: DecoupledPredictor,
    X: Any,
    y: AnyArray,
    statements: Sequence[Statement],
    *,
    slices: AnyArray | None = None,
    notes: list[Note],
) -> list[Evaluation]:
    """One evaluation for each statement; by condition, or by `slices` of the rows if these are
    given.
    """
    notes += own.notes_on(X, statements)
    no_verdict, spoilt = _proves_nothing(own, X, y, notes)
    prediction, conditions = own.structure.prediction(X), own.structure.conditions(X, y)
    if conditions is not None and isinstance(own.structure.condition_on, list):
        conditions = np.asarray([groups_of(pattern) for pattern in conditions.tolist()])
    found = []
    for statement in statements:
        thresholds = {
            name: entry for name, entry in own.thresholds(statement).items() if name not in spoilt
        }
        sets = own.sets(X, statement, prediction=prediction)
        known: dict[str, Any] = {
            "threshold": thresholds.get(None),
            "tied": own.tied(statement),
            "alpha": statement.alpha,
        }
        made = evaluate(
            sets, y, groups=conditions, thresholds=thresholds, centres=prediction.centres, **known
        )
        if slices is not None:
            shown = evaluate(sets, y, groups=slices, centres=prediction.centres, **known)
            made = replace(shown, by_condition=made.by_group)
        found.append(replace(made, no_verdict=no_verdict))
    return found


def slices_by(by: Any, X: Any, y: AnyArray, structure: Structure) -> AnyArray | None:
    """The slice of each row that `by` gives, or names; None where it names the conditions, with
    laws of their own.
    """
    if by is None or ((np.ndim(by) == 0 or isinstance(by, list)) and by == structure.condition_on):
        return None
    if np.ndim(by) == 0 or callable(by):
        check_condition(by, X, parameter="by")
        if is_label(by) and structure.classes is None:
            raise ValueError(
                'by="label" is for classes; a regression takes a column or a callable of X.'
            )
        return condition_values(by, X, y, parameter="by")
    slices = as_labels(by)
    if slices.shape != y.shape:
        raise ValueError(
            f"by must hold one label for each of {len(y)} rows, got shape {slices.shape}."
        )
    return slices


def no_law(own: DecoupledPredictor) -> str | None:
    """Why hits of new rows have no known law, if they have none."""
    known = own.calibration
    if known.weights is not None:
        return WEIGHTED
    return None if known.clusters is None else IN_GROUPS


def _proves_nothing(
    own: DecoupledPredictor, X: Any, y: AnyArray, notes: list[Note]
) -> tuple[str | None, set[Any]]:
    """Why there is no verdict, if there is none, and the conditions it spoils.

    Rows that took part in the fit prove nothing; rows that belong together are covered together.
    """
    every = set(own.calibration.parts)
    used = own.kept.used(row_fingerprints(X, y))
    if used is None:
        why = no_law(own)
        return why, set() if why is None else every
    said, spoilt, names = "the coverage", every, own.structure.conditions(X, y)
    if names is not None and used.exact:
        conditions = list(dict.fromkeys(names[used.known].tolist()))
        said, spoilt = f"the coverage of {first_few(list(map(repr, conditions)))}", set(conditions)
    roles = ", ".join(f"{count} {role}" for role, count in used.counts.items())
    count = f"{'' if used.exact else 'about '}{used.total} of {len(y)} rows took part in the fit"
    text = f"{count[0].upper()}{count[1:]} ({roles}): {said} proves nothing about new rows."
    notes.append(Note("used-rows", text, "Evaluate rows that were used for nothing else."))
    return count, spoilt


# -------------------------------------------------------------------------- rows that do not fit
# into memory


@dataclass(frozen=True, eq=False)
class Counts:
    """What is counted in some rows.

    `judged` holds, by condition, rows, those of unknown labels, and hits; `kinds` empty, full,
    infinite and one-label sets, and rows that took part in the fit; `sizes` the sum of the finite
    sizes of each part.
    """

    judged: Mapping[Any, Integers]
    kinds: Integers
    sizes: tuple[float, ...]

    @classmethod
    def of(cls, own: DecoupledPredictor, X: Any, y: AnyArray, statement: Statement) -> Counts:
        """Count one part."""
        sets, conditions = own.sets(X, statement), own.structure.conditions(X, y)
        seen, parts = (
            Outcomes.of(sets, y),
            {None: slice(None)} if conditions is None else rows_by_condition(conditions),
        )
        judged, finite = (
            np.column_stack([np.ones(len(y), dtype=np.int64), ~seen.known, seen.covered]),
            np.isfinite(seen.sizes),
        )
        kinds = (
            sets.is_empty(),
            sets.is_full(),
            ~finite,
            sets.has_one_label(),
            own.kept.among(row_fingerprints(X, y)).known,
        )
        sums = {name: judged[rows].sum(axis=0) for name, rows in parts.items()}
        return cls(sums, np.sum(kinds, axis=1), (math.fsum(seen.sizes[finite]),))

    @classmethod
    def total(cls, counts: Iterable[Counts]) -> Counts:
        """The counts of all parts together."""
        every, judged = list(counts), dict[Any, Integers]()
        for part in every:
            for name, own in part.judged.items():
                judged[name] = judged.get(name, 0) + own
        kinds = np.sum([np.zeros(5, dtype=np.int64), *(part.kinds for part in every)], axis=0)
        return cls(judged, kinds, tuple(size for part in every for size in part.sizes))


@dataclass(frozen=True)
class PartsEvaluation:
    """Coverage and mean size of all parts, equal to those of `Evaluation` on the same rows; the law
    of each threshold.
    """

    n: int
    coverage: float
    coverage_low: float
    coverage_high: float
    mean_size: float
    empty: float
    full: float
    infinite: float
    single: float | None  # of label sets, those of one label
    unknown_labels: int
    no_verdict: str | None
    laws: Mapping[str, Consistency]

    @classmethod
    def of(cls, own: DecoupledPredictor, statement: Statement, counts: Counts) -> PartsEvaluation:
        """From counts to shares and laws."""
        n, unknown, hits = np.sum(list(counts.judged.values()), axis=0).tolist()
        empty, full, infinite, single, used = counts.kinds.tolist()
        no_verdict = (
            no_law(own)
            if used <= own.kept.by_chance(n)
            else f"{used} or more of {n} rows took part in the fit"
        )
        laws: dict[str, Consistency] = {}
        names, thresholds, tied = (
            own.calibration.condition_labels(),
            own.thresholds(statement),
            own.tied(statement),
        )
        for name, counted in counts.judged.items() if no_verdict is None else ():
            judged, strange, hit = counted.tolist()
            if (
                law := law_of_counts(hit, judged, strange, thresholds.get(name), tied=name in tied)
            ) is not None:
                laws[str(names.get(name))] = law
        size = math.inf if infinite else math.fsum(counts.sizes) / n
        alone = None if own.structure.classes is None else single / n
        kinds = empty / n, full / n, infinite / n
        return cls(
            n, hits / n, *share_interval(hits, n), size, *kinds, alone, unknown, no_verdict, laws
        )
