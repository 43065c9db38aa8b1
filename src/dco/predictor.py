"""tune → calibrate → predict, all in `fit_decoupled`. Newcomers start there.

Whatever is searched is searched on training and tuning rows (`selection`). One structure is then fixed, the sealed
calibration rows are opened once for it, and all that is taken from them is an order statistic of its scores (`calibration`).
"""

from __future__ import annotations

import json
import platform
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from dco.arrays import AnyArray, Floats, Integers
from dco.calibration import (
    Calibration,
    checked_calibration_scores,
    tell_infeasible,
    tell_new_groups,
    warn_or_raise,
)
from dco.certificate import (
    Certificate,
    certified_thresholds,
    model_fingerprint,
    scores_fingerprint,
    words,
)
from dco.display import counted, first_few, have
from dco.errors import DcoError, SealBrokenError
from dco.extras import installed
from dco.fingerprints import object_fingerprint, row_fingerprints, row_uniforms
from dco.groups import group_names, is_label
from dco.models.adapt import holds_frozen, is_frozen
from dco.predictions import Prediction
from dco.ranks import Level, as_rational, smallest_marginal_n, smallest_pac_n
from dco.rounding import batch_rounding, same_but_for_rounding, usual_size
from dco.rows import KeptRows, UsedRows, is_frame, missing_cells, n_rows, take_features
from dco.scores.score import Score
from dco.seal import SealedRows
from dco.selection import Selection, Workbench, fit_model, predicted, score_label, select
from dco.sets import LabelSets
from dco.sets.prediction_sets import PredictionSets
from dco.thresholds import Threshold
from dco.thresholds.grouped import one_row_per_group
from dco.tuning import Ranking
from dco.tuning.candidates import check_inverse, is_ours

_BY_CHANCE = 0.01  # probability under exchangeability below which missing values are told

IN_GROUPS = "the law of coverage is for independent rows, and rows of this fit belong together in groups"


@dataclass(frozen=True)
class Statement:
    """What is to be guaranteed, and what to do when there are too few rows for it."""

    alpha: Level
    guarantee: Literal["marginal", "pac"] = "marginal"
    delta: Level = 0.05
    simultaneous: bool = False
    on_infeasible: Literal["warn", "raise"] = "warn"

    def smallest_n(self, parts: int = 1) -> int:
        """The least number of rows (in each group) with a finite threshold."""
        if self.guarantee == "marginal":
            return smallest_marginal_n(alpha=self.alpha)
        delta = as_rational(self.delta, name="delta")
        return smallest_pac_n(alpha=self.alpha, delta=delta / parts if self.simultaneous else delta)

    def thresholds(self, calibration: Calibration) -> dict[Any, Threshold]:
        """The threshold of each Mondrian group, or one under the key None."""
        return calibration.thresholds(
            alpha=self.alpha, guarantee=self.guarantee, delta=self.delta, simultaneous=self.simultaneous
        )

    def tell_infeasible(self, calibration: Calibration, *, dealt_from: int | None = None, stacklevel: int = 2) -> None:
        """Warn, or raise, where a threshold is infinite; `dealt_from` rows (or groups) `fit` has dealt to roles itself."""
        thresholds = self.thresholds(calibration)
        smallest = self.smallest_n(len(thresholds))
        advice = ""
        if calibration.groups is not None and self.guarantee == "pac":
            advice = " (a PAC statement uses one row of each)"
        if dealt_from is not None:
            within = smallest + 2 <= dealt_from  # a row each is left to train and to tune on
            advice += f": pass calibrate_size={smallest}" if within else f", and there are {dealt_from} in all"
        tell_infeasible(
            thresholds,
            smallest=smallest,
            on_infeasible=self.on_infeasible,
            unit="rows" if calibration.groups is None else "groups",
            advice=advice,
            stacklevel=stacklevel + 1,
        )


