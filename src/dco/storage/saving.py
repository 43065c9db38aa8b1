"""Save and load fitted estimators by skops, never by pickle.

Loading runs no code that the file brings along.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

from dco.foundations.errors import CorruptModelError, MissingTypeError, UntrustedTypeError
from dco.foundations.files import write_file
from dco.foundations.notes import Note, show
from dco.storage.archive import MANIFEST, add_manifest, check_archive, read_manifest, versions
from dco.storage.comparing import find_difference, parts_of, walk
from dco.storage.trusted_types import PACKAGES, trusted_names

__all__ = [
    "load",
    "pack",
    "save",
    "versions",
]

_ADVICE = "The page 'Saving and loading' of the documentation lists what can be saved."
_OTHER_WAYS = {  # packages whose models keep their numbers where no file of ours can take them from
    "catboost": "CatBoost models are saved by CatBoost: model.save_model(path), beside "
    "est.certificate_.to_json().",
    "skorch": "skorch nets are saved by skorch: net.save_params(f_params=path), beside "
    "est.certificate_.to_json().",
}
_PARTS_LOOKED_AT = 10_000


# ---------------------------------------------------------------- saving


def save(estimator: Any, path: str | os.PathLike[str], *, overwrite: bool = True) -> None:
    """Write a fitted estimator to `path`.

    An existing file is replaced only with `overwrite`, else it is a ValueError. What cannot be read
    back is a TypeError that names the attribute, and leaves an older file as it was. Types that are
    defined in ``__main__`` are noted, since no other process can import them.
    """
    write_file(path, pack(estimator), overwrite=overwrite)


def pack(estimator: Any) -> bytes:
    """Return the content of a model file, after it was loaded back and compared with the original.

    The comparison is attribute by attribute: what cannot be read back is a TypeError that names the
    attribute.
    """
    import skops.io

    try:
        content = add_manifest(skops.io.dumps(estimator))
        different_part = find_difference(estimator, _copy_of(content))
    except Exception as failure:
        raise TypeError(
            f"{type(estimator).__name__}{_path_of_culprit(estimator)} cannot be saved: {failure}. "
            f"{_advice_for(estimator)}"
        ) from failure
    if different_part is not None:
        raise TypeError(
            f"{type(estimator).__name__}{different_part} would not come back from a file as it is "
            f"now. {_ADVICE}"
        )
    _note_types_of_main(content)
    return content


def _copy_of(content: bytes) -> Any:
    """Load what this process has just packed: its types are the caller's own and trusted."""
    import skops.io

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a class on its way out can still be saved
        return skops.io.loads(content, trusted=skops.io.get_untrusted_types(data=content))


def _path_of_culprit(value: Any) -> str:
    """Return the path of the innermost part that does not survive a round trip by itself."""
    import skops.io

    with suppress(Exception):  # of an object that does not tell its parts
        # what was given comes before what fitted
        for name, part in sorted(parts_of(value), key=lambda named: named[0].endswith("_")):
            survives = False
            with suppress(Exception):
                survives = find_difference(part, _copy_of(skops.io.dumps(part))) is None
            if not survives:
                return name + _path_of_culprit(part)
    return ""


def _advice_for(estimator: Any) -> str:
    """Say how else a model of these packages is saved."""
    reached = islice(walk(estimator), _PARTS_LOOKED_AT)
    packages = {type(part).__module__.partition(".")[0] for part in reached}
    return next((way for package, way in _OTHER_WAYS.items() if package in packages), _ADVICE)


def _note_types_of_main(content: bytes) -> None:
    """Note types and functions of the running script: another process cannot import them."""
    import skops.io

    names = [
        name.removeprefix("__main__.")
        for name in skops.io.get_untrusted_types(data=content)
        if name.startswith("__main__.")
    ]
    if names:
        text = (
            f"{', '.join(names)} is defined in the script or notebook that runs now (__main__), so "
            "another process cannot read this file."
        )
        show([Note("main-types", text, "Define it in a module, import it, and save again.")])


# ---------------------------------------------------------------- loading


