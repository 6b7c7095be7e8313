"""What one patient moves where the label is a number: judged as `audit.statistics` judges the rest."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from audit.scenes import begin, silo, study
from audit.verdicts import Verdict, all_of
from bench.attacks import audit
from policies.plan.families import TARGET_STEPS
from policies.plan.release import plan
from protos.messages import Tensor
from silo_agent.data.records import Records


def one_patient_of_a_number(folder: Path) -> Verdict:
    """The patient whose outcome lies at one end, predicted at the other, moves no sum by more than 1.

    Heads are steeper than any that were solved. Nothing is drawn but the noise, which is the same at both silos.
    """
    label = {"column": "y", "minimum": 0, "maximum": 30}
    made = study(data={"label": label}, heads={"clip": 1.0}, evaluation={"bins": 10})
    whole = Records(
        np.zeros((3, made.data.inputs), np.float32),
        np.array([0, TARGET_STEPS // 3, 0]),
        np.zeros(3, np.int64),
        np.arange(3),
        ("0", "1", "2"),
    )
    uploads: list[list[np.ndarray]] = []
    for records in (whole, whole.of_patients(np.arange(3) < 2)):
        with silo(folder, made, records, records, 9, alike=True) as held:
            start = begin(held)
            steep = start.with_heads(np.full_like(start.heads, 500.0), 0)
            heads, metrics = (
                held.contribute(Tensor.HEADS, 1, steep),
                held.contribute(Tensor.METRICS, plan(made).last, steep),
            )
            uploads.append([heads, metrics])
    step, moved = audit.release_step(made), []
    for name, one, other in zip((Tensor.HEADS, Tensor.METRICS), *uploads, strict=True):
        change = float(np.linalg.norm((one - other) * step))
        moved.append(Verdict(bool(change <= 1.0 + step * np.sqrt(len(one))), f"{name} moved by {change:.3f}"))
    return all_of(moved)
