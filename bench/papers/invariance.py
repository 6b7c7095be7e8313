"""Coloured MNIST at four silos with two environments each: FedAvg, federated IRM and PerInvFL.

A digit below five is the outcome, a quarter of the outcomes is wrong, and a colour agrees with the outcome more often
than the digit does: in 95 of 100 images of a silo's first environment and 75 of its second. In the test it agrees in
10, so whoever reads colours is right in training and wrong in the test. Three settings:

- shared rotation: all silos hold their digits upright, so that nothing tells an environment but its colours;
- personal rotation: each silo turns its digits by 15 degrees more than the one before;
- personal mark: digits are upright, and a mark beside them agrees with the outcome in 80 of 100 images at half of the
  silos, and disagrees in as many at the other half, in the test too. It is useful at every silo and useless on average.

The shared models come from FedWard's engine (`deploy.local.simulate`), the personal ones from its trainer, after every
round. All parameters were chosen on seeds from 100 on. Seeds 3 to 5 are reported, because seeds 0 to 2 had been seen
with another schedule.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.ndimage import rotate

from bench import idx
from bench.intervals import Interval
from bench.places import MNIST
from bench.table import Criterion, judge
from deploy.local.simulate.engine import simulate
from deploy.local.simulate.entropy import RepeatableEntropy
from deploy.local.simulate.silos import Cohorts, Silo, of_arrays
from policies.documents.study import Study
from silo_agent.data.records import Records
from silo_agent.learning.model.shared import SharedModel
from silo_agent.learning.personal.model import PersonalModel

SILOS: Final = ("east", "north", "south", "west")
DISAGREE: Final = (0.05, 0.25)
"""How often a colour disagrees with the outcome, by environment."""
TEST_DISAGREE: Final = 0.9
WRONG: Final = 0.25
MARK: Final = 0.8
ANGLE: Final = 15.0
PATCH: Final = 6
"""Inputs that all show the mark."""
EACH: Final = 6000
"""Training digits of a silo."""
_HELD_OUT: Final = 50_000
"""The first digit of the file that is only for the test."""
_SIDE: Final = 14
ROUNDS, STEPS = 12, 10
GAIN: Final = 4.0
"""Scale of the last layer at the start. With 1 representations are so short that heads of 0 leave the start late."""
AFTER: Final = 80
"""Steps before the penalty; by then the grey digits' shape is learned."""
ENCODER: Final[Mapping[str, Any]] = {"learning_rate": 2.0, "momentum": 0.9, "irm_after": AFTER}
PENALTY: Final = 300.0
NONE: Final = 1e-9
"""A penalty that weighs nothing: the same trainer without invariance."""
PERSONAL: Final[Mapping[str, Any]] = {
    "epochs": STEPS // 2,
    "batch_size": EACH // 2,
    "mmd": 0.0,
    "irm": PENALTY,
    "irm_after": AFTER,
}
SETTINGS: Final = ("shared rotation", "personal rotation", "personal mark")
OWN: Final[Mapping[str, Mapping[str, float]]] = {
    SETTINGS[0]: {"ditto": 2.0, "learning_rate": 1.0},
    SETTINGS[1]: {"ditto": 2.0, "learning_rate": 1.0},
    SETTINGS[2]: {"ditto": 0.03, "learning_rate": 2.0},
}
"""The pull to the shared model, and the personal model's rate: what is useful at one silo alone has to be let in."""
FEDAVG, IRM, PERINVFL = "FedAvg", "federated IRM", "PerInvFL"
ORACLE, CONSTANT = "oracle (grey)", "constant"
MOST_FEDAVG, LEAST_IRM = 30.0, 60.0


@dataclass(frozen=True, eq=False)
class PlainDigits:
    """Images (n, 28, 28) in [0, 1], and labels (n,)."""

    images: NDArray[np.float32]
    labels: NDArray[np.uint8]


@cache
def read_digits(folder: Path) -> PlainDigits:
    """MNIST's training file."""
    pixels, labels = idx.read(folder, "train")
    return PlainDigits(pixels.astype(np.float32) / 255.0, labels)


