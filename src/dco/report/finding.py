"""What a page of results says first: are DCO's sets smaller than those of BQ?

DCO (decoupled conformal optimisation) is the method of this package. BQ (Bayesian quadrature) is
the published method that it is compared with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dco.report import plots

BASELINE = "BQ"
SAME_GUARANTEE = "DCO-PAC"  # the variant of DCO that promises what BQ promises
WEAKER_GUARANTEE = "DCO-Warmstart"
LINE_NAMES = {SAME_GUARANTEE: "same guarantee", WEAKER_GUARANTEE: "weaker guarantee"}
CSS_CLASSES = {SAME_GUARANTEE: "same", WEAKER_GUARANTEE: "weaker"}
OPENINGS = {
    SAME_GUARANTEE: (
        "With the same promise as Bayesian quadrature (BQ: coverage for this one calibration), "
        "DCO's sets are"
    ),
    WEAKER_GUARANTEE: (
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

AXIS_MARGIN = 0.08  # of the axis beyond the values on it, as a share of what it shows
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

    `target` names the target on its first line, and is empty on the others. `kind` is a class of
    the style sheet: "same" or "weaker", by the guarantee of the method beside that of BQ.
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
        margin = AXIS_MARGIN * (highest - lowest)
        if margin == 0:
            margin = 1.0  # an axis cannot have no length
        return plots.Scale(lowest - margin, highest + margin, start=LEFT, end=RIGHT)

    @property
    def baseline_x(self) -> float:
        """Where the axis shows no difference from BQ."""
        return self.scale.to_pixels(NO_DIFFERENCE)

    def lines(self) -> list[FindingLine]:
        """Return the lines of the figure from top to bottom, one for each difference.

        Lines of one target coverage ("90 %") stand together, below a heading that names it.
        """
        scale = self.scale
        lines = []
        y = TOP  # pixels from the upper edge
        previous_target = ""
        for difference in sorted(self.differences, key=order_in_figure):
            heading = ""
            if difference.target != previous_target:
                heading = difference.target
                y += TARGET_HEIGHT
            y += LINE_HEIGHT
            lines.append(finding_line(difference, scale, y=y, heading=heading))
            previous_target = difference.target
        return lines


def finding_line(
    difference: Difference, scale: plots.Scale, *, y: float, heading: str
) -> FindingLine:
    """Draw how much larger DCO's sets are than BQ's as a line of the figure.

    `scale` is the axis of differences, `y` the height of the line in pixels, and `heading` the text
    above it ("" for none).
    """
    mean_with_sign = f"{difference.mean:+.1f} %".replace("-", "−")
    return FindingLine(
        name=LINE_NAMES[difference.method],
        target=heading,
        y=y,
        mean_x=scale.to_pixels(difference.mean),
        interval_path=plots.range_path(difference.low, difference.high, scale, y=y),
        mean=mean_with_sign,
        kind=CSS_CLASSES[difference.method],
    )


def order_in_figure(difference: Difference) -> tuple[str, int]:
    """Return a key that sorts differences by target, and the same guarantee before the weaker."""
    return difference.target, list(LINE_NAMES).index(difference.method)


def find_differences(
    title: str, head: Sequence[str], rows: Sequence[Sequence[str]]
) -> Finding | None:
    """Find in a table by how much the sets of DCO are larger or smaller than those of BQ.

    DCO is our method; BQ (Bayesian quadrature) is the one that it is compared with.

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
    # 1. Look whether this is a table of comparisons.
    size_columns = [name for name in ("width %", "size %") if name in head]
    other_columns = {"target", "first", "second", "low %", "high %"}
    if not size_columns or not other_columns <= set(head):
        return None

    # 2. Take the comparisons with BQ.
    size_column = size_columns[0]
    differences = []
    for cells in rows:
        row = dict(zip(head, cells, strict=False))
        if row["first"] in LINE_NAMES and row["second"] == BASELINE:
            differences.append(read_difference(row, size_column))
    if not differences:
        return None

    # 3. Put them into words.
    sentences = sentences_about(differences, are_widths=size_column == "width %")
    title_before_colon = title.partition(":")[0]
    return Finding(title_before_colon, sentences, tuple(differences))


def read_difference(row: Mapping[str, str], size_column: str) -> Difference:
    """Read one comparison of two methods from a row of a table: {"first": "DCO-PAC", ...}.

    `size_column` has the difference of their mean sizes, in per cent.
    """
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
    """Put differences of set sizes into words: "3.2 % to 5.0 % narrower, over 2 comparisons".

    A negative difference means smaller sets. `smaller` and `larger` are the words for these:
    "narrower" and "wider". A single difference is told with its interval.
    """
    if len(differences) == 1:
        return differences[0].in_words(smaller, larger)

    lowest = min(difference.mean for difference in differences)
    highest = max(difference.mean for difference in differences)
    comparisons = f"over {len(differences)} comparisons"
    if lowest < 0 < highest:
        return f"between {-lowest:.1f} % {smaller} and {highest:.1f} % {larger}, {comparisons}"

    comparative = smaller if highest <= 0 else larger
    least_change, greatest_change = sorted([abs(lowest), abs(highest)])
    return f"{least_change:.1f} % to {greatest_change:.1f} % {comparative}, {comparisons}"


def explain_method(name: str) -> str | None:
    """Explain a method of the paper in three sentences: its search, its guarantee and its rule.

    `name` is the cell of a table, which may name a model in brackets and a variant after a comma:
    "CQR (gradient boosting)" is explained as "CQR", "DCO-PAC, refit" as "DCO-PAC" with a sentence
    on the variant. None for a name that is no method of the paper.
    """
    from dco.paper import METHODS, TABLE_ROWS  # slow to import

    # 1. Find the method: by the whole name first, then without its additions.
    method_by_name = {method.name: method for method in METHODS.values()} | TABLE_ROWS
    without_model = name.partition(" (")[0]
    without_variant = without_model.partition(",")[0]
    method = None
    for method_name in (name, without_model, without_variant):
        if method is None:
            method = method_by_name.get(method_name)
    if method is None:
        return None

    # 2. Write the sentences.
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
