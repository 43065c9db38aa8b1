"""How many rows each role should get, and why, before any row is looked at."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import cached_property
from html import escape
from textwrap import wrap
from typing import Any, Literal, SupportsIndex

from dco import theory
from dco.foundations.display import ShownAsPrinted, are, counted, html_table
from dco.foundations.errors import InfeasibleLevelError
from dco.foundations.ranks import (
    Level,
    as_count,
    as_positive,
    as_rational,
    rank_for,
    smallest_n_for,
)

# beyond this a row is worth more in training than in calibration
_LARGEST_CALIBRATION_SHARE = Fraction(1, 3)
# the default standard deviation of coverage, unless alpha / 5 is less
_WIDEST_SPREAD = Fraction(1, 50)
_TUNING_SHARE = Fraction(1, 4)  # of the rows that calibration leaves
# a mean size is then known to about 1 % where sizes vary by half their mean
_ENOUGH_TUNING_ROWS = 2_000


@dataclass(frozen=True)
class PlanRow:
    """The rows of one role, and the reason in a sentence or two."""

    role: str
    rows: int
    reason: str


@dataclass(frozen=True)
class Outlook:
    """A split of `n` rows in numbers: rows by role, and the law of coverage that the calibration
    rows imply.

    Coverage has mean `expected_coverage` and standard deviation `coverage_sd`, and lies between
    `coverage_low` and `coverage_high` (its 5 % and 95 % points) in nine of ten draws of the
    calibration rows.
    """

    n: int
    train: int
    tune: int
    calibrate: int
    test: int
    rank: int
    expected_coverage: float
    coverage_sd: float
    coverage_low: float
    coverage_high: float


@dataclass(frozen=True)
class Plan(ShownAsPrinted):
    """Split sizes with reasons. ``print(plan)`` shows it; ``plan.to_dict()`` is for machines.

    `now` holds the numbers of this plan, `doubled` those of twice the rows, and `smallest_useful_n`
    the least number of rows at which every role has something to do.
    """

    n: int
    alpha: float
    guarantee: Literal["marginal", "pac"]
    delta: float | None
    spread: float
    rows: tuple[PlanRow, ...]
    now: Outlook
    doubled: Outlook
    smallest_useful_n: int
    notes: tuple[str, ...]

    @property
    def train(self) -> int:
        """Rows for training."""
        return self.now.train

    @property
    def tune(self) -> int:
        """Rows for tuning."""
        return self.now.tune

    @property
    def calibrate(self) -> int:
        """Rows for calibration."""
        return self.now.calibrate

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and texts, nested."""
        return asdict(self)

    @property
    def heading(self) -> str:
        """What was asked for."""
        level = f"alpha = {self.alpha:g}" + (
            "" if self.delta is None else f", delta = {self.delta:g}"
        )
        return f"{counted(self.n, 'row')}, {self.guarantee} guarantee, {level}"

    def _repr_html_(self) -> str:
        rows = [[row.role, str(row.rows), row.reason] for row in self.rows]
        notes = "".join(f"<p>{escape(note)}</p>" for note in self.notes)
        return html_table(["role", "rows", "why"], rows, caption=self.heading) + notes

    def __str__(self) -> str:
        lines = [self.heading, ""]
        for row in self.rows:
            lines += wrap(
                f"{row.role:<10}{row.rows:>9}  {row.reason}", 100, subsequent_indent=" " * 21
            )
        for note in self.notes:
            lines += ["", *wrap(note, 100)]
        return "\n".join(lines)


