"""``dco watch``: rows as they arrive, on from where the last call ended."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from dco.foundations import files

from .conftest import table


@pytest.fixture
def rows(tmp_path):
    """Rows that came later: three weeks like the fit, one in which the outcome is worse to predict."""
    for week in range(4):
        frame = table(150, 10 + week)
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


def test_a_call_that_fails_leaves_the_state_as_it_was(dco, home, rows, fails_at):
    state = rows / "watch.json"
    dco("watch", home / "numbers.dco", rows / "week0.csv", "--state", state)
    kept = state.read_bytes()
    with fails_at(files.os, "replace", 0, OSError(28, "No space left on device")):
        assert "no space left" in dco.refuses("watch", home / "numbers.dco", rows / "week1.csv", "--state", state)
    assert state.read_bytes() == kept
    assert sorted(path.name for path in rows.iterdir()) == ["watch.json", *(f"week{week}.csv" for week in range(4))]


def test_groups_with_thresholds_of_their_own_are_watched_one_by_one(dco, home, rows):
    model = rows / "by_site.dco"
    dco("fit", home / "rows.csv", "--target", "outcome", "--models", "linear", "--condition-on", "site", "--out", model)
    told = dco("watch", model, rows / "week0.csv", "--state", rows / "watch.json").output
    assert "By group" in told
    assert all(site in told for site in ("north", "south", "east"))


def test_bad_input_gets_one_sentence(dco, home, rows):
    state, watch = rows / "watch.json", ("watch", home / "numbers.dco", rows / "week0.csv", "--state")
    state.write_text("{", encoding="utf-8")
    assert "is not the state of a monitor" in dco.refuses(*watch, state)
    state.write_text(json.dumps({"hits": ""}), encoding="utf-8")
    assert "state must be what Monitor.state() returned" in dco.refuses(*watch, state)
    pd.read_csv(rows / "week0.csv").drop(columns="outcome").to_csv(rows / "unlabelled.csv", index=False)
    assert "outcome" in dco.refuses("watch", home / "numbers.dco", rows / "unlabelled.csv", "--state", rows / "new.json")
    assert not (rows / "new.json").exists()
