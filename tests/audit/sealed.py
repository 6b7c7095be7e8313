"""What sealed steps of the encoder release: judged as `audit.statistics` judges the rest."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from audit.scenes import begin, crowd, silo, study
from audit.verdicts import Verdict, all_of, noise_like
from bench.attacks import audit
from crypto.rings.grid import from_grid
from protos.messages import Tensor
from silo_agent.data.records import Records
from silo_agent.learning.dpsgd.training import SEALED_NORM

SEALED = {"sealed_steps": True, "sampling_rate": 1.0, "sealing": "ring64", "steps": 2, "rounds": 1}
SHARED = {
    "silos": ["north", "south", "west", "east", "polar"],
    "min_silos": 5,
    "privacy": {"mode": "distributed", "colluders": 1},
}
CARRIERS = 3
"""Of five silos: neither the patient's own nor the colluder."""
STEP = 1.0 / SEALED_NORM


def noise_of_sealed_steps(folder: Path) -> Verdict:
    """Deviation of 1e5 weights: the shares of three silos reach what each was charged. All heads are 0."""
    made = study(inputs=300, model={"hidden": [330], "representation": 30}, encoder=SEALED, **SHARED)
    with silo(folder, made, crowd(20, 300), crowd(2, 300), 1) as held:
        values = from_grid(held.contribute(Tensor.ENCODER, 2, begin(held)), STEP)
        charged = held.gate.ledger.charged(made.digest, 2)["encoder", 1]
    holds = (charged.count, charged.sampling_rate) == (1, 1.0)
    sd = charged.noise * (1.0 + STEP * np.sqrt(len(values)))
    return all_of(
        (
            Verdict(holds, f"{charged.count} draws at rate {charged.sampling_rate}"),
            noise_like("noise of a sealed step", values * np.sqrt(CARRIERS), sd),
        )
    )


def one_patient_of_a_sealed_step(folder: Path) -> Verdict:
    """A patient with two records, predicted wrong and far above the clip, moves a step by 1, and by no more.

    Nothing is drawn but the noise, which is the same at both silos, and records that are alike. So are the counts.
    """
    made = study(encoder=SEALED | {"weight_clip": 1.0}, **SHARED)
    whole = Records(
        np.array([[0.5]] * 19 + [[1.0]] * 2, np.float32),
        np.array([0, 1] * 9 + [1, 0, 0]),
        np.zeros(21, np.int64),
        np.append(np.arange(20), 19),
        tuple(str(i) for i in range(20)),
    )
    uploads = []
    for records in (whole, whole.of_patients(np.arange(20) < 19)):
        with silo(folder, made, records, crowd(2), 9, alike=True) as held:
            start = begin(held)
            uploads.append(
                held.contribute(Tensor.ENCODER, 2, start.with_heads(np.full_like(start.heads, audit.STEEP), 1))
            )
    moved = float(np.linalg.norm((uploads[0] - uploads[1]) * STEP))
    return Verdict(0.9 <= moved <= 1.0, f"a sealed step moved by {moved:.5f}")


def sealed_steps_anew(folder: Path) -> Verdict:
    """Under another roster a step with shared noise is drawn and charged anew; in the same one it is not."""
    made = study(encoder=SEALED, **SHARED)
    with silo(folder, made, crowd(5), crowd(2), 9) as held:
        start = begin(held)
        sent = [held.contribute(Tensor.ENCODER, 2, start, attempt) for attempt in (1, 2)]
        charged = {attempt for _, attempt in held.gate.ledger.charged(made.digest, 2)}
    other = bool((sent[0] != sent[1]).mean() > 0.9)
    return Verdict(other and charged == {1, 2}, f"drawn anew: {other}, charged for the attempts {sorted(charged)}")
