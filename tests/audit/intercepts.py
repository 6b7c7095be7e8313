"""What one patient moves in the calibration: judged as `audit.statistics` judges the rest."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from audit.scenes import begin, silo, study
from audit.verdicts import Verdict, all_of
from bench import audit
from policies.plan.release import plan
from protos.messages import Tensor
from silo_agent.data.records import Records


def one_patient_of_the_calibration(folder: Path) -> Verdict:
    """The patient whose outcome was the least likely moves no sum of the calibration by more than 1.

    Heads are steeper than any that were solved. Nothing is drawn but the noise, which is the same at both silos.
    """
    verdicts = []
    for calibration in ("pooled", "domain"):
        heads = {"clip": 0.5, "calibration": calibration, "calibration_noise": 12.0}
        made = study(heads=heads)
        whole = Records(
            np.zeros((3, made.data.inputs), np.float32),
            np.array([0, 1, 0]),
            np.array([0, 1, 0]),
            np.arange(3),
            ("0", "1", "2"),
        )
        uploads = []
        for records in (whole, whole.of_patients(np.arange(3) < 2)):
            with silo(folder, made, records, records, 9) as held:
                start = begin(held)
                steep = start.with_heads(np.full_like(start.heads, 500.0), 0)
                uploads.append(held.contribute(Tensor.HEADS, plan(made).last - 1, steep))
        step = audit.release_step(made)
        change = float(np.linalg.norm((uploads[0] - uploads[1]) * step))
        most = 1.0 + step * np.sqrt(len(uploads[0]))
        verdicts.append(Verdict(bool(0.99 <= change <= most), f"{calibration} calibration moved by {change:.3f}"))
    return all_of(verdicts)
