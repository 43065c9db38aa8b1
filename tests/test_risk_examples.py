"""The scripts of examples/ that belong to risk control and decisions run, and their figures make
sense.
"""

import re
import runpy
from pathlib import Path

import numpy as np

EXAMPLES = Path(__file__).parents[1] / "examples"


def script(name):
    return runpy.run_path(str(EXAMPLES / f"{name}.py"))


def test_selective_digits_certifies_a_threshold(capsys):
    script("selective_digits")["main"]()
    printed = capsys.readouterr().out
    share, error = map(
        float, re.search(r"answered: ([\d.]+) .* error among them ([\d.]+)", printed).groups()
    )
    abstained = float(re.search(r"abstained on: ([\d.]+)", printed).group(1))
    assert share > 0.5
    # alpha is 0.02; the test rows add their own error of about 0.006
    assert error < 0.04 < abstained


def test_the_decision_table_covers_and_keeps_its_promises():
    table = script("decision_table")
    load, losses, alpha = table["PROBLEMS"]["breast cancer, two measurements"]
    rows = [table["one_split"](*load(), losses, alpha, seed) for seed in range(5)]
    for key in rows[0]:
        coverage, _, mean_loss, _, _, kept = np.mean([row[key] for row in rows], axis=0)
        if key[0].startswith("Risk"):
            assert mean_loss < 1  # the safe action alone costs 1
        if key[0] != "none":
            assert coverage >= 1 - alpha - 0.05
            assert kept >= coverage
