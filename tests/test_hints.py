"""Hints from rows without labels: seldom wrong without a change, seen with one, and never called a
test of the promise.
"""

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_matrix
from sklearn.linear_model import LogisticRegression, Ridge

import dco


@pytest.fixture(scope="module")
def est():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3))
    return dco.DecoupledRegressor(Ridge(), dco.scores.AbsoluteResidual(), random_state=0).fit(
        X, X[:, 0] + rng.normal(size=400)
    )


def test_rows_drawn_as_before_seldom_differ_and_shifted_ones_do(est):
    """At most 5 % of 300 pairs may show any difference: at most 5 % + 4 standard errors."""
    rng = np.random.default_rng(1)
    found = [
        dco.shift_hints(est, rng.normal(size=(300, 3)), rng.normal(size=(200, 3)))
        for _ in range(300)
    ]
    assert np.mean([min(hints.p_values.values()) <= 0.05 for hints in found]) <= 0.05 + 4 * np.sqrt(
        0.05 * 0.95 / 300
    )
    moved = rng.normal(size=(200, 3)) + [0, 0.8, 0]
    hints = dco.shift_hints(est, rng.normal(size=(300, 3)), moved)
    assert next(iter(hints.p_values)) == "1"
    assert hints.p_values["1"] < 1e-6
    assert "these differ: 1 (p =" in str(hints)
    assert "no test of the promise" in str(hints)


def test_texts_gaps_dates_and_set_sizes_are_compared():
    rng = np.random.default_rng(2)

    def made(n, north=0.5, gaps=0.1, days=365, spread=1.0):
        frame = pd.DataFrame(
            {
                "site": np.where(rng.random(n) < north, "north", "south"),
                "a": spread * rng.normal(size=n),
            }
        )
        frame["b"] = np.where(rng.random(n) < gaps, np.nan, rng.normal(size=n))
        frame["day"] = pd.Timestamp("2026-01-01") + pd.to_timedelta(
            rng.integers(days, size=n), unit="D"
        )
        return frame

    known = made(600)
    y = np.where(known["a"] + rng.normal(size=600) > 0, "yes", "no")
    est = dco.DecoupledClassifier(["boosting"], random_state=0).fit(known, y)
    for changed, column in (({"north": 0.8}, "site"), ({"gaps": 0.4}, "b"), ({"days": 100}, "day")):
        hints = dco.shift_hints(est, known, made(400, **changed))
        assert hints.p_values[column] < 0.001, column
        assert next(iter(hints.p_values)) == column
    # near the border of the classes
    assert dco.shift_hints(est, known, made(400, spread=0.2)).p_values["set size"] < 0.05
    assert dco.shift_hints(est, known, made(400)).rows == (600, 400)


def test_of_a_sparse_table_the_sets_are_compared():
    rng = np.random.default_rng(3)
    X = csr_matrix(rng.normal(size=(400, 2)) * (rng.random((400, 2)) < 0.5))
    y = np.where(X.toarray()[:, 0] + rng.normal(size=400) > 0, "yes", "no")
    est = dco.DecoupledClassifier(LogisticRegression(), dco.scores.LAC(), random_state=0).fit(X, y)
    assert list(dco.shift_hints(est, X, X).p_values) == ["set size"]
