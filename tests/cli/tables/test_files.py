"""Files are read alike in every format, and damaged ones are named in a sentence."""

import gzip
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from dco.cli.tables.files import column_names, read_batches, read_sample, read_table, row_counts

from .reading import read, write


def write_in_all_formats(frame: pd.DataFrame, folder: Path) -> None:
    frame.to_csv(folder / "t.csv", index=False)
    frame.to_csv(folder / "t.csv.gz", index=False)
    frame.to_csv(folder / "t.tsv", index=False, sep="\t")
    frame.to_csv(folder / "semicolons.csv", index=False, sep=";")
    frame.to_csv(folder / "bom.csv", index=False, encoding="utf-8-sig")
    frame.to_parquet(folder / "t.parquet")
    frame.to_feather(folder / "t.feather")
    pl.from_pandas(frame).write_ipc(folder / "polars.feather")  # its columns of text are views


FORMATS = [
    "t.csv",
    "t.csv.gz",
    "t.tsv",
    "semicolons.csv",
    "bom.csv",
    "t.parquet",
    "t.feather",
    "polars.feather",
]


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_gives_the_same_cells(tmp_path, name):
    frame = pd.DataFrame(
        {"a": [1.5, np.nan, 3.0], "b": ["x", None, "007"], "c": [1, 2, 3], "y": [0.5, 0.25, 0.125]}
    )
    write_in_all_formats(frame, tmp_path)
    X, y = read(tmp_path / name)
    assert list(X.columns) == ["a", "b", "c"]
    np.testing.assert_array_equal(X["a"], [1.5, np.nan, 3.0])
    assert X["b"].tolist() == ["x", None, "007"]
    np.testing.assert_array_equal(y, frame["y"])


@pytest.mark.parametrize("name", ["t.tsv", "T.TSV", "t.tsv.gz", "T.TSV.GZ"])
def test_a_tsv_is_cut_at_tabs_alone(tmp_path, name):
    text = b"height, cm\tweight, kg\n1,5\t2\n"
    path = write(tmp_path / name, gzip.compress(text) if name.lower().endswith(".gz") else text)
    assert read_table(path).cells.to_pydict() == {"height, cm": ["1,5"], "weight, kg": ["2"]}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a\n1\n", ["a"]),
        ('"height,\nin cm",y\n1,2\n', ["height,\nin cm", "y"]),
        ('"height,\r\nin cm";"a;b";y\r\n1;2;3\r\n', ["height,\r\nin cm", "a;b", "y"]),
        ('"height, cm";"weight, kg"\n1;2\n', ["height, cm", "weight, kg"]),
        ('"said ""no, no""",y\n1,2\n', ['said "no, no"', "y"]),
        ("\n\r\na,y\n1,2\n", ["a", "y"]),
        ("a,y\r1,2\r", ["a", "y"]),
    ],
    ids=["one column", "line break", "CRLF", "semicolons", "quotes", "blank lines", "CR"],
)
@pytest.mark.parametrize("suffix", ["csv", "CSV.GZ"])
def test_the_names_of_columns_may_hold_any_sign(tmp_path, text, names, suffix):
    content = text.encode() if suffix == "csv" else gzip.compress(text.encode())
    path = write(tmp_path / f"t.{suffix}", content)
    assert column_names(path) == names
    assert read_table(path).cells.to_pydict() == {
        name: [str(number)] for number, name in enumerate(names, start=1)
    }


def test_columns_without_a_name_are_left_out(tmp_path):
    path = write(tmp_path / "t.csv", ",a,y\n0,1,2.5\n1,2,3.5\n")
    assert column_names(path) == read_table(path).names == ["a", "y"]


def test_the_index_of_pandas_is_left_out(tmp_path):
    frame = pd.DataFrame({"a.b": [1.0, 2.0, 3.0], "y": [0.5, 1.5, 2.5]}, index=[5, 3, 1])
    frame.to_parquet(tmp_path / "t.parquet")
    assert column_names(tmp_path / "t.parquet") == ["a.b", "y"]


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("empty.csv", "", "is empty"),
        ("head.csv", "a,y\n", "no rows"),
        ("blank.csv", "\n\n\n", "is empty"),
        ("long.csv", "a,y\n1,2\n1,2,3\n", "row 2: Expected 2 columns, got 3"),
        ("short.csv", "a,y\n1,2\n1\n", "row 2: Expected 2 columns, got 1"),
        ("twice.csv", "a,a\n1,2\n", "more than one column called 'a'"),
        ("nameless.csv", ",\n1,2\n", "no column names"),
        ("latin.csv", "a,y\né,1\n".encode("latin-1"), "not written in UTF-8.*Latin-1"),
        ("head.csv", "é,y\nn,1\n".encode("cp1252"), "not written in UTF-8.*Windows-1252"),
        ("late.csv", b"a,y\n" + b"n,1\n" * 2**19 + b"\xe9,1\n", "not written in UTF-8"),
        ("wide.csv", "a,y\nn,1\n".encode("utf-16"), "looks like UTF-16.*save it again as UTF-8"),
        ("wide.csv.gz", gzip.compress("a,y\nn,1\n".encode("utf-16"), mtime=0), "like UTF-16"),
        ("not.parquet", b"this is no parquet file at all", "cannot be read as a parquet table"),
        ("not.feather", b"this is no feather file at all", "cannot be read as a feather table"),
        ("not.csv.gz", b"this is not compressed", "cannot be read as a csv table"),
        (
            "cut.csv.gz",
            gzip.compress(b"a,y\n" + b"1,2\n" * 9999, mtime=0)[:40],
            "cannot be read as a csv table",
        ),
        ("table.xlsx", b"PK", "is not a table that dco knows"),
    ],
)
def test_a_damaged_file_is_named_with_what_is_wrong(tmp_path, name, content, problem):
    path = write(tmp_path / name, content)
    with pytest.raises(ValueError, match=problem) as error:
        read_table(path)
    assert name in str(error.value)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"There is no file .*gone\.csv"):
        read_table(tmp_path / "gone.csv")


