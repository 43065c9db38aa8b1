"""``support=``: sets are cut to where y lies, in ranking too, and coverage keeps its law."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from scipy.stats import beta, kstest, norm
from sklearn.dummy import DummyRegressor
from sklearn.linear_model import LinearRegression

import dco
from dco.cli.main import main
from dco.scores import AbsoluteResidual

LINES = {"line": LinearRegression(), "through 0": LinearRegression(fit_intercept=False)}


def rows(n=400, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 1))
    return X, np.abs(X[:, 0] + rng.normal(size=n))


def fit_line(X, y, *, support):
    est = dco.DecoupledRegressor(
        LinearRegression(), AbsoluteResidual(), support=support, random_state=0
    )
    return est.fit(X, y)


def test_sets_are_cut_and_the_rest_is_as_before():
    X, y = rows()
    plain = fit_line(X, y, support=None)
    cut = fit_line(X, y, support=(0, None))
    before = plain.predict_set(X)
    after = cut.predict_set(X)
    np.testing.assert_array_equal(after.lower, np.maximum(before.lower, 0))
    np.testing.assert_array_equal(after.contains(y), before.contains(y))
    assert not after.contains(-np.ones(400)).any()
    assert cut.certificate_.thresholds == plain.certificate_.thresholds


def test_a_support_is_saved_with_the_model(tmp_path):
    X, y = rows()
    cut = fit_line(X, y, support=(0, None))
    dco.save(cut, tmp_path / "m.dco")
    again = dco.load(tmp_path / "m.dco")
    np.testing.assert_array_equal(np.asarray(again.predict_set(X)), np.asarray(cut.predict_set(X)))


def test_a_support_is_certified():
    X, y = rows()
    cut = fit_line(X, y, support=(0, None))
    certificate = dco.Certificate.from_json(cut.certificate_.to_json())
    assert certificate.structure.support == (0.0, np.inf)
    assert "cut to the support, 0 to inf" in str(certificate)

    calibrate = cut.splits_.calibrate
    assert certificate.verify(X[calibrate], y[calibrate], predictor=cut).holds
    edited = replace(certificate, structure=replace(certificate.structure, support=(0.0, 5.0)))
    assert not edited.verify(predictor=cut).holds


def test_sizes_in_the_ranking_are_cut():
    X, y = rows()
    sizes = [
        [
            row.mean_size
            for row in dco.DecoupledRegressor(
                LINES, AbsoluteResidual(), support=support, random_state=0
            )
            .fit(X, y)
            .ranking_.table
        ]
        for support in (None, (0, None))
    ]
    assert max(sizes[1]) < min(sizes[0])


def test_coverage_follows_its_beta_law():
    """Rate of error 1 %: |N(0, 1)| around its mean, cut at 0; the ends give the coverage."""
    rng, coverage = np.random.default_rng(1), []
    for seed in range(200):
        y = np.abs(rng.normal(size=60))
        est = dco.DecoupledRegressor(
            DummyRegressor(),
            AbsoluteResidual(),
            tune_size=0,
            calibrate_size=39,
            support=(0, None),
            random_state=seed,
        ).fit(np.zeros((60, 1)), y)
        ((low, high),) = est.predict_set(np.zeros((1, 1)))
        coverage.append(2 * (norm.cdf(high) - norm.cdf(low)))
    assert kstest(coverage, beta(36, 4).cdf).pvalue > 0.01


def test_targets_outside_the_support_are_told():
    X, y = rows(100)
    with pytest.raises(
        ValueError,
        match=r"of 75 training and tuning targets .* lie outside "
        r"support \(1 to inf\)",
    ):
        dco.DecoupledRegressor(LinearRegression(), support=(1, None), random_state=0).fit(X, y)
    est = dco.DecoupledRegressor(LinearRegression(), support=(0, None), random_state=0)
    with pytest.warns(
        UserWarning, match="1 of 20 calibration rows has a target outside the support"
    ):
        est.fit(X[:80], y[:80], calibrate=(X[80:], np.r_[-5.0, y[81:]]))
    assert np.isinf(est.predictor_.calibration.scored.scores).sum() == 1


@pytest.mark.parametrize("support", [(1, 0), 3, (0, 1, 2), ("a", "b")])
def test_a_support_is_a_pair(support):
    X, y = rows(50)
    with pytest.raises(ValueError, match="the lower number first"):
        dco.DecoupledRegressor(LinearRegression(), support=support).fit(X, y)


def test_the_command_takes_a_range_and_advises_it(tmp_path):
    X, y = rows(200)
    pd.DataFrame({"x": X[:, 0], "y": y}).to_csv(tmp_path / "rows.csv", index=False)
    words = [
        "fit",
        str(tmp_path / "rows.csv"),
        "--target",
        "y",
        "--models",
        "linear,boosting",
        "--scores",
        "absolute",
    ]
    told = CliRunner().invoke(main, [*words, "--out", str(tmp_path / "a.dco")])
    assert "--range 0 inf cuts them there" in told.stderr
    told = CliRunner().invoke(
        main, [*words, "--range", "0", "inf", "--out", str(tmp_path / "b.dco")]
    )
    assert "reach below 0" not in told.stderr
    assert "Sets are cut to the support, 0 to inf" in told.stdout
    assert dco.load(tmp_path / "b.dco").certificate_.structure.support == (0.0, np.inf)
