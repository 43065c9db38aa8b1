"""Search strategies: what they try, that a seed repeats them, and that one failed trial does not
end a search.
"""

import math

import pytest

from dco.tuning.strategies import Exhaustive, Optuna, Random

optuna = pytest.importorskip("optuna")

PAIRS = [(model, score) for model in range(10) for score in ("a", "b", "c")]


def distance(model, score):
    return abs(model - 6) + (0.0 if score == "b" else 0.5)


def parabola(trial):
    return trial.suggest_float("x", -1, 1), trial.suggest_categorical("score", ["a", "b"])


def test_exhaustive_search_tries_all_and_keeps_the_first_of_equals():
    found = Exhaustive().search(distance, PAIRS)
    assert [(trial.model, trial.score) for trial in found.trials] == PAIRS
    assert (found.best.model, found.best.score, found.best.objective) == (6, "b", 0.0)
    assert Exhaustive().search(lambda model, score: 1.0, PAIRS).best.number == 0


def test_random_search_tries_n_different_candidates_and_repeats_by_seed():
    found, again = (
        Random(12, seed=4).search(distance, PAIRS),
        Random(12, seed=4).search(distance, PAIRS),
    )
    tried = [trial.number for trial in found.trials]
    assert len(set(tried)) == 12
    assert tried == sorted(tried) == [trial.number for trial in again.trials]
    assert tried != [trial.number for trial in Random(12, seed=5).search(distance, PAIRS).trials]
    assert len(Random(99, seed=0).search(distance, PAIRS).trials) == len(PAIRS)


def test_random_search_draws_evenly():
    """Each of 30 candidates is among 3 drawn with probability .1; chi-square on 29 degrees, wrong
    once in 10,000.
    """
    from scipy.stats import chi2

    counts = [0] * len(PAIRS)
    for seed in range(2000):
        for trial in Random(3, seed=seed).search(distance, PAIRS).trials:
            counts[trial.number] += 1
    assert sum((count - 200) ** 2 / 200 for count in counts) < chi2.isf(1e-4, 29)


def evaluate_parabola(model, score):
    return (model - 0.3) ** 2 + (0.1 if score == "a" else 0.0)


def test_optuna_repeats_by_seed_and_finds_the_minimum():
    strategy = Optuna(parabola, trials=60, seed=1)
    found, again = strategy.search(evaluate_parabola), strategy.search(evaluate_parabola)
    assert [trial.params for trial in found.trials] == [trial.params for trial in again.trials]
    assert len(found.trials) == 60
    assert (found.best.score, found.best.objective) == ("b", pytest.approx(0, abs=0.01))
    other = Optuna(parabola, trials=60, seed=2).search(evaluate_parabola)
    assert [trial.params for trial in found.trials] != [trial.params for trial in other.trials]


@pytest.mark.parametrize(
    "sampler",
    [lambda: optuna.samplers.RandomSampler, lambda: optuna.samplers.RandomSampler(seed=3)],
    ids=["class", "object"],
)
def test_any_sampler_starts_afresh_in_every_search(sampler):
    strategy = Optuna(parabola, trials=5, seed=3, sampler=sampler())
    first, second = strategy.search(evaluate_parabola), strategy.search(evaluate_parabola)
    assert [trial.params for trial in first.trials] == [trial.params for trial in second.trials]


def test_pruning_stops_a_hopeless_trial():
    def evaluate(model, score, report=None):
        for step in range(5):
            if report is not None and report(step, abs(model)):
                return math.inf
        return abs(model)

    pruner = optuna.pruners.MedianPruner(n_startup_trials=3, n_warmup_steps=0)
    found = Optuna(parabola, trials=30, seed=0, pruner=pruner).search(evaluate)
    pruned = [trial for trial in found.trials if trial.reason == "pruned"]
    assert 0 < len(pruned) < 27
    assert all(trial.objective is None for trial in pruned)
    assert abs(found.best.model) == min(abs(trial.model) for trial in found.trials)
    # no `report`: nothing to prune by
    without = Optuna(parabola, trials=4, seed=0, pruner=pruner).search(evaluate_parabola)
    assert all(trial.objective is not None for trial in without.trials)


def test_optuna_is_quiet_and_its_verbosity_is_put_back(capfd):
    at_first = optuna.logging.get_verbosity()
    try:
        optuna.logging.set_verbosity(optuna.logging.INFO)
        Optuna(parabola, trials=3, seed=0).search(evaluate_parabola)
        assert optuna.logging.get_verbosity() == optuna.logging.INFO
        with pytest.raises(KeyboardInterrupt):
            Optuna(parabola, trials=3, seed=0).search(_interrupt)
        assert optuna.logging.get_verbosity() == optuna.logging.INFO
    finally:
        optuna.logging.set_verbosity(at_first)
    assert capfd.readouterr() == ("", "")


def _interrupt(model, score):
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    "strategy", [Exhaustive(), Random(30, seed=0), Optuna(parabola, trials=20, seed=0)], ids=type
)
def test_failed_trials_are_reported_and_left_out(strategy):
    def evaluate(model, score):
        if score == "a":
            raise RuntimeError("broken")
        return math.nan if score == "c" else abs(model)

    found = strategy.search(evaluate, PAIRS)
    assert found.best.score == "b"
    assert {trial.reason for trial in found.trials if trial.score == "a"} == {
        "RuntimeError: broken"
    }
    assert all("NaN" in trial.reason for trial in found.trials if trial.score == "c")


def test_when_all_trials_fail_one_error_has_every_reason():
    found = Exhaustive().search(lambda model, score: math.nan, PAIRS[:2])
    with pytest.raises(ValueError, match=r"all 2 trials failed.*trial 0: .*NaN.*trial 1: .*NaN"):
        _ = found.best


def test_a_space_that_gives_no_pair_is_told_what_to_give():
    found = Optuna(lambda trial: "model", trials=1, seed=0).search(lambda model, score: 1.0)
    assert (
        found.trials[0].reason
        == "TypeError: space(trial) must return a pair (model, score), got str"
    )


def test_bad_input_is_one_clear_sentence():
    with pytest.raises(ValueError, match="no candidate"):
        Exhaustive().search(distance)
    with pytest.raises(ValueError, match="n must"):
        Random(0)
    with pytest.raises(ValueError, match="trials"):
        Optuna(parabola, trials=0)
