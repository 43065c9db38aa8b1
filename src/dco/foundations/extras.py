"""Packages that only some parts need, imported when first used, and the versions of those that are
installed.
"""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module, metadata
from typing import Any

from dco.foundations.errors import MissingExtraError

__all__ = [
    "installed",
    "require",
]


def require(module: str, *, extra: str) -> Any:
    """Import `module`, or say in one sentence how to install the extra that brings it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as missing:
        if missing.name is not None and missing.name.split(".")[0] != module.split(".")[0]:
            raise
        package = module.split(".")[0]
        raise MissingExtraError(
            f"This needs the package {package}, which is not installed: pip install "
            f"'decoupled-conformal[{extra}]'."
        ) from None


def installed(*packages: str) -> dict[str, str]:
    """The version of each of these packages that is installed here."""
    found = {}
    for package in packages:
        with suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found
