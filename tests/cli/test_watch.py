"""dco watch: rows as they arrive, on from where the last call ended."""

import errno
import fcntl
import json
import signal
import subprocess
import sys
import time

import pandas as pd
import pytest
from sklearn.pipeline import Pipeline

import dco as library

from .conftest import make_table


def worsen(frame):
    """Let the outcome depend on the dose in a way that the model does not know."""
    frame["outcome"] += 4 * (frame["dose"] - frame["dose"].mean()).round(4)
    return frame


def unwrapped(printed):
    """What was printed, on one line."""
    return " ".join(printed.split())


@pytest.fixture
def weeks(tmp_path):
    """A folder with rows that came later: three weeks like the fit, and one that is worse to
    predict.
    """
    for week in range(3):
        make_table(150, 10 + week).to_csv(tmp_path / f"week{week}.csv", index=False)
    worsen(make_table(150, 13)).to_csv(tmp_path / "week3.csv", index=False)
    return tmp_path


@pytest.fixture
def state(tmp_path):
    return tmp_path / "watch.json"


@pytest.fixture
def watch(home, weeks, state):
    """``watch("week0.csv", *options)``: a call, as words of the command line."""

    def words(data, *options):
        return ("watch", home / "numbers.dco", weeks / data, "--state", state, *options)

    return words


# --- rows as they arrive --------------------------------------------------------------------------


def test_watching_goes_on_from_call_to_call(dco, watch):
    reports = [dco.json(*watch(f"week{week}.csv")) for week in range(3)]
    assert [report["rows"] for report in reports] == [150, 300, 450]
    assert [report["new_rows"] for report in reports] == [150, 150, 150]
    assert [report["alarm"] for report in reports] == [False, False, False]


def test_rows_that_come_twice_are_counted_once(dco, watch, state):
    first = dco.json(*watch("week0.csv"))
    before = state.read_bytes()

    again = dco.json(*watch("week0.csv"))

    assert (again["rows"], again["new_rows"], again["p_value"]) == (150, 0, first["p_value"])
    assert state.read_bytes() == before
    assert "150 rows of 150 are equal to rows seen before" in " ".join(again["notes"])


def test_an_alarm_ends_with_status_1_and_stays(dco, watch):
    for week in range(3):
        dco(*watch(f"week{week}.csv"))
    printed = dco(*watch("week3.csv"), status=1).output
    assert "Alarm: new rows are covered less often" in unwrapped(printed)
    assert dco.json(*watch("week3.csv"), status=1)["since"] > 400


def test_conditions_are_watched_one_by_one(dco, home, weeks, state):
    model = weeks / "by_site.dco"
    fit = ("fit", home / "rows.csv", "--target", "outcome", "--models", "linear")
    dco(*fit, "--condition-on", "site", "--out", model)
    printed = dco("watch", model, weeks / "week0.csv", "--state", state).output
    assert "By group" in printed
    assert [site for site in ("north", "south", "east") if site not in printed] == []


def test_a_table_without_targets_is_refused_and_no_state_written(dco, weeks, watch, state):
    frame = pd.read_csv(weeks / "week0.csv").drop(columns="outcome")
    frame.to_csv(weeks / "x.csv", index=False)
    assert "outcome" in dco.refuses(*watch("x.csv"))
    assert not state.exists()


# --- a folder of tables ---------------------------------------------------------------------------


@pytest.fixture
def folder(weeks):
    """The four weeks as Parquet files of a folder, and as one table all.csv beside it."""
    folder = weeks / "weeks"
    folder.mkdir()
    frames = [pd.read_csv(weeks / f"week{week}.csv") for week in range(4)]
    for week, frame in enumerate(frames):
        frame.to_parquet(folder / f"week{week}.parquet")
    pd.concat(frames).to_csv(weeks / "all.csv", index=False)
    return folder


def test_a_folder_in_batches_gives_the_state_of_one_table(
    dco, home, weeks, folder, watch, state, small_batches
):
    """In batches of 100 rows over the files."""
    by_site = ("--by", "site", "--state")
    whole_state = weeks / "whole.json"
    watch_whole = ("watch", home / "numbers.dco", weeks / "all.csv", *by_site, whole_state)
    whole = dco.json(*watch_whole, status=1)

    small_batches(100)
    in_batches = dco.json(*watch("weeks", "--by", "site"), status=1)

    assert {**in_batches, "state": None} == {**whole, "state": None}
    assert json.loads(state.read_text()) == json.loads(whole_state.read_text())


