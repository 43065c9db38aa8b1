"""Search strategies: what they try, that a seed repeats them, and that one failed trial does not
end a search.
"""

import math

import pytest
from scipy.stats import chi2

from dco.search import Exhaustive, Optuna, Random

optuna = pytest.importorskip("optuna")

PAIRS = [(model, score) for model in range(10) for score in ("a", "b", "c")]


def distance(model, score):
    """Return an objective that is smallest, 0, for the pair (6, "b")."""
    return abs(model - 6) + (0.0 if score == "b" else 0.5)


def parabola_space(trial):
    return trial.suggest_float("x", -1, 1), trial.suggest_categorical("score", ["a", "b"])


def parabola(model, score):
    """Return an objective that is smallest, 0, at (0.3, "b")."""
    return (model - 0.3) ** 2 + (0.1 if score == "a" else 0.0)


def numbers_of(result):
    return [trial.number for trial in result.trials]


def params_of(result):
    return [trial.params for trial in result.trials]


# ---------------------------------------------------------------- exhaustive search


def test_exhaustive_search_tries_all():
    result = Exhaustive().search(distance, PAIRS)

    assert [(trial.model, trial.score) for trial in result.trials] == PAIRS
    assert (result.best.model, result.best.score) == (6, "b")
    assert result.best.objective == 0.0


def test_the_first_of_equals_is_best():
    result = Exhaustive().search(lambda model, score: 1.0, PAIRS)

    assert result.best.number == 0


# ---------------------------------------------------------------- random search


def test_random_search_tries_n_different_candidates_in_their_order():
    numbers = numbers_of(Random(12, random_state=4).search(distance, PAIRS))

    assert len(set(numbers)) == 12
    assert numbers == sorted(numbers)


def test_random_search_repeats_by_seed():
    numbers = numbers_of(Random(12, random_state=4).search(distance, PAIRS))

    assert numbers_of(Random(12, random_state=4).search(distance, PAIRS)) == numbers
    assert numbers_of(Random(12, random_state=5).search(distance, PAIRS)) != numbers


def test_random_search_of_more_than_all_tries_all():
    assert len(Random(99, random_state=0).search(distance, PAIRS).trials) == len(PAIRS)


def test_random_search_draws_evenly():
    """Each of 30 candidates is among 3 drawn with probability .1; chi-square on 29 degrees, wrong
    once in 10,000.
    """
    counts = [0] * len(PAIRS)
    for seed in range(2000):
        for number in numbers_of(Random(3, random_state=seed).search(distance, PAIRS)):
            counts[number] += 1

    assert sum((count - 200) ** 2 / 200 for count in counts) < chi2.isf(1e-4, 29)


# ---------------------------------------------------------------- Optuna


def test_optuna_finds_the_minimum():
    result = Optuna(parabola_space, trials=60, random_state=1).search(parabola)

    assert len(result.trials) == 60
    assert result.best.score == "b"
    assert result.best.objective == pytest.approx(0, abs=0.01)


def test_optuna_repeats_by_seed():
    strategy = Optuna(parabola_space, trials=60, random_state=1)
    other = Optuna(parabola_space, trials=60, random_state=2)

    params = params_of(strategy.search(parabola))

    assert params_of(strategy.search(parabola)) == params
    assert params_of(other.search(parabola)) != params


@pytest.mark.parametrize(
    "make_sampler",
    [lambda: optuna.samplers.RandomSampler, lambda: optuna.samplers.RandomSampler(seed=3)],
    ids=["class", "object"],
)
def test_any_sampler_starts_afresh_in_every_search(make_sampler):
    strategy = Optuna(parabola_space, trials=5, random_state=3, sampler=make_sampler())

    params = params_of(strategy.search(parabola))

    assert params_of(strategy.search(parabola)) == params


PRUNER = optuna.pruners.MedianPruner(n_startup_trials=3, n_warmup_steps=0)


def test_pruning_stops_a_hopeless_trial():
    def evaluate(model, score, report=None):
        for step in range(5):
            is_hopeless = report(step, abs(model))
            if is_hopeless:
                return math.inf
        return abs(model)

    result = Optuna(parabola_space, trials=30, random_state=0, pruner=PRUNER).search(evaluate)

    pruned = [trial for trial in result.trials if trial.reason == "pruned"]
    assert 0 < len(pruned) < 27
    assert all(trial.objective is None for trial in pruned)
    assert abs(result.best.model) == min(abs(trial.model) for trial in result.trials)


def test_without_reports_nothing_is_pruned():
    result = Optuna(parabola_space, trials=4, random_state=0, pruner=PRUNER).search(parabola)

    assert all(trial.objective is not None for trial in result.trials)


@pytest.fixture
def verbose_optuna():
    """Let Optuna print what it does, for one test."""
    at_first = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.INFO)
    yield
    optuna.logging.set_verbosity(at_first)


def interrupt(model, score):
    raise KeyboardInterrupt


@pytest.mark.usefixtures("verbose_optuna")
def test_optuna_is_quiet_and_its_verbosity_is_put_back(capfd):
    Optuna(parabola_space, trials=3, random_state=0).search(parabola)

    assert capfd.readouterr() == ("", "")
    assert optuna.logging.get_verbosity() == optuna.logging.INFO


@pytest.mark.usefixtures("verbose_optuna")
def test_an_interrupted_search_is_quiet_and_puts_the_verbosity_back(capfd):
    with pytest.raises(KeyboardInterrupt):
        Optuna(parabola_space, trials=3, random_state=0).search(interrupt)

    assert capfd.readouterr() == ("", "")
    assert optuna.logging.get_verbosity() == optuna.logging.INFO


# ---------------------------------------------------------------- failed trials


@pytest.mark.parametrize(
    "strategy",
    [Exhaustive(), Random(30, random_state=0), Optuna(parabola_space, trials=20, random_state=0)],
    ids=["exhaustive", "random", "optuna"],
)
def test_failed_trials_are_reported_and_left_out(strategy):
    def evaluate(model, score):
        if score == "a":
            raise RuntimeError("broken")
        return math.nan if score == "c" else abs(model)

    result = strategy.search(evaluate, PAIRS)

    assert result.best.score == "b"
    reasons = {trial.reason for trial in result.trials if trial.score == "a"}
    assert reasons == {"RuntimeError: broken"}
    assert all("NaN" in trial.reason for trial in result.trials if trial.score == "c")


def test_when_all_trials_fail_one_error_has_every_reason():
    result = Exhaustive().search(lambda model, score: math.nan, PAIRS[:2])

    with pytest.raises(ValueError, match=r"all 2 trials failed.*trial 0: .*NaN.*trial 1: .*NaN"):
        _ = result.best


def test_a_space_that_gives_no_pair_is_told_what_to_give():
    strategy = Optuna(lambda trial: "model", trials=1, random_state=0)

    (trial,) = strategy.search(distance).trials

    assert trial.reason == "TypeError: space(trial) must return a pair (model, score), got str"


# ---------------------------------------------------------------- what is refused


def test_an_exhaustive_search_needs_candidates():
    with pytest.raises(ValueError, match="no candidate"):
        Exhaustive().search(distance)


def test_a_random_search_has_a_trial_at_least():
    with pytest.raises(ValueError, match="n must"):
        Random(0)


def test_a_search_by_optuna_has_a_trial_at_least():
    with pytest.raises(ValueError, match="trials"):
        Optuna(parabola_space, trials=0)
