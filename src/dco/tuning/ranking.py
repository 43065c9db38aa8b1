"""Candidates on tuning rows, and the ranking that a search over them returns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dco.foundations.arrays import AnyArray, Floats
from dco.foundations.display import ShownAsPrinted, counted, html_table, number
from dco.foundations.errors import DcoError
from dco.foundations.extras import require
from dco.foundations.notes import Note
from dco.predictions import Prediction
from dco.sets.prediction_sets import PredictionSets


@dataclass(frozen=True, eq=False)
class EvaluatedCandidate:
    """All that a search needs of one candidate: the scores of the true labels (n,), and set sizes
    (n,) at any threshold.

    People who keep their own size curves can build it directly. `sizes_at` must not decrease with
    the threshold.
    """

    name: str
    scores: Floats
    sizes_at: Callable[[float | Floats], Floats]
    # (J,) thresholds -> (J, n), where one pass is cheaper than J
    sizes_at_each: Callable[[Floats], Floats] | None = None
    # what some objectives ask for: rows, predictions and sets, fold by fold; numbers to order rows
    # by; the true values
    sets_at: Callable[[float | Floats], Iterable[tuple[Any, Prediction, PredictionSets]]] | None = (
        None
    )
    centres: Callable[[], Floats] | None = None
    y: AnyArray | None = None
    n_labels: int | None = None

    def __len__(self) -> int:
        return len(self.scores)

    def size_curves(self, thresholds: Floats) -> Floats:
        """Set sizes at several thresholds, (J, n)."""
        if self.sizes_at_each is not None:
            return np.asarray(self.sizes_at_each(thresholds), dtype=np.float64)
        return np.stack([self.sizes_at(float(threshold)) for threshold in thresholds])


@dataclass(frozen=True)
class FailedCandidate:
    """A candidate that was left out, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class RankingRow:
    """One candidate at its own best threshold on the tuning rows.

    ``ranking_threshold`` is a plain float on purpose: it certifies nothing and no predictor accepts
    it. With `conditions` it is the largest of ``thresholds_by_condition``. Candidates are ordered
    by `shortfall`, what they lack to qualify, then by `objective`, what the search minimises, then
    by mean size, P95 size and threshold.
    """

    name: str
    ranking_threshold: float
    miscoverage: float
    mean_size: float
    p95_size: float
    feasible: bool
    thresholds_by_condition: Mapping[Any, float] | None = None
    objective: float | None = None
    shortfall: float = 0.0

    @property
    def steering(self) -> float:
        """What a search strategy is told: the objective, a shortfall of one percentage point
        counted as a fifth of it.
        """
        return (
            self.mean_size if self.objective is None else self.objective * (1 + 20 * self.shortfall)
        )


@dataclass(frozen=True)
class Ranking(ShownAsPrinted):
    """Candidates, best first; those that failed are in `failed` and not in `table`.

    Both are empty where the only candidate went through without tuning rows.
    """

    table: tuple[RankingRow, ...]
    failed: tuple[FailedCandidate, ...]
    alpha: float
    n: int
    objective: str = "mean_size"  # its name

    @property
    def best(self) -> str:
        """The name of the winner."""
        if not self.table:
            raise ValueError("nothing was ranked: there was one candidate and no tuning row.")
        return self.table[0].name

    def threshold_of(self, name: str) -> float | None:
        """The candidate's threshold on the tuning rows; None where nothing was ranked."""
        return self[name].ranking_threshold if self.table else None

    def __getitem__(self, name: str) -> RankingRow:
        for row in self.table:
            if row.name == name:
                return row
        raise KeyError(name)

    def _repr_html_(self) -> str:
        rows = [
            [
                r.name,
                number(r.mean_size),
                number(r.p95_size),
                f"{r.miscoverage:.4f}",
                "yes" if r.feasible else "no",
            ]
            for r in self.table
        ]
        lost = [[failure.name, "failed", failure.reason, "", ""] for failure in self.failed]
        caption = f"{counted(len(self.table), 'candidate')} on {self.n} tuning rows, best first"
        return html_table(
            ["candidate", "mean size", "P95 size", "miscoverage", "feasible"],
            rows + lost,
            caption=caption,
        )

    def __str__(self) -> str:
        if not self.table and not self.failed:
            return "nothing was compared: one candidate and no tuning rows"
        names = [row.name for row in self.table] + [failure.name for failure in self.failed]
        width = max([28, *(len(name) + 2 for name in names)])
        head = f"{'candidate':<{width}}{'mean size':>11}{'P95 size':>11}"
        head += f"{'miscoverage':>13}{'threshold':>12}"
        own = self.objective != "mean_size"  # the paper's has its column already
        head += f"{self.objective:>15}{'shortfall':>11}" if own else ""
        rows = [
            f"{row.name:<{width}}{number(row.mean_size):>11}{number(row.p95_size):>11}{row.miscoverage:>13.4f}{number(row.ranking_threshold):>12}"
            + (f"{number(row.objective or 0.0):>15}{row.shortfall:>11.4f}" if own else "")
            + ("" if row.feasible else "  infeasible")
            for row in self.table
        ]
        lost = [f"{failure.name:<{width}} failed: {failure.reason}" for failure in self.failed]
        return "\n".join([head, *rows, *lost])

    def to_frame(self) -> Any:
        """A pandas DataFrame, one row per candidate, best first."""
        pandas = require("pandas", extra="tables")
        names = [
            "name",
            "ranking_threshold",
            "miscoverage",
            "mean_size",
            "p95_size",
            "feasible",
            "objective",
            "shortfall",
        ]
        return pandas.DataFrame(map(vars, self.table), columns=names)


def failed_note(lost: Mapping[str, str], *, most: int = 5) -> Note:
    """Which models (or candidates, where only a score failed) were left out of the comparison, and
    why.
    """
    shown = [f"{name} ({reason.splitlines()[0]})" for name, reason in list(lost.items())[:most]]
    more = f"; and {len(lost) - most} more, see ranking_.failed" if len(lost) > most else ""
    text = f"{len(lost)} failed on the training and tuning rows and took no part in the comparison"
    return Note("failed-candidates", f"{text}: {'; '.join(shown)}{more}.")


def all_failed(lost: Mapping[str, Exception]) -> Exception:
    """One error with every reason: of the type that all share if it is one of dco's, otherwise a
    ValueError.
    """
    kinds = {type(error) for error in lost.values()}
    kind = kinds.pop() if len(kinds) == 1 else ValueError
    who = "the only candidate" if len(lost) == 1 else f"all {len(lost)} candidates"
    reasons = " | ".join(f"{name}: {type(error).__name__}: {error}" for name, error in lost.items())
    return (kind if issubclass(kind, DcoError) else ValueError)(
        f"{who} failed on the tuning rows. {reasons}"
    )
