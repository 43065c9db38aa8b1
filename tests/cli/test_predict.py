"""dco predict: the same sets as the estimator's, in order, whatever the format of the table."""

import hashlib
import io
import json
import re
import shutil
import subprocess
import sys
import zipfile

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression

import dco as library

from .conftest import features_of

READERS = {"csv": pd.read_csv, "parquet": pd.read_parquet, "feather": pd.read_feather}


@pytest.fixture
def numbers(home):
    return library.load(home / "numbers.dco")


@pytest.fixture
def labels(home):
    return library.load(home / "labels.dco")


@pytest.fixture
def predict(dco, home, tmp_path):
    """``predict("labels", *options)``: the sets that are written for new.csv, as a table."""

    def write(model, *options, data=home / "new.csv"):
        out = tmp_path / "sets.csv"
        dco("predict", home / f"{model}.dco", data, "--out", out, "--force", *options)
        return pd.read_csv(out, keep_default_na=False)

    return write


@pytest.fixture
def python_model(tmp_path):
    """``python_model(estimator, frame, y)``: the file of a model that was fitted in Python."""

    def fit(estimator, frame, y):
        library.save(estimator.fit(frame, y), tmp_path / "python.dco")
        return tmp_path / "python.dco"

    return fit


# --- the sets of the estimator --------------------------------------------------------------------


@pytest.mark.parametrize("source", ["new.csv", "new.parquet", "new.feather"])
@pytest.mark.parametrize("suffix", READERS)
def test_intervals_are_those_of_the_estimator(dco, home, tmp_path, new, numbers, source, suffix):
    out = tmp_path / f"sets.{suffix}"

    dco("predict", home / "numbers.dco", home / source, "--out", out, "--batch-rows", 37)

    written = READERS[suffix](out)
    X = features_of(numbers, new)
    sets = numbers.predict_set(X)
    assert list(written.columns) == ["row", "prediction", "lower", "upper", "size"]
    np.testing.assert_array_equal(written["row"], np.arange(200))
    np.testing.assert_allclose(written["prediction"], numbers.predict(X), rtol=1e-12)
    np.testing.assert_allclose(written["lower"], sets.lower, rtol=1e-12)
    np.testing.assert_allclose(written["upper"], sets.upper, rtol=1e-12)
    np.testing.assert_allclose(written["size"], sets.sizes(), rtol=1e-12)


def test_only_the_output_is_written(dco, home, tmp_path):
    out = tmp_path / "sets.csv"
    dco("predict", home / "numbers.dco", home / "new.csv", "--out", out, "--batch-rows", 37)
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize(
    "level", [("--alpha", "0.05"), ("--confidence", "0.95")], ids=["alpha", "confidence"]
)
def test_label_sets_of_another_level_are_those_of_the_estimator(predict, new, labels, level):
    written = predict("labels", *level)

    X = features_of(labels, new)
    expected = labels.predict_set(X, alpha=0.05).to_lists()
    assert written["set"].tolist() == ["|".join(row) for row in expected]
    assert written["size"].tolist() == [len(row) for row in expected]
    assert written["prediction"].tolist() == labels.predict(X).tolist()


def test_label_sets_are_lists_in_parquet(dco, home, tmp_path, new, labels):
    out = tmp_path / "sets.parquet"
    dco("predict", home / "labels.dco", home / "new.parquet", "--out", out)
    expected = labels.predict_set(features_of(labels, new)).to_lists()
    assert [list(row) for row in pd.read_parquet(out)["set"]] == expected


@pytest.mark.parametrize(
    ("options", "delta"), [(("--delta", "0.2"), 0.2), ((), 0.05)], ids=["delta", "default delta"]
)
def test_the_same_calibration_rows_give_another_guarantee(predict, new, numbers, options, delta):
    written = predict("numbers", "--guarantee", "pac", *options)

    X = features_of(numbers, new)
    expected = numbers.predict_set(X, guarantee="pac", delta=delta)
    np.testing.assert_allclose(written["lower"], expected.lower, rtol=1e-12)
    assert written["size"].mean() > numbers.predict_set(X).sizes().mean()


@pytest.mark.parametrize(
    ("options", "delta"), [(("--delta", "0.2"), 0.2), ((), 0.05)], ids=["delta", "default delta"]
)
def test_another_guarantee_is_reported(dco, home, tmp_path, options, delta):
    words = ("predict", home / "numbers.dco", home / "new.csv", "--out", tmp_path / "s.csv")
    printed = dco.json(*words, "--guarantee", "pac", *options)
    assert (printed["alpha"], printed["guarantee"], printed["delta"]) == (0.1, "pac", delta)


