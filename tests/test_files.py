"""A file is complete or absent, whoever writes it, and the same values become the same JSON."""

import ast
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

import dco
from dco.cli.printing import print_json
from dco.datasets.features import claim_cache, write_batch
from dco.foundations.files import new_file, plain, wait_for_folder, write_files
from dco.paper import Experiment, Options, Row, run_splits
from dco.report import write_results_page
from dco.report.rendering import strict_json
from dco.storage.saving import save

SOURCE = Path(dco.__file__).parent
RESULTS = Path(__file__).parents[1] / "results"


@dataclass(frozen=True)
class SeedRow(Row):
    seed: int


def records(path: Path) -> None:
    experiment = Experiment(
        name="one",
        summary="",
        needs="",
        minutes=0.0,
        run_split=lambda seed, options: [SeedRow(seed)],
        tables=lambda records, options: [],
        row_kinds=(SeedRow,),
    )
    run_splits(experiment, path, seeds=[2, 1], options=Options((0.1,)), jobs=1)


def claim(path: Path) -> None:
    path.unlink()
    claim_cache(path.parent, {"rows": 1})


WRITERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "model": (
        "model.dco",
        lambda path: save(LinearRegression().fit([[0.0], [1.0]], [0.0, 1.0]), path),
    ),
    "page": ("page.html", lambda path: write_results_page(RESULTS / "matched", path)),
    "features": ("rows-1.npy", lambda path: write_batch(path, np.zeros((2, 3)))),
    "origin of features": ("made-from.json", claim),
    "records": ("records.jsonl", records),
}
writers = pytest.mark.parametrize(("name", "write"), WRITERS.values(), ids=WRITERS)


