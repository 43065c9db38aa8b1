"""``dco watch``: rows as they arrive, on from where the last call ended."""

import json
import signal
import subprocess
import sys
import time

import pandas as pd
import pytest

from dco.cli import watching
from dco.foundations import files

from .conftest import make_table


@pytest.fixture
def rows(tmp_path):
    """Rows that came later: three weeks like the fit, one in which the outcome is worse to
    predict.
    """
    for week in range(4):
        frame = make_table(150, 10 + week)
        if week == 3:
            frame["outcome"] += 4 * (frame["dose"] - frame["dose"].mean()).round(4)
        frame.to_csv(tmp_path / f"week{week}.csv", index=False)
    return tmp_path


def test_watching_goes_on_counts_rows_once_and_ends_with_status_1_on_an_alarm(dco, home, rows):
    state, model = rows / "watch.json", home / "numbers.dco"
    for week in range(3):
        told = dco.json("watch", model, rows / f"week{week}.csv", "--state", state)
        assert (told["rows"], told["new_rows"], told["alarm"]) == (150 * (week + 1), 150, False)
    kept = state.read_bytes()
    again = dco.json("watch", model, rows / "week1.csv", "--state", state)  # sent twice
    assert (again["rows"], again["new_rows"], again["p_value"]) == (450, 0, told["p_value"])
    assert "150 rows of 150 are equal to rows seen before" in " ".join(again["notes"])
    assert state.read_bytes() == kept
    alarm = dco("watch", model, rows / "week3.csv", "--state", state, status=1)
    assert "Alarm: new rows are covered less often" in " ".join(alarm.output.split())
    assert dco.json("watch", model, rows / "week3.csv", "--state", state, status=1)["since"] > 400


KILLED = """
import os, signal, sys
import dco.service.monitor as monitor
import dco.foundations.files as files
from dco.cli.main import main

owner, name = {place}
whole = getattr(owner, name)

def killed(*arguments, **options):
    if {before}:
        os.kill(os.getpid(), signal.SIGKILL)
    whole(*arguments, **options)
    os.kill(os.getpid(), signal.SIGKILL)

setattr(owner, name, killed)
main(sys.argv[1:])
"""


@pytest.mark.parametrize(
    ("place", "before", "counted"),
    [
        ("(monitor.Monitor, 'update_all')", False, 0),
        ("(files.os, 'replace')", True, 0),
        ("(files.os, 'replace')", False, 150),
    ],
)
def test_a_killed_call_is_repeated_and_no_row_is_lost_or_counted_twice(
    dco, home, rows, place, before, counted
):
    """Killed after the work, before and after the new state takes its place: the state is the old
    or the new one, whole.
    """
    state, words = (
        rows / "watch.json",
        ["watch", home / "numbers.dco", rows / "week1.csv", "--state", rows / "watch.json"],
    )
    dco("watch", home / "numbers.dco", rows / "week0.csv", "--state", state)
    code = KILLED.format(place=place, before=before)
    run = subprocess.run(
        [sys.executable, "-c", code, *map(str, words)], capture_output=True, check=False
    )
    assert run.returncode == -signal.SIGKILL, run.stderr
    assert len(json.loads(state.read_text())["covered"]) == 150 + counted
    told = dco.json(*words)
    assert (told["rows"], told["new_rows"]) == (300, 150 - counted)
    straight = rows / "straight.json"
    for week in range(2):
        dco("watch", home / "numbers.dco", rows / f"week{week}.csv", "--state", straight)
    assert state.read_bytes() == straight.read_bytes()


@pytest.mark.parametrize("late", [False, True])
def test_two_calls_at_once_lose_no_rows(dco, home, rows, monkeypatch, late):
    """The second call ends while the first is at work, or just before it looks at the state and
    replaces it, alone.
    """
    from dco.service.monitor import Monitor

    state = rows / "watch.json"
    owner, name = (watching, "wait_for_folder") if late else (Monitor, "update_all")
    whole = getattr(owner, name)

    def interrupted(*given):
        monkeypatch.setattr(owner, name, whole)
        dco("watch", home / "numbers.dco", rows / "week1.csv", "--state", state)
        return whole(*given)

    monkeypatch.setattr(owner, name, interrupted)
    words = ("watch", home / "numbers.dco", rows / "week2.csv", "--state", state)
    assert "was written by another call meanwhile" in dco.refuses(*words)
    assert dco.json(*words)["rows"] == 300


