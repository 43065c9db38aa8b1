"""The ranking that a search over candidates returns."""

from __future__ import annotations

from collections.abc import Mapping
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
    """Print a ranking as a table of plain text."""
    if not ranking.table and not ranking.failed:
        return "nothing was compared: there was one candidate"

    names = [row.name for row in ranking.table] + [failed.name for failed in ranking.failed]
    width = max(28, *(len(name) + 2 for name in names))
    has_own_objective = ranking.objective != "mean_size"  # the mean size has its column already

    head = f"{'candidate':<{width}}{'mean size':>11}{'P95 size':>11}"
    head += f"{'miscoverage':>13}{'threshold':>12}"
    if has_own_objective:
        head += f"{ranking.objective:>15}{'shortfall':>11}"

    lines = [head]
    for row in ranking.table:
        line = f"{row.name:<{width}}{number(row.mean_size):>11}{number(row.p95_size):>11}"
        line += f"{row.miscoverage:>13.4f}{_threshold(row):>12}"
        if has_own_objective:
            line += f"{number(row.objective):>15}{row.shortfall:>11.4f}"
        lines.append(line if row.feasible else f"{line}  infeasible")
    lines += [f"{failure.name:<{width}} failed: {failure.reason}" for failure in ranking.failed]
    return "\n".join(lines)


def _threshold(row: RankingRow) -> str:
    """Print a threshold, or the word for the one at which every set is the most probable label."""
    return "lowest" if row.ranking_threshold == LOWEST_SCORE else number(row.ranking_threshold)


def ranking_as_html(ranking: Ranking) -> str:
    """Print a ranking as a table for notebooks."""
    head = ["candidate", "mean size", "P95 size", "miscoverage", "feasible"]
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
    return html_table(head, rows, caption=f"{candidates} on {ranking.n} tuning rows, best first")


def note_failed(reasons: Mapping[str, str], *, shown: int = 5) -> Note:
    """Say which models (or candidates, where only a score failed) were left out, and why."""
    listed = [f"{name} ({reason.splitlines()[0]})" for name, reason in reasons.items()][:shown]
    text = (
        f"{len(reasons)} failed on the training and tuning rows and took no part in the "
        f"comparison: {'; '.join(listed)}"
    )
    if len(reasons) > shown:
        text += f"; and {len(reasons) - shown} more, see ranking_.failed"
    return Note("failed-candidates", f"{text}.")


def all_failed(errors: Mapping[str, Exception]) -> Exception:
    """Make one error of all reasons, of the type they share if that is one of dco's."""
    types = {type(error) for error in errors.values()}
    error_type = types.pop() if len(types) == 1 else ValueError
    if not issubclass(error_type, DcoError):
        error_type = ValueError

    who = "the only candidate" if len(errors) == 1 else f"all {len(errors)} candidates"
    reasons = " | ".join(
        f"{name}: {type(error).__name__}: {error}" for name, error in errors.items()
    )
    return error_type(f"{who} failed on the tuning rows. {reasons}")
