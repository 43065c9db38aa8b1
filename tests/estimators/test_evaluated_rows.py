"""Rows that are evaluated: those of the fit, those that belong together, and gaps."""

import re
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from estimator_examples import X, class_rows, logistic, regression_rows, ridge, y
from scipy.sparse import csr_array
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import Ridge
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline

import dco
from dco.scores import LAC

# --- rows of the fit ------------------------------------------------------------------------------


@pytest.fixture
def fitted():
    """A regressor of the first 300 rows, and all 400 rows."""
    X, y = regression_rows(400)
    return ridge().fit(X[:300], y[:300]), X, y


def test_rows_of_the_fit_get_no_verdict(fitted) -> None:
    """The warning is at the line of the caller."""
    est, X, y = fitted
    text = r"300 of 300 rows equal rows of the fit \(150 train, 75 tune, 75 calibrate\)"
    with pytest.warns(UserWarning, match=text) as warned:
        evaluation = est.evaluate(X[:300], y[:300])
    assert evaluation.consistency is None
    assert "verdict            none: 300 of 300 rows equal rows of the fit" in str(evaluation)
    assert [warning.filename for warning in warned] == [__file__]


def test_a_few_rows_of_the_fit_are_left_out(fitted) -> None:
    """They are recognised in any layout of the array."""
    est, X, y = fitted
    rows = np.r_[est.splits_.calibrate[:4], est.splits_.train[:1], 300:400]
    text = r"5 of 105 rows .* \(1 train, 4 calibrate\) and were left"
    with pytest.warns(UserWarning, match=text):
        evaluation = est.evaluate(np.asfortranarray(X[rows]), y[rows].tolist())
    assert evaluation.left_out == 5
    assert evaluation.overall == est.evaluate(X[300:], y[300:]).overall


def test_rows_with_other_targets_are_other_rows(fitted) -> None:
    """There is no warning."""
    est, X, y = fitted
    assert est.evaluate(X[:300], y[:300] + 1).left_out == 0


def test_conditions_are_judged_without_rows_of_the_fit() -> None:
    X, y = class_rows(900)
    est = logistic(LAC(), condition_on="label").fit(X[:600], y[:600])
    calibrate = est.splits_.calibrate
    old = calibrate[y[calibrate] == 1][:5]
    rows = np.r_[600:900, old]
    with pytest.warns(UserWarning, match=r"5 of 305 rows .* \(5 calibrate\) and were left out"):
        evaluation = est.evaluate(X[rows], y[rows])
    assert evaluation.by_condition == est.evaluate(X[600:], y[600:]).by_condition


def test_a_saved_estimator_knows_the_rows_of_its_fit(tmp_path) -> None:
    dco.save(ridge().fit(X, y), tmp_path / "model.dco")
    with pytest.warns(UserWarning, match="200 of 200 rows equal rows of the fit"):
        dco.load(tmp_path / "model.dco").evaluate(X[:200], y[:200])


@pytest.fixture
def repeating():
    """A regressor of rows of which half have one of 30 values, and such rows, the first 1000 of
    which were fitted.
    """
    rng = np.random.default_rng(0)
    is_common = rng.uniform(size=1500) < 0.5
    X = np.where(is_common, rng.integers(30, size=1500), rng.normal(size=1500))[:, None]
    y = np.round(X[:, 0] ** 2 * is_common, 6)
    est = dco.DecoupledRegressor(KNeighborsRegressor(), random_state=0)
    return est.fit(X[:1000], y[:1000]), X, y


def test_repeats_that_are_natural_are_no_leak(repeating) -> None:
    """New rows repeat rows of the fit as often as these repeat each other: no warning."""
    est, X, y = repeating
    assert est.evaluate(X[1000:], y[1000:]).no_verdict is None


def test_more_repeats_than_natural_are_noted(repeating) -> None:
    est, X, y = repeating
    with pytest.warns(UserWarning, match="equal rows of the fit"):
        est.evaluate(X[500:1000], y[500:1000])


@pytest.fixture(scope="module")
def large_fit():
    """A fit that trains on 160,000 rows, more than it keeps the hashes of, and 6000 new rows."""
    X, y = regression_rows(172_000)
    est = ridge().fit(
        X[:160_000],
        y[:160_000],
        tune=(X[160_000:163_000], y[160_000:163_000]),
        calibrate=(X[163_000:166_000], y[163_000:166_000]),
    )
    return est, X, y


def test_a_fit_keeps_a_sample_of_many_rows(large_fit) -> None:
    est, _, _ = large_fit
    sizes = {role: hashes.size for role, hashes in est.predictor_.kept_rows.hashes.items()}
    assert sizes == {"train": 2**16, "tune": 3000, "calibrate": 3000}


def test_rows_of_a_large_fit_are_counted_by_the_sample(large_fit) -> None:
    """4000 of 10,000 rows are training rows. About 1640 of them are in the sample: 10 % is more
    than 5 standard deviations of the estimate.
    """
    est, X, y = large_fit
    rows = np.r_[:4000, 166_000:172_000]
    with pytest.warns(UserWarning, match="About"):
        evaluation = est.evaluate(X[rows], y[rows])
    n_repeated = re.match(r"about (\d+) of 10000 rows", evaluation.no_verdict)[1]
    assert int(n_repeated) == pytest.approx(4000, rel=0.1)


def test_new_rows_are_not_taken_for_rows_of_a_large_fit(large_fit) -> None:
    est, X, y = large_fit
    evaluation = est.evaluate(X[166_000:], y[166_000:])
    assert evaluation.no_verdict is None
    assert evaluation.n == 6000


