"""Tables larger than memory: a sample drawn over all files is fitted, and files are evaluated one
by one.
"""

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from dco import recalibrate
from dco.cli import parts
from dco.cli.option_records import TargetOptions
from dco.cli.tables.files import read_sample
from dco.cli.tables.fitted import rows_with_targets
from dco.storage.saving import load, save

from .conftest import make_table


@pytest.fixture
def folder(tmp_path):
    """900 rows in files of different lengths, one with several row groups; and the same rows in one
    file.
    """
    frame = make_table(900, 7)
    frame.index.name = None
    (tmp_path / "in").mkdir()
    for name, rows in {"a": slice(0, 500), "b": slice(500, 510), "c": slice(510, 900)}.items():
        frame[rows].to_parquet(tmp_path / "in" / f"{name}.parquet", index=False, row_group_size=64)
    frame.to_parquet(tmp_path / "whole.parquet", index=False, row_group_size=100)
    frame.to_csv(tmp_path / "whole.csv", index=False)
    return tmp_path


@pytest.mark.parametrize("model", ["numbers", "labels"])
@pytest.mark.parametrize("where", [[], ["--jobs", 2]])
def test_parts_give_what_the_whole_table_gives(dco, home, folder, model, where):
    model = home / f"{model}.dco"
    whole = dco.json("evaluate", model, folder / "whole.parquet")
    for data in ("in", "whole.parquet"):
        parts = dco.json("evaluate", model, folder / data, "--in-parts", *where)
        found, expected = parts["overall"], whole["overall"]
        for name in ("n", "coverage", "coverage_low", "coverage_high", "unknown_labels"):
            assert found[name] == expected[name], name
        for name in ("empty", "full", "infinite", "one_label"):
            assert found["sizes"][name] == expected["sizes"][name], name
        assert parts["mean_size"] == pytest.approx(whole["mean_size"], rel=1e-12)
        assert found["consistency"] == expected["consistency"]
        assert parts["verdict"] == whole["verdict"]


def test_a_dask_cluster_gives_the_same_sets_counts_and_scores(dco, home, folder):
    distributed = pytest.importorskip("distributed")
    model = home / "labels.dco"
    words, predict = (
        ("evaluate", model, folder / "in", "--in-parts"),
        ("predict", model, folder / "in", "--out"),
    )
    dco(*predict, folder / "here")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what a closing cluster leaves behind
        with distributed.LocalCluster(
            n_workers=1,
            threads_per_worker=1,
            processes=True,
            dashboard_address=":0",
            silence_logs=50,
        ) as cluster:
            there = dco.json(*words, "--scheduler", cluster.scheduler_address)
            dco(*predict, folder / "there", "--scheduler", cluster.scheduler_address)
            scored = (
                "recalibrate",
                model,
                folder / "in",
                "--in-parts",
                "--out",
                folder / "new.dco",
            )
            calibrated = dco.json(*scored, "--scheduler", cluster.scheduler_address)["certificate"]
    assert there == dco.json(*words)
    for path in (folder / "here").iterdir():
        assert path.read_bytes() == (folder / "there" / path.name).read_bytes()
    again = dco.json(*scored, "--force")["certificate"]
    for certificate in (calibrated, again):
        del certificate["provenance"]["seal_log"]  # it has the time
    assert calibrated == again


def test_groups_have_their_own_laws_and_rows_of_the_fit_or_that_belong_together_give_no_verdict(
    dco, home, folder
):
    model = folder / "sites.dco"
    dco(
        "fit",
        home / "rows.csv",
        "--target",
        "outcome",
        "--models",
        "linear",
        "--condition-on",
        "site",
        "--out",
        model,
    )
    whole = dco.json("evaluate", model, folder / "whole.parquet")
    parts = dco.json("evaluate", model, folder / "in", "--in-parts")
    tests = [
        {row["group"]: row["consistency"] for row in found["by_condition"]}
        for found in (parts, whole)
    ]
    assert tests[0] == tests[1]
    seen = dco.json("evaluate", home / "numbers.dco", home / "rows.parquet", "--in-parts")
    assert seen["no_verdict"] == "320 of 320 rows equal rows of the fit"
    assert seen["verdict"] == "unchecked"
    printed = dco("evaluate", home / "numbers.dco", home / "rows.parquet", "--in-parts").output
    assert "Nothing was checked" in printed
    words = (
        "--target",
        "outcome",
        "--drop",
        "grade",
        "--groups",
        "patient",
        "--models",
        "linear",
        "--guarantee",
        "pac",
    )
    dco("fit", home / "rows.csv", *words, "--out", model, "--force")
    parts, whole = (
        dco.json("evaluate", model, folder / "in", *how) for how in (["--in-parts"], [])
    )
    assert parts["no_verdict"] == whole["no_verdict"]
    assert "belong together in groups" in parts["no_verdict"]
    assert parts["verdict"] == "unchecked"


