"""Files in a folder or in a .zip or .tar archive, which is read in place and never unpacked."""

from __future__ import annotations

import tarfile
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class StoredFile:
    """A file inside a folder or archive: its path there, and its size in bytes."""

    name: str
    size: int


def list_files(root: Path) -> list[StoredFile]:
    """List every file in a folder, a .zip or a .tar archive, with its size; subfolders included."""
    if not root.exists():
        raise FileNotFoundError(
            f"{root} does not exist: images are read from a folder, a .zip or a .tar archive."
        )

    if root.is_dir():
        paths = [path for path in root.rglob("*") if path.is_file()]
        return [
            StoredFile(path.relative_to(root).as_posix(), path.stat().st_size) for path in paths
        ]
    if zipfile.is_zipfile(root):
        with zipfile.ZipFile(root) as archive:
            files = [file for file in archive.infolist() if not file.is_dir()]
            return [StoredFile(file.filename, file.file_size) for file in files]
    if tarfile.is_tarfile(root):
        with tarfile.open(root) as archive:
            members = [member for member in archive.getmembers() if member.isfile()]
            return [StoredFile(member.name, member.size) for member in members]
    raise ValueError(f"{root} is neither a folder nor a .zip or .tar archive.")


def read_files(root: Path, names: Sequence[str]) -> Iterator[bytes]:
    """Yield the contents of some files of a folder, a .zip or a .tar archive, in the order given.

    `names` are paths inside `root`. An archive stays open meanwhile, and is not unpacked.
    """
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
