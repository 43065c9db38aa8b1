"""dco fit: the task is said, roles stay apart, preparation sees no calibration row, and bad input
is told.
"""

import errno
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dco as library
from dco.cli.tables.fitted import StoredTable

from .conftest import read_as_the_fit


@pytest.fixture
def words(home, tmp_path):
    """``words(*more)``: a fit of the linear models on rows.csv, as it is written on the command
    line.
    """

    def written(
        *more: Any, target: str = "outcome", out: str = "m.dco", data: Path = home / "rows.csv"
    ) -> tuple[Any, ...]:
        return (
            "fit",
            data,
            "--target",
            target,
            "--models",
            "linear",
            "--out",
            tmp_path / out,
            *more,
        )

    return written


@pytest.fixture
def fitted(dco, words, tmp_path):
    """``fitted(*more)``: what such a fit prints as JSON, and the model."""

    def fit(*more: Any, out: str = "m.dco", **others: Any) -> tuple[Any, Any]:
        return dco.json(*words(*more, out=out, **others)), library.load(tmp_path / out)

    return fit


ALONE = ("--drop", "outcome", "--drop", "patient", "--calibrate-size", 150)  # for the target grade
HONEST = "Everything that was recomputed holds."


def test_it_says_the_task_the_candidates_and_the_guarantee(dco, words, tmp_path):
    printed = dco(*words()).output
    assert "Task: regression" in printed
    assert "linear / AbsoluteResidual" in printed
    assert "contains the true value with probability at least 90 %" in printed
    assert StoredTable.of(library.load(tmp_path / "m.dco")).layout.target == "outcome"


@pytest.mark.parametrize(
    ("target", "models"),
    [
        ("outcome", {"linear", "linear-log", "shallow", "forest"}),
        ("grade", {"linear", "forest", "boosting"}),
    ],
)
def test_default_candidates_are_named_and_all_work(dco, home, tmp_path, target, models):
    """Missing numbers, missing texts and categories reach every default model."""
    told = dco.json("fit", home / "rows.csv", "--target", target, "--out", tmp_path / "m.dco")
    found = {row["name"].split(" / ")[0] for row in told["ranking"]}
    assert {name for name in found if not name.startswith("average of")} == models
    assert told["failed"] == {}
    # few rows: folds
    assert told["certificate"]["provenance"]["rows"] == {"train": 240, "tune": 0, "calibrate": 80}


def test_a_list_may_be_given_in_parts(fitted):
    told, _ = fitted("--models", "linear-log", "--scores", "absolute", "--scores", "transformed")
    found = {row["name"] for row in told["ranking"]}
    assert {f"{model} / AbsoluteResidual" for model in ("linear", "linear-log")} < found
    assert any("Transformed" in name for name in found)


def test_preparation_is_fitted_without_calibration_rows(home):
    """The medians inside the winner are those of training and tuning rows, and not those of all
    rows.
    """
    model, frame = library.load(home / "numbers.dco"), pd.read_csv(home / "rows.csv")
    imputer = model.predictor_.structure.model["columns"].named_transformers_["numbers"]["impute"]
    seen = np.concatenate([model.splits_.train, model.splits_.tune])
    np.testing.assert_array_equal(imputer.statistics_, frame[["age", "dose"]].iloc[seen].median())
    assert not np.array_equal(imputer.statistics_, frame[["age", "dose"]].median())


def test_confidence_is_one_minus_alpha(dco, words, fitted):
    first, second = (
        fitted(*level)[1].certificate_
        for level in (("--alpha", "0.2"), ("--confidence", "80%", "--force"))
    )
    assert first.thresholds == second.thresholds
    assert first.alpha == second.alpha == 0.2
    assert "give one of them" in dco.refuses(*words("--alpha", "0.1", "--confidence", "0.9"))


def test_groups_stay_together_and_are_no_feature(home, fitted):
    _, model = fitted("--groups", "patient")
    patient = pd.read_csv(home / "rows.csv")["patient"].to_numpy()
    train, tune, calibrate = (
        set(patient[model.splits_[role]]) for role in ("train", "tune", "calibrate")
    )
    assert len(train) + len(tune) + len(calibrate) == len(train | tune | calibrate)
    assert "patient" not in model.feature_names_in_
    assert "new group" in model.certificate_.statement


