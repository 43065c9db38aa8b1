"""dco predict: the same sets as the estimator's, in order, whatever the format; killed runs leave
nothing half-written.
"""

import errno
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import feather

import dco as library
from dco.cli import prediction as module
from dco.cli.sets_files import sets_table, without_formulas

from .conftest import read_as_the_fit


def expected(home: Path, model: str) -> tuple[Any, Any]:
    """The estimator and the features of the new rows, without the command."""
    estimator = library.load(home / model)
    return estimator, read_as_the_fit(estimator, home / "new.csv")


def read(path: Path) -> pd.DataFrame:
    return {".csv": pd.read_csv, ".parquet": pd.read_parquet, ".feather": pd.read_feather}[
        path.suffix
    ](path)


@pytest.mark.parametrize("source", ["new.csv", "new.parquet", "new.feather"])
@pytest.mark.parametrize("suffix", ["csv", "parquet", "feather"])
def test_intervals_are_the_estimators_in_order(dco, home, tmp_path, source, suffix):
    out = tmp_path / f"sets.{suffix}"
    dco("predict", home / "numbers.dco", home / source, "--out", out, "--batch-rows", 37)
    found = read(out)
    estimator, X = expected(home, "numbers.dco")
    sets = estimator.predict_set(X)
    assert list(found.columns) == ["row", "prediction", "lower", "upper", "size"]
    np.testing.assert_array_equal(found["row"], np.arange(200))
    np.testing.assert_allclose(found["prediction"], estimator.predict(X), rtol=1e-12)
    np.testing.assert_allclose(found["lower"], sets.lower, rtol=1e-12)
    np.testing.assert_allclose(found["upper"], sets.upper, rtol=1e-12)
    assert sorted(path.name for path in tmp_path.iterdir()) == [out.name], "no part is left behind"


def test_label_sets_and_another_level(dco, home, tmp_path):
    estimator, X = expected(home, "labels.dco")
    wanted = estimator.predict_set(X, alpha=0.05).to_lists()
    for data, out, level in (
        ("csv", "s.csv", ("--alpha", "0.05")),
        ("parquet", "s.parquet", ("--confidence", "0.95")),
    ):
        dco("predict", home / "labels.dco", home / f"new.{data}", "--out", tmp_path / out, *level)
    found = pd.read_csv(tmp_path / "s.csv", keep_default_na=False)
    assert found["set"].tolist() == ["|".join(labels) for labels in wanted]
    assert found["size"].tolist() == [len(labels) for labels in wanted]
    assert found["prediction"].tolist() == estimator.predict(X).tolist()
    assert [list(labels) for labels in pd.read_parquet(tmp_path / "s.parquet")["set"]] == wanted


def test_another_guarantee_from_the_same_calibration_rows(dco, home, tmp_path):
    estimator, X = expected(home, "numbers.dco")
    arguments = (
        "predict",
        home / "numbers.dco",
        home / "new.csv",
        "--force",
        "--out",
        tmp_path / "s.csv",
    )
    for option, delta in ((("--delta", "0.2"), 0.2), ((), 0.05)):
        told = dco.json(*arguments, "--guarantee", "pac", *option)
        assert (told["alpha"], told["guarantee"], told["delta"]) == (0.1, "pac", delta)
        wanted = estimator.predict_set(X, guarantee="pac", delta=delta)
        np.testing.assert_allclose(
            pd.read_csv(tmp_path / "s.csv")["lower"], wanted.lower, rtol=1e-12
        )
    assert np.mean(wanted.sizes()) > np.mean(estimator.predict_set(X).sizes())
    assert "--delta belongs to --guarantee pac" in dco.refuses(*arguments, "--delta", "0.2")


def test_parquet_and_feather_say_where_their_sets_come_from(dco, home, tmp_path, new, parts_of):
    model, asked, own = (
        home / "numbers.dco",
        ("--alpha", "0.2", "--guarantee", "pac", "--delta", "0.1"),
        (),
    )
    signed = []
    for data, out, options in (
        (home / "new.csv", "s.parquet", asked),
        (home / "new.csv", "s.feather", asked),
        (parts_of(new), "out", asked),
        (home / "new.csv", "own.parquet", own),
    ):
        dco("predict", model, data, "--out", tmp_path / out, *options)
        path = tmp_path / out / "part-3.parquet" if out == "out" else tmp_path / out
        schema = pa.ipc.open_file(path).schema if out == "s.feather" else pq.read_schema(path)
        signed.append(json.loads(schema.metadata[b"dco"]))
    common = {
        "version": library.__version__,
        "model_sha256": hashlib.sha256(model.read_bytes()).hexdigest(),
        "structure_fingerprint": library.load(model).certificate_.structure.structure_fingerprint,
    }
    assert signed[:3] == [common | {"alpha": 0.2, "guarantee": "pac", "delta": 0.1}] * 3
    assert signed[3] == common | {"alpha": 0.1, "guarantee": "marginal", "delta": None}