@dataclass(frozen=True, eq=False)
class Structure:
    """The paper's phi, fixed before calibration rows are opened: a fitted model, a score, a rule that names groups."""

    name: str
    model: Any
    score: Score
    kind: type
    condition_on: Any
    classes: AnyArray | None
    uniform_seed: int
    fingerprint: str

    def prediction(self, X: Any) -> Prediction:
        """What the model says about the rows of X, as the record that the score reads."""
        randomised = getattr(self.score, "randomised", False)
        uniforms = row_uniforms(X, seed=self.uniform_seed) if randomised else None
        return predicted(self.model, X, self.kind, uniforms=uniforms, classes=self.classes)

    def scores(self, X: Any, y: AnyArray) -> Floats:
        """The score of each row with its y."""
        return np.asarray(self.score.observed(self.prediction(X), y))

    def conditions(self, X: Any, y: AnyArray | None = None) -> AnyArray | None:
        """The Mondrian group of each row; for "label" the label itself, where it is known."""
        return condition_values(self.condition_on, X, y)


def condition_values(condition_on: Any, X: Any, y: AnyArray | None, *, parameter: str = "condition_on") -> AnyArray | None:
    """The group of each row: None, the label, a column of X, or what a function of X says; `parameter` is for messages."""
    if condition_on is None:
        return None
    if is_label(condition_on):
        return y
    if callable(condition_on):
        values = group_names(condition_on(X))
    elif hasattr(X, "columns"):
        if condition_on not in X.columns:
            there = first_few([repr(name) for name in X.columns])
            raise ValueError(f"{parameter} names the column {condition_on!r}, which X does not have; it has {there}.")
        values = group_names(X[condition_on])
    else:
        if not isinstance(condition_on, (int, np.integer)):
            raise ValueError(f"{parameter} names the column {condition_on!r}, but X is an array: pass a frame, as in fit.")
        column = X[:, [condition_on]]
        dense: Any = column.toarray() if hasattr(column, "toarray") else np.asarray(column)
        values = group_names(dense[:, 0])
    if values.shape != (n_rows(X),):
        raise ValueError(f"{parameter} must give one group for each of {n_rows(X)} rows, got shape {values.shape}.")
    return values


