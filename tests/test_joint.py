"""`selection="joint"`: sets of `select_and_calibrate`, one opening of the seal, a certificate that
says so.
"""

import json
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner
from sklearn.base import clone
from sklearn.exceptions import FitFailedWarning
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor

import dco
from dco.cli.main import main
from dco.foundations.errors import IncompatibleScoreError, InfeasibleLevelWarning
from dco.models.adapt import predict_record
from dco.scores import APS, LAC, AbsoluteResidual, NormalisedResidual, PredictiveDensity

ALPHA = 0.1


def table(task, n, rng):
    X = rng.normal(size=(n, 3))
    y = X[:, 0] + rng.normal(size=n) * (0.3 + np.abs(X[:, 1]))
    return X, y if task == "numbers" else np.array(["a", "b", "c"])[np.digitize(y, [-0.5, 0.7])]


MODELS = {
    "numbers": {
        "ridge": Ridge(),
        "near": KNeighborsRegressor(9),
        "spread": dco.models.ResidualSpread(Ridge()),
    },
    "labels": {"linear": LogisticRegression(), "near": KNeighborsClassifier(9)},
}
MAKERS = {"numbers": dco.DecoupledRegressor, "labels": dco.DecoupledClassifier}


def fitted(task, n=300, **options):
    X, y = table(task, n, np.random.default_rng(1))
    return (
        MAKERS[task](MODELS[task], alpha=ALPHA, selection="joint", random_state=0, **options).fit(
            X, y
        ),
        X,
        y,
    )


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("task", MAKERS)
def test_sets_are_those_of_select_and_calibrate_by_models_fitted_on_the_training_rows(task, frozen):
    """Fitted, predicted and scored here again, without the library's path; at several levels from
    one calibration.

    Models that were fitted before leave every row to calibration.
    """
    X, y = table(task, 300, np.random.default_rng(1))
    new, models = table(task, 80, np.random.default_rng(2))[0], MODELS[task]
    scores = {"numbers": [AbsoluteResidual(), NormalisedResidual()], "labels": [LAC(), APS()]}[task]
    if frozen:
        others = table(task, 200, np.random.default_rng(9))
        models = {
            name: FrozenEstimator(clone(model).fit(*others)) for name, model in models.items()
        }
    est = MAKERS[task](models, scores, alpha=ALPHA, selection="joint", random_state=0).fit(X, y)
    roles, known, asked = est.splits_, {}, {}
    assert (est.certificate_.rows["train"] == 0) == frozen
    assert not roles.tune.size
    for name, model in models.items():
        own = model if frozen else clone(model).fit(X[roles.train], y[roles.train])
        for score in scores:
            if isinstance(score, NormalisedResidual) and name != "spread":
                continue
            known[f"{name} {score}"] = (
                score,
                predict_record(own, X[roles.calibrate], score.needs[0]),
            )
            asked[f"{name} {score}"] = predict_record(own, new, score.needs[0])
    assert len(est.certificate_.thresholds) == len(known)
    for alpha in (0.05, ALPHA, 0.3):
        wanted = dco.select_and_calibrate(known, y[roles.calibrate], asked, alpha=alpha)
        found = est.predict_set(new, alpha=alpha)
        if task == "labels":
            assert found.to_lists() == wanted.to_lists()
        else:
            assert np.array_equal(found.row_pointers, wanted.row_pointers)
            ends = np.stack([found.lower, found.upper]), np.stack([wanted.lower, wanted.upper])
            # scores are tied, so `calibrate` adds what batches round
            assert np.allclose(*ends, rtol=0, atol=1e-9)


@pytest.mark.parametrize("task", MAKERS)
def test_it_certifies_saves_and_is_checked(task, tmp_path):
    est, X, y = fitted(task)
    certificate, sealed = est.certificate_, est.splits_.calibrate
    assert (certificate.joint, certificate.guarantee, certificate.seal_opened) == (
        True,
        "marginal",
        1,
    )
    assert (
        "Sets may be unions of sets of several candidates; their coverage has no law beyond the "
        "level" in str(certificate)
    )
    assert certificate.statement.endswith("contains the true value with probability at least 90 %.")
    assert all(
        entry.rank is None and entry.expected_coverage is None for entry in certificate.thresholds
    )
    dco.save(est, tmp_path / "model.dco")
    loaded = dco.load(tmp_path / "model.dco")
    copy = dco.Certificate.from_json(certificate.to_json())
    assert copy == certificate
    assert certificate.assumption.startswith(
        "Calibration rows and the new one are exchangeable, given the training rows."
    )
    written = {"statement": certificate.statement, "assumption": certificate.assumption}
    # as it was read
    assert "no law beyond the level" in str(
        replace(certificate, rule="mine", rows={}, written=written)
    )
    assert copy.verify(X[sealed[::-1]], y[sealed[::-1]], predictor=loaded)
    new, y_new = table(task, 400, np.random.default_rng(3))
    assert np.array_equal(est.predict_set(new).sizes(), loaded.predict_set(new).sizes())
    seen = est.evaluate(new, y_new)
    assert (seen.verdict, seen.consistency) == ("unchecked", None)
    assert "joint selection" in seen.no_verdict
    assert len(est.predict(new)) == 400