def test_labels_that_hold_the_separator_are_written_as_json():
    sets = library.LabelSets(
        np.array([[True, True, False], [False, False, True]]), classes=np.array(["a|b", "c", "d"])
    )
    table = sets_table({}, np.array(["c", "d"]), sets, text=True)
    assert [json.loads(text) for text in table["set"].to_pylist()] == [["a|b", "c"], ["d"]]


def test_a_key_is_copied_and_one_that_is_missing_is_told(dco, home, tmp_path, new, parts_of):
    model, out = tmp_path / "m.dco", tmp_path / "s.csv"
    fitting = ("--target", "outcome", "--drop", "grade", "--models", "linear", "--key", "patient")
    dco("fit", home / "rows.csv", *fitting, "--out", model)
    assert "Note" not in dco("predict", model, home / "new.csv", "--out", out).output
    assert next(iter(pd.read_csv(out).items()))[1].tolist() == new["patient"].tolist()
    without = parts_of(new.drop(columns="patient"), 2)
    for data, target in ((without / "part-0.parquet", out), (without, tmp_path / "sets")):
        told = dco("predict", model, data, "--out", target, "--force").output
        assert (
            told.count("no column 'patient', the key of the model, so rows are numbered from 0")
            == 1
        )
    assert pd.read_csv(out).columns[0] == "row"
    for data in (without / "part-0.parquet", home / "new.csv"):
        assert (
            "Note"
            not in dco("predict", model, data, "--out", out, "--force", "--key", "ward").output
        )
    assert (
        pd.read_csv(out, keep_default_na=False)["ward"].tolist() == new["ward"].fillna("").tolist()
    )


def test_sets_with_several_pieces_are_written_in_full():
    """Two far modes: the sets of a predictive density are unions, and the file has every piece."""
    sets = library.IntervalUnions(
        np.array([0, 2, 3]), np.array([0.0, 5.0, 1.0]), np.array([1.0, 6.5, 2.0])
    )
    table = sets_table({"size": [7, 8]}, np.array([3.0, 1.5]), sets, text=True)
    assert table.to_pydict() == {
        "size": [7, 8],
        "prediction": [3.0, 1.5],
        "lower": [0.0, 1.0],
        "upper": [6.5, 2.0],
        "pieces": ["0.0 to 1.0; 5.0 to 6.5", "1.0 to 2.0"],
        "size_": [2.5, 1.0],
    }


# --- killed and resumed
# -------------------------------------------------------------------------------------------

KILLED = """
import os, signal, sys
import dco.cli.prediction as prediction
from dco.cli.main import main

write, calls = prediction.write_tables, []

def write_and_end(*arguments):
    write(*arguments)
    calls.append(arguments)
    if len(calls) == 11:  # this part is written and does not have its name yet
        os.kill(os.getpid(), signal.SIGKILL)

prediction.write_tables = write_and_end
main(sys.argv[1:])
"""


def test_a_killed_run_leaves_no_output_and_resumes_to_the_same_bytes(dco, home, tmp_path):
    pd.concat([pd.read_parquet(home / "new.parquet")] * 60, ignore_index=True).to_parquet(
        tmp_path / "many.parquet"
    )
    out, parts = tmp_path / "sets.csv", tmp_path / "sets.csv.parts"
    words = (
        "predict",
        home / "numbers.dco",
        tmp_path / "many.parquet",
        "--batch-rows",
        100,
        "--out",
        out,
    )
    run = subprocess.run(
        [sys.executable, "-c", KILLED, *map(str, words)], capture_output=True, check=False
    )
    assert run.returncode == -signal.SIGKILL
    assert not out.exists()
    done = sorted(path for path in parts.iterdir() if path.name.isdigit())
    assert len(done) == 10
    finished = feather.read_table(done[5])
    feather.write_feather(finished.set_column(0, "row", pa.array(np.arange(100) - 100)), done[5])
    assert "--resume" in dco.refuses(*words)
    assert "is not from a stopped run" in dco.refuses(*words, "--alpha", "0.3", "--resume")
    dco(*words, "--resume")
    assert not parts.exists()
    dco(*words[:-1], tmp_path / "again.csv")
    found, whole = out.read_text().splitlines(), (tmp_path / "again.csv").read_text().splitlines()
    assert [line.split(",")[0] for line in found[501:601]] == list(map(str, range(-100, 0))), (
        "finished parts are kept"
    )
    assert [line.partition(",")[2] for line in found] == [line.partition(",")[2] for line in whole]


def test_two_runs_cannot_write_one_output(dco, home, tmp_path, new, parts_of):
    """While a run is at work another is refused, whatever it says; nothing of the first is
    touched.
    """
    from dco.foundations.files import lock_folder

    parts_of(new)
    for data, out, parts in (
        (home / "new.csv", tmp_path / "s.csv", tmp_path / "s.csv.parts"),
        (tmp_path / "in", tmp_path / "out", tmp_path / "out" / "_dco_unfinished"),
    ):
        parts.parent.mkdir(exist_ok=True)
        arguments = ("predict", home / "numbers.dco", data, "--out", out)
        with lock_folder(parts):
            (parts / "000000000").write_text("a part of the run at work")
            for option in ((), ("--force",), ("--resume",)):
                assert "Another run is writing" in dco.refuses(*arguments, *option)
            assert (parts / "000000000").read_text() == "a part of the run at work"
        assert dco(*arguments, "--force").output.startswith("Wrote the sets of 200 rows")
        assert not parts.exists()


