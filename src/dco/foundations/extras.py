"""Packages that only some parts need, and the versions of those that are installed."""

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
    except ModuleNotFoundError as error:
        package = module.split(".")[0]
        if error.name is not None and error.name.split(".")[0] != package:
            raise  # the package is there, and lacks another one
        raise MissingExtraError(
            f"This needs the package {package}, which is not installed: pip install "
            f"'decoupled-conformal[{extra}]'."
        ) from None


def installed(*packages: str) -> dict[str, str]:
    """Return the versions of those of these packages that are installed here."""
    versions = {}
    for package in packages:
        with suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    return versions