def records(digits: PlainDigits, rows: NDArray[np.int64], disagree: NDArray[np.float64], *, setting: str, silo: int,
            grey: bool, rng: np.random.Generator, environments: NDArray[np.int64]) -> Records:  # fmt: skip
    """Coloured digits of a silo: 392 pixels in two colours (grey: both alike), then the mark, 0 if there is none."""
    outcome = (digits.labels[rows] < 5) ^ (rng.random(len(rows)) < WRONG)
    red = outcome ^ (rng.random(len(rows)) < disagree)
    turned = digits.images[rows]
    if setting == SETTINGS[1] and silo:
        turned = rotate(turned, silo * ANGLE, axes=(2, 1), reshape=False, order=1)
    turned = turned[:, ::2, ::2]
    shares = np.full((2, len(rows)), 0.5) if grey else np.stack([red, ~red])
    pixels = (shares[:, :, None, None] * turned).transpose(1, 0, 2, 3).reshape(len(rows), -1)
    mark = np.zeros(len(rows))
    if setting == SETTINGS[2]:
        agrees = (rng.random(len(rows)) < MARK) ^ (silo % 2 == 1)
        mark = np.where(outcome ^ ~agrees, 1.0, -1.0)
    inputs = np.concatenate([pixels, np.repeat(mark[:, None], PATCH, axis=1)], axis=1)
    return of_arrays(inputs, outcome, np.zeros(len(rows)), environments=environments)


def cohorts(digits: PlainDigits, setting: str, seed: int, *, grey: bool) -> Cohorts:
    """The silos of a seed: their training digits, and the test as what they hold out."""
    rng = np.random.default_rng(seed)
    chosen = rng.permutation(_HELD_OUT)
    tests = np.arange(_HELD_OUT, len(digits.labels))
    by_silo = {}
    for place, name in enumerate(SILOS):
        own, test = chosen[place * EACH : (place + 1) * EACH], tests[place :: len(SILOS)]
        where, none = np.arange(EACH) % 2, np.zeros(len(test), np.int64)
        disagree, reversed_ = np.array(DISAGREE)[where], np.full(len(test), TEST_DISAGREE)
        train, held = (
            records(digits, rows, rate, setting=setting, silo=place, grey=grey, rng=rng, environments=e)
            for rows, rate, e in ((own, disagree, where), (test, reversed_, none))
        )
        by_silo[name] = Silo(train, held)
    return Cohorts(by_silo)


def study(seed: int, personal: Mapping[str, Any] | None = None, **encoder: Any) -> Study:
    """The study of a seed, which begins with weights of its own."""
    columns = [f"p{place}" for place in range(2 * _SIDE**2)] + [f"mark{place}" for place in range(PATCH)]
    return Study.model_validate(
        {
            "version": 1,
            "name": "invariance",
            "purpose": "Predictions that hold under other colours.",
            "silos": list(SILOS),
            "min_silos": len(SILOS),
            "data": {
                "label": {"column": "small", "positive": [1], "negative": [0]},
                "domain": [{"column": "all", "values": [0], "names": ["all"]}],
                "environment": {"column": "shop", "values": [0, 1]},
                "features": [{"column": name, "kind": "number", "minimum": -1, "maximum": 1} for name in columns],
            },
            "model": {"hidden": [64], "representation": 32, "gain": GAIN, "seed": seed},
            "recipe": "fedavg",
            "heads": {"pooled_rounds": ROUNDS, "domain_rounds": 0, "pooled_noise": 0, "domain_noise": 0},
            "encoder": {
                "steps": STEPS, "sampling_rate": 1, "batch_size": 1, "noise": 0, "sealing": "ring64",
                **ENCODER, **encoder,
            },
            "evaluation": {"noise": 0},
            "privacy": {"delta": 1e-5, "mode": "none", "count_noise": 0},
            "personal": None if personal is None else {**PERSONAL, **personal},
        }
    )  # fmt: skip


@dataclass
class StudyRun:
    """One study: the shared model, and a personal model of each silo if the study has them."""

    study: Study
    cohorts: Cohorts
    seed: int
    shared: SharedModel | None = None
    own: dict[str, PersonalModel] = field(default_factory=dict)

    def go(self) -> StudyRun:
        """Run all rounds."""
        simulate(self.study, self.cohorts, seed=self.seed, after_round=self._after)
        return self

    def _after(self, shared: SharedModel) -> None:
        self.shared = shared
        plan = self.study.personal
        if plan is None:
            return
        for name, silo in self.cohorts.silos.items():
            known = self.own.get(name) or PersonalModel.start(shared)
            entropy = RepeatableEntropy(self.seed, f"{name} {shared.round}")
            self.own[name] = known.train(shared, silo.training, plan, entropy=entropy)

    def accuracy(self, *, personal: bool = False) -> float:
        """Per cent of the test that is right, in the mean over the silos."""
        right = []
        for name, silo in self.cohorts.silos.items():
            model = self.own[name] if personal else self.shared
            if model is None:
                msg = "the run has not begun; call go() first"
                raise ValueError(msg)
            said = model.predict(silo.held_out.inputs, silo.held_out.domains)
            right.append(100.0 * float(np.mean(said.argmax(axis=1) == silo.held_out.labels)))
        return float(np.mean(right))


