"""The stronger class for CIFAR-100 features and its growing tuning split, on small made-up features
and on random scores.
"""

import numpy as np
import pytest
from made_up_study import ALPHAS, N_CLASSES, SMALL, make_study
from scipy.special import log_softmax
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from dco import conformal_rank
from dco.datasets import ImageFeatures
from dco.paper import Options, SplitRecord, bootstrap_stability
from dco.paper import beyond_classification as strong
from dco.paper.beyond_classification import FittedHeads, Head, LinearDiscriminant
from dco.paper.beyond_classification_tables import auto_split_table, chosen_table
from dco.paper.classification_splits import (
    BOOTSTRAP_REPETITIONS,
    METHOD_BY_TITLE,
    STRONG_AUTO_SPLIT,
    AutoSplitOutcome,
    RandomSplit,
    choose_tuning_size,
    draw_split,
    run_stronger_class,
)
from dco.paper.growing_split import SETTLED_REGRET
from dco.paper.heads import ScoreTable, to_scored_rows


@pytest.fixture(scope="module")
def halves(made_up):
    """X and y to fit on, X and y of new rows."""
    X, y = made_up.features, made_up.labels
    return X[:300], y[:300], X[300:], y[300:]


@pytest.fixture(scope="module")
def fitted(halves):
    return FittedHeads(*halves[:3])


@pytest.fixture(scope="module")
def tables(halves):
    return strong.score_structures(*halves, n_classes=N_CLASSES)


# ---- the class

PARTS = {part for structure in strong.STRUCTURES.values() for part in structure.parts}
HEADS = {head for head, _ in PARTS}


@pytest.mark.parametrize(("family", "n"), [("network", 2), ("logistic", 3), ("discriminant", 3)])
def test_every_family_comes_with_several_values(family, n):
    assert len({head.regularisation for head in HEADS if head.family == family}) == n


def test_networks_come_in_two_widths():
    assert len({head.width for head in HEADS if head.family == "network"}) == 2


@pytest.mark.parametrize("head", sorted(HEADS, key=lambda head: head.name), ids=lambda h: h.name)
def test_every_head_comes_at_several_temperatures(head):
    assert len({temperature for other, temperature in PARTS if other == head}) >= 2


def test_families_are_averaged_and_rank_scores_offered():
    assert {structure.kind for structure in strong.STRUCTURES.values()} == {
        "discriminant",
        "logistic",
        "network",
        "discriminant + logistic",
        "discriminant + network",
        "discriminant + logistic + network",
        "RAPS",
        "SAPS",
    }


def test_the_fixed_structure_is_offered():
    assert strong.STRUCTURES[strong.FIXED_STRUCTURE] == strong.ONE_OF_EACH_FAMILY


# ---- heads and scores


@pytest.mark.parametrize("shrinkage", [0.1, 0.7])
def test_the_discriminant_agrees_with_scikit_learn(shrinkage, halves):
    X, y, X_new, _ = halves
    ours = LinearDiscriminant(X.astype(np.float64), y)
    theirs = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=shrinkage)
    expected = theirs.fit(X.astype(np.float64), y).predict_log_proba(X_new)
    logits = ours.logits(X_new @ ours.eigenvectors, shrinkage)
    np.testing.assert_allclose(log_softmax(logits, axis=1), expected, rtol=1e-3, atol=1e-3)


def test_networks_read_rows_whose_covariance_within_classes_is_whitened(fitted):
    """Σ_g^(-1/2) S Σ_g^(-1/2) is diagonal with the eigenvalues λ / λ_g, up to the one number that
    all are divided by.
    """
    rows, new_rows = fitted.whitened
    assert rows.std() == pytest.approx(1.0, rel=1e-4)
    assert new_rows.shape == (300, 12)
    means = np.stack([rows[fitted.y == label].mean(axis=0) for label in range(N_CLASSES)])
    within = (rows - means[fitted.y]).astype(np.float64)
    covariance = within.T @ within / len(rows)
    discriminant = fitted.discriminant
    ratio = discriminant.eigenvalues / discriminant.variances(strong.WHITENING)
    np.testing.assert_allclose(covariance, np.diag(ratio) * covariance[0, 0] / ratio[0], atol=1e-4)


@pytest.mark.parametrize(
    ("weaker", "stronger"),
    [
        (Head("logistic", 0.02), Head("logistic", 0.05)),
        (Head("logistic", 0.05), Head("logistic", 0.1)),
        (Head("network", 0.02, 64), Head("network", 1.0, 64)),
    ],
    ids=lambda head: head.name,
)
def test_more_weight_decay_gives_flatter_heads(weaker, stronger, fitted):
    spreads = [np.std(fitted.log_probabilities(head, 1.0)) for head in (weaker, stronger)]
    assert spreads[0] > spreads[1]