@dataclass(frozen=True, eq=False)
class DecoupledPredictor:
    """One structure with its calibration: prediction sets at any level, each with its guarantee."""

    structure: Structure
    calibration: Calibration
    statement: Statement
    certificate: Certificate
    ranking: Ranking
    row_hashes: Mapping[str, AnyArray]  # with `repeated_rows` what `KeptRows` keeps, as plain data
    repeated_rows: float
    rounding: float  # what `calibrate` has added to every score
    complete: AnyArray | None = None  # which columns had no missing cell in the fit; older files do not know

    def thresholds(
        self, alpha: Level | None = None, *, guarantee: str | None = None, delta: Level | None = None
    ) -> dict[Any, Threshold]:
        """The threshold of each Mondrian group, or one under the key None, for the statement of the fit or another."""
        found = self.stated(alpha, guarantee=guarantee, delta=delta).thresholds(self.calibration)
        if self.certificate.guarantee == "none":  # the way the rows were dealt has voided it
            return {name: replace(threshold, guarantee="none") for name, threshold in found.items()}
        return found

    def stated(self, alpha: Level | None = None, *, guarantee: str | None = None, delta: Level | None = None) -> Statement:
        """The statement of the fit, or another from the same calibration scores: only the rank differs."""
        given = {"alpha": alpha, "guarantee": guarantee, "delta": delta}
        changed: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        statement = replace(self.statement, **changed)
        if statement.guarantee not in ("marginal", "pac"):
            raise ValueError(f'guarantee must be "marginal" or "pac", got {guarantee!r}.')
        if delta is not None and statement.guarantee != "pac":
            raise ValueError('delta belongs to the guarantee "pac"; pass guarantee="pac" with it.')
        return statement

    def tell_infeasible(self, statement: Statement, *, stacklevel: int = 2) -> None:
        """Warn, or raise, where sets are full for want of calibration rows; what `fit` has told is not told again."""
        if statement != self.statement:
            statement.tell_infeasible(self.calibration, stacklevel=stacklevel + 1)

    def new_groups(self, X: Any) -> Counter[Any]:
        """How many rows of X belong to each Mondrian group without calibration rows: their sets are full."""
        names = None if is_label(self.structure.condition_on) else self.structure.conditions(X)
        if names is None:
            return Counter()
        known = self.calibration.parts()
        return Counter(name for name in names.tolist() if name not in known)

    def tell_new_groups(self, X: Any, *, stacklevel: int = 2) -> None:
        """Warn, or raise, where rows of X belong to such groups."""
        rows = counted(n_rows(X), "row")
        tell_new_groups(self.new_groups(X), rows, on_infeasible=self.statement.on_infeasible, stacklevel=stacklevel + 1)

    def new_gaps(self, X: Any) -> Counter[Any]:
        """How many cells of X are missing in each column that had no missing cell in the rows of the fit."""
        if self.complete is None:
            return Counter()
        missing = missing_cells(X) * self.complete
        names = list(X.columns) if is_frame(X) else range(len(missing))
        return Counter({names[place]: int(missing[place]) for place in np.flatnonzero(missing)})

    def tell_new_gaps(self, gaps: Counter[Any], rows: int, *, stacklevel: int = 2) -> None:
        """Warn where so many of `rows` new rows lack such a column that rows like those of the fit hardly would.

        If all rows are exchangeable, c rows of N + n without a value are all among the n new ones with probability at most
        (n / (N + n))**c, N rows being in the fit.
        """
        share = rows / (rows + sum(self.certificate.rows.values()))
        found = [f"{name!r} in {count}" for name, count in gaps.most_common() if share**count < _BY_CHANCE]
        if found:
            warnings.warn(
                f"{counted(len(found), 'column')} had no missing value in the fit and {have(len(found))} some in "
                f"{counted(rows, 'new row')} ({first_few(found)}): such rows are not like those of the fit, which the "
                "guarantee is for.",
                UserWarning,
                stacklevel=stacklevel + 1,
            )

    def sets(
        self,
        X: Any,
        alpha: Level | None = None,
        *,
        guarantee: str | None = None,
        delta: Level | None = None,
        prediction: Prediction | None = None,
    ) -> PredictionSets:
        """The prediction set of each row of X; labels ascend, as those of ``classes_`` and of p-values do."""
        record = self.structure.prediction(X) if prediction is None else prediction
        thresholds = self.thresholds(alpha, guarantee=guarantee, delta=delta)
        sets = self.structure.score.sets(record, self._cutoffs(X, record, thresholds))
        if isinstance(sets, LabelSets) and sets.classes is not None:
            return sets.in_order(np.sort(sets.classes))  # a record lists labels that its model never saw last
        return sets

    def used_rows(self, X: Any, y: AnyArray) -> UsedRows | None:
        """The rows that took part in the fit; None if there are no more than new rows share with it by chance."""
        kept = KeptRows(self.row_hashes, self.repeated_rows, sum(self.certificate.rows.values()))
        found = kept.among(row_fingerprints(X, y))
        return found if found.total > kept.by_chance(len(y)) else None

    def tell_used_rows(self, X: Any, y: AnyArray, *, stacklevel: int = 2) -> tuple[str | None, set[Any]]:
        """Warn where rows to be evaluated took part in the fit; why there is no verdict, and the Mondrian groups it spoils.

        There is none on rows that belong together either: they are covered together.
        """
        found = self.used_rows(X, y)
        if found is None and self.calibration.groups is not None:
            return IN_GROUPS, set(self.calibration.parts())
        if found is None:
            return None, set()
        said, spoilt, names = "the coverage", set(self.calibration.parts()), self.structure.conditions(X, y)
        if names is not None and found.exact:
            groups = list(dict.fromkeys(names[found.known].tolist()))
            said = f"the coverage of {', '.join(map(repr, groups[:5]))}{', ...' if len(groups) > 5 else ''}"
            spoilt = set(groups)
        roles = ", ".join(f"{count} {role}" for role, count in found.counts.items())
        count = f"{'' if found.exact else 'about '}{found.total} of {len(y)} rows took part in the fit"
        warnings.warn(
            f"{count[0].upper()}{count[1:]} ({roles}): {said} proves nothing about new rows. Evaluate rows that were used "
            "for nothing else.",
            UserWarning,
            stacklevel=stacklevel,
        )
        return count, spoilt

    def p_values(self, X: Any, y: ArrayLike | None = None) -> Floats:
        """Conformal p-values: of every label (n, K) for classes, of the given y (n,) otherwise."""
        record: Any = self.structure.prediction(X)
        if y is not None:
            labels = np.asarray(y)
            return self.calibration.p_values(
                self.structure.score.observed(record, labels), self.structure.conditions(X, labels)
            )
        if self.structure.classes is None:
            raise ValueError("p-values of a regression are for given values: pass y.")
        if not hasattr(self.structure.score, "every_label"):
            raise ValueError(
                f"p-values of every label need a score that has every_label(prediction), which "
                f"{type(self.structure.score).__name__} does not have."
            )
        every = self.structure.score.every_label(record)
        by_label = is_label(self.structure.condition_on)
        conditions = record.labels()[None, :] if by_label else self.structure.conditions(X)
        if conditions is not None and not by_label:
            conditions = conditions[:, None]
        return self.calibration.p_values(every, conditions)[:, np.argsort(record.labels(), kind="stable")]

    def calibration_scores(self, X: Any, y: Any) -> tuple[Floats, AnyArray | None]:
        """The scores of given rows as `calibrate` keeps them, and their Mondrian groups, to check a certificate."""
        labels = np.asarray(y)
        scores = self.structure.scores(X, labels) + self.rounding
        names = self.structure.conditions(X, labels)
        if names is not None:
            called = self.calibration.group_labels()
            names = np.asarray([called.get(name, str(name)) for name in names.tolist()])
        return scores, names

    def structure_fingerprint(self) -> str:
        """The fingerprint of the structure, taken again from what the predictor holds and its certificate says."""
        told, rows = self.certificate, self.certificate.row_fingerprints
        return _structure_digest(
            candidate=self.structure.name,
            model=told.model,
            score=self.structure.score,
            condition_on=self.structure.condition_on,
            fitted_on=[rows.get("train", ""), rows.get("tune", "") if told.refit else ""],
            seed=self.structure.uniform_seed,
        )

    def is_tied(self, statement: Statement | None = None) -> bool:
        """Whether calibration scores are tied: coverage is then at least the law, not equal to it."""
        stated, parts = self.statement if statement is None else statement, self.calibration.parts()
        return any(
            self.calibration.is_tied(parts[name], threshold, guarantee=stated.guarantee)
            for name, threshold in stated.thresholds(self.calibration).items()
        )

    def _cutoffs(self, X: Any, record: Any, thresholds: dict[Any, Threshold]) -> Any:
        if None in thresholds:
            return thresholds[None]
        value_of = {name: threshold.value for name, threshold in thresholds.items()}
        by_label = is_label(self.structure.condition_on)
        names: Any = record.labels() if by_label else self.structure.conditions(X)
        values = np.asarray([value_of.get(name, np.inf) for name in names.tolist()])  # a new group gets the full set
        if by_label:
            return values[None, :]
        return values[:, None] if self.structure.classes is not None else values