@writers
def test_what_is_written_is_on_the_disk_before_it_gets_its_name(name, write, tmp_path, monkeypatch):
    (tmp_path / name).write_bytes(b"")
    happened, flush, rename = [], os.fsync, os.replace

    def fsync(file: int) -> None:
        happened.append(("flushed", os.fstat(file).st_ino))
        flush(file)

    def replace(source: Path, target: Path) -> None:
        happened.append(("named", os.stat(source).st_ino))
        rename(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    write(tmp_path / name)
    inode = (tmp_path / name).stat().st_ino
    assert happened == [("flushed", inode), ("named", inode)]
    assert os.listdir(tmp_path) == [name]


@writers
def test_a_disk_that_is_full_leaves_no_file_behind(name, write, tmp_path, monkeypatch):
    (tmp_path / name).write_bytes(b"")

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        write(tmp_path / name)
    assert set(os.listdir(tmp_path)) <= {name}


@writers
def test_no_writer_touches_the_umask_which_all_threads_share(name, write, tmp_path, monkeypatch):
    (tmp_path / "plain").write_text("")
    (tmp_path / name).write_bytes(b"")
    monkeypatch.delattr(os, "umask")
    write(tmp_path / name)
    assert (tmp_path / name).stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_every_text_file_has_a_stated_encoding():
    """The default is that of the computer: what one writes, another could not read."""
    unstated, stated = [], 0
    for path in sorted(SOURCE.rglob("*.py")):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(call, ast.Call):
                continue
            name = ast.unparse(call.func)
            mode = "".join(
                arg.value
                for arg in call.args
                if isinstance(arg, ast.Constant) and isinstance(arg.value, str)
            )
            if name.endswith((".read_text", ".write_text")) or (name == "open" and "b" not in mode):
                told = any(keyword.arg == "encoding" for keyword in call.keywords)
                stated += told
                unstated += [] if told else [f"{path.name}:{call.lineno}"]
    assert stated > 10
    assert unstated == []


def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")

    def interrupted() -> None:
        with new_file(path) as beside:
            beside.write_text("new")
            assert path.read_text() == "old"
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["file"]


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "file").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "far" / "file")
    with new_file(tmp_path / "link") as beside:
        beside.write_text("new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "far" / "file").read_text() == "new"


@pytest.mark.parametrize("links", [True, False])
def test_a_name_that_was_taken_meanwhile_is_kept(tmp_path, monkeypatch, links):
    def no_links(*names: object) -> None:
        raise PermissionError("Operation not permitted")

    if not links:
        monkeypatch.setattr(os, "link", no_links)

    def late() -> None:
        with new_file(tmp_path / "file", overwrite=False) as beside:
            beside.write_text("late")
            with new_file(tmp_path / "file", overwrite=False) as other:
                other.write_text("early")

    with pytest.raises(ValueError, match="written by another run meanwhile and is kept"):
        late()
    assert (tmp_path / "file").read_text() == "early"
    assert os.listdir(tmp_path) == ["file"]


def test_the_unfinished_file_lies_within_the_folder_that_is_named(tmp_path):
    (tmp_path / "unfinished").mkdir()
    with new_file(tmp_path / "file", temporary_folder=tmp_path / "unfinished") as beside:
        beside.write_text("new")
        assert os.listdir(tmp_path) == ["unfinished"]
    assert (tmp_path / "file").read_text() == "new"
    assert os.listdir(tmp_path / "unfinished") == []


# --- what is never replaced
# -------------------------------------------------------------------------------------------


def pipe(path: Path) -> None:
    os.mkfifo(path)


def bound(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(path))  # a socket's own path may have some 100 characters


def device(path: Path) -> None:
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    # for whoever may make no device: a terminal, in a folder where nobody can make a file
    except PermissionError:
        path.symlink_to(os.ttyname(os.openpty()[1]))


SPECIAL = {"a pipe": pipe, "a socket": bound, "a device": device, "a folder": Path.mkdir}


@pytest.mark.parametrize(
    ("name", "write"), [entry for entry in WRITERS.values() if entry[1] is not claim]
)
@pytest.mark.parametrize("link", [False, True], ids=["itself", "by a link"])
@pytest.mark.parametrize("kind", SPECIAL)
def test_what_is_no_regular_file_is_not_replaced(kind, link, name, write, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    special = tmp_path / ("special" if link else name)
    SPECIAL[kind](special)
    if link:
        (tmp_path / name).symlink_to(special)
    before = os.stat(special)
    with pytest.raises(
        ValueError,
        match=f"{name} is {kind}, and only a regular file is replaced; choose another name.",
    ):
        write(tmp_path / name)
    assert os.path.samestat(os.stat(special), before)
    assert os.stat(special).st_mode == before.st_mode
    assert set(os.listdir(tmp_path)) == {name, special.name}


# --- several files --------------------------------------------------------------------------------
# --------------------


def write_two(folder: Path, *, overwrite: bool = True) -> None:
    contents = {folder / name: f"new {name}" for name in ("first", "second")}
    write_files(contents, overwrite=overwrite)


@pytest.mark.parametrize("there", [[], ["first"], ["second"], ["first", "second"]])
@pytest.mark.parametrize("links", [True, False], ids=["links", "no links"])
@pytest.mark.parametrize("fails", ["flush", "name"])
def test_files_that_belong_together_are_all_replaced_or_none(
    there, links, fails, tmp_path, monkeypatch
):
    """The disk of the second is full, or it cannot get its name after the first has got its own."""
    for name in there:
        (tmp_path / name).write_text(f"old {name}")
    flush, rename, calls = os.fsync, os.replace, []

    def second_fails(usual: Callable[..., None]) -> Callable[..., None]:
        def called(*given: Any) -> None:
            calls.append(given)
            if len(calls) == 2:
                raise OSError("disk full")
            usual(*given)

        return called

    def no_links(*names: object) -> None:
        raise PermissionError("Operation not permitted")

    with monkeypatch.context() as disk:
        if not links:
            disk.setattr(os, "link", no_links)
        disk.setattr(
            os,
            "fsync" if fails == "flush" else "replace",
            second_fails(flush if fails == "flush" else rename),
        )
        with pytest.raises(OSError, match="disk full"):
            write_two(tmp_path)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        name: f"old {name}" for name in there
    }
    write_two(tmp_path)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "first": "new first",
        "second": "new second",
    }


