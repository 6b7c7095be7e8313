"""Encoder: each silo's update by DP-SGD. The shared encoder moves by the uniform mean of the updates."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from crypto.hkdf import KEY_BYTES
from crypto.rings.grid import from_grid, to_grid_stochastic
from crypto.stream import KeyStream
from policies.plan import shapes, terms
from policies.plan.release import Release, encoder_release
from protos.messages import Place
from silo_agent.data.records import Records
from silo_agent.learning.dpsgd.clipping import StepGrid
from silo_agent.learning.dpsgd.training import EncoderUpdate, Training, train_encoder
from silo_agent.learning.encoder.encoder import flatten, unflatten
from silo_agent.learning.encoder.orthonormal_step import orthonormalised
from silo_agent.learning.heads.domain_weights import domain_weights
from silo_agent.learning.model import kept_parts
from silo_agent.learning.model.shared import HEAD_BOUND, SharedModel
from silo_agent.learning.releases.contribution import Integers, Opened, Setting
from silo_agent.learning.releases.counts import noised_counts, of_large_domains, small_domains
from silo_agent.learning.releases.possible_sums import Judge, MostPatients, most_drawn
from silo_agent.learning.releases.whole_batches import train_plainly
from silo_agent.learning.terms.environments import Steps
from silo_agent.learning.terms.losses.cmi import FixedPrior, Prior
from silo_agent.storage.checked import read_checked, write_checked
from silo_agent.storage.folders import StudyFolder

UPDATE_STEPS = {"ring32": 1 << 21, "ring64": 1 << 36, "ckks": 1 << 25}
"""Grid steps between 0 and `max_update` of an encoder coordinate, by ring. The sum of 1,000 silos fits in each ring."""


def train(
    setting: Setting,
    release: Release,
    cohort: Records,
    place: Place,
    model: SharedModel,
    *,
    prior: Prior | FixedPrior | None = None,
) -> EncoderUpdate:
    """Train the encoder, and the heads with it if the round does so, from the silo's complete model.

    With `heads-first` the first steps train the heads alone, the others the encoder alone.
    """
    study, joint = setting.study, shapes.trained_heads(setting.study, place.round)
    first = shapes.steps_before(study, place.round)
    if terms.couples_records(study.encoder):
        return _train_plainly(setting, release, cohort, place, model)
    if study.composition.order != "heads-first":
        return _train(setting, release, cohort, model, prior, joint=joint, first=first)
    alone = study.encoder.head_steps
    own = _train(
        setting, replace(release, count=alone), cohort, model, prior, joint=joint, first=first, heads_alone=True
    )
    moved = own.vector[-joint * model.heads.shape[1] :]
    heads = model.with_heads(model.heads + moved.reshape(joint, -1), model.round)
    rest = replace(release, count=release.count - alone)
    update = _train(setting, rest, cohort, heads, prior, joint=0, first=first + alone)
    return EncoderUpdate(np.concatenate([update.vector, moved]), update.prior)


def _train(
    setting: Setting,
    release: Release,
    cohort: Records,
    model: SharedModel,
    prior: Prior | FixedPrior | None,
    *,
    joint: int,
    first: int,
    heads_alone: bool = False,
) -> EncoderUpdate:
    training = _training(setting, release, cohort, model, joint=joint, first=first)
    return train_encoder(
        replace(training, prior=prior, heads_alone=heads_alone, kept=setting.study.composition.kept),
        mode=setting.study.privacy.mode,
        entropy=setting.entropy,
    )


def _training(
    setting: Setting, release: Release, cohort: Records, model: SharedModel, *, joint: int, first: int
) -> Training:
    study = setting.study
    return Training(
        encoder=model.view_encoder(),
        heads=model.heads,
        records=cohort,
        plan=study.encoder,
        release=release,
        family=setting.family,
        domain_weights=domain_weights(noised_counts(setting.folder), study.encoder.weight_clip),
        joint=joint,
        device=setting.device,
        first=first,
        whole=shapes.steps_before(study, study.rounds + 1),
    )


def _train_plainly(
    setting: Setting, release: Release, cohort: Records, place: Place, model: SharedModel
) -> EncoderUpdate:
    """The same on whole batches, for public data. The environments' weights go on from the rounds before, as `_prior`.

    Raises `Refused` if the data are not declared public.
    """
    study, folder = setting.study, StudyFolder(setting.folder)
    count = 0 if study.data.environment is None else study.data.environment.count
    steps = Steps.start(study.encoder, count)
    before = [path for number in range(1, place.round) if (path := folder.environments(number)).exists()]
    if before:
        steps = Steps.from_array(study.encoder, count, np.frombuffer(read_checked(before[-1]), "<f8"))
    steps.taken = shapes.steps_before(study, place.round)
    joint = shapes.trained_heads(study, place.round)
    training = _training(setting, release, cohort, model, joint=joint, first=steps.taken)
    update = train_plainly(study, training, steps=steps)
    write_checked(folder.environments(place.round), steps.to_array().astype("<f8").tobytes())
    return update


def train_together(
    setting: Setting, cohort: Records, place: Place, model: SharedModel
) -> tuple[SharedModel, NDArray[np.float64]]:
    """The silo's own encoder and heads (`encoder.together`), and the encoder's change in them, for its own sum."""
    vector = train(setting, encoder_release(setting.study), cohort, place, model).vector
    change, heads = np.split(vector, [shapes.encoder_values(setting.study)])
    own = model.with_update(change, 1)
    return own.with_heads(model.heads + heads.reshape(-1, model.heads.shape[1]), place.round), change


def keep_change(setting: Setting, place: Place, change: NDArray[np.float64]) -> None:
    """Keep an encoder's change for its sum, which comes later in the attempt, maybe in another process."""
    write_checked(StudyFolder(setting.folder).together(place), change.astype("<f8").tobytes())


