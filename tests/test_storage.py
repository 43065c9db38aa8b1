"""Saving and loading: what comes back, what is refused, and that no file runs code."""

import ast
import datetime as dt
import enum
import hashlib
import inspect
import io
import json
import math
import os
import pickle
import pkgutil
import re
import secrets
import subprocess
import sys
import types
import warnings
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, is_dataclass
from decimal import Decimal
from fractions import Fraction
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import polars
import pytest
import sklearn
import skops.io
from scipy import sparse
from sklearn import (
    calibration,
    compose,
    decomposition,
    discriminant_analysis,
    ensemble,
    feature_selection,
    gaussian_process,
    impute,
    kernel_approximation,
    linear_model,
    model_selection,
    multiclass,
    naive_bayes,
    neighbors,
    neural_network,
    pipeline,
    preprocessing,
    svm,
    tree,
)
from sklearn.base import BaseEstimator, clone
from sklearn.ensemble import (
    HistGradientBoostingRegressor,
    RandomForestClassifier,
)
from sklearn.frozen import FrozenEstimator
from sklearn.gaussian_process import kernels
from sklearn.linear_model import Ridge
from sklearn.utils import all_estimators

import dco
from dco.storage import trusted_types
from dco.storage.comparing import find_difference

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 5))
NUMBERS = X[:, 0] + 0.3 * RNG.normal(size=60) + 5
CLASSES = (X[:, 0] > -0.4).astype(int) + (X[:, 1] > 0.4)
BINARY = (X[:, 0] > 0).astype(int)


@dataclass(frozen=True)
class Case:
    """A model to save, and the rows on which it is fitted."""

    name: str
    model: Any
    X: Any
    y: Any


# ----------------------------------------------------------------------- every estimator of sklearn

SEARCHES = {"GridSearchCV", "RandomizedSearchCV", "HalvingGridSearchCV", "HalvingRandomSearchCV"}
SPECIAL: dict[str, dict[str, Any]] = {
    "RANSACRegressor": {"estimator": None},
    "QuadraticDiscriminantAnalysis": {"reg_param": 0.1},
    "CCA": {"n_components": 1},
    "PLSCanonical": {"n_components": 1},
}


def make_estimator(name: str, cls: Any, *, base: Any) -> Any:
    """Make an estimator that is quick to fit; `base` is the model inside, where it needs one."""
    arguments: dict[str, Any] = {
        "estimators": [("base", base)],
        "estimator": base,
        "random_state": 0,
        "n_estimators": 5,
        **SPECIAL.get(name, {}),
    }
    if name.startswith("HistGradient"):
        arguments["max_iter"] = 5

    parameters = inspect.signature(cls).parameters
    if "estimator" in parameters:
        default = parameters["estimator"].default
        if default not in (inspect.Parameter.empty, None):
            del arguments["estimator"]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # classes on their way out
        return cls(**{key: value for key, value in arguments.items() if key in parameters})


def classes_for(name: str) -> Any:
    """Targets that the classifier of this name takes."""
    if name in ("FixedThresholdClassifier", "TunedThresholdClassifierCV"):
        return BINARY
    if name == "ClassifierChain" or name.startswith("MultiOutputC"):
        return np.column_stack([BINARY, BINARY])
    return CLASSES


def numbers_for(name: str) -> Any:
    """Targets that the regressor of this name takes."""
    if name.startswith(("MultiTask", "MultiOutputR", "RegressorChain")):
        return np.column_stack([NUMBERS, NUMBERS])
    return NUMBERS


def features_for(name: str) -> Any:
    """Rows that the estimator of this name takes."""
    if name in ("CategoricalNB", "ComplementNB", "MultinomialNB"):
        return np.abs(X).round()
    if name == "IsotonicRegression":
        return X[:, :1]
    return X


def every_estimator() -> Iterator[Case]:
    """Each classifier and regressor of scikit-learn."""
    for name, cls in all_estimators(type_filter="classifier"):
        if name not in SEARCHES:
            model = make_estimator(name, cls, base=linear_model.LogisticRegression())
            yield Case(name, model, features_for(name), classes_for(name))
    for name, cls in all_estimators(type_filter="regressor"):
        if name not in SEARCHES:
            model = make_estimator(name, cls, base=linear_model.Ridge())
            yield Case(name, model, features_for(name), numbers_for(name))


# --------------------------------------------------------------------------- variants in common use


RIDGE = linear_model.Ridge()
LOGISTIC = linear_model.LogisticRegression()


def transformers() -> list[Any]:
    """Steps that come before a ridge regression in a pipeline."""
    return [
        preprocessing.StandardScaler(),
        preprocessing.MinMaxScaler(),
        preprocessing.RobustScaler(),
        preprocessing.QuantileTransformer(n_quantiles=10),
        preprocessing.PowerTransformer(),
        preprocessing.PolynomialFeatures(2),
        preprocessing.SplineTransformer(),
        preprocessing.KBinsDiscretizer(3, quantile_method="averaged_inverted_cdf"),
        preprocessing.FunctionTransformer(np.abs),
        preprocessing.OneHotEncoder(handle_unknown="ignore"),
        preprocessing.OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1),
        preprocessing.TargetEncoder(cv=3, shuffle=False),
        impute.SimpleImputer(),
        impute.KNNImputer(),
        decomposition.PCA(2),
        kernel_approximation.RBFSampler(),
        kernel_approximation.Nystroem(n_components=5),
        feature_selection.VarianceThreshold(),
        feature_selection.SelectFromModel(linear_model.Lasso(alpha=0.01)),
        feature_selection.SelectKBest(feature_selection.f_regression, k=2),
        compose.ColumnTransformer(
            [("scale", preprocessing.StandardScaler(), [0, 1])], remainder="passthrough"
        ),
        compose.ColumnTransformer(
            [("scale", preprocessing.StandardScaler(), slice(0, 2))], remainder=decomposition.PCA(1)
        ),
        pipeline.FeatureUnion([("a", preprocessing.StandardScaler()), ("b", decomposition.PCA(1))]),
    ]