# --- rows that belong together --------------------------------------------------------------------


@pytest.fixture(params=["marginal", "pac"])
def by_threes(request):
    """A regressor of 600 rows, of which each three belong together, and these rows."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 2))
    y = np.repeat(rng.normal(size=200), 3)
    est = ridge(alpha=0.2, guarantee=request.param)
    return est.fit(X, y, groups=np.arange(600) // 3), X, y


def test_rows_that_belong_together_get_no_verdict(by_threes) -> None:
    """50 rows far from all others, one new group, are covered together: the law of independent rows
    would call one run in three inconsistent.
    """
    est, X, _ = by_threes
    evaluation = est.evaluate(X[:50] + 0.5, np.full(50, 100.0))
    assert evaluation.coverage == 0
    assert evaluation.consistency is None
    assert "verdict            none: the law of coverage is for independent rows" in str(evaluation)


def test_slices_of_rows_that_belong_together_get_no_verdict(by_threes) -> None:
    est, X, _ = by_threes
    evaluation = est.evaluate(X[:50] + 0.5, np.full(50, 100.0), by=np.arange(50) % 2)
    assert [row.consistency for row in evaluation.by_group] == [None, None]


def test_rows_of_the_fit_are_the_first_reason_for_no_verdict(by_threes) -> None:
    est, X, y = by_threes
    with pytest.warns(UserWarning, match="equal rows of the fit"):
        evaluation = est.evaluate(X, y)
    assert "equal rows" in evaluation.no_verdict


# --- gaps -----------------------------------------------------------------------------------------

NAMES = ["a", "b", "dose", "d"]


def as_objects(X):
    cells = X.astype(object)
    cells[np.isnan(X)] = None
    return cells


TABLES = {
    "array": np.asarray,
    "object": as_objects,
    "pandas": lambda X: pd.DataFrame(X, columns=NAMES),
    "polars": lambda X: pl.DataFrame(X, schema=NAMES),
    "sparse": csr_array,
}


def with_gaps(X, rows):
    """The rows of X with gaps in the third column."""
    X = X.copy()
    X[list(rows), 2] = np.nan
    return X


@pytest.fixture(params=TABLES)
def kind(request):
    return request.param


@pytest.fixture
def gap_model(kind):
    """A regressor of such tables that takes missing values."""
    trees = HistGradientBoostingRegressor(max_iter=5)
    imputed = make_pipeline(SimpleImputer(), Ridge())
    return dco.DecoupledRegressor(imputed if kind == "sparse" else trees, random_state=0)


@pytest.fixture
def new_gaps(kind):
    """100 new rows of which 33 have a gap, and what a note says of them."""
    X, y = regression_rows(400)
    name = "'dose'" if kind in ("pandas", "polars") else "2"
    note = (
        rf"^1 column had no missing value in the fit and has some in 100 new rows \({name} in "
        r"33\): such rows are not like"
    )
    return TABLES[kind](with_gaps(X[300:], range(33))), y[300:], note


@pytest.fixture
def without_gaps(kind, gap_model):
    """The regressor, fitted on 300 rows without a gap."""
    X, y = regression_rows(400)
    return gap_model.fit(TABLES[kind](X[:300]), y[:300])


def test_new_gaps_are_noted_when_sets_are_made(without_gaps, new_gaps) -> None:
    X, _, note = new_gaps
    with pytest.warns(UserWarning, match=note):
        without_gaps.predict_set(X)


def test_new_gaps_are_noted_when_rows_are_evaluated(without_gaps, new_gaps) -> None:
    X, y, note = new_gaps
    with pytest.warns(UserWarning, match=note):
        without_gaps.evaluate(X, y)


def test_a_saved_estimator_notes_new_gaps(without_gaps, new_gaps, tmp_path) -> None:
    X, _, note = new_gaps
    dco.save(without_gaps, tmp_path / "model.dco")
    with pytest.warns(UserWarning, match=note):
        dco.load(tmp_path / "model.dco").predict_set(X)


@pytest.mark.parametrize("rows", [[], [0]], ids=["no gap", "one gap in 400 rows"])
def test_few_gaps_get_no_note(without_gaps, kind, rows) -> None:
    X, _ = regression_rows(400)
    assert len(without_gaps.predict_set(TABLES[kind](with_gaps(X[300:], rows)))) == 100


def test_gaps_like_those_of_the_fit_get_no_note(gap_model, new_gaps, kind) -> None:
    X, y = regression_rows(400)
    gap_model.fit(TABLES[kind](with_gaps(X[:300], [5])), y[:300])
    assert len(gap_model.predict_set(new_gaps[0])) == 100


def test_the_note_on_gaps_is_rare_where_rows_are_exchangeable() -> None:
    """Four of 400 rows lack a value: the note comes with probability below 0.01, so more than 9 of
    300 times with 0.001.
    """
    X, y = regression_rows(400)
    est = dco.DecoupledRegressor(HistGradientBoostingRegressor(max_iter=2), random_state=0)
    est.fit(X[:300], y[:300])
    rng = np.random.default_rng(0)

    n_notes = 0
    for _ in range(300):
        gaps = rng.permutation(400)[:4]
        if gaps.min() < 300:  # the fit would have seen a gap, and there is nothing to say
            continue
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            est.predict_set(with_gaps(X[300:], gaps - 300))
        n_notes += len(warned)

    assert n_notes <= 9
