"""From models and scores to one chosen candidate, by training and tuning rows alone.

Each distinct model is fitted once, and predicts the tuning rows once for each kind of record, however many scores are tried.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass, replace
from functools import cached_property
from itertools import chain, count
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import ArrayLike

from dco.foundations.arrays import AnyArray, Floats, Integers
from dco.foundations.errors import IncompatibleScoreError
from dco.foundations.notes import Message, Note
from dco.foundations.parallel import run_many
from dco.foundations.ranks import Level, Threshold, as_rational
from dco.models.adapt import CLASS_RECORDS, holds_frozen, is_frozen, last_model, predict_record, records_of
from dco.models.averaged import AveragedModel
from dco.predictions import ClassDraws, ClassProbabilities, GaussianMixtures, Points, PointsWithSpread, Prediction, Quantiles
from dco.rows.conditions import condition_values, is_label
from dco.rows.fingerprints import row_uniforms
from dco.rows.objects import object_fingerprint
from dco.rows.roles import Growth, folds
from dco.rows.rows import Rows
from dco.scores import (
    APS,
    LAC,
    RAPS,
    SAPS,
    AbsoluteResidual,
    AddOneIn,
    HighestDensityMass,
    Margin,
    NormalisedResidual,
    PosteriorNLL,
    PredictiveDensity,
    QuantileResidual,
    TopK,
)
from dco.scores.score import Cutoff, Score
from dco.tuning import Ranking, tune
from dco.tuning.allocation import grow_tuning_split
from dco.tuning.candidates import FailedCandidate, check_inverse, set_sizes
from dco.tuning.strategies import Strategy

# What `scores=None` tries on a record: every score that suits it, with the parameters that its authors propose.
DEFAULT_SCORES: dict[type, tuple[Score, ...]] = {
    ClassProbabilities: (
        LAC(),
        APS(),
        RAPS(penalty=0.01, rank_free=1),
        RAPS(penalty=0.1, rank_free=1),
        SAPS(weight=0.1),
        TopK(),
        Margin(),
    ),
    ClassDraws: (PosteriorNLL(), AddOneIn(), APS(), RAPS(penalty=0.01, rank_free=1), RAPS(penalty=0.1, rank_free=1)),
    Points: (AbsoluteResidual(),),
    PointsWithSpread: (AbsoluteResidual(), NormalisedResidual()),
    Quantiles: (QuantileResidual(), QuantileResidual(kind="relative"), QuantileResidual(kind="median")),
    GaussianMixtures: (PredictiveDensity(), HighestDensityMass()),
}


@dataclass(frozen=True, eq=False)
class Candidate:
    """One structure of the paper's class Phi: a model and a score, and the record through which they meet."""

    model_name: str
    score_name: str
    model: Any
    score: Score
    kind: type

    @property
    def name(self) -> str:
        """As rankings show it."""
        return f"{self.model_name} / {self.score_name}"


@dataclass(frozen=True, eq=False)
class PiecedPrediction:
    """Predictions of the tuning rows by several models, each for its own rows (folds)."""

    records: tuple[Prediction, ...]
    rows: tuple[Integers, ...]
    classes: AnyArray | None = None

    def __len__(self) -> int:
        return sum(len(rows) for rows in self.rows)

    @property
    def n_classes(self) -> int:
        """How many labels there are in any role or model."""
        return 0 if self.classes is None else len(self.classes)

    def labels(self) -> AnyArray | None:
        """All labels, ascending."""
        return self.classes

    def codes(self, y: ArrayLike) -> Integers:
        """Each label's place among all labels."""
        return np.searchsorted(self.classes, np.asarray(y)) if self.classes is not None else np.asarray(y)

    def in_order_of(self, record: Any, by_label: Floats) -> Floats:
        """Thresholds a label (1, K), in the order in which one fold's record lists its labels."""
        return by_label[:, self.codes(record.labels())]


