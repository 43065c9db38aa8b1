"""ResNet-50 of torchvision as a network from images to features (extra `images`)."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from dco.datasets.features import ImageFeatures, Network, extract_features
from dco.datasets.image_sources import is_named_by_wordnet, open_images
from dco.foundations.arrays import AnyArray
from dco.foundations.extras import require


def resnet50(
    *,
    pretrained: bool = True,
    device: str | None = None,
    weights_file: str | os.PathLike[str] | None = None,
) -> Network:
    """Build torchvision's ResNet-50 without its last layer: images → rows of 2,048 features.

    `pretrained` takes `ResNet50_Weights.DEFAULT`, which torchvision downloads once; otherwise
    weights are random. A `weights_file` of torchvision's (resnet50-*.pth) is read instead, and
    images are prepared as its own weights ask for.
    """
    torch = require("torch", extra="images")
    models = require("torchvision.models", extra="images")

    weights = models.ResNet50_Weights.DEFAULT
    if weights_file is None:
        network = models.resnet50(weights=weights if pretrained else None)
    else:
        network = models.resnet50(weights=None)
        weights = _weights_called(Path(weights_file).name, models.ResNet50_Weights)
        _load_weights(network, weights_file, torch)
    network.fc = torch.nn.Identity()

    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    network.eval().to(device)
    prepare = weights.transforms()

    def features(images: Sequence[AnyArray]) -> Any:
        with torch.inference_mode(), whole_single_precision(torch.backends.cudnn):
            prepared = [
                prepare(torch.from_numpy(np.array(image)).permute(2, 0, 1)) for image in images
            ]
            return network(torch.stack(prepared).to(device)).float().cpu().numpy()

    return features


def _weights_called(file_name: str, all_weights: Any) -> Any:
    """Return the weights that torchvision keeps in a file of this name, or its default."""
    for weights in all_weights:
        if weights.url.endswith(f"/{file_name}"):
            return weights
    return all_weights.DEFAULT


def _load_weights(network: Any, weights_file: str | os.PathLike[str], torch: Any) -> None:
    try:
        state = torch.load(weights_file, map_location="cpu", weights_only=True)
        network.load_state_dict(state)
    except Exception as error:  # whatever torch says of a file that is none
        reason = str(error).splitlines()[0]
        raise ValueError(
            f"{weights_file} does not hold the weights of torchvision's ResNet-50 ({reason:.200})."
        ) from None


@contextmanager
def whole_single_precision(cudnn: Any) -> Iterator[None]:
    """Convolve in whole single precision, as long as the context lasts.

    By default a GPU rounds to 10 bits, and features depend on the batch and the machine. torch 2.9
    brought a setting for each operation, and the older common one then fails where a caller has
    used the new.
    """
    settings: Any = cudnn
    name = "allow_tf32"
    value: str | bool = False
    if hasattr(cudnn, "conv"):
        settings = cudnn.conv
        name = "fp32_precision"
        value = "ieee"

    before = getattr(settings, name)
    setattr(settings, name, value)
    try:
        yield
    finally:
        setattr(settings, name, before)


@dataclass(frozen=True)
class Backbone:
    """ResNet-50 features to be made from images and a file of weights.

    ``dco reproduce --features resnet50`` makes one.
    """

    images: str
    weights: str

    @property
    def digest(self) -> str:
        """Which weights these are."""
        return _digest_of(self.weights)

    def missing(self) -> str | None:
        """Say in one sentence which of the two is not there."""
        for path in (self.images, self.weights):
            if not Path(path).exists():
                return (
                    f"There is no {path}: --features resnet50 needs the images and the file of "
                    f"weights."
                )
        return None

    def is_imagenet(self) -> bool:
        """Whether the images lie in folders named by WordNet numbers, as those of ImageNet-A do."""
        return is_named_by_wordnet(self.images)

    def features(self) -> ImageFeatures:
        """Return the features, from the cache beside the images where they are there already."""
        return features_of_backbone(self)


@lru_cache(maxsize=4)
def _digest_of(file: str) -> str:
    with Path(file).open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()[:12]


@lru_cache(maxsize=1)
def features_of_backbone(backbone: Backbone) -> ImageFeatures:
    """Extract the features of all images; the network is built when a batch is not in the cache."""

    @lru_cache(maxsize=1)
    def network() -> Network:
        return resnet50(weights_file=backbone.weights)

    def features(images: Sequence[AnyArray]) -> Any:
        return network()(images)

    root = Path(backbone.images)
    name = f"resnet50-{backbone.digest}"
    cache = root.parent / f"{root.name.partition('.')[0]}-{name}-features"
    return extract_features(open_images(root), features, cache=cache, name=name)
