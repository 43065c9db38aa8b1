"""What all commands share: levels, streams, errors in a sentence, misspelled names, threads."""

import errno
import json
import os
import shlex
import subprocess
import sys
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dco.cli.spelling import spell_error
from dco.foundations.notes import Message, Note, NoteWarning


@pytest.mark.parametrize(
    ("name", "default"),
    [
        ("plan", "0.1"),
        ("fit", "0.1"),
        ("compare", "0.1"),
        ("predict", "that of the model"),
        ("evaluate", "that of the model"),
    ],
)
def test_the_help_names_the_level_that_is_used(dco, name, default):
    said = " ".join(dco(name, "--help").output.split())
    assert (
        f"--alpha LEVEL Share of rows whose set may miss the true value. [default: {default}]"
        in said
    )


def test_a_level_given_twice_is_an_error(dco, home, tmp_path):
    twice = ("--alpha", "0.05", "--alpha", "0.2")
    model, new = home / "numbers.dco", home / "new.csv"
    for arguments in (
        ("plan", "--rows", 500),
        ("evaluate", model, new),
        ("predict", model, new, "--out", tmp_path / "s.csv"),
    ):
        assert "--alpha is given 2 times (0.05, 0.2)" in dco.refuses(*arguments, *twice)
    assert "--delta belongs to --guarantee pac" in dco.refuses(
        "plan", "--rows", 500, "--delta", "0.1"
    )
    again = ("--confidence", "0.9", "--confidence", "0.9")
    assert "--confidence is given 2 times" in dco.refuses("plan", "--rows", 500, *again)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "words", [("compare", "rows.csv", "--target", "y"), ("reproduce", "table-1")], ids=str
)
def test_no_processes_are_refused_before_a_folder_is_made(dco, tmp_path, words):
    told = dco.refuses(*words, "--jobs", 0, "--out", tmp_path / "out")
    assert "'--jobs': 0 processes can do nothing" in told
    assert not (tmp_path / "out").exists()


def test_reproduce_lists_what_there_is(dco):
    listed = dco.json("reproduce")["experiments"]
    assert "diabetes" in {entry["name"] for entry in listed}
    assert all(isinstance(entry["minutes"], (int, float)) for entry in listed)
    assert "no experiment 'table-99'" in dco.refuses("reproduce", "table-99")


def test_the_list_of_experiments_has_a_line_for_each(dco):
    lines = dco("reproduce", "--list").output.splitlines()
    listed = dco.json("reproduce")["experiments"]
    assert [line.split()[0] for line in lines] == ["name", *(entry["name"] for entry in listed)]
    assert any("Table 6" in line for line in lines)


def test_output_that_is_not_a_terminal_is_never_cut(home):
    command = [
        sys.executable,
        "-m",
        "dco",
        "evaluate",
        str(home / "numbers.dco"),
        str(home / "new.csv"),
        "--by",
        "site",
    ]
    run = subprocess.run(
        command, capture_output=True, text=True, check=True, env={**os.environ, "COLUMNS": "40"}
    )
    assert max(map(len, run.stdout.splitlines())) > 60
    assert "…" not in run.stdout
    assert run.stderr == ""


def test_control_characters_of_a_table_do_not_reach_the_terminal(dco, home, tmp_path):
    frame = pd.read_csv(home / "new.csv")
    frame["site"] = np.where(frame["site"] == "north", "\x1b[31mred\x1b[0m", "[bold]plain[/bold]")
    frame.to_csv(tmp_path / "x.csv", index=False)
    printed = dco("evaluate", home / "numbers.dco", tmp_path / "x.csv", "--by", "site").output
    assert "\x1b" not in printed
    assert "[bold]plain[/bold]" in printed


def test_every_error_of_a_process_is_a_sentence_and_status_2(home, tmp_path):
    words = ("predict", home / "rows.csv", home / "new.csv", "--out", tmp_path / "s.csv")
    run = subprocess.run(
        [sys.executable, "-m", "dco", *map(str, words)], capture_output=True, text=True, check=False
    )
    assert (run.returncode, run.stdout, run.stderr.count("\n")) == (2, "", 1)
    assert run.stderr.startswith("Error: ")


def test_an_unwritable_folder_is_told(dco, home, tmp_path, monkeypatch):
    # root may write anywhere
    monkeypatch.setattr(os, "access", lambda path, mode, **options: not mode & os.W_OK)
    told = dco.refuses(
        "predict", home / "numbers.dco", home / "new.csv", "--out", tmp_path / "s.csv"
    )
    assert "cannot be written to" in told


