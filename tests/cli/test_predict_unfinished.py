"""dco predict that is stopped, killed or refused: nothing half-written, and --resume goes on."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import feather

from dco.foundations.files import lock_folder


class Run:
    """A run of dco predict: its data, its output, and where its finished parts wait."""

    def __init__(self, model, data, out):
        self.data = data
        self.out = out
        self.is_folder = data.is_dir()
        self.words = ("predict", model, data, "--batch-rows", 50, "--out", out)
        if self.is_folder:
            self.unfinished = out / "_dco_unfinished"
        else:
            self.unfinished = out.with_name(f"{out.name}.parts")

    def name(self, index):
        """The name of a finished part."""
        return f"part-{index}.parquet" if self.is_folder else f"{index:09d}"

    def finished(self):
        """The parts that wait, by name."""
        names = {self.name(index) for index in range(4)}
        return {path.name: path for path in self.unfinished.iterdir() if path.name in names}

    def outputs(self):
        """The content of the output, by name of the file."""
        files = sorted(self.out.iterdir()) if self.is_folder else [self.out]
        return {path.name: path.read_bytes() for path in files}


@pytest.fixture(params=["file", "folder"])
def run(request, home, tmp_path, new, parts_of):
    """A run over 200 rows in four parts: batches of a file, or files of a folder."""
    if request.param == "folder":
        return Run(home / "numbers.dco", parts_of(new), tmp_path / "out")
    data = tmp_path / "data.parquet"
    shutil.copy(home / "new.parquet", data)
    return Run(home / "numbers.dco", data, tmp_path / "s.parquet")


FULL_DISK = OSError(errno.ENOSPC, "Error writing bytes to file")


# --- stopped and resumed --------------------------------------------------------------------------


def test_a_full_disk_is_named_with_the_next_step(dco, tmp_path, run, no_name_for):
    """Arrow's own error has neither a path nor a next step."""
    with no_name_for(run.name(2), FULL_DISK):
        message = dco.refuses(*run.words)
    assert f"no space left at {tmp_path}; make room, then run again with --resume." in message


def test_finished_parts_are_kept_and_no_output_is_written(dco, run, no_name_for):
    with no_name_for(run.name(2), FULL_DISK):
        dco.refuses(*run.words)

    assert run.finished().keys() == {run.name(0), run.name(1)}
    if run.is_folder:
        assert list(run.out.iterdir()) == [run.unfinished]
    else:
        assert not run.out.exists()


def test_finished_parts_are_not_made_again(dco, run, no_name_for):
    with no_name_for(run.name(2), FULL_DISK):
        dco.refuses(*run.words)

    with no_name_for("no such file", FULL_DISK) as names:
        dco(*run.words, "--resume")

    made_now = [name for name in names if name not in (run.name(0), run.name(1))]
    assert made_now[:2] == [run.name(2), run.name(3)]
    assert names.count(run.name(0)) == (1 if run.is_folder else 0)  # moved to its place


def test_finished_files_of_a_folder_are_moved_as_they_are(dco, run, no_name_for):
    with no_name_for(run.name(2), FULL_DISK):
        dco.refuses(*run.words)
    times = {name: path.stat().st_mtime_ns for name, path in run.finished().items()}

    dco(*run.words, "--resume")

    if run.is_folder:
        assert {name: (run.out / name).stat().st_mtime_ns for name in times} == times


def test_a_resumed_run_writes_the_same_bytes(dco, tmp_path, run, no_name_for):
    with no_name_for(run.name(2), FULL_DISK):
        dco.refuses(*run.words)
    dco(*run.words, "--resume")
    resumed = run.outputs()

    dco(*run.words, "--force")

    assert resumed == run.outputs()
    assert len(resumed) == (4 if run.is_folder else 1)


def test_a_plan_that_was_cut_short_is_not_resumed(dco, run, no_name_for):
    with no_name_for(run.name(2), FULL_DISK):
        dco.refuses(*run.words)
    plan = run.unfinished / "plan.json"
    plan.write_text(plan.read_text()[:10])

    assert "is not from a stopped run" in dco.refuses(*run.words, "--resume")


@pytest.fixture
def stopped(dco, run, no_name_for):
    """A run that Ctrl-C has stopped before its third part."""
    with no_name_for(run.name(2), KeyboardInterrupt()):
        dco(*run.words, status=130)
    return run


