"""``condition_on`` with a list: every group is covered though groups overlap, from the estimator to
the file and back.
"""

import numpy as np
import pandas as pd
import pytest
from laws import check_mean
from scipy.stats import norm
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.linear_model import LinearRegression

import dco
from dco import conditional_conformal

SPREADS = {("F", 1): 4.0, ("F", 2): 2.0, ("M", 1): 1.0, ("M", 2): 1.5}


def is_old(X):
    return np.asarray(X["age"]) > 60


def table(n: int, seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(
        {"sex": rng.choice(["F", "M"], n, p=[0.2, 0.8]), "ward": rng.integers(1, 3, n)}
    )
    X["age"] = rng.uniform(20, 80, n)
    spread = np.array([SPREADS[key] for key in zip(X["sex"], X["ward"], strict=True)])
    return X, rng.normal(scale=spread)


def fitted(condition_on, *, seed=0, n=800, **options):
    X, y = table(n, seed)
    return dco.DecoupledRegressor(
        DummyRegressor(strategy="constant", constant=0.0),
        dco.scores.AbsoluteResidual(),
        condition_on=condition_on,
        random_state=seed,
        **{"tune_size": 0, "calibrate_size": n // 2, **options},
    ).fit(X, y)


def test_thresholds_are_those_of_the_arrays_for_new_combinations_too():
    est = fitted(["sex", "ward", is_old])
    X, y = table(800, 0)
    rows = est.splits_.calibrate

    def marks(X):
        columns = (np.ones(len(X)), X["sex"] == "F", X["ward"] == 1, is_old(X))
        return np.stack(columns, axis=1).astype(float)

    new = table(300, 1)[0]
    wanted = conditional_conformal(np.abs(y[rows]), marks(X.iloc[rows]), marks(new), alpha=0.1)
    assert est.predict_set(new).upper == pytest.approx(wanted, rel=1e-9)
    # a combination without calibration rows has a threshold as long as each of its groups has rows
    apart = X.assign(age=np.where((X["sex"] == "F") & (X["ward"] == 1), 30.0, X["age"]))
    columns, sizes = [lambda X: X[:, 0], lambda X: X[:, 1]], {"tune_size": 0, "calibrate_size": 600}
    again = dco.DecoupledRegressor(
        LinearRegression(), condition_on=columns, random_state=0, **sizes
    )
    coded = np.stack([apart["sex"] == "F", is_old(apart) & (X["sex"] == "M")], axis=1).astype(float)
    again.fit(coded, y)
    assert len(again.certificate_.thresholds) == 3
    assert [name for name, _ in again.certificate_.calibration.groups] == [
        f"<lambda> ({i})={v}" for i in (1, 2) for v in (0, 1)
    ]
    assert np.all(np.isfinite(again.predict_set([[1.0, 1.0]]).upper))


def test_coverage_of_the_estimator_is_at_least_the_level_in_every_group():
    """Exact coverage given each of 80 fits; five standard errors. One threshold leaves the small
    group behind.
    """
    cells = pd.DataFrame([{"sex": sex, "ward": ward, "age": 40.0} for sex, ward in SPREADS])
    shares, spreads = np.where(cells["sex"] == "F", 0.1, 0.4), np.array(list(SPREADS.values()))
    groups = {
        "F": cells["sex"] == "F",
        "M": cells["sex"] == "M",
        "1": cells["ward"] == 1,
        "2": cells["ward"] == 2,
    }
    for condition_on in (["sex", "ward"], None):
        within = [
            2
            * norm.cdf(
                fitted(condition_on, seed=seed, n=240, alpha=0.2).predict_set(cells).upper / spreads
            )
            - 1
            for seed in range(80)
        ]
        by_group = np.array(
            [[np.average(row[of], weights=shares[of]) for of in groups.values()] for row in within]
        )
        if condition_on is None:
            assert by_group[:, 0].mean() < 0.65
        else:
            for coverage, share in zip(by_group.T, [0.2, 0.8, 0.5, 0.5], strict=True):
                check_mean(coverage, 0.8, 0.8 + 3 / (121 * share), errors=5)


def test_certificate_evaluation_file_and_page_speak_of_the_groups(tmp_path):
    est = fitted(["sex", "ward"])
    certificate = est.certificate_
    assert dict(certificate.calibration.groups) == {
        f"{column}={value}": int(
            np.sum(table(800, 0)[0].iloc[est.splits_.calibrate][column] == value)
        )
        for column, values in {"sex": "FM", "ward": (1, 2)}.items()
        for value in values
    }
    assert certificate.guarantee == "marginal"
    assert "given that it belongs to any one of 4 groups, which overlap" in certificate.statement
    assert "sex=F: " in str(certificate)
    with pytest.raises(ValueError, match="groups overlap"):
        certificate.simultaneous_slack()
    X, y = table(800, 0)
    rows = est.splits_.calibrate
    assert certificate.verify(X.iloc[rows], y[rows], predictor=est)
    moved = X.iloc[rows].assign(ward=3 - X.iloc[rows]["ward"])
    failed = [
        check.name
        for check in certificate.verify(moved, y[rows], predictor=est).checks
        if not check.holds
    ]
    assert any(name.startswith("threshold of group") for name in failed), (
        "rows in other groups give other thresholds"
    )

    new, outcome = table(500, 5)
    found = est.evaluate(new, outcome)
    assert [row.group for row in found.by_group] == ["sex=F", "sex=M", "ward=1", "ward=2"]
    assert sum(row.n for row in found.by_group) == 1000
    assert found.verdict == "unchecked"
    assert est.evaluate(new, outcome, by=["sex", "ward"]) == found

    dco.save(est, tmp_path / "m.dco")
    again = dco.load(tmp_path / "m.dco")
    assert np.array_equal(again.predict_set(new).upper, est.predict_set(new).upper)
    assert again.certificate_ == certificate == dco.Certificate.from_json(certificate.to_json())

    from dco.report.page import write_page

    pytest.importorskip("jinja2")
    write_page(est, tmp_path / "page.html", X=new, y=outcome)
    page = (tmp_path / "page.html").read_text()
    for said in (
        "sex=F &amp; ward=1",
        "No law of coverage is known here: groups overlap",
        "Coverage and sizes by condition",
        ">ward=2<",
    ):
        assert said in page


def test_labels_get_one_cutoff_per_row_and_missing_values_a_group():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.choice(["u", None], 400), "b": rng.choice([1.0, np.nan], 400)})
    est = dco.DecoupledClassifier(
        DummyClassifier(strategy="prior"),
        dco.scores.LAC(),
        condition_on=["a", "b"],
        tune_size=0,
        random_state=0,
    ).fit(X, rng.choice(3, 400, p=[0.6, 0.3, 0.1]))
    assert [name for name, _ in est.certificate_.calibration.groups] == [
        "a=(missing)",
        "a=u",
        "b=(missing)",
        "b=1",
    ]
    assert len(est.predict_set(X)) == 400
    with pytest.raises(ValueError, match="p-values are not known for groups that overlap"):
        est.predict_p(X)


