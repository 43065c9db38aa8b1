"""Save and load fitted estimators by skops, never by pickle: loading runs no code that the file brings along.

A file is a deflated zip archive: skops' members (``schema.json`` and arrays) and ``dco.json``, which holds the format's
version and the SHA-256 of every other member. The hashes find damage; they do not prove who wrote the file.
"""

from __future__ import annotations

import functools
import hashlib
import io
import json
import os
import re
import types
import warnings
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from dco.errors import CorruptModelError, UntrustedTypeError
from dco.extras import installed
from dco.files import written_beside
from dco.trusted_types import trusted_names

FORMAT = 3
_MANIFEST = "dco.json"
_SCHEMA = "schema.json"
# A model's members are arrays and JSON: a file that unpacks to more than this is a zip bomb. `save` keeps below it.
_LARGEST_RATIO = 100
_ALWAYS_ALLOWED = 64 * 2**20


def save(estimator: Any, path: str | os.PathLike[str], *, overwrite: bool = True) -> None:
    """Write a fitted estimator to `path`; without `overwrite` a file that is there is kept, and this is a ValueError.

    The file is written beside its target, loaded back and compared with the original attribute by attribute, and only then
    moved into place: what cannot be read back is a TypeError that names the attribute, and leaves an older file as it was.
    """
    try:
        data = _packed(estimator)
    except Exception as failure:
        raise _cannot_save(estimator, failure) from failure
    with written_beside(path, overwrite=overwrite) as beside:
        with open(beside, "wb") as file:
            file.write(data)
        written = _checked(beside.read_bytes(), path)
        try:
            different = _difference(estimator, _own_copy(written))
        except Exception as failure:
            raise _cannot_save(estimator, failure) from failure
        if different is not None:
            raise TypeError(f"{_named(estimator, different)} would not come back from a file as it is now. {_ADVICE}")


def load(path: str | os.PathLike[str], *, trusted: Iterable[str | type] = ()) -> Any:
    """Read an estimator that `save` wrote.

    Only types on the list of `dco.trusted_types`, those that skops trusts by itself and those named in `trusted` are built;
    a file that holds any other is an UntrustedTypeError and nothing of it is built. A file that is damaged, was edited or
    is not a model file is a CorruptModelError. One that was written with another version of dco or scikit-learn is read
    with a warning.
    """
    import skops.io
    from sklearn.exceptions import InconsistentVersionWarning

    allowed = trusted_names() | _names(trusted)
    data = _checked(Path(path).read_bytes(), path)
    with _corrupt_if_it_fails(path):
        _check_fractions(data)
        unknown = sorted(set(skops.io.get_untrusted_types(data=data)) - allowed)
    if unknown:
        raise UntrustedTypeError(
            f"{path} holds types that are not trusted: {', '.join(unknown)}. If you know each of them and trust whoever "
            f"wrote the file, pass trusted={[*sorted(_names(trusted)), *unknown]!r}; building them may run their code.",
            types=tuple(unknown),
        )
    with _corrupt_if_it_fails(path), warnings.catch_warnings():
        warnings.simplefilter("ignore", InconsistentVersionWarning)  # one for each part of the model; ours is one for all
        estimator = skops.io.loads(data, trusted=sorted(allowed))
        _check_compiled(estimator)
        other = _other_versions(data)
    if other:
        warnings.warn(
            f"{path} was written with {' and '.join(other)}: it may predict otherwise than when it was calibrated. "
            "`dco audit` with the rows of the fit computes the calibration scores again.",
            UserWarning,
            stacklevel=2,
        )
    return estimator


