"""The certificate: plain data that survives JSON, and checks that see every kind of tampering."""

import json
import math
from collections.abc import Iterator
from dataclasses import fields, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy.stats import beta
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.datasets import make_classification, make_regression
from sklearn.ensemble import RandomForestRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import BayesianRidge, LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import dco
from dco.calibration.facts import ClusterFacts, WeightFacts, certified_threshold
from dco.certificate.verification import largest_rounding
from dco.certificate.words import words
from dco.theory import simultaneous_slack

X, Y = make_regression(n_samples=300, n_features=3, noise=10.0, random_state=0)
Z, LABELS = make_classification(n_samples=600, n_informative=4, n_classes=3, random_state=0)
NAMES = np.array(["a", "b", "c"])[LABELS]
PAIRS = np.arange(300) // 2


def ridge(*scores, **options) -> dco.DecoupledRegressor:
    return dco.DecoupledRegressor(Ridge(), *scores, random_state=0, **options)


def logistic(*scores, **options) -> dco.DecoupledClassifier:
    return dco.DecoupledClassifier(LogisticRegression(), *scores, random_state=0, **options)


RECORDS = ("calibration", "structure", "provenance")


def changed(certificate: dco.Certificate, **facts: Any) -> dco.Certificate:
    """The certificate with other facts, whichever of its records they are in."""
    for name in RECORDS:
        record = getattr(certificate, name)
        of_record = {field.name for field in fields(record)} & facts.keys()
        here = {fact: facts.pop(fact) for fact in of_record}
        certificate = replace(certificate, **{name: replace(record, **here)})
    return replace(certificate, **facts)


def failed_checks(report: Any) -> list[str]:
    return [check.name for check in report.checks if not check.holds]


@pytest.fixture(scope="module")
def fitted() -> dco.DecoupledRegressor:
    return dco.DecoupledRegressor(
        [Ridge(), Ridge(alpha=100)], dco.scores.AbsoluteResidual(), random_state=0
    ).fit(X, Y)


@pytest.fixture(scope="module")
def conditional() -> dco.DecoupledClassifier:
    return logistic(condition_on="label", guarantee="pac").fit(Z, NAMES)


@pytest.fixture(scope="module")
def infinite() -> dco.DecoupledRegressor:
    with pytest.warns(dco.InfeasibleLevelWarning):
        return ridge().fit(X[:12], Y[:12])


@pytest.mark.parametrize("name", ["fitted", "conditional", "infinite"])
def test_a_certificate_comes_back_from_json(name, request) -> None:
    certificate = request.getfixturevalue(name).certificate_

    text = certificate.to_json()

    assert dco.Certificate.from_json(text) == certificate
    json.loads(text, parse_constant=pytest.fail)  # strict: no NaN, no Infinity
    assert certificate.verify().holds


def test_an_infinite_threshold_is_text_in_json(infinite) -> None:
    data = json.loads(infinite.certificate_.to_json())

    assert data["calibration"]["thresholds"][0]["value"] == "inf"


def test_the_numbers_are_those_of_the_law(fitted) -> None:
    threshold = fitted.certificate_.thresholds[0]
    law = beta(threshold.rank, threshold.n + 1 - threshold.rank)
    assert threshold.expected_coverage == pytest.approx(law.mean())
    assert (threshold.coverage_low, threshold.coverage_high) == pytest.approx(
        (law.ppf(0.05), law.ppf(0.95))
    )


def test_a_certificate_of_an_older_format_is_told_what_to_do(fitted) -> None:
    text = fitted.certificate_.to_json().replace('"format": 6', '"format": 5')
    with pytest.raises(
        ValueError,
        match=r"has format 5, and this version reads format 6: use the one .* or fit again\.$",
    ):
        dco.Certificate.from_json(text)


def test_what_a_marginal_certificate_says(fitted) -> None:
    certificate = fitted.certificate_

    assert certificate.statement == (
        "For a new row, the prediction set contains the true value with probability at least 90 %."
    )
    assert "exchangeable" in certificate.assumption
    assert "label" not in certificate.assumption  # the whole line holds every number
    assert any("GridSearchCV" in line for line in certificate.voided_by)


def test_what_a_pac_certificate_by_label_says(conditional) -> None:
    certificate = conditional.certificate_

    assert "confidence at least 95 %" in certificate.statement
    assert "each group separately" in certificate.statement
    assert "independent and identically distributed" in certificate.assumption
    assert certificate.assumption.endswith(
        " The label of the new row is known to the fit: sets hold known labels only."
    )


