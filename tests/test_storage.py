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
import dco.storage.trusted_types
from dco.models.quantile_pair import QuantilePair
from dco.models.residual_spread import ResidualSpread
from dco.storage.comparing import find_difference

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 5))
NUMBERS = X[:, 0] + 0.3 * RNG.normal(size=60) + 5
CLASSES = (X[:, 0] > -0.4).astype(int) + (X[:, 1] > 0.4)
BINARY = (X[:, 0] > 0).astype(int)

SEARCHES = {"GridSearchCV", "RandomizedSearchCV", "HalvingGridSearchCV", "HalvingRandomSearchCV"}


SPECIAL: dict[str, dict[str, Any]] = {
    "RANSACRegressor": {"estimator": None},
    "QuadraticDiscriminantAnalysis": {"reg_param": 0.1},
    "CCA": {"n_components": 1},
    "PLSCanonical": {"n_components": 1},
}


def every_estimator() -> Iterator[tuple[str, Any, Any, Any]]:
    """Each classifier and regressor of scikit-learn as (name, unfitted, X, y)."""
    for kind in ("classifier", "regressor"):
        base = linear_model.LogisticRegression() if kind == "classifier" else linear_model.Ridge()
        for name, cls in all_estimators(type_filter=kind):
            if name in SEARCHES:
                continue
            parameters = inspect.signature(cls).parameters
            arguments: dict[str, Any] = {"estimators": [("base", base)], "estimator": base}
            if "estimator" in parameters and parameters["estimator"].default not in (
                inspect.Parameter.empty,
                None,
            ):
                del arguments["estimator"]
            arguments |= {"random_state": 0, "n_estimators": 5, **SPECIAL.get(name, {})}
            if name.startswith("HistGradient"):
                arguments["max_iter"] = 5
            rows, y = X, CLASSES if kind == "classifier" else NUMBERS
            if name in ("CategoricalNB", "ComplementNB", "MultinomialNB"):
                rows = np.abs(X).round()
            if name in ("FixedThresholdClassifier", "TunedThresholdClassifierCV"):
                y = BINARY
            if name == "ClassifierChain" or name.startswith("MultiOutputC"):
                y = np.column_stack([BINARY, BINARY])
            if name.startswith(("MultiTask", "MultiOutputR", "RegressorChain")):
                y = np.column_stack([NUMBERS, NUMBERS])
            if name == "IsotonicRegression":
                rows = X[:, :1]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FutureWarning)  # classes on their way out
                model = cls(**{key: value for key, value in arguments.items() if key in parameters})
            yield name, model, rows, y


