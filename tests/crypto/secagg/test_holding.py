"""What silos sign about a model: every field counts, and one word is never taken for another."""

from __future__ import annotations

from dataclasses import replace

import pytest

from crypto.pki.certificates import Trust
from crypto.secagg.holding import FalseNote, Holding
from crypto.secagg.voids import VoidPromise

HOLDING = Holding("5" * 64, 3, "c" * 64)
FALSE = FalseNote("5" * 64, 3, 2, "north", "d" * 64)
STUDY = ("north", "south", "west")


@pytest.mark.parametrize(
    ("word", "changes"),
    [
        (HOLDING, ({"study": "6" * 64}, {"round": 2}, {"content": "e" * 64})),
        (FALSE, ({"study": "6" * 64}, {"round": 2}, {"attempt": 1}, {"sharer": "south"}, {"sha256": "e" * 64})),
    ],
)
def test_every_field_changes_what_is_signed(word, changes):
    signed = {word.to_sign(), *(replace(word, **change).to_sign() for change in changes)}
    assert len(signed) == len(changes) + 1
    assert not signed & {VoidPromise("5" * 64, 3, "heads", 2).to_sign()}


def test_only_those_who_signed_this_very_content_hold_it(silos):
    trust = Trust(silos["north"].authority_pem)
    certificates = {name: silos[name].certificate_pem for name in STUDY}
    signatures = {name: silos[name].sign(HOLDING.to_sign()) for name in STUDY}
    assert HOLDING.signed_by(STUDY, certificates, signatures, trust) == STUDY
    assert HOLDING.signed_by(("south", "west", "east"), certificates, signatures, trust) == ("south", "west")
    assert replace(HOLDING, content="e" * 64).signed_by(STUDY, certificates, signatures, trust) == ()
    assert HOLDING.signed_by(STUDY, {**certificates, "west": certificates["north"]}, signatures, trust) == STUDY[:2]