def test_a_mean_of_probabilities_scores_minus_its_logarithm(fitted, tables):
    logs = [
        fitted.log_probabilities(head, temperature)
        for head, temperature in strong.ONE_OF_EACH_FAMILY.parts
    ]
    expected = -np.log(np.mean(np.exp(logs), axis=0))
    np.testing.assert_allclose(
        tables[strong.FIXED_STRUCTURE].scores, expected, rtol=1e-5, atol=1e-7
    )


def test_a_mean_of_logarithms_is_normalised(fitted, tables):
    name = "mean log p: discriminant 0.75 / 28, logistic 0.05 / 0.7"
    logs = [fitted.log_probabilities(head, t) for head, t in strong.STRUCTURES[name].parts]
    expected = -log_softmax((logs[0] + logs[1]) / 2, axis=1)
    np.testing.assert_allclose(tables[name].scores, expected, rtol=1e-5, atol=1e-7)


def test_a_single_head_scores_minus_log_probabilities(tables):
    np.testing.assert_allclose(np.exp(-tables["logistic 0.1 / 0.5"].scores).sum(axis=1), 1.0)


def test_every_structure_scores_every_label(tables):
    assert set(tables) == set(strong.STRUCTURES)
    for table in tables.values():
        assert table.scores.shape == (300, N_CLASSES)
        assert np.all(np.isfinite(table.scores))


def test_a_structure_asked_for_alone_is_the_same(tables, halves):
    """So that a refit may leave out what was not chosen."""
    names = [strong.FIXED_STRUCTURE, "logistic 0.1 / 0.7"]
    alone = strong.score_structures(*halves, n_classes=N_CLASSES, names=names)
    assert list(alone) == names
    for name in names:
        np.testing.assert_array_equal(alone[name].scores, tables[name].scores)


def test_the_table_of_rows_set_aside_has_the_smallest_sets_first(made_up):
    table = strong.development_table(
        made_up.features,
        made_up.labels,
        seeds=(0, 1),
        alphas=ALPHAS,
        n_train=300,
        n_classes=N_CLASSES,
    )
    log_sizes = [np.log(first.mean) + np.log(second.mean) for _, first, second in table.rows]
    assert log_sizes == sorted(log_sizes)
    assert {row[0] for row in table.rows} == set(strong.STRUCTURES)


# ---- rows of a split


@pytest.fixture(scope="module")
def run_with_labels(made_up):
    """Run one split of the made-up data: with its labels, or garbled from a row of the split on."""
    order = draw_split(made_up, SMALL, seed=0, is_stratified=False).row_order

    def run(garble_from=None):
        labels = made_up.labels.copy()
        if garble_from is not None:
            rows = order[garble_from:]
            labels[rows] = np.random.default_rng(8).permutation(labels[rows])
        dealt = RandomSplit(ImageFeatures(made_up.features, labels), order, SMALL)
        rows = run_stronger_class(dealt, alphas=ALPHAS)
        return {(row.method, row.alpha): row for row in rows}

    return run


@pytest.fixture(scope="module")
def split(run_with_labels):
    return run_with_labels()


KEYS = [(title, alpha) for title in METHOD_BY_TITLE if "Stronger" in title for alpha in ALPHAS]
keys = pytest.mark.parametrize("key", KEYS, ids=lambda key: f"{key[0]}, {key[1]}")


def test_every_row_of_the_stronger_class_is_recorded(split):
    assert set(split) == set(KEYS)


@keys
def test_a_row_has_the_rank_of_its_own_calibration_rows(key, split):
    row = split[key]
    n = SMALL.pool - row.n_tune if key[0] == STRONG_AUTO_SPLIT else SMALL.calibrate
    assert (row.n, row.rank) == (n, conformal_rank(n, alpha=key[1]))
    assert row.size < 0.9 * N_CLASSES


def test_one_number_of_tuning_rows_serves_all_levels(split):
    assert len({split[STRONG_AUTO_SPLIT, alpha].n_tune for alpha in ALPHAS}) == 1


@pytest.fixture(scope="module")
def garbled(split, run_with_labels):
    """The split with labels garbled after the fixed tuning rows, after the grown ones, and on test
    rows only.
    """
    n_grown = split[STRONG_AUTO_SPLIT, ALPHAS[0]].n_tune
    return {
        "after tuning": run_with_labels(SMALL.train + SMALL.tune),
        "after grown tuning": run_with_labels(SMALL.train + n_grown),
        "test": run_with_labels(SMALL.train + SMALL.pool),
    }


