"""CIFAR-100 and ImageNet-A: images in a folder or an archive → features of a frozen backbone,
cached on disk.

Three small parts: images that can be read in batches, a network that turns a batch into rows of
features, and `extract_features`, which runs the one through the other, remembers finished blocks,
and goes on where it was interrupted. Only `resnet50` needs torch (extra `images`); any other
function from images to rows can take its place.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

import numpy as np

from dco.datasets.tabular import find_file
from dco.foundations.arrays import AnyArray, Floats, Integers
from dco.foundations.extras import require
from dco.foundations.files import write_whole, written_beside

CIFAR100_FEATURES = "cifar100_efficientnet_lite2_features_20000.npz"
IMAGE_ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".webp")
CIFAR_PIXELS = 3 * 32 * 32
CIFAR_RECORD = 2 + CIFAR_PIXELS  # coarse label, fine label, then the red, green and blue planes

Network = Callable[[Sequence[AnyArray]], Any]


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
    """20,000 CIFAR-100 images (200 of each class) through a frozen EfficientNet-Lite2: 1,280
    features per row.

    The file is looked for in `data_home`, then in the folder that the environment variable
    ``DCO_DATA_HOME`` names.
    """
    path = find_file(CIFAR100_FEATURES, data_home)
    if path is None:
        raise FileNotFoundError(
            f"The features of CIFAR-100 are a file of their own, {CIFAR100_FEATURES}: pass its "
            f"folder as data_home=, or set "
            "DCO_DATA_HOME. To make features from the images, use extract_features()."
        )
    with np.load(path, allow_pickle=False) as stored:
        missing = {"features", "labels"} - set(stored.files)
        if missing:
            raise ValueError(
                f"{path} holds no array {sorted(missing)[0]!r}, so it is not a file "
                f"of features and labels."
            )
        features, labels = stored["features"].astype(np.float32), stored["labels"].astype(np.int64)
    if features.ndim != 2 or labels.shape != (len(features),):
        raise ValueError(
            f"{path} has features of shape {features.shape} but labels of shape {labels.shape}."
        )
    return ImageFeatures(features, labels)


class Images(Protocol):
    """Labelled images in a fixed order, read a few at a time."""

    @property
    def labels(self) -> Integers:
        """One class number per image."""

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """The names of the classes, where known."""

    def fingerprint(self) -> str:
        """A digest of what is read, in which order: a cache made from other images must not be
        taken for this one.
        """

    def read(self, start: int, stop: int) -> list[AnyArray]:
        """Images start..stop-1, each (height, width, 3) bytes."""


@dataclass(frozen=True, eq=False)
class ClassFolders:
    """Images in one folder per class (ImageNet-A, or any torchvision-style folder), on disk or in a
    .zip or .tar archive.

    Classes are the folder names in order; images are in order of their path.
    """

    path: Path
    names: tuple[str, ...]
    sizes: tuple[int, ...]
    labels: Integers
    class_names: tuple[str, ...] | None

    @classmethod
    def of(cls, path: str | os.PathLike[str]) -> ClassFolders:
        """List the images under `path`."""
        root = Path(path)
        listed = sorted(
            (name, size) for name, size in _listing(root) if name.lower().endswith(IMAGE_ENDINGS)
        )
        if not listed:
            raise ValueError(
                f"{root} holds no images ({', '.join(IMAGE_ENDINGS)}) in folders, "
                f"one folder per class."
            )
        folders = [PurePosixPath(name).parent.name for name, _ in listed]
        if "" in folders:
            raise ValueError(
                f"{listed[folders.index('')][0]} in {root} is in no folder, so it has no class."
            )
        classes = tuple(sorted(set(folders)))
        labels = np.searchsorted(np.asarray(classes), np.asarray(folders)).astype(np.int64)
        names, sizes = zip(*listed, strict=True)
        return cls(root, names, sizes, labels, classes)

    def fingerprint(self) -> str:
        """A digest of all paths and sizes."""
        return hashlib.sha256(json.dumps([self.names, self.sizes]).encode()).hexdigest()

    def read(self, start: int, stop: int) -> list[AnyArray]:
        """Decode images start..stop-1 as RGB."""
        decode = require("PIL.Image", extra="images").open
        images = []
        for name, stored in zip(
            self.names[start:stop], _contents(self.path, self.names[start:stop]), strict=True
        ):
            try:
                images.append(np.asarray(decode(io.BytesIO(stored)).convert("RGB")))
            except OSError as reason:
                raise ValueError(
                    f"{name} in {self.path} cannot be read as an image: {reason}."
                ) from None
        return images


@dataclass(frozen=True, eq=False)
class Cifar100:
    """CIFAR-100 in its binary version: train.bin and test.bin, in a folder or in
    cifar-100-binary.tar.gz.

    Train and test are joined, as in the paper. (The Python version is a pickle, which could run
    code when opened.)
    """

    pixels: AnyArray
    labels: Integers
    class_names: tuple[str, ...] | None

    @classmethod
    def of(cls, path: str | os.PathLike[str]) -> Cifar100:
        """Read the records of train.bin and test.bin under `path`."""
        root = Path(path)
        found = {PurePosixPath(name).name: name for name, _ in _listing(root)}
        missing = [name for name in ("train.bin", "test.bin") if name not in found]
        if missing:
            raise ValueError(
                f"{root} holds no {missing[0]}: CIFAR-100 is read from its binary version."
            )
        joined = b"".join(_contents(root, [found["train.bin"], found["test.bin"]]))
        if not joined or len(joined) % CIFAR_RECORD:
            raise ValueError(
                f"{root} holds {len(joined)} bytes, not a multiple of a record's {CIFAR_RECORD}: "
                f"it is cut short."
            )
        records = np.frombuffer(joined, dtype=np.uint8).reshape(-1, CIFAR_RECORD)
        listed = found.get("fine_label_names.txt")
        names = next(_contents(root, [listed])).decode().split() if listed else None
        pixels = records[:, 2:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        return cls(pixels, records[:, 1].astype(np.int64), tuple(names) if names else None)

    def fingerprint(self) -> str:
        """A digest of all labels and pixels."""
        return hashlib.sha256(
            self.labels.tobytes() + np.ascontiguousarray(self.pixels).tobytes()
        ).hexdigest()

    def read(self, start: int, stop: int) -> list[AnyArray]:
        """Images start..stop-1."""
        return list(self.pixels[start:stop])


def open_images(path: str | os.PathLike[str]) -> Images:
    """CIFAR-100's binary files or images in class folders, whichever `path` (a folder, .zip, .tar
    or .tar.gz) holds.
    """
    root = Path(path)
    if any(PurePosixPath(name).name == "train.bin" for name, _ in _listing(root)):
        return Cifar100.of(root)
    return ClassFolders.of(root)


def resnet50(
    *,
    pretrained: bool = True,
    device: str | None = None,
    weights_file: str | os.PathLike[str] | None = None,
) -> Network:
    """torchvision's ResNet-50 without its last layer: images → rows of 2,048 features (extra
    `images`).

    `pretrained` takes `ResNet50_Weights.DEFAULT`, which torchvision downloads once; otherwise
    weights are random. A `weights_file` of torchvision's (resnet50-*.pth) is read instead, and
    images are prepared as its own weights ask for.
    """
    torch, models = require("torch", extra="images"), require("torchvision.models", extra="images")
    weights = models.ResNet50_Weights.DEFAULT
    network = models.resnet50(weights=weights if pretrained and weights_file is None else None)
    if weights_file is not None:
        known = (
            each
            for each in models.ResNet50_Weights
            if each.url.endswith(f"/{Path(weights_file).name}")
        )
        weights = next(known, weights)
        try:
            network.load_state_dict(torch.load(weights_file, map_location="cpu", weights_only=True))
        except Exception as error:  # whatever torch says of a file that is none
            text = (
                f"{weights_file} does not hold the weights of torchvision's ResNet-50 "
                f"({str(error).splitlines()[0]:.200})."
            )
            raise ValueError(text) from None
    network.fc = torch.nn.Identity()
    place = device or ("cuda" if torch.cuda.is_available() else "cpu")
    network.eval().to(place)
    prepare = weights.transforms()

    def features(images: Sequence[AnyArray]) -> Any:
        with torch.inference_mode(), _whole_single_precision(torch.backends.cudnn):
            batch = torch.stack(
                [prepare(torch.from_numpy(np.array(image)).permute(2, 0, 1)) for image in images]
            )
            return network(batch.to(place)).float().cpu().numpy()

    return features


@contextmanager
def _whole_single_precision(cudnn: Any) -> Iterator[None]:
    """Convolve in single precision: by default a GPU rounds to 10 bits, and features depend on the
    batch and the machine.
    """
    # torch 2.9 brought a setting for each operation, and the older common one then fails where a
    # caller has used the new.
    place, name, whole = (
        (cudnn.conv, "fp32_precision", "ieee")
        if hasattr(cudnn, "conv")
        else (cudnn, "allow_tf32", False)
    )
    before = getattr(place, name)
    setattr(place, name, whole)
    try:
        yield
    finally:
        setattr(place, name, before)


def extract_features(
    images: Images,
    network: Network,
    *,
    cache: str | os.PathLike[str],
    name: str,
    batch_size: int = 64,
    progress: bool = True,
) -> ImageFeatures:
    """Every image through the network, in batches; each finished batch is a file in the folder
    `cache`.

    An interrupted run goes on after its last whole batch, a finished one is only read. `name` says
    which network it is: a cache that was made from other images, by another network or in other
    batches is an error, never silently reused.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}.")
    folder = Path(cache)
    folder.mkdir(parents=True, exist_ok=True)
    n = len(images.labels)
    _claim(
        folder,
        {"images": images.fingerprint(), "rows": n, "network": name, "batch_size": batch_size},
    )
    starts = range(0, n, batch_size)
    files = [folder / f"rows-{start:08d}.npy" for start in starts]
    waiting = [
        (start, file) for start, file in zip(starts, files, strict=True) if not file.exists()
    ]
    for start, file in _shown(
        waiting, progress, f"{name}: features", done=len(files) - len(waiting)
    ):
        stop = min(start + batch_size, n)
        rows = np.asarray(network(images.read(start, stop)), dtype=np.float32)
        if rows.ndim != 2 or len(rows) != stop - start:
            raise ValueError(
                f"The network gave shape {rows.shape} for {stop - start} images; it must give one "
                f"row per image."
            )
        if not np.all(np.isfinite(rows)):
            bad = start + int(np.flatnonzero(~np.isfinite(rows).all(axis=1))[0])
            raise ValueError(f"The network gave a feature that is not finite for image {bad}.")
        _write(file, rows)
    features = np.concatenate([np.load(file, allow_pickle=False) for file in files])
    return ImageFeatures(features, images.labels, images.class_names)