def regressors() -> list[Any]:
    """Regressors whose settings put other types into a fitted model."""
    boosted = ensemble.GradientBoostingRegressor
    hist = ensemble.HistGradientBoostingRegressor
    kernel_sums = [
        kernels.RBF() + kernels.WhiteKernel(),
        kernels.Matern() * kernels.ConstantKernel(),
        kernels.RationalQuadratic() ** 2,
        kernels.ExpSineSquared(length_scale=0.1) + kernels.DotProduct(),
        kernels.PairwiseKernel(metric="rbf"),
    ]
    return [
        *(
            hist(loss=loss, max_iter=3)
            for loss in ("squared_error", "absolute_error", "gamma", "poisson")
        ),
        hist(loss="quantile", quantile=0.9, max_iter=3),
        *(
            boosted(loss=loss, n_estimators=3)
            for loss in ("squared_error", "absolute_error", "huber", "quantile")
        ),
        boosted(init=RIDGE, n_estimators=3),
        *(linear_model.TweedieRegressor(power=power) for power in (0, 1.5, 2, 3)),
        linear_model.TweedieRegressor(power=0, link="log"),
        *(
            linear_model.SGDRegressor(loss=loss)
            for loss in ("huber", "epsilon_insensitive", "squared_epsilon_insensitive")
        ),
        *(
            neighbors.KNeighborsRegressor(algorithm=algorithm, metric=metric)
            for algorithm in ("ball_tree", "kd_tree")
            for metric in ("euclidean", "manhattan", "chebyshev")
        ),
        *(
            neighbors.KNeighborsRegressor(algorithm=algorithm, p=3)
            for algorithm in ("ball_tree", "kd_tree")
        ),
        *(
            neural_network.MLPRegressor(hidden_layer_sizes=(4,), solver=solver, max_iter=20)
            for solver in ("lbfgs", "sgd", "adam")
        ),
        *(
            gaussian_process.GaussianProcessRegressor(kernel, optimizer=None, alpha=10)
            for kernel in kernel_sums
        ),
        compose.TransformedTargetRegressor(RIDGE, func=np.log, inverse_func=np.exp),
        compose.TransformedTargetRegressor(RIDGE, transformer=preprocessing.StandardScaler()),
        model_selection.GridSearchCV(RIDGE, {"alpha": [0.1, 1.0]}, cv=3),
        model_selection.RandomizedSearchCV(RIDGE, {"alpha": [0.1, 1.0]}, n_iter=2, cv=3),
        FrozenEstimator(linear_model.Ridge().fit(X, NUMBERS)),
        *(pipeline.make_pipeline(step, RIDGE) for step in transformers()),
    ]


def classifiers() -> list[Any]:
    """Classifiers of three classes."""
    frozen = FrozenEstimator(linear_model.LogisticRegression().fit(X, CLASSES))
    sgd_losses = ("hinge", "log_loss", "modified_huber", "squared_hinge", "perceptron")
    return [
        *(linear_model.SGDClassifier(loss=loss) for loss in sgd_losses),
        neighbors.KNeighborsClassifier(algorithm="brute", weights="distance"),
        *(
            calibration.CalibratedClassifierCV(model, method=method, cv=3)
            for model in (None, frozen)
            for method in ("sigmoid", "isotonic", "temperature")
        ),
        gaussian_process.GaussianProcessClassifier(multi_class="one_vs_one"),
        svm.SVC(kernel="rbf", decision_function_shape="ovo"),
        ensemble.VotingClassifier([("a", LOGISTIC)], voting="soft"),
        naive_bayes.GaussianNB(),
        discriminant_analysis.LinearDiscriminantAnalysis(solver="eigen", shrinkage="auto"),
        ensemble.AdaBoostClassifier(tree.DecisionTreeClassifier(max_depth=1), n_estimators=3),
        pipeline.make_pipeline(
            feature_selection.SelectKBest(feature_selection.f_classif, k=2), LOGISTIC
        ),
    ]


def binary_classifiers() -> list[Any]:
    """Classifiers of two classes."""
    return [
        ensemble.HistGradientBoostingClassifier(max_iter=3),
        ensemble.GradientBoostingClassifier(loss="exponential", n_estimators=3),
        gaussian_process.GaussianProcessClassifier(),
    ]


def number_cases(models: list[Any], y: Any) -> Iterator[Case]:
    """Call models by their position and how they print."""
    for position, model in enumerate(models):
        yield Case(f"{position} of {len(models)}: {model}", clone(model), X, y)


def common_variants() -> Iterator[Case]:
    """Settings and pipelines in common use that put other types into a fitted model."""
    yield from number_cases(regressors(), NUMBERS)
    yield from number_cases(classifiers(), CLASSES)
    yield from number_cases(binary_classifiers(), BINARY)

    codes = np.abs(X).round()
    on_codes = ensemble.HistGradientBoostingRegressor(categorical_features=[0, 1], max_iter=3)
    yield Case("boosting on codes", on_codes, codes, NUMBERS)

    neighbours = neighbors.KNeighborsRegressor()
    yield Case("neighbours float32", neighbours, X.astype(np.float32), NUMBERS)

    constant = np.column_stack([BINARY, np.ones_like(BINARY)])
    one_vs_rest = multiclass.OneVsRestClassifier(LOGISTIC)
    yield Case("a label that is always there", one_vs_rest, X, constant)


