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

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

import dco
from dco.datasets import extract_features
from dco.foundations.files import new_file, plain, wait_for_folder, write_files
from dco.paper import Experiment, Options, Row, run_splits
from dco.report import write_results_page

SOURCE = Path(dco.__file__).parent
RESULTS = Path(__file__).parents[1] / "results"


# -------------------------------------------------------------------------------------- all writers


@dataclass(frozen=True)
class SeedRow(Row):
    seed: int


def write_model(path: Path) -> None:
    dco.save(LinearRegression().fit([[0.0], [1.0]], [0.0, 1.0]), path)


def write_page(path: Path) -> None:
    write_results_page(RESULTS / "matched", path)


def write_records(path: Path) -> None:
    """Write the records of an experiment of two splits."""
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


class OneImage:
    """A source of images that has one, which is black."""

    labels = np.zeros(1, dtype=np.int64)
    class_names = None

    def read(self, start: int, stop: int) -> list[np.ndarray]:
        return [np.zeros((2, 2, 3), dtype=np.uint8)]

    def fingerprint(self) -> str:
        return "black"


def write_features(path: Path) -> None:
    """Write the features of an image into a new cache: their origin, then a batch."""
    path.unlink()
    extract_features(
        OneImage(),
        lambda images: np.ones((len(images), 3)),
        cache=path.parent,
        name="ones",
        progress=False,
    )


WRITERS_OF_A_FILE: dict[str, tuple[str, Callable[[Path], None]]] = {
    "model": ("model.dco", write_model),
    "page": ("page.html", write_page),
    "records": ("records.jsonl", write_records),
}
WRITERS = WRITERS_OF_A_FILE | {"features": ("rows-00000000.npy", write_features)}
writers = pytest.mark.parametrize(("name", "write"), WRITERS.values(), ids=WRITERS)
writers_of_a_file = pytest.mark.parametrize(
    ("name", "write"), WRITERS_OF_A_FILE.values(), ids=WRITERS_OF_A_FILE
)


