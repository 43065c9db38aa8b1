"""The archive that a model file is: members with their hashes, so that damage is found.

It is a deflated zip archive of skops' members (``schema.json`` and arrays) and ``dco.json``, which
holds the format's version, the versions of packages and the SHA-256 of every other member. The
hashes do not prove who wrote the file.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from typing import Any

from dco.foundations.errors import CorruptModelError
from dco.foundations.extras import installed

FORMAT = 5
MANIFEST = "dco.json"
_SCHEMA = "schema.json"
_FIRST_BYTES_OF_ZIP = b"PK"
_FIRST_BYTE_OF_PICKLE = b"\x80"


def versions() -> dict[str, str]:
    """Return the versions of dco and of the packages that a model file is made of."""
    return installed("decoupled-conformal", "numpy", "scipy", "scikit-learn", "skops")


def add_manifest(skops_content: bytes) -> bytes:
    """Add the manifest to the archive that skops wrote, and return the content of a model file.

    The manifest holds the format's version, the versions of packages, and the SHA-256 of every
    other member of the archive.
    """
    with zipfile.ZipFile(io.BytesIO(skops_content)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    manifest = {
        "format": FORMAT,
        "sha256": {name: hashlib.sha256(content).hexdigest() for name, content in members.items()},
        "versions": versions(),
    }
    members[MANIFEST] = json.dumps(manifest, indent=1).encode()

    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def read_manifest(content: bytes) -> Any:
    """Return the manifest of a model file."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return json.loads(archive.read(MANIFEST))


def check_archive(content: bytes, path: object) -> None:
    """Refuse content that is not a model file, and one whose members are not as they were written.

    Missing, added and changed members are found by the hashes in the file's manifest. `path` is
    named in the error.
    """
    if not content.startswith(_FIRST_BYTES_OF_ZIP):
        sentence = f"{path} is not a model file."
        if content[:1] == _FIRST_BYTE_OF_PICKLE:
            sentence += (
                " It looks like a pickle, and pickles are never loaded: they can run any code."
            )
        raise CorruptModelError(sentence)

    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            problem = _find_problem(archive)
    except Exception as failure:  # zipfile raises many kinds on damaged files
        raise CorruptModelError(f"{path} is damaged or was cut short: {failure}.") from failure
    if problem is not None:
        raise CorruptModelError(f"{path} {problem}")


def _find_problem(archive: zipfile.ZipFile) -> str | None:
    """Compare an archive with its manifest, and say what is wrong; None if nothing is.

    The text goes on from the path of the file: "... was edited: its members are not those that
    dco.json lists."
    """
    names = archive.namelist()
    if MANIFEST not in names or _SCHEMA not in names:
        return f"was not written by dco.save: it has no {MANIFEST} or no {_SCHEMA}."

    manifest = json.loads(archive.read(MANIFEST))
    if manifest["format"] != FORMAT:
        return (
            f"has format {manifest['format']!r}, but this version of dco reads format {FORMAT}: "
            "use the one that wrote it, or fit again."
        )

    digests = manifest["sha256"]
    if set(digests) != set(names) - {MANIFEST}:
        return f"was edited: its members are not those that {MANIFEST} lists."
    for name, digest in digests.items():
        if hashlib.sha256(archive.read(name)).hexdigest() != digest:
            return f"is damaged or was edited: the SHA-256 of {name} is not the one in {MANIFEST}."
    return None
