"""What each experiment finds about the parts of the paper, in a clause: the map is made from it.

`docs/paper.md` gives the figures and the reasons.
"""

from __future__ import annotations

from dco.paper.paper_parts import Finding

NO_IMAGES = "its images could not be had; the command runs where a folder holds them"
OTHER_DATA = "on CIFAR-100, so thresholds and sizes do not compare"

TABLE_1 = (
    Finding(
        part="Table 1",
        verdict="differs",
        why="CRC controls an expectation and has no δ; BQ and the other rows agree",
        shown_in="Table 1: the paper's rows beside ours",
        module="dco.paper.methods",
    ),
    Finding(
        part="Figure 1",
        verdict="agrees",
        why="the same roles, with refit as an option",
        shown_in="figure-1.svg",
        module="dco.paper.table_1",
    ),
)

TABLE_1_RESULTS = (
    Finding(
        part="Table 1",
        verdict="agrees",
        why="every method keeps its guarantee on the same splits, LTT, BCP-CRC and ROCP too",
        shown_in="Table 1 with results: twenty classes of CIFAR-100",
        module="dco.paper.table_1_results",
    ),
)

DIABETES = (
    Finding(
        part="Table 2",
        verdict="agrees",
        why="every mean is within 3 standard errors",
        shown_in="Diabetes: the paper's rows beside ours",
        module="dco.paper.regression_tables",
    ),
    Finding(
        part="Table 9",
        verdict="impossible",
        why="any score covers 92/114 = .807 at this rank; the print has .841 and .843",
        shown_in="Diabetes: prior scale",
        module="dco.paper.regression_tables",
    ),
    Finding(
        part="Table 10",
        verdict="agrees",
        why="feasible in all splits; with exact thresholds it cannot be otherwise",
        shown_in="Diabetes: threshold selection outcomes",
        module="dco.paper.regression_tables",
    ),
    Finding(
        part="Figure 2",
        verdict="agrees",
        why="DCO lies between DirectTune and BQ, as its text says",
        shown_in="figure-2.svg",
        module="dco.paper.regression_figures",
    ),
    Finding(
        part="Figure 5",
        verdict="agrees",
        why="BQ covers more and is wider, because it promises more",
        shown_in="figure-5.svg",
        module="dco.paper.regression_figures",
    ),
    Finding(
        part="Figure 6",
        verdict="differs",
        why="calibration absorbs the prior, but coverage is near .80 and not .84",
        shown_in="figure-6.svg",
        module="dco.paper.regression_figures",
    ),
    Finding(
        part="Algorithm 1",
        verdict="agrees",
        why="`fit_decoupled` has its steps, and a refit that can be left out",
        shown_in="Diabetes",
        module="dco.predictor",
    ),
    Finding(
        part="Algorithm 2",
        verdict="agrees",
        why="no guarantee; with a fixed structure its coverage has a law all the same",
        shown_in="Diabetes: DirectTune diagnostic",
        module="dco.paper.methods",
    ),
    Finding(
        part="Algorithm 3",
        verdict="agrees",
        why="coverage follows its law",
        shown_in="Diabetes",
        module="dco.paper.methods",
    ),
    Finding(
        part="Theorem 3.1",
        verdict="agrees",
        why="coverage on test rows follows the law of its rank",
        shown_in="coverage-law.svg",
        module="dco.paper.coverage_z",
    ),
    Finding(
        part="Section 5.1",
        verdict="differs",
        why="narrower than BQ as printed, because it promises less; DCO-PAC is wider than BQ",
        shown_in="Diabetes: paired comparisons",
        module="dco.paper.paired",
    ),
)

CALIFORNIA = (
    Finding(
        part="Table 8",
        verdict="agrees",
        why="every mean is within 3 standard errors; which 3,000 rows are drawn matters most",
        shown_in="California Housing: the paper's rows beside ours",
        module="dco.paper.regression_tables",
    ),
)

