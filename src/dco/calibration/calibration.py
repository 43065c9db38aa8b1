"""From sealed rows to thresholds: the statement and its rule, the calibration scores, and what
follows from them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np

from dco.calibration.rules.overlapping import pattern_cutoffs
from dco.calibration.rules.rule import RULES, Rule
from dco.calibration.rules.weighted import one_row_per_group, rounded_up
from dco.calibration.shift import ShiftWeights
from dco.foundations.arrays import AnyArray, Bools, Floats, Integers
from dco.foundations.display import are, counted, first_few, have
from dco.foundations.errors import DcoError, SealBrokenError
from dco.foundations.fingerprints import codes_of_values
from dco.foundations.notes import Message, Note
from dco.foundations.ranks import Level, Threshold, as_rational, checked_scores
from dco.foundations.tables import take_features
from dco.rows.conditions import group_marks, group_sizes, is_label, rows_by_condition
from dco.rows.seal import SealedRows
from dco.rows.sizes import FEWEST_LEFT
from dco.scores.inverse import check_inverse, is_ours
from dco.structure import Structure
from dco.theory import ranks_near_threshold

_LARGER = "such scores are infinite, so the statement stays valid and sets are larger."


@dataclass(frozen=True)
class Statement:
    """What is to be guaranteed, and for which conditions."""

    alpha: Level
    guarantee: str = "marginal"
    delta: Level = 0.05
    condition_on: Any = field(default=None, hash=False)  # a list has no hash
    weights: Any = field(default=None, hash=False)  # ShiftWeights, or what they are made of

    def __post_init__(self) -> None:
        if self.weights is not None and not isinstance(self.weights, ShiftWeights):
            object.__setattr__(self, "weights", ShiftWeights(self.weights))
        as_rational(self.alpha)
        as_rational(self.delta, name="delta")
        if self.guarantee not in RULES:
            known = " or ".join(f'"{name}"' for name in RULES)
            raise ValueError(f"guarantee must be {known}, got {self.guarantee!r}.")
        if self.weights is not None and (self.condition_on is not None or not self.rule.weighs):
            other = (
                f'⟨guarantee="{self.guarantee}"⟩' if self.condition_on is None else "⟨condition_on⟩"
            )
            raise ValueError(
                Message(
                    f"⟨weights⟩ cannot be combined with {other}: no threshold is known for both."
                )
            )
        if isinstance(self.condition_on, list) and not self.rule.weighs:
            text = f"No {self.guarantee.upper()} statement is known for groups that overlap"
            raise ValueError(
                Message(
                    f"{text}: use ⟨guarantee=marginal⟩, or name one condition in ⟨condition_on⟩."
                )
            )

    @property
    def rule(self) -> Rule:
        """What turns calibration scores into a threshold."""
        return RULES[self.guarantee]

    def smallest_n(self) -> int:
        """Return the smallest number of rows (for each condition) with a finite threshold."""
        return self.rule.smallest_n(alpha=self.alpha, delta=as_rational(self.delta, name="delta"))

    def thresholds(self, calibration: Calibration) -> dict[Any, Threshold]:
        """The threshold of each condition, or one under the key None; of groups that overlap, one
        for each pattern.
        """
        if isinstance(self.condition_on, list):
            return self.pattern_thresholds(calibration, calibration.parts)
        if self.weights is not None:
            return {
                None: self.weights.threshold(
                    calibration, alpha=self.alpha, certifies=self.rule.certifies
                )
            }
        delta, found = as_rational(self.delta, name="delta"), {}
        for name, rows in calibration.parts.items():
            scores, clusters = calibration.used(rows, self.rule)
            found[name] = self.rule.threshold(
                scores, clusters=clusters, alpha=self.alpha, delta=delta
            )
        return found

    def pattern_thresholds(
        self, calibration: Calibration, patterns: Iterable[str]
    ) -> dict[Any, Threshold]:
        """The thresholds of patterns of groups that overlap, whether calibration rows have these
        patterns or not.
        """
        parts, wanted = calibration.parts, list(patterns)
        groups, level = group_sizes(parts), float(as_rational(self.alpha))
        features = np.repeat(
            group_marks(parts, groups), [rows.size for rows in parts.values()], axis=0
        )
        scores = calibration.scores[np.concatenate([*parts.values(), np.arange(0)])]
        values = pattern_cutoffs(
            rounded_up(scores), features, group_marks(wanted, groups), level=as_rational(self.alpha)
        )
        sizes = [parts[pattern].size if pattern in parts else 0 for pattern in wanted]
        made = (
            Threshold(value, None, n, self.rule.certifies, level)
            for value, n in zip(values, sizes, strict=True)
        )
        return dict(zip(wanted, made, strict=True))

    def note_infeasible(
        self,
        calibration: Calibration,
        thresholds: Mapping[Any, Threshold],
        *,
        dealt_from: int | None = None,
    ) -> list[Note]:
        """Which thresholds are infinite, and why: too few rows, or too many scores that are
        infinite themselves.

        `dealt_from`: how many rows (or clusters) `fit` dealt to roles itself, for advice on their
        sizes.
        """
        infinite = {name: entry.n for name, entry in thresholds.items() if math.isinf(entry.value)}
        if not infinite:
            return []
        notes, smallest = list[Note](), self.smallest_n()
        level = f"alpha = {float(as_rational(self.alpha)):g}"
        short = {name: n for name, n in infinite.items() if n < smallest}
        unit = "row" if calibration.clusters is None else "group"
        needed = f"At least {counted(smallest, unit)} {are(smallest)} needed"
        nothing = "their thresholds are infinite and rule nothing out (valid, but useless)."
        if isinstance(self.condition_on, list):
            sizes = [
                f"{name!r}: {counted(n, 'row')}"
                for name, n in group_sizes(calibration.parts).items()
                if n < smallest
            ]
            which = (
                f"{len(infinite)} of {counted(len(thresholds), 'combination')} of groups "
                f"{have(len(infinite))} too few"
            )
            text = (
                f"{which} calibration rows for "
                f"{level}{f' ({first_few(sizes)})' if sizes else ''}: {nothing}"
            )
            return [
                Note(
                    "infeasible",
                    text,
                    f"{needed} in each group, and more where many groups overlap.",
                )
            ]
        if None in short:
            n, advice = short[None], ""
            if calibration.clusters is not None and not self.rule.weighs:
                advice = f" (a {self.guarantee.upper()} statement uses one row of each)"
            if dealt_from is not None:
                is_enough = smallest + FEWEST_LEFT <= dealt_from
                advice += (
                    ": leave ⟨calibrate_size⟩ and ⟨tune_size⟩ out"
                    if is_enough
                    else f", and there are {dealt_from} in all"
                )
            few = f"{counted(n, f'calibration {unit}')} {are(n)} too few for {level}"
            text = f"{few}: the threshold is infinite and every set is full (valid, but useless)."
            notes.append(Note("infeasible", text, Message(f"{needed}{advice}.")))
        elif short:
            sizes = [f"{name!r}: {counted(n, 'row')}" for name, n in short.items()]
            which = (
                f"{len(short)} of {counted(len(thresholds), 'group')} {have(len(short))} too "
                f"few calibration rows"
            )
            text = f"{which} for {level} ({first_few(sizes)}): {nothing}"
            notes.append(Note("infeasible", text, f"{needed} in each group."))
        if ruled_out := [repr(name) for name in infinite if name not in short]:
            groups = (
                ""
                if None in thresholds
                else f" of {counted(len(ruled_out), 'group')} ({first_few(ruled_out)})"
            )
            text = (
                f"At {level} the threshold{groups} is infinite and sets are full (valid, but "
                f"useless), since too many"
            )
            why = (
                "calibration scores are infinite: the model rules out what happened in these rows."
            )
            notes.append(Note("infeasible", f"{text} {why}"))
        return notes


@dataclass(frozen=True, eq=False)
class Calibration:
    """The scores of the calibration rows under the one structure they were opened for.

    `conditions` gives the condition of each row: each has a threshold of its own. `clusters` says
    which rows belong together: the marginal threshold then weighs every cluster the same, and a PAC
    threshold uses `one_per_cluster`, rows that were picked by seed before any score was seen.
    """

    scores: Floats
    conditions: AnyArray | None = None
    clusters: AnyArray | None = None
    one_per_cluster: Integers | None = None
    weights: Floats | None = None

    @cached_property
    def parts(self) -> dict[Any, Integers]:
        """The rows of each condition, or all rows under the key None."""
        return (
            {None: np.arange(self.scores.size)}
            if self.conditions is None
            else rows_by_condition(self.conditions)
        )

    @cached_property
    def _cluster_codes(self) -> Integers:
        """Taken once: texts are slow to compare."""
        return codes_of_values(self.clusters)[0]

    def __getstate__(self) -> dict[str, Any]:
        """The fields alone: files and copies hold nothing that follows from them."""
        return {entry.name: getattr(self, entry.name) for entry in fields(self)}

    def condition_labels(self) -> dict[Any, str | None]:
        """What a certificate calls each condition: its text, or its repr where two share a text (1
        and "1").
        """
        if self.conditions is None:
            return {None: None}
        texts = {name: str(name) for name in self.parts}
        count = Counter(texts.values())
        return {name: text if count[text] == 1 else repr(name) for name, text in texts.items()}

    def used(self, rows: Integers, rule: Rule) -> tuple[Floats, Integers | None]:
        """The scores that the rule takes its threshold from, and the cluster of each where it
        weighs clusters.
        """
        if self.clusters is not None and rule.weighs:
            return self.scores[rows], self._cluster_codes[rows]
        return self.scores[
            rows if self.one_per_cluster is None else np.intersect1d(rows, self.one_per_cluster)
        ], None

    def is_tied(self, rows: Integers, threshold: Threshold, rule: Rule) -> bool:
        """Whether two scores are equal where thresholds fall (`theory.ranks_near_threshold`): at
        the threshold or around it.

        Coverage has the law of distinct scores unless the threshold is at an atom of theirs, and is
        higher if it is. Equal scores that no threshold comes near, such as those of saturated
        probabilities, change nothing. Near it they count even where the threshold's own score is
        alone: that others repeat is what can be seen of its being an atom.
        """
        if threshold.rank is None or not np.isfinite(threshold.value):
            return False
        scores = np.sort(self.used(rows, rule)[0])
        equal = scores[1:] == scores[:-1]
        if not equal.any():
            return False
        first, last = ranks_near_threshold(threshold.rank, n_cal=threshold.n)
        # every pair with a score of these ranks in it
        return bool(equal[max(first - 2, 0) : last].any())

    def p_values(self, scores: Floats, conditions: AnyArray | None = None) -> Floats:
        """(1 + #{calibration scores >= s}) / (n + 1), within each condition; by weights where rows
        belong together.

        ``p > alpha`` is the same event as ``s <= threshold`` of `split_conformal`, which reads
        alpha as it was written: compare with 0.1, not with the float 1 - 0.9.
        """
        values = np.asarray(scores, dtype=np.float64)
        result = np.ones(values.size)
        code_of = {name: code for code, name in enumerate(self.parts)}
        given = np.asarray([None], dtype=object) if conditions is None else np.asarray(conditions)
        codes = np.asarray([code_of.get(name, -1) for name in given.ravel().tolist()]).reshape(
            given.shape
        )
        flat = np.broadcast_to(codes, values.shape).ravel()
        by_condition = np.argsort(flat, kind="stable")
        ends = np.searchsorted(flat[by_condition], np.arange(len(self.parts) + 1))
        for code, rows in enumerate(self.parts.values()):
            asked = by_condition[ends[code] : ends[code + 1]]
            own = self.scores[rows].astype(np.float64)
            order = np.argsort(own, kind="stable")
            result[asked] = self._steps(rows[order])[
                np.searchsorted(own[order], values.ravel()[asked], side="left")
            ]
        return result.reshape(values.shape)

    def _steps(self, ordered: Integers) -> Floats:
        """The p-value of a score above i of the ordered ones, i = 0 ... n: one division each, so
        ``p > alpha`` is exact.
        """
        if self.clusters is None:
            return np.arange(ordered.size + 1, 0, -1) / (ordered.size + 1)
        codes, _ = codes_of_values(self._cluster_codes[ordered])
        counts = np.bincount(codes)
        unit = math.lcm(*counts.tolist())
        # whole numbers: a cluster weighs `unit`, whatever its size
        weights = [unit // int(counts[code]) for code in codes]
        at_least = [unit, *(unit + total for total in accumulate(reversed(weights)))]
        return np.asarray([total / (unit * (counts.size + 1)) for total in reversed(at_least)])


def note_targets(
    structure: Structure,
    y: AnyArray,
    thresholds: Mapping[Any, Threshold],
    statement: Statement,
    support: tuple[float, float] | None,
) -> list[Note]:
    """Calibration targets that score +inf (labels that the model never saw, numbers outside the
    support), absent labels.
    """
    notes, classes = list[Note](), structure.classes
    outside = 0 if support is None else int(np.count_nonzero((y < support[0]) | (y > support[1])))
    if outside:
        text = (
            f"{outside} of {counted(len(y), 'calibration row')} {have(outside)} a target "
            f"outside the support"
        )
        notes.append(
            Note(
                "outside-support",
                f"{text}: {_LARGER}",
                Message("Widen ⟨support⟩, or correct these targets."),
            )
        )
    if classes is None:
        return notes
    known = set(np.asarray(getattr(structure.model, "classes_", classes)).tolist())
    if rows := Counter(label for label in y.tolist() if label not in known):
        labels = first_few(
            [f"{label!r}: {counted(count, 'row')}" for label, count in rows.most_common()]
        )
        verb = "has a label" if rows.total() == 1 else "have labels"
        text = (
            f"{rows.total()} of {counted(len(y), 'calibration row')} {verb} that the chosen "
            f"model never saw ({labels})"
        )
        notes.append(Note("unseen-labels", f"{text}: {_LARGER}", "Bring training rows of them."))
    names: Any = (
        structure.conditions(None, classes) if is_label(statement.condition_on) else np.empty(0)
    )
    absent = [
        repr(label)
        for label, name in zip(classes.tolist(), names.tolist(), strict=False)
        if name not in thresholds
    ]
    if absent:
        which = (
            f"{len(absent)} of {len(classes)} labels ({first_few(absent)}) "
            f"{have(len(absent))} no calibration rows"
        )
        least = statement.smallest_n()
        text = f"{which}: such a label is in every set (valid, but useless)."
        notes.append(Note("infeasible", text, f"At least {least} rows of each label are needed."))
    return notes


def note_new_conditions(new: Counter[Any], rows: str) -> list[Note]:
    """A note on how many of the rows ("200 rows") fall under conditions that no calibration row
    falls under.
    """
    if not new:
        return []
    conditions, lost = first_few([repr(name) for name, _ in new.most_common()]), new.total()
    text = (
        f"{lost} of {rows} {'belongs' if lost == 1 else 'belong'} to {counted(len(new), 'group')} "
        f"that "
        f"{have(len(new))} no calibration rows ({conditions}): "
        f"{'its set is' if lost == 1 else 'their sets are'} full "
        "(valid, but useless)."
    )
    return [Note("infeasible", text, "Calibrate with rows of these groups.")]


# ----------------------------------------------------------------------------------------------
# opening the rows


def calibrate(
    structure: Structure,
    sealed: SealedRows,
    weights: ShiftWeights | None = None,
    *,
    seed: int,
    scored: tuple[Floats, AnyArray | None] | None = None,
) -> tuple[Calibration, AnyArray, float]:
    """Open the calibration rows for this structure, score them, and check that the scores are those
    of a fixed function.

    Where scores are distinct they are kept as they are. Where some are tied, many rows may share
    the score at the threshold, and a last digit could cost all of them when they come alone: every
    score is then raised by what batches round differently, which keeps their order. The targets
    come back with the calibration, and what was added. A structure that cannot score the rows is an
    error, and no other takes its place: which one is calibrated may not depend on what the
    calibration rows hold, a missing value in them included. `scored`: scores and conditions, of
    rows that have them.
    """
    rows = sealed.open_for(structure.fingerprint)
    X, y, clusters = rows.X, rows.y, rows.clusters
    picks = np.random.default_rng([seed, 2])  # not the draws that dealt the roles
    one_per_cluster = None if clusters is None else one_row_per_group(clusters, seed=picks)
    try:
        scores = structure.scores(X, y) if scored is None else scored[0]
    except DcoError:
        raise
    except Exception as error:  # whatever a user's model raises
        raise ValueError(
            f"{structure.name} was chosen on training and tuning rows and cannot score the "
            f"calibration rows "
            f"({type(error).__name__}: {error}). They are open now, so no other candidate may "
            f"take its place: leave this "
            "model out, or put what it needs (an imputer, say) before it."
        ) from error
    if not is_ours(structure.score):  # ours are compared in the tests
        check_inverse(structure.score, structure.prediction(X), y, scores)
    names = structure.conditions(X, y) if scored is None else scored[1]
    _check_repeatable(structure, X, y, scores, names)
    rounding = (
        0.0
        if len(np.unique(scores)) == scores.size
        else batch_rounding(structure.scores, X, y, scores)
    )
    try:
        kept = checked_scores(scores + rounding)
    except ValueError as error:  # once the seal is open there is no other structure to fall back to
        raise type(error)(
            f"The chosen structure ({structure.name}) cannot be calibrated: {error}"
        ) from None
    row_weights = None
    if weights is not None:
        row_weights = weights.of_rows(X, y)
        _check_weights_ignore_other_rows(weights, X, y, row_weights)
    return Calibration(kept, names, clusters, one_per_cluster, weights=row_weights), y, rounding


def rows_scored_again(n: int) -> tuple[Integers, Integers]:
    """Which of n calibration rows `calibrate` scores a second time: the first ones in one batch,
    and some rows alone.
    """
    return np.arange(min(256, (n + 1) // 2)), np.unique(
        np.linspace(0, n - 1, min(32, n)).astype(np.int64)
    )


def _check_repeatable(
    structure: Structure, X: Any, y: AnyArray, scores: Floats, names: AnyArray | None
) -> None:
    """Score some rows again: a model that learns in predict, or leaves dropout on, gives other
    scores the second time.

    They come in smaller batches, so that a model is seen that compares the rows of a batch. Those
    may round otherwise, in single precision to a few digits where features are large: that is not
    held against a model that gives the same scores to the same batch, up to a hundredth of a
    score's usual size.
    """
    some, _ = rows_scored_again(len(y))
    half = some[: len(some) // 2]
    for rows in (some, half) if half.size else (some,):
        batch = take_features(X, rows)
        again = structure.scores(batch, y[rows])
        if same_but_for_rounding(again, scores[rows]).all():
            continue
        near = same_but_for_rounding(again, scores[rows], among=scores, share=0.01).all()
        if not (near and same_but_for_rounding(structure.scores(batch, y[rows]), again).all()):
            raise SealBrokenError(
                f"The scores of {structure.name} change when the same rows are scored again, so "
                f"they are not those of one "
                "fixed function of a row: the model learns, draws at random, compares rows or "
                "changes them in place in "
                "predict. Fix its seed, let it copy, or freeze it."
            )
    for rows in (part for part in (some, half, some[:1]) if part.size):
        if names is not None and np.any(
            structure.conditions(take_features(X, rows), y[rows]) != names[rows]
        ):
            raise SealBrokenError(
                "condition_on gives a row another group when it comes with other rows, so groups "
                "are not those of one "
                "fixed function of a row. Fix what it compares with (a median of the training "
                "rows, say) beforehand."
            )


def _check_weights_ignore_other_rows(
    weights: ShiftWeights, X: Any, y: AnyArray, row_weights: Floats
) -> None:
    """Refuse weights that change when rows come in smaller batches.

    Weights count relative to each other, so a function that divides by a sum over its rows gives a
    row that comes alone the mass of all calibration rows. The rows of the smallest and of the
    largest weight are weighed alone, since a function of ranks changes one of them.
    """
    if weights.by_label or not row_weights.size:
        return

    first_rows, _ = rows_scored_again(row_weights.size)
    batches = [
        first_rows,
        first_rows[: (first_rows.size + 1) // 2],
        np.array([row_weights.argmin()]),
        np.array([row_weights.argmax()]),
    ]
    smallest_change = 1e-9 * row_weights.max()
    for rows in batches:
        again = weights.of_rows(take_features(X, rows), y[rows])
        if not np.allclose(again, row_weights[rows], rtol=1e-4, atol=smallest_change):
            raise SealBrokenError(
                Message(
                    "⟨weights⟩ gives a row another weight when it comes with other rows, as a "
                    "function does that divides by a sum over its rows or ranks them. Weigh each "
                    "row by itself; the factor may be left out, since weights are needed up to a "
                    "factor only."
                )
            )


def batch_rounding(
    scores_of: Callable[[Any, AnyArray], Floats], X: Any, y: AnyArray, scores: Floats
) -> float:
    """Four times the largest difference between a row's score alone and among the others, over some
    of the rows.

    A matrix product of one row may round otherwise than one of many. A larger jump is none of that
    (two labels that change places, in a score of ranks) and does not count.
    """
    _, some = rows_scored_again(len(y))
    alone = np.asarray([scores_of(take_features(X, row), y[row])[0] for row in some[:, None]])
    together = scores[some]
    near = same_but_for_rounding(alone, together) & np.isfinite(together)
    return 4 * float(np.abs(alone[near] - together[near]).max(initial=0.0))


def same_but_for_rounding(
    again: Floats, scores: Floats, *, among: Floats | None = None, share: float = 1e-4
) -> Bools:
    """Where scores differ by no more than batches of another size may round differently.

    A small residual is the difference of large numbers and keeps their rounding (seven digits, in
    single precision), so what counts is a share of the size that scores usually have: the median of
    the finite ones `among` which they are, without their sign.
    """
    sizes = np.abs(scores if among is None else among)
    finite = sizes[np.isfinite(sizes)]
    usual = float(np.quantile(finite, 0.5, method="lower")) if finite.size else 0.0
    return np.isclose(again, scores, rtol=1e-5, atol=1e-8 + share * usual, equal_nan=True)
