"""dco predict: the same sets as the estimator's, in order, whatever the format; killed runs leave nothing half-written."""

from __future__ import annotations

import csv
import errno
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dco as library
from dco.commands.layout import Layout, features
from dco.commands.reading import read_table


def expected(home: Path, model: str) -> tuple[Any, Any]:
    """The estimator and the features of the new rows, without the command."""
    estimator = library.load(home / model)
    layout = Layout.from_plain(estimator.table_["layout"])
    return estimator, features(read_table(home / "new.csv"), layout, path=home / "new.csv")


def read(path: Path) -> pd.DataFrame:
    return {".csv": pd.read_csv, ".parquet": pd.read_parquet, ".feather": pd.read_feather}[path.suffix](path)


@pytest.mark.parametrize("source", ["new.csv", "new.parquet", "new.feather"])
@pytest.mark.parametrize("suffix", ["csv", "parquet", "feather"])
def test_intervals_are_the_estimators_in_order(
    dco: Callable[..., Any], home: Path, tmp_path: Path, source: str, suffix: str
) -> None:
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


def test_label_sets_and_another_level(dco: Callable[..., Any], home: Path, tmp_path: Path) -> None:
    estimator, X = expected(home, "labels.dco")
    dco("predict", home / "labels.dco", home / "new.csv", "--out", tmp_path / "s.csv", "--alpha", "0.05")
    found = pd.read_csv(tmp_path / "s.csv", keep_default_na=False)
    wanted = estimator.predict_set(X, alpha=0.05).to_lists()
    assert found["set"].tolist() == ["|".join(labels) for labels in wanted]
    assert found["size"].tolist() == [len(labels) for labels in wanted]
    assert found["prediction"].tolist() == estimator.predict(X).tolist()
    dco("predict", home / "labels.dco", home / "new.parquet", "--out", tmp_path / "s.parquet", "--confidence", "0.95")
    assert [list(labels) for labels in pd.read_parquet(tmp_path / "s.parquet")["set"]] == wanted


def test_another_guarantee_from_the_same_calibration_rows(dco: Callable[..., Any], home: Path, tmp_path: Path) -> None:
    estimator, X = expected(home, "numbers.dco")
    arguments = ("predict", home / "numbers.dco", home / "new.csv", "--out", tmp_path / "s.csv")
    for option, given in ((("--delta", "0.2"), {"delta": 0.2}), ((), {})):
        dco(*arguments, "--guarantee", "pac", *option, "--force")
        wanted = estimator.predict_set(X, guarantee="pac", **given)
        np.testing.assert_allclose(pd.read_csv(tmp_path / "s.csv")["lower"], wanted.lower, rtol=1e-12)
    assert np.mean(wanted.sizes()) > np.mean(estimator.predict_set(X).sizes())
    assert "--delta belongs to --guarantee pac" in dco(*arguments, "--delta", "0.2", "--force", status=2).output


def test_parquet_and_feather_say_where_their_sets_come_from(dco: Callable[..., Any], home: Path, tmp_path: Path) -> None:
    partitioned(home, tmp_path / "in")
    model, asked = home / "numbers.dco", ("--alpha", "0.2", "--guarantee", "pac", "--delta", "0.1")
    dco("predict", model, home / "new.csv", "--out", tmp_path / "s.parquet", *asked)
    dco("predict", model, home / "new.csv", "--out", tmp_path / "s.feather", *asked)
    dco("predict", model, tmp_path / "in", "--out", tmp_path / "out", *asked)
    dco("predict", model, home / "new.csv", "--out", tmp_path / "own.parquet")
    signed = [
        json.loads(schema.metadata[b"dco"])
        for schema in (
            pq.read_schema(tmp_path / "s.parquet"),
            pa.ipc.open_file(tmp_path / "s.feather").schema,
            pq.read_schema(tmp_path / "out" / "part-3.parquet"),
            pq.read_schema(tmp_path / "own.parquet"),
        )
    ]
    common = {
        "version": library.__version__,
        "model_sha256": hashlib.sha256(model.read_bytes()).hexdigest(),
        "structure_fingerprint": library.load(model).certificate_.structure_fingerprint,
    }
    assert signed[:3] == [common | {"alpha": 0.2, "guarantee": "pac", "delta": 0.1}] * 3
    assert signed[3] == common | {"alpha": 0.1, "guarantee": "marginal", "delta": None}


def test_labels_that_hold_the_separator_are_written_as_json(dco: Callable[..., Any], home: Path, tmp_path: Path) -> None:
    frame = pd.read_csv(home / "rows.csv")
    frame["grade"] = frame["grade"].map({"low": "a|b", "mid": "c", "high": "d"})
    frame.to_csv(tmp_path / "t.csv", index=False)
    out = tmp_path / "m.dco"
    dco("fit", tmp_path / "t.csv", "--target", "grade", "--drop", "outcome", "--models", "linear", "--out", out)
    dco("predict", out, tmp_path / "t.csv", "--out", tmp_path / "s.csv")
    sets = [json.loads(text) for text in pd.read_csv(tmp_path / "s.csv")["set"]]
    assert any("a|b" in labels for labels in sets)
    assert {label for labels in sets for label in labels} <= {"a|b", "c", "d"}


