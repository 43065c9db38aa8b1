"""scikit-learn's interface to `predictor`: bring models and scores, call ``fit``, get the smallest
certified sets found.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal, Self

import numpy as np
from sklearn import get_config
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils import get_tags
from sklearn.utils.metadata_routing import process_routing
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from dco.calibration.base import Calibration
from dco.calibration.guarantee import guarantee_called
from dco.calibration.statement import Statement, make_statement
from dco.certificate.certificate import Certificate
from dco.evaluation.on_rows import evaluate_on_rows
from dco.foundations.arrays import AnyArray, Floats, without_mask
from dco.foundations.display import are, counted
from dco.foundations.notes import Message, Note, show
from dco.foundations.ranks import Level, as_rational
from dco.foundations.seeds import Seed, as_seed
from dco.foundations.tables import check_table, is_frame, n_rows
from dco.models.own_models import copy_and_seed, default_names, note_fitted_again, own_models
from dco.models.records import predict_record
from dco.models.wrapped import input_tags, is_frozen
from dco.models.wrapping import HoldsModels
from dco.predictions import ClassProbabilities
from dco.predictor import DecoupledPredictor, fit_decoupled
from dco.rows.conditions import check_condition, is_label
from dco.rows.roles import Duplicates, Split
from dco.rows.rows import Rows, read_brought_rows, rows_of
from dco.rows.sizes import default_sizes
from dco.rows.splits import Size, Splits
from dco.rows.targets import check_label_kinds, check_one_kind, note_unknown_labels, read_targets
from dco.scores.names import given_scores
from dco.scores.registry import scores_called
from dco.scores.transformed import support_of
from dco.tuning import Ranking
from dco.tuning.choose import Tuning
from dco.tuning.default_models import EFFORTS
from dco.tuning.defaults import FOLDS_BELOW, Models
from dco.tuning.objectives import EVEN, MEAN_SIZE, Objective, objective_of

Guarantee = Literal["marginal", "pac"]
DEFAULT_DELTA = 0.05
FEW_ROWS = 60  # with fewer, full conformal sets were narrower: benchmarks/few_rows.py


class Decoupled(HoldsModels, ABC):
    """What the classifier and the regressor share."""

    predictor_: DecoupledPredictor
    support: tuple[float | None, float | None] | None = None
    effort: str = "usual"
    # Whether models take missing values and sparse tables, as read in `fit`: tags of many
    # candidates take longer to read than a row takes to predict.
    _accepted_input: Mapping[str, bool] | None = None

    def __init__(
        self,
        models: Any = None,
        scores: Any = None,
        *,
        alpha: Level = 0.1,
        guarantee: Guarantee = "marginal",
        delta: Level = DEFAULT_DELTA,
        condition_on: Any = None,
        weights: Any = None,
        tune_size: Size | None = None,
        calibrate_size: Size | None = None,
        tune_folds: int | None = None,
        refit: bool = True,
        search: Any = None,
        objective: Any = None,
        duplicates: Duplicates = "natural",
        n_jobs: int | None = None,
        random_state: Seed = None,
    ) -> None:
        self.models = models
        self.scores = scores
        self.alpha = alpha
        self.guarantee = guarantee
        self.delta = delta
        self.condition_on = condition_on
        self.weights = weights
        self.tune_size = tune_size
        self.calibrate_size = calibrate_size
        self.tune_folds = tune_folds
        self.refit = refit
        self.search = search
        self.objective = objective
        self.duplicates = duplicates
        self.n_jobs = n_jobs
        self.random_state = random_state

    # ----------------------------------------------------------------------------------------- fit

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        tune: Any = None,
        calibrate: Any = None,
        groups: Any = None,
        **params: Any,
    ) -> Self:
        """Choose a model and a score on training and tuning rows, then calibrate on sealed rows.

        A fit that fails leaves the estimator as it was.

        Parameters
        ----------
        X, y
            Rows and their targets. They are dealt to roles by `tune_size`, `calibrate_size` and
            `random_state`.
        tune, calibrate
            ``(X, y)``: rows of your own for a role. A third entry, a dict, holds their fit
            parameters and groups.
        groups
            One label per row. Whole groups stay in one role, and the statement is about a row
            picked at random from a new group.
        params
            What the models' ``fit`` gets (``sample_weight`` ...), cut by role. It never weights the
            calibration.
        """
        if y is None:
            raise ValueError(
                f"This {type(self).__name__} estimator requires y to be passed, but the target y "
                f"is None."
            )
        self._check_parameters(tune=tune, calibrate=calibrate)

        # scikit-learn can ask models which fit parameters they request. One that they do not know
        # is an error here; otherwise it would be a failed candidate later.
        asks_models = get_config().get("enable_metadata_routing") and self.search is None
        if params and asks_models:
            process_routing(self, "fit", **params)

        # Fit a copy of the estimator, so that a fit that fails leaves this one as it was.
        fitted = copy.copy(self)
        fitted._accepted_input = fitted._read_accepted_input()
        rows = rows_of(
            fitted._check_features(X, reset=True),
            self.check_targets(y),
            groups=groups,
            params=params,
        )
        brought_tune = fitted._read_brought_rows("tune", tune)
        brought_calibrate = fitted._read_brought_rows("calibrate", calibrate)
        fitted.predictor_ = fitted._fit_predictor(rows, brought_tune, brought_calibrate)
        show(fitted.predictor_.notes)

        # All went well: take over the attributes of the copy.
        self.__dict__ = fitted.__dict__
        return self

    def _fit_predictor(
        self, rows: Rows, brought_tune: Rows | None, brought_calibrate: Rows | None
    ) -> DecoupledPredictor:
        """Turn the parameters of the estimator into the arguments of `fit_decoupled`, and call it.

        `rows` are divided at random among training, tuning and calibration. `brought_tune` and
        `brought_calibrate` are rows that the caller chose for tuning or calibration, or None.
        """
        seed = as_seed(self.random_state)
        tables = (rows, brought_tune, brought_calibrate)
        has_clusters = any(table is not None and table.clusters is not None for table in tables)
        if self.condition_on is not None:
            check_condition(self.condition_on, rows.X)
        statement = make_statement(
            self.alpha,
            guarantee=self.guarantee,
            delta=self.delta,
            condition_on=self.condition_on,
            weights=self.weights,
            is_clustered=has_clusters,
        )
        models = self._make_models(seed)
        split = self._make_split(
            rows, statement, models, brought_tune=brought_tune, brought_calibrate=brought_calibrate
        )
        tuning = Tuning(
            strategy=self.search,
            objective=self._make_objective(models),
            refit=self.refit,
            support=None if self.support is None else support_of(self.support),
            n_jobs=self.n_jobs,
        )
        return fit_decoupled(
            models,
            given_scores(self.scores, scores_called),
            rows,
            statement,
            classes=self._read_classes(train=rows, tune=brought_tune, calibrate=brought_calibrate),
            split=split,
            tuning=tuning,
            seed=seed,
        )

    def _make_split(
        self,
        rows: Rows,
        statement: Statement,
        models: Models,
        *,
        brought_tune: Rows | None,
        brought_calibrate: Rows | None,
    ) -> Split:
        """Choose how many of the rows tune and calibrate, by the parameters and how many there are.

        The smallest number that calibrates follows from the `statement` of the guarantee.
        `brought_tune` and `brought_calibrate` are rows that the caller chose for tuning or
        calibration, or None.
        """
        # 1. Frozen models are fitted already: they need no training rows, and cannot be fitted on
        # folds. All are frozen if no other models are searched or tried by default.
        are_all_frozen = (
            self.search is None
            and not models.has_defaults
            and all(is_frozen(model) for model in models.own.values())
        )

        # 2. Choose the sizes. With the default models, which are many, folds rank small tables.
        brings_rows = brought_tune is not None or brought_calibrate is not None
        tries_all_defaults = models.default_names is None
        sizes = default_sizes(
            rows.n_units,
            smallest_calibration=statement.smallest_size(),
            tune=self.tune_size,
            calibrate=self.calibrate_size,
            folds=self.tune_folds,
            may_fold=self.refit and not are_all_frozen and not brings_rows,
            deals_tuning=not are_all_frozen and brought_tune is None,
            fold_below=FOLDS_BELOW if tries_all_defaults else 0,
        )
        return Split(
            sizes=sizes,
            duplicates=self.duplicates,
            tune=brought_tune,
            calibrate=brought_calibrate,
            trains_models=not are_all_frozen,
        )

    def _check_parameters(self, *, tune: Any, calibrate: Any) -> None:
        """Refuse parameters that mean nothing, or have no effect together with others.

        `tune` and `calibrate` are the rows that the caller brings to `fit` for a role, or None.
        """
        if self.search is not None and not hasattr(self.search, "search"):
            raise ValueError(
                f"search must be None, dco.search.Random(...) or dco.search.Optuna(...), got "
                f"{self.search!r}."
            )
        guarantee = guarantee_called(self.guarantee, delta=as_rational(self.delta, name="delta"))
        if self.delta != DEFAULT_DELTA and not guarantee.needs_delta:
            raise ValueError(
                Message(
                    f"⟨delta={self.delta}⟩ belongs to ⟨guarantee=pac⟩: a {self.guarantee} "
                    f"guarantee has no delta."
                )
            )
        if self.tune_size is not None and self.tune_folds is not None:
            raise ValueError(
                Message("⟨tune_size⟩ has no effect with ⟨tune_folds⟩: leave one of the two out.")
            )
        if self.tune_size is not None and tune is not None:
            raise ValueError(
                "tune_size has no effect on rows that you bring: leave tune_size= or tune= out."
            )
        if self.calibrate_size is not None and calibrate is not None:
            raise ValueError(
                "calibrate_size has no effect on rows that you bring: leave calibrate_size= or "
                "calibrate= out."
            )

    def _make_models(self, seed: int) -> Models:
        """Read the parameter `models`: estimators of the caller, names of default models, or both.

        The caller's models are copied, and the copies that have no random_state get one made from
        `seed`. A warning names models that were fitted already, since their copies are fitted anew.
        """
        models_of_caller = own_models(self.models)
        copies = copy_and_seed(models_of_caller, seed=seed)
        show(note_fitted_again(models_of_caller, copies))

        # Names of the default models to try. None stands for all of them, () for none.
        names_of_defaults = default_names(self.models)
        has_search = self.search is not None
        if has_search and names_of_defaults is None:
            names_of_defaults = ()  # the search proposes models in their place
        if not has_search and not models_of_caller and names_of_defaults == ():
            raise ValueError(
                "models is empty: pass an estimator, a list or a dict of them, or None for the "
                "default ones."
            )
        return Models(
            own=copies,
            default_names=names_of_defaults,
            of_classes=self._has_classes(),
            alpha=self.alpha,
            seed=seed,
            effort=self.effort,
        )

    def _make_objective(self, models: Models) -> Objective:
        """Return the objective that the choice among candidates minimises.

        The default one is the mean size of the sets, or `EVEN` for a regression that tries default
        models.
        """
        if self.objective is not None:
            return objective_of(self.objective)
        if models.has_defaults and not models.of_classes:
            return EVEN
        return MEAN_SIZE

    def _read_brought_rows(self, role: str, brought: Any) -> Rows | None:
        """Check the rows that the caller brings for a role."""
        if brought is None:
            return None
        parts = read_brought_rows(role, brought)
        return rows_of(
            self._check_features(parts.X, reset=False),
            self.check_targets(parts.y),
            groups=parts.groups,
            params=parts.params,
        )

    @abstractmethod
    def _has_classes(self) -> bool:
        """Return whether targets are labels."""

    @abstractmethod
    def check_targets(self, y: Any) -> AnyArray:
        """Read y, or say why it cannot be the target of this estimator."""

    def _read_classes(
        self, *, train: Rows, tune: Rows | None, calibrate: Rows | None
    ) -> AnyArray | None:
        """Return the labels of all rows of the fit, None for a regression."""
        return None

    # -------------------------------------------------------------------------------- fitted models

    def predict(self, X: Any) -> AnyArray:
        """Predict by the chosen model, one value for each row."""
        features = self.check_features(X)
        return np.asarray(self.predictor_.structure.model.predict(features))

    def predict_set(
        self,
        X: Any,
        alpha: Any = None,
        *,
        guarantee: Guarantee | None = None,
        delta: Level | None = None,
    ) -> Any:
        """Make the prediction set of each row.

        Parameters
        ----------
        X
            New rows, with the columns of ``fit``.
        alpha
            A miscoverage level other than that of the fit, or a list of levels, which gives a list
            with the sets at each level. Every level is guaranteed if it was fixed without looking
            at calibration or test results; for a level picked by its result, coverage may be lower
            by ``certificate_.simultaneous_slack()``.
        guarantee, delta
            Another guarantee than that of the fit, from the same calibration scores.
        """
        features = self.check_features(X)
        predictor = self.predictor_
        calibrations = self._calibrations_at(alpha, guarantee=guarantee, delta=delta)
        show(predictor.notes_on(features, calibrations))

        prediction = predictor.structure.prediction(features)
        sets = [
            predictor.sets(features, calibration, prediction=prediction)
            for calibration in calibrations
        ]
        return sets if _is_list(alpha) else sets[0]

    def evaluate(
        self,
        X: Any,
        y: Any,
        *,
        alpha: Any = None,
        guarantee: Guarantee | None = None,
        delta: Level | None = None,
        by: Any = None,
    ) -> Any:
        """Evaluate prediction sets on rows with known targets that were used for nothing else.

        Rows that equal rows of the fit are left out and counted in a warning; if most of them do,
        there is no verdict. There is none either after a fit with `groups`, since the law is for
        independent rows. Labels that are not in ``classes_`` are misses, counted in a warning too.

        Parameters
        ----------
        X, y
            The rows and their targets.
        alpha, guarantee, delta
            Those of `predict_set`.
        by
            What divides the rows into slices, which are evaluated each by itself: one value for
            each row, or a column or function of X as in `condition_on`.

        Returns
        -------
        An `Evaluation`; with a list of levels in `alpha`, a list of them. Rows with thresholds of
        their own are evaluated by condition, each against the law of its own threshold.
        """
        features = self.check_features(X)
        targets, notes_on_targets = self._known_targets(y)
        calibrations = self._calibrations_at(alpha, guarantee=guarantee, delta=delta)
        evaluations, notes_on_rows = evaluate_on_rows(
            self.predictor_, features, targets, calibrations, by=by
        )
        show([*notes_on_targets, *notes_on_rows])
        return evaluations if _is_list(alpha) else evaluations[0]

    def _calibrations_at(
        self, alpha: Any, *, guarantee: Guarantee | None, delta: Level | None
    ) -> list[Calibration]:
        """Calibrate the scores of the fit at one level or at several; None is that of the fit."""
        levels = alpha if _is_list(alpha) else [alpha]
        return [
            self.predictor_.calibrate_at(level, guarantee=guarantee, delta=delta)
            for level in levels
        ]

    def _known_targets(self, y: Any) -> tuple[AnyArray, list[Note]]:
        """Read the targets of rows to be evaluated, with notes on them."""
        return read_targets(y, as_numbers=not self._has_classes()), []

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
        """The position in X of the rows of each role."""
        check_is_fitted(self, "predictor_")
        return self.predictor_.splits

    @property
    def notes_(self) -> list[Note]:
        """What ``fit`` found on its way, each with what to try."""
        check_is_fitted(self, "predictor_")
        return list(self.predictor_.notes)

    # ------------------------------------------------------------------------------- scikit-learn

    def check_features(self, X: Any) -> Any:
        """Check new rows for a fitted estimator: they have the columns of ``fit``."""
        check_is_fitted(self, "predictor_")
        return self._check_features(X, reset=False)

    def _check_features(self, X: Any, *, reset: bool) -> Any:
        """Check a table of features as scikit-learn's estimators do, and return it.

        With `reset` (in ``fit``) the number and names of its columns are stored; otherwise they
        must equal the stored ones. Frames are passed on as they are: their cells, and those of
        arrays with text, are left to the models.
        """
        if isinstance(X, np.ma.MaskedArray):
            X = without_mask(X)
        if not isinstance(X, np.ndarray):
            check_table(X)

        if is_frame(X):
            validate_data(self, X, skip_check_array=True, reset=reset)
            if n_rows(X) == 0:
                raise ValueError("Found array with 0 sample(s): X has no rows.")
            return X

        allows_nan = get_tags(self).input_tags.allow_nan
        return validate_data(
            self,
            X,
            reset=reset,
            accept_sparse="csr",
            ensure_all_finite="allow-nan" if allows_nan else True,
            dtype=None if _holds_text(X) else "numeric",
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        accepted = self._accepted_input or self._read_accepted_input()  # read before, or now
        tags.input_tags.allow_nan = accepted["allow_nan"]
        tags.input_tags.sparse = accepted["sparse"]
        return tags

    def _read_accepted_input(self) -> dict[str, bool]:
        """Read off the tags of the models whether missing values and sparse tables are accepted.

        Missing values are accepted if one model takes them: the others fail as candidates, with
        their own words. Default models take them, and a search may propose any model. Sparse tables
        are accepted if all models take them.
        """
        all_tags = [input_tags(model) for model in own_models(self.models).values()]
        tags_of_models = [tags for tags in all_tags if tags is not None]
        has_other_models = self.search is not None or default_names(self.models) != ()
        return {
            "allow_nan": has_other_models or any(tags.allow_nan for tags in tags_of_models),
            "sparse": bool(tags_of_models) and all(tags.sparse for tags in tags_of_models),
        }


def _is_list(alpha: Any) -> bool:
    """Return whether several levels are asked for."""
    return alpha is not None and np.ndim(alpha) > 0


def _holds_text(X: Any) -> bool:
    """Return whether an array has cells with text."""
    if not isinstance(X, np.ndarray):
        return False
    if X.dtype.kind == "O":
        return any(isinstance(cell, str) for cell in X.flat)
    return X.dtype.kind in "US"


class DecoupledClassifier(ClassifierMixin, Decoupled):
    """Prediction sets of labels with a guarantee, the smallest found among models x scores.

    Parameters
    ----------
    models : None, estimator, name, dict, or list of these
        The models of the candidates. Estimators are cloned and fitted; ``FrozenEstimator(model)``
        is used as it is. A dict names its models. None tries the default models (linear models,
        trees, boosting and the average of the best few, also for frames with categories and gaps);
        names such as "linear" try some of them, and "default" all of them beside your own.
    scores : None, score, short name, dict, or list of these
        The scores of the candidates, such as ``dco.scores.LAC()`` or "lac". None tries every score
        that fits the models' predictions.
    alpha : float, default=0.1
        The share of new rows that sets may miss: the level is 1 - alpha.
    guarantee : "marginal" or "pac", default="marginal"
        "marginal": a new row is covered with probability at least 1 - alpha. "pac": with
        probability at least 1 - delta over the calibration rows, at least 1 - alpha of new rows
        are covered.
    delta : float, default=0.05
        The failure probability of "pac".
    condition_on : None, "label", "label-clusters", column, function of X, or list
        One threshold for each group (Mondrian). With "label-clusters", rare labels share one with
        labels whose scores are alike. With "pac", delta holds for each group separately. With a
        list of columns and functions, each value of each is a group: all are covered at once,
        though they overlap.
    weights : None, function of X, dict {label: ratio}, or dco.ShiftWeights
        How much more frequent rows (or labels) are among new rows than in calibration, where that
        is known.
    tune_size : None, share or count
        Rows held out to rank candidates. None is a quarter, or `tune_folds` for few rows.
    calibrate_size : None, share or count
        Rows held out to calibrate. None is a quarter, or the smallest number with a finite
        threshold if that is more.
    tune_folds : int or None
        Rank candidates by so many folds of all rows but calibration rows, so that no rows are lost
        to tuning.
    refit : bool, default=True
        Refit the winner on training and tuning rows before it is calibrated (valid, and narrower).
        False is the paper's procedure.
    search : None, dco.search.Random or dco.search.Optuna
        Propose candidates instead of trying all of them.
    objective : None, "mean_size", "p95_size", "even", objective, or function (sets, y) -> float
        What the choice minimises. None is the mean size.
    duplicates : "natural", "drop" or "allow", default="natural"
        What repeated rows are: natural, so that roles ignore them; recording errors, which are
        dropped; or natural also in roles that you bring.
    n_jobs : int or None
        joblib's number of jobs, of the backend in use (``joblib.parallel_config``).
    random_state : int, generator or None
        Seed of roles, folds, uniforms, and of models that have none.

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
        """Predict the probability of each label by the chosen model, in the order of ``classes_``.

        Labels that the model never saw have probability 0.
        """
        features = self.check_features(X)
        record: Any = predict_record(self.predictor_.structure.model, features, ClassProbabilities)
        columns_of_model = np.searchsorted(self.classes_, np.asarray(record.classes))
        shape = (len(record), len(self.classes_))
        probabilities = np.zeros(shape, dtype=record.probabilities.dtype)
        probabilities[:, columns_of_model] = record.probabilities
        return probabilities

    def predict_p(self, X: Any) -> Floats:
        """Compute the conformal p-value of every label, (n, K) in the order of ``classes_``.

        p > alpha iff the label is in the set of the marginal guarantee at level alpha (write 0.1,
        not 1 - 0.9, which is a float below it); sets of "pac" are larger.
        """
        return self.predictor_.p_values(self.check_features(X))

    def _has_classes(self) -> bool:
        return True

    def check_targets(self, y: Any) -> AnyArray:
        """Read y as labels of one kind, or say why it cannot be the target of a classifier."""
        labels = read_targets(y, as_numbers=False)
        check_one_kind(labels)
        check_classification_targets(labels)
        return labels

    def _known_targets(self, y: Any) -> tuple[AnyArray, list[Note]]:
        labels, notes = super()._known_targets(y)
        return labels, [*notes, *note_unknown_labels(labels, self.classes_)]

    def _read_classes(self, *, train: Rows, tune: Rows | None, calibrate: Rows | None) -> AnyArray:
        """Return the distinct labels of all rows of the fit, ascending.

        `train` are the rows that are divided among the roles, `tune` and `calibrate` those that the
        caller chose for a role, or None. Labels must be of one kind, text or numbers, in all of
        these tables and in all frozen models (those that were fitted before).
        """
        labels_of_rows = {}
        for role, rows in {"train": train, "tune": tune, "calibrate": calibrate}.items():
            if rows is not None and len(rows) > 0:
                labels_of_rows[f"the {role} rows"] = rows.y

        labels_of_frozen_models = {}
        for name, model in own_models(self.models).items():
            if is_frozen(model):
                classes_of_model = getattr(model, "classes_", [])
                labels_of_frozen_models[f"the model {name!r}"] = np.asarray(classes_of_model)

        check_label_kinds(labels_of_rows | labels_of_frozen_models)

        classes = np.unique(np.concatenate(list(labels_of_rows.values())))
        if len(classes) < 2:
            raise ValueError(
                f"The data holds one class only ({classes.tolist()[0]!r}): a classifier needs at "
                f"least two classes in y."
            )
        return classes