def test_slices_are_watched_on_request(dco, folder, watch):
    result = dco.json(*watch("weeks", "--by", "site"), status=1)
    assert {row["slice"] for row in result["slices"]} == {"north", "south", "east"}
    assert "By slice" in dco(*watch("weeks", "--by", "site"), status=1).output


def test_repeated_rows_of_a_folder_are_noted_once(dco, folder, watch):
    dco(*watch("weeks"), status=1)
    notes = dco.json(*watch("weeks"), status=1)["notes"]
    note = (
        "600 rows of 600 are equal to rows seen before, here or in the fit: left out. If "
        "different rows are often equal: --duplicates natural."
    )
    assert notes.count(note) == 1
    assert sum("equal to rows seen before" in text for text in notes) == 1


# --- calls that are killed, and two at once -------------------------------------------------------

KILLED_WHILE_THE_MODEL_PREDICTS = """
from sklearn.pipeline import Pipeline
Pipeline.predict = end
"""
KILLED_BEFORE_THE_NEW_STATE = """
os.replace = end
"""
KILLED_AFTER_THE_NEW_STATE = """
rename = os.replace
def rename_and_end(source, target):
    rename(source, target)
    end()
os.replace = rename_and_end
"""
RUN_AND_END = """
import os, signal, sys
from dco.cli.main import main

def end(*arguments, **options):
    os.kill(os.getpid(), signal.SIGKILL)

{place}
main(sys.argv[1:])
"""


@pytest.mark.parametrize(
    ("place", "n_counted"),
    [
        (KILLED_WHILE_THE_MODEL_PREDICTS, 0),
        (KILLED_BEFORE_THE_NEW_STATE, 0),
        (KILLED_AFTER_THE_NEW_STATE, 150),
    ],
    ids=["while the model predicts", "before the new state", "after the new state"],
)
def test_a_killed_call_is_repeated_and_no_row_is_lost_or_counted_twice(
    dco, home, weeks, watch, state, place, n_counted
):
    """The state is the old or the new one, whole."""
    dco(*watch("week0.csv"))

    words = [sys.executable, "-c", RUN_AND_END.format(place=place)]
    words += [str(word) for word in watch("week1.csv")]
    process = subprocess.run(words, capture_output=True, check=False)
    assert process.returncode == -signal.SIGKILL, process.stderr
    assert len(json.loads(state.read_text())["covered"]) == 150 + n_counted

    result = dco.json(*watch("week1.csv"))
    assert (result["rows"], result["new_rows"]) == (300, 150 - n_counted)
    straight = weeks / "straight.json"
    for week in range(2):
        dco("watch", home / "numbers.dco", weeks / f"week{week}.csv", "--state", straight)
    assert state.read_bytes() == straight.read_bytes()


@pytest.mark.parametrize(
    ("owner", "name"),
    [(Pipeline, "predict"), (fcntl, "flock")],
    ids=["while the first predicts", "just before the first looks at the state"],
)
def test_two_calls_at_once_lose_no_rows(dco, watch, monkeypatch, owner, name):
    """A second call ends while the first is at work."""
    original = getattr(owner, name)

    def let_another_call_run(*arguments, **options):
        monkeypatch.setattr(owner, name, original)
        dco(*watch("week1.csv"))
        return original(*arguments, **options)

    monkeypatch.setattr(owner, name, let_another_call_run)
    message = dco.refuses(*watch("week2.csv"))

    assert "was written by another call meanwhile" in message
    assert dco.json(*watch("week2.csv"))["rows"] == 300


# --- the page -------------------------------------------------------------------------------------


@pytest.fixture
def page(tmp_path):
    return tmp_path / "timeline.html"


def test_the_page_shows_the_timeline(dco, watch, page):
    dco(*watch("week3.csv", "--report", page), status=1)
    text = page.read_text(encoding="utf-8")
    assert "outcome by numbers.dco, in service" in text
    assert "Alarm: new rows are covered less often" in text
    assert text.count("data:image/svg+xml;base64,") == 1


