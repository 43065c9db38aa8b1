"""Ways to select beside DCO's own: on a grid of thresholds, again on bootstrap samples, and on a
tuning split that grows.
"""

import numpy as np
import pytest

import dco
from dco import Points
from dco.foundations.ranks import size_quantile, tuning_rank
from dco.paper.growing_split import TuningSize, grow_tuning_split
from dco.paper.methods import OnRoles, ScoredRows, Task
from dco.paper.stability import bootstrap_stability
from dco.paper.threshold_grid import GRID_DCO, THRESHOLDS, choose_on_grid, grid_of, try_on_grid
from dco.scores import AbsoluteResidual


def residuals(y, noise, rng):
    return ScoredRows.of(AbsoluteResidual(), Points(y + noise * rng.normal(size=len(y))), y)


def make_candidates(n=100, noises=(0.9, 1.0, 1.1), seed=0):
    rng = np.random.default_rng(seed)
    y = rng.normal(size=n)
    return y, {f"noise {noise}": residuals(y, noise, rng) for noise in noises}


def make_task(y, candidates, alpha=0.2):
    on_roles = {name: OnRoles(rows, rows, rows) for name, rows in candidates.items()}
    return Task(on_roles, y_tune=y, fixed=next(iter(candidates)), alpha=alpha)


# ---- the paper's grid of thresholds


def test_a_grid_has_quantiles_of_the_finite_scores():
    scores = np.array([0.0, 1.0, 2.0, 4.0, np.inf])
    assert grid_of(scores, 3).tolist() == [0.0, 1.5, 4.0]


@pytest.mark.parametrize("alpha", [0.05, 0.1, 0.2, 0.3])
def test_a_trial_is_at_the_smallest_feasible_threshold_of_the_grid(alpha):
    _, candidates = make_candidates()
    for rows in candidates.values():
        trial = try_on_grid(rows, alpha=alpha, n_thresholds=THRESHOLDS)
        grid = grid_of(rows.scores, THRESHOLDS)
        feasible = [cut for cut in grid if np.mean(rows.scores > cut) <= alpha + 1e-12]
        assert trial.threshold == min(feasible)
        assert trial.mean_size == pytest.approx(2 * trial.threshold)
        assert trial.infeasible_risk == 0


def test_a_fine_grid_chooses_as_exact_search():
    y, candidates = make_candidates(noises=(0.5, 1.0, 2.0))
    choice = choose_on_grid(make_task(y, candidates), n_thresholds=100_000)
    pairs = {name: (rows.score, rows.prediction) for name, rows in candidates.items()}
    assert choice.candidate == dco.tune(pairs, y, alpha=0.2).best


def test_what_a_grid_chose_is_calibrated_by_the_same_rule():
    y, candidates = make_candidates()
    choice = GRID_DCO(make_task(y, candidates))
    scores = np.sort(candidates[choice.candidate].scores)
    assert choice.threshold.value == scores[dco.conformal_rank(100, alpha=0.2) - 1]
    assert choice.threshold.guarantee == "marginal"


def test_without_a_feasible_threshold_the_smallest_risk_is_taken():
    """Three of four rows can never be covered: .75 is the smallest risk, above every level."""
    score, y = AbsoluteResidual(), np.zeros(4)
    hopeless = ScoredRows(score, Points(y), np.array([1.0, np.inf, np.inf, np.inf]))
    fine = ScoredRows(score, Points(y), np.array([3.0, 4.0, 5.0, 6.0]))
    assert try_on_grid(hopeless, alpha=0.5, n_thresholds=80).infeasible_risk == 0.75
    task = make_task(y, {"hopeless": hopeless, "fine": fine}, alpha=0.5)
    assert choose_on_grid(task, n_thresholds=80).candidate == "fine"


# ---- the bootstrap


def standing(rows, sample, alpha):
    """Mean size, P95 size and threshold of a candidate on a sample, by the definition."""
    scores = rows.scores[sample]
    threshold = np.sort(scores)[tuning_rank(len(sample), alpha=alpha) - 1]
    sizes = rows.sizes(threshold)[sample]
    return sizes.mean(), size_quantile(sizes, 0.95), threshold


@pytest.mark.parametrize("alpha", [0.1, 0.2])
def test_the_bootstrap_repeats_the_selection_on_samples(alpha):
    _, candidates = make_candidates(n=60)
    stability = bootstrap_stability(
        candidates, alpha=alpha, rng=np.random.default_rng(1), repetitions=40
    )
    everything = np.arange(60)
    sizes = {name: standing(rows, everything, alpha)[0] for name, rows in candidates.items()}
    wins, losses = dict.fromkeys(candidates, 0), []
    for counts in np.random.default_rng(1).multinomial(60, np.full(60, 1 / 60), size=40):
        sample = np.repeat(everything, counts)
        winner = min(candidates, key=lambda name: standing(candidates[name], sample, alpha))
        wins[winner] += 1
        losses.append(sizes[winner] - min(sizes.values()))
    assert stability.best == min(sizes, key=sizes.get)
    assert stability.wins == wins
    assert stability.relative_regret == pytest.approx(np.mean(losses) / min(sizes.values()))


def test_a_clear_winner_has_no_regret():
    _, candidates = make_candidates(n=200, noises=(0.1, 3.0))
    stability = bootstrap_stability(candidates, alpha=0.1, rng=np.random.default_rng(0))
    assert stability.wins == {"noise 0.1": 200, "noise 3.0": 0}
    assert stability.relative_regret == 0


def test_equal_candidates_have_no_regret():
    _, candidates = make_candidates(noises=(1.0,))
    ((name, rows),) = candidates.items()
    twins = {name: rows, "twin": rows}
    stability = bootstrap_stability(twins, alpha=0.1, rng=np.random.default_rng(0))
    assert stability.relative_regret == 0


# ---- a tuning split that grows


def test_looks_come_at_growing_numbers_of_rows_until_one_has_settled():
    looks: list[int] = []

    def has_settled(n: int) -> bool:
        looks.append(n)
        return n >= 12

    assert grow_tuning_split(has_settled, start=4, largest=50, growth=2) == TuningSize(16, True)
    assert looks == [4, 8, 16]


def test_growth_by_little_still_moves_on():
    looks: list[int] = []
    grow_tuning_split(lambda n: looks.append(n) or n == 5, start=1, largest=50, growth=1.1)
    assert looks == [1, 2, 3, 4, 5]


def test_growth_ends_where_calibration_needs_the_rest():
    assert grow_tuning_split(lambda n: False, start=20, largest=50, growth=2) == TuningSize(
        50, False
    )


def test_without_rows_for_tuning_nothing_grows():
    with pytest.raises(ValueError, match="leaves none for tuning"):
        grow_tuning_split(lambda n: True, start=20, largest=0, growth=2)
