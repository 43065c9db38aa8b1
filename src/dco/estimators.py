"""scikit-learn's interface to `predictor`: bring models and scores, call ``fit``, get the smallest
certified sets found.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Literal

import numpy as np
from sklearn import get_config
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils import get_tags
from sklearn.utils.metadata_routing import process_routing
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from dco.calibration.statement import make_statement
from dco.certificate.certificate import Certificate
from dco.evaluation.on_rows import evaluate_on_rows
from dco.foundations.arrays import AnyArray, Floats, without_mask
from dco.foundations.notes import Message, Note, show
from dco.foundations.ranks import Level
from dco.foundations.seeds import as_seed
from dco.foundations.tables import check_table, is_frame, n_rows
from dco.models.own_models import (
    copy_and_seed,
    default_names,
    note_fitted_again,
    own_models,
)
from dco.models.records import predict_record
from dco.models.wrapped import input_tags, is_frozen
from dco.models.wrapping import HoldsModels
from dco.predictions import ClassProbabilities
from dco.predictor import DecoupledPredictor, fit_decoupled
from dco.rows.conditions import check_condition, is_label
from dco.rows.roles import Split
from dco.rows.rows import Rows, read_brought_rows, rows_of
from dco.rows.sizes import default_sizes
from dco.rows.splits import Splits
from dco.rows.targets import check_label_kinds, check_one_kind, note_unknown_labels, read_targets
from dco.scores.names import given_scores
from dco.scores.registry import scores_called
from dco.scores.transformed import support_of
from dco.tuning import Ranking
from dco.tuning.choose import Tuning
from dco.tuning.defaults import FOLDS_BELOW, Models
from dco.tuning.objectives import EVEN, MEAN_SIZE, objective_of


class Decoupled(HoldsModels, ABC):
    """What the classifier and the regressor share: checks of what scikit-learn users bring, and a
    call of `predictor`.
    """

    predictor_: DecoupledPredictor
    objective: Any = "mean_size"  # of files written before there was a choice

    def __init__(
        self,
        models: Any = None,
        scores: Any = None,
        *,
        alpha: Level = 0.1,
        guarantee: str = "marginal",
        delta: Level = 0.05,
        tune_size: float | int | None = None,
        calibrate_size: float | int | None = None,
        tune_folds: int | None = None,
        refit: bool = True,
        condition_on: Any = None,
        weights: Any = None,
        search: Any = None,
        objective: Any = None,
        support: Any = None,
        duplicates: Literal["natural", "drop", "allow"] = "natural",
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.models = models
        self.scores = scores
        self.alpha = alpha
        self.guarantee = guarantee
        self.delta = delta
        self.tune_size = tune_size
        self.calibrate_size = calibrate_size
        self.tune_folds = tune_folds
        self.refit = refit
        self.condition_on = condition_on
        self.weights = weights
        self.search = search
        self.objective = objective
        self.support = support
        self.duplicates = duplicates
        self.n_jobs = n_jobs
        self.random_state = random_state

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        tune: Any = None,
        calibrate: Any = None,
        groups: Any = None,
        **params: Any,
    ) -> Any:
        """Search on training and tuning rows, fix one structure, calibrate it once on sealed rows.

        Alone, the rows of X are dealt to roles by `tune_size`, `calibrate_size` and `random_state`.
        ``calibrate=(X, y)`` and ``tune=(X, y)`` bring the caller's own rows (a third entry, a dict,
        holds their fit parameters and groups). `groups` has one label per row: whole groups stay in
        one role, and the statement is about a row picked at random from a new group. Other keyword
        arguments (``sample_weight`` ...) are cut by role and passed to the models' ``fit``; they
        never weight the calibration. A fit that fails leaves the estimator as it was.
        """
        if y is None:
            raise ValueError(
                f"This {type(self).__name__} estimator requires y to be passed, but "
                f"the target y is None."
            )
        self._check_parameters()
        if params and get_config().get("enable_metadata_routing") and self.search is None:
            # an unset or unknown request is an error here, not a failed candidate
            process_routing(self, "fit", **params)
        new: Any = object.__new__(type(self))  # takes what is fitted, until all of it is
        new.__dict__.update(self.__dict__)
        seed = as_seed(self.random_state)
        rows = rows_of(new._checked(X, reset=True), self._targets(y), groups=groups, params=params)
        if self.condition_on is not None:
            check_condition(self.condition_on, rows.X)
        models = own_models(self.models)
        copies = copy_and_seed(models, seed=seed)
        show(note_fitted_again(models, copies))
        candidates = self._models(copies, seed)
        brought = {
            "tune": new._brought_rows("tune", tune),
            "calibrate": new._brought_rows("calibrate", calibrate),
        }
        parts = [part for part in (rows, *brought.values()) if part is not None]
        statement = make_statement(
            self.alpha,
            guarantee=self.guarantee,
            delta=self.delta,
            condition_on=self.condition_on,
            weights=self.weights,
            is_clustered=any(part.clusters is not None for part in parts),
        )
        frozen = (
            not candidates.has_defaults
            and self.search is None
            and all(map(is_frozen, models.values()))
        )
        sizes = default_sizes(
            rows.n_units,
            smallest_calibration=statement.smallest_size(),
            tune=self.tune_size,
            calibrate=self.calibrate_size,
            folds=self.tune_folds,
            may_fold=self.refit and not frozen and tune is None and calibrate is None,
            deals_tuning=not frozen and tune is None,
            fold_below=FOLDS_BELOW if candidates.default_names is None else 0,
        )
        split = Split(
            sizes,
            self.duplicates,
            tune=brought["tune"],
            calibrate=brought["calibrate"],
            trains_models=not frozen,
        )
        is_even_by_default = candidates.has_defaults and not candidates.of_classes
        objective = self.objective
        if objective is None:
            objective = EVEN if is_even_by_default else MEAN_SIZE
        new.predictor_ = fit_decoupled(
            candidates,
            given_scores(self.scores, scores_called),
            rows,
            statement,
            classes=new._known_classes(rows, split) if isinstance(self, ClassifierMixin) else None,
            split=split,
            tuning=Tuning(
                strategy=self.search,
                objective=objective_of(objective),
                refit=self.refit,
                support=None if self.support is None else support_of(self.support),
                n_jobs=self.n_jobs,
            ),
            seed=seed,
        )
        if new.predictor_.notes:
            show(new.predictor_.notes)
        self.__dict__ = new.__dict__
        return self

    def _brought_rows(self, role: str, brought: Any) -> Rows | None:
        """Check the rows that the caller brings for a role."""
        if brought is None:
            return None
        parts = read_brought_rows(role, brought)
        return rows_of(
            self._checked(parts.X, reset=False),
            self._targets(parts.y),
            groups=parts.groups,
            params=parts.params,
        )

    def predict(self, X: Any) -> AnyArray:
        """The point prediction of the chosen model."""
        X = self._features(X)
        return np.asarray(self.predictor_.structure.model.predict(X))

    def predict_set(
        self, X: Any, alpha: Any = None, *, guarantee: str | None = None, delta: Level | None = None
    ) -> Any:
        """The prediction set of each row; with a list of levels, a list of sets from the one
        calibration.

        `guarantee` and `delta` ask for the other statement from the same calibration scores, in
        place of that of the fit. Each level is guaranteed if it was fixed without looking at
        calibration or test results; for a level picked by its result, coverage may be lower by
        ``certificate_.simultaneous_slack()``.
        """
        X = self._features(X)
        predictor = self.predictor_
        is_one_level = alpha is None or np.ndim(alpha) == 0
        calibrations = [
            predictor.at(level, guarantee=guarantee, delta=delta)
            for level in ([alpha] if is_one_level else alpha)
        ]
        show(predictor.notes_on(X, calibrations))

        prediction = predictor.structure.prediction(X)
        sets = [
            predictor.sets(X, calibration, prediction=prediction) for calibration in calibrations
        ]
        return sets[0] if is_one_level else sets

    def evaluate(
        self,
        X: Any,
        y: Any,
        *,
        alpha: Any = None,
        guarantee: str | None = None,
        delta: Level | None = None,
        by: Any = None,
    ) -> Any:
        """Evaluate the sets of rows that were used for nothing else; return an `Evaluation`.

        `alpha`, `guarantee` and `delta` are those of `predict_set`; with a list of levels, a list
        of evaluations is returned. Rows with thresholds of their own are evaluated by condition,
        each against the law of its own threshold. `by` has one value for each row, or names a
        column or a function of X as `condition_on` does: slices are added for each value.

        Rows that equal rows of the fit are left out and counted in a warning; if most of them do,
        there is no verdict. There is none either after a fit with `groups`, since the law is for
        independent rows. Labels that are not in ``classes_`` are misses, counted in a warning too.
        """
        features = self._features(X)
        notes: list[Note] = []
        targets = self._known_targets(y, notes)

        predictor = self.predictor_
        is_one_level = alpha is None or np.ndim(alpha) == 0
        levels = [alpha] if is_one_level else alpha
        calibrations = [predictor.at(level, guarantee=guarantee, delta=delta) for level in levels]
        evaluations, further_notes = evaluate_on_rows(
            predictor, features, targets, calibrations, by=by
        )
        show([*notes, *further_notes])
        return evaluations[0] if is_one_level else evaluations

    @property
    def certificate_(self) -> Certificate:
        """What is certified, with its numbers."""
        check_is_fitted(self, "predictor_")
        return self.predictor_.certificate

    @property
    def ranking_(self) -> Ranking:
        """The candidates, best first, with their sizes on the tuning rows."""
        check_is_fitted(self, "predictor_")
        return self.predictor_.ranking

    @property
    def best_candidate_(self) -> str:
        """The name of the candidate that was calibrated."""
        check_is_fitted(self, "predictor_")
        return self.predictor_.structure.name

    @property
    def splits_(self) -> Splits:
        """Which row of X had which role."""
        check_is_fitted(self, "predictor_")
        return self.predictor_.splits

    @property
    def notes_(self) -> list[Note]:
        """What ``fit`` found on its way, each with what to try."""
        check_is_fitted(self, "predictor_")
        return list(self.predictor_.notes)

    def _check_parameters(self) -> None:
        if self.search is not None and not hasattr(self.search, "search"):
            raise ValueError(
                f"search must be None, dco.search.Random(...) or "
                f"dco.search.Optuna(...), got {self.search!r}."
            )
        if (
            isinstance(self, RegressorMixin)
            and self.condition_on is not None
            and is_label(self.condition_on)
        ):
            raise ValueError(
                f'condition_on="{self.condition_on}" is for classes; a regression '
                f"takes columns or callables."
            )
        if self.support is not None and isinstance(self, ClassifierMixin):
            raise ValueError(
                Message("⟨support⟩ is for numbers; the labels of a classifier are those of y.")
            )

    def _models(self, own: dict[str, Any], seed: int) -> Models:
        """List the models to try: the default ones that are asked for, and the caller's own."""
        names = () if self.search is not None else default_names(self.models)
        if self.search is None and not own and names == ():
            raise ValueError(
                "models is empty: pass an estimator, a list or a dict of them, or "
                "None for the default ones."
            )
        return Models(
            own=own,
            default_names=names,
            of_classes=isinstance(self, DecoupledClassifier),
            alpha=self.alpha,
            seed=seed,
        )

    def _features(self, X: Any) -> Any:
        """New rows for a fitted estimator: the same columns as in ``fit``."""
        check_is_fitted(self, "predictor_")
        return self._checked(X, reset=False)

    def _checked(self, X: Any, *, reset: bool) -> Any:
        """X with its columns checked; frames and text pass untouched."""
        if isinstance(X, np.ma.MaskedArray):
            X = without_mask(X)
        if not isinstance(X, np.ndarray):
            check_table(X)
            if is_frame(X):
                validate_data(self, X, skip_check_array=True, reset=reset)
                if n_rows(X) == 0:
                    raise ValueError("Found array with 0 sample(s): X has no rows.")
                return X
        finite = "allow-nan" if get_tags(self).input_tags.allow_nan else True
        kind = X.dtype.kind if isinstance(X, np.ndarray) else "f"
        texts = kind in "US" or (kind == "O" and any(isinstance(cell, str) for cell in X.flat))
        kinds: Any = {
            "accept_sparse": "csr",
            "ensure_all_finite": finite,
            "dtype": None if texts else "numeric",
        }
        return validate_data(self, X, reset=reset, **kinds)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inputs = [
            own for own in map(input_tags, own_models(self.models).values()) if own is not None
        ]
        # one that takes NaN is enough: others fail as candidates, with their own words; a search
        # may propose any model
        free = self.search is not None or not own_models(self.models)
        tags.input_tags.allow_nan = free or any(own.allow_nan for own in inputs)
        tags.input_tags.sparse = bool(inputs) and all(own.sparse for own in inputs)
        return tags

    @abstractmethod
    def _targets(self, y: Any) -> AnyArray:
        """y as this estimator takes it, or an error."""

    def _known_targets(self, y: Any, notes: list[Note]) -> AnyArray:
        """The targets of rows to be evaluated."""
        return read_targets(y, as_numbers=self.predictor_.structure.classes is None)