@dataclass(frozen=True)
class PiecedScore:
    """A score read piece by piece, so that folds with models of their own rank as one tuning split."""

    score: Score
    needs: ClassVar[tuple[type, ...]] = (PiecedPrediction,)

    def observed(self, prediction: PiecedPrediction, y: ArrayLike) -> Floats:
        """The score of the label that happened, row by row."""
        labels, result = np.asarray(y), np.empty(len(prediction))
        for record, rows in zip(prediction.records, prediction.rows, strict=True):
            result[rows] = self.score.observed(record, labels[rows])
        return result

    def check_inverse(self, prediction: PiecedPrediction, y: ArrayLike, scores: Floats) -> None:
        """Compare sets with scores, piece by piece."""
        labels = np.asarray(y)
        for record, rows in zip(prediction.records, prediction.rows, strict=True):
            check_inverse(self.score, record, labels[rows], scores[rows])

    def sizes(self, prediction: PiecedPrediction, threshold: Cutoff) -> Floats:
        """The size of each row's set."""
        result = np.empty(len(prediction))
        values = np.asarray(float(threshold) if isinstance(threshold, Threshold) else threshold)
        for record, rows in zip(prediction.records, prediction.rows, strict=True):
            if values.ndim == 0:
                own: float | Floats = float(values)
            elif values.ndim == 2 and values.shape[0] == 1:
                own = prediction.in_order_of(record, values)
            else:
                own = values[rows]
            result[rows] = set_sizes(self.score, record, own)
        return result

    def sets(self, prediction: PiecedPrediction, threshold: Cutoff) -> Any:
        """Not offered: the pieces only rank candidates."""
        raise TypeError("Predictions by folds rank candidates; they make no prediction sets.")


@dataclass(frozen=True, eq=False)
class Choosing:
    """How one structure is chosen and fitted, and by how many processes."""

    strategy: Strategy | None = None  # None: every candidate is tried
    ensemble: bool = False
    refit: bool = True
    n_jobs: int | None = None
    scheduler: str | None = None


@dataclass(frozen=True, eq=False)
class Workbench:
    """Training and tuning rows, and all that a search may look at."""

    train: Rows
    tune: Rows
    n_folds: int | None
    classes: AnyArray | None
    seed: int
    choosing: Choosing = Choosing()
    prefitted: Mapping[str, Any] = field(default_factory=dict)  # models that growing the tuning split has fitted already

    @cached_property
    def uniform_seed(self) -> int:
        """The seed of randomised scores."""
        return int(np.random.SeedSequence(self.seed).generate_state(2)[0])

    @cached_property
    def fold_seed(self) -> int:
        """The seed of the folds."""
        return int(np.random.SeedSequence(self.seed).generate_state(2)[1])

    def conditions(self, condition_on: Any) -> AnyArray | str | None:
        """The condition of each tuning row as a number, or "label": a search need not know what they are called."""
        if condition_on is None or is_label(condition_on) or not len(self.tuning_rows()):
            return "label" if is_label(condition_on) else None
        names: Any = condition_values(condition_on, self.tuning_rows().X, None)
        seen: dict[Any, int] = {}
        return np.asarray([seen.setdefault(name, len(seen)) for name in names.tolist()], dtype=np.int64)

    def pieces(self) -> list[tuple[Rows, Integers]]:
        """(rows to fit on, places of the tuning rows to predict), one pair, or one a fold."""
        if self.n_folds is None:
            return [(self.train, np.arange(len(self.tune)))]
        pool = self.tuning_rows()
        parts = folds(len(pool), self.n_folds, groups=pool.clusters, seed=self.fold_seed)
        return [(pool.take(fit_on), held_out) for fit_on, held_out in parts]

    def tuning_rows(self) -> Rows:
        """The rows on which candidates are ranked: the tuning split, or with folds everything but calibration rows."""
        return self.tune if self.n_folds is None else self.fitting_rows()

    def fitting_rows(self) -> Rows:
        """The rows on which the winner is refitted: all but calibration rows."""
        return self.train.followed_by(self.tune) if len(self.tune) else self.train


@dataclass(frozen=True, eq=False)
class Tried:
    """A model after fitting: its fits (one, or one a fold) and its predictions of the tuning rows, or why it failed."""

    fits: tuple[Any, ...]
    predictions: Mapping[type, Any]
    failure: str | None = None


