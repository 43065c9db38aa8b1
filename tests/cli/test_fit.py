"""dco fit: the task is said, roles stay apart, preparation sees no calibration row, and bad input is told."""

import errno
import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dco as library
from dco.cli.columns import features
from dco.cli.layout import Layout
from dco.cli.reading import read_table


def fit(dco, data, out, *more, status=0):
    return dco("fit", data, "--target", "outcome", "--models", "linear", "--out", out, *more, status=status)


def test_it_says_the_task_the_candidates_and_the_guarantee(dco, home, tmp_path):
    printed = fit(dco, home / "rows.csv", tmp_path / "m.dco").output
    assert "Task: regression" in printed
    assert "linear / AbsoluteResidual" in printed
    assert "contains the true value with probability at least 90 %" in printed
    assert library.load(tmp_path / "m.dco").table_["layout"]["target"] == "outcome"


def test_default_candidates_are_named_and_all_work(dco, home, tmp_path):
    """Missing numbers, missing texts and categories reach every default model."""
    for target, models in (
        ("outcome", {"linear", "linear-log", "shallow", "forest"}),
        ("grade", {"linear", "forest", "boosting"}),
    ):
        out = tmp_path / f"{target}.dco"
        told = dco.json("fit", home / "rows.csv", "--target", target, "--out", out)
        found = {row["name"].split(" / ")[0] for row in told["ranking"]}
        assert {name for name in found if not name.startswith("average of")} == models
        assert told["failed"] == {}
        assert told["certificate"]["rows"] == {"train": 240, "tune": 0, "calibrate": 80}  # few rows: folds


def test_a_list_may_be_given_in_parts(dco, home, tmp_path):
    lists = ("--models", "linear", "--models", "linear-log", "--scores", "absolute", "--scores", "transformed")
    told = dco.json("fit", home / "rows.csv", "--target", "outcome", *lists, "--out", tmp_path / "m.dco")
    found = {row["name"] for row in told["ranking"]}
    assert {f"{model} / AbsoluteResidual" for model in ("linear", "linear-log")} < found
    assert any("Transformed" in name for name in found)


def test_preparation_is_fitted_without_calibration_rows(home):
    """The medians inside the winner are those of training and tuning rows, and not those of all rows."""
    model = library.load(home / "numbers.dco")
    frame = pd.read_csv(home / "rows.csv")
    imputer = model.predictor_.structure.model["columns"].named_transformers_["numbers"]["impute"]
    seen = np.concatenate([model.splits_.train, model.splits_.tune])
    np.testing.assert_array_equal(imputer.statistics_, frame[["age", "dose"]].iloc[seen].median())
    assert not np.array_equal(imputer.statistics_, frame[["age", "dose"]].median())


def test_confidence_is_one_minus_alpha(dco, home, tmp_path):
    fit(dco, home / "rows.csv", tmp_path / "a.dco", "--alpha", "0.2")
    fit(dco, home / "rows.csv", tmp_path / "b.dco", "--confidence", "80%")
    first, second = (library.load(tmp_path / name).certificate_ for name in ("a.dco", "b.dco"))
    assert first.thresholds == second.thresholds
    assert first.alpha == second.alpha == 0.2
    told = dco("fit", home / "rows.csv", "--target", "grade", "--alpha", "0.1", "--confidence", "0.9", status=2)
    assert "give one of them" in told.output


def test_groups_stay_together_and_are_no_feature(dco, home, tmp_path):
    fit(dco, home / "rows.csv", tmp_path / "m.dco", "--groups", "patient")
    model = library.load(tmp_path / "m.dco")
    patient = pd.read_csv(home / "rows.csv")["patient"].to_numpy()
    train, tune, calibrate = (set(patient[model.splits_[role]]) for role in ("train", "tune", "calibrate"))
    assert not train & calibrate
    assert not tune & calibrate
    assert not train & tune
    assert "patient" not in model.feature_names_in_
    assert "new group" in model.certificate_.statement