def change_a_cell(path):
    """Make a south of the last north; the size and the time of the file stay as they are."""
    content = path.read_bytes()
    stamp = path.stat().st_mtime_ns
    position = content.rindex(b"north")
    path.write_bytes(content[:position] + b"south" + content[position + 5 :])
    os.utime(path, ns=(stamp, stamp))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (len(content), stamp)


def test_a_run_does_not_go_on_with_a_table_that_has_changed(dco, stopped):
    data = stopped.data / "part-3.parquet" if stopped.is_folder else stopped.data
    change_a_cell(data)
    message = dco.refuses(*stopped.words, "--resume")
    assert (
        "with these options and the same contents of the files that are read; --force without "
        "--resume" in message
    )


def test_a_run_goes_on_with_the_same_bytes_of_another_time(dco, stopped):
    data = stopped.data / "part-3.parquet" if stopped.is_folder else stopped.data
    data.write_bytes(data.read_bytes())
    dco(*stopped.words, "--resume")


def test_a_run_does_not_go_on_with_other_options(dco, stopped):
    words = (*stopped.words, "--alpha", "0.3", "--resume")
    assert "is not from a stopped run" in dco.refuses(*words)


def test_a_stopped_run_is_not_forgotten_silently(dco, stopped):
    assert "--resume continues a stopped run" in dco.refuses(*stopped.words)


# --- killed ---------------------------------------------------------------------------------------

# The tenth part is written, and has a temporary name.
KILL_BEFORE_PART_10 = """
import os, signal, sys
from dco.cli.main import main

rename = os.replace

def rename_or_end(source, target):
    if target.name == "000000010":
        os.kill(os.getpid(), signal.SIGKILL)
    rename(source, target)

os.replace = rename_or_end
main(sys.argv[1:])
"""


@pytest.fixture
def killed(home, tmp_path):
    """A run over 12,000 rows in batches of 100 that was killed in its eleventh batch."""
    rows = pd.concat([pd.read_parquet(home / "new.parquet")] * 60, ignore_index=True)
    rows.to_parquet(tmp_path / "many.parquet")
    run = Run(home / "numbers.dco", tmp_path / "many.parquet", tmp_path / "sets.csv")
    run.words = (*run.words, "--batch-rows", 100)

    words = [sys.executable, "-c", KILL_BEFORE_PART_10, *map(str, run.words)]
    process = subprocess.run(words, capture_output=True, check=False)
    assert process.returncode == -signal.SIGKILL
    return run


def test_a_killed_run_leaves_its_finished_parts_and_no_output(killed):
    names = sorted(path.name for path in killed.unfinished.iterdir() if path.name.isdigit())
    assert names == [f"{index:09d}" for index in range(10)]
    assert not killed.out.exists()


def test_a_killed_run_resumes_to_the_same_bytes(dco, tmp_path, killed):
    dco(*killed.words, "--resume")
    again = tmp_path / "again.csv"
    dco(*killed.words, "--out", again)
    assert not killed.unfinished.exists()
    assert killed.out.read_bytes() == again.read_bytes()


def test_a_resumed_run_takes_finished_parts_as_they_are(dco, killed):
    """The sixth part is given other numbers of rows."""
    part = killed.unfinished / "000000005"
    numbers = pa.array(np.arange(-100, 0))
    feather.write_feather(feather.read_table(part).set_column(0, "row", numbers), part)

    dco(*killed.words, "--resume")

    expected = np.arange(12_000)
    expected[500:600] = np.arange(-100, 0)
    np.testing.assert_array_equal(pd.read_csv(killed.out)["row"], expected)


# --- parts that were harmed -----------------------------------------------------------------------


def remove(part):
    part.unlink()


def shorten(part):
    feather.write_feather(feather.read_table(part).slice(0, 20), part)


