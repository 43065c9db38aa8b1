import math
from functools import partial

import numpy as np
import pytest
from scipy.stats import betabinom

import dco
from dco.paper import regression, regression_tables
from dco.paper.coverage_z import all_z, bonferroni_point, coverage_sd, coverage_z, target
from dco.paper.experiment import Options, SplitRecord, needs_file
from dco.paper.regression import DENSITY, load_rows, paper_fits, paper_split
from dco.paper.regression_tables import STUDIES
from dco.paper.tables import Measured, ResultTable, standard_errors

DIABETES = Options(alphas=(0.2,))


@pytest.fixture(scope="module")
def diabetes_rows():
    return regression.run_split(3, DIABETES, study=STUDIES["diabetes"])


@pytest.mark.parametrize(
    ("n", "sizes"),
    [(442, (150, 112, 113, 67)), (3000, (1020, 765, 765, 450)), (1030, (350, 262, 263, 155))],
    ids=["diabetes", "california", "concrete"],
)
def test_split_sizes_are_the_papers(n, sizes):
    splits = paper_split(n, seed=0)
    assert (len(splits.train), len(splits.tune), len(splits.calibrate), len(splits.test)) == sizes


def test_methods_are_the_librarys_own_path(diabetes_rows):
    """Each row again by the public functions: `tune`, one rule on the scores of its rows, sets of
    the test rows.
    """
    table = load_rows("diabetes", None)
    splits = paper_split(len(table), 3)
    models, _ = paper_fits(table, splits, seed=3, draws=8000)
    pool, y = np.concatenate([splits.tune, splits.calibrate]), table.y

    def predicted(name, rows):
        return models[name].predict_distribution(table.X[rows])

    best = dco.tune(
        {name: (DENSITY, predicted(name, splits.tune)) for name in models},
        y[splits.tune],
        alpha=0.2,
    ).best
    pac = partial(dco.bayesian_quadrature, delta=0.05)
    by_method = {row["method"]: row for row in diabetes_rows[1:]}
    for method, name, rows, rule in (
        ("BQ", "c = 1", pool, pac),
        ("DCO-Warmstart", best, splits.calibrate, dco.split_conformal),
        ("DCO-PAC", best, splits.calibrate, pac),
        ("Split CP, φ fixed, whole pool", "c = 1", pool, dco.split_conformal),
        ("DCO, φ fixed (c = 0.02)", "c = 0.02", splits.calibrate, dco.split_conformal),
        ("DCO's structure, BQ on the pool", best, pool, pac),
    ):
        threshold, row = (
            rule(DENSITY.observed(predicted(name, rows), y[rows]), alpha=0.2),
            by_method[method],
        )
        assert (threshold.value, threshold.rank, name) == (
            row["threshold"],
            row["rank"],
            row["chosen"],
        )
        sets = DENSITY.sets(predicted(name, splits.test), threshold)
        assert sets.contains(y[splits.test]).mean() == row["coverage"]
        assert sets.sizes().mean() / y[splits.train].std() == pytest.approx(row["width"], rel=1e-9)


def test_what_chose_on_its_own_rows_claims_nothing(diabetes_rows):
    claims = {row["method"]: (row["guarantee"], row["law"]) for row in diabetes_rows[1:]}
    for method in (
        "DirectTune, searched Φ",
        "Matched-Φ BQ, δ uncorrected",
        "DCO's structure, BQ on the pool",
    ):
        assert claims[method] == ("none", False)
    assert claims["EFCP (tuned and calibrated on the pool)"] == ("none", False)
    assert claims["Matched-Φ BQ, δ/|Φ|"] == ("pac", False)
    assert claims["DCO, refit"] == ("marginal", True)


def test_z_is_in_units_of_the_beta_binomial_law():
    sd = coverage_sd(92, 113, 67)
    assert sd == pytest.approx(betabinom(67, 92, 22).std() / 67)
    honest = [92 / 114] * 50
    assert coverage_z(honest, rank=92, n=113, n_test=67) == pytest.approx(0)
    assert coverage_z([c - sd for c in honest], rank=92, n=113, n_test=67) == pytest.approx(
        -math.sqrt(50)
    )


