"""The types that `dco.load` builds without being asked, each by its full name.

A name on these lists may be called by a file with arguments of the file's choice, so only classes
whose construction does nothing but store values belong here (a monitor computes from them), and
functions that do nothing but compute. A module or a prefix is never trusted as a whole.
tests/test_storage.py saves every classifier and regressor of scikit-learn, and fails if a name is
missing or superfluous.
"""

from __future__ import annotations

from dco.calibration.guarantee import trusted_names as trusted_guarantees
from dco.scores.registry import trusted_names as trusted_scores


def _full_names(listed: str) -> tuple[str, ...]:
    """Read full names from lines like "collections: OrderedDict deque", a module and its types."""
    lines = (line.split(":") for line in listed.strip().splitlines())
    return tuple(f"{module.strip()}.{name}" for module, names in lines for name in names.split())


# Values of the standard library and NumPy that fitted estimators and certificates hold.
PLAIN = _full_names("""
    builtins: frozenset range
    collections: OrderedDict
    datetime: date datetime
    decimal: Decimal
    fractions: Fraction
""")

# What scikit-learn's own classifiers, regressors and common transformers keep inside, beyond what
# skops trusts by itself.
SKLEARN = _full_names("""
    functools: partial
    numpy: dtype number
    scipy._lib.array_api_compat.numpy._aliases: asarray
    scipy.interpolate._bsplines: BSpline
    sklearn._loss.loss: HalfTweedieLoss HalfTweedieLossIdentity
    sklearn.calibration: _CalibratedClassifier _SigmoidCalibration _TemperatureScaling
    sklearn.compose._column_transformer: make_column_selector
    sklearn.ensemble._hist_gradient_boosting.predictor: TreePredictor
    sklearn.feature_selection._univariate_selection: f_classif f_regression
    sklearn.gaussian_process._gpc: _BinaryGaussianProcessClassifierLaplace
    sklearn.gaussian_process.kernels: ConstantKernel DotProduct ExpSineSquared Exponentiation
    sklearn.gaussian_process.kernels: Matern PairwiseKernel
    sklearn.gaussian_process.kernels: Product RBF RationalQuadratic Sum WhiteKernel
    sklearn.metrics._classification: balanced_accuracy_score
    sklearn.metrics._dist_metrics: ChebyshevDistance64 EuclideanDistance64
    sklearn.metrics._dist_metrics: ManhattanDistance64 MinkowskiDistance64
    sklearn.metrics._scorer: _CurveScorer _PassthroughScorer _Scorer
    sklearn.model_selection._split: KFold
    sklearn.multiclass: _ConstantPredictor
    sklearn.neighbors._ball_tree: BallTree
    sklearn.neighbors._kd_tree: KDTree
    sklearn.neural_network._stochastic_optimizers: AdamOptimizer SGDOptimizer
    sklearn.tree._tree: Tree
    sklearn.utils._bunch: Bunch
    sklearn.utils._metadata_requests: MetadataRequest MethodMetadataRequest
    sklearn.utils.validation: check_array
""")

# The classes of this library that end up in a fitted estimator; scores are in their registry.
OWN = _full_names("""
    dco.bayes.sparse_regression: SparseBayesianRegression
    dco.bayes.mc_dropout: MCDropoutClassifier
    dco.estimators: DecoupledClassifier DecoupledRegressor
    dco.foundations.notes: Note
    dco.full_conformal.cells: Cells ColumnKinds
    dco.full_conformal.regressor: FullConformalRegressor
    dco.foundations.ranks: Threshold
    dco.calibration.by_cluster: ByCluster ClusterThreshold OnePerClusterThreshold OneRowPerCluster
    dco.calibration.by_condition: ByCondition ThresholdPerCondition
    dco.calibration.conditions: ColumnCondition LabelClusterCondition LabelCondition
    dco.calibration.conditions: PatternCondition
    dco.calibration.facts: CertifiedThreshold ClusterFacts OrderStatisticFacts OverlappingFacts
    dco.calibration.facts: WeightedFacts WeightFacts
    dco.calibration.one_threshold: OneThreshold ThresholdForAll
    dco.calibration.overlapping_groups: OverlappingGroups ThresholdPerPattern
    dco.calibration.statement: Statement
    dco.calibration.weighted: ShiftWeights ThresholdPerWeight Weighted
    dco.certificate.certificate: Certificate
    dco.certificate.facts: Provenance StructureFacts
    dco.models.averaged: AveragedModel
    dco.models.gaussian_process: SmallGaussianProcess
    dco.models.learnt_spread: SpreadModel WithLearntSpread
    dco.models.networks: SmallNetworks
    dco.models.plain_columns: PlainColumns
    dco.models.quantile_pair: QuantilePair
    dco.models.residual_spread: ResidualSpread
    dco.models.transformed_target: TransformedTarget
    dco.predictions: ClassDraws ClassProbabilities GaussianMixtures Points PointsWithSpread
    dco.predictions: QuantileFunction Quantiles TargetDraws
    dco.predictor: DecoupledPredictor
    dco.rows.splits: Splits
    dco.rows.kept_rows: KeptRows
    dco.service.monitor: Monitor
    dco.structure: ScoredRows Structure
    dco.tuning.objectives: DecisionLoss Even MeanSize P95Size
    dco.scores.scales: QuantileScale
    dco.tuning.ranking: FailedCandidate Ranking RankingRow
    dco.tuning.strategies: Exhaustive Optuna Random
""")


# What a caller trusts by the name of a package. Not trusted unasked: compiled code reads the
# model's bytes unchecked.
PACKAGES = {
    "lightgbm": _full_names("""
        lightgbm.basic: Booster
        lightgbm.sklearn: LGBMClassifier LGBMRegressor
    """),
    "xgboost": _full_names("""
        xgboost.core: Booster
        xgboost.sklearn: XGBClassifier XGBRegressor
    """),
}


def trusted_names() -> frozenset[str]:
    """Return the types that a file may hold without the caller's consent, by their full names.

    Types that skops trusts by itself are not listed.
    """
    return frozenset((*PLAIN, *SKLEARN, *OWN, *trusted_guarantees(), *trusted_scores()))
