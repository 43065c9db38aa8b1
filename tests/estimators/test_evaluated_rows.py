"""Rows that are evaluated: those of the fit, those that belong together, and gaps."""

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from estimator_examples import X, class_rows, logistic, regression_rows, ridge, y
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.ensemble import (
    HistGradientBoostingRegressor,
)
from sklearn.impute import SimpleImputer
from sklearn.linear_model import Ridge
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline

import dco
from dco.foundations.fingerprints import row_fingerprints
from dco.scores import LAC


def with_gaps(X, kind, rows=()):
    """Rows of X with gaps in the third column, as a table of some kind."""
    X = X.copy()
    X[list(rows), 2] = np.nan
    if kind == "object":
        cells = X.astype(object)
        cells[list(rows), 2] = None
        return cells
    names = ["a", "b", "dose", "d"]
    frames = {
        "pandas": lambda: pd.DataFrame(X, columns=names),
        "polars": lambda: pl.DataFrame(X, schema=names),
    }
    return frames[kind]() if kind in frames else csr_array(X) if kind == "sparse" else X


def test_rows_of_the_fit_are_counted_when_they_are_evaluated() -> None:
    X, y = regression_rows(400)
    est = ridge().fit(X[:300], y[:300])
    all_of_the_fit = r"300 of 300 rows equal rows of the fit \(150 train, 75 tune, 75 calibrate\)"
    with pytest.warns(UserWarning, match=all_of_the_fit) as told:
        found = est.evaluate(X[:300], y[:300])
    assert found.consistency is None
    assert "verdict            none: 300 of 300 rows equal rows of the fit" in str(found)
    assert [warning.filename for warning in told] == [__file__]

    rows = np.r_[est.splits_.calibrate[:4], est.splits_.train[:1], 300:400]
    with pytest.warns(
        UserWarning, match=r"5 of 105 rows .* \(1 train, 4 calibrate\) and were left"
    ):
        found = est.evaluate(np.asfortranarray(X[rows]), y[rows].tolist())
    assert found.left_out == 5
    assert found.overall == est.evaluate(X[300:], y[300:]).overall
    est.evaluate(X[:300], y[:300] + 1)  # other targets: other rows


