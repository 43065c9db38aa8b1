import errno
import json
import math
import os
import sys
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner

from dco.cli.main import main
from dco.paper import catalogue
from dco.paper.experiment import Experiment, Options, Records
from dco.paper.records import append, packed, plain, read, run_splits, unpacked
from dco.paper.tables import Measured, ResultTable

OPTIONS = Options(alphas=(0.2,))


def draws(seed: int, options: Options) -> list[dict[str, object]]:
    """Numbers that depend on the seed and on sums that BLAS may order by threads."""
    matrix = np.random.default_rng(seed).standard_normal((200, 200))
    return [
        {"method": "sum", "alpha": alpha, "value": float(np.linalg.svd(matrix @ matrix)[1].sum())}
        for alpha in options.alphas
    ]


def mean_table(records: Records, options: Options) -> list[ResultTable]:
    values = [row["value"] for record in records for row in record.rows]
    return [
        ResultTable(
            "Means", "The mean of sums.", ("rows", "value"), ((len(values), Measured.of(values)),)
        )
    ]


EXPERIMENT = Experiment(
    "sums", "sums of singular values", "nothing", 0.1, mean_table, run_split=draws
)


def table_of(experiment: Experiment, path: object, **how: object) -> str:
    records = run_splits(experiment, path, seeds=range(8), options=OPTIONS, **how)  # type: ignore[arg-type]
    return experiment.tables(records, OPTIONS)[0].to_json()