@keys
def test_labels_of_calibration_rows_choose_nothing(key, split, garbled):
    """Garbled labels are harder: the threshold, which calibration sees, goes up."""
    row = split[key]
    other = garbled["after grown tuning" if key[0] == STRONG_AUTO_SPLIT else "after tuning"][key]
    assert other.chosen == row.chosen
    assert other.threshold > row.threshold
    if isinstance(row, AutoSplitOutcome):
        assert other.n_tune == row.n_tune


@keys
def test_labels_of_test_rows_change_the_coverage_alone(key, split, garbled):
    row, other = split[key].cells(), garbled["test"][key].cells()
    assert other.pop("coverage") < row.pop("coverage")
    assert other == row


# ---- the growing tuning split


def random_tables(rng, n, strengths):
    """Draw scores of four labels; the true one is lower by the strength."""
    labels = rng.integers(4, size=n)
    is_true = np.arange(4) == labels[:, None]
    return {
        name: ScoreTable(rng.normal(size=(n, 4)) - strength * is_true, labels)
        for name, strength in strengths.items()
    }


def test_a_clear_winner_settles_at_the_first_look():
    tables = random_tables(np.random.default_rng(0), 240, {"weak": 0.2, "strong": 4.0})
    grown = choose_tuning_size(tables, alphas=ALPHAS)
    assert (grown.n_tune, grown.has_settled) == (20, True)


def largest_regret(tables, n):
    """Return the regret on the first n rows at the level where it is largest."""
    candidates = {name: to_scored_rows(table.rows(0, n)) for name, table in tables.items()}
    return max(
        bootstrap_stability(
            candidates, alpha=alpha, rng=np.random.default_rng(n), repetitions=BOOTSTRAP_REPETITIONS
        ).relative_regret
        for alpha in ALPHAS
    )


def test_tuning_stops_at_the_first_look_that_has_settled_at_every_level():
    """A third of the 240 rows is left to calibration, so the last look is at 160."""
    stops = set()
    for seed in range(12):
        strengths = {"a": 1.5, "b": 1.6, "c": 1.7, "d": 2.6}
        tables = random_tables(np.random.default_rng(seed), 240, strengths)
        grown = choose_tuning_size(tables, alphas=ALPHAS)
        regrets = {n: largest_regret(tables, n) for n in (20, 40, 80, 160)}
        settled = [n for n, regret in regrets.items() if regret <= SETTLED_REGRET]
        assert grown.n_tune == (settled[0] if settled else 160)
        assert grown.has_settled == bool(settled)
        stops.add(grown.n_tune)
    assert len(stops) >= 3


@pytest.mark.parametrize("seed", range(5))
def test_rows_not_taken_do_not_move_the_growing_split(seed):
    rng = np.random.default_rng(seed)
    tables = random_tables(rng, 240, {"a": 1.5, "b": 1.7, "c": 2.6})
    grown = choose_tuning_size(tables, alphas=ALPHAS)

    labels = next(iter(tables.values())).labels.copy()
    labels[grown.n_tune :] = rng.permutation(labels[grown.n_tune :])
    others = {name: ScoreTable(table.scores.copy(), labels) for name, table in tables.items()}
    for table in others.values():
        table.scores[grown.n_tune :] += rng.normal(size=table.scores[grown.n_tune :].shape)
    assert choose_tuning_size(others, alphas=ALPHAS) == grown


# ---- tables


@pytest.fixture(scope="module")
def records(split):
    return [SplitRecord(seed, tuple(split.values()), 1.0) for seed in range(2)]


def test_tables_count_tuning_rows(records, split, made_up):
    table = auto_split_table(make_study(made_up), records, Options(ALPHAS))
    n_grown = split[STRONG_AUTO_SPLIT, 0.2].n_tune
    for column in ("tuning rows", "least", "most"):
        assert table.column(column) == [60, n_grown] * 2


@pytest.mark.parametrize("column", ["splits", "splits, auto split"])
@pytest.mark.parametrize("alpha", ALPHAS)
def test_tables_count_what_every_split_chose(column, alpha, records, made_up):
    table = chosen_table(make_study(made_up), records, Options(ALPHAS))
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    counts = [row[column] for row in rows if row["by"] == "kind" and row["target"] == 1 - alpha]
    assert sum(counts) == len(records)