def test_fit_on_a_sample_is_the_fit_on_these_rows(dco, folder):
    sample, _ = read_sample(folder / "in", 400, seed=5)
    pq.write_table(sample.cells, folder / "sample.parquet")
    words = (
        "--target",
        "outcome",
        "--drop",
        "grade",
        "--drop",
        "patient",
        "--models",
        "linear",
        "--seed",
        5,
    )
    told = dco(
        "fit", folder / "in", *words, "--sample-rows", 400, "--out", folder / "sampled.dco"
    ).output
    assert "The fit took 400 of 900 rows" in " ".join(told.split())
    dco("fit", folder / "sample.parquet", *words, "--out", folder / "direct.dco")
    one, other = (load(folder / name).certificate_ for name in ("sampled.dco", "direct.dco"))
    assert one.thresholds == other.thresholds
    assert one.provenance.row_fingerprints == other.provenance.row_fingerprints
    assert sum(one.provenance.rows.values()) == 400
    assert dco.json("audit", folder / "sampled.dco", "--data", folder / "in")["holds"]


def test_a_file_or_a_row_that_cannot_be_read_is_named(dco, home, folder, small_batches):
    small_batches(70)
    frame = pd.read_csv(home / "new.csv", dtype=object)
    frame.loc[150, "dose"] = "oops"
    frame.to_csv(folder / "bad.csv", index=False)
    assert "'oops' in row 151" in dco.refuses(
        "evaluate", home / "numbers.dco", folder / "bad.csv", "--in-parts"
    )
    (folder / "in" / "b.parquet").write_bytes(b"PAR1 and nothing else")
    message = dco.refuses("evaluate", home / "numbers.dco", folder / "in", "--in-parts")
    assert "b.parquet" in message
    assert "Repair the file" in message
    assert "b.parquet" in dco.refuses(
        "fit",
        folder / "in",
        "--target",
        "outcome",
        "--sample-rows",
        100,
        "--out",
        folder / "model.dco",
    )
    assert not (folder / "model.dco").exists()


def test_options_that_do_not_go_together_are_refused(dco, home, folder):
    words = ("evaluate", home / "numbers.dco", folder / "in")
    assert "leave --by out" in dco.refuses(*words, "--in-parts", "--by", "site")
    assert "add --in-parts" in dco.refuses(*words, "--jobs", 2)
    assert "No Dask scheduler answers" in dco.refuses(
        *words, "--in-parts", "--scheduler", "tcp://127.0.0.1:1"
    )
    dco(*words, "--in-parts", "--fail-below", "0.999", status=1)


# ----------------------------------------------------------------------------------------------
# calibration in parts


MODELS = (
    # trees: what they say of a row does not depend on the rows beside it; linear algebra may round
    # otherwise
    "boosting"
)
SAMPLED = {
    "numbers": ("--target", "outcome", "--drop", "grade"),
    "labels": ("--target", "grade", "--drop", "outcome"),
    "by label": ("--target", "grade", "--drop", "outcome", "--condition-on", "grade"),
    "overlapping": (
        "--target",
        "outcome",
        "--drop",
        "grade",
        "--condition-on",
        "site",
        "--condition-on",
        "ward",
    ),
    "pac": (
        "--target",
        "outcome",
        "--drop",
        "grade",
        "--condition-on",
        "site",
        "--guarantee",
        "pac",
    ),
}


def fitted_on_a_sample(dco, folder, kind, rows=300):
    words = (
        *SAMPLED[kind],
        "--drop",
        "patient",
        "--models",
        MODELS,
        "--seed",
        5,
        "--sample-rows",
        rows,
    )
    dco("fit", folder / "in", *words, "--out", folder / "sampled.dco")
    return folder / "sampled.dco"


def rest_of(model, data):
    """The rows of a table that neither trained nor tuned, as they are read in memory."""
    est = load(model)
    rows = rows_with_targets(est, data, TargetOptions())
    used = est.table_["fitted_rows"][np.concatenate([est.splits_.train, est.splits_.tune])]
    rest = np.setdiff1d(np.arange(len(rows.y)), used)
    return est, rows.X.iloc[rest].reset_index(drop=True), rows.y[rest]