def test_a_folder_of_somebody_else_is_no_unfinished_work(dco, home, tmp_path):
    (parts := tmp_path / "s.csv.parts").mkdir()
    (parts / "mine").write_text("not to be lost")
    assert "not empty" in dco.refuses(
        "predict", home / "numbers.dco", home / "new.csv", "--out", tmp_path / "s.csv"
    )
    assert (parts / "mine").exists()


def test_parts_are_put_together_only_when_whole(dco, home, tmp_path, monkeypatch):
    whole = module.assemble
    harm: Callable[[Path], None] = lambda parts: (parts / "000000001").unlink()  # noqa: E731

    def harmed(parts: dict[Path, int], *rest: Any, within: Path, **options: Any) -> None:
        harm(within)
        whole(parts, *rest, within=within, **options)

    monkeypatch.setattr(module, "assemble", harmed)
    arguments = (
        "predict",
        home / "numbers.dco",
        home / "new.csv",
        "--batch-rows",
        60,
        "--out",
        tmp_path / "s.csv",
    )
    assert "000000001" in (told := dco.refuses(*arguments))
    assert "run again with --resume" in told
    harm = lambda parts: shutil.copy(parts / "000000003", parts / "000000001")  # noqa: E731
    assert "has 20 rows where 60 were written" in dco.refuses(*arguments, "--force")
    assert not (tmp_path / "s.csv").exists()


@pytest.mark.parametrize("folder", [False, True])
def test_a_full_disk_is_named_and_finished_parts_are_kept(
    dco, home, tmp_path, new, parts_of, fails_at, folder
):
    """Arrow's own error has neither a path nor a next step."""
    parts_of(new)
    data, out = (
        (tmp_path / "in", tmp_path / "out")
        if folder
        else (home / "new.parquet", tmp_path / "s.csv")
    )
    arguments = ("predict", home / "numbers.dco", data, "--batch-rows", 50)
    with fails_at(
        module.SetsOfTable, "make_sets", 2, OSError(errno.ENOSPC, "Error writing bytes to file")
    ):
        told = dco.refuses(*arguments, "--out", out)
    assert f"no space left at {tmp_path}; make room, then run again with --resume." in told
    unfinished = out / "_dco_unfinished" if folder else tmp_path / "s.csv.parts"
    kept = sorted(unfinished.glob("part-*" if folder else "0*"))
    assert len(kept) == 2
    assert not folder or list(out.iterdir()) == [unfinished], "no output until all are there"
    asked = (plan := unfinished / "plan.json").read_text()
    plan.write_text(asked[:10])  # cut short
    assert "is not from a stopped run" in dco.refuses(*arguments, "--out", out, "--resume")
    plan.write_text(asked)
    before = [path.stat().st_mtime_ns for path in kept]
    with fails_at(module.SetsOfTable, "make_sets", 9, OSError()) as calls:
        dco(*arguments, "--out", out, "--resume")
    assert len(calls) == 2, "finished parts are not made again"
    if folder:
        assert [(out / path.name).stat().st_mtime_ns for path in kept] == before
    again = tmp_path / f"again{out.suffix}"
    dco(*arguments, "--out", again)
    for path in out.iterdir() if folder else [out]:
        assert path.read_bytes() == (again / path.name if folder else again).read_bytes()


def test_force_never_replaces_what_is_read(dco, home, tmp_path, new, parts_of):
    parts_of(new)
    shutil.copy(home / "new.csv", tmp_path / "new.csv")
    shutil.copy(home / "numbers.dco", tmp_path / "m.dco")
    (tmp_path / "link.csv").symlink_to("new.csv")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    predict, fit = ("predict", tmp_path / "m.dco"), ("fit", "--target", "outcome", "--force")
    part = tmp_path / "in" / "part-0.parquet"
    for arguments in (
        (*predict, tmp_path / "new.csv", "--force", "--out", tmp_path / "new.csv"),
        (*predict, tmp_path / "new.csv", "--force", "--out", tmp_path / "link.csv"),
        (*predict, tmp_path / "link.csv", "--force", "--out", tmp_path / "new.csv"),
        (*fit, tmp_path / "new.csv", "--out", tmp_path / "new.csv"),
        (
            *fit,
            tmp_path / "new.csv",
            "--out",
            tmp_path / "x.dco",
            "--certificate",
            tmp_path / "link.csv",
        ),
        (*fit, tmp_path / "in", "--out", part),
        ("report", tmp_path / "m.dco", "--out", tmp_path / "m.dco", "--force"),
    ):
        assert "would destroy it" in dco.refuses(*arguments)
    for out in (tmp_path / "in", tmp_path / "in" / "sets"):
        told = dco.refuses(*predict, tmp_path / "in", "--force", "--out", out)
        assert "choose a folder elsewhere" in told
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_bad_row_deep_in_the_table_leaves_nothing_behind(dco, home, tmp_path):
    text = (home / "new.csv").read_text().splitlines()
    text[150] = text[150].replace(",", ",oops", 1)
    (tmp_path / "bad.csv").write_text("\n".join(text) + "\n")
    told = dco(
        "predict",
        home / "numbers.dco",
        tmp_path / "bad.csv",
        "--out",
        tmp_path / "s.csv",
        "--batch-rows",
        20,
        status=2,
    )
    assert "row 150" in told.output
    assert "'dose'" in told.output
    assert [path.name for path in tmp_path.iterdir()] == ["bad.csv"]