@pytest.mark.parametrize(
    ("harm", "messages"),
    [
        (remove, ["000000001", "run again with --resume"]),
        (shorten, ["000000001 has 20 rows where 50 were written"]),
    ],
    ids=["removed", "shortened"],
)
def test_parts_are_put_together_only_when_whole(dco, home, tmp_path, monkeypatch, harm, messages):
    """A part is harmed while the last one gets its name."""
    run = Run(home / "numbers.dco", home / "new.csv", tmp_path / "s.csv")
    rename = os.replace

    def rename_and_harm(source, target):
        rename(source, target)
        if target.name == run.name(3):
            harm(target.with_name(run.name(1)))

    monkeypatch.setattr(os, "replace", rename_and_harm)
    message = dco.refuses(*run.words)

    assert [text for text in messages if text not in message] == []
    assert not run.out.exists()


# --- two runs, and folders of others --------------------------------------------------------------


@pytest.mark.parametrize("options", [(), ("--force",), ("--resume",)], ids=str)
def test_two_runs_cannot_write_one_output(dco, run, options):
    """While a run is at work another is refused, whatever it says, and touches nothing."""
    run.unfinished.parent.mkdir(exist_ok=True)
    with lock_folder(run.unfinished):
        part = run.unfinished / "000000000"
        part.write_text("a part of the run at work")
        message = dco.refuses(*run.words, *options)
        assert part.read_text() == "a part of the run at work"
    assert "Another run is writing" in message


def test_an_output_can_be_written_when_the_other_run_has_ended(dco, run):
    run.unfinished.parent.mkdir(exist_ok=True)
    with lock_folder(run.unfinished):
        (run.unfinished / "000000000").write_text("a part of another run")
    assert dco(*run.words, "--force").output.startswith("Wrote the sets of 200 rows")
    assert not run.unfinished.exists()


def test_a_folder_of_somebody_else_is_no_unfinished_work(dco, home, tmp_path):
    parts = tmp_path / "s.csv.parts"
    parts.mkdir()
    (parts / "mine").write_text("not to be lost")
    words = ("predict", home / "numbers.dco", home / "new.csv", "--out", tmp_path / "s.csv")
    assert "not empty" in dco.refuses(*words)
    assert (parts / "mine").read_text() == "not to be lost"


@pytest.fixture
def network_disk(monkeypatch):
    """A folder with an open lock cannot be removed until the lock is closed, as on NFS."""

    def leave_the_folder(folder, ignore_errors):
        assert ignore_errors
        for path in folder.iterdir():
            path.unlink()

    monkeypatch.setattr(shutil, "rmtree", leave_the_folder)


@pytest.mark.usefixtures("network_disk")
def test_a_disk_that_keeps_a_name_for_open_files_stops_no_run(dco, run):
    dco(*run.words)
    assert run.out.exists()
    assert not run.unfinished.exists()


@pytest.mark.usefixtures("network_disk")
def test_a_disk_that_keeps_a_name_for_open_files_stops_no_refusal(dco, home, tmp_path, new, table):
    run = Run(home / "numbers.dco", table(new[:0]), tmp_path / "s.csv")
    assert "no rows" in dco.refuses(*run.words)
    assert not run.unfinished.exists()


# --- what --force replaces ------------------------------------------------------------------------


@pytest.fixture
def inputs(home, tmp_path, new, parts_of, monkeypatch):
    """A folder with inputs: new.csv, a link to it, a model, and a folder of tables."""
    parts_of(new)
    shutil.copy(home / "new.csv", tmp_path / "new.csv")
    shutil.copy(home / "numbers.dco", tmp_path / "m.dco")
    (tmp_path / "link.csv").symlink_to("new.csv")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    "words",
    [
        "predict m.dco new.csv --out new.csv",
        "predict m.dco new.csv --out link.csv",
        "predict m.dco link.csv --out new.csv",
        "fit new.csv --target outcome --out new.csv",
        "fit new.csv --target outcome --out x.dco --certificate link.csv",
        "fit in --target outcome --out in/part-0.parquet",
        "report m.dco --out m.dco",
    ],
)
def test_force_never_replaces_what_is_read(dco, inputs, words):
    before = contents(inputs)
    assert "would destroy it" in dco.refuses(*words.split(), "--force")
    assert contents(inputs) == before


@pytest.mark.parametrize("out", ["in", "in/sets"])
def test_sets_are_not_written_into_the_folder_that_is_read(dco, inputs, out):
    before = contents(inputs)
    words = ("predict", "m.dco", "in", "--out", out, "--force")
    assert "choose a folder elsewhere" in dco.refuses(*words)
    assert contents(inputs) == before