def test_what_was_changed_is_seen():
    """A cut-off, a score that was kept, sizes that were kept, the word joint itself."""
    est, X, y = fitted("numbers")
    own, sealed = est.predictor_, est.splits_.calibrate
    certificate, kept = est.certificate_, own.calibration

    def holds(certificate=certificate, **changed):
        predictor = replace(own, calibration=replace(kept, **changed))
        return bool(certificate.verify(X[sealed], y[sealed], predictor=predictor))

    assert holds()
    first, *others = certificate.thresholds
    assert not holds(
        replace(certificate, thresholds=(replace(first, value=first.value / 2), *others))
    )
    assert not holds(replace(certificate, joint=False))
    assert not holds(scores=kept.scores * np.where(np.arange(kept.scores.size) == 3, 2, 1))
    wider = [
        *kept.seen.records[:-1],
        dco.PointsWithSpread(kept.seen.records[-1].mean, 2 * kept.seen.records[-1].spread),
    ]
    assert not holds(seen=type(kept.seen)(tuple(wider)))


def test_other_calibration_rows_are_another_certificate_of_the_same_candidates():
    est, _, _ = fitted("numbers")
    X, y = table("numbers", 90, np.random.default_rng(8))
    again = dco.recalibrate(est, X, y)
    assert (again.certificate_.joint, again.certificate_.rows["calibrate"]) == (True, 90)
    assert again.certificate_.verify(X, y, predictor=again)
    assert not est.certificate_.verify(X, y, predictor=est)


