"""ResNet-50 of torchvision as a network from images to features (extra `images`)."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
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
    """Build torchvision's ResNet-50 as a function from images to rows of 2,048 features.

    These are what its last layer would classify. Images are prepared as the weights ask for.

    Parameters
    ----------
    pretrained
        Whether to take torchvision's `ResNet50_Weights.DEFAULT`, which are downloaded once, and not
        random weights.
    device
        Where to compute, such as "cuda"; None takes a GPU if there is one.
    weights_file
        A file of weights from torchvision (resnet50-*.pth) to read in their place.
    """
    torch = require("torch", extra="images")
    models = require("torchvision.models", extra="images")

    # 1. The network with its weights.
    weights = models.ResNet50_Weights.DEFAULT
    if weights_file is None:
        network = models.resnet50(weights=weights if pretrained else None)
    else:
        network = models.resnet50(weights=None)
        weights = _weights_called(Path(weights_file).name, models.ResNet50_Weights)
        _load_weights(network, weights_file, torch)

    # 2. Without the last layer, and ready to predict.
    network.fc = torch.nn.Identity()
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    network.eval().to(device)
    return partial(
        _compute_features, network=network, prepare=weights.transforms(), device=device, torch=torch
    )


def _compute_features(
    images: Sequence[AnyArray], *, network: Any, prepare: Any, device: str, torch: Any
) -> Any:
    """Send images through a network of torch; return the rows of features as a NumPy array.

    `images` are (height, width, 3) bytes each; `prepare` resizes and normalises one image.
    """
    with torch.inference_mode(), whole_single_precision(torch.backends.cudnn):
        prepared = []
        for image in images:
            channels_first = torch.from_numpy(np.array(image)).permute(2, 0, 1)
            prepared.append(prepare(channels_first))
        batch = torch.stack(prepared).to(device)
        return network(batch).float().cpu().numpy()


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
    """Let a GPU convolve in whole single precision as long as the context lasts.

    By default it rounds to 10 bits (TF32), and features depend on the batch and the machine.
    `cudnn` is ``torch.backends.cudnn``, whose setting is restored afterwards.
    """
    # torch 2.9 brought a setting for each operation. Where it exists it must be used: the older
    # setting for all operations fails if a caller has used a new one.
    has_setting_per_operation = hasattr(cudnn, "conv")
    if has_setting_per_operation:
        owner = cudnn.conv
        setting = "fp32_precision"
        whole_precision: str | bool = "ieee"
    else:
        owner = cudnn
        setting = "allow_tf32"
        whole_precision = False

    value_before = getattr(owner, setting)
    setattr(owner, setting, whole_precision)
    try:
        yield
    finally:
        setattr(owner, setting, value_before)


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
    """Return the features of all images of a backbone, which are cached beside the images.

    The cache is a folder such as "imagenet-a-resnet50-0f3a...-features", named after the images and
    the weights. If it holds all batches, the network is not even built.
    """
    root = Path(backbone.images)
    network_name = f"resnet50-{backbone.digest}"
    name_of_images = root.name.partition(".")[0]
    cache = root.parent / f"{name_of_images}-{network_name}-features"
    network = LazyResNet50(backbone.weights)
    return extract_features(open_images(root), network, cache=cache, name=network_name)


class LazyResNet50:
    """ResNet-50 with the weights of a file, built when the first images are sent through it."""

    def __init__(self, weights_file: str) -> None:
        self._weights_file = weights_file
        self._network: Network | None = None

    def __call__(self, images: Sequence[AnyArray]) -> Any:
        if self._network is None:
            self._network = resnet50(weights_file=self._weights_file)
        return self._network(images)
