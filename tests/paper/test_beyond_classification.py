"""The stronger class for CIFAR-100 features and its auto tuning split, on small made-up features
and on random scores.
"""

import numpy as np
import pytest
from scipy.special import log_softmax
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from dco.datasets import ImageFeatures
from dco.foundations.ranks import conformal_rank
from dco.paper import beyond_classification as strong
from dco.paper import classification
from dco.paper import classification_splits as splits
from dco.paper.beyond_classification_tables import auto_table, chosen_table
from dco.paper.classification_tables import law_cells
from dco.paper.coverage_z import coverage_sd, own_law
from dco.paper.experiment import Options, SplitRecord
from dco.paper.heads import ScoreTable
from dco.paper.stability import bootstrap_stability

SMALL = splits.Sizes(train=150, tune=60, calibrate=120, test=100)
CLASSES = 5
ALPHAS = (0.2, 0.1)


@pytest.fixture(scope="module")
def halves(made_up):
    """X and y to fit on, X and y of new rows."""
    return (
        made_up.features[:300],
        made_up.labels[:300],
        made_up.features[300:],
        made_up.labels[300:],
    )


@pytest.fixture(scope="module")
def fitted(halves) -> strong.FittedHeads:
    return strong.FittedHeads(*halves[:3])


@pytest.fixture(scope="module")
def tables(halves) -> dict[str, ScoreTable]:
    return strong.strong_tables(*halves, n_classes=CLASSES)


# ---- the class -----------------------------------------------------------------------------------
# --------------------


def test_the_class_varies_what_it_should():
    """Temperature, RAPS, SAPS, width, weight decay, logistic heads, and means of families."""
    heads = {part for structure in strong.STRUCTURES.values() for part in structure.parts}
    assert len({head.width for head, _ in heads if head.family == "network"}) == 2
    for family, values in {"network": 2, "logistic": 3, "discriminant": 3}.items():
        assert len({head.value for head, _ in heads if head.family == family}) == values
    for head in {head for head, _ in heads}:
        assert len({t for other, t in heads if other == head}) >= 2, head.name
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
    assert strong.STRUCTURES[strong.FIXED] == strong.ONE


def test_the_discriminant_agrees_with_scikit_learn(halves):
    X, y, new, _ = halves
    ours = strong.LinearDiscriminant(X.astype(np.float64), y)
    for g in (0.1, 0.7):
        theirs = (
            LinearDiscriminantAnalysis(solver="lsqr", shrinkage=g)
            .fit(X.astype(np.float64), y)
            .predict_log_proba(new)
        )
        np.testing.assert_allclose(
            log_softmax(ours.logits(new @ ours.vectors, g), axis=1), theirs, rtol=1e-3, atol=1e-3
        )


def test_networks_read_rows_whose_covariance_within_classes_is_whitened(fitted):
    """Σ_g^(-1/2) S Σ_g^(-1/2) is diagonal with the eigenvalues λ / λ_g, up to the one number that
    all are divided by.
    """
    rows, new = fitted.whitened
    assert rows.std() == pytest.approx(1.0, rel=1e-4)
    means = np.stack([rows[fitted.y == label].mean(axis=0) for label in range(CLASSES)])
    within = (rows - means[fitted.y]).astype(np.float64)
    covariance = within.T @ within / len(rows)
    ratio = fitted.discriminant.values / fitted.discriminant.spread(strong.WHITENING)
    np.testing.assert_allclose(covariance, np.diag(ratio) * covariance[0, 0] / ratio[0], atol=1e-4)
    assert new.shape == (300, 12)


def test_more_weight_decay_gives_flatter_heads(fitted):
    def spread(head: strong.Head) -> float:
        return float(np.std(fitted.log_probabilities(head, 1.0)))

    assert (
        spread(strong.Head("logistic", 0.02))
        > spread(strong.Head("logistic", 0.05))
        > spread(strong.Head("logistic", 0.1))
    )
    assert spread(strong.Head("network", 0.02, 64)) > spread(strong.Head("network", 1.0, 64))