def test_condition_on_gives_a_threshold_for_each_value_missing_ones_included(
    dco, home, tmp_path, new, fitted
):
    _, model = fitted("--condition-on", "ward", "--calibrate-size", 150)
    assert {entry.group for entry in model.certificate_.thresholds} == {
        "A1",
        "B2",
        "C3",
        "(missing)",
    }
    dco("predict", tmp_path / "m.dco", home / "new.csv", "--out", tmp_path / "sets.csv")
    sizes = pd.read_csv(tmp_path / "sets.csv")["size"].round(9)
    by_ward = sizes.groupby(new["ward"].fillna("(missing)")).nunique()
    assert (by_ward == 1).all(), "one width a ward: an absolute residual with a threshold for each"


def test_condition_on_several_columns_covers_groups_that_overlap(dco, home, tmp_path, words):
    given = (
        "--condition-on",
        "ward",
        "--condition-on",
        "site",
        "--calibrate-size",
        150,
        "--test-size",
        60,
    )
    told = dco(*words(*given)).output
    groups = {f"ward={value}" for value in ("A1", "B2", "C3", "(missing)")}
    groups |= {f"site={at}" for at in ("north", "south", "east")}
    assert "they overlap; the guarantee holds in each" in " ".join(told.split())
    dco("audit", tmp_path / "m.dco", "--data", home / "rows.csv")
    for by in ((), ("--by", "site")):
        found = dco.json("evaluate", tmp_path / "m.dco", home / "new.csv", *by)
        assert {row["group"] for row in found["by_condition"]} == groups
    assert "No PAC statement is known" in dco.refuses(
        *words(*given, "--guarantee", "pac", out="n.dco")
    )


def test_condition_on_the_target_gives_a_threshold_for_each_class(dco, home, tmp_path, words):
    rows, out = home / "rows.csv", tmp_path / "m.dco"
    given = ("--condition-on", "grade", "--report", tmp_path / "r.html", "--test-size", 60)
    told = dco(*words(*ALONE, *given, target="grade"))
    model = library.load(out)
    assert {entry.group for entry in model.certificate_.thresholds} == {"low", "mid", "high"}
    assert model.certificate_.statement in " ".join(told.output.split())
    dco("predict", out, home / "new.csv", "--ignore-new", "--out", tmp_path / "sets.csv")
    X = read_as_the_fit(model, home / "new.csv")
    assert (
        pd.read_csv(tmp_path / "sets.csv")["size"].tolist() == model.predict_set(X).sizes().tolist()
    )
    told = dco.json("evaluate", out, home / "new.csv")
    assert {row["group"] for row in told["by_condition"]} == {"low", "mid", "high"}
    dco("audit", out, "--data", rows)


def test_rare_classes_share_a_threshold_on_request(dco, home, tmp_path, fitted):
    _, model = fitted(*ALONE[:-2], "--condition-on", "label-clusters", target="grade")
    assert model.certificate_.calibration.condition_on.startswith("'label-clusters': [[")
    shared = [label for entry in model.certificate_.thresholds for label in entry.group.split(", ")]
    assert sorted(shared) == ["high", "low", "mid"]
    found = dco.json("evaluate", tmp_path / "m.dco", home / "new.csv", "--by", "grade")
    by_grade = {row["group"] for row in found["slices"] if row["by"] == "grade"}
    assert by_grade == {"low", "mid", "high"}


@pytest.mark.parametrize("target", ["grade", "outcome"])
def test_a_feature_called_label_is_not_taken_for_the_classes(dco, home, tmp_path, words, target):
    pd.read_csv(home / "rows.csv").rename(columns={"site": "label"}).to_csv(
        tmp_path / "t.csv", index=False
    )
    assert "another name" in dco.refuses(
        *words("--condition-on", "label", target=target, data=tmp_path / "t.csv")
    )


def test_rows_set_aside_are_evaluated_by_group_and_not_fitted(dco, home, tmp_path, fitted):
    told, _ = fitted("--by", "site", "--test-size", "80")
    assert told["evaluation"]["n"] == 80
    assert {row["group"] for row in told["evaluation"]["slices"] if row["by"] == "site"} == {
        "north",
        "south",
        "east",
    }
    assert sum(told["certificate"]["provenance"]["rows"].values()) == 240
    # calibration rows are found again in the whole table
    dco("audit", tmp_path / "m.dco", "--data", home / "rows.csv")


@pytest.mark.parametrize(("again", "models"), [("rows.csv", "forest"), ("rows.parquet", "linear")])
def test_the_same_seed_and_rows_give_the_same_model_whatever_the_file(
    dco, home, tmp_path, again, models
):
    for name, table in (("a", "rows.csv"), ("b", again)):
        dco(
            "fit",
            home / table,
            "--target",
            "grade",
            "--models",
            models,
            "--seed",
            5,
            "--out",
            tmp_path / name,
        )
    a, b = (library.load(tmp_path / name).certificate_ for name in "ab")
    assert a.provenance.row_fingerprints == b.provenance.row_fingerprints
    assert a.thresholds == b.thresholds
    assert a.provenance.scores_fingerprint == b.provenance.scores_fingerprint


