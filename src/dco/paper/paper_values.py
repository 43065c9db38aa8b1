"""What the paper prints, by table, for the columns that set it beside ours. Nothing is computed.

Wu, Niu, Kaski and Caprio, "Decoupled Conformal Optimisation". Every mean is over 50 splits.
"""

from __future__ import annotations

from dataclasses import dataclass

from dco.paper.tables import Measured


@dataclass(frozen=True)
class PaperResult:
    """Coverage, mean size and P95 size that the paper prints for one method, as mean and sd.

    A value that the paper does not print is None.
    """

    coverage: Measured | None
    size: Measured | None
    p95: Measured | None = None


NOT_IN_PAPER = PaperResult(coverage=None, size=None)


def paper_result(
    coverage: float,
    coverage_sd: float,
    size: float,
    size_sd: float,
    p95: float | None = None,
    p95_sd: float | None = None,
) -> PaperResult:
    """Make a result from the numbers of one row of a table, in the order in which it prints them.

    Each mean is followed by its standard deviation over splits. Only ImageNet-A has a P95 size.
    """
    return PaperResult(
        coverage=Measured(coverage, coverage_sd),
        size=Measured(size, size_sd),
        p95=None if p95 is None or p95_sd is None else Measured(p95, p95_sd),
    )


@dataclass(frozen=True)
class PaperMethod:
    """A row of Table 1, and the name of the method in our registry."""

    our_name: str
    optimisation_data: str
    calibration_data: str
    guarantee: str
    confidence_parameter: str


# Table 1: optimisation and calibration roles across methods.
METHODS_COMPARED = {
    "Split CP": PaperMethod("Split CP", "none / fixed score", "D_cal", "marginal coverage", "no"),
    "Score-tuned CP": PaperMethod("Score-tuned CP", "D_tune", "D_cal", "marginal coverage", "no"),
    "CRC/BQ-style": PaperMethod("BQ", "D_cal", "D_cal", "high-probability risk control", "yes, δ"),
    "LTT": PaperMethod(
        "LTT",
        "D_val (via testing)",
        "same as optimisation",
        "high-probability risk control",
        "yes, δ",
    ),
    "ROCP": PaperMethod("ROCP", "D_opt", "D_cal", "marginal coverage", "no"),
    "DCO-Warmstart": PaperMethod("DCO-Warmstart", "D_tune", "D_cal", "marginal coverage", "no"),
    "DirectTune": PaperMethod("DirectTune", "D_tune", "none", "none in general", "no"),
}

# Table 2: regression on Diabetes, target 0.8.
DIABETES = {
    "BQ": paper_result(0.842, 0.051, 2.098, 0.131),
    "Split CP (ridge)": paper_result(0.812, 0.057, 1.920, 0.159),
    "CQR (histogram boosting)": paper_result(0.807, 0.060, 1.990, 0.159),
    "CQR (gradient boosting)": paper_result(0.807, 0.060, 1.990, 0.159),
    "DCO-Warmstart": paper_result(0.805, 0.066, 1.914, 0.192),
    "DirectTune, fixed φ": paper_result(0.805, 0.072, 1.914, 0.163),
}
# Caption of Table 2: DCO-Warmstart against BQ.
DIABETES_WILCOXON = {"width": 3.09e-12, "coverage": 2.36e-7}

# Table 9: prior scales on Diabetes, by c.
DIABETES_PRIOR_SCALES = {
    1.0: paper_result(0.841, 0.063, 2.051, 0.238),
    0.02: paper_result(0.843, 0.061, 2.047, 0.231),
}

# Table 10: threshold selection on Diabetes, splits of 50; and Section 5.1 for the prior.
DIABETES_FEASIBLE = 50
DIABETES_FALLBACK = 0
DIABETES_CHOSE_WIDE_PRIOR = 28

# Table 8: California Housing and Concrete at three target levels.
CALIFORNIA = {
    (0.2, "BQ"): paper_result(0.8080, 0.0273, 1.3507, 0.0472),
    (0.2, "DCO-Warmstart"): paper_result(0.7902, 0.0287, 1.2917, 0.0558),
    (0.1, "BQ"): paper_result(0.9112, 0.0185, 1.9377, 0.0867),
    (0.1, "DCO-Warmstart"): paper_result(0.8996, 0.0205, 1.8339, 0.0932),
    (0.05, "BQ"): paper_result(0.9586, 0.0118, 2.7078, 0.1572),
    (0.05, "DCO-Warmstart"): paper_result(0.9511, 0.0144, 2.5302, 0.1768),
}
CONCRETE = {
    (0.2, "BQ"): paper_result(0.8226, 0.0432, 1.7109, 0.0818),
    (0.2, "DCO-Warmstart"): paper_result(0.7934, 0.0490, 1.5821, 0.1278),
    (0.1, "BQ"): paper_result(0.9195, 0.0309, 2.2582, 0.1000),
    (0.1, "DCO-Warmstart"): paper_result(0.8937, 0.0316, 2.0915, 0.1252),
    (0.05, "BQ"): paper_result(0.9640, 0.0188, 2.7371, 0.1268),
    (0.05, "DCO-Warmstart"): paper_result(0.9462, 0.0252, 2.5274, 0.1579),
}

