"""Beyond the paper on Concrete and Diabetes, with a class that was chosen on other data.

The stronger classes of these two data sets were chosen on their own rows, in splits with other
seeds, so that their gains are those of a class chosen where it is measured. Here the class and the
fixed structure of California Housing, which were chosen on 17,640 of its districts, are used as
they are: no row of Concrete or Diabetes took part in choosing them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dco.paper import paper_findings
from dco.paper.beyond_regression import BASE, StrongerClass, run_on_paper_roles
from dco.paper.beyond_regression_class import CLASSES, fit_class
from dco.paper.coverage_z import compare_with_theory, target_coverage
from dco.paper.experiment import (
    Experiment,
    Options,
    Row,
    SplitRecords,
    group_by,
    needs_file,
    rows_of,
)
from dco.paper.methods import Task
from dco.paper.paired import percent_change
from dco.paper.regression_splits import (
    STUDIES,
    WIDE_PRIOR,
    fit_priors,
    load_rows,
    paper_split,
    score_density,
    standard_deviation,
)
from dco.paper.tables import Measured, ResultTable, TableRow, join_sentences

LEVELS = {"diabetes": (0.2,), "concrete": (0.2, 0.1, 0.05)}
FIXED = "stronger class, fixed, refit"
SEARCHED = "stronger class, searched, refit"


@dataclass(frozen=True)
class OtherClassRow(Row):
    """What a method did on one split of one data set.

    The threshold is the `rank`-th smallest of `n` scores, and `n_test` rows test it.
    """

    data: str
    alpha: float
    method: str
    chosen: str
    rank: int
    n: int
    n_test: int
    coverage: float
    width: float


# ---- one split


def run_split(seed: int, options: Options) -> list[Row]:
    """Run the paper's DCO and the class of California Housing on a split of each data set."""
    rows: list[Row] = []
    for name in LEVELS:
        rows += run_data_set(name, seed, options)
    return rows


def run_data_set(name: str, seed: int, options: Options) -> list[OtherClassRow]:
    """Run the paper's DCO and the class of California Housing on one split of a data set."""
    study = STUDIES[name]
    table = load_rows(name, options.data_home)
    splits = paper_split(len(table), seed)
    unit = standard_deviation(table, splits)
    priors = fit_priors(table, splits, seed=seed, draws=study.draws).on_train
    paper_candidates = {
        prior: score_density(model, table, splits) for prior, model in priors.items()
    }

    other_class = replace(CLASSES["california"], study=name)
    fitted = fit_class(table, splits.train, candidate_class=other_class, seed=seed)
    stronger = StrongerClass(table, other_class, fitted)

    rows: list[OtherClassRow] = []
    for alpha in LEVELS[name]:
        task = Task(paper_candidates, y_tune=table.y[splits.tune], fixed=WIDE_PRIOR, alpha=alpha)
        for outcome in run_on_paper_roles(task, stronger, splits, unit=unit):
            if outcome.method in (BASE, FIXED, SEARCHED):
                rows.append(
                    OtherClassRow(
                        data=name,
                        alpha=alpha,
                        method=outcome.method,
                        chosen=outcome.chosen,
                        rank=outcome.rank,
                        n=outcome.n,
                        n_test=outcome.n_test,
                        coverage=outcome.coverage,
                        width=outcome.width,
                    )
                )
    return rows


# ---- the table


def make_tables(records: SplitRecords, options: Options) -> list[ResultTable]:
    """Make the table of coverage, width and gain of the class that was chosen on other data."""
    outcomes_of = group_by(
        rows_of(records, OtherClassRow), key=lambda row: (row.data, row.alpha, row.method)
    )
    rows = [
        describe_method(outcomes, outcomes_of[data, alpha, BASE])
        for (data, alpha, _), outcomes in outcomes_of.items()
    ]
    california = CLASSES["california"]
    caption = join_sentences(
        f"{len(records)} splits, the first ones of the tables of both data sets; mean ± sd.",
        f"The class of California Housing ({', '.join(california.models)}; and a quantile pair) "
        f"and its fixed structure ({california.fixed}) were chosen on {california.chosen_on}, and "
        "on no row of these data sets.",
        "'Narrower': than the paper's DCO, in % of its mean width, with Student's 95 % interval "
        "over paired splits. z against the Beta-binomial law.",
        "Widths in standard deviations of the split's training targets.",
    )
    return [ResultTable.of("Beyond the paper: a class chosen on other data", caption, rows)]


def describe_method(
    outcomes: Sequence[OtherClassRow], paper_outcomes: Sequence[OtherClassRow]
) -> TableRow:
    """Make the row of a method, compared with the paper's DCO on the same splits."""
    first = outcomes[0]
    theory = compare_with_theory(outcomes)
    row: TableRow = {
        "data": STUDIES[first.data].title,
        "target": target_coverage(first.alpha),
        "method": first.method,
        "coverage": Measured.of(outcome.coverage for outcome in outcomes),
        "by law": theory.expected,
        "z": theory.z,
        "width": Measured.of(outcome.width for outcome in outcomes),
        "narrower %": None,
        "low %": None,
        "high %": None,
    }
    if first.method == BASE:
        return row

    # The change of the paper's DCO from this method, so that a narrower method has a positive one.
    paper_widths = [outcome.width for outcome in paper_outcomes]
    base = sum(paper_widths) / len(paper_widths)
    change = percent_change(paper_widths, [outcome.width for outcome in outcomes], base=base)
    return row | {"narrower %": change.mean, "low %": change.low, "high %": change.high}


EXPERIMENTS = (
    Experiment(
        name="beyond-other-class",
        summary="Concrete and Diabetes with the stronger class of California Housing, which no row "
        "of theirs helped to choose.",
        needs="concrete.csv",
        minutes=4.7,
        run_split=run_split,
        tables=make_tables,
        row_kinds=(OtherClassRow,),
        missing=needs_file("beyond-other-class", "concrete.csv"),
        part_of="beyond",
        splits=20,
        quick_splits=2,
        findings=paper_findings.BEYOND_OTHER_CLASS,
    ),
)
