"""Learners of one study in one process: contributions are summed as plain integers, without keys, ledger or network.

What it leaves out (charging, sealing, turns) has tests of its own; here is seen what learners compute, bit for bit.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from policies.documents.study import Study
from policies.plan.release import Release, plan
from protos.messages import Place, Tensor
from silo_agent.data.sources.data_set import DataSet, Division
from silo_agent.learning.figures.evaluation import Results
from silo_agent.learning.learner import Learner
from silo_agent.learning.model.shared import SharedModel
from silo_agent.learning.noise.draws import FreshDraws
from silo_agent.learning.personal.cross_validation import choose
from silo_agent.learning.personal.model import train_round
from silo_agent.learning.releases.contribution import Integers
from silo_agent.storage.folders import StudyFolder
from support.entropy import SeededEntropy

DATA_SET = "ward"
HOLDOUT = 0.25


def write_patients(
    path: Path,
    rng: np.random.Generator,
    slopes: NDArray[np.float64],
    *,
    patients: int,
    domains: Sequence[int] = (0, 1),
    label: int | None = None,
) -> Path:
    """A file for `support.studies.tiny_study`: illness follows a logistic law whose slopes (2, 2) are the domain's.

    `label` makes everybody ill or well; `domains` lists who is present at all.
    """
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["patient", "group", "age", "lactate", "ill"])
        for number in range(patients):
            group = int(rng.choice(domains))
            x = rng.uniform(-1, 1, 2)
            ill = int(rng.random() < 1 / (1 + np.exp(-x @ slopes[group]))) if label is None else label
            age, lactate = np.round((60 + 60 * x[0], 5 + 5 * x[1]), 4)
            writer.writerow([f"{path.stem}-{number}", "ab"[group], age, lactate, ill])
    return path


def write_kinds(path: Path, rng: np.random.Generator, slopes: NDArray[np.float64], *, patients: int) -> Path:
    """The same with one of C kinds of illness, 0 to C - 1, by a softmax law; slopes (2, C, 2) are the domains'."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["patient", "group", "age", "lactate", "ill"])
        for number in range(patients):
            group = int(rng.integers(2))
            x = rng.uniform(-1, 1, 2)
            odds = np.exp(slopes[group] @ x)
            kind = int(rng.choice(len(odds), p=odds / odds.sum()))
            age, lactate = np.round((60 + 60 * x[0], 5 + 5 * x[1]), 4)
            writer.writerow([f"{path.stem}-{number}", "ab"[group], age, lactate, kind])
    return path


@dataclass
class LocalFederation:
    """`models` holds every silo's model, `payloads` every contribution as it would have been sealed."""

    study: Study
    learners: Mapping[str, Learner]
    folder: Path
    personal: Mapping[str, SeededEntropy]
    """What feeds the personal models, so that they cannot shift the draws of what leaves."""
    models: dict[str, SharedModel] = field(default_factory=dict)
    payloads: dict[tuple[int, Tensor, str], Integers] = field(default_factory=dict)
    results: dict[str, Results] = field(default_factory=dict)

    @property
    def silos(self) -> int:
        """How many contribute to a sum."""
        return len(self.learners)

    @classmethod
    def gather(cls, study: Study, files: Mapping[str, Path], folder: Path, *, seed: int = 1, **given: Any) -> Self:
        """One learner per file; what leaves and what stays draw from sources of their own."""
        learners = {}
        for number, (silo, data) in enumerate(sorted(files.items())):
            home = folder / silo
            home.mkdir(parents=True, exist_ok=True)
            learners[silo] = Learner(
                study,
                DataSet(data, Division(DATA_SET, HOLDOUT, ("patient",))),
                home,
                draws=FreshDraws(SeededEntropy(100 * seed + number)),
                device="cpu",
            )
        personal = {silo: SeededEntropy(b"personal %d" % number) for number, silo in enumerate(learners)}
        return cls(study, learners, folder, personal, {silo: SharedModel.start(study) for silo in learners}, **given)

    def run(self) -> LocalFederation:
        """All rounds; the personal models are trained in between, as beside an agent, where the study has them."""
        for number in range(plan(self.study).last + 1):
            self.run_round(number)
            if 1 <= number <= self.study.rounds:
                for silo, learner in self.learners.items():
                    self._train_personal(silo, learner)
        return self

    def _train_personal(self, silo: str, learner: Learner) -> None:
        folder, model = StudyFolder(self.folder / silo), self.models[silo]
        entropy, plan = self.personal[silo], self.study.personal
        train_round(folder.personal, model, lambda: learner.cohort("training"), entropy=entropy)
        if plan is not None and model.round == self.study.rounds and not folder.choice.exists():
            choose({model.round: model}, learner.cohort("training"), plan, entropy=entropy).save(folder.choice)

    def run_round(self, number: int) -> None:
        """One round: every tensor is contributed, summed, opened; heads are solved by one and adopted by all."""
        place = Place(self.study.digest, number, 1)
        for release in plan(self.study).round(number):
            self._open(place, Tensor(release.tensor), self._sum(place, release))

    def _sum(self, place: Place, release: Release) -> Integers:
        given = [
            learner.contribution(release, place, self.models[silo], self.silos)
            for silo, learner in self.learners.items()
        ]
        self.payloads.update(
            {(place.round, Tensor(release.tensor), silo): g for silo, g in zip(self.learners, given, strict=True)}
        )
        return np.asarray(np.sum(given, axis=0), np.int64)

    def _open(self, place: Place, tensor: Tensor, total: Integers) -> None:
        solution = self._solution(place, total) if tensor is Tensor.HEADS else None
        for silo, learner in self.learners.items():
            learner.check_sum(tensor, total, place, self.silos)
            opened = learner.open(tensor, total, place, self.models[silo], self.silos)
            self.models[silo] = opened.model
            if opened.results is not None:
                self.results[silo] = opened.results
            assert (opened.unsolved is None) == (solution is None)
            if solution is not None:
                self.models[silo] = learner.adopt(solution, total, place, opened.model, self.silos)

    def _solution(self, place: Place, total: Integers) -> Integers:
        solver = sorted(self.learners)[place.round % len(self.learners)]
        return self.learners[solver].solve(total, place, self.models[solver], self.silos)