def _other_versions(data: bytes) -> list[str]:
    """The packages that shape predictions and had another version when the file was written."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        written = json.loads(archive.read(_MANIFEST)).get("versions", {})
    here = versions()
    return [
        f"{package} {written[package]} (here: {here.get(package)})"
        for package in ("decoupled-conformal", "scikit-learn")
        if package in written and written[package] != here.get(package)
    ]


# --- the archive ------------------------------------------------------------------------------------------------------


def _packed(estimator: Any) -> bytes:
    import skops.io

    data: bytes = skops.io.dumps(estimator)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    manifest = {
        "format": FORMAT,
        "sha256": {name: hashlib.sha256(content).hexdigest() for name, content in members.items()},
        "versions": versions(),
    }
    members[_MANIFEST] = json.dumps(manifest, indent=1).encode()
    packed = _archive(members, zipfile.ZIP_DEFLATED)
    if not _plausible(sum(map(len, members.values())), len(packed)):
        packed = _archive(members, zipfile.ZIP_STORED)  # huge arrays of one value: store them as they are
    return packed


def _archive(members: dict[str, bytes], compression: int) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def versions() -> dict[str, str]:
    """The versions of dco and of the packages that a model file is made of, as they are installed here."""
    return installed("decoupled-conformal", "numpy", "scipy", "scikit-learn", "skops")


def _plausible(unpacked: int, packed: int) -> bool:
    return unpacked <= _ALWAYS_ALLOWED + _LARGEST_RATIO * packed


def _checked(data: bytes, path: object) -> bytes:
    """`data` if it is an archive whose members are all there, as they were written, and nothing else."""
    if not data.startswith(b"PK"):
        kind = " It looks like a pickle, and pickles are never loaded: they can run any code." if data[:1] == b"\x80" else ""
        raise CorruptModelError(f"{path} is not a model file.{kind}")
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return _checked_members(archive, data, path)
    except CorruptModelError:
        raise
    except Exception as failure:  # zipfile raises many kinds on crafted input
        raise CorruptModelError(f"{path} is damaged or was cut short: {failure}.") from failure


def _checked_members(archive: zipfile.ZipFile, data: bytes, path: object) -> bytes:
    entries = archive.infolist()
    names = [entry.filename for entry in entries]
    if len(set(names)) != len(names):
        raise CorruptModelError(f"{path} holds a member twice.")
    for entry in entries:
        if "/" in entry.filename or "\\" in entry.filename or entry.filename in (".", "..") or entry.flag_bits & 1:
            raise CorruptModelError(f"{path} holds a member that no model file has: {entry.filename!r}.")
    if not _plausible(sum(entry.file_size for entry in entries), len(data)):
        raise CorruptModelError(f"{path} would unpack to far more than a model file of {len(data)} bytes can hold.")
    if _MANIFEST not in names or _SCHEMA not in names:
        raise CorruptModelError(f"{path} was not written by dco.save: it has no {_MANIFEST} or no {_SCHEMA}.")
    manifest = json.loads(archive.read(_MANIFEST))
    if manifest["format"] != FORMAT:
        raise CorruptModelError(
            f"{path} has format {manifest['format']!r}, but this version of dco reads format {FORMAT}: use the one "
            "that wrote it, or fit again."
        )
    digests = manifest["sha256"]
    if set(digests) != set(names) - {_MANIFEST}:
        raise CorruptModelError(f"{path} was edited: its members are not those that {_MANIFEST} lists.")
    for name, digest in digests.items():
        if hashlib.sha256(archive.read(name)).hexdigest() != digest:
            raise CorruptModelError(f"{path} is damaged or was edited: the SHA-256 of {name} is not the one in {_MANIFEST}.")
    return data


@contextmanager
def _corrupt_if_it_fails(path: object) -> Iterator[None]:
    """Turn any failure to read a file into a CorruptModelError; a package that is not installed stays an ImportError."""
    try:
        yield
    except (CorruptModelError, ModuleNotFoundError, MemoryError):
        raise
    except Exception as failure:
        raise CorruptModelError(
            f"{path} cannot be read: {type(failure).__name__}: {failure}. It is damaged, was edited, or was written with "
            f"other versions of its packages (its {_MANIFEST} lists them)."
        ) from failure


def _names(trusted: Iterable[str | type]) -> frozenset[str]:
    if not isinstance(trusted, Iterable) or isinstance(trusted, str | type):
        raise TypeError(f"trusted must be a list of types or of their full names, got {trusted!r}: write trusted=[...].")
    return frozenset(item if isinstance(item, str) else f"{item.__module__}.{item.__name__}" for item in trusted)


# --- fractions --------------------------------------------------------------------------------------------------------


def _check_fractions(data: bytes) -> None:
    """Refuse fractions that are not made of whole numbers: ``Fraction("1e1000000000")`` would compute for days.

    Whatever has the `__id__` of a part may be built in its place, so all that share one are checked.
    """
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        pending = [json.loads(archive.read(_SCHEMA))]
    fractions: list[dict[str, Any]] = []
    same: dict[Any, list[dict[str, Any]]] = {}
    while pending:
        thing = pending.pop()
        if isinstance(thing, dict):
            if isinstance(thing.get("__id__"), int | str):
                same.setdefault(thing["__id__"], []).append(thing)
            if (thing.get("__module__"), thing.get("__class__")) == ("fractions", "Fraction"):
                fractions.append(thing)
            pending += thing.values()
        elif isinstance(thing, list):
            pending += thing

    def every(node: dict[str, Any]) -> list[dict[str, Any]]:
        return [node, *same.get(node.get("__id__"), ())]

    for fraction in fractions:
        arguments = [part for node in every(fraction["content"]) for part in _contents(node, "TupleNode")]
        texts = [_contents(node, "JsonNode") for argument in arguments for node in every(argument)]
        if fraction["__loader__"] != "ConstructorFromReduceNode" or not all(map(_is_whole, texts)):
            raise CorruptModelError("a fraction in this file is not made of two whole numbers.")


def _contents(node: dict[str, Any], loader: str) -> Any:
    """What a part of this kind holds; no fraction that `save` wrote has a part of another kind."""
    if node["__loader__"] != loader:
        raise CorruptModelError("a fraction in this file is not made of two whole numbers.")
    return node["content"]


def _is_whole(text: str) -> bool:
    """Whether JSON holds a whole number, or the text of one or two: Python writes fractions in either way."""
    return re.fullmatch(r'-?[0-9]{1,4000}|"-?[0-9]{1,4000}(/[0-9]{1,4000})?"', text) is not None


# --- what compiled code walks -----------------------------------------------------------------------------------------


def _check_compiled(estimator: Any) -> None:
    """Refuse arrays that point outside themselves, where compiled code of scikit-learn or SciPy follows them unchecked.

    A crafted file could otherwise read foreign memory, hang or end the process when it predicts.
    """
    from scipy.sparse import issparse
    from sklearn.ensemble._forest import BaseForest
    from sklearn.ensemble._gb import BaseGradientBoosting
    from sklearn.ensemble._hist_gradient_boosting.predictor import TreePredictor
    from sklearn.neighbors._ball_tree import BallTree
    from sklearn.neighbors._base import NeighborsBase
    from sklearn.neighbors._kd_tree import KDTree
    from sklearn.svm._base import BaseLibSVM
    from sklearn.tree._tree import Tree

    for thing, columns in _walk(estimator, None, {}):
        if isinstance(thing, BaseForest | BaseGradientBoosting) and hasattr(thing, "estimators_"):
            # these hand their rows to their trees unchecked, so the trees must expect the same columns
            if any(tree.n_features_in_ != thing.n_features_in_ for tree in np.ravel(thing.estimators_)):
                raise CorruptModelError("a decision tree in this file expects other columns than its model.")
        elif isinstance(thing, Tree):
            state = thing.__getstate__()
            nodes, values = state["nodes"], state["values"]
            inner = nodes["left_child"] != -1
            _check_nodes(nodes["left_child"], nodes["right_child"], nodes["feature"], inner, columns)
            if not len(values) == len(nodes) == thing.node_count > 0 or (
                columns is not None and thing.n_features != columns
            ):
                raise CorruptModelError("a decision tree in this file does not fit its model.")
        elif isinstance(thing, TreePredictor):
            nodes = thing.nodes
            inner = nodes["is_leaf"] == 0
            _check_nodes(
                nodes["left"].astype(np.int64), nodes["right"].astype(np.int64), nodes["feature_idx"], inner, columns
            )
            sets = min(len(thing.raw_left_cat_bitsets), len(thing.binned_left_cat_bitsets))
            if np.any(nodes["bitset_idx"][inner & (nodes["is_categorical"] != 0)] >= sets):
                raise CorruptModelError("a decision tree in this file asks for categories that it does not have.")
        elif isinstance(thing, KDTree | BallTree):
            if not _neighbours_fit(thing, bounds=2 if isinstance(thing, KDTree) else 1):
                raise CorruptModelError("a tree of neighbours in this file has nodes or rows that point outside it.")
        elif isinstance(thing, NeighborsBase) and hasattr(thing, "classes_") and hasattr(thing, "_y"):
            if not _labels_fit(thing):
                raise CorruptModelError("a model of neighbours in this file has labels that do not fit its rows or classes.")
        elif isinstance(thing, BaseLibSVM) and hasattr(thing, "support_"):
            if not _svm_fits(thing):
                raise CorruptModelError("a support vector machine in this file has arrays that do not fit each other.")
        elif issparse(thing) and hasattr(thing, "check_format"):
            thing.check_format(full_check=True)


def _neighbours_fit(tree: Any, *, bounds: int) -> bool:
    """Whether the nodes of a KD-tree or Ball-tree hold rows that are there, and inner ones have both children.

    The children of node i are 2 i + 1 and 2 i + 2.
    """
    data, order, nodes, limits, _, _, n_nodes, *_, metric, weights = tree.__getstate__()
    start, end, inner = nodes["idx_start"], nodes["idx_end"], nodes["is_leaf"] == 0
    weighted = type(metric).__name__.startswith("Minkowski") and len(metric.__getstate__()[1]) > 0
    return bool(
        data.size
        and order.shape == (len(data),)
        and np.all((order >= 0) & (order < len(data)))
        and 0 < n_nodes == len(nodes)
        and limits.shape == (bounds, n_nodes, data.shape[1])
        and np.all((start >= 0) & (start <= end) & (end <= len(data)))
        and np.all(2 * np.flatnonzero(inner) + 2 < n_nodes)
        and metric is not None
        and (not weighted or metric.__getstate__()[1].shape == (data.shape[1],))
        and (weights is None or weights.shape == (len(data),))
    )


def _labels_fit(model: Any) -> bool:
    """Whether a classifier by neighbours has one label for each row, and knows each."""
    labels = np.asarray(model._y)
    known = model.classes_ if isinstance(model.classes_, list) else [model.classes_]
    columns = labels.reshape(len(labels), -1).T
    return bool(
        len(labels) == model._fit_X.shape[0]
        and len(columns) == len(known)
        and all(np.all((own >= 0) & (own < len(classes))) for own, classes in zip(columns, known, strict=True))
    )


def _svm_fits(model: Any) -> bool:
    """Whether the arrays of a support vector machine have the shapes that libsvm takes for granted."""
    support, counts, vectors = np.asarray(model.support_), np.asarray(model._n_support), model.support_vectors_
    classes, n = len(counts), len(support)
    pairs = classes * (classes - 1) // 2
    classifies = model._impl in ("c_svc", "nu_svc")
    within = callable(model.kernel) or model.kernel == "precomputed"  # support vectors are then rows of the fit
    probable = getattr(model, "_effective_probability", model.probability)  # which some versions have
    coefficients = model._dual_coef_
    return bool(
        model._impl == type(model)._impl
        and (classes >= 2 if classifies else classes == 2)
        and (not classifies or (np.all(counts >= 0) and counts.sum(dtype=np.int64) == n))
        and np.all((support >= 0) & (support < model.shape_fit_[0]))
        and (within or vectors.shape == (n, model.n_features_in_))
        and coefficients.shape == (classes - 1, n)
        and (not model._sparse or (coefficients.nnz == (classes - 1) * n and not within))
        and model._intercept_.shape == (pairs,)
        and model._probA.shape == model._probB.shape
        and (model._probA.shape == (pairs,) or (not probable and model._probA.shape == (0,)))
    )


def _check_nodes(left: Any, right: Any, feature: Any, inner: Any, columns: int | None) -> None:
    here = np.arange(len(left))[inner]
    forward = np.minimum(left[inner], right[inner]) > here  # children come after their parent, so every walk ends
    inside = np.maximum(left[inner], right[inner]) < len(left)
    known = (feature[inner] >= 0) & (feature[inner] < (np.inf if columns is None else columns))
    if not (len(left) and np.all(forward & inside & known)):
        raise CorruptModelError(
            "a decision tree in this file has nodes that point outside it or at columns that do not exist."
        )


def _walk(thing: Any, columns: int | None, seen: dict[int, Any]) -> Iterator[tuple[Any, int | None]]:
    """Every object reachable from `thing`, with the number of columns of the innermost model that holds it."""
    pending = [(thing, columns)]
    while pending:
        thing, columns = pending.pop()
        if id(thing) in seen or isinstance(thing, str | bytes | int | float | type(None) | type):
            continue
        seen[id(thing)] = thing
        yield thing, columns
        if isinstance(thing, dict):
            pending += [(value, columns) for value in thing.values()]
        elif isinstance(thing, list | tuple | set | frozenset) or (isinstance(thing, np.ndarray) and thing.dtype == object):
            pending += [(value, columns) for value in (thing.ravel() if isinstance(thing, np.ndarray) else thing)]
        attributes = _attributes(thing)
        width = attributes.get("n_features_in_", columns)
        pending += [(value, width) for value in attributes.values()]


def _attributes(thing: Any) -> dict[str, Any]:
    found = dict(getattr(thing, "__dict__", {}))
    for base in type(thing).__mro__:
        slots = base.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(thing, name):
                found[name] = getattr(thing, name)
    return found


# --- is the copy the same? --------------------------------------------------------------------------------------------

_ADVICE = "The page 'Saving and loading' of the documentation lists what can be saved."


def _named(estimator: Any, place: str) -> str:
    return f"{type(estimator).__name__}{place}"


def _cannot_save(estimator: Any, failure: Exception) -> TypeError:
    return TypeError(f"{_named(estimator, _culprit(estimator))} cannot be saved: {failure}. {_ADVICE}")


def _culprit(thing: Any) -> str:
    """The path of the innermost part that does not survive a round trip by itself."""
    for place, part in _parts(thing):
        if not _survives(part):
            return place + _culprit(part)
    return ""


def _survives(thing: Any) -> bool:
    import skops.io

    try:
        return _difference(thing, _own_copy(skops.io.dumps(thing))) is None
    except Exception:
        return False


def _own_copy(data: bytes) -> Any:
    """What is in a file that this process has just written; its types are the caller's own, so all are trusted."""
    import skops.io

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a class on its way out can still be saved
        return skops.io.loads(data, trusted=skops.io.get_untrusted_types(data=data))


