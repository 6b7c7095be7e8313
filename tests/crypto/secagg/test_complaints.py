"""What a silo signs that complains about its shares: every field counts, and one word is never taken for another."""

from dataclasses import replace

import pytest

from crypto.canonical import canonical
from crypto.secagg.dealt.complaints import EVIDENCE_BYTES, ShareComplaint
from crypto.secagg.survivors import AttemptRef
from protos import messages

ATTEMPT = AttemptRef("5" * 64, "a" * 64, 3, 2)
COMPLAINT = ShareComplaint(ATTEMPT, "west", "north", bytes(range(32)))


@pytest.mark.parametrize(
    "changes",
    [
        *({"attempt": replace(ATTEMPT, **one)} for one in ({"study": "6" * 64}, {"roster": "b" * 64}, {"round": 2})),
        {"attempt": replace(ATTEMPT, attempt=1)},
        {"owner": "south"},
        {"holder": "south"},
        {"owner": "north", "holder": "west"},
        {"key": bytes(32)},
    ],
)
def test_every_field_changes_what_is_signed(changes):
    assert replace(COMPLAINT, **changes).to_sign() != COMPLAINT.to_sign()


def test_what_is_signed_says_what_it_is():
    assert COMPLAINT.to_sign() == canonical("complaint", ATTEMPT.canonical(), "west", "north", bytes(range(32))), (
        "the word, the attempt, whose note, who complains, the key"
    )


def test_the_evidence_and_its_place_are_the_whole_complaint():
    assert COMPLAINT.evidence == bytes(range(32)) + b"\xaa" * 32
    assert ShareComplaint.read("5" * 64, (3, 2), "west", "north", COMPLAINT.evidence) == COMPLAINT
    assert len(COMPLAINT.evidence) == EVIDENCE_BYTES == messages.EVIDENCE_BYTES