# Table 7: classification at three target levels, features of a ResNet-50.
CIFAR100 = {
    (0.2, "BQ"): paper_result(0.8110, 0.0106, 2.7219, 0.1434),
    (0.2, "DCO-Warmstart"): paper_result(0.7994, 0.0125, 2.5270, 0.1634),
    (0.1, "BQ"): paper_result(0.9071, 0.0087, 5.8332, 0.4278),
    (0.1, "DCO-Warmstart"): paper_result(0.8978, 0.0101, 5.3802, 0.4791),
    (0.05, "BQ"): paper_result(0.9547, 0.0060, 10.7320, 0.7601),
    (0.05, "DCO-Warmstart"): paper_result(0.9488, 0.0085, 10.0229, 1.2058),
}
IMAGENET_A = {
    (0.2, "BQ"): paper_result(0.8122, 0.0112, 26.5192, 1.3438),
    (0.2, "DCO-Warmstart"): paper_result(0.8012, 0.0109, 25.2442, 1.5561),
    (0.1, "BQ"): paper_result(0.9093, 0.0075, 49.3689, 2.1015),
    (0.1, "DCO-Warmstart"): paper_result(0.9014, 0.0080, 46.8652, 2.1532),
    (0.05, "BQ"): paper_result(0.9580, 0.0053, 74.4952, 3.1281),
    (0.05, "DCO-Warmstart"): paper_result(0.9515, 0.0067, 71.2709, 3.6914),
}

# Table 3: ImageNet-A, target 0.8.
IMAGENET_A_MAIN = {
    "BQ": paper_result(0.812, 0.011, 26.52, 1.34, 58.95, 3.04),
    "DCO-Warmstart": paper_result(0.801, 0.011, 25.26, 1.60, 53.73, 3.11),
    "DirectTune, searched Φ": paper_result(0.791, 0.015, 23.83, 1.80, 50.65, 4.02),
}
# Caption of Table 3: DCO-Warmstart against BQ.
IMAGENET_A_WILCOXON = {"size": 9.77e-9, "P95": 1.69e-9, "coverage": 9.34e-9}

# Table 5: matched candidate class and calibration mechanism, ImageNet-A, target 0.8.
IMAGENET_A_MATCHED = {
    "BQ": paper_result(0.8122, 0.0112, 26.5192, 1.3438, 58.9460, 3.0425),
    "DCO, φ fixed": paper_result(0.8025, 0.0108, 25.0450, 1.3687, 55.6630, 3.1192),
    "Matched-Φ BQ, δ/16": paper_result(0.8196, 0.0116, 28.0215, 1.8460, 59.8660, 3.6270),
    "DCO-Warmstart": paper_result(0.8013, 0.0114, 25.2584, 1.5990, 53.7260, 3.1137),
    "DirectTune, searched Φ": paper_result(0.7908, 0.0151, 23.8286, 1.8024, 50.6460, 4.0233),
}

# Table 6: DCO-Warmstart by split ratio, ImageNet-A, target 0.8; stability is the share of splits, in
# %, that chose the modal candidate.
IMAGENET_A_RATIOS = {
    "20/80": paper_result(0.8001, 0.0121, 25.1344, 1.6044, 52.7240, 2.7653),
    "33/67": paper_result(0.8013, 0.0114, 25.2584, 1.5990, 53.7260, 3.1137),
    "50/50": paper_result(0.7996, 0.0122, 24.9321, 1.5405, 52.9460, 3.7823),
    "67/33": paper_result(0.8010, 0.0141, 25.0379, 1.8596, 53.6030, 4.2108),
    "80/20": paper_result(0.8027, 0.0168, 25.2462, 2.6829, 53.8880, 5.7259),
}
IMAGENET_A_STABILITY = {"20/80": 32.0, "33/67": 48.0, "50/50": 46.0, "67/33": 52.0, "80/20": 48.0}

# Table 4: a single run, ImageNet-A, target 0.8.
IMAGENET_A_SINGLE_RUN = {
    "λ_tune": 6.180,
    "q_cal": 6.419,
    "λ_BQ": 6.510,
    "BQ confidence, 1,000 draws": 0.954,
    "DCO-Warmstart coverage": 0.797,
    "DCO-Warmstart size": 24.56,
    "DCO-Warmstart P95": 54.0,
    "BQ coverage": 0.808,
    "BQ size": 25.56,
    "BQ P95": 56.0,
}


@dataclass(frozen=True)
class PaperCandidate:
    """A candidate on the tuning rows of one split."""

    threshold: float
    size: float
    p95: float


# Table 11: ten of the 16 candidates, ImageNet-A, target 0.8, the seed of Table 4; by number.
IMAGENET_A_CANDIDATES = {
    1: PaperCandidate(6.180, 22.105, 49.0),
    3: PaperCandidate(6.095, 22.216, 49.0),
    9: PaperCandidate(5.725, 22.238, 47.0),
    11: PaperCandidate(5.337, 22.363, 46.0),
    5: PaperCandidate(6.016, 23.587, 49.0),
    7: PaperCandidate(5.872, 24.519, 48.0),
    10: PaperCandidate(5.568, 24.880, 49.05),
    8: PaperCandidate(5.443, 25.138, 46.0),
    4: PaperCandidate(6.083, 25.141, 51.0),
    2: PaperCandidate(6.336, 25.583, 55.0),
}

# Table 12: how many of 50 splits chose each candidate, ImageNet-A; by number.
IMAGENET_A_SELECTED = {9: 20, 1: 12, 3: 7, 11: 4, 5: 4, 2: 1, 8: 1, 10: 1}
