"""What one patient moves in the calibration: judged as `audit.statistics` judges the rest."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any, Final

import numpy as np

from audit.scenes import begin, silo, study
from audit.verdicts import Verdict, all_of
from bench.attacks import audit
from policies.plan.release import plan
from protos.messages import Tensor
from silo_agent.data.records import Records

_THREE: Final[dict[str, Any]] = {"data": {"label": {"column": "y", "classes": [[0], [1], [2]]}}, "publish": []}


def one_patient_of_the_calibration(folder: Path) -> Verdict:
    """The patient whose outcome was the least likely moves no sum of the calibration by more than 1.

    Heads are steeper than any that were solved: the last class is certain, and it is wrong. Nothing is drawn but the
    noise, which is the same at both silos.
    """
    verdicts = []
    for calibration, classes in itertools.product(("pooled", "domain"), (2, 3)):
        heads = {"clip": 0.5, "calibration": calibration, "calibration_noise": 12.0}
        made = study(heads=heads, **(_THREE if classes > 2 else {}))
        whole = Records(
            np.zeros((3, made.data.inputs), np.float32),
            np.array([0, 1, 0]),
            np.array([0, 1, 0]),
            np.arange(3),
            ("0", "1", "2"),
        )
        uploads = []
        for records in (whole, whole.of_patients(np.arange(3) < 2)):
            with silo(folder, made, records, records, 9, alike=True) as held:
                start = begin(held)
                logits = 1 if classes == 2 else classes
                rows = np.full((len(start.heads), logits, start.heads.shape[1] // logits), -500.0)
                rows[:, -1] = 500.0
                steep = start.with_heads(rows.reshape(start.heads.shape), 0)
                uploads.append(held.contribute(Tensor.HEADS, plan(made).last - 1, steep))
        step = audit.release_step(made)
        change = float(np.linalg.norm((uploads[0] - uploads[1]) * step))
        most = 1.0 + step * np.sqrt(len(uploads[0]))
        of = f"{calibration} calibration of {classes} classes"
        verdicts.append(Verdict(bool(0.99 <= change <= most), f"{of} moved by {change:.3f}"))
    return all_of(verdicts)
