"""Statements that a sum is spoilt: whose count, and over which bytes."""

from dataclasses import replace

import pytest

from crypto.pki.certificates import Trust
from crypto.secagg.spoilt import SpoiltStatement, needed

SPOILT = SpoiltStatement("5" * 64, 1, 2, "heads", ("north", "south"), "a" * 64)
OTHERS = (
    replace(SPOILT, study="6" * 64),
    replace(SPOILT, round=2),
    replace(SPOILT, attempt=1),
    replace(SPOILT, tensor="encoder"),
    replace(SPOILT, names=("north", "south", "west")),
    replace(SPOILT, sum="b" * 64),
    replace(SPOILT, culprit="south"),
)


def test_a_proof_holds_one_more_than_may_lie():
    assert [needed(colluders) for colluders in (0, 1, 2)] == [1, 2, 3]


def test_listed_silos_that_signed_exactly_this_count(silos):
    pems, trust = {name: silo.certificate_pem for name, silo in silos.items()}, Trust(silos["north"].authority_pem)
    given = {name: silo.sign(SPOILT.to_sign()) for name, silo in silos.items()}
    assert SPOILT.signed_by(pems, given, trust) == ("north", "south")
    assert SPOILT.signed_by(pems, given | {"north": given["south"]}, trust) == ("south",)
    assert SPOILT.signed_by({"south": pems["south"]}, given, trust) == ("south",)


@pytest.mark.parametrize("other", OTHERS)
def test_a_statement_about_anything_else_does_not_count(other, silos):
    pems, trust = {name: silo.certificate_pem for name, silo in silos.items()}, Trust(silos["north"].authority_pem)
    given = {name: silo.sign(other.to_sign()) for name, silo in silos.items()}
    assert SPOILT.signed_by(pems, given, trust) == ()