def test_what_a_certificate_of_distinct_rows_says(fitted) -> None:
    distinct = changed(fitted.certificate_, distinct=True)

    assert distinct.statement.startswith(
        "For a row drawn like the distinct rows given here, the prediction set contains the true "
        "value"
    )


def test_a_certificate_counts_candidates_and_openings_of_the_seal(fitted) -> None:
    assert fitted.certificate_.structure.candidates == 2
    assert fitted.certificate_.provenance.seal_opened == 1


@pytest.mark.parametrize(
    ("alpha", "level"),
    [
        (0.1, "90 %"),
        (0.05, "95 %"),
        (0.123456, "87.6544 %"),
        (Fraction(1, 3), "66.6666 %"),  # rounded down: more is not promised
        (1e-9, "99.9999999 %"),
        (1.2345e-9, "99.999999876 %"),
        (1e-30, "99." + 28 * "9" + " %"),
        (0.99999, "0.001 %"),
        (0.5, "50 %"),
    ],
)
def test_a_level_is_printed_with_the_digits_that_tell_it_from_1(fitted, alpha, level) -> None:
    assert changed(fitted.certificate_, alpha=float(alpha)).statement.endswith(
        f" at least {level}."
    )
    pac = changed(fitted.certificate_, rule="pac", delta=float(alpha))
    assert pac.statement.startswith(f"With confidence at least {level} over")


def test_the_tuning_threshold_is_recorded_and_not_deployed(fitted) -> None:
    certificate = fitted.certificate_
    assert (
        certificate.structure.tuning_threshold
        == fitted.ranking_[fitted.best_candidate_].ranking_threshold
    )
    assert certificate.structure.tuning_threshold != certificate.thresholds[0].value


def stability_of(est: dco.DecoupledRegressor) -> float | None:
    return est.certificate_.structure.stability


def test_a_clear_winner_wins_on_every_half_of_the_tuning_rows() -> None:
    models = {"good": Ridge(), "bad": Ridge(alpha=1e6)}
    est = dco.DecoupledRegressor(models, dco.scores.AbsoluteResidual(), random_state=0).fit(X, Y)

    assert stability_of(est) == 1
    assert "it wins again on 100 % of 50 random halves of the tuning rows" in str(est.certificate_)


def test_near_ties_share_the_halves() -> None:
    noisy = X + np.random.default_rng(0).normal(size=X.shape)
    models = [Ridge(1), Ridge(10), Ridge(30)]
    est = dco.DecoupledRegressor(models, tune_folds=3, random_state=0).fit(noisy, Y)

    assert 0 < stability_of(est) < 1


def test_rows_in_groups_have_no_stability() -> None:
    est = dco.DecoupledRegressor([Ridge(), Ridge(9)]).fit(X, Y, groups=PAIRS)

    assert stability_of(est) is None


def change_a_target(X, y):
    return X, np.where(np.arange(len(y)) == 3, y + 1e-9, y)


def change_a_feature(X, y):
    changed_X = X.copy()
    changed_X[0, 0] = np.nextafter(X[0, 0], 9)
    return changed_X, y


def drop_a_row(X, y):
    return X[:-1], y[:-1]


def swap_two_targets(X, y):
    return X, np.r_[y[1], y[0], y[2:]]


@pytest.mark.parametrize(
    "tamper", [change_a_target, change_a_feature, drop_a_row, swap_two_targets]
)
def test_verify_sees_other_rows(fitted, tamper) -> None:
    rows = fitted.splits_.calibrate

    report = fitted.certificate_.verify(*tamper(X[rows], Y[rows]), predictor=fitted)

    assert "calibration fingerprint" in set(failed_checks(report))


def above(X):
    return X[:, 0] > 0


def wide(X):
    return X[:, 1] > 1


ESTIMATED = dco.ShiftWeights(lambda X: 1 + (X[:, 0] > 0), estimated=True)
KINDS = {
    "marginal": lambda: dco.DecoupledRegressor([Ridge(), Ridge(alpha=100)], random_state=0).fit(
        X, Y
    ),
    "groups": lambda: ridge(alpha=0.2).fit(X, Y, groups=PAIRS),
    "pac, groups": lambda: ridge(alpha=0.2, guarantee="pac").fit(X, Y, groups=PAIRS),
    "pac by label": lambda: logistic(condition_on="label", guarantee="pac", alpha=0.2).fit(
        Z, LABELS
    ),
    "overlapping": lambda: ridge(condition_on=[above, wide], alpha=0.2).fit(X, Y),
    "void": lambda: logistic(weights=ESTIMATED).fit(Z, LABELS),
    "distinct": lambda: ridge(duplicates="drop").fit(X, Y),
    "frozen": lambda: dco.DecoupledRegressor(
        FrozenEstimator(Ridge().fit(X, Y)), random_state=0
    ).fit(X, Y),
}