def same_but_for_the_clock(one, other):
    assert (one.calibration, one.structure) == (other.calibration, other.structure)
    assert replace(one.provenance, seal_log=()) == replace(other.provenance, seal_log=())


@pytest.mark.parametrize("kind", SAMPLED)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_calibration_in_parts_is_that_in_memory_to_the_last_bit(dco, folder, small_batches, kind):
    model = fitted_on_a_sample(dco, folder, kind)
    est, X, y = rest_of(model, folder / "in")
    assert len(y) == 900 - len(est.splits_.train) - len(est.splits_.tune) > 600
    small_batches(70)
    where = ["--jobs", 2] if kind == "numbers" else []
    told = dco(
        "recalibrate",
        model,
        folder / "in",
        "--in-parts",
        "--rest",
        *where,
        "--out",
        folder / "new.dco",
    ).output
    assert f"{len(y)} calibration rows" in told
    new, whole = load(folder / "new.dco"), recalibrate(est, X, y)
    same_but_for_the_clock(new.certificate_, whole.certificate_)
    assert new.certificate_.provenance.rows == {
        **est.certificate_.provenance.rows,
        "calibrate": len(y),
    }
    assert new.certificate_.provenance.replaces == est.certificate_.fingerprint
    np.testing.assert_array_equal(
        new.predictor_.calibration.scored.scores, whole.predictor_.calibration.scored.scores
    )
    assert new.certificate_.thresholds == whole.certificate_.thresholds
    assert (
        new.predictor_.calibration.scored.rounding == whole.predictor_.calibration.scored.rounding
    )
    assert [note.text for note in new.notes_] == [note.text for note in whole.notes_]
    assert new.certificate_.verify(X, y, predictor=new).holds
    assert dco.json("audit", folder / "new.dco", "--data", folder / "in")["holds"]


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_labels_that_the_fit_never_saw_score_infinity_in_parts(dco, home, tmp_path):
    (tmp_path / "in").mkdir()
    frame = make_table(300, 21).drop(columns=["outcome", "patient"])
    frame.loc[250:260, "grade"] = "none"
    frame[:200].to_parquet(tmp_path / "in" / "a.parquet", index=False)
    frame[200:].to_parquet(tmp_path / "in" / "b.parquet", index=False)
    est = load(home / "labels.dco")
    rows = rows_with_targets(est, tmp_path / "in", TargetOptions())
    dco(
        "recalibrate",
        home / "labels.dco",
        tmp_path / "in",
        "--in-parts",
        "--out",
        tmp_path / "new.dco",
    )
    new = load(tmp_path / "new.dco")
    same_but_for_the_clock(new.certificate_, recalibrate(est, rows.X, rows.y).certificate_)
    assert np.isinf(new.predictor_.calibration.scored.scores).sum() == 11
    assert new.classes_.tolist() == ["high", "low", "mid", "none"]


def test_groups_of_rows_are_weighed_in_parts(dco, folder):
    model, fresh = folder / "grouped.dco", folder / "fresh"
    words = ("--target", "outcome", "--drop", "grade", "--groups", "patient", "--models", "linear")
    dco("fit", folder / "whole.parquet", *words, "--out", model)
    fresh.mkdir()
    for seed in (31, 32):
        make_table(200, seed).to_parquet(fresh / f"{seed}.parquet", index=False)
    dco("recalibrate", model, fresh, "--out", folder / "whole.dco")
    dco("recalibrate", model, fresh, "--in-parts", "--out", folder / "parts.dco")
    same_but_for_the_clock(
        load(folder / "parts.dco").certificate_, load(folder / "whole.dco").certificate_
    )
    assert "new groups" in dco.refuses(
        "recalibrate",
        model,
        folder / "whole.parquet",
        "--in-parts",
        "--rest",
        "--out",
        folder / "x.dco",
    )