def test_two_jobs_and_a_resumed_run_give_the_table_of_one_process(tmp_path):
    whole = table_of(EXPERIMENT, tmp_path / "whole.jsonl", jobs=1)
    assert table_of(EXPERIMENT, tmp_path / "jobs.jsonl", jobs=2) == whole

    lines = (tmp_path / "whole.jsonl").read_text().splitlines()
    killed = tmp_path / "killed.jsonl"
    killed.write_text("\n".join(lines[:4]) + "\n" + lines[4][: len(lines[4]) // 2])
    assert table_of(EXPERIMENT, killed, jobs=1) == whole
    kept = [json.loads(line) for line in killed.read_text().splitlines()]
    assert [entry["seed"] for entry in kept] == list(range(8))
    assert all(
        entry["versions"]["numpy"] == np.__version__ and entry["seconds"] >= 0 for entry in kept
    )


def test_a_finished_split_is_not_run_again(tmp_path):
    path = tmp_path / "records.jsonl"
    run_splits(EXPERIMENT, path, seeds=range(2), options=OPTIONS, jobs=1)
    marked = [json.loads(line) for line in path.read_text().splitlines()]
    rows = unpacked(marked[0]["rows"])
    rows[0]["value"] = -1.0
    marked[0]["rows"] = packed(rows)
    path.write_text("\n".join(json.dumps(entry) for entry in marked) + "\n")
    records = run_splits(EXPERIMENT, path, seeds=range(3), options=OPTIONS, jobs=1)
    assert records[0].rows[0]["value"] == -1.0
    assert records[2].rows[0]["value"] > 0


def test_records_of_other_settings_are_kept_and_not_used(tmp_path):
    path, other = tmp_path / "records.jsonl", Options(alphas=(0.1, 0.05))
    run_splits(EXPERIMENT, path, seeds=range(2), options=other, jobs=1)
    assert read(path, EXPERIMENT, OPTIONS) == {}
    run_splits(EXPERIMENT, path, seeds=range(2), options=OPTIONS, jobs=1)
    assert len(read(path, EXPERIMENT, other)) == len(read(path, EXPERIMENT, OPTIONS)) == 2


def test_progress_counts_splits_and_says_how_long_is_left(tmp_path):
    seen: list[tuple[int, int, float]] = []
    path = tmp_path / "records.jsonl"
    run_splits(EXPERIMENT, path, seeds=range(3), options=OPTIONS, jobs=1)
    run_splits(
        EXPERIMENT,
        path,
        seeds=range(8),
        options=OPTIONS,
        jobs=1,
        progress=lambda *now: seen.append(now),
    )
    assert [(done, total) for done, total, _ in seen] == [(done, 8) for done in range(4, 9)]
    assert seen[0][2] > 0
    assert seen[-1][2] == 0


def test_an_append_after_a_cut_line_loses_only_that_line(tmp_path):
    path = tmp_path / "records.jsonl"
    path.write_text('{"experiment": "su')
    run_splits(EXPERIMENT, path, seeds=[1], options=OPTIONS, jobs=1)
    append(path, [])
    assert set(read(path, EXPERIMENT, OPTIONS)) == {1}


def lines_of(tmp_path, seeds):
    run_splits(EXPERIMENT, tmp_path / "other.jsonl", seeds=seeds, options=OPTIONS, jobs=1)
    return (tmp_path / "other.jsonl").read_text().splitlines()


def test_a_line_that_another_run_adds_while_the_file_is_sorted_is_kept(tmp_path, monkeypatch):
    path, lines, replaced = tmp_path / "records.jsonl", lines_of(tmp_path, [99]), []
    other = threading.Thread(target=append, args=(path, lines))

    def replace(source, target):
        other.start()
        other.join(timeout=0.5)  # it appends now, or it waits for us
        replaced.append(target)
        rename(source, target)

    rename = os.replace
    monkeypatch.setattr(os, "replace", replace)
    run_splits(EXPERIMENT, path, seeds=[2, 1], options=OPTIONS, jobs=1)
    other.join(timeout=120)
    assert len(replaced) == 1
    assert set(read(path, EXPERIMENT, OPTIONS)) == {1, 2, 99}
    assert {item.name for item in tmp_path.iterdir()} == {"records.jsonl", "other.jsonl"}


def without_locks(*_):
    raise OSError("No locks available")


@pytest.mark.parametrize(
    "module", [None, SimpleNamespace(flock=without_locks, LOCK_EX=2)], ids=["system", "disk"]
)
def test_where_files_cannot_be_locked_no_file_is_rewritten(module, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "fcntl", module)
    path = tmp_path / "records.jsonl"
    records = run_splits(EXPERIMENT, path, seeds=[2, 1], options=OPTIONS, jobs=1)
    assert [json.loads(line)["seed"] for line in path.read_text().split()] == [2, 1]
    assert [record.seed for record in records] == [2, 1]


def test_a_write_that_stops_short_is_gone_on_with(tmp_path, monkeypatch):
    lines, write = lines_of(tmp_path, [3, 4]), os.write
    monkeypatch.setattr(os, "write", lambda file, data: write(file, data[:50]))
    append(tmp_path / "records.jsonl", lines)
    assert (tmp_path / "records.jsonl").read_text().splitlines() == ["", *lines]


def test_rows_come_back_as_they_were():
    assert math.isinf(float(plain({"threshold": np.float64(np.inf)})["threshold"]))
    assert plain((np.int64(3), np.array([1.5]), True)) == [3, [1.5], True]
    rows = [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}, {"c": [1, 2]}, {"a": 3, "b": "z"}]
    assert unpacked(packed(rows)) == rows
    assert len(packed(rows)) == 3


def test_a_table_keeps_its_numbers_in_every_format():
    table = ResultTable(
        "A | title",
        "Caption.",
        ("method", "width", "p"),
        (("a|b", Measured(1.25, 0.5), 3.1e-12), ("c", None, 0.5)),
    )
    assert table.to_csv().splitlines() == [
        "method,width,width sd,p",
        "a|b,1.25,0.5,3.1e-12",
        "c,,,0.5",
    ]
    assert json.loads(table.to_json())["rows"][0] == ["a|b", {"mean": 1.25, "sd": 0.5}, 3.1e-12]
    assert "| a\\|b | 1.250 ± 0.500 | 3.1e-12 |" in table.to_markdown()
    assert table.shown() == [["a|b", "1.250 ± 0.500", "3.1e-12"], ["c", "", "0.500"]]
    assert table.slug == "a-title"
    with pytest.raises(ValueError, match="3 columns"):
        ResultTable("t", "c", ("a", "b", "c"), ((1, 2),))


def test_reproduce_writes_what_it_returns_and_refuses_other_names(tmp_path, monkeypatch):
    lacking = Experiment(
        "lacking",
        "s",
        "data",
        1.0,
        mean_table,
        run_split=draws,
        missing=lambda options: "no data here.",
    )
    monkeypatch.setattr(catalogue, "experiments", lambda: {"sums": EXPERIMENT, "lacking": lacking})
    result = catalogue.reproduce("all", out=tmp_path, splits=2, alpha=0.3, jobs=1)
    assert result.skipped == ("lacking: no data here.",)
    assert all(path.is_file() for path in result.paths)
    assert result.tables[0].to_markdown() in (tmp_path / "sums" / "tables.md").read_text()
    # as a command line has it
    exact = catalogue.reproduce("sums", out=tmp_path / "typed", splits=2, alpha="0.3", jobs=1)
    assert exact.tables == result.tables[:1]
    with pytest.raises(FileNotFoundError, match="no data here"):
        catalogue.reproduce("lacking", out=tmp_path)
    with pytest.raises(ValueError, match="nothing called 'table-9'"):
        catalogue.reproduce("table-9", out=tmp_path)


def test_a_page_of_tables_that_cannot_be_written_whole_leaves_the_one_before(tmp_path, monkeypatch):
    monkeypatch.setattr(catalogue, "experiments", lambda: {"sums": EXPERIMENT})
    catalogue.reproduce("sums", out=tmp_path, splits=2, jobs=1)
    before = {path.name: path.read_bytes() for path in (tmp_path / "sums").iterdir()}

    def cut_short(path, text, **_):
        path.write_bytes(text.encode()[:10])
        raise OSError("no space left on device")

    monkeypatch.setattr(Path, "write_text", cut_short)
    with pytest.raises(OSError, match="no space"):
        catalogue.reproduce("sums", out=tmp_path, splits=2, jobs=1)
    assert {path.name: path.read_bytes() for path in (tmp_path / "sums").iterdir()} == before


def contents(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def run_reproduce(*arguments, status=0):
    result = CliRunner().invoke(main, ["reproduce", *map(str, arguments), "--jobs", "1"])
    assert result.exit_code == status, result.output
    return " ".join(result.output.split())


OTHERWISE = {
    "seed 0 and not 1": ("--seed", 1),
    "splits 2 and not 3": ("--splits", 3),
    "alphas [0.3] and not [0.2]": ("--alpha", 0.2),
    "quick False and not True": ("--quick",),
}


@pytest.mark.parametrize("name", ["sums", "all", "sharing"])
@pytest.mark.parametrize("told", OTHERWISE)
def test_results_of_other_settings_are_replaced_only_by_force(told, name, tmp_path, monkeypatch):
    """Nor are records mixed: an experiment that shares those of another is refused too, but for the
    number of splits.
    """
    sharing = replace(EXPERIMENT, name="sharing", records_of="sums")
    monkeypatch.setattr(catalogue, "experiments", lambda: {"sums": EXPERIMENT, "sharing": sharing})
    asked = ("--out", tmp_path, "--alpha", 0.3, "--splits", 2)
    run_reproduce("sums", *asked)
    before = contents(tmp_path)
    run_reproduce("sums", *asked)
    assert contents(tmp_path) == before, "the same again is no other result"
    if name == "sharing" and told.startswith("splits"):
        run_reproduce(name, *asked, *OTHERWISE[told])
        return
    refused = run_reproduce(name, *asked, *OTHERWISE[told], status=2)
    assert (
        f"{tmp_path / 'sums'} was made with {told}, and nothing is overwritten unasked;" in refused
    )
    assert "choose another --out, or say --force." in refused
    assert contents(tmp_path) == before
    run_reproduce(name, *asked, *OTHERWISE[told], "--force")
    assert contents(tmp_path)["sums/records.jsonl"].startswith(
        before["sums/records.jsonl"][:100]
    ), "records are kept"
    run_reproduce(name, *asked, *OTHERWISE[told], *(["--force"] if name == "sharing" else []))


@pytest.mark.parametrize(
    ("when", "file"),
    [("before", "records.jsonl")]
    + [
        (when, file)
        for when in ("before", "after", "killed")
        for file in (*catalogue.PAGES, "means.csv")
    ],
)
def test_a_persons_own_file_is_replaced_only_by_force(file, when, tmp_path, monkeypatch):
    """One that was there before the first run, one that was edited after it, one that came after a
    kill.
    """
    monkeypatch.setattr(catalogue, "experiments", lambda: {"sums": EXPERIMENT})
    asked = ("sums", "--out", tmp_path, "--splits", 2)
    (tmp_path / "sums").mkdir()
    if when == "after":
        run_reproduce(*asked)
    if when == "killed":
        with monkeypatch.context() as patch:
            patch.setattr(catalogue, "_written", interrupted)
            run_reproduce(*asked, status=130)
    (tmp_path / "sums" / file).write_text("mine")
    told = run_reproduce(*asked, status=2)
    assert (
        f"{tmp_path / 'sums' / file} is not as this command wrote it, and nothing is overwritten "
        f"unasked;" in told
    )
    assert (tmp_path / "sums" / file).read_text() == "mine"
    run_reproduce(*asked, "--force")
    assert (tmp_path / "sums" / file).read_text() != "mine"
    run_reproduce(*asked)


def interrupted(*_):
    raise KeyboardInterrupt


def test_force_leaves_no_table_of_other_settings(tmp_path, monkeypatch):
    by_level = replace(
        EXPERIMENT,
        tables=lambda records, options: [
            replace(table, title=f"Level {options.alphas[0]}")
            for table in mean_table(records, options)
        ],
    )
    monkeypatch.setattr(catalogue, "experiments", lambda: {"sums": by_level})
    for alpha, force in ((0.3, []), (0.2, ["--force"])):
        run_reproduce("sums", "--out", tmp_path, "--splits", 2, "--alpha", alpha, *force)
    assert [path.name for path in (tmp_path / "sums").glob("*.csv")] == ["level-0-2.csv"]


def test_all_tables_of_a_group_are_written_or_none(tmp_path, monkeypatch):
    """The disk is full at the second experiment; records stay, to go on with."""
    known = {name: replace(EXPERIMENT, name=name) for name in ("first", "second")}
    monkeypatch.setattr(catalogue, "experiments", lambda: known)
    run_reproduce("all", "--out", tmp_path, "--splits", 2)
    before = contents(tmp_path)
    whole = catalogue._written

    def full(tables, folder):
        if folder.name == "second":
            raise OSError(errno.ENOSPC, "No space left on device")
        return whole(tables, folder)

    with monkeypatch.context() as disk:
        disk.setattr(catalogue, "_written", full)
        assert "no space left" in run_reproduce(
            "all", "--out", tmp_path, "--splits", 3, "--force", status=2
        )
    after = contents(tmp_path)
    assert {name: text for name, text in after.items() if not name.endswith("records.jsonl")} == {
        name: text for name, text in before.items() if not name.endswith("records.jsonl")
    }
    assert len(after["second/records.jsonl"].splitlines()) == 3


def test_the_minutes_of_a_group_are_those_of_the_experiments_whose_data_are_there(
    tmp_path, monkeypatch
):
    def missing(options):
        return None if options.data_home == str(tmp_path) else "no data here."

    def experiment(name, minutes, **others):
        return Experiment(name, "s", "data", minutes, mean_table, run_split=draws, **others)

    known = [
        experiment("plain", 1.0),
        experiment("rare", 20.0, missing=missing),
        experiment("owner", 5.0),
        experiment("first", 0.1, records_of="owner", part_of="beyond"),
        experiment("second", 0.2, records_of="owner", part_of="beyond"),
    ]
    monkeypatch.setattr(catalogue, "experiments", lambda: {each.name: each for each in known})
    listed = {entry.name: entry for entry in catalogue.names()}
    minutes = {name: entry.minutes for name, entry in listed.items()}
    # what shares records takes the time of their owner too, once
    assert minutes == {
        "plain": 1,
        "rare": 20,
        "owner": 5,
        "first": 5.1,
        "second": 5.2,
        "beyond": 5.3,
        "all": 6.3,
    }
    assert listed["all"].summary.endswith(" Here: 4 of 5.")
    assert listed["beyond"].summary == catalogue.GROUPS["beyond"]
    everything = {entry.name: entry for entry in catalogue.names(data_home=tmp_path)}["all"]
    assert (everything.minutes, everything.summary) == (26.3, catalogue.GROUPS["all"])


def test_a_dask_cluster_gives_the_table_of_one_process(tmp_path):
    distributed = pytest.importorskip("distributed")
    whole = table_of(EXPERIMENT, tmp_path / "whole.jsonl", jobs=1)
    seen: list[tuple[int, int, float]] = []
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0"
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        table = table_of(
            EXPERIMENT,
            tmp_path / "dask.jsonl",
            scheduler=client,
            progress=lambda *now: seen.append(now),
        )
    assert table == whole
    assert [done for done, _, _ in seen] == list(range(1, 9))
