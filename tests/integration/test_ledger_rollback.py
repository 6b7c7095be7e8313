"""An older copy of a ledger in the place of the newest one: real processes, and the whole folder put back, not a file.

docs/design/threat-model.md, "Threats", a stale backup: it refuses to train until a signed recovery charges the gap.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Self

import pytest

from deploy.demo.recount import recount
from deploy.local.processes import run
from policies.documents.study import Study
from policies.ledger.events import Debit, Recovery
from policies.ledger.ledger import read_history
from protos.status import StudyStatus
from support.certificates import make_authority
from support.party_federation import HUB, PartyFederation, credentials_of
from support.party_process import PATIENCE
from support.small_cohort import study_document

LOST = "south"


class Rollback(PartyFederation):
    """Two rounds are charged, then the study is paused and one silo ends."""

    def __enter__(self) -> Self:
        self._prepare()
        self.older = self.ledger.read_bytes()
        # One and the same silo is asked every time, however busy the machine: a second one may never have signed for
        # this ledger, which is the gap that docs/ledger.md names.
        (self.root / HUB / PATIENCE).write_text("1e12")
        for name in (HUB, *self.study.silos):
            self._start(name)
        try:
            self._begin_study()
            self.follow(lambda status: status.round >= 2)
            self.operate(lambda operator: operator.pause(self.study.digest))
            self._end(LOST)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for name in self.processes:
            self._end(name)

    @property
    def ledger(self) -> Path:
        return self.root / LOST / "state" / "ledger.sqlite3"

    @property
    def trained(self) -> Path:
        return self.root / LOST / "state" / "studies" / self.study.digest / "training.jsonl"

    @property
    def charges(self) -> list[Debit]:
        return [entry.event for entry in read_history(self.ledger)[1] if isinstance(entry.event, Debit)]

    def put_back(self) -> None:
        """The ledger as it was before anything was charged, and no word of what others cosigned."""
        self.ledger.write_bytes(self.older)
        self.ledger.with_name(self.ledger.name + ".countersigned.json").unlink()

    def refused(self) -> str:
        """Start the silo, which is to end by itself; what it said."""
        self._start(LOST)
        self.wait(lambda: self._exit_code(LOST) is not None)
        assert self._exit_code(LOST) == 1
        return self.log(LOST)

    def follow(self, until: Callable[[StudyStatus], bool]) -> StudyStatus:
        self.wait(lambda: until(self.status()))
        return self.status()

    def start_again(self, name: str) -> None:
        """With a fresh log."""
        (self.root / name / "log.jsonl").unlink()
        self._start(name)

    def end(self, name: str) -> None:
        self._end(name)

    def go_on(self) -> StudyStatus:
        """Resume; the study's last status, once everybody has heard of it."""
        self.operate(lambda operator: operator.resume(self.study.digest))
        self.wait(lambda: all(self._exit_code(silo) is not None for silo in self.study.silos))
        return self.status()


@pytest.fixture
def federation(tmp_path):
    heads = {"pooled_rounds": 1, "domain_rounds": 3, "pooled_noise": 30.0, "domain_noise": 30.0}
    encoder = {**study_document()["encoder"], "sampling_rate": 1.0, "noise": 20.0}
    study = Study.model_validate(study_document(heads=heads, encoder=encoder))
    credentials = credentials_of(make_authority(tmp_path / "consortium"), study)
    with Rollback(tmp_path / "federation", study, credentials) as made:
        yield made


@pytest.mark.slow
def test_nothing_is_trained_until_a_signed_recovery_charges_what_was_lost(federation):
    spent = read_history(federation.ledger)[1][-1].epsilon
    assert {debit.round for debit in federation.charges} >= {0, 1}
    federation.put_back()
    for _ in range(2):
        assert "an older copy was put in its place" in federation.refused()
        assert federation.charges == []

    config = federation.root / LOST / "agent.yaml"
    assert "A. Weber answers" in run("fedward-silo", "ledger", "recover", "--signed-by", "A. Weber", "-c", config)
    *_, entry = read_history(federation.ledger)[1]
    assert isinstance(entry.event, Recovery)
    assert entry.epsilon >= spent * (1 - 1e-9)

    federation.start_again(LOST)
    status = federation.go_on()
    assert status.state == "finished", status.why
    assert {member.state for member in status.members} == {"active"}
    assert federation.charges, "it trained again"
    last = read_history(federation.ledger)[1][-1]
    assert recount(federation.trained, 1e-5) <= last.epsilon * 1.01


@pytest.mark.slow
def test_a_peer_knows_where_the_coordinator_has_forgotten(federation):
    federation.end(HUB)
    with sqlite3.connect(federation.root / HUB / "data" / "coordinator.sqlite3") as database:
        own = database.execute("DELETE FROM statements").rowcount
        database.execute("DELETE FROM received_statements")
        peers = database.execute("DELETE FROM countersigned_statements").rowcount
    database.close()
    assert own == len(federation.study.silos) <= peers, "each silo's own, and one peer's"
    federation.put_back()
    trained = federation.trained.read_text()
    for name in (HUB, LOST):
        federation.start_again(name)
    federation.wait(lambda: "joined" in federation.log(LOST))
    status = federation.go_on()
    (member,) = (member for member in status.members if member.silo == LOST)
    assert (status.state, member.state, member.why) == ("ended", "left", member.why), status
    assert "ledger_rolled_back" in member.why
    assert federation.charges, "it was charged on the copy"
    assert federation.trained.read_text() == trained, "nothing was computed from records"
    assert "an older copy was put in its place" in federation.refused()