@pytest.fixture(scope="module", params=KINDS)
def some(request) -> Any:
    return KINDS[request.param]()


def edits(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Every leaf of a certificate's JSON with another value of its kind, and every list and mapping
    one item short.
    """
    if isinstance(value, dict):
        for key, part in value.items():
            yield from edits(part, (*path, key))
        if path and "thresholds" not in path:
            yield path, {**value, "added": next(iter(value.values()), "x")}
    elif isinstance(value, list):
        for index, part in enumerate(value):
            yield from edits(part, (*path, index))
        yield path, value[:-1] if value else ["x"]
    elif isinstance(value, bool):
        yield path, not value
    elif isinstance(value, int):
        yield path, value + 1
    elif isinstance(value, float):
        yield path, value * (1 + 1e-9)
        yield path, math.nextafter(value, 9e9)
        yield path, value / 2
    elif value is None:
        number = {
            "rank": 1,
            "labels": 1,
            "delta": 0.5,
            "expected_coverage": 0.5,
            "coverage_low": 0.5,
            "coverage_high": 0.5,
        }
        yield path, number.get(path[-1], "x")
    else:
        yield (
            path,
            {"inf": 1.0, "marginal": "pac", "pac": "marginal", "none": "marginal"}.get(
                value, f"{value} x"
            ),
        )


def edited(
    certificate: dco.Certificate, path: tuple[Any, ...], value: Any
) -> dco.Certificate | None:
    """The certificate with one value replaced; None if it is not even read."""
    data = json.loads(certificate.to_json())
    for record in RECORDS:
        if path[0] in data[record]:
            path = (record, *path)
    container = data
    for key in path[:-1]:
        container = container[key]
    container[path[-1]] = value
    try:
        return dco.Certificate.from_json(json.dumps(data))
    except ValueError:
        return None


def test_verify_with_the_predictor_sees_an_edit_of_any_field(some) -> None:
    certificate = some.certificate_
    assert dco.Certificate.from_json(certificate.to_json()).verify(predictor=some)
    tried = set()
    refused = set()
    for path, value in edits(json.loads(certificate.to_json())):
        tried.add(path[0])
        other = edited(certificate, path, value)
        if other is None:
            refused.add(path[0])
            continue
        report = other.verify(predictor=some)
        assert not report.holds, (path, value)
        failed = failed_checks(report)
        assert len(failed) == len(set(failed)), f"one line per mismatch: {failed}"
    assert tried == set(json.loads(certificate.to_json()))
    # a record with a field more, and items of another type
    assert refused == {"format", *RECORDS}


def test_whatever_is_put_into_a_field_is_refused_or_seen(some) -> None:
    certificate = some.certificate_
    paths = {path for path, _ in edits(json.loads(certificate.to_json()))}
    for path in paths:
        for junk in (None, True, -1, 10**400, 1e308, "-inf", "", [], [None], {}, {"a": [1]}):
            other = edited(certificate, path, junk)
            assert (
                other is None or other == certificate or not other.verify(predictor=some).holds
            ), (path, junk)
            assert other is None or str(other), (path, junk)  # it can be printed beside what fails


def test_a_copy_leaves_nothing_unchecked_and_a_certificate_alone_much(some) -> None:
    copy = dco.Certificate.from_json(some.certificate_.to_json())
    alone = copy.verify()
    assert alone.holds, str(alone)
    assert {
        "seed",
        "versions",
        "candidates",
        "row_fingerprints.tune",
        "row_fingerprints.calibrate",
    } <= set(alone.unchecked)
    assert "candidate, model, score, labels, support, refit, candidates" in str(alone)
    assert (
        "Not checked beyond the facts that this certificate states: statement, assumption, "
        "guarantee." in str(alone)
    )
    assert "alpha" not in alone.unchecked
    with_predictor = copy.verify(predictor=some)
    assert with_predictor.holds, str(with_predictor)
    assert set(with_predictor.unchecked) == {"calibration rows", "fitted model"}
    # the predictor's own certificate has nothing but itself to be compared with
    with_itself = some.certificate_.verify(predictor=some)
    assert with_itself.holds
    assert {
        "seed",
        "versions",
        "candidates",
        "distinct",
        "statement",
        "assumption",
    } <= set(with_itself.unchecked)
    assert not {
        "threshold values",
        "candidate",
        "structure_fingerprint",
        "takes_one_of_each_cluster",
        "labels",
    } & set(with_itself.unchecked)


def test_rows_and_a_copy_leave_nothing_unchecked(fitted) -> None:
    rows = fitted.splits_.calibrate
    copy = dco.Certificate.from_json(fitted.certificate_.to_json())
    report = copy.verify(X[rows], Y[rows], predictor=fitted)
    assert report.holds, str(report)
    assert report.holds == bool(report)
    assert {"calibration fingerprint", "scores", "threshold", "structure"} <= {
        check.name for check in report.checks
    }
    assert not report.unchecked
    assert "Not checked" not in str(report)
    some_rows = copy.verify(X[rows], Y[rows])
    assert "row_fingerprints.train" in some_rows.unchecked
    assert "row_fingerprints.calibrate" not in some_rows.unchecked


PAC_ASSUMPTION = (
    "Calibration rows and the new one are independent and identically distributed, given the "
    "training and tuning rows."
)
INCONSISTENT = {
    "statement": (
        "statement",
        "For a new row, the prediction set contains the true value with probability at least 99 %.",
    ),
    "any sentence": ("statement", "Every set is always right."),
    "assumption": ("assumption", "None."),
    "another assumption": ("assumption", PAC_ASSUMPTION),
    "no guarantee": ("guarantee", "none"),
    "alpha": ("alpha", 0.101),
    "alpha 1": ("alpha", 1.0),
    "delta": ("delta", 0.5),
    "voided by nothing": ("voided_by", []),
    "training rows": ("training_rows_checked", False),
    "seal log": ("seal_log", ["2026-01-01, calibrate, structure of another"]),
    "structure": ("structure_fingerprint", "0" * 32),
    "rows": ("rows", {"train": 180, "tune": 45, "calibrate": 74}),
}


@pytest.mark.parametrize("name", INCONSISTENT)
def test_a_certificate_alone_must_agree_with_itself(fitted, name) -> None:
    field, value = INCONSISTENT[name]
    report = edited(fitted.certificate_, (field,), value).verify()
    assert not report.holds, str(report)


@pytest.mark.parametrize(
    "field",
    ["expected_coverage", "coverage_low", "coverage_high", "expected_is_exact", "group", "n"],
)
def test_the_law_of_a_threshold_must_follow_from_its_rank(fitted, field) -> None:
    value = {"expected_is_exact": False, "group": "a", "n": 76}.get(field, 0.95)
    assert not edited(fitted.certificate_, ("thresholds", 0, field), value).verify().holds


def test_another_guarantee_with_words_and_numbers_that_fit_is_seen_by_the_predictor_only(
    fitted,
) -> None:
    """What a careful forger does: every field follows from the others, so that only the predictor
    can object.
    """
    threshold = fitted.certificate_.thresholds[0]
    other = certified_threshold(threshold.value, rank=61, n=75, is_tied=False)
    forged = changed(fitted.certificate_, alpha=0.2, thresholds=(other,))
    alone = forged.verify()
    assert alone.holds
    assert "threshold values" in alone.unchecked
    failed = set(failed_checks(forged.verify(predictor=fitted)))
    assert {"alpha", "deployed threshold: rank"} <= failed


@pytest.mark.parametrize("read_again", [False, True], ids=["as it is", "from json"])
@pytest.mark.parametrize(
    ("change", "holds"), [(1e-12, True), (1e-3, False)], ids=["last digits", "more"]
)
def test_last_digits_of_a_law_from_another_version_of_scipy_are_no_change(
    change, holds, read_again
) -> None:
    est = ridge().fit(X, Y)
    (threshold,) = est.certificate_.thresholds
    of_other_version = replace(threshold, coverage_low=threshold.coverage_low * (1 - change))
    certificate = changed(est.certificate_, thresholds=(of_other_version,))
    predictor = replace(est.predictor_, certificate=certificate)
    if read_again:
        certificate = dco.Certificate.from_json(certificate.to_json())

    assert certificate.verify(predictor=predictor).holds == holds


ONE_EACH = np.arange(300)  # groups of one row: no count tells them from rows
FORGED = {  # what was fitted, and the facts that a forger would rather have
    "void": (KINDS["void"], {"weights": WeightFacts("x", "w", False, 100.0, 2.0)}),
    "distinct": (KINDS["distinct"], {"distinct": False}),
    "pac by groups": (
        lambda: ridge(alpha=0.2, guarantee="pac").fit(X, Y, groups=ONE_EACH),
        {"takes_one_of_each_cluster": False},
    ),
    "labels": (lambda: logistic().fit(Z, LABELS), {"labels": None}),
    "frozen": (KINDS["frozen"], {"training_rows_checked": True}),
}


@pytest.mark.parametrize("infinite", [False, True])
@pytest.mark.parametrize("name", FORGED)
def test_words_that_no_number_proves_are_seen_or_listed_as_unchecked(name, infinite) -> None:
    """Better words alone contradict the facts; better facts with them agree, and are named as
    unchecked.
    """
    make, facts = FORGED[name]
    est = make()
    certificate = est.certificate_
    if infinite:
        n = certificate.thresholds[0].n
        rank = None if certificate.calibration.kind == "known weights" else n + 1
        threshold = certified_threshold(math.inf, rank=rank, n=n, is_tied=False)
        certificate = changed(certificate, alpha=0.001, thresholds=(threshold,))
    assert certificate.verify().holds
    forged = changed(certificate, **facts)
    better = words(forged)
    other_words = {key for key, text in better.items() if text != getattr(certificate, key)}
    assert other_words
    assert other_words <= set(failed_checks(changed(certificate, written=better).verify()))
    report = forged.verify()
    assert report.holds
    assert {*facts, *other_words} <= set(report.unchecked)
    assert not forged.verify(predictor=est).holds


def test_full_sets_cover_everything() -> None:
    """Labels that no model knows have infinite scores: an infinite threshold covers all rows,
    whatever its rank.
    """
    threshold = certified_threshold(math.inf, rank=271, n=300, is_tied=False)
    assert (threshold.expected_coverage, threshold.coverage_low, threshold.coverage_high) == (
        1.0,
        1.0,
        1.0,
    )


class SinglePrecision(RegressorMixin, BaseEstimator):
    """A ridge regression that answers in float32, as networks do."""

    def fit(self, X: Any, y: Any) -> Any:
        self.ridge_ = Ridge().fit(X, y)
        self.n_features_in_ = X.shape[1]
        return self

    def predict(self, X: Any) -> Any:
        coefficients = self.ridge_.coef_.astype(np.float32)
        return np.asarray(X, dtype=np.float32) @ coefficients + np.float32(self.ridge_.intercept_)


class RoundsByPlace(Ridge):
    """Adds up every other row backwards. Real products round by the place of a row in its batch
    too, on some processors.
    """

    def predict(self, X: Any) -> Any:
        terms = np.asarray(X) * self.coef_
        terms[1::2] = terms[1::2, ::-1]
        return np.cumsum(terms, axis=1)[:, -1] + self.intercept_


MODELS = {
    "ridge": Ridge(),
    "rounds by place": RoundsByPlace(),
    "pipeline": make_pipeline(StandardScaler(), Ridge()),
    "bayesian": BayesianRidge(),
    "single precision": SinglePrecision(),
    "forest": RandomForestRegressor(10),
}


def wide_rows(n: int = 600) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 12))
    return X, 3 * X[:, 0] + (0.5 + abs(X[:, 1])) * rng.normal(size=n)


@pytest.mark.parametrize("offset", [0.0, 1e4])
@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_the_order_and_the_memory_layout_of_the_rows_do_not_matter(model, offset) -> None:
    """Linear algebra rounds differently for rows in another order; the rows and the model are the
    same to the last bit.
    """
    W, y = wide_rows()
    W = W + offset / 2000
    y = y + offset
    est = dco.DecoupledRegressor(model, random_state=0).fit(W, y)
    rows = est.splits_.calibrate
    for order in (rows, np.sort(rows), np.random.default_rng(1).permutation(rows)):
        for table in (W[order], np.asfortranarray(W[order])):
            report = est.certificate_.verify(table, y[order], predictor=est)
            assert report.holds, str(report)


@pytest.fixture
def rounded() -> Any:
    """An estimator with its calibration rows in a layout in which linear algebra rounds
    otherwise.
    """
    W, y = wide_rows()
    score = dco.scores.AbsoluteResidual()
    est = dco.DecoupledRegressor(RoundsByPlace(), score, random_state=0).fit(W, y)
    rows = np.sort(est.splits_.calibrate)
    return est, np.asfortranarray(W[rows]), y[rows]


@pytest.mark.parametrize("change", [1e-9, 1e-11, 1e-15])
def test_rounding_excuses_no_change_of_what_is_deployed(change, rounded) -> None:
    est, table, y = rounded
    report = est.certificate_.verify(table, y, predictor=est)
    assert report.holds
    assert "to rounding" in str(report), "otherwise nothing is tested here"
    threshold = est.certificate_.thresholds[0]
    other = changed(
        est.certificate_, thresholds=(replace(threshold, value=threshold.value * (1 + change)),)
    )
    assert other.thresholds[0].value != threshold.value
    failed = set(failed_checks(other.verify(table, y, predictor=est)))
    assert "deployed threshold" in failed
    assert ("threshold" in failed) == (change > 2e-12)  # the rows alone see no last bit
    est.predictor_.calibration.scored.scores[:] *= 1 + change
    failed = set(failed_checks(est.certificate_.verify(table, y, predictor=est)))
    assert {"scores kept", "deployed threshold"} <= failed


def test_rounding_excuses_neither_other_rows_nor_another_model(rounded) -> None:
    est, table, y = rounded
    moved = y.copy()
    moved[0] *= 1 + 1e-13
    failed = set(failed_checks(est.certificate_.verify(table, moved, predictor=est)))
    assert {"calibration fingerprint", "scores"} <= failed
    est.predictor_.structure.model.coef_[0] *= 1 + 1e-6
    failed = set(failed_checks(est.certificate_.verify(table, y, predictor=est)))
    assert "scores" in failed


def test_candidates_that_failed_are_counted_in_print(fitted) -> None:
    assert "chosen out of 2 by" in str(fitted.certificate_)
    one = changed(fitted.certificate_, failed_candidates={"knn / AbsoluteResidual": "too few rows"})
    assert "chosen out of 2 (1 failed) by" in str(one)


def test_repeats_that_roles_share_are_printed(fitted) -> None:
    W, y = wide_rows(100)
    est = ridge().fit(np.tile(W, (6, 1)), np.tile(y, 6))
    shared = est.certificate_.provenance.repeats_shared
    assert shared["train and calibrate"] > 0
    assert f"train and calibrate share {shared['train and calibrate']}" in str(est.certificate_)
    assert "Repeats" not in str(fitted.certificate_)


def test_verify_sees_another_predictor(fitted) -> None:
    rows = fitted.splits_.calibrate
    other = dco.DecoupledRegressor(Ridge(alpha=50.0), random_state=0).fit(X, Y)
    report = fitted.certificate_.verify(X[rows], Y[rows], predictor=other)
    assert {"structure", "scores", "threshold"} <= set(failed_checks(report))


def test_verify_sees_a_model_that_was_changed_after_calibration() -> None:
    est = ridge().fit(X, Y)
    assert est.certificate_.verify(predictor=est)
    est.predict_set(X)
    assert est.certificate_.verify(predictor=est)  # using a model is not changing it
    est.predictor_.structure.model.coef_[0] *= 1.001
    without_rows = est.certificate_.verify(predictor=est)
    assert "fitted model" in without_rows.unchecked
    rows = est.splits_.calibrate
    with_rows = est.certificate_.verify(X[rows], Y[rows], predictor=est)
    assert failed_checks(with_rows) == ["scores", "threshold"]
    assert "fitted model" not in with_rows.unchecked


def test_verify_sees_a_calibration_that_was_changed() -> None:
    est = ridge().fit(X, Y)
    est.predictor_.calibration.scored.scores[:] *= 0.9  # narrower sets than were certified
    failed = set(failed_checks(est.certificate_.verify(predictor=est)))
    assert failed == {"scores kept", "deployed threshold"}


@pytest.mark.parametrize("guarantee", ["marginal", "pac"])
def test_verify_works_for_rows_in_groups(guarantee) -> None:
    """One row per group, or weights by group: the threshold is recomputed from the scores that the
    predictor keeps.
    """
    est = ridge(guarantee=guarantee, alpha=0.2).fit(X, Y, groups=PAIRS)
    rows = est.splits_.calibrate[::-1]
    report = est.certificate_.verify(X[rows], Y[rows], predictor=est)
    assert report.holds, str(report)
    threshold = est.certificate_.thresholds[0]
    edited = changed(
        est.certificate_, thresholds=(replace(threshold, value=threshold.value * 0.9),)
    )
    assert failed_checks(edited.verify(predictor=est)) == ["deployed threshold"]
    assert ("one from each new group" in est.certificate_.statement) == (guarantee == "pac")
    assert "exchangeable within groups" in est.certificate_.assumption


def test_verify_works_by_group(conditional) -> None:
    rows = conditional.splits_.calibrate
    report = conditional.certificate_.verify(Z[rows], NAMES[rows], predictor=conditional)
    assert report.holds, str(report)
    assert sum(check.name.startswith("threshold of group") for check in report.checks) == 3
    assert sum(check.name.startswith("deployed threshold of group") for check in report.checks) == 3


def test_estimated_weights_guarantee_nothing() -> None:
    certificate = logistic(weights=ESTIMATED).fit(Z, LABELS).certificate_
    assert certificate.guarantee == "none"
    assert certificate.statement.startswith("Nothing is guaranteed")
    assert str(certificate).count("the weights were estimated") == 1
    # neither would make the nothing true
    for word in ("Assumption", "expected coverage", "90 % range"):
        assert word not in str(certificate)


@pytest.mark.parametrize(("groups", "words"), [(1, "1 cluster of rows"), (2, "2 clusters of rows")])
def test_a_certificate_counts_groups_as_one_says_it(groups, words, fitted) -> None:
    threshold = certified_threshold(math.inf, rank=None, n=groups, is_tied=False)
    facts = ClusterFacts(rule="marginal", alpha=0.1, thresholds=(threshold,))
    lines = str(replace(fitted.certificate_, calibration=facts)).splitlines()
    assert f"threshold inf, weighted over {words}" in lines


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "nonsense",
        '{"format": 1}',
        '{"format": 99}',
        "NaN",
        '{"format": 1, "alpha": NaN}',
        "[" * 100000,
    ],
)
def test_what_is_not_a_certificate_is_said_so(text) -> None:
    with pytest.raises(ValueError, match="certificate"):
        dco.Certificate.from_json(text)


@pytest.mark.parametrize(
    "change",
    [{"n": -1}, {"n": True}, {"rank": 0}, {"rank": 1.5}, {"value": None}],
    ids=str,
)
def test_a_threshold_with_a_wrong_field_is_refused(fitted, change) -> None:
    data = json.loads(fitted.certificate_.to_json())
    data["calibration"]["thresholds"][0] |= change

    with pytest.raises(ValueError, match="certificate"):
        dco.Certificate.from_json(json.dumps(data))


@pytest.mark.parametrize(
    ("record", "change"),
    [
        ("calibration", {"thresholds": [{}]}),
        ("calibration", {"thresholds": 3}),
        ("calibration", {"alpha": "x"}),
        ("calibration", {"alpha": "nan"}),
        ("calibration", {"alpha": None}),
        ("calibration", {"delta": "x"}),
        ("calibration", {"extra": 1}),
        ("provenance", {"seal_log": None}),
        ("provenance", {"seal_opened": True}),
        ("provenance", {"rows": {"train": "many"}}),
        ("provenance", {"seed": "0"}),
        ("structure", {"refit": 1}),
    ],
    ids=str,
)
def test_a_record_with_a_wrong_field_is_refused(fitted, record, change) -> None:
    data = json.loads(fitted.certificate_.to_json())
    data[record] |= change

    with pytest.raises(ValueError, match="certificate"):
        dco.Certificate.from_json(json.dumps(data))


@pytest.mark.parametrize("change", [{"statement": 1}, {"extra": 1}], ids=str)
def test_a_certificate_with_a_wrong_field_is_refused(fitted, change) -> None:
    data = json.loads(fitted.certificate_.to_json()) | change

    with pytest.raises(ValueError, match="certificate"):
        dco.Certificate.from_json(json.dumps(data))


def test_the_slack_of_a_pac_fit_makes_up_for_ranks_below_the_marginal_ones() -> None:
    """With a delta of 0.9 coverage is promised in one fit of ten: ranks are low, and picked levels
    lack that too.
    """
    est = logistic(condition_on="label", guarantee="pac", delta=0.9)
    certificate = est.fit(Z, LABELS).certificate_
    smallest_n = min(threshold.n for threshold in certificate.thresholds)

    expected = simultaneous_slack(smallest_n, delta=0.05, pac_delta=0.9)
    assert certificate.simultaneous_slack(0.05) == pytest.approx(expected)
    assert expected > simultaneous_slack(smallest_n, delta=0.05)


def test_estimated_weights_have_no_slack() -> None:
    est = logistic(weights=ESTIMATED).fit(Z, LABELS)
    with pytest.raises(ValueError, match="picked by its result: nothing is guaranteed"):
        est.certificate_.simultaneous_slack()


def test_rows_that_belong_together_have_no_slack() -> None:
    est = ridge(alpha=0.2).fit(X, Y, groups=PAIRS)
    with pytest.raises(ValueError, match="picked by its result: rows belong together"):
        est.certificate_.simultaneous_slack()


def test_one_row_of_each_cluster_has_a_slack() -> None:
    certificate = ridge(alpha=0.2, guarantee="pac").fit(X, Y, groups=PAIRS).certificate_
    n = certificate.thresholds[0].n

    expected = np.sqrt(np.log(10) / (2 * n))
    assert certificate.simultaneous_slack(0.1) == pytest.approx(expected)


@pytest.mark.parametrize("delta", [0.05, 0.5])
def test_the_slack_for_a_level_chosen_by_its_result(fitted, delta) -> None:
    expected = np.sqrt(np.log(1 / delta) / (2 * 75))

    assert fitted.certificate_.thresholds[0].n == 75
    assert fitted.certificate_.simultaneous_slack(delta) == pytest.approx(expected)


@pytest.mark.parametrize("delta", [0.05, 0.5])
def test_without_calibration_rows_the_slack_is_1(fitted, delta) -> None:
    without_rows = replace(fitted.certificate_.thresholds[0], n=0)
    certificate = changed(fitted.certificate_, thresholds=(without_rows,))

    assert certificate.simultaneous_slack(delta) == 1


@pytest.mark.parametrize("delta", [0, 1, -0.1, math.nan, "five", None], ids=str)
def test_a_delta_that_is_no_probability_is_refused(fitted, delta) -> None:
    with pytest.raises(ValueError, match="delta must be a number strictly between 0 and 1"):
        fitted.certificate_.simultaneous_slack(delta)


def test_a_delta_above_a_half_is_refused(fitted) -> None:
    with pytest.raises(ValueError, match=r"at most 0\.5 for the one-sided inequality"):
        fitted.certificate_.simultaneous_slack(0.6)


@pytest.mark.parametrize("name", ["alpha", "tuning_threshold"])
@pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity"])
def test_a_whole_certificate_with_a_number_that_json_does_not_know_is_refused(
    constant, name, fitted
) -> None:
    data = {**json.loads(fitted.certificate_.to_json()), name: float(constant)}

    with pytest.raises(ValueError, match=f"not strict JSON \\({constant} is not JSON\\)"):
        dco.Certificate.from_json(json.dumps(data))


def test_fields_that_are_missing_are_named(fitted) -> None:
    names = json.loads(fitted.certificate_.to_json()).keys() - {"format"}
    for name in names:
        data = json.loads(fitted.certificate_.to_json())
        del data[name]
        with pytest.raises(ValueError, match=rf"missing fields \['{name}'\], unknown fields \[\]"):
            dco.Certificate.from_json(json.dumps(data))


@pytest.mark.parametrize(
    ("n_more", "failed"), [(0, []), (1, ["rows"])], ids=["as many", "one more"]
)
def test_more_groups_than_calibration_rows_are_seen(n_more, failed) -> None:
    certificate = ridge().fit(X, Y, groups=PAIRS).certificate_
    n_rows = certificate.provenance.rows["calibrate"]
    (threshold,) = certificate.thresholds

    many_groups = changed(certificate, thresholds=(replace(threshold, n=n_rows + n_more),))

    assert failed_checks(many_groups.verify()) == failed


def test_a_finite_threshold_where_no_rank_gives_one_is_seen(infinite) -> None:
    certificate = infinite.certificate_
    (threshold,) = certificate.thresholds
    assert threshold.rank == threshold.n + 1

    finite = changed(certificate, thresholds=(replace(threshold, value=3.0),))

    assert failed_checks(finite.verify()) == ["rank: infinite"]


@pytest.mark.parametrize(
    ("offset", "low", "high"),
    [(0.0, 0.0, 1e-9), (1e9, 1e9 * np.finfo(float).eps, np.inf)],
    ids=["near", "far"],
)
def test_the_rounding_of_far_targets_is_allowed_for(offset, low, high) -> None:
    """A residual of 1 at a target of 1e9 has lost nine digits."""
    y = Y + offset
    est = ridge().fit(X, y)
    rows = est.splits_.calibrate
    scores = est.predictor_.scores(X[rows], y[rows])

    assert low <= largest_rounding(est.predictor_, X[rows], y[rows], scores) < high