def test_the_page_shows_the_timeline_and_comes_with_the_state_or_not_at_all(
    dco, home, rows, fails_at
):
    state, page = rows / "watch.json", rows / "timeline.html"
    words = ("watch", home / "numbers.dco", rows / "week3.csv", "--state", state, "--report", page)
    with fails_at(files.os, "replace", 1, OSError(28, "No space left on device")):
        assert "no space left" in dco.refuses(*words)
    assert not page.exists()
    assert not state.exists()
    dco(*words, status=1)
    text = page.read_text(encoding="utf-8")
    assert "outcome by numbers.dco, in service" in text
    assert "Alarm: new rows are covered less often" in text
    assert text.count("data:image/svg+xml;base64,") == 1
    assert "exists already" in dco.refuses(*words)
    dco(*words, "--force", status=1)
    assert "must end in .html" in dco.refuses(*words[:-1], rows / "timeline.pdf")
    assert "is read by this command" in dco.refuses(*words[:-1], rows / "week3.csv")


def test_after_an_alarm_a_model_is_recalibrated_on_later_rows(dco, home, rows):
    from dco.storage.saving import load

    later, new = rows / "later.csv", rows / "new.dco"
    frame = make_table(400, 20)
    frame["outcome"] += 4 * (frame["dose"] - frame["dose"].mean()).round(4)
    frame[:250].to_csv(later, index=False)
    frame[250:].to_csv(rows / "after.csv", index=False)
    told = dco.json(
        "recalibrate",
        home / "numbers.dco",
        later,
        "--out",
        new,
        "--certificate",
        rows / "copy.json",
    )
    assert told["replaces"] == load(home / "numbers.dco").certificate_.fingerprint
    assert told["certificate"]["provenance"]["rows"]["calibrate"] == 250
    assert dco.json("audit", new, "--data", later, "--certificate", rows / "copy.json")["holds"]
    assert not dco.json("watch", new, rows / "after.csv", "--state", rows / "new.json")["alarm"]
    assert "--state is of a monitor of another fit: begin a new one" in dco.refuses(
        "watch", home / "numbers.dco", rows / "after.csv", "--state", rows / "new.json"
    )
    assert "exists already" in dco.refuses("recalibrate", home / "numbers.dco", later, "--out", new)
    assert "took part in the fit" in dco.refuses(
        "recalibrate", home / "numbers.dco", home / "rows.csv", "--out", rows / "other.dco"
    )
    assert (
        "Recalibrated"
        in dco("recalibrate", home / "numbers.dco", later, "--out", new, "--force").output
    )


def test_a_folder_is_read_in_batches(dco, home, rows, small_batches):
    """In batches of 100 rows over the files: the same state as for one table."""
    folder, model, words = rows / "weeks", home / "numbers.dco", ("--by", "site", "--state")
    folder.mkdir()
    for week in range(4):
        pd.read_csv(rows / f"week{week}.csv").to_parquet(folder / f"week{week}.parquet")
    pd.concat([pd.read_csv(rows / f"week{week}.csv") for week in range(4)]).to_csv(
        rows / "all.csv", index=False
    )
    whole = dco.json("watch", model, rows / "all.csv", *words, rows / "whole.json", status=1)
    small_batches(100)
    found = dco.json("watch", model, folder, *words, rows / "watch.json", status=1)
    assert {**found, "state": None} == {**whole, "state": None}
    assert json.loads((rows / "watch.json").read_text()) == json.loads(
        (rows / "whole.json").read_text()
    )
    assert {each["slice"] for each in found["slices"]} == {"north", "south", "east"}
    assert "By slice" in dco("watch", model, folder, *words, rows / "watch.json", status=1).output
    again = dco.json("watch", model, folder, *words, rows / "watch.json", status=1)
    assert [note for note in again["notes"] if "equal to rows seen before" in note] == [
        "600 rows of 600 are equal to rows seen before, here or in the fit: left out. If "
        "different rows are often equal: "
        "--duplicates natural."
    ]


