"""What a silo takes for the proof of a spoilt sum, and which uploads it adds again."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from crypto.errors import OpeningRefused, RosterRefused
from crypto.rings.rings import ring_of
from crypto.secagg.layout import sealed_values
from policies.plan.release import plan
from protos.messages import Part, Place, Signature, Spoilt, Tensor, Upload
from silo_agent.protocol.recounting import recount, take_note
from silo_agent.storage.promises import KeptRefusal
from support.studies import tiny_study

STUDY = tiny_study()
SHA = "a" * 64
PLACE = Place(STUDY.digest, 1, 3)
STATEMENTS = tuple(Signature(silo, b"s") for silo in STUDY.silos[:2])
PROOF = Spoilt(2, Tensor.HEADS, STUDY.silos, SHA, "", STATEMENTS, (b"pem", b"pem"))


def noted(handed, signers):
    """What is stored of a proof of which these statements are genuine."""
    stored = []
    session = SimpleNamespace(stated=lambda *_: signers)
    promises = SimpleNamespace(renew=lambda place, spoilt: stored.append((place, spoilt)))
    take_note(STUDY, PLACE, handed, session, promises)
    return stored


def test_one_more_statement_than_may_lie_is_a_proof():
    assert STUDY.privacy.colluders == 1
    assert noted(PROOF, STUDY.silos[:2]) == [(PLACE, 2)]
    with pytest.raises(RosterRefused, match="1 silos state that an earlier sum of this round is spoilt, but 2 must"):
        noted(PROOF, STUDY.silos[:1])


@pytest.mark.parametrize(
    "handed",
    [
        replace(PROOF, attempt=3),
        replace(PROOF, tensor=Tensor.METRICS),
        replace(PROOF, names=(*STUDY.silos, "zoo")),
    ],
)
def test_a_proof_of_this_attempt_of_another_rounds_tensor_or_with_a_stranger_is_none(handed):
    with pytest.raises(RosterRefused, match="0 silos state"):
        noted(handed, STUDY.silos)


@pytest.mark.parametrize("fault", ["unsigned", "kind", "size"])
def test_an_upload_that_its_silo_has_not_signed_as_it_must_be_is_the_coordinators_fault(fault):
    release = plan(STUDY).release(1, Tensor.HEADS)
    values = sealed_values(release.values, len(STUDY.silos))
    size = ring_of(release.ring).content_size(values)
    part = Part(release.ring, "north", size, SHA)
    part = {"kind": replace(part, kind="ring64"), "size": replace(part, size=size - 1)}.get(fault, part)
    attempt = SimpleNamespace(
        place=PLACE,
        tensor=Tensor.HEADS,
        release=lambda _: release,
        sealed_values=lambda _: values,
        work=SimpleNamespace(uploads=(Upload(part, b"s"),)),
        has_signed=lambda _, of: of == values and fault != "unsigned",
    )
    with pytest.raises(OpeningRefused, match="shows no upload of heads that north has signed"):
        recount(attempt, None, KeptRefusal(SHA, ""))
