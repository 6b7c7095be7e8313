"""People's decisions in the ledger: what counts, what does not, and what nobody can bring back."""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from crypto.pki.reading import fingerprint
from policies.ledger.events import Approved
from policies.ledger.ledger import Ledger
from policies.refusals import Refused
from silo_agent.oversight.decisions import Decisions
from silo_agent.storage.approvals import approve, begin_anew, made, read_signed, signed_text, withdraw
from silo_agent.storage.errors import StateError
from silo_agent.storage.folders import StateFolder
from support.certificates import load
from support.ledgers import NORTH
from support.studies import tiny_study

EXAM, OTHER = tiny_study(name="exam"), tiny_study(name="other")
ADA = "fedward://approver/dora"
PLAIN, SIGNING = (
    SimpleNamespace(approvers=None, digest="a"),
    SimpleNamespace(approvers=(ADA, "fedward://approver/bo"), digest="b"),
)


@pytest.fixture
def folder(quick_path):
    return StateFolder(quick_path)


@pytest.fixture
def ledger(folder):
    Ledger.create(folder.ledger, NORTH)
    with Ledger.open(folder.ledger, NORTH, budget_epsilon=4.0) as opened:
        yield opened


@pytest.fixture(scope="module")
def ada(authority):
    return load(authority.credential("approver", "dora"))


@pytest.fixture
def decisions(ledger, folder, credentials):
    return Decisions(ledger, folder, credentials["north"], b"s" * 32)


def decided(ledger):
    return [(entry.event.study, entry.event.verdict) for entry in ledger.history() if isinstance(entry.event, Approved)]


def now():
    return datetime.now(UTC)


def signed(credential, study=EXAM, data="lung", at=None, reason=""):
    given = made(study, data, at or now(), reason)
    return parsed(signed_text(study, given, credential), study)


def parsed(text, study, *, name="given"):
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / name
        path.write_text(text)
        return read_signed(path, study)


def test_every_decision_is_one_entry_and_says_no_word(decisions, ledger, folder, credentials):
    approve(folder, EXAM, made(EXAM, "lung", now(), "Ms Miller, born 1970, agrees"))
    decisions.note(PLAIN)
    decisions.note(PLAIN)
    withdraw(folder, {OTHER.digest: "other"}, now(), declined=True)
    assert decisions.fault(EXAM, PLAIN) == ""
    withdraw(folder, {EXAM.digest: "exam"}, now())
    decisions.note(PLAIN)
    assert decided(ledger) == [(EXAM.digest, "approved"), (OTHER.digest, "refused"), (EXAM.digest, "withdrawn")]
    first = ledger.history()[0].event
    assert first.certificate == fingerprint(credentials["north"].certificate_pem)
    assert b"Miller" not in folder.ledger.read_bytes()
    assert ledger.spent() == 0


def test_a_decision_that_is_noted_is_not_noted_again_after_a_restart_or_a_renewal(decisions, ledger, folder, authority):
    approve(folder, EXAM, made(EXAM, "lung", now()))
    decisions.note(PLAIN)
    renewed = load(authority.credential("silo", "north-renewed"))
    again = Decisions(ledger, folder, renewed, b"s" * 32)
    again.note(PLAIN)
    assert again.fault(EXAM, PLAIN) == ""
    assert decided(ledger) == [(EXAM.digest, "approved")]
    approve(folder, EXAM, made(EXAM, "liver", now()))
    again.note(PLAIN)
    assert len(decided(ledger)) == 2, "other data are another decision"


def test_where_the_policy_names_approvers_one_of_them_signs(decisions, ledger, folder, ada, authority):
    approve(folder, EXAM, made(EXAM, "lung", now()))
    assert "names approvers (fedward://approver/dora, fedward://approver/bo), and none has" in decisions.fault(
        EXAM, SIGNING
    )
    with pytest.raises(Refused, match="not_approved"):
        decisions.require(EXAM, SIGNING)
    for role, name, says in (("approver", "odd", "odd has signed"), ("operator", "dora", "does not count")):
        approve(folder, EXAM, signed(load(authority.credential(role, name))))
        assert says in decisions.fault(EXAM, SIGNING)
    assert decided(ledger) == []
    approve(folder, EXAM, signed(ada))
    decisions.require(EXAM, SIGNING)
    assert decided(ledger) == [(EXAM.digest, "approved")]
    assert ledger.history()[-1].event.certificate == fingerprint(ada.certificate_pem)