def suitable(model_name: str, model: Any, scores: Mapping[str, Score] | None) -> list[Candidate]:
    """The candidates of one model: every given score that it can feed, or the default scores of what it gives."""
    offered = records_of(model)
    if scores is None:
        pairs = named_scores(score for kind in offered for score in DEFAULT_SCORES.get(kind, ()))
        if Quantiles in offered and not getattr(last_model(model), "median", False):
            pairs = {name: score for name, score in pairs.items() if getattr(score, "kind", "") != "median"}
    else:
        pairs = dict(scores)
    found = []
    for score_name, score in pairs.items():
        kind = next((kind for kind in score.needs if kind in offered), None)
        if kind is not None:
            found.append(Candidate(model_name, score_name, model, score, kind))
    return found


def expand(models: Mapping[str, Any], scores: Mapping[str, Score] | None) -> list[Candidate]:
    """Candidates = models x scores; a model or a score that is left without a partner is an error naming both sides."""
    found = {name: suitable(name, model, scores) for name, model in models.items()}
    for name, own in found.items():
        if not own:
            offered = records_of(models[name])
            given = ", ".join(kind.__name__ for kind in offered) or "nothing that a score can read"
            tried = ", ".join(scores or ()) or "the default scores"
            raise IncompatibleScoreError(
                f"No score suits the model {name!r}: it gives {given}; tried {tried}."
                + _sources((scores or {}).values(), offered)
            )
    used = {candidate.score_name for own in found.values() for candidate in own}
    for score_name, score in (scores or {}).items():
        if score_name not in used:
            needs = " or ".join(kind.__name__ for kind in score.needs)
            raise IncompatibleScoreError(
                f"The score {score_name} needs {needs}, which none of the models gives ({', '.join(models)})."
                + _sources([score], [kind for model in models.values() for kind in records_of(model)])
            )
    return [candidate for own in found.values() for candidate in own]


def _sources(scores: Iterable[Score], offered: Sequence[type]) -> str:
    """How a model that gives points comes to give what these scores read."""
    wanted = {kind for score in scores for kind in score.needs} if Points in offered else set()
    return "".join(f" {sentence}" for kind, sentence in _SOURCES.items() if kind in wanted)


_SOURCES: dict[type, str] = {
    PointsWithSpread: (
        "A spread comes from predict(X, return_std=True), from a predict_distribution annotated -> dco.PointsWithSpread, or "
        "from dco.models.ResidualSpread(model)."
    ),
    Quantiles: "Quantiles come from dco.models.QuantilePair(model).",
}


def named_scores(scores: Iterable[Score]) -> dict[str, Score]:
    """{name: score}: each by its label, numbered where different scores share one; equal scores are one."""
    taken: dict[str, Hashable] = {}
    return {_own_label(score, taken): score for score in scores}


def _own_label(score: Score, taken: dict[str, Hashable]) -> str:
    """The label, or the first numbered one that no other score has taken."""
    label, identity = score_label(score), _identity(score)
    names = chain([label], (f"{label}-{number}" for number in count(2)))
    return next(name for name in names if taken.setdefault(name, identity) == identity)


def _identity(thing: Any) -> Hashable:
    """Equal for equal things; one that cannot be written down is equal only to itself."""
    try:
        return object_fingerprint(thing)
    except TypeError:
        return id(thing)


def score_label(score: Score) -> str:
    """LAC, RAPS(penalty=0.1, rank_free=1): the class, with those parameters that are not at their default."""
    if isinstance(score, type):
        return score.__name__
    if is_dataclass(score):
        given = {entry.name: getattr(score, entry.name) for entry in fields(score) if _is_set(score, entry)}
    elif type(score).__repr__ is not object.__repr__:
        return repr(score)
    else:  # the default repr holds an address, which is another in every run
        given = getattr(score, "__dict__", {})
    shown = ", ".join(f"{name}={_shown(value)}" for name, value in given.items())
    return type(score).__name__ + (f"({shown})" if shown else "")


def _shown(value: Any, *, longest: int = 60) -> str:
    """The value, or its shape and a digest where it would fill the line (a matrix of losses) or show an address."""
    text = repr(value)
    if len(text) <= longest and " at 0x" not in text and not isinstance(value, np.ndarray):
        return text
    what = type(value).__name__ if callable(value) else " x ".join(map(str, np.shape(value))) or type(value).__name__
    return f"<{what} {object_fingerprint(value)[:8]}>"


