"""Counts epsilon again from a silo's training log, without FedWard's accountant: by Opacus' own.

The training log has one line for every mechanism that was really run (`silo_agent.logs`). Each cohort of patients is
counted by itself, because no patient is in both (`policies.accountant`).
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path

from opacus.accountants import PRVAccountant

EPSILON_ERROR = 1e-3


def recount(training_log: Path, delta: float) -> float:
    """Epsilon of what the log says was run, at `delta`: the larger of the two cohorts'."""
    lines = [json.loads(line) for line in training_log.read_text(encoding="utf-8").splitlines()]
    spent = [0.0]
    for cohort in {line["cohort"] for line in lines}:
        accountant = PRVAccountant()
        accountant.history = [
            (line["noise_multiplier"], line["sampling_rate"], line["times"])
            for line in lines
            if line["cohort"] == cohort
        ]
        with warnings.catch_warnings():
            # Opacus divides by zero on the way for releases without sampling, and mends it itself.
            warnings.simplefilter("ignore")
            spent.append(float(accountant.get_epsilon(delta=delta, eps_error=EPSILON_ERROR)))
    return max(spent)
