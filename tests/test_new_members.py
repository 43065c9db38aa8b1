"""A toy score and a toy guarantee, one file each, go all the way: estimator, command line,
certificate, model file, evaluation.
"""

import importlib
import json
import sys
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from scipy.stats import beta, kstest
from sklearn.linear_model import Ridge

import dco
from dco.calibration import GUARANTEES
from dco.cli.main import main
from dco.scores import registry

RNG = np.random.default_rng(0)
X = RNG.normal(size=(600, 3))
Y = X @ [1.0, -2.0, 0.5] + RNG.normal(size=600)


@pytest.fixture
def toys(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[ModuleType, ModuleType]]:
    """Both modules, imported and forgotten again afterwards."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "toys"))
    monkeypatch.setattr(registry, "_REGISTERED", dict(registry._REGISTERED))
    known = dict(GUARANTEES)
    for name in ("toy_score", "toy_guarantee"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    try:
        yield importlib.import_module("toy_score"), importlib.import_module("toy_guarantee")
    finally:
        GUARANTEES.clear()
        GUARANTEES.update(known)


def test_a_score_and_a_guarantee_in_one_file_each_go_all_the_way(toys, tmp_path: Path) -> None:
    est = dco.DecoupledRegressor(
        Ridge(), toys[0].SquaredResidual(), guarantee="halved", random_state=0
    ).fit(X[:400], Y[:400])
    certificate = est.certificate_
    assert certificate.thresholds[0].rank == dco.conformal_rank(100, alpha=0.05)
    assert "well above 90 %" in str(certificate)
    assert certificate.verify(predictor=est).holds
    assert dco.Certificate.from_json(certificate.to_json()) == certificate
    assert (
        not dco.Certificate.from_json(certificate.to_json().replace('"halved"', '"marginal"'))
        .verify(predictor=est)
        .holds
    )
    dco.save(est, tmp_path / "model.dco")
    again = dco.load(tmp_path / "model.dco")  # trusted: it is registered
    np.testing.assert_array_equal(again.predict_set(X[400:]).upper, est.predict_set(X[400:]).upper)
    assert again.evaluate(X[400:], Y[400:]).coverage > 0.9


def test_the_command_line_knows_them(toys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pd.DataFrame(X, columns=list("abc")).assign(y=Y).to_csv("rows.csv", index=False)
    order = [
        "fit",
        "rows.csv",
        "--target",
        "y",
        "--models",
        "linear",
        "--scores",
        "squared",
        "--guarantee",
        "halved",
    ]
    result = CliRunner().invoke(main, [*order, "--out", "model.dco", "--json"])
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert told["certificate"]["structure"]["score"] == "SquaredResidual"
    assert told["certificate"]["calibration"]["rule"] == "halved"
    assert CliRunner().invoke(main, ["audit", "model.dco", "--data", "rows.csv"]).exit_code == 0


def test_they_keep_the_laws_of_their_families(toys) -> None:
    """Sets are the inverse of the score and grow with the threshold; coverage has the law of the
    rank.
    """
    score, halved = toys[0].SquaredResidual(), GUARANTEES["halved"]()
    prediction = dco.Points(X[:, 0])
    sizes = []
    for threshold in (0.1, 1.0, 4.0):
        sets = score.sets(prediction, threshold)
        assert np.all(sets.contains(Y) >= (score.observed(prediction, Y) <= threshold))
        sizes.append(score.sizes(prediction, threshold).mean())
    assert sizes == sorted(sizes)
    assert score in registry.default_scores(dco.Points)
    rng = np.random.default_rng(1)
    coverage = [
        halved.threshold(rng.uniform(size=99), alpha=Fraction(1, 5)).value for _ in range(2000)
    ]
    assert kstest(coverage, beta(90, 10).cdf).pvalue > 0.01
    assert halved.threshold(np.arange(18.0), alpha=Fraction(1, 10)).value == np.inf
    assert halved.smallest_size(alpha=Fraction(1, 10)) == 19