def test_memory_does_not_grow_with_the_table(home, tmp_path):
    """Ten times the rows: the peak of Arrow's and Python's memory stays within a few batches."""
    one = pa.Table.from_pandas(
        pd.concat([pd.read_parquet(home / "new.parquet")] * 50, ignore_index=True)
    )
    code = (
        "import sys, tracemalloc, dco, pyarrow; from dco.cli.main import main\n"
        "dco.load(sys.argv[2])  # imports what the run imports, before memory is traced\n"
        "tracemalloc.start()\n"
        "main(sys.argv[1:], standalone_mode=False)\n"
        "print(tracemalloc.get_traced_memory()[1] + pyarrow.default_memory_pool().max_memory())"
    )
    peaks = []
    for copies in (2, 20):
        path, out = tmp_path / f"{copies}.parquet", tmp_path / f"{copies}.out.parquet"
        with pq.ParquetWriter(path, one.schema) as writer:
            for _ in range(copies):
                writer.write_table(one)
        words = ["predict", home / "numbers.dco", path, "--out", out, "--batch-rows", 5000]
        run = subprocess.run(
            [sys.executable, "-c", code, *map(str, words)],
            capture_output=True,
            text=True,
            check=True,
        )
        peaks.append(int(run.stdout.split()[-1]) / 1e6)
        assert pq.ParquetFile(out).metadata.num_rows == copies * len(one)
    # all 200,000 rows at once would be some 80 MB
    assert peaks[1] - peaks[0] < 30, f"peaks in MB: {peaks}"


# --- folders --------------------------------------------------------------------------------------
# ----------------


def test_a_folder_gives_one_file_a_partition(dco, home, tmp_path, new, parts_of):
    parts_of(new)
    arguments = ("predict", home / "numbers.dco", tmp_path / "in", "--out", tmp_path / "out")
    dco(*arguments)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        f"part-{i}.parquet" for i in range(4)
    ]
    dco("predict", home / "numbers.dco", home / "new.parquet", "--out", tmp_path / "one.parquet")
    together = pd.concat(
        [pd.read_parquet(tmp_path / "out" / f"part-{i}.parquet") for i in range(4)],
        ignore_index=True,
    )
    pd.testing.assert_frame_equal(together, pd.read_parquet(tmp_path / "one.parquet"))
    assert "not empty" in dco.refuses(*arguments)


def test_a_file_without_rows_gives_an_output_without_rows(dco, home, tmp_path, new, parts_of):
    data, out = parts_of(new), tmp_path / "out"
    new[:0].to_parquet(data / "part-1.parquet", index=False)
    arguments = ("predict", home / "numbers.dco", data, "--out", out)
    assert dco.json(*arguments)["rows"] == 150
    empty, full = (pq.ParquetFile(out / f"part-{i}.parquet") for i in (1, 2))
    assert empty.metadata.num_rows == 0
    assert empty.schema_arrow == full.schema_arrow
    rows = pd.read_parquet(out / "part-2.parquet")["row"]
    assert rows.tolist() == list(range(50, 100)), "rows are numbered over the whole folder"


def test_a_folder_without_any_row_is_refused(dco, home, tmp_path, new, parts_of):
    data, out = parts_of(new[:0]), tmp_path / "out"
    assert "no rows" in dco.refuses("predict", home / "numbers.dco", data, "--out", out)
    assert not out.exists()


def damage_a_page(path: Path) -> None:
    """Overwrite bytes in the middle of a Parquet file, away from what says how it is made up."""
    content = bytearray(path.read_bytes())
    start = pq.read_metadata(path).row_group(0).column(1).data_page_offset + 20
    content[start : start + 60] = b"\xff" * 60
    path.write_bytes(bytes(content))


def test_a_damaged_file_of_a_folder_is_named(dco, home, tmp_path, new, parts_of):
    data, out = parts_of(new), tmp_path / "out"
    damage_a_page(data / "part-2.parquet")
    told = dco.refuses("predict", home / "numbers.dco", data, "--out", out)
    assert "part-2.parquet cannot be read as a parquet table" in told


