"""From models and scores to one chosen candidate, by training and tuning rows alone.

Each distinct model is fitted once, and predicts the tuning rows once for each kind of record,
however many scores are tried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from dco.foundations.arrays import AnyArray, Bools, Floats, Integers
from dco.foundations.display import counted, first_few
from dco.foundations.errors import IncompatibleScoreError
from dco.foundations.notes import Message, Note
from dco.foundations.parallel import FOLLOWER, run_many
from dco.foundations.ranks import Level, as_rational, clopper_pearson_upper
from dco.models.averaged import AveragedModel
from dco.models.records import CLASS_RECORDS, predict_record, records_of, sources_of
from dco.models.routing import route_params
from dco.models.wrapped import holds_frozen, is_frozen
from dco.predictions import GaussianMixtures, fifths
from dco.rows.conditions import LABEL_CLUSTERS
from dco.rows.fingerprints import row_uniforms
from dco.rows.roles import folds
from dco.rows.rows import Cut, Rows
from dco.scores.score import Score
from dco.scores.transformed import Within
from dco.structure import Candidate
from dco.tuning.defaults import Defaults, scores_for
from dco.tuning.objectives import MEAN_SIZE, Objective
from dco.tuning.options import Conditions, check_support, conditions_of, note_below_zero, slices_of
from dco.tuning.proposals import searched, with_average, with_levelled
from dco.tuning.ranking import FailedCandidate, Ranking, failed_note
from dco.tuning.search import Pieces, Rule, evaluate_pairs, rank_pairs
from dco.tuning.stability import Stability, split_stability
from dco.tuning.strategies import Strategy


@dataclass(frozen=True, eq=False)
class Choosing:
    """How one structure is chosen and fitted, and by how many processes."""

    strategy: Strategy | None = None  # None: every candidate is tried
    refit: bool = True
    n_jobs: int | None = None
    objective: Objective = MEAN_SIZE
    support: tuple[float, float] | None = None  # where y lies: sets are cut to it


@dataclass(frozen=True, eq=False)
class Workbench:
    """Training and tuning rows, and all that a search may look at."""

    train: Rows
    tune: Rows
    n_folds: int | None
    classes: AnyArray | None
    seed: int
    choosing: Choosing = Choosing()
    together: Rows | None = None  # training and tuning rows in one, where they lie so already

    @cached_property
    def uniform_seed(self) -> int:
        """The seed of randomised scores."""
        return int(np.random.SeedSequence(self.seed).generate_state(2)[0])

    def tuning_rows(self) -> Rows:
        """The rows on which candidates are ranked: the tuning split, or with folds all but
        calibration rows.
        """
        return self.tune if self.n_folds is None else self.fitting_rows()

    def fitting_rows(self) -> Rows:
        """The rows on which the winner is refitted: all but calibration rows."""
        apart = len(self.tune) and self.together is None
        return self.train.followed_by(self.tune) if apart else self.together or self.train

    def suitable(
        self, model_name: str, model: Any, scores: Mapping[str, Score] | None
    ) -> list[Candidate]:
        """The candidates of one model: every given score that it can feed, or the default scores of
        what it gives.

        Scores have learnt from training targets, and their sets are cut to the support, where these
        are asked for. Classifiers are for labels, regressors for numbers: a regressor of the codes
        0 and 1 would give intervals of codes.
        """
        offered = records_of(model)
        if scores is None:
            scores = scores_for(model, offered)
        kinds = {
            name: next((kind for kind in score.needs if kind in offered), None)
            for name, score in scores.items()
        }
        found = [
            Candidate(model_name, name, model, scores[name], kind)
            for name, kind in kinds.items()
            if kind is not None
        ]
        wrong = next(
            (
                each.record_type
                for each in found
                if (each.record_type in CLASS_RECORDS) != (self.classes is not None)
            ),
            None,
        )
        if wrong is not None:
            needed = (
                "numbers: use DecoupledClassifier"
                if self.classes is None
                else "labels: use DecoupledRegressor"
            )
            text = (
                f"The model {model_name!r} gives {wrong.__name__}, which does not predict {needed}"
            )
            raise IncompatibleScoreError(f"{text}, or bring another model.")
        y, support = (self.train if len(self.train) else self.tune).y, self.choosing.support
        learnt = [replace(each, score=each.score.fitted(y)) for each in found]
        return (
            learnt
            if support is None
            else [replace(each, score=Within(each.score, *support)) for each in learnt]
        )


@dataclass(frozen=True, eq=False)
class Tried:
    """A model after fitting: its fits (one, or one per fold) and its predictions of the tuning
    rows, or why it failed.
    """

    fits: tuple[Any, ...]
    predictions: Mapping[type, Pieces]
    failure: str | None = None


def expand(
    models: Mapping[str, Any], scores: Mapping[str, Score] | None, bench: Workbench
) -> list[Candidate]:
    """Candidates = models x scores; a model or a score that is left without a partner is an error
    naming both sides.
    """
    found = {name: bench.suitable(name, model, scores) for name, model in models.items()}
    for name, own in found.items():
        if not own:
            offered = records_of(models[name])
            given = ", ".join(kind.__name__ for kind in offered) or "nothing that a score can read"
            tried = ", ".join(scores or ()) or "the default scores"
            sources = sources_of(
                (kind for score in (scores or {}).values() for kind in score.needs), offered
            )
            text = f"No score suits the model {name!r}: it gives {given}; tried {tried}.{sources}"
            raise IncompatibleScoreError(Message(text))
    used = {candidate.score_name for own in found.values() for candidate in own}
    for score_name, score in (scores or {}).items():
        if score_name not in used:
            needs = " or ".join(kind.__name__ for kind in score.needs)
            sources = sources_of(
                score.needs, [kind for model in models.values() for kind in records_of(model)]
            )
            text = (
                f"The score {score_name} needs {needs}, which none of the models gives "
                f"({', '.join(models)}).{sources}"
            )
            raise IncompatibleScoreError(Message(text))
    return [candidate for own in found.values() for candidate in own]


def try_models(candidates: Sequence[Candidate], bench: Workbench) -> dict[str, Tried]:
    """Fit the model of every candidate and predict the tuning rows, in parallel; a model that
    raises is a failed one.
    """
    from sklearn import get_config

    own = dict[str, list[Candidate]]()
    for candidate in candidates:
        own.setdefault(candidate.model_name, []).append(candidate)
    jobs = _jobs(own.values(), bench)
    n_jobs, follower = bench.choosing.n_jobs, FOLLOWER.get()
    each = len(jobs) // len(own)  # one, or one per fold
    told = (
        None
        if follower is None
        else partial(follower, len(candidates), [name for name in own for _ in range(each)])
    )
    if told is not None:
        told(0, len(jobs))
    if len(jobs) == 1 and n_jobs is None:
        return {candidates[0].model_name: _fit_and_predict(jobs[0])}
    # metadata routing, output of transformers: a worker has its own
    fit = partial(_fit_and_predict, config=get_config())
    outcomes = run_many(fit, jobs, n_jobs=n_jobs, progress=told)
    starts = range(0, len(jobs), each)
    return {
        name: _assemble(outcomes[i : i + each], jobs[i : i + each])
        for name, i in zip(own, starts, strict=True)
    }


@dataclass(frozen=True, eq=False)
class Job:
    """A model to fit on some rows and to predict others, once for each kind of record.

    Rows are cut where they are used: those of all folds at once would be many times the table.
    """

    model: Any
    rows: Rows
    fit_on: Cut | slice
    tuning: Rows
    predicted: Any  # positions, or all
    kinds: tuple[type, ...] = ()
    uniforms: Floats | None = None
    classes: AnyArray | None = None


def _jobs(by_model: Iterable[Sequence[Candidate]], bench: Workbench) -> list[Job]:
    """What is to be done for the model of each of these lists: a fit and its predictions, once, or
    once per fold.
    """
    tuning, pool, jobs = bench.tuning_rows(), bench.train, list[Job]()
    pieces: Sequence[tuple[Cut | slice, Any]] = [(slice(None), slice(None))]
    if bench.n_folds is not None:
        # the first is for randomised scores
        seed = int(np.random.SeedSequence(bench.seed).generate_state(2)[1])
        pool, pieces = tuning, folds(len(tuning), bench.n_folds, groups=tuning.clusters, seed=seed)
    # labels of training and tuning rows alone: how many more the calibration rows hold is not for a
    # search to know
    classes = (
        None if bench.classes is None else np.unique(np.concatenate([bench.train.y, bench.tune.y]))
    )
    for own in by_model:
        model = own[0].model
        kinds, draws = (
            tuple({each.record_type: None for each in own}),
            any(each.score.randomised for each in own),
        )
        uniforms = row_uniforms(tuning.X, seed=bench.uniform_seed) if draws else None
        for on, out in pieces:
            its_own = None if uniforms is None else uniforms[out]
            jobs.append(Job(model, pool, on, tuning, out, kinds, its_own, classes))
    return jobs


def _fit_and_predict(job: Job, *, config: Mapping[str, Any] | None = None) -> Tried:
    from sklearn import config_context

    try:
        with config_context(**(config or {})):
            fitted = fit_model(job.model, job.rows.take(job.fit_on))
            X = job.tuning.take(job.predicted).X
            record = partial(predict_record, fitted, X, uniforms=job.uniforms, classes=job.classes)
            predictions = {kind: Pieces((record(kind),)) for kind in job.kinds}
    # whatever a user's model raises: that candidate is reported and left out
    except Exception as error:
        return Tried((), {}, f"{type(error).__name__}: {error}")
    return Tried((fitted,), predictions)


def _assemble(parts: Sequence[Tried], jobs: Sequence[Job]) -> Tried:
    """One model tried on all folds, or the first failure."""
    failed = next((part for part in parts if part.failure is not None), None)
    if failed is not None or len(parts) == 1:
        return failed or parts[0]
    places = tuple(job.predicted for job in jobs)
    records = {
        kind: tuple(part.predictions[kind].records[0] for part in parts)
        for kind in parts[0].predictions
    }
    predictions = {kind: Pieces(each, places) for kind, each in records.items()}
    return Tried(tuple(part.fits[0] for part in parts), predictions)


@dataclass(frozen=True, eq=False)
class Trials:
    """Models tried so far, each fitted once, and how their candidates are ranked."""

    bench: Workbench
    alpha: Level
    conditions: Conditions | None = None
    slices: Mapping[str, Any] | None = None  # of the tuning rows, as `slices_of` finds them
    tried: dict[str, Tried] = field(default_factory=dict)
    seen: dict[str, Candidate] = field(default_factory=dict)

    def rank(self, candidates: Sequence[Candidate]) -> Ranking:
        """Exact search over the candidates whose model does not fail; models that are new are
        fitted first.
        """
        self.seen.update({c.name: c for c in candidates})
        tried = [(c, self.tried.get(c.model_name)) for c in candidates]
        new = {
            c.model_name
            for c, own in tried
            if own is None or (own.failure is None and c.record_type not in own.predictions)
        }
        if new:  # for another kind of record a model is fitted again, for all of them
            self.tried.update(
                try_models([c for c in self.seen.values() if c.model_name in new], self.bench)
            )
        known = [(c, self.tried[c.model_name]) for c in candidates]
        found = {
            c.name: (c.score, own.predictions[c.record_type]) for c, own in known if not own.failure
        }
        if not found:  # told once per model, not once per score
            reasons = "; ".join(dict.fromkeys(f"{c.model_name}: {own.failure}" for c, own in known))
            shape = f"n_samples={len(self.bench.train)}, n_features={self.bench.train.X.shape[1]}"
            raise ValueError(
                f"Every candidate failed on the training and tuning rows ({shape}). {reasons}"
            )
        rows, aim = self.bench.tuning_rows(), self.bench.choosing.objective
        rule = Rule.of(
            len(rows), self.alpha, groups=rows.clusters, slices=self.slices, objective=aim
        )
        return rank_pairs(found, rows.y, [rule], self.conditions)[0]

    def fold_by_fold(self, candidate: Candidate, report: Callable[[int, float], bool]) -> bool:
        """Try a new model, reporting the objective of its candidate after each fold; whether it was
        told to stop.
        """
        if self.bench.n_folds is None or candidate.model_name in self.tried:
            return False
        jobs, parts = _jobs([[candidate]], self.bench), list[Tried]()
        for step, job in enumerate(jobs):
            parts.append(_fit_and_predict(job))
            if parts[-1].failure is not None:
                break
            pair = candidate.score, parts[-1].predictions[candidate.record_type]
            y = self.bench.tuning_rows().y[job.predicted]
            rule = Rule.of(len(y), self.alpha, objective=self.bench.choosing.objective)
            if report(step, rank_pairs({candidate.name: pair}, y, [rule])[0].table[0].steering):
                return True
        self.tried[candidate.model_name] = _assemble(parts, jobs)
        return False

    def stability(
        self, candidates: Sequence[Candidate], ranking: Ranking, *, most: int = 10
    ) -> Stability | None:
        """How often the winner wins on halves of the tuning rows, against the best few, by the
        scores that are there.

        None where nothing was chosen, rows have conditions or belong together, or a size is a
        search for roots (mixtures).
        """
        rows, best = (
            self.bench.tuning_rows(),
            {row.name for row in ranking.table[:most] if row.feasible},
        )
        taken = [candidate for candidate in candidates if candidate.name in best]
        slow = any(candidate.record_type is GaussianMixtures for candidate in taken)
        if (
            slow
            or min(len(taken), len(rows)) < 2
            or self.conditions is not None
            or rows.clusters is not None
        ):
            return None
        pairs = {
            c.name: (c.score, self.tried[c.model_name].predictions[c.record_type]) for c in taken
        }
        # not the draws that dealt roles and clusters
        rng = np.random.default_rng([self.bench.seed, 3])
        aim, evaluated = self.bench.choosing.objective, evaluate_pairs(pairs, rows.y)[0]
        return split_stability(
            evaluated, alpha=self.alpha, rng=rng, objective=aim, slices=self.slices
        )


def fit_model(model: Any, rows: Rows) -> Any:
    """A fitted clone of the model, which copies the rows that it works in; a frozen model is used
    as it is.
    """
    if is_frozen(model):
        return model
    # each member takes the fit parameters under names of its own
    if isinstance(model, AveragedModel):
        return model.of_fitted([fit_model(member, rows) for member in model.members])
    from sklearn.base import clone

    fitted = clone(model)
    params = fitted.get_params() if hasattr(fitted, "get_params") else {}
    in_place = [
        key
        for key, value in params.items()
        if value is False and key.rpartition("__")[2] in ("copy", "copy_X")
    ]
    if in_place:  # other models, and its own refit, read these rows after it
        fitted.set_params(**dict.fromkeys(in_place, True))
    fitted.fit(rows.X, rows.y, **(route_params(fitted, rows.params) if rows.params else {}))
    return fitted


@dataclass(frozen=True, eq=False)
class Selection:
    """The outcome of a search: the ranking, the candidate that won, and its fit on the training
    rows.
    """

    ranking: Ranking
    winner: Candidate
    fitted: Any
    candidates: int
    training_rows_known: bool = True  # no candidate came fitted on rows unknown here
    stability: Stability | None = None
    # of the winner, where clusters of labels are learnt from them
    tuning_scores: Floats | None = None


def select(
    models: Mapping[str, Any] | Defaults,
    scores: Mapping[str, Score] | None,
    bench: Workbench,
    statement: Any,  # with `alpha` and `condition_on`
    notes: list[Note],
) -> Selection:
    """Try the candidates on training and tuning rows and keep the one that the objective puts
    first.
    """
    if bench.n_folds is not None and not bench.choosing.refit:
        raise ValueError(
            Message(
                "⟨tune_folds⟩ needs refit=True: no single model was fitted on "
                "all the rows that tuned."
            )
        )
    by_default = isinstance(models, Defaults)
    levelled = by_default and scores is None and bench.classes is None
    support, both = bench.choosing.support, bench.together
    y = np.concatenate([bench.train.y, bench.tune.y]) if both is None else both.y
    if isinstance(models, Defaults):
        models, scores = models.on(bench.train, scores, y, folds=bench.n_folds is not None)
    if support is not None:
        check_support(y, support)
    search, fitted_here = bench.choosing.strategy, not any(map(holds_frozen, models.values()))
    candidates = expand(models, scores, bench) if models else []
    if not len(bench.tuning_rows()):
        if statement.condition_on == LABEL_CLUSTERS:
            advice = "raise ⟨tune_size⟩, or use folds: ⟨tune_folds=5⟩."
            raise ValueError(Message(f"Clusters of labels are learnt on tuning rows: {advice}"))
        return _the_only(
            candidates, alpha=statement.alpha, searched=search is not None, known=fitted_here
        )
    conditions = (
        None
        if statement.condition_on is None
        else conditions_of(bench.tuning_rows(), statement.condition_on)
    )
    by = bench.choosing.objective.columns
    slices = (
        None if conditions is None and not by else slices_of(bench.tuning_rows(), by, conditions)
    )
    trials = Trials(bench, statement.alpha, conditions, slices)
    if search is not None:
        candidates = searched(search, candidates, trials)
    ranking = trials.rank(candidates)
    if by_default:
        candidates = with_average(candidates, trials.tried, ranking)
        candidates = with_levelled(candidates, trials) if levelled else candidates
        ranking = trials.rank(candidates)
    winner = next(candidate for candidate in candidates if candidate.name == ranking.table[0].name)
    one = len(ranking.table) < 2 or bench.choosing.objective.reads_sets
    stability = None if one else trials.stability(candidates, ranking)
    failed = [
        (c, reason)
        for c in candidates
        if (reason := trials.tried[c.model_name].failure) is not None
    ]
    lost = {c.model_name: reason for c, reason in failed} | {
        entry.name: entry.reason for entry in ranking.failed
    }
    notes += [failed_note(lost)] if lost else []
    ranking = replace(
        ranking,
        failed=(*(FailedCandidate(c.name, reason) for c, reason in failed), *ranking.failed),
    )
    tried = trials.tried[winner.model_name]
    pieces, threshold, tuned = (
        tried.predictions[winner.record_type],
        ranking.table[0].ranking_threshold,
        None,
    )
    if trials.conditions is None and ranking.table[0].feasible:
        target, alpha = bench.tuning_rows().y, float(as_rational(statement.alpha))
        covered, sizes = (
            pieces.observed(winner.score, target) <= threshold,
            pieces.sizes(winner.score, threshold),
        )
        if bench.classes is not None:
            notes += note_classes(target, covered, sizes)
        else:
            notes += note_one_width(covered, sizes, pieces.centres(), alpha=alpha)
            notes += (
                note_below_zero(winner.score, pieces.records, threshold)
                if support is None and y.min() >= 0
                else []
            )
    elif statement.condition_on == LABEL_CLUSTERS:
        tuned = pieces.observed(winner.score, bench.tuning_rows().y)
    fitted = tried.fits[0] if len(tried.fits) == 1 else None
    known = fitted_here and (search is None or not holds_frozen(winner.model))
    return Selection(ranking, winner, fitted, len(candidates), known, stability, tuned)


def _the_only(
    candidates: Sequence[Candidate], *, alpha: Level, searched: bool, known: bool
) -> Selection:
    """Without tuning rows there is nothing to choose by, so there must be nothing to choose
    from.
    """
    if searched or len(candidates) != 1:
        names = ", ".join(candidate.name for candidate in candidates[:3]) + (
            ", ..." if len(candidates) > 3 else ""
        )
        found = (
            "a search chooses by them"
            if searched
            else f"{len(candidates)} candidates are compared on them ({names})"
        )
        advice = (
            "raise ⟨tune_size⟩, tune by folds with ⟨tune_folds=5⟩, or bring one model and "
            "one score."
        )
        raise ValueError(Message(f"No row is left for tuning, but {found}: {advice}"))
    return Selection(Ranking((), (), float(as_rational(alpha)), 0), candidates[0], None, 1, known)


# ----------------------------------------------------------------------------------------------
# what the winner shows

_ERROR = 0.05  # the probability of a note where none is due
_LOW_CLASS = 0.7
_LOW_FIFTH = 0.1  # below the level
_SILENT = 0.01  # share of empty sets


def note_classes(y: AnyArray, covered: Bools, sizes: Floats) -> list[Note]:
    """Classes whose coverage is surely under 70 %, for all classes at once, and empty sets, each
    with what mends it.
    """
    names, codes = np.unique(y, return_inverse=True)
    hits, rows, low = _surely_below(codes, covered, _LOW_CLASS)
    notes, silent = list[Note](), float(np.mean(sizes == 0))
    if low.size:
        named = [
            f"{names[k]} ({100 * hits[k] / rows[k]:.0f} % of {counted(int(rows[k]), 'row')})"
            for k in low
        ]
        text = (
            f"On the tuning rows sets hold some classes far less often than the level says: "
            f"{first_few(named)}."
        )
        notes.append(
            Note(
                "low-classes",
                text,
                Message('⟨condition_on="label"⟩ gives each class a threshold of its own.'),
            )
        )
    if silent >= _SILENT:
        text = (
            f"{100 * silent:.1f} % of the sets of the tuning rows are empty: they say nothing "
            f"about their rows."
        )
        remedy = "Leave ⟨scores⟩ out, or wrap the score: dco.scores.NeverEmpty(score)."
        notes.append(Note("empty-sets", text, Message(remedy)))
    return notes


def note_one_width(covered: Bools, sizes: Floats, centres: Floats, *, alpha: float) -> list[Note]:
    """One width for all rows, although some fifth of the prediction is surely covered .1 less than
    the level.
    """
    if np.ptp(sizes) > 1e-9 * np.abs(sizes).max(initial=0.0):
        return []
    hits, rows, low = _surely_below(fifths(centres), covered, 1 - alpha - _LOW_FIFTH)
    if not low.size:
        return []
    worst = low[np.argmin(hits[low] / rows[low])]
    text = (
        f"All intervals have the same width, but errors differ in size: on the tuning rows, fifth "
        f"{worst + 1} of the "
        f"prediction is covered {100 * hits[worst] / rows[worst]:.0f} % of the time."
    )
    remedy = Message(
        "Add models whose widths follow the row (⟨models=dco.models.QuantilePair(model)⟩, "
        "⟨models=dco.models.ResidualSpread(model)⟩), and choose with ⟨objective=even⟩."
    )
    return [Note("one-width", text, remedy)]


def _surely_below(codes: Integers, covered: Bools, level: float) -> tuple[Floats, Floats, Integers]:
    """Covered rows and rows of each slice, and the slices whose upper bounds, valid for all at
    once, are below `level`.
    """
    rows, hits = (
        np.bincount(codes).astype(np.float64),
        np.bincount(codes, covered).astype(np.float64),
    )
    bounds = clopper_pearson_upper(hits, rows, _ERROR / rows.size)
    return hits, rows, np.flatnonzero((rows > 0) & (bounds < level))
