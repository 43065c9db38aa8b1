"""Table 1, the comparison of methods, and Figure 1, the diagram of the pipeline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dco.foundations.extras import require
from dco.paper import figures, paper_findings, paper_values
from dco.paper.experiment import Experiment, Options, Row, SplitRecords, rows_of
from dco.paper.methods import METHODS
from dco.paper.paper_values import PaperMethod
from dco.paper.tables import ResultTable, TableRow, join_sentences


@dataclass(frozen=True)
class MethodRow(Row):
    """What the registry of methods says of one of them, in the order of the table's columns."""

    method: str
    tuned: str
    tuned_on: str
    calibrated_on: str
    rule: str
    guarantee: str
    assumption: str
    reference: str


def list_methods(seed: int, options: Options) -> list[Row]:
    """Return a record row for each method of the registry, with what Table 1 says of it.

    It has the signature of a split's function, but nothing here depends on a seed or on options.
    """
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


def make_tables(records: SplitRecords, options: Options) -> list[ResultTable]:
    """Make the paper's Table 1, the methods that are compared, from their rows in the records.

    A column is a field of these rows in words: "tuned_on" -> "tuned on".
    """
    rows: list[TableRow] = [
        {name.replace("_", " "): value for name, value in row.cells().items()}
        for row in rows_of(records, MethodRow)
    ]
    other_than_paper = (
        "Stated otherwise than in the paper: CRC controls an expectation and has no δ, and a rule "
        "that chooses on the rows that certify it pays δ / |candidates| for each."
    )
    caption = join_sentences("From the registry that `dco compare` runs.", other_than_paper)
    all_methods = ResultTable.of("Table 1: methods compared", caption, rows)
    return [paper_rows_table(records), all_methods]


# Our words for what Table 1 says.
PAPER_WORD_FOR_ROLE = {"tune": "D_tune", "calibrate": "D_cal", "none": "none"}
PAPER_WORD_FOR_GUARANTEE = {
    "marginal": "marginal coverage",
    "pac": "high-probability risk control",
    "none": "none in general",
}


def paper_rows_table(records: SplitRecords) -> ResultTable:
    """Make Table 1 as the paper has it: seven methods in four columns, each with ours after it."""
    registry = {row.method: row for row in rows_of(records, MethodRow)}
    rows = [
        beside_paper(title, printed, registry[printed.our_name])
        for title, printed in paper_values.METHODS_COMPARED.items()
    ]
    caption = join_sentences(
        "Each column of the paper, then what our registry says in the same words.",
        "BQ stands for CRC and BQ, which are one row of the paper: CRC, in the table of all "
        "methods, controls an expectation and has no δ.",
        "BQ has one candidate here, so that nothing is optimised; BCP-CRC searches on D_cal.",
    )
    return ResultTable.of("Table 1: the paper's rows beside ours", caption, rows)


def beside_paper(title: str, printed: PaperMethod, ours: MethodRow) -> TableRow:
    """Set a row of the paper's Table 1 beside the method of our registry.

    Where both say the same, ours is "same".
    """
    pairs = {
        "optimisation data": (printed.optimisation_data, PAPER_WORD_FOR_ROLE[ours.tuned_on]),
        "calibration data": (printed.calibration_data, PAPER_WORD_FOR_ROLE[ours.calibrated_on]),
        "guarantee": (printed.guarantee, PAPER_WORD_FOR_GUARANTEE[ours.guarantee]),
        "parameter": (printed.confidence_parameter, "yes, δ" if ours.guarantee == "pac" else "no"),
    }
    row: TableRow = {"method": title}
    for column, (in_paper, in_registry) in pairs.items():
        row[column] = in_paper
        row[f"{column}, ours"] = "same" if in_registry == in_paper else in_registry
    return row


# ---- Figure 1, the diagram of the pipeline, in coordinates from (0, 0) to (WIDTH, HEIGHT)

WIDTH = 9.0
HEIGHT = 3.1
BOX_WIDTH = 1.85
BOX_HEIGHT = 1.35
BOX_BOTTOM = 1.0
EDGE_ABOVE = 2.4  # where arrows start and end, just outside the rounded edge of a box
EDGE_BELOW = 0.97
MIDDLE = 0.92  # of a box, from its left side
# the height of each line of text; arrows between boxes are level with the work
REFIT_HEIGHT = 2.83
ROLE_HEIGHT = 2.13
WORK_HEIGHT = 1.68
OUTCOME_HEIGHT = 1.2
DROPPED_HEIGHT = 0.33
ARROW_GAP = 0.02  # from a box to the arrow on its right
ARROW_LENGTH = 0.4