def test_scores_are_the_formulas_of_their_names(fitted, tables):
    logs = [fitted.log_probabilities(head, t) for head, t in strong.ONE.parts]
    assert [log_p.shape for log_p in logs] == [(300, CLASSES)] * 3
    np.testing.assert_allclose(
        tables[strong.FIXED].scores, -np.log(np.mean(np.exp(logs), axis=0)), rtol=1e-5, atol=1e-7
    )
    name = "mean log p: discriminant 0.75 / 28, logistic 0.05 / 0.7"
    np.testing.assert_allclose(
        tables[name].scores, -log_softmax((logs[0] + logs[1]) / 2, axis=1), rtol=1e-5, atol=1e-7
    )
    single = tables["logistic 0.1 / 0.5"].scores
    np.testing.assert_allclose(np.exp(-single).sum(axis=1), 1.0)
    for name, table in tables.items():
        assert table.scores.shape == (300, CLASSES)
        assert np.all(np.isfinite(table.scores)), name


def test_a_structure_asked_for_alone_is_the_same(tables, halves):
    """So that a refit may leave out what was not chosen."""
    names = [strong.FIXED, "logistic 0.1 / 0.7"]
    alone = strong.strong_tables(*halves, n_classes=CLASSES, names=names)
    assert list(alone) == names
    for name in names:
        np.testing.assert_array_equal(alone[name].scores, tables[name].scores)


def test_the_table_of_rows_set_aside_is_sorted_and_written(monkeypatch, tmp_path, made_up):
    X, y = made_up.features, made_up.labels
    table = strong.set_aside_table(X, y, seeds=(0, 1), alphas=ALPHAS, train=300, n_classes=CLASSES)
    sizes = [np.log(first.mean) + np.log(second.mean) for _, first, second in table.rows]
    assert sizes == sorted(sizes)
    assert {row[0] for row in table.rows} == set(strong.STRUCTURES)
    monkeypatch.setattr(classification.splits, "cifar100_rows_set_aside", lambda data_home: made_up)
    monkeypatch.setattr(classification, "set_aside_table", lambda *args, **kept: table)
    classification.write_rows_set_aside(None, tmp_path)
    assert (tmp_path / "rows-set-aside.md").read_text(encoding="utf-8") == table.to_markdown()
    assert (tmp_path / "rows-set-aside.csv").read_text(encoding="utf-8") == table.to_csv()


# ---- rows of a split
# -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def split(made_up):
    """One split of the made-up data: rows by method and level, as they are and with labels
    garbled.
    """
    data = made_up
    order = splits.deal(data, SMALL, seed=0, stratified=False).order

    def run(labels) -> dict[tuple[str, float], dict]:
        found = splits.strong_rows(
            splits.Dealt(ImageFeatures(data.features, labels), order, SMALL), alphas=ALPHAS
        )
        return {(row["method"], row["alpha"]): row for row in found}

    def garbled(start: int) -> dict[tuple[str, float], dict]:
        """Labels of all rows of the split from this place on are dealt again."""
        labels, rows = data.labels.copy(), order[start:]
        labels[rows] = np.random.default_rng(8).permutation(labels[rows])
        return run(labels)

    plain = run(data.labels)
    taken = plain[splits.AUTO, ALPHAS[0]]["n_tune"]
    return {
        "plain": plain,
        "after tuning": garbled(SMALL.train + SMALL.tune),
        "after auto": garbled(SMALL.train + taken),
        "test": garbled(SMALL.train + SMALL.pool),
    }


def test_every_row_has_the_rank_of_its_own_calibration_rows(split):
    for (method, alpha), row in split["plain"].items():
        n = SMALL.pool - row["n_tune"] if method == splits.AUTO else SMALL.calibrate
        assert (row["n"], row["rank"]) == (n, conformal_rank(n, alpha=alpha))
        assert row["size"] < 0.9 * CLASSES
    assert (
        len({row["n_tune"] for (method, _), row in split["plain"].items() if method == splits.AUTO})
        == 1
    )
    assert {row[0] for row in split["plain"]} == {
        row for row in splits.METHOD_OF if "Stronger" in row
    }


def test_labels_of_calibration_and_test_rows_choose_nothing(split):
    for key, row in split["plain"].items():
        other = split["after auto" if key[0] == splits.AUTO else "after tuning"][key]
        assert (other["chosen"], other.get("n_tune")) == (row["chosen"], row.get("n_tune")), key
        # garbled labels are harder: calibration saw them
        assert other["threshold"] > row["threshold"], key
        assert split["test"][key]["coverage"] < row["coverage"], key
        kept = ("chosen", "threshold", "rank", "n", "size", "p95")
        assert {name: split["test"][key][name] for name in kept} == {
            name: row[name] for name in kept
        }, key


# ---- the auto tuning split
# -------------------------------------------------------------------------------------------