def test_condition_on_gives_a_threshold_for_each_value_missing_ones_included(dco, home, tmp_path):
    fit(dco, home / "rows.csv", tmp_path / "m.dco", "--condition-on", "ward", "--calibrate-size", 150)
    model = library.load(tmp_path / "m.dco")
    assert {entry.group for entry in model.certificate_.thresholds} == {"A1", "B2", "C3", "(missing)"}
    out = tmp_path / "sets.csv"
    dco("predict", tmp_path / "m.dco", home / "new.csv", "--out", out)
    by_ward = pd.read_csv(out)["size"].round(9).groupby(pd.read_csv(home / "new.csv")["ward"].fillna("(missing)")).nunique()
    assert (by_ward == 1).all(), "one width a ward: an absolute residual with a threshold for each"


def test_condition_on_several_columns_covers_groups_that_overlap(dco, home, tmp_path):
    given = ("--condition-on", "ward", "--condition-on", "site", "--calibrate-size", 150, "--test-size", 60)
    told = fit(dco, home / "rows.csv", tmp_path / "m.dco", *given).output
    groups = {f"ward={value}" for value in ("A1", "B2", "C3", "(missing)")} | {
        f"site={at}" for at in ("north", "south", "east")
    }
    model = library.load(tmp_path / "m.dco")
    assert {name for name, _ in model.certificate_.groups} == groups
    assert "they overlap; the guarantee holds in each group" in " ".join(told.split())
    dco("audit", tmp_path / "m.dco", "--data", home / "rows.csv")
    for by in ((), ("--by", "site")):
        found = dco.json("evaluate", tmp_path / "m.dco", home / "new.csv", *by)
        assert {row["group"] for row in found["by_group"]} == groups
    refused = ("fit", home / "rows.csv", "--target", "grade", "--condition-on", "grade", "--condition-on", "site")
    assert "which stands alone" in dco.refuses(*refused, "--out", tmp_path / "n.dco")
    assert "No PAC statement is known" in dco.refuses(
        "fit", home / "rows.csv", "--target", "outcome", *given, "--guarantee", "pac", "--out", tmp_path / "n.dco"
    )


def test_condition_on_the_target_gives_a_threshold_for_each_class(dco, home, tmp_path):
    rows, model = home / "rows.csv", tmp_path / "m.dco"
    common = ("--drop", "outcome", "--drop", "patient", "--models", "linear", "--calibrate-size", 150)
    told = dco("fit", rows, "--target", "grade", "--condition-on", "grade", *common, "--report", tmp_path / "r.html",
               "--test-size", 60, "--out", model)  # fmt: skip
    certificate = library.load(model).certificate_
    assert {entry.group for entry in certificate.thresholds} == {"low", "mid", "high"}
    assert certificate.statement in " ".join(told.output.split())
    dco("predict", model, home / "new.csv", "--ignore-new", "--out", tmp_path / "sets.csv")
    X = features(
        read_table(home / "new.csv"), Layout.from_plain(library.load(model).table_["layout"]), path=home / "new.csv"
    )
    wanted = library.load(model).predict_set(X)
    assert pd.read_csv(tmp_path / "sets.csv")["size"].tolist() == wanted.sizes().tolist()
    told = dco.json("evaluate", model, home / "new.csv")
    assert {row["group"] for row in told["by_group"]} == {"low", "mid", "high"}
    dco("audit", model, "--data", rows)


def test_rare_classes_share_a_threshold_on_request(dco, home, tmp_path):
    common = ("--drop", "outcome", "--drop", "patient", "--models", "linear", "--condition-on", "label-clusters")
    dco("fit", home / "rows.csv", "--target", "grade", *common, "--out", tmp_path / "m.dco")
    certificate = library.load(tmp_path / "m.dco").certificate_
    assert certificate.condition_on.startswith("'label-clusters': [[")
    assert sorted(label for entry in certificate.thresholds for label in entry.group.split(", ")) == ["high", "low", "mid"]
    found = dco.json("evaluate", tmp_path / "m.dco", home / "new.csv", "--by", "grade")
    assert {row["group"] for row in found["by_group"]} == {"low", "mid", "high"}


def test_a_feature_called_label_is_not_taken_for_the_classes(dco, home, tmp_path):
    pd.read_csv(home / "rows.csv").rename(columns={"site": "label"}).to_csv(tmp_path / "t.csv", index=False)
    for target in ("grade", "outcome"):
        fitting = ("fit", tmp_path / "t.csv", "--target", target, "--condition-on", "label", "--out", tmp_path / "m.dco")
        assert "another name" in dco.refuses(*fitting)


