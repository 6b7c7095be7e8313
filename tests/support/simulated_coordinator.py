"""The coordinator without network, threads or database: its real state machine and rules around a dictionary.

What it stores outlives its crashes: the state through `protos.record`, and the contents. It may be made to lie about
who is in a sum, with the help of a silo that signs whatever it is asked to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256

import grpc
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from coordinator.core import study as studies
from coordinator.core.events import (
    Add,
    Added,
    Answered,
    Clear,
    Complained,
    Confirmed,
    Effect,
    Event,
    Passed,
    Restarted,
    Returned,
    Uploaded,
)
from coordinator.core.round import WrongPhaseError
from coordinator.core.state import Phase, Round
from coordinator.core.study import LIVE, Life, Progress, StudyStateError
from coordinator.engine import script_of
from coordinator.storage.spool import SUM_FILE
from coordinator.work import check_fetch, check_present, check_upload, forms_of, liar_of, signed_note, work_in
from crypto.canonical import canonical
from crypto.errors import CryptoError, SignatureRefused
from crypto.pki.certificates import Credential
from crypto.pki.reading import parse_certificate
from crypto.secagg.agreement import Roster, RosterEntry
from crypto.secagg.dealt.slices import Cutting, Layout
from crypto.secagg.survivors import AttemptRef, SurvivorList
from policies.documents.study import Study
from policies.plan.release import plan
from protos import record
from protos.messages import RINGS, Answer, Confirm, Part, Place, Signature, Tensor, UploadHeader, Work
from protos.steps import SUM, Note, Task
from silo_agent.protocol.calls.client import CallRefused
from support.contents import add_up, digest_of, read_frames

Slot = tuple[Place, str, str]
"""Place, slot, and whose content it is (`SUM_FILE` for the sum)."""


class ContentConflictError(Exception):
    """A silo sent other bytes for a slot that holds some: the alarm of invariant 4."""


def require_signed(certificate_pem: bytes, message: bytes, signature: bytes) -> None:
    try:
        parse_certificate(certificate_pem).public_key().verify(signature, message, ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        msg = "the signature does not fit the signed bytes"
        raise SignatureRefused(msg) from None


@dataclass(frozen=True)
class Lie:
    """Some silos are told other survivors than there are."""

    place: Place
    tensor: Tensor
    silos: frozenset[str]
    survivors: tuple[str, ...]
    signed: dict[str, bytes] = field(default_factory=dict)
    """What those silos have signed since."""


@dataclass
class SimulatedCoordinator:
    """One study."""

    study: Study
    max_attempts: int = 50
    now: float = 0.0
    content: dict[Slot, bytes] = field(default_factory=dict)
    """What lies in its spool now."""
    seen: dict[Slot, bytes] = field(default_factory=dict)
    """All that ever did."""
    received: list[tuple[UploadHeader, bytes, bytes]] = field(default_factory=list)
    """All that silos have sent, in order."""
    lie: Lie | None = None
    colluder: Credential | None = None
    """The silo that signs two lists."""

    def __post_init__(self) -> None:
        script = replace(script_of(self.study), max_attempts=self.max_attempts)
        self.progress, _ = studies.start(studies.create(script), self.now)
        self.adding: list[Add] = []
        self.told: set[str] = set()

    @property
    def round(self) -> Round:
        assert self.progress.round is not None
        return self.progress.round

    def work(self, silo: str) -> Work | None:
        """What it asks of a silo now."""
        return self._bent(work_in(self.progress, silo, told=silo in self.told), silo)

    # --- what silos call -----------------------------------------------------------------------------------------
    def canonical(self, _digest: str) -> bytes:
        return self.study.canonical()

    def poll(self, silo: str, session: str) -> Work:
        for event in (Restarted(silo, session), Returned(silo)):
            if self.progress.life in LIVE:
                self._apply(event)
        return self.work(silo) or Work(Task.WAIT)

    def answer(self, answer: Answer, silo: str) -> None:
        self._at(answer.place, Answered(silo, answer))

    def confirm(self, silo: str, confirm: Confirm) -> None:
        if confirm.task is Task.FINISH:
            self.told.add(silo)
            return
        lie = self.lie
        if confirm.task is Task.SIGN and lie is not None and silo in lie.silos and not confirm.dispute:
            lie.signed[silo] = confirm.signature
        if confirm.dispute and confirm.culprit:
            note = self.content.get((confirm.place, "note-shares", confirm.culprit), b"")
            liar = liar_of(self._round(confirm.place), silo, confirm, note) if confirm.evidence and note else ""
            self._at(confirm.place, Complained(silo, confirm, liar))
            return
        round_ = self.progress.round
        members = () if round_ is None else round_.members
        certificate = next((member.certificate_pem for member in members if member.silo == silo), b"")
        self._at(confirm.place, Confirmed(silo, confirm, certificate))

    def upload(self, header: UploadHeader, content: bytes, signature: bytes = b"") -> None:
        """Take an upload in, as `service`, `engine` and `intake` do."""
        self.received.append((header, content, signature))
        key = (header.place, header.slot, header.silo)
        held = self.content.get(key)
        if held is not None and digest_of(held) != header.sha256:
            msg = f"{header.silo} sent other bytes for {header.slot}"
            raise ContentConflictError(msg)
        try:
            round_ = self._round(header.place)
            if held is None:
                check_upload(round_, self.study, header)
                if header.kind in RINGS:
                    read_frames(header.kind, content)
                if header.kind == Note.SHARES:
                    member = next(one for one in round_.members if one.silo == header.silo)
                    require_signed(member.certificate_pem, *signed_note(round_, self.study, header, content))
                self.content[key] = self.seen[key] = content
            check_present(round_, header.silo)
            if header.silo in round_.waiting_for:
                self._apply(Uploaded(header, signature))
        except WrongPhaseError as error:
            raise CallRefused(grpc.StatusCode.FAILED_PRECONDITION, str(error)) from None
        except (CryptoError, ValueError) as error:
            raise CallRefused(grpc.StatusCode.INVALID_ARGUMENT, str(error)) from None

    def download(self, silo: str, place: Place, tensor: Tensor | None, part: Part) -> bytes:
        try:
            slot, name = check_fetch(self._round(place), silo, tensor, part.kind, [part.silo])[part.silo]
        except WrongPhaseError as error:
            raise CallRefused(grpc.StatusCode.FAILED_PRECONDITION, str(error)) from None
        return self.content[place, slot, name]

    def notes(
        self, silo: str, place: Place, kind: Note, owners: Sequence[str], about: Sequence[str]
    ) -> dict[str, bytes]:
        try:
            round_ = self._round(place)
            found = check_fetch(round_, silo, None, kind, owners)
        except WrongPhaseError as error:
            raise CallRefused(grpc.StatusCode.FAILED_PRECONDITION, str(error)) from None
        whole = {owner: self.content[place, *one] for owner, one in found.items()}
        forms = forms_of(round_, kind, whole)
        cut = {owner: about and len(note) == forms[owner].note for owner, note in whole.items()}
        return {owner: Cutting(note, forms[owner]).cut(about) if cut[owner] else note for owner, note in whole.items()}

    def fork(self) -> SimulatedCoordinator:
        """Another one that has stored the same and hears of other things from now on."""
        other = replace(self, content=dict(self.content), seen=dict(self.seen), received=list(self.received))
        other.progress, other.adding, other.told = self.progress, list(self.adding), set(self.told)
        return other

    # --- what happens to it --------------------------------------------------------------------------------------
    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        if self.progress.life is Life.RUNNING:
            self._apply(Passed())

    def pass_deadline(self) -> None:
        """The current phase has lasted too long."""
        self.pass_time(max(self.round.deadline - self.now, 0.0) if self.progress.life is Life.RUNNING else 0.0)

    def add(self) -> None:
        """The worker adds what it was asked to."""
        while self.adding:
            effect = self.adding.pop(0)
            try:
                total = self._total(effect)
                self._at(effect.place, Added(total))
            except (CallRefused, KeyError):
                continue  # the attempt is over and its contents are cleared

    def restart(self, seconds: float = 0.0) -> None:
        """Die, and begin again from what was stored."""
        self.now += seconds
        self.progress = record.load(Progress, record.dump(self.progress))
        self.progress, _ = studies.restart_clock(self.progress, self.now)
        round_ = self.round
        again = self.progress.life in LIVE and round_.phase is Phase.ADD
        self.adding = [Add(round_.place, round_.tensors[round_.cursor], round_.survivors)] if again else []

    def tell(self, silos: frozenset[str], survivors: tuple[str, ...]) -> None:
        """From now on these silos hear of other survivors of the current sum."""
        round_ = self.round
        if round_.tensor is not None and (self.lie is None or not self._concerns(self.lie, round_.place)):
            self.lie = Lie(round_.place, round_.tensor, silos, survivors)

    # --- inside --------------------------------------------------------------------------------------------------
    def _concerns(self, lie: Lie, place: Place | None) -> bool:
        return (lie.place, lie.tensor) == (place, self.round.tensor)

    def _bent(self, work: Work | None, silo: str) -> Work | None:
        """The lie, if it is about this work; both lists come with all the signatures that can be had for them."""
        lie = self.lie
        if lie is None or work is None or not work.survivors or not self._concerns(lie, work.place):
            return work
        lied = silo in lie.silos
        survivors = lie.survivors if lied else work.survivors
        if work.task is not Task.REVEAL:
            uploads = tuple(one for one in work.uploads if one.part.silo in survivors)
            if work.task is Task.RECOUNT and len(uploads) != len(survivors):
                return work  # the wire has no such word: nobody has signed what should be there
            return replace(work, survivors=survivors, uploads=uploads)
        given = dict(lie.signed) if lied else {one.silo: one.signature for one in work.signatures}
        if self.colluder is not None:
            given[self.colluder.identity.name] = self.colluder.sign(self._list(survivors).to_sign())
        signatures = tuple(Signature(name, given[name]) for name in survivors if name in given)
        # Without any signature the wire has no such word: then somebody else's stands there.
        return replace(work, survivors=survivors, signatures=signatures or (Signature(survivors[0], b"none"),))

    def _list(self, survivors: tuple[str, ...]) -> SurvivorList:
        round_, study = self.round, self.study.digest
        entries = (RosterEntry(m.silo, m.certificate_pem, m.public_key, m.kem_key, m.signature) for m in round_.members)
        attempt = AttemptRef(study, Roster(study, tuple(entries)).digest, round_.place.round, round_.place.attempt)
        signed = Layout.of(map(str, round_.tensors), ()).signed
        heads = [self.content[round_.place, "note-shares", name][:signed] for name in round_.participants]
        notes = [sha256(head).digest() for head in heads]
        named = canonical(
            "shares notes", *(part for pair in zip(round_.participants, notes, strict=True) for part in pair)
        )
        return SurvivorList(attempt, str(round_.tensor), survivors, sha256(named).hexdigest())

    def _round(self, place: Place) -> Round:
        if self.progress.life not in LIVE or self.round.place != place:
            msg = f"attempt {place.attempt} at round {place.round} is over"
            raise WrongPhaseError(msg)
        return self.round

    def _at(self, place: Place, event: Event) -> None:
        try:
            self._round(place)
            self._apply(event)
        except WrongPhaseError as error:
            raise CallRefused(grpc.StatusCode.FAILED_PRECONDITION, str(error)) from None

    def _apply(self, event: Event) -> None:
        try:
            self.progress, effects = studies.advance(self.progress, event, self.now)
        except StudyStateError as error:
            raise WrongPhaseError(str(error)) from None
        for effect in effects:
            self._perform(effect)

    def _perform(self, effect: Effect) -> None:
        if isinstance(effect, Clear):
            for key in [key for key in self.content if key[0] == effect.place]:
                del self.content[key]
        elif isinstance(effect, Add):
            self.adding.append(effect)

    def _total(self, effect: Add) -> Part:
        place, slot = effect.place, str(effect.tensor)
        given = [self.content[place, slot, silo] for silo in effect.silos]
        total = add_up(plan(self.study).ring(effect.tensor), given)
        self.content[place, slot, SUM_FILE] = self.seen[place, slot, SUM_FILE] = total
        return Part(SUM, "", len(total), digest_of(total))