def _is_set(score: Score, entry: Field[Any]) -> bool:
    return entry.default is MISSING or not np.array_equal(getattr(score, entry.name), entry.default)


def _check_task(candidates: Sequence[Candidate], bench: Workbench) -> None:
    """Classifiers for labels, regressors for numbers: a regressor of the codes 0 and 1 would give intervals of codes."""
    for candidate in candidates:
        if (candidate.kind in CLASS_RECORDS) != (bench.classes is not None):
            needed = "numbers: use DecoupledClassifier" if bench.classes is None else "labels: use DecoupledRegressor"
            raise IncompatibleScoreError(
                f"The model {candidate.model_name!r} gives {candidate.kind.__name__}, which does not predict {needed}, or "
                "bring another model."
            )


def try_models(models: Mapping[str, Any], candidates: Sequence[Candidate], bench: Workbench) -> dict[str, Tried]:
    """Fit every model and predict the tuning rows, in parallel; a model that raises is a failed one."""
    pieces = bench.pieces()
    jobs = {name: _jobs(name, model, candidates, bench, pieces) for name, model in models.items()}
    flat = [job for own in jobs.values() for job in own]
    outcomes = iter(run_many(_fit_and_predict, flat, n_jobs=bench.choosing.n_jobs, scheduler=bench.choosing.scheduler))
    return {name: _assemble([next(outcomes) for _ in own], pieces, bench) for name, own in jobs.items() if own}


def _config() -> dict[str, Any]:
    from sklearn import get_config

    return dict(get_config())


@dataclass(frozen=True, eq=False)
class Job:
    """A model to fit on some rows, unless `fitted` is there already, and to predict others, once for each kind of record.

    `config` is scikit-learn's where the job was made (metadata routing, the output of transformers): a worker has its own.
    """

    model: Any
    fit_rows: Rows
    predict_rows: Rows
    kinds: tuple[type, ...] = ()
    uniforms: Floats | None = None
    classes: AnyArray | None = None
    fitted: Any = None
    config: Mapping[str, Any] = field(default_factory=_config)


@dataclass(frozen=True, eq=False)
class Outcome:
    """What became of a job: the fitted model and its predictions, or why there are none."""

    fitted: Any = None
    records: Mapping[type, Prediction] = field(default_factory=dict)
    failure: str | None = None


def _jobs(
    name: str, model: Any, candidates: Sequence[Candidate], bench: Workbench, pieces: list[tuple[Rows, Integers]]
) -> list[Job]:
    """What is to be done for one model: a fit and its predictions for each piece, nothing if no candidate has the model."""
    own = [candidate for candidate in candidates if candidate.model_name == name]
    if not own:
        return []
    tuning, kinds = bench.tuning_rows(), tuple({candidate.kind: None for candidate in own})
    randomised = any(getattr(candidate.score, "randomised", False) for candidate in own)
    uniforms = row_uniforms(tuning.X, seed=bench.uniform_seed) if randomised else None
    return [
        Job(
            model,
            fit_rows,
            tuning.take(places),
            kinds=kinds,
            uniforms=None if uniforms is None else uniforms[places],
            classes=bench.classes,
            fitted=bench.prefitted.get(name),
        )
        for fit_rows, places in pieces
    ]


def _fit_and_predict(job: Job) -> Outcome:
    from sklearn import config_context

    try:
        with config_context(**job.config):
            fitted = fit_model(job.model, job.fit_rows) if job.fitted is None else job.fitted
            records = {
                kind: predicted(fitted, job.predict_rows.X, kind, uniforms=job.uniforms, classes=job.classes)
                for kind in job.kinds
            }
    except Exception as error:  # whatever a user's model raises: that candidate is reported and left out
        return Outcome(failure=f"{type(error).__name__}: {error}")
    return Outcome(fitted, records)


