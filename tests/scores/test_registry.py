"""A score of one's own, registered once: defaults, short name, certificate, saving and loading."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from sklearn.linear_model import Ridge

import dco
from dco.cli.options import chosen_scores
from dco.scores import registry
from dco.scores.score import checked_score
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


def test_one_registration_serves_defaults_command_line_certificate_and_files(registered, tmp_path):
    est = dco.DecoupledRegressor(Ridge(), random_state=0).fit(X, Y)
    assert {row.name for row in est.ranking_.table} == {
        "ridge / AbsoluteResidual",
        "ridge / Doubled",
    }
    assert chosen_scores("doubled, absolute", "regression") == [
        Doubled(),
        dco.scores.AbsoluteResidual(),
    ]
    est = dco.DecoupledRegressor(
        Ridge(), chosen_scores("doubled", "regression"), random_state=0
    ).fit(X, Y)
    assert est.certificate_.score == "Doubled"
    dco.save(est, tmp_path / "model.dco")
    again = dco.load(tmp_path / "model.dco")  # trusted without being asked for
    np.testing.assert_array_equal(again.predict_set(X).upper, est.predict_set(X).upper)


def test_a_name_is_given_once_and_a_score_may_be_registered_again(registered):
    dco.scores.register(Doubled, name="twice")
    assert "doubled" not in registry.short_names(classes=False)
    with pytest.raises(
        ValueError,
        match=r"'lac' is taken by dco\.scores\.classification\.LAC: "
        r"give Doubled another",
    ):
        dco.scores.register(Doubled, name="lac")
    with pytest.raises(ValueError, match="--scores names 'doubled', which is not offered"):
        chosen_scores("doubled", "regression")


def test_what_a_score_does_not_say_follows_from_what_it_says():
    points, thresholds = dco.Points([0.0, 1.0]), [1.0, 4.0]
    assert Doubled().sizes(points, 3.0).tolist() == [3.0, 3.0]
    assert Doubled().sizes_at_several(points, thresholds).tolist() == [[1.0, 1.0], [4.0, 4.0]]
    assert Doubled().sizes_at_several(points, []).shape == (0, 2)
    assert not Doubled().randomised
    with pytest.raises(
        dco.IncompatibleScoreError,
        match=r"Doubled does not give .* no "
        r"every_label\(prediction\)",
    ):
        Doubled().every_label(points)


class Lookalike:
    """Has the two methods of a score, and is none."""

    needs = (dco.Points,)
    observed, sets = Doubled.observed, Doubled.sets


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (
            Lookalike(),
            r"Lookalike has observed but is no dco\.scores\.Score: write class "
            r"Lookalike\(dco\.scores\.Score\)",
        ),
        (Doubled, r"the class Doubled: make a score of it, Doubled\(\.\.\.\)"),
        *(
            (wrong, r"a score must be a score such as those of dco\.scores, got")
            for wrong in ([Doubled()], 3)
        ),
    ],
)
def test_what_is_no_score_is_told_what_to_be(wrong, words):
    for use in (
        lambda: checked_score(wrong),
        lambda: dco.tune({"a": (wrong, dco.Points(Y))}, Y, alpha=0.1),
        lambda: dco.direct_tune(wrong, dco.Points(Y), Y, alpha=0.1),
        lambda: dco.DecoupledRegressor(Ridge(), [wrong], random_state=0).fit(X, Y),
        lambda: dco.DecoupledRegressor(Ridge(), {"a": wrong}, random_state=0).fit(X, Y),
    ):
        with pytest.raises(ValueError, match=words):
            use()


def test_the_names_promised_are_those_with_a_home_and_no_others():
    assert set(dco.scores.__all__) == set(dco.scores._MODULE_OF) <= set(dir(dco.scores))
    for name in dco.scores.__all__:
        assert getattr(dco.scores, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'LACK'"):
        dco.scores.LACK  # noqa: B018