def test_a_key_column_is_copied(dco: Callable[..., Any], home: Path, tmp_path: Path) -> None:
    dco("predict", home / "numbers.dco", home / "new.parquet", "--out", tmp_path / "s.csv", "--key", "patient")
    found = pd.read_csv(tmp_path / "s.csv")
    assert found.columns[0] == "patient"
    assert found["patient"].tolist() == pd.read_parquet(home / "new.parquet")["patient"].tolist()


def test_a_key_that_is_missing_is_told(dco: Callable[..., Any], home: Path, tmp_path: Path) -> None:
    model, out = tmp_path / "m.dco", tmp_path / "s.csv"
    fitting = ("--target", "outcome", "--drop", "grade", "--models", "linear", "--key", "patient")
    dco("fit", home / "rows.csv", *fitting, "--out", model)
    assert "Note" not in dco("predict", model, home / "new.csv", "--out", out).output
    assert pd.read_csv(out).columns[0] == "patient"
    without = tmp_path / "in"
    without.mkdir()
    for part in range(2):
        pd.read_csv(home / "new.csv").drop(columns="patient").to_parquet(without / f"{part}.parquet")
    for data, target in ((without / "0.parquet", out), (without, tmp_path / "sets")):
        told = dco("predict", model, data, "--out", target, "--force").output
        assert told.count("no column 'patient', the key of the model, so rows are named by their number") == 1
    assert pd.read_csv(out).columns[0] == "row"
    dco("predict", model, without / "0.parquet", "--out", out, "--force", "--key", "ward")
    assert "Note" not in dco("predict", model, home / "new.csv", "--out", out, "--force", "--key", "ward").output


def test_sets_with_several_pieces_are_written_in_full(dco: Callable[..., Any], tmp_path: Path) -> None:
    """Two far modes: the sets of a predictive density are unions, and the file holds every piece."""
    from dco.commands.predict import Order, sets_table

    class Two:
        """A calibrated model in name only: what sets_table asks for."""

        feature_names_in_ = np.array(["x"])

        def __init__(self) -> None:
            self.predictor_ = self.structure = self

        def prediction(self, X: Any) -> str:
            return "record"

        def sets(self, X: Any, *, prediction: Any, **statement: Any) -> Any:
            return library.IntervalUnions(np.array([0, 2, 3]), np.array([0.0, 5.0, 1.0]), np.array([1.0, 6.5, 2.0]))

        def predict(self, X: Any) -> Any:
            return np.array([3.0, 1.5])

    layout = Layout(target=None, task="regression", numbers=("x",), texts=(), order=("x",))
    order = Order("m", "d", "o", None, None, 10, False, ())
    table = sets_table(
        Two(), pa.table({"x": [1.0, 2.0]}), layout, key=None, path=tmp_path, first_row=0, order=order, text=True
    )
    assert table.column("pieces").to_pylist() == ["0.0 to 1.0; 5.0 to 6.5", "1.0 to 2.0"]
    assert table.column("lower").to_pylist() == [0.0, 1.0]
    assert table.column("upper").to_pylist() == [6.5, 2.0]
    assert table.column("size").to_pylist() == [2.5, 1.0]


# --- killed and resumed -------------------------------------------------------------------------------------------

INTERRUPTED = """
import os, signal, sys
import dco.commands.predict as predict
from dco.cli import main

write, calls = predict.write_arrow, []

def write_and_more(*arguments):
    write(*arguments)
    calls.append(arguments)
    if len(calls) == {part} + 1:  # this part is written and does not have its name yet
        {then}

predict.write_arrow = write_and_more
main(sys.argv[1:])
"""


def test_a_killed_run_leaves_no_output_and_resumes_to_the_same_bytes(
    dco: Callable[..., Any], home: Path, tmp_path: Path
) -> None:
    rows = pd.concat([pd.read_parquet(home / "new.parquet")] * 60, ignore_index=True)
    rows.to_parquet(tmp_path / "many.parquet")
    out = tmp_path / "sets.csv"
    arguments = [
        "predict",
        str(home / "numbers.dco"),
        str(tmp_path / "many.parquet"),
        "--out",
        str(out),
        "--batch-rows",
        "100",
    ]
    code = INTERRUPTED.format(part=10, then="os.kill(os.getpid(), signal.SIGKILL)")
    run = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, check=False)
    assert run.returncode == -signal.SIGKILL
    parts = tmp_path / "sets.csv.parts"
    assert not out.exists()
    done = sorted(path for path in parts.iterdir() if path.name.isdigit())
    assert len(done) == 10
    finished = done[5].read_bytes()
    other = b"a row of a part that was finished\n" * 100
    done[5].write_bytes(other)
    assert "--resume" in dco(*arguments, status=2).output
    assert "other options" in dco(*arguments, "--alpha", "0.3", "--resume", status=2).output
    dco(*arguments, "--resume")
    assert not parts.exists()
    dco(*[*arguments[:4], str(tmp_path / "again.csv")], "--batch-rows", 100)
    whole = (tmp_path / "again.csv").read_bytes()
    assert whole.count(finished) == 1
    assert out.read_bytes() == whole.replace(finished, other), "finished parts are not made again"


