"""Features of images from a frozen network, made in batches and cached on disk.

Any function from images to rows can be the network; a run that was interrupted goes on where it
stopped.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from dco.datasets.image_sources import Images
from dco.datasets.tabular import find_file
from dco.foundations.arrays import AnyArray, Floats, Integers
from dco.foundations.files import write_file

CIFAR100_FEATURES = "cifar100_efficientnet_lite2_features_20000.npz"

Network: TypeAlias = Callable[[Sequence[AnyArray]], Any]


@dataclass(frozen=True, eq=False)
class ImageFeatures:
    """Rows of features (n, d) in single precision, their labels (n,), and the names of the classes
    where known.
    """

    features: Floats
    labels: Integers
    class_names: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return len(self.labels)


def load_cifar100_features(data_home: str | os.PathLike[str] | None = None) -> ImageFeatures:
    """Load 20,000 CIFAR-100 images (200 of each class) as features of a frozen EfficientNet-Lite2.

    A row has 1,280 features. The file is looked for in the folder `data_home`; if that is None, in
    the folder that the environment variable ``DCO_DATA_HOME`` names.
    """
    path = find_file(CIFAR100_FEATURES, data_home)
    if path is None:
        raise FileNotFoundError(
            f"The features of CIFAR-100 are a file of their own, {CIFAR100_FEATURES}: pass its "
            f"folder as data_home=, or set DCO_DATA_HOME. To make features from the images, use "
            f"extract_features()."
        )

    with np.load(path, allow_pickle=False) as stored:
        for name in ("features", "labels"):
            if name not in stored.files:
                raise ValueError(
                    f"{path} holds no array {name!r}, so it is not a file of features and labels."
                )
        features = stored["features"].astype(np.float32)
        labels = stored["labels"].astype(np.int64)

    if features.ndim != 2 or labels.shape != (len(features),):
        raise ValueError(
            f"{path} has features of shape {features.shape} but labels of shape {labels.shape}."
        )
    return ImageFeatures(features, labels)


def extract_features(
    images: Images,
    network: Network,
    *,
    cache: str | os.PathLike[str],
    name: str,
    batch_size: int = 64,
    progress: bool = True,
) -> ImageFeatures:
    """Compute the features of every image by a network, in batches that are cached as files.

    An interrupted run goes on after its last whole batch; a finished one is only read.

    Parameters
    ----------
    images
        Labelled images, as `open_images` gives them.
    network
        A function from a list of images to rows of features, one for each image.
    cache
        The folder of the files, one for each batch. A cache that was made from other images, by
        another network or in other batches is an error, never silently reused.
    name
        Which network it is, in the cache and beside the progress bar.
    batch_size, progress
        How many images are sent at once, and whether to draw a progress bar.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}.")
    n_images = len(images.labels)

    # 1. Open the cache, if it is one of these images and this network.
    folder = Path(cache)
    folder.mkdir(parents=True, exist_ok=True)
    made_from: dict[str, str | int] = {
        "images": images.fingerprint(),
        "rows": n_images,
        "network": name,
        "batch_size": batch_size,
    }
    claim_cache(folder, made_from)

    # 2. List the batches that have no file yet. A batch is called by the number of its first image.
    first_images = range(0, n_images, batch_size)
    files = {first: folder / f"rows-{first:08d}.npy" for first in first_images}
    missing = [first for first, file in files.items() if not file.exists()]
    n_done = len(files) - len(missing)

    # 3. Compute them.
    title = f"{name}: features"
    for first in _with_progress_bar(missing, title, n_done=n_done, is_shown=progress):
        stop = min(first + batch_size, n_images)
        rows = np.asarray(network(images.read(first, stop)), dtype=np.float32)
        _check_rows(rows, start=first, stop=stop)
        write_batch(files[first], rows)

    # 4. Read all files.
    batches = [np.load(file, allow_pickle=False) for file in files.values()]
    return ImageFeatures(np.concatenate(batches), images.labels, images.class_names)


def claim_cache(folder: Path, made_from: dict[str, str | int]) -> None:
    """Make sure that a cache holds features of these images, by this network, and no others.

    `made_from` says what the features are made from, by name. It is written into a new cache, and
    compared with what an old one holds; a difference is an error.
    """
    file = folder / "made-from.json"
    if not file.exists():
        write_file(file, json.dumps(made_from, indent=1))
        return

    stored = json.loads(file.read_text(encoding="utf-8"))
    for key, value in made_from.items():
        if stored.get(key) != value:
            raise ValueError(
                f"The cache {folder} was made with {key} = {stored.get(key)!r}, not {value!r}. "
                f"Use another folder, or delete this one."
            )


def write_batch(file: Path, rows: Floats) -> None:
    """Write a batch whole or not at all, so that no interrupted one looks finished."""
    buffer = io.BytesIO()
    np.save(buffer, rows, allow_pickle=False)
    write_file(file, buffer.getvalue())


def _check_rows(rows: Floats, *, start: int, stop: int) -> None:
    """Check that a network gave one row of finite numbers for each of the images start..stop-1."""
    n_images = stop - start
    if rows.ndim != 2 or len(rows) != n_images:
        raise ValueError(
            f"The network gave shape {rows.shape} for {n_images} images; it must give one row per "
            f"image."
        )
    is_finite = np.isfinite(rows).all(axis=1)
    if not is_finite.all():
        image = start + int(np.flatnonzero(~is_finite)[0])
        raise ValueError(f"The network gave a feature that is not finite for image {image}.")


def _with_progress_bar(
    starts: Sequence[int], title: str, *, n_done: int, is_shown: bool
) -> Iterator[int]:
    """Yield the start of each batch, and move a progress bar on the terminal when it is done.

    `n_done` batches come from the cache: the bar begins there.
    """
    if not is_shown or not starts:
        yield from starts
        return
    from rich.progress import Progress

    with Progress() as bar:
        task = bar.add_task(title, total=n_done + len(starts), completed=n_done)
        for start in starts:
            yield start
            bar.advance(task)