BAD = {
    "--target outcom": "no column 'outcom'.*did you mean 'outcome'",
    "--target outcome --models linear,magic": "no default model 'magic' for regression",
    "--target outcome --scores lac": "names 'lac'",
    "--target outcome --groups nobody": "no column 'nobody'",
    "--target outcome --condition-on outcome": "'outcome' is a quantity here; name a feature",
    "--target grade --condition-on patient --drop patient": "must be the target or a column that "
    "the models may use",
    "--target grade --condition-on grade --condition-on site": "which stands alone",
    "--target outcome --tune-size 200 --calibrate-size 200": "more than there is",
    "--target outcome --alpha -0.5": r"strictly between 0 and 1\.$",
    "--target outcome --confidence 90": r"between 0 and 1\. Did you mean 90%\?$",
    "--target outcome --alpha 10": r"between 0 and 1\. Did you mean 10%\?$",
    "--target outcome --alpha 90": r"For 90 % coverage, use --alpha 0\.1 or --confidence 0\.9\.$",
    "--target outcome --out nowhere/m.dco": "no folder nowhere",
    "--target grade --task regression": "a regression needs numbers",
    "--target outcome --out x.html --report x.html": "both name x.html",
    "--target outcome --report report.pdf": "report.pdf must end in .html",
    "--target outcome --groups patient --condition-on site": "--groups cannot be combined with",
    "--target outcome --test-size 319": "--test-size 319 of 320 rows leaves 1 to fit on",
    "--target outcome --test-size 0 --by site": "--test-size 0 sets none aside",
    "--target outcome --models linear --scores quantile": "Quantiles come from --models quantiles",
    "--target outcome --tune-folds 3 --tune-size 50": "leave --tune-size out",
    "--target outcome --objective smallest": "mean_size",
    "--target outcome --range 5 1": "--range must be a pair, the lower number first, as in "
    "--range 0 inf",
    "--target grade --range 0 1": "--range is for numbers",
    "--target outcome --delta 0.1": "--delta belongs to --guarantee pac",
}


@pytest.mark.parametrize("options", BAD)
def test_bad_input_is_one_sentence_and_writes_nothing(dco, home, tmp_path, monkeypatch, options):
    monkeypatch.chdir(tmp_path)
    told = dco.refuses("fit", home / "rows.csv", *options.split())
    assert re.search(BAD[options], told)
    assert "Something unexpected" not in told
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x,y\n" + "1,a\n" * 40, "one class only"),
        ("x,y\n1,0.5\n2,0.75\n", "n_samples=2|too few|leaves"),
        ("y\n" + "0.5\n0.25\n" * 20, "no column left"),
        ("x,y\n" + "1,0.5\n" * 20 + "1,\n", "is missing in 1 row "),
    ],
)
def test_tables_that_cannot_be_fitted(dco, tmp_path, text, said):
    (tmp_path / "t.csv").write_text(text)
    told = dco.refuses("fit", tmp_path / "t.csv", "--target", "y", "--out", tmp_path / "m.dco")
    assert re.search(said, told)
    assert "Something unexpected" not in told
    assert not (tmp_path / "m.dco").exists()


def test_too_few_rows_for_the_level_is_a_note(dco, words):
    assert "too few for alpha = 0.001" in dco(*words("--alpha", "0.001")).output


def test_of_two_fits_into_one_file_the_first_is_kept(dco, tmp_path, words, monkeypatch):
    import dco.cli.fitting as module

    whole, out, certificate = module.fit_table, tmp_path / "m.dco", tmp_path / "c.json"

    def beaten(*arguments: Any, **options: Any) -> Any:
        fitted = whole(*arguments, **options)
        out.write_text("the model of another run")
        return fitted

    monkeypatch.setattr(module, "fit_table", beaten)
    assert "meanwhile and is kept" in dco.refuses(*words("--certificate", certificate))
    assert "--force" in dco.refuses(*words())
    assert out.read_text() == "the model of another run"
    assert not certificate.exists()
    assert f"Wrote {out}." in dco(*words("--force")).output


