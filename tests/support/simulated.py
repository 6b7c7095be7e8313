"""Runs of a simulation for tests of who computes them."""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager
from functools import partial

import numpy as np

from deploy.local.simulate.engine import simulate
from deploy.local.simulate.groups import Founding, Group, in_this_process
from deploy.local.simulate.outcome import RunMetrics, measure
from support.made_up import MadeUp

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


class Falling:
    """A whole study, in which the worker is killed that is first to hold silos of some seeds."""

    def __init__(self, folder, seeds):
        self.folder, self.seeds = folder, seeds

    def __call__(self, study, cohorts, *, seed, hosts=in_this_process):
        return simulate(study, cohorts, seed=seed, hosts=partial(self._hosts, seed, hosts))

    @contextmanager
    def _hosts(self, seed, hosts, founding):
        with hosts(founding) as groups:
            if seed in self.seeds:
                groups.ask(partial(fall_once, self.folder / f"silos of {seed}"))
            yield groups


def fall_once(mark, _group):
    """Kill this process, unless another one was killed for this mark."""
    try:
        mark.touch(exist_ok=False)
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


@contextmanager
def several(count, founding):
    """`count` groups in this process, asked one after the other."""
    groups = [Group(part) for part in founding.parts(count)]

    class All:
        def ask(self, call):
            return [call(group) for group in groups]

    try:
        yield All()
    finally:
        for group in groups:
            group.close()


def stumbling(study, cohorts, *, seed, hosts):
    """Asks its groups for what none of them has."""
    with hosts(Founding(study, cohorts.silos, seed, "cpu", len(cohorts.silos))) as groups:
        groups.ask(no_such)


def no_such(_group):
    """Raises."""
    msg = "no such silo"
    raise ValueError(msg)
