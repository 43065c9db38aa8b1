"""Refuse arrays of a model file that point outside themselves, where compiled code would follow
them unchecked.

A crafted file could otherwise read foreign memory, hang or end the process when it predicts with
scikit-learn or SciPy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from dco.foundations.arrays import Bools, Integers
from dco.foundations.errors import CorruptModelError


def check_compiled(estimator: Any) -> None:
    """Refuse any part of an estimator that is not what compiled code takes for granted."""
    checks = _checks()
    for part, columns in walk(estimator):
        for kinds, fits, what in checks:
            if isinstance(part, kinds) and not fits(part, columns):
                raise CorruptModelError(f"a {what}.")
        if hasattr(part, "check_format") and hasattr(part, "indptr"):
            part.check_format(full_check=True)


def _checks() -> list[tuple[Any, Callable[[Any, int | None], bool], str]]:
    """Which check is for which types, and what is wrong where it fails."""
    from sklearn.ensemble._forest import BaseForest
    from sklearn.ensemble._gb import BaseGradientBoosting
    from sklearn.ensemble._hist_gradient_boosting.predictor import TreePredictor
    from sklearn.neighbors._ball_tree import BallTree
    from sklearn.neighbors._base import NeighborsBase
    from sklearn.neighbors._kd_tree import KDTree
    from sklearn.svm._base import BaseLibSVM
    from sklearn.tree._tree import Tree

    nodes = (
        "decision tree in this file has nodes that point outside it or at columns that do not exist"
    )
    return [
        (
            BaseForest | BaseGradientBoosting,
            _members_fit,
            "decision tree in this file expects other columns than its model",
        ),
        (Tree, _tree_fits, nodes),
        (TreePredictor, _boosted_tree_fits, nodes),
        (
            KDTree | BallTree,
            _neighbours_fit,
            "tree of neighbours in this file has nodes or rows that point outside it",
        ),
        (
            NeighborsBase,
            _labels_fit,
            "model of neighbours in this file has labels that do not fit its rows or classes",
        ),
        (
            BaseLibSVM,
            _svm_fits,
            "support vector machine in this file has arrays that do not fit each other",
        ),
    ]


def _members_fit(model: Any, _: int | None) -> bool:
    """Forests hand their rows to their trees unchecked, so the trees must expect the same
    columns.
    """
    trees = np.ravel(getattr(model, "estimators_", []))
    return all(tree.n_features_in_ == model.n_features_in_ for tree in trees)


def _tree_fits(tree: Any, columns: int | None) -> bool:
    state = tree.__getstate__()
    nodes, left = state["nodes"], state["nodes"]["left_child"]
    return (
        nodes_fit(left, nodes["right_child"], nodes["feature"], inner=left != -1, columns=columns)
        and len(state["values"]) == len(nodes) == tree.node_count
        and columns in (None, tree.n_features)
    )


def _boosted_tree_fits(tree: Any, columns: int | None) -> bool:
    nodes = tree.nodes
    left, right, inner = (
        nodes["left"].astype(np.int64),
        nodes["right"].astype(np.int64),
        nodes["is_leaf"] == 0,
    )
    sets = min(len(tree.raw_left_cat_bitsets), len(tree.binned_left_cat_bitsets))
    known = nodes["bitset_idx"][inner & (nodes["is_categorical"] != 0)] < sets
    return nodes_fit(left, right, nodes["feature_idx"], inner=inner, columns=columns) and bool(
        known.all()
    )


def nodes_fit(
    left: Integers, right: Integers, feature: Any, *, inner: Bools, columns: int | None
) -> bool:
    """Whether the children of inner nodes are there and come after their parent (so every walk
    ends), and so do columns.
    """
    here = np.arange(len(left))[inner]
    forward = np.minimum(left[inner], right[inner]) > here
    inside = np.maximum(left[inner], right[inner]) < len(left)
    known = (feature[inner] >= 0) & (feature[inner] < (np.inf if columns is None else columns))
    return bool(len(left) and np.all(forward & inside & known))


def _neighbours_fit(tree: Any, _: int | None) -> bool:
    """Nodes hold rows that are there, and inner ones have both children: 2 i + 1 and 2 i + 2 of
    node i.
    """
    bounds = 2 if type(tree).__name__.startswith("KD") else 1
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


def _labels_fit(model: Any, _: int | None) -> bool:
    if not hasattr(model, "classes_") or not hasattr(model, "_y"):
        return True
    labels = np.asarray(model._y)
    known = model.classes_ if isinstance(model.classes_, list) else [model.classes_]
    columns = labels.reshape(len(labels), -1).T
    return bool(
        len(labels) == model._fit_X.shape[0]
        and len(columns) == len(known)
        and all(
            np.all((own >= 0) & (own < len(classes)))
            for own, classes in zip(columns, known, strict=True)
        )
    )


def _svm_fits(model: Any, _: int | None) -> bool:
    if not hasattr(model, "support_"):
        return True
    support, counts, vectors = (
        np.asarray(model.support_),
        np.asarray(model._n_support),
        model.support_vectors_,
    )
    classes, n = len(counts), len(support)
    pairs = classes * (classes - 1) // 2
    classifies = model._impl in ("c_svc", "nu_svc")
    # support vectors are then rows of the fit
    within = callable(model.kernel) or model.kernel == "precomputed"
    # which some versions have
    probable = getattr(model, "_effective_probability", model.probability)
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


def walk(estimator: Any) -> Iterator[tuple[Any, int | None]]:
    """Every object reachable from an estimator, with the number of columns of the innermost model
    that holds it.
    """
    pending: list[tuple[Any, int | None]] = [(estimator, None)]
    seen: dict[int, Any] = {}
    while pending:
        thing, columns = pending.pop()
        if id(thing) in seen or isinstance(thing, str | bytes | int | float | type(None) | type):
            continue
        seen[id(thing)] = thing
        yield thing, columns
        if isinstance(thing, dict):
            pending += [(value, columns) for value in thing.values()]
        elif isinstance(thing, list | tuple | set | frozenset) or (
            isinstance(thing, np.ndarray) and thing.dtype == object
        ):
            pending += [
                (value, columns)
                for value in (thing.ravel() if isinstance(thing, np.ndarray) else thing)
            ]
        held = attributes(thing)
        pending += [(value, held.get("n_features_in_", columns)) for value in held.values()]


def attributes(thing: Any) -> dict[str, Any]:
    """What an object holds, in its dictionary and in slots."""
    found = dict(getattr(thing, "__dict__", {}))
    for base in type(thing).__mro__:
        slots = base.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(thing, name):
                found[name] = getattr(thing, name)
    return found
