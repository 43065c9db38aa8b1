"""The numbered parts of the paper, and what an experiment finds about one of them.

Wu, Niu, Kaski and Caprio, "Decoupled Conformal Optimisation". Theorems, propositions, lemmas,
assumptions and remarks share one counter in each section, tables and figures have one each.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

# "impossible" is what cannot be reproduced at all, "extends" what the paper leaves open.
Verdict: TypeAlias = Literal["agrees", "differs", "impossible", "extends"]


@dataclass(frozen=True)
class PaperPart:
    """A part of the paper: its number there, such as "Table 6", and what it shows or claims."""

    number: str
    shows: str


# Everything that has a number, and the sections with claims or protocols of their own.
PARTS = (
    PaperPart("Table 1", "seven methods: data for optimisation and calibration, guarantee"),
    PaperPart("Table 2", "Diabetes at 0.8, five methods"),
    PaperPart("Table 3", "ImageNet-A at 0.8, three methods"),
    PaperPart("Table 4", "thresholds of a single run"),
    PaperPart("Table 5", "controls with matched candidates and calibration"),
    PaperPart("Table 6", "ratios of tuning to calibration rows"),
    PaperPart("Table 7", "ImageNet-A and CIFAR-100 at three levels"),
    PaperPart("Table 8", "California Housing and Concrete at three levels"),
    PaperPart("Table 9", "Diabetes, two prior scales"),
    PaperPart("Table 10", "Diabetes, splits with a feasible tuning threshold"),
    PaperPart("Table 11", "candidates of one run on the tuning rows"),
    PaperPart("Table 12", "how often each candidate is selected"),
    PaperPart("Figure 1", "the roles of the rows, coupled and decoupled"),
    PaperPart("Figure 2", "Diabetes: coverage and width over splits"),
    PaperPart("Figure 3", "ImageNet-A: size, coverage and P95 over splits"),
    PaperPart("Figure 4", "ImageNet-A: histograms of coverage and size"),
    PaperPart("Figure 5", "Diabetes: split CP and BQ"),
    PaperPart("Figure 6", "Diabetes: two prior scales"),
    PaperPart("Algorithm 1", "DCO-Warmstart"),
    PaperPart("Algorithm 2", "DirectTune"),
    PaperPart("Algorithm 3", "split conformal prediction"),
    PaperPart("Theorem 3.1", "marginal coverage of DCO-Warmstart"),
    PaperPart("Proposition 3.2", "oracle inequality of tuning, finite class"),
    PaperPart("Proposition 3.3", "DCO and CRC/BQ approach the same threshold"),
    PaperPart("Remark B.1", "no correction for the number of candidates"),
    PaperPart("Remark B.2", "DirectTune has no guarantee"),
    PaperPart("Lemma B.3", "accuracy of the calibration quantile"),
    PaperPart("Assumption B.4", "conditions of Proposition 3.3"),
    PaperPart("Remark B.5", "a common limit is no common guarantee"),
    PaperPart("Remark B.6", "condition A2 follows from Lemma B.3"),
    PaperPart("Section 4.4", "computational complexity, rows needed for tuning"),
    PaperPart("Section 5.1", "Diabetes: DCO is narrower than BQ, p-values"),
    PaperPart("Section 5.2", "ImageNet-A: smaller sets than BQ; discussion; ablations"),
    PaperPart("Section 6.1", "limitations and open questions"),
    PaperPart("Appendix C.1", "shared protocol: BQ by Dirichlet draws"),
    PaperPart("Appendix C.2", "regression protocol: NUTS, response grid"),
    PaperPart("Appendix C.3", "classification protocol: heads, scores, 80 thresholds"),
)


@dataclass(frozen=True)
class Finding:
    """What an experiment finds about one part of the paper.

    part:
        Its number, such as "Table 6".
    verdict, why:
        Whether the paper and the experiment agree, and a clause on it.
    shown_in:
        Where it is seen among the results of the experiment: the title of a table, or the name of
        an SVG file. Empty where there are no results.
    module:
        The module that does the work, such as "dco.paper.methods".
    """

    part: str
    verdict: Verdict
    why: str
    shown_in: str
    module: str

    def __post_init__(self) -> None:
        if self.part not in {part.number for part in PARTS}:
            raise ValueError(f"The paper has no {self.part!r}; see PARTS in dco.paper.paper_parts.")


def group_numbers(numbers: Iterable[str]) -> str:
    """Write numbers of the paper in few words: "Tables 2, 9; Figure 2"."""
    by_kind: dict[str, list[str]] = {}
    for number in numbers:
        kind, _, label = number.rpartition(" ")
        by_kind.setdefault(kind, []).append(label)

    words: list[str] = []
    for kind, labels in by_kind.items():
        plural = "s" if len(labels) > 1 else ""
        words.append(f"{kind}{plural} {', '.join(labels)}")
    return "; ".join(words)


def find_part(name: str) -> PaperPart | None:
    """Find a part of the paper by its number as people type it: "table 6", "Fig. 2", "table-6".

    None if there is no such part.
    """
    words = re.sub(r"[-_\s]+", " ", name).strip().lower()
    words = re.sub(r"^fig\.? ", "figure ", words)
    for part in PARTS:
        if part.number.lower() == words:
            return part
    return None