def plan(
    n: SupportsIndex,
    *,
    alpha: Level,
    guarantee: Literal["marginal", "pac"] = "marginal",
    delta: Level = 0.05,
    spread: float | None = None,
    candidates: SupportsIndex = 16,
    tune_folds: SupportsIndex | None = None,
    test: SupportsIndex = 0,
) -> Plan:
    """Divide `n` rows among training, tuning and calibration (and `test` rows set aside), with
    reasons.

    Calibration gets what ``sd(coverage) <= spread`` needs (`dco.theory.calibration_size`) and not
    more, at most a third of the rows, because a row moved from calibration to training is worth
    more than any search. By default `spread` is min(0.02, alpha / 5), so that the share of misses
    stays near a small `alpha`. A quarter of the rest tunes, up to 2,000 rows: a rule of thumb, not
    a theorem. With `tune_folds`, or a single candidate, tuning costs no rows. `delta` is used by
    the PAC guarantee only. Too few rows for a finite threshold raise `InfeasibleLevelError`.
    """
    if guarantee not in ("marginal", "pac"):
        raise ValueError(f'guarantee must be "marginal" or "pac", got {guarantee!r}.')
    level = as_rational(alpha)
    wish = _Wish(
        alpha=level,
        delta=as_rational(delta, name="delta") if guarantee == "pac" else None,
        spread=float(min(_WIDEST_SPREAD, level / 5))
        if spread is None
        else as_positive(spread, name="spread"),
        candidates=as_count(candidates, name="candidates", least=1),
        folds=None if tune_folds is None else as_count(tune_folds, name="tune_folds", least=2),
    )
    count, held_out = as_count(n), as_count(test, name="test")
    # A finite threshold, tuning rows that may miss one, and as many training rows as both together.
    useful = 2 * (wish.least + (math.ceil(1 / level) if wish.own_rows else 0)) + held_out
    if count - held_out < wish.least + 2:
        kept = f" less {counted(held_out, 'test row')}" if held_out else ""
        raise InfeasibleLevelError(
            f"{counted(count, 'row')}{kept} {are(count)} too few: calibration alone needs "
            f"{wish.least} for a finite "
            f"threshold at alpha = {float(level):g}. A plan makes sense from {useful} rows on."
        )
    now, doubled = wish.outlook(count, held_out), wish.outlook(2 * count, held_out)
    stated = None if wish.delta is None else float(wish.delta)
    rows, notes = _rows(wish, now), _notes(wish, now, doubled, useful)
    return Plan(
        count, float(level), guarantee, stated, wish.spread, rows, now, doubled, useful, notes
    )


@dataclass(frozen=True)
class _Wish:
    """What the caller asked for, in exact numbers."""

    alpha: Fraction
    delta: Fraction | None
    spread: float
    candidates: int
    folds: int | None

    @property
    def own_rows(self) -> bool:
        """Whether tuning takes rows of its own."""
        return self.candidates > 1 and self.folds is None

    @cached_property
    def least(self) -> int:
        """Calibration rows for a finite threshold."""
        return smallest_n_for(alpha=self.alpha, delta=self.delta)

    @cached_property
    def wanted(self) -> int:
        """Calibration rows for the spread.

        PAC gets no fewer than marginal: its spread is smaller only because its coverage is higher
        than asked for.
        """
        if self.delta is None:
            return theory.calibration_size(alpha=self.alpha, spread=self.spread).recommended
        # above 1/2 it is the PAC rank that spreads more
        ruling = self.delta if self.alpha > Fraction(1, 2) else None
        enough = theory.calibration_size(
            alpha=self.alpha, spread=self.spread, pac_delta=ruling
        ).safe_from
        size = theory.least_wasteful_size(
            max(enough, self.least), alpha=self.alpha, delta=self.delta
        )
        while (
            math.sqrt(
                theory.coverage_variance(rank_for(size, alpha=self.alpha, delta=self.delta), size)
            )
            > self.spread
        ):
            size += 1  # a delta near 1/2 may have a lower rank
        return size

    def outlook(self, n: int, test: int) -> Outlook:
        most = math.floor((n - test) * _LARGEST_CALIBRATION_SHARE)
        calibrate = self.wanted
        if calibrate > most:
            thrifty = theory.least_wasteful_size(
                max(most, self.least), alpha=self.alpha, delta=self.delta, downwards=True
            )
            calibrate = max(self.least, thrifty)
        rest = n - test - calibrate
        tune = min(math.floor(rest * _TUNING_SHARE), _ENOUGH_TUNING_ROWS) if self.own_rows else 0
        rank = rank_for(calibrate, alpha=self.alpha, delta=self.delta)
        law = theory.coverage_law_of_rank(rank, calibrate)
        mean, sd, ends = rank / (calibrate + 1), float(law.std()), map(float, law.ppf([0.05, 0.95]))
        return Outlook(n, rest - tune, tune, calibrate, test, rank, mean, sd, *ends)


