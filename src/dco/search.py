"""Search strategies for the estimators' ``search=``: `Exhaustive`, `Random(n, seed)`,
`Optuna(space, trials, seed)`.
"""

from dco.tuning.strategies import Exhaustive, Found, Optuna, Random, Strategy, Trial

__all__ = ["Exhaustive", "Found", "Optuna", "Random", "Strategy", "Trial"]
