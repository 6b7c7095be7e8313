"""Runs of a simulation for tests of who computes them."""

from __future__ import annotations

import os
import signal

import numpy as np

from deploy.local.simulate.made_up_records import MadeUp
from deploy.local.simulate.outcome import RunMetrics, measure

SOURCE = MadeUp(patients=40, test=200)


def guess(study, cohorts, *, seed):
    """Says one half of everybody."""
    return RunMetrics(study, seed, *measure(study, cohorts.measured, [np.full((200, 2), 0.5)]))


def failing(study, cohorts, *, seed):
    """Fails at every seed."""
    raise ValueError(seed)


class Dying:
    """A run in which the worker that comes first to some seeds is killed, as the system does where memory lacks.

    `often` says how many times for each of these seeds.
    """

    def __init__(self, folder, often):
        self.folder, self.often = folder, often

    def __call__(self, study, cohorts, *, seed):
        for time in range(self.often.get(seed, 0)):
            mark = self.folder / f"{seed} {time}"
            if not mark.exists():
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)
        said = np.full((200, 2), 1 / (1 + seed))
        said[: 10 * seed] = 0.75
        return RunMetrics(study, seed, *measure(study, cohorts.measured, [said]))
