"""A silo whose state folder and ledger are put back together, to a moment within a round: what others heard of it."""

import shutil

import pytest

from coordinator.core.study import Life
from silo_agent.core.turns import Stage
from support.simulated_coordinator import SimulatedCoordinator
from support.simulated_federation import NAMES, SimulatedFederation, simulated_study

STEPS = 400
LOST = NAMES[1]
SENTENCE = "this state folder is older than what {} last saw of it; restore the newer one, with its ledger"


class PutBack:
    """A study in whose first training round everything of one silo is put back: folder, ledger, cosignatures."""

    def __init__(self, folder, credentials, hub):
        study = simulated_study(NAMES[:4], 3, "ring32")
        coordinator = SimulatedCoordinator(study, study.max_attempts)
        self.federation = SimulatedFederation(folder, study, credentials, coordinator=coordinator, hub=hub)
        self.study, self.silo = study, self.federation.silos[LOST]
        self.older = folder / "older"

    def at(self, stage, number):
        running = self.silo.agent._running.get(self.study.digest)
        return running and (running.turn.place.round, running.turn.stage, running.turn.cursor) == (number, stage, 0)

    def go_on(self, until):
        for _ in range(STEPS):
            if until() or not self.federation.running:
                return
            self.federation.turn()
        pytest.fail(f"it comes to no end: {self.federation.coordinator.round}")

    def to(self, stage, number=1):
        """Let everybody work until the silo is at this stage of the first sum of a round."""
        self.go_on(lambda: self.at(stage, number))

    def copy(self):
        self.silo.die()
        shutil.copytree(self.silo.folder, self.older)
        self.silo.restart()

    def put_back(self):
        self.silo.die()
        shutil.rmtree(self.silo.folder)
        shutil.copytree(self.older, self.silo.folder)
        self.silo.restart()

    def said(self, dispute):
        return [one for one in self.silo.disputes if one.dispute == dispute]


@pytest.fixture
def run(quick_folder, credentials, hub):
    run = PutBack(quick_folder, credentials, hub)
    with run.federation:
        yield run


def test_folder_and_ledger_put_back_together_are_known_from_the_silos_own_word(run):
    run.to(Stage.SENT)
    run.copy()
    run.to(Stage.OPENED)
    run.put_back()
    run.go_on(lambda: run.said("state_older"))
    (dispute,) = run.said("state_older")
    assert dispute.explanation in {SENTENCE.format(name) for name in NAMES[:4] if name != LOST}
    assert dispute.culprit == ""
    at = dispute.place
    assert run.silo.gate.ledger.charged(run.study.digest, at.round) == {}, "nothing is charged in that round"
    (told,) = [one for one in run.silo.logs if one["event"] == "older than what a peer last saw"]
    assert told["seen"] >= told["own"]
    before = len(run.silo.heard)
    run.go_on(lambda: run.federation.coordinator.round.place.round > at.round)
    asked = {work.task for work in run.silo.heard[before:] if work.place.round == at.round}
    assert asked <= {"decide"}, "it sits the round out"
    run.go_on(lambda: False)
    progress = run.federation.coordinator.progress
    assert progress.life is Life.FINISHED, progress.why
    assert not any(one.why for one in progress.silos)
    run.federation.witness.check()


@pytest.mark.slow
def test_a_mere_restart_is_no_roll_back(run):
    for stage in (Stage.SHARED, Stage.SENT, Stage.SIGNED, Stage.REVEALED, Stage.OPENED):
        run.to(stage)
        for silo in run.federation.silos.values():
            silo.restart()
    run.go_on(lambda: False)
    assert run.federation.coordinator.progress.life is Life.FINISHED
    assert not any(silo.disputes for silo in run.federation.silos.values())