@pytest.mark.parametrize(
    "options", [("--key", "nobody"), ("--keep", "nobody"), ("--decimal", "!")], ids=str
)
def test_a_refused_run_leaves_no_folder(dco, home, tmp_path, new, parts_of, options):
    data, out = parts_of(new), tmp_path / "out"
    dco.refuses("predict", home / "numbers.dco", data, "--out", out, *options)
    assert not out.exists()


@pytest.mark.parametrize("folder", [False, True])
def test_a_run_does_not_go_on_with_a_table_that_has_changed(
    dco, home, tmp_path, new, parts_of, fails_at, folder
):
    """Its size and its time stamp are those that it had, and one cell is another."""
    data = (
        parts_of(new) / "part-3.parquet"
        if folder
        else Path(shutil.copy(home / "new.csv", tmp_path))
    )
    original, stamp, out = (
        data.read_bytes(),
        data.stat().st_mtime_ns,
        tmp_path / ("out" if folder else "sets.csv"),
    )
    arguments = (
        "predict",
        home / "numbers.dco",
        data.parent if folder else data,
        "--out",
        out,
        "--batch-rows",
        50,
    )
    with fails_at(module.SetsOfTable, "make_sets", 2, KeyboardInterrupt()):
        dco(*arguments, status=130)
    at = original.rindex(b"north")
    data.write_bytes(original[:at] + b"south" + original[at + 5 :])
    os.utime(data, ns=(stamp, stamp))
    assert (data.stat().st_size, data.stat().st_mtime_ns) == (len(original), stamp)
    told = dco.refuses(*arguments, "--resume")
    assert (
        "with these options and the same contents of the files that are read; --force without "
        "--resume" in told
    )
    data.write_bytes(original)  # the bytes count, and not the time
    dco(*arguments, "--resume")


def test_force_leaves_no_sets_of_an_earlier_run(dco, home, tmp_path, new, parts_of, fails_at):
    data, out = parts_of(new), tmp_path / "out"
    arguments = ("predict", home / "numbers.dco", data, "--out", out)
    dco(*arguments)
    for index in (2, 3):
        (data / f"part-{index}.parquet").unlink()
    (out / "notes.txt").write_text("mine")
    pd.DataFrame({"x": [1]}).to_parquet(out / "mine.parquet")
    assert "has mine.parquet, which is neither" in dco.refuses(*arguments, "--force")
    assert len(list(out.glob("part-*"))) == 4, "a refusal removes nothing"
    (out / "mine.parquet").unlink()
    with fails_at(module, "write_partition", 0, KeyboardInterrupt()):
        dco(*arguments, "--force", "--alpha", "0.3", status=130)
    assert len(list(out.glob("part-*"))) == 4, "a run that does not end changes nothing"
    dco(*arguments, "--resume", "--alpha", "0.3")
    assert sorted(path.name for path in out.iterdir()) == [
        "notes.txt",
        "part-0.parquet",
        "part-1.parquet",
    ]
    alphas = {
        json.loads(pq.read_schema(path).metadata[b"dco"])["alpha"] for path in out.glob("*.parquet")
    }
    assert alphas == {0.3}, "sets of the earlier run were not taken for finished ones"


# --- bad input ------------------------------------------------------------------------------------
# ----------------


def test_columns_must_be_those_of_the_fit(dco, home, tmp_path):
    frame = pd.read_csv(home / "new.csv")
    frame.drop(columns="dose").to_csv(tmp_path / "lacks.csv", index=False)
    told = dco.refuses(
        "predict", home / "numbers.dco", tmp_path / "lacks.csv", "--out", tmp_path / "s.csv"
    )
    assert "lacks 1 of the columns" in told
    assert "'dose'" in told
    frame.assign(colour="red").to_csv(tmp_path / "new.csv", index=False)
    told = dco.refuses(
        "predict", home / "numbers.dco", tmp_path / "new.csv", "--out", tmp_path / "s.csv"
    )
    assert "'colour'" in told
    assert "--ignore-new" in told
    dco(
        "predict",
        home / "numbers.dco",
        tmp_path / "new.csv",
        "--out",
        tmp_path / "s.csv",
        "--ignore-new",
    )
    dco("predict", home / "numbers.dco", home / "new.csv", "--out", tmp_path / "same.csv")
    assert (tmp_path / "s.csv").read_bytes() == (tmp_path / "same.csv").read_bytes()


def test_a_model_must_be_a_model(dco, home, tmp_path):
    for model, out, said in (
        (home / "rows.csv", "s.csv", "is not a model file"),
        (home / "none.dco", "s.csv", "no file"),
        (tmp_path, "s.csv", "is a folder"),
        (home / "numbers.dco", "s.txt", "written as .csv, .parquet or .feather"),
    ):
        assert said in dco.refuses("predict", model, home / "new.csv", "--out", tmp_path / out)
    assert list(tmp_path.iterdir()) == []


