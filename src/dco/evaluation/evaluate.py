"""Coverage and size of prediction sets on rows with known labels, and whether that coverage fits
the guarantee.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from dco.evaluation.evenness import (
    Slice,
    fifths_in_words,
    share_interval,
    slices_of,
)
from dco.foundations.arrays import AnyArray, Bools, Floats, Integers, as_labels, real_numbers
from dco.foundations.display import (
    ShownAsPrinted,
    counted,
    first_few,
    html_table,
    number,
    p_in_words,
)
from dco.foundations.notes import Message, Note
from dco.foundations.ranks import Level, Threshold, as_rational, size_quantile
from dco.predictions import fifths
from dco.rows.conditions import condition_names, rows_by_condition
from dco.rows.targets import read_targets
from dco.sets.prediction_sets import PredictionSets
from dco.theory import Consistency, coverage_consistency
from dco.theory.coverage import DOUBTFUL

LOW = 0.7  # a class that is covered less often is named
_ORDER_STATISTIC_GUARANTEES = ("marginal", "pac")  # those whose coverage has the Beta law of a rank


@dataclass(frozen=True)
class GroupEvaluation:
    """Coverage and size in one group. A marginal guarantee promises nothing about a single group.

    `consistency` is there where the group has a threshold of its own (Mondrian calibration).
    `coverage_low` and `coverage_high` are an exact (Clopper-Pearson) 95 % interval for the group's
    coverage by these sets.
    """

    group: Any
    n: int
    coverage: float
    coverage_low: float
    coverage_high: float
    mean_size: float
    median_size: float
    p95_size: float
    consistency: Consistency | None = None
    unknown_labels: int = 0


@dataclass(frozen=True, eq=False)
class Outcomes:
    """Of each row: whether its set holds its target, whether any set could, and the size of the
    set.
    """

    covered: Bools
    known: Bools
    sizes: Floats

    @classmethod
    def of(cls, sets: PredictionSets, y: ArrayLike) -> Outcomes:
        """What the sets did on the targets of their rows."""
        sets = sets.on_host()
        covered, sizes = (
            np.asarray(sets.contains(y), dtype=bool),
            np.asarray(sets.sizes(), dtype=np.float64),
        )
        return cls(
            covered,
            sets.knows(y),
            sizes,
        )

    def measured(
        self, rows: Any, threshold: Threshold | None, *, tied: bool, confidence: float = 0.95
    ) -> dict[str, Any]:
        """What is measured on some rows, with the test of their threshold."""
        sizes, hits, unknown = (
            self.sizes[rows],
            int(self.covered[rows].sum()),
            int(np.sum(~self.known[rows])),
        )
        low, high = share_interval(hits, sizes.size, confidence=confidence)
        return {
            "n": sizes.size,
            "coverage": hits / sizes.size,
            "coverage_low": low,
            "coverage_high": high,
            "mean_size": float(sizes.mean()),
            "median_size": size_quantile(sizes, 0.5),
            "p95_size": size_quantile(sizes, 0.95),
            "unknown_labels": unknown,
            "consistency": law_of_counts(hits, sizes.size, unknown, threshold, tied=tied),
        }

    def by_part(
        self,
        parts: Iterable[tuple[Any, Integers]],
        thresholds: Mapping[Any, Threshold],
        *,
        tied: Collection[Any] = (),
        confidence: float = 0.95,
    ) -> tuple[GroupEvaluation, ...]:
        """The same for parts of the rows, each a name and its rows; the laws of those that have
        `thresholds`.
        """
        return tuple(
            GroupEvaluation(
                name,
                **self.measured(
                    rows, thresholds.get(name), tied=name in tied, confidence=confidence
                ),
            )
            for name, rows in parts
        )


@dataclass(frozen=True)
class Evaluation(ShownAsPrinted):
    """What prediction sets did on `n` rows with known labels.

    `coverage_low` and `coverage_high` are an exact (Clopper-Pearson) 95 % interval for the coverage
    by these sets, if rows are independent. Shares are of rows: `empty` sets, `full` sets (every
    label, or the whole line), `infinite` ones (a side without end), and for labels those that hold
    a `single` one (None for numbers). One infinite set makes `mean_size` infinite;
    ``mean_finite_size`` leaves such sets out (NaN if there is no other). ``consistency`` compares
    the coverage with the law of the threshold's rank; it is None without a threshold, or with one
    that certifies no coverage by rank. ``by_group`` has a row for each group, in sorted order; if
    these are not the groups with thresholds of their own, ``by_condition`` has a row for each of
    those. ``no_verdict`` says why rows can prove nothing (they took part in the fit, or belong
    together): ``consistency`` is then None, whatever the threshold. ``unknown_labels`` counts rows
    whose label no set can hold. They are misses, and ``consistency`` counts them so; only where
    every set is full it is about the other rows, and says that the assumption of the guarantee
    fails. ``slices`` has rows by class, by fifth of the prediction and by group. A guarantee for
    all rows together promises nothing about any of them. ``notes`` names every class that is
    covered in less than 70 % of its rows. ``alpha`` is the level that the sets were made at, None
    where it is not known.
    """

    coverage: float
    coverage_low: float
    coverage_high: float
    mean_size: float
    median_size: float
    p95_size: float
    mean_finite_size: float
    empty: float
    full: float
    infinite: float
    n: int
    consistency: Consistency | None = None
    by_group: tuple[GroupEvaluation, ...] = ()
    no_verdict: str | None = None
    single: float | None = None
    unknown_labels: int = 0
    slices: tuple[Slice, ...] = ()
    notes: tuple[Note, ...] = ()
    by_condition: tuple[GroupEvaluation, ...] = ()
    alpha: float | None = None

    @property
    def promised(self) -> float | None:
        """The share of rows that was promised to be covered; None where it is not known."""
        return None if self.alpha is None else 1 - self.alpha

    @property
    def laws(self) -> dict[Any, Consistency]:
        """What judges the promise: the law of all rows (under None), or that of each group with a
        threshold of its own.
        """
        if self.consistency is not None:
            return {None: self.consistency}
        rows = () if self.no_verdict else self.by_condition or self.by_group
        return {row.group: row.consistency for row in rows if row.consistency is not None}

    @property
    def broken(self) -> tuple[Any, ...]:
        """The keys of `laws` whose coverage is too low: p below 0.01 over their number, so that
        many may be looked at.
        """
        laws = self.laws
        return tuple(
            name
            for name, law in laws.items()
            if law.unknown_labels
            or (law.coverage < law.expected_coverage and law.p_value * len(laws) < DOUBTFUL)
        )

    @property
    def verdict(self) -> Literal["held", "failed", "unchecked"]:
        """Whether the promise held on these rows; coverage above its law keeps it. "unchecked" if
        no law applies.
        """
        return "unchecked" if not self.laws else "failed" if self.broken else "held"

    def verdict_in_words(self) -> str:
        """Say in one sentence whether the promise held on these rows."""
        seen = f"{100 * self.coverage:.1f} % of {counted(self.n, 'row')} covered"
        if self.promised is not None:
            seen += f", {100 * self.promised:.6g} % promised"

        laws, broken = self.laws, list(map(str, self.broken))
        if not laws:
            return (
                f"Nothing was checked, because "
                f"{self.no_verdict or 'no law of coverage applies to these rows'}: {seen}."
            )
        groups = broken or list(map(str, laws))
        each = (
            f"in each of {len(laws)} groups"
            if len(laws) > 1 and not broken
            else f"in {first_few(groups)}"
        )
        where = "on these rows" if None in laws else each
        below = self.promised is not None and self.coverage < self.promised
        chance = "; chance explains the difference" if below and not broken else ""
        return f"The promise {'did not hold' if broken else 'held'} {where}: {seen}{chance}."

    @property
    def advice(self) -> str:
        """What to do where the promise did not hold; empty where it did."""
        if not self.broken:
            return ""
        if any(self.laws[name].unknown_labels for name in self.broken):
            return (
                "No set can hold a label that the fit does not know: fit again, with rows of "
                "each label."
            )
        p = p_in_words(min(self.laws[name].p_value for name in self.broken))
        return (
            f"These rows are not like the calibration rows ({p}): look for a change in time, "
            f"place or labels, and calibrate "
            "again on rows like these, with dco recalibrate."
        )

    def in_words(self) -> str:
        """Say whether the promise held on these rows, and what to do if it did not."""
        return f"{self.verdict_in_words()} {self.advice}".rstrip()

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and texts, nested, with the verdict; infinity stays a float."""
        return asdict(self) | {"verdict": self.verdict}

    def _facts(self) -> list[tuple[str, str]]:
        """What is printed of all rows, each number with its name."""
        finite, infinite = self.mean_finite_size, ""
        if self.infinite > 0:
            others = (
                "no set is finite" if math.isnan(finite) else f"{number(finite)} over the others"
            )
            infinite = f" ({self.infinite:.1%} of the sets are infinite; {others})"
        facts = [
            ("rows", str(self.n)),
            ("coverage", f"{self.coverage:.4f} ({_interval(self)})"),
            ("mean size", f"{number(self.mean_size)}{infinite}"),
            ("median size", number(self.median_size)),
            ("P95 size", number(self.p95_size)),
            ("empty / full sets", f"{self.empty:.1%} / {self.full:.1%}"),
        ]
        if self.single is not None:
            facts.append(("one-label sets", f"{self.single:.1%}"))
        if self.unknown_labels:
            facts.append(
                (
                    "unknown labels",
                    f"{counted(self.unknown_labels, 'row')}: misses, as no set can hold them",
                )
            )
        if (law := self.consistency) is not None:
            usual = f"90 % of the time between {law.low:.4f} and {law.high:.4f}"
            facts.append(("expected coverage", f"{law.expected_coverage:.4f} ({usual})"))
            facts.append(("verdict", f"{self.verdict}: {law.verdict} (p = {law.p_value:.3g})"))
        elif self.no_verdict is not None:
            facts.append(("verdict", f"none: {self.no_verdict}"))
        # the last is surely low, not merely small
        ordered = sorted(self.slices, key=lambda row: -row.coverage_high)
        worst = {row.by: row for row in ordered}
        low = [worst[by] for by in dict.fromkeys(row.by for row in self.slices)]
        facts += [
            (
                f"worst {row.by}",
                f"{row.coverage:.4f} ({_interval(row)}): {row.value} ({counted(row.n, 'row')})",
            )
            for row in low
        ]
        return facts + [("note", str(note)) for note in self.notes]

    def _groups(self) -> list[list[str]]:
        """The head and the rows of the table by group; empty without groups."""
        judged = (
            ["expected", "p"] if any(row.consistency is not None for row in self.by_group) else []
        )
        names = "group", "rows", "coverage", "95 % interval", "mean size", "P95 size"
        table = [[*names, *judged]] if self.by_group else []
        for row in self.by_group:
            ends = f"{row.coverage_low:.4f} to {row.coverage_high:.4f}"
            cells = [
                str(row.group),
                str(row.n),
                f"{row.coverage:.4f}",
                ends,
                number(row.mean_size),
                number(row.p95_size),
            ]
            law = row.consistency
            table.append(
                [*cells, *([f"{law.expected_coverage:.4f}", f"{law.p_value:.3g}"] if law else [])]
            )
        return table

    def _repr_html_(self) -> str:
        facts, groups = self._facts(), self._groups()
        facts.sort(key=lambda fact: fact[0] != "verdict")  # what a reader asks first
        return html_table(["", ""], facts) + (html_table(groups[0], groups[1:]) if groups else "")

    def __str__(self) -> str:
        lines, groups = [f"{name:<17}  {text}" for name, text in self._facts()], self._groups()
        places = [
            f"<{max([5, *(len(row[0]) for row in groups)])}",
            ">7",
            ">8",
            "<16",
            ">9",
            ">9",
            ">8",
            "<",
        ]
        table = [
            "  ".join(f"{cell:{at}}" for cell, at in zip(row, places, strict=False))
            for row in groups
        ]
        return "\n".join([*lines, *([""] if table else []), *table])