def test_delta_belongs_to_a_pac_guarantee(dco, home, tmp_path):
    words = ("predict", home / "numbers.dco", home / "new.csv", "--out", tmp_path / "s.csv")
    assert "--delta belongs to --guarantee pac" in dco.refuses(*words, "--delta", "0.2")


def test_labels_that_hold_the_separator_are_written_as_json(dco, tmp_path, python_model):
    x = np.arange(200.0)
    y = np.array(["a|b", "c"])[(x > 100).astype(int)]
    estimator = library.DecoupledClassifier(LogisticRegression(), "lac", random_state=0)
    frame = pd.DataFrame({"x": x})
    model = python_model(estimator, frame, y)
    frame.to_csv(tmp_path / "x.csv", index=False)

    dco("predict", model, tmp_path / "x.csv", "--out", tmp_path / "s.csv")

    written = pd.read_csv(tmp_path / "s.csv")["set"]
    expected = estimator.predict_set(frame).to_lists()
    assert ["a|b"] in expected
    assert [json.loads(text) for text in written] == expected


class TwoModes(library.scores.Score):
    """Distance to the nearer of two modes: 5 below and 5 above a positive prediction. Other
    predictions have one mode.
    """

    needs = (library.Points,)

    def observed(self, prediction, y):
        return np.abs(np.abs(y - prediction.mean) - self.offset(prediction))

    def sets(self, prediction, threshold):
        offset = self.offset(prediction)
        below = prediction.mean - offset
        above = prediction.mean + offset
        rows = np.arange(len(offset))
        has_two = np.flatnonzero(offset)
        return library.IntervalUnions.of_pieces(
            len(rows),
            np.concatenate([rows, has_two]),
            np.concatenate([below, above[has_two]]) - threshold,
            np.concatenate([below, above[has_two]]) + threshold,
        )

    def offset(self, prediction):
        return np.where(prediction.mean > 0, 5.0, 0.0)


def test_sets_with_several_pieces_are_written_in_full(dco, tmp_path, python_model):
    frame = pd.DataFrame({"x": np.linspace(-100, 100, 200)})
    y = frame["x"] + 5.0 * (frame["x"] > 0) + np.tile([-1.0, 1.0], 100)
    line = FrozenEstimator(LinearRegression().fit(frame, frame["x"]))
    estimator = library.DecoupledRegressor(line, TwoModes(), random_state=0)
    model = python_model(estimator, frame, y)
    new = pd.DataFrame({"x": [-50.0, 50.0]})
    new.to_csv(tmp_path / "x.csv", index=False)

    trust = ("--trust", f"{__name__}.TwoModes")
    dco("predict", model, tmp_path / "x.csv", "--out", tmp_path / "s.csv", *trust)

    written = pd.read_csv(tmp_path / "s.csv")
    assert written["pieces"].str.count(";").tolist() == [0, 1]
    ends = [float(number) for number in re.findall(r"-?\d+\.\d+", " ".join(written["pieces"]))]
    np.testing.assert_allclose(ends, [-51, -49, 44, 46, 54, 56], atol=1e-9)
    np.testing.assert_allclose(written["lower"], [-51, 44])
    np.testing.assert_allclose(written["upper"], [-49, 56])
    np.testing.assert_allclose(written["size"], [2, 4])


# --- keys and columns -----------------------------------------------------------------------------


@pytest.fixture
def keyed_model(dco, home, tmp_path):
    """A model whose key is the column "patient"."""
    model = tmp_path / "keyed.dco"
    options = ("--target", "outcome", "--drop", "grade", "--models", "linear", "--key", "patient")
    dco("fit", home / "rows.csv", *options, "--out", model)
    return model


NO_KEY = "no column 'patient', the key of the model, so rows are numbered from 0"


def test_the_key_of_the_model_is_the_first_column(dco, home, tmp_path, new, keyed_model):
    out = tmp_path / "s.csv"
    printed = dco("predict", keyed_model, home / "new.csv", "--out", out).output
    written = pd.read_csv(out)
    assert written.columns[0] == "patient"
    assert written["patient"].tolist() == new["patient"].tolist()
    assert "Note" not in printed


