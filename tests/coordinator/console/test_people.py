"""Who is at the console, and what the desk hears of them."""

from __future__ import annotations

import hashlib
import ssl

import pytest

from coordinator.console.people import Person, shown_by
from coordinator.core.rights import Action, Deed
from crypto.pki.identity import Identity, Role
from support.certificates import load


def test_a_deed_names_person_certificate_and_a_reason_in_one_sentence():
    ada = Person(Identity(Role.AUTHOR, "ada"), b"pem")
    deed = ada.deed(Action.ABORT, "  two\nlines ", "north")
    shown = hashlib.sha256(b"pem").hexdigest()
    assert deed == Deed(ada.identity, Action.ABORT, deed.reason, "north", shown)
    assert (deed.reason, str(ada)) == (deed.reason.strip(), "author ada")
    assert "\n" not in deed.reason
    assert ada.deed(Action.START) == Deed(ada.identity, Action.START, "", "", shown)


@pytest.mark.parametrize(("role", "reads"), [("operator", True), ("author", True), ("viewer", True),
                                             ("silo", False), ("approver", False)])  # fmt: skip
def test_people_who_read_come_in_by_their_own_certificate(authority, role, reads):
    credential = load(authority.credential(role, f"door-{role}"))
    pem = credential.certificate_pem
    found = shown_by(credential.trust, ssl.PEM_cert_to_DER_cert(pem.decode()))
    assert (found is not None) == reads
    named = Person(credential.identity, pem)
    assert named.stands(credential.trust) == reads
    if reads:
        assert (found.identity, found.stands(credential.trust)) == (credential.identity, True)
        assert not Person(Identity(credential.identity.role, "another"), pem).stands(credential.trust)
    assert shown_by(credential.trust, b"nothing") is None
