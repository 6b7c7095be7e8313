"""A sum that this silo refused, added again from the uploads that the listed silos signed; proofs that it is spoilt.

Guarantees: a silo calls a sum spoilt only if the uploads of exactly the listed silos, each signed by its silo for this
attempt, add up to the very bytes that it refused. Else the coordinator is at fault, and the error says so. The uploads
are under masks that stay on, so they tell this silo nothing (docs/design/sums.md, "Spoilt sums").
"""

from __future__ import annotations

from contextlib import ExitStack

from crypto.errors import FrameError, OpeningRefused, RosterRefused
from crypto.rings.adding import added
from crypto.rings.rings import ring_of
from crypto.secagg.spoilt import SpoiltStatement, needed
from policies.documents.study import Study
from policies.plan.release import plan
from protos.chunks import ChunkHasher
from protos.messages import Place, Spoilt, Tensor
from silo_agent.protocol.attempt import Attempt
from silo_agent.protocol.mail import Mail
from silo_agent.protocol.session import Session
from silo_agent.storage.promises import KeptRefusal, Promises


def statement(attempt: Attempt, refusal: KeptRefusal) -> SpoiltStatement:
    """What this silo states of the sum that it has refused in this attempt."""
    place, tensor = attempt.place, str(attempt.tensor)
    return SpoiltStatement(
        place.study, place.round, place.attempt, tensor, attempt.survivors, refusal.sha256, refusal.culprit
    )


def recount(attempt: Attempt, mail: Mail, refusal: KeptRefusal) -> None:
    """Fetch and add the uploads of all survivors. Raises `OpeningRefused` if the coordinator's sum is another one."""
    tensor, release = attempt.tensor, attempt.release(attempt.tensor)
    values = attempt.sealed_values(release)
    size = ring_of(release.ring).content_size(values)
    for upload in attempt.work.uploads:
        part = upload.part
        if (part.kind, part.size) != (release.ring, size) or not attempt.has_signed(upload, values):
            msg = f"the coordinator shows no upload of {tensor} that {part.silo} has signed for this attempt"
            raise OpeningRefused(msg)
    total = ChunkHasher()
    with ExitStack() as stack:
        files = [stack.enter_context(mail.upload(attempt.place, tensor, one.part)) for one in attempt.work.uploads]
        try:
            for frame in added(release.ring, files):
                total.update(frame)
        except FrameError:
            msg = f"the coordinator took a malformed upload of {tensor} into the sum"
            raise OpeningRefused(msg) from None
    if total.digest != refusal.sha256:
        msg = f"the coordinator's sum of {tensor} is not the sum of the uploads that the silos in it have signed"
        raise OpeningRefused(msg)


def take_note(study: Study, place: Place, handed: Spoilt, session: Session, promises: Promises) -> None:
    """Store the proof that a sum of an earlier attempt at this round is spoilt. From then on the round begins anew.

    Raises `RosterRefused` if it is no proof: of another round's tensor, or with too few statements of listed silos.
    """
    spoilt = SpoiltStatement(
        place.study, place.round, handed.attempt, str(handed.tensor), handed.names, handed.sum, handed.culprit
    )
    tensors = {Tensor(release.tensor) for release in plan(study).round(place.round)}
    known = handed.attempt < place.attempt and handed.tensor in tensors and set(handed.names) <= set(study.silos)
    signers = session.stated(spoilt, handed) if known else ()
    least = needed(study.privacy.colluders)
    if len(signers) < least:
        msg = f"{len(signers)} silos state that an earlier sum of this round is spoilt, but {least} must state it"
        raise RosterRefused(msg)
    promises.renew(place, handed.attempt)