def test_rows_without_the_key_are_numbered(dco, tmp_path, new, table, keyed_model):
    data = table(new.drop(columns="patient"))
    out = tmp_path / "s.csv"
    printed = dco("predict", keyed_model, data, "--out", out).output
    assert printed.count(NO_KEY) == 1
    assert pd.read_csv(out)["row"].tolist() == list(range(200))


def test_a_missing_key_is_noted_once_for_a_folder(dco, tmp_path, new, parts_of, keyed_model):
    folder = parts_of(new.drop(columns="patient"), 2)
    printed = dco("predict", keyed_model, folder, "--out", tmp_path / "sets").output
    assert printed.count(NO_KEY) == 1


@pytest.mark.parametrize("dropped", [[], ["patient"]], ids=["both keys", "one key"])
def test_another_key_may_be_asked_for(dco, tmp_path, new, table, keyed_model, dropped):
    out = tmp_path / "s.csv"
    data = table(new.drop(columns=dropped))
    printed = dco("predict", keyed_model, data, "--out", out, "--key", "ward").output
    written = pd.read_csv(out, keep_default_na=False)
    assert written["ward"].tolist() == new["ward"].fillna("").tolist()
    assert "Note" not in printed


@pytest.fixture
def new_with_size(new, table):
    """The new rows with a column that has the name of one of ours, and one that is a formula."""
    new["size"] = np.arange(len(new)) + 0.5
    new["pieces"] = "=1+1"
    return table(new)


@pytest.mark.parametrize(("suffix", "text"), [("csv", "'=1+1"), ("parquet", "=1+1")])
def test_columns_are_kept_in_front_of_the_sets(dco, home, tmp_path, new_with_size, suffix, text):
    """Text is escaped in a CSV alone."""
    out = tmp_path / f"sets.{suffix}"

    words = ("predict", home / "numbers.dco", new_with_size, "--out", out)
    dco(*words, "--keep", "size, pieces")

    written = READERS[suffix](out)
    names = ["row", "size", "pieces", "prediction", "lower", "upper", "size_"]
    assert list(written.columns) == names
    assert written["size"].astype(float).tolist() == [row + 0.5 for row in range(200)]
    assert set(written["pieces"]) == {text}


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_all_columns_can_be_kept(dco, home, tmp_path, new, new_with_size, suffix):
    out = tmp_path / f"sets.{suffix}"
    dco("predict", home / "numbers.dco", new_with_size, "--keep", "all", "--out", out)
    written = READERS[suffix](out)
    assert list(written.columns[1 : 1 + len(new.columns)]) == list(new.columns)


def test_a_column_to_keep_that_is_not_there_is_named(dco, home, tmp_path, new_with_size):
    words = ("predict", home / "numbers.dco", new_with_size, "--out", tmp_path / "no.csv")
    message = dco.refuses(*words, "--keep", "sise")
    assert "no column 'sise', which --keep names; did you mean 'size'?" in message


# --- text that a spreadsheet would run ------------------------------------------------------------

FORMULAS = ["=cmd()", "+sum", "-sum", "@now", "\tx", "'=y", "=1+1", "+49 30", "'@", "-"]
PLAIN = ["plain", "-1", "+3.5", "-1,5e3", "-1|1", "", None]
PIECES = ["-inf to -1.0; 5.0 to 6.5", "1e-05 to inf"]


@pytest.fixture
def line(python_model):
    """A model of y by x, fitted in Python."""
    x = pd.DataFrame({"x": np.arange(100.0)})
    y = x["x"] + np.random.default_rng(0).normal(size=100)
    return python_model(library.DecoupledRegressor(LinearRegression(), random_state=0), x, y)


TEXT_TYPES = [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())]


@pytest.fixture
def escape(dco, tmp_path, line):
    """``escape(texts, kind)``: how texts of a Parquet column "@id" stand in a CSV of sets."""

    def through_csv(texts, kind):
        column = pa.array(texts).cast(kind)
        pq.write_table(pa.table({"@id": column, "x": range(len(texts))}), tmp_path / "x.parquet")
        words = ("predict", line, tmp_path / "x.parquet", "--out", tmp_path / "s.csv")
        dco(*words, "--key", "@id", "--force")
        return pd.read_csv(tmp_path / "s.csv", dtype=str, keep_default_na=False)["'@id"].tolist()

    return through_csv


@pytest.mark.parametrize("kind", TEXT_TYPES, ids=str)
def test_formulas_get_an_apostrophe(escape, kind):
    """Also the name of the column."""
    assert escape(FORMULAS, kind) == [f"'{text}" for text in FORMULAS]