@dataclass(frozen=True)
class Box:
    """A role in the diagram: the left side of its box, what is done there, and what comes out."""

    left: float
    role: str
    work: str
    outcome: str
    colour: str

    @property
    def middle(self) -> float:
        """Where arrows from above and below meet the box."""
        return self.left + MIDDLE


TRAIN = Box(0.1, "train", "fit models", "candidates φ ∈ Φ", figures.GREY)
TUNE = Box(2.4, "tune", "smallest mean size\nwith risk ≤ α", "structure φ̂", figures.GREEN)
CALIBRATE = Box(
    4.7, "calibrate", "sealed until now;\nk-th smallest score", "threshold q̂", figures.RED
)
TEST = Box(7.0, "test", "C(x) = {y : S(x, y) ≤ q̂}", "sets with coverage ≥ 1 − α", figures.BLUE)


def draw_pipeline(records: SplitRecords, options: Options) -> figures.Files:
    """Draw the paper's Figure 1, the pipeline: four roles of rows as boxes, and what they pass on.

    The structure goes on to calibration, the tuning threshold is dropped. Records and options, from
    which other figures are drawn, are not used.
    """
    figure, axes = figures.new_figure(width=WIDTH, height=HEIGHT)
    axis = axes[0, 0]
    axis.set_axis_off()
    axis.set(xlim=(0, WIDTH), ylim=(0, HEIGHT))

    # 1. The roles, from left to right.
    for box in (TRAIN, TUNE, CALIBRATE, TEST):
        draw_box(axis, box)
    for box in (TRAIN, TUNE, CALIBRATE):
        start = box.left + BOX_WIDTH + ARROW_GAP
        end = start + ARROW_LENGTH
        draw_arrow(axis, (start, WORK_HEIGHT), (end, WORK_HEIGHT), color=figures.INK)

    # 2. Below: a dotted arrow that ends at once, for the tuning threshold.
    draw_arrow(
        axis,
        (TUNE.middle, EDGE_BELOW),
        (TUNE.middle, DROPPED_HEIGHT + 0.17),
        color=figures.GREY,
        linestyle=":",
    )
    dropped = "tuning threshold: dropped (DirectTune deploys it, without a guarantee)"
    axis.text(TUNE.middle, DROPPED_HEIGHT, dropped, ha="center", fontsize=8)

    # 3. Above: a bow from train to calibrate, for the refit.
    draw_arrow(
        axis,
        (TRAIN.middle, EDGE_ABOVE),
        (CALIBRATE.middle, EDGE_ABOVE),
        color=figures.GREY,
        connectionstyle="arc3,rad=-0.12",
    )
    refit = "optional refit of φ̂ on train + tune"
    axis.text(TUNE.middle, REFIT_HEIGHT, refit, ha="center", fontsize=8)
    return figures.render(figure, "figure-1")


def draw_box(axis: Any, box: Box) -> None:
    """Draw the box of a role with three lines of text: role, work, outcome."""
    patches = require("matplotlib.patches", extra="report")
    axis.add_patch(
        patches.FancyBboxPatch(
            (box.left, BOX_BOTTOM),
            BOX_WIDTH,
            BOX_HEIGHT,
            boxstyle="round,pad=0.02,rounding_size=0.08",
            facecolor=box.colour,
            alpha=0.16,
            edgecolor=box.colour,
            linewidth=1.2,
        )
    )
    centred = {"x": box.left + BOX_WIDTH / 2, "ha": "center", "va": "center"}
    axis.text(y=ROLE_HEIGHT, s=box.role, weight="bold", fontsize=11, **centred)
    axis.text(y=WORK_HEIGHT, s=box.work, fontsize=8.5, **centred)
    axis.text(y=OUTCOME_HEIGHT, s=box.outcome, fontsize=8.5, style="italic", **centred)


def draw_arrow(
    axis: Any, start: tuple[float, float], end: tuple[float, float], **line: str
) -> None:
    """Draw an arrow between two points; `line` is what matplotlib's arrows take, such as color."""
    axis.annotate("", xy=end, xytext=start, arrowprops={"arrowstyle": "-|>", **line})


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
        findings=paper_findings.TABLE_1,
    ),
)