def test_two_runs_cannot_write_one_output(dco: Callable[..., Any], home: Path, tmp_path: Path) -> None:
    """While a run is at work another is refused, whatever it says; nothing of the first is touched."""
    from dco.files import held

    partitioned(home, tmp_path / "in")
    for data, out, parts in (
        (home / "new.csv", tmp_path / "s.csv", tmp_path / "s.csv.parts"),
        (tmp_path / "in", tmp_path / "out", tmp_path / "out" / "_dco_unfinished"),
    ):
        parts.parent.mkdir(exist_ok=True)
        arguments = ("predict", home / "numbers.dco", data, "--out", out)
        with held(parts):
            (parts / "000000000").write_text("a part of the run at work")
            for option in ((), ("--force",), ("--resume",)):
                assert "Another run is writing" in dco(*arguments, *option, status=2).output
            assert (parts / "000000000").read_text() == "a part of the run at work"
        assert dco(*arguments, "--force").output.startswith("Wrote the sets of 200 rows")
        assert not parts.exists()


def test_a_run_beside_one_at_work_is_refused_and_the_first_is_whole(
    dco: Callable[..., Any], home: Path, tmp_path: Path
) -> None:
    pd.concat([pd.read_parquet(home / "new.parquet")] * 60, ignore_index=True).to_parquet(tmp_path / "many.parquet")
    out = tmp_path / "sets.csv"
    arguments = ["predict", str(home / "numbers.dco"), str(tmp_path / "many.parquet"), "--out", str(out)]
    arguments += ["--batch-rows", "50"]
    code = INTERRUPTED.format(part=3, then="print('at work', flush=True); sys.stdin.read()")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", code, *arguments], text=True, **pipes) as first:
        assert first.stdout.readline() == "at work\n"
        assert "Another run is writing" in dco(*arguments, "--force", status=2).output
        first.stdin.close()
        told = first.stdout.read()
    assert "Wrote the sets of 12,000 rows" in told
    assert len(pd.read_csv(out)) == 12_000


@pytest.mark.parametrize("suffix", ["csv", "parquet", "feather"])
def test_parts_are_put_together_only_when_whole(
    dco: Callable[..., Any], home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    import dco.commands.predict as module

    whole = module._assemble
    harm: Callable[[Path], None] = lambda parts: (parts / "000000001").unlink()  # noqa: E731

    def harmed(parts: Path, *rest: Any, **options: Any) -> None:
        harm(parts)
        whole(parts, *rest, **options)

    monkeypatch.setattr(module, "_assemble", harmed)
    arguments = ("predict", home / "numbers.dco", home / "new.csv", "--batch-rows", 60, "--out", tmp_path / f"s.{suffix}")
    assert "000000001 is missing" in dco(*arguments, status=2).output
    harm = lambda parts: shutil.copy(parts / "000000003", parts / "000000001")  # noqa: E731
    assert "has 20 rows where 60 were written" in dco(*arguments, "--force", status=2).output
    assert not (tmp_path / f"s.{suffix}").exists()


def test_line_breaks_in_cells_are_no_rows() -> None:
    from dco.commands.predict import _csv_rows

    assert _csv_rows(b'1,"a\nb",2\n2,"say ""no\n"" twice",3\n') == 2


@pytest.mark.parametrize("folder", [False, True])
def test_a_full_disk_is_named_and_finished_parts_are_kept(
    dco: Callable[..., Any], home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: bool
) -> None:
    """Arrow's own error has neither a path nor a next step."""
    import dco.commands.predict as module

    partitioned(home, tmp_path / "in")
    data, out = (tmp_path / "in", tmp_path / "out") if folder else (home / "new.parquet", tmp_path / "s.csv")
    arguments = ("predict", home / "numbers.dco", data, "--batch-rows", 50)
    whole, done = module._signed, []

    def full(*given: Any) -> Any:
        if len(done) == 2:
            raise OSError(errno.ENOSPC, "Error writing bytes to file")
        done.append(1)
        return whole(*given)

    monkeypatch.setattr(module, "_signed", full)
    told = " ".join(dco(*arguments, "--out", out, status=2).output.split())
    assert f"no space left at {tmp_path}; make room, then run again with --resume." in told
    kept = sorted((out / "_dco_unfinished" if folder else tmp_path / "s.csv.parts").glob("part-*" if folder else "0*"))
    assert len(kept) == 2
    before = [path.stat().st_mtime_ns for path in kept]
    monkeypatch.setattr(module, "_signed", lambda *given: (done.append(1), whole(*given))[1])
    dco(*arguments, "--out", out, "--resume")
    assert len(done) == 4, "finished parts are not made again"
    if folder:
        assert [(out / path.name).stat().st_mtime_ns for path in kept] == before
    dco(*arguments, "--out", tmp_path / f"again{out.suffix}")
    for path in out.iterdir() if folder else [out]:
        again = tmp_path / f"again{out.suffix}"
        assert path.read_bytes() == (again / path.name if folder else again).read_bytes()


def test_force_never_replaces_what_is_read(dco: Callable[..., Any], home: Path, tmp_path: Path) -> None:
    partitioned(home, tmp_path / "in")
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
        (*fit, tmp_path / "new.csv", "--out", tmp_path / "x.dco", "--certificate", tmp_path / "link.csv"),
        (*fit, tmp_path / "in", "--out", part),
        ("report", tmp_path / "m.dco", "--out", tmp_path / "m.dco", "--force"),
    ):
        assert "would destroy it" in dco(*arguments, status=2).output
    for out in (tmp_path / "in", tmp_path / "in" / "sets"):
        told = dco(*predict, tmp_path / "in", "--force", "--out", out, status=2).output
        assert "choose a folder elsewhere" in told
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_bad_row_deep_in_the_table_leaves_nothing_behind(dco: Callable[..., Any], home: Path, tmp_path: Path) -> None:
    text = (home / "new.csv").read_text().splitlines()
    text[150] = text[150].replace(",", ",oops", 1)
    (tmp_path / "bad.csv").write_text("\n".join(text) + "\n")
    told = dco(
        "predict", home / "numbers.dco", tmp_path / "bad.csv", "--out", tmp_path / "s.csv", "--batch-rows", 20, status=2
    )
    assert "row 150" in told.output
    assert "'dose'" in told.output
    assert [path.name for path in tmp_path.iterdir()] == ["bad.csv"]


