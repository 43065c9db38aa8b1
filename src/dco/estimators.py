"""scikit-learn dress over `predictor`: bring models and scores, call ``fit``, get the smallest certified sets found."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from types import FunctionType
from typing import Any, Literal, overload

import numpy as np
from sklearn import get_config
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone
from sklearn.utils import get_tags
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_is_fitted, column_or_1d, validate_data

from dco.arrays import AnyArray, Floats, Integers, check_floats_hold
from dco.certificate import Certificate
from dco.display import counted, first_few
from dco.evaluation import Evaluation, check_not_missing, evaluate
from dco.fingerprints import role_fingerprint
from dco.groups import as_labels, is_label
from dco.models.adapt import holds_frozen, is_frozen, predict_record
from dco.predictions import ClassProbabilities
from dco.predictor import DecoupledPredictor, Facts, Statement, condition_values, fit_decoupled
from dco.ranks import Level, as_count, as_rational
from dco.roles import Growth, Roles, Sizes, deal_roles, given_roles
from dco.rows import KeptRows, Rows, check_table, is_frame, missing_cells, n_rows
from dco.scores.score import Score
from dco.seal import SealedRows
from dco.selection import Workbench, growing_candidates, named_scores
from dco.splits import Splits, as_seed
from dco.tuning import Ranking
from dco.tuning.allocation import grow_tuning_split


class _Decoupled(BaseEstimator, ABC):
    """What the classifier and the regressor share: roles, search, calibration, sets."""

    predictor_: DecoupledPredictor
    splits_: Splits

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Name ``__init__`` after the class: Python quotes that name when a keyword is wrong."""
        super().__init_subclass__(**kwargs)
        shared = _Decoupled.__init__
        if cls.__init__ is shared:
            own = FunctionType(shared.__code__, shared.__globals__, shared.__name__, shared.__defaults__)
            own.__kwdefaults__, own.__annotations__ = shared.__kwdefaults__, shared.__annotations__
            own.__qualname__ = f"{cls.__qualname__}.__init__"
            cls.__init__ = own  # type: ignore[method-assign]

    def __init__(
        self,
        models: Any,
        scores: Any = None,
        *,
        alpha: Level = 0.1,
        guarantee: Literal["marginal", "pac"] = "marginal",
        delta: Level = 0.05,
        tune_size: float | int | Literal["auto"] = 0.25,
        calibrate_size: float | int = 0.25,
        tune_folds: int | None = None,
        refit: bool = True,
        ensemble: bool = False,
        condition_on: Any = None,
        simultaneous: bool = False,
        search: Any = None,
        stratify: bool = False,
        duplicates: Literal["natural", "drop", "allow"] = "natural",
        n_jobs: int | None = None,
        scheduler: str | None = None,
        random_state: Any = None,
        on_infeasible: Literal["warn", "raise"] = "warn",
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
        self.ensemble = ensemble
        self.condition_on = condition_on
        self.simultaneous = simultaneous
        self.search = search
        self.stratify = stratify
        self.duplicates = duplicates
        self.n_jobs = n_jobs
        self.scheduler = scheduler
        self.random_state = random_state
        self.on_infeasible = on_infeasible

    def fit(self, X: Any, y: Any, *, tune: Any = None, calibrate: Any = None, groups: Any = None, **params: Any) -> Any:
        """Search on training and tuning rows, fix one structure, calibrate it once on sealed rows.

        Alone, the rows of X are dealt to roles by `tune_size`, `calibrate_size` and `random_state`. ``calibrate=(X, y)``
        and ``tune=(X, y)`` bring the caller's own rows (a third entry, a dict, holds their fit parameters and groups).
        `groups` has one label a row: whole groups stay in one role, and the statement is about a row picked at random from a
        new group. Other keyword arguments (``sample_weight`` ...) are cut by role and handed to the models' ``fit``; they
        never weight the calibration.
        """
        self._check_parameters(tune=tune, groups=groups)
        if params and get_config().get("enable_metadata_routing") and self.search is None:
            process_routing(self, "fit", **params)  # an unset or unknown request is an error here, not a failed candidate
        new = object.__new__(type(self))  # takes what is fitted, until all of it is: a fit that fails changes nothing
        new.__dict__.update(self.__dict__)
        seed = as_seed(self.random_state)
        rows = new._rows(X, y, groups, params, reset=True)
        self._check_condition(rows.X, self.condition_on)
        roles = new._roles(rows, tune=tune, calibrate=calibrate, seed=seed)
        new.splits_ = roles.splits
        new._set_classes([roles.train.y, roles.tune.y, roles.calibrate.y])
        models = self._seeded_models(seed)
        bench = new._bench(roles.train, roles.tune, seed, roles.prefitted)
        facts = self._facts(roles, models, seed)
        sealed = SealedRows(roles.calibrate.X, roles.calibrate.y, fingerprint=facts.fingerprints.get("calibrate"))
        new.predictor_ = fit_decoupled(
            models,
            self._scores(),
            bench,
            sealed,
            self._statement(),
            refit=self.refit,
            ensemble=self.ensemble,
            condition_on=self.condition_on,
            search=self.search,
            groups=roles.calibrate.groups,
            seed=seed,
            facts=facts,
        )
        if new.predictor_.structure.classes is not None:
            new._set_classes([new.predictor_.structure.classes])  # a frozen model may know more labels than the rows hold
        self.__dict__ = new.__dict__
        return self

    def predict(self, X: Any) -> AnyArray:
        """The point prediction of the chosen model."""
        X = self._features(X)
        return np.asarray(self.predictor_.structure.model.predict(X))

    def predict_set(
        self,
        X: Any,
        alpha: Any = None,
        *,
        guarantee: Literal["marginal", "pac"] | None = None,
        delta: Level | None = None,
    ) -> Any:
        """The prediction set of each row; with a list of levels, a list of sets from the one calibration.

        `guarantee` and `delta` ask for the other statement from the same calibration scores, in place of that of the fit.
        Each level is guaranteed if it was fixed without looking at calibration or test results; for a level picked by its
        result, ``certificate_.simultaneous_slack()`` is what coverage may lack.
        """
        X = self._features(X)
        one = alpha is None or np.ndim(alpha) == 0
        levels = [alpha] if one else list(alpha)
        for level in levels:
            self.predictor_.tell_infeasible(self.predictor_.stated(level, guarantee=guarantee, delta=delta), stacklevel=3)
        self.predictor_.tell_new_groups(X, stacklevel=3)
        self.predictor_.tell_new_gaps(self.predictor_.new_gaps(X), n_rows(X), stacklevel=3)
        prediction = self.predictor_.structure.prediction(X)
        sets = [self.predictor_.sets(X, level, guarantee=guarantee, delta=delta, prediction=prediction) for level in levels]
        return sets[0] if one else sets

    @overload
    def evaluate(
        self,
        X: Any,
        y: Any,
        *,
        alpha: Level | None = None,
        guarantee: Literal["marginal", "pac"] | None = None,
        delta: Level | None = None,
        by: Any = None,
    ) -> Evaluation: ...

    @overload
    def evaluate(
        self,
        X: Any,
        y: Any,
        *,
        alpha: list[Any] | tuple[Any, ...],
        guarantee: Literal["marginal", "pac"] | None = None,
        delta: Level | None = None,
        by: Any = None,
    ) -> list[Evaluation]: ...

    def evaluate(
        self,
        X: Any,
        y: Any,
        *,
        alpha: Any = None,
        guarantee: Literal["marginal", "pac"] | None = None,
        delta: Level | None = None,
        by: Any = None,
    ) -> Evaluation | list[Evaluation]:
        """Coverage, sizes and consistency with the coverage law on rows that were used for nothing else.

        `alpha`, `guarantee` and `delta` are those of `predict_set`: with a list of levels, a list of evaluations. `by` has
        one label a row, or names groups as `condition_on` does: the table by group. Under `condition_on` the groups of the
        conditions are taken, each compared with the law of its own threshold. Rows that took part in the fit are counted in
        a warning, and in ``no_verdict``: there is then no verdict. There is none either after a fit with `groups`: the law
        is for independent rows. Labels that are not in ``classes_`` are counted in a warning too, and in the verdict, which
        is about the other rows and says that the assumption of the guarantee fails; in `coverage` their rows are misses.
        """
        features, own = self._features(X), self.predictor_
        target = self._known_targets(y, stacklevel=3)
        same = by is not None and np.ndim(by) == 0 and by == own.structure.condition_on  # groups with laws of their own
        groups = None if same else self._groups_by(by, features, target)
        one = alpha is None or np.ndim(alpha) == 0
        statements = [own.stated(level, guarantee=guarantee, delta=delta) for level in ([alpha] if one else alpha)]
        for statement in statements:
            own.tell_infeasible(statement, stacklevel=3)
        own.tell_new_groups(features, stacklevel=3)
        own.tell_new_gaps(own.new_gaps(features), n_rows(features), stacklevel=3)
        used, spoilt = own.tell_used_rows(features, target, stacklevel=3)
        prediction, conditions = own.structure.prediction(features), own.structure.conditions(features, target)
        found = []
        for statement in statements:
            asked: dict[str, Any] = {"alpha": statement.alpha, "guarantee": guarantee, "delta": delta}
            every = own.thresholds(**asked)
            thresholds = {name: threshold for name, threshold in every.items() if name not in spoilt}
            made = evaluate(
                own.sets(features, **asked, prediction=prediction),
                target,
                threshold=thresholds.get(None),
                groups=conditions if groups is None else groups,
                thresholds=thresholds if groups is None else None,
                tied=own.is_tied(statement),
            )
            found.append(made if used is None else replace(made, no_verdict=used))
        return found[0] if one else found

    def _groups_by(self, by: Any, X: Any, y: AnyArray) -> AnyArray | None:
        """The label of each row that `by` gives, or names: a column of X, "label", or a callable of X."""
        if by is not None and (np.ndim(by) == 0 or callable(by)):
            self._check_condition(X, by, parameter="by")
            if is_label(by) and not hasattr(self, "classes_"):
                raise ValueError(
                    'by="label" is for classes; a regression takes a column, a callable of X, or a label a row.'
                )
            return condition_values(by, X, y, parameter="by")
        groups = None if by is None else as_labels(by)
        if groups is not None and groups.shape != y.shape:
            raise ValueError(f"by must hold one label for each of {len(y)} rows, got shape {groups.shape}.")
        return groups

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

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters by name; models in a list or a dict are reached as ``models__name`` and ``models__name__param``."""
        params: dict[str, Any] = super().get_params(deep=deep)
        if deep and isinstance(self.models, (list, tuple, Mapping)):
            for name, model in named_models(self.models).items():
                params[f"models__{name}"] = model
                if hasattr(model, "get_params"):
                    params |= {f"models__{name}__{key}": value for key, value in model.get_params().items()}
        return params

    def set_params(self, **params: Any) -> Any:
        """Set parameters; ``models__name`` replaces a model of a list or a dict, ``models__name__param`` its parameter."""
        if "models" in params:
            self.models = params.pop("models")
        if isinstance(self.models, (list, tuple, Mapping)):
            own = {key: value for key, value in params.items() if key.startswith("models__")}
            params = {key: value for key, value in params.items() if key not in own}
            for key in sorted(own, key=lambda text: text.count("__")):
                self._set_model_param(key.removeprefix("models__"), own[key])
        super().set_params(**params)
        return self

    def get_metadata_routing(self) -> MetadataRouter:
        """Fit parameters go to the models that ask for them."""
        router = MetadataRouter(owner=type(self).__name__).add_self_request(self)
        for name, model in named_models(self.models).items():
            if hasattr(model, "get_metadata_routing"):
                router.add(**{name: model}, method_mapping=MethodMapping().add(caller="fit", callee="fit"))
        return router

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        models = [model for model in named_models(self.models).values() if _input_tags(model) is not None]
        # one that takes NaN is enough: others fail as candidates, with their own words; a search may propose any model
        tags.input_tags.allow_nan = self.search is not None or any(_takes_nan(model) for model in models)
        tags.input_tags.sparse = bool(models) and all(_input_tags(model).sparse for model in models)
        return tags

    # ------------------------------------------------------------------------------------------ checks

    def _check_parameters(self, *, tune: Any, groups: Any) -> None:
        as_rational(self.alpha)
        as_rational(self.delta, name="delta")
        if self.guarantee not in ("marginal", "pac"):
            raise ValueError(f'guarantee must be "marginal" or "pac", got {self.guarantee!r}.')
        if self.on_infeasible not in ("warn", "raise"):
            raise ValueError(f'on_infeasible must be "warn" or "raise", got {self.on_infeasible!r}.')
        if self.duplicates not in ("natural", "drop", "allow"):
            raise ValueError(f'duplicates must be "natural", "drop" or "allow", got {self.duplicates!r}.')
        if self.tune_folds is not None and as_count(self.tune_folds, name="tune_folds") < 2:
            raise ValueError(f"tune_folds must be at least 2, got {self.tune_folds}.")
        if self.tune_folds is not None and not self.refit:
            raise ValueError("tune_folds needs refit=True: no single model was fitted on all the rows that tuned.")
        if self.tune_folds is not None and tune is not None:
            raise ValueError("tune_folds tunes on all rows that are not calibration rows; leave tune= out.")
        if groups is not None and self.condition_on is not None:
            raise ValueError("groups= and condition_on= cannot be combined: no threshold is known to be valid for both.")
        if groups is not None and self.stratify:
            raise ValueError("groups= and stratify=True cannot be combined: whole groups cannot also be balanced.")
        if self.search is not None and not hasattr(self.search, "search"):
            raise ValueError(f"search must be None, dco.search.Random(...) or dco.search.Optuna(...), got {self.search!r}.")
        if not named_models(self.models) and self.search is None:
            raise ValueError("models is empty: pass an estimator, a list of estimators or a dict of them.")
        self._check_scores()

    def _check_scores(self) -> None:
        scores = self._scores()
        if scores is not None and not scores:
            raise ValueError("scores is empty: pass None for all scores that suit the models, or name some.")
        for score in (scores or {}).values():
            if isinstance(score, type):
                raise ValueError(f"scores holds the class {score.__name__}: make a score of it, {score.__name__}(...).")
            if not isinstance(score, Score):
                raise ValueError(f"scores must hold scores such as those of dco.scores, got {score!r:.200}.")

    def _check_condition(self, X: Any, rule: Any, *, parameter: str = "condition_on") -> None:
        """A column of an array is a number; columns of frames are looked up by name, where they are used."""
        if rule is None or callable(rule) or is_label(rule):
            return
        if not isinstance(rule, Hashable):
            raise ValueError(
                f"{parameter} must be one column or a callable, got {type(rule).__name__}: for several columns, or groups "
                "made elsewhere, pass a callable that takes X and gives each row's group."
            )
        if is_frame(X):
            return
        if isinstance(rule, bool) or not isinstance(rule, (int, np.integer)) or not -X.shape[1] <= rule < X.shape[1]:
            raise ValueError(
                f"{parameter} must be a column number below {X.shape[1]} or a callable, as X is an array; got {rule!r}."
            )

    def _features(self, X: Any) -> Any:
        """New rows for a fitted estimator: the same columns as in ``fit``."""
        check_is_fitted(self, "predictor_")
        return self._checked(X, reset=False)

    def _checked(self, X: Any, *, reset: bool) -> Any:
        """X with its columns checked; frames and text pass untouched."""
        check_table(X)
        if is_frame(X):
            validate_data(self, X, skip_check_array=True, reset=reset)
            if n_rows(X) == 0:
                raise ValueError("Found array with 0 sample(s): X has no rows.")
            return X
        allow_nan = "allow-nan" if get_tags(self).input_tags.allow_nan else True
        dtype = None if _is_object_array(X) and _holds_text(X) else "numeric"
        return validate_data(self, X, reset=reset, accept_sparse="csr", ensure_all_finite=allow_nan, dtype=dtype)

    def _rows(self, X: Any, y: Any, groups: Any, params: Mapping[str, Any], *, reset: bool) -> Rows:
        if y is None:
            raise ValueError(f"This {type(self).__name__} estimator requires y to be passed, but the target y is None.")
        features = self._checked(X, reset=reset)
        target = self._targets(y)
        if len(target) != n_rows(features):
            raise ValueError(f"X has {counted(n_rows(features), 'row')} and y has {len(target)}: give one target a row.")
        if isinstance(groups, str):
            raise ValueError(f"groups must hold one label a row, got the text {groups!r}: pass X[{groups!r}].")
        labels = None if groups is None else as_labels(groups)
        if labels is not None and labels.shape != target.shape:
            raise ValueError(f"groups must hold one label for each of {len(target)} rows, got shape {labels.shape}.")
        given = {name: value for name, value in params.items() if value is not None}  # None is as good as not given
        rows = Rows(features, target, labels, given)
        rows.check_weights()
        return rows

    def _given(self, role: str, given: Any) -> Rows | None:
        if given is None:
            return None
        if not isinstance(given, (tuple, list)) or len(given) not in (2, 3):
            raise ValueError(f"{role} must be (X, y) or (X, y, {{fit parameters}}), got {type(given).__name__}.")
        if len(given) == 3 and not isinstance(given[2], Mapping):
            raise ValueError(f"the third entry of {role} must be a dict of fit parameters, got {type(given[2]).__name__}.")
        extra = dict(given[2]) if len(given) == 3 else {}
        groups = extra.pop("groups", None)
        return self._rows(given[0], given[1], groups, extra, reset=False)

    # ------------------------------------------------------------------------------------------ roles

    def _roles(self, rows: Rows, *, tune: Any, calibrate: Any, seed: int) -> Roles:
        sizes = Sizes(self.tune_size, self.calibrate_size, self.tune_folds)
        given_tune, given_calibrate = self._given("tune", tune), self._given("calibrate", calibrate)
        shared: dict[str, Any] = {"seed": seed, "frozen": self._all_frozen()}
        shared |= {"stratify": self.stratify, "duplicates": self.duplicates}
        if given_tune is None and given_calibrate is None:
            return deal_roles(rows, sizes, grow=partial(self._grow, seed=seed), **shared)
        return given_roles(rows, sizes, tune=given_tune, calibrate=given_calibrate, **shared)

    def _grow(self, growth: Growth, *, seed: int) -> tuple[Integers, Integers, Mapping[str, Any]]:
        """The rows that tune and that calibrate, and the models fitted to find out."""
        if self.search is not None or self.condition_on is not None:
            raise ValueError('tune_size="auto" works with the exhaustive search and without condition_on.')
        rows = growth.rows
        self._set_classes([rows.y])
        bench = self._bench(rows.take(growth.train), rows.take(growth.tune), seed, {})
        look, prefitted = growing_candidates(self._seeded_models(seed), self._scores(), bench, rows)
        allocation = grow_tuning_split(
            growth.order,
            look,
            alpha=self.alpha,
            delta=self.delta if self.guarantee == "pac" else None,
            calibrate_size=growth.least,
            seed=seed,
            groups=rows.groups,
        )
        return allocation.tune, allocation.calibrate, prefitted

    # ------------------------------------------------------------------------------------------ parts

    def _statement(self) -> Statement:
        return Statement(self.alpha, self.guarantee, self.delta, self.simultaneous, self.on_infeasible)

    def _bench(self, train: Rows, tune: Rows, seed: int, prefitted: Mapping[str, Any]) -> Workbench:
        uniform_seed, fold_seed = np.random.SeedSequence(seed).generate_state(2).tolist()
        classes = getattr(self, "classes_", None)
        return Workbench(
            train, tune, self.tune_folds, uniform_seed, fold_seed, classes, prefitted, self.n_jobs, self.scheduler
        )

    def _scores(self) -> dict[str, Any] | None:
        if self.scores is None:
            return None
        if isinstance(self.scores, Mapping):
            return dict(self.scores)
        listed = list(self.scores) if isinstance(self.scores, (list, tuple)) else [self.scores]
        return named_scores(listed)

    def _seeded_models(self, seed: int) -> dict[str, Any]:
        """Copies of the models; those without a seed get one, so that the certificate's seed repeats the fit."""
        models = named_models(self.models)
        numbers = np.random.SeedSequence([seed, 1]).generate_state(max(len(models), 1)).tolist()
        seeded = {}
        for number, (name, model) in zip(numbers, models.items(), strict=False):
            if is_frozen(model):
                seeded[name] = model
                continue
            if not (hasattr(model, "get_params") or hasattr(model, "__sklearn_clone__")):
                raise TypeError(
                    f"The model {name!r} has no get_params, so it cannot be copied and fitted: derive it from "
                    "sklearn.base.BaseEstimator, or pass sklearn.frozen.FrozenEstimator(model) if it is fitted already."
                )
            copy = clone(model)
            params = copy.get_params() if hasattr(copy, "get_params") else {}
            for splitter in filter(_is_free_splitter, params.values()):
                splitter.random_state = number % 2**31  # the copy's own: `clone` copies what is no estimator
            free = {key: number % 2**31 for key, value in params.items() if _is_free_seed(key, value)}
            seeded[name] = copy.set_params(**free) if free else copy
        return seeded

    def _all_frozen(self) -> bool:
        models = named_models(self.models)
        return bool(models) and self.search is None and all(is_frozen(model) for model in models.values())

    def _facts(self, roles: Roles, models: Mapping[str, Any], seed: int) -> Facts:
        voided = None
        balanced = roles.splits.stratified and roles.splits.calibrate.size > 0  # rows given for calibration are as they were
        if balanced and not is_label(self.condition_on):
            voided = (
                "roles were balanced over labels (stratify=True), so calibration rows are not exchangeable with a new row "
                "and coverage is only approximately at its level"
            )
        gaps = [missing_cells(role.X) for role in (roles.train, roles.tune, roles.calibrate) if len(role)]
        return Facts(
            rows=roles.sizes,
            fingerprints={name: role_fingerprint(own) for name, own in roles.hashes.items()},
            kept=KeptRows.of(roles.hashes),
            repeats_shared=roles.shared,
            training_rows_checked=not any(map(holds_frozen, models.values())),
            seed=seed,
            voided=voided,
            dealt_from=roles.dealt_from(),
            grouped=roles.calibrate.groups is not None,
            distinct=self.duplicates == "drop",
            complete=np.sum(gaps, axis=0) == 0,
        )

    def _set_model_param(self, key: str, value: Any) -> None:
        names = named_models(self.models)
        name = next(
            (name for name in sorted(names, key=len, reverse=True) if key == name or key.startswith(f"{name}__")), None
        )
        if name is None:
            raise ValueError(f"There is no model for {key!r}; the models are {', '.join(names)}.")
        if key != name:
            names[name].set_params(**{key.removeprefix(f"{name}__"): value})
            return
        names[name] = value
        named = isinstance(self.models, Mapping) or any(map(_is_pair, [self.models, *self.models]))
        self.models = names if named else list(names.values())

    @abstractmethod
    def _targets(self, y: Any) -> AnyArray:
        """y as this estimator takes it, or an error."""

    def _known_targets(self, y: Any, *, stacklevel: int = 2) -> AnyArray:
        """The targets of rows to be evaluated."""
        check_not_missing(y, "coverage needs rows whose target is known. Leave such rows out.")
        return _one_column(y)

    def _set_classes(self, targets: list[AnyArray]) -> None:
        """Regression has no classes."""


class DecoupledClassifier(ClassifierMixin, _Decoupled):
    """Prediction sets of labels with a guarantee, the smallest found among models x scores.

    Parameters
    ----------
    models : estimator, list of estimators or of (name, estimator), or dict {name: estimator}
        Candidates' models. Each is cloned and fitted; ``FrozenEstimator(model)`` is used as it is.
    scores : None, a score, list, or dict {name: score}
        None tries every score that suits what the models give.
    alpha, guarantee, delta
        "marginal": a new row is covered with probability >= 1 - alpha. "pac": with probability >= 1 - delta over the
        calibration rows, at least 1 - alpha of new rows are covered.
    tune_size, calibrate_size : share, count; tune_size also "auto"
        Rows held out for tuning and for calibration. "auto" grows the tuning split until selection has settled.
    tune_folds : int or None
        Rank candidates by folds over all rows but calibration rows: no rows are lost to tuning.
    refit : bool
        Refit the winner on train + tune before calibrating (valid, and narrower); False is the paper's procedure.
    ensemble : bool
        Let the average of the best few models be a candidate too.
    condition_on : None, "label", a column, or a callable of X
        A threshold for each group (Mondrian). With "pac", delta holds for each group separately; `simultaneous` spends
        delta / G on each.
    search : None, dco.search.Random, dco.search.Optuna
    stratify : bool
        Balance the roles that are dealt from X over labels. If calibration is one of them, marginal coverage is
        approximate and the certificate says "none".
    duplicates : "natural", "drop", "allow"
        What repeated rows are: natural (roles ignore them), recording errors (dropped), or natural also in caller's roles.
    n_jobs, scheduler : joblib's number of jobs, or the address of a Dask cluster.
    random_state : seed of roles, folds, uniforms, and of models that have none.
    on_infeasible : "warn" or "raise" when there are too few calibration rows for a finite threshold.

    Attributes
    ----------
    certificate_, ranking_, best_candidate_, splits_, predictor_, classes_
    """

    classes_: AnyArray

    def predict_proba(self, X: Any) -> Floats:
        """The chosen model's class probabilities, in the order of ``classes_``; labels it never saw have 0."""
        features = self._features(X)
        record = predict_record(self.predictor_.structure.model, features, ClassProbabilities)
        assert isinstance(record, ClassProbabilities)
        result = np.zeros((len(record), len(self.classes_)), dtype=record.probabilities.dtype)
        result[:, np.searchsorted(self.classes_, np.asarray(record.classes))] = record.probabilities
        return result

    def predict_p(self, X: Any) -> Floats:
        """The conformal p-value of every label, (n, K) in the order of ``classes_``.

        p > alpha iff the label is in the set of the marginal guarantee at level alpha (write 0.1, not 1 - 0.9, which is a
        float below it); sets of "pac" are larger.
        """
        return self.predictor_.p_values(self._features(X))

    def _targets(self, y: Any) -> AnyArray:
        check_not_missing(y, "every row needs a label. Leave such rows out.")
        _check_one_kind(y)
        labels = _one_column(y, warn=True)
        check_classification_targets(labels)
        return labels

    def _known_targets(self, y: Any, *, stacklevel: int = 2) -> AnyArray:
        labels = super()._known_targets(y)
        counts, known = Counter(labels.tolist()), dict.fromkeys(self.classes_.tolist())
        unknown = {label: count for label, count in counts.most_common() if label not in known}
        if counts and len(unknown) == len(counts):
            raise ValueError(
                f"None of y's labels is among classes_: y holds {_listed(counts)}, the classes are {_listed(known)}. "
                "Spell labels as in fit, and give them the same type."
            )
        if unknown:
            n = sum(unknown.values())
            shown = first_few([f"{label!r}: {count}" for label, count in unknown.items()])
            warnings.warn(
                f"{n} of {counted(len(labels), 'row')} {'has a label that is' if n == 1 else 'have labels that are'} not in "
                f"classes_ ({shown}): no set holds such a label, so these rows are "
                "misses. Are labels spelt as in fit?",
                UserWarning,
                stacklevel=stacklevel,
            )
        return labels

    def _set_classes(self, targets: list[AnyArray]) -> None:
        rows = dict(zip(("the train rows", "the tune rows", "the calibrate rows"), targets, strict=False))
        frozen = {name: model for name, model in named_models(self.models).items() if is_frozen(model)}
        known = {f"the model {name!r}": getattr(model, "classes_", None) for name, model in frozen.items()}
        listed = {name: np.asarray(own) for name, own in known.items() if isinstance(own, (np.ndarray, list))}
        _check_label_kinds(rows | listed)
        self.classes_ = np.unique(np.concatenate([target for target in targets if len(target)]))
        if len(self.classes_) < 2:
            only = self.classes_.tolist()[0]
            raise ValueError(f"The data holds one class only ({only!r}): a classifier needs at least two classes in y.")


class DecoupledRegressor(RegressorMixin, _Decoupled):
    """Prediction intervals (or unions of them) with a guarantee, the smallest found among models x scores.

    Parameters and attributes are those of `DecoupledClassifier`; ``condition_on="label"`` is for classes only.
    """

    def predict_p(self, X: Any, y: Any) -> Floats:
        """The conformal p-value of each given y, (n,); p > alpha iff y is in the row's set (of the marginal guarantee)."""
        return self.predictor_.p_values(self._features(X), self._targets(y))

    def _check_parameters(self, *, tune: Any, groups: Any) -> None:
        super()._check_parameters(tune=tune, groups=groups)
        if is_label(self.condition_on):
            raise ValueError('condition_on="label" is for classes; a regression takes a column or a callable of X.')
        if self.stratify:
            raise ValueError("stratify=True is for classes.")

    def _targets(self, y: Any) -> AnyArray:
        check_not_missing(y, "every row needs a number. Leave such rows out.")
        check_floats_hold(y, name="y")
        column = _one_column(y, warn=True)
        try:
            values: AnyArray = check_array(column, ensure_2d=False, input_name="y", dtype=np.float64)
        except ValueError:
            text = next((value for value in column.tolist() if isinstance(value, str)), None)
            if text is None:
                raise
            raise ValueError(
                f"y holds text ({text!r}), and a regressor needs numbers. Classes: DecoupledClassifier."
            ) from None
        return values

    def _known_targets(self, y: Any, *, stacklevel: int = 2) -> AnyArray:
        check_floats_hold(y, name="y")
        return super()._known_targets(y)


def named_models(models: Any) -> dict[str, Any]:
    """{name: model}: the names given, in a dict or in pairs, or class names in lower case, numbered where they repeat."""
    if models is None:
        return {}
    if isinstance(models, Mapping):
        return {str(name): model for name, model in models.items()}
    listed = list(models) if isinstance(models, (list, tuple)) and not _is_pair(models) else [models]
    pairs = [entry for entry in listed if _is_pair(entry)]
    if pairs:
        if len(dict(pairs)) < len(listed):
            raise ValueError("models must be estimators, or (name, estimator) pairs throughout, each name once.")
        return dict(pairs)
    stems = [type(model).__name__.lower() for model in listed]
    seen: dict[str, int] = {}
    names = []
    for stem in stems:
        seen[stem] = seen.get(stem, 0) + 1
        names.append(stem if stems.count(stem) == 1 else f"{stem}-{seen[stem]}")
    return dict(zip(names, listed, strict=True))


def _one_column(y: Any, *, warn: bool = False) -> AnyArray:
    """y as one target a row, or a word about the others."""
    try:
        column: AnyArray = column_or_1d(y, warn=warn)
    except ValueError:
        if np.ndim(y) != 2:
            raise
        columns = np.shape(y)[1]
        raise ValueError(
            f"y has {columns} columns, and an estimator has one target: fit one estimator for each column, "
            "or control a risk of several tags with dco.losses."
        ) from None
    return column


def _is_pair(entry: Any) -> bool:
    """Whether it is (name, model), as the steps of a Pipeline are."""
    return isinstance(entry, (tuple, list)) and len(entry) == 2 and isinstance(entry[0], str)


def _check_one_kind(y: Any) -> None:
    """Refuse text and numbers in one y: they cannot be sorted, and NumPy makes 1 and "1" one label where it joins them."""
    if getattr(getattr(y, "dtype", None), "kind", "O") != "O":
        return
    labels = np.asarray(y, dtype=object).ravel().tolist()
    text = next((label for label in labels if isinstance(label, (str, bytes))), None)
    number = next((label for label in labels if isinstance(label, (int, float, np.number, np.bool_))), None)
    if text is not None and number is not None:
        raise ValueError(
            f"y holds text ({text!r}) and numbers ({number!r}) as labels: give all labels one type, in fit and afterwards, "
            "by astype(str) say."
        )


def _check_label_kinds(labels: Mapping[str, AnyArray]) -> None:
    """Refuse text in one place and numbers in another: joined, numbers would become texts, and classes of their own."""
    kinds = {place: "text" if isinstance(own[0], (str, bytes)) else "numbers" for place, own in labels.items() if len(own)}
    if len(set(kinds.values())) > 1:
        found = "; ".join(
            f"those of {place} are {kind} ({_listed(dict.fromkeys(labels[place].tolist()))})"
            for place, kind in kinds.items()
        )
        raise ValueError(f"Labels must be of one kind in all roles and models, but {found}. Spell them in one way.")


def _listed(labels: Iterable[Any]) -> str:
    return first_few([repr(label) for label in labels])


def _is_free_seed(key: str, value: Any) -> bool:
    return value is None and (key == "random_state" or key.endswith("__random_state"))


def _is_free_splitter(value: Any) -> bool:
    """Folds that a search or a stack inside a model shuffles without a seed."""
    shuffles = hasattr(value, "split") and getattr(value, "shuffle", True)
    return bool(shuffles) and getattr(value, "random_state", 0) is None


def _takes_nan(model: Any) -> bool:
    """Whether a model may take NaN; a Pipeline has no tag for it, so its first step (an imputer, say) is asked."""
    if hasattr(model, "steps"):
        steps = [step for _, step in model.steps if step is not None and not isinstance(step, str)]
        return bool(steps) and _takes_nan(steps[0])
    if hasattr(model, "transformers") or hasattr(model, "transformer_list"):  # several at once, each with columns of its own
        return True
    tags = _input_tags(model)
    return tags is not None and bool(tags.allow_nan)


def _input_tags(model: Any) -> Any:
    """What scikit-learn's tags say of the input; None for a model without tags, inside a frozen wrapper too."""
    try:
        return get_tags(model).input_tags
    except AttributeError:
        return None


def _is_object_array(X: Any) -> bool:
    return isinstance(X, np.ndarray) and X.dtype.kind in "OUS"


def _holds_text(X: AnyArray) -> bool:
    return X.dtype.kind in "US" or any(isinstance(value, str) for value in X.flat)
