"""Coverage and size of prediction sets on rows with known labels, and whether that coverage fits the guarantee."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from dco.evaluation.evenness import ExcessRisk, Slab, Slice, fifths_in_words, share_interval, slices_of
from dco.foundations.arrays import AnyArray, Bools, Floats, as_labels, real_numbers
from dco.foundations.display import ShownAsPrinted, counted, first_few, html_table, number, p_in_words
from dco.foundations.notes import Message, Note
from dco.foundations.ranks import Threshold, size_quantile
from dco.guarantees.theory import DOUBTFUL, Consistency, coverage_consistency
from dco.predictions import fifths
from dco.rows.conditions import condition_names, rows_by_condition
from dco.rows.rows import check_not_missing
from dco.sets.intervals import Intervals, IntervalUnions
from dco.sets.labels import LabelSets
from dco.sets.prediction_sets import PredictionSets

LOW = 0.7  # a class that is covered less often is named
_ORDER_STATISTIC_GUARANTEES = ("marginal", "pac")  # those whose coverage has the Beta law of a rank


@dataclass(frozen=True)
class GroupEvaluation:
    """Coverage and size in one group. A marginal guarantee promises nothing about a single group.

    `consistency` is there where the group has a threshold of its own (Mondrian calibration). `coverage_low` and
    `coverage_high` are an exact (Clopper-Pearson) 95 % interval for the group's coverage by these sets.
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