def test_how_columns_are_read_is_said_and_decimal_commas_travel_with_the_model(
    dco, home, tmp_path, words
):
    for name in ("rows", "new"):
        frame = pd.read_csv(home / f"{name}.csv").drop(columns=["grade", "patient"])
        frame.to_csv(tmp_path / f"{name}.csv", index=False, sep=";", decimal=",")
        frame.to_csv(tmp_path / f"{name}_points.csv", index=False)
    commas, points = ({"data": tmp_path / f"rows{kind}.csv"} for kind in ("", "_points"))
    assert "the target 'outcome' looks like numbers with decimal commas" in dco.refuses(
        *words(**commas)
    )
    told = dco(*words("--decimal", ",", **commas)).output
    assert "Numbers: age, dose; categories: site (3 values), ward (3 values)." in told
    found = dco.json(*words(out="p.dco", **points))["columns"]
    assert found == {"numbers": ["age", "dose"], "dates": [], "categories": {"site": 3, "ward": 3}}
    written, evaluated = [], []
    model, new, own = tmp_path / "m.dco", tmp_path / "new.csv", tmp_path / "new_points.csv"
    for arguments in ((model, new), (model, own, "--decimal", "."), (tmp_path / "p.dco", own)):
        dco("predict", *arguments, "--force", "--out", tmp_path / "sets.csv")
        written.append((tmp_path / "sets.csv").read_bytes())
        evaluated.append(dco.json("evaluate", *arguments)["coverage"])
    assert len(set(written)) == len(set(evaluated)) == 1
    dco("audit", model, "--data", commas["data"])
    dco("audit", model, "--data", points["data"], "--decimal", ".")


def test_the_only_candidate_is_not_compared(dco, home, tmp_path, words):
    options = ("--scores", "absolute", "--tune-size", 0, "--report", tmp_path / "m.html")
    printed = " ".join(dco(*words(*options)).output.split())
    assert "the only candidate" in printed
    assert "on the tuning rows" not in printed
    assert "nothing was compared" in (tmp_path / "m.html").read_text(encoding="utf-8")
    assert dco.json("audit", tmp_path / "m.dco", "--data", home / "rows.csv")["holds"]


@pytest.mark.parametrize("fails", ["flush", "name"])
def test_all_outputs_are_replaced_or_none(fails, dco, tmp_path, words, monkeypatch):
    """The disk of the certificate is full, or refuses it at the last moment: all three outputs stay
    as they were.
    """
    outputs = [tmp_path / name for name in ("m.dco", "c.json", "r.html")]
    arguments = words(
        "--drop", "grade", "--certificate", outputs[1], "--report", outputs[2], "--force"
    )
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


@pytest.mark.parametrize("force", [(), ("--force",)])
def test_force_replaces_no_pipe(dco, tmp_path, words, force):
    """Nor does it tell the user to say --force where that is not said."""
    os.mkfifo(tmp_path / "m.dco")
    assert "is a pipe, and only a regular file is replaced; choose another name." in dco.refuses(
        *words(*force)
    )
    assert (tmp_path / "m.dco").is_fifo()


def test_a_long_ranking_does_not_flood_the_terminal(dco, words):
    told = dco(*words("--models", "forest", target="grade")).output
    count = int(told.partition(" candidates on the tuning rows")[0].split()[-1])
    assert count > 8
    assert f"and {count - 8} more: --json lists them all." in told
    assert len(told.splitlines()) < 45
    assert max(map(len, told.partition("best first")[2].partition("and ")[0].splitlines())) <= 80


def test_the_objective_is_an_option_of_fit_and_compare(dco, home, tmp_path, words, fitted):
    told, model = fitted("--objective", "even", "--by", "site")
    assert told["certificate"]["structure"]["selection"].startswith(
        "smallest mean size among even structures"
    )
    assert {"objective", "shortfall"} <= told["ranking"][0].keys()
    assert model.objective == library.objectives.Even(by=("site",))
    assert "smallest P95 size" in dco(*words("--objective", "p95_size", "--force")).output
    order = (
        "compare",
        home / "rows.csv",
        "--target",
        "outcome",
        "--models",
        "linear",
        "--splits",
        1,
        "--hold-out",
        0.3,
    )
    assert dco.json(*order, "--objective", "p95_size", "--out", tmp_path / "c")["next"].endswith(
        "--objective p95_size"
    )