def encoded_pipeline() -> Any:
    """Make a ridge regression of an encoded colour and two scaled numbers."""
    scaled = pipeline.make_pipeline(impute.SimpleImputer(), preprocessing.StandardScaler())
    encoded = compose.make_column_transformer(
        (preprocessing.OneHotEncoder(handle_unknown="ignore"), ["colour"]),
        (scaled, ["size", "weight"]),
    )
    return pipeline.make_pipeline(encoded, linear_model.Ridge())


def pipeline_by_type() -> Any:
    """Make a ridge regression whose columns are encoded by their types."""
    selected = compose.make_column_transformer(
        (preprocessing.OrdinalEncoder(), compose.make_column_selector(dtype_exclude=np.number)),
        remainder="passthrough",
    )
    return pipeline.make_pipeline(selected, linear_model.Ridge())


def frames() -> Iterator[Case]:
    """Pipelines fitted on data frames with text and categories."""
    columns = {
        "size": X[:, 0],
        "weight": X[:, 1],
        "colour": np.array(["red", "green", "blue"])[CLASSES],
    }
    of_pandas = pandas.DataFrame(columns)
    categorical = of_pandas.astype({"colour": "category"})
    of_polars = polars.DataFrame({name: values.tolist() for name, values in columns.items()})

    yield Case("pandas encoded", encoded_pipeline(), of_pandas, NUMBERS)
    yield Case("pandas categories encoded", encoded_pipeline(), categorical, NUMBERS)
    yield Case("polars encoded", encoded_pipeline(), of_polars, NUMBERS)
    yield Case("selected by type", pipeline_by_type(), of_pandas, NUMBERS)
    boosting = ensemble.HistGradientBoostingRegressor(categorical_features="from_dtype", max_iter=3)
    yield Case("boosting on categories", boosting, categorical, NUMBERS)


CATALOGUE = [*every_estimator(), *common_variants(), *frames()]


# --------------------------------------------------------------------------------- models come back


