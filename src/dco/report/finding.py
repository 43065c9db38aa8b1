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

LEFT, RIGHT, TOP, LINE_HEIGHT = 122, 360, 14, 20  # of the figure, in pixels


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
        """Say the difference as part of a sentence."""
        comparative = smaller if self.mean < 0 else larger
        size = f"{abs(self.mean):.1f} % {comparative}"
        if not self.is_clear:
            interval = f"{self.low:.1f} to {self.high:.1f} %, no clear difference"
            return f"{size} (95 % interval {interval})".replace("-", "−")

        low, high = sorted([abs(self.low), abs(self.high)])
        return f"{size} (95 % interval {low:.1f} to {high:.1f} %)"


@dataclass(frozen=True)
class FindingLine:
    """One line of the figure; `target` is set on the first line of a target."""

    name: str
    target: str
    y: float
    at: float
    path: str
    words: str
    kind: str


@dataclass(frozen=True)
class Finding:
    """One or two sentences, and the differences behind them."""

    title: str
    sentences: tuple[str, ...]
    differences: tuple[Difference, ...]

    @property
    def scale(self) -> plots.Scale:
        """An axis of differences with 0 in view."""
        ends = [0.0]
        for difference in self.differences:
            ends += [difference.low, difference.high]
        air = 0.08 * (max(ends) - min(ends)) or 1.0
        return plots.Scale(min(ends) - air, max(ends) + air, LEFT, RIGHT)

    def lines(self) -> list[FindingLine]:
        """Return the lines of the figure from top to bottom, by target."""
        scale = self.scale
        lines = []
        y = TOP
        target = ""
        for difference in sorted(self.differences, key=order_in_figure):
            is_new_target = difference.target != target
            target = difference.target
            y += 2 * LINE_HEIGHT + 4 if is_new_target else LINE_HEIGHT
            lines.append(
                FindingLine(
                    name=COMPARED[difference.method],
                    target=target if is_new_target else "",
                    y=y,
                    at=scale(difference.mean),
                    path=plots.span((difference.low, difference.high), scale, y),
                    words=f"{difference.mean:+.1f} %".replace("-", "−"),
                    kind="same" if difference.method == "DCO-PAC" else "weaker",
                )
            )
        return lines


def order_in_figure(difference: Difference) -> tuple[str, int]:
    """Return a key that sorts differences by target, the same guarantee first."""
    return difference.target, list(COMPARED).index(difference.method)


def find_differences(
    title: str, head: Sequence[str], rows: Sequence[Sequence[str]]
) -> Finding | None:
    """Read a table of paired comparisons; None if it does not compare DCO with BQ."""
    size = next((name for name in ("width", "size") if f"{name} %" in head), None)
    if size is None or not {"target", "first", "second", "low %", "high %"} <= set(head):
        return None

    differences = []
    for cells in rows:
        row = dict(zip(head, cells, strict=False))
        if row["second"] == BASELINE and row["first"] in COMPARED:
            differences.append(read_difference(row, size))
    if not differences:
        return None
    sentences = sentences_about(differences, is_width=size == "width")
    return Finding(title.partition(":")[0], sentences, tuple(differences))


def read_difference(row: Mapping[str, str], size: str) -> Difference:
    """Read one comparison from the cells of a row by column; `size` is "width" or "size"."""
    target = f"{100 * float(row['target']):g} %"
    if "features" in row:
        target = f"{row['features']}, {target}"
    return Difference(
        method=row["first"],
        target=target,
        mean=float(row[f"{size} %"]),
        low=float(row["low %"]),
        high=float(row["high %"]),
    )


def sentences_about(differences: Sequence[Difference], *, is_width: bool) -> tuple[str, ...]:
    """Say the differences at the same guarantee, and those at the weaker one."""
    smaller, larger = ("narrower", "wider") if is_width else ("smaller", "larger")
    sentences = []
    for method, opening in OPENINGS.items():
        of_method = [difference for difference in differences if difference.method == method]
        if of_method:
            sentences.append(f"{opening} {summarise(of_method, smaller, larger)}.")
    return tuple(sentences)


def summarise(differences: Sequence[Difference], smaller: str, larger: str) -> str:
    """Say one difference with its interval, or several by the smallest and the largest."""
    if len(differences) == 1:
        return differences[0].in_words(smaller, larger)

    low = min(difference.mean for difference in differences)
    high = max(difference.mean for difference in differences)
    over = f"over {len(differences)} comparisons"
    if low < 0 < high:
        return f"between {-low:.1f} % {smaller} and {high:.1f} % {larger}, {over}"

    comparative = smaller if high <= 0 else larger
    nearest, farthest = sorted([abs(low), abs(high)])
    return f"{nearest:.1f} % to {farthest:.1f} % {comparative}, {over}"


def explain_method(name: str) -> str | None:
    """Say what a method of the paper does; None for a name that is none of theirs."""
    from dco.paper import METHODS, TABLE_ROWS  # slow to import

    methods = {method.name: method for method in METHODS.values()} | TABLE_ROWS
    without_model = name.partition(" (")[0]  # of "CQR (gradient boosting)"
    without_variant = without_model.partition(",")[0]
    method = methods.get(name) or methods.get(without_model) or methods.get(without_variant)
    if method is None:
        return None

    chosen = "Searches nothing"
    if method.tuned != "nothing":
        chosen = f"Chooses its {method.tuned} on {TUNED_ON[method.tuned_on]}"
    words = f"{chosen}. {GUARANTEES[method.guarantee]}. Rule: {method.rule} ({method.reference})."
    if name.endswith("refit"):
        words += " The winner is fitted again on training and tuning rows before calibration."
    return words
