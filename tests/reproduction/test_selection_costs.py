"""What selection costs: every method on the same rows, and tables that pair them by split."""

import math

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from dco.reproduction import selection_costs_labels as labels
from dco.reproduction.experiment import Options, SplitRecord
from dco.reproduction.selection_costs import (
    EXPERIMENTS,
    JOINT,
    NUMBERS,
    OURS,
    selection_split,
    selection_tables,
)
from dco.reproduction.selection_pruning import pruned_rows


def made_up(seed):
    """Sizes that are known: DCO 2, ModSel 1 more, the bound always full, and of the single
    candidates the tree is best.
    """
    sizes = {
        "DCO": 2 + seed,
        "DCO, folds": 1.9 + seed,
        "DCO, pointwise": 2.1 + seed,
        "ModSel": 3 + seed,
    }
    sizes |= {
        "ModSel-LOO": 2 + seed,
        "YK-adjust": math.inf,
        "ridge": 4,
        "stiff ridge": 4,
        "5 neighbours": 4,
    }
    sizes |= {"15 neighbours": 4, "tree": 1 + seed, "normalised": 4}
    rows = [
        {"data": "D", "n": 50, "alpha": 0.1, "method": name, "size": size, "coverage": 0.9}
        for name, size in sizes.items()
    ]
    return SplitRecord(seed, tuple(rows), 0.0)


def test_tables_pair_methods_by_split():
    size, coverage = selection_tables([made_up(seed) for seed in range(3)], Options((0.1,)))
    (row,) = size.rows
    assert dict(zip(size.columns, row, strict=True)) == {
        "data": "D",
        "n": 50,
        "target": 0.9,
        "DCO": 3.0,
        "DCO, folds": "-3.3 ± 0.0",
        "DCO, pointwise": "+3.3 ± 0.0",
        "ModSel": "+33.3 ± 0.0",
        "ModSel-LOO": "+0.0 ± 0.0",
        "YK-adjust": "full",
        "hindsight": "-33.3 ± 0.0",
    }
    assert coverage.column("ModSel") == [pytest.approx(0.9)]


def test_a_split_runs_every_method_on_the_same_rows(data_home):
    options = Options((0.1,), quick=True, data_home=data_home)
    if EXPERIMENTS[0].missing(options) is not None:
        pytest.skip("the data are not here")
    rows = selection_split(0, options)
    assert {row["method"] for row in rows} >= {*OURS, *JOINT}
    assert {(row["data"], row["n"]) for row in rows} == {
        (d, n) for d in ("Diabetes", "Concrete", "California") for n in (50, 100)
    }
    assert all(math.isinf(row["size"]) for row in rows if row["method"] == "YK-adjust")
    assert all(0.5 < row["coverage"] <= 1 for row in rows)
    assert rows == selection_split(0, options)


def test_the_same_on_image_features(data_home):
    """Few candidates and near-ties; sets of labels are never larger than all 20 superclasses, and
    have no infinite size.
    """
    options = Options((0.1,), quick=True, data_home=data_home)
    if labels.EXPERIMENTS[0].missing(options) is not None:
        pytest.skip("the data are not here")
    rows = labels.labels_split(0, options)
    assert {row["method"] for row in rows} >= {*OURS, *JOINT}
    fields = [f"CIFAR-100, {count} candidates" for count in (6, 16)]
    assert {(row["data"], row["n"]) for row in rows} == {
        (field, n) for field in fields for n in (50, 100)
    }
    assert all(row["size"] == 20 for row in rows if row["method"] == "YK-adjust")
    assert all(0 < row["size"] <= 20 for row in rows)
    sizes, coverage = labels.labels_tables(
        [SplitRecord(seed, tuple(rows), 0.0) for seed in range(2)], options
    )
    assert len(sizes.rows) == len(coverage.rows) == 4
    assert set(sizes.column("DCO, folds")) != {"full"}
    assert np.bincount(labels.SUPERCLASSES).tolist() == [5] * 20


def test_every_class_counts_one_row_more():
    """(n p + 1) / (n + K); a class without rows has 1 / (n + K), and probabilities sum to 1."""
    X, y = np.random.default_rng(0).normal(size=(12, 2)), np.repeat([1, 3], 6)
    found = labels.OneMoreRow(LogisticRegression(), 5).fit(X, y).predict_proba(X)
    assert found.sum(axis=1) == pytest.approx(np.ones(12))
    assert found[:, [0, 2, 4]] == pytest.approx(np.full((12, 3), 1 / 17))
    roots = LogisticRegression().fit(X, y).predict_proba(X) ** 0.25
    assert found[:, [1, 3]] == pytest.approx(
        (12 * roots / roots.sum(axis=1, keepdims=True) + 1) / 17
    )


def test_fewer_candidates_choose_among_the_best_of_the_training_rows():
    """The best one alone is split CP with the candidate that decoupled selection takes by the same
    folds.
    """
    X = np.random.default_rng(1).normal(size=(160, 3))
    y = X[:, 0] + np.random.default_rng(2).normal(size=160)
    found = pruned_rows(NUMBERS, X[:120], y[:120], X[120:], y[120:], alpha=0.1, seed=0)
    sizes = {row["method"]: row["size"] for row in found}
    assert list(sizes) == ["all", "best 1", "best 2", "best 3", "best 5"]
    est = NUMBERS.estimator(NUMBERS.models(), alpha=0.1, random_state=0, tune_folds=5).fit(
        X[:120], y[:120]
    )
    assert sizes["best 1"] == pytest.approx(est.predict_set(X[120:]).sizes().mean(), rel=1e-9)
