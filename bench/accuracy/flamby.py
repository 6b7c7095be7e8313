"""FLamby's recipe for Fed-Heart-Disease: which rows and features, which split, which pooled logistic regression.

Ogier du Terrail et al. 2022, `flamby/datasets/fed_heart_disease`; every choice is theirs, also where one would choose
otherwise (the pooled model is tested on features that each centre standardised by itself, and what they file under AUC
is the accuracy). Guarantees that `own_split` is scikit-learn's `train_test_split` with their seed. Adapting the recipe
to another split of the same rows is the caller's choice (`Split`).
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

CENTRES: Final = ("cleveland", "hungarian", "switzerland", "va")
SEEDS: Final = (42, 43, 44, 45, 46)
_DROPPED: Final = (10, 11, 12)
"""slope, ca, thal: most centres did not record them."""
_LABEL: Final = 13
_CATEGORIES: Final = {2: (1.0, 2.0, 3.0, 4.0), 6: (0.0, 1.0, 2.0)}
"""cp and restecg, by place among the columns kept; the first value is the one that dummies leave out."""
_SPLIT_SEED: Final = 43
_TRAIN: Final = 0.66
_EPOCHS, _BATCH, _RATE = 50, 4, 1e-3
_STRATIFIED: Final = 2
"""A class with no more than this many rows keeps a centre from being stratified."""

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Centre:
    """The rows of one file that have all ten features."""

    features: NDArray[np.float32]
    """(n, 13): numbers, then dummies of cp and restecg."""
    labels: NDArray[np.int64]
    """(n,), 1 if the diagnosis is above 0."""
    rows: NDArray[np.int64]
    """(n,): place of each row among all rows of the file, from 0."""


def read_centre(path: Path) -> Centre:
    """Read `processed.*.data`, without the rows in which one of the ten features is missing."""
    with path.open(encoding="utf-8", newline="") as file:
        table = [row for row in csv.reader(file) if row]
    kept = [i for i in range(_LABEL + 1) if i not in _DROPPED]
    whole = [i for i, row in enumerate(table) if all(row[c] != "?" for c in kept)]
    values = np.array([[float(table[i][c]) for c in kept] for i in whole])
    columns = [values[:, c] for c in range(values.shape[1] - 1) if c not in _CATEGORIES]
    columns += [values[:, c] == code for c, codes in _CATEGORIES.items() for code in codes[1:]]
    return Centre(
        np.column_stack(columns).astype(np.float32),
        (values[:, -1] > 0).astype(np.int64),
        np.array(whole, np.int64),
    )


def own_split(labels: NDArray[np.int64]) -> Mask:
    """FLamby's training rows of one centre (n,): 66 %, stratified if both classes have more than two rows."""
    total = len(labels)
    training, testing = int(np.floor(_TRAIN * total)), int(np.ceil((1 - _TRAIN) * total))
    # scikit-learn's own generator and order of draws, so that the rows are the same.
    random = np.random.RandomState(_SPLIT_SEED)
    counts = np.bincount(labels, minlength=2)
    mask = np.zeros(total, bool)
    if counts.min() <= _STRATIFIED:
        mask[random.permutation(total)[testing : testing + training]] = True
        return mask
    wanted = _approximate_mode(counts, training, random)
    _approximate_mode(counts - wanted, testing, random)
    for label, count in enumerate(wanted):
        members = np.flatnonzero(labels == label)
        mask[members[random.permutation(len(members))[:count]]] = True
    return mask


def _approximate_mode(
    counts: NDArray[np.int64],
    draws: int,
    random: np.random.RandomState,
) -> NDArray[np.int64]:
    """Draws per class in proportion to `counts`; the largest remainders get one more, ties are drawn."""
    exact = counts / counts.sum() * draws
    floored = np.floor(exact)
    remainders = exact - floored
    missing = int(draws - floored.sum())
    for value in np.sort(np.unique(remainders))[::-1]:
        if missing == 0:
            break
        tied = np.flatnonzero(remainders == value)
        chosen = random.choice(tied, size=min(len(tied), missing), replace=False)
        floored[chosen] += 1
        missing -= len(chosen)
    return np.asarray(floored, np.int64)


def pooled_accuracies(centres: Sequence[Centre], training: Sequence[Mask], seed: int) -> NDArray[np.float64]:
    """Accuracy in per cent on each centre's other rows of the pooled logistic regression, as FLamby measures it."""
    together = np.concatenate([c.features for c in centres])
    chosen = np.concatenate(training)
    labels = np.concatenate([c.labels for c in centres])
    weights, bias = _fit(_standardised(together, chosen)[chosen], labels[chosen], seed)
    accuracies = []
    for centre, mask in zip(centres, training, strict=True):
        logits = _standardised(centre.features, mask)[~mask] @ weights + bias
        accuracies.append(100.0 * float(np.mean((logits > 0) == (centre.labels[~mask] > 0))))
    return np.array(accuracies)


def _standardised(features: NDArray[np.float32], training: Mask) -> NDArray[np.float32]:
    seen = features[training]
    return np.asarray((features - seen.mean(axis=0)) / (seen.std(axis=0, ddof=1) + np.float32(1e-9)), np.float32)


def _fit(features: NDArray[np.float32], labels: NDArray[np.int64], seed: int) -> tuple[NDArray[np.float32], float]:
    """Adam 1e-3, batches of four, 50 epochs."""
    torch.manual_seed(seed)
    layer = torch.nn.Linear(features.shape[1], 1)
    optimizer = torch.optim.Adam(layer.parameters(), lr=_RATE)
    x, y = torch.tensor(features), torch.tensor(labels, dtype=torch.float32)
    for _ in range(_EPOCHS):
        order = torch.randperm(len(x))
        for start in range(0, len(x), _BATCH):
            batch = order[start : start + _BATCH]
            optimizer.zero_grad()
            logits = layer(x[batch])[:, 0]
            loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, y[batch])
            torch.autograd.backward(loss)
            optimizer.step()
    return layer.weight.detach()[0].numpy(), layer.bias.item()
