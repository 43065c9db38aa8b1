"""Figures printed in the paper, by table, for the columns that set ours beside them. Nothing is computed from them.

Wu, Niu, Kaski and Caprio, "Decoupled Conformal Optimisation". Each entry is (mean, standard deviation over 50 splits).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Printed:
    """Coverage and width as printed, each as (mean, sd)."""

    coverage: tuple[float, float]
    width: tuple[float, float]


# Table "Regression results on the Diabetes dataset", target 0.8 (Section 5.1).
DIABETES = {
    "BQ": Printed((0.842, 0.051), (2.098, 0.131)),
    "Split CP (ridge)": Printed((0.812, 0.057), (1.920, 0.159)),
    "CQR (histogram boosting)": Printed((0.807, 0.060), (1.990, 0.159)),
    "CQR (gradient boosting)": Printed((0.807, 0.060), (1.990, 0.159)),
    "DCO-Warmstart": Printed((0.805, 0.066), (1.914, 0.192)),
    "DirectTune, fixed φ": Printed((0.805, 0.072), (1.914, 0.163)),
}
DIABETES_WILCOXON = {"width": 3.09e-12, "coverage": 2.36e-7}  # DCO-Warmstart against BQ, in the caption of that table
DIABETES_CHOSE_WIDE_PRIOR = 28  # of 50 splits (Section 5.1)

# Table "Prior scale selection on the Diabetes dataset" (appendix).
DIABETES_PRIOR_SCALES = {
    1.0: Printed((0.841, 0.063), (2.051, 0.238)),
    0.02: Printed((0.843, 0.061), (2.047, 0.231)),
}

# Table "regression_alpha_levels": California Housing and Concrete at three target levels.
CALIFORNIA = {
    (0.2, "BQ"): Printed((0.8080, 0.0273), (1.3507, 0.0472)),
    (0.2, "DCO-Warmstart"): Printed((0.7902, 0.0287), (1.2917, 0.0558)),
    (0.1, "BQ"): Printed((0.9112, 0.0185), (1.9377, 0.0867)),
    (0.1, "DCO-Warmstart"): Printed((0.8996, 0.0205), (1.8339, 0.0932)),
    (0.05, "BQ"): Printed((0.9586, 0.0118), (2.7078, 0.1572)),
    (0.05, "DCO-Warmstart"): Printed((0.9511, 0.0144), (2.5302, 0.1768)),
}
CONCRETE = {
    (0.2, "BQ"): Printed((0.8226, 0.0432), (1.7109, 0.0818)),
    (0.2, "DCO-Warmstart"): Printed((0.7934, 0.0490), (1.5821, 0.1278)),
    (0.1, "BQ"): Printed((0.9195, 0.0309), (2.2582, 0.1000)),
    (0.1, "DCO-Warmstart"): Printed((0.8937, 0.0316), (2.0915, 0.1252)),
    (0.05, "BQ"): Printed((0.9640, 0.0188), (2.7371, 0.1268)),
    (0.05, "DCO-Warmstart"): Printed((0.9462, 0.0252), (2.5274, 0.1579)),
}