def _interval(row: Evaluation | Slice) -> str:
    return f"95 % interval {row.coverage_low:.4f} to {row.coverage_high:.4f}"


def evaluate(
    sets: PredictionSets,
    y: ArrayLike,
    *,
    threshold: Threshold | None = None,
    groups: ArrayLike | None = None,
    thresholds: Mapping[Any, Threshold] | None = None,
    tied: bool | Collection[Any] = False,
    centres: ArrayLike | None = None,
    alpha: Level | None = None,
) -> Evaluation:
    """Evaluate `sets` against the labels `y` of the same rows.

    `threshold`, if it certifies coverage by its rank ("marginal" or "pac"), adds the consistency
    test of `dco.theory.coverage_consistency`; say ``tied=True`` when calibration scores are equal
    near it, or list the groups where they are. `groups` holds one value per row, its slice, or (n,
    c) values for c ways to slice, and adds results for each slice; `thresholds` holds the
    thresholds of slices that were calibrated by themselves, and adds the test slice by slice.
    `centres` holds one number per row, the point prediction say, and adds results by its fifths.
    `alpha` is the level of the sets where no threshold says it.
    The rows must be new: rows that trained, tuned or calibrated prove nothing.
    """
    if not isinstance(sets, PredictionSets):
        raise ValueError(
            f"sets must be LabelSets, Intervals or IntervalUnions, got {type(sets).__name__}."
        )
    if threshold is not None and not isinstance(threshold, Threshold):
        raise ValueError(
            f"threshold must be what a calibration rule returned, a dco.Threshold, "
            f"got {threshold!r}."
        )
    sets = sets.on_host()
    y = read_targets(y, as_numbers=not sets.holds_labels)
    seen, n, labels, own = (
        Outcomes.of(sets, y),
        len(sets),
        sets.holds_labels,
        thresholds or {},
    )
    if n == 0:
        raise ValueError("there are no rows to evaluate; give at least one.")
    if not isinstance(tied, Collection):
        tied = [None, *own] if tied else []
    named: dict[str, AnyArray] = {"class": condition_names(as_labels(y))} if labels else {}
    if centres is not None:
        values = real_numbers(centres, name="centres").astype(np.float64)
        named["fifth"] = fifths_in_words(values, fifths(values))
    columns: AnyArray = np.empty((n, 0)) if groups is None else as_labels(groups)
    if columns.shape[:1] != (n,) or columns.ndim > 2:
        raise ValueError(
            f"groups must hold one value for each of the {n} rows, got shape {columns.shape}."
        )
    if columns.ndim == 1:
        named["group"] = condition_names(columns)
    each = [rows_by_condition(condition_names(column)) for column in columns.reshape(n, -1).T]
    slices, finite = slices_of(named, seen.covered, seen.sizes), seen.sizes[np.isfinite(seen.sizes)]
    return Evaluation(
        **seen.measured(slice(None), threshold, tied=None in tied),
        mean_finite_size=float(finite.mean()) if finite.size else math.nan,
        empty=float(np.mean(sets.is_empty())),
        full=float(np.mean(sets.is_full())),
        infinite=float(np.mean(np.isinf(seen.sizes))),
        by_group=tuple(
            row for parts in each for row in seen.by_part(parts.items(), own, tied=tied)
        ),
        no_verdict=None if seen.known.any() else "no row has a label that a set can hold",
        single=float(np.mean(seen.sizes == 1)) if labels else None,
        slices=slices,
        notes=_low_classes(slices),
        alpha=_stated_level(alpha, [threshold, *own.values()]),
    )


