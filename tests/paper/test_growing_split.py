"""Growing the tuning split: which rows it takes and when it stops."""

import numpy as np
import pytest

from dco.paper import growing_split
from dco.paper.growing_split import grow_tuning_split, grow_until_settled
from dco.paper.stability import Stability, bootstrap_stability
from dco.predictions import Points
from dco.scores import AbsoluteResidual


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({"alpha": 0.1}, 9),
        ({"alpha": 0.1, "calibrate_size": 50}, 50),
        ({"alpha": 0.1, "delta": 0.05, "calibrate_size": 5}, 29),  # .9^29 = .047, .9^28 = .052
        ({"alpha": 0.01}, 99),
    ],
)
def test_calibration_keeps_what_the_level_needs(options, kept):
    found = grow_until_settled(np.arange(120), lambda rows: False, **options)
    assert (found.reason, len(found.calibrate)) == ("limit", kept)


def test_rows_are_taken_in_order_until_settled():
    looks = []

    def settled(rows):
        looks.append(rows.tolist())
        return len(rows) >= 12

    order = np.random.default_rng(0).permutation(60)
    found = grow_until_settled(order, settled, alpha=0.1, start=4, growth=2)
    assert [len(look) for look in looks] == [4, 8, 16]
    assert looks == [order[:4].tolist(), order[:8].tolist(), order[:16].tolist()]
    assert found.reason == "settled"
    assert found.tune.tolist() == order[:16].tolist()
    assert found.calibrate.tolist() == order[16:].tolist()
    assert [(step.n_tune, step.settled) for step in found.steps] == [
        (4, False),
        (8, False),
        (16, True),
    ]


def test_a_look_has_settled_where_regret_is_at_most_one_percent():
    for regret, wanted in ((0.0101, False), (0.0099, True)):
        seen = Stability("a", "a", 0.5, {"a": 1, "b": 1}, 1.0, regret, 2, 10)
        assert (
            grow_until_settled(np.arange(50), lambda rows, seen=seen: seen, alpha=0.1)
            .steps[0]
            .settled
            == wanted
        )


def test_what_cannot_grow_is_refused():
    with pytest.raises(ValueError, match="leave none for tuning"):
        grow_until_settled(np.arange(9), lambda rows: True, alpha=0.1)
    with pytest.raises(ValueError, match="each once"):
        grow_until_settled([1, 1, 2], lambda rows: True, alpha=0.5)
    with pytest.raises(ValueError, match="growth"):
        grow_until_settled(np.arange(50), lambda rows: True, alpha=0.1, growth=1)


def test_whole_groups_go_to_one_role():
    rng = np.random.default_rng(1)
    groups = rng.integers(40, size=200)
    found = grow_until_settled(
        rng.permutation(200), lambda rows: len(rows) > 60, alpha=0.1, start=2, groups=groups
    )
    assert not set(groups[found.tune]) & set(groups[found.calibrate])
    assert sorted([*found.tune, *found.calibrate]) == list(range(200))
    assert len(set(groups[found.calibrate])) >= 9


def test_clear_winners_settle_early_and_near_ties_do_not_matter():
    """Residual sds 1 and 3 settle at the first look; so do two candidates that differ by
    nothing.
    """
    rng = np.random.default_rng(2)
    y = rng.standard_normal(400)
    bad = 3 * rng.standard_normal(400)

    @_points(y)
    def clear(rows):
        return {"good": 0 * y[rows], "bad": bad[rows]}

    @_points(y)
    def same(rows):
        return {"a": 0 * y[rows], "b": 0 * y[rows]}

    for candidates_on in (clear, same):
        found = grow_tuning_split(
            np.arange(400), candidates_on, alpha=0.1, seed=0, start=40, calibrate_size=100
        )
        assert (found.reason, len(found.tune)) == ("settled", 40)
        assert found.steps[0].stability.relative_regret <= 0.01
    again = grow_tuning_split(
        np.arange(400), clear, alpha=0.1, seed=0, start=40, calibrate_size=100
    )
    assert (
        again.steps
        == grow_tuning_split(
            np.arange(400), clear, alpha=0.1, seed=0, start=40, calibrate_size=100
        ).steps
    )


def _points(y):
    def decorate(means_on):
        def candidates_on(rows):
            return {
                name: (AbsoluteResidual(), Points(mean)) for name, mean in means_on(rows).items()
            }, y[rows]

        return candidates_on

    return decorate


def test_each_look_at_a_growing_split_draws_afresh(monkeypatch):
    """Looks that shared their resamples would agree by chance more often."""
    seen = []

    def record(candidates, y, *, alpha, rng, repetitions, groups):
        seen.append(rng.bit_generator.state["state"]["state"])
        return Stability("a", "a", 1.0, {"a": 1}, 1.0, 1.0, 1, len(y))

    monkeypatch.setattr(growing_split, "bootstrap_stability", record)
    grow_tuning_split(np.arange(200), lambda rows: ({}, rows), alpha=0.1, seed=0)
    assert len(seen) > 2
    assert len(set(seen)) == len(seen)


@pytest.mark.parametrize("seed", [0, 5])
def test_a_look_is_the_bootstrap_of_its_own_rows_groups_and_seed(seed, monkeypatch):
    monkeypatch.setattr(growing_split, "TOLERANCE", -1)
    rng = np.random.default_rng(3)
    y, groups = rng.normal(size=120), rng.integers(40, size=120)
    noisy = 0.9 * y + rng.normal(size=(2, 120))

    def candidates_on(rows):
        return {
            f"m{i}": (AbsoluteResidual(), Points(mean[rows])) for i, mean in enumerate(noisy)
        }, y[rows]

    options = {"alpha": 0.2, "repetitions": 50}
    found = grow_tuning_split(np.arange(120), candidates_on, seed=seed, groups=groups, **options)
    blocks = list(dict.fromkeys(groups))  # whole groups, in the order of their first rows
    for step in found.steps:
        rows = np.concatenate([np.flatnonzero(groups == group) for group in blocks[: step.n_tune]])
        own = np.random.default_rng([seed, len(rows)])
        assert step.stability == bootstrap_stability(
            *candidates_on(rows), rng=own, groups=groups[rows], **options
        )
    assert len(found.steps) > 1
