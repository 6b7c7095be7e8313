"""One study at one silo: holds the silo's records and calls, for each tensor, the contribution that makes its sum.

It has two halves. `contribution` reads private records and returns noised integers on a public grid. Only the gate may
call it, after the charge. `open`, `solve` and `adopt` read opened sums alone, so all silos get the same results from
the same integers. `contributions` has the code for each tensor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from crypto.entropy import Entropy
from policies.documents.study import Study
from policies.plan.cost import Cohort
from policies.plan.release import Release, plan
from protos.messages import Place, Tensor
from silo_agent.data.reader import read_fitting_records
from silo_agent.data.records import Records
from silo_agent.data.split import split
from silo_agent.learning.contributions.contribution import Contribution, Integers, Opened, Setting
from silo_agent.learning.contributions.counts import Counts
from silo_agent.learning.contributions.encoder import EncoderUpdates
from silo_agent.learning.contributions.heads import Heads
from silo_agent.learning.contributions.metrics import Metrics
from silo_agent.learning.device import choose_device
from silo_agent.learning.errors import SumError
from silo_agent.learning.model import SharedModel
from silo_agent.learning.personal import PersonalModel
from silo_agent.learning.private.dpsgd import require_accountable
from silo_agent.logs import TrainingLog
from silo_agent.storage.folders import StudyFolder


class Learner:
    """One study at one silo. `folder` holds models, results and the training log."""

    def __init__(
        self,
        study: Study,
        data: Path,
        data_set: str,
        holdout: float,
        folder: Path,
        *,
        identified_by: Sequence[str],
        entropy: Entropy,
        personal_entropy: Entropy,
        device: str,
    ) -> None:
        """`entropy` feeds what leaves the silo, `personal_entropy` what stays. So neither can shift the other's draws.

        `data_set`, `holdout` and `identified_by` come from the policy and determine the two cohorts.

        Raises `Refused` if the training of the encoder's updates cannot be accounted for.
        """
        self._device = choose_device(device)
        require_accountable(study, self._device)
        self.study, self._folder, self._personal_entropy = study, folder, personal_entropy
        self._data, self._data_set, self._holdout = data, data_set, holdout
        self._identified_by = tuple(identified_by)
        self._records: tuple[Records, Records] | None = None
        setting = Setting(study, folder, entropy, self._device, TrainingLog(StudyFolder(folder).training_log))
        self._heads = Heads(setting)
        self._contributions: Mapping[Tensor, Contribution] = {
            Tensor.COUNTS: Counts(setting),
            Tensor.HEADS: self._heads,
            Tensor.ENCODER: EncoderUpdates(setting),
            Tensor.METRICS: Metrics(setting),
        }

    # --- private half ---------------------------------------------------------------------------------------------
    def load(self) -> None:
        """Read and split the records that fit the study. Raises `DataError` if the whole file cannot be used."""
        if self._records is None:
            records = read_fitting_records(self._data, self.study.data, self._identified_by)
            self._records = split(records, self._data_set, self._holdout)

    def cohort(self, name: Cohort) -> Records:
        """The records of the patients for training, or of the patients held out for evaluation. Raises `DataError`."""
        self.load()
        training, evaluation = self._records  # type: ignore[misc]  # load() has just filled it
        return training if name == "training" else evaluation

    def contribution(self, release: Release, place: Place, model: SharedModel, silos: int) -> Integers:
        """This silo's noised integers of a release. Only the gate calls this, after the charge."""
        contribution = self._contributions[Tensor(release.tensor)]
        integers = contribution.contribute(release, self.cohort(release.cohort), place, model, silos)
        if len(integers) != release.values:
            msg = f"{release.tensor} has {len(integers)} values; the study's plan says {release.values}"
            raise ValueError(msg)
        return integers

    def train_personal(self, model: SharedModel) -> None:
        """Train the personal model, which never leaves. It reads the shared model as a constant and feeds no upload.

        It is trained once for every round. A restarted process does not train a round again.
        """
        wanted = self.study.personal
        if wanted is None:
            return
        self.load()
        path = StudyFolder(self._folder).personal
        personal = PersonalModel.load(path) if path.exists() else PersonalModel.start(model)
        if path.exists() and personal.round >= model.round:
            return
        training = self.cohort("training")
        personal.train(model, training, wanted, entropy=self._personal_entropy, device=self._device).save(path)

    # --- public half ----------------------------------------------------------------------------------------------
    def check_sum(self, tensor: Tensor, total: Integers, silos: int) -> None:
        """Raise `SumError` if `silos` clamped contributions cannot have this sum."""
        if np.abs(total).max(initial=0) > silos * self._contributions[tensor].limit:
            msg = f"the opened {tensor} is no sum of {silos} contributions: a value exceeds the study's bound"
            raise SumError(msg)

    def open(self, tensor: Tensor, total: Integers, place: Place, model: SharedModel, silos: int) -> Opened:
        """The model and results that follow from the opened sum of a tensor."""
        return self._contributions[tensor].open(self._release(tensor, place), total, place, model, silos)

    def solve(self, total: Integers, place: Place, model: SharedModel, silos: int) -> Integers:
        """Heads from the opened sum of the heads, on the public grid."""
        return self._heads.solve(self._release(Tensor.HEADS, place), total, place, model, silos)

    def adopt(self, solution: Integers, total: Integers, place: Place, model: SharedModel, silos: int) -> SharedModel:
        """Take the solver's heads if this silo's own solution agrees. Raises `SolutionError` if it does not."""
        return self._heads.adopt(solution, self._release(Tensor.HEADS, place), total, place, model, silos=silos)

    def _release(self, tensor: Tensor, place: Place) -> Release:
        """The release that a sum was made from."""
        return plan(self.study).release(place.round, tensor)