@dataclass(frozen=True)
class Evaluation(ShownAsPrinted):
    """What prediction sets did on `n` rows with known labels.

    `coverage_low` and `coverage_high` are an exact (Clopper-Pearson) 95 % interval for the coverage by these sets, if rows
    are independent. Shares are of rows: `empty` sets, `full` sets (every label, or the whole line), `infinite` ones (a side
    without end), and for labels those that hold a `single` one (None for numbers). One infinite set makes `mean_size`
    infinite; ``mean_finite_size`` leaves such sets out (NaN if there is no other).
    ``consistency`` compares the coverage with the law of the threshold's rank; it is None without a threshold, or with one
    that certifies no coverage by rank. ``by_group`` has a row for each group, in sorted order; if these are not the groups
    with thresholds of their own, ``by_condition`` has a row for each of those. ``no_verdict`` says why rows can prove
    nothing (they took part in the fit, or belong together): ``consistency`` is then None, whatever the threshold.
    ``unknown_labels`` counts rows whose label no set can hold. They are misses, and ``consistency`` counts them so; only
    where every set is full it is about the other rows, and says that the assumption of the guarantee fails.
    ``slices`` has rows by class, by fifth of the prediction and by group; ``worst_slab`` and ``excess_risk`` say how uneven
    coverage is given x (None for few rows). A guarantee for all rows together promises nothing about any of them. ``notes``
    names every class that is covered in less than 70 % of its rows.
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
    worst_slab: Slab | None = None
    excess_risk: ExcessRisk | None = None
    notes: tuple[Note, ...] = ()
    by_condition: tuple[GroupEvaluation, ...] = ()

    @property
    def laws(self) -> dict[Any, Consistency]:
        """What judges the promise: the law of all rows (under None), or that of each group with a threshold of its own."""
        if self.consistency is not None:
            return {None: self.consistency}
        judged = {} if self.no_verdict else {row.group: row.consistency for row in self.by_condition or self.by_group}
        return {name: law for name, law in judged.items() if law is not None}

    @property
    def broken(self) -> tuple[Any, ...]:
        """The keys of `laws` whose coverage is too low: p below 0.01 over their number, so that many may be looked at."""
        laws = self.laws
        return tuple(
            name
            for name, law in laws.items()
            if law.unknown_labels or (law.coverage < law.expected_coverage and law.p_value * len(laws) < DOUBTFUL)
        )

    @property
    def verdict(self) -> Literal["held", "failed", "unchecked"]:
        """Whether the promise held on these rows; coverage above its law keeps it. "unchecked" if no law applies."""
        return "unchecked" if not self.laws else "failed" if self.broken else "held"

    def verdict_in_words(self, *, promised: float) -> str:
        """One sentence on whether the promise held on these rows."""
        seen = f"{100 * self.coverage:.1f} % of {counted(self.n, 'row')} covered, {100 * promised:.6g} % promised"
        laws, broken = self.laws, list(map(str, self.broken))
        if not laws:
            return f"Nothing was checked, because {self.no_verdict or 'no law of coverage applies to these rows'}: {seen}."
        groups = broken or list(map(str, laws))
        each = f"in each of {len(laws)} groups" if len(laws) > 1 and not broken else f"in {first_few(groups)}"
        where = "on these rows" if None in laws else each
        chance = "; chance explains the difference" if not broken and self.coverage < promised else ""
        return f"The promise {'did not hold' if broken else 'held'} {where}: {seen}{chance}."

    @property
    def advice(self) -> str:
        """What to do where the promise did not hold; empty where it did."""
        if not self.broken:
            return ""
        if any(self.laws[name].unknown_labels for name in self.broken):
            return "No set can hold a label that the fit does not know: fit again, with rows of each label."
        p = p_in_words(min(self.laws[name].p_value for name in self.broken))
        return (
            f"These rows are not like the calibration rows ({p}): look for a change in time, place or labels, and calibrate "
            "again on rows like these, with dco recalibrate."
        )

    def in_words(self, *, promised: float) -> str:
        """Whether the promise held on these rows, and what to do if it did not."""
        return f"{self.verdict_in_words(promised=promised)} {self.advice}".rstrip()

    def evenness(self) -> list[tuple[str, str, float, float, float]]:
        """What, where, coverage and its 95 % interval: the worst slice of each kind, the worst slab, the excess risk."""
        found = {}
        for row in sorted(self.slices, key=lambda row: -row.coverage_high):  # the last is surely low, not merely small
            where = f"{row.value} ({counted(row.n, 'row')})"
            found[row.by] = (f"worst {row.by}", where, row.coverage, row.coverage_low, row.coverage_high)
        lines = [found[by] for by in dict.fromkeys(row.by for row in self.slices)]
        if (slab := self.worst_slab) is not None:
            where = f"{slab.where} ({counted(slab.n, 'row')})"
            lines.append(("worst slab", where, slab.coverage, slab.coverage_low, slab.coverage_high))
        if (risk := self.excess_risk) is not None:
            where = f"mean distance of coverage given x ({counted(risk.n, 'row')})"
            lines.append(("excess risk", where, risk.value, risk.low, risk.high))
        return lines

    def unevenness(self) -> list[str]:
        """The worst slab and the excess risk in words; nothing for few rows."""
        slab, risk, told = self.worst_slab, self.excess_risk, []
        if slab is not None:
            where, ends = f"{slab.where}, {counted(slab.n, 'row')}", f"{slab.coverage_low:.4f} to {slab.coverage_high:.4f}"
            told.append(f"Worst slab, picked on other rows: {where}, coverage {slab.coverage:.4f}, 95 % interval {ends}.")
        if risk is not None:
            even = risk.low <= 0 and (slab is None or slab.coverage_high >= self.coverage_low)
            lead = f"{'No sign of unevenness: the' if even else 'The'} mean distance of coverage given x from the level is"
            value, low, high = (round(end, 3) + 0.0 for end in (risk.value, risk.low, risk.high))  # never -0.000
            size = f"{'at least' if risk.low > 0 else 'about'} {value:.3f}"
            told.append(f"{lead} {size} (95 % interval {low:.3f} to {high:.3f}, by a small tree).")
        return told

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and texts, nested, with the verdict; infinity stays a float."""
        return asdict(self) | {"verdict": self.verdict}

    def _repr_html_(self) -> str:
        facts = [line.split("  ", 1) for line in str(self).split("\n\n")[0].splitlines()]
        facts.sort(key=lambda fact: fact[0] != "verdict")  # what a reader asks first
        made = html_table(["", ""], [[name, value.strip()] for name, value in facts])
        rows = []
        for row in self.by_group:
            interval = f"{row.coverage_low:.4f} to {row.coverage_high:.4f}"
            sizes = number(row.mean_size), number(row.p95_size)
            rows.append([str(row.group), str(row.n), f"{row.coverage:.4f}", interval, *sizes])
        head = ["group", "rows", "coverage", "95 % interval", "mean size", "P95 size"]
        return made + html_table(head, rows) if rows else made

    def __str__(self) -> str:
        lines = [
            f"rows               {self.n}",
            f"coverage           {self.coverage:.4f} (95 % interval {self.coverage_low:.4f} to {self.coverage_high:.4f})",
            f"mean size          {number(self.mean_size)}{self._infinity_note()}",
            f"median size        {number(self.median_size)}",
            f"P95 size           {number(self.p95_size)}",
            f"empty / full sets  {self.empty:.1%} / {self.full:.1%}",
        ]
        if self.single is not None:
            lines.append(f"one-label sets     {self.single:.1%}")
        if self.unknown_labels:
            lines.append(f"unknown labels     {counted(self.unknown_labels, 'row')}: misses, as no set can hold them")
        if self.consistency is not None:
            lines += [
                f"expected coverage  {self.consistency.expected_coverage:.4f}"
                f" (90 % of the time between {self.consistency.low:.4f} and {self.consistency.high:.4f})",
                f"verdict            {self.verdict}: {self.consistency.verdict} (p = {self.consistency.p_value:.3g})",
            ]
        elif self.no_verdict is not None:
            lines.append(f"verdict            none: {self.no_verdict}")
        for what, where, value, low, high in self.evenness():
            lines.append(f"{what:<17}  {value:.4f} (95 % interval {low:.4f} to {high:.4f}): {where}")
        lines += [f"note               {note}" for note in self.notes]
        if self.by_group:
            width = max(5, *(len(str(row.group)) for row in self.by_group))
            judged = any(row.consistency is not None for row in self.by_group)
            head = f"{'group':<{width}}  {'rows':>7}  coverage  95 % interval     mean size   P95 size"
            lines += ["", head + ("  expected  p" if judged else "")]
            lines += [
                f"{row.group!s:<{width}}  {row.n:>7}  {row.coverage:>8.4f}  "
                f"{row.coverage_low:.4f} to {row.coverage_high:.4f}  {number(row.mean_size):>9}  {number(row.p95_size):>9}"
                + (f"  {row.consistency.expected_coverage:>8.4f}  {row.consistency.p_value:.3g}" if row.consistency else "")
                for row in self.by_group
            ]
        return "\n".join(lines)

    def _infinity_note(self) -> str:
        if self.infinite == 0:
            return ""
        rest = (
            "no set is finite" if math.isnan(self.mean_finite_size) else f"{number(self.mean_finite_size)} over the others"
        )
        return f" ({self.infinite:.1%} of the sets are infinite; {rest})"