def test_rows_set_aside_are_evaluated_by_group_and_not_fitted(dco, home, tmp_path):
    told = json.loads(fit(dco, home / "rows.csv", tmp_path / "m.dco", "--by", "site", "--test-size", "80", "--json").output)
    assert told["evaluation"]["n"] == 80
    assert {row["group"] for row in told["evaluation"]["by_group"]} == {"north", "south", "east"}
    assert sum(told["certificate"]["rows"].values()) == 240
    dco("audit", tmp_path / "m.dco", "--data", home / "rows.csv")  # calibration rows are found again in the whole table


@pytest.mark.parametrize(("again", "models"), [("rows.csv", "forest"), ("rows.parquet", "linear")])
def test_the_same_seed_and_rows_give_the_same_model_whatever_the_file(dco, home, tmp_path, again, models):
    for name, table in (("a", "rows.csv"), ("b", again)):
        dco("fit", home / table, "--target", "grade", "--models", models, "--seed", 5, "--out", tmp_path / name)
    a, b = (library.load(tmp_path / name).certificate_ for name in "ab")
    assert a.row_fingerprints == b.row_fingerprints
    assert a.thresholds == b.thresholds
    assert a.scores_fingerprint == b.scores_fingerprint


BAD = {
    "--target outcom": "no column 'outcom'.*did you mean 'outcome'",
    "--target outcome --models linear,magic": "names 'magic'",
    "--target outcome --scores lac": "names 'lac'",
    "--target outcome --groups nobody": "no column 'nobody'",
    "--target outcome --condition-on outcome": "'outcome' is a quantity here; name a feature",
    "--target grade --condition-on patient --drop patient": "must be the target or a column that the models may use",
    "--target outcome --tune-size 200 --calibrate-size 200": "more than there is",
    "--target outcome --alpha -0.5": r"strictly between 0 and 1\.$",
    "--target outcome --confidence 90": r"between 0 and 1\. Did you mean 90%\?$",
    "--target outcome --alpha 10": r"between 0 and 1\. Did you mean 10%\?$",
    "--target outcome --alpha 90": r"For 90 % coverage, use --alpha 0\.1 or --confidence 0\.9\.$",
    "--target outcome --out nowhere/m.dco": "no folder nowhere",
    "--target grade --task regression": "a regression needs numbers",
    "--target outcome --out x.html --report x.html": "both name x.html",
    "--target outcome --groups patient --condition-on site": "--groups and --condition-on cannot be combined",
    "--target outcome --test-size 319": "--test-size 319 of 320 rows leaves 1 to fit on",
    "--target outcome --test-size 0 --by site": "--test-size 0 sets none aside",
    "--target outcome --models linear --scores quantile": "Quantiles come from --models quantiles",
    "--target outcome --tune-folds 3 --tune-size 50": "leave --tune-size out",
}


@pytest.mark.parametrize("options", BAD)
def test_bad_input_is_one_sentence_and_writes_nothing(dco, home, tmp_path, monkeypatch, options):
    monkeypatch.chdir(tmp_path)
    told = dco.refuses("fit", home / "rows.csv", *options.split())
    assert re.search(BAD[options], told)
    assert "Something unexpected" not in told
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x,y\n" + "1,a\n" * 40, "one class only"),
        ("x,y\n1,0.5\n2,0.75\n", "n_samples=2|too few|leaves"),
        ("y\n" + "0.5\n0.25\n" * 20, "no column left"),
        ("x,y\n" + "1,0.5\n" * 20 + "1,\n", "is missing in 1 row "),
    ],
)
def test_tables_that_cannot_be_fitted(dco, tmp_path, text, words):
    (tmp_path / "t.csv").write_text(text)
    told = dco("fit", tmp_path / "t.csv", "--target", "y", "--out", tmp_path / "m.dco", status=2)
    assert re.search(words, told.output), told.output
    assert "Something unexpected" not in told.output
    assert not (tmp_path / "m.dco").exists()


def test_nothing_is_overwritten_unasked(dco, home, tmp_path):
    (tmp_path / "m.dco").write_text("mine")
    assert "--force" in fit(dco, home / "rows.csv", tmp_path / "m.dco", status=2).output
    assert (tmp_path / "m.dco").read_text() == "mine"
    fit(dco, home / "rows.csv", tmp_path / "m.dco", "--force")
    assert library.load(tmp_path / "m.dco").best_candidate_