def test_what_cannot_be_had_is_said_in_a_sentence():
    with pytest.warns(
        dco.InfeasibleLevelWarning,
        match=r"combinations of groups .* \('sex=F': "
        r"\d+ rows\)",
    ):
        est = fitted(["sex", "ward"], n=40)
    X, _ = table(4, 3)
    with pytest.warns(
        dco.InfeasibleLevelWarning,
        match=r"1 of 4 rows belongs to 1 group .* "
        r"\('ward=9'\)",
    ):
        wide = fitted(["sex", "ward"]).predict_set(X.assign(ward=[1, 2, 1, 9]))
    assert np.isinf(wide.upper).tolist() == [False, False, False, True]
    with pytest.raises(ValueError, match="No PAC statement is known for groups that overlap"):
        fitted(["sex", "ward"], guarantee="pac")
    with pytest.raises(ValueError, match="No PAC statement is known for groups that overlap"):
        est.predict_set(X, guarantee="pac")
    for given, said in (
        ([], "is an empty list"),
        (["sex", "label"], "holds 'label'"),
        ([["sex"]], r"holds \['sex'\]"),
    ):
        with pytest.raises(ValueError, match=said):
            fitted(given)
    with pytest.raises(ValueError, match="names the column 'sexe'"):
        fitted(["sexe", "ward"])