@pytest.fixture(scope="module")
def fitted_models() -> dict[str, tuple[Any, Any]]:
    """Every model of the catalogue, fitted once, and its rows."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of tiny data
        return {case.name: (case.model.fit(case.X, case.y), case.X) for case in CATALOGUE}


@pytest.mark.filterwarnings("ignore::FutureWarning")  # classes on their way out
def test_every_classifier_and_regressor_of_scikit_learn_comes_back_and_predicts_the_same(
    fitted_models, tmp_path
):
    """At most the last bits differ (a kernel matrix of X with itself takes another routine than one
    of X with a copy).
    """
    for name, (model, rows) in fitted_models.items():
        dco.save(model, tmp_path / "model.dco")
        copy = dco.load(tmp_path / "model.dco")
        predictions = zip(
            np.atleast_1d(copy.predict(rows)), np.atleast_1d(model.predict(rows)), strict=True
        )
        for of_copy, of_model in predictions:
            np.testing.assert_allclose(of_copy, of_model, rtol=1e-10, atol=1e-10, err_msg=name)


def types_to_trust(model: Any) -> list[str]:
    """The types in a model that skops does not trust by itself."""
    return skops.io.get_untrusted_types(data=skops.io.dumps(model))


@pytest.fixture(scope="module")
def types_needed(fitted_models) -> set[str]:
    """The types that the models of the catalogue hold."""
    return {name for model, _ in fitted_models.values() for name in types_to_trust(model)}


def test_the_list_of_internals_has_all_that_those_models_need(types_needed):
    assert sorted(types_needed - set(trusted_types.SKLEARN)) == []


@pytest.mark.skipif(
    not sklearn.__version__.startswith("1.9."),
    reason="other versions of scikit-learn keep some of these names elsewhere",
)
def test_the_list_of_internals_has_no_more_than_those_models_need(types_needed):
    assert sorted(set(trusted_types.SKLEARN) - types_needed) == []


# ------------------------------------------------------------------------------------ trusted types

NUMERICAL_PACKAGES = {
    "collections",
    "datetime",
    "decimal",
    "fractions",
    "numpy",
    "scipy",
    "sklearn",
}
PACKAGES_OF_CLASSES = {"builtins", "dco", "functools"}


@pytest.fixture(scope="module")
def trusted_objects() -> dict[str, Any]:
    """What the names of trusted types stand for."""
    objects = {}
    for name in trusted_types.trusted_names():
        module, _, attribute = name.rpartition(".")
        objects[name] = getattr(import_module(module), attribute)
    return objects


def package_of(name: str) -> str:
    return name.partition(".")[0]


def test_trusted_names_can_be_called(trusted_objects):
    assert [name for name, trusted in trusted_objects.items() if not callable(trusted)] == []


def test_trusted_names_do_not_reach_the_system(trusted_objects):
    packages = {package_of(name) for name in trusted_objects}
    assert packages <= NUMERICAL_PACKAGES | PACKAGES_OF_CLASSES


def test_only_numerical_packages_have_functions_that_are_trusted(trusted_objects):
    functions = {name for name, trusted in trusted_objects.items() if not isinstance(trusted, type)}
    assert {package_of(name) for name in functions} <= NUMERICAL_PACKAGES


def test_trusted_names_of_ours_are_where_they_are_defined(trusted_objects):
    of_ours = {name: cls for name, cls in trusted_objects.items() if package_of(name) == "dco"}
    assert [
        name for name, cls in of_ours.items() if name != f"{cls.__module__}.{cls.__name__}"
    ] == []


def test_no_trusted_name_stands_for_a_whole_package():
    names = trusted_types.trusted_names()
    assert [name for name in names if name.endswith((".", "*"))] == []


# -------------------------------------------------------------------------- what fitted models hold


@dataclass(frozen=True, slots=True)
class Setting:
    level: Fraction
    labels: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Table:
    values: np.ndarray
    setting: Setting


class Colour(enum.Enum):
    RED = "red"


def with_the_name_of_another():
    return ()


with_the_name_of_another.__name__ = "frames"
with_the_name_of_another.__qualname__ = "frames"


class Holder(BaseEstimator):
    """An estimator that keeps what it is given as a fitted attribute."""

    def __init__(self, value=None):
        self.value = value

    def fit(self, X, y=None):
        self.value_ = self.value
        return self


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "model.dco"


@pytest.fixture
def round_trip(path):
    """Save a value in a fitted model and load it."""

    def save_and_load(value: Any) -> Any:
        dco.save(Holder(value).fit(None), path)
        return dco.load(path, trusted=[Holder, Setting, Table]).value_

    return save_and_load


def test_records_come_back_exactly(round_trip):
    values = np.array([[1.0, np.nan], [np.inf, -0.0]])
    setting = Setting(Fraction(1, 3), ("a", "b"))

    copy = round_trip(Table(values, setting))

    assert isinstance(copy, Table)
    assert copy.values.tobytes() == values.tobytes()
    assert copy.setting == setting


@pytest.mark.parametrize(
    "value",
    [
        None,
        "text",
        2**200,
        float("inf"),
        (1, (2, None)),
        {"a": [1, {"b": 2.5}]},
        {3: "c", 4: "d"},
        {0.1: 1},
        frozenset({1}),
        np.float32(0.1),
        np.str_("a"),
        np.int64(7),
        b"bytes",
        Fraction(2, 7),
        Decimal("0.10"),
        dt.datetime(2026, 1, 2, 3),
    ],
    ids=repr,
)
def test_values_come_back_with_their_types(value, round_trip):
    copy = round_trip(value)
    assert type(copy) is type(value)
    assert copy == value


@pytest.mark.parametrize(
    "array",
    [
        np.array(["a", "bc"]),
        np.array(["a", None, 3], dtype=object),
        np.array(["2026-01-01"], dtype="M8[D]"),
    ],
    ids=["texts", "objects", "dates"],
)
def test_arrays_come_back_with_their_dtypes(array, round_trip):
    copy = round_trip(array)
    assert copy.dtype == array.dtype
    assert copy.tolist() == array.tolist()


def test_a_generator_goes_on_where_it_was(round_trip):
    generator = np.random.default_rng(3)
    generator.random()
    assert round_trip(generator).random() == generator.random()


@pytest.mark.parametrize(
    "value",
    [
        Colour.RED,
        lambda x: x,
        {True: 1, False: 2},
        {None: 1},
        {(1, 2): 3},
        1j,
        np.random.SeedSequence(3),
        np.zeros((0, 2), dtype=object),
        types.MappingProxyType({}),
        np.array(["a"], dtype=np.dtypes.StringDType()),
        enum.StrEnum("Shade", ["DARK"]).DARK,
        with_the_name_of_another,
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_would_not_come_back_is_refused_by_name_and_leaves_the_old_file(value, path):
    dco.save(Holder(1).fit(None), path)
    before = path.read_bytes()

    with pytest.raises(TypeError, match=r"Holder\.value.*Saving and loading"):
        dco.save(Holder({"inner": [value]}).fit(None), path)

    assert path.read_bytes() == before
    assert os.listdir(path.parent) == ["model.dco"]


def test_the_refusal_names_the_innermost_part(path):
    holder = Holder({"inner": [0, Table(np.zeros(1), lambda x: x)]}).fit(None)
    with pytest.raises(TypeError, match=r"Holder\.value\['inner'\]\[1\]\.setting "):
        dco.save(holder, path)


def test_the_refusal_names_what_the_caller_gave_and_not_where_it_went(path):
    holder = Holder(lambda x: x)
    holder.fitted_ = holder.value
    with pytest.raises(TypeError, match=r"^Holder\.value cannot"):
        dco.save(holder, path)


# ---------------------------------------------------------------------------------- untrusted types

NAMES_TO_TRUST = [f"{__name__}.Holder", f"{__name__}.Setting"]


@pytest.fixture
def untrusted(path) -> Path:
    """A file that holds two classes of this module."""
    dco.save(Holder(Setting(Fraction(1), ())), path)
    return path


@pytest.fixture
def refusal(untrusted) -> dco.UntrustedTypeError:
    """The error of a file whose types are not trusted."""
    with pytest.raises(dco.UntrustedTypeError) as caught:
        dco.load(untrusted)
    return caught.value


def test_untrusted_types_are_named(refusal):
    assert list(refusal.types) == NAMES_TO_TRUST


def test_untrusted_types_are_named_with_the_argument_that_trusts_them(refusal, untrusted):
    suggested = re.search(r"trusted=(\[.*?\])", str(refusal))
    names = ast.literal_eval(suggested[1])
    assert names == NAMES_TO_TRUST
    assert dco.load(untrusted, trusted=names).value == Setting(Fraction(1), ())


def test_the_error_of_untrusted_types_travels_from_a_worker(refusal):
    copy = pickle.loads(pickle.dumps(refusal))
    assert str(copy) == str(refusal)
    assert copy.types == refusal.types


def test_all_untrusted_types_must_be_trusted(untrusted):
    with pytest.raises(dco.UntrustedTypeError, match="Setting"):
        dco.load(untrusted, trusted=[Holder])


@pytest.mark.parametrize("trusted", [True, "dco", Holder], ids=["True", "text", "class"])
def test_trusted_types_come_in_a_list(trusted, untrusted):
    with pytest.raises(TypeError, match="must be a list"):
        dco.load(untrusted, trusted=trusted)


def test_a_type_that_a_module_no_longer_has_is_named(untrusted, monkeypatch):
    monkeypatch.delattr(sys.modules[__name__], "Setting")
    with pytest.raises(dco.MissingTypeError, match="has no Setting"):
        dco.load(untrusted, trusted=NAMES_TO_TRUST)


@pytest.fixture(params=["lightgbm", "xgboost"])
def boosting(request):
    """A fitted regressor of another package, and the full name of its booster."""
    package = pytest.importorskip(request.param)
    if request.param == "lightgbm":
        model = package.LGBMRegressor(n_estimators=5, verbosity=-1)
        booster = "lightgbm.basic.Booster"
    else:
        model = package.XGBRegressor(n_estimators=5, verbosity=0)
        booster = "xgboost.core.Booster"
    return model.fit(X, NUMBERS), booster


def test_boosting_of_other_packages_is_refused_with_the_package_to_name(boosting, path):
    model, booster = boosting
    dco.save(model, path)
    words = rf"{booster}.*pass trusted=\['{package_of(booster)}'\]; building them may"
    with pytest.raises(dco.UntrustedTypeError, match=words):
        dco.load(path)


@pytest.mark.parametrize("by", ["package", "types"])
def test_boosting_of_other_packages_loads_when_it_is_named(boosting, path, by):
    model, booster = boosting
    trusted = [package_of(booster)]
    if by == "types":
        trusted = [booster, f"{type(model).__module__}.{type(model).__name__}"]

    dco.save(model, path)
    copy = dco.load(path, trusted=trusted)

    np.testing.assert_array_equal(copy.predict(X), model.predict(X))


@pytest.mark.parametrize(
    ("package", "kind", "booster"),
    [("lightgbm", "LGBMRegressor", "basic.Booster"), ("xgboost", "XGBRegressor", "core.Booster")],
)
def test_boosting_of_other_packages_loads_when_the_package_is_named(
    tmp_path, package, kind, booster
):
    model = getattr(pytest.importorskip(package), kind)(
        n_estimators=5, verbosity=-1 if package == "lightgbm" else 0
    )
    model.fit(X, NUMBERS)
    dco.save(model, tmp_path / "model.dco")
    with pytest.raises(
        dco.UntrustedTypeError,
        match=rf"{package}\.{booster}.*pass trusted=\['{package}'\]; "
        rf"building them may",
    ):
        dco.load(tmp_path / "model.dco")
    for trusted in ([f"{package}.{booster}", f"{package}.sklearn.{kind}"], [package]):
        np.testing.assert_array_equal(
            dco.load(tmp_path / "model.dco", trusted=trusted).predict(X), model.predict(X)
        )


def refuse_to_be_pickled(self, protocol):
    raise ZeroDivisionError


@pytest.mark.parametrize(
    ("package", "words"), [("catboost", "model.save_model"), ("skorch", "net.save_params")]
)
def test_models_with_a_way_of_their_own_to_be_saved_say_so(path, package, words):
    members = {"__module__": f"{package}.core", "__reduce_ex__": refuse_to_be_pickled}
    model = type("Model", (Ridge,), members)()
    with pytest.raises(TypeError, match=words):
        dco.save(FrozenEstimator(model), path)
    assert not path.exists()


# ------------------------------------------------------------------------------------ damaged files


def assert_corrupt(path: Path, content: bytes, match: str | None = None) -> None:
    """Assert that a file of these bytes is refused as corrupt."""
    path.write_bytes(content)
    with pytest.raises(dco.CorruptModelError, match=match):
        dco.load(path)


def members_of(data):
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def hashes_of(members: dict[str, bytes]) -> dict[str, str]:
    return {
        name: hashlib.sha256(content).hexdigest()
        for name, content in members.items()
        if name != "dco.json"
    }


def archive_of(members: dict[str, bytes]) -> bytes:
    """An archive of these members, as they are."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def hostile_archive_of(members: dict[str, bytes]) -> bytes:
    """An archive of an attacker, who makes the hashes of the members fit."""
    manifest = json.loads(members["dco.json"])
    manifest["sha256"] = hashes_of(members)
    return archive_of({**members, "dco.json": json.dumps(manifest).encode()})