def _stated_level(alpha: Level | None, thresholds: Sequence[Threshold | None]) -> float | None:
    """Return the level of the sets: the one given, or the one that all thresholds share."""
    levels = {as_rational(entry.alpha) for entry in thresholds if entry is not None}
    if alpha is not None:
        levels.add(as_rational(alpha))

    if alpha is not None and len(levels) > 1:
        stated = ", ".join(sorted(f"{float(level):g}" for level in levels))
        raise ValueError(f"alpha must be the level of the thresholds, got the levels {stated}.")
    return float(levels.pop()) if len(levels) == 1 else None


def _low_classes(slices: tuple[Slice, ...]) -> tuple[Note, ...]:
    """A note that names every class under 70 %; the slices of an evaluation list all."""
    low = sorted(
        (row for row in slices if row.by == "class" and row.coverage < LOW),
        key=lambda row: row.coverage,
    )
    if not low:
        return ()
    shown = first_few(
        [f"{row.value} ({100 * row.coverage:.0f} % of {counted(row.n, 'row')})" for row in low]
    )
    many = "1 class is" if len(low) == 1 else f"{len(low)} classes are"
    text = f"{many} covered in less than {100 * LOW:.0f} % of rows: {shown}."
    return (
        Note(
            "low-classes",
            text,
            Message('⟨condition_on="label"⟩ gives each class a threshold of its own.'),
        ),
    )


def law_of_counts(
    hits: int, n: int, unknown: int, threshold: Threshold | None, *, tied: bool
) -> Consistency | None:
    """The test of `hits` among `n` rows, `unknown` of which no set can cover; None where no law
    applies.
    """
    if (
        unknown == n
        or threshold is None
        or threshold.rank is None
        or threshold.guarantee not in _ORDER_STATISTIC_GUARANTEES
    ):
        return None
    # a label that the fit does not know scores infinity, in calibration rows as in these
    if threshold.value < math.inf:
        return coverage_consistency(hits, n, rank=threshold.rank, n_cal=threshold.n, tied=tied)
    n_cal = threshold.n  # full sets cover every label that is known, whichever score it was
    return coverage_consistency(
        hits, n - unknown, rank=n_cal + 1, n_cal=n_cal, tied=tied, unknown_labels=unknown
    )