def of_seed(digits: PlainDigits, setting: str, seed: int, *, quick: bool = False) -> dict[str, float]:
    """Accuracy of every method in one setting on one seed."""
    coloured = cohorts(digits, setting, seed, grey=False)
    invariant = StudyRun(study(seed, OWN[setting], irm=PENALTY), coloured, seed).go()
    accuracies = {
        FEDAVG: StudyRun(study(seed, irm=NONE), coloured, seed).go().accuracy(),
        IRM: invariant.accuracy(),
        PERINVFL: invariant.accuracy(personal=True),
    }
    if not quick:
        grey = StudyRun(study(seed, irm=NONE), cohorts(digits, setting, seed, grey=True), seed)
        accuracies[ORACLE] = grey.go().accuracy()
    rates = [float(silo.held_out.labels.mean()) for silo in coloured.silos.values()]
    accuracies[CONSTANT] = 100.0 * float(np.mean([max(rate, 1.0 - rate) for rate in rates]))
    return accuracies


def main() -> int:
    """Run the seeds and judge."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--data", type=Path, default=MNIST, help="folder with MNIST's idx files")
    arguments.add_argument("--seeds", type=int, default=3)
    arguments.add_argument("--first", type=int, default=3, help="the first seed; parameters were chosen from 100 on")
    arguments.add_argument("--only", choices=SETTINGS, action="append", help="a setting, or several")
    arguments.add_argument("--quick", action="store_true", help="leave out what nothing is wanted of")
    given = arguments.parse_args()
    if not idx.there(given.data):
        print(f"there is no MNIST in {given.data}; give the folder of its idx files with DATA=<folder>")
        return 1
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    digits, measured = read_digits(given.data), {}
    for setting in given.only or SETTINGS:
        runs = []
        for seed in range(given.first, given.first + given.seeds):
            began = time.monotonic()
            runs.append(of_seed(digits, setting, seed, quick=given.quick))
            shown = ", ".join(f"{name} {value:.1f}" for name, value in runs[-1].items())
            print(f"{setting}, seed {seed}: {shown} ({time.monotonic() - began:.0f} s)", flush=True)
        measured[setting] = runs
    figures = [figure for setting, runs in measured.items() for figure in judged(setting, runs)]
    return judge("invariance", figures, measured)


def judged(setting: str, runs: list[dict[str, float]]) -> list[Criterion]:
    """The figures of a setting. What nothing is wanted of stands beside."""
    intervals = {name: Interval.of([run[name] for run in runs]) for name in runs[0]}
    gain = Interval.of([run[PERINVFL] - run[IRM] for run in runs])
    marked = setting == SETTINGS[2]
    wanted = {PERINVFL: (f"at least {LEAST_IRM:g} %", intervals[PERINVFL].mean >= LEAST_IRM)}
    if not marked:
        wanted[FEDAVG] = (f"below {MOST_FEDAVG:g} %", intervals[FEDAVG].mean < MOST_FEDAVG)
        wanted[IRM] = (f"at least {LEAST_IRM:g} %", intervals[IRM].mean >= LEAST_IRM)
    lines = []
    for name, value in intervals.items():
        words, met = wanted.get(name, ("shown", True))
        lines.append(Criterion(f"{setting}: {name}", words, _shown(value), met))
    words = "interval above 0" if marked else "interval not below 0"
    met = gain.least > 0 if marked else gain.most >= 0
    return [*lines, Criterion(f"{setting}: PerInvFL less federated IRM", words, _shown(gain), met)]


def _shown(interval: Interval) -> str:
    return f"{interval.mean:.1f} [{interval.least:.1f}, {interval.most:.1f}]"


if __name__ == "__main__":
    sys.exit(main())