def test_bonferroni_point_of_one_comparison_is_the_normal_one():
    assert bonferroni_point(1) == pytest.approx(2.5758, abs=1e-4)
    assert bonferroni_point(100) > bonferroni_point(10)


def test_every_z_is_listed_largest_first():
    """Below its law as above it; a row that is shown twice counts, and is said to."""
    columns = ("target", "method", "coverage", "by law", "z")
    first = ResultTable(
        "A", "", columns, ((0.8, "m", 0.79, 0.8, -1.0), (0.8, "no law", 0.7, None, None))
    )
    second = ResultTable("B", "", columns, tuple((0.9, f"m{z}", 0.95, 0.9, z) for z in (3.5, -4.5)))
    together = all_z([first, second, ResultTable("C", "", ("x",), ((1,),))])
    assert together.column("z") == [-4.5, 3.5, -1.0]
    assert f"is {bonferroni_point(3):.2f}; 2 lie beyond it" in together.caption
    assert "again" not in together.caption
    twice = all_z(
        [first, second, ResultTable("D", "", columns, ((0.8, "the same row", 0.79, 0.8, -1.0),))]
    )
    assert "4 rows, 1 of which show a row of another table again" in twice.caption


def test_diabetes_tables_have_the_papers_figures_beside_ours(diabetes_rows):
    records = [SplitRecord(seed, tuple(diabetes_rows), 1.0) for seed in (0, 1)]
    tables = regression_tables.study_tables(records, DIABETES, study=STUDIES["diabetes"])
    main = tables[0]
    shown = dict(zip(main.column("method"), main.column("paper width"), strict=True))
    assert shown["BQ"].mean == 2.098
    assert shown["DCO-PAC"] is None
    assert (
        dict(zip(main.column("method"), main.column("by law"), strict=True))["DCO-Warmstart"]
        == 92 / 114
    )
    assert [table.title for table in tables][2:] == [
        "Diabetes: prior scale",
        "Diabetes: threshold selection outcomes",
        "Diabetes: DirectTune diagnostic",
    ]


def test_diabetes_figures_show_split_cp_beside_bq_at_each_level(tmp_path):
    """The paper's figure; and with several levels the baselines have their lines, which other
    studies do not run.
    """
    methods = [
        *regression_tables.SHOWN,
        *(f"DCO, φ fixed (c = {c:g})" for c in regression_tables.PRIOR_SCALES),
    ]
    facts = {"guarantee": "marginal", "rank": 92, "n": 113, "n_test": 67, "coverage": 0.8}
    rows = [
        {"method": name, "alpha": alpha, "width": 2 - alpha, **facts}
        for name in methods
        for alpha in (0.2, 0.1)
    ]
    records = [SplitRecord(seed, tuple(rows), 1.0) for seed in (0, 1)]
    study = STUDIES["diabetes"]
    paths = regression_tables.study_figures(records, Options((0.2, 0.1)), tmp_path, study=study)
    assert {"split-cp-and-bq-0.80.svg", "split-cp-and-bq-0.90.svg"} <= {path.name for path in paths}
    assert all(
        name in (tmp_path / "split-cp-and-bq-0.80.svg").read_text()
        for name in ("Split CP (ridge)", "BQ")
    )
    lines = (tmp_path / "width-against-level.svg").read_text()
    assert all(name in lines for name in regression_tables.SHOWN)


def test_a_target_is_the_decimal_that_a_person_means():
    assert [target(alpha) for alpha in (0.2, 0.1, 0.05, 1 - 0.9)] == [0.8, 0.9, 0.95, 0.9]


def test_a_difference_from_the_paper_is_in_standard_errors_of_both():
    """50 splits with sd 3 here and sd 4 there: the difference has standard error 5 / sqrt(50)."""
    assert standard_errors(Measured(2.0, 3.0), (1.0, 4.0), 50) == pytest.approx(math.sqrt(50) / 5)
    assert standard_errors(Measured.of([2.0]), (1.0, 4.0), 1) is None


def test_what_is_missing_on_disk_is_named(tmp_path):
    missing = needs_file("Somebody", "nobody.csv")
    assert "Somebody needs nobody.csv" in missing(Options((0.2,), data_home=str(tmp_path)))
    (tmp_path / "nobody.csv").write_text("a\n")
    assert missing(Options((0.2,), data_home=str(tmp_path))) is None
