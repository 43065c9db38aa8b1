"""The paper's regression experiments: Diabetes (Section 5.1), California Housing and Concrete.

Tables 2, 8, 9 and 10, Figures 2, 5 and 6.
"""

from __future__ import annotations

from functools import partial

from dco.paper import paper_findings
from dco.paper.experiment import Experiment, needs_file
from dco.paper.paper_parts import Finding
from dco.paper.regression_figures import make_figures
from dco.paper.regression_splits import STUDIES, Outcome, SplitFacts, TuningOutcome, run_split
from dco.paper.regression_tables import make_tables


def make_experiment(
    study_name: str,
    *,
    summary: str,
    minutes: float,
    alphas: tuple[float, ...],
    findings: tuple[Finding, ...],
    file: str | None = None,
) -> Experiment:
    """Declare the experiment of the paper on one data set.

    `study_name` is that of the data set in `STUDIES`. `minutes` is the time of a run, `alphas` are
    its levels, `findings` what it finds about the paper, and `file` is the file of the data, if
    they need one.
    """
    study = STUDIES[study_name]
    return Experiment(
        name=study_name,
        summary=summary,
        needs=file or "nothing",
        minutes=minutes,
        run_split=partial(run_split, study=study),
        tables=partial(make_tables, study=study),
        figures=partial(make_figures, study=study),
        row_kinds=(SplitFacts, TuningOutcome, Outcome),
        missing=None if file is None else needs_file(study_name, file),
        alphas=alphas,
        quick_splits=4,
        findings=findings,
    )


EXPERIMENTS = (
    make_experiment(
        "diabetes",
        summary="Main regression table, prior scales, selection outcomes, DirectTune diagnostic.",
        minutes=0.6,
        alphas=(0.2,),
        findings=paper_findings.DIABETES,
    ),
    make_experiment(
        "california",
        summary="California Housing at three levels, one subsample of 3,000 rows.",
        minutes=1.4,
        alphas=(0.2, 0.1, 0.05),
        findings=paper_findings.CALIFORNIA,
        file="california_housing.csv.gz",
    ),
    make_experiment(
        "concrete",
        summary="Concrete compressive strength at three levels.",
        minutes=0.5,
        alphas=(0.2, 0.1, 0.05),
        findings=paper_findings.CONCRETE,
        file="concrete.csv",
    ),
)
