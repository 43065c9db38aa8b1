"""`NormalisedResidual(power=...)`: how far widths follow the spread."""

import numpy as np
import pytest

import dco
from dco.scores import NormalisedResidual

PREDICTION = dco.PointsWithSpread(mean=[0.0, 10.0, 20.0], spread=[1.0, 4.0, 16.0])


@pytest.mark.parametrize(
    ("power", "widths"),
    [(1.0, [2.0, 8.0, 32.0]), (0.5, [2.0, 4.0, 8.0])],
    ids=["widths follow the spread", "widths follow its root"],
)
def test_widths_follow_a_power_of_the_spread(power: float, widths: list[float]) -> None:
    sizes = NormalisedResidual(power=power).sizes(PREDICTION, 1.0)

    np.testing.assert_allclose(sizes, widths)


def test_sets_hold_exactly_the_values_that_score_at_most_the_threshold() -> None:
    score = NormalisedResidual(floor=0.3, power=0.75)
    rng = np.random.default_rng(0)
    prediction = dco.PointsWithSpread(rng.normal(size=2000), rng.exponential(size=2000))
    y = rng.normal(scale=2, size=2000)
    threshold = float(np.median(score.observed(prediction, y)))

    contained = score.sets(prediction, threshold).contains(y)

    np.testing.assert_array_equal(contained, score.observed(prediction, y) <= threshold)


@pytest.mark.parametrize("power", [0.0, -1.0, 1.5])
def test_a_power_outside_0_to_1_is_refused(power: float) -> None:
    with pytest.raises(ValueError, match="power must be greater than 0"):
        NormalisedResidual(power=power)