def _rows(wish: _Wish, now: Outlook) -> tuple[PlanRow, ...]:
    if wish.own_rows:
        train = (
            "All that is left. The winner is refitted on train and tune rows together, so "
            "tuning rows are not lost."
        )
        tune = (
            "A quarter of what calibration leaves, at most 2,000: a rule of thumb for ranking "
            "candidates by size."
        )
    elif wish.candidates > 1:
        train = (
            f"All that is left: with {wish.folds} folds every one of these rows both trains "
            f"and tunes."
        )
        tune = "None set aside: candidates are ranked on the folds of the training rows."
    else:
        train, tune = "All that is left.", "None: a single candidate leaves nothing to choose."
    if now.calibrate >= wish.wanted:
        why = (
            f"Enough for a standard deviation of coverage of {wish.spread:g}; more would only "
            f"be taken from training."
        )
    else:
        few = "A third of the rows, by a rule of thumb, less those that would waste part of a rank"
        if now.calibrate > (now.n - now.test) * _LARGEST_CALIBRATION_SHARE:
            few = "The least that gives a finite threshold"
        measure = (
            ""
            if wish.delta is None or now.coverage_sd > wish.spread
            else " without the margin of a PAC rank"
        )
        why = (
            f"{few}; a standard deviation of coverage of {wish.spread:g}{measure} needs "
            f"{wish.wanted}."
        )
    threshold = f"The threshold is score number {now.rank} of {now.calibrate}."
    reasons = {"train": train, "tune": tune, "calibrate": f"{why} {threshold}"}
    if now.test:
        reasons["test"] = "Set aside as asked, to compare coverage with its law."
    return tuple(PlanRow(role, getattr(now, role), reason) for role, reason in reasons.items())


def _notes(wish: _Wish, now: Outlook, doubled: Outlook, useful: int) -> tuple[str, ...]:
    law = f"Beta({now.rank}, {now.calibrate + 1 - now.rank})"
    notes = [
        f"Coverage to expect: {now.expected_coverage:.4f} on average over calibration draws, "
        f"between {now.coverage_low:.4f} "
        f"and {now.coverage_high:.4f} in nine of ten (5 % and 95 % points of {law})."
    ]
    if wish.delta is not None:
        gap = theory.pac_gap(now.calibrate, alpha=wish.alpha, delta=wish.delta)
        notes.append(
            f"The PAC guarantee costs {gap.exact:.4f} of coverage over the marginal one at this "
            f"size (about "
            f"{gap.approximate:.4f} by z sqrt(alpha (1 - alpha) / n)); more calibration rows make "
            f"it cheaper."
        )
    doubled_range = f"{doubled.coverage_low:.4f} to {doubled.coverage_high:.4f}"
    if doubled.calibrate == now.calibrate:
        enough = now.calibrate >= wish.wanted or now.coverage_sd <= wish.spread
        verdict = "is as wanted" if enough else f"stays wider than wanted ({now.coverage_sd:.2g})"
        notes.append(
            f"Twice the rows would not change the spread of coverage, which {verdict}: all "
            f"{now.n} more would go to "
            f"training and tuning ({now.train + now.tune} to {doubled.train + doubled.tune})."
        )
    else:
        narrower = (
            doubled.coverage_high - doubled.coverage_low < now.coverage_high - now.coverage_low
        )
        # a PAC rank may leave the largest score
        change = "narrow coverage to" if narrower else "bring coverage down to"
        notes.append(
            f"Twice the rows would {change} {doubled_range} with "
            f"{counted(doubled.calibrate, 'calibration row')}, "
            f"and leave {doubled.train + doubled.tune} instead of {now.train + now.tune} for "
            f"training and tuning."
        )
    if wish.candidates > 1:
        notes += filter(None, [_tuning_note(wish, now)])
    verb = "is" if now.n >= useful else "would be"
    notes.append(f"The smallest useful number of rows {verb} {useful}.")
    if now.n < useful:
        notes.append("These rows are fewer: the sets will be valid, and wide.")
    return tuple(notes)


def _tuning_note(wish: _Wish, now: Outlook) -> str:
    if not wish.own_rows:
        return (
            "No bound on the choice among candidates is claimed for folds; the guarantee does "
            "not depend on it."
        )
    if now.tune == 0:
        return "There are no rows for tuning: use folds, or a single candidate."
    said = (
        "by Proposition 3.2 (80 thresholds each), miscoverage to within {:.3f} and sizes to "
        "within {:.1%} of the largest "
        "set",
        "by the uniform bound, to within {:.3f} and {:.1%}",
    )
    setting: Any = {"candidates": wish.candidates, "size_bound": 1.0}
    bounds = [
        theory.tuning_accuracy(now.tune, method=method, **setting)
        for method in ("paper", "uniform")
    ]
    proved = [
        text.format(bound.risk_error, bound.size_error)
        for text, bound in zip(said, bounds, strict=True)
        if 2 * bound.risk_error < wish.alpha  # otherwise the bound says nothing
    ]
    if not proved:
        return ""
    return (
        f"What theory proves about the choice among {wish.candidates} candidates, in the worst "
        f"case: {'; '.join(proved)}. "
        "The guarantee of coverage needs no such bound."
    )