def test_memory_does_not_grow_with_the_table(dco: Callable[..., Any], home: Path, tmp_path: Path) -> None:
    """Ten times the rows: the peak of Arrow's and Python's memory stays within a few batches."""
    one = pd.concat([pd.read_parquet(home / "new.parquet")] * 50, ignore_index=True)
    schema = pa.Table.from_pandas(one)
    peaks = []
    for copies in (2, 20):
        path = tmp_path / f"{copies}.parquet"
        with pq.ParquetWriter(path, schema.schema) as writer:
            for _ in range(copies):
                writer.write_table(schema)
        code = (
            "import sys, tracemalloc, dco, pyarrow; from dco.cli import main\n"
            "dco.load(sys.argv[2])  # imports what the run imports, before memory is traced\n"
            "tracemalloc.start()\n"
            "main(sys.argv[1:], standalone_mode=False)\n"
            "print(tracemalloc.get_traced_memory()[1] + pyarrow.default_memory_pool().max_memory())"
        )
        arguments = [
            "predict",
            home / "numbers.dco",
            path,
            "--out",
            tmp_path / f"{copies}.out.parquet",
            "--batch-rows",
            5000,
        ]
        run = subprocess.run(
            [sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True, check=True, env=os.environ
        )
        peaks.append(int(run.stdout.split()[-1]) / 1e6)
        assert pq.ParquetFile(tmp_path / f"{copies}.out.parquet").metadata.num_rows == copies * len(one)
    assert peaks[1] - peaks[0] < 30, f"peaks in MB: {peaks}"  # all 200,000 rows at once would be some 80 MB


# --- folders ------------------------------------------------------------------------------------------------------


def partitioned(home: Path, folder: Path, parts: int = 4) -> pd.DataFrame:
    folder.mkdir()
    frame = pd.read_parquet(home / "new.parquet")
    for index in range(parts):
        frame.iloc[index * 50 : (index + 1) * 50].to_parquet(folder / f"part-{index}.parquet", index=False)
    return frame


def test_a_folder_gives_one_file_a_partition(dco: Callable[..., Any], home: Path, tmp_path: Path) -> None:
    partitioned(home, tmp_path / "in")
    arguments = ("predict", home / "numbers.dco", tmp_path / "in", "--out", tmp_path / "out")
    dco(*arguments)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [f"part-{i}.parquet" for i in range(4)]
    dco("predict", home / "numbers.dco", home / "new.parquet", "--out", tmp_path / "one.parquet")
    together = pd.concat([pd.read_parquet(tmp_path / "out" / f"part-{i}.parquet") for i in range(4)], ignore_index=True)
    pd.testing.assert_frame_equal(together, pd.read_parquet(tmp_path / "one.parquet"))
    assert "not empty" in dco(*arguments, status=2).output


def test_a_folder_resumes_with_the_partitions_that_are_missing(
    dco: Callable[..., Any], home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import dco.commands.predict as module

    partitioned(home, tmp_path / "in")
    whole = module.predict_partition
    done: list[str] = []

    def stops(order: Any) -> int:
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(Path(order.data).name)
        return whole(order)

    monkeypatch.setattr(module, "predict_partition", stops)
    arguments = ("predict", home / "numbers.dco", tmp_path / "in", "--out", tmp_path / "out")
    assert "Stopped" in dco(*arguments, status=130).output
    unfinished = tmp_path / "out" / "_dco_unfinished"
    assert sorted(path.name for path in unfinished.glob("part-*")) == ["part-0.parquet", "part-1.parquet"]
    assert list((tmp_path / "out").iterdir()) == [unfinished], "no output until all are there"
    plan = unfinished / "plan.json"
    asked = plan.read_text()
    plan.write_text(asked[:10])  # cut short
    assert "does not belong to a stopped run" in dco(*arguments, "--resume", status=2).output
    plan.write_text(asked)
    monkeypatch.setattr(module, "predict_partition", lambda order: (done.append(Path(order.data).name), whole(order))[1])
    dco(*arguments, "--resume")
    assert done == [f"part-{i}.parquet" for i in range(4)], "each partition was done once"


@pytest.mark.parametrize("folder", [False, True])
def test_a_run_does_not_go_on_with_a_table_that_has_changed(
    dco: Callable[..., Any], home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: bool
) -> None:
    """Its size and its time stamp are those that it had, and one cell is another."""
    import dco.commands.predict as module

    partitioned(home, tmp_path / "in")
    data = tmp_path / "in" / "part-3.parquet"
    if not folder:
        data = tmp_path / "new.csv"
        data.write_bytes((home / "new.csv").read_bytes())
    whole, stamp, done = module._signed, data.stat().st_mtime_ns, []
    out = tmp_path / ("out" if folder else "sets.csv")
    arguments = ("predict", home / "numbers.dco", data.parent if folder else data, "--out", out, "--batch-rows", 50)

    def stops(*given: Any) -> Any:
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(1)
        return whole(*given)

    monkeypatch.setattr(module, "_signed", stops)
    dco(*arguments, status=130)
    monkeypatch.setattr(module, "_signed", whole)
    original = data.read_bytes()
    at = original.rindex(b"north")
    data.write_bytes(original[:at] + b"south" + original[at + 5 :])
    os.utime(data, ns=(stamp, stamp))
    assert (data.stat().st_size, data.stat().st_mtime_ns) == (len(original), stamp)
    told = " ".join(dco(*arguments, "--resume", status=2).output.split())
    assert ("this table" if folder else "one that has changed since") in told
    assert "--force without --resume" in told
    data.write_bytes(original)  # the bytes count, and not the time
    dco(*arguments, "--resume")


def test_force_leaves_no_sets_of_an_earlier_run(
    dco: Callable[..., Any], home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import dco.commands.predict as module

    partitioned(home, tmp_path / "in")
    arguments = ("predict", home / "numbers.dco", tmp_path / "in", "--out", tmp_path / "out")
    dco(*arguments)
    for index in (2, 3):
        (tmp_path / "in" / f"part-{index}.parquet").unlink()
    (tmp_path / "out" / "notes.txt").write_text("mine")
    pd.DataFrame({"x": [1]}).to_parquet(tmp_path / "out" / "mine.parquet")
    assert "holds mine.parquet, which is neither" in dco(*arguments, "--force", status=2).output
    assert len(list((tmp_path / "out").glob("part-*"))) == 4, "a refusal removes nothing"
    (tmp_path / "out" / "mine.parquet").unlink()

    def stops(order: Any) -> Any:
        raise KeyboardInterrupt

    whole = module.predict_partition
    monkeypatch.setattr(module, "predict_partition", stops)
    dco(*arguments, "--force", "--alpha", "0.3", status=130)
    assert len(list((tmp_path / "out").glob("part-*"))) == 4, "a run that does not end changes nothing"
    monkeypatch.setattr(module, "predict_partition", whole)
    dco(*arguments, "--resume", "--alpha", "0.3")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["notes.txt", "part-0.parquet", "part-1.parquet"]
    alphas = {json.loads(pq.read_schema(path).metadata[b"dco"])["alpha"] for path in (tmp_path / "out").glob("*.parquet")}
    assert alphas == {0.3}, "sets of the earlier run were not taken for finished ones"


def test_a_dask_cluster_gives_the_same_files(dco: Callable[..., Any], home: Path, tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    partitioned(home, tmp_path / "in")
    dco("predict", home / "labels.dco", tmp_path / "in", "--out", tmp_path / "here")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what a closing cluster leaves behind
        with distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, processes=True, dashboard_address=":0", silence_logs=50
        ) as cluster:
            scheduler = cluster.scheduler_address
            dco("predict", home / "labels.dco", tmp_path / "in", "--out", tmp_path / "there", "--scheduler", scheduler)
    for index in range(4):
        here, there = (pd.read_parquet(tmp_path / name / f"part-{index}.parquet") for name in ("here", "there"))
        pd.testing.assert_frame_equal(here, there)


# --- bad input ----------------------------------------------------------------------------------------------------


def test_columns_must_be_those_of_the_fit(dco: Callable[..., Any], home: Path, tmp_path: Path) -> None:
    frame = pd.read_csv(home / "new.csv")
    frame.drop(columns="dose").to_csv(tmp_path / "lacks.csv", index=False)
    told = dco("predict", home / "numbers.dco", tmp_path / "lacks.csv", "--out", tmp_path / "s.csv", status=2).output
    assert "lacks 1 of the columns" in told
    assert "'dose'" in told
    frame.assign(colour="red").to_csv(tmp_path / "new.csv", index=False)
    told = dco("predict", home / "numbers.dco", tmp_path / "new.csv", "--out", tmp_path / "s.csv", status=2).output
    assert "'colour'" in told
    assert "--ignore-new" in told
    dco("predict", home / "numbers.dco", tmp_path / "new.csv", "--out", tmp_path / "s.csv", "--ignore-new")
    dco("predict", home / "numbers.dco", home / "new.csv", "--out", tmp_path / "same.csv")
    assert (tmp_path / "s.csv").read_bytes() == (tmp_path / "same.csv").read_bytes()


def test_a_model_must_be_a_model(dco: Callable[..., Any], home: Path, tmp_path: Path) -> None:
    out = tmp_path / "s.csv"
    assert "is not a model file" in dco("predict", home / "rows.csv", home / "new.csv", "--out", out, status=2).output
    assert "no file" in dco("predict", home / "none.dco", home / "new.csv", "--out", out, status=2).output
    assert "is a folder" in dco("predict", tmp_path, home / "new.csv", "--out", out, status=2).output
    assert (
        "written as .csv, .parquet or .feather"
        in dco("predict", home / "numbers.dco", home / "new.csv", "--out", tmp_path / "s.txt", status=2).output
    )
    assert list(tmp_path.iterdir()) == []


def test_an_untrusted_type_is_named_with_the_option_to_trust_it(
    dco: Callable[..., Any], home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import dco.trusted_types as trusted

    kept = tuple(name for name in trusted.OWN if name != "dco.splits.Splits")
    monkeypatch.setattr(trusted, "OWN", kept)
    arguments = ("predict", home / "numbers.dco", home / "new.csv", "--out", tmp_path / "s.csv")
    assert "--trust dco.splits.Splits" in dco(*arguments, status=2).output
    odd = tmp_path / "not trusted: us. If you know.dco"  # a name with words of the message
    shutil.copy(home / "numbers.dco", odd)
    told = " ".join(dco("predict", odd, *arguments[2:], status=2).output.split())
    assert "types that are not trusted (dco.splits.Splits); if you know" in told
    assert "say --trust dco.splits.Splits: building" in told
    dco(*arguments, "--trust", "dco.splits.Splits")


def test_models_made_in_python_are_taken_too(dco: Callable[..., Any], home: Path, tmp_path: Path) -> None:
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
        dco("predict", tmp_path / f"{name}.dco", tmp_path / "x.csv", "--out", tmp_path / f"{name}.csv")
        np.testing.assert_allclose(pd.read_csv(tmp_path / f"{name}.csv")["lower"], named.predict_set(X).lower)
        dco("evaluate", tmp_path / f"{name}.dco", tmp_path / "xy.csv", "--target", "y")
        assert "--target" in dco("evaluate", tmp_path / f"{name}.dco", tmp_path / "x.csv", status=2).output


def test_codes_keep_their_zeros_from_fit_to_predict(dco: Callable[..., Any], tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    place = rng.choice(["01234", "00987", "10115"], size=300)
    frame = pd.DataFrame(
        {"near": np.where(rng.random(300) < 0.9, place, "00001"), "x": rng.normal(size=300), "place": place}
    )
    frame.to_csv(tmp_path / "rows.csv", index=False)
    told = dco("fit", tmp_path / "rows.csv", "--target", "place", "--models", "linear", "--out", tmp_path / "m.dco").output
    assert "codes such as 0" in told
    layout = library.load(tmp_path / "m.dco").table_["layout"]
    assert layout["texts"] == ["near"]
    assert layout["numbers"] == ["x"]
    # batches in which no cell happens to begin with a zero are read as the fit read them
    later = frame[frame["near"] == "10115"].drop(columns="place").head(40)
    later.to_csv(tmp_path / "new.csv", index=False)
    dco("predict", tmp_path / "m.dco", tmp_path / "new.csv", "--out", tmp_path / "sets.csv", "--batch-rows", 7)
    sets = pd.read_csv(tmp_path / "sets.csv", dtype=str)
    assert set(sets["prediction"]) == {"10115"}
    dco("predict", tmp_path / "m.dco", tmp_path / "rows.csv", "--out", tmp_path / "all.csv")
    shown = {label for cell in pd.read_csv(tmp_path / "all.csv", dtype=str)["set"].dropna() for label in cell.split("|")}
    assert shown == {"01234", "00987", "10115"}
    assert json.loads(dco("evaluate", tmp_path / "m.dco", tmp_path / "rows.csv", "--json").output)["coverage"] > 0.7


def test_rows_of_groups_without_calibration_are_counted_once(dco: Callable[..., Any], home: Path, tmp_path: Path) -> None:
    model, out = tmp_path / "m.dco", tmp_path / "sets.csv"
    fitting = ("--target", "outcome", "--drop", "grade", "--drop", "patient", "--models", "linear", "--calibrate-size", 120)
    dco("fit", home / "rows.csv", *fitting, "--condition-on", "site", "--out", model)
    dco("predict", model, home / "new.csv", "--out", out)
    new = pd.read_csv(home / "new.csv")
    new.loc[[3, 50, 199], "site"] = ["west", "west", "moon"]
    new.to_csv(tmp_path / "new.csv", index=False)
    told = dco("predict", model, tmp_path / "new.csv", "--out", out, "--batch-rows", 20, "--force").output
    assert told.count("Note: ") == 1
    assert "3 of 200 rows belong to 2 groups that have no calibration rows ('west', 'moon')" in told
    assert np.flatnonzero(np.isinf(pd.read_csv(out)["size"])).tolist() == [3, 50, 199]
    (tmp_path / "parts").mkdir()
    for place in range(2):
        new.iloc[100 * place : 100 * place + 100].to_parquet(tmp_path / "parts" / f"{place}.parquet")
    told = json.loads(dco("predict", model, tmp_path / "parts", "--out", tmp_path / "sets", "--json").output)
    assert len(told["notes"]) == 1
    assert told["notes"][0].startswith("3 of 200 rows belong to 2 groups")


def test_a_run_that_goes_on_counts_groups_of_all_rows(
    dco: Callable[..., Any], home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a folder, where finished files are not read again, the count is of the rows predicted now, and says so."""
    import dco.commands.predict as module

    model = tmp_path / "m.dco"
    fitting = ("--target", "outcome", "--drop", "grade", "--drop", "patient", "--models", "linear", "--calibrate-size", 120)
    dco("fit", home / "rows.csv", *fitting, "--condition-on", "site", "--out", model)
    new = pd.read_csv(home / "new.csv")
    new.loc[[3, 50, 199], "site"] = ["west", "west", "moon"]
    new.to_csv(tmp_path / "new.csv", index=False)
    (tmp_path / "parts").mkdir()
    for place in range(2):
        new.iloc[100 * place : 100 * place + 100].to_parquet(tmp_path / "parts" / f"{place}.parquet")
    for name, data, said in (
        ("sets_table", "new.csv", "3 of 200 rows belong to 2 groups that have no calibration rows ('west', 'moon')"),
        (
            "predict_partition",
            "parts",
            "1 of 100 rows predicted now belongs to 1 group that has no calibration rows ('moon')",
        ),
    ):
        whole, calls = getattr(module, name), []

        def stops(*given: Any, whole: Any = whole, calls: list[int] = calls, **options: Any) -> Any:
            calls.append(1)
            if len(calls) == 2:
                raise KeyboardInterrupt
            return whole(*given, **options)

        out = tmp_path / ("sets.csv" if data == "new.csv" else "sets")
        arguments = ("predict", model, tmp_path / data, "--out", out, "--batch-rows", 100)
        with monkeypatch.context() as patch:
            patch.setattr(module, name, stops)
            assert "Stopped" in dco(*arguments, status=130).output
        assert said in dco(*arguments, "--resume").output


def test_a_disk_that_keeps_a_name_for_open_files_stops_no_run(
    dco: Callable[..., Any], home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On NFS a folder with an open lock cannot be removed until the lock is closed."""
    import dco.commands.predict as module

    def leaves_the_folder(folder: Path, ignore_errors: bool = False) -> None:
        for path in folder.iterdir():
            path.unlink()
        if not ignore_errors:
            raise OSError(39, "Directory not empty", str(folder))

    partitioned(home, tmp_path / "in")
    monkeypatch.setattr(module.shutil, "rmtree", leaves_the_folder)
    for data, out, parts in ((home / "new.csv", "s.csv", "s.csv.parts"), (tmp_path / "in", "out", "out/_dco_unfinished")):
        dco("predict", home / "numbers.dco", data, "--out", tmp_path / out)
        assert (tmp_path / out).exists()
        assert not (tmp_path / parts).exists()
    empty = tmp_path / "empty.csv"
    empty.write_text(",".join(pd.read_csv(home / "new.csv").columns) + "\n")
    dco("predict", home / "numbers.dco", empty, "--out", tmp_path / "e.csv", status=2)
    assert not (tmp_path / "e.csv.parts").exists()


def test_the_json_names_the_statement_of_the_sets(dco: Callable[..., Any], home: Path, tmp_path: Path) -> None:
    arguments = ("predict", home / "numbers.dco", home / "new.csv", "--out", tmp_path / "s.csv", "--json", "--force")
    for asked, stated in (
        ((), (0.1, "marginal", None)),
        (("--alpha", 0.2, "--guarantee", "pac", "--delta", 0.1), (0.2, "pac", 0.1)),
    ):
        told = json.loads(dco(*arguments, *asked).output)
        assert (told["alpha"], told["guarantee"], told["delta"]) == stated
    told = dco(*arguments, "--delta", 0.1, status=2).output
    assert "--delta belongs to --guarantee pac" in told


def test_categories_that_the_fit_never_saw_are_told(dco: Callable[..., Any], home: Path, tmp_path: Path) -> None:
    model = home / "numbers.dco"
    new = pd.read_csv(home / "new.csv")
    new.loc[[3, 50, 199], "site"] = ["west", "west", "moon"]
    new.loc[7, "ward"] = "Z9"
    new.to_csv(tmp_path / "new.csv", index=False)
    said = [
        "The column 'site': 3 of 200 cells hold values that the fit never saw, such as 'west', 'moon'.",
        "The column 'ward': 1 of 200 cells hold values that the fit never saw, such as 'Z9'.",
    ]
    arguments = ("predict", model, tmp_path / "new.csv", "--out", tmp_path / "s.csv", "--batch-rows", 20)
    assert json.loads(dco(*arguments, "--json").output)["notes"] == said
    assert json.loads(dco("evaluate", model, tmp_path / "new.csv", "--json").output)["notes"] == said
    assert json.loads(dco("evaluate", model, home / "new.csv", "--json").output)["notes"] == []
    (tmp_path / "parts").mkdir()
    for place in range(2):
        new.iloc[100 * place : 100 * place + 100].to_parquet(tmp_path / "parts" / f"{place}.parquet")
    for jobs in (1, 2):
        folder = ("predict", model, tmp_path / "parts", "--out", tmp_path / f"sets{jobs}", "--jobs", jobs, "--json")
        assert json.loads(dco(*folder).output)["notes"] == said


def test_columns_that_were_never_missing_and_now_are_get_a_note(dco: Callable[..., Any], home: Path, tmp_path: Path) -> None:
    model = home / "numbers.dco"
    new = pd.read_csv(home / "new.csv")
    new.loc[::3, "dose"] = np.nan
    new.loc[::20, "site"] = None
    new.to_csv(tmp_path / "new.csv", index=False)
    said = [
        "2 columns had no missing value in the fit and have some in 200 new rows ('dose' in 67, 'site' in 10): such rows "
        "are not like those of the fit, which the guarantee is for."
    ]
    arguments = ("predict", model, tmp_path / "new.csv", "--out", tmp_path / "s.csv", "--batch-rows", 20)
    assert json.loads(dco(*arguments, "--json").output)["notes"] == said
    assert json.loads(dco("evaluate", model, tmp_path / "new.csv", "--json").output)["notes"] == said
    (tmp_path / "parts").mkdir()
    for place in range(2):
        new.iloc[100 * place : 100 * place + 100].to_parquet(tmp_path / "parts" / f"{place}.parquet")
    folder = ("predict", model, tmp_path / "parts", "--out", tmp_path / "sets", "--jobs", 2, "--json")
    assert json.loads(dco(*folder).output)["notes"] == said


def test_many_categories_are_not_kept(dco: Callable[..., Any], home: Path, tmp_path: Path) -> None:
    from dco.commands.layout import NewValues, told_columns, with_categories

    layout = Layout(target="y", task="regression", numbers=(), texts=("a", "b"), order=("a", "b"))
    X = pd.DataFrame({"a": [f"value {row}" for row in range(1001)], "b": ["u", None, "v"] + ["u"] * 998})
    layout = with_categories(layout, X)
    assert layout.categories == {"b": ("u", "v")}
    assert told_columns(layout) == "Categories: a (more than 1,000 values), b (2 values)."
    broken = Layout(target="y", task="regression", numbers=("a\n(b)",), texts=(), order=("a\n(b)",))
    assert told_columns(broken) == "Numbers: a (b)."
    assert Layout.from_plain(layout.to_plain()) == layout
    values = NewValues()
    values.count(pa.table({"a": ["new"] * 3, "b": pa.array(["u", "w", None]).dictionary_encode()}), layout)
    assert values.cells == {"b": 1}


def test_a_model_of_another_version_gets_one_note(
    dco: Callable[..., Any], home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import dco.storage as storage

    here = storage.versions()
    monkeypatch.setattr(storage, "versions", lambda: here | {"scikit-learn": "99.0"})
    model, new = home / "numbers.dco", home / "new.csv"
    for arguments in (
        ("predict", model, new, "--out", tmp_path / "s.csv"),
        ("evaluate", model, new),
        ("audit", model),
        ("report", model, "--out", tmp_path / "r.html"),
    ):
        told = json.loads(dco(*arguments, "--json").output)["notes"]
        assert len(told) == 1
        assert f"written with scikit-learn {here['scikit-learn']} (here: 99.0)" in told[0]
    assert "Note: " in dco("audit", model).output


def test_no_text_of_a_csv_begins_as_a_formula(dco: Callable[..., Any], tmp_path: Path) -> None:
    """Labels, keys and column names get an apostrophe, which can be taken off again; numbers and other files get none."""
    rng = np.random.default_rng(0)
    labels = ["=cmd()", "+sum", "-sum", "@now", "\tx", "'=y", "plain"]
    keys = ["=1+1", "-1", "+3.5", "-1,5e3", "+49 30", "plain", "'@", "-", None]
    n = 420
    table = pd.DataFrame({"@id": [keys[row % len(keys)] for row in range(n)], "x": rng.normal(size=n)})
    table["y"] = [labels[row % len(labels)] for row in range(n)]
    table["x"] += np.arange(n) % len(labels) * 9
    table.to_csv(tmp_path / "rows.csv", index=False)
    model = tmp_path / "model.dco"
    dco("fit", tmp_path / "rows.csv", "--target", "y", "--key", "@id", "--models", "linear", "--out", model)
    order = ("predict", model, tmp_path / "rows.csv", "--json", "--out")
    told = json.loads(dco(*order, tmp_path / "s.csv").output)["notes"]
    assert [note for note in told if "apostrophe" in note] == [
        "Text that begins with =, +, - or @ has an apostrophe in front in the CSV, so that no spreadsheet runs it as a "
        "formula; --no-escape keeps it as it is."
    ]
    kept = json.loads(dco(*order, tmp_path / "kept.csv", "--no-escape").output)["notes"]
    assert not any("apostrophe" in note for note in kept)
    dco(*order, tmp_path / "s.parquet")
    with open(tmp_path / "s.csv", newline="") as file:
        cells = list(csv.reader(file))
    with open(tmp_path / "kept.csv", newline="") as file:
        raw = list(csv.reader(file))
    assert cells[0][0] == "'@id"
    risky = re.compile("[=+\\-@\\t\\r\\n]")
    numbers = re.compile(r"[+-][0-9.,]+(e[0-9]+)?")
    assert all(not risky.match(cell) or numbers.fullmatch(cell) for row in cells for cell in row)
    assert {row[0] for row in cells} >= {"-1", "+3.5", "-1,5e3", "'=1+1", "'+49 30", "''@", "'-", "plain"}
    assert {row[1] for row in cells} >= {"'=cmd()", "'+sum", "'-sum", "'@now", "'\tx", "''=y", "plain"}
    assert [[re.sub("^'(?='*[=+\\-@\\t\\r\\n])", "", cell) for cell in row] for row in cells] == raw
    stored = pd.read_parquet(tmp_path / "s.parquet")
    assert stored.columns[0] == "@id"
    assert set(stored["prediction"]) == set(labels)


def test_text_of_every_arrow_type_is_escaped() -> None:
    from dco.commands.predict import _escaped

    for kind in (pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())):
        column = pa.array(["=a", "-1", None, "b"]).cast(kind)
        with pytest.warns(UserWarning, match="apostrophe"):
            assert _escaped(pa.table({"key": column})).column(0).to_pylist() == ["'=a", "-1", None, "b"]


def test_sets_of_negative_numbers_are_no_formulas(dco: Callable[..., Any], tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"x": rng.normal(size=200)})
    table["y"] = np.where(table["x"] + rng.normal(size=200) > 0, 1, -1)
    table.to_csv(tmp_path / "rows.csv", index=False)
    model = tmp_path / "model.dco"
    dco("fit", tmp_path / "rows.csv", "--target", "y", "--models", "linear", "--out", model)
    dco("predict", model, tmp_path / "rows.csv", "--out", tmp_path / "s.csv")
    assert set(pd.read_csv(tmp_path / "s.csv")["set"]) == {"-1", "1", "-1|1"}
