"""A monitor continues from its own state, whole and unchanged, and from nothing else."""

import copy
import json

import numpy as np
import pytest

import dco
from dco.service.state import settings_of

from .conftest import draw_rows, fit_ridge


@pytest.fixture(scope="module")
def state(est):
    monitor = dco.Monitor(est)
    X, y = draw_rows(60)
    monitor.update(X, y, by=np.arange(60) % 2)
    return monitor.state()


EDITS = {
    "a score": lambda state: state["scores"].__setitem__(3, 0.5),
    "a score that is NaN": lambda state: state["scores"].__setitem__(3, float("nan")),
    "a score too many": lambda state: state["scores"].append(0.5),
    "all covered": lambda state: state.update(covered="1" * 60),
    "rows removed": lambda state: state.update(covered="1", scores=[0.5], slices=["0"]),
    "no fingerprints": lambda state: state.update(seen=[]),
    "fewer fingerprints": lambda state: state.update(seen=state["seen"][:10]),
    "fingerprints as text": lambda state: state.update(seen="abc"),
    "fingerprints as numbers": lambda state: state.update(seen=list(range(60))),
    "other slices": lambda state: state.update(slices=["3"] * 60),
    "conditions": lambda state: state.update(conditions=["a"] * 60),
    "an error rate": lambda state: state.update(error_rate=0.5),
    "a run length": lambda state: state.update(run_length=1),
    "duplicates": lambda state: state.update(duplicates="natural"),
    "another calibration": lambda state: state.update(calibration="x"),
    "another format": lambda state: state.update(format=2),
    "a missing key": lambda state: state.pop("covered"),
    "a new key": lambda state: state.update(more=1),
    "no checksum": lambda state: state.pop("sha256"),
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_a_state_that_was_edited_is_refused(est, state, edit):
    edited = copy.deepcopy(state)
    edit(edited)
    with pytest.raises(ValueError, match="whole and unchanged"):
        dco.Monitor(est, state=edited)


def nested(depth):
    return {"format": nested(depth - 1)} if depth else 3


@pytest.mark.parametrize(
    "other", [[], {}, {"hits": "01"}, "text", 3, nested(50)], ids=lambda other: str(other)[:12]
)
def test_what_is_no_state_is_refused(est, other):
    with pytest.raises(ValueError, match="whole and unchanged"):
        dco.Monitor(est, state=other)


def test_a_state_of_another_fit_is_refused(est):
    other = dco.Monitor(fit_ridge(seed=1)).state()
    with pytest.raises(ValueError, match="state is of a monitor of another fit"):
        dco.Monitor(est, state=other)


@pytest.mark.parametrize(
    ("settings", "begun_with"),
    [
        ({"error_rate": 0.5}, "error_rate=0.05"),
        ({"run_length": 20}, "run_length=10000"),
        ({"duplicates": "natural"}, "duplicates=drop"),
    ],
    ids=["error rate", "run length", "duplicates"],
)
def test_settings_belong_to_the_state(est, state, settings, begun_with):
    with pytest.raises(ValueError, match=f"was begun with {begun_with}"):
        dco.Monitor(est, state=state, **settings)


SETTINGS = {"error_rate": 0.01, "run_length": 500, "duplicates": "natural"}


@pytest.fixture
def monitor(est):
    monitor = dco.Monitor(est, **SETTINGS)
    X, y = draw_rows(120)
    monitor.update(X, y, by=np.arange(120) % 3)
    return monitor


def through_json(est, monitor, folder):
    return dco.Monitor(est, state=json.loads(json.dumps(monitor.state())), **SETTINGS)


def through_file(est, monitor, folder):
    dco.save(monitor, folder / "monitor.dco")
    return dco.load(folder / "monitor.dco")


@pytest.mark.parametrize(
    "resume",
    [through_json, through_file, lambda est, monitor, folder: copy.deepcopy(monitor)],
    ids=["JSON", "a file", "a copy"],
)
def test_a_monitor_goes_on(est, monitor, resume, tmp_path):
    resumed = resume(est, monitor, tmp_path)
    assert resumed.report() == monitor.report()
    assert resumed.update(*draw_rows(50, seed=5)) == monitor.update(*draw_rows(50, seed=5))
    assert resumed.state() == monitor.state()


def test_a_state_tells_its_settings(monitor):
    assert settings_of(monitor.state()) == SETTINGS
