from dataclasses import replace
from datetime import timedelta

import grpc
import pytest

from crypto.errors import CryptoError
from policies.errors import CosignError, LedgerRolledBackError
from policies.ledger.cosign import Checkpoint
from protos.checkpoints import Cosigned, CosignedCheckpoint, SignedCheckpoint
from protos.messages import Place
from silo_agent.protocol.calls.client import CallRefused, WentBackRefused
from silo_agent.protocol.ledgers.cosigning import Cosigning, cosignature
from support.cosigners import witnessed

PLACE = Place("a" * 64, 1, 1)


class Hands:
    """The client: `answers` are what the coordinator says to checkpoints, `told` what it remembers."""

    def __init__(self, credential, hub, peer):
        self.credential, self.hub, self.peer = credential, hub, peer
        self.told, self.stated, self.answers, self.asked = [], [], [], 0
        self.evidence = []

    def cosigned(self):
        self.asked += 1
        return tuple(self.told)

    def signed(self, checkpoint):
        return SignedCheckpoint(checkpoint, self.credential.certificate_pem, self.credential.sign(checkpoint))

    def cosign(self, place, stated, evidence):
        assert place == PLACE
        self.evidence.append(evidence)
        self.stated.append(stated)
        if self.answers:
            raise self.answers.pop(0)
        return Cosigned(witnessed(stated, self.hub), witnessed(stated, self.peer) if self.peer else None)


def told(hands, checkpoint, by):
    return witnessed(hands.signed(checkpoint.message), by)


class Door:
    """The gate: keeps what it is given, and refuses what the test says."""

    def __init__(self, item):
        self.item, self.kept, self.fault = item, [], None
        self.evidence = None

    def checkpoint(self):
        return self.item

    def keep_cosigned(self, handed):
        self.kept += handed
        if self.fault is not None:
            raise self.fault


@pytest.fixture
def stated(federation):
    return federation[1]["north"].gate.checkpoint()


@pytest.fixture
def hands(credentials, coordinator):
    return Hands(credentials["north"], coordinator, credentials["south"])


@pytest.fixture
def door(stated):
    return Door(stated)


def test_what_is_remembered_is_handed_to_the_gate(hands, door, stated, coordinator, credentials):
    hands.told = [told(hands, stated, by) for by in (coordinator, credentials["south"])]
    Cosigning(hands, door).remember()
    assert hands.asked == 1
    assert door.kept == [cosignature(item) for item in hands.told]
    door.fault = LedgerRolledBackError("an older copy")
    with pytest.raises(LedgerRolledBackError):
        Cosigning(hands, door).remember()


def test_what_does_not_count_any_more_is_no_reason_to_stop(hands, federation, authority, stated, coordinator):
    gate = federation[1]["north"].gate
    expired = authority.credential("silo", "expired", period=(timedelta(days=-2), timedelta(days=-1)))
    pem = (expired / "certificate.pem").read_bytes()
    hands.told = [
        CosignedCheckpoint(hands.signed(stated.message), pem, b"not looked at"),
        told(hands, stated, coordinator),
    ]
    Cosigning(hands, gate).remember()
    assert [item.signer for item in gate._held] == ["fedward://coordinator/hub"]


def test_one_question_brings_both_words(hands, door, stated, credentials):
    found = list(Cosigning(hands, door).ask(PLACE))
    assert [item.checkpoint for item in found] == [stated, stated]
    assert hands.stated[0].certificate_pem == credentials["north"].certificate_pem
    hands.peer = None
    assert len(list(Cosigning(hands, door).ask(PLACE))) == 1


def test_what_the_coordinator_signed_before_is_shown_to_it(hands, door, stated, coordinator):
    signed_before = told(hands, stated, coordinator)
    door.evidence = cosignature(signed_before)
    Cosigning(hands, door).ask(PLACE)
    assert hands.evidence == [signed_before]


def test_the_same_bytes_are_sent_until_something_changes(hands, door, stated):
    asking = Cosigning(hands, door)
    asking.ask(PLACE)
    door.item = replace(stated, at="later")
    asking.ask(PLACE)
    assert hands.stated[1] == hands.stated[0]
    door.item = replace(stated, at="later", epsilon=stated.epsilon + 1.0)
    asking.ask(PLACE)
    assert Checkpoint.parse(hands.stated[2].checkpoint) == door.item


def test_a_head_that_the_coordinator_remembers_is_named_and_stated_again(hands, door, stated, coordinator):
    went_back = WentBackRefused(grpc.StatusCode.DATA_LOSS, "does not contain entry 5")
    hands.told, hands.answers = [told(hands, stated, coordinator)], [went_back]
    assert len(list(Cosigning(hands, door).ask(PLACE))) == 2
    assert (len(door.kept), len(hands.stated)) == (1, 2)
    hands.answers = [went_back, went_back]
    with pytest.raises(WentBackRefused):
        Cosigning(hands, door).ask(PLACE)


def test_a_ledger_that_went_back_is_found_when_the_coordinator_refuses_it(hands, door, stated, coordinator):
    hands.told = [told(hands, stated, coordinator)]
    hands.answers = [WentBackRefused(grpc.StatusCode.DATA_LOSS, "does not contain entry 5")]
    door.fault = LedgerRolledBackError("an older copy")
    with pytest.raises(LedgerRolledBackError):
        Cosigning(hands, door).ask(PLACE)
    assert len(hands.stated) == 1


def test_any_other_refusal_ends_the_waiting(hands, door):
    hands.answers = [CallRefused(grpc.StatusCode.FAILED_PRECONDITION, "not the current one")]
    with pytest.raises(CallRefused, match="not the current one"):
        Cosigning(hands, door).ask(PLACE)
    assert hands.asked == 0


def test_what_says_nothing_about_a_ledger_is_refused():
    with pytest.raises(CosignError):
        cosignature(CosignedCheckpoint(SignedCheckpoint(b"{}", b"c", b"s"), b"c", b"s"))
    assert not issubclass(CosignError, CryptoError), "it is not passed over"
