"""Facts that hold for every rule of `guarantee=`: whoever registers a rule has it tested here."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from dco.guarantees.rules import RULES, Rule, register_rule

LEVELS = [(0.1, 0.05), (0.25, 0.1), ("0.5", 0.5), (1 - 0.9, 0.3)]


@pytest.fixture(params=RULES)
def rule(request: pytest.FixtureRequest) -> Rule:
    return RULES[request.param]


@pytest.mark.parametrize(("alpha", "delta"), LEVELS)
def test_a_threshold_is_the_order_statistic_of_its_rank(rule, alpha, delta):
    """Infinite below `smallest_n` rows, finite from there on; it says what is certified and at which level."""
    least = rule.smallest_n(alpha=alpha, delta=delta)
    for n in range(1, least + 40):
        scores = np.random.default_rng(n).permutation(n).astype(float)
        threshold = rule.threshold(scores, alpha=alpha, delta=delta)
        assert threshold.rank == rule.rank(n, alpha=alpha, delta=delta)
        assert threshold.value == (threshold.rank - 1 if n >= least else np.inf)
        assert (threshold.rank <= n) == (n >= least)
        assert (threshold.n, threshold.guarantee, threshold.alpha) == (n, rule.certifies, float(np.round(float(alpha), 9)))
        assert threshold.delta == (delta if rule.needs_delta else None)


def test_a_larger_alpha_or_delta_never_has_a_higher_rank(rule):
    ranks = np.array([[rule.rank(100, alpha=a / 20, delta=d / 20) for a in range(1, 20)] for d in range(1, 20)])
    assert (np.diff(ranks, axis=0) <= 0).all()
    assert (np.diff(ranks, axis=1) <= 0).all()


def test_rows_that_belong_together(rule):
    """Either the rule weighs clusters itself, or it refuses them and its caller picks one row of each."""
    scores, clusters = np.arange(120.0), np.arange(120) % 60
    if rule.one_per_cluster:
        with pytest.raises(ValueError, match="one score for each cluster"):
            rule.threshold(scores, alpha=0.1, delta=0.1, clusters=clusters)
    else:
        assert rule.threshold(scores, alpha=0.1, delta=0.1, clusters=clusters).n == 60


def test_the_sentence_takes_what_a_statement_knows(rule):
    said = rule.sentence.format(level="90 %", sure="95 %", who="a new row", many="new rows", where=", everywhere")
    assert "90 %" in said
    assert ("95 %" in said) == rule.needs_delta
    assert ", everywhere." in said


def test_a_delta_that_is_needed_is_asked_for():
    with pytest.raises(ValueError, match="delta must be a number"):
        RULES["pac"].threshold(np.arange(50.0), alpha=0.1)


def test_a_name_is_taken_once(monkeypatch):
    @dataclass(frozen=True)
    class Cautious(type(RULES["marginal"])):
        """One rank above split conformal."""

        name = "cautious"

        def rank(self, n, *, alpha, delta=None):
            return min(super().rank(n, alpha=alpha) + 1, n + 1)

    monkeypatch.setitem(RULES, "cautious", Cautious())  # taken out again after the test
    assert register_rule(Cautious()) == RULES["cautious"]
    assert RULES["cautious"].threshold(np.arange(99.0), alpha=0.1).rank == 91
    Cautious.name = "marginal"
    with pytest.raises(ValueError, match='a rule named "marginal" already'):
        register_rule(Cautious())
