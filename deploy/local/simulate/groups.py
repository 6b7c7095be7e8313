"""The virtual silos of a run: what they contribute together, and what they make of an opened sum.

They stand in one group in this process, or in several groups in several processes. Guarantees: sums are of integers and
each silo draws from a source of its own, so the groups change no bit of what a run gives.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Final, NamedTuple, Protocol, TypeVar

import numpy as np

from crypto.entropy import Entropy
from deploy.local.simulate.entropy import RepeatableEntropy
from deploy.local.simulate.silos import Silo
from policies.documents.study import Study
from policies.plan.cost import Cohort
from policies.plan.release import Release
from protos.messages import Place, Tensor
from silo_agent.data.records import Records
from silo_agent.data.sources.data_set import DataSet, Division
from silo_agent.learning.figures.evaluation import Results
from silo_agent.learning.learner import Learner
from silo_agent.learning.model import kept_parts
from silo_agent.learning.model.shared import SharedModel
from silo_agent.learning.noise.draws import FreshDraws
from silo_agent.learning.releases.contribution import Integers
from silo_agent.storage.folders import StudyFolder

_MEMORY: Final = Path("/dev/shm")  # noqa: S108  # a folder with a name of its own is made below it
FILES_IN: Final = "FEDWARD_SIMULATION_FILES"
"""Variable of the environment that says where groups keep their files. A process that is killed cannot remove its own,
so who begins it names a folder that it removes itself."""
T = TypeVar("T")


class VirtualSilo(Learner):
    """The learner of one virtual silo. Its records are handed in, and no file is read."""

    def __init__(self, study: Study, silo: Silo, folder: Path, entropy: Entropy, device: str) -> None:
        nowhere = DataSet(folder / "none", Division("simulated", 0.5, ()))
        super().__init__(study, nowhere, folder, draws=FreshDraws(entropy), device=device)
        self._silo = silo

    def cohort(self, name: Cohort) -> Records:
        """The records that were handed in."""
        return self._silo.training if name == "training" else self._silo.held_out


class Founding(NamedTuple):
    """What silos begin with. `all_silos` of the run take part; `leads` if the first of them is among these."""

    study: Study
    silos: Mapping[str, Silo]
    seed: int
    device: str
    all_silos: int
    leads: bool = True

    def parts(self, count: int) -> list[Founding]:
        """These silos in `count` groups at most, of about the same number. The first group leads."""
        names = list(self.silos)
        return [
            self._replace(silos={name: self.silos[name] for name in names[first::count]}, leads=first == 0)
            for first in range(min(count, len(names)))
        ]


class Group:
    """Silos in one process. Their files lie in a folder that `close` removes, in memory where there is such a place.

    A call's `model` is what all silos hold before it.
    """

    def __init__(self, founding: Founding) -> None:
        study, silos, seed, device, self._all, self._leads = founding
        self._rounds = study.rounds
        self._folder = tempfile.TemporaryDirectory(
            prefix="fedward-simulate-", dir=os.environ.get(FILES_IN) or memory_folder()
        )
        self._learners = {}
        for name, silo in silos.items():
            folder = Path(self._folder.name) / name
            folder.mkdir()
            self._learners[name] = VirtualSilo(study, silo, folder, RepeatableEntropy(seed, name), device)

    def contributed(self, release: Release, place: Place, model: SharedModel) -> Integers:
        """The sum of what these silos contribute."""
        total = np.zeros(release.values, np.int64)
        for learner in self._learners.values():
            total += learner.contribution(release, place, model, self._all)
        return total

    def opened(
        self, tensor: Tensor, total: Integers, place: Place, model: SharedModel
    ) -> tuple[SharedModel, Results | None] | None:
        """What the leading group's first silo makes of an opened sum, model and results; None of all other groups.

        All silos make the same of it. Each opens, because it keeps what it has opened for later rounds; only the first
        one checks the sum and solves. The metrics come last and are opened once: computing their intervals takes longer
        than anything else.
        """
        learners = list(self._learners.values())
        found = self._led(learners.pop(0), tensor, total, place, model) if self._leads else None
        if tensor is not Tensor.METRICS:
            for learner in learners:
                learner.open(tensor, total, place, model, self._all)
        return found

    def _led(
        self, first: Learner, tensor: Tensor, total: Integers, place: Place, model: SharedModel
    ) -> tuple[SharedModel, Results | None]:
        first.check_sum(tensor, total, place, self._all)
        opened = first.open(tensor, total, place, model, self._all)
        if opened.unsolved is None:
            return opened.model, opened.results
        solution = first.solve(opened.unsolved, place, opened.model, self._all)
        return first.adopt(solution, opened.unsolved, place, opened.model, self._all), opened.results

    def completed(self, model: SharedModel) -> dict[str, SharedModel]:
        """Each silo's complete model after the last round, by name."""
        root = Path(self._folder.name)
        return {
            name: kept_parts.completed(model, StudyFolder(root / name), self._rounds + 1) for name in self._learners
        }

    def close(self) -> None:
        """Remove the silos' files."""
        self._folder.cleanup()


class Groups(Protocol):
    """All groups of a run, wherever they are."""

    def ask(self, call: Callable[[Group], T]) -> list[T]:
        """Every group's answer, the leading group's first. `call` must be picklable, as a `methodcaller` is."""
        ...


Hosts = Callable[[Founding], AbstractContextManager[Groups]]
"""Gives silos a place for the length of a run."""


@contextmanager
def in_this_process(founding: Founding) -> Iterator[Groups]:
    """All silos in one group, here."""
    with closing(Group(founding)) as group:
        yield _OneGroup(group)


class _OneGroup:
    def __init__(self, group: Group) -> None:
        self._group = group

    def ask(self, call: Callable[[Group], T]) -> list[T]:
        return [call(self._group)]


def memory_folder() -> Path | None:
    """A folder whose files are in memory; None where there is none."""
    return _MEMORY if _MEMORY.is_dir() else None