@pytest.mark.parametrize("kind", TEXT_TYPES, ids=str)
def test_numbers_and_sets_of_numbers_are_no_formulas(escape, kind):
    assert escape(PLAIN + PIECES, kind) == [text or "" for text in PLAIN] + PIECES


def test_half_an_interval_is_a_formula(escape):
    assert escape(["-1.5 to -inf"], pa.string()) == ["'-1.5 to -inf"]


def test_an_escaped_text_can_be_told_from_others(escape):
    """One apostrophe is taken off where this pattern matches."""
    escaped = re.compile("'(?='*[=+\\-@\\t\\r\\n]).*")
    assert all(escaped.fullmatch(text) for text in escape(FORMULAS, pa.string()))
    assert not any(escaped.fullmatch(text) for text in escape(PLAIN, pa.string()))


@pytest.fixture
def formula_rows(dco, tmp_path):
    """A table whose labels and keys look like formulas, and a model of it."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "@id": ["=1+1", "-1", "plain"] * 140,
            "x": rng.normal(size=420) + np.arange(420) % 2 * 9,
            "y": ["=cmd()", "a"] * 210,
        }
    )
    data = tmp_path / "rows.csv"
    model = tmp_path / "m.dco"
    frame.to_csv(data, index=False)
    dco("fit", data, "--target", "y", "--key", "@id", "--models", "linear", "--out", model)
    return model, data


@pytest.mark.parametrize(
    ("file", "options", "name", "keys", "labels"),
    [
        ("s.csv", (), "'@id", {"'=1+1", "-1", "plain"}, {"'=cmd()", "a"}),
        ("s.csv", ("--no-escape",), "@id", {"=1+1", "-1", "plain"}, {"=cmd()", "a"}),
        ("s.parquet", (), "@id", {"=1+1", "-1", "plain"}, {"=cmd()", "a"}),
    ],
    ids=["CSV", "CSV without escapes", "Parquet"],
)
def test_labels_and_keys_are_escaped_in_a_csv_alone(
    dco, tmp_path, formula_rows, file, options, name, keys, labels
):
    out = tmp_path / file
    dco("predict", *formula_rows, "--out", out, *options)
    written = pd.read_csv(out, dtype=str) if out.suffix == ".csv" else pd.read_parquet(out)
    assert written.columns[0] == name
    assert set(written[name]) == keys
    assert set(written["prediction"]) == labels


@pytest.mark.parametrize(
    ("options", "n_notes"), [((), 1), (("--no-escape",), 0)], ids=["escaped", "as it is"]
)
def test_one_note_says_that_text_was_escaped(dco, tmp_path, formula_rows, options, n_notes):
    notes = dco.json("predict", *formula_rows, "--out", tmp_path / "s.csv", *options)["notes"]
    note = (
        "In the CSV, text that begins with =, +, - or @ has an apostrophe in front: spreadsheets "
        "would run it. --no-escape keeps it unchanged."
    )
    assert notes.count(note) == n_notes
    assert sum("apostrophe" in text for text in notes) == n_notes


# --- the signature of an output -------------------------------------------------------------------


def signature_of(path):
    """The JSON in the metadata of a Parquet or Feather file that says where sets come from."""
    is_feather = path.suffix == ".feather"
    schema = pa.ipc.open_file(path).schema if is_feather else pq.read_schema(path)
    return json.loads(schema.metadata[b"dco"])


OTHER_PROMISE = ("--alpha", "0.2", "--guarantee", "pac", "--delta", "0.1")


@pytest.mark.parametrize(
    ("options", "promise"),
    [
        (OTHER_PROMISE, {"alpha": 0.2, "guarantee": "pac", "delta": 0.1}),
        ((), {"alpha": 0.1, "guarantee": "marginal", "delta": None}),
    ],
    ids=["another promise", "the promise of the fit"],
)
@pytest.mark.parametrize("suffix", ["parquet", "feather"])
def test_an_output_says_where_its_sets_come_from(
    dco, home, tmp_path, numbers, suffix, options, promise
):
    model = home / "numbers.dco"
    out = tmp_path / f"s.{suffix}"

    dco("predict", model, home / "new.csv", "--out", out, *options)

    assert signature_of(out) == {
        "version": library.__version__,
        "model_sha256": hashlib.sha256(model.read_bytes()).hexdigest(),
        "structure_fingerprint": numbers.certificate_.structure.structure_fingerprint,
        **promise,
    }


def test_the_outputs_of_a_folder_are_signed_like_one(dco, home, tmp_path, new, parts_of):
    words = ("predict", home / "numbers.dco")
    dco(*words, home / "new.csv", "--out", tmp_path / "s.parquet", *OTHER_PROMISE)
    dco(*words, parts_of(new), "--out", tmp_path / "out", *OTHER_PROMISE)
    expected = signature_of(tmp_path / "s.parquet")
    assert signature_of(tmp_path / "out" / "part-3.parquet") == expected


# --- folders --------------------------------------------------------------------------------------


def test_a_folder_gives_one_file_a_partition(dco, home, tmp_path, new, parts_of):
    out = tmp_path / "out"
    dco("predict", home / "numbers.dco", parts_of(new), "--out", out)
    names = [f"part-{index}.parquet" for index in range(4)]
    assert sorted(path.name for path in out.iterdir()) == names


def test_a_folder_gets_the_sets_of_one_table(dco, home, tmp_path, new, parts_of):
    words = ("predict", home / "numbers.dco")
    dco(*words, parts_of(new), "--out", tmp_path / "out")
    dco(*words, home / "new.parquet", "--out", tmp_path / "one.parquet")
    parts = [pd.read_parquet(path) for path in sorted((tmp_path / "out").iterdir())]
    expected = pd.read_parquet(tmp_path / "one.parquet")
    pd.testing.assert_frame_equal(pd.concat(parts, ignore_index=True), expected)


def test_a_folder_with_outputs_is_not_written_to(dco, home, tmp_path, new, parts_of):
    words = ("predict", home / "numbers.dco", parts_of(new), "--out", tmp_path / "out")
    dco(*words)
    assert "not empty" in dco.refuses(*words)


@pytest.fixture
def folder_with_an_empty_file(new, parts_of):
    """Files of 50, 0, 50 and 50 rows."""
    folder = parts_of(new)
    new[:0].to_parquet(folder / "part-1.parquet", index=False)
    return folder


def test_a_file_without_rows_gives_an_output_without_rows(
    dco, home, tmp_path, folder_with_an_empty_file
):
    out = tmp_path / "out"
    words = ("predict", home / "numbers.dco", folder_with_an_empty_file, "--out", out)
    assert dco.json(*words)["rows"] == 150

    empty = pq.read_table(out / "part-1.parquet")
    assert empty.num_rows == 0
    assert empty.schema == pq.read_schema(out / "part-2.parquet")


def test_rows_are_numbered_over_the_whole_folder(dco, home, tmp_path, folder_with_an_empty_file):
    out = tmp_path / "out"
    dco("predict", home / "numbers.dco", folder_with_an_empty_file, "--out", out)
    assert pd.read_parquet(out / "part-2.parquet")["row"].tolist() == list(range(50, 100))


def test_a_folder_without_any_row_is_refused(dco, home, tmp_path, new, parts_of):
    out = tmp_path / "out"
    message = dco.refuses("predict", home / "numbers.dco", parts_of(new[:0]), "--out", out)
    assert "no rows" in message
    assert not out.exists()


def damage_a_page(path):
    """Overwrite bytes in the middle of a Parquet file, away from what says how it is made up."""
    content = bytearray(path.read_bytes())
    start = pq.read_metadata(path).row_group(0).column(1).data_page_offset + 20
    content[start : start + 60] = b"\xff" * 60
    path.write_bytes(bytes(content))


def test_a_damaged_file_of_a_folder_is_named(dco, home, tmp_path, new, parts_of):
    folder = parts_of(new)
    damage_a_page(folder / "part-2.parquet")
    message = dco.refuses("predict", home / "numbers.dco", folder, "--out", tmp_path / "out")
    assert "part-2.parquet cannot be read as a parquet table" in message


@pytest.mark.parametrize(
    "options", [("--key", "nobody"), ("--keep", "nobody"), ("--decimal", "!")], ids=str
)
def test_a_refused_run_leaves_no_folder(dco, home, tmp_path, new, parts_of, options):
    out = tmp_path / "out"
    dco.refuses("predict", home / "numbers.dco", parts_of(new), "--out", out, *options)
    assert not out.exists()


# --- tables that are not like that of the fit -----------------------------------------------------


def test_a_bad_row_deep_in_the_table_is_named_and_nothing_is_written(dco, home, tmp_path):
    lines = (home / "new.csv").read_text().splitlines()
    lines[150] = lines[150].replace(",", ",oops", 1)
    (tmp_path / "bad.csv").write_text("\n".join(lines) + "\n")

    words = ("predict", home / "numbers.dco", tmp_path / "bad.csv", "--out", tmp_path / "s.csv")
    message = dco.refuses(*words, "--batch-rows", 20)

    assert "row 150" in message
    assert "'dose'" in message
    assert list(tmp_path.iterdir()) == [tmp_path / "bad.csv"]


def test_a_column_that_the_table_lacks_is_named(dco, home, tmp_path, new, table):
    data = table(new.drop(columns="dose"))
    message = dco.refuses("predict", home / "numbers.dco", data, "--out", tmp_path / "s.csv")
    assert "lacks 1 of the columns" in message
    assert "'dose'" in message


def test_a_new_column_is_ignored_on_request(dco, home, tmp_path, predict, new, table):
    data = table(new.assign(colour="red"))
    message = dco.refuses("predict", home / "numbers.dco", data, "--out", tmp_path / "s.csv")
    assert "'colour'" in message
    assert "--ignore-new" in message
    pd.testing.assert_frame_equal(predict("numbers", "--ignore-new", data=data), predict("numbers"))


@pytest.mark.parametrize("has_names", [True, False], ids=["frame", "array"])
def test_models_made_in_python_are_taken_too(dco, tmp_path, python_model, has_names):
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.normal(size=200), "b": rng.normal(size=200)})
    y = X["a"] + rng.normal(size=200)
    rows = X if has_names else X.to_numpy()
    estimator = library.DecoupledRegressor(LinearRegression(), random_state=0)
    model = python_model(estimator, rows, y)
    X.to_csv(tmp_path / "x.csv", index=False)
    X.assign(y=y).to_csv(tmp_path / "xy.csv", index=False)

    dco("predict", model, tmp_path / "x.csv", "--out", tmp_path / "s.csv")

    written = pd.read_csv(tmp_path / "s.csv")
    np.testing.assert_allclose(written["lower"], estimator.predict_set(rows).lower)
    dco("evaluate", model, tmp_path / "xy.csv", "--target", "y")
    assert "--target" in dco.refuses("evaluate", model, tmp_path / "x.csv")


@pytest.fixture
def postcodes(dco, tmp_path):
    """A table of codes that begin with zeros, and a model that predicts one from another."""
    rng = np.random.default_rng(0)
    code = rng.choice(["01234", "00987", "10115"], size=300)
    near = np.where(rng.random(300) < 0.9, code, "00001")
    frame = pd.DataFrame({"near": near, "x": rng.normal(size=300), "code": code})
    data = tmp_path / "rows.csv"
    model = tmp_path / "m.dco"
    frame.to_csv(data, index=False)
    fit = ("fit", data, "--target", "code", "--models", "linear", "--out", model)
    assert "codes such as 0" in dco(*fit).output
    return model, data, frame


def test_codes_without_zeros_are_read_as_the_fit_read_codes(dco, tmp_path, postcodes):
    """No cell of the new rows begins with a zero."""
    model, _, frame = postcodes
    new = frame[frame["near"] == "10115"].drop(columns="code").head(40)
    new.to_csv(tmp_path / "new.csv", index=False)
    out = tmp_path / "s.csv"
    dco("predict", model, tmp_path / "new.csv", "--out", out, "--batch-rows", 7)
    assert set(pd.read_csv(out, dtype=str)["prediction"]) == {"10115"}


def test_codes_keep_their_zeros_in_label_sets(dco, tmp_path, postcodes):
    model, data, _ = postcodes
    dco("predict", model, data, "--out", tmp_path / "s.csv")
    sets = pd.read_csv(tmp_path / "s.csv", dtype=str)["set"].dropna()
    assert set(sets.str.split("|").explode()) == {"01234", "00987", "10115"}


def test_codes_are_found_in_the_targets_that_are_evaluated(dco, postcodes):
    model, data, _ = postcodes
    assert dco.json("evaluate", model, data)["coverage"] > 0.7


# --- values that the fit never saw ----------------------------------------------------------------


def add_gaps(frame):
    """Leave out cells of columns that had no gap in the fit."""
    frame.loc[::3, "dose"] = np.nan
    frame.loc[::20, "site"] = None


def add_categories(frame):
    """Put in values of categories that no row of the fit had."""
    frame.loc[[3, 50, 199], "site"] = ["west", "west", "moon"]
    frame.loc[7, "ward"] = "Z9"


NEVER_SEEN = {
    "gaps": (
        add_gaps,
        [
            "2 columns had no missing value in the fit and have some in 200 new rows ('dose' in "
            "67, 'site' in 10): such rows are not like those of the fit, which the guarantee is "
            "for."
        ],
    ),
    "categories": (
        add_categories,
        [
            "The column 'site': 3 of 200 cells have values that the fit never saw, such as "
            "'west', 'moon'.",
            "The column 'ward': 1 of 200 cells have values that the fit never saw, such as 'Z9'.",
        ],
    ),
}


@pytest.fixture(params=NEVER_SEEN)
def never_seen(request, new):
    """New rows with values that the fit never saw, and the notes about them."""
    change, notes = NEVER_SEEN[request.param]
    change(new)
    return new, notes


def test_rows_like_those_of_the_fit_get_no_note(dco, home):
    assert dco.json("evaluate", home / "numbers.dco", home / "new.csv")["notes"] == []


def test_values_that_the_fit_never_saw_are_counted_over_batches(
    dco, home, tmp_path, table, never_seen
):
    frame, notes = never_seen
    words = ("predict", home / "numbers.dco", table(frame), "--out", tmp_path / "s.csv")
    assert dco.json(*words, "--batch-rows", 20)["notes"] == notes


def test_values_that_the_fit_never_saw_are_counted_in_an_evaluation(dco, home, table, never_seen):
    frame, notes = never_seen
    assert dco.json("evaluate", home / "numbers.dco", table(frame))["notes"] == notes


@pytest.mark.parametrize("jobs", [1, 2])
def test_values_that_the_fit_never_saw_are_counted_over_the_files_of_a_folder(
    dco, home, tmp_path, parts_of, never_seen, jobs
):
    frame, notes = never_seen
    words = ("predict", home / "numbers.dco", parts_of(frame, 2), "--out", tmp_path / "sets")
    assert dco.json(*words, "--jobs", jobs)["notes"] == notes


@pytest.mark.parametrize("jobs", [1, 2])
def test_new_categories_are_counted_in_an_evaluation_in_parts(dco, home, new, parts_of, jobs):
    add_categories(new)
    words = ("evaluate", home / "numbers.dco", parts_of(new, 2), "--in-parts", "--jobs", jobs)
    assert dco.json(*words)["notes"] == NEVER_SEEN["categories"][1]


@pytest.fixture(params=[900, 2_000])
def many_categories(request, dco, tmp_path):
    """A table with a category in each row, a model of it, and the number of rows."""
    n_rows = request.param
    rng = np.random.default_rng(0)
    codes = [f"code {row}" for row in range(n_rows)]
    x = rng.normal(size=n_rows)
    frame = pd.DataFrame({"code": codes, "x": x, "y": rng.normal(size=n_rows)})
    data = tmp_path / "fit.csv"
    model = tmp_path / "m.dco"
    frame.to_csv(data, index=False)
    dco("fit", data, "--target", "y", "--models", "linear", "--out", model)
    return model, data, n_rows


def test_unseen_categories_are_counted_however_many_the_fit_saw(
    dco, tmp_path, table, many_categories
):
    model, data, n_rows = many_categories
    new = table(pd.read_csv(data).assign(code="never seen"))
    notes = dco.json("predict", model, new, "--out", tmp_path / "s.csv")["notes"]
    assert any(f"'code': {n_rows:,} of {n_rows:,} cells" in note for note in notes)


def test_all_categories_of_the_fit_are_remembered(dco, tmp_path, many_categories):
    model, data, _ = many_categories
    assert dco.json("predict", model, data, "--out", tmp_path / "s.csv")["notes"] == []


# --- model files ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "message"),
    [("rows.csv", "is not a model file"), ("none.dco", "no file"), (".", "is a folder")],
    ids=["a table", "no file", "a folder"],
)
def test_a_model_must_be_a_model(dco, home, tmp_path, file, message):
    words = ("predict", home / file, home / "new.csv", "--out", tmp_path / "s.csv")
    assert message in dco.refuses(*words)
    assert list(tmp_path.iterdir()) == []


def test_the_format_of_the_output_must_be_known(dco, home, tmp_path):
    words = ("predict", home / "numbers.dco", home / "new.csv", "--out", tmp_path / "s.txt")
    assert "written as .csv, .parquet or .feather" in dco.refuses(*words)
    assert list(tmp_path.iterdir()) == []


class HomeMadeLine(LinearRegression):
    """A model of a type that dco does not know."""


@pytest.fixture
def untrusted(python_model):
    """The file of a model whose type is not trusted, and a table of its rows."""
    x = pd.DataFrame({"x": np.arange(100.0)})
    model = python_model(library.DecoupledRegressor(HomeMadeLine(), random_state=0), x, x["x"])
    data = model.with_name("x.csv")
    x.to_csv(data, index=False)
    return model, data


@pytest.mark.parametrize("name", ["python.dco", "not trusted: us. If you know.dco"])
def test_an_untrusted_type_is_named_with_the_option_to_trust_it(dco, tmp_path, untrusted, name):
    """One name has words of the message."""
    model, data = untrusted
    renamed = model.rename(tmp_path / name)

    message = dco.refuses("predict", renamed, data, "--out", tmp_path / "s.csv")

    type_name = f"{__name__}.HomeMadeLine"
    assert f"types that are not trusted ({type_name}); if you know" in message
    assert f"add --trust {type_name}: building" in message


def test_a_type_can_be_trusted(dco, tmp_path, untrusted):
    words = ("predict", *untrusted, "--out", tmp_path / "s.csv")
    dco(*words, "--trust", f"{__name__}.HomeMadeLine")
    assert len(pd.read_csv(tmp_path / "s.csv")) == 100


@pytest.fixture
def old_model(home, tmp_path):
    """The model file as an earlier version of scikit-learn would have written it."""
    content = io.BytesIO()
    with (
        zipfile.ZipFile(home / "numbers.dco") as archive,
        zipfile.ZipFile(content, "w") as old_archive,
    ):
        for name in archive.namelist():
            member = archive.read(name)
            if name == "dco.json":
                manifest = json.loads(member)
                manifest["versions"]["scikit-learn"] = "0.99"
                member = json.dumps(manifest).encode()
            old_archive.writestr(name, member)

    (tmp_path / "old.dco").write_bytes(content.getvalue())
    return tmp_path / "old.dco"


@pytest.mark.parametrize(
    "words",
    [
        ("predict", "old.dco", "new.csv", "--out", "s.csv"),
        ("evaluate", "old.dco", "new.csv"),
        ("audit", "old.dco"),
        ("report", "old.dco", "--out", "r.html"),
    ],
    ids=lambda words: words[0],
)
def test_a_model_of_another_version_gets_one_note(
    dco, home, tmp_path, monkeypatch, old_model, words
):
    shutil.copy(home / "new.csv", tmp_path)
    monkeypatch.chdir(tmp_path)
    (note,) = dco.json(*words)["notes"]
    assert "written with scikit-learn 0.99 (here: " in note


def test_a_note_is_printed(dco, old_model):
    assert dco("audit", old_model).output.count("Note: ") == 1


# --- long tables ----------------------------------------------------------------------------------

MEASURE_PEAK = """
import sys, tracemalloc, dco, pyarrow
from dco.cli.main import main

