"""The propositions hold on data whose truth is known."""

import numpy as np
import pytest

from dco.paper import METHODS, Options, SplitRecord, asymptotics, table_1, tuning_oracle
from dco.paper.asymptotics import population_threshold
from dco.paper.tables import Measured
from dco.paper.tuning_oracle import (
    FLOORS,
    POPULATION,
    best_size,
    oracle_size,
    true_coverage,
    true_size,
)

QUICK = Options(alphas=(0.2,), quick=True)


def records(run, n_seeds):
    return [SplitRecord(seed, tuple(run(seed, QUICK)), 0.0) for seed in range(n_seeds)]


# ---- the known truth


@pytest.mark.parametrize("floor", [0.0, 0.3, 5.0])
def test_coverage_and_size_are_those_of_400_000_rows(floor):
    """Within 5 standard errors."""
    X, y = POPULATION.sample(400_000, np.random.default_rng(0))
    scale = POPULATION.spread(X) + floor
    covered = np.abs(y - POPULATION.mean(X)) <= 1.1 * scale
    error = 5 / np.sqrt(len(y))
    assert abs(covered.mean() - true_coverage(floor, 1.1)) < 0.5 * error
    assert abs(np.mean(2 * 1.1 * scale) - true_size(floor, 1.1)) < 2.2 * 0.3 * error


@pytest.mark.parametrize("floor", FLOORS)
def test_the_oracle_size_is_at_exact_coverage(floor):
    threshold = oracle_size(floor, 0.1) / true_size(floor, 1.0)
    assert true_coverage(floor, threshold) == pytest.approx(0.9, abs=1e-9)


def test_the_population_threshold_is_a_normal_quantile():
    assert population_threshold(0.2) == pytest.approx(1.2815515655446004)


# ---- Proposition 3.3 and Lemma B.3


@pytest.fixture(scope="module")
def agreement_and_lemma():
    return asymptotics.make_tables(records(asymptotics.run_split, 30), QUICK)


def test_the_gap_of_the_thresholds_has_its_mean(agreement_and_lemma):
    z_values = [z for z in agreement_and_lemma[0].column("z of gap") if z is not None]
    assert len(z_values) == 6
    assert max(map(abs, z_values)) < 4.5  # 6 comparisons: beyond by chance once in 20,000 runs


def test_thresholds_approach_the_population(agreement_and_lemma):
    table = agreement_and_lemma[0]
    by_m = dict(zip(table.column("m"), table.column("DCO - λ*"), strict=True))
    assert by_m[10_000].sd < by_m[50].sd / 8  # sqrt(200) = 14 times smaller


def test_simulated_misses_have_their_chance(agreement_and_lemma):
    z_values = agreement_and_lemma[1].column("z of simulation")
    assert max(map(abs, z_values)) < 5  # 12 comparisons: beyond by chance once in 145,000 runs


def test_the_quantile_bounds_hold_and_the_exact_one_is_sharper(agreement_and_lemma):
    lemma = agreement_and_lemma[1]
    columns = [lemma.column(name) for name in ("true", "bound, exact", "bound, paper")]
    for true, exact, paper in zip(*columns, strict=True):
        assert true <= exact + 1e-12
        assert exact <= paper + 1e-12


# ---- Proposition 3.2


@pytest.fixture(scope="module")
def oracle():
    return tuning_oracle.make_tables(records(tuning_oracle.run_split, 20), QUICK)[0]


def test_regret_falls_with_the_number_of_tuning_rows(oracle):
    regrets = dict(zip(oracle.column("n"), oracle.column("regret"), strict=True))
    assert all(isinstance(cell, Measured) and cell.mean >= 0 for cell in regrets.values())
    assert regrets[1000].mean < regrets[50].mean


def test_the_bounds_hold_and_the_uniform_one_is_sharper(oracle):
    columns = [oracle.column(name) for name in ("tightened", "bound, uniform", "bound, paper")]
    rows = [row for row in zip(*columns, strict=True) if row[1] is not None]
    assert rows
    for tightened, uniform, paper in rows:
        assert tightened.mean < uniform
        assert paper is None or uniform < paper


@pytest.fixture(scope="module")
def own_rule():
    return tuning_oracle.make_tables(records(tuning_oracle.run_split, 20), QUICK)[1]


def test_the_bounds_of_the_own_rule_of_algorithm_1_are_never_broken(own_rule):
    assert own_rule.column("broken") == [0] * len(own_rule.rows)


def test_the_bound_of_the_own_rule_is_at_the_risk_less_one_error():
    epsilon = tuning_oracle.tuning_errors(5000, "uniform")
    bound = tuning_oracle.tuning_bound(5000, 0.2, "uniform", tightened=False)
    best_at_lower_risk = best_size(0.2 - epsilon.risk_error)
    assert bound == pytest.approx(best_at_lower_risk + 2 * epsilon.size_error - best_size(0.2))


def test_the_own_rule_often_has_a_risk_above_the_level(own_rule):
    counts = own_rule.column("risk > α")
    assert min(counts) >= 5  # of 20 tuning sets


# ---- Table 1


def test_table_1_is_the_registry():
    (_, table) = table_1.make_tables(records(table_1.list_methods, 1), QUICK)
    assert table.column("method") == [method.name for method in METHODS.values()]
    assert set(table.column("guarantee")) <= {"marginal", "pac", "expected_risk", "none"}


def test_figure_1_names_the_four_roles():
    svg = table_1.draw_pipeline([], QUICK)["figure-1.svg"].decode()
    assert all(f">{role}<" in svg for role in ("train", "tune", "calibrate", "test"))