def test_too_few_rows_for_the_level_is_a_note(dco, home, tmp_path):
    told = fit(dco, home / "rows.csv", tmp_path / "m.dco", "--alpha", "0.001")
    assert "too few for alpha = 0.001" in told.output


def test_of_two_fits_into_one_file_the_first_is_kept(dco, home, tmp_path, monkeypatch):
    import dco.cli.fit as module

    whole, out, certificate = module.fit_table, tmp_path / "m.dco", tmp_path / "c.json"

    def beaten(*arguments: Any, **options: Any) -> Any:
        fitted = whole(*arguments, **options)
        out.write_text("the model of another run")
        return fitted

    monkeypatch.setattr(module, "fit_table", beaten)
    arguments = ("fit", home / "rows.csv", "--target", "outcome", "--models", "linear", "--out", out)
    assert "meanwhile and is kept" in dco.refuses(*arguments, "--certificate", certificate)
    assert out.read_text() == "the model of another run"
    assert not certificate.exists()
    assert f"Wrote {out}." in dco(*arguments, "--force").output


def test_how_columns_are_read_is_said_and_decimal_commas_travel_with_the_model(dco, home, tmp_path):
    for name in ("rows", "new"):
        frame = pd.read_csv(home / f"{name}.csv").drop(columns=["grade", "patient"])
        frame.to_csv(tmp_path / f"{name}.csv", index=False, sep=";", decimal=",")
        frame.to_csv(tmp_path / f"{name}_points.csv", index=False)
    common = ("--target", "outcome", "--models", "linear", "--out")
    told = dco.refuses("fit", tmp_path / "rows.csv", *common, tmp_path / "x.dco")
    assert "the target 'outcome' looks like numbers with decimal commas" in told
    told = dco("fit", tmp_path / "rows.csv", "--decimal", ",", *common, tmp_path / "m.dco").output
    said = "Numbers: age, dose; categories: site (3 values), ward (3 values)."
    assert said in told
    dco("fit", tmp_path / "rows_points.csv", *common, tmp_path / "p.dco")
    dco("predict", tmp_path / "m.dco", tmp_path / "new.csv", "--out", tmp_path / "m.csv")
    dco("predict", tmp_path / "m.dco", tmp_path / "new_points.csv", "--decimal", ".", "--out", tmp_path / "mp.csv")
    dco("predict", tmp_path / "p.dco", tmp_path / "new_points.csv", "--out", tmp_path / "p.csv")
    assert (tmp_path / "m.csv").read_bytes() == (tmp_path / "p.csv").read_bytes() == (tmp_path / "mp.csv").read_bytes()
    assert dco("evaluate", tmp_path / "m.dco", tmp_path / "new.csv", "--json").output == (
        dco("evaluate", tmp_path / "m.dco", tmp_path / "new_points.csv", "--decimal", ".", "--json").output
    )
    dco("audit", tmp_path / "m.dco", "--data", tmp_path / "rows.csv")
    dco("audit", tmp_path / "m.dco", "--data", tmp_path / "rows_points.csv", "--decimal", ".")
    as_json = dco("fit", home / "rows.csv", *common, tmp_path / "j.dco", "--drop", "grade", "--drop", "patient", "--json")
    found = json.loads(as_json.output)["columns"]
    assert found == {"numbers": ["age", "dose"], "dates": [], "categories": {"site": 3, "ward": 3}}


def test_each_row_may_take_its_own_candidate(dco, home, tmp_path):
    out, page = tmp_path / "m.dco", tmp_path / "m.html"
    said = fit(dco, home / "rows.csv", out, "--selection", "pointwise", "--report", page, "--test-size", 0.2).output
    assert "pointwise / " in said
    assert "the smallest set at each x" in " ".join(said.split())
    assert "pointwise / " in page.read_text(encoding="utf-8")
    assert dco.json("audit", out, "--data", home / "rows.csv")["holds"]


