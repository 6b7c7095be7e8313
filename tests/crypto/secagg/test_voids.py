from __future__ import annotations

from dataclasses import replace

import pytest

from crypto.pki.certificates import Trust
from crypto.secagg.voids import VoidPromise

VOID = VoidPromise("5" * 64, 3, "heads", 2)
STUDY = ("north", "south", "west")


@pytest.fixture
def handed(silos):
    certificates = {name: silos[name].certificate_pem for name in STUDY}
    return certificates, {name: silos[name].sign(VOID.to_sign()) for name in STUDY}


def test_every_field_changes_what_is_signed():
    changes = ({"study": "6" * 64}, {"round": 2}, {"tensor": "encoder"}, {"through": 1}, {"after": 1})
    assert len({VOID.to_sign(), *(replace(VOID, **change).to_sign() for change in changes)}) == 6


def test_silos_of_the_study_that_signed_exactly_this_are_counted(silos, handed):
    certificates, signatures = handed
    trust = Trust(silos["north"].authority_pem)
    assert VOID.signed_by(STUDY, certificates, signatures, trust) == STUDY
    assert VOID.signed_by(("north", "south", "east"), certificates, signatures, trust) == ("north", "south")
    assert replace(VOID, through=3).signed_by(STUDY, certificates, signatures, trust) == ()
    assert VOID.signed_by(STUDY, certificates, {"north": signatures["north"]}, trust) == ("north",)
    swapped = {**certificates, "west": certificates["north"]}
    assert VOID.signed_by(STUDY, swapped, signatures, trust) == ("north", "south")
    forged = {**signatures, "west": b"none", "south": signatures["north"]}
    assert VOID.signed_by(STUDY, certificates, forged, trust) == ("north",)