@pytest.fixture
def shrunk(dco, home, tmp_path, new, parts_of):
    """A run whose output has four files, and whose data have two now."""
    run = Run(home / "numbers.dco", parts_of(new), tmp_path / "out")
    dco(*run.words)
    for index in (2, 3):
        (run.data / f"part-{index}.parquet").unlink()
    return run


def test_force_leaves_no_sets_of_an_earlier_run(dco, shrunk):
    (shrunk.out / "notes.txt").write_text("mine")
    dco(*shrunk.words, "--force")
    names = ["notes.txt", "part-0.parquet", "part-1.parquet"]
    assert sorted(path.name for path in shrunk.out.iterdir()) == names


def test_force_removes_no_tables_of_others(dco, shrunk):
    pd.DataFrame({"x": [1]}).to_parquet(shrunk.out / "mine.parquet")
    assert "has mine.parquet, which is neither" in dco.refuses(*shrunk.words, "--force")
    assert len(list(shrunk.out.glob("part-*"))) == 4


def test_a_run_with_force_that_is_stopped_changes_nothing(dco, shrunk, no_name_for):
    before = shrunk.outputs()
    with no_name_for("part-0.parquet", KeyboardInterrupt()):
        dco(*shrunk.words, "--force", "--alpha", "0.3", status=130)
    shutil.rmtree(shrunk.unfinished)
    assert shrunk.outputs() == before


def test_sets_of_an_earlier_run_are_not_taken_for_finished_ones(dco, shrunk, no_name_for):
    with no_name_for("part-0.parquet", KeyboardInterrupt()):
        dco(*shrunk.words, "--force", "--alpha", "0.3", status=130)

    dco(*shrunk.words, "--resume", "--alpha", "0.3")

    signatures = [pq.read_schema(path).metadata[b"dco"] for path in shrunk.out.iterdir()]
    assert [json.loads(signature)["alpha"] for signature in signatures] == [0.3, 0.3]


# --- values that the fit never saw, in a run that goes on -----------------------------------------


@pytest.fixture
def by_site(dco, home, tmp_path, new):
    """A model with a threshold for each site, and new rows of which three are from other sites."""
    model = tmp_path / "m.dco"
    fit = ("fit", home / "rows.csv", "--target", "outcome", "--drop", "grade", "--drop", "patient")
    options = ("--models", "linear", "--calibrate-size", 120, "--condition-on", "site")
    dco(*fit, *options, "--out", model)
    new.loc[[3, 50, 199], "site"] = ["west", "west", "moon"]
    return model, new


@pytest.fixture(params=["file", "folder"])
def run_by_site(request, tmp_path, by_site, table, parts_of):
    """A run over such rows in two parts."""
    model, new = by_site
    if request.param == "folder":
        run = Run(model, parts_of(new, 2), tmp_path / "sets")
    else:
        run = Run(model, table(new), tmp_path / "sets.csv")
    run.words = (*run.words, "--batch-rows", 100)
    return run


OF_ALL = "3 of 200 rows belong to 2 groups that have no calibration rows ('west', 'moon')"
OF_THE_SECOND_FILE = (
    "1 of 100 rows predicted now belongs to 1 group that has no calibration rows ('moon')"
)


def test_rows_of_groups_without_calibration_rows_are_counted_once(dco, run_by_site):
    (note,) = dco.json(*run_by_site.words)["notes"]
    assert note.startswith(OF_ALL)


def test_a_run_that_goes_on_counts_the_rows_that_it_reads(dco, run_by_site, no_name_for):
    """Finished files of a folder are not read again, and the note says so."""
    run = run_by_site
    with no_name_for(run.name(1), KeyboardInterrupt()):
        printed = dco(*run.words, status=130).output
    assert "Stopped" in printed

    expected = OF_THE_SECOND_FILE if run.is_folder else OF_ALL
    assert expected in dco(*run.words, "--resume").output


def test_sets_of_groups_without_calibration_rows_are_infinite(dco, tmp_path, by_site, table):
    model, new = by_site
    dco("predict", model, table(new), "--out", tmp_path / "sets.csv")
    sizes = pd.read_csv(tmp_path / "sets.csv")["size"]
    assert np.flatnonzero(np.isinf(sizes)).tolist() == [3, 50, 199]
