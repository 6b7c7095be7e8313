"""What every contribution must provide: one half works on private records, the other on opened sums.

`contribute` reads a cohort and returns noised integers on a public grid. Only the gate may call it, through the
learner, after the charge. `open` reads opened sums alone, so all silos get the same results from the same integers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from crypto.entropy import Entropy
from policies.documents.study import Study
from policies.plan.release import Release
from protos.messages import Place
from silo_agent.data.records import Records
from silo_agent.learning.figures.evaluation import Results
from silo_agent.learning.model.shared import SharedModel
from silo_agent.learning.outcomes.family import Family
from silo_agent.learning.outcomes.registry import family_of_study
from silo_agent.learning.releases.possible_sums import MostPatients
from silo_agent.logs import TrainingLog

Integers = NDArray[np.int64]


@dataclass(frozen=True, repr=False, eq=False)
class Setting:
    """One study at one silo: what contributions need besides records and model.

    `folder` holds counts, results and local tables. `entropy` feeds everything that leaves the silo.
    """

    study: Study
    folder: Path
    entropy: Entropy
    device: torch.device
    log: TrainingLog

    @cached_property
    def family(self) -> Family:
        """The family of the study's outcomes."""
        return family_of_study(self.study)


@dataclass(frozen=True, repr=False, eq=False)
class Opened:
    """What follows from an opened sum: the model to go on with, and the tensor's own result.

    `unsolved` is the heads' sum, from which one silo solves the next heads. `results` are the metrics.
    """

    model: SharedModel
    unsolved: Integers | None = None
    results: Results | None = None


class Contribution(Protocol):
    """The code for one tensor's sum."""

    @property
    def limit(self) -> int:
        """The largest magnitude that one silo may add to a coordinate."""
        ...

    def contribute(self, release: Release, cohort: Records, place: Place, model: SharedModel, silos: int) -> Integers:
        """This silo's noised integers, (release.values,), drawn as `release` says. `silos`: how many are in the sum."""
        ...

    def rehearse(self, release: Release, cohort: Records, place: Place, model: SharedModel) -> None:
        """Compute the release on made-up records, draw no noise and keep nothing. Raises whatever goes wrong."""
        ...

    def require_possible(
        self, release: Release, total: Integers, place: Place, silos: int, patients: MostPatients
    ) -> None:
        """Raise `SumError` if `silos` honest contributions of so many patients cannot have this sum."""
        ...

    def open(self, release: Release, total: Integers, place: Place, model: SharedModel, silos: int) -> Opened:
        """The model and results after the sum of `silos` contributions, each drawn as `release` says."""
        ...
