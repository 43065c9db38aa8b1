"""A score of one's own, registered once: defaults, short name, certificate, saving and loading."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from sklearn.linear_model import Ridge

import dco
from dco.scores import registry
from dco.sets import Intervals

rng = np.random.default_rng(0)
X = rng.normal(size=(200, 2))
Y = X[:, 0] + rng.normal(size=200)


@dataclass(frozen=True)
class Doubled(dco.scores.Score):
    """2 |y - mean|, by `observed` and `sets` alone."""

    needs: ClassVar[tuple[type, ...]] = (dco.Points,)

    def observed(self, prediction, y):
        return 2 * np.abs(np.asarray(y) - prediction.mean)

    def sets(self, prediction, threshold):
        reach = float(threshold) / 2
        return Intervals(prediction.mean - reach, prediction.mean + reach)


@pytest.fixture
def registered(monkeypatch):
    registry.registrations()  # dco's own come first, in every order of tests
    monkeypatch.setattr(registry, "_REGISTERED", dict(registry._REGISTERED))
    dco.scores.register(Doubled, name="doubled", defaults=(Doubled(),))


def test_a_registered_score_is_tried_by_default(registered):
    est = dco.DecoupledRegressor(Ridge(), random_state=0).fit(X, Y)
    assert {"ridge / AbsoluteResidual", "ridge / Doubled"} <= {
        row.name for row in est.ranking_.table
    }


def test_estimators_know_its_short_name(registered):
    est = dco.DecoupledRegressor(Ridge(), ["doubled", "absolute"], random_state=0).fit(X, Y)
    assert {"ridge / AbsoluteResidual", "ridge / Doubled"} <= {
        row.name for row in est.ranking_.table
    }


def test_certificates_and_files_hold_a_registered_score(registered, tmp_path):
    est = dco.DecoupledRegressor(Ridge(), Doubled(), random_state=0).fit(X, Y)
    assert est.certificate_.structure.score == "Doubled"
    dco.save(est, tmp_path / "model.dco")
    again = dco.load(tmp_path / "model.dco")  # trusted without being asked for
    np.testing.assert_array_equal(again.predict_set(X).upper, est.predict_set(X).upper)


def test_a_score_may_be_registered_again_under_another_name(registered):
    dco.scores.register(Doubled, name="twice")
    assert "doubled" not in registry.short_names(classes=False)
    with pytest.raises(ValueError, match=r"scores takes short names .* got 'doubled'"):
        dco.DecoupledRegressor(Ridge(), ["doubled"]).fit(X, Y)


def test_a_short_name_is_given_once(registered):
    words = r"'lac' is taken by dco\.scores\.lac\.LAC: give Doubled another"
    with pytest.raises(ValueError, match=words):
        dco.scores.register(Doubled, name="lac")


def test_sizes_follow_from_sets():
    points = dco.Points([0.0, 1.0])
    assert Doubled().sizes(points, 3.0).tolist() == [3.0, 3.0]
    assert Doubled().sizes_at_several(points, [1.0, 4.0]).tolist() == [[1.0, 1.0], [4.0, 4.0]]
    assert Doubled().sizes_at_several(points, []).shape == (0, 2)


def test_a_score_of_numbers_has_no_score_of_every_label():
    words = r"Doubled does not give .* no every_label\(prediction\)"
    with pytest.raises(dco.IncompatibleScoreError, match=words):
        Doubled().every_label(dco.Points([0.0]))


class Lookalike:
    """Has the two methods of a score, and is none."""

    needs = (dco.Points,)
    observed, sets = Doubled.observed, Doubled.sets


USES = {
    "tune": lambda wrong: dco.tune({"a": (wrong, dco.Points(Y))}, Y, alpha=0.1),
    "direct_tune": lambda wrong: dco.direct_tune(wrong, dco.Points(Y), Y, alpha=0.1),
    "list": lambda wrong: dco.DecoupledRegressor(Ridge(), [wrong], random_state=0).fit(X, Y),
    "dict": lambda wrong: dco.DecoupledRegressor(Ridge(), {"a": wrong}, random_state=0).fit(X, Y),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES.keys())
@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (Lookalike(), r"Lookalike must subclass dco\.scores\.Score"),
        (Doubled, r"got the class Doubled: write Doubled\(\.\.\.\)"),
        ([Doubled()], r"expected a score such as those of dco\.scores, got \["),
        (3, r"expected a score such as those of dco\.scores, got 3"),
    ],
    ids=["no subclass", "class", "list", "number"],
)
def test_what_is_no_score_is_told_what_to_be(wrong, words, use):
    with pytest.raises(ValueError, match=words):
        use(wrong)


@pytest.mark.parametrize("name", dco.scores.__all__)
def test_a_promised_name_can_be_had(name):
    assert getattr(dco.scores, name).__name__ == name
    assert name in dir(dco.scores)


def test_other_names_cannot():
    with pytest.raises(AttributeError, match="no attribute 'LACK'"):
        dco.scores.LACK  # noqa: B018