@pytest.fixture
def saved(tmp_path) -> Path:
    """The file of a ridge regression."""
    path = tmp_path / "model.dco"
    dco.save(Ridge().fit(X, NUMBERS), path)
    return path


@pytest.fixture
def members(saved) -> dict[str, bytes]:
    """What is in the file of a ridge regression."""
    return members_of(saved.read_bytes())


def test_a_file_cut_short_anywhere_is_corrupt(saved):
    content = saved.read_bytes()
    for length in range(0, len(content), 7):
        assert_corrupt(saved, content[:length])


def test_a_changed_byte_is_corrupt_or_changes_nothing(saved):
    """Bytes of the archive's bookkeeping (dates, attributes) do not matter; every byte of content
    does.
    """
    content = saved.read_bytes()
    expected = dco.load(saved).predict(X)

    n_refused = 0
    for position in range(0, len(content), 3):
        changed = bytearray(content)
        changed[position] ^= 0x55
        saved.write_bytes(changed)
        try:
            predictions = dco.load(saved).predict(X)
        except dco.CorruptModelError:
            n_refused += 1
        else:
            np.testing.assert_array_equal(predictions, expected)

    assert n_refused > len(content) / 3 * 0.6


def test_a_member_that_does_not_fit_its_hash_is_corrupt(saved, members):
    members["schema.json"] = members["schema.json"].replace(b"Ridge", b"Lasso")
    assert_corrupt(saved, archive_of(members), r"SHA-256 of schema\.json")


