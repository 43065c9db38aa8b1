"""Labelled images in a folder or an archive: CIFAR-100's binary files, or a folder per class."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter
from pathlib import Path, PurePosixPath
from typing import Protocol

import numpy as np

from dco.datasets.archives import list_files, read_files
from dco.foundations.arrays import AnyArray, Integers
from dco.foundations.extras import require

IMAGE_ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".webp")
CIFAR_PIXELS = 3 * 32 * 32
CIFAR_RECORD = 2 + CIFAR_PIXELS  # coarse label, fine label, then the red, green and blue planes
WORDNET_NUMBER = "n[0-9]{8}"  # by which the classes of ImageNet are called


class Images(Protocol):
    """Labelled images in a fixed order, read a few at a time."""

    @property
    def labels(self) -> Integers:
        """One class number per image."""

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """The names of the classes, where known."""

    def fingerprint(self) -> str:
        """Return a digest of what is read, in which order.

        A cache that was made from other images must not be taken for one of these.
        """

    def read(self, start: int, stop: int) -> list[AnyArray]:
        """Return images start..stop-1, each (height, width, 3) bytes."""


def open_images(path: str | os.PathLike[str]) -> Images:
    """Open CIFAR-100's binary files or images in class folders, whichever a path holds.

    The path is a folder, a .zip, .tar or .tar.gz.
    """
    root = Path(path)
    names = {PurePosixPath(file.name).name for file in list_files(root)}
    if "train.bin" in names:
        return Cifar100.of(root)
    return ClassFolders.of(root)


@dataclass(frozen=True, eq=False)
class ClassFolders:
    """Images in one folder per class (ImageNet-A, or any torchvision-style folder).

    Classes are the folder names in order; images are in order of their path.
    """

    path: Path
    names: tuple[str, ...]
    sizes: tuple[int, ...]
    labels: Integers
    class_names: tuple[str, ...] | None

    @classmethod
    def of(cls, path: str | os.PathLike[str]) -> ClassFolders:
        """List the images in a folder or an archive, and take their folders as their classes.

        The images themselves are read later. An image outside any folder is an error.
        """
        root = Path(path)
        files = [file for file in list_files(root) if is_image(file.name)]
        files.sort(key=attrgetter("name"))
        if not files:
            raise ValueError(
                f"{root} holds no images ({', '.join(IMAGE_ENDINGS)}) in folders, "
                f"one folder per class."
            )

        folders = [folder_of(file.name) for file in files]
        if "" in folders:
            outside = files[folders.index("")].name
            raise ValueError(f"{outside} in {root} is in no folder, so it has no class.")

        class_names = sorted(set(folders))
        number_of_class = {folder: number for number, folder in enumerate(class_names)}
        labels = [number_of_class[folder] for folder in folders]
        return cls(
            path=root,
            names=tuple(file.name for file in files),
            sizes=tuple(file.size for file in files),
            labels=np.asarray(labels, dtype=np.int64),
            class_names=tuple(class_names),
        )

    def fingerprint(self) -> str:
        """Return a digest of all paths and sizes."""
        return hashlib.sha256(json.dumps([self.names, self.sizes]).encode()).hexdigest()

    def read(self, start: int, stop: int) -> list[AnyArray]:
        """Read the images from number `start` to `stop` - 1, as (height, width, 3) RGB bytes."""
        open_image = require("PIL.Image", extra="images").open
        names = self.names[start:stop]
        images = []
        for name, content in zip(names, read_files(self.path, names), strict=True):
            try:
                image = open_image(io.BytesIO(content)).convert("RGB")
            except OSError as error:
                raise ValueError(
                    f"{name} in {self.path} cannot be read as an image: {error}."
                ) from None
            images.append(np.asarray(image))
        return images


@dataclass(frozen=True, eq=False)
class Cifar100:
    """CIFAR-100 in its binary version: train.bin and test.bin, joined, as in the paper.

    They lie in a folder or in cifar-100-binary.tar.gz. (The Python version is a pickle, which could
    run code when opened.)
    """

    pixels: AnyArray
    labels: Integers
    class_names: tuple[str, ...] | None

    @classmethod
    def of(cls, path: str | os.PathLike[str]) -> Cifar100:
        """Read train.bin and test.bin from a folder or archive, joined in this order.

        A record of these files has 2 + 3 * 32 * 32 bytes: the coarse label, the fine label (which
        is taken), and the red, the green and the blue values of the pixels.
        """
        # 1. Find the files.
        root = Path(path)
        path_of_file = {PurePosixPath(file.name).name: file.name for file in list_files(root)}
        for name in ("train.bin", "test.bin"):
            if name not in path_of_file:
                raise ValueError(
                    f"{root} holds no {name}: CIFAR-100 is read from its binary version."
                )

        # 2. Read the bytes, one row for each record.
        data_files = [path_of_file["train.bin"], path_of_file["test.bin"]]
        content = b"".join(read_files(root, data_files))
        if not content or len(content) % CIFAR_RECORD:
            raise ValueError(
                f"{root} holds {len(content)} bytes, not a multiple of a record's {CIFAR_RECORD}: "
                f"it is cut short."
            )
        records = np.frombuffer(content, dtype=np.uint8).reshape(-1, CIFAR_RECORD)

        # 3. Take labels and pixels apart; colours go last.
        fine_labels = records[:, 1]
        colour_planes = records[:, 2:].reshape(-1, 3, 32, 32)
        return cls(
            pixels=colour_planes.transpose(0, 2, 3, 1),
            labels=fine_labels.astype(np.int64),
            class_names=_read_names(root, path_of_file.get("fine_label_names.txt")),
        )

    def fingerprint(self) -> str:
        """Return a digest of all labels and pixels."""
        content = self.labels.tobytes() + np.ascontiguousarray(self.pixels).tobytes()
        return hashlib.sha256(content).hexdigest()

    def read(self, start: int, stop: int) -> list[AnyArray]:
        """Return images start..stop-1."""
        return list(self.pixels[start:stop])


def _read_names(root: Path, name: str | None) -> tuple[str, ...] | None:
    """Return the words of a file; None without one, or if it is empty."""
    if name is None:
        return None
    (content,) = read_files(root, [name])
    return tuple(content.decode().split()) or None


def is_image(name: str) -> bool:
    """Whether a file is an image, by the ending of its name."""
    return name.lower().endswith(IMAGE_ENDINGS)


def folder_of(name: str) -> str:
    """Return the name of the folder that holds a file."""
    return PurePosixPath(name).parent.name


@lru_cache(maxsize=4)
def is_named_by_wordnet(path: str) -> bool:
    """Whether images lie in folders named by WordNet numbers, as those of ImageNet-A do."""
    names = [file.name for file in list_files(Path(path))]
    folders = {folder_of(name) for name in names if is_image(name)}
    return bool(folders) and all(re.fullmatch(WORDNET_NUMBER, folder) for folder in folders)