def test_a_name_that_was_taken_meanwhile_keeps_the_files_that_belong_to_it_out(tmp_path):
    (tmp_path / "second").write_text("another run's")
    with pytest.raises(ValueError, match="written by another run meanwhile and is kept"):
        write_two(tmp_path, overwrite=False)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "second": "another run's"
    }


# --- what killed runs leave
# -------------------------------------------------------------------------------------------

WRITING = """
import sys
from pathlib import Path
from dco.foundations.files import new_file

with new_file(Path(sys.argv[1])) as beside:
    beside.write_text("half")
    print(beside, flush=True)
    sys.stdin.read()
    beside.write_text("whole")
"""


def test_a_killed_run_is_swept_up_after_and_a_living_one_is_left_alone(tmp_path):
    path = tmp_path / "diabetes.csv"
    others = [
        tmp_path / ".diabetes.csv.mine",
        tmp_path / ".diabetes.csv.bak.0123456789ab",
        tmp_path / ".other.0123456789ab",
    ]
    for other in others:
        other.write_text("mine")
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", WRITING, path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    killed, living = runs
    left, unfinished = (
        Path(run.stdout.readline().strip()) for run in runs if run.stdout is not None
    )
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert left.read_text() == "half"
    with new_file(path) as beside:
        beside.write_text("new")
    assert not left.exists()
    assert unfinished.read_text() == "half"
    living.communicate("")
    assert living.returncode == 0
    assert path.read_text() == "whole"
    assert set(tmp_path.iterdir()) == {path, *others}


# --- values that strict JSON can hold
# ---------------------------------------------------------------------------------


def test_everything_that_numpy_holds_becomes_jsons_own():
    value = {
        1: np.float32(0.5),
        "a": (np.int64(3), np.bool_(True), np.array([[1.5, np.inf]])),
        "b": [None, "x", np.str_("y")],
    }
    assert plain(value) == {"1": 0.5, "a": [3, True, [[1.5, "inf"]]], "b": [None, "x", "y"]}
    assert json.loads(json.dumps(plain(value), allow_nan=False)) == plain(value)
    assert plain([np.float64(1.0), -np.inf, np.array(2)]) == [1.0, "-inf", 2]


@pytest.mark.parametrize("value", [float("nan"), np.float64("nan"), np.array(np.nan)])
def test_nan_is_what_the_caller_says(value):
    assert plain({"a": [value]}) == {"a": [None]}
    assert plain({"a": [value]}, nan="nan") == {"a": ["nan"]}
    with pytest.raises(ValueError, match="no NaN here"):
        plain({"a": [value]}, nan=ValueError("no NaN here"))


def test_digits_round_floats_alone():
    assert plain([1 / 3, 10**15 + 1, 0.1 + 0.2, np.inf], digits=3) == [
        0.333,
        10**15 + 1,
        0.3,
        "inf",
    ]
    assert plain(0.1 + 0.2) == 0.1 + 0.2


def test_what_json_does_not_know_is_the_callers_to_decide(capsys):
    kept = {"path": Path("a"), "share": Fraction(1, 3)}
    assert plain(kept) == kept
    print_json(kept)
    assert json.loads(capsys.readouterr().out) == {"path": "a", "share": "1/3"}
    with pytest.raises(TypeError, match="not JSON serializable"):
        strict_json(kept)


def test_a_page_takes_infinities_and_arrays():
    row = {"sizes": np.array([1.0, np.inf]), "n": np.int64(4), "share": 1 / 3}
    assert json.loads(strict_json(row)) == {"sizes": [1.0, "inf"], "n": 4, "share": 1 / 3}


def test_processes_and_threads_take_turns_in_a_folder(tmp_path):
    order = []

    def other():
        with wait_for_folder(tmp_path):
            order.append("other")

    with wait_for_folder(tmp_path):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join(0.2)
        order.append("this")
    thread.join(10)
    assert order == ["this", "other"]
    with wait_for_folder(tmp_path / "none"):  # nothing to lock, and what is written says so
        pass
