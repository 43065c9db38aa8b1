"""``dco plan``: how many rows for each role, before any row is looked at."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from dco.cli import options as opt
from dco.cli.printing import (
    as_json,
    collected_notes,
    print_json,
    print_notes,
    print_table,
    say,
    spare_width,
)

_FACTORS = (0.25, 0.5, 1, 2, 4)
_BAR = 25  # characters of a drawing, if there is room


@click.command(
    "plan",
    epilog=opt.example(
        "dco plan --rows 2000 --alpha 0.1",
        "dco plan --rows 2000 --alpha 0.1 --plot plan.svg --json",
    ),
)
@click.option(
    "--rows", type=opt.WholeType(min=1), required=True, help="Number of rows with known targets."
)
@opt.level_options()
@opt.guarantee_options()
@click.option(
    "--spread",
    type=float,
    help="Wanted standard deviation of coverage.  [default: min(0.02, alpha / 5)]",
)
@click.option(
    "--candidates",
    type=opt.WholeType(min=1),
    default=16,
    show_default=True,
    help="Number of competing structures.",
)
@opt.folds_option
@click.option(
    "--test",
    type=opt.WholeType(min=0),
    default=0,
    show_default=True,
    help="Rows to set aside for evaluation.",
)
@click.option("--plot", type=opt.FILE, help="Also write the plot to a PNG or SVG file.")
@opt.force_option
@as_json
def command(rows: int, plot: Path | None, force: bool, as_json: bool, **wish: Any) -> None:
    """Say how many rows each role should get and why, which coverage to expect, and what more rows
    would bring.

    A rule of thumb divides the rows; the coverage law that follows from the calibration rows is
    exact.
    """
    from dco.certificate.planning import plan
    from dco.cli.outputs import check_output, check_suffix
    from dco.foundations.errors import InfeasibleLevelError

    wish["alpha"] = opt.chosen_alpha(wish["alpha"], wish.pop("confidence"))
    wish["delta"] = opt.chosen_delta(wish["guarantee"], wish["delta"])
    if plot is not None:
        check_suffix(plot, ".png", ".svg")
        check_output(plot, force=force)
    with collected_notes() as notes:
        opt.note_large(wish["alpha"])
        answer, outlooks = plan(rows, **wish), []
    for factor in _FACTORS:
        with suppress(InfeasibleLevelError):
            outlooks.append(plan(round(factor * rows), **wish).now)
    if plot is not None:
        _draw(plot, outlooks, answer.alpha)
    fit = fit_command(answer, wish["tune_folds"])
    if as_json:
        told = {
            "outlooks": [vars(entry) for entry in outlooks],
            "fit": fit,
            "notes": [*answer.notes, *notes],
        }
        print_json(answer.to_dict() | told)
        return
    print_table(
        ["role", "rows", "why"],
        [[row.role, row.rows, row.reason] for row in answer.rows],
        title=answer.heading,
    )
    _print_outlooks(outlooks, answer.alpha)
    say(*answer.notes, f"To fit with these sizes: {fit}")
    print_notes(notes)
    if plot is not None:
        say(f"Wrote {plot}.", err=True)


def fit_command(answer: Any, tune_folds: int | None) -> str:
    """The `dco fit` that assigns the rows as planned."""
    words = ["dco", "fit", "DATA.csv", "--target", "COLUMN", "--alpha", f"{answer.alpha:g}"]
    if answer.delta is not None:
        words += ["--guarantee", answer.guarantee, "--delta", f"{answer.delta:g}"]
    if answer.tune:
        words += ["--tune-size", str(answer.tune)]
    elif tune_folds is not None:  # tuning takes no rows from training
        words += ["--tune-folds", str(tune_folds)]
    else:  # one candidate
        words += ["--models", "MODEL", "--scores", "SCORE", "--tune-size", "0"]
    words += ["--calibrate-size", str(answer.calibrate)]
    if answer.now.test:
        words += ["--test-size", str(answer.now.test)]
    return " ".join(words)


def _print_outlooks(outlooks: list[Any], alpha: float) -> None:
    """What a quarter to four times as many rows would give, with a drawing if there is room for
    one.
    """
    columns, title = ["rows", "train", "tune", "calibrate", "5 % to 95 %"], "Expected coverage"
    rows = [
        [
            entry.n,
            entry.train,
            entry.tune,
            entry.calibrate,
            f"{entry.coverage_low:.3f} to {entry.coverage_high:.3f}",
        ]
        for entry in outlooks
    ]
    width = spare_width(columns, rows, most=_BAR)
    if width >= len("coverage"):
        title += f"; | marks {1 - alpha:g}, o the mean, ─ nine of ten draws of the calibration rows"
        columns.append("coverage")
        left = min(*(entry.coverage_low for entry in outlooks), 1 - alpha)
        scale = (width - 1) / (
            max(*(entry.coverage_high for entry in outlooks), 1 - alpha) - left or 1.0
        )
        for cells, entry in zip(rows, outlooks, strict=True):
            ends = (entry.coverage_low, entry.coverage_high, 1 - alpha, entry.expected_coverage)
            low, high, level, mean = (round((value - left) * scale) for value in ends)
            signs = ["─" if low <= place <= high else " " for place in range(width)]
            signs[level], signs[mean] = "|", "o"
            cells.append("".join(signs))
    print_table(columns, rows, title=title)


def _draw(path: Path, outlooks: list[Any], alpha: float) -> None:
    from dco.foundations.extras import require
    from dco.foundations.files import written_beside

    figure = require("matplotlib.figure", extra="report").Figure(
        figsize=(6.4, 3.6), layout="constrained"
    )
    axes = figure.subplots()
    rows = [entry.n for entry in outlooks]
    low, high = (
        [entry.coverage_low for entry in outlooks],
        [entry.coverage_high for entry in outlooks],
    )
    axes.fill_between(rows, low, high, alpha=0.25, label="5 % to 95 % of calibration draws")
    axes.plot(
        rows, [entry.expected_coverage for entry in outlooks], marker="o", label="mean coverage"
    )
    axes.axhline(
        1 - alpha, linestyle="--", color="black", linewidth=1, label=f"1 − alpha = {1 - alpha:g}"
    )
    axes.set(xscale="log", xlabel="rows", ylabel="coverage", xticks=rows)
    axes.set_xticks(rows, [f"{n:,}" for n in rows])
    axes.minorticks_off()
    axes.legend(frameon=False)
    with written_beside(path) as beside:
        figure.savefig(beside, format=path.suffix.lower().lstrip("."))