def common_variants() -> Iterator[tuple[str, Any, Any, Any]]:
    """Settings and pipelines in common use that put other types into a fitted model."""
    ridge, logistic = linear_model.Ridge(), linear_model.LogisticRegression()
    boosted, hist = ensemble.GradientBoostingRegressor, ensemble.HistGradientBoostingRegressor
    kernel_sums = [
        kernels.RBF() + kernels.WhiteKernel(),
        kernels.Matern() * kernels.ConstantKernel(),
        kernels.RationalQuadratic() ** 2,
        kernels.ExpSineSquared(length_scale=0.1) + kernels.DotProduct(),
        kernels.PairwiseKernel(metric="rbf"),
    ]
    steps = [
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
    numbers = [
        *(
            hist(loss=loss, max_iter=3)
            for loss in ("squared_error", "absolute_error", "gamma", "poisson")
        ),
        hist(loss="quantile", quantile=0.9, max_iter=3),
        *(
            boosted(loss=loss, n_estimators=3)
            for loss in ("squared_error", "absolute_error", "huber", "quantile")
        ),
        boosted(init=ridge, n_estimators=3),
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
        compose.TransformedTargetRegressor(ridge, func=np.log, inverse_func=np.exp),
        compose.TransformedTargetRegressor(ridge, transformer=preprocessing.StandardScaler()),
        model_selection.GridSearchCV(ridge, {"alpha": [0.1, 1.0]}, cv=3),
        model_selection.RandomizedSearchCV(ridge, {"alpha": [0.1, 1.0]}, n_iter=2, cv=3),
        FrozenEstimator(linear_model.Ridge().fit(X, NUMBERS)),
        *(pipeline.make_pipeline(step, ridge) for step in steps),
    ]
    frozen = FrozenEstimator(linear_model.LogisticRegression().fit(X, CLASSES))
    sgd_losses = ("hinge", "log_loss", "modified_huber", "squared_hinge", "perceptron")
    classes = [
        *(linear_model.SGDClassifier(loss=loss) for loss in sgd_losses),
        neighbors.KNeighborsClassifier(algorithm="brute", weights="distance"),
        *(
            calibration.CalibratedClassifierCV(model, method=method, cv=3)
            for model in (None, frozen)
            for method in ("sigmoid", "isotonic", "temperature")
        ),
        gaussian_process.GaussianProcessClassifier(multi_class="one_vs_one"),
        svm.SVC(kernel="rbf", decision_function_shape="ovo"),
        ensemble.VotingClassifier([("a", logistic)], voting="soft"),
        naive_bayes.GaussianNB(),
        discriminant_analysis.LinearDiscriminantAnalysis(solver="eigen", shrinkage="auto"),
        ensemble.AdaBoostClassifier(tree.DecisionTreeClassifier(max_depth=1), n_estimators=3),
        pipeline.make_pipeline(
            feature_selection.SelectKBest(feature_selection.f_classif, k=2), logistic
        ),
    ]
    binary = [
        ensemble.HistGradientBoostingClassifier(max_iter=3),
        ensemble.GradientBoostingClassifier(loss="exponential", n_estimators=3),
        gaussian_process.GaussianProcessClassifier(),
    ]
    for y, models in ((NUMBERS, numbers), (CLASSES, classes), (BINARY, binary)):
        yield from (
            (f"{place} of {len(models)}: {model}", clone(model), X, y)
            for place, model in enumerate(models)
        )
    yield (
        "boosting on codes",
        hist(categorical_features=[0, 1], max_iter=3),
        np.abs(X).round(),
        NUMBERS,
    )
    yield "neighbours float32", neighbors.KNeighborsRegressor(), X.astype(np.float32), NUMBERS
    constant = np.column_stack([BINARY, np.ones_like(BINARY)])
    yield "a label that is always there", multiclass.OneVsRestClassifier(logistic), X, constant


def frames() -> Iterator[tuple[str, Any, Any, Any]]:
    """Pipelines fitted on data frames with text and categories."""
    columns = {
        "size": X[:, 0],
        "weight": X[:, 1],
        "colour": np.array(["red", "green", "blue"])[CLASSES],
    }
    pandas_frame = pandas.DataFrame(columns)
    categorical = pandas_frame.astype({"colour": "category"})
    polars_frame = polars.DataFrame({name: values.tolist() for name, values in columns.items()})
    for kind, frame in (
        ("pandas", pandas_frame),
        ("pandas categories", categorical),
        ("polars", polars_frame),
    ):
        scaled = pipeline.make_pipeline(impute.SimpleImputer(), preprocessing.StandardScaler())
        encode = compose.make_column_transformer(
            (preprocessing.OneHotEncoder(handle_unknown="ignore"), ["colour"]),
            (scaled, ["size", "weight"]),
        )
        yield (
            f"{kind} encoded",
            pipeline.make_pipeline(encode, linear_model.Ridge()),
            frame,
            NUMBERS,
        )
    selected = compose.make_column_transformer(
        (preprocessing.OrdinalEncoder(), compose.make_column_selector(dtype_exclude=np.number)),
        remainder="passthrough",
    )
    yield (
        "selected by type",
        pipeline.make_pipeline(selected, linear_model.Ridge()),
        pandas_frame,
        NUMBERS,
    )
    boosting = ensemble.HistGradientBoostingRegressor(categorical_features="from_dtype", max_iter=3)
    yield "boosting on categories", boosting, categorical, NUMBERS


# --- the facts ------------------------------------------------------------------------------------
# --------------------

CATALOGUE = [*every_estimator(), *common_variants(), *frames()]


@pytest.fixture(scope="module")
def fitted_models():
    """Every model of the catalogue, fitted once."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of tiny data
        return {name: (model.fit(rows, y), rows) for name, model, rows, y in CATALOGUE}


def test_every_classifier_and_regressor_of_scikit_learn_comes_back_and_predicts_the_same(
    fitted_models, tmp_path
):
    """At most the last bits differ (a kernel matrix of X with itself takes another routine than one
    of X with a copy).
    """
    for name, (model, rows) in fitted_models.items():
        dco.save(model, tmp_path / "model.dco")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # classes on their way out
            copy = dco.load(tmp_path / "model.dco")
        for one, other in zip(
            np.atleast_1d(copy.predict(rows)), np.atleast_1d(model.predict(rows)), strict=True
        ):
            np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-10, err_msg=name)


def test_the_list_of_internals_is_what_those_models_need_and_no_more(fitted_models):
    needed = {
        name
        for model, _ in fitted_models.values()
        for name in skops.io.get_untrusted_types(data=skops.io.dumps(model))
    }
    listed = set(dco.storage.trusted_types.SKLEARN)
    assert needed <= listed, sorted(needed - listed)
    if sklearn.__version__.startswith("1.9."):  # other versions keep some of these names elsewhere
        assert listed == needed, sorted(listed - needed)


def test_no_trusted_name_reaches_the_system():
    """A file may call what is trusted: only classes, and functions of numerical packages."""
    for name in dco.storage.trusted_types.trusted_names():
        module, _, attribute = name.rpartition(".")
        thing = getattr(import_module(module), attribute)
        assert callable(thing)
        assert module.split(".")[0] in {
            "builtins",
            "collections",
            "datetime",
            "dco",
            "decimal",
            "fractions",
            "functools",
            "numpy",
            "scipy",
            "sklearn",
        }
        if module.split(".")[0] in {"builtins", "dco", "functools"}:
            assert isinstance(thing, type), name
        assert not module.startswith("dco.") or thing.__module__ == module
    assert not any(name.endswith((".", "*")) for name in dco.storage.trusted_types.trusted_names())


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


with_the_name_of_another.__name__ = with_the_name_of_another.__qualname__ = "frames"


class Holder(BaseEstimator):
    """An estimator that keeps what it is given as a fitted attribute."""

    def __init__(self, value=None):
        self.value = value

    def fit(self, X, y=None):
        self.value_ = self.value
        return self


def round_trip(thing, path, trusted=(Holder, Setting, Table)):
    dco.save(Holder(thing).fit(None), path)
    return dco.load(path, trusted=trusted).value_


def test_what_our_estimators_hold_comes_back_exactly(tmp_path):
    path = tmp_path / "model.dco"
    table = Table(np.array([[1.0, np.nan], [np.inf, -0.0]]), Setting(Fraction(1, 3), ("a", "b")))
    copy = round_trip(table, path)
    assert isinstance(copy, Table)
    assert copy.values.tobytes() == table.values.tobytes()
    assert copy.setting == table.setting
    for value in (
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
    ):
        copy = round_trip(value, path)
        assert type(copy) is type(value)
        assert copy == value
    for array in (
        np.array(["a", "bc"]),
        np.array(["a", None, 3], dtype=object),
        np.array(["2026-01-01"], dtype="M8[D]"),
    ):
        copy = round_trip(array, path)
        assert copy.dtype == array.dtype
        assert copy.tolist() == array.tolist()
    generator = np.random.default_rng(3)
    generator.random()
    assert round_trip(generator, path).random() == generator.random()


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
def test_what_would_not_come_back_is_refused_by_name_and_leaves_the_old_file(value, tmp_path):
    path = tmp_path / "model.dco"
    dco.save(Holder(1).fit(None), path)
    before = path.read_bytes()
    with pytest.raises(TypeError, match=r"Holder\.value.*Saving and loading"):
        dco.save(Holder({"inner": [value]}).fit(None), path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["model.dco"]


def test_the_refusal_names_the_innermost_part(tmp_path):
    with pytest.raises(TypeError, match=r"Holder\.value\['inner'\]\[1\]\.setting "):
        dco.save(
            Holder({"inner": [0, Table(np.zeros(1), lambda x: x)]}).fit(None),
            tmp_path / "model.dco",
        )
    holder = Holder(lambda x: x)
    holder.fitted_ = holder.value
    # what the caller gave, not where it went
    with pytest.raises(TypeError, match=r"^Holder\.value cannot"):
        dco.save(holder, tmp_path / "model.dco")


def test_untrusted_types_are_named_with_the_argument_that_trusts_them(tmp_path):
    path = tmp_path / "model.dco"
    dco.save(Holder(Setting(Fraction(1), ())), path)
    with pytest.raises(dco.UntrustedTypeError) as caught:
        dco.load(path)
    suggested = re.search(r"trusted=(\[.*?\])", str(caught.value))
    assert suggested is not None
    names = ast.literal_eval(suggested[1])
    assert names == sorted([f"{__name__}.Holder", f"{__name__}.Setting"])
    assert list(caught.value.types) == names
    travelled = pickle.loads(pickle.dumps(caught.value))  # as from a worker
    assert (str(travelled), travelled.types) == (str(caught.value), caught.value.types)
    assert dco.load(path, trusted=names).value == Setting(Fraction(1), ())
    with pytest.raises(dco.UntrustedTypeError, match="Setting"):
        dco.load(path, trusted=[Holder])
    for everything in (True, "dco", Holder):
        with pytest.raises(TypeError, match="must be a list"):
            dco.load(path, trusted=everything)


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


@pytest.mark.parametrize(
    ("package", "words"), [("catboost", "model.save_model"), ("skorch", "net.save_params")]
)
def test_models_with_a_way_of_their_own_to_be_saved_say_so(tmp_path, package, words):
    kind = type(
        "Model",
        (Ridge,),
        {"__module__": f"{package}.core", "__reduce_ex__": lambda self, protocol: 1 / 0},
    )
    with pytest.raises(TypeError, match=words):
        dco.save(FrozenEstimator(kind()), tmp_path / "model.dco")
    assert not (tmp_path / "model.dco").exists()


# --- damaged and hostile files
# ----------------------------------------------------------------------------------------


def refused(path, match, *, data=None, model=None, trusted=()):
    """Whether these bytes, or this model once it is saved, are refused as corrupt."""
    path.write_bytes(data) if model is None else dco.save(model, path)
    with pytest.raises(dco.CorruptModelError, match=match):
        dco.load(path, trusted=trusted)


def members_of(data):
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def archive_of(members, *, rehash=True, compression=zipfile.ZIP_DEFLATED):
    """An archive of these members, an attacker's if its hashes are made to fit."""
    members = dict(members)
    if rehash:
        manifest = json.loads(members["dco.json"])
        manifest["sha256"] = {
            name: hashlib.sha256(content).hexdigest()
            for name, content in members.items()
            if name != "dco.json"
        }
        members["dco.json"] = json.dumps(manifest).encode()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "model.dco"
    dco.save(Ridge().fit(X, NUMBERS), path)
    return path


def test_a_file_cut_short_anywhere_is_corrupt(saved):
    data = saved.read_bytes()
    for length in range(0, len(data), 7):
        refused(saved, None, data=data[:length])


def test_a_changed_byte_is_corrupt_or_changes_nothing(saved):
    """Bytes of the archive's bookkeeping (dates, attributes) do not matter; every byte of content
    does.
    """
    data = saved.read_bytes()
    expected = dco.load(saved).predict(X)
    caught = 0
    for position in range(0, len(data), 3):
        saved.write_bytes(data[:position] + bytes([data[position] ^ 0x55]) + data[position + 1 :])
        try:
            same = np.array_equal(dco.load(saved).predict(X), expected)
        except dco.CorruptModelError:
            caught += 1
        else:
            assert same
    assert caught > len(data) / 3 * 0.6


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda m: m.update({"schema.json": m["schema.json"].replace(b"Ridge", b"Lasso")}),
            r"SHA-256 of schema\.json",
        ),
        (lambda m: m.pop("dco.json"), "not written by dco"),
        (lambda m: m.pop("schema.json"), "not written by dco"),
        (lambda m: m.update({"extra.npy": b"1"}), "edited"),
        (lambda m: m.update({"../outside": b"1"}), "edited"),
        (
            lambda m: m.update({"dco.json": m["dco.json"].replace(b'"format": 5', b'"format": 4')}),
            "fit again",
        ),
        (lambda m: m.update({"dco.json": b"[]"}), "damaged"),
        (lambda m: m.update({"dco.json": b"{}"}), "damaged"),
        (lambda m: m.update({"dco.json": b"\xff"}), "damaged"),
    ],
)
def test_an_archive_that_save_would_not_write_is_corrupt(change, message, saved):
    members = members_of(saved.read_bytes())
    change(members)
    refused(saved, message, data=archive_of(members, rehash=False))


