"""``dco reproduce``: what it runs, keeps, replaces and refuses to replace."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from urllib.error import URLError

import pytest
from click.testing import CliRunner
from sums import SUMS, mean_table

from dco.cli.main import main
from dco.paper import Options, list_experiments, reproduce
from dco.paper.catalogue import EXPERIMENTS, GROUPS, PAGES
from dco.paper.experiment import DOWNLOADS, needs_file
from dco.paper.paper_parts import Finding

RESULTS = Path(__file__).parents[2] / "results"
COMMITTED = sorted(path.parent.name for path in RESULTS.glob("*/tables.md"))
NO_DATA = "no data here."


@pytest.fixture(autouse=True)
def toys(monkeypatch):
    """Offer three small experiments, in a group of their own."""
    toys = [
        replace(SUMS, part_of="toys"),
        replace(SUMS, name="sharing", records_of="sums", part_of="toys"),
        replace(SUMS, name="lacking", missing=lambda options: NO_DATA, part_of="toys"),
    ]
    for toy in toys:
        monkeypatch.setitem(EXPERIMENTS, toy.name, toy)
    monkeypatch.setitem(GROUPS, "toys", "Small experiments.")


def run_command(*arguments, status=0):
    """Run ``dco reproduce`` in one process, and return what it printed on one line."""
    result = CliRunner().invoke(main, ["reproduce", *map(str, arguments), "--jobs", "1"])
    assert result.exit_code == status, result.output
    return " ".join(result.output.split())


def contents(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


# ---- the committed results


@pytest.fixture(scope="module")
def redrawn(tmp_path_factory):
    """A copy of the committed results, drawn again by the command without any data."""
    out = tmp_path_factory.mktemp("redrawn") / "results"
    shutil.copytree(RESULTS, out)
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("DCO_DATA_HOME", raising=False)
        printed = run_command("all", "--out", out, "--data-home", out)
    return out, printed


@pytest.mark.parametrize("name", COMMITTED)
def test_committed_tables_are_drawn_again_from_committed_records(name, redrawn):
    out, _ = redrawn
    before, after = contents(RESULTS / name), contents(out / name)
    assert {file: after.get(file) for file in before if not file.endswith(".svg")} == {
        file: content for file, content in before.items() if not file.endswith(".svg")
    }


def test_only_what_has_no_records_is_left_out(redrawn):
    _, printed = redrawn
    assert printed.count("Left out:") == 1
    assert "Left out: imagenet-a" in printed


# ---- what is written


def test_what_was_written_is_what_is_returned(tmp_path):
    result = reproduce("sums", out=tmp_path, splits=2, alpha=0.3, jobs=1)
    assert all(path.is_file() for path in result.paths)
    assert result.tables[0].to_markdown() in (tmp_path / "sums" / "tables.md").read_text()
    assert {path.name for path in result.paths} == {"records.jsonl", "means.csv", *PAGES}


def test_a_level_may_be_typed_as_text(tmp_path):
    typed = reproduce("sums", out=tmp_path / "typed", splits=2, alpha="0.3", jobs=1)
    given = reproduce("sums", out=tmp_path / "given", splits=2, alpha=0.3, jobs=1)
    assert typed.tables == given.tables


def test_a_group_leaves_out_what_lacks_data(tmp_path):
    result = reproduce("toys", out=tmp_path, splits=2, jobs=1)
    assert result.skipped == (f"lacking: {NO_DATA}",)


def test_a_single_experiment_that_lacks_data_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError, match=NO_DATA):
        reproduce("lacking", out=tmp_path)


def test_an_unknown_name_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="There is no experiment 'table-99'; there are diabetes"):
        reproduce("table-99", out=tmp_path)


def test_a_file_of_data_is_named_where_it_is_missing(tmp_path):
    missing = needs_file("Somebody", "nobody.csv")
    options = Options((0.2,), data_home=str(tmp_path))
    assert "Somebody needs nobody.csv" in missing(options)
    (tmp_path / "nobody.csv").write_text("a\n")
    assert missing(options) is None


def test_a_table_that_is_nowhere_is_downloaded_once(tmp_path, monkeypatch):
    monkeypatch.delenv("DCO_DATA_HOME", raising=False)
    downloads = []
    monkeypatch.setitem(DOWNLOADS, "sums.csv", lambda: downloads.append("sums.csv"))
    downloadable = replace(SUMS, needs="sums.csv", missing=needs_file("sums", "sums.csv"))
    monkeypatch.setitem(EXPERIMENTS, "sums", downloadable)
    run_command("sums", "--out", tmp_path, "--splits", 3)
    assert downloads == ["sums.csv"]
    run_command("sums", "--out", tmp_path, "--splits", 3)
    assert downloads == ["sums.csv"]


def test_a_download_that_fails_is_an_error_that_names_the_file(tmp_path, monkeypatch):
    def download():
        raise URLError("no network")

    monkeypatch.delenv("DCO_DATA_HOME", raising=False)
    monkeypatch.setitem(DOWNLOADS, "sums.csv", download)
    downloadable = replace(SUMS, needs="sums.csv", missing=needs_file("sums", "sums.csv"))
    monkeypatch.setitem(EXPERIMENTS, "sums", downloadable)
    printed = run_command("sums", "--out", tmp_path, "--splits", 3, status=2)
    assert "sums needs sums.csv: give its folder by --data-home" in printed
    assert "It could not be downloaded: <urlopen error no network>" in printed


def test_a_folder_that_was_named_is_not_replaced_by_a_download(tmp_path):
    options = Options((0.2,), data_home=str(tmp_path))
    missing = EXPERIMENTS["concrete"].missing(options)
    assert "concrete needs concrete.csv" in missing


def test_a_number_of_the_paper_runs_what_can_be_run(tmp_path, monkeypatch):
    finding = Finding("Table 6", "agrees", "", shown_in="", module="dco.paper")
    for name, experiment in list(EXPERIMENTS.items()):
        monkeypatch.setitem(EXPERIMENTS, name, replace(experiment, findings=()))
    for name in ("sums", "lacking"):
        monkeypatch.setitem(EXPERIMENTS, name, replace(EXPERIMENTS[name], findings=(finding,)))
    printed = run_command("table 6", "--out", tmp_path, "--splits", 2)
    assert f"Left out: lacking: {NO_DATA}" in printed
    assert [path.name for path in tmp_path.iterdir()] == ["sums"]


def test_if_nothing_can_be_run_that_is_an_error(tmp_path, monkeypatch):
    lacking = replace(SUMS, missing=lambda options: NO_DATA)
    for name in ("sums", "sharing"):
        monkeypatch.setitem(EXPERIMENTS, name, replace(EXPERIMENTS[name], missing=lacking.missing))
    with pytest.raises(FileNotFoundError, match=f"sums: {NO_DATA}"):
        reproduce("toys", out=tmp_path)


def test_tables_are_drawn_again_without_the_data(tmp_path, monkeypatch):
    with_data = replace(SUMS, name="lacking")
    with monkeypatch.context() as patch:
        patch.setitem(EXPERIMENTS, "lacking", with_data)
        run_command("lacking", "--out", tmp_path, "--splits", 2)
    before = contents(tmp_path)
    run_command("lacking", "--out", tmp_path, "--splits", 2)
    assert contents(tmp_path) == before


# ---- what is replaced

ASKED = ("--alpha", 0.3, "--splits", 2)
OTHERWISE = {
    "seed 0 and not 1": ("--seed", 1),
    "splits 2 and not 3": ("--splits", 3),
    "alphas [0.3] and not [0.2]": ("--alpha", 0.2),
    "quick False and not True": ("--quick",),
}


@pytest.fixture
def made(tmp_path):
    """A folder with the results of `sums`."""
    run_command("sums", "--out", tmp_path, *ASKED)
    return tmp_path


def test_the_same_run_again_changes_nothing(made):
    before = contents(made)
    run_command("sums", "--out", made, *ASKED)
    assert contents(made) == before


@pytest.mark.parametrize("name", ["sums", "toys", "sharing"])
@pytest.mark.parametrize("difference", OTHERWISE)
def test_results_of_other_settings_are_not_replaced(difference, name, made):
    if name == "sharing" and difference.startswith("splits"):
        pytest.skip("an experiment may use fewer or more of the records that it shares")
    before = contents(made)
    refused = run_command(name, "--out", made, *ASKED, *OTHERWISE[difference], status=2)
    assert f"{made / 'sums'} was made with {difference}, and nothing is overwritten" in refused
    assert "choose another --out, or say --force." in refused
    assert contents(made) == before


@pytest.mark.parametrize("difference", OTHERWISE)
def test_force_replaces_results_and_keeps_their_records(difference, made):
    before = contents(made)
    run_command("sums", "--out", made, *ASKED, *OTHERWISE[difference], "--force")
    after = contents(made)
    assert after["sums/settings.json"] != before["sums/settings.json"]
    assert after["sums/records.jsonl"].startswith(before["sums/records.jsonl"][:100])


def test_force_leaves_no_table_of_other_settings(tmp_path, monkeypatch):
    def table_of_level(records, options):
        (table,) = mean_table(records, options)
        return [replace(table, title=f"Level {options.alphas[0]}")]

    monkeypatch.setitem(EXPERIMENTS, "sums", replace(SUMS, tables=table_of_level))
    run_command("sums", "--out", tmp_path, "--splits", 2, "--alpha", 0.3)
    run_command("sums", "--out", tmp_path, "--splits", 2, "--alpha", 0.2, "--force")
    assert [path.name for path in (tmp_path / "sums").glob("*.csv")] == ["level-0-2.csv"]


@pytest.mark.parametrize("file", [*PAGES, "means.csv", "records.jsonl", "settings.json"])
def test_a_persons_own_file_is_replaced_only_by_force(file, tmp_path):
    own_file = tmp_path / "sums" / file
    own_file.parent.mkdir()
    own_file.write_text("mine")
    refused = run_command("sums", "--out", tmp_path, "--splits", 2, status=2)
    assert f"{own_file} is not as this command wrote it, and nothing is overwritten" in refused
    assert own_file.read_text() == "mine"

    run_command("sums", "--out", tmp_path, "--splits", 2, "--force")
    assert own_file.read_text() != "mine"
    run_command("sums", "--out", tmp_path, "--splits", 2)


def test_a_file_that_the_command_did_not_write_stays(made):
    note = made / "sums" / "note.txt"
    note.write_text("mine")
    run_command("sums", "--out", made, *ASKED, "--seed", 1, "--force")
    assert note.read_text() == "mine"


def test_tables_that_cannot_be_written_whole_leave_those_before(made, monkeypatch):
    before = contents(made)

    def fail(descriptor):
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="no space"):
        reproduce("sums", out=made, alpha=0.3, splits=2, jobs=1)
    assert contents(made) == before


def test_all_tables_of_a_group_are_written_or_none(tmp_path, monkeypatch):
    """The disk is full at the last file; records stay, to go on with."""
    run_command("toys", "--out", tmp_path, "--splits", 2)
    before = contents(tmp_path)
    rename = os.replace

    def full_at_the_end(source, target):
        if Path(target).name == "means.csv" and Path(target).parent.name == "sharing":
            raise OSError("no space left on device")
        rename(source, target)

    with monkeypatch.context() as disk:
        disk.setattr(os, "replace", full_at_the_end)
        assert "no space left" in run_command(
            "toys", "--out", tmp_path, "--splits", 3, "--force", status=2
        )
    after = contents(tmp_path)
    assert len(after.pop("sums/records.jsonl").splitlines()) == 3
    before.pop("sums/records.jsonl")
    assert after == before


# ---- the list


def test_the_list_has_every_experiment_and_group():
    names = [entry.name for entry in list_experiments()]
    assert names == [*EXPERIMENTS, *GROUPS]


def test_the_minutes_of_a_group_count_shared_records_once_and_only_what_can_be_run(monkeypatch):
    monkeypatch.setitem(EXPERIMENTS, "sums", replace(SUMS, minutes=5.0, part_of="toys"))
    monkeypatch.setitem(EXPERIMENTS, "lacking", replace(EXPERIMENTS["lacking"], minutes=20.0))
    listed = {entry.name: entry for entry in list_experiments()}
    assert listed["sharing"].minutes == 5.1
    assert listed["toys"].minutes == 5.1
    assert listed["toys"].summary == "Small experiments. Here: 2 of 3."


def test_data_in_a_folder_count_as_there(tmp_path, monkeypatch):
    needs_folder = replace(
        EXPERIMENTS["lacking"],
        missing=lambda options: None if options.data_home == str(tmp_path) else NO_DATA,
    )
    monkeypatch.setitem(EXPERIMENTS, "lacking", needs_folder)
    (toys,) = (entry for entry in list_experiments(data_home=tmp_path) if entry.name == "toys")
    assert toys.summary == "Small experiments."


# ---- levels for which the calibration rows are too few


@pytest.mark.parametrize(
    ("alpha", "infinite", "n_paired"),
    [
        (0.02, {"DCO-PAC"}, 4),
        (0.01, {"DCO-PAC", "BQ"}, 3),
        (0.005, {"DCO-PAC", "BQ", "DCO-Warmstart", "DCO, refit"}, 0),
    ],
)
def test_infinite_thresholds_are_shown(alpha, infinite, n_paired, tmp_path):
    """Diabetes: 113 rows have no finite PAC rank at .02, 225 none at .01, and 113 no marginal one
    at .005 (Theorem 3.1). A pair with infinite widths has no difference.
    """
    run_command("diabetes", "--out", tmp_path, "--splits", 1, "--alpha", alpha)
    tables = json.loads((tmp_path / "diabetes" / "tables.json").read_text())
    methods, paired = (
        [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]]
        for table in tables[:2]
    )
    shown = {row["method"]: (row["width"]["mean"], row["by law"]) for row in methods}
    expected = dict.fromkeys(infinite, ("inf", 1))
    assert {method: shown[method] for method in infinite} == expected
    assert sum(row["width %"] is not None for row in paired) == n_paired
    assert "the threshold is infinite (Theorem 3.1)" in tables[0]["caption"]
    assert (tmp_path / "diabetes" / "coverage-and-width.svg").is_file()


@pytest.mark.parametrize("name", ["asymptotics", "tuning-oracle"])
def test_small_levels_of_simulated_experiments_are_shown(name, tmp_path):
    run_command(name, "--out", tmp_path, "--splits", 2, "--quick", "--alpha", 0.01)
    assert (tmp_path / name / "tables.md").is_file()


def test_a_caption_follows_the_level(tmp_path):
    """At .9 the law of Diabetes is 103 / 114 = .904, and the paper prints no table of priors."""
    run_command("diabetes", "--out", tmp_path, "--splits", 1, "--alpha", 0.1)
    page = (tmp_path / "diabetes" / "tables.md").read_text()
    assert "0.904" in page
    assert ".807" not in page
