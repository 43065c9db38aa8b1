"""Tables larger than memory: a sample drawn over all files is fitted, and files are evaluated one by one."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from dco.cli import reading
from dco.storage.saving import load

from .conftest import table


@pytest.fixture
def folder(tmp_path):
    """900 rows in files of different lengths, one with several row groups; and the same rows in one file."""
    frame = table(900, 7)
    frame.index.name = None
    (tmp_path / "in").mkdir()
    for name, rows in {"a": slice(0, 500), "b": slice(500, 510), "c": slice(510, 900)}.items():
        frame[rows].to_parquet(tmp_path / "in" / f"{name}.parquet", index=False, row_group_size=64)
    frame.to_parquet(tmp_path / "whole.parquet", index=False, row_group_size=100)
    frame.to_csv(tmp_path / "whole.csv", index=False)
    return tmp_path


@pytest.mark.parametrize("model", ["numbers", "labels"])
@pytest.mark.parametrize("where", [[], ["--jobs", 2]])
def test_parts_give_what_the_whole_table_gives(dco, home, folder, model, where):
    model = home / f"{model}.dco"
    whole = dco.json("evaluate", model, folder / "whole.parquet")
    for data in ("in", "whole.parquet"):
        parts = dco.json("evaluate", model, folder / data, "--in-parts", *where)
        for name in ("n", "coverage", "coverage_low", "coverage_high", "empty", "full", "infinite", "unknown_labels"):
            assert parts[name] == whole[name], name
        assert parts["mean_size"] == pytest.approx(whole["mean_size"], rel=1e-12)
        (law,) = parts["laws"].values()
        assert law == whole["consistency"]


def test_a_dask_cluster_gives_the_same_counts(dco, home, folder):
    distributed = pytest.importorskip("distributed")
    words = ("evaluate", home / "labels.dco", folder / "in", "--in-parts")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what a closing cluster leaves behind
        with distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, processes=True, dashboard_address=":0", silence_logs=50
        ) as cluster:
            there = dco.json(*words, "--scheduler", cluster.scheduler_address)
    assert there == dco.json(*words)


def test_groups_have_their_own_laws_and_rows_of_the_fit_give_no_verdict(dco, home, folder):
    model = folder / "sites.dco"
    dco("fit", home / "rows.csv", "--target", "outcome", "--models", "linear", "--condition-on", "site", "--out", model)
    whole = dco.json("evaluate", model, folder / "whole.parquet")
    parts = dco.json("evaluate", model, folder / "in", "--in-parts")
    assert parts["laws"] == {row["group"]: row["consistency"] for row in whole["by_group"]}
    seen = dco.json("evaluate", home / "numbers.dco", home / "rows.parquet", "--in-parts")
    assert seen["no_verdict"] == "320 or more of 320 rows took part in the fit"
    assert seen["laws"] == {}
    assert "No verdict" in dco("evaluate", home / "numbers.dco", home / "rows.parquet", "--in-parts").output


def test_a_sample_does_not_depend_on_how_rows_are_cut_into_files(dco, folder, monkeypatch):
    monkeypatch.setattr(reading, "_AT_ONCE", 70)  # several batches
    samples = [reading.read_sample(folder / name, 300, seed=4) for name in ("in", "whole.parquet", "whole.csv")]
    assert [total for _, total in samples] == [900] * 3
    frames = [sample.select(["dose", "outcome"]).to_pandas().astype(float) for sample, _ in samples]
    for frame in frames:
        assert len(frame) == 300
        pd.testing.assert_frame_equal(frame, frames[0])
    everything, _ = reading.read_sample(folder / "in", 5_000, seed=4)
    assert everything.num_rows == 900


def test_each_row_is_as_likely_to_be_drawn(tmp_path, monkeypatch):
    """30 of 100 rows in batches of 7, 2,000 times: each row's count within 4.5 standard errors, 100 checks at once."""
    monkeypatch.setattr(reading, "_AT_ONCE", 7)
    pd.DataFrame({"row": np.arange(100)}).to_parquet(tmp_path / "rows.parquet")
    counts = np.zeros(100)
    for seed in range(2_000):
        counts[reading.read_sample(tmp_path / "rows.parquet", 30, seed=seed)[0]["row"].to_numpy()] += 1
    assert np.all(np.abs(counts - 600) <= 4.5 * np.sqrt(2_000 * 0.3 * 0.7))


def test_fit_on_a_sample_is_the_fit_on_these_rows(dco, folder):
    sample, _ = reading.read_sample(folder / "in", 400, seed=5)
    pq.write_table(sample, folder / "sample.parquet")
    words = ("--target", "outcome", "--drop", "grade", "--drop", "patient", "--models", "linear", "--seed", 5)
    told = dco("fit", folder / "in", *words, "--sample-rows", 400, "--out", folder / "sampled.dco").output
    assert "The fit took 400 of 900 rows" in " ".join(told.split())
    dco("fit", folder / "sample.parquet", *words, "--out", folder / "direct.dco")
    one, other = (load(folder / name).certificate_ for name in ("sampled.dco", "direct.dco"))
    assert one.thresholds == other.thresholds
    assert one.row_fingerprints == other.row_fingerprints
    assert sum(one.rows.values()) == 400
    assert dco.json("audit", folder / "sampled.dco", "--data", folder / "in")["holds"]


def test_a_file_that_cannot_be_read_is_named(dco, home, folder):
    (folder / "in" / "b.parquet").write_bytes(b"PAR1 and nothing else")
    message = dco.refuses("evaluate", home / "numbers.dco", folder / "in", "--in-parts")
    assert "b.parquet" in message
    assert "Repair the file" in message
    assert "b.parquet" in dco.refuses(
        "fit", folder / "in", "--target", "outcome", "--sample-rows", 100, "--out", folder / "model.dco"
    )
    assert not (folder / "model.dco").exists()


def test_options_that_do_not_go_together_are_refused(dco, home, folder):
    words = ("evaluate", home / "numbers.dco", folder / "in")
    assert "leave --by out" in dco.refuses(*words, "--in-parts", "--by", "site")
    assert "add --in-parts" in dco.refuses(*words, "--jobs", 2)
    assert "No Dask scheduler answers" in dco.refuses(*words, "--in-parts", "--scheduler", "tcp://127.0.0.1:1")
    dco(*words, "--in-parts", "--fail-below", "0.999", status=1)
