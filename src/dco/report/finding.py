"""What a page of results says first: DCO's sets beside BQ's, by guarantee."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dco.report import plots

BASELINE = "BQ"
COMPARED = {"DCO-PAC": "same guarantee", "DCO-Warmstart": "weaker guarantee"}  # each against BQ
OPENINGS = {
    "DCO-PAC": (
        "With the same promise as Bayesian quadrature (BQ: coverage for this one calibration), "
        "DCO's sets are"
    ),
    "DCO-Warmstart": (
        "With the usual, weaker promise (coverage on average over calibrations), they are"
    ),
}
GUARANTEES = {
    "pac": "PAC guarantee: with confidence 1 − δ, the coverage of this one calibration is at least "
    "the target",
    "marginal": "Marginal guarantee: coverage is at least the target on average over calibrations",
    "expected_risk": "The expected loss is at most α",
    "none": "No guarantee",
}
TUNED_ON = {"tune": "tuning rows", "calibrate": "the rows that calibrate it"}

# The figure, in pixels.
LEFT = 122
RIGHT = 360
TOP = 14
LINE_HEIGHT = 20
TARGET_HEIGHT = LINE_HEIGHT + 4  # of the name of a target, above its first line

NO_DIFFERENCE = 0.0


@dataclass(frozen=True)
class Difference:
    """How much larger DCO's sets are than BQ's, in % of BQ's mean, with a 95 % interval."""

    method: str
    target: str
    mean: float
    low: float
    high: float

    @property
    def is_clear(self) -> bool:
        """Whether the interval leaves 0 out."""
        return self.low > 0 or self.high < 0

    def in_words(self, smaller: str, larger: str) -> str:
        """Say the difference as part of a sentence.

        "3.2 % narrower (95 % interval 2.0 to 4.0 %)"; `smaller` and `larger` are the words for it.
        """
        comparative = smaller if self.mean < 0 else larger
        size = f"{abs(self.mean):.1f} % {comparative}"
        if self.is_clear:
            nearest, farthest = sorted([abs(self.low), abs(self.high)])
            return f"{size} (95 % interval {nearest:.1f} to {farthest:.1f} %)"

        interval = f"{self.low:.1f} to {self.high:.1f} %, no clear difference"
        return f"{size} (95 % interval {interval})".replace("-", "−")


@dataclass(frozen=True)
class FindingLine:
    """One line of the figure: a dot at the mean difference, and a bar for its interval.

    `target` names the target on its first line, and is empty on the others. `kind` is "same" or
    "weaker", by the guarantee of the method beside that of BQ.
    """

    name: str
    target: str
    y: float
    mean_x: float
    interval_path: str
    mean: str
    kind: str


@dataclass(frozen=True)
class Finding:
    """What one table says of DCO beside BQ: sentences, and the differences behind them."""

    title: str
    sentences: tuple[str, ...]
    differences: tuple[Difference, ...]

    @property
    def scale(self) -> plots.Scale:
        """An axis that shows all intervals, and 0."""
        ends = [NO_DIFFERENCE]
        for difference in self.differences:
            ends += [difference.low, difference.high]
        lowest = min(ends)
        highest = max(ends)
        margin = 0.08 * (highest - lowest) or 1.0  # an axis cannot have no length
        return plots.Scale(lowest - margin, highest + margin, LEFT, RIGHT)

    @property
    def baseline_x(self) -> float:
        """Where the axis shows no difference from BQ."""
        return self.scale.to_pixels(NO_DIFFERENCE)

    def lines(self) -> list[FindingLine]:
        """Return the lines of the figure from top to bottom, by target."""
        scale = self.scale
        lines = []
        y = TOP
        previous_target = ""
        for difference in sorted(self.differences, key=order_in_figure):
            is_new_target = difference.target != previous_target
            previous_target = difference.target
            y += LINE_HEIGHT
            if is_new_target:
                y += TARGET_HEIGHT
            lines.append(finding_line(difference, scale, y=y, names_target=is_new_target))
        return lines


def finding_line(
    difference: Difference, scale: plots.Scale, *, y: float, names_target: bool
) -> FindingLine:
    """Draw one difference with its interval at the height `y`."""
    return FindingLine(
        name=COMPARED[difference.method],
        target=difference.target if names_target else "",
        y=y,
        mean_x=scale.to_pixels(difference.mean),
        interval_path=plots.range_path(difference.low, difference.high, scale, y=y),
        mean=f"{difference.mean:+.1f} %".replace("-", "−"),
        kind="same" if difference.method == "DCO-PAC" else "weaker",
    )


