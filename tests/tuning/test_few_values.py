"""Targets with few values or a large atom: sizes and coverage beside plain methods."""

import re
import warnings

import numpy as np
import pytest
from scipy.stats import betabinom
from sklearn.ensemble import HistGradientBoostingRegressor as Boosting

import dco

ALPHA = 0.1


def eleven_values(rng, n):
    """62 % are 0, the others 10, 20, ..., 100; nearly a function of two of 26 features."""
    X = rng.normal(size=(n, 26))
    height = 4 * X[:, 0] + 3 * (X[:, 1] > 0) + 0.4 * rng.normal(size=n)
    above = height - np.quantile(height, 0.62)
    return X, np.where(above < 0, 0, 10 * np.clip(np.ceil(1.2 * above), 1, 10))


def eleven_values_by_category(rng, n):
    """Zero in most categories, and spread over ten values in the others."""
    X = rng.integers(0, 4, size=(n, 26)).astype(float)
    category = X[:, 0] * 4 + X[:, 1]
    centre = np.where(category < 10, 0, 15 * (category - 9))
    noise = 6 * np.round(rng.normal(size=n)) * (centre > 0)
    jump = np.where(rng.uniform(size=n) < 0.04, 30, 0)
    return X, 10 * np.clip(np.round((centre + noise + jump) / 10), 0, 10)


def counts(rng, n):
    X = rng.normal(size=(n, 6))
    return X, rng.poisson(np.exp(0.8 * X[:, 0] + 0.2)).astype(float)


def expenses(rng, n):
    """Two thirds are zeros, the others log-normal."""
    X = rng.normal(size=(n, 6))
    spends = rng.uniform(size=n) < 1 / (1 + np.exp(3 - 4 * X[:, 0]))
    return X, np.where(spends, np.exp(1 + 0.6 * X[:, 1] + 0.6 * rng.normal(size=n)), 0.0)


TABLES = [eleven_values, eleven_values_by_category, counts, expenses]
SIZES = {"tune_size": 0.2, "calibrate_size": 500, "random_state": 0}


def plain_methods():
    """Split conformal prediction around boosting, and conformalised quantiles of boosting."""
    quantiles = dco.models.QuantilePair(Boosting(), alpha=ALPHA)
    return {
        "split": dco.DecoupledRegressor(Boosting(), dco.scores.AbsoluteResidual(), **SIZES),
        "cqr": dco.DecoupledRegressor(quantiles, dco.scores.QuantileResidual(), **SIZES),
    }


@pytest.mark.parametrize("table", TABLES)
def test_default_sets_are_no_larger_than_plain_ones_and_keep_the_level(table):
    """Hits of new rows are beta-binomial; wrong once in 1,000 for each table."""
    X, y = table(np.random.default_rng(0), 4000)
    new = slice(3000, None)

    est = dco.DecoupledRegressor(**SIZES).fit(X[:3000], y[:3000])
    sets = est.predict_set(X[new])
    plain = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, method in plain_methods().items():
            method.fit(X[:3000], y[:3000])
            plain[name] = method.predict_set(X[new]).sizes().mean()

    hits = sets.contains(y[new]).sum()
    rank = dco.conformal_rank(500, alpha=ALPHA)
    assert hits >= betabinom(1000, rank, 501 - rank).ppf(0.001)
    assert sets.sizes().mean() <= 1.1 * min(plain.values())


def test_evenness_at_any_price_costs_more_than_half():
    """What the default was: fifths of the prediction cannot be covered alike by narrow sets."""
    X, y = eleven_values_by_category(np.random.default_rng(0), 4000)
    sizes = {}
    for price in (0.1, np.inf):
        est = dco.DecoupledRegressor(objective=dco.objectives.Even(price=price), **SIZES)
        sizes[price] = est.fit(X[:3000], y[:3000]).predict_set(X[3000:]).sizes().mean()
    assert sizes[np.inf] > 1.5 * sizes[0.1]


def test_a_note_says_which_part_is_left_behind_and_its_remedy_helps():
    X, y = eleven_values_by_category(np.random.default_rng(0), 4000)
    est = dco.DecoupledRegressor(effort="quick", **SIZES).fit(X[:3000], y[:3000])
    (note,) = [note for note in est.notes_ if note.kind == "left-behind"]
    assert "% larger than the smallest" in note.text

    price = float(re.search(r"Even\(price=(.*?)\)", note.remedy)[1])
    objective = dco.objectives.Even(price=price)
    even = dco.DecoupledRegressor(effort="quick", objective=objective, **SIZES).fit(
        X[:3000], y[:3000]
    )
    assert even.ranking_.table[0].shortfall < est.ranking_.table[0].shortfall

    def worst_coverage(fitted):
        return min(part.coverage for part in fitted.evaluate(X[3000:], y[3000:]).slices)

    assert worst_coverage(even) > worst_coverage(est) + 0.05
