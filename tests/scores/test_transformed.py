"""Scores on another scale, and within a range: brute force, sizes."""

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.linear_model import Ridge

import dco
from dco.models import TransformedTarget
from dco.scores import (
    LAC,
    AbsoluteResidual,
    NormalisedResidual,
    QuantileResidual,
    Transformed,
    Within,
)

# ---------------------------------------------------------------- by definition

FUNCTIONS = {"log": np.log, "log1p": np.log1p, "sqrt": np.sqrt, "asinh": np.arcsinh}
MEAN = np.array([0.5, 4.0, 20.0])
SPREAD = np.array([0.1, 1.0, 22.0])
LOWER = np.array([0.2, 3.0, 10.0])
UPPER = np.array([0.9, 6.0, 15.0])
DEFINITIONS = {
    "absolute": (
        AbsoluteResidual(),
        dco.Points(MEAN),
        lambda g, y: np.abs(g(y) - g(MEAN)),
    ),
    "normalised": (
        NormalisedResidual(),
        dco.PointsWithSpread(MEAN, SPREAD),
        lambda g, y: np.abs(g(y) - g(MEAN)) / (g(MEAN + SPREAD) - g(MEAN)),
    ),
    "quantile": (
        QuantileResidual(),
        dco.Quantiles(LOWER, UPPER),
        lambda g, y: np.maximum(g(LOWER) - g(y), g(y) - g(UPPER)),
    ),
}
every_definition = pytest.mark.parametrize(
    ("score", "prediction", "definition"), DEFINITIONS.values(), ids=DEFINITIONS.keys()
)


def grid_for(transform):
    return np.linspace(-10 if transform == "asinh" else 1e-4, 60, 4001)


def members_by_definition(definition, transform):
    """Return which points of the grid score at most 0.4, (grid, rows)."""
    g = FUNCTIONS[transform]
    return np.array([definition(g, y) <= 0.4 for y in grid_for(transform)])


@pytest.mark.parametrize("transform", FUNCTIONS)
@every_definition
def test_members_are_those_of_the_definition(transform, score, prediction, definition):
    sets = Transformed(score, transform).sets(prediction, 0.4)

    members = [sets.contains(np.full(3, y)) for y in grid_for(transform)]

    np.testing.assert_array_equal(members, members_by_definition(definition, transform))


@pytest.mark.parametrize("transform", FUNCTIONS)
@every_definition
@pytest.mark.parametrize("row", range(3))
def test_sets_end_within_a_step_of_their_members(transform, score, prediction, definition, row):
    grid = grid_for(transform)
    step = grid[1] - grid[0]

    low, high = Transformed(score, transform).sets(prediction, 0.4)[row]

    members = grid[members_by_definition(definition, transform)[:, row]]
    assert members[0] - step < low <= members[0]
    assert members[-1] <= high < members[-1] + step


# ---------------------------------------------------------------- domains and ranges


@pytest.fixture(params=["log", "log1p", "sqrt"])
def transformed(request):
    return Transformed(AbsoluteResidual(), request.param)


TWO_POINTS = dco.Points([1.0, -3.0])
OUTSIDE = [-1.0, -0.5]


def test_targets_outside_the_domain_score_infinity(transformed):
    assert transformed.observed(TWO_POINTS, OUTSIDE).tolist() == [np.inf, np.inf]


def test_no_finite_set_holds_targets_outside_the_domain(transformed):
    assert not transformed.sets(TWO_POINTS, 1e6).contains(OUTSIDE).any()
    assert (transformed.sets(TWO_POINTS, 2.0).lower >= 0).all()


def test_an_infinite_threshold_holds_every_number(transformed):
    assert transformed.sets(TWO_POINTS, np.inf)[0] == (-np.inf, np.inf)


WITHIN = Within(AbsoluteResidual(), 0, 10)
IN_RANGE = dco.Points([1.0, 9.0])


def test_the_ends_of_a_range_belong_to_it():
    assert WITHIN.observed(IN_RANGE, [0.0, 10.0]).tolist() == [1, 1]
    assert WITHIN.sets(IN_RANGE, 2.0).contains([0.0, 10.0]).all()


def test_the_next_floats_beyond_a_range_score_infinity():
    beyond = [-5e-324, np.nextafter(10, 11)]

    assert WITHIN.observed(IN_RANGE, beyond).tolist() == [np.inf, np.inf]


def test_sets_end_with_the_range():
    sets = WITHIN.sets(IN_RANGE, 2.0)

    assert sets.lower[0] == 0
    assert sets.upper[1] == 10
    assert sets.sizes() == pytest.approx([3, 3])


def test_a_range_rules_nothing_out_at_an_infinite_threshold():
    sets = WITHIN.sets(IN_RANGE, np.inf)

    assert list(sets) == [(-np.inf, np.inf)] * 2
    assert sets.contains([-1.0, 11.0]).all()