def test_rows_without_a_target_are_left_out_on_request_everywhere(dco, home, tmp_path, new, words):
    """The fit, its audit and an evaluation leave them out alike, and count them."""
    frame = pd.read_csv(home / "rows.csv").drop(columns=["grade", "patient"])
    frame.loc[::10, "outcome"] = np.nan
    rows, model = tmp_path / "gaps.csv", tmp_path / "m.dco"
    frame.to_csv(rows, index=False)
    assert "remove such rows, or fit with --drop-missing-target." in dco.refuses(*words(data=rows))
    told = dco.json(*words("--drop-missing-target", data=rows))
    assert "32 rows of 320 without a target are left out." in told["notes"]
    assert sum(told["certificate"]["provenance"]["rows"].values()) == 288
    assert HONEST in dco("audit", model, "--data", rows).stdout
    new.loc[:4, "outcome"] = np.nan
    new.drop(columns=["grade", "patient"]).to_csv(tmp_path / "new.csv", index=False)
    found = dco.json("evaluate", model, tmp_path / "new.csv")
    assert found["n"] == 195
    assert "5 rows of 200 without a target are left out." in found["notes"]


@pytest.mark.parametrize("alpha", [0.5, 0.9])
def test_an_alpha_above_one_half_is_confirmed_by_a_note(dco, home, words, alpha):
    evaluate = ("evaluate", home / "numbers.dco", home / "new.csv", "--ignore-new")
    for arguments in (
        words("--drop", "grade", "--drop", "patient"),
        evaluate,
        ("plan", "--rows", 300),
    ):
        notes = dco.json(*arguments, "--alpha", alpha)["notes"]
        said = [
            text
            for text in notes
            if "only 0.1 is promised. For coverage 0.9, use --alpha 0.1." in text
        ]
        assert len(said) == (alpha == 0.9)
        assert sum("use --alpha" in text for text in notes) == len(said)
    assert dco("plan", "--rows", 300, "--alpha", alpha).stderr.count("use --alpha 0.1") == (
        alpha == 0.9
    )


def test_words_say_even_only_of_structures_that_are(tmp_path, fitted):
    """The spread follows the dose: sets of one width for all rows leave the fifth of the largest
    predictions behind.
    """
    rng = np.random.default_rng(0)
    dose = rng.uniform(0, 5, size=600)
    rows = pd.DataFrame({"dose": dose, "outcome": dose + dose**2 * rng.normal(size=600) / 5})
    rows.to_csv(tmp_path / "rows.csv", index=False)
    candidates = ("--models", "forest", "--scores", "absolute")  # and the linear model
    told, _ = fitted(*candidates, data=tmp_path / "rows.csv")
    assert all(row["shortfall"] > 0 for row in told["ranking"])
    assert told["certificate"]["structure"]["selection"].startswith("the least shortfall")


def test_what_few_rows_need_is_said_in_options(dco, home, tmp_path):
    pd.read_csv(home / "rows.csv")[["dose", "outcome"]][:12].to_csv(
        tmp_path / "few.csv", index=False
    )
    fit = (
        "fit",
        tmp_path / "few.csv",
        "--target",
        "outcome",
        "--calibrate-size",
        9,
        "--out",
        tmp_path / "m.dco",
    )
    told = dco.refuses(*fit)
    assert "no row is left for the role train, with --tune-size 0.25 and --calibrate-size 9" in told
    # which the message names
    one = ("--models", "linear", "--scores", "absolute", "--tune-size", 0)
    assert dco.json(*fit, *one)["certificate"]["provenance"]["rows"]["calibrate"] == 9


def test_sets_do_not_depend_on_how_dates_are_written(dco, tmp_path):
    days = pd.date_range("2015-01-01", periods=200)
    frame = pd.DataFrame({"y": np.arange(200) + np.random.default_rng(0).normal(size=200)})
    forms = {"iso": "%Y-%m-%d", "slashes": "%m/%d/%Y", "early": "%d/%m/%Y"}
    for name, form in forms.items():
        frame.insert(0, "day", days.strftime(form))
        frame[: 12 if name == "early" else 200].to_csv(tmp_path / f"{name}.csv", index=False)
        del frame["day"]

    def sets(name, *options):
        model, out = tmp_path / f"{name}.dco", tmp_path / f"{name}-sets.csv"
        common = ("--target", "y", "--models", "linear", "--seed", 1, "--out", model)
        dco("fit", tmp_path / f"{name}.csv", *common, *options)
        dco("predict", model, tmp_path / f"{name}.csv", "--ignore-new", "--out", out)
        return out.read_text()

    assert sets("slashes") == sets("iso")
    told = dco.refuses("fit", tmp_path / "early.csv", "--target", "y")
    assert "the column 'day' has dates such as '01/01/2015'" in told
    assert "--dates day-first" in told
    assert len(sets("early", "--dates", "day-first").splitlines()) == 13
