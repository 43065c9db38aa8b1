"""Full conformal prediction in closed form: every row trains and calibrates."""

from dco.full_conformal.regressor import FullConformalRegressor

__all__ = ["FullConformalRegressor"]