def evaluate(
    sets: PredictionSets, y: ArrayLike, *, threshold: Threshold | None = None, groups: ArrayLike | None = None,
    thresholds: Mapping[Any, Threshold] | None = None, tied: bool | Collection[Any] = False,
    centres: ArrayLike | None = None,
) -> Evaluation:  # fmt: skip
    """Evaluate `sets` against the labels `y` of the same rows.

    `threshold`, if it certifies coverage by its rank ("marginal" or "pac"), adds the consistency test of
    `dco.theory.coverage_consistency`; say ``tied=True`` when calibration scores are equal near it, or list the groups where
    they are. `groups` holds one value per row, its slice, or (n, c) values for c ways to slice, and adds results for each
    slice; `thresholds` holds the thresholds of slices that were calibrated by themselves, and adds the test slice by slice.
    `centres` holds one number per row, the point prediction say, and adds results by its fifths. The rows must be new: rows
    that trained, tuned or calibrated prove nothing.
    """
    if not isinstance(sets, PredictionSets):
        raise ValueError(f"sets must be LabelSets, Intervals or IntervalUnions, got {type(sets).__name__}.")
    if threshold is not None and not isinstance(threshold, Threshold):
        raise ValueError(f"threshold must be what a calibration rule returned, a dco.Threshold, got {threshold!r}.")
    if isinstance(sets, LabelSets):
        sets = sets.on_host()
    check_not_missing(y, "a set cannot be right or wrong about a value that is not known.")
    hits, sizes = np.asarray(sets.contains(y), dtype=bool), np.asarray(sets.sizes(), dtype=np.float64)
    n = len(sets)
    known = sets.knows(y) if isinstance(sets, LabelSets) else np.ones(n, dtype=bool)
    if n == 0:
        raise ValueError("there are no rows to evaluate; give at least one.")
    finite, labels = sizes[np.isfinite(sizes)], isinstance(sets, LabelSets)
    is_tied = tied.__contains__ if isinstance(tied, Collection) else lambda name: bool(tied)
    named: dict[str, AnyArray] = {"class": condition_names(as_labels(y))} if labels else {}
    if centres is not None:
        values = real_numbers(centres, name="centres").astype(np.float64)
        named["fifth"] = fifths_in_words(values, fifths(values))
    if groups is not None and as_labels(groups).shape == (n,):
        named["group"] = condition_names(as_labels(groups))
    slices = slices_of(named, hits, sizes)
    return Evaluation(
        **_measures(hits, known, sizes, threshold, tied=is_tied(None)),
        mean_finite_size=float(finite.mean()) if finite.size else math.nan,
        empty=float(np.mean(sets.is_empty())),
        full=float(np.mean(is_full(sets))),
        infinite=float(np.mean(np.isinf(sizes))),
        by_group=() if groups is None else _by_group(hits, known, sizes, as_labels(groups), thresholds or {}, is_tied),
        no_verdict=None if known.any() else "no row has a label that a set can hold",
        single=float(np.mean(sizes == 1)) if labels else None,
        slices=slices,
        notes=_low_classes(slices),
    )