def try_fold_by_fold(
    candidate: Candidate, bench: Workbench, *, alpha: Level, report: Callable[[int, float], bool]
) -> Tried | None:
    """Like `try_models` for one candidate, reporting its mean size after each fold; None if it was told to stop."""
    pieces = bench.pieces()
    jobs = _jobs(candidate.model_name, candidate.model, [candidate], bench, pieces)
    outcomes: list[Outcome] = []
    for step, job in enumerate(jobs):
        outcome = _fit_and_predict(job)
        outcomes.append(outcome)
        if outcome.failure is not None:
            break
        pair = candidate.score, outcome.records[candidate.kind]
        if report(step, tune({candidate.name: pair}, job.predict_rows.y, alpha=alpha).table[0].mean_size):
            return None
    return _assemble(outcomes, pieces, bench)


def _assemble(outcomes: list[Outcome], pieces: list[tuple[Rows, Integers]], bench: Workbench) -> Tried:
    failure = next((outcome.failure for outcome in outcomes if outcome.failure is not None), None)
    if failure is not None:
        return Tried((), {}, failure)
    fits = tuple(outcome.fitted for outcome in outcomes)
    if len(outcomes) == 1:
        return Tried(fits, outcomes[0].records)
    places = tuple(held_out for _, held_out in pieces)
    pieced = {}
    for kind in outcomes[0].records:
        records: tuple[Any, ...] = tuple(outcome.records[kind] for outcome in outcomes)
        # a frozen model may know more labels than the rows hold
        classes = None if bench.classes is None else np.unique(np.concatenate([record.labels() for record in records]))
        pieced[kind] = PiecedPrediction(records, places, classes)
    return Tried(fits, pieced)


def predicted(fitted: Any, X: Any, kind: type, *, uniforms: Floats | None, classes: AnyArray | None) -> Prediction:
    """The record of one kind; labels in `classes` that the model does not know become its `unseen` labels."""
    unseen = None
    if classes is not None:
        known = getattr(fitted, "classes_", classes)
        unseen = np.setdiff1d(classes, known)
    return predict_record(fitted, X, kind, uniforms=uniforms, unseen=unseen)


def fit_model(model: Any, rows: Rows) -> Any:
    """A fitted clone of the model, which copies the rows that it works in; a frozen model is used as it is."""
    if is_frozen(model):
        return model
    if isinstance(model, AveragedModel):  # each member takes the fit parameters under names of its own
        return model.of_fitted([fit_model(member, rows) for member in model.members])
    from sklearn.base import clone

    fitted = clone(model)
    params = fitted.get_params() if hasattr(fitted, "get_params") else {}
    in_place = [key for key, value in params.items() if value is False and key.rpartition("__")[2] in ("copy", "copy_X")]
    if in_place:  # other models, and its own refit, read these rows after it
        fitted.set_params(**dict.fromkeys(in_place, True))
    fitted.fit(rows.X, rows.y, **routed(fitted, rows.params))
    return fitted


def routed(model: Any, params: Mapping[str, Any]) -> dict[str, Any]:
    """Fit parameters under the names that this model takes; one that it cannot take is an error naming both."""
    from sklearn import get_config

    if not params:
        return {}
    if get_config().get("enable_metadata_routing"):
        from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping

        # a parameter that the model could take but neither asked for nor declined is scikit-learn's error, never dropped
        router = MetadataRouter(owner=type(model).__name__)
        router.add(model=model, method_mapping=MethodMapping().add(caller="fit", callee="fit"))
        return dict(router.route_params(caller="fit", params=dict(params))["model"]["fit"])
    return {_routed_name(model, name): value for name, value in params.items()}


def _routed_name(model: Any, name: str) -> str:
    if hasattr(model, "steps"):  # a Pipeline: `step__name` as it is, a plain name to its last step
        if "__" in name:
            return name
        last, final = model.steps[-1]
        return f"{last}__{_routed_name(final, name)}"
    accepted = inspect.signature(model.fit).parameters
    if name not in accepted and not any(p.kind is p.VAR_KEYWORD for p in accepted.values()):
        raise TypeError(f"{type(model).__name__}.fit takes no {name!r}")
    return name


class Aim(Protocol):
    """What a search asks of a statement."""

    @property
    def alpha(self) -> Level:
        """The miscoverage that sets are compared at."""
        ...

    @property
    def condition_on(self) -> Any:
        """What names the condition of a row, or None."""
        ...