@pytest.mark.parametrize("changed", [{"data": "liver"}, {"reason": "so"}, {"at": "2999-01-01T00:00:00+00:00"}])
def test_a_signature_is_of_what_was_approved(decisions, folder, ada, changed):
    approve(folder, EXAM, replace(signed(ada), **changed))
    assert "does not count" in decisions.fault(EXAM, SIGNING)


def test_a_signature_for_another_study_is_refused_by_name(ada):
    text = signed_text(OTHER, made(OTHER, "lung", now()), ada)
    with pytest.raises(StateError, match=f"it approves other {OTHER.digest[:12]}, not exam {EXAM.digest[:12]}"):
        parsed(text, EXAM)
    moved = json.dumps(json.loads(text) | {"digest": EXAM.digest})
    assert parsed(moved, EXAM).message(EXAM.digest) != made(OTHER, "lung", now()).message(OTHER.digest)
    for broken in (
        "",
        "{",
        "[]",
        json.dumps(json.loads(text) | {"signature": ""}),
        json.dumps(json.loads(text) | {"data": None}),
    ):
        with pytest.raises(StateError, match="this is no signed approval"):
            parsed(broken, OTHER)


def test_an_approval_that_was_taken_back_cannot_be_put_back(decisions, ledger, folder, ada):
    old = signed(ada, at=now() - timedelta(minutes=5))
    approve(folder, EXAM, old)
    decisions.require(EXAM, SIGNING)
    before = folder.approvals.read_bytes()
    withdraw(folder, {EXAM.digest: "exam"}, now())
    decisions.note(SIGNING)
    folder.approvals.write_bytes(before)
    assert "signed before the last decision" in decisions.fault(EXAM, SIGNING)
    approve(folder, EXAM, replace(old, data=old.data))
    with pytest.raises(Refused):
        decisions.require(EXAM, SIGNING)
    assert decided(ledger)[-1] == (EXAM.digest, "withdrawn")
    approve(folder, EXAM, signed(ada, at=now() + timedelta(seconds=1)))
    decisions.require(EXAM, SIGNING)


def test_a_withdrawal_that_was_noted_holds_though_its_line_is_gone(decisions, folder):
    """Else the policy's rule would give the study data again."""
    withdraw(folder, {EXAM.digest: "exam"}, now())
    decisions.note(PLAIN)
    begin_anew(folder, {}, now())
    assert "declined the study or took its approval back" in decisions.fault(EXAM, PLAIN)
    assert decisions.fault(OTHER, PLAIN) == "", "nobody has decided about it"


def test_a_list_that_cannot_be_read_lets_nothing_leave(decisions, folder):
    approve(folder, EXAM, made(EXAM, "lung", now()))
    decisions.require(EXAM, PLAIN)
    folder.approvals.write_text("{")
    with pytest.raises(Refused, match="not_approved"):
        decisions.require(EXAM, PLAIN)


def test_a_policy_that_begins_to_name_approvers_asks_again_of_what_is_not_noted(decisions, ledger, folder):
    approve(folder, EXAM, made(EXAM, "lung", now()))
    assert decisions.fault(EXAM, SIGNING)
    decisions.note(PLAIN)
    assert decided(ledger) == [(EXAM.digest, "approved")]


def test_what_began_under_an_earlier_version_goes_on_without_an_entry_until_somebody_decides(
    ledger, folder, credentials
):
    """So version 0.6 still reads the ledger, and a hospital can go back."""
    begun = Decisions(ledger, folder, credentials["north"], b"s" * 32, lambda study: study == EXAM.digest)
    for study in (EXAM, OTHER):
        approve(folder, study, replace(made(study, "lung", now()), old=True))
    assert begun.fault(EXAM, SIGNING) == ""
    assert "names approvers" in begun.fault(OTHER, SIGNING), "it has not begun"
    assert decided(ledger) == []
    withdraw(folder, {EXAM.digest: "exam"}, now())
    begun.note(SIGNING)
    approve(folder, EXAM, replace(made(EXAM, "lung", now()), old=True))
    assert begun.fault(EXAM, SIGNING), "it was taken back"


def test_where_a_policy_names_operators_alone_nobody_approves_until_it_is_replaced(decisions, folder, ada):
    operators = SimpleNamespace(approvers=("fedward://operator/dora", "fedward://operator/bo"), digest="c")
    for given in (made(EXAM, "lung", now()), signed(ada)):
        approve(folder, EXAM, given)
        assert "approvers are operators, who approve nothing; put a policy into force" in decisions.fault(
            EXAM, operators
        )
