"""FedAvg, LG-FedAvg and training alone at the silos of one seed, with a count of what moves between them."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from typing import Final, Self

import numpy as np
import torch

from bench.papers.local_global.deal import Dealt
from bench.papers.local_global.network import Digits, VisitTraining, Weights, count, logits, lower, mean, train, upper

EVERY: Final = 5
"""Rounds between two looks at FedAvg's accuracy."""
_ROUND, _ALONE, _JOINED, _JOINED_ROUND = range(1, 5)
"""What a generator is for, after the seed."""
_AT_ONCE: Final = 500
"""Digits whose hidden layers stay in a core's cache."""


@dataclass(frozen=True)
class SiloSchedule:
    """Silos and rounds."""

    silos: int = 100
    drawn: int = 10
    rounds: int = 175
    """Of FedAvg."""
    joint: int = 85
    """Of LG-FedAvg, with all layers."""
    apart: int = 50
    """Of LG-FedAvg, with the top alone."""
    alone: int = 5
    """Epochs of whoever trains alone: as many as a silo has in the rounds apart, in the mean."""
    newcomer: int = 10
    """Epochs of the new silo."""
    together: int = 10
    """FedAvg's rounds with the new silo beside those drawn."""
    training: VisitTraining = field(default_factory=VisitTraining)


class Traffic:
    """Values that have moved."""

    def __init__(self, values: int = 0) -> None:
        self.values = values

    def send(self, part: Weights, times: int = 1) -> None:
        """A part of a model goes down to silos, or up from them."""
        self.values += times * count(part)


class Silos:
    """The silos' training, in processes of one thread each if there is more than one worker: the same bits either way.

    Use it in a `with`, which ends the processes.
    """

    def __init__(self, training: Sequence[Digits], how: VisitTraining, workers: int = 1) -> None:
        self.training, self.how = training, how
        self._pool = None
        if workers > 1:
            given = ([(digits.images.numpy(), digits.labels.numpy()) for digits in training], how)
            self._pool = ProcessPoolExecutor(workers, get_context("spawn"), _begin, given)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown()

    def train(self, visits: Sequence[Visit], epochs: int = 1) -> list[Weights]:
        """What each visit makes of its weights."""
        if self._pool is None:
            return [self.visit(visit, epochs) for visit in visits]
        sent = ((*visit[:2], [values.numpy() for values in visit[2]]) for visit in visits)
        trained = self._pool.map(_visited, sent, [epochs] * len(visits))
        return [[torch.from_numpy(values) for values in weights] for weights in trained]

    def visit(self, visit: Visit, epochs: int) -> Weights:
        """One of them, here."""
        silo, purpose, weights = visit
        return train(weights, self.training[silo], np.random.default_rng(purpose), self.how, epochs=epochs)


Visit = tuple[int, tuple[int, ...], Weights]
"""A silo, the seed of the order of its digits, and the weights that it begins with."""
_silos: Silos | None = None
"""Of a worker's process."""


def _begin(training: Sequence[tuple[np.ndarray, np.ndarray]], how: VisitTraining) -> None:
    global _silos  # noqa: PLW0603  # the digits go to a process once, not with each visit
    torch.set_num_threads(1)
    _silos = Silos([Digits(torch.from_numpy(images), torch.from_numpy(labels)) for images, labels in training], how)


def _visited(sent: tuple[int, tuple[int, ...], list[np.ndarray]], epochs: int) -> list[np.ndarray]:
    silo, purpose, weights = sent
    if _silos is None:
        msg = "a worker has no digits"
        raise RuntimeError(msg)
    trained = _silos.visit((silo, purpose, [torch.from_numpy(values) for values in weights]), epochs)
    return [values.numpy() for values in trained]


