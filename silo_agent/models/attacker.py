"""How well a protected attribute can be read off a frozen representation, by an attacker trained from scratch.

An adversary that a model was trained against proves nothing: the model may fool it alone. This attacker is a new
network, larger than the adversary, that sees the finished representation. It is judged on patients whom it was not
trained on, so an attacker that learns nothing has an AUC of one half however large it is. A network and not a logistic
regression, because what is hidden from every line may still stand in a curve.

The figure is exact and private: it is for people inside the hospital.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from silo_agent.learning.figures.evaluation import auc
from silo_agent.learning.terms.resumable import public_layers

_FOLDS: Final = 5
_HIDDEN: Final = 64
_RATE, _DECAY, _STEPS, _BATCH = 1e-2, 1e-2, 120, 256
_FEWEST: Final = 50
"""Patients below which nothing is said."""


def attacker_auc(
    representations: NDArray[np.float32],
    groups: NDArray[np.int64],
    patients: NDArray[np.int64] | None = None,
) -> float | None:
    """AUC of the attacker for groups (n,) from representations (n, k), cross-validated in five parts of the patients.

    `patients` (n,) says whose each record is; a patient's records stay in one part. With more than two groups it is the
    mean over the groups of each one's AUC against all others. None with fewer than 50 patients, or with one group.
    The result is a function of its arguments: folds, start and batches are drawn from a fixed seed.
    """
    whose = np.arange(len(groups)) if patients is None else np.unique(patients, return_inverse=True)[1].ravel()
    present, own = np.unique(groups, return_inverse=True)
    people = int(whose.max(initial=-1)) + 1
    if people < _FEWEST or len(present) < 2:  # noqa: PLR2004 - one group cannot be told from another
        return None
    drawn = np.random.default_rng(0)
    fold = (drawn.permutation(people) % _FOLDS)[whose]
    x = np.asarray(representations, np.float64)
    x = (x - x.mean(axis=0)) / np.maximum(x.std(axis=0), 1e-9)
    found = []
    for part in range(_FOLDS):
        said = scores(x[fold != part], own[fold != part], x[fold == part], len(present), drawn)
        parts = [auc(said[:, group], (own[fold == part] == group).astype(np.int64)) for group in range(len(present))]
        found += [one for one in parts if one is not None]
    return float(np.mean(found)) if found else None


def scores(
    x: NDArray[np.float64],
    groups: NDArray[np.int64],
    asked: NDArray[np.float64],
    count: int,
    drawn: np.random.Generator,
) -> NDArray[np.float64]:
    """Probability of every group (m, count) for `asked` (m, k), by a network trained from scratch on `x` (n, k).

    `groups` (n,) in [0, count). Columns are to have a deviation near 1. `drawn` draws the batches.
    """
    layers = public_layers((x.shape[1], _HIDDEN, _HIDDEN, count))
    optimizer = torch.optim.AdamW(layers.parameters(), lr=_RATE, weight_decay=_DECAY)
    inputs, wanted = torch.tensor(x, dtype=torch.float32), torch.tensor(groups)
    for _ in range(_STEPS):
        rows = torch.tensor(drawn.permutation(len(x))[:_BATCH])
        optimizer.zero_grad()
        torch.autograd.backward(functional.cross_entropy(_logits(layers, inputs[rows]), wanted[rows]))
        optimizer.step()
    with torch.no_grad():
        said = torch.softmax(_logits(layers, torch.tensor(asked, dtype=torch.float32)), dim=1)
    return said.double().numpy()


def _logits(layers: nn.ModuleList, x: torch.Tensor) -> torch.Tensor:
    *hidden, last = layers
    for layer in hidden:
        x = functional.relu(layer(x))
    logits: torch.Tensor = last(x)
    return logits