DIABETES_400 = (
    Finding(
        part="Section 5.1",
        verdict="extends",
        why="against split CP on all rows DCO costs 2.4 % of width, most of it one rank rounded up",
        shown_in="Diabetes, 400 splits: paired comparisons",
        module="dco.paper.diabetes_400",
    ),
)

CALIFORNIA_SUBSAMPLES = (
    Finding(
        part="Table 8",
        verdict="extends",
        why="which 3,000 rows of California Housing are drawn moves widths more than splits do",
        shown_in="California Housing: subsamples",
        module="dco.paper.california_subsamples",
    ),
)

CONCRETE = (
    Finding(
        part="Table 8",
        verdict="agrees",
        why="every mean is within 3 standard errors",
        shown_in="Concrete: the paper's rows beside ours",
        module="dco.paper.regression_tables",
    ),
)

CIFAR100 = (
    Finding(
        part="Table 3",
        verdict="agrees",
        why=f"the same order of methods, {OTHER_DATA}",
        shown_in="CIFAR-100: the paper's main table beside ours",
        module="dco.paper.classification_tables",
    ),
    Finding(
        part="Table 4",
        verdict="agrees",
        why=f"BQ's threshold is the largest, {OTHER_DATA}",
        shown_in="CIFAR-100: a single run",
        module="dco.paper.classification_tables",
    ),
    Finding(
        part="Table 11",
        verdict="agrees",
        why=f"every candidate is feasible, and the best are near-ties, {OTHER_DATA}",
        shown_in="CIFAR-100: candidates on tuning rows",
        module="dco.paper.classification_tables",
    ),
    Finding(
        part="Table 12",
        verdict="differs",
        why="other features have other winners; no candidate wins half of the splits in either",
        shown_in="CIFAR-100: selection frequencies",
        module="dco.paper.classification_tables",
    ),
    Finding(
        part="Figure 3",
        verdict="agrees",
        why=f"the same order of methods, {OTHER_DATA}",
        shown_in="figure-3.svg",
        module="dco.paper.classification_figures",
    ),
    Finding(
        part="Figure 4",
        verdict="differs",
        why="sizes of DCO are not more concentrated than BQ's, nor are they in Table 3",
        shown_in="figure-4.svg",
        module="dco.paper.classification_figures",
    ),
    Finding(
        part="Remark B.2",
        verdict="agrees",
        why="with searched candidates DirectTune covers less than with a fixed one",
        shown_in="CIFAR-100: heads on raw features",
        module="dco.paper.methods",
    ),
    Finding(
        part="Section 5.2",
        verdict="differs",
        why="smaller than BQ as printed, but mostly for the weaker guarantee",
        shown_in="CIFAR-100: paired comparisons",
        module="dco.paper.paired",
    ),
    Finding(
        part="Appendix C.1",
        verdict="differs",
        why="1,000 draws scatter around BQ's exact confidence, often below .95",
        shown_in="CIFAR-100: achieved confidence of BQ",
        module="dco.paper.classification_tables",
    ),
)

IMAGENET_A = tuple(
    Finding(
        part=part,
        verdict="impossible",
        why=NO_IMAGES,
        shown_in="",
        module="dco.paper.classification",
    )
    for part in (
        "Table 3",
        "Table 4",
        "Table 5",
        "Table 6",
        "Table 7",
        "Table 11",
        "Table 12",
        "Figure 3",
        "Figure 4",
    )
)

MATCHED = (
    Finding(
        part="Table 5",
        verdict="differs",
        why="matched-Φ BQ fits with δ/16 or with 1,000 rows, not with the reason that is given",
        shown_in="CIFAR-100: the paper's controls beside ours",
        module="dco.paper.classification_tables",
    ),
    Finding(
        part="Remark B.1",
        verdict="agrees",
        why="DCO needs none; BQ that searches the rows it certifies on does",
        shown_in="CIFAR-100: matched candidate class and calibration mechanism",
        module="dco.paper.methods",
    ),
)

