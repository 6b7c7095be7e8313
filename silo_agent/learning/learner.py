"""One study at one silo: holds the silo's records and calls, for each tensor, the contribution that makes its sum.

It has two halves. `contribution` reads private records and returns noised integers on a public grid. Only the gate may
call it, after the charge. `open`, `solve` and `adopt` read opened sums alone, so all silos get the same results from
the same integers. `contributions` has the code for each tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import numpy as np
import structlog

from policies.documents.study import Study
from policies.plan import terms
from policies.plan.cost import Cohort
from policies.plan.release import Plan, Release, plan
from policies.refusals import Reason, Refused
from protos.messages import Place, Tensor
from silo_agent.data.errors import DataError
from silo_agent.data.image_store import reserve
from silo_agent.data.images import Levels
from silo_agent.data.reader import empty_records
from silo_agent.data.records import Records
from silo_agent.data.sources.data_set import DataSet
from silo_agent.data.sources.snapshot import SnapshotStore
from silo_agent.learning.device import choose_device
from silo_agent.learning.dpsgd.training import require_accountable
from silo_agent.learning.each_record import chunk_rows
from silo_agent.learning.errors import SumError
from silo_agent.learning.made_up_records import made_up_records
from silo_agent.learning.model.shared import SharedModel
from silo_agent.learning.noise.draws import NO_DRAW, Draws, digest_of
from silo_agent.learning.noise.noised_sum import sum_sd
from silo_agent.learning.releases.contribution import Contribution, Integers, Opened, Setting
from silo_agent.learning.releases.counts import Counts, noised_counts
from silo_agent.learning.releases.encoder import EncoderUpdates
from silo_agent.learning.releases.encoder_steps import EncoderSteps
from silo_agent.learning.releases.heads import Heads
from silo_agent.learning.releases.metrics import MetricSums
from silo_agent.learning.releases.noising import SumGrid
from silo_agent.learning.releases.possible_sums import MostPatients
from silo_agent.learning.releases.whole_batches import require_public
from silo_agent.logs import TrainingLog
from silo_agent.storage.checked import read_checked
from silo_agent.storage.errors import LocalFileError
from silo_agent.storage.folders import StudyFolder

log = structlog.get_logger()


class Learner:
    """One study at one silo. `folder` holds models, results and the training log."""

    def __init__(
        self,
        study: Study,
        data_set: DataSet,
        folder: Path,
        *,
        draws: Draws,
        device: str,
        kept: SnapshotStore | None = None,
    ) -> None:
        """`draws` feeds what leaves the silo.

        `kept` keeps the rows of the first reading for all later ones; without it the data are as they are now.

        Raises `Refused` if the training of the encoder's updates cannot be accounted for.
        """
        self._device = choose_device(device)
        if terms.couples_records(study.encoder):
            require_public(study)
        else:
            require_accountable(study, self._device)
        self.study = study
        self._data_set = data_set
        self._kept, self._stamp = kept, None if kept is None else kept.stamp()
        self._records: tuple[Records, Records] | None = None
        self._room: Levels | None = None
        self._rehearsed = False
        self._draws = draws
        self._folder = StudyFolder(folder)
        self._setting = Setting(study, folder, NO_DRAW, self._device, TrainingLog(self._folder.training_log))
        self._heads = Heads(self._setting)
        self._kinds: Mapping[Tensor, Callable[[Setting], Contribution]] = {
            Tensor.COUNTS: Counts,
            Tensor.HEADS: Heads,
            Tensor.ENCODER: EncoderSteps if study.encoder.sealed_steps else EncoderUpdates,
            Tensor.METRICS: MetricSums,
        }
        self._contributions = {tensor: kind(self._setting) for tensor, kind in self._kinds.items()}

    @cached_property
    def _planned(self) -> Plan:
        return plan(self.study)

    # --- before any charge ----------------------------------------------------------------------------------------
    def rehearse(self) -> None:
        """Reserve the memory that the study's constants ask for, and compute every sum once on made-up records.

        No record has been read yet, so whatever fails here follows from public constants and from this machine. Raises
        `Refused` for want of memory, else what the computation raises. Does nothing if it was done before.
        """
        if self._rehearsed:
            return
        try:
            self._reserve()
            made_up = made_up_records(self.study, chunk_rows(self.study))
            start = SharedModel.fresh(self.study)
            for number in dict.fromkeys((self.study.head_rounds, self.study.rounds, self._planned.last, 0)):
                for release in self._planned.round(number):
                    contribution = self._contributions[Tensor(release.tensor)]
                    contribution.rehearse(release, made_up, Place(self.study.digest, number, 1), start)
        except MemoryError:
            msg = (
                "this silo's machine has too little memory for the study's images, inputs and layers; make them smaller"
            )
            raise Refused(Reason.MEMORY, msg) from None
        self._rehearsed = True

    def _reserve(self) -> Levels | None:
        """Room for the study's images, taken before the first of them is read."""
        image = self.study.data.image
        if image is not None and self._room is None:
            self._room = reserve(image, self.study.privacy.max_patients)
        return self._room

    def require_files(self, *, begun: bool) -> None:
        """Open what the coming rounds read from the disk. `begun`: whether this silo has finished a round of the study.

        Raises `LocalFileError` with file and fix. Whether it does follows from seals and digests alone. Whatever else
        fails may follow from a record, or from how many there are, and shows as in `read`.
        """
        try:
            if self._kept is not None:
                self._kept.require_whole(begun=begun)
            for path in self._folder.own_parts():
                read_checked(path)
        except LocalFileError:
            raise
        except Exception as fault:  # noqa: BLE001
            log.error("the study's files cannot be looked at", fault=type(fault).__name__)  # noqa: TRY400

    # --- private half ---------------------------------------------------------------------------------------------
    def read(self) -> None:
        """Read the records before they are needed. Raises `DataError` if the file has another form than the study says.

        Whatever else fails may follow from a record. It is not raised here, where an answer would show it, but when the
        records are needed: the gate then sends noise.
        """
        try:
            self.load()
        except DataError:
            raise
        except Exception as fault:  # noqa: BLE001
            log.error("the records cannot be read", fault=type(fault).__name__)  # noqa: TRY400

    def cohort(self, name: Cohort) -> Records:
        """The records of the patients for training, or of the patients held out for evaluation."""
        self.load()
        training, evaluation = self._records  # type: ignore[misc]  # load() has just filled it
        return training if name == "training" else evaluation

    def load(self) -> None:
        """Read and split the records that fit the study, anew after a withdrawal."""
        stamp = None if self._kept is None else self._kept.stamp()
        if self._records is None or stamp != self._stamp:
            self._records = None
            self._records = self._data_set.cohorts(self.study.data, kept=self._kept, room=self._reserve())
            self._stamp = stamp

    def contribution(self, release: Release, place: Place, model: SharedModel, silos: int) -> Integers:
        """This silo's noised integers of a release. Only the gate calls this, after the charge."""
        return self._contributed(release, self.cohort(release.cohort), place, model, silos)

    def noise_alone(self, release: Release, place: Place, model: SharedModel, silos: int) -> Integers:
        """The same of a silo without patients, with the noise that was charged. No record is read."""
        return self._contributed(release, empty_records(self.study.data), place, model, silos)

    def _contributed(self, release: Release, cohort: Records, place: Place, model: SharedModel, silos: int) -> Integers:
        source = self._draws.source(place, release.tensor, digest_of(cohort, model.digest, silos))
        contribution = self._kinds[Tensor(release.tensor)](replace(self._setting, entropy=source))
        integers = contribution.contribute(release, cohort, place, model, silos)
        if len(integers) != release.values:
            msg = f"{release.tensor} has {len(integers)} values; the study's plan says {release.values}"
            raise ValueError(msg)
        return integers

    # --- public half ----------------------------------------------------------------------------------------------
    def check_sum(
        self, tensor: Tensor, total: Integers, place: Place, silos: int, *, counted: int = 0, uncounted: int = 0
    ) -> None:
        """Raise `SumError` if `silos` honest contributions cannot have this sum, by what was opened before it.

        `counted`: silos in the sum of the counts, 0 for `silos`. `uncounted`: silos of this sum that were not in it.
        """
        contribution = self._contributions[tensor]
        if np.abs(total).max(initial=0) > silos * contribution.limit:
            msg = f"the opened {tensor} is no sum of {silos} contributions: a value exceeds the study's bound"
            raise SumError(msg)
        patients = self._counted_patients(place, silos, counted or silos, uncounted)
        contribution.require_possible(self._release(tensor, place), total, place, silos, patients)

    def _counted_patients(self, place: Place, silos: int, counted: int, uncounted: int) -> MostPatients:
        """At most so many patients are behind a sum of `silos` silos."""
        clamp, domains = float(self.study.privacy.max_patients), len(self.study.data.domains)
        if place.round == 0:
            return MostPatients.unknown(domains, silos, clamp)
        on, privacy = SumGrid.of(self.study), self.study.privacy
        release = self._planned.release(0, Tensor.COUNTS)
        sd = sum_sd(release, mode=privacy.mode, silos=counted, colluders=privacy.colluders, step=on.step)
        counts = noised_counts(self._folder.path)
        return MostPatients.of(counts, sd, counted * on.step, uncounted=uncounted, clamp=clamp)

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
        return self._planned.release(place.round, tensor)
