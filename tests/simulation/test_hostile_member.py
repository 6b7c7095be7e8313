"""One member or two spoil sums, and honest silos do what they are asked: the study ends with a model, or by a name.

Every silo has the real gate and a ledger. After every turn the witness checks that no two sums were read from which one
hospital's contribution follows: no draw is in two of them, and what was charged before a spoilt sum is never sent again.
"""

from collections.abc import Callable
from itertools import combinations

import pytest

from coordinator.core.study import Life
from crypto.secagg.blame import explanations, named
from policies.plan import quorum
from protos.messages import Place, Tensor, UploadHeader
from support.simulated_federation import NAMES, SimulatedFederation, simulated_study

STEPS = 3000


class Hostile:
    """Silos that spoil what a rule says, and the run of a study among them."""

    def __init__(self, folder, credentials, hub, silos, colluders, mode, guilty, rule, sealing="ring32", led=True):
        least = quorum.least(silos, colluders)
        study = simulated_study(NAMES[:silos], least, sealing, privacy={"mode": mode, "colluders": colluders})
        self.federation = SimulatedFederation(folder, study, credentials, hub=hub if led else None)
        self.study, self.guilty, self.colluders = study, guilty, colluders
        for name in guilty:
            self.federation.silos[name].spoils = lambda header, name=name: rule(self, name, header)

    def run(self):
        federation = self.federation
        for _ in range(STEPS):
            if not federation.running:
                break
            federation.turn()
            federation.witness.check()
        assert not federation.running, federation.coordinator.round
        return federation.coordinator.progress

    def check(self, progress):
        """Who is named is guilty, and the study ended with a model, by a name, or by a set that holds a guilty silo."""
        left = {one.name for one in progress.silos if one.why}
        assert left <= set(self.guilty), progress.silos
        assert named(progress.spoilt, self.colluders) <= set(self.guilty)
        assert all(set(names) & set(self.guilty) for names in progress.spoilt)
        if progress.life is not Life.FINISHED:
            assert progress.life is Life.ENDED, progress
            assert "spoilt" in progress.why, progress.why
            assert any(name in progress.why for name in self.guilty), progress.why


def always(_, __, ___):
    return True


def only_the_encoder(_, __, header):
    return header.tensor is Tensor.ENCODER


def while_all_are_there(hostile, _, header):
    return len(hostile.federation.coordinator.round.participants) == len(hostile.study.silos)


@pytest.fixture
def hostile(quick_folder, credentials, hub):
    def of(*shape, **words):
        return Hostile(quick_folder, credentials, hub, *shape, **words)

    return of


@pytest.mark.parametrize("mode", ["local", "distributed"])
@pytest.mark.parametrize("led", [True, False])
def test_tmp(hostile, mode, led):
    import time
    t=time.time()
    run = hostile(4, 1, mode, ("birch",), always, led=led)
    progress = run.run()
    print(mode, led, time.time()-t, progress.spoilt, progress.aside, progress.life, progress.why, [x for x in progress.silos if x.why])
    run.check(progress)