def test_one_model_and_one_score_need_no_tuning_rows(dco, home, tmp_path):
    out, page = tmp_path / "m.dco", tmp_path / "m.html"
    said = fit(dco, home / "rows.csv", out, "--scores", "absolute", "--tune-size", 0, "--report", page).output
    assert "the only candidate" in said
    assert "on the tuning rows" not in said
    assert "nothing was compared" in page.read_text(encoding="utf-8")
    assert dco.json("audit", out, "--data", home / "rows.csv")["holds"]


@pytest.mark.parametrize("fails", ["flush", "name"])
def test_all_outputs_are_replaced_or_none(fails, dco, home, tmp_path, monkeypatch):
    """The disk of the certificate is full, or refuses it at the last moment: all three outputs stay as they were."""
    outputs = [tmp_path / name for name in ("m.dco", "c.json", "r.html")]
    arguments = ("fit", home / "rows.csv", "--target", "outcome", "--drop", "grade", "--models", "linear", "--force")
    for option, path in zip(("--out", "--certificate", "--report"), outputs, strict=True):
        arguments += (option, path)
    dco(*arguments)
    before = [path.read_bytes() for path in outputs]
    flush, rename = os.fsync, os.replace

    def full(file: int) -> None:
        if os.readlink(f"/proc/self/fd/{file}").startswith(str(tmp_path / ".c.json.")):
            raise OSError(errno.ENOSPC, "No space left on device")
        flush(file)

    def refused(source: Path, target: Path) -> None:
        if target == outputs[1]:
            raise OSError(errno.EIO, "Input/output error")
        rename(source, target)

    with monkeypatch.context() as disk:
        disk.setattr(os, *(("fsync", full) if fails == "flush" else ("replace", refused)))
        told = dco.refuses(*arguments, "--seed", 5)
    assert "no space left" in told if fails == "flush" else "Input/output error" in told
    assert [path.read_bytes() for path in outputs] == before
    assert sorted(tmp_path.iterdir()) == sorted(outputs)
    dco("audit", outputs[0], "--certificate", outputs[1])
    dco(*arguments, "--seed", 5)
    assert all(path.read_bytes() != old for path, old in zip(outputs, before, strict=True))
    dco("audit", outputs[0], "--certificate", outputs[1])


def test_force_replaces_no_pipe(dco, home, tmp_path):
    """Nor does it tell the user to say --force where that is not said."""
    pipe = tmp_path / "m.dco"
    os.mkfifo(pipe)
    for force in ([], ["--force"]):
        told = dco.refuses("fit", home / "rows.csv", "--target", "outcome", "--out", pipe, *force)
        assert "is a pipe, and only a regular file is replaced; choose another name." in " ".join(told.split())
    assert pipe.is_fifo()


def test_a_long_ranking_does_not_flood_the_terminal(dco, home, tmp_path):
    models = ("--models", "linear,forest", "--out", tmp_path / "m.dco")
    told = dco("fit", home / "rows.csv", "--target", "grade", *models).output
    count = int(told.partition(" candidates on the tuning rows")[0].split()[-1])
    assert count > 8
    assert f"and {count - 8} more: --json lists them all." in told
    assert len(told.splitlines()) < 45
    assert max(map(len, told.partition("best first")[2].partition("and ")[0].splitlines())) <= 80


def test_the_objective_is_an_option_of_fit_and_compare(dco, home, tmp_path):
    told = dco.json(
        *("fit", home / "rows.csv", "--target", "outcome", "--models", "linear", "--objective", "even"),
        *("--by", "site", "--out", tmp_path / "m.dco"),
    )
    assert told["certificate"]["selection"].startswith("smallest mean size among even structures")
    assert {"objective", "shortfall"} <= told["ranking"][0].keys()
    assert library.load(tmp_path / "m.dco").objective == library.objectives.Even(by=("site",))
    assert "smallest P95 size" in fit(dco, home / "rows.csv", tmp_path / "p.dco", "--objective", "p95_size").output
    assert "mean_size" in dco.refuses("fit", home / "rows.csv", "--target", "outcome", "--objective", "smallest")
    order = ("compare", home / "rows.csv", "--target", "outcome", "--models", "linear", "--splits", 1)
    assert dco.json(*order, "--objective", "p95_size", "--hold-out", 0.3, "--out", tmp_path / "c")["next"].endswith(
        "--objective p95_size"
    )