def random_tables(
    rng: np.random.Generator, n: int, *, strengths: dict[str, float]
) -> dict[str, ScoreTable]:
    """Scores of four labels; the true one is lower by the strength."""
    codes = rng.integers(4, size=n)
    true = np.arange(4) == codes[:, None]
    return {
        name: ScoreTable(rng.normal(size=(n, 4)) - strength * true, codes)
        for name, strength in strengths.items()
    }


def test_a_clear_winner_settles_at_the_first_look():
    tables = random_tables(np.random.default_rng(0), 240, strengths={"weak": 0.2, "strong": 4.0})
    step = splits.settled_tuning_rows(tables, alphas=ALPHAS)
    assert (step.n_tune, step.settled) == (20, True)


def test_tuning_stops_at_the_first_look_that_has_settled_at_every_level():
    strengths = {"a": 1.5, "b": 1.6, "c": 1.7, "d": 2.6}
    seen = set()
    for seed in range(12):
        tables = random_tables(np.random.default_rng(seed), 240, strengths=strengths)
        step = splits.settled_tuning_rows(tables, alphas=ALPHAS)
        regrets = {
            n: max(
                bootstrap_stability(
                    [table.rows(0, n).evaluated(name) for name, table in tables.items()],
                    alpha=alpha,
                    rng=np.random.default_rng(n),
                    repetitions=splits.REPETITIONS,
                ).relative_regret
                for alpha in ALPHAS
            )
            for n in (20, 40, 80, 160)  # a third of the pool is left to calibration
        }
        assert step.n_tune == next(
            (n for n, regret in regrets.items() if regret <= splits.SETTLED), 160
        )
        assert step.settled == (regrets[step.n_tune] <= splits.SETTLED)
        seen.add(step.n_tune)
    assert len(seen) >= 3


def test_rows_not_taken_do_not_move_the_auto_split():
    for seed in range(5):
        rng = np.random.default_rng(seed)
        tables = random_tables(rng, 240, strengths={"a": 1.5, "b": 1.7, "c": 2.6})
        step = splits.settled_tuning_rows(tables, alphas=ALPHAS)
        codes = next(iter(tables.values())).codes.copy()
        codes[step.n_tune :] = rng.permutation(codes[step.n_tune :])
        other = {name: ScoreTable(table.scores.copy(), codes) for name, table in tables.items()}
        for table in other.values():
            table.scores[step.n_tune :] += rng.normal(size=table.scores[step.n_tune :].shape)
        again = splits.settled_tuning_rows(other, alphas=ALPHAS)
        assert (again.n_tune, again.settled) == (step.n_tune, step.settled)


def test_the_law_of_unequal_splits_is_the_mean_of_their_laws():
    rows = [
        {"rank": rank, "n": n, "n_test": 50, "alpha": 0.2, "coverage": coverage}
        for rank, n, coverage in ((9, 10, 0.9), (81, 100, 0.7), (81, 100, 0.8))
    ]
    expected, z, below = law_cells(splits.AUTO, rows, stratified=False)
    means = np.array([9 / 11, 81 / 101, 81 / 101])
    sds = np.array([coverage_sd(9, 10, 50), coverage_sd(81, 100, 50), coverage_sd(81, 100, 50)])
    assert expected == pytest.approx(means.mean())
    assert z == pytest.approx((0.8 - means.mean()) / np.sqrt(np.sum(sds**2) / 9))
    assert own_law(rows) == pytest.approx((expected, z)), "regression computes the same"
    parts = [law_cells(splits.AUTO, rows[i : i + 1], stratified=False)[2] for i in range(3)]
    assert below == pytest.approx(np.mean(parts))


def test_tables_count_tuning_rows_and_choices(split):
    study = splits.Study("cifar100", "Made-up", "Made-up features.", None, beyond=True)
    rows = tuple(
        {"features": "square roots", "n_test": SMALL.test, **row} for row in split["plain"].values()
    )
    records = [SplitRecord(seed, rows, 1.0) for seed in range(2)]
    auto = auto_table(study, records, Options(ALPHAS))
    taken = split["plain"][splits.AUTO, 0.2]["n_tune"]
    for name in ("tuning rows", "least", "most"):
        assert list(auto.column(name)) == [60, taken] * 2
    chosen = chosen_table(study, records, Options(ALPHAS))
    counted = [dict(zip(chosen.columns, row, strict=True)) for row in chosen.rows]
    for alpha, method in ((0.2, "splits"), (0.1, "splits, auto split")):
        kinds = [
            row[method] for row in counted if row["by"] == "kind" and row["target"] == 1 - alpha
        ]
        assert sum(kinds) == 2
