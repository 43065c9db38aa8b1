"""Fit the models of a search, each once, and predict the tuning rows with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

from dco.foundations.arrays import AnyArray, Floats
from dco.foundations.fingerprints import row_uniforms
from dco.foundations.parallel import run_many
from dco.foundations.progress import SearchProgress, report_search
from dco.models.fitting import fit_model
from dco.models.records import predict_record
from dco.predictions import Prediction
from dco.rows.rows import Rows
from dco.structure import Candidate
from dco.tuning.evaluated import TuningPredictions
from dco.tuning.resampling import Part, Resampling, uniform_seed


@dataclass(frozen=True, eq=False)
class FittedModel:
    """A model of the search after it was fitted.

    `models` holds the fitted model, or with folds one for each fold. `predictions` are those of the
    tuning rows, by type of record.
    """

    models: tuple[Any, ...]
    predictions: Mapping[type, TuningPredictions]


@dataclass(frozen=True)
class FailedFit:
    """Why a model could not be fitted, or could not predict."""

    reason: str


FitResult: TypeAlias = FittedModel | FailedFit


@dataclass(frozen=True)
class Request:
    """A model, and what it must predict for the scores that are tried with it.

    `record_types` are the types of predictions that the scores read. Randomised scores also need
    a uniform random number for each row (`with_uniforms`).
    """

    model: Any = field(compare=False)
    record_types: tuple[type, ...] = ()
    with_uniforms: bool = False

    def including(self, candidate: Candidate) -> Request:
        """Return a request that also asks for what one more candidate of the model needs."""
        record_types = self.record_types
        if candidate.record_type not in record_types:
            record_types = (*record_types, candidate.record_type)
        return Request(
            model=self.model,
            record_types=record_types,
            with_uniforms=self.with_uniforms or candidate.score.randomised,
        )


@dataclass(frozen=True, eq=False)
class Task:
    """A model to fit on one part of the rows, such as one fold."""

    request: Request
    part: Part
    tuning_rows: Rows
    uniforms: Floats | None  # of the tuning rows; None if no score is randomised
    classes: AnyArray | None  # None for numbers


@dataclass(frozen=True, eq=False)
class FittedPart:
    """A model fitted on one part of the rows, and its predictions of the rows held out for it."""

    model: Any
    records: Mapping[type, Prediction]  # by type of record


@dataclass(eq=False)
class ModelFits:
    """The models of a search, by name. Each is fitted once, however many scores are tried with it.

    `results` holds what became of each model, and `requests` what it was asked to predict.
    """

    resampling: Resampling
    classes: AnyArray | None  # labels of training and tuning rows, None for numbers
    seed: int
    n_jobs: int | None = None
    results: dict[str, FitResult] = field(default_factory=dict)
    requests: dict[str, Request] = field(default_factory=dict)

    def fit(self, candidates: Sequence[Candidate]) -> None:
        """Fit the models of the candidates, in parallel, if they have not been fitted before.

        A model is fitted again if a candidate needs a type of prediction that it has not made yet.
        """
        new_requests = self._new_requests(candidates)
        if not new_requests:
            return
        self.requests.update(new_requests)

        # 1. List the tasks: the first model on each part of the rows, then the next model.
        parts = self.resampling.parts()
        tasks: list[Task] = []
        model_names: list[str] = []  # of the tasks
        for name, request in new_requests.items():
            tasks += self._make_tasks(request, parts)
            model_names += [name] * len(parts)

        # 2. Run them, and sort the results by model.
        fitted_parts = self._run(tasks, model_names, n_candidates=len(candidates))
        parts_of_model: dict[str, list[FittedPart | FailedFit]] = {}
        for name, fitted_part in zip(model_names, fitted_parts, strict=True):
            parts_of_model.setdefault(name, []).append(fitted_part)

        # 3. Join the parts of each model.
        for name, fitted_parts_of_model in parts_of_model.items():
            self.results[name] = join_parts(fitted_parts_of_model, parts)

    def fit_part_by_part(self, candidate: Candidate) -> Iterator[tuple[Part, FittedPart]]:
        """Fit the model of a new candidate on one part after the other, and yield each.

        The first failure ends it. The model is recorded as fitted (or failed) at the end only: if
        the caller stops before, it counts as new, as if nothing had happened.
        """
        request = Request(candidate.model).including(candidate)
        parts = self.resampling.parts()
        fitted_parts: list[FittedPart | FailedFit] = []
        for task in self._make_tasks(request, parts):
            fitted_part = fit_part(task)
            fitted_parts.append(fitted_part)
            if isinstance(fitted_part, FailedFit):
                break
            yield task.part, fitted_part

        self.requests[candidate.model_name] = request
        self.results[candidate.model_name] = join_parts(fitted_parts, parts)

    def add(self, model_name: str, model: Any, fitted: FittedModel) -> None:
        """Add a model made of others that were fitted here. It is not fitted by itself."""
        self.requests[model_name] = Request(
            model,
            record_types=tuple(fitted.predictions),
            with_uniforms=True,  # its predictions have those of its members
        )
        self.results[model_name] = fitted

    def fitted(self, model_name: str) -> FittedModel:
        """Return a model that was fitted, and did not fail."""
        result = self.results[model_name]
        assert isinstance(result, FittedModel), result
        return result

    def _new_requests(self, candidates: Sequence[Candidate]) -> dict[str, Request]:
        """Return what models still have to predict for these candidates, by name of the model.

        Models that already predict all that is needed are left out, and so are those that failed.
        """
        new_requests: dict[str, Request] = {}
        for candidate in candidates:
            name = candidate.model_name
            if isinstance(self.results.get(name), FailedFit):
                continue
            earlier_request = self.requests.get(name, Request(candidate.model))
            request = new_requests.get(name, earlier_request).including(candidate)
            if request != earlier_request:
                new_requests[name] = request
        return new_requests

    def _make_tasks(self, request: Request, parts: Sequence[Part]) -> list[Task]:
        """Make one task for each part of the rows."""
        rows = self.resampling.tuning_rows
        uniforms = None
        if request.with_uniforms:
            uniforms = row_uniforms(rows.X, seed=uniform_seed(self.seed))
        return [Task(request, part, rows, uniforms, self.classes) for part in parts]

    def _run(
        self, tasks: Sequence[Task], model_names: Sequence[str], *, n_candidates: int
    ) -> list[FittedPart | FailedFit]:
        """Run the tasks in parallel, return their results in order, and report the progress.

        `model_names` has the name of each task's model, and `n_candidates` is how many candidates
        the search has, both for the report.
        """
        from sklearn import get_config

        def report(n_done: int, n_tasks: int) -> None:
            """Report that `n_done` tasks are done, and which model comes next."""
            next_model = model_names[n_done] if n_done < n_tasks else None
            report_search(SearchProgress(n_candidates, n_done, n_tasks, next_model))

        report(0, len(tasks))
        # Other processes do not know how scikit-learn is configured here (metadata routing, say).
        fit = partial(fit_part, config=get_config())
        return run_many(fit, tasks, n_jobs=self.n_jobs, progress=report)


def fit_part(task: Task, *, config: Mapping[str, Any] | None = None) -> FittedPart | FailedFit:
    """Fit a model on one part of the rows, and predict the rows held out for it.

    An error of the model is not raised but returned, as a `FailedFit`. `config` is the
    configuration of scikit-learn to fit with, as `sklearn.get_config` returns it.
    """
    from sklearn import config_context

    part = task.part
    uniforms = None if task.uniforms is None else task.uniforms[part.predicted]

    try:
        with config_context(**(config or {})):
            model = fit_model(task.request.model, part.training_rows())
            X = task.tuning_rows.take(part.predicted).X
            records = {
                record_type: predict_record(
                    model, X, record_type, uniforms=uniforms, classes=task.classes
                )
                for record_type in task.request.record_types
            }
    except Exception as error:
        return FailedFit(f"{type(error).__name__}: {error}")
    return FittedPart(model, records)


def join_parts(fitted_parts: Sequence[FittedPart | FailedFit], parts: Sequence[Part]) -> FitResult:
    """Join what one model was fitted to and predicted on all parts; return the first failure.

    `fitted_parts` and `parts` are in the same order.
    """
    fitted: list[FittedPart] = []
    for fitted_part in fitted_parts:
        if isinstance(fitted_part, FailedFit):
            return fitted_part
        fitted.append(fitted_part)

    positions = tuple(part.predicted for part in parts)
    predictions = {}
    for record_type in fitted[0].records:
        records = tuple(fitted_part.records[record_type] for fitted_part in fitted)
        predictions[record_type] = TuningPredictions(records, positions)

    models = tuple(fitted_part.model for fitted_part in fitted)
    return FittedModel(models, predictions)
