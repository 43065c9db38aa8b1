"""The certificate: plain data that survives JSON, and checks that see every kind of tampering."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import beta
from sklearn.datasets import make_classification, make_regression
from sklearn.linear_model import LogisticRegression, Ridge

import dco
from dco.certificate import model_fingerprint

X, Y = make_regression(n_samples=300, n_features=3, noise=10.0, random_state=0)


@pytest.fixture(scope="module")
def fitted() -> dco.DecoupledRegressor:
    return dco.DecoupledRegressor([Ridge(), Ridge(alpha=100)], guarantee="marginal", random_state=0).fit(X, Y)


@pytest.fixture(scope="module")
def conditional() -> dco.DecoupledClassifier:
    Z, labels = make_classification(n_samples=600, n_informative=4, n_classes=3, random_state=0)
    names = np.array(["a", "b", "c"])[labels]
    return dco.DecoupledClassifier(LogisticRegression(), condition_on="label", guarantee="pac", random_state=0).fit(Z, names)


def test_json_there_and_back(fitted, conditional) -> None:
    for certificate in (fitted.certificate_, conditional.certificate_):
        text = certificate.to_json()
        assert dco.Certificate.from_json(text) == certificate
        json.loads(text, parse_constant=pytest.fail)  # strict: no NaN, no Infinity


def test_an_infinite_threshold_is_written_as_a_string() -> None:
    with pytest.warns(dco.InfeasibleLevelWarning):
        certificate = dco.DecoupledRegressor(Ridge(), random_state=0).fit(X[:20], Y[:20]).certificate_
    assert json.loads(certificate.to_json())["thresholds"][0]["value"] == "inf"
    assert dco.Certificate.from_json(certificate.to_json()) == certificate
    assert certificate.verify()


def test_the_numbers_are_those_of_the_law(fitted) -> None:
    entry = fitted.certificate_.thresholds[0]
    law = beta(entry.rank, entry.n + 1 - entry.rank)
    assert entry.expected_coverage == pytest.approx(law.mean())
    assert (entry.coverage_low, entry.coverage_high) == pytest.approx((law.ppf(0.05), law.ppf(0.95)))


def test_what_it_says(fitted, conditional) -> None:
    certificate = fitted.certificate_
    assert certificate.statement == "The set of a new row holds its true value with probability at least 90 %."
    assert "exchangeable" in certificate.assumption
    assert certificate.candidates == 2
    assert certificate.seal_opened == 1
    assert any("GridSearchCV" in line for line in certificate.voided_by)
    assert "confidence at least 95 %" in conditional.certificate_.statement
    assert "each group separately" in conditional.certificate_.statement
    assert "independent and identically distributed" in conditional.certificate_.assumption


def test_the_tuning_threshold_is_recorded_and_not_deployed(fitted) -> None:
    certificate = fitted.certificate_
    assert certificate.tuning_threshold == fitted.ranking_[fitted.best_candidate_].ranking_threshold
    assert certificate.tuning_threshold != certificate.thresholds[0].value


def test_verify_holds_on_the_rows_that_were_sealed(fitted) -> None:
    rows = fitted.splits_.calibrate
    report = fitted.certificate_.verify(X[rows], Y[rows], predictor=fitted)
    assert report.holds, str(report)
    assert report.holds == bool(report)
    assert {"calibration fingerprint", "scores", "threshold", "structure"} <= {check.name for check in report.checks}
    shuffled = np.random.default_rng(0).permutation(rows)
    assert fitted.certificate_.verify(X[shuffled], Y[shuffled], predictor=fitted)  # order is irrelevant


@pytest.mark.parametrize("tamper", ["y", "x", "fewer", "swapped"])
def test_verify_sees_other_rows(fitted, tamper) -> None:
    rows = fitted.splits_.calibrate
    Xc, yc = X[rows].copy(), Y[rows].copy()
    if tamper == "y":
        yc[3] += 1e-9
    elif tamper == "x":
        Xc[0, 0] = np.nextafter(Xc[0, 0], 9)
    elif tamper == "fewer":
        Xc, yc = Xc[:-1], yc[:-1]
    else:
        yc[[0, 1]] = yc[[1, 0]]
    report = fitted.certificate_.verify(Xc, yc, predictor=fitted)
    assert "calibration fingerprint" in {check.name for check in report.checks if not check.holds}


def test_verify_sees_an_edited_certificate(fitted) -> None:
    certificate = fitted.certificate_
    entry = certificate.thresholds[0]
    rows = fitted.splits_.calibrate
    edits = {
        "rank": replace(certificate, thresholds=(replace(entry, rank=entry.rank - 1),)),
        "n": replace(certificate, thresholds=(replace(entry, n=entry.n + 10),)),
        "alpha": replace(certificate, alpha=0.05),
        "law": replace(certificate, thresholds=(replace(entry, coverage_low=0.99),)),
        "seal": replace(certificate, seal_opened=2),
    }
    for name, edited in edits.items():
        assert not edited.verify(), name
    narrower = replace(certificate, thresholds=(replace(entry, value=entry.value * 0.9),))
    assert narrower.verify()  # the arithmetic alone cannot know
    assert not narrower.verify(X[rows], Y[rows], predictor=fitted)


def test_verify_sees_another_predictor(fitted) -> None:
    rows = fitted.splits_.calibrate
    other = dco.DecoupledRegressor(Ridge(alpha=50.0), random_state=0).fit(X, Y)
    failed = {
        check.name for check in fitted.certificate_.verify(X[rows], Y[rows], predictor=other).checks if not check.holds
    }
    assert {"structure", "scores", "threshold"} <= failed


def test_verify_sees_a_model_that_was_changed_after_calibration() -> None:
    est = dco.DecoupledRegressor(Ridge(), random_state=0).fit(X, Y)
    assert est.certificate_.verify(predictor=est)
    est.predict_set(X)
    assert est.certificate_.verify(predictor=est)  # using a model is not changing it
    est.predictor_.structure.model.coef_[0] *= 1.001
    failed = {check.name for check in est.certificate_.verify(predictor=est).checks if not check.holds}
    assert failed == {"model"}
    rows = est.splits_.calibrate
    failed = {check.name for check in est.certificate_.verify(X[rows], Y[rows], predictor=est).checks if not check.holds}
    assert {"model", "scores", "threshold"} == failed


def test_verify_sees_a_calibration_that_was_changed() -> None:
    est = dco.DecoupledRegressor(Ridge(), random_state=0).fit(X, Y)
    est.predictor_.calibration.scores[:] *= 0.9  # narrower sets than were certified
    failed = {check.name for check in est.certificate_.verify(predictor=est).checks if not check.holds}
    assert failed == {"scores kept", "deployed threshold"}


def test_a_model_without_a_fingerprint_is_known_by_its_scores() -> None:
    class Local(Ridge):  # a class inside a function cannot be pickled
        pass

    est = dco.DecoupledRegressor(Local(), random_state=0).fit(X, Y)
    assert est.certificate_.model_fingerprint is None
    rows = est.splits_.calibrate
    assert est.certificate_.verify(X[rows], Y[rows], predictor=est)
    est.predictor_.structure.model.coef_[0] *= 1.001
    assert not est.certificate_.verify(X[rows], Y[rows], predictor=est)
    assert model_fingerprint(Ridge().fit(X, Y), largest=10) is None


@pytest.mark.parametrize("guarantee", ["marginal", "pac"])
def test_verify_works_for_rows_in_groups(guarantee) -> None:
    """One row a group, or weights by group: the threshold is recomputed from the scores that the predictor keeps."""
    groups = np.arange(300) // 2
    est = dco.DecoupledRegressor(Ridge(), guarantee=guarantee, alpha=0.2, random_state=0).fit(X, Y, groups=groups)
    rows = est.splits_.calibrate[::-1]
    report = est.certificate_.verify(X[rows], Y[rows], predictor=est)
    assert report.holds, str(report)
    entry = est.certificate_.thresholds[0]
    edited = replace(est.certificate_, thresholds=(replace(entry, value=entry.value * 0.9),))
    assert [check.name for check in edited.verify(predictor=est).checks if not check.holds] == ["deployed threshold"]
    assert "new groups" in est.certificate_.statement or guarantee == "marginal"


def test_verify_works_by_group(conditional) -> None:
    Z, labels = make_classification(n_samples=600, n_informative=4, n_classes=3, random_state=0)
    names = np.array(["a", "b", "c"])[labels]
    rows = conditional.splits_.calibrate
    report = conditional.certificate_.verify(Z[rows], names[rows], predictor=conditional)
    assert report.holds, str(report)
    assert sum(check.name.startswith("threshold of group") for check in report.checks) == 3
    assert sum(check.name.startswith("deployed threshold of group") for check in report.checks) == 3


def test_stratified_roles_have_no_marginal_guarantee_but_keep_that_of_each_label() -> None:
    Z, labels = make_classification(n_samples=600, n_informative=4, n_classes=3, random_state=0)
    plain = dco.DecoupledClassifier(LogisticRegression(), stratify=True, random_state=0).fit(Z, labels)
    assert plain.certificate_.guarantee == "none"
    assert "stratify" in plain.certificate_.reason
    assert plain.certificate_.statement.startswith("Nothing is guaranteed")
    by_label = dco.DecoupledClassifier(LogisticRegression(), stratify=True, condition_on="label", random_state=0).fit(
        Z, labels
    )
    assert by_label.certificate_.guarantee == "marginal"


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", "nonsense", '{"format": 1}', '{"format": 99}', "NaN", '{"format": 1, "alpha": NaN}', "[" * 100000],
)
def test_what_is_not_a_certificate_is_said_so(text) -> None:
    with pytest.raises(ValueError, match="certificate"):
        dco.Certificate.from_json(text)


def test_a_certificate_with_a_wrong_field_is_refused(fitted) -> None:
    data = json.loads(fitted.certificate_.to_json())
    for change in ({"thresholds": [{}]}, {"thresholds": 3}, {"alpha": "x"}, {"extra": 1}, {"seal_log": None}):
        with pytest.raises(ValueError, match="certificate"):
            dco.Certificate.from_json(json.dumps({**data, **change}))


def test_the_slack_for_a_level_chosen_by_its_result(fitted) -> None:
    assert fitted.certificate_.simultaneous_slack(0.05) == pytest.approx(np.sqrt(np.log(20) / 150))
