"""Try candidates on the tuning rows, and rank those that were tried."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from dco.structure import Candidate
from dco.tuning.comparison import Comparison, put_in_order
from dco.tuning.evaluated import EvaluatedCandidate, TuningPredictions, evaluate_pair
from dco.tuning.fits import FailedFit, FittedModel, ModelFits
from dco.tuning.ranking import FailedCandidate, Ranking, RankingRow, all_failed


@dataclass(frozen=True, eq=False)
class CandidateTrial:
    """What a candidate did on the tuning rows."""

    candidate: Candidate
    fit: FittedModel
    evaluated: EvaluatedCandidate
    row: RankingRow

    @property
    def predictions(self) -> TuningPredictions:
        """The predictions that the candidate's score read."""
        return self.fit.predictions[self.candidate.record_type]


@dataclass(eq=False)
class Contest:
    """Candidates that are compared on the tuning rows."""

    fits: ModelFits
    comparison: Comparison
    trials: dict[str, CandidateTrial] = field(default_factory=dict)  # by name of the candidate

    def rank(self, candidates: Sequence[Candidate]) -> Ranking:
        """Try the candidates that are new, and put all of them in order."""
        self.fits.fit(candidates)
        rows = []
        failed_fits = []
        errors = {}
        for candidate in candidates:
            fit = self.fits.fits[candidate.model_name]
            if isinstance(fit, FailedFit):
                failed_fits.append(FailedCandidate(candidate.name, fit.reason))
                continue
            try:
                rows.append(self._trial_of(candidate, fit).row)
            except Exception as error:  # whatever a user's score raises
                errors[candidate.name] = error

        if not rows and errors:
            raise all_failed(errors)
        if not rows:
            raise ValueError(self._explain_failed_models(candidates))

        failed_scores = [
            FailedCandidate(name, f"{type(error).__name__}: {error}")
            for name, error in errors.items()
        ]
        return Ranking(
            table=tuple(put_in_order(rows, self.comparison.objective)),
            failed=(*failed_fits, *failed_scores),
            alpha=float(self.comparison.alpha),
            n=len(self.fits.resampling.tuning_rows),
            objective=self.comparison.objective.name,
        )

    def best_trials(self, ranking: Ranking, n: int) -> list[CandidateTrial]:
        """Return the trials of the n best candidates, in the order in which they were tried.

        Candidates that are not feasible are left out.
        """
        names = {row.name for row in ranking.table[:n] if row.feasible}
        return [trial for name, trial in self.trials.items() if name in names]

    def reasons_of_failure(
        self, candidates: Sequence[Candidate], ranking: Ranking
    ) -> dict[str, str]:
        """Return why models failed, and candidates whose score alone failed, by their names."""
        failed = {failure.name: failure.reason for failure in ranking.failed}
        reasons = {}
        for candidate in candidates:
            if candidate.name not in failed:
                continue
            model_failed = isinstance(self.fits.fits[candidate.model_name], FailedFit)
            name = candidate.model_name if model_failed else candidate.name
            reasons[name] = failed[candidate.name]
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
        y = self.fits.resampling.tuning_rows.y
        evaluated = evaluate_pair(candidate.name, candidate.score, predictions, y)
        return CandidateTrial(candidate, fit, evaluated, self.comparison.measure(evaluated))

    def _explain_failed_models(self, candidates: Sequence[Candidate]) -> str:
        """Say why each model failed, once, however many scores it was tried with."""
        reasons: list[str] = []
        for candidate in candidates:
            fit = self.fits.fits[candidate.model_name]
            if not isinstance(fit, FailedFit):
                continue
            reason = f"{candidate.model_name}: {fit.reason}"
            if reason not in reasons:
                reasons.append(reason)

        X = self.fits.resampling.training_rows.X
        shape = f"n_samples={X.shape[0]}, n_features={X.shape[1]}"
        return (
            f"Every candidate failed on the training and tuning rows ({shape}). "
            f"{'; '.join(reasons)}"
        )
