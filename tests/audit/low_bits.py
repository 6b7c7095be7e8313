"""An attacker who reads a patient's presence from the low bits of what an encoder releases, and from its size.

The attacker knows the study, the start, every other patient, and the patient in question, and sees the integers that
would be sealed, after one step that everybody enters. It asks of each bias whether a float32 sum of gradients with the
patient, or without, could have become what is seen by adding a float32 number. Where that does not decide, it guesses
by the likelihood of the noise.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crypto.hkdf import KEY_BYTES
from crypto.rings.grid import from_grid, to_grid_stochastic
from crypto.stream import KeyStream
from policies.documents.study import Study
from policies.plan.release import encoder_release
from silo_agent.data.records import Records
from silo_agent.learning.dpsgd.training import Training, train_encoder
from silo_agent.learning.encoder.encoder import build_encoder, flatten
from silo_agent.learning.outcomes.registry import family_of
from silo_agent.learning.releases.encoder import UPDATE_STEPS
from support.entropy import SeededEntropy

PATIENTS = 40


def cohort(study: Study) -> Records:
    """40 patients of one record each; the last one is in question."""
    rng = np.random.default_rng(3)
    return Records(
        rng.uniform(-1, 1, (PATIENTS, study.data.inputs)).astype(np.float32),
        np.arange(PATIENTS) % 2,
        np.zeros(PATIENTS, np.int64),
        np.arange(PATIENTS),
        tuple(str(i) for i in range(PATIENTS)),
    )


def released(study: Study, records: Records, seed: int, *, noise: bool = True) -> np.ndarray:
    """The update in units of the weights, as the sealed integers give it; without noise unrounded."""
    plan, entropy = study.encoder, SeededEntropy(seed)
    if not noise:
        plan = plan.model_copy(update={"noise": 0.0})
    update = train_encoder(
        Training(
            encoder=build_encoder(study.model, study.data, stochastic=False),
            heads=np.linspace(-3, 3, study.model.representation + 1)[None, :].repeat(len(study.data.domains), axis=0),
            records=records,
            plan=plan,
            release=encoder_release(study.model_copy(update={"encoder": plan})),
            family=family_of(2),
            domain_weights=np.ones(len(study.data.domains)),
        ),
        mode="local" if noise else "none",
        entropy=entropy,
    )
    if not noise:
        return update.vector
    step = plan.max_update / UPDATE_STEPS[plan.sealing]
    stream = KeyStream(entropy.bytes(KEY_BYTES), b"encoder rounding")
    return from_grid(to_grid_stochastic(update.vector, step, plan.max_update, stream), step)


@dataclass(frozen=True)
class Attacker:
    """What is known beforehand: the sums of gradients (n,) without and with the patient, and where the biases lie."""

    study: Study
    sums: tuple[np.ndarray, np.ndarray]
    biases: np.ndarray

    @classmethod
    def of(cls, study: Study) -> Attacker:
        """Compute both sums with the product's own code, without noise."""
        records = cohort(study)
        fewer = records.of_patients(np.arange(PATIENTS) < PATIENTS - 1)
        scale = -study.encoder.batch_size / study.encoder.learning_rate
        sums = [released(study, own, 0, noise=False) * scale for own in (fewer, records)]
        encoder = build_encoder(study.model, study.data, stochastic=False)
        # A weight that starts at zero keeps every bit of its first step.
        return cls(study, (sums[0], sums[1]), flatten(encoder) == 0.0)

    def by_bits(self, seen: np.ndarray) -> int | None:
        """1 or 0 if the biases rule out the other more often, else None."""
        plan = self.study.encoder
        scale = plan.batch_size / plan.learning_rate
        blur = 1.5 * scale * plan.max_update / UPDATE_STEPS[plan.sealing]
        inside = self.biases & (np.abs(seen) < plan.max_update * (1 - 1e-6))
        gradient = -seen[inside] * scale
        misfits = [_misfits(gradient, own[inside].astype(np.float32), blur) for own in self.sums]
        return None if misfits[0] == misfits[1] else int(misfits[1] < misfits[0])

    def by_size(self, seen: np.ndarray) -> int:
        """The likelier of both under Gaussian noise."""
        gradient = -seen * self.study.encoder.batch_size / self.study.encoder.learning_rate
        inside = np.abs(seen) < self.study.encoder.max_update * (1 - 1e-6)
        away = [float(((gradient - own)[inside] ** 2).sum()) for own in self.sums]
        return int(away[1] < away[0])


def _misfits(gradient: np.ndarray, known: np.ndarray, blur: float) -> int:
    """How many values no float32 noise could have made of the known float32 sums, to within `blur`."""
    nearest = (gradient - known.astype(np.float64)).astype(np.float32)
    candidates = (nearest, np.nextafter(nearest, np.float32(np.inf)), np.nextafter(nearest, np.float32(-np.inf)))
    away = np.min([np.abs((known + one).astype(np.float64) - gradient) for one in candidates], axis=0)
    return int((away > blur).sum())
