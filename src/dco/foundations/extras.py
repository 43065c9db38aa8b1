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
    """Import and return a module of an optional package, such as "matplotlib.pyplot".

    If the package is not installed, the error says which extra of dco to install.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        package = module.split(".")[0]
        lacks_another_package = error.name is not None and error.name.split(".")[0] != package
        if lacks_another_package:
            raise  # the package itself is installed
        raise MissingExtraError(
            f"This needs the package {package}, which is not installed: pip install "
            f"'decoupled-conformal[{extra}]'."
        ) from None


def installed(*packages: str) -> dict[str, str]:
    """Return the versions of packages by name; those that are not installed are left out."""
    versions = {}
    for package in packages:
        with suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    return versions