def grow_tuning_rows(
    models: Mapping[str, Any], scores: Mapping[str, Score] | None, bench: Workbench, statement: Any
) -> Callable[[Growth], tuple[Integers, Integers, Mapping[str, Any]]]:
    """How `deal_roles` grows a tuning split: models fitted on training rows, then rows taken until the choice settles."""

    def grow(growth: Growth) -> tuple[Integers, Integers, Mapping[str, Any]]:
        if bench.choosing.strategy is not None or statement.condition_on is not None:
            raise ValueError(Message("⟨tune_size=auto⟩ works with the exhaustive search and without ⟨condition_on⟩."))
        rows = growth.rows
        grown = replace(bench, train=rows.take(growth.train), tune=rows.take(growth.tune))
        look, prefitted = growing_candidates(models, scores, grown, rows)
        delta = statement.delta if statement.rule.needs_delta else None
        allocation = grow_tuning_split(
            growth.order,
            look,
            alpha=statement.alpha,
            delta=delta,
            calibrate_size=growth.least,
            seed=bench.seed,
            groups=rows.clusters,
        )
        return allocation.tune, allocation.calibrate, prefitted

    return grow


def growing_candidates(
    models: Mapping[str, Any], scores: Mapping[str, Score] | None, bench: Workbench, rows: Rows
) -> tuple[Callable[[Integers], tuple[dict[str, tuple[Any, Any]], AnyArray]], dict[str, Any]]:
    """For a tuning split that grows: models fitted once on training rows, and their candidates on any rows taken so far."""
    candidates = expand(models, scores)
    jobs = [Job(model, bench.train, bench.train) for model in models.values()]  # nothing to predict yet
    outcomes = dict(
        zip(
            models,
            run_many(_fit_and_predict, jobs, n_jobs=bench.choosing.n_jobs, scheduler=bench.choosing.scheduler),
            strict=True,
        )
    )
    fitted = {name: outcome.fitted for name, outcome in outcomes.items() if outcome.failure is None}

    def look(taken: Integers) -> tuple[dict[str, tuple[Any, Any]], AnyArray]:
        part = rows.take(taken)
        now = replace(bench, tune=part, n_folds=None, prefitted=fitted)
        tried = try_models({name: models[name] for name in fitted}, [c for c in candidates if c.model_name in fitted], now)
        table = {c.name: (c.score, tried[c.model_name].predictions[c.kind]) for c in candidates if _worked(tried, c)}
        if not table:
            reasons = {name: outcome.failure for name, outcome in outcomes.items() if outcome.failure is not None}
            reasons |= {name: str(found.failure) for name, found in tried.items()}
            raise ValueError(
                "Every candidate failed on the training and tuning rows: "
                + "; ".join(f"{name}: {text}" for name, text in reasons.items())
            )
        return table, part.y

    return look, fitted


def _worked(tried: Mapping[str, Tried], candidate: Candidate) -> bool:
    return candidate.model_name in tried and tried[candidate.model_name].failure is None


@dataclass(frozen=True, eq=False)
class Selection:
    """The outcome of a search: the ranking, the candidate that won, and its fit on the training rows."""

    ranking: Ranking
    winner: Candidate
    fitted: Any
    candidates: int
    failures: Mapping[str, str]
    training_rows_known: bool = True  # no candidate came fitted on rows unknown here


def rank_candidates(
    candidates: Sequence[Candidate],
    tried: Mapping[str, Tried],
    bench: Workbench,
    *,
    alpha: Level,
    conditions: AnyArray | str | None,
) -> Ranking:
    """Exact search over the candidates whose model did not fail."""
    table: dict[str, tuple[Any, Any]] = {}
    for candidate in candidates:
        outcome = tried[candidate.model_name]
        if outcome.failure is None:
            prediction = outcome.predictions[candidate.kind]
            pieced = isinstance(prediction, PiecedPrediction)
            table[candidate.name] = (PiecedScore(candidate.score) if pieced else candidate.score, prediction)
    if not table:
        lost = {c.model_name: tried[c.model_name].failure for c in candidates}  # once a model, not once a score
        reasons = "; ".join(f"{name}: {reason}" for name, reason in lost.items())
        shape = f"n_samples={len(bench.train)}, n_features={bench.train.X.shape[1]}"
        raise ValueError(f"Every candidate failed on the training and tuning rows ({shape}). {reasons}")
    rows = bench.tuning_rows()
    return tune(table, rows.y, alpha=alpha, conditions=conditions, groups=rows.clusters)


