"""The examples run without a warning and say what they claim."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


def run(name: str, capsys: pytest.CaptureFixture[str]) -> str:
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    return capsys.readouterr().out


def test_lightgbm(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("lightgbm")
    printed = run("lightgbm_regression.py", capsys)
    assert "the loaded copy gives the same sets: True" in printed
    assert "consistent with the guarantee" in printed


def test_logits_of_a_network(capsys: pytest.CaptureFixture[str]) -> None:
    printed = run("own_logits.py", capsys)
    assert "rank 381 of 400: coverage at least 95%" in printed
    assert "consistent with the guarantee" in printed


def test_a_fitted_pipeline(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pandas")
    printed = run("fitted_pipeline.py", capsys)
    assert "training rows: not checked" in printed
    assert "consistent with the guarantee" in printed