def _note_few_rows(n: int) -> list[Note]:
    """Note that rows are so few that it costs much to divide them among roles."""
    if n >= FEW_ROWS:
        return []
    text = f"{counted(n, 'row')} {are(n)} few to divide: those that calibrate do not train."
    remedy = (
        "In Python, dco.FullConformalRegressor trains and calibrates on all of them with the same "
        "guarantee, and its sets are mostly narrower."
    )
    return [Note("few-rows", text, remedy)]


class DecoupledRegressor(RegressorMixin, Decoupled):
    """Prediction intervals (or unions of them) with a guarantee, the smallest found among models x
    scores.

    Parameters
    ----------
    models : None, estimator, name, dict, or list of these
        The models of the candidates. Estimators are cloned and fitted; ``FrozenEstimator(model)``
        is used as it is. A dict names its models. None tries the default models (linear and smooth
        models, trees, boosting, quantiles and averages of them, also for frames with categories and
        gaps); names such as "linear" try some of them, and "default" all of them beside your own.
    scores : None, score, short name, dict, or list of these
        The scores of the candidates, such as ``dco.scores.AbsoluteResidual()`` or "absolute". None
        tries every score that fits the models' predictions.
    alpha : float, default=0.1
        The share of new rows that sets may miss: the level is 1 - alpha.
    guarantee : "marginal" or "pac", default="marginal"
        "marginal": a new row is covered with probability at least 1 - alpha. "pac": with
        probability at least 1 - delta over the calibration rows, at least 1 - alpha of new rows
        are covered.
    delta : float, default=0.05
        The failure probability of "pac".
    condition_on : None, column, function of X, or list
        One threshold for each group (Mondrian). With "pac", delta holds for each group separately.
        With a list of columns and functions, each value of each is a group: all are covered at
        once, though they overlap.
    weights : None, function of X, or dco.ShiftWeights
        How much more frequent rows are among new rows than in calibration, where that is known.
    tune_size : None, share or count
        Rows held out to rank candidates. None is a quarter, or `tune_folds` for few rows.
    calibrate_size : None, share or count
        Rows held out to calibrate. None is a quarter, or the smallest number with a finite
        threshold if that is more.
    tune_folds : int or None
        Rank candidates by so many folds of all rows but calibration rows, so that no rows are lost
        to tuning.
    refit : bool, default=True
        Refit the winner on training and tuning rows before it is calibrated (valid, and narrower).
        False is the paper's procedure.
    search : None, dco.search.Random or dco.search.Optuna
        Propose candidates instead of trying all of them.
    objective : None, "mean_size", "p95_size", "even", objective, or function (sets, y) -> float
        What the choice minimises. None is "even" if default models are tried, otherwise the mean
        size.
    effort : "quick", "usual" or "thorough", default="usual"
        How much time the default models may take: without smooth models; with a Gaussian process
        on at most 1,500 rows and, from 1,200 training rows on, two small networks; with larger
        ones.
    support : None or (low, high)
        Where y lies by what you know of it, None for no end, as in (0, None). Sets are cut to it.
    duplicates : "natural", "drop" or "allow", default="natural"
        What repeated rows are: natural, so that roles ignore them; recording errors, which are
        dropped; or natural also in roles that you bring.
    n_jobs : int or None
        joblib's number of jobs, of the backend in use (``joblib.parallel_config``).
    random_state : int, generator or None
        Seed of roles, folds, uniforms, and of models that have none.

    Attributes
    ----------
    certificate_, ranking_, best_candidate_, splits_, notes_, predictor_
    """

    def __init__(
        self,
        models: Any = None,
        scores: Any = None,
        *,
        alpha: Level = 0.1,
        guarantee: Guarantee = "marginal",
        delta: Level = DEFAULT_DELTA,
        condition_on: Any = None,
        weights: Any = None,
        tune_size: Size | None = None,
        calibrate_size: Size | None = None,
        tune_folds: int | None = None,
        refit: bool = True,
        search: Any = None,
        objective: Any = None,
        effort: str = "usual",
        support: tuple[float | None, float | None] | None = None,
        duplicates: Duplicates = "natural",
        n_jobs: int | None = None,
        random_state: Seed = None,
    ) -> None:
        super().__init__(
            models,
            scores,
            alpha=alpha,
            guarantee=guarantee,
            delta=delta,
            condition_on=condition_on,
            weights=weights,
            tune_size=tune_size,
            calibrate_size=calibrate_size,
            tune_folds=tune_folds,
            refit=refit,
            search=search,
            objective=objective,
            duplicates=duplicates,
            n_jobs=n_jobs,
            random_state=random_state,
        )
        self.support = support
        self.effort = effort

    def _fit_predictor(
        self, rows: Rows, brought_tune: Rows | None, brought_calibrate: Rows | None
    ) -> DecoupledPredictor:
        """Fit, and name the estimator that divides no rows where it could have been used."""
        predictor = super()._fit_predictor(rows, brought_tune, brought_calibrate)
        brings_rows = brought_tune is not None or brought_calibrate is not None
        is_plain = (
            self.guarantee == "marginal"
            and self.condition_on is None
            and self.weights is None
            and rows.clusters is None
        )
        tries_all_defaults = self.models is None and self.search is None
        if brings_rows or not is_plain or not tries_all_defaults:
            return predictor
        return replace(predictor, notes=(*predictor.notes, *_note_few_rows(len(rows))))

    def predict_p(self, X: Any, y: Any) -> Floats:
        """Compute the conformal p-value of each given y, (n,).

        p > alpha iff y is in the row's set of the marginal guarantee at level alpha.
        """
        return self.predictor_.p_values(self.check_features(X), self.check_targets(y))

    def _check_parameters(self, *, tune: Any, calibrate: Any) -> None:
        super()._check_parameters(tune=tune, calibrate=calibrate)
        if self.effort not in EFFORTS:
            names = ", ".join(f'"{name}"' for name in EFFORTS)
            raise ValueError(f"effort must be one of {names}, got {self.effort!r}.")
        if self.effort != "usual" and default_names(self.models) == ():
            raise ValueError(
                Message(
                    f"⟨effort={self.effort}⟩ is about the default models, and ⟨models⟩ holds only "
                    f"your own: leave it out, or add the name default to them."
                )
            )
        if self.condition_on is not None and is_label(self.condition_on):
            raise ValueError(
                f'condition_on="{self.condition_on}" is for classes; a regression takes columns '
                f"or callables."
            )

    def _has_classes(self) -> bool:
        return False

    def check_targets(self, y: Any) -> AnyArray:
        return read_targets(y, as_numbers=True)