def _low_classes(slices: tuple[Slice, ...], *, most: int = 5) -> tuple[Note, ...]:
    """A note that names every class under 70 %; the slices of an evaluation list all."""
    low = sorted((row for row in slices if row.by == "class" and row.coverage < LOW), key=lambda row: row.coverage)
    if not low:
        return ()
    shown = ", ".join(f"{row.value} ({100 * row.coverage:.0f} % of {counted(row.n, 'row')})" for row in low[:most])
    more = f" and {len(low) - most} more" if len(low) > most else ""
    many = "1 class is" if len(low) == 1 else f"{len(low)} classes are"
    text = f"{many} covered in less than {100 * LOW:.0f} % of rows: {shown}{more}."
    return (Note("low-classes", text, Message('⟨condition_on="label"⟩ gives each class a threshold of its own.')),)


def _measures(hits: Bools, known: Bools, sizes: Floats, threshold: Threshold | None, *, tied: bool) -> dict[str, Any]:
    """What is measured on all rows and on each slice of them alike."""
    covered, n, unknown = int(hits.sum()), hits.size, int(np.sum(~known))
    low, high = share_interval(covered, n)
    return {
        "n": n, "coverage": float(hits.mean()), "coverage_low": low, "coverage_high": high,
        "mean_size": float(sizes.mean()), "median_size": size_quantile(sizes, 0.5), "p95_size": size_quantile(sizes, 0.95),
        "consistency": law_of_counts(covered, n, unknown, threshold, tied=tied), "unknown_labels": unknown,
    }  # fmt: skip


def law_of_counts(hits: int, n: int, unknown: int, threshold: Threshold | None, *, tied: bool) -> Consistency | None:
    """The test of `hits` among `n` rows, `unknown` of which no set can cover; None where no law applies."""
    if unknown == n or threshold is None or threshold.rank is None or threshold.guarantee not in _ORDER_STATISTIC_GUARANTEES:
        return None
    if threshold.value < math.inf:  # a label that the fit does not know scores infinity, in calibration rows as in these
        return coverage_consistency(hits, n, rank=threshold.rank, n_cal=threshold.n, tied=tied)
    n_cal = threshold.n  # full sets cover every label that is known, whichever score it was
    return coverage_consistency(hits, n - unknown, rank=n_cal + 1, n_cal=n_cal, tied=tied, unknown_labels=unknown)


