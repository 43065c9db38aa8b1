"""Search strategies for the estimators' ``search=``: `Exhaustive`, `Random(n, random_state)`,
`Optuna(space, trials, random_state)`.
"""

from dco.tuning.strategies import Exhaustive, Optuna, Random, SearchResult, Strategy, Trial

__all__ = ["Exhaustive", "Optuna", "Random", "SearchResult", "Strategy", "Trial"]