@pytest.mark.parametrize("name", ["dco.json", "schema.json"])
def test_an_archive_without_a_member_of_save_is_not_ours(saved, members, name):
    del members[name]
    assert_corrupt(saved, archive_of(members), "not written by dco")


@pytest.mark.parametrize("name", ["extra.npy", "../outside"])
def test_an_archive_with_another_member_is_edited(saved, members, name):
    members[name] = b"1"
    assert_corrupt(saved, archive_of(members), "edited")


def test_a_file_of_an_earlier_format_asks_for_a_new_fit(saved, members):
    members["dco.json"] = members["dco.json"].replace(b'"format": 5', b'"format": 4')
    assert_corrupt(saved, archive_of(members), "fit again")


@pytest.mark.parametrize("manifest", [b"[]", b"{}", b"\xff"], ids=["list", "empty", "no text"])
def test_a_manifest_that_cannot_be_read_is_damaged(saved, members, manifest):
    members["dco.json"] = manifest
    assert_corrupt(saved, archive_of(members), "damaged")


def test_nesting_without_end_is_corrupt(saved, members):
    members["schema.json"] = b'{"a":' * 100_000 + b"1" + b"}" * 100_000
    assert_corrupt(saved, hostile_archive_of(members))


def test_a_missing_file_is_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        dco.load(tmp_path / "nothing.dco")


# ------------------------------------------------------------------------------------ hostile files