def fit_decoupled(
    models: Mapping[str, Any],
    scores: Mapping[str, Score] | None,
    bench: Workbench,
    sealed: SealedRows,
    statement: Statement,
    *,
    refit: bool = True,
    ensemble: bool = False,
    condition_on: Any = None,
    search: Any = None,
    groups: AnyArray | None = None,
    seed: int = 0,
    facts: Facts,
) -> DecoupledPredictor:
    """Choose a structure on training and tuning rows, freeze it, open the calibration rows once, certify."""
    tuning = bench.tuning_rows()
    conditions: Any = None
    if len(tuning):
        conditions = "label" if is_label(condition_on) else _codes(condition_values(condition_on, tuning.X, tuning.y))
    selection = select(models, scores, bench, alpha=statement.alpha, conditions=conditions, ensemble=ensemble, search=search)
    if holds_frozen(selection.winner.model):  # one that a search has proposed, too
        facts = replace(facts, training_rows_checked=False)
    structure = freeze(selection, bench, refit=refit, condition_on=condition_on, facts=facts)
    calibration, rounding, log = calibrate(structure, sealed, groups=groups, seed=seed)
    thresholds = statement.thresholds(calibration)
    statement.tell_infeasible(calibration, dealt_from=facts.dealt_from, stacklevel=4)
    if is_label(condition_on):
        _tell_labels_without_rows(structure, thresholds, statement, stacklevel=4)
    certificate = certify(
        structure, selection, calibration, thresholds, statement, refit=refit, bench=bench, log=log, facts=facts
    )
    return DecoupledPredictor(
        structure,
        calibration,
        statement,
        certificate,
        selection.ranking,
        facts.kept.hashes,
        facts.kept.repeated,
        rounding,
        facts.complete,
    )


