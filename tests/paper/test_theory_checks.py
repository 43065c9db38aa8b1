import numpy as np
import pytest

from dco.paper import theory_checks
from dco.paper.experiment import Options, SplitRecord
from dco.paper.methods import METHODS
from dco.paper.tables import Measured
from dco.paper.theory_checks import (
    FLOORS,
    POPULATION,
    oracle_size,
    population_threshold,
    true_coverage,
    true_size,
)

QUICK = Options(alphas=(0.2,), quick=True)


def records(run, seeds):
    return [SplitRecord(seed, tuple(run(seed, QUICK)), 0.0) for seed in range(seeds)]


def test_the_known_truth_is_true():
    """400,000 rows: coverage and mean size of a structure within 5 standard errors of the closed
    forms.
    """
    rng = np.random.default_rng(0)
    X, y = POPULATION.sample(400_000, rng)
    for floor in (0.0, 0.3, 5.0):
        scale = POPULATION.spread(X) + floor
        covered = np.abs(y - POPULATION.mean(X)) <= 1.1 * scale
        assert abs(covered.mean() - true_coverage(floor, 1.1)) < 5 * 0.5 / np.sqrt(len(y))
        assert abs(np.mean(2 * 1.1 * scale) - true_size(floor, 1.1)) < 5 * 2.2 * 0.3 / np.sqrt(
            len(y)
        )


def test_oracle_size_is_at_exact_coverage():
    for floor in FLOORS:
        threshold = oracle_size(floor, 0.1) / true_size(floor, 1.0)
        assert true_coverage(floor, threshold) == pytest.approx(0.9, abs=1e-9)


def test_thresholds_approach_the_population_and_the_gap_has_its_mean():
    found = theory_checks.asymptotics_tables(records(theory_checks.asymptotics_split, 30), QUICK)
    agreement, lemma = found
    z = [cell for cell in agreement.column("z of gap") if cell is not None]
    assert len(z) == 6
    assert max(map(abs, z)) < 4.5  # 6 comparisons: beyond by chance once in 20,000 runs
    assert max(map(abs, lemma.column("z of simulation"))) < 5
    by_m = dict(zip(agreement.column("m"), agreement.column("DCO - λ*"), strict=True))
    assert abs(by_m[10_000].sd) < abs(by_m[50].sd) / 8  # sqrt(200) = 14 times smaller


def test_the_quantile_bounds_hold_and_the_exact_one_is_sharper():
    lemma = theory_checks.asymptotics_tables(records(theory_checks.asymptotics_split, 2), QUICK)[1]
    rows = zip(
        lemma.column("true"),
        lemma.column("bound, exact"),
        lemma.column("bound, paper"),
        strict=True,
    )
    for true, exact, paper in rows:
        assert true <= exact + 1e-12
        assert exact <= paper + 1e-12


def test_regret_is_zero_for_the_best_and_below_the_bounds():
    table = theory_checks.tuning_oracle_tables(
        records(theory_checks.tuning_oracle_split, 20), QUICK
    )[0]
    regret = dict(zip(table.column("n"), table.column("regret"), strict=True))
    assert all(isinstance(cell, Measured) and cell.mean >= 0 for cell in regret.values())
    assert regret[1000].mean < regret[50].mean
    for tightened, uniform, paper in zip(
        table.column("tightened"),
        table.column("bound, uniform"),
        table.column("bound, paper"),
        strict=True,
    ):
        if uniform is not None:
            assert tightened.mean < uniform
        if paper is not None:
            assert uniform < paper
    assert population_threshold(0.2) == pytest.approx(1.2815515655446004)


def test_table_1_is_the_registry():
    table = theory_checks.methods_tables(records(theory_checks.methods_rows, 1), QUICK)[0]
    assert table.column("method") == [method.name for method in METHODS.values()]
    assert set(table.column("guarantee")) <= {"marginal", "pac", "expected_risk", "none"}