def order_in_figure(difference: Difference) -> tuple[str, int]:
    """Return a key that sorts differences by target, and the same guarantee before the weaker."""
    return difference.target, list(COMPARED).index(difference.method)


def find_differences(
    title: str, head: Sequence[str], rows: Sequence[Sequence[str]]
) -> Finding | None:
    """Read a table of paired comparisons, and say how DCO's sets compare with BQ's.

    Parameters
    ----------
    title
        The title of the table; what follows a colon is left out.
    head, rows
        Its columns and its cells. The columns "first" and "second" name the methods, and "width %"
        or "size %" is the difference of their mean sizes, with the interval "low %" to "high %".

    Returns
    -------
    None if the table has other columns, or does not compare DCO with BQ.
    """
    size_columns = [name for name in ("width %", "size %") if name in head]
    other_columns = {"target", "first", "second", "low %", "high %"}
    if not size_columns or not other_columns <= set(head):
        return None

    size_column = size_columns[0]
    differences = []
    for cells in rows:
        row = dict(zip(head, cells, strict=False))
        if row["first"] in COMPARED and row["second"] == BASELINE:
            differences.append(read_difference(row, size_column))
    if not differences:
        return None

    sentences = sentences_about(differences, are_widths=size_column == "width %")
    title_before_colon = title.partition(":")[0]
    return Finding(title_before_colon, sentences, tuple(differences))


def read_difference(row: Mapping[str, str], size_column: str) -> Difference:
    """Read one comparison from a row of the table, which has a cell for each column."""
    target = f"{100 * float(row['target']):g} %"
    if "features" in row:
        target = f"{row['features']}, {target}"
    return Difference(
        method=row["first"],
        target=target,
        mean=float(row[size_column]),
        low=float(row["low %"]),
        high=float(row["high %"]),
    )


def sentences_about(differences: Sequence[Difference], *, are_widths: bool) -> tuple[str, ...]:
    """Say the differences at BQ's guarantee in one sentence, those at the weaker in another."""
    smaller, larger = ("narrower", "wider") if are_widths else ("smaller", "larger")
    sentences = []
    for method, opening in OPENINGS.items():
        of_method = [difference for difference in differences if difference.method == method]
        if of_method:
            sentences.append(f"{opening} {summarise(of_method, smaller, larger)}.")
    return tuple(sentences)


def summarise(differences: Sequence[Difference], smaller: str, larger: str) -> str:
    """Say one difference with its interval, or several by the least and the greatest mean.

    "3.2 % to 5.0 % narrower, over 2 comparisons". `smaller` and `larger` are the words for it:
    "narrower" and "wider".
    """
    if len(differences) == 1:
        return differences[0].in_words(smaller, larger)

    low = min(difference.mean for difference in differences)
    high = max(difference.mean for difference in differences)
    comparisons = f"over {len(differences)} comparisons"
    if low < 0 < high:
        return f"between {-low:.1f} % {smaller} and {high:.1f} % {larger}, {comparisons}"

    comparative = smaller if high <= 0 else larger
    nearest, farthest = sorted([abs(low), abs(high)])
    return f"{nearest:.1f} % to {farthest:.1f} % {comparative}, {comparisons}"


def explain_method(name: str) -> str | None:
    """Explain a method of the paper in three sentences: its search, its guarantee and its rule.

    `name` is the cell of a table, with a model or a variant behind it: "CQR (gradient boosting)"
    is explained as "CQR". None for a name that is no method of the paper.
    """
    from dco.paper import METHODS, TABLE_ROWS  # slow to import

    method_by_name = {method.name: method for method in METHODS.values()} | TABLE_ROWS
    without_model = name.partition(" (")[0]
    without_variant = without_model.partition(",")[0]
    possible_names = [name, without_model, without_variant]
    known_names = [known for known in possible_names if known in method_by_name]
    if not known_names:
        return None
    method = method_by_name[known_names[0]]

    search = "Searches nothing."
    if method.tuned != "nothing":
        search = f"Chooses its {method.tuned} on {TUNED_ON[method.tuned_on]}."
    guarantee = f"{GUARANTEES[method.guarantee]}."
    rule = f"Rule: {method.rule} ({method.reference})."
    sentences = [search, guarantee, rule]
    if name.endswith("refit"):
        sentences.append(
            "The winner is fitted again on training and tuning rows before calibration."
        )
    return " ".join(sentences)