def test_rows_without_a_target_are_left_out_on_request_everywhere(dco, home, tmp_path):
    """The fit, its audit and an evaluation leave them out alike, and count them."""
    frame = pd.read_csv(home / "rows.csv").drop(columns=["grade", "patient"])
    frame.loc[::10, "outcome"] = np.nan
    rows, model = tmp_path / "gaps.csv", tmp_path / "m.dco"
    frame.to_csv(rows, index=False)
    fit = ("fit", rows, "--target", "outcome", "--models", "linear", "--out", model)
    assert "remove such rows, or fit with --drop-missing-target." in dco.refuses(*fit)
    told = dco.json(*fit, "--drop-missing-target")
    assert "32 rows of 320 without a target are left out." in told["notes"]
    assert sum(told["certificate"]["rows"].values()) == 288
    assert "Everything that was recomputed holds." in dco("audit", model, "--data", rows).stdout
    new = pd.read_csv(home / "new.csv").drop(columns=["grade", "patient"])
    new.loc[:4, "outcome"] = np.nan
    new.to_csv(tmp_path / "new.csv", index=False)
    found = dco.json("evaluate", model, tmp_path / "new.csv")
    assert found["n"] == 195
    assert "5 rows of 200 without a target are left out." in found["notes"]


@pytest.mark.parametrize("alpha", [0.5, 0.9])
def test_an_alpha_above_one_half_is_confirmed_by_a_note(dco, home, tmp_path, alpha):
    fit = ("fit", home / "rows.csv", "--target", "outcome", "--drop", "grade", "--drop", "patient", "--models", "linear")
    notes = dco.json(*fit, "--alpha", alpha, "--out", tmp_path / "m.dco")["notes"]
    said = [text for text in notes if "only 0.1 is promised. For coverage 0.9, use --alpha 0.1." in text]
    assert len(said) == (alpha == 0.9)
    notes = dco.json("evaluate", home / "numbers.dco", home / "new.csv", "--ignore-new", "--alpha", alpha)["notes"]
    assert len([text for text in notes if "use --alpha 0.1" in text]) == (alpha == 0.9)
    planned = dco("plan", "--rows", 300, "--alpha", alpha)
    assert planned.stderr.count("use --alpha 0.1") == sum("use --alpha" in text for text in notes)
    assert sum("use --alpha" in text for text in dco.json("plan", "--rows", 300, "--alpha", alpha)["notes"]) == (
        alpha == 0.9
    )


def test_words_say_even_only_of_structures_that_are(dco, home, tmp_path):
    """The spread follows the dose: sets of one width for all rows leave the fifth of the largest predictions behind."""
    rng = np.random.default_rng(0)
    dose = rng.uniform(0, 5, size=600)
    rows = pd.DataFrame({"dose": dose, "outcome": dose + dose**2 * rng.normal(size=600) / 5})
    rows.to_csv(tmp_path / "rows.csv", index=False)
    wide = fit(dco, tmp_path / "rows.csv", tmp_path / "m.dco", "--scores", "absolute", "--json").output
    told = json.loads(wide)
    assert all(row["shortfall"] > 0 for row in told["ranking"])
    assert told["certificate"]["selection"].startswith("the least shortfall, since no structure is even, on")


def test_what_few_rows_and_a_range_need_is_said_in_options(dco, home, tmp_path):
    rows, fit = tmp_path / "few.csv", ("--out", tmp_path / "m.dco", "--target")
    pd.read_csv(home / "rows.csv")[["dose", "outcome", "grade"]][:12].to_csv(rows, index=False)
    told = dco.refuses("fit", rows, *fit, "outcome", "--calibrate-size", 9)
    assert "3 rows to train and tune on cannot make 5 folds: lower --calibrate-size or --tune-folds" in told
    one = ("--models", "linear", "--scores", "absolute", "--tune-size", 0)  # which the message names
    assert dco.json("fit", rows, *fit, "outcome", "--calibrate-size", 9, *one)["certificate"]["rows"]["calibrate"] == 9
    told = dco.refuses("fit", rows, "--force", *fit, "outcome", "--range", 5, 1)
    assert "--range must be a pair, the lower number first, as in --range 0 inf" in told
    assert "--range is for numbers" in dco.refuses("fit", rows, "--force", *fit, "grade", "--range", 0, 1)
