"""Data: generators with known truth, tables, image features."""

from dco.datasets.synthetic import AtomPopulation, GaussianClasses, HeteroscedasticGaussian, NoisyPoints
from dco.datasets.tabular import Table, load_california_housing, load_concrete, load_diabetes

__all__ = [
    "AtomPopulation",
    "GaussianClasses",
    "HeteroscedasticGaussian",
    "NoisyPoints",
    "Table",
    "load_california_housing",
    "load_concrete",
    "load_diabetes",
]
