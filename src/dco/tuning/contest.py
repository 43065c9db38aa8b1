"""Try candidates on the tuning rows, and rank those that were tried."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from dco.rows.rows import Rows
from dco.structure import Candidate
from dco.tuning.comparison import Comparison
from dco.tuning.evaluated import EvaluatedCandidate, TuningPredictions, evaluate_pair
from dco.tuning.fits import FailedFit, FittedModel, ModelFits
from dco.tuning.ranking import FailedCandidate, Ranking, RankingRow, all_failed, list_failed
from dco.tuning.resampling import Resampling


@dataclass(frozen=True, eq=False)
class CandidateTrial:
    """A candidate after it was tried: its fitted model, its scores, its row of the ranking."""

    candidate: Candidate
    fit: FittedModel
    evaluated: EvaluatedCandidate
    row: RankingRow

    @property
    def predictions(self) -> TuningPredictions:
        """The predictions that the candidate's score reads."""
        return self.fit.predictions[self.candidate.record_type]


@dataclass(eq=False)
class Contest:
    """Candidates that are compared on the tuning rows.

    `model_fits` fits their models, `comparison` says how they are compared, and `trials` holds
    what came of it, by name of the candidate.
    """

    model_fits: ModelFits
    comparison: Comparison
    trials: dict[str, CandidateTrial] = field(default_factory=dict)

    @property
    def resampling(self) -> Resampling:
        """Which rows models are fitted on, and which they are compared on."""
        return self.model_fits.resampling

    @property
    def tuning_rows(self) -> Rows:
        """The rows that candidates are compared on."""
        return self.resampling.tuning_rows

    def rank(self, candidates: Sequence[Candidate]) -> Ranking:
        """Rank candidates. Those that are new are fitted and tried on the tuning rows first.

        A candidate whose model or score raises an error is in ``Ranking.failed``. If all of them
        fail, one error gives all reasons.
        """
        # 1. Fit the models that have not been fitted yet.
        self.model_fits.fit(candidates)

        # 2. Measure every candidate: a row of the ranking, or a failure of its model or its score.
        rows = []
        failed_models = []
        errors_of_scores = {}
        for candidate in candidates:
            result = self.model_fits.results[candidate.model_name]
            if isinstance(result, FailedFit):
                failed_models.append(FailedCandidate(candidate.name, result.reason))
                continue
            try:
                trial = self._trial_of(candidate, result)
            except Exception as error:  # whatever a user's score raises
                errors_of_scores[candidate.name] = error
            else:
                rows.append(trial.row)

        # 3. Put them in order, if there are any.
        if not rows and errors_of_scores:
            raise all_failed(errors_of_scores)
        if not rows:
            raise ValueError(self._explain_failed_models(candidates))

        failed = [*failed_models, *list_failed(errors_of_scores)]
        return self.comparison.make_ranking(rows, failed, n_rows=len(self.tuning_rows))

    def best_trials(self, ranking: Ranking, n: int) -> list[CandidateTrial]:
        """Return the trials of the n best candidates, in the order in which they were tried.

        Candidates that are not feasible are left out.
        """
        names = {row.name for row in ranking.table[:n] if row.feasible}
        return [trial for name, trial in self.trials.items() if name in names]

    def reasons_of_failure(
        self, candidates: Sequence[Candidate], ranking: Ranking
    ) -> dict[str, str]:
        """Return the reasons why candidates failed, by name.

        A model that failed is named once, however many scores were tried with it. Where only the
        score failed, the name is that of the candidate.
        """
        reason_of = {failure.name: failure.reason for failure in ranking.failed}
        reasons = {}
        for candidate in candidates:
            if candidate.name not in reason_of:
                continue
            model_failed = isinstance(self.model_fits.results[candidate.model_name], FailedFit)
            name = candidate.model_name if model_failed else candidate.name
            reasons[name] = reason_of[candidate.name]
        return reasons

    def _trial_of(self, candidate: Candidate, fit: FittedModel) -> CandidateTrial:
        """Return the candidate's trial; try it if it is new or its model was fitted again."""
        trial = self.trials.get(candidate.name)
        if trial is None or trial.fit is not fit:
            trial = self._try_candidate(candidate, fit)
            self.trials[candidate.name] = trial
        return trial

    def _try_candidate(self, candidate: Candidate, fit: FittedModel) -> CandidateTrial:
        """Score the tuning rows, and measure the sets at the candidate's own threshold."""
        predictions = fit.predictions[candidate.record_type]
        y = self.tuning_rows.y
        evaluated = evaluate_pair(candidate.name, candidate.score, predictions, y)
        return CandidateTrial(candidate, fit, evaluated, self.comparison.measure(evaluated))

    def _explain_failed_models(self, candidates: Sequence[Candidate]) -> str:
        """Say why each model failed, once for each, however many scores were tried with it."""
        reasons: list[str] = []
        for candidate in candidates:
            result = self.model_fits.results[candidate.model_name]
            if not isinstance(result, FailedFit):
                continue
            reason = f"{candidate.model_name}: {result.reason}"
            if reason not in reasons:
                reasons.append(reason)

        X = self.resampling.training_rows.X
        shape = f"n_samples={X.shape[0]}, n_features={X.shape[1]}"
        return (
            f"Every candidate failed on the training and tuning rows ({shape}). "
            f"{'; '.join(reasons)}"
        )