@dataclass(frozen=True)
class Backbone:
    """ResNet-50 features to be made from images and a file of weights, as ``dco reproduce
    --features resnet50`` does.
    """

    images: str
    weights: str

    @property
    def digest(self) -> str:
        """Which weights these are."""
        return _digest_of(self.weights)

    def lacking(self) -> str | None:
        """What is not there, in one sentence."""
        absent = [place for place in (self.images, self.weights) if not Path(place).exists()]
        return (
            f"There is no {absent[0]}: --features resnet50 needs the images and the file of "
            f"weights."
            if absent
            else None
        )

    def of_imagenet(self) -> bool:
        """Whether the images lie in folders named by WordNet numbers, as those of ImageNet-A do."""
        return _named_by_wordnet(self.images)

    def features(self) -> ImageFeatures:
        """The features, from the cache beside the images where they are there already."""
        return _features_of(self)


@lru_cache(maxsize=4)
def _named_by_wordnet(path: str) -> bool:
    found = {
        PurePosixPath(name).parent.name
        for name, _ in _listing(Path(path))
        if name.lower().endswith(IMAGE_ENDINGS)
    }
    return bool(found) and all(re.fullmatch("n[0-9]{8}", name) for name in found)


@lru_cache(maxsize=4)
def _digest_of(file: str) -> str:
    with Path(file).open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()[:12]