def test_the_page_comes_with_the_state_or_not_at_all(dco, watch, state, page, no_name_for):
    with no_name_for("timeline.html", OSError(errno.ENOSPC, "No space left on device")):
        message = dco.refuses(*watch("week3.csv", "--report", page))
    assert "no space left" in message
    assert not page.exists()
    assert not state.exists()


def test_a_page_is_replaced_on_request_alone(dco, watch, page):
    words = watch("week3.csv", "--report", page)
    dco(*words, status=1)
    assert "exists already" in dco.refuses(*words)
    dco(*words, "--force", status=1)


@pytest.mark.parametrize(
    ("name", "message"),
    [("timeline.pdf", "must end in .html"), ("week3.csv", "is read by this command")],
)
def test_a_page_must_be_an_html_file_of_its_own(dco, weeks, watch, name, message):
    assert message in dco.refuses(*watch("week3.csv", "--report", weeks / name))


# --- recalibration --------------------------------------------------------------------------------


@pytest.fixture
def later(weeks):
    """250 rows after the change, and 150 that come after them."""
    frame = worsen(make_table(400, 20))
    frame[:250].to_csv(weeks / "later.csv", index=False)
    frame[250:].to_csv(weeks / "after.csv", index=False)
    return weeks / "later.csv"


@pytest.fixture
def recalibrate(home, weeks, later):
    """A recalibration on these rows, as words of the command line."""
    return ("recalibrate", home / "numbers.dco", later, "--out", weeks / "new.dco")


def test_a_recalibrated_model_names_the_one_that_it_replaces(dco, home, recalibrate):
    result = dco.json(*recalibrate)
    replaced = library.load(home / "numbers.dco").certificate_
    assert result["replaces"] == replaced.fingerprint
    assert result["certificate"]["provenance"]["rows"]["calibrate"] == 250


def test_a_recalibrated_model_passes_its_audit(dco, weeks, later, recalibrate):
    copy = ("--certificate", weeks / "copy.json")
    dco(*recalibrate, *copy)
    assert dco.json("audit", weeks / "new.dco", "--data", later, *copy)["holds"]


def test_a_recalibrated_model_raises_no_alarm(dco, weeks, state, recalibrate):
    dco(*recalibrate)
    words = ("watch", weeks / "new.dco", weeks / "after.csv", "--state", state)
    assert not dco.json(*words)["alarm"]


def test_a_state_belongs_to_one_model(dco, weeks, watch, state, recalibrate):
    dco(*recalibrate)
    dco("watch", weeks / "new.dco", weeks / "after.csv", "--state", state)
    message = dco.refuses(*watch("after.csv"))
    assert "--state is of a monitor of another fit: begin a new one" in message


def test_a_recalibrated_model_is_replaced_on_request_alone(dco, recalibrate):
    dco(*recalibrate)
    assert "exists already" in dco.refuses(*recalibrate)
    assert "Recalibrated" in dco(*recalibrate, "--force").output


def test_rows_of_the_fit_do_not_recalibrate(dco, home, weeks):
    words = ("recalibrate", home / "numbers.dco", home / "rows.csv", "--out", weeks / "new.dco")
    assert "took part in the fit" in dco.refuses(*words)


# --- the state ------------------------------------------------------------------------------------

LIMIT_FILES_TO_12_KB = """
import resource, runpy

resource.setrlimit(resource.RLIMIT_FSIZE, (12_000, 12_000))
runpy.run_module("dco", run_name="__main__", alter_sys=True)
"""


def test_a_disk_that_takes_no_more_leaves_the_state_as_it_was(dco, weeks, watch, state):
    """The system itself refuses bytes of files beyond 12 kB, which hold the rows of one week."""
    pytest.importorskip("resource")
    dco(*watch("week0.csv"))
    before = state.read_bytes()
    files = sorted(weeks.iterdir())
    assert 6_000 < len(before) < 12_000

    words = [sys.executable, "-c", LIMIT_FILES_TO_12_KB, *map(str, watch("week1.csv"))]
    process = subprocess.run(words, capture_output=True, text=True, check=False)

    assert process.returncode == 2
    assert "The disk refused to read or write" in process.stderr
    assert state.read_bytes() == before
    assert sorted(weeks.iterdir()) == files