@pytest.mark.parametrize("guarantee", ["marginal", "pac"])
def test_rows_that_belong_together_get_no_verdict(guarantee) -> None:
    """Rows of a group are covered together: the law of independent rows would call one run in three
    inconsistent.
    """
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(600, 2)), np.repeat(rng.normal(size=200), 3)
    est = ridge(alpha=0.2, guarantee=guarantee).fit(X, y, groups=np.arange(600) // 3)
    far = np.full(50, 100.0)  # one new group, far from all others
    found = est.evaluate(X[:50] + 0.5, far)
    assert found.coverage == 0
    assert found.consistency is None
    assert "verdict            none: the law of coverage is for independent rows" in str(found)
    assert est.evaluate(X[:50] + 0.5, far, by=np.arange(50) % 2).by_group[0].consistency is None
    with pytest.warns(UserWarning, match="equal rows of the fit"):
        assert "equal rows" in str(est.evaluate(X, y).no_verdict)


def test_conditions_are_judged_without_rows_of_the_fit() -> None:
    X, y = class_rows(900)
    est = logistic(LAC(), condition_on="label").fit(X[:600], y[:600])
    old = est.splits_.calibrate[y[est.splits_.calibrate] == 1][:5]
    with pytest.warns(UserWarning, match=r"5 of 305 rows .* \(5 calibrate\) and were left out"):
        found = est.evaluate(np.r_[X[600:], X[old]], np.r_[y[600:], y[old]])
    assert found.by_condition == est.evaluate(X[600:], y[600:]).by_condition


def test_repeats_that_are_natural_are_no_leak() -> None:
    """Half of the rows have one of 30 values: new rows repeat them as often as rows of the fit do;
    more is told.
    """
    rng = np.random.default_rng(0)
    common = rng.uniform(size=1500) < 0.5
    X = np.where(common, rng.integers(30, size=1500), rng.normal(size=1500))[:, None]
    y = np.round(X[:, 0] ** 2 * common, 6)
    est = dco.DecoupledRegressor(KNeighborsRegressor(), random_state=0).fit(X[:1000], y[:1000])
    est.evaluate(X[1000:], y[1000:])
    with pytest.warns(UserWarning, match="equal rows of the fit"):
        est.evaluate(X[500:1000], y[500:1000])


def test_many_rows_are_known_again_by_a_sample(monkeypatch) -> None:
    monkeypatch.setattr("dco.rows.kept_rows.KEPT_HASHES", 500)
    X, y = regression_rows(6000)
    est = ridge().fit(X[:4000], y[:4000])
    kept = est.predictor_.kept_rows
    assert all(own.size == 500 for own in kept.hashes.values())
    found = kept.recognise_unless_by_chance(row_fingerprints(X[2000:], y[2000:]))
    # a binomial share of the sample: 5 standard deviations
    assert found.n_rows == pytest.approx(2000, rel=0.2)
    with pytest.warns(UserWarning, match="About"):
        found = est.evaluate(X[2000:], y[2000:])
    assert (found.no_verdict or "").startswith("about ")
    assert kept.recognise_unless_by_chance(row_fingerprints(X[4000:], y[4000:])) is None


def test_a_saved_estimator_knows_the_rows_of_its_fit(tmp_path) -> None:
    dco.save(ridge().fit(X, y), tmp_path / "model.dco")
    with pytest.warns(UserWarning, match="200 of 200 rows equal rows of the fit"):
        dco.load(tmp_path / "model.dco").evaluate(X[:200], y[:200])


@pytest.mark.parametrize("kind", ["array", "object", "pandas", "polars", "sparse"])
def test_a_column_that_was_never_missing_and_now_is_gets_a_note(kind, tmp_path) -> None:
    X, y = regression_rows(400)
    model = (
        HistGradientBoostingRegressor(max_iter=5)
        if kind != "sparse"
        else make_pipeline(SimpleImputer(), Ridge())
    )
    est = dco.DecoupledRegressor(model, random_state=0)
    est.fit(with_gaps(X[:300], kind), y[:300])
    new = with_gaps(X[300:], kind, rows=range(33))
    name = "'dose'" if kind in ("pandas", "polars") else "2"
    told = (
        rf"^1 column had no missing value in the fit and has some in 100 new rows \({name} in "
        rf"33\): such rows are not like"
    )
    with pytest.warns(UserWarning, match=told):
        est.predict_set(new)
    with pytest.warns(UserWarning, match=told):
        est.evaluate(new, y[300:])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        est.predict_set(with_gaps(X[300:], kind))
        # one of 400 rows may be among the last 100
        est.predict_set(with_gaps(X[300:], kind, rows=[0]))
        # the fit has seen a gap
        clone(est).fit(with_gaps(X[:300], kind, rows=[5]), y[:300]).predict_set(new)
    dco.save(est, tmp_path / "model.dco")
    with pytest.warns(UserWarning, match=told):
        dco.load(tmp_path / "model.dco").predict_set(new)


def test_the_note_on_gaps_is_rare_where_rows_are_exchangeable() -> None:
    """Four of 400 rows lack a value: the note comes with probability below 0.01, so more than 9 of
    300 times with 0.001.
    """
    X, y = regression_rows(400)
    est = dco.DecoupledRegressor(HistGradientBoostingRegressor(max_iter=2), random_state=0).fit(
        X[:300], y[:300]
    )
    rng, notes = np.random.default_rng(0), 0
    for _ in range(300):
        gaps = rng.permutation(400)[:4]
        if (gaps >= 300).all():  # otherwise the fit has seen a gap, and there is nothing to say
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                est.predict_set(with_gaps(X[300:], "array", rows=gaps - 300))
            notes += len(caught)
    assert notes <= 9