@lru_cache(maxsize=1)
def _features_of(backbone: Backbone) -> ImageFeatures:
    network: list[Network] = []

    # with all batches in the cache neither torch nor a GPU is touched
    def first_needed(images: Sequence[AnyArray]) -> Any:
        if not network:
            network.append(resnet50(weights_file=backbone.weights))
        return network[0](images)

    root, name = Path(backbone.images), f"resnet50-{backbone.digest}"
    cache = root.parent / f"{root.name.partition('.')[0]}-{name}-features"
    return extract_features(open_images(root), first_needed, cache=cache, name=name)


def _claim(folder: Path, made_from: dict[str, Any]) -> None:
    """Note in the cache what it is made from, or check that the note agrees."""
    note = folder / "made-from.json"
    if not note.exists():
        write_whole(note, json.dumps(made_from, indent=1))
        return
    before = json.loads(note.read_text(encoding="utf-8"))
    for key, value in made_from.items():
        if before.get(key) != value:
            raise ValueError(
                f"The cache {folder} was made with {key} = {before.get(key)!r}, not {value!r}. "
                f"Use another folder, or "
                "delete this one."
            )


def _write(file: Path, rows: Floats) -> None:
    """All or nothing: an interrupted write leaves no file that looks finished."""
    with written_beside(file) as beside, beside.open("wb") as stream:
        np.save(stream, rows, allow_pickle=False)


