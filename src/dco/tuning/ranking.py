"""The ranking that a search over candidates returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dco.foundations.display import ShownAsPrinted, counted, html_table, number
from dco.foundations.errors import DcoError
from dco.foundations.extras import require
from dco.foundations.notes import Note
from dco.scores.thresholds import LOWEST_SCORE

_COLUMNS = (
    "name",
    "ranking_threshold",
    "miscoverage",
    "mean_size",
    "p95_size",
    "feasible",
    "objective",
    "shortfall",
)


_SMALLEST_NAME_COLUMN = 28  # characters
_COLUMN_WIDTHS = (11, 11, 13, 12, 15, 11)  # characters, of the columns behind the names


@dataclass(frozen=True)
class FailedCandidate:
    """A candidate that was left out, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class RankingRow:
    """One candidate at its own best threshold on the tuning rows.

    ``ranking_threshold`` is a plain float on purpose: it certifies nothing and no predictor accepts
    it. With thresholds by condition it is the largest of them. ``objective`` is what the search
    minimises, ``shortfall`` what the candidate lacks to qualify. A candidate is not ``feasible`` if
    its sets are unbounded at every threshold that covers enough rows.
    """

    name: str
    ranking_threshold: float
    miscoverage: float
    mean_size: float
    p95_size: float
    feasible: bool
    objective: float
    shortfall: float = 0.0


@dataclass(frozen=True)
class Ranking(ShownAsPrinted):
    """Candidates, best first; those that failed are in `failed` and not in `table`.

    Both are empty where there was one candidate, since nothing was compared.
    """

    table: tuple[RankingRow, ...]
    failed: tuple[FailedCandidate, ...]
    alpha: float
    n: int  # tuning rows
    objective: str = "mean_size"  # its name

    def by_objective(self) -> list[RankingRow]:
        """List the rows by their objective alone, whatever they lack to qualify.

        Candidates that are made of others (averages, say) are made in this order, so that they do
        not depend on how much evenness may cost.
        """
        return sorted(self.table, key=lambda row: row.objective)

    @property
    def best(self) -> str:
        """The name of the winner."""
        if not self.table:
            raise ValueError("nothing was ranked: there was one candidate.")
        return self.table[0].name

    def threshold_of(self, name: str) -> float | None:
        """Return the candidate's threshold on the tuning rows; None where nothing was ranked."""
        return self[name].ranking_threshold if self.table else None

    def __getitem__(self, name: str) -> RankingRow:
        for row in self.table:
            if row.name == name:
                return row
        raise KeyError(name)

    def __str__(self) -> str:
        return ranking_as_text(self)

    def _repr_html_(self) -> str:
        return ranking_as_html(self)

    def to_frame(self) -> Any:
        """Return a pandas DataFrame, one row for each candidate, best first."""
        pandas = require("pandas", extra="tables")
        return pandas.DataFrame(map(vars, self.table), columns=_COLUMNS)


def ranking_as_text(ranking: Ranking) -> str:
    """Print a ranking as a table of plain text: a line for each candidate, best first.

    An objective other than the mean size, which has a column anyway, is printed in two columns of
    its own. Failed candidates come below the others.
    """
    if not ranking.table and not ranking.failed:
        return "nothing was compared: there was one candidate"

    headers = ["mean size", "P95 size", "miscoverage", "threshold"]
    if ranking.objective != "mean_size":
        headers += [ranking.objective, "shortfall"]
    names = [row.name for row in ranking.table] + [failure.name for failure in ranking.failed]
    name_width = max(_SMALLEST_NAME_COLUMN, *(len(name) + 2 for name in names))

    lines = ["candidate".ljust(name_width) + _right_aligned(headers)]
    for row in ranking.table:
        cells = _cells(row)[: len(headers)]
        line = row.name.ljust(name_width) + _right_aligned(cells)
        lines.append(line if row.feasible else f"{line}  infeasible")
    for failure in ranking.failed:
        lines.append(f"{failure.name.ljust(name_width)} failed: {failure.reason}")
    return "\n".join(lines)


def _cells(row: RankingRow) -> list[str]:
    """Write the numbers of a candidate, those of the objective last."""
    return [
        number(row.mean_size),
        number(row.p95_size),
        f"{row.miscoverage:.4f}",
        _threshold_in_words(row),
        number(row.objective),
        f"{row.shortfall:.4f}",
    ]


def _right_aligned(cells: Sequence[str]) -> str:
    """Join the cells of a line, each at the right of its column."""
    return "".join(cell.rjust(width) for cell, width in zip(cells, _COLUMN_WIDTHS, strict=False))


def _threshold_in_words(row: RankingRow) -> str:
    """Write a threshold; "lowest" is the one at which sets hold only the most probable label."""
    return "lowest" if row.ranking_threshold == LOWEST_SCORE else number(row.ranking_threshold)


def ranking_as_html(ranking: Ranking) -> str:
    """Print a ranking as a table for notebooks."""
    header = ["candidate", "mean size", "P95 size", "miscoverage", "feasible"]
    rows = [
        [
            row.name,
            number(row.mean_size),
            number(row.p95_size),
            f"{row.miscoverage:.4f}",
            "yes" if row.feasible else "no",
        ]
        for row in ranking.table
    ]
    rows += [[failure.name, "failed", failure.reason, "", ""] for failure in ranking.failed]
    candidates = counted(len(ranking.table), "candidate")
    return html_table(header, rows, caption=f"{candidates} on {ranking.n} tuning rows, best first")


def note_failed(reasons: Mapping[str, str], *, most: int = 5) -> Note:
    """Say which models (or candidates, where only a score failed) were left out, and why.

    `reasons` are by name. At most the first `most` of them are named.
    """
    described = [f"{name} ({reason.splitlines()[0]})" for name, reason in reasons.items()]
    text = (
        f"{len(reasons)} failed on the training and tuning rows and took no part in the "
        f"comparison: {'; '.join(described[:most])}"
    )
    if len(reasons) > most:
        text += f"; and {len(reasons) - most} more, see ranking_.failed"
    return Note("failed-candidates", f"{text}.")


def list_failed(errors: Mapping[str, Exception]) -> tuple[FailedCandidate, ...]:
    """Record candidates that raised errors, {name: error}, with the type and text of the error."""
    return tuple(
        FailedCandidate(name, f"{type(error).__name__}: {error}") for name, error in errors.items()
    )


def all_failed(errors: Mapping[str, Exception]) -> Exception:
    """Make one error out of those of all candidates, {name: error}, with every reason in its text.

    If all of them have the same type, and it is an error of dco, the new one has it too. Otherwise
    it is a ValueError.
    """
    types = {type(error) for error in errors.values()}
    error_type: type[Exception] = ValueError
    if len(types) == 1:
        (only_type,) = types
        if issubclass(only_type, DcoError):
            error_type = only_type

    who = "the only candidate" if len(errors) == 1 else f"all {len(errors)} candidates"
    reasons = " | ".join(
        f"{name}: {type(error).__name__}: {error}" for name, error in errors.items()
    )
    return error_type(f"{who} failed on the tuning rows. {reasons}")