SPLIT_RATIO = (
    Finding(
        part="Table 6",
        verdict="agrees",
        why="mean size hardly moves, and P95 varies more as calibration rows are given away",
        shown_in="CIFAR-100: the paper's split ratios beside ours",
        module="dco.paper.classification_tables",
    ),
)

ALPHA_LEVELS = (
    Finding(
        part="Table 7",
        verdict="differs",
        why="coverage agrees; sizes are larger, on features of another network",
        shown_in="CIFAR-100: sizes at target coverage levels",
        module="dco.paper.classification_tables",
    ),
)

FURTHER_SPLITS = (
    Finding(
        part="Theorem 3.1",
        verdict="agrees",
        why="mean coverage of 20,000 splits is that of the law",
        shown_in="CIFAR-100: further splits against the law of coverage",
        module="dco.paper.further_splits",
    ),
)

TUNING_ORACLE = (
    Finding(
        part="Proposition 3.2",
        verdict="agrees",
        why="true for candidates fixed in advance; says nothing at the paper's sizes",
        shown_in="Tuning oracle",
        module="dco.paper.bounds",
    ),
    Finding(
        part="Section 4.4",
        verdict="agrees",
        why="the numbers of rows are right, and far above those of the experiments",
        shown_in="Tuning oracle",
        module="dco.paper.bounds",
    ),
)

ASYMPTOTICS = (
    Finding(
        part="Proposition 3.3",
        verdict="agrees",
        why="thresholds meet for fixed δ and for δ = 1/m",
        shown_in="Asymptotic agreement of DCO and BQ",
        module="dco.paper.asymptotics",
    ),
    Finding(
        part="Lemma B.3",
        verdict="agrees",
        why="true; counting by the binomial law is much sharper",
        shown_in="Calibration quantile lemma",
        module="dco.paper.bounds",
    ),
    Finding(
        part="Assumption B.4",
        verdict="agrees",
        why="met by the simulated scores, with BQ as a rank on 0/1 loss",
        shown_in="Asymptotic agreement of DCO and BQ",
        module="dco.paper.asymptotics",
    ),
    Finding(
        part="Remark B.5",
        verdict="agrees",
        why="at any finite m BQ covers more, by a gap that closes as 1/√m",
        shown_in="Asymptotic agreement of DCO and BQ",
        module="dco.paper.asymptotics",
    ),
    Finding(
        part="Remark B.6",
        verdict="agrees",
        why="the threshold concentrates as the lemma says",
        shown_in="Calibration quantile lemma",
        module="dco.paper.bounds",
    ),
)

PROTOCOL = (
    Finding(
        part="Appendix C.2",
        verdict="agrees",
        why="the response grid moves widths and coverage, NUTS and 80 thresholds hardly",
        shown_in="The paper's protocol to the letter: regression",
        module="dco.paper.protocol",
    ),
)

PROTOCOL_CIFAR100 = (
    Finding(
        part="Appendix C.3",
        verdict="agrees",
        why="80 thresholds choose among near-ties and hardly move sizes",
        shown_in="The paper's protocol to the letter: thresholds on CIFAR-100",
        module="dco.paper.protocol_cifar100",
    ),
)


BEYOND_OTHER_CLASS = (
    Finding(
        part="Section 6.1",
        verdict="extends",
        why="a class that was chosen on other data gains as much on Concrete, nothing on Diabetes",
        shown_in="Beyond the paper: a class chosen on other data",
        module="dco.paper.beyond_other_class",
    ),
)


def beyond(title: str, module: str) -> tuple[Finding, ...]:
    """Say what a stronger candidate class finds; `title` is that of its main table."""
    return (
        Finding(
            part="Section 6.1",
            verdict="extends",
            why="adaptive allocation of rows, refit and a stronger class at the same guarantee",
            shown_in=title,
            module=module,
        ),
    )