def test_only_rows_with_an_infinite_threshold_go_beyond_the_range():
    assert WITHIN.sets(IN_RANGE, [np.inf, 2.0]).upper.tolist() == [np.inf, 10]


# ---------------------------------------------------------------- sizes and fits


@pytest.fixture(scope="module")
def ranking():
    """Rank scores on rows whose errors are relative."""
    rng = np.random.default_rng(0)
    mean = rng.lognormal(sigma=0.5, size=4000)
    y = mean * rng.lognormal(sigma=0.5, size=4000)
    scores = {
        "log": Transformed(AbsoluteResidual(), "log"),
        "sqrt": Transformed(AbsoluteResidual(), "sqrt"),
        "plain": AbsoluteResidual(),
        "range": Within(AbsoluteResidual(), low=0.0),
    }
    return dco.tune({name: (scores[name], dco.Points(mean)) for name in scores}, y, alpha=0.1)


@pytest.mark.parametrize(("name", "share"), [("sqrt", 0.85), ("log", 0.95), ("range", 0.95)])
def test_scales_and_a_range_make_sets_smaller_where_errors_are_relative(ranking, name, share):
    assert ranking[name].mean_size < share * ranking["plain"].mean_size


def test_a_range_without_targets_beyond_it_loses_no_coverage(ranking):
    assert ranking["range"].miscoverage == ranking["plain"].miscoverage


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    return X, np.sinh(X[:, 0] + 0.3 * rng.normal(size=300)) / 100


TRANSFORMS = {
    "asinh as functions": (np.arcsinh, np.sinh),
    "asinh": "asinh",
    "cube root": (np.cbrt, lambda z: z**3),
    "arctan": (np.arctan, lambda z: np.tan(z) + 0.0),
}


@pytest.fixture(scope="module")
def fits(rows):
    """Fit with every transform."""
    scores = {
        name: Transformed(AbsoluteResidual(), transform) for name, transform in TRANSFORMS.items()
    }
    return {
        name: dco.DecoupledRegressor(Ridge(), score, alpha=0.2, random_state=0).fit(*rows)
        for name, score in scores.items()
    }


@pytest.mark.parametrize("name", TRANSFORMS)
def test_fits_with_a_transform_are_verified(fits, rows, name):
    X, y = rows
    est = fits[name]
    calibrate = est.splits_.calibrate

    assert est.certificate_.verify(X[calibrate], y[calibrate], predictor=est).holds


def test_a_pair_of_functions_gives_the_sets_of_its_name(fits, rows):
    X, _ = rows

    by_functions = fits["asinh as functions"].predict_set(X)

    assert np.array_equal(by_functions.sizes(), fits["asinh"].predict_set(X).sizes())


def test_certificates_tell_transforms_apart(fits):
    fingerprints = {est.certificate_.structure.structure_fingerprint for est in fits.values()}

    assert len(fingerprints) == 4


# ---------------------------------------------------------------- quantile scales


@pytest.fixture(scope="module")
def quantile_scale():
    """Fit a quantile scale to 51 zeros and 299 squares."""
    targets = np.r_[np.zeros(50), np.arange(300.0) ** 2]
    return Transformed(AbsoluteResidual(), "quantile").fitted(targets).transform


def test_quantile_scales_are_increasing_inverses_also_beyond_the_targets(quantile_scale):
    y = np.linspace(-100, 2e5, 1001)

    z = quantile_scale.forward(y)

    assert (np.diff(z) > 0).all()
    np.testing.assert_allclose(quantile_scale.inverse(z), y, rtol=1e-9, atol=1e-6)


def test_equal_targets_lie_in_the_middle_of_their_quantiles(quantile_scale):
    assert quantile_scale.forward(0.0) == pytest.approx(norm.ppf(51 / 2 / 350))


def test_a_quantile_scale_must_be_fitted():
    with pytest.raises(ValueError, match="fitted to training targets"):
        Transformed(AbsoluteResidual(), "quantile").observed(dco.Points([1.0]), [1.0])


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("score", "transform", "message"),
    [(LAC(), "log1p", "needs a residual score"), (AbsoluteResidual(), "cube", '"log1p"')],
    ids=["labels", "unknown name"],
)
def test_bad_transforms_are_refused(score, transform, message):
    with pytest.raises(ValueError, match=message):
        Transformed(score, transform)


@pytest.mark.parametrize(
    ("score", "ends", "message"),
    [
        (LAC(), {"low": 0}, "score of labels"),
        (AbsoluteResidual(), {"low": 1, "high": 0}, "less than high"),
    ],
    ids=["labels", "reversed"],
)
def test_bad_ranges_are_refused(score, ends, message):
    with pytest.raises(ValueError, match=message):
        Within(score, **ends)


def test_a_training_target_outside_the_domain_is_named():
    model = TransformedTarget(scale="sqrt")

    with pytest.raises(ValueError, match=r"row 1 has -4\): use another"):
        model.fit([[1.0], [2.0]], [1.0, -4.0])
