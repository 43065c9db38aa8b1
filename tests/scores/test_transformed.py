"""Scores on another scale, and within a range: brute force, sizes."""

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.linear_model import Ridge

import dco
from dco.models import TransformedTarget
from dco.scores import AbsoluteResidual, NormalisedResidual, QuantileResidual, Transformed, Within

FUNCTIONS = {
    "log": (np.log, np.exp),
    "log1p": (np.log1p, np.expm1),
    "sqrt": (np.sqrt, np.square),
    "asinh": (np.arcsinh, np.sinh),
}
RECORDS = {
    "absolute": (AbsoluteResidual(), dco.Points([0.5, 4.0, 20.0])),
    "normalised": (NormalisedResidual(), dco.PointsWithSpread([0.5, 4.0, 20.0], [0.1, 1.0, 22.0])),
    "quantile": (QuantileResidual(), dco.Quantiles([0.2, 3.0, 10.0], [0.9, 6.0, 15.0])),
}


def distance(record, g, y):
    """The three scores by their definition, one row at a time."""
    match record:
        case dco.PointsWithSpread(mean, spread):
            return np.abs(g(y) - g(mean)) / (g(mean + spread) - g(mean))
        case dco.Quantiles(lower, upper):
            return np.maximum(g(lower) - g(y), g(y) - g(upper))
    return np.abs(g(y) - g(record.mean))


@pytest.mark.parametrize("transform", FUNCTIONS)
@pytest.mark.parametrize("kind", RECORDS)
def test_sets_are_those_of_the_definition(transform, kind):
    score, record = RECORDS[kind]
    g, _ = FUNCTIONS[transform]
    sets = Transformed(score, transform).sets(record, 0.4)
    grid = np.linspace(-10 if transform == "asinh" else 1e-4, 60, 4001)
    held = np.asarray([distance(record, g, y) <= 0.4 for y in grid])
    np.testing.assert_array_equal(np.asarray([sets.contains(np.full(3, y)) for y in grid]), held)
    for (low, high), own in zip(sets, held.T, strict=True):
        inside = grid[own]
        assert low <= inside[0] <= inside[-1] <= high < inside[-1] + grid[1] - grid[0]
        assert low > inside[0] - (grid[1] - grid[0])


@pytest.mark.parametrize("transform", ["log", "log1p", "sqrt"])
def test_targets_outside_the_domain_score_infinity_and_no_finite_set_holds_them(transform):
    score, record = Transformed(AbsoluteResidual(), transform), dco.Points([1.0, -3.0])
    assert score.observed(record, [-1.0, -0.5]).tolist() == [np.inf, np.inf]
    assert not score.sets(record, 1e6).contains([-1.0, -0.5]).any()
    assert (score.sets(record, 2.0).lower >= 0).all()
    assert score.sets(record, np.inf)[0] == (-np.inf, np.inf)


def test_the_ends_of_a_range_belong_to_it():
    score, record = Within(AbsoluteResidual(), 0, 10), dco.Points([1.0, 9.0])
    assert score.observed(record, [0.0, 10.0]).tolist() == [1, 1]
    assert score.observed(record, [-5e-324, np.nextafter(10, 11)]).tolist() == [np.inf, np.inf]
    sets = score.sets(record, 2.0)
    assert (sets.lower.tolist()[0], sets.upper.tolist()[1]) == (0, 10)
    assert sets.sizes() == pytest.approx([3, 3])
    assert score.sets(record, 2.0).contains([0.0, 10.0]).all()
    # where nothing is ruled out, no y is
    assert list(score.sets(record, np.inf)) == [(-np.inf, np.inf)] * 2
    assert score.sets(record, [np.inf, 2.0]).upper.tolist() == [np.inf, 10]
    assert score.sets(record, np.inf).contains([-1.0, 11.0]).all()


def test_scales_and_a_range_make_sets_smaller_where_errors_are_relative():
    rng = np.random.default_rng(0)
    mean = rng.lognormal(sigma=0.5, size=4000)
    y, record = mean * rng.lognormal(sigma=0.5, size=4000), dco.Points(mean)
    ranking = dco.tune(
        {
            "log": (Transformed(AbsoluteResidual(), "log"), record),
            "sqrt": (Transformed(AbsoluteResidual(), "sqrt"), record),
            "plain": (AbsoluteResidual(), record),
            "cut": (Within(AbsoluteResidual(), low=0.0), record),
        },
        y,
        alpha=0.1,
    )
    sizes = {row.name: row.mean_size for row in ranking.table}
    assert sizes["sqrt"] < 0.85 * sizes["plain"]
    assert max(sizes["log"], sizes["cut"]) < 0.95 * sizes["plain"]
    assert ranking["cut"].miscoverage == ranking["plain"].miscoverage


def test_functions_of_numpy_make_a_pair_that_is_fitted_and_checked():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    y, found = np.sinh(X[:, 0] + 0.3 * rng.normal(size=300)), []
    for transform in (
        (np.arcsinh, np.sinh),
        "asinh",
        (np.cbrt, lambda z: z**3),
        (np.arctan, lambda z: np.tan(z) + 0.0),
    ):
        est = dco.DecoupledRegressor(
            Ridge(), Transformed(AbsoluteResidual(), transform), alpha=0.2, random_state=0
        )
        found.append(est.fit(X, y / 100))
        assert est.certificate_.verify(
            X[est.splits_.calibrate], (y / 100)[est.splits_.calibrate], predictor=est
        ).holds
    assert np.array_equal(found[0].predict_set(X).sizes(), found[1].predict_set(X).sizes())
    assert len({est.certificate_.structure.structure_fingerprint for est in found}) == 4


def test_quantile_scales_are_increasing_inverses_also_beyond_the_targets():
    score = Transformed(AbsoluteResidual(), "quantile").fitted(
        np.r_[np.zeros(50), np.arange(300.0) ** 2]
    )
    y = np.linspace(-100, 2e5, 1001)
    z = score.transform.forward(y)
    assert (np.diff(z) > 0).all()
    # the middle of the 51 zeros among 350
    assert score.transform.forward(0.0) == pytest.approx(norm.ppf(51 / 2 / 350))
    np.testing.assert_allclose(score.transform.inverse(z), y, rtol=1e-9, atol=1e-6)
    with pytest.raises(ValueError, match="fitted to training targets"):
        Transformed(AbsoluteResidual(), "quantile").observed(dco.Points([1.0]), [1.0])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Transformed(dco.scores.LAC(), "log1p"), "needs a residual score"),
        (lambda: Transformed(AbsoluteResidual(), "cube"), '"log1p"'),
        (lambda: Within(dco.scores.LAC(), low=0), "score of labels"),
        (lambda: Within(AbsoluteResidual(), low=1, high=0), "less than high"),
        (
            lambda: TransformedTarget(scale="sqrt").fit([[1.0], [2.0]], [1.0, -4.0]),
            r"row 1 has "
            r"-4\): use "
            r"another",
        ),
    ],
)
def test_bad_input_is_one_clear_sentence(make, words):
    with pytest.raises(ValueError, match=words):
        make()