class Bomb:
    """What a hostile pickle looks like: reading it creates a file."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return (open, (str(self.marker), "w"))


@pytest.fixture
def marker(tmp_path) -> Path:
    """A file that is there once hostile code has run."""
    return tmp_path / "ran"


@pytest.mark.parametrize("protocol", range(6))
def test_a_pickle_is_corrupt_and_runs_nothing(protocol, path, marker):
    assert_corrupt(path, pickle.dumps(Bomb(marker), protocol=protocol), "not a model file")
    assert not marker.exists()


def test_the_bomb_of_these_tests_is_live(marker):
    with pickle.loads(pickle.dumps(Bomb(marker))):
        assert marker.exists()


def test_a_pickle_inside_an_array_is_corrupt_and_runs_nothing(saved, members, marker):
    array = np.empty(1, dtype=object)
    array[0] = Bomb(marker)
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=True)

    name = next(name for name in members if name.endswith(".npy"))
    members[name] = buffer.getvalue()

    assert_corrupt(saved, hostile_archive_of(members))
    assert not marker.exists()


def node(loader, module, name, **more):
    """A node of the tree that a file is built from."""
    return {
        "__loader__": loader,
        "__module__": module,
        "__class__": name,
        "__id__": secrets.randbits(40),
        **more,
    }


def text(value):
    return node("JsonNode", "builtins", "str", content=json.dumps(value), is_json=True)


def call(module, function, *arguments):
    """A node that would call `function` with these arguments when it is built."""
    return node(
        "ConstructorFromReduceNode",
        module,
        function,
        content=node("TupleNode", "builtins", "tuple", content=list(arguments)),
    )


def hostile_file_of(tree, members) -> bytes:
    """A file of an attacker that is built from this tree."""
    protocol = json.loads(members["schema.json"])["protocol"]
    schema = {**tree, "protocol": protocol, "_skops_version": "0.16"}
    return hostile_archive_of(
        {"schema.json": json.dumps(schema).encode(), "dco.json": members["dco.json"]}
    )


# Ways in which a file may name a function to call, with its argument.
WAYS_TO_CALL = {
    "call": call,
    "call in a list": lambda module, function, argument: node(
        "ListNode", "builtins", "list", content=[call(module, function, argument)]
    ),
    "list of a type": lambda module, function, argument: node(
        "ListNode", module, function, content=[argument]
    ),
    "function": lambda module, function, argument: node("FunctionNode", module, function),
    "type": lambda module, function, argument: node("TypeNode", module, function),
}


@pytest.mark.parametrize(
    ("module", "function"),
    [
        ("os", "system"),
        ("posix", "system"),
        ("builtins", "eval"),
        ("builtins", "exec"),
        ("builtins", "open"),
        ("subprocess", "Popen"),
        ("sklearn.evil", "Ridge"),
        ("dco", "save"),
        ("dco.storage.saving", "save"),
        ("numpy", "load"),
        ("joblib", "load"),
        ("pickle", "loads"),
    ],
)
@pytest.mark.parametrize("way", WAYS_TO_CALL.values(), ids=WAYS_TO_CALL)
def test_a_file_that_calls_a_function_of_its_choice_is_refused_and_runs_nothing(
    module, function, way, saved, members, marker
):
    code = f"touch {marker}"
    if module == "builtins":
        code = f"__import__('pathlib').Path({str(marker)!r}).touch()"
    saved.write_bytes(hostile_file_of(way(module, function, text(code)), members))

    with pytest.raises(dco.UntrustedTypeError, match=f"{module}.{function}"):
        dco.load(saved)
    assert not marker.exists()


def test_a_file_that_refers_to_a_member_it_does_not_have_is_corrupt(saved, members):
    array = node("NdArrayNode", "numpy", "ndarray", type="numpy", file="../../etc/passwd")
    assert_corrupt(saved, hostile_file_of(array, members))


def nodes_of(part) -> Iterator[dict[str, Any]]:
    """All nodes within a part of a tree."""
    if isinstance(part, dict):
        if "__loader__" in part:
            yield part
        part = list(part.values())
    if isinstance(part, list):
        for child in part:
            yield from nodes_of(child)


LOADERS = [
    "ConstructorFromReduceNode",
    "ListNode",
    "DictNode",
    "TypeNode",
    "LossNode",
    "PartialNode",
    "CachedNode",
]
TRUSTED_NAMES = sorted(trusted_types.trusted_names())


def mangle(schema, rng) -> None:
    """Exchange the loader, the class or the content of a node, or take out one of its fields."""
    nodes = list(nodes_of(schema))
    target, other = (nodes[index] for index in rng.integers(len(nodes), size=2))
    match rng.integers(4):
        case 0:
            target["__loader__"] = str(rng.choice(LOADERS))
        case 1:
            module, _, name = str(rng.choice(TRUSTED_NAMES)).rpartition(".")
            target["__module__"] = module
            target["__class__"] = name
        case 2:
            target["content"] = json.loads(json.dumps(other.get("content")))
        case _:
            target.pop(str(rng.choice(list(target))))


@pytest.mark.filterwarnings("ignore")
def test_files_mangled_at_random_load_or_are_refused(saved, members):
    """With hashes that fit: no other error escapes, and nothing hangs."""
    rng = np.random.default_rng(0)

    n_refused = 0
    for _ in range(150):
        schema = json.loads(members["schema.json"])
        mangle(schema, rng)
        saved.write_bytes(
            hostile_archive_of({**members, "schema.json": json.dumps(schema).encode()})
        )
        try:
            dco.load(saved)
        except (dco.CorruptModelError, dco.UntrustedTypeError):
            n_refused += 1

    assert n_refused >= 30


# --------------------------------------------------------------------- unusual models and old files


WEIGHTED = neighbors.KNeighborsRegressor(2, p=3, metric_params={"w": np.arange(1.0, 6.0)})


@pytest.mark.parametrize(
    ("model", "rows"),
    [
        (svm.SVC(), sparse.csr_matrix(X)),
        (svm.SVC(kernel="precomputed"), X @ X.T),
        (svm.SVR(epsilon=1e6), X),
        (svm.SVR(epsilon=1e6), sparse.csr_matrix(X)),
        (WEIGHTED, X),
        (neighbors.KNeighborsClassifier(2, algorithm="brute"), sparse.csr_matrix(X)),
    ],
    ids=[
        "sparse vectors",
        "precomputed kernel",
        "no vectors",
        "no sparse vectors",
        "weighted distance",
        "sparse neighbours",
    ],
)
def test_unusual_but_sound_neighbours_and_support_vectors_come_back(model, rows, path):
    model.fit(rows, np.arange(len(X)) % 3)

    dco.save(model, path)
    copy = dco.load(path, trusted=[sparse.csr_matrix])

    np.testing.assert_array_equal(copy.predict(rows), model.predict(rows))


def written_with(package: str, members: dict[str, bytes], *, version: str) -> bytes:
    """The same file as another version of a package would have written it."""
    schema = members["schema.json"]
    if package == "scikit-learn":  # which keeps its version in each of its objects
        schema = schema.replace(sklearn.__version__.encode(), version.encode())
        assert schema != members["schema.json"]
    manifest = json.loads(members["dco.json"])
    manifest["versions"][package] = version
    return hostile_archive_of(
        {**members, "schema.json": schema, "dco.json": json.dumps(manifest).encode()}
    )


@pytest.mark.parametrize("package", ["scikit-learn", "decoupled-conformal"])
def test_a_file_of_another_version_is_read_with_one_warning(package, saved, members):
    """scikit-learn itself would warn about each of its objects."""
    here = json.loads(members["dco.json"])["versions"][package]
    saved.write_bytes(written_with(package, members, version="0.0.7"))

    words = rf"written with {package} 0.0.7 \(here: {here}\)"
    with pytest.warns(UserWarning, match=words) as caught:
        dco.load(saved)

    (warning,) = caught
    assert warning.filename == __file__


def test_the_file_says_its_format_and_the_versions_that_wrote_it(members):
    manifest = json.loads(members["dco.json"])
    assert manifest["format"] == 5
    assert manifest["versions"]["scikit-learn"] == sklearn.__version__


def test_the_file_is_compressed(saved):
    with zipfile.ZipFile(saved) as archive:
        compressions = {member.compress_type for member in archive.infolist()}
    assert compressions == {zipfile.ZIP_DEFLATED}


# ---------------------------------------------------------------------------------- our own classes


def classes_defined_in(package: str) -> dict[str, type]:
    """The public classes of a package by the full names of where they are defined."""
    classes = {}
    for module in pkgutil.walk_packages(import_module(package).__path__, f"{package}."):
        for name, value in vars(import_module(module.name)).items():
            is_class = isinstance(value, type) and value.__module__ == module.name
            if is_class and not name.startswith("_"):
                classes[f"{module.name}.{name}"] = value
    return classes


def test_every_score_of_ours_can_be_loaded_without_asking():
    """A base class that others build on is no score of its own: it cannot be made, or it is no
    dataclass.
    """
    import_module("dco.estimators")  # which builds on some
    scores = {
        name
        for name, cls in classes_defined_in("dco.scores").items()
        if hasattr(cls, "observed") and is_dataclass(cls)
        if not inspect.isabstract(cls) and not cls.__subclasses__()
    }
    assert len(scores) >= 10
    assert sorted(scores - trusted_types.trusted_names()) == []


def test_every_model_of_ours_can_be_loaded_without_asking():
    models = {
        name
        for name, cls in classes_defined_in("dco.models").items()
        if issubclass(cls, BaseEstimator) and not cls.__subclasses__()
    }
    assert len(models) >= 4
    assert sorted(models - trusted_types.trusted_names()) == []


WIDE = np.random.default_rng(1).normal(size=(400, 3))
LINE = WIDE[:, 0] + np.random.default_rng(2).normal(size=400)
ANIMALS = np.array(["ant", "bee", "cow"])[(WIDE[:, 0] > -0.5).astype(int) + (WIDE[:, 1] > 0.5)]


def pair_and_spread() -> dict[str, Any]:
    return {
        "pair": dco.models.QuantilePair(HistGradientBoostingRegressor(max_iter=5)),
        "spread": dco.models.ResidualSpread(Ridge()),
    }


REGRESSORS = {
    "ridge": dco.DecoupledRegressor(Ridge(), random_state=0),
    "pair and spread": dco.DecoupledRegressor(pair_and_spread(), guarantee="pac", random_state=0),
    "folds and an average": dco.DecoupledRegressor(
        ["linear", "spread"], tune_folds=3, random_state=0
    ),
    "frozen": dco.DecoupledRegressor(
        FrozenEstimator(Ridge().fit(X[:, :3], NUMBERS)), random_state=0
    ),
}
CLASSIFIERS = {
    "randomised": dco.DecoupledClassifier(
        linear_model.LogisticRegression(),
        [dco.scores.RAPS(0.1, 1, randomised=True), dco.scores.LAC()],
        random_state=0,
    ),
    "by label": dco.DecoupledClassifier(
        RandomForestClassifier(5, random_state=0), condition_on="label", random_state=0
    ),
}


@pytest.fixture(scope="module", params=[*REGRESSORS, *CLASSIFIERS])
def estimator_and_copy(request, tmp_path_factory):
    """A calibrated estimator, and its copy from a file."""
    if request.param in REGRESSORS:
        estimator = clone(REGRESSORS[request.param]).fit(WIDE, LINE)
    else:
        estimator = clone(CLASSIFIERS[request.param]).fit(WIDE, ANIMALS)
    path = tmp_path_factory.mktemp("estimator") / "model.dco"
    dco.save(estimator, path)
    return estimator, dco.load(path)


def test_a_calibrated_estimator_comes_back_with_its_certificate(estimator_and_copy):
    estimator, copy = estimator_and_copy
    assert copy.certificate_ == estimator.certificate_


def test_a_calibrated_estimator_comes_back_with_its_choice(estimator_and_copy):
    estimator, copy = estimator_and_copy
    assert copy.best_candidate_ == estimator.best_candidate_


def test_a_calibrated_estimator_comes_back_with_its_parameters(estimator_and_copy):
    estimator, copy = estimator_and_copy
    assert copy.get_params().keys() == estimator.get_params().keys()


@pytest.mark.parametrize("alpha", [0.1, 0.3])
def test_a_calibrated_estimator_comes_back_with_its_sets(estimator_and_copy, alpha):
    estimator, copy = estimator_and_copy
    expected = estimator.predict_set(WIDE, alpha=alpha)
    sets = copy.predict_set(WIDE, alpha=alpha)
    np.testing.assert_array_equal(sets.sizes(), expected.sizes())


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_a_calibrated_classifier_comes_back_with_the_labels_of_its_sets(name, path):
    estimator = clone(CLASSIFIERS[name]).fit(WIDE, ANIMALS)

    dco.save(estimator, path)
    sets = dco.load(path).predict_set(WIDE, alpha=0.3)

    assert sets.to_lists() == estimator.predict_set(WIDE, alpha=0.3).to_lists()


WEIGHTS = np.array([1.0, np.nan, -np.inf])


def test_an_equal_copy_has_no_difference():
    assert find_difference({"weights": WEIGHTS}, {"weights": WEIGHTS.copy()}) is None


def test_a_copy_with_another_last_bit_of_an_array_is_not_the_same():
    changed = np.array([np.nextafter(1, 2), np.nan, -np.inf])
    assert find_difference({"weights": WEIGHTS}, {"weights": changed}) == "['weights']"


def test_a_copy_with_another_last_bit_of_a_number_is_not_the_same():
    assert find_difference({"rate": 0.1}, {"rate": math.nextafter(0.1, 1)}) == "['rate']"


SCRIPT = """
import sys
import numpy as np
import dco
from sklearn.linear_model import Ridge

class MyModel(Ridge):
    pass

X = np.arange(40.0)[:, None]
est = dco.DecoupledRegressor(MyModel(), dco.scores.AbsoluteResidual(), random_state=0)
dco.save(est.fit(X, X[:, 0]), sys.argv[1])
"""


@pytest.fixture(scope="module")
def saved_by_a_script(tmp_path_factory):
    """A file with a class of the script that saved it, and what was printed there.

    The `__main__` of this process has no such class.
    """
    path = tmp_path_factory.mktemp("script") / "model.dco"
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT, path], capture_output=True, text=True, check=True
    )
    return path, run.stderr


def test_a_class_of_the_script_is_noted_by_save(saved_by_a_script):
    _, notes = saved_by_a_script
    assert "MyModel is defined in the script or notebook that runs now" in notes


def test_a_class_of_another_script_is_named_by_load(saved_by_a_script):
    path, _ = saved_by_a_script
    with pytest.raises(dco.MissingTypeError, match=r"needs __main__\.MyModel, which cannot"):
        dco.load(path, trusted=["__main__.MyModel"])