@pytest.mark.parametrize(
    ("typed", "meant"), [("fti", "fit"), ("predcit", "predict"), ("FIT", "fit")]
)
def test_a_misspelt_command_is_answered_with_the_nearest(dco, typed, meant):
    assert f"There is no command '{typed}'; did you mean `dco {meant}`?" in dco.refuses(typed, "x")
    assert "there are plan, fit, predict" in dco.refuses("xyzzy")


@pytest.mark.parametrize(
    ("sentence", "told"),
    [
        ("Pass ⟨calibrate_size=29⟩.", "Pass --calibrate-size 29."),
        (
            "raise ⟨tune_size⟩, or ⟨tune_folds=5⟩, with",
            "raise --tune-size, or --tune-folds 5, with",
        ),
        ("⟨groups=⟩ and ⟨condition_on=⟩ cannot", "--groups and --condition-on cannot"),
        ('⟨guarantee="pac"⟩ or ⟨tune_size=0.25⟩.', "--guarantee pac or --tune-size 0.25."),
        ("from ⟨models=dco.models.QuantilePair(model)⟩.", "from --models quantiles."),
        ("data/groups=7/tune_size.csv is empty", "data/groups=7/tune_size.csv is empty"),
    ],
)
def test_parameters_of_the_library_are_spelled_as_options(sentence, told):
    assert spell_error(ValueError(Message(sentence))) == told
    assert spell_error(NoteWarning(Note("kind", "A note.", Message(sentence)))) == f"A note. {told}"


def test_a_process_without_output_streams_does_its_work(home, tmp_path):
    command = [
        sys.executable,
        "-m",
        "dco",
        "predict",
        str(home / "numbers.dco"),
        str(home / "new.csv"),
        "--out",
        "s.csv",
    ]
    shell = f"{shlex.join(command)} >&- 2>&-"
    assert subprocess.run(["sh", "-c", shell], cwd=tmp_path, check=False).returncode == 0
    assert (tmp_path / "s.csv").exists()


def test_a_refusal_of_the_disk_is_a_sentence(dco, monkeypatch):
    def refused(*arguments: Any, **options: Any) -> None:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))

    monkeypatch.setattr("dco.cli.plan.print_json", refused)
    told = dco.refuses("plan", "--rows", 500, "--json")
    assert (
        told
        == "Error: The disk refused to read or write: File too large. Solve this, then run again."
    )


def test_one_row_is_counted_as_one(dco, home, tmp_path):
    pd.read_csv(home / "new.csv").head(1).to_csv(tmp_path / "one.csv", index=False)
    assert "1 row of" in dco("evaluate", home / "numbers.dco", tmp_path / "one.csv").output
    told = dco(
        "predict", home / "numbers.dco", tmp_path / "one.csv", "--out", tmp_path / "s.csv"
    ).output
    assert "Wrote the set of 1 row to" in told


@pytest.mark.parametrize(
    "arguments",
    [("plan", "--rows", "500"), ("plan", "--rows", "500", "--json"), ("plan", "--help")],
)
def test_a_reader_that_has_gone_is_no_error(arguments):
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "dco", *arguments]
    run = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (run.returncode, run.stderr) == (141, "")


def test_commands_leave_the_cores_to_one_pool_of_threads():
    """Two pools with a thread for each core, waiting awake, took eight times the CPU time on a busy
    machine.
    """
    script = (
        "import dco.cli.main, json, os, numpy, scipy.linalg, sklearn.ensemble\n"
        "from threadpoolctl import threadpool_info\n"
        "pools = [pool['num_threads'] for pool in threadpool_info() if pool['user_api'] == "
        "'blas']\n"
        "print(json.dumps([pools, os.environ['OMP_WAIT_POLICY'], "
        "os.environ['OPENBLAS_NUM_THREADS']]))"
    )
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_WAIT_POLICY")
    plain = {name: value for name, value in os.environ.items() if name not in names}
    for given, wait, blas in (
        ({}, "PASSIVE", "1"),
        ({"OMP_WAIT_POLICY": "ACTIVE", "OPENBLAS_NUM_THREADS": "2"}, "ACTIVE", "2"),
    ):
        command = [sys.executable, "-c", script]
        run = subprocess.run(command, capture_output=True, text=True, check=True, env=plain | given)
        pools, *found = json.loads(run.stdout)
        assert found == [wait, blas], "what the user has set stays"
        assert pools
        assert max(pools) <= int(blas)
