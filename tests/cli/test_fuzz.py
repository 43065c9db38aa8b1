"""Damaged tables and model files: exit status 0 or 2, one sentence, no traceback, never a partial
output.
"""

import random
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner

from dco.cli.main import main

ROUNDS = 200


def run(*arguments: object) -> Any:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


PIECES = [
    b",",
    b"\n",
    b'"',
    b"\x00",
    b"\xff",
    b"\r",
    b"NaN",
    b"1e999",
    b"\xef\xbb\xbf",
    b";;;",
    b"x" * 500,
    b"'",
]
DAMAGE: list[Callable[[bytes, int, random.Random], bytes]] = [  # at a place
    lambda data, at, rng: data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :],
    lambda data, at, rng: data[:at],
    lambda data, at, rng: data[:at] + data[at + rng.randrange(1, 40) :],
    lambda data, at, rng: data[:at] + rng.choice(PIECES) + data[at:],
    lambda data, at, rng: data[at:] + data[:at],
]


def damaged(data: bytes, seed: int) -> bytes:
    rng = random.Random(seed)
    for _ in range(rng.choice([1, 1, 1, 2, 5])):
        if data:
            data = rng.choice(DAMAGE)(data, rng.randrange(len(data)), rng)
    return data


def check(result: Any, case: object) -> None:
    assert result.exit_code in (0, 2), (
        f"{case}: {result.exit_code} {result.output} {result.exception!r}"
    )
    assert result.exception is None or isinstance(result.exception, SystemExit), (
        f"{case}: {result.exception!r}"
    )
    assert "Traceback" not in result.output
    assert "Something unexpected" not in result.output, f"{case}: {result.output}"
    if result.exit_code == 2:
        assert len(result.output.strip().splitlines()[-1]) < 1500, case


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_damaged_tables(home, tmp_path, suffix):
    whole = (home / f"rows.{suffix}").read_bytes()
    outcomes = []
    for seed in range(ROUNDS):
        table, out = tmp_path / f"t.{suffix}", tmp_path / "s.csv"
        table.write_bytes(damaged(whole, seed))
        result = run("predict", home / "numbers.dco", table, "--out", out, "--batch-rows", 200)
        check(result, (suffix, seed))
        left = {path.name for path in tmp_path.iterdir()}
        if result.exit_code == 0:
            header, *lines = out.read_text().splitlines()
            assert header == '"row","prediction","lower","upper","size"'
            assert [int(line.split(",")[0]) for line in lines] == list(range(len(lines)))
            out.unlink()
        else:
            assert left == {table.name}, f"{suffix} {seed} left {left}"
        outcomes.append(result.exit_code)
    assert outcomes.count(2) > ROUNDS / 10, "the damage is real"


def test_damaged_models(home, tmp_path):
    whole = (home / "numbers.dco").read_bytes()
    outcomes = []
    for seed in range(ROUNDS):
        model, out = tmp_path / "m.dco", tmp_path / "s.csv"
        model.write_bytes(damaged(whole, seed))
        command = ["predict", "evaluate", "audit"][seed % 3]
        more = {
            "predict": (home / "rows.csv", "--out", out),
            "evaluate": (home / "rows.csv",),
            "audit": (),
        }
        result = run(command, model, *more[command])
        check(result, (command, seed))
        if result.exit_code == 2:
            assert {path.name for path in tmp_path.iterdir()} == {model.name}
        out.unlink(missing_ok=True)
        outcomes.append(result.exit_code)
    assert outcomes.count(2) > ROUNDS / 2, "a damaged model is refused"


def test_damaged_tables_are_fitted_or_refused(home, tmp_path):
    """Fewer rounds, because a table that is still whole is fitted."""
    whole = (home / "rows.csv").read_bytes()
    for seed in range(1000, 1060):
        table, out = tmp_path / "t.csv", tmp_path / "m.dco"
        table.write_bytes(damaged(whole, seed))
        result = run(
            "fit",
            table,
            "--target",
            "outcome",
            "--models",
            "linear",
            "--task",
            "regression",
            "--out",
            out,
        )
        check(result, seed)
        assert out.exists() == (result.exit_code == 0)
        out.unlink(missing_ok=True)
        assert [path.name for path in tmp_path.iterdir()] == [table.name]


WORDS = [
    "--alpha",
    "0.1",
    "-1",
    "nan",
    "1/0",
    "",
    "--key",
    "age",
    "dose",
    "--batch-rows",
    "0",
    "--resume",
    "--force",
    "--jobs",
    "\x00",
]


def test_odd_options(home, tmp_path):
    for seed in range(150):
        rng = random.Random(seed)
        words = rng.choices(WORDS, k=rng.randrange(6))
        out = tmp_path / "s.csv"
        check(run("predict", home / "numbers.dco", home / "rows.csv", "--out", out, *words), words)
        out.unlink(missing_ok=True)
        assert not list(tmp_path.iterdir()), words