@pytest.mark.parametrize(
    ("options", "rows", "word"),
    [
        ({"guarantee": "pac"}, {}, "guarantee=pac"),
        ({"condition_on": 1}, {}, "condition_on"),
        ({"support": (0, 1)}, {}, "support"),
        ({"objective": "p95_size"}, {}, "objective"),
        ({"tune_size": "auto"}, {}, "tune_size=auto"),
        ({"search": dco.search.Random(2, seed=0)}, {}, "search="),
        (
            {
                "tune_folds": 3,
                "models": FrozenEstimator(Ridge().fit([[0, 0, 0], [1, 1, 1]], [0, 1])),
            },
            {},
            "tune_folds",
        ),
        ({}, {"groups": np.arange(100) // 2}, "groups="),
        ({}, {"tune": (np.ones((20, 3)), np.arange(20.0))}, "tune="),
    ],
)
def test_what_has_no_theorem_or_no_rows_is_refused(options, rows, word):
    est = dco.DecoupledRegressor(**{"models": Ridge(), "selection": "joint", **options})
    with pytest.raises(ValueError, match=f"leave {word} out"):
        est.fit(*table("numbers", 100, np.random.default_rng(0)), **rows)


@pytest.mark.parametrize("task", MAKERS)
def test_with_folds_the_best_three_on_training_rows_take_part(task):
    """Those that decoupled selection would put first by the same folds, whatever the calibration
    rows say.
    """
    X, y = table(task, 240, np.random.default_rng(4))
    near = [
        KNeighborsRegressor(k) if task == "numbers" else KNeighborsClassifier(k) for k in (3, 9, 40)
    ]
    options = {"alpha": ALPHA, "random_state": 0, "tune_folds": 4}
    models = {**MODELS[task], **{f"near {k}": model for k, model in enumerate(near)}}
    joint = MAKERS[task](models, selection="joint", **options).fit(X, y)
    first = [row.name for row in MAKERS[task](models, **options).fit(X, y).ranking_.table]
    assert len(first) > 3
    assert {entry.group for entry in joint.certificate_.thresholds} == set(first[:3])
    assert f"({len(first) - 3} more took no part)" in str(joint.certificate_)
    turned = y.copy()
    turned[joint.splits_.calibrate] = y[joint.splits_.calibrate][::-1]
    again = MAKERS[task](models, selection="joint", **options).fit(X, turned)
    assert [entry.group for entry in again.certificate_.thresholds] == [
        e.group for e in joint.certificate_.thresholds
    ]
    assert [e.value for e in again.certificate_.thresholds] != [
        e.value for e in joint.certificate_.thresholds
    ]


def test_a_fit_with_few_tuning_rows_advises_joint_selection_where_that_can_state_the_same():
    """And where it would be refused, or there is nothing to choose, or no row was spent on it, says
    nothing.
    """

    def advice(n=100, models=MODELS["numbers"], **options):
        X, y = table("numbers", n, np.random.default_rng(0))
        est = dco.DecoupledRegressor(models, random_state=0, **options).fit(X, y)
        return [note for note in est.notes_ if note.kind == "few-rows"]

    (note,) = advice()
    assert note.text.startswith("25 rows chose among 4 candidates, which is few.")
    assert note.remedy == "Compare selection=joint."
    assert len(advice(objective="even")) == 1
    silent = [
        {"guarantee": "pac"},
        {"condition_on": lambda X: X[:, 0] > 0},
        {"tune_folds": 3},
        {"selection": "joint"},
    ]
    silent += [{"support": (-20, 20)}, {"objective": "p95_size"}, {"models": Ridge()}, {"n": 160}]
    assert not any(advice(**options) for options in silent)


def test_questions_without_an_answer_are_errors():
    est, X, _ = fitted("labels")
    with pytest.raises(ValueError, match="p-values are not known for joint selection"):
        est.predict_p(X)
    with pytest.raises(ValueError, match="certifies marginal coverage only"):
        est.predict_set(X, guarantee="pac")
    with pytest.raises(ValueError, match="no known law"):
        dco.Monitor(est)
    with pytest.raises(ValueError, match="calibration rows choose among candidates"):
        est.certificate_.simultaneous_slack()


def test_models_that_fail_and_scores_without_known_sizes_are_left_out():
    class Broken(Ridge):
        def fit(self, X, y):
            raise RuntimeError("no")

    X, y = table("numbers", 200, np.random.default_rng(5))
    est = dco.DecoupledRegressor(
        {"broken": Broken(), "ridge": Ridge(), "near": KNeighborsRegressor()}, selection="joint"
    )
    with pytest.warns(FitFailedWarning, match="broken .RuntimeError: no"):
        est.fit(X, y)
    assert len(est.certificate_.thresholds) == 2
    assert est.certificate_.failed_candidates == {"broken": "RuntimeError: no"}
    bayes = dco.models.SparseBayesianRegression(draws=200, warmup=20)
    with pytest.raises(IncompatibleScoreError, match="No candidate is left for joint selection"):
        dco.DecoupledRegressor(bayes, PredictiveDensity(), selection="joint").fit(X, y)


def test_a_score_of_the_users_whose_sets_lose_labels_is_refused():
    class Shrunk(LAC):
        def sets(self, prediction, threshold):
            return LAC().sets(prediction, np.asarray(threshold) - 0.3)

    X, y = table("classes", 300, np.random.default_rng(0))
    options = {"selection": "joint", "random_state": 0}
    with pytest.raises(ValueError, match=r"the sets of Shrunk leave out .* labels"):
        dco.DecoupledClassifier(LogisticRegression(), [LAC(), Shrunk()], **options).fit(X, y)


def test_too_few_rows_give_the_whole_line_and_one_sentence():
    X, y = table("numbers", 30, np.random.default_rng(6))
    with pytest.warns(
        InfeasibleLevelWarning, match="7 calibration rows are too few for alpha = 0.1"
    ) as found:
        est = dco.DecoupledRegressor(MODELS["numbers"], selection="joint", calibrate_size=7).fit(
            X, y
        )
    assert len(found) == 1
    assert np.isinf(est.predict_set(X).sizes()).all()


@pytest.mark.parametrize("task", MAKERS)
def test_the_command_line_fits_evaluates_audits_and_reports(tmp_path, monkeypatch, task):
    monkeypatch.chdir(tmp_path)
    X, y = table(task, 260, np.random.default_rng(7))
    for name, rows in (("seen", slice(0, 200)), ("new", slice(200, 260))):
        lines = [
            "a,b,c,y",
            *(",".join(map(str, (*x, target))) for x, target in zip(X[rows], y[rows], strict=True)),
        ]
        (tmp_path / f"{name}.csv").write_text("\n".join(lines))

    def run(*words):
        found = CliRunner().invoke(main, list(words))
        assert found.exit_code == 0, found.output
        return found.output

    made = json.loads(
        run(
            "fit",
            "seen.csv",
            "--target",
            "y",
            "--models",
            "linear,forest",
            "--selection",
            "joint",
            "--json",
        )
    )
    assert made["certificate"]["joint"] is True
    assert made["certificate"]["rows"]["tune"] == 0
    assert json.loads(run("evaluate", "model.dco", "new.csv", "--json"))["verdict"] == "unchecked"
    audited = run("audit", "model.dco", "--data", "seen.csv")
    assert "Everything that was recomputed holds." in audited
    rows, candidates = (
        made["certificate"]["rows"]["calibrate"],
        len(made["certificate"]["thresholds"]),
    )
    assert f"{rows * candidates} scores from {rows} calibration rows" in " ".join(
        audited.replace("│", " ").split()
    )
    assert "e+308" not in audited
    run("report", "model.dco", "--data", "new.csv", "--out", "page.html")
    assert "the calibration rows choose too" in (tmp_path / "page.html").read_text()