def select(
    models: Mapping[str, Any],
    scores: Mapping[str, Score] | None,
    bench: Workbench,
    statement: Aim,
    notes: list[Note],
) -> Selection:
    """Try the candidates on training and tuning rows and keep the one with the smallest sets."""
    alpha, conditions = statement.alpha, bench.conditions(statement.condition_on)
    search, ensemble = bench.choosing.strategy, bench.choosing.ensemble
    candidates = expand(models, scores) if models else []
    _check_task(candidates, bench)
    if not len(bench.tuning_rows()):
        only = _the_only(candidates, alpha=alpha, searched=search is not None)
        return replace(only, training_rows_known=_rows_known(models, only.winner))
    if search is None:
        tried = try_models(models, candidates, bench)
    else:
        candidates, tried = _searched(search, candidates, bench, alpha=alpha, conditions=conditions)
        _check_task(candidates, bench)
    ranking = rank_candidates(candidates, tried, bench, alpha=alpha, conditions=conditions)
    if ensemble:
        candidates, tried = _with_ensemble(candidates, tried, ranking)
        ranking = rank_candidates(candidates, tried, bench, alpha=alpha, conditions=conditions)
    failures = {c.name: str(tried[c.model_name].failure) for c in candidates if tried[c.model_name].failure is not None}
    lost = {c.model_name: str(tried[c.model_name].failure) for c in candidates if c.name in failures}
    lost |= {entry.name: entry.reason for entry in ranking.failed}
    ranking = replace(ranking, failed=(*(FailedCandidate(*item) for item in failures.items()), *ranking.failed))
    failures |= {entry.name: entry.reason for entry in ranking.failed}
    if lost:
        notes.append(failed_note(lost))
    winner = next(candidate for candidate in candidates if candidate.name == ranking.best)
    fits = tried[winner.model_name].fits
    return Selection(
        ranking, winner, fits[0] if len(fits) == 1 else None, len(candidates), failures, _rows_known(models, winner)
    )


def _rows_known(models: Mapping[str, Any], winner: Candidate) -> bool:
    """Whether every model was fitted here, the winner of a search too."""
    return not any(map(holds_frozen, (*models.values(), winner.model)))


def _the_only(candidates: Sequence[Candidate], *, alpha: Level, searched: bool) -> Selection:
    """Without tuning rows there is nothing to choose by, so there must be nothing to choose from."""
    if searched or len(candidates) != 1:
        names = ", ".join(candidate.name for candidate in candidates[:3]) + (", ..." if len(candidates) > 3 else "")
        found = (
            "a search chooses by tuning rows" if searched else f"{len(candidates)} candidates are compared on them ({names})"
        )
        raise ValueError(
            Message(
                f"No row is left for tuning, but {found}: raise ⟨tune_size⟩, tune by folds with ⟨tune_folds=5⟩, or bring "
                "one model and one score."
            )
        )
    return Selection(Ranking((), (), float(as_rational(alpha)), 0), candidates[0], None, 1, {})


def failed_note(lost: Mapping[str, str], *, most: int = 5) -> Note:
    """Which models (or candidates, where only a score failed) were left out of the comparison, and why."""
    shown = [f"{name} ({reason.splitlines()[0]})" for name, reason in list(lost.items())[:most]]
    more = f"; and {len(lost) - most} more, see ranking_.failed" if len(lost) > most else ""
    text = f"{len(lost)} failed on the training and tuning rows and took no part in the comparison"
    return Note("failed-candidates", f"{text}: {'; '.join(shown)}{more}.")


