"""Splits are run once, and their records give the same tables however they were made."""

import json
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from sums import SUMS, SumRow, mean_table

from dco.paper import Options, Row, run_splits
from dco.paper.records import pack_rows, unpack_rows

OPTIONS = Options(alphas=(0.2,))


@dataclass(frozen=True)
class OtherRow(Row):
    sizes: list[float]
    note: str | None = None


def run(path: Path, seeds=range(8), options=OPTIONS, **how):
    return run_splits(SUMS, path, seeds=seeds, options=options, **how)


def table_of(path: Path, **how) -> str:
    return mean_table(run(path, **how), OPTIONS)[0].to_json()


def seeds_in(path: Path) -> list[int]:
    return [json.loads(line)["seed"] for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def one_process(tmp_path_factory):
    """The file of records and the table of a run in one process."""
    path = tmp_path_factory.mktemp("whole") / "records.jsonl"
    return path, table_of(path, jobs=1)


def test_two_processes_give_the_table_of_one(one_process, tmp_path):
    assert table_of(tmp_path / "records.jsonl", jobs=2) == one_process[1]


def test_a_run_that_was_killed_goes_on_with_the_same_table(one_process, tmp_path):
    path = tmp_path / "records.jsonl"
    lines = one_process[0].read_text().splitlines()
    path.write_text("\n".join(lines[:4]) + "\n" + lines[4][: len(lines[4]) // 2])
    assert table_of(path, jobs=1) == one_process[1]
    assert seeds_in(path) == list(range(8))


def test_a_record_has_versions_and_seconds(one_process):
    for line in one_process[0].read_text().splitlines():
        entry = json.loads(line)
        assert entry["versions"]["numpy"] == np.__version__
        assert entry["seconds"] >= 0


def test_a_finished_split_is_not_run_again(one_process, tmp_path):
    path = tmp_path / "records.jsonl"
    marked = json.loads(one_process[0].read_text().splitlines()[0])
    marked["rows"][0]["values"][0][-1] = -1.0
    path.write_text(json.dumps(marked) + "\n")
    values = [record.rows[0].value for record in run(path, range(3), jobs=1)]
    assert values[0] == -1.0
    assert values[2] > 0


def test_records_lie_in_order_of_seed_one_for_each(tmp_path):
    path = tmp_path / "records.jsonl"
    run(path, [5, 2], jobs=1)
    path.write_text(path.read_text() * 2)
    run(path, [3], jobs=1)
    assert seeds_in(path) == [2, 3, 5]


@pytest.mark.parametrize(
    "key", ["alphas", "quick", "protocol"], ids=["other levels", "quick", "other protocol"]
)
def test_records_of_other_settings_are_kept_and_not_used(key, one_process, tmp_path):
    path = tmp_path / "records.jsonl"
    other = json.loads(one_process[0].read_text().splitlines()[0])
    other["settings"][key] = 17
    path.write_text(json.dumps(other) + "\n")
    (record,) = run(path, [0], jobs=1)
    assert json.loads(path.read_text().splitlines()[0]) == other
    assert len(path.read_text().splitlines()) == 2
    assert record.rows[0].alpha == 0.2


def test_records_do_not_depend_on_the_release(one_process):
    settings = json.loads(one_process[0].read_text().splitlines()[0])["settings"]
    assert settings == {"alphas": [0.2], "quick": False, "protocol": 1}


def test_progress_counts_splits_and_says_how_long_is_left(one_process, tmp_path):
    path = tmp_path / "records.jsonl"
    path.write_text("".join(one_process[0].read_text().splitlines(keepends=True)[:3]))
    reports: list[tuple[int, int, float]] = []
    run(path, jobs=1, progress=lambda *report: reports.append(report))
    assert [(done, total) for done, total, _ in reports] == [(done, 8) for done in range(4, 9)]
    assert reports[0][2] > 0
    assert reports[-1][2] == 0


def test_rows_come_back_as_they_were():
    rows = [
        SumRow("a", 0.2, math.inf),
        SumRow("b", 0.1, float(np.float64(1.5))),
        OtherRow([1.0, -math.inf]),
        OtherRow([], note="last"),
    ]
    blocks = json.loads(json.dumps(pack_rows(rows)))
    assert list(unpack_rows(blocks, (SumRow, OtherRow))) == rows
    assert len(blocks) == 3


def test_rows_of_unknown_columns_are_refused():
    with pytest.raises(ValueError, match="rows of sizes, which this version does not know"):
        list(unpack_rows(pack_rows([OtherRow([])]), (SumRow,)))


def test_a_dask_cluster_gives_the_table_of_one_process(one_process, tmp_path):
    distributed = pytest.importorskip("distributed")
    done: list[int] = []
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0"
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        table = table_of(
            tmp_path / "records.jsonl",
            scheduler=client,
            progress=lambda *report: done.append(report[0]),
        )
    assert table == one_process[1]
    assert done == list(range(1, 9))