dco.load(sys.argv[2])  # imports what the run imports, before memory is traced
tracemalloc.start()
main(sys.argv[1:], standalone_mode=False)
print(tracemalloc.get_traced_memory()[1] + pyarrow.default_memory_pool().max_memory())
"""


@pytest.fixture
def peak_memory(home, tmp_path):
    """``peak_memory(20)``: megabytes of Arrow and Python for 20 times 10,000 rows."""
    rows = pd.concat([pd.read_parquet(home / "new.parquet")] * 50, ignore_index=True)
    table = pa.Table.from_pandas(rows)

    def measure(n_copies):
        data = tmp_path / f"{n_copies}.parquet"
        out = tmp_path / f"{n_copies}.out.parquet"
        with pq.ParquetWriter(data, table.schema) as writer:
            for _ in range(n_copies):
                writer.write_table(table)

        words = ["predict", home / "numbers.dco", data, "--out", out, "--batch-rows", 5000]
        process = subprocess.run(
            [sys.executable, "-c", MEASURE_PEAK, *map(str, words)],
            capture_output=True,
            text=True,
            check=True,
        )
        assert pq.read_metadata(out).num_rows == n_copies * 10_000
        return int(process.stdout.split()[-1]) / 1e6

    return measure


def test_memory_does_not_grow_with_the_table(peak_memory):
    """Ten times the rows: the peak stays within a few batches. 200,000 rows at once would be some
    80 MB.
    """
    assert peak_memory(20) - peak_memory(2) < 30
