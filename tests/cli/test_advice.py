"""Whatever a command advises is tried here: it is not refused, and it helps."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest


@pytest.fixture
def fit(dco, tmp_path):
    """``fit(frame, *words)``: fit on a frame; return what --json prints."""

    def fit_frame(frame: pd.DataFrame, *words: Any, target: str = "y") -> Any:
        frame.to_csv(tmp_path / "rows.csv", index=False)
        common = ("--target", target, "--models", "linear", "--force", "--out", tmp_path / "m.dco")
        return dco.json("fit", tmp_path / "rows.csv", *common, *words)

    return fit_frame


@pytest.fixture
def evaluate(dco, tmp_path):
    """``evaluate(frame)``: evaluate the model of `fit` on a frame."""

    def evaluate_frame(frame: pd.DataFrame, *words: Any) -> Any:
        frame.to_csv(tmp_path / "new.csv", index=False)
        return dco.json("evaluate", tmp_path / "m.dco", tmp_path / "new.csv", *words)

    return evaluate_frame


def advised(notes: list[str], option: str) -> list[str] | None:
    """Return an option and its values as a note writes them; None if no note names it."""
    for note in notes:
        words = note.split()
        if option in words:
            start = words.index(option) + 1
            n_values = 2 if option == "--range" else 1
            return [option, *(word.rstrip(".,;") for word in words[start : start + n_values])]
    return None


def rows_with_a_rare_class(n: int, seed: int) -> pd.DataFrame:
    """A class of 8 % of the rows that no feature tells."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    usual = np.where(x + rng.normal(size=n) / 2 > 0, "yes", "no")
    return pd.DataFrame(
        {
            "patient": rng.integers(n // 3, size=n),
            "x": x,
            "y": np.where(rng.random(n) < 0.08, "rare", usual),
        }
    )


def coverage_of(evaluation: Any, label: str) -> float:
    """Return the coverage of one class."""
    (row,) = [
        row for row in evaluation["slices"] if (row["by"], str(row["group"])) == ("class", label)
    ]
    return row["coverage"]


def test_a_rare_class_is_covered_once_the_advice_is_followed(fit, evaluate):
    rows, new = rows_with_a_rare_class(900, 0), rows_with_a_rare_class(600, 1)
    notes = fit(rows, "--drop", "patient")["notes"]
    before = evaluate(new)
    assert coverage_of(before, "rare") < 0.5
    for told in (notes, before["notes"]):
        words = advised(told, "--condition-on")
        assert words == ["--condition-on", "y"]
    fit(rows, "--drop", "patient", *words)
    assert coverage_of(evaluate(new), "rare") > 0.8


@pytest.mark.parametrize("stage", ["fit", "evaluate"])
def test_with_groups_nothing_is_advised_that_groups_exclude(fit, evaluate, stage):
    rows, new = rows_with_a_rare_class(900, 0), rows_with_a_rare_class(600, 1)
    told = fit(rows, "--groups", "patient", "--test-size", 0.3)
    notes = told["notes"] if stage == "fit" else evaluate(new)["notes"]
    assert any("rare" in note for note in notes), "the class is named"
    assert advised(notes, "--condition-on") is None


def test_groups_exclude_conditions(dco, tmp_path):
    rows_with_a_rare_class(900, 0).to_csv(tmp_path / "rows.csv", index=False)
    words = ("--target", "y", "--groups", "patient", "--condition-on", "y")
    refused = dco.refuses("fit", tmp_path / "rows.csv", *words)
    assert "--groups cannot be combined with --condition-on" in refused


def test_no_threshold_is_advised_for_a_label_that_the_fit_never_saw(fit, evaluate):
    rows, new = rows_with_a_rare_class(900, 0), rows_with_a_rare_class(600, 1)
    fit(rows[rows["y"] != "rare"], "--drop", "patient")
    notes = evaluate(new)["notes"]
    assert any("'rare'" in note for note in notes), "the label is named"
    assert advised(notes, "--condition-on") is None


def test_sets_below_zero_are_cut_by_the_range_that_is_advised(dco, fit, tmp_path):
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 3, size=600)
    rows = pd.DataFrame({"x": x, "y": rng.exponential(x)})
    words = advised(fit(rows, "--models", "forest", "--scores", "absolute")["notes"], "--range")
    assert words == ["--range", "0", "inf"]
    assert (
        advised(fit(rows, "--models", "forest", "--scores", "absolute", *words)["notes"], "--range")
        is None
    )
    out = tmp_path / "sets.csv"
    dco("predict", tmp_path / "m.dco", tmp_path / "rows.csv", "--ignore-new", "--out", out)
    assert pd.read_csv(out)["lower"].min() >= 0


def test_a_level_that_looks_like_a_coverage_is_turned_round(dco):
    words = advised(dco.json("plan", "--rows", 500, "--alpha", 0.9)["notes"], "--alpha")
    assert words == ["--alpha", "0.1"]
    assert (
        dco.json("plan", "--rows", 500, *words)["notes"] == dco.json("plan", "--rows", 500)["notes"]
    )


@pytest.mark.parametrize(
    ("columns", "option"),
    [
        ({"x": ["1,5", "2,25", "3,75"] * 40, "y": ["0,5", "1", "2,125"] * 40}, "--decimal ,"),
        ({"x": ["01/02/2026", "02/01/2026", "03/04/2026"] * 40}, "--dates day-first"),
        ({"y": [*[0.5, 1.5] * 59, 2.5, None]}, "--drop-missing-target"),
    ],
    ids=["decimal commas", "day or month", "missing target"],
)
def test_what_a_table_needs_is_named_and_works(dco, tmp_path, columns, option):
    rng = np.random.default_rng(0)
    path, model = tmp_path / "rows.csv", tmp_path / "m.dco"
    frame = pd.DataFrame({"x": rng.normal(size=120), "y": rng.normal(size=120).round(3)})
    frame.assign(**columns).to_csv(path, index=False, sep=";")
    words = ("fit", path, "--target", "y", "--models", "linear", "--out", model, "--force")
    assert option in dco.refuses(*words)
    fitted = dco.json(*words, *option.split(), "--task", "regression")
    assert not any("is read as categories" in note for note in fitted["notes"])


def test_a_stopped_run_is_continued_as_the_message_says(dco, home, tmp_path: Path):
    out = tmp_path / "sets.csv"
    words = ("predict", home / "numbers.dco", home / "new.csv", "--out", out)
    dco(*words)
    assert "use --force to overwrite it" in dco.refuses(*words)
    dco(*words, "--force")
