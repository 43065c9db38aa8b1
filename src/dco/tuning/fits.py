"""Fit the models of a search, each once, and predict the tuning rows with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
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
    """A model of the search: its fits, one for each part, and its predictions."""

    fits: tuple[Any, ...]
    predictions: Mapping[type, TuningPredictions]  # by type of record


@dataclass(frozen=True)
class FailedFit:
    """Why a model could not be fitted, or could not predict."""

    reason: str


Fit: TypeAlias = FittedModel | FailedFit


@dataclass(frozen=True)
class Request:
    """A model, and what it is to predict for the scores that read it."""

    model: Any = field(compare=False)
    record_types: tuple[type, ...] = ()
    with_uniforms: bool = False

    def including(self, candidate: Candidate) -> Request:
        """Return a request that also asks for what one more candidate needs."""
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
    """One request on one part of the rows."""

    request: Request
    part: Part
    tuning_rows: Rows
    uniforms: Floats | None  # of the tuning rows
    classes: AnyArray | None


@dataclass(frozen=True, eq=False)
class FittedPart:
    """A model fitted on one part, and its predictions of the rows of that part."""

    model: Any
    records: Mapping[type, Prediction]


@dataclass(eq=False)
class ModelFits:
    """The models of a search, by name. Each is fitted once, however many scores are tried."""

    resampling: Resampling
    classes: AnyArray | None  # labels of training and tuning rows, None for numbers
    seed: int
    n_jobs: int | None = None
    fits: dict[str, Fit] = field(default_factory=dict)
    requests: dict[str, Request] = field(default_factory=dict)

    def fit(self, candidates: Sequence[Candidate]) -> None:
        """Fit the models of the candidates, if they have not been fitted before.

        A model is fitted again if a candidate needs a type of prediction that it has not made yet.
        """
        requests = self._new_requests(candidates)
        if not requests:
            return
        self.requests.update(requests)

        # Each model is fitted on each part of the rows: all parts of one model, then of the next.
        parts = self.resampling.parts()
        tasks: list[Task] = []
        for request in requests.values():
            tasks += self._tasks(request, parts)
        fitted_parts = self._run(tasks, list(requests), n_candidates=len(candidates))

        # The results come in the order of the tasks.
        results = iter(fitted_parts)
        for name in requests:
            parts_of_model = list(islice(results, len(parts)))
            self.fits[name] = join_parts(parts_of_model, parts)

    def fit_part_by_part(self, candidate: Candidate) -> Iterator[tuple[Part, FittedPart]]:
        """Fit the model of a new candidate on one part after the other, up to the first failure.

        A caller that stops early leaves no trace: the model is as new as before.
        """
        request = Request(candidate.model).including(candidate)
        parts = self.resampling.parts()
        fitted_parts: list[FittedPart | FailedFit] = []
        for task in self._tasks(request, parts):
            fitted_part = fit_part(task)
            fitted_parts.append(fitted_part)
            if isinstance(fitted_part, FailedFit):
                break
            yield task.part, fitted_part

        self.requests[candidate.model_name] = request
        self.fits[candidate.model_name] = join_parts(fitted_parts, parts)

    def fitted(self, model_name: str) -> FittedModel:
        """Return the fit of a model that did not fail."""
        fit = self.fits[model_name]
        assert isinstance(fit, FittedModel), fit
        return fit

    def _new_requests(self, candidates: Sequence[Candidate]) -> dict[str, Request]:
        """Return what the models are still to be asked for, by name of the model.

        Nothing is asked of a model that failed before.
        """
        requests: dict[str, Request] = {}
        for candidate in candidates:
            name = candidate.model_name
            if isinstance(self.fits.get(name), FailedFit):
                continue
            answered = self.requests.get(name, Request(candidate.model))
            request = requests.get(name, answered).including(candidate)
            if request != answered:
                requests[name] = request
        return requests

    def _tasks(self, request: Request, parts: Sequence[Part]) -> list[Task]:
        """Return one task for each part of the rows."""
        rows = self.resampling.tuning_rows
        uniforms = None
        if request.with_uniforms:
            uniforms = row_uniforms(rows.X, seed=uniform_seed(self.seed))
        return [Task(request, part, rows, uniforms, self.classes) for part in parts]

    def _run(
        self, tasks: Sequence[Task], names: Sequence[str], *, n_candidates: int
    ) -> list[FittedPart | FailedFit]:
        """Run the tasks in parallel, and report how far the search is.

        `names` are those of the models, each of which has equally many tasks in a row.
        """
        from sklearn import get_config

        n_parts = len(tasks) // len(names)

        def report(n_done: int, n_fits: int) -> None:
            is_done = n_done == n_fits
            model_now = None if is_done else names[n_done // n_parts]
            report_search(SearchProgress(n_candidates, n_done, n_fits, model_now))

        report(0, len(tasks))
        # workers have a configuration of scikit-learn of their own (metadata routing, say)
        fit = partial(fit_part, config=get_config())
        return run_many(fit, tasks, n_jobs=self.n_jobs, progress=report)


def fit_part(task: Task, *, config: Mapping[str, Any] | None = None) -> FittedPart | FailedFit:
    """Fit a model on one part and predict the rows held out for it.

    If the model raises an error, it is returned as a failure. `config` is scikit-learn's.
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


def join_parts(fitted_parts: Sequence[FittedPart | FailedFit], parts: Sequence[Part]) -> Fit:
    """Join a model's fits on all parts, or return the first failure."""
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
