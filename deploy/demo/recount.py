"""Counts epsilon again from a silo's training log, without FedWard's accountant: by Opacus' own.

The training log has one line for every mechanism that was really run (`silo_agent.logs`). Each cohort of patients is
counted by itself, because no patient is in both (`policies.accounting.accountant`).
"""

from __future__ import annotations

import json
import math
import warnings
from functools import lru_cache
from pathlib import Path

from opacus.accountants import PRVAccountant

EPSILON_ERROR = 1e-3


def recount(training_log: Path, delta: float) -> float:
    """Epsilon of what the log says was run, at `delta`: the larger of the two cohorts', infinite without noise."""
    lines = [json.loads(line) for line in training_log.read_text(encoding="utf-8").splitlines()]
    if any(line["noise_multiplier"] == 0 for line in lines):
        return math.inf
    spent = [0.0]
    for cohort in {line["cohort"] for line in lines}:
        ran = [
            (float(line["noise_multiplier"]), float(line["sampling_rate"]), int(line["times"]))
            for line in lines
            if line["cohort"] == cohort
        ]
        spent.append(_epsilon(tuple(ran), delta))
    return max(spent)


@lru_cache(maxsize=16)
def _epsilon(ran: tuple[tuple[float, float, int], ...], delta: float) -> float:
    """Of (noise multiplier, sampling rate, times) in order. Silos of an undisturbed study all ran the same."""
    accountant = PRVAccountant()
    accountant.history = list(ran)
    with warnings.catch_warnings():
        # Opacus divides by zero for releases without sampling, but corrects the result itself.
        warnings.simplefilter("ignore")
        return float(accountant.get_epsilon(delta=delta, eps_error=EPSILON_ERROR))
