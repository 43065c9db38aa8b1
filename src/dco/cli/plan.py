"""``dco plan``: how many rows for each role, before any row is looked at."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dco.cli import options as opt
from dco.cli.option_records import Promise
from dco.cli.option_types import FILE, WholeType
from dco.cli.printing import (
    as_json,
    collected_notes,
    print_json,
    print_notes,
    print_table,
    say,
    width_left,
)
from dco.foundations.notes import show

if TYPE_CHECKING:
    from dco import Plan
    from dco.certificate import PlannedSplit

_FACTORS = (0.25, 0.5, 1, 2, 4)  # times --rows: the numbers of rows that are compared
_WIDEST_DRAWING = 25  # characters


@click.command(
    "plan",
    epilog=opt.example(
        "dco plan --rows 2000 --alpha 0.1",
        "dco plan --rows 2000 --alpha 0.1 --plot plan.svg --json",
    ),
)
@click.option(
    "--rows", type=WholeType(min=1), required=True, help="Number of rows with known targets."
)
@opt.promise_options
@click.option(
    "--spread",
    type=float,
    help="Wanted standard deviation of coverage.  [default: min(0.02, alpha / 5)]",
)
@click.option(
    "--candidates",
    type=WholeType(min=1),
    default=16,
    show_default=True,
    help="Number of pairs of a model and a score that compete.",
)
@opt.folds_option
@click.option(
    "--test",
    type=WholeType(min=0),
    default=0,
    show_default=True,
    help="Rows to set aside for evaluation.",
)
@click.option("--plot", type=FILE, help="Also write the plot to a PNG or SVG file.")
@opt.force_option
@as_json
def command(
    rows: int,
    promise: Promise,
    spread: float | None,
    candidates: int,
    tune_folds: int | None,
    test: int,
    plot: Path | None,
    force: bool,
    as_json: bool,
) -> None:
    """Say how many rows each role should get and why, which coverage to expect, and what more rows
    would bring.

    A rule of thumb divides the rows; the law of coverage that follows from the calibration rows is
    exact.
    """
    from dco import plan
    from dco.cli.outputs import check_output, check_suffix

    if plot is not None:
        check_suffix(plot, ".png", ".svg")
        check_output(plot, force=force)

    plan_for = partial(
        plan,
        alpha=promise.alpha,
        guarantee=promise.guarantee,
        delta=promise.delta,
        spread=spread,
        candidates=candidates,
        tune_folds=tune_folds,
        test=test,
    )
    with collected_notes() as notes:
        show(opt.note_large_alpha(promise.alpha))
        chosen = plan_for(rows)
    planned_splits = _plan_other_sizes(plan_for, rows)
    if plot is not None:
        _write_plot(plot, planned_splits, chosen.alpha, overwrite=force)

    fit = fit_command(chosen, tune_folds)
    if as_json:
        facts = {
            "planned_splits": [vars(planned) for planned in planned_splits],
            "fit": fit,
            "notes": [*chosen.notes, *notes],
        }
        print_json(chosen.to_dict() | facts)
        return
    _print_plan(chosen, planned_splits, fit)
    print_notes(notes)
    if plot is not None:
        say(f"Wrote {plot}.", err=True)


def _plan_other_sizes(plan_for: Callable[[int], Plan], rows: int) -> list[PlannedSplit]:
    """Say what a quarter to four times as many rows would give, for numbers that are enough.

    `plan_for` makes the plan for a number of rows.
    """
    from dco import InfeasibleLevelError

    planned_splits = []
    for factor in _FACTORS:
        with suppress(InfeasibleLevelError):
            planned_splits.append(plan_for(round(factor * rows)).now)
    return planned_splits


def _print_plan(plan: Plan, planned_splits: Sequence[PlannedSplit], fit: str) -> None:
    """Print the rows of each role, the coverage to expect, and the `dco fit` command `fit`."""
    print_table(
        ["role", "rows", "why"],
        [[row.role, row.rows, row.reason] for row in plan.rows],
        title=plan.heading,
    )
    print_planned_splits(planned_splits, plan.alpha)
    say(*plan.notes, f"To fit with these sizes: {fit}")


def fit_command(plan: Plan, tune_folds: int | None) -> str:
    """Write the `dco fit` command that gives each role (training, tuning ...) its planned rows.

    `tune_folds` is the number of folds, if candidates are ranked by cross-validation.
    """
    words = ["dco", "fit", "DATA.csv", "--target", "COLUMN", "--alpha", f"{plan.alpha:g}"]
    if plan.delta is not None:
        words += ["--guarantee", plan.guarantee, "--delta", f"{plan.delta:g}"]
    if plan.tune:
        words += ["--tune-size", str(plan.tune)]
    elif tune_folds is not None:  # tuning takes no rows from training
        words += ["--tune-folds", str(tune_folds)]
    else:  # one candidate
        words += ["--models", "MODEL", "--scores", "SCORE", "--tune-size", "0"]
    words += ["--calibrate-size", str(plan.calibrate)]
    if plan.now.test:
        words += ["--test-size", str(plan.now.test)]
    return " ".join(words)


def print_planned_splits(planned_splits: Sequence[PlannedSplit], alpha: float) -> None:
    """Print a table of the coverage to expect, a line for each number of rows.

    If the terminal is wide enough, the last column draws the range of coverage.
    """
    columns = ["rows", "train", "tune", "calibrate", "9 times in 10"]
    rows: list[list[Any]] = [
        [
            planned.n,
            planned.train,
            planned.tune,
            planned.calibrate,
            f"{planned.coverage_low:.3f} to {planned.coverage_high:.3f}",
        ]
        for planned in planned_splits
    ]
    title = "Coverage to expect, by the number of rows"

    drawing_width = width_left(columns, rows, at_most=_WIDEST_DRAWING)
    if drawing_width >= len("coverage"):  # the heading
        columns.append("coverage")
        drawings = _draw_ranges(planned_splits, alpha, drawing_width)
        for cells, drawing in zip(rows, drawings, strict=True):
            cells.append(drawing)
        title += f"; | marks {1 - alpha:g}, o the mean, ─ nine of ten draws of the calibration rows"
    print_table(columns, rows, title=title)


def _draw_ranges(planned_splits: Sequence[PlannedSplit], alpha: float, width: int) -> list[str]:
    """Draw the range of coverage for each number of rows, as "──|─o───", all on one scale.

    The line is where coverage lies 9 times in 10, "o" its mean, and "|" the level 1 - alpha. Each
    drawing is `width` characters wide.
    """
    level = 1 - alpha
    lowest = min(*(planned.coverage_low for planned in planned_splits), level)
    highest = max(*(planned.coverage_high for planned in planned_splits), level)
    length_of_scale = highest - lowest
    if length_of_scale == 0:
        length_of_scale = 1.0  # all ranges are one point
    characters_per_unit = (width - 1) / length_of_scale

    def position(coverage: float) -> int:
        return round((coverage - lowest) * characters_per_unit)

    drawings = []
    for planned in planned_splits:
        characters = [" "] * width
        start = position(planned.coverage_low)
        stop = position(planned.coverage_high) + 1
        characters[start:stop] = ["─"] * (stop - start)
        characters[position(level)] = "|"
        characters[position(planned.expected_coverage)] = "o"  # also in place of "|"
        drawings.append("".join(characters))
    return drawings


def _write_plot(
    path: Path, planned_splits: Sequence[PlannedSplit], alpha: float, *, overwrite: bool
) -> None:
    """Plot the coverage to expect against the number of rows, and write a PNG or SVG file."""
    from dco.foundations.extras import require
    from dco.foundations.files import write_file

    # 1. Draw the range of coverage, its mean, and the level.
    matplotlib_figure = require("matplotlib.figure", extra="report")
    figure = matplotlib_figure.Figure(figsize=(6.4, 3.6), layout="constrained")
    axes = figure.subplots()
    rows = [planned.n for planned in planned_splits]
    low_ends = [planned.coverage_low for planned in planned_splits]
    high_ends = [planned.coverage_high for planned in planned_splits]
    means = [planned.expected_coverage for planned in planned_splits]
    level = 1 - alpha
    label = "nine of ten draws of the calibration rows"
    axes.fill_between(rows, low_ends, high_ends, alpha=0.25, label=label)
    axes.plot(rows, means, marker="o", label="mean coverage")
    axes.axhline(level, linestyle="--", color="black", linewidth=1, label=f"1 − alpha = {level:g}")

    # 2. Mark each number of rows on the axis.
    axes.set(xscale="log", xlabel="rows", ylabel="coverage", xticks=rows)
    axes.set_xticks(rows, [f"{n:,}" for n in rows])
    axes.minorticks_off()
    axes.legend(frameon=False)

    # 3. Write the file.
    image = io.BytesIO()
    figure.savefig(image, format=path.suffix.lower().lstrip("."))
    write_file(path, image.getvalue(), overwrite=overwrite)
