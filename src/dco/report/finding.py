"""What a page of results says first: DCO's sets beside BQ's, at the same guarantee and at a weaker
one, and its methods.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dco.paper.methods import METHODS, TABLE_ROWS
from dco.report import plots

_GUARANTEES = {
    "pac": "PAC guarantee: with confidence 1 − δ, the coverage of this one calibration is at "
    "least the target",
    "marginal": "Marginal guarantee: coverage is at least the target on average over calibrations",
    "expected_risk": "The expected loss is at most α",
    "none": "No guarantee",
}
_COMPARED = {"DCO-PAC": "same guarantee", "DCO-Warmstart": "weaker guarantee"}  # each against BQ
_BASELINE = "BQ"
_REFIT = " The winner is fitted again on training and tuning rows before calibration."
_LEFT, _RIGHT, _LINE, _TOP = 122, 360, 20, 14  # of the figure, in pixels


@dataclass(frozen=True)
class Difference:
    """How much larger DCO's sets are than BQ's, in % of BQ's mean, with a 95 % interval."""

    method: str
    target: str
    middle: float
    low: float
    high: float

    def in_words(self, smaller: str, larger: str) -> str:
        """The difference as part of a sentence; a difference whose interval holds 0 is not called
        clear.
        """
        clear = self.low > 0 or self.high < 0
        low, high = sorted(map(abs, (self.low, self.high))) if clear else (self.low, self.high)
        said = f"{abs(self.middle):.1f} % {smaller if self.middle < 0 else larger}"
        doubt = "" if clear else ", no clear difference"
        return f"{said} (95 % interval {low:.1f} to {high:.1f} %{doubt})".replace("-", "−")


@dataclass(frozen=True)
class Finding:
    """Two sentences and the rows of one figure: differences by target, those at the same guarantee
    first.
    """

    title: str
    sentences: tuple[str, ...]
    differences: tuple[Difference, ...]

    @property
    def scale(self) -> plots.Scale:
        """Differences to pixels, with 0 in view."""
        ends = [0.0, *(end for each in self.differences for end in (each.low, each.high))]
        air = 0.08 * (max(ends) - min(ends)) or 1.0
        return plots.Scale(min(ends) - air, max(ends) + air, _LEFT, _RIGHT)

    def lines(self) -> list[dict[str, object]]:
        """The lines of the figure from top to bottom, with the target above the first of its
        lines.
        """
        scale, lines, y, target = self.scale, [], _TOP, ""
        for each in sorted(
            self.differences, key=lambda each: (each.target, list(_COMPARED).index(each.method))
        ):
            new, target = each.target != target, each.target
            y += 2 * _LINE + 4 if new else _LINE  # a line for the name of the target
            lines.append(
                {
                    "name": _COMPARED[each.method],
                    "target": target if new else "",
                    "y": y,
                    "at": scale(each.middle),
                    "d": plots.span((each.low, each.high), scale, y),
                    "said": f"{each.middle:+.1f} %".replace("-", "−"),
                    "kind": "same" if each.method == "DCO-PAC" else "weaker",
                }
            )
        return lines


def findings(
    tables: Iterable[tuple[str, Sequence[str], Sequence[Sequence[str]]]],
) -> tuple[Finding, ...]:
    """One finding for each table (title, head, rows) of paired comparisons that has DCO
    against BQ.
    """
    found = []
    for title, head, cells in tables:
        size = next((name for name in ("width", "size") if f"{name} %" in head), None)
        if size is None or not {"target", "first", "second", "low %", "high %"} <= set(head):
            continue
        rows = [dict(zip(head, row, strict=False)) for row in cells]
        differences = tuple(
            Difference(
                row["first"],
                ", ".join(
                    [
                        *([row["features"]] if "features" in row else []),
                        f"{100 * float(row['target']):g} %",
                    ]
                ),
                *(float(row[name]) for name in (f"{size} %", "low %", "high %")),
            )
            for row in rows
            if row["second"] == _BASELINE and row["first"] in _COMPARED
        )
        if differences:
            found.append(
                Finding(title.partition(":")[0], _sentences(differences, size), differences)
            )
    return tuple(found)


def _sentences(differences: Sequence[Difference], size: str) -> tuple[str, ...]:
    smaller, larger = ("narrower", "wider") if size == "width" else ("smaller", "larger")
    opening = {
        "DCO-PAC": "With the same promise as Bayesian quadrature (BQ: coverage for this one "
        "calibration), DCO's sets are",
        "DCO-Warmstart": "With the usual, weaker promise (coverage on average over calibrations), "
        "they are",
    }
    found = {method: [each for each in differences if each.method == method] for method in opening}
    return tuple(
        f"{opening[method]} {_over_targets(own, smaller, larger)}."
        for method, own in found.items()
        if own
    )


def _over_targets(differences: Sequence[Difference], smaller: str, larger: str) -> str:
    """One target with its interval, several as a range."""
    if len(differences) == 1:
        return differences[0].in_words(smaller, larger)
    low, high = (pick(each.middle for each in differences) for pick in (min, max))
    over = f"over {len(differences)} comparisons"
    if low < 0 < high:
        return f"between {-low:.1f} % {smaller} and {high:.1f} % {larger}, {over}"
    ends = sorted(map(abs, (low, high)))
    return f"{ends[0]:.1f} % to {ends[1]:.1f} % {smaller if high <= 0 else larger}, {over}"


def explained(name: str) -> str | None:
    """What a method does, from the registry of methods; None for a name that is none of theirs."""
    named = {method.name: method for method in METHODS.values()} | TABLE_ROWS
    plain = name.partition(" (")[0]  # "CQR (gradient boosting)"
    method = named.get(name) or named.get(plain) or named.get(plain.partition(",")[0])
    if method is None:
        return None
    rows = {"tune": "tuning rows", "calibrate": "the rows that calibrate it"}
    chosen = (
        f"Chooses its {method.tuned} on {rows[method.tuned_on]}"
        if method.tuned != "nothing"
        else "Searches nothing"
    )
    again = _REFIT if name.endswith("refit") else ""
    return (
        f"{chosen}. {_GUARANTEES[method.guarantee]}. Rule: {method.rule} "
        f"({method.reference}).{again}"
    )
