"""Data: generators with known truth, tables, image features."""

from dco.datasets.backbone import Backbone, resnet50
from dco.datasets.features import (
    CIFAR100_FEATURES,
    ImageFeatures,
    extract_features,
    load_cifar100_features,
)
from dco.datasets.image_sources import open_images
from dco.datasets.synthetic import (
    AtomPopulation,
    GaussianClasses,
    HeteroscedasticGaussian,
    NoisyPoints,
)
from dco.datasets.tabular import (
    Table,
    find_file,
    load_california_housing,
    load_concrete,
    load_diabetes,
)

__all__ = [
    "CIFAR100_FEATURES",
    "AtomPopulation",
    "Backbone",
    "GaussianClasses",
    "HeteroscedasticGaussian",
    "ImageFeatures",
    "NoisyPoints",
    "Table",
    "extract_features",
    "find_file",
    "load_california_housing",
    "load_cifar100_features",
    "load_concrete",
    "load_diabetes",
    "open_images",
    "resnet50",
]