def load(path: str | os.PathLike[str], *, trusted: Iterable[str | type] = ()) -> Any:
    """Read an estimator that `save` wrote.

    Only types on the list of `trusted_types`, those that skops trusts by itself and those named in
    `trusted` are built; a file that holds any other is an UntrustedTypeError and nothing of it is
    built. A type that cannot be imported here is a MissingTypeError. A file that is damaged, was
    edited or is not a model file is a CorruptModelError. One that was written with another version
    of dco or scikit-learn is read with a warning.
    """
    import skops.io
    from sklearn.exceptions import InconsistentVersionWarning

    trusted_by_caller = _names_of(trusted)
    allowed = trusted_names() | trusted_by_caller
    content = Path(path).read_bytes()
    check_archive(content, path)

    with _corrupt_if_it_fails(path):
        types_in_file = set(skops.io.get_untrusted_types(data=content))
    _check_trusted(types_in_file - allowed, path, trusted_by_caller=trusted_by_caller)
    _check_importable(types_in_file, path)

    with _corrupt_if_it_fails(path), warnings.catch_warnings():
        # one for each part of the model; ours is one for all
        warnings.simplefilter("ignore", InconsistentVersionWarning)
        estimator = skops.io.loads(content, trusted=sorted(allowed))
        other_versions = _other_versions(content)
    if other_versions:
        text = (
            f"{path} was written with {' and '.join(other_versions)}: it may predict otherwise "
            "than when it was calibrated."
        )
        remedy = "`dco audit` with the rows of the fit computes the calibration scores again."
        show([Note("other-versions", text, remedy)])
    return estimator


def _names_of(trusted: Iterable[str | type]) -> frozenset[str]:
    """Return the full names of the types that a caller trusts, by type, by name or by package."""
    if not isinstance(trusted, Iterable) or isinstance(trusted, str | type):
        raise TypeError(
            f"trusted must be a list of types or of their full names, got {trusted!r}: write "
            "trusted=[...]."
        )
    names: set[str] = set()
    for item in trusted:
        name = item if isinstance(item, str) else f"{item.__module__}.{item.__name__}"
        names |= set(PACKAGES.get(name, [name]))
    return frozenset(names)


def _check_trusted(untrusted: set[str], path: object, *, trusted_by_caller: frozenset[str]) -> None:
    """Refuse a file with types that nobody trusts, and say which argument would trust them."""
    if not untrusted:
        return
    argument = _shorten([*trusted_by_caller, *untrusted])
    raise UntrustedTypeError(
        f"{path} holds types that are not trusted: {', '.join(sorted(untrusted))}. If you know "
        f"each of them and trust whoever wrote the file, pass trusted={argument!r}; building them "
        "may run their code.",
        types=tuple(sorted(untrusted)),
    )


def _shorten(names: Iterable[str]) -> list[str]:
    """Write the types of a package by the name of the package."""
    package_of = {name: package for package, types in PACKAGES.items() for name in types}
    return sorted({package_of.get(name, name) for name in names})


def _check_importable(names: Iterable[str], path: object) -> None:
    """Refuse a file whose trusted types do not exist here; a missing package is an ImportError."""
    for name in sorted(names):
        module, _, attribute = name.rpartition(".")
        if hasattr(import_module(module), attribute):
            continue
        if module == "__main__":
            why = (
                "it was defined in the script or notebook that saved the file. Define it in a "
                "module, import it there, and save again"
            )
        else:
            why = f"the module {module} here has no {attribute}. Install the version that wrote it"
        raise MissingTypeError(f"{path} needs {name}, which cannot be imported: {why}.")


def _other_versions(content: bytes) -> list[str]:
    """List packages that shape predictions and had another version when the file was written."""
    written = read_manifest(content).get("versions", {})
    here = versions()
    return [
        f"{package} {written[package]} (here: {here.get(package)})"
        for package in ("decoupled-conformal", "scikit-learn")
        if package in written and written[package] != here.get(package)
    ]


@contextmanager
def _corrupt_if_it_fails(path: object) -> Iterator[None]:
    """Turn any failure to read a file into a CorruptModelError.

    A package that is not installed stays an ImportError.
    """
    try:
        yield
    except (CorruptModelError, ModuleNotFoundError, MemoryError):
        raise
    except Exception as failure:
        raise CorruptModelError(
            f"{path} cannot be read: {type(failure).__name__}: {failure}. It is damaged, was "
            f"edited, or was written with other versions of its packages (its {MANIFEST} lists "
            "them)."
        ) from failure
