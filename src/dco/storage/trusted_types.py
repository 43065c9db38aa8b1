"""The types that `dco.load` builds without being asked, each by its full name.

A name on these lists may be called by a file with arguments of the file's choice, so only classes whose construction does
nothing but store values belong here, and functions that do nothing but compute. A module or a prefix is never trusted as
a whole. tests/test_storage.py saves every classifier and regressor of scikit-learn, and fails if a name is missing or
superfluous.
"""

from __future__ import annotations

from dco.scores.registry import trusted_names as trusted_scores

# Values of the standard library and NumPy that fitted estimators and certificates hold.
PLAIN: tuple[str, ...] = (
    "builtins.frozenset",
    "builtins.range",
    "collections.OrderedDict",
    "datetime.date",
    "datetime.datetime",
    "decimal.Decimal",
    "fractions.Fraction",
)

# What scikit-learn's own classifiers, regressors and common transformers keep inside, beyond what skops trusts by itself.
SKLEARN: tuple[str, ...] = (
    "functools.partial",
    "numpy.dtype",
    "numpy.number",
    "scipy._lib.array_api_compat.numpy._aliases.asarray",
    "scipy.interpolate._bsplines.BSpline",
    "sklearn._loss.loss.HalfTweedieLoss",
    "sklearn._loss.loss.HalfTweedieLossIdentity",
    "sklearn.calibration._CalibratedClassifier",
    "sklearn.calibration._SigmoidCalibration",
    "sklearn.calibration._TemperatureScaling",
    "sklearn.compose._column_transformer.make_column_selector",
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
    "sklearn.feature_selection._univariate_selection.f_classif",
    "sklearn.feature_selection._univariate_selection.f_regression",
    "sklearn.gaussian_process._gpc._BinaryGaussianProcessClassifierLaplace",
    "sklearn.gaussian_process.kernels.ConstantKernel",
    "sklearn.gaussian_process.kernels.DotProduct",
    "sklearn.gaussian_process.kernels.ExpSineSquared",
    "sklearn.gaussian_process.kernels.Exponentiation",
    "sklearn.gaussian_process.kernels.Matern",
    "sklearn.gaussian_process.kernels.PairwiseKernel",
    "sklearn.gaussian_process.kernels.Product",
    "sklearn.gaussian_process.kernels.RBF",
    "sklearn.gaussian_process.kernels.RationalQuadratic",
    "sklearn.gaussian_process.kernels.Sum",
    "sklearn.gaussian_process.kernels.WhiteKernel",
    "sklearn.metrics._classification.balanced_accuracy_score",
    "sklearn.metrics._dist_metrics.ChebyshevDistance64",
    "sklearn.metrics._dist_metrics.EuclideanDistance64",
    "sklearn.metrics._dist_metrics.ManhattanDistance64",
    "sklearn.metrics._dist_metrics.MinkowskiDistance64",
    "sklearn.metrics._scorer._CurveScorer",
    "sklearn.metrics._scorer._PassthroughScorer",
    "sklearn.metrics._scorer._Scorer",
    "sklearn.model_selection._split.KFold",
    "sklearn.multiclass._ConstantPredictor",
    "sklearn.neighbors._ball_tree.BallTree",
    "sklearn.neighbors._kd_tree.KDTree",
    "sklearn.neural_network._stochastic_optimizers.AdamOptimizer",
    "sklearn.neural_network._stochastic_optimizers.SGDOptimizer",
    "sklearn.tree._tree.Tree",
    "sklearn.utils._bunch.Bunch",
    "sklearn.utils._metadata_requests.MetadataRequest",
    "sklearn.utils._metadata_requests.MethodMetadataRequest",
    "sklearn.utils.validation.check_array",
)

# The classes of this library that end up in a fitted estimator; scores are in their registry.
OWN: tuple[str, ...] = (
    "dco.foundations.notes.Note",
    "dco.guarantees.calibration.Calibration",
    "dco.guarantees.calibration.Statement",
    "dco.guarantees.certificate.Certificate",
    "dco.guarantees.facts.CertifiedThreshold",
    "dco.estimators.DecoupledClassifier",
    "dco.estimators.DecoupledRegressor",
    "dco.models.averaged.AveragedModel",
    "dco.models.bayesian_linear.SparseBayesianRegression",
    "dco.models.mc_dropout.MCDropoutClassifier",
    "dco.models.quantile_pair.QuantilePair",
    "dco.models.residual_spread.ResidualSpread",
    "dco.predictions.ClassDraws",
    "dco.predictions.ClassProbabilities",
    "dco.predictions.GaussianMixtures",
    "dco.predictions.Points",
    "dco.predictions.PointsWithSpread",
    "dco.predictions.Quantiles",
    "dco.predictor.DecoupledPredictor",
    "dco.predictor.Structure",
    "dco.rows.rows.KeptRows",
    "dco.rows.roles.Splits",
    "dco.foundations.ranks.Threshold",
    "dco.tuning.ranking.FailedCandidate",
    "dco.tuning.ranking.Ranking",
    "dco.tuning.ranking.RankingRow",
    "dco.tuning.strategies.Exhaustive",
    "dco.tuning.strategies.Optuna",
    "dco.tuning.strategies.Random",
)


def trusted_names() -> frozenset[str]:
    """Every type that a file may hold without the caller's consent, beside those that skops trusts by itself."""
    return frozenset((*PLAIN, *SKLEARN, *OWN, *trusted_scores()))
