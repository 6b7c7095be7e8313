"""All rounds of a study on made-up patients of all silos together, in one array.

Guarantees: the releases are those of the study's plan, and the sums, the solver and the metrics are those of the
contributions that silos make and open, so a forecast and a real run cannot part. Three things are simpler than at the
silos. The sums are made of all patients at once. The noise on an opened sum is one normal draw of its known deviation.
The encoder moves along the gradient of all patients, with the noise of the silos' steps but without sampling and clip.

Nothing here is charged, and nothing is released: the records are made up.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from crypto.entropy import SystemEntropy
from crypto.rings.grid import to_grid
from policies.documents.study import Study
from policies.plan import shapes
from policies.plan.release import Release, plan
from protos.messages import Place, Tensor
from silo_agent.data.records import Records
from silo_agent.learning.dpsgd.schedule import learning_rate
from silo_agent.learning.encoder.encoder import Encoder, flatten, unflatten
from silo_agent.learning.figures.evaluation import Results
from silo_agent.learning.heads.domain_weights import domain_weights
from silo_agent.learning.heads.logits import head_logits
from silo_agent.learning.model.shared import SharedModel
from silo_agent.learning.releases.contribution import Integers, Setting
from silo_agent.learning.releases.counts import Counts, noised_counts
from silo_agent.learning.releases.heads import Heads
from silo_agent.learning.releases.metrics import MetricSums
from silo_agent.learning.releases.noising import SumGrid, summed
from silo_agent.logs import TrainingLog
from silo_agent.storage.folders import StudyFolder

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Walk:
    """One run of a study.

    `each`: patients that a made-up record stands for; `times`: how many times as many patients there are, of a study
    whose encoder divides by as many more. `folder` is empty, and keeps what a silo would keep.
    """

    study: Study
    folder: Path
    each: float = 1.0
    times: float = 1.0

    @property
    def _setting(self) -> Setting:
        log = TrainingLog(StudyFolder(self.folder).training_log)
        return Setting(self.study, self.folder, SystemEntropy(), torch.device("cpu"), log)

    def train(self, records: Records, rng: np.random.Generator) -> SharedModel:
        """The model after the last training round."""
        study, setting = self.study, self._setting
        heads, counts, silos = Heads(setting), Counts(setting), len(study.silos)
        model, planned = SharedModel.start(study), plan(study)
        for number in range(study.rounds + 1):
            place = Place(study.digest, number, 1)
            for release in planned.round(number):
                if release.tensor == Tensor.ENCODER:
                    model = self._moved(release, records, place, model, rng)
                    continue
                if release.tensor == Tensor.COUNTS:
                    total = self._total(release, counts.statistic(release, records), rng)
                    counts.open(release, total, place, model, silos)
                    continue
                total = self._total(release, heads.statistic(release, records, place, model), rng)
                solution = heads.solve(release, total, place, model, silos)
                model = heads.taken(solution, release, total, place, model, silos=silos)
        return model

    def measure(self, model: SharedModel, held_out: Records, rng: np.random.Generator) -> Results | None:
        """What would be published of the model, from the noised sums of held-out patients."""
        metrics, planned, silos = MetricSums(self._setting), plan(self.study), len(self.study.silos)
        release, place = planned.release(planned.last, Tensor.METRICS), Place(self.study.digest, planned.last, 1)
        total = self._total(release, metrics.statistic(release, held_out, model), rng)
        return metrics.open(release, total, place, model, silos).results

    def _total(self, release: Release, statistic: Floats, rng: np.random.Generator) -> Integers:
        """The opened sum of all silos: integers on the study's grid."""
        grid, silos = SumGrid.of(self.study), len(self.study.silos)
        _, sd = summed(self.study, np.zeros(0, np.int64), release, silos)
        noise = sd * rng.normal(size=len(statistic))
        return to_grid(self.each * self.times * statistic + noise, grid.step, grid.step * grid.limit * silos)

    def _moved(
        self, release: Release, records: Records, place: Place, model: SharedModel, rng: np.random.Generator
    ) -> SharedModel:
        """The model after a round's steps of the encoder, with the mean of the silos' noise."""
        study, plan = self.study, self.study.encoder
        encoder, silos = model.build_encoder(), len(study.silos)
        sealed = shapes.sealed_step(study, place.round)
        sd = plan.clip / (plan.batch_size * silos * self.times)
        if sealed is not None:
            noise = rng.normal(size=release.values) * sd * summed(study, np.zeros(0, np.int64), release, silos)[1]
            gradient = np.zeros(release.values)
            slope = self._slope(encoder, records, model, release)
            gradient[: len(slope)] = slope
            return model.with_step(gradient + noise, learning_rate(plan, sealed, study.encoder_steps), place.round)
        first = shapes.steps_before(study, place.round)
        steps = shapes.steps_before(study, study.rounds + 1)
        going = np.zeros(len(model.encoder))
        for number in range(first, first + release.count):
            slope = self._slope(encoder, records, model, release)
            noise = release.noise * sd * math.sqrt(silos) * rng.normal(size=len(slope))
            going = plan.momentum * going + slope + noise
            moved = flatten(encoder) - learning_rate(plan, number, steps) * going
            unflatten(encoder, moved.astype(np.float32))
        change = np.clip(flatten(encoder) - model.encoder, -plan.max_update, plan.max_update)
        return model.with_update(np.concatenate([change, np.zeros(len(model.prior))]).astype(np.float64), 1)

    def _slope(self, encoder: Encoder, records: Records, model: SharedModel, release: Release) -> Floats:
        """The gradient of all patients' weighted loss, as the silos' mean would have it, unclipped."""
        plan, family, silos = self.study.encoder, model.family, len(self.study.silos)
        weights = torch.tensor(domain_weights(noised_counts(self.folder), plan.weight_clip)[records.domains])
        domains, labels = torch.tensor(records.domains), torch.tensor(records.labels)
        encoder.zero_grad()
        phi = encoder(torch.tensor(np.asarray(records.inputs))).double()
        logits = head_logits(phi, torch.tensor(model.heads), domains, family.form.logits)
        share = self.each * release.sampling_rate / (plan.batch_size * silos)
        (share * (weights * family.losses(logits, labels)).sum()).backward()  # type: ignore[no-untyped-call]
        return np.concatenate([np.zeros(0), *(_gradient(own) for own in encoder.parameters())])


def _gradient(parameter: torch.nn.Parameter) -> NDArray[Any]:
    gradient = parameter.grad
    return np.zeros(parameter.numel()) if gradient is None else gradient.double().numpy().ravel()