def _parts(thing: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(thing, dict):
        yield from ((f"[{key!r}]", value) for key, value in thing.items())
    elif isinstance(thing, list | tuple):
        yield from ((f"[{index}]", value) for index, value in enumerate(thing))
    else:
        yield from ((f".{name}", value) for name, value in _attributes(thing).items())


def _difference(one: Any, other: Any, seen: dict[tuple[int, int], Any] | None = None) -> str | None:
    """Where two objects differ ("" for at the top), or None if they are the same in type and content, NaN equal to NaN."""
    seen = {} if seen is None else seen
    if one is other or (id(one), id(other)) in seen:
        return None
    if type(one) is not type(other):
        return ""
    seen[id(one), id(other)] = one, other
    if isinstance(one, str | bytes | bytearray | int | float | complex):
        return None if one == other or (one != one and other != other) else ""
    if isinstance(one, np.ndarray | np.generic):
        return _array_difference(np.asarray(one), np.asarray(other), seen)
    if isinstance(one, dict | list | tuple) and len(one) != len(other):
        return ""
    if isinstance(one, dict) and any(_difference(a, b, seen) is not None for a, b in zip(one, other, strict=True)):
        return ""
    if isinstance(one, set | frozenset):
        return None if one == other else ""
    if isinstance(one, type | types.FunctionType | types.BuiltinFunctionType | np.ufunc):
        return ""  # not the same object, so not the same function
    if hasattr(one, "tocoo"):
        first, second = one.tocoo(), other.tocoo()
        pairs = [(first.shape, second.shape), (first.data, second.data), (first.row, second.row), (first.col, second.col)]
        return "" if any(_difference(a, b, seen) is not None for a, b in pairs) else None
    for (place, a), (_, b) in zip(_parts_of_state(one), _parts_of_state(other), strict=True):
        inner = _difference(a, b, seen)
        if inner is not None:
            return place + inner
    return None


def _array_difference(one: Any, other: Any, seen: dict[tuple[int, int], Any]) -> str | None:
    if one.dtype != other.dtype or one.shape != other.shape:
        return ""
    if one.dtype.names is not None:
        return "" if any(_array_difference(one[name], other[name], seen) is not None for name in one.dtype.names) else None
    if one.dtype == object:
        return (
            "" if any(_difference(a, b, seen) is not None for a, b in zip(one.ravel(), other.ravel(), strict=True)) else None
        )
    if one.dtype.kind in "mM":
        one, other = one.view(np.int64), other.view(np.int64)
    return None if np.array_equal(one, other, equal_nan=one.dtype.kind in "fc") else ""


def _parts_of_state(thing: Any) -> list[tuple[str, Any]]:
    """What makes up an object, as its own `__getstate__` tells; compiled classes without one tell by `__reduce__`."""
    if isinstance(thing, dict | list | tuple):
        return list(_parts(thing))
    if isinstance(thing, functools.partial):
        return [(".func", thing.func), (".args", thing.args), (".keywords", thing.keywords)]
    state = thing.__getstate__() if hasattr(thing, "__getstate__") else _attributes(thing)
    if isinstance(state, tuple) and len(state) == 2 and isinstance(state[1], dict):  # slots
        state = {**(state[0] or {}), **state[1]}
    if isinstance(state, dict):
        return sorted(((f".{name}", value) for name, value in state.items()), key=lambda pair: pair[0])
    if state is None:
        try:
            state = thing.__reduce__()[1:]
        except Exception:
            return []  # nothing to compare: the types agree
    return [("", state)]