def test_an_untrusted_type_is_named_with_the_option_to_trust_it(dco, home, tmp_path, monkeypatch):
    import dco.storage.trusted_types as trusted

    kept = tuple(name for name in trusted.OWN if name != "dco.rows.splits.Splits")
    monkeypatch.setattr(trusted, "OWN", kept)
    arguments = ("predict", home / "numbers.dco", home / "new.csv", "--out", tmp_path / "s.csv")
    assert "--trust dco.rows.splits.Splits" in dco.refuses(*arguments)
    odd = tmp_path / "not trusted: us. If you know.dco"  # a name with words of the message
    shutil.copy(home / "numbers.dco", odd)
    told = dco.refuses("predict", odd, *arguments[2:])
    assert "types that are not trusted (dco.rows.splits.Splits); if you know" in told
    assert "add --trust dco.rows.splits.Splits: building" in told
    dco(*arguments, "--trust", "dco.rows.splits.Splits")


def test_models_made_in_python_are_taken_too(dco, home, tmp_path):
    from sklearn.linear_model import LinearRegression

    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.normal(size=200), "b": rng.normal(size=200)})
    y = X["a"] + rng.normal(size=200)
    named = library.DecoupledRegressor(LinearRegression(), random_state=0).fit(X, y)
    unnamed = library.DecoupledRegressor(LinearRegression(), random_state=0).fit(X.to_numpy(), y)
    X.to_csv(tmp_path / "x.csv", index=False)
    X.assign(y=y).to_csv(tmp_path / "xy.csv", index=False)
    for name, estimator in {"named": named, "unnamed": unnamed}.items():
        library.save(estimator, tmp_path / f"{name}.dco")
        dco(
            "predict",
            tmp_path / f"{name}.dco",
            tmp_path / "x.csv",
            "--out",
            tmp_path / f"{name}.csv",
        )
        np.testing.assert_allclose(
            pd.read_csv(tmp_path / f"{name}.csv")["lower"], named.predict_set(X).lower
        )
        dco("evaluate", tmp_path / f"{name}.dco", tmp_path / "xy.csv", "--target", "y")
        assert "--target" in dco.refuses("evaluate", tmp_path / f"{name}.dco", tmp_path / "x.csv")


def test_codes_keep_their_zeros_from_fit_to_predict(dco, tmp_path):
    rng = np.random.default_rng(0)
    place = rng.choice(["01234", "00987", "10115"], size=300)
    near = np.where(rng.random(300) < 0.9, place, "00001")
    frame = pd.DataFrame({"near": near, "x": rng.normal(size=300), "place": place})
    frame.to_csv(tmp_path / "rows.csv", index=False)
    model, out = tmp_path / "m.dco", tmp_path / "sets.csv"
    assert (
        "codes such as 0"
        in dco(
            "fit", tmp_path / "rows.csv", "--target", "place", "--models", "linear", "--out", model
        ).output
    )
    # batches in which no cell happens to begin with a zero are read as the fit read them
    frame[near == "10115"].drop(columns="place").head(40).to_csv(tmp_path / "new.csv", index=False)
    dco("predict", model, tmp_path / "new.csv", "--out", out, "--batch-rows", 7)
    assert set(pd.read_csv(out, dtype=str)["prediction"]) == {"10115"}
    dco("predict", model, tmp_path / "rows.csv", "--out", out, "--force")
    assert {
        label for cell in pd.read_csv(out, dtype=str)["set"].dropna() for label in cell.split("|")
    } == set(place)
    assert dco.json("evaluate", model, tmp_path / "rows.csv")["coverage"] > 0.7


@pytest.fixture
def by_site(dco, home, tmp_path, new, parts_of):
    """A model with a threshold for each site, and new rows of which three are from other sites,
    also as a folder.
    """
    fitting = (
        "--target",
        "outcome",
        "--drop",
        "grade",
        "--drop",
        "patient",
        "--models",
        "linear",
        "--calibrate-size",
        120,
    )
    dco("fit", home / "rows.csv", *fitting, "--condition-on", "site", "--out", tmp_path / "m.dco")
    new.loc[[3, 50, 199], "site"] = ["west", "west", "moon"]
    new.to_csv(tmp_path / "new.csv", index=False)
    return tmp_path / "m.dco", tmp_path / "new.csv", parts_of(new, 2, "parts")


def test_rows_of_groups_without_calibration_are_counted_once_also_by_a_run_that_goes_on(
    dco, tmp_path, by_site, fails_at
):
    """In a folder, where finished files are not read again, the count is of the rows predicted now,
    and says so.
    """
    model, data, parts = by_site
    here = "3 of 200 rows belong to 2 groups that have no calibration rows ('west', 'moon')"
    now = "1 of 100 rows predicted now belongs to 1 group that has no calibration rows ('moon')"
    for name, table, out, said in (
        ("write_tables", data, "sets.csv", here),
        ("write_partition", parts, "sets", now),
    ):
        arguments = ("predict", model, table, "--out", tmp_path / out, "--batch-rows", 100)
        with fails_at(module, name, 1, KeyboardInterrupt()):
            assert "Stopped" in dco(*arguments, status=130).output
        assert said in dco(*arguments, "--resume").output
        (note,) = dco.json(*arguments, "--force")["notes"]
        assert note.startswith(here)
    assert np.flatnonzero(np.isinf(pd.read_csv(tmp_path / "sets.csv")["size"])).tolist() == [
        3,
        50,
        199,
    ]