class SeedRun:
    """One seed: the same deal, first weights, drawn silos and order of digits for all methods."""

    def __init__(self, plan: SiloSchedule, dealt: Dealt, seed: int, silos: Silos | None = None) -> None:
        self.plan, self.dealt, self.seed = plan, dealt, seed
        self._silos = silos or Silos(dealt.training, plan.training)

    def fedavg(self, shared: Weights, first: int, last: int, traffic: Traffic, told: list[float]) -> Weights:
        """The shared model after the rounds from `first` to `last`; `told` gets its accuracy at every fifth."""
        for number in range(first, last + 1):
            silos = self._drawn(number)
            traffic.send(shared, self.plan.silos)
            models = self._round([shared] * len(silos), silos, number)
            for model in models:
                traffic.send(model)
            shared = mean(models, self._records(silos))
            if number % EVERY == 0:
                told.append(self.shared(shared))
        return shared

    def local_global(self, shared: Weights, traffic: Traffic) -> list[Weights]:
        """Each silo's model after the rounds apart. A silo that is not drawn gets the new top and keeps its layers."""
        lowers, top = [lower(shared)] * self.plan.silos, upper(shared)
        traffic.send(lower(shared), self.plan.silos)  # the top goes down in the first of these rounds
        for number in range(self.plan.joint + 1, self.plan.joint + self.plan.apart + 1):
            silos = self._drawn(number)
            traffic.send(top, self.plan.silos)
            visited = self._round([[*lowers[silo], *top] for silo in silos], silos, number)
            for silo, model in zip(silos, visited, strict=True):
                lowers[silo] = lower(model)
                traffic.send(upper(model))
            top = mean([upper(model) for model in visited], self._records(silos))
        traffic.send(top, self.plan.silos)
        return [[*own, *top] for own in lowers]

    def alone(self, begin: Weights) -> list[Weights]:
        """Each silo trains all layers by itself."""
        visits = [(silo, (self.seed, _ALONE, silo), begin) for silo in range(self.plan.silos)]
        return self._silos.train(visits, self.plan.alone)

    def join(self, begin: Weights, own: Digits, *, frozen: int = 0) -> Weights:
        """What a new silo makes of a model alone; the last `frozen` layers stay."""
        return train(begin, own, self._rng(_JOINED), self.plan.training, epochs=self.plan.newcomer, frozen=frozen)

    def together(self, shared: Weights, own: Digits) -> Weights:
        """FedAvg's model after rounds of the drawn silos and a new one."""
        for number in range(self.plan.rounds + 1, self.plan.rounds + self.plan.together + 1):
            silos = self._drawn(number)
            models = self._round([shared] * len(silos), silos, number)
            models.append(train(shared, own, self._rng(_JOINED_ROUND, number), self.plan.training))
            shared = mean(models, [*self._records(silos), len(own.labels)])
        return shared

    def local(self, models: Sequence[Weights]) -> float:
        """Local test: per cent right of a silo's own test digits by its own model, in the mean over silos."""
        return float(np.mean([right(model, digits) for model, digits in zip(models, self.dealt.test, strict=True)]))

    def shared(self, model: Weights) -> float:
        """Local test of a model that all silos share."""
        return self.local([model] * self.plan.silos)

    def outputs(self, models: Sequence[Weights]) -> list[torch.Tensor]:
        """Logits of each silo's model for its own test digits."""
        return [logits(model, digits.inputs()) for model, digits in zip(models, self.dealt.test, strict=True)]

    def _drawn(self, number: int) -> list[int]:
        order = self._rng(_ROUND, number).permutation(self.plan.silos)
        return [int(silo) for silo in order[: self.plan.drawn]]

    def _round(self, models: Sequence[Weights], silos: Sequence[int], number: int) -> list[Weights]:
        """Each silo trains its model for one epoch."""
        visits = zip(silos, models, strict=True)
        return self._silos.train([(silo, (self.seed, _ROUND, number, silo), model) for silo, model in visits])

    def _records(self, silos: Sequence[int]) -> list[int]:
        return [len(self.dealt.training[silo].labels) for silo in silos]

    def _rng(self, *purpose: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, *purpose])


def right(model: Weights, digits: Digits) -> float:
    """Per cent of the digits that are recognised."""
    return 100.0 * float((logits(model, digits.inputs()).argmax(dim=1) == digits.labels).float().mean())


def right_together(models: Sequence[Weights], digits: Digits) -> float:
    """Per cent of the digits that the mean of the models' probabilities recognises."""
    batches = torch.split(digits.inputs(), _AT_ONCE)
    said = torch.zeros(len(digits.labels), models[0][-1].numel())
    for model in models:
        said += torch.cat([torch.softmax(logits(model, inputs), dim=1) for inputs in batches])
    return 100.0 * float((said.argmax(dim=1) == digits.labels).float().mean())