def _shown(items: Sequence[Any], progress: bool, title: str, *, done: int) -> Iterator[Any]:
    """The items, with a progress bar on the terminal that also counts the batches found in the
    cache.
    """
    if not progress or not items:
        yield from items
        return
    from rich.progress import Progress

    with Progress() as bar:
        task = bar.add_task(title, total=done + len(items), completed=done)
        for item in items:
            yield item
            bar.advance(task)


def _listing(root: Path) -> list[tuple[str, int]]:
    """Every file in a folder or archive: its path inside, and its size."""
    if root.is_dir():
        files = [file for file in root.rglob("*") if file.is_file()]
        return [(file.relative_to(root).as_posix(), file.stat().st_size) for file in files]
    if not root.exists():
        raise FileNotFoundError(
            f"{root} does not exist: images are read from a folder, a .zip or a .tar archive."
        )
    if zipfile.is_zipfile(root):
        with zipfile.ZipFile(root) as archive:
            return [
                (item.filename, item.file_size) for item in archive.infolist() if not item.is_dir()
            ]
    if tarfile.is_tarfile(root):
        with tarfile.open(root) as archive:
            return [(item.name, item.size) for item in archive.getmembers() if item.isfile()]
    raise ValueError(f"{root} is neither a folder nor a .zip or .tar archive.")


def _contents(root: Path, names: Sequence[str]) -> Iterator[bytes]:
    """The bytes of these files, in this order; archives are read in place, never unpacked."""
    if root.is_dir():
        for name in names:
            yield (root / name).read_bytes()
    elif zipfile.is_zipfile(root):
        with zipfile.ZipFile(root) as archive:
            for name in names:
                yield archive.read(name)
    else:
        with tarfile.open(root) as archive:
            for name in names:
                member = archive.extractfile(name)
                if member is None:
                    raise ValueError(f"{name} in {root} is not a plain file.")
                yield member.read()