def test_a_disk_that_keeps_a_name_for_open_files_stops_no_run(
    dco, home, tmp_path, monkeypatch, new, parts_of
):
    """On NFS a folder with an open lock cannot be removed until the lock is closed."""

    def leaves_the_folder(folder: Path, ignore_errors: bool) -> None:
        assert ignore_errors
        for path in folder.iterdir():
            path.unlink()

    monkeypatch.setattr(module.shutil, "rmtree", leaves_the_folder)
    (empty := tmp_path / "empty.csv").write_text(",".join(new.columns) + "\n")
    for data, out, parts in (
        (home / "new.csv", "s.csv", "s.csv.parts"),
        (parts_of(new), "out", "out/_dco_unfinished"),
    ):
        dco("predict", home / "numbers.dco", data, "--out", tmp_path / out)
        assert (tmp_path / out).exists()
        assert not (tmp_path / parts).exists()
    dco("predict", home / "numbers.dco", empty, "--out", tmp_path / "e.csv", status=2)
    assert not (tmp_path / "e.csv.parts").exists()


def test_what_the_fit_never_saw_is_told_once_wherever_rows_are_read(
    dco, home, tmp_path, new, parts_of
):
    """Categories, and missing values in columns that had none."""
    model, out = home / "numbers.dco", ("--out", tmp_path / "s.csv", "--batch-rows", 20, "--force")
    assert dco.json("evaluate", model, home / "new.csv")["notes"] == []
    gaps, values = new.copy(), new.copy()
    gaps.loc[::3, "dose"] = np.nan
    gaps.loc[::20, "site"] = None
    values.loc[[3, 50, 199], "site"] = ["west", "west", "moon"]
    values.loc[7, "ward"] = "Z9"
    said = {
        "gaps": [
            "2 columns had no missing value in the fit and have some in 200 new rows ('dose' in "
            "67, 'site' in 10): such "
            "rows are not like those of the fit, which the guarantee is for."
        ],
        "values": [
            "The column 'site': 3 of 200 cells have values that the fit never saw, such as "
            "'west', 'moon'.",
            "The column 'ward': 1 of 200 cells have values that the fit never saw, such as 'Z9'.",
        ],
    }
    for name, frame in {"gaps": gaps, "values": values}.items():
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
        parts = parts_of(frame, 2, name)
        assert dco.json("predict", model, tmp_path / f"{name}.csv", *out)["notes"] == said[name]
        assert dco.json("evaluate", model, tmp_path / f"{name}.csv")["notes"] == said[name]
        for jobs in (1, 2):
            where = ("--jobs", jobs, "--out", tmp_path / f"{name}-{jobs}")
            assert dco.json("predict", model, parts, *where)["notes"] == said[name]
            if name == "values":
                assert (
                    dco.json("evaluate", model, parts, "--in-parts", "--jobs", jobs)["notes"]
                    == said[name]
                )


@pytest.mark.parametrize("values", [900, 2_000])
def test_unseen_categories_are_counted_however_many_the_fit_saw(dco, tmp_path, values):
    rng = np.random.default_rng(0)
    codes = [f"code {row}" for row in range(values)]
    frame = pd.DataFrame(
        {"code": codes, "x": rng.normal(size=values), "y": rng.normal(size=values)}
    )
    frame.to_csv(tmp_path / "fit.csv", index=False)
    frame.assign(code="never seen").to_csv(tmp_path / "new.csv", index=False)
    model = tmp_path / "m.dco"
    dco("fit", tmp_path / "fit.csv", "--target", "y", "--models", "linear", "--out", model)
    notes = dco.json("predict", model, tmp_path / "new.csv", "--out", tmp_path / "s.csv")["notes"]
    assert any(f"'code': {values:,} of {values:,} cells" in note for note in notes)
    assert (
        dco.json("predict", model, tmp_path / "fit.csv", "--out", tmp_path / "t.csv")["notes"] == []
    )


def test_a_model_of_another_version_gets_one_note(dco, home, tmp_path, monkeypatch):
    import dco.storage.saving as storage

    here = storage.versions()
    monkeypatch.setattr(storage, "versions", lambda: here | {"scikit-learn": "99.0"})
    model, new = home / "numbers.dco", home / "new.csv"
    for arguments in (
        ("predict", model, new, "--out", tmp_path / "s.csv"),
        ("evaluate", model, new),
        ("audit", model),
        ("report", model, "--out", tmp_path / "r.html"),
    ):
        told = dco.json(*arguments)["notes"]
        assert len(told) == 1
        assert f"written with scikit-learn {here['scikit-learn']} (here: 99.0)" in told[0]
    assert "Note: " in dco("audit", model).output


