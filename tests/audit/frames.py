"""What one patient moves in a domain round of the hierarchical solver, whose terms are those of whitened features."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from audit.scenes import begin, silo, study
from audit.verdicts import Verdict, all_of
from bench.attacks import audit
from protos.messages import Tensor
from silo_agent.data.records import Records
from silo_agent.learning.model.shared import SharedModel

_CROWD = 40


def one_patient_in_a_frame(folder: Path) -> Verdict:
    """A patient with rare values, badly predicted, moves a domain round by no more than 1, in whatever public frame.

    The frame stretches the patient's direction as the whitening of a rare code does. The noise is the same at both
    silos, so nothing differs but the patient.
    """
    heads = {"solver": "hierarchical", "pooled_rounds": 1, "domain_rounds": 1, "clip": 0.5}
    raw = {"encoder": "raw", "hidden": [], "representation": 2}
    made = study((2,), 2, heads=heads, model=raw, encoder={"rounds": 0, "l2r": 0.0, "cmi": 0.0})
    inputs = np.zeros((_CROWD + 1, 2), np.float32)
    inputs[:-1, 0], inputs[-1, 1] = np.linspace(-1, 1, _CROWD), 1.0
    labels = np.append(np.arange(_CROWD) % 2, 0)
    whole = Records(inputs, labels, np.zeros(_CROWD + 1, np.int64), np.arange(_CROWD + 1), tuple(map(str, range(41))))
    verdicts = []
    for stretch in (1.0, 30.0):
        uploads = []
        for records in (whole, whole.of_patients(np.arange(_CROWD + 1) < _CROWD)):
            with silo(folder, made, records, records, 9, alike=True) as held:
                uploads.append(held.contribute(Tensor.HEADS, 2, _whitened(begin(held), stretch)))
        step = audit.release_step(made)
        change = float(np.linalg.norm((uploads[0] - uploads[1]) * step))
        most = 1.0 + step * np.sqrt(len(uploads[0]))
        verdicts.append(Verdict(bool(change <= most), f"stretched by {stretch:g}, heads moved by {change:.3f}"))
    return all_of(verdicts)


def _whitened(start: SharedModel, stretch: float) -> SharedModel:
    """The model before a domain round, with a frame and with heads that say the opposite of what the patient has."""
    evidence = replace(start.gathered, frame=np.diag([1.0, stretch, 1.0]), share=0.5)
    wrong = np.zeros_like(start.heads)
    wrong[:, 1] = 3.0
    return start.with_heads(wrong, 1, evidence)
