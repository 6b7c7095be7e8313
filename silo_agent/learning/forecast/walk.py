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
from policies.plan.release import Release, plan
from protos.messages import Place, Tensor
from silo_agent.data.records import Records
from silo_agent.learning.contributions.contribution import Integers, Setting
from silo_agent.learning.contributions.counts import Counts, noised_counts
from silo_agent.learning.contributions.drawing import Grid, summed
from silo_agent.learning.contributions.heads import Heads
from silo_agent.learning.contributions.metrics import Metrics
from silo_agent.learning.encoder.encoder import flatten, unflatten
from silo_agent.learning.evaluation.evaluation import Results
from silo_agent.learning.heads.domain_weights import domain_weights
from silo_agent.learning.model import SharedModel
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
                    model = self._moved(release, records, model, rng)
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
        metrics, planned, silos = Metrics(self._setting), plan(self.study), len(self.study.silos)
        release, place = planned.release(planned.last, Tensor.METRICS), Place(self.study.digest, planned.last, 1)
        total = self._total(release, metrics.statistic(release, held_out, model), rng)
        return metrics.open(release, total, place, model, silos).results

    def _total(self, release: Release, statistic: Floats, rng: np.random.Generator) -> Integers:
        """The opened sum of all silos: integers on the study's grid."""
        grid, silos = Grid.of(self.study), len(self.study.silos)
        _, sd = summed(self.study, np.zeros(0, np.int64), release, silos)
        noise = sd * rng.normal(size=len(statistic))
        return to_grid(self.each * self.times * statistic + noise, grid.step, grid.step * grid.limit * silos)

    def _moved(self, release: Release, records: Records, model: SharedModel, rng: np.random.Generator) -> SharedModel:
        """The model after a round's steps of the encoder, with the mean of the silos' noise."""
        silos, settings = len(self.study.silos), self.study.encoder
        encoder, family = model.build_encoder(), model.family
        weights = torch.tensor(domain_weights(noised_counts(self.folder), settings.weight_clip)[records.domains])
        own = torch.tensor(model.heads[records.domains]).view(len(records), family.form.logits, -1)
        inputs, labels = torch.tensor(np.asarray(records.inputs)), torch.tensor(records.labels)
        share = self.each * release.sampling_rate / (settings.batch_size * silos)
        sd = release.noise * settings.clip / (settings.batch_size * math.sqrt(silos) * self.times)
        for _ in range(release.count):
            encoder.zero_grad()
            phi = encoder(inputs).double()
            logits = (own[:, :, :-1] * phi[:, None, :]).sum(dim=2) + own[:, :, -1]
            (share * (weights * family.losses(logits, labels)).sum()).backward()  # type: ignore[no-untyped-call]
            slope = np.concatenate([np.zeros(0), *(_gradient(own) for own in encoder.parameters())])
            moved = flatten(encoder) - settings.learning_rate * (slope + sd * rng.normal(size=len(slope)))
            unflatten(encoder, moved.astype(np.float32))
        change = np.clip(flatten(encoder) - model.encoder, -settings.max_update, settings.max_update)
        return model.with_update(np.concatenate([change, np.zeros(len(model.prior))]).astype(np.float64), 1)


def _gradient(parameter: torch.nn.Parameter) -> NDArray[Any]:
    found = parameter.grad
    return np.zeros(parameter.numel()) if found is None else found.double().numpy().ravel()