def test_a_disk_that_takes_no_more_leaves_the_state_as_it_was(dco, home, rows):
    """The system itself refuses bytes of files beyond 12 kB, which hold the rows of one week."""
    pytest.importorskip("resource")
    state, words = rows / "watch.json", ["watch", home / "numbers.dco"]
    dco(*words, rows / "week0.csv", "--state", state)
    kept = state.read_bytes()
    assert 6_000 < len(kept) < 12_000
    limited = (
        "import resource, runpy; resource.setrlimit(resource.RLIMIT_FSIZE, (12_000, 12_000)); "
    )
    limited += "runpy.run_module('dco', run_name='__main__', alter_sys=True)"
    run = subprocess.run(
        [sys.executable, "-c", limited, *map(str, [*words, rows / "week1.csv", "--state", state])],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 2
    assert "The disk refused to read or write" in run.stderr
    assert state.read_bytes() == kept
    assert sorted(path.name for path in rows.iterdir()) == [
        "watch.json",
        *(f"week{week}.csv" for week in range(4)),
    ]


def test_groups_with_thresholds_of_their_own_are_watched_one_by_one(dco, home, rows):
    model = rows / "by_site.dco"
    dco(
        "fit",
        home / "rows.csv",
        "--target",
        "outcome",
        "--models",
        "linear",
        "--condition-on",
        "site",
        "--out",
        model,
    )
    told = dco("watch", model, rows / "week0.csv", "--state", rows / "watch.json").output
    assert "By group" in told
    assert all(site in told for site in ("north", "south", "east"))


def test_a_table_without_targets_is_refused_and_no_state_written(dco, home, rows):
    pd.read_csv(rows / "week0.csv").drop(columns="outcome").to_csv(rows / "x.csv", index=False)
    words = ("watch", home / "numbers.dco", rows / "x.csv", "--state", rows / "new.json")
    assert "outcome" in dco.refuses(*words)
    assert not (rows / "new.json").exists()


NO_STATES = {
    "cut short": "{",
    "null": "null",
    "a list": "[]",
    "another object": '{"hits": ""}',
    "deep": "[" * 100_000,
    "no text": "\udcff",
}


@pytest.mark.parametrize("text", NO_STATES.values(), ids=NO_STATES)
def test_a_file_that_is_no_state_is_refused_and_kept(dco, home, rows, text):
    state = rows / "watch.json"
    state.write_text(text, encoding="utf-8", errors="surrogateescape")
    content = state.read_bytes()
    words = ("watch", home / "numbers.dco", rows / "week0.csv", "--state", state)
    assert "watch.json is not the state of a monitor" in dco.refuses(*words)
    assert "--restart keeps it" in dco.refuses(*words, "--restart")
    assert state.read_bytes() == content


@pytest.mark.parametrize(
    ("option", "value"),
    [("--error-rate", 0.5), ("--run-length", 20), ("--duplicates", "natural")],
    ids=["error rate", "run length", "duplicates"],
)
def test_settings_belong_to_the_state(dco, home, rows, option, value):
    words = ("watch", home / "numbers.dco", rows / "week0.csv", "--state", rows / "watch.json")
    dco(*words)
    assert f"was begun with {option}" in dco.refuses(*words, option, value)
    assert dco.json(*words, option, value, "--restart")["new_rows"] == 150
    assert dco.json(*words)["rows"] == 150 * (2 if value == "natural" else 1)


def test_a_state_that_cannot_be_written_is_refused_before_the_work(dco, home, rows):
    words = ("watch", home / "numbers.dco", rows / "week0.csv", "--state")
    assert "There is no folder" in dco.refuses(*words, rows / "none" / "watch.json")
    assert "is read by this command" in dco.refuses(*words, rows / "week0.csv")


# ---------------------------------------------------------------- a table that is being written


@pytest.mark.parametrize("n_missing", range(1, 12))
def test_a_last_line_without_a_line_break_is_left_for_the_next_call(dco, home, rows, n_missing):
    """The file is cut within its last line: in the target, in an earlier cell, or at its end."""
    whole, part = rows / "week0.csv", rows / "part.csv"
    part.write_bytes(whole.read_bytes()[:-n_missing])
    words = ("--state", rows / "watch.json")
    cut = dco.json("watch", home / "numbers.dco", part, *words)
    assert cut["rows"] == 149
    assert any("part.csv has no line break, so it is left" in note for note in cut["notes"])
    assert dco.json("watch", home / "numbers.dco", whole, *words)["rows"] == 150


def test_a_line_break_within_quotes_ends_no_line(dco, home, rows):
    text = (rows / "week0.csv").read_text()
    (rows / "torn.csv").write_text(text + '50.0,1.0,"nor\n')
    words = ("watch", home / "numbers.dco", rows / "torn.csv", "--state", rows / "watch.json")
    assert dco.json(*words)["rows"] == 150


WRITER = """
import sys, time
lines = open(sys.argv[1]).readlines()
with open(sys.argv[2], "w") as file:
    for number, line in enumerate(lines):
        file.write(line[: -1 - number % 9])
        file.flush()
        time.sleep(0.01)
        file.write(line[-1 - number % 9 :])
"""


def test_a_table_that_another_process_writes_is_taken_line_by_line(dco, home, rows):
    growing, words = rows / "growing.csv", ("--state", rows / "watch.json")
    writer = subprocess.Popen([sys.executable, "-c", WRITER, rows / "week0.csv", growing])
    while not growing.exists() or growing.read_bytes().count(b"\n") < 3:
        time.sleep(0.01)
    n_calls = 0
    while writer.poll() is None:
        dco("watch", home / "numbers.dco", growing, *words)
        n_calls += 1
    assert n_calls > 1
    assert dco.json("watch", home / "numbers.dco", growing, *words)["rows"] == 150
    dco("watch", home / "numbers.dco", rows / "week0.csv", "--state", rows / "straight.json")
    assert (rows / "watch.json").read_bytes() == (rows / "straight.json").read_bytes()