def _tell_labels_without_rows(
    structure: Structure, thresholds: Mapping[Any, Threshold], statement: Statement, *, stacklevel: int
) -> None:
    """A label without calibration rows has an infinite threshold of its own: it is in every set."""
    assert structure.classes is not None
    absent = [label for label in structure.classes.tolist() if label not in thresholds]
    if absent:
        names = first_few(list(map(repr, absent)))
        warn_or_raise(
            f"{len(absent)} of {len(structure.classes)} labels ({names}) {have(len(absent))} no calibration rows: such a "
            f"label is in every set (valid, but useless). At least {statement.smallest_n(len(thresholds))} rows of each "
            "label are needed.",
            statement.on_infeasible,
            stacklevel=stacklevel + 1,
        )


def freeze(selection: Selection, bench: Workbench, *, refit: bool, condition_on: Any, facts: Facts) -> Structure:
    """The winner, refitted on training and tuning rows unless told otherwise, with a fingerprint of what it is."""
    winner = selection.winner
    again = refit and not is_frozen(winner.model)
    model = fit_model(winner.model, bench.fitting_rows()) if again or selection.fitted is None else selection.fitted
    digest = _structure_digest(
        candidate=winner.name,
        model=describe(winner.model),
        score=winner.score,
        condition_on=condition_on,
        fitted_on=[facts.fingerprints.get("train", ""), facts.fingerprints.get("tune", "") if again else ""],
        seed=bench.uniform_seed,
    )
    classes = None if bench.classes is None else _with_known(bench.classes, getattr(model, "classes_", bench.classes))
    return Structure(winner.name, model, winner.score, winner.kind, condition_on, classes, bench.uniform_seed, digest)


def _with_known(classes: AnyArray, known: ArrayLike) -> AnyArray:
    """The labels of the rows and those that the model knows beside them."""
    return np.union1d(classes, known) if np.setdiff1d(known, classes).size else classes


def _structure_digest(
    *, candidate: str, model: str, score: Score, condition_on: Any, fitted_on: Sequence[str], seed: int
) -> str:
    described = {
        "candidate": candidate,
        "model": model,
        "score": score_label(score),
        "condition": _rule(condition_on),
        "fitted on": list(fitted_on),
        "seed": seed,
    }
    return blake2b(json.dumps(described, sort_keys=True).encode(), digest_size=16).hexdigest()


def _rule(condition_on: Any) -> str:
    """What names the groups; a function by what it does, if that can be written down."""
    if callable(condition_on):
        with suppress(Exception):  # whatever a user's object raises when it is written down
            return object_fingerprint(condition_on)
    return describe(condition_on)


def calibrate(
    structure: Structure, sealed: SealedRows, *, groups: AnyArray | None, seed: int
) -> tuple[Calibration, float, tuple[str, ...]]:
    """Open the calibration rows for this structure, score them, and check that the scores are those of a fixed function.

    Where scores are distinct they are kept as they are. Where some are tied, many rows may share the score at the
    threshold, and a last digit could cost all of them when they come alone: every score is then raised by what batches round
    differently, which keeps their order. What was added comes back with the calibration and the log of the seal.
    """
    picks = np.random.default_rng([seed, 2])  # not the draws that dealt the roles
    one_per_group = None if groups is None else one_row_per_group(groups, seed=picks)
    X, y = sealed.open_for(structure.fingerprint)
    scores = _opened_scores(structure, X, y)
    if not is_ours(structure.score):
        check_inverse(structure.score, structure.prediction(X), y, scores)
    _check_repeatable(structure, X, y, scores)
    rounding = 0.0 if len(np.unique(scores)) == len(scores) else batch_rounding(structure.scores, X, y, scores)
    _tell_labels_never_seen(structure, y)
    return (
        Calibration(
            checked_calibration_scores(scores + rounding, structure=structure.name),
            structure.conditions(X, y),
            groups,
            one_per_group,
        ),
        rounding,
        tuple(f"{entry.when:%Y-%m-%d %H:%M:%S} UTC, {entry.purpose}, structure {entry.structure}" for entry in sealed.log),
    )