@pytest.fixture
def disk_events(monkeypatch) -> list[tuple[str, int]]:
    """Which files are flushed to the disk and get their names, from now on, by their inodes."""
    events: list[tuple[str, int]] = []
    flush = os.fsync
    rename = os.replace

    def fsync(file: int) -> None:
        events.append(("flushed", os.fstat(file).st_ino))
        flush(file)

    def replace(source: Path, target: Path) -> None:
        events.append(("named", os.stat(source).st_ino))
        rename(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    return events


@writers
def test_what_is_written_is_on_the_disk_before_it_gets_its_name(name, write, tmp_path, disk_events):
    (tmp_path / name).write_bytes(b"")

    write(tmp_path / name)

    inodes = [path.stat().st_ino for path in sorted(tmp_path.iterdir())]
    assert disk_events == [(event, inode) for inode in inodes for event in ("flushed", "named")]


def refuse_to_flush(file: int) -> None:
    raise OSError("disk full")


@writers
def test_a_disk_that_is_full_leaves_no_file_behind(name, write, tmp_path, monkeypatch):
    (tmp_path / name).write_bytes(b"")
    monkeypatch.setattr(os, "fsync", refuse_to_flush)

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


def opens_text(call: ast.Call) -> bool:
    """Whether a call reads or writes text."""
    function = ast.unparse(call.func)
    texts = [arg.value for arg in call.args if isinstance(arg, ast.Constant)]
    is_binary = any(isinstance(text, str) and "b" in text for text in texts)
    return function.endswith((".read_text", ".write_text")) or (
        function == "open" and not is_binary
    )


def test_every_text_file_has_a_stated_encoding():
    """The default is that of the computer: what one writes, another could not read."""
    calls = [
        (path.name, node)
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and opens_text(node)
    ]
    without_encoding = [
        f"{name}:{call.lineno}"
        for name, call in calls
        if not any(keyword.arg == "encoding" for keyword in call.keywords)
    ]
    assert len(calls) > 10
    assert without_encoding == []


# ----------------------------------------------------------------------------------------- one file


def test_an_old_file_stays_until_the_new_one_is_complete(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    with new_file(path) as beside:
        beside.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"


def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")

    def stop_while_writing() -> None:
        with new_file(path) as beside:
            beside.write_text("new")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stop_while_writing()
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


@pytest.fixture(params=["links", "no links"])
def a_disk_with_or_without_links(request, monkeypatch) -> None:
    """Some file systems have no hard links."""

    def refuse_to_link(*names: object) -> None:
        raise PermissionError("Operation not permitted")

    if request.param == "no links":
        monkeypatch.setattr(os, "link", refuse_to_link)


@pytest.mark.usefixtures("a_disk_with_or_without_links")
def test_a_name_that_was_taken_meanwhile_stays_with_its_file(tmp_path):
    path = tmp_path / "file"

    def write_too_late() -> None:
        with new_file(path, overwrite=False) as late:
            late.write_text("late")
            with new_file(path, overwrite=False) as early:
                early.write_text("early")

    with pytest.raises(ValueError, match="written by another run meanwhile and is kept"):
        write_too_late()
    assert path.read_text() == "early"
    assert os.listdir(tmp_path) == ["file"]


def test_the_unfinished_file_lies_within_the_folder_that_is_named(tmp_path):
    (tmp_path / "unfinished").mkdir()

    with new_file(tmp_path / "file", temporary_folder=tmp_path / "unfinished") as beside:
        beside.write_text("new")
        assert os.listdir(tmp_path) == ["unfinished"]

    assert (tmp_path / "file").read_text() == "new"
    assert os.listdir(tmp_path / "unfinished") == []


def test_processes_and_threads_take_turns_in_a_folder(tmp_path):
    order = []

    def wait_and_go():
        with wait_for_folder(tmp_path):
            order.append("other")

    with wait_for_folder(tmp_path):
        thread = threading.Thread(target=wait_and_go)
        thread.start()
        thread.join(0.2)
        order.append("this")
    thread.join(10)

    assert order == ["this", "other"]


def test_a_folder_that_does_not_exist_is_not_waited_for(tmp_path):
    with wait_for_folder(tmp_path / "none"):  # what is written there says that it is not there
        pass


# --------------------------------------------------------------------------- what is never replaced


def make_pipe(path: Path) -> None:
    os.mkfifo(path)


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(path))  # a socket's own path may have some 100 characters


def make_device(path: Path) -> None:
    """Make a device, or a link to a terminal for those who may make no device."""
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    except PermissionError:
        path.symlink_to(os.ttyname(os.openpty()[1]))


SPECIAL = {
    "a pipe": make_pipe,
    "a socket": make_socket,
    "a device": make_device,
    "a folder": Path.mkdir,
}


@writers_of_a_file
@pytest.mark.parametrize("link", [False, True], ids=["itself", "by a link"])
@pytest.mark.parametrize("kind", SPECIAL)
def test_what_is_no_regular_file_is_not_replaced(kind, link, name, write, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    special = tmp_path / ("special" if link else name)
    SPECIAL[kind](special)
    if link:
        (tmp_path / name).symlink_to(special)
    before = os.stat(special)

    words = f"{name} is {kind}, and only a regular file is replaced; choose another name."
    with pytest.raises(ValueError, match=words):
        write(tmp_path / name)

    assert os.path.samestat(os.stat(special), before)
    assert os.stat(special).st_mode == before.st_mode
    assert set(os.listdir(tmp_path)) == {name, special.name}


# ------------------------------------------------------------------------------------ several files


def write_two(folder: Path, *, overwrite: bool = True) -> None:
    """Write two files that belong together."""
    contents = {folder / name: f"new {name}" for name in ("first", "second")}
    write_files(contents, overwrite=overwrite)


def texts_in(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


old_files = pytest.mark.parametrize(
    "old_names",
    [[], ["first"], ["second"], ["first", "second"]],
    ids=["no old file", "old first", "old second", "both old"],
)


@old_files
@pytest.mark.usefixtures("a_disk_with_or_without_links")
@pytest.mark.parametrize("function", ["fsync", "replace"], ids=["disk full", "no name"])
def test_files_that_belong_together_are_all_replaced_or_none(
    old_names, function, tmp_path, monkeypatch
):
    """The disk of the second is full, or it cannot get its name after the first has got its own."""
    old_texts = {name: f"old {name}" for name in old_names}
    for name, text in old_texts.items():
        (tmp_path / name).write_text(text)
    usual = getattr(os, function)
    calls = []

    def fail_the_second_time(*arguments: object) -> None:
        calls.append(arguments)
        if len(calls) == 2:
            raise OSError("the second fails")
        usual(*arguments)

    monkeypatch.setattr(os, function, fail_the_second_time)
    with pytest.raises(OSError, match="the second fails"):
        write_two(tmp_path)

    assert texts_in(tmp_path) == old_texts


@old_files
def test_files_that_belong_together_replace_old_ones(old_names, tmp_path):
    for name in old_names:
        (tmp_path / name).write_text(f"old {name}")
    write_two(tmp_path)
    assert texts_in(tmp_path) == {"first": "new first", "second": "new second"}


def test_a_name_that_was_taken_meanwhile_keeps_the_files_that_belong_to_it_out(tmp_path):
    (tmp_path / "second").write_text("another run's")
    with pytest.raises(ValueError, match="written by another run meanwhile"):
        write_two(tmp_path, overwrite=False)
    assert texts_in(tmp_path) == {"second": "another run's"}


# --------------------------------------------------------------------------- what killed runs leave

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


class Run:
    """A process that has written half of a file, and goes on when it is told to."""

    def __init__(self, path: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", WRITING, path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.unfinished_file = Path(self.process.stdout.readline().strip())

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()

    def finish(self) -> None:
        self.process.communicate("")


def write_table(path: Path) -> None:
    with new_file(path) as beside:
        beside.write_text("new")


@pytest.fixture
def table(tmp_path) -> Path:
    return tmp_path / "diabetes.csv"


def test_what_a_killed_run_left_is_removed_by_the_next(table):
    killed = Run(table)
    killed.kill()
    assert killed.unfinished_file.read_text() == "half"

    write_table(table)

    assert os.listdir(table.parent) == [table.name]


def test_a_living_run_is_not_disturbed_by_the_next(table):
    living = Run(table)

    write_table(table)

    assert living.unfinished_file.read_text() == "half"
    living.finish()
    assert living.process.returncode == 0
    assert table.read_text() == "whole"


@pytest.mark.parametrize(
    "name", [".diabetes.csv.mine", ".diabetes.csv.bak.0123456789ab", ".other.0123456789ab"]
)
def test_files_that_look_like_those_of_a_killed_run_are_not_removed(table, name):
    (table.parent / name).write_text("mine")
    write_table(table)
    assert (table.parent / name).read_text() == "mine"


# ----------------------------------------------------------------- values that strict JSON can hold


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({1: np.float32(0.5)}, {"1": 0.5}),
        ((np.int64(3), np.bool_(True)), [3, True]),
        (np.array([[1.5, np.inf]]), [[1.5, "inf"]]),
        ([None, "x", np.str_("y")], [None, "x", "y"]),
        ([np.float64(1.0), -np.inf], [1.0, "-inf"]),
        ({"a": [np.array(2)]}, {"a": [2]}),
    ],
    ids=["key", "tuple", "array", "texts", "infinity", "nested"],
)
def test_everything_that_numpy_holds_becomes_jsons_own(value, expected):
    assert plain(value) == expected
    assert json.loads(json.dumps(plain(value), allow_nan=False)) == expected


nans = pytest.mark.parametrize(
    "value",
    [float("nan"), np.float64("nan"), np.array(np.nan)],
    ids=["Python", "NumPy", "array"],
)


@nans
def test_nan_becomes_null(value):
    assert plain({"a": [value]}) == {"a": [None]}


@nans
def test_nan_becomes_what_the_caller_says(value):
    assert plain({"a": [value]}, nan="nan") == {"a": ["nan"]}


@nans
def test_nan_is_the_error_that_the_caller_says(value):
    with pytest.raises(ValueError, match="no NaN here"):
        plain({"a": [value]}, nan=ValueError("no NaN here"))


@pytest.mark.parametrize(
    ("value", "expected"),
    [(1 / 3, 0.333), (0.1 + 0.2, 0.3), (10**15 + 1, 10**15 + 1), (np.inf, "inf")],
    ids=["third", "sum", "integer", "infinity"],
)
def test_digits_round_floats_alone(value, expected):
    assert plain([value], digits=3) == [expected]


def test_floats_are_not_rounded_without_digits():
    assert plain(0.1 + 0.2) == 0.1 + 0.2


@pytest.mark.parametrize("value", [Path("a"), Fraction(1, 3)], ids=["path", "fraction"])
def test_what_json_does_not_know_is_the_callers_to_decide(value):
    assert plain({"a": value}) == {"a": value}