class DecoupledClassifier(ClassifierMixin, Decoupled):
    """Prediction sets of labels with a guarantee, the smallest found among models x scores.

    Parameters
    ----------
    models : None, estimator, list of estimators or of (name, estimator), or dict {name: estimator}
        Candidates' models. Each is cloned and fitted; ``FrozenEstimator(model)`` is used as it is.
        None tries linear models, trees, boosting and the average of the best few, as `dco fit`
        does, also for frames with categories and gaps; a list of names tries some of them.
    scores : None, a score or its short name ("lac"), list, or dict {name: score}
        None tries every score that fits the models' predictions.
    alpha, guarantee, delta
        "marginal": a new row is covered with probability >= 1 - alpha. "pac": with probability >= 1
        - delta over the calibration rows, at least 1 - alpha of new rows are covered.
    tune_size, calibrate_size : None, share, count
        Rows held out for tuning and for calibration. None is a quarter; for few rows, what
        calibration needs at least, and `tune_folds=5`.
    tune_folds : int or None
        Rank candidates by folds over all rows but calibration rows: no rows are lost to tuning.
    refit : bool
        Refit the winner on train + tune before calibrating (valid, and narrower); False is the
        paper's procedure.
    condition_on : None, "label", "label-clusters", a column, a callable of X, or a list
        One threshold for each group (Mondrian); "label-clusters": rare labels share one with labels
        whose scores are alike. With "pac", delta holds for each group separately. With
        a list of columns and callables each value of each is a group: all are covered at once,
        though they overlap.
    weights : None, a function of X, {label: ratio} or dco.ShiftWeights
        How much more frequent rows (labels) are among new rows than in calibration, where that is
        known.
    search : None, dco.search.Random, dco.search.Optuna
    objective : None, "mean_size", "p95_size", "even", one of dco.objectives, or f(sets, y) -> float
        What the search minimises. None is "even" for the default models of numbers, otherwise the
        paper's "mean_size".
    support : None or (low, high)
        For numbers: where y lies by what you know of it, None for no end, as in (0, None). Sets are
        cut to it.
    duplicates : "natural", "drop", "allow"
        What repeated rows are: natural (roles ignore them), recording errors (dropped), or natural
        also in caller's roles.
    n_jobs : None or joblib's number of jobs, of its backend in use (``joblib.parallel_config``).
    random_state : seed of roles, folds, uniforms, and of models that have none.

    Attributes
    ----------
    certificate_, ranking_, best_candidate_, splits_, notes_, predictor_, classes_
    """

    @property
    def classes_(self) -> AnyArray:
        """Every label of any row or model of the fit, ascending."""
        check_is_fitted(self, "predictor_")
        return np.asarray(self.predictor_.structure.classes)

    def predict_proba(self, X: Any) -> Floats:
        """The chosen model's class probabilities, in the order of ``classes_``; labels it never saw
        have 0.
        """
        features = self._features(X)
        record: Any = predict_record(self.predictor_.structure.model, features, ClassProbabilities)
        result = np.zeros((len(record), len(self.classes_)), dtype=record.probabilities.dtype)
        result[:, np.searchsorted(self.classes_, np.asarray(record.classes))] = record.probabilities
        return result

    def predict_p(self, X: Any) -> Floats:
        """The conformal p-value of every label, (n, K) in the order of ``classes_``.

        p > alpha iff the label is in the set of the marginal guarantee at level alpha (write 0.1,
        not 1 - 0.9, which is a float below it); sets of "pac" are larger.
        """
        return self.predictor_.p_values(self._features(X))

    def _targets(self, y: Any) -> AnyArray:
        labels = read_targets(y, as_numbers=False)
        check_one_kind(labels)
        check_classification_targets(labels)
        return labels

    def _known_targets(self, y: Any, notes: list[Note]) -> AnyArray:
        labels = super()._known_targets(y, notes)
        notes += note_unknown_labels(labels, self.classes_)
        return labels

    def _known_classes(self, rows: Rows, split: Split) -> AnyArray:
        given = {
            "the train rows": rows,
            "the tune rows": split.tune,
            "the calibrate rows": split.calibrate,
        }
        labels = {place: own.y for place, own in given.items() if own is not None and len(own)}
        frozen = {
            name: model for name, model in own_models(self.models).items() if is_frozen(model)
        }
        known = {
            f"the model {name!r}": np.asarray(getattr(model, "classes_", []))
            for name, model in frozen.items()
        }
        check_label_kinds(labels | known)
        classes = np.unique(np.concatenate(list(labels.values())))
        if len(classes) < 2:
            raise ValueError(
                f"The data holds one class only ({classes.tolist()[0]!r}): a classifier needs at "
                f"least two classes in y."
            )
        return classes


class DecoupledRegressor(RegressorMixin, Decoupled):
    """Prediction intervals (or unions of them) with a guarantee, the smallest found among models x
    scores.

    Parameters and attributes are those of `DecoupledClassifier`; ``condition_on="label"`` is for
    classes only.
    """

    def predict_p(self, X: Any, y: Any) -> Floats:
        """The conformal p-value of each given y, (n,); p > alpha iff y is in the row's set (of the
        marginal guarantee).
        """
        return self.predictor_.p_values(self._features(X), self._targets(y))

    def _targets(self, y: Any) -> AnyArray:
        return read_targets(y, as_numbers=True)