def _opened_scores(structure: Structure, X: Any, y: AnyArray) -> Floats:
    """The scores of the calibration rows; a model that cannot predict them is an error, and no other takes its place.

    Which structure is calibrated may not depend on what the calibration rows hold, a missing value in them included.
    """
    try:
        return structure.scores(X, y)
    except DcoError:
        raise
    except Exception as error:  # whatever a user's model raises
        raise ValueError(
            f"{structure.name} was chosen on training and tuning rows and cannot score the calibration rows "
            f"({type(error).__name__}: {error}). They are open now, so no other candidate may take its place: leave this "
            "model out, or put what it needs (an imputer, say) before it."
        ) from error


def _tell_labels_never_seen(structure: Structure, y: AnyArray) -> None:
    """A calibration row whose label the model never saw has the score +inf and stays in n: valid, and told."""
    if structure.classes is None:
        return
    known = set(np.asarray(getattr(structure.model, "classes_", structure.classes)).tolist())
    rows = Counter(label for label in y.tolist() if label not in known)
    if rows:
        labels = first_few([f"{label!r}: {counted(count, 'row')}" for label, count in rows.most_common()])
        verb = "has a label" if rows.total() == 1 else "have labels"
        warnings.warn(
            f"{rows.total()} of {counted(len(y), 'calibration row')} {verb} that the chosen model never saw ({labels}): "
            "such scores are infinite, so the statement stays valid and sets are larger. Bring training rows of them.",
            UserWarning,
            stacklevel=5,
        )


