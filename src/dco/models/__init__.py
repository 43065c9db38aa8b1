"""Fitted models and what turns them into prediction records. The classes are imported when first
used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dco.models.gaussian_process import SmallGaussianProcess as SmallGaussianProcess
    from dco.models.networks import SmallNetworks as SmallNetworks
    from dco.models.own_models import copy_and_seed as copy_and_seed
    from dco.models.quantile_pair import QuantilePair as QuantilePair
    from dco.models.residual_spread import ResidualSpread as ResidualSpread
    from dco.models.transformed_target import TransformedTarget as TransformedTarget

_MODULE_OF = {
    "SmallGaussianProcess": "dco.models.gaussian_process",
    "SmallNetworks": "dco.models.networks",
    "QuantilePair": "dco.models.quantile_pair",
    "ResidualSpread": "dco.models.residual_spread",
    "TransformedTarget": "dco.models.transformed_target",
    "copy_and_seed": "dco.models.own_models",
}

__all__ = [
    "QuantilePair",
    "ResidualSpread",
    "SmallGaussianProcess",
    "SmallNetworks",
    "TransformedTarget",
    "copy_and_seed",
]


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        return getattr(import_module(_MODULE_OF[name]), name)
    raise AttributeError(f"module 'dco.models' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
