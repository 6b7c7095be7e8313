"""Gradient boosting of small trees, by scikit-learn, kept as plain arrays.

A file of Python objects could run code when it is read, so a model is kept as the arrays that its trees are made of.
scikit-learn has them under names of its own, which another version may change: `boosted` compares what the arrays
predict with what scikit-learn does, and raises if they differ.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from silo_agent.data.outcome import targets
from silo_agent.learning.alone.design import Design
from silo_agent.learning.outcomes.family import is_of_classes

Floats = NDArray[np.float64]
Places = NDArray[np.int64]
LEAVES: Final = (4, 12)
"""Leaves of a tree that are tried."""
ROUNDS: Final = (10, 20, 40, 80, 160)
"""Trees of each logit that are tried, of the same fit."""
_RATE: Final = 0.06
_IN_A_LEAF: Final = 20
_SHARE: Final = 20
"""A leaf has at least so many records, or one in so many of all if that is less."""
_CLOSE: Final = 1e-9
_COMPARED: Final = 1000


@dataclass(frozen=True, repr=False, eq=False)
class Trees:
    """Trees as arrays over all their nodes, (N,). Logits are `start` (R,) and, of each tree, the value of one leaf.

    A node is a leaf if `left` is its own place. Else a record goes `left` if its column `column` is at most `edge`, and
    `right` if not. `roots` (T, R) has where the trees begin.
    """

    start: Floats
    roots: Places
    column: Places
    edge: Floats
    left: Places
    right: Places
    value: Floats

    def logits(self, x: NDArray[np.float32]) -> Floats:
        """Logits (n, R) of columns (n, p)."""
        found = np.tile(self.start, (len(x), 1))
        rows = np.arange(len(x))
        for tree in self.roots:
            for logit, root in enumerate(tree):
                at = np.full(len(x), root)
                while True:
                    goes_left = x[rows, self.column[at]] <= self.edge[at]
                    further = np.where(goes_left, self.left[at], self.right[at])
                    if np.array_equal(further, at):
                        break
                    at = further
                found[:, logit] += self.value[at]
        return found

    def tensors(self) -> dict[str, NDArray[np.generic]]:
        """All that they are made of."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    @classmethod
    def parse(cls, tensors: dict[str, NDArray[np.generic]], rows: int, width: int) -> Self:
        """Inverse of `tensors`. Raises ValueError if they do not fit R = `rows` logits and p = `width` columns."""
        floats = {"start", "edge", "value"}
        if set(tensors) != {one.name for one in fields(cls)}:
            msg = "it has other tensors than trees"
            raise ValueError(msg)
        own: dict[str, NDArray[Any]] = {
            name: np.asarray(tensor, np.float64 if name in floats else np.int64) for name, tensor in tensors.items()
        }
        trees = cls(**own)
        nodes = len(trees.value)
        if (
            any(own[name].shape != (nodes,) for name in ("column", "edge", "left", "right", "value"))
            or trees.start.shape != (rows,)
            or trees.roots.ndim != 2  # noqa: PLR2004  # (T, R)
            or trees.roots.shape[1] != rows
        ):
            msg = "its tensors do not fit each other"
            raise ValueError(msg)
        trees._require_ends(width)
        return trees

    def _require_ends(self, width: int) -> None:
        """Raise ValueError if a record might go in a circle, or to a node or a column that is not there."""
        here, last = np.arange(len(self.value)), len(self.value) - 1
        leaf = self.left == here
        onward = (self.left > here) & (self.right > here) & (self.left <= last) & (self.right <= last)
        places = self.roots.size == 0 or (self.roots.min() >= 0 and self.roots.max() <= last)
        columns = not len(here) or (self.column.min() >= 0 and self.column.max() < max(width, 1))
        finite = np.isfinite(self.start).all() and np.isfinite(self.value).all() and not np.isnan(self.edge).any()
        if not ((leaf & (self.right == here)) | onward).all() or not places or not columns or not finite:
            msg = "it has a value that no tree has"
            raise ValueError(msg)


def boost(design: Design, leaves: int, trees: int) -> Any:
    """scikit-learn's model of so many trees for each logit. Every class must be there."""
    from sklearn.ensemble import (  # noqa: PLC0415  # who only predicts need not load it
        HistGradientBoostingClassifier,
        HistGradientBoostingRegressor,
    )

    plan = {
        "learning_rate": _RATE,
        "max_iter": trees,
        "max_leaf_nodes": leaves,
        "min_samples_leaf": max(min(_IN_A_LEAF, len(design.labels) // _SHARE), 2),
        "early_stopping": False,
        "random_state": 0,
    }
    if is_of_classes(design.family):
        return HistGradientBoostingClassifier(**plan).fit(design.x, design.labels, sample_weight=design.counted)
    return HistGradientBoostingRegressor(**plan).fit(design.x, targets(design.labels), sample_weight=design.counted)


def staged(model: Any, x: NDArray[np.float32], design: Design) -> list[Floats]:
    """Logits (n, R) after each number of trees in `ROUNDS`."""
    stages = model.staged_decision_function(x) if is_of_classes(design.family) else model.staged_predict(x)
    rows = design.family.form.logits
    return [np.asarray(own, np.float64).reshape(-1, rows) for at, own in enumerate(stages, 1) if at in ROUNDS]


def boosted(design: Design, leaves: int, trees: int) -> Trees:
    """Fit, and keep the trees as arrays. Raises RuntimeError if scikit-learn keeps its trees in another form."""
    model = boost(design, leaves, trees)
    found = _arrays(model, design.family.form.logits)
    some = design.x[:_COMPARED]
    asked = model.decision_function(some) if is_of_classes(design.family) else model.predict(some)
    if np.abs(found.logits(some) - np.reshape(asked, (len(some), -1))).max(initial=0.0) > _CLOSE:
        msg = "this version of scikit-learn keeps its trees in another form; install the one of the constraints file"
        raise RuntimeError(msg)
    return found


def _arrays(model: Any, rows: int) -> Trees:
    parts: dict[str, list[NDArray[Any]]] = {name: [] for name in ("column", "edge", "left", "right", "value")}
    roots, begin = list[list[int]](), 0
    for iteration in model._predictors:  # noqa: SLF001  # compared by `boosted`
        roots.append([])
        for tree in iteration:
            nodes = tree.nodes
            here = begin + np.arange(len(nodes))
            leaf = nodes["is_leaf"].astype(np.bool_)
            roots[-1].append(begin)
            parts["column"].append(np.where(leaf, 0, nodes["feature_idx"]).astype(np.int64))
            parts["edge"].append(np.where(leaf, 0.0, nodes["num_threshold"]))
            parts["left"].append(np.where(leaf, here, begin + nodes["left"].astype(np.int64)))
            parts["right"].append(np.where(leaf, here, begin + nodes["right"].astype(np.int64)))
            parts["value"].append(nodes["value"].astype(np.float64))
            begin += len(nodes)
    start = np.asarray(model._baseline_prediction, np.float64).reshape(rows)  # noqa: SLF001
    joined = {name: np.concatenate(own) for name, own in parts.items()}
    return Trees(start, np.array(roots, np.int64).reshape(-1, rows), **joined)
