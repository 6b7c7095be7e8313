"""Encoder, one step a round: the silos' clipped gradients, summed over all patients and released as heads are.

Every silo moves the shared encoder by the same opened sum, so no silo has a model of its own, and momentum is public
state. docs/design/noise.md, "Sealed steps".
"""

from __future__ import annotations

import numpy as np

from crypto.rings.grid import from_grid
from crypto.rings.rings import ring_of
from policies.plan import shapes
from policies.plan.release import Release
from protos.messages import Place
from silo_agent.data.records import Records
from silo_agent.learning.dpsgd.schedule import learning_rate
from silo_agent.learning.dpsgd.training import SEALED_NORM, Training, sum_gradients
from silo_agent.learning.heads.domain_weights import domain_weights
from silo_agent.learning.model.shared import SharedModel
from silo_agent.learning.releases import noising
from silo_agent.learning.releases.contribution import Integers, Opened, Setting
from silo_agent.learning.releases.counts import noised_counts
from silo_agent.learning.releases.noising import SumGrid, draw
from silo_agent.learning.releases.possible_sums import MostPatients


class EncoderSteps:
    """Clipped gradients of the encoder and of the tables that are averaged with it, summed over all silos."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        study = setting.study
        self.limit = ring_of(study.encoder.sealing).limit(len(study.silos))
        self._grid = SumGrid(1.0 / SEALED_NORM, float(study.privacy.max_patients), self.limit)

    def contribute(self, release: Release, cohort: Records, place: Place, model: SharedModel, silos: int) -> Integers:
        """This silo's share of one step."""
        setting, plan = self._setting, self._setting.study.encoder
        training = Training(
            encoder=model.view_encoder(),
            heads=model.heads,
            records=cohort,
            plan=plan,
            release=release,
            family=setting.family,
            domain_weights=domain_weights(noised_counts(setting.folder), plan.weight_clip),
            prior=model.build_prior(),
            device=setting.device,
        )
        total = sum_gradients(training, entropy=setting.entropy)
        # Exact: the integers are below 2^53, and the step is a power of two, so the grid gives them back as they are.
        statistic = np.asarray(total * self._grid.step, np.float64)
        return draw(setting, statistic, release, place, silos=silos, grid=self._grid)

    def rehearse(self, release: Release, cohort: Records, place: Place, model: SharedModel) -> None:
        """Nothing: `dpsgd.training.require_accountable` has trained on made-up records when the learner was made."""

    def require_possible(
        self, release: Release, total: Integers, _place: Place, silos: int, patients: MostPatients
    ) -> None:
        """A sum of clipped gradients, each at most 1 long."""
        values, judge = noising.judge(self._setting.study, total, release, silos, grid=self._grid)
        judge.within(values, patients.total)

    def open(self, _release: Release, total: Integers, place: Place, model: SharedModel, silos: int) -> Opened:
        """Move the shared encoder by the mean of the silos' gradients, each divided by the public batch size.

        Raises ValueError for a round that is no sealed step.
        """
        study = self._setting.study
        number = shapes.sealed_step(study, place.round)
        if number is None:
            msg = f"round {place.round} is no step of the encoder"
            raise ValueError(msg)
        gradient = from_grid(total, self._grid.step) * (study.encoder.clip / study.encoder.batch_size / silos)
        return Opened(model.with_step(gradient, learning_rate(study.encoder, number, study.encoder_steps), place.round))