NO_STATES = {
    "cut short": "{",
    "null": "null",
    "a list": "[]",
    "another object": '{"hits": ""}',
    "deep": "[" * 100_000,
    "no text": "\udcff",
}


@pytest.mark.parametrize("text", NO_STATES.values(), ids=NO_STATES)
def test_a_file_that_is_no_state_is_refused_and_kept(dco, watch, state, text):
    state.write_text(text, encoding="utf-8", errors="surrogateescape")
    before = state.read_bytes()
    assert "watch.json is not the state of a monitor" in dco.refuses(*watch("week0.csv"))
    assert "--restart keeps it" in dco.refuses(*watch("week0.csv", "--restart"))
    assert state.read_bytes() == before


OTHER_SETTINGS = [("--error-rate", 0.5), ("--run-length", 20), ("--duplicates", "natural")]


@pytest.mark.parametrize(("option", "value"), OTHER_SETTINGS)
def test_settings_belong_to_the_state(dco, watch, option, value):
    dco(*watch("week0.csv"))
    assert f"was begun with {option}" in dco.refuses(*watch("week0.csv", option, value))


@pytest.mark.parametrize(("option", "value"), OTHER_SETTINGS)
def test_a_restart_takes_other_settings_for_later_calls(dco, watch, option, value):
    """Also of a later call that does not name them: natural duplicates are counted twice then."""
    dco(*watch("week0.csv"))
    assert dco.json(*watch("week0.csv", option, value, "--restart"))["new_rows"] == 150
    n_rows = 300 if value == "natural" else 150
    assert dco.json(*watch("week0.csv"))["rows"] == n_rows


@pytest.mark.parametrize(
    ("file", "message"),
    [("none/watch.json", "There is no folder"), ("week0.csv", "is read by this command")],
)
def test_a_state_that_cannot_be_written_is_refused_before_the_work(dco, home, weeks, file, message):
    words = ("watch", home / "numbers.dco", weeks / "week0.csv", "--state", weeks / file)
    assert message in dco.refuses(*words)


# --- a table that is being written ----------------------------------------------------------------


@pytest.mark.parametrize("n_missing", range(1, 12))
def test_a_last_line_without_a_line_break_is_left_for_the_next_call(dco, weeks, watch, n_missing):
    """The file is cut within its last line: in the target, in an earlier cell, or at its end."""
    whole = (weeks / "week0.csv").read_bytes()
    (weeks / "part.csv").write_bytes(whole[:-n_missing])

    cut = dco.json(*watch("part.csv"))

    assert cut["rows"] == 149
    assert "part.csv has no line break, so it is left" in " ".join(cut["notes"])
    assert dco.json(*watch("week0.csv"))["rows"] == 150


def test_a_line_break_within_quotes_ends_no_line(dco, weeks, watch):
    text = (weeks / "week0.csv").read_text()
    (weeks / "torn.csv").write_text(text + '50.0,1.0,"nor\n')
    assert dco.json(*watch("torn.csv"))["rows"] == 150


WRITE_IN_PIECES = """
import sys, time

lines = open(sys.argv[1]).readlines()
with open(sys.argv[2], "w") as file:
    for number, line in enumerate(lines):
        file.write(line[: -1 - number % 9])
        file.flush()
        time.sleep(0.01)
        file.write(line[-1 - number % 9 :])
"""


def test_a_table_that_another_process_writes_is_taken_line_by_line(dco, home, weeks, watch, state):
    growing = weeks / "growing.csv"
    words = [sys.executable, "-c", WRITE_IN_PIECES, weeks / "week0.csv", growing]
    writer = subprocess.Popen(words)
    while not growing.exists() or growing.read_bytes().count(b"\n") < 3:
        time.sleep(0.01)
    n_calls = 0
    while writer.poll() is None:
        dco(*watch("growing.csv"))
        n_calls += 1

    assert n_calls > 1
    assert dco.json(*watch("growing.csv"))["rows"] == 150
    straight = weeks / "straight.json"
    dco("watch", home / "numbers.dco", weeks / "week0.csv", "--state", straight)
    assert state.read_bytes() == straight.read_bytes()
