"""Ctrl-C: before the outputs are in place nothing is left, and afterwards the command finishes."""

import signal
import subprocess
import sys
import time

import pytest

COMMANDS = {
    "fit": ["fit", "rows.csv", "--target", "outcome", "--drop", "grade", "--models", "linear"],
    "predict": ["predict", "numbers.dco", "new.csv"],
    "recalibrate": ["recalibrate", "numbers.dco", "new.csv"],
    "report": ["report", "numbers.dco"],
}
OUTPUTS = {
    "fit": {"--out": "out.dco", "--certificate": "copy.json"},
    "predict": {"--out": "out.csv"},
    "recalibrate": {"--out": "out.dco", "--certificate": "copy.json"},
    "report": {"--out": "out.html"},
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_finishes_once_an_output_is_in_place(home, tmp_path, name):
    """Ctrl-C comes again and again from then on, until the process has ended."""
    words = [sys.executable, "-m", "dco", *COMMANDS[name]]
    for option, file in OUTPUTS[name].items():
        words += [option, str(tmp_path / file)]
    first_output = tmp_path / next(iter(OUTPUTS[name].values()))

    process = subprocess.Popen(
        words, cwd=home, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    while process.poll() is None and not first_output.exists():
        time.sleep(0.0005)
    while process.poll() is None:
        process.send_signal(signal.SIGINT)
        time.sleep(0.002)
    output, errors = process.communicate()

    assert (process.returncode, errors.count("Traceback")) == (0, 0), errors
    assert "Wrote" in output
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(OUTPUTS[name].values())


@pytest.mark.parametrize("delay", [0.6, 0.9])
def test_a_command_that_is_stopped_before_leaves_nothing(home, tmp_path, delay):
    words = [sys.executable, "-m", "dco", *COMMANDS["fit"], "--out", str(tmp_path / "out.dco")]
    process = subprocess.Popen(words, cwd=home, stderr=subprocess.PIPE, text=True)
    time.sleep(delay)
    process.send_signal(signal.SIGINT)
    errors = process.communicate()[1]
    if process.returncode == 130:
        assert errors == (
            "Stopped. No half-written file is left; --resume continues, if the command has it.\n"
        )
    if process.returncode != 0:
        assert list(tmp_path.iterdir()) == []
