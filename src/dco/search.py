"""Search strategies for the estimators' ``search=``: `Exhaustive`, `Random(n, seed)`,
`Optuna(space, trials, seed)`.
"""

from dco.tuning.strategies import Exhaustive, Optuna, Random, SearchResult, Strategy, Trial

__all__ = ["Exhaustive", "Optuna", "Random", "SearchResult", "Strategy", "Trial"]
