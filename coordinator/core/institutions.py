"""Two silos of one institution never sit in one attempt.

Guarantees: whoever comes second leaves the study by a refusal of its own name, and the study goes on with the others if
they are enough. Silos refuse such a roster themselves (`crypto.secagg.agreement`); this keeps it from being made. A
silo whose certificate names no institution is of none.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from crypto.errors import CertificateError
from crypto.pki.reading import parse_certificate, subject_of
from protos.messages import Answer, Member

REASON: Final = "institution"


def one_of_each(answer: Answer, seated: Iterable[Member]) -> Answer:
    """The answer itself, or a refusal instead if another silo of its institution is seated."""
    member = answer.member
    run_by = None if member is None else _institution(member)
    if member is None or run_by is None:
        return answer
    other = next((one.silo for one in seated if one.silo != member.silo and _institution(one) == run_by), None)
    if other is None:
        return answer
    why = f"{other} is of the institution {run_by} too; two silos of one institution never join one study"
    return Answer(answer.place, answer.session, refusal=REASON, explanation=why)


def _institution(member: Member) -> str | None:
    try:
        return subject_of(parse_certificate(member.certificate_pem)).institution
    except CertificateError:
        return None  # no caller's own certificate, which the door has refused