def test_rows_of_the_sample_do_not_calibrate(dco, folder, monkeypatch):
    model, out = fitted_on_a_sample(dco, folder, "numbers"), ("--out", folder / "new.dco")
    words = ("recalibrate", model, folder / "in", "--in-parts")
    assert "took part in the fit" in dco.refuses(*words, *out)
    with monkeypatch.context() as planted:  # one training row is not left out
        own = parts._rows_of_the_fit
        planted.setattr(
            parts,
            "_rows_of_the_fit",
            lambda *given: {role: rows[role == "train" :] for role, rows in own(*given).items()},
        )
        assert "not at their places" in dco.refuses(*words, "--rest", *out)
    frame = pd.read_parquet(folder / "in" / "c.parquet")
    frame[::-1].to_parquet(folder / "in" / "c.parquet", index=False)
    assert "not at their places" in dco.refuses(*words, "--rest", *out)
    frame[:-1].to_parquet(folder / "in" / "c.parquet", index=False)
    assert "has 899 rows, and that had 900 rows" in dco.refuses(*words, "--rest", *out)
    assert "add --in-parts" in dco.refuses("recalibrate", model, folder / "in", "--rest", *out)
    assert not (folder / "new.dco").exists()


def test_a_comparison_of_a_sample_is_that_of_these_rows(dco, folder):
    """And with other rows it is another comparison."""
    words, given = (
        ("--target", "outcome", "--models", "linear", "--splits", 2, "--out"),
        ("--sample-rows", 300),
    )
    drawn = dco.json("compare", folder / "in", *words, folder / "drawn", *given)
    assert "The comparison is on 300 of 900 rows, drawn at random" in drawn["why"]
    sample, _ = read_sample(folder / "in", 300, seed=0)
    pq.write_table(sample.cells, folder / "sample.parquet")
    assert (
        drawn["tables"]
        == dco.json("compare", folder / "sample.parquet", *words, folder / "same")["tables"]
    )
    assert (
        dco.json("compare", folder / "whole.csv", *words, folder / "drawn", *given, "--resume")[
            "tables"
        ]
        == drawn["tables"]
    )
    refused = dco.refuses(
        "compare", folder / "in", *words, folder / "drawn", "--sample-rows", 301, "--resume"
    )
    assert "is not from a stopped run with these options" in refused


def test_a_model_without_a_target_column_asks_for_it(dco, home, folder):
    model = load(home / "numbers.dco")
    del model.table_
    save(model, folder / "plain.dco")
    for words in (
        ["evaluate"],
        ["evaluate", "--in-parts"],
        ["recalibrate", "--in-parts", "--out", folder / "new.dco"],
    ):
        assert "name it with --target" in dco.refuses(
            words[0], folder / "plain.dco", folder / "whole.csv", *words[1:]
        )


def test_a_table_in_which_no_target_is_known_is_refused(dco, home, folder):
    model = folder / "new.dco"
    words = (
        "--target",
        "outcome",
        "--drop",
        "grade",
        "--models",
        "linear",
        "--drop-missing-target",
        "--out",
        model,
    )
    dco("fit", home / "rows.csv", *words)
    pd.read_csv(home / "new.csv").assign(outcome="").to_csv(folder / "none.csv", index=False)
    for more, said in (((), "no row with a known target"), (("--in-parts",), "has no rows")):
        assert said in dco.refuses("evaluate", model, folder / "none.csv", *more)


COMMANDS_ON_PARTS = {
    "evaluate": ["evaluate", "--in-parts"],
    "recalibrate": ["recalibrate", "--in-parts", "--out", "new.dco"],
    "predict": ["predict", "--out", "sets"],
}
on_parts = pytest.mark.parametrize("words", COMMANDS_ON_PARTS.values(), ids=COMMANDS_ON_PARTS)


@on_parts
def test_a_file_with_a_damaged_page_is_named(dco, home, folder, monkeypatch, words):
    """Its bytes are readable and mean nothing, such as a dose that is infinite."""
    monkeypatch.chdir(folder)
    part = folder / "in" / "c.parquet"
    frame = pd.read_parquet(part)
    frame.assign(dose=np.inf).to_parquet(part, index=False)
    refused = dco.refuses(words[0], home / "numbers.dco", folder / "in", *words[1:])
    assert "c.parquet" in refused
    assert not (folder / "new.dco").exists()
    assert not (folder / "sets").exists()


@on_parts
def test_a_part_without_rows_is_taken(dco, home, folder, monkeypatch, words):
    monkeypatch.chdir(folder)
    frame = pd.read_parquet(folder / "in" / "a.parquet")
    frame[:0].to_parquet(folder / "in" / "d.parquet", index=False)
    dco(words[0], home / "numbers.dco", folder / "in", *words[1:])
    if words[0] == "predict":
        with_rows = pq.read_schema(folder / "sets" / "a.parquet").remove_metadata()
        assert pq.read_schema(folder / "sets" / "d.parquet").remove_metadata() == with_rows