def test_a_folder_without_parquet_files_is_refused(tmp_path):
    (tmp_path / "_hidden.parquet").write_bytes(b"")
    with pytest.raises(ValueError, match="has no Parquet file"):
        read_table(tmp_path)


# --- batches and samples --------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """1,000 rows: as CSV, as Feather, in one Parquet file, and in a folder of files."""
    frame = pd.DataFrame({"a": np.arange(1000.0), "b": ["x", "y"] * 500})
    frame.to_parquet(tmp_path / "t.parquet", row_group_size=130)
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_feather(tmp_path / "t.feather")
    (tmp_path / "parts").mkdir()
    for name, rows in {"a": slice(0, 500), "b": slice(500, 510), "c": slice(510, 1000)}.items():
        frame[rows].to_parquet(tmp_path / "parts" / f"{name}.parquet", row_group_size=64)
    return tmp_path


WHOLE = ["t.parquet", "t.csv", "t.feather", "parts"]


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize(
    ("rows", "sizes"), [(300, [300, 300, 300, 100]), (250, [250] * 4), (2000, [1000])]
)
def test_batches_have_the_size_asked_for_and_lose_no_row(folder, name, rows, sizes):
    batches = list(read_batches(folder / name, ["b", "a"], rows=rows))
    assert [len(batch) for batch in batches] == sizes
    cells = pa.concat_tables([batch.cells for batch in batches])
    assert cells.column_names == ["b", "a"]
    assert [float(value) for value in cells.column("a").to_pylist()] == list(range(1000))
    positions = np.concatenate([batch.positions for batch in batches])
    np.testing.assert_array_equal(positions, np.arange(1000))


@pytest.mark.parametrize("name", WHOLE)
def test_rows_are_counted_in_every_format(folder, name):
    assert sum(row_counts(folder / name).values()) == 1000


@pytest.mark.parametrize("name", WHOLE)
def test_a_sample_does_not_depend_on_how_rows_are_stored(folder, name, small_batches):
    small_batches(70)
    sample, n_rows = read_sample(folder / name, 300, seed=4)
    expected, _ = read_sample(folder / "t.parquet", 300, seed=4)
    assert n_rows == 1000
    np.testing.assert_array_equal(sample.positions, expected.positions)
    values = [float(value) for value in sample.cells.column("a").to_pylist()]
    assert values == sample.positions.tolist()


def test_a_sample_of_more_rows_than_there_are_is_the_table(folder):
    sample, _ = read_sample(folder / "parts", 5_000, seed=4)
    np.testing.assert_array_equal(sample.positions, np.arange(1000))


def test_each_row_is_as_likely_to_be_drawn(tmp_path, small_batches):
    """30 of 100 rows in batches of 7, 2,000 times: each count within 4.5 standard errors."""
    small_batches(7)
    pd.DataFrame({"row": np.arange(100)}).to_parquet(tmp_path / "rows.parquet")
    counts = np.zeros(100)
    for seed in range(2_000):
        sample, _ = read_sample(tmp_path / "rows.parquet", 30, seed=seed)
        counts[sample.positions] += 1
    assert np.all(np.abs(counts - 600) <= 4.5 * np.sqrt(2_000 * 0.3 * 0.7))


def test_a_sample_of_files_with_different_numbers_is_read(folder):
    """Whole numbers in one file, numbers with gaps in others."""
    pd.DataFrame({"a": [7, 8], "b": ["x", "y"]}).to_parquet(folder / "parts" / "0.parquet")
    sample, n_rows = read_sample(folder / "parts", 1002, seed=4)
    assert n_rows == 1002
    assert sample.cells.column("a").to_pylist()[:3] == [7.0, 8.0, 0.0]