def is_full(sets: PredictionSets) -> Bools:
    """Which sets rule nothing out."""
    if isinstance(sets, LabelSets):
        return sets.is_full()
    if isinstance(sets, Intervals):
        return np.asarray((sets.lower == -np.inf) & (sets.upper == np.inf))
    if isinstance(sets, IntervalUnions):
        hull = sets.hull()
        one_piece = np.diff(sets.row_pointers) == 1
        return np.asarray(one_piece & (hull.lower == -np.inf) & (hull.upper == np.inf))
    return np.isinf(np.asarray(sets.sizes(), dtype=np.float64))


def _by_group(
    hits: Bools, known: Bools, sizes: Floats, groups: AnyArray, thresholds: Mapping[Any, Threshold],
    is_tied: Callable[[Any], bool],
) -> tuple[GroupEvaluation, ...]:  # fmt: skip
    if groups.ndim == 2 and len(groups) == hits.size:  # slices that overlap
        each = (_by_group(hits, known, sizes, column, thresholds, is_tied) for column in groups.T)
        return tuple(row for rows in each for row in rows)
    if groups.shape != hits.shape:
        raise ValueError(f"groups must hold one value for each of the {hits.size} rows, got shape {groups.shape}.")
    return tuple(
        GroupEvaluation(name, **_measures(hits[rows], known[rows], sizes[rows], thresholds.get(name), tied=is_tied(name)))
        for name, rows in rows_by_condition(condition_names(groups)).items()
    )


@dataclass(frozen=True)
class PairedComparison:
    """Two runs over the same splits: the mean of a - b, its 95 % t-interval, and the Wilcoxon signed-rank p-value."""

    n: int
    mean_difference: float
    low: float
    high: float
    p_value: float


def paired_wilcoxon(a: ArrayLike, b: ArrayLike) -> float:
    """The two-sided p-value of Wilcoxon's signed-rank test of a against b; 1 if all pairs are equal.

    Equal pairs are left out, as Wilcoxon did: SciPy does too, but one of them makes it fall back to a normal approximation.
    It is exact for up to 50 other pairs without ties.

    Repeated splits of one table are not independent samples of the population: the p-value speaks of splits of this table.
    """
    from scipy.stats import wilcoxon

    difference = _differences(a, b)
    unequal = difference[difference != 0]
    return float(wilcoxon(unequal).pvalue) if unequal.size else 1.0


def paired_comparison(a: ArrayLike, b: ArrayLike) -> PairedComparison:
    """The mean of a - b over pairs, with Student's 95 % interval (infinite for one pair) and `paired_wilcoxon`."""
    from scipy.special import stdtrit

    difference = _differences(a, b)
    n, mean = difference.size, float(difference.mean())
    half = math.inf if n == 1 else float(stdtrit(n - 1, 0.975)) * float(difference.std(ddof=1)) / math.sqrt(n)
    return PairedComparison(n, mean, mean - half, mean + half, paired_wilcoxon(a, b))


def _differences(a: ArrayLike, b: ArrayLike) -> Floats:
    first, second = (real_numbers(part, name=name).astype(np.float64) for name, part in (("a", a), ("b", b)))
    if first.ndim != 1 or first.shape != second.shape or first.size == 0:
        raise ValueError(f"a and b must be pairs of numbers, one per split, got shapes {first.shape} and {second.shape}.")
    bad = np.flatnonzero(~(np.isfinite(first) & np.isfinite(second)))
    if bad.size:
        raise ValueError(
            f"{bad.size} of {first.size} pairs are not finite (first: pair {bad[0]}); a difference of infinite sizes has no "
            "value. Compare the median or the P95 size, or leave such splits out of both runs and say so."
        )
    return np.asarray(first - second)
