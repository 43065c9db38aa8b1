"""A file is complete or absent, whoever writes it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

from dco.datasets.images import _claim, _write
from dco.experiments.experiment import Experiment, Options
from dco.experiments.records import run_splits
from dco.files import written_beside
from dco.report.rendering import write_text
from dco.storage import save


def records(path: Path) -> None:
    experiment = Experiment("one", "", "", 0.0, lambda records, options: [], run_split=lambda seed, options: [{"a": seed}])
    run_splits(experiment, path, seeds=[2, 1], options=Options((0.1,)), jobs=1)


def claim(path: Path) -> None:
    path.unlink()
    _claim(path.parent, {"rows": 1})


WRITERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "model": ("model.dco", lambda path: save(LinearRegression().fit([[0.0], [1.0]], [0.0, 1.0]), path)),
    "page": ("page.html", lambda path: write_text(path, "new")),
    "features": ("rows-1.npy", lambda path: _write(path, np.zeros((2, 3)))),
    "origin of features": ("made-from.json", claim),
    "records": ("records.jsonl", records),
}
writers = pytest.mark.parametrize(("name", "write"), WRITERS.values(), ids=WRITERS)


@writers
def test_what_is_written_is_on_the_disk_before_it_gets_its_name(
    name: str, write: Callable[[Path], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
def test_a_disk_that_is_full_leaves_no_file_behind(
    name: str, write: Callable[[Path], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / name).write_bytes(b"")

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        write(tmp_path / name)
    assert set(os.listdir(tmp_path)) <= {name}


@writers
def test_no_writer_touches_the_umask_which_all_threads_share(
    name: str, write: Callable[[Path], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "plain").write_text("")
    (tmp_path / name).write_bytes(b"")
    monkeypatch.delattr(os, "umask")
    write(tmp_path / name)
    assert (tmp_path / name).stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")

    def interrupted() -> None:
        with written_beside(path) as beside:
            beside.write_text("new")
            assert path.read_text() == "old"
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["file"]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "file").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "far" / "file")
    with written_beside(tmp_path / "link") as beside:
        beside.write_text("new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "far" / "file").read_text() == "new"


def test_the_unfinished_file_lies_within_the_folder_that_is_named(tmp_path: Path) -> None:
    (tmp_path / "unfinished").mkdir()
    with written_beside(tmp_path / "file", within=tmp_path / "unfinished") as beside:
        beside.write_text("new")
        assert os.listdir(tmp_path) == ["unfinished"]
    assert (tmp_path / "file").read_text() == "new"
    assert os.listdir(tmp_path / "unfinished") == []