FORMULAS = ["=cmd()", "+sum", "-sum", "@now", "\tx", "'=y", "=1+1", "+49 30", "'@", "-"]
PLAIN = ["plain", "-1", "+3.5", "-1,5e3", "-1|1", "", None, "-1.5 to -inf"]


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())], ids=str
)
def test_text_that_a_spreadsheet_would_run_gets_an_apostrophe_which_can_be_taken_off_again(kind):
    """Also as the name of a column; numbers, sets of numbers and pieces are no formulas."""
    pieces = ["-inf to -1.0; 5.0 to 6.5", "1e-05 to inf"] * 9
    given = pa.table(
        {"@id": pa.array(FORMULAS + PLAIN).cast(kind), "pieces": pieces, "x": range(18)}
    )
    with pytest.warns(UserWarning, match="apostrophe"):
        table = without_formulas(given)
    assert table.column_names == ["'@id", "pieces", "x"]
    found = table.column(0).to_pylist()
    assert found == [f"'{text}" for text in FORMULAS[:10]] + PLAIN[:-1] + ["'-1.5 to -inf"]
    assert all(re.fullmatch("'(?='*[=+\\-@\\t\\r\\n]).*", text) for text in found[:10])
    assert table.column(1).to_pylist() == pieces


def test_labels_and_keys_of_a_csv_are_escaped_unless_asked_otherwise(dco, tmp_path):
    rng, n = np.random.default_rng(0), 420
    table = pd.DataFrame(
        {
            "@id": ["=1+1", "-1", "plain"] * (n // 3),
            "x": rng.normal(size=n),
            "y": ["=cmd()", "a"] * (n // 2),
        }
    )
    table["x"] += np.arange(n) % 2 * 9
    table.to_csv(tmp_path / "rows.csv", index=False)
    dco(
        "fit",
        tmp_path / "rows.csv",
        "--target",
        "y",
        "--key",
        "@id",
        "--models",
        "linear",
        "--out",
        tmp_path / "m.dco",
    )
    order = ("predict", tmp_path / "m.dco", tmp_path / "rows.csv", "--out")
    assert [
        note for note in dco.json(*order, tmp_path / "s.csv")["notes"] if "apostrophe" in note
    ] == [
        "In the CSV, text that begins with =, +, - or @ has an apostrophe in front: spreadsheets "
        "would run it. --no-escape "
        "keeps it unchanged."
    ]
    assert not any(
        "apostrophe" in note
        for note in dco.json(*order, tmp_path / "kept.csv", "--no-escape")["notes"]
    )
    dco(*order, tmp_path / "s.parquet")
    escaped, kept = (pd.read_csv(tmp_path / name, dtype=str) for name in ("s.csv", "kept.csv"))
    stored = pd.read_parquet(tmp_path / "s.parquet")
    assert [table.columns[0] for table in (escaped, kept, stored)] == ["'@id", "@id", "@id"]
    assert set(escaped["'@id"]) == {"'=1+1", "-1", "plain"}
    assert set(escaped["prediction"]) == {"'=cmd()", "a"}
    assert set(kept["prediction"]) == set(stored["prediction"]) == {"=cmd()", "a"}
    assert escaped.iloc[:, 0].str.removeprefix("'").tolist() == kept["@id"].tolist()


@pytest.mark.parametrize("out", ["sets.csv", "sets.parquet"])
def test_columns_are_kept_as_they_are_in_front_of_the_sets(dco, home, new, tmp_path, out):
    """Also those that the model does not know, and one that has the name of ours; text is escaped
    in a CSV alone.
    """
    new["size"], new["pieces"] = np.arange(len(new)) + 0.5, "=1+1"
    given = tmp_path / "given.csv"
    new.to_csv(given, index=False)
    dco("predict", home / "numbers.dco", given, "--keep", "size, pieces", "--out", tmp_path / out)
    made = pd.read_csv(tmp_path / out) if out.endswith("csv") else pd.read_parquet(tmp_path / out)
    assert list(made.columns) == ["row", "size", "pieces", "prediction", "lower", "upper", "size_"]
    assert made["size"].astype(float).tolist() == new["size"].tolist()
    assert set(made["pieces"]) == ({"'=1+1"} if out.endswith("csv") else {"=1+1"})
    dco("predict", home / "numbers.dco", given, "--keep", "all", "--out", tmp_path / f"all-{out}")
    made = (
        pd.read_csv(tmp_path / f"all-{out}")
        if out.endswith("csv")
        else pd.read_parquet(tmp_path / f"all-{out}")
    )
    assert list(made.columns[1 : 1 + len(new.columns)]) == list(new.columns)
    result = dco(
        "predict",
        home / "numbers.dco",
        given,
        "--keep",
        "sise",
        "--out",
        tmp_path / "no.csv",
        status=2,
    )
    assert "no column 'sise', which --keep names; did you mean 'size'?" in " ".join(
        result.output.split()
    )
