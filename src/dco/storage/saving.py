"""Save and load fitted estimators by skops, never by pickle.

Loading runs no code that the file brings along.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
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
# Packages whose models keep their numbers where no file of ours can take them from.
_ADVICE_BY_PACKAGE = {
    "catboost": "CatBoost models are saved by CatBoost: model.save_model(path), beside "
    "est.certificate_.to_json().",
    "skorch": "skorch nets are saved by skorch: net.save_params(f_params=path), beside "
    "est.certificate_.to_json().",
}
_MOST_PARTS_SEARCHED = 10_000  # so that advice about a huge model does not take minutes


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
        different_part = find_difference(estimator, _load_own(content))
    except Exception as failure:
        culprit = f"{type(estimator).__name__}{_path_of_culprit(estimator)}"
        advice = _advice_for(estimator)
        raise TypeError(f"{culprit} cannot be saved: {failure}. {advice}") from failure
    if different_part is not None:
        culprit = f"{type(estimator).__name__}{different_part}"
        raise TypeError(f"{culprit} would not come back from a file as it is now. {_ADVICE}")

    _note_types_of_main(content)
    return content


def _load_own(content: bytes) -> Any:
    """Load what this process has just packed: its types are the caller's own and trusted."""
    import skops.io

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a deprecated class can still be saved
        return skops.io.loads(content, trusted=skops.io.get_untrusted_types(data=content))


def _path_of_culprit(value: Any) -> str:
    """Find the attribute because of which an object cannot be saved: ".models[0].estimator".

    Each part is saved by itself, and the search goes on inside the first one that fails. Returns ""
    where all parts can be saved, or where the object does not give its parts.
    """
    try:
        parts = parts_of(value)
    except Exception:
        return ""

    # Parameters, which the caller knows, come before fitted attributes, which end in "_".
    parameters_first = sorted(parts, key=lambda named_part: named_part[0].endswith("_"))
    for name, part in parameters_first:
        if not _can_be_saved(part):
            return name + _path_of_culprit(part)
    return ""


def _can_be_saved(value: Any) -> bool:
    """Return whether an object comes back from skops as it is now."""
    import skops.io

    try:
        return find_difference(value, _load_own(skops.io.dumps(value))) is None
    except Exception:
        return False


def _advice_for(estimator: Any) -> str:
    """Say how a model is saved otherwise, by the package that one of its parts comes from."""
    parts = islice(walk(estimator), _MOST_PARTS_SEARCHED)
    packages = {type(part).__module__.partition(".")[0] for part in parts}
    for package, advice in _ADVICE_BY_PACKAGE.items():
        if package in packages:
            return advice
    return _ADVICE


def _note_types_of_main(content: bytes) -> None:
    """Show a note if a model file holds types or functions of the running script.

    Python calls that script ``__main__``, and another process cannot import from it.
    """
    import skops.io

    prefix = "__main__."
    types_in_file = skops.io.get_untrusted_types(data=content)
    names = [name.removeprefix(prefix) for name in types_in_file if name.startswith(prefix)]
    if not names:
        return

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

    # 1. Check the file before anything in it is built.
    content = Path(path).read_bytes()
    check_archive(content, path)
    with _raise_as_corrupt(path):
        types_in_file = set(skops.io.get_untrusted_types(data=content))
    _check_trusted(types_in_file - allowed, path, trusted_by_caller=trusted_by_caller)
    _check_importable(types_in_file, path)

    # 2. Build the estimator. scikit-learn would warn of another version once for each part of it.
    with _raise_as_corrupt(path), warnings.catch_warnings():
        warnings.simplefilter("ignore", InconsistentVersionWarning)
        estimator = skops.io.loads(content, trusted=sorted(allowed))
        other_versions = _other_versions(content)

    # 3. Warn once instead.
    if other_versions:
        show([_note_other_versions(path, other_versions)])
    return estimator


def _names_of(trusted: Iterable[str | type]) -> frozenset[str]:
    """Return the full names of the types that a caller trusts.

    The caller gives types, full names of types, or packages: a name in `PACKAGES` stands for all
    types of that package.
    """
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
    """Replace the types of a package in `PACKAGES` by the name of the package."""
    package_of = {name: package for package, types in PACKAGES.items() for name in types}
    return sorted({package_of.get(name, name) for name in names})


def _check_importable(names: Iterable[str], path: object) -> None:
    """Refuse a file with types that do not exist here.

    `names` are full names, such as "sklearn.tree._tree.Tree". A package that is not installed is an
    ImportError, a module without the type is a MissingTypeError.
    """
    for name in sorted(names):
        module_name, _, type_name = name.rpartition(".")
        module = import_module(module_name)
        if hasattr(module, type_name):
            continue

        reason = (
            f"the module {module_name} here has no {type_name}. Install the version that wrote it"
        )
        if module_name == "__main__":
            reason = (
                "it was defined in the script or notebook that saved the file. Define it in a "
                "module, import it there, and save again"
            )
        raise MissingTypeError(f"{path} needs {name}, which cannot be imported: {reason}.")


def _other_versions(content: bytes) -> list[str]:
    """List the packages that had another version when the file was written.

    Only those that a model predicts with count. Each is listed as "scikit-learn 1.5 (here: 1.6)".
    """
    versions_then = read_manifest(content).get("versions", {})
    versions_now = versions()
    differences = []
    for package in ("decoupled-conformal", "scikit-learn"):
        then = versions_then.get(package)
        now = versions_now.get(package)
        if package in versions_then and then != now:
            differences.append(f"{package} {then} (here: {now})")
    return differences


def _note_other_versions(path: object, other_versions: Sequence[str]) -> Note:
    """Warn that a file was written with other versions, such as "scikit-learn 1.5 (here: 1.6)"."""
    text = (
        f"{path} was written with {' and '.join(other_versions)}: it may predict otherwise "
        "than when it was calibrated."
    )
    remedy = "`dco audit` with the rows of the fit computes the calibration scores again."
    return Note("other-versions", text, remedy)


@contextmanager
def _raise_as_corrupt(path: object) -> Iterator[None]:
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