def _searched(
    search: Strategy, listed: Sequence[Candidate], bench: Workbench, *, alpha: Level, conditions: AnyArray | str | None
) -> tuple[list[Candidate], dict[str, Tried]]:
    """Let a strategy propose models and scores; each proposal is judged on the tuning rows, each model fitted once."""
    candidates: list[Candidate] = []
    tried: dict[str, Tried] = {}
    known = {(id(candidate.model), _identity(candidate.score)): candidate for candidate in listed}
    names: dict[Hashable, tuple[str, Any]] = {}  # the models are kept, so that no later one gets the id of one that is gone
    labels: dict[str, Hashable] = {}
    kept: list[Score] = []  # for the same reason

    def proposed(model: Any, score: Score) -> Candidate:
        candidate = known.get((id(model), _identity(score)))
        if candidate is None:
            name, _ = names.setdefault(_model_identity(model), (f"trial {len(names)}", model))
            kept.append(score)
            found = suitable(f"{name}: {type(model).__name__}", model, {_own_label(score, labels): score})
            if not found:
                raise IncompatibleScoreError(f"The score {score_label(score)} does not suit {type(model).__name__}.")
            candidate = found[0]
        return candidate

    def evaluate(model: Any, score: Score, report: Callable[[int, float], bool] | None = None) -> float:
        new = proposed(model, score)
        if report is not None and bench.n_folds is not None and new.model_name not in tried:
            outcome = try_fold_by_fold(new, bench, alpha=alpha, report=report)
            if outcome is None:
                return math.inf  # pruned: it is no candidate
            tried[new.model_name] = outcome
        if all(candidate.name != new.name for candidate in candidates):
            candidates.append(new)
        own = [candidate for candidate in candidates if candidate.model_name == new.model_name]
        if new.model_name not in tried or new.kind not in tried[new.model_name].predictions:
            tried.update(try_models({new.model_name: model}, own, bench))
        failure = tried[new.model_name].failure
        if failure is not None:
            raise ValueError(failure)
        ranking = rank_candidates([new], tried, bench, alpha=alpha, conditions=conditions)
        return float(ranking.table[0].mean_size)

    found = search.search(evaluate, [(candidate.model, candidate.score) for candidate in listed])
    if not candidates:
        raise ValueError(
            "The search proposed no candidate that could be tried. " + "; ".join(t.reason for t in found.trials)
        )
    return candidates, tried


def _model_identity(model: Any) -> Hashable:
    """Equal for models that are fitted alike: one class, the same parameters to the last entry of each array."""
    try:
        return type(model), object_fingerprint(model.get_params(deep=False))
    except TypeError:  # a parameter that cannot be written down: then only the object itself is the same model
        return type(model), id(model)


def _with_ensemble(
    candidates: list[Candidate], tried: dict[str, Tried], ranking: Ranking, members: int = 3
) -> tuple[list[Candidate], dict[str, Tried]]:
    """Add the average of the best few distinct models that give the winner's kind of record, with each of its scores."""
    by_name = {candidate.name: candidate for candidate in candidates}
    best = by_name[ranking.best]
    same_kind = [by_name[row.name] for row in ranking.table if by_name[row.name].kind is best.kind]
    model_of = {candidate.model_name: candidate.model for candidate in same_kind}  # by the best candidate of each
    chosen = list(model_of)[:members]
    if len(chosen) < 2:
        return candidates, tried
    model = AveragedModel([model_of[name] for name in chosen])
    name = "average of " + ", ".join(chosen)
    try:
        tried = {**tried, name: _averaged(model, [tried[member] for member in chosen], best.kind)}
    except ValueError as error:  # frozen models may know different classes: then their average is a failed candidate
        tried = {**tried, name: Tried((), {}, f"{type(error).__name__}: {error}")}
    scores = {candidate.score_name: candidate.score for candidate in same_kind}
    new = [Candidate(name, score_name, model, score, best.kind) for score_name, score in scores.items()]
    return candidates + new, tried


def _averaged(model: AveragedModel, members: Sequence[Tried], kind: type) -> Tried:
    """The average of models that were tried, piece by piece where they were tried on folds."""
    fits = tuple(model.of_fitted(list(of_piece)) for of_piece in zip(*(member.fits for member in members), strict=True))
    records = [member.predictions[kind] for member in members]
    if not isinstance(records[0], PiecedPrediction):
        return Tried(fits, {kind: AveragedModel.average(records)})
    pieces = zip(*(record.records for record in records), strict=True)
    averages = tuple(AveragedModel.average(list(piece)) for piece in pieces)
    return Tried(fits, {kind: PiecedPrediction(averages, records[0].rows, records[0].classes)})
