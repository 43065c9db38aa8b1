"""Evaluate rows that do not fit into memory: each part is counted where it lies, and the counts are added."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dco.evaluation.evaluate import is_full, law_of_counts
from dco.evaluation.evenness import share_interval
from dco.foundations.arrays import AnyArray
from dco.guarantees.theory.coverage import Consistency
from dco.rows.conditions import rows_by_condition
from dco.rows.fingerprints import row_fingerprints
from dco.sets.labels import LabelSets

if TYPE_CHECKING:
    from dco.guarantees.calibration import Statement
    from dco.predictor import DecoupledPredictor


@dataclass(frozen=True)
class Counts:
    """What is counted in some rows; `judged` by condition.

    `sizes` holds the sum of the finite sizes of each part, and `used` the rows that took part in the fit.
    """

    rows: int = 0
    unknown: int = 0
    empty: int = 0
    full: int = 0
    infinite: int = 0
    used: int = 0
    sizes: tuple[float, ...] = ()
    judged: Mapping[Any, tuple[int, int, int]] = field(default_factory=dict)  # rows, those of unknown labels, hits

    @classmethod
    def of(cls, own: DecoupledPredictor, X: Any, y: AnyArray, statement: Statement) -> Counts:
        """Count one part."""
        sets, conditions = own.sets(X, statement), own.structure.conditions(X, y)
        known = sets.knows(y) if isinstance(sets, LabelSets) else np.ones(len(y), dtype=bool)
        hits, sizes = np.asarray(sets.contains(y)) & known, np.asarray(sets.sizes(), dtype=np.float64)
        parts = {None: np.arange(len(y))} if conditions is None else rows_by_condition(conditions)
        judged = {name: (len(rows), int(np.sum(~known[rows])), int(hits[rows].sum())) for name, rows in parts.items()}
        finite = np.isfinite(sizes)
        found = ~known, sets.is_empty(), is_full(sets), ~finite, own.kept.among(row_fingerprints(X, y)).known
        unknown, empty, full, infinite, used = (int(np.sum(each)) for each in found)
        return cls(len(y), unknown, empty, full, infinite, used, (math.fsum(sizes[finite]),), judged)

    @classmethod
    def total(cls, counts: Iterable[Counts]) -> Counts:
        """The counts of all parts together."""
        every, judged = list(counts), dict[Any, tuple[int, int, int]]()
        for part in every:
            for name, (rows, unknown, hits) in part.judged.items():
                before = judged.get(name, (0, 0, 0))
                judged[name] = before[0] + rows, before[1] + unknown, before[2] + hits
        counted = [entry.name for entry in fields(cls) if entry.name not in ("sizes", "judged")]
        sums = {name: sum(getattr(part, name) for part in every) for name in counted}
        return cls(**sums, sizes=tuple(size for part in every for size in part.sizes), judged=judged)


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
    unknown_labels: int
    no_verdict: str | None
    laws: Mapping[str, Consistency]

    @classmethod
    def of(cls, own: DecoupledPredictor, statement: Statement, counts: Counts) -> PartsEvaluation:
        """From counts to shares and laws."""
        n, hits = counts.rows, sum(hit for _, _, hit in counts.judged.values())
        low, high = share_interval(hits, n)
        chance, no_verdict = own.kept.by_chance(n), None
        if counts.used > chance:
            no_verdict = f"{counts.used} or more of {n} rows took part in the fit"
        laws: dict[str, Consistency] = {}
        names, thresholds = own.calibration.condition_labels(), own.thresholds(statement)
        for name, (judged, unknown, hit) in counts.judged.items() if no_verdict is None else ():
            if (entry := thresholds.get(name)) is not None:
                tied = own.calibration.is_tied(own.calibration.parts[name], entry, statement.rule)
                if (law := law_of_counts(hit, judged, unknown, entry, tied=tied)) is not None:
                    laws[str(names.get(name))] = law
        size = math.inf if counts.infinite else math.fsum(counts.sizes) / n
        empty, full, infinite = (count / n for count in (counts.empty, counts.full, counts.infinite))
        return cls(n, hits / n, low, high, size, empty, full, infinite, counts.unknown, no_verdict, laws)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(replace(self, laws={})) | {"laws": {name: asdict(law) for name, law in self.laws.items()}}
