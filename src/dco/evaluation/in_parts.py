"""Evaluate rows that do not fit into memory: each part is counted where it lies, and the counts are added."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dco.evaluation.evaluate import is_full, law_of_counts
from dco.evaluation.evenness import share_interval
from dco.evaluation.on_rows import no_law
from dco.foundations.arrays import AnyArray, Integers
from dco.guarantees.theory import Consistency
from dco.rows.conditions import rows_by_condition
from dco.rows.fingerprints import row_fingerprints
from dco.sets.labels import LabelSets

if TYPE_CHECKING:
    from dco.guarantees.calibration import Statement
    from dco.predictor import DecoupledPredictor


@dataclass(frozen=True, eq=False)
class Counts:
    """What is counted in some rows.

    `judged` holds, by condition, rows, those of unknown labels, and hits; `kinds` empty, full, infinite and one-label sets,
    and rows that took part in the fit; `sizes` the sum of the finite sizes of each part.
    """

    judged: Mapping[Any, Integers]
    kinds: Integers
    sizes: tuple[float, ...]

    @classmethod
    def of(cls, own: DecoupledPredictor, X: Any, y: AnyArray, statement: Statement) -> Counts:
        """Count one part."""
        sets, conditions = own.sets(X, statement), own.structure.conditions(X, y)
        known = sets.knows(y) if isinstance(sets, LabelSets) else np.ones(len(y), dtype=bool)
        hits, sizes = np.asarray(sets.contains(y)) & known, np.asarray(sets.sizes(), dtype=np.float64)
        parts = {None: np.arange(len(y))} if conditions is None else rows_by_condition(conditions)
        judged, finite = np.column_stack([np.ones_like(known), ~known, hits]), np.isfinite(sizes)
        kinds = sets.is_empty(), is_full(sets), ~finite, sizes == 1, own.kept.among(row_fingerprints(X, y)).known
        sums = {name: judged[rows].sum(axis=0) for name, rows in parts.items()}
        return cls(sums, np.sum(kinds, axis=1), (math.fsum(sizes[finite]),))

    @classmethod
    def total(cls, counts: Iterable[Counts]) -> Counts:
        """The counts of all parts together."""
        every, judged = list(counts), dict[Any, Integers]()
        for part in every:
            for name, own in part.judged.items():
                judged[name] = judged.get(name, np.zeros(3, dtype=np.int64)) + own
        kinds = np.sum([np.zeros(5, dtype=np.int64), *(part.kinds for part in every)], axis=0)
        return cls(judged, kinds, tuple(size for part in every for size in part.sizes))


@dataclass(frozen=True)
class PartsEvaluation:
    """Coverage and mean size of all parts, equal to those of `Evaluation` on the same rows; the law of each threshold."""

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
        no_verdict = no_law(own) if used <= own.kept.by_chance(n) else f"{used} or more of {n} rows took part in the fit"
        laws: dict[str, Consistency] = {}
        names, thresholds = own.calibration.condition_labels(), own.thresholds(statement)
        for name, (judged, strange, hit) in counts.judged.items() if no_verdict is None else ():
            if (entry := thresholds.get(name)) is not None:
                tied = own.calibration.is_tied(own.calibration.parts[name], entry, statement.rule)
                if (law := law_of_counts(int(hit), int(judged), int(strange), entry, tied=tied)) is not None:
                    laws[str(names.get(name))] = law
        size = math.inf if infinite else math.fsum(counts.sizes) / n
        alone = None if own.structure.classes is None else single / n
        kinds = empty / n, full / n, infinite / n
        return cls(n, hits / n, *share_interval(hits, n), size, *kinds, alone, unknown, no_verdict, laws)
