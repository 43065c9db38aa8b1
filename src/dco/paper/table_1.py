"""Table 1, the comparison of methods, and Figure 1, the diagram of the pipeline."""

from __future__ import annotations

from dataclasses import dataclass, fields

from dco.foundations.extras import require
from dco.paper import figures
from dco.paper.experiment import Experiment, Options, Records, Row, rows_of
from dco.paper.methods import METHODS
from dco.paper.tables import Cells, ResultTable

COLUMN_NAMES = {"tuned_on": "tuned on", "calibrated_on": "calibrated on"}


@dataclass(frozen=True)
class MethodRow(Row):
    """What the registry says of a method."""

    method: str
    tuned: str
    tuned_on: str
    calibrated_on: str
    rule: str
    guarantee: str
    assumption: str
    reference: str


def list_methods(seed: int, options: Options) -> list[Row]:
    """Return the registry of methods, one row each."""
    return [
        MethodRow(
            method=method.name,
            tuned=method.tuned,
            tuned_on=method.tuned_on,
            calibrated_on=method.calibrated_on,
            rule=method.rule,
            guarantee=method.guarantee,
            assumption=method.assumption,
            reference=method.reference,
        )
        for method in METHODS.values()
    ]


def make_tables(records: Records, options: Options) -> list[ResultTable]:
    """Show the comparison of methods as the registry states it."""
    rows: list[Cells] = [
        {
            COLUMN_NAMES.get(field.name, field.name): getattr(row, field.name)
            for field in fields(MethodRow)
        }
        for row in rows_of(records, MethodRow)
    ]
    table = ResultTable.of(
        "Table 1: methods compared",
        "From the registry that `dco compare` runs. Stated otherwise than in the paper: CRC "
        "controls an expectation and has no δ, and a rule that chooses on the rows that certify it "
        "pays δ / |candidates| for each.",
        rows,
    )
    return [table]


@dataclass(frozen=True)
class Box:
    """A role in the diagram: where its box begins, what is done there, and what comes out."""

    left: float
    role: str
    work: str
    outcome: str
    colour: str


BOXES = (
    Box(0.1, "train", "fit models", "candidates φ ∈ Φ", figures.GREY),
    Box(2.4, "tune", "smallest mean size\nwith risk ≤ α", "structure φ̂", figures.GREEN),
    Box(4.7, "calibrate", "sealed until now;\nk-th smallest score", "threshold q̂", figures.RED),
    Box(7.0, "test", "C(x) = {y : S(x, y) ≤ q̂}", "sets with coverage ≥ 1 − α", figures.BLUE),
)
WIDTH = 1.85


def draw_pipeline(records: Records, options: Options) -> figures.Files:
    """Draw the paper's diagram: four disjoint roles; the structure goes on, the tuning threshold
    stops, calibration certifies.
    """
    figure, axes = figures.new_figure(width=9.0, height=3.1)
    axis = axes[0, 0]
    axis.set_axis_off()
    axis.set(xlim=(0, 9), ylim=(0, 3.1))

    patches = require("matplotlib.patches", extra="report")
    for box in BOXES:
        axis.add_patch(
            patches.FancyBboxPatch(
                (box.left, 1.0),
                WIDTH,
                1.35,
                boxstyle="round,pad=0.02,rounding_size=0.08",
                facecolor=box.colour,
                alpha=0.16,
                edgecolor=box.colour,
                linewidth=1.2,
            )
        )
        centre = {"x": box.left + WIDTH / 2, "ha": "center", "va": "center"}
        axis.text(y=2.13, s=box.role, weight="bold", fontsize=11, **centre)
        axis.text(y=1.68, s=box.work, fontsize=8.5, **centre)
        axis.text(y=1.2, s=box.outcome, fontsize=8.5, style="italic", **centre)

    for left in (1.97, 4.27, 6.57):
        arrow = {"arrowstyle": "-|>", "color": figures.INK}
        axis.annotate("", xy=(left + 0.4, 1.68), xytext=(left, 1.68), arrowprops=arrow)

    dropped = {"arrowstyle": "-|>", "color": figures.GREY, "linestyle": ":"}
    axis.annotate("", xy=(3.32, 0.5), xytext=(3.32, 0.97), arrowprops=dropped)
    axis.text(
        3.32,
        0.33,
        "tuning threshold: dropped (DirectTune deploys it, without a guarantee)",
        ha="center",
        fontsize=8,
    )

    refit = {"arrowstyle": "-|>", "color": figures.GREY, "connectionstyle": "arc3,rad=-0.12"}
    axis.annotate("", xy=(5.62, 2.4), xytext=(1.02, 2.4), arrowprops=refit)
    axis.text(3.32, 2.83, "optional refit of φ̂ on train + tune", ha="center", fontsize=8)
    return figures.render(figure, "pipeline")


EXPERIMENTS = (
    Experiment(
        name="table-1",
        summary="The comparison of methods, from the registry; the diagram of the pipeline.",
        needs="nothing",
        minutes=0.0,
        run_split=list_methods,
        tables=make_tables,
        figures=draw_pipeline,
        row_kinds=(MethodRow,),
        splits=1,
    ),
)