def kept_change(setting: Setting, place: Place) -> NDArray[np.float64]:
    """The encoder's change that was kept in this attempt. Raises `LocalFileError` if there is none."""
    return np.frombuffer(read_checked(StudyFolder(setting.folder).together(place)), "<f8").astype(np.float64)


def _orthonormal(model: SharedModel) -> SharedModel:
    """The model with the QR of its linear representation."""
    matrix, k = model.encoder.astype(np.float64), model.study.model.representation
    basis, heads = orthonormalised(matrix.reshape(k, -1), model.heads)
    turned = np.clip(heads, -HEAD_BOUND, HEAD_BOUND)
    return replace(model, encoder=basis.ravel().astype(np.float32), heads=turned)


def _of_large_domains(setting: Setting, change: kept_parts.PartsChange) -> kept_parts.PartsChange:
    """The change without that of kept heads of domains with too few patients, as shared ones stay where they are."""
    if change.heads is None or len(change.heads) == 1:
        return change
    return replace(change, heads=np.where(small_domains(setting)[:, None], 0.0, change.heads))


class EncoderUpdates:
    """Changes of the encoder's weights and of the tables that are averaged with them."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        plan = setting.study.encoder
        self.limit = UPDATE_STEPS[plan.sealing]
        self._step = plan.max_update / self.limit

    def contribute(self, release: Release, cohort: Records, place: Place, model: SharedModel, _silos: int) -> Integers:
        """This silo's noised update, rounded at random to the public grid."""
        setting, plan = self._setting, self._setting.study.encoder
        if plan.together:
            vector = kept_change(setting, place)
        else:
            folder = StudyFolder(setting.folder)
            own = kept_parts.completed(model, folder, place.round)
            update = train(setting, release, cohort, place, own, prior=self._prior(model, place.round))
            change = kept_parts.PartsChange.of(update.vector, setting.study, place.round)
            kept_parts.keep(_of_large_domains(setting, change), own, folder, place.round)
            vector = change.uploaded
            if update.prior is not None and plan.prior == "local":
                write_checked(self._prior_path(place.round), flatten(update.prior).astype("<f4").tobytes())
        setting.log.record(place, release)
        stream = KeyStream(setting.entropy.bytes(KEY_BYTES), b"encoder rounding")
        return to_grid_stochastic(vector, self._step, plan.max_update, stream, in_place=True)

    def rehearse(self, release: Release, cohort: Records, place: Place, model: SharedModel) -> None:
        """Nothing: `dpsgd.training.require_accountable` has trained on made-up records when the learner was made."""

    def require_possible(
        self, release: Release, total: Integers, _place: Place, silos: int, patients: MostPatients
    ) -> None:
        """The updates are no longer than the drawn patients' clipped gradients and the steps' noise can make them.

        A gradient that enters moves the weights by at most rate * clip / batch, and for as many steps as momentum keeps
        it. How many enter in all steps of all silos is a sum of independent draws. Terms that read weights alone move
        them too and are not bounded here.
        """
        plan = self._setting.study.encoder
        if not release.noise or terms.of_steps(plan) or plan.together:
            return
        grid = StepGrid.fine(plan.clip, release.noise)
        reach = plan.learning_rate / (1.0 - plan.momentum) / plan.batch_size
        drawn = most_drawn(release.count * patients.total, release.sampling_rate)
        sd = reach * grid.unit * grid.sigma * math.sqrt(release.count * silos)
        # A step's noise is rounded down, and the update at random.
        rounding = silos * (self._step + release.count * reach * grid.unit)
        # In steps of the grid, as the sum is: an encoder's sum is long.
        judge = Judge(release.tensor, sd / self._step, rounding / self._step, patients.clamp)
        judge.within_reach(total, reach * plan.clip * drawn / self._step, patients)

    def open(self, _release: Release, total: Integers, place: Place, model: SharedModel, silos: int) -> Opened:
        """Add the uniform mean of the silos' updates to the shared encoder, and to heads that were trained with it."""
        study = self._setting.study
        recipe, joint = study.composition, shapes.joint_heads(study, place.round)
        own = 0 if recipe.heads == "kept" else joint * model.heads.shape[1]
        if recipe.encoder == "kept":
            # Nobody's encoder moves the shared one, which stays at the public start.
            shared = total[: shapes.prior_values(study)]
            total = np.concatenate([np.zeros(len(model.encoder), np.int64), shared, total[len(total) - own :]])
        updated = model.with_update(total[: len(total) - own], silos, self._step)
        if not own:
            # If heads and encoder alternate, the heads' sum has named the round before.
            updated = replace(updated, round=place.round if joint else model.round)
            return Opened(_orthonormal(updated) if recipe.linear else updated)
        change = from_grid(total[-own:], self._step).reshape(joint, -1) / silos
        heads = np.clip(model.heads + change, -HEAD_BOUND, HEAD_BOUND)
        if joint > 1:
            heads = of_large_domains(self._setting, heads, model)
        return Opened(updated.with_heads(heads, place.round))

    def _prior(self, model: SharedModel, round_number: int) -> Prior | FixedPrior | None:
        """The r(z|y) that a round's training starts from. If it is local, it comes from the rounds before.

        It never comes from the same round. If a crash lost a draw and the draw was made again, two trainings would have
        fed the table for one charge.
        """
        prior = model.build_prior()
        if isinstance(prior, Prior) and self._setting.study.encoder.prior == "local":
            kept = [path for r in range(1, round_number) if (path := self._prior_path(r)).exists()]
            if kept:
                unflatten(prior, np.frombuffer(read_checked(kept[-1]), "<f4"))
        return prior

    def _prior_path(self, round_number: int) -> Path:
        return StudyFolder(self._setting.folder).prior(round_number)
