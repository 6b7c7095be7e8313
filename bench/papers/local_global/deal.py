"""MNIST dealt in two-class shards, and a new silo whose digits are turned."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from bench import idx
from bench.papers.local_global.network import Digits


@dataclass(frozen=True)
class Dealt:
    """The digits of each silo, to train on and to test with, and its two classes (silos, 2)."""

    training: list[Digits]
    test: list[Digits]
    classes: NDArray[np.int64]


def read(folder: Path) -> tuple[Digits, Digits]:
    """Training and test digits of MNIST's idx files."""
    train, test = (
        Digits(torch.tensor(images.reshape(len(labels), -1)), torch.tensor(labels.astype(np.int64)))
        for images, labels in (idx.read(folder, part) for part in idx.PARTS)
    )
    return train, test


def deal(train: Digits, test: Digits, seed: int, silos: int = 100) -> Dealt:
    """Each class in equal shards of training and of test digits, one of each to every silo that has the class.

    A silo has two different classes. All digits are dealt.
    """
    rng = np.random.default_rng([seed, 0])
    classes = _pairs(rng, silos)
    training, tests = (_shards(digits, classes, rng) for digits in (train, test))
    return Dealt(training, tests, classes)


def turned(digits: Digits, count: int, rng: np.random.Generator, quarters: int = 1) -> Digits:
    """Some digits of all classes, drawn and turned by quarters of a circle."""
    some = digits.of(rng.permutation(len(digits.labels))[:count])
    side = int(some.images.shape[1] ** 0.5)
    return Digits(torch.rot90(some.images.view(-1, side, side), quarters, (1, 2)).flatten(1).contiguous(), some.labels)


def _pairs(rng: np.random.Generator, silos: int) -> NDArray[np.int64]:
    """Two classes for each silo; every class is dealt equally often."""
    classes = rng.permutation(np.arange(2 * silos) % 10).reshape(silos, 2)
    while len(alike := np.flatnonzero(classes[:, 0] == classes[:, 1])):
        other = rng.integers(silos)
        classes[[alike[0], other], 1] = classes[[other, alike[0]], 1]
    return classes


def _shards(digits: Digits, classes: NDArray[np.int64], rng: np.random.Generator) -> list[Digits]:
    """The digits of each silo."""
    mine: list[list[NDArray[np.int64]]] = [[] for _ in classes]
    labels = digits.labels.numpy()
    for label in range(10):
        holders = np.flatnonzero((classes == label).any(axis=1))
        own = rng.permutation(np.flatnonzero(labels == label))
        for silo, shard in zip(holders, np.array_split(own, len(holders)), strict=True):
            mine[silo].append(shard)
    return [digits.of(np.concatenate(shards)) for shards in mine]