def _check_repeatable(structure: Structure, X: Any, y: AnyArray, scores: Floats, n: int = 256) -> None:
    """Score some rows again: a model that learns in predict, or leaves dropout on, gives other scores the second time.

    They come in smaller batches, so that a model is seen that compares the rows of a batch. Those may round otherwise, in
    single precision to a few digits where features are large: that is not held against a model that gives the same scores
    to the same batch, up to a hundredth of a score's usual size.
    """
    some = np.arange(min(n, (len(y) + 1) // 2))

    def fixed(rows: Integers) -> bool:
        batch = take_features(X, rows)
        again = structure.scores(batch, y[rows])
        if same_but_for_rounding(again, scores[rows]).all():
            return True
        near = np.isclose(again, scores[rows], rtol=1e-5, atol=1e-8 + 0.01 * usual_size(scores), equal_nan=True)
        return bool(near.all() and same_but_for_rounding(structure.scores(batch, y[rows]), again).all())

    if not all(fixed(some[: len(some) // share]) for share in (1, 2) if len(some) >= share):
        raise SealBrokenError(
            f"The scores of {structure.name} change when the same rows are scored again, so they are not those of one fixed "
            "function of a row: the model learns, draws at random, compares rows or changes them in place in predict. Fix "
            "its seed, let it copy, or freeze it."
        )
    if callable(structure.condition_on):
        names = group_names(structure.condition_on(X))
        for rows in (some[:1], some[: len(some) // 2], some):
            if rows.size and not np.array_equal(group_names(structure.condition_on(take_features(X, rows))), names[rows]):
                raise SealBrokenError(
                    "condition_on gives a row another group when it comes with other rows, so groups are not those of one "
                    "fixed function of a row. Fix what it compares with (a median of the training rows, say) beforehand."
                )


@dataclass(frozen=True, eq=False)
class Facts:
    """What is known of the rows before anything is fitted: for the certificate, not for the search."""

    rows: Mapping[str, int]
    fingerprints: Mapping[str, str]
    repeats_shared: Mapping[str, int | str]
    training_rows_checked: bool
    seed: int | None
    voided: str | None = None  # why there is no guarantee, if there is none
    kept: KeptRows = field(default_factory=KeptRows)  # to know the rows again
    dealt_from: int | None = None  # how many rows (or groups) `fit` dealt to roles; None if calibration rows were given
    grouped: bool = False
    distinct: bool = False  # repeats were dropped: the statement is about rows like the distinct ones
    complete: AnyArray | None = None  # which columns have no missing cell in any role


def certify(
    structure: Structure,
    selection: Selection,
    calibration: Calibration,
    thresholds: dict[Any, Threshold],
    statement: Statement,
    *,
    refit: bool,
    bench: Workbench,
    log: Sequence[str],
    facts: Facts,
) -> Certificate:
    """Put into numbers what was done, and these into words."""
    guarantee = "none" if facts.voided is not None else statement.guarantee
    n_tuned = len(bench.tuning_rows())
    folds = "" if bench.n_folds is None else f", predicted by {bench.n_folds} folds"
    alpha = float(as_rational(statement.alpha))
    told = Certificate(
        statement="",
        assumption="",
        guarantee=guarantee,
        reason=facts.voided,
        alpha=alpha,
        delta=float(as_rational(statement.delta, name="delta")) if statement.guarantee == "pac" else None,
        simultaneous=statement.simultaneous and statement.guarantee == "pac",
        grouped=facts.grouped,
        distinct=facts.distinct,
        labels=None if structure.classes is None else len(structure.classes),
        thresholds=certified_thresholds(calibration, thresholds, guarantee=statement.guarantee),
        candidate=structure.name,
        candidates=selection.candidates,
        failed_candidates=dict(selection.failures),
        model=describe(selection.winner.model),
        score=score_label(structure.score),
        condition_on=None if structure.condition_on is None else describe(structure.condition_on),
        tuning_threshold=selection.ranking.threshold_of(structure.name),
        selection=f"smallest mean size on {n_tuned} tuning rows{folds}" if n_tuned else "",
        refit=refit and not is_frozen(selection.winner.model),
        rows=dict(facts.rows),
        row_fingerprints=dict(facts.fingerprints),
        repeats_shared=dict(facts.repeats_shared),
        training_rows_checked=facts.training_rows_checked,
        structure_fingerprint=structure.fingerprint,
        model_fingerprint=model_fingerprint(structure.model),
        scores_fingerprint=scores_fingerprint(calibration.scores),
        seal_opened=len(log),
        seal_log=tuple(log),
        seed=facts.seed,
        versions=versions(),
    )
    return replace(told, **words(told))


def describe(thing: Any) -> str:
    """A model, score or rule in words that are the same in every run: no memory addresses."""
    if thing is None or isinstance(thing, (str, int, float, bool, np.generic)):
        return repr(thing.item() if isinstance(thing, np.generic) else thing)
    if isinstance(thing, (list, tuple)):
        return "[" + ", ".join(describe(entry) for entry in thing) + "]"
    if isinstance(thing, Mapping):
        return "{" + ", ".join(f"{describe(key)}: {describe(value)}" for key, value in thing.items()) + "}"
    if isinstance(thing, np.ndarray):
        return f"array of shape {thing.shape}, {blake2b(np.ascontiguousarray(thing).tobytes(), digest_size=8).hexdigest()}"
    if hasattr(thing, "get_params") and not isinstance(thing, type):
        params = ", ".join(f"{name}={describe(value)}" for name, value in sorted(thing.get_params(deep=False).items()))
        return f"{type(thing).__name__}({params})"
    if callable(thing):
        return str(getattr(thing, "__qualname__", type(thing).__name__))
    return type(thing).__name__


def versions() -> dict[str, str]:
    """The versions that made a result."""
    from dco import __version__

    return {"python": platform.python_version(), "dco": __version__} | installed("numpy", "scipy", "scikit-learn")


def _codes(names: AnyArray | None) -> Integers | None:
    """A number for each group: the search needs to know which rows belong together, not what they are called."""
    if names is None:
        return None
    seen: dict[Any, int] = {}
    return np.asarray([seen.setdefault(name, len(seen)) for name in names.tolist()], dtype=np.int64)