class Bomb:
    """What a hostile pickle looks like: reading it creates a file."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return (open, (str(self.marker), "w"))


@pytest.mark.parametrize("protocol", range(6))
def test_a_pickle_is_corrupt_and_runs_nothing(protocol, tmp_path):
    marker, path = tmp_path / "ran", tmp_path / "model.dco"
    refused(path, "not a model file", data=pickle.dumps(Bomb(marker), protocol=protocol))
    assert not marker.exists()
    with pickle.loads(path.read_bytes()):  # the bomb is live: pickle would have run it
        assert marker.exists()


def test_a_pickle_inside_an_array_is_corrupt_and_runs_nothing(saved, tmp_path):
    marker = tmp_path / "ran"
    members = members_of(saved.read_bytes())
    array = np.empty(1, dtype=object)
    array[0] = Bomb(marker)
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=True)
    name = next(name for name in members if name.endswith(".npy"))
    refused(saved, None, data=archive_of({**members, name: buffer.getvalue()}))
    assert not marker.exists()


def node(loader, module, name, **more):
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


def hostile(saved, tree):
    members = members_of(saved.read_bytes())
    schema = {
        **tree,
        "protocol": json.loads(members["schema.json"])["protocol"],
        "_skops_version": "0.16",
    }
    members = {"schema.json": json.dumps(schema).encode(), "dco.json": members["dco.json"]}
    saved.write_bytes(archive_of(members))


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
def test_a_file_that_calls_a_function_of_its_choice_is_refused_and_runs_nothing(
    module, function, saved, tmp_path
):
    marker = tmp_path / "ran"
    argument = (
        f"__import__('pathlib').Path({str(marker)!r}).touch()"
        if module == "builtins"
        else f"touch {marker}"
    )
    for schema in (
        call(module, function, text(argument)),
        node("ListNode", "builtins", "list", content=[call(module, function, text(argument))]),
        node("ListNode", module, function, content=[text(argument)]),
        node("FunctionNode", module, function),
        node("TypeNode", module, function),
    ):
        hostile(saved, schema)
        with pytest.raises(dco.UntrustedTypeError, match=f"{module}.{function}"):
            dco.load(saved)
    assert not marker.exists()


def test_a_file_that_refers_to_a_member_it_does_not_have_is_corrupt(saved):
    hostile(saved, node("NdArrayNode", "numpy", "ndarray", type="numpy", file="../../etc/passwd"))
    refused(saved, None, data=saved.read_bytes())


def test_nesting_without_end_is_corrupt(saved):
    members = members_of(saved.read_bytes())
    deep = b'{"a":' * 100_000 + b"1" + b"}" * 100_000
    refused(saved, None, data=archive_of({**members, "schema.json": deep}))


@pytest.mark.parametrize(
    ("model", "rows"),
    [
        (svm.SVC(), sparse.csr_matrix(X)),
        (svm.SVC(kernel="precomputed"), X @ X.T),
        (svm.SVR(epsilon=1e6), X),
        (svm.SVR(epsilon=1e6), sparse.csr_matrix(X)),
        (
            neighbors.KNeighborsRegressor(
                2, p=3, metric_params={"w": np.arange(1.0, X.shape[1] + 1)}
            ),
            X,
        ),
        (neighbors.KNeighborsClassifier(2, algorithm="brute"), sparse.csr_matrix(X)),
    ],
)
def test_unusual_but_sound_neighbours_and_support_vectors_come_back(model, rows, tmp_path):
    model.fit(rows, np.arange(len(X)) % 3)
    dco.save(model, tmp_path / "model.dco")
    copy = dco.load(tmp_path / "model.dco", trusted=[sparse.csr_matrix])
    np.testing.assert_array_equal(copy.predict(rows), model.predict(rows))


def nodes_of(part):
    if isinstance(part, dict):
        if "__loader__" in part:
            yield part
        part = list(part.values())
    if isinstance(part, list):
        for entry in part:
            yield from nodes_of(entry)


def test_files_mangled_at_random_load_or_are_refused(saved):
    """Loaders, classes and contents exchanged, with hashes that fit: no other error escapes, and
    nothing hangs.
    """
    rng = np.random.default_rng(0)
    members = members_of(saved.read_bytes())
    trusted = sorted(dco.storage.trusted_types.trusted_names())
    loaders = [
        "ConstructorFromReduceNode",
        "ListNode",
        "DictNode",
        "TypeNode",
        "LossNode",
        "PartialNode",
        "CachedNode",
    ]
    refused = 0
    for _ in range(150):
        schema = json.loads(members["schema.json"])
        nodes = list(nodes_of(schema))
        one, other = (nodes[index] for index in rng.integers(len(nodes), size=2))
        match rng.integers(4):
            case 0:
                one["__loader__"] = str(rng.choice(loaders))
            case 1:
                one["__module__"], _, one["__class__"] = str(rng.choice(trusted)).rpartition(".")
            case 2:
                one["content"] = json.loads(json.dumps(other.get("content")))
            case _:
                one.pop(str(rng.choice(list(one))))
        saved.write_bytes(archive_of({**members, "schema.json": json.dumps(schema).encode()}))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                dco.load(saved)
            except (dco.CorruptModelError, dco.UntrustedTypeError):
                refused += 1
    assert refused >= 30


def test_a_missing_file_is_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        dco.load(tmp_path / "nothing.dco")


@pytest.mark.parametrize("package", ["scikit-learn", "decoupled-conformal"])
def test_a_file_of_another_version_is_read_with_one_warning(saved, tmp_path, package):
    members = members_of(saved.read_bytes())
    manifest = json.loads(members["dco.json"])
    here = manifest["versions"][package]
    manifest["versions"][package] = "0.0.7"
    # what scikit-learn itself keeps in each of its objects, and warns about for each
    schema = members["schema.json"].replace(sklearn.__version__.encode(), b"0.0.7")
    if package == "scikit-learn":
        assert schema != members["schema.json"]
        members["schema.json"] = schema
        manifest["sha256"]["schema.json"] = hashlib.sha256(schema).hexdigest()
    members["dco.json"] = json.dumps(manifest).encode()
    path = tmp_path / "old.dco"
    path.write_bytes(archive_of(members, rehash=False))
    with pytest.warns(UserWarning, match=rf"written with {package} 0.0.7 \(here: {here}\)") as told:
        dco.load(path)
    assert len(told) == 1
    assert told[0].filename == __file__


def test_the_file_says_its_format_and_the_versions_that_wrote_it(saved):
    manifest = json.loads(members_of(saved.read_bytes())["dco.json"])
    assert manifest["format"] == 5
    assert manifest["versions"]["scikit-learn"] == sklearn.__version__
    with zipfile.ZipFile(saved) as archive:
        assert {entry.compress_type for entry in archive.infolist()} == {zipfile.ZIP_DEFLATED}


# --- our own classes
# --------------------------------------------------------------------------------------------------


def own_classes(package):
    for module in pkgutil.walk_packages(import_module(package).__path__, f"{package}."):
        for name, thing in vars(import_module(module.name)).items():
            if (
                isinstance(thing, type)
                and thing.__module__ == module.name
                and not name.startswith("_")
            ):
                yield f"{module.name}.{name}", thing


def test_every_score_and_every_model_of_ours_can_be_loaded_without_asking():
    """A base class that others build on is no score of its own: it cannot be made, or it is no
    dataclass.
    """
    import_module("dco.estimators")  # which builds on some
    scores = {
        name
        for name, cls in own_classes("dco.scores")
        if hasattr(cls, "observed") and is_dataclass(cls)
    }
    scores -= {
        name
        for name, cls in own_classes("dco.scores")
        if inspect.isabstract(cls) or cls.__subclasses__()
    }
    models = {
        name
        for name, cls in own_classes("dco.models")
        if issubclass(cls, BaseEstimator) and not cls.__subclasses__()
    }
    assert len(scores) >= 10
    assert len(models) >= 4
    missing = (scores | models) - dco.storage.trusted_types.trusted_names()
    assert not missing, sorted(missing)


WIDE = np.random.default_rng(1).normal(size=(400, 3))
LINE = WIDE[:, 0] + np.random.default_rng(2).normal(size=400)
ANIMALS = np.array(["ant", "bee", "cow"])[(WIDE[:, 0] > -0.5).astype(int) + (WIDE[:, 1] > 0.5)]


@pytest.mark.parametrize(
    "make",
    [
        lambda: dco.DecoupledRegressor(Ridge(), random_state=0).fit(WIDE, LINE),
        lambda: dco.DecoupledRegressor(
            {
                "pair": QuantilePair(HistGradientBoostingRegressor(max_iter=5)),
                "spread": ResidualSpread(Ridge()),
            },
            guarantee="pac",
            random_state=0,
        ).fit(WIDE, LINE),
        lambda: dco.DecoupledRegressor(["linear", "spread"], tune_folds=3, random_state=0).fit(
            WIDE, LINE
        ),
        lambda: dco.DecoupledRegressor(
            FrozenEstimator(Ridge().fit(X[:, :3], NUMBERS)), random_state=0
        ).fit(WIDE, LINE),
        lambda: dco.DecoupledClassifier(
            linear_model.LogisticRegression(),
            [dco.scores.RAPS(0.1, 1, randomised=True), dco.scores.LAC()],
            random_state=0,
        ).fit(WIDE, ANIMALS),
        lambda: dco.DecoupledClassifier(
            RandomForestClassifier(5, random_state=0), condition_on="label", random_state=0
        ).fit(WIDE, ANIMALS),
    ],
    ids=["ridge", "pair and spread", "folds and an average", "frozen", "randomised", "by label"],
)
def test_a_calibrated_estimator_comes_back_with_its_sets_and_its_certificate(make, tmp_path):
    estimator = make()
    dco.save(estimator, tmp_path / "model.dco")
    copy = dco.load(tmp_path / "model.dco")
    assert copy.certificate_ == estimator.certificate_
    assert copy.best_candidate_ == estimator.best_candidate_
    for alpha in (0.1, 0.3):
        one, other = copy.predict_set(WIDE, alpha=alpha), estimator.predict_set(WIDE, alpha=alpha)
        if isinstance(one, dco.LabelSets):
            assert one.to_lists() == other.to_lists()
        else:
            np.testing.assert_array_equal(one.sizes(), other.sizes())
    assert copy.get_params().keys() == estimator.get_params().keys()


def test_a_copy_that_is_nearly_the_same_is_not_the_same():
    one = {"weights": np.array([1.0, np.nan, -np.inf])}
    assert find_difference(one, {"weights": one["weights"].copy()}) is None
    assert (
        find_difference(one, {"weights": np.array([np.nextafter(1, 2), np.nan, -np.inf])})
        == "['weights']"
    )
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


def test_a_class_of_the_script_is_noted_by_save_and_named_by_load(tmp_path):
    """Two processes: one that saves, and this one, whose `__main__` has no such class."""
    path = tmp_path / "model.dco"
    saving = subprocess.run(
        [sys.executable, "-c", SCRIPT, path], capture_output=True, text=True, check=True
    )
    assert "MyModel is defined in the script or notebook that runs now" in saving.stderr
    with pytest.raises(dco.MissingTypeError, match=r"needs __main__\.MyModel, which cannot"):
        dco.load(path, trusted=["__main__.MyModel"])


def test_a_type_that_a_module_no_longer_has_is_named(tmp_path, monkeypatch):
    dco.save(Holder(Setting(Fraction(1), ())), tmp_path / "model.dco")
    monkeypatch.delattr(sys.modules[__name__], "Setting")
    names = [f"{__name__}.Holder", f"{__name__}.Setting"]
    with pytest.raises(dco.MissingTypeError, match="has no Setting"):
        dco.load(tmp_path / "model.dco", trusted=names)
