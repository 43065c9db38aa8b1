"""Data: generators with known truth, tables, image features."""

from dco.datasets.images import (
    ImageFeatures,
    extract_features,
    load_cifar100_features,
    open_images,
    resnet50,
)
from dco.datasets.synthetic import (
    AtomPopulation,
    GaussianClasses,
    HeteroscedasticGaussian,
    NoisyPoints,
)
from dco.datasets.tabular import (
    Table,
    load_california_housing,
    load_concrete,
    load_diabetes,
)

__all__ = [
    "AtomPopulation",
    "GaussianClasses",
    "HeteroscedasticGaussian",
    "ImageFeatures",
    "NoisyPoints",
    "Table",
    "extract_features",
    "load_california_housing",
    "load_cifar100_features",
    "load_concrete",
    "load_diabetes",
    "open_images",
    "resnet50",
]
