"""What a hostile member of a simulated study does: acts that stay until others take their place.

Each act is a function of the silo that does it. The agent is the real one; what it sends is bent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from coordinator.core.state import IN_PHASE, Phase
from crypto.entropy import SystemEntropy
from crypto.errors import RecoveryRefused
from crypto.secagg.agreement import _offer_message
from crypto.secagg.dealt.bundles import bound
from crypto.secagg.packages import seal_note
from crypto.secagg.unmasking import _shares_key
from protos.messages import FALSE_MODEL, Answer, Confirm, Member, Place, Tensor, UploadHeader
from protos.steps import Note, Task
from silo_agent.protocol.catching_up import pack
from silo_agent.protocol.membership import Membership
from support.simulated_silo import SimulatedSilo

PHASES = tuple(IN_PHASE)
DISPUTED = (Task.TAKE, Task.CATCH_UP, Task.CHECK, Task.EXAMINE, Task.SIGN, Task.OPEN, Task.ADOPT)
"""Tasks that a silo confirms, and may dispute."""
GARBLED = (Note.GREETING, Note.KEYS, Note.SHARES, Note.REVEAL, Note.HEADS)


def behave(silo: SimulatedSilo) -> None:
    """Do from now on what is asked."""
    for act in ("offers", "spoils", "bends", "says", "silent", "deals", "accuses"):
        if act in vars(silo):
            setattr(silo, act, type(silo).__dataclass_fields__[act].default)


def offer_bad_keys(silo: SimulatedSilo) -> None:
    """Offer a second key that is none, and sign the offer."""

    def offer(answer: Answer) -> Answer:
        if answer.member is None:
            return answer
        kem = b"\xff" * len(answer.member.kem_key)
        signature = silo.credential.sign(_offer_message(answer.place.study, answer.member.public_key, kem))
        return replace(answer, member=replace(answer.member, kem_key=kem, signature=signature))

    silo.offers = offer


def copy_keys(silo: SimulatedSilo, victim: SimulatedSilo) -> None:
    """Offer another silo's keys as its own, once they have been seen, and sign the offer."""
    seen: list[Member] = []

    def watch(answer: Answer) -> Answer:
        seen.extend([] if answer.member is None else [answer.member])
        return answer

    def offer(answer: Answer) -> Answer:
        if answer.member is None or not seen:
            return answer
        keys = {"public_key": seen[-1].public_key, "kem_key": seen[-1].kem_key}
        signature = silo.credential.sign(_offer_message(answer.place.study, *keys.values()))
        return replace(answer, member=replace(answer.member, **keys, signature=signature))

    victim.offers, silo.offers = watch, offer


def spoil(silo: SimulatedSilo, tensors: frozenset[Tensor]) -> None:
    """Upload random residues of these tensors."""
    silo.spoils = lambda header: header.tensor in tensors


def deal_wrongly(silo: SimulatedSilo, victims: frozenset[str]) -> None:
    """Seal wrong shares for these holders, and sign that note."""
    silo.deals = lambda name, box: box[:-1] + bytes([box[-1] ^ 1]) if name in victims else box


def accuse(silo: SimulatedSilo, victim: int, how: str) -> None:
    """Complain about another member's shares, which are right: with the right key, another one, or none."""

    def complaint(membership: Membership, place: Place) -> RecoveryRefused:
        others = [name for name in membership.roster.names if name != silo.name]
        owner = others[victim % len(others)]
        asked = bound("shares", membership.attempt(place), owner, silo.name)
        pairs = membership._pairs()
        right = _shares_key(pairs, owner, silo.name, asked) if owner in pairs else bytes(32)  # on a circle it has none
        keys = {"right": right, "wrong": bytes(32), "none": b""}
        return RecoveryRefused(f"{owner} sealed its shares for this silo wrongly", owner, keys[how])

    silo.accuses = complaint


def fall_silent(silo: SimulatedSilo, phase: Phase) -> None:
    """Say nothing in this phase of any attempt."""
    silo.silent = lambda work: work.task is IN_PHASE[phase].task


def garble(silo: SimulatedSilo, kind: Note, place: int) -> None:
    """Change one byte of every note of a kind."""

    def bend(header: UploadHeader, content: bytes) -> bytes:
        at = place % len(content)
        return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :] if header.kind == kind else content

    silo.bends = bend


def leave_its_note_unsigned(silo: SimulatedSilo) -> None:
    """Sign the upload of a shares note and not the note, and find nothing wrong with it."""

    def bend(header: UploadHeader, content: bytes) -> bytes:
        return content[:-1] + bytes([content[-1] ^ 1]) if header.kind == Note.SHARES else content

    silo.bends = bend
    _saying(silo, Task.CHECK, lambda confirm: Confirm(confirm.place, Task.CHECK))


def share_another_model(silo: SimulatedSilo) -> None:
    """Share a model that nobody has made with silos that were away, sealed as the right one would be."""

    def bend(header: UploadHeader, content: bytes) -> bytes:
        if header.kind != Note.MODEL:
            return content
        assert silo.agent is not None
        attempt = silo.agent._running[header.place.study].attempt(silo.work, header.place)
        current = silo.agent._tasks.models.current(attempt.study, header.place.round - 1)
        other = replace(current, counts=tuple(count + 1 for count in current.counts))
        return seal_note(attempt.membership.keys, attempt.note_label(Note.MODEL), pack(other), SystemEntropy())

    silo.bends = bend


def _saying(silo: SimulatedSilo, task: Task, say: Callable[[Confirm], Confirm]) -> None:
    silo.says = lambda confirm: say(confirm) if confirm.task is task else confirm


def dispute(silo: SimulatedSilo, task: Task) -> None:
    """Dispute a task that is done."""

    def say(confirm: Confirm) -> Confirm:
        said = Confirm(confirm.place, task, confirm.tensor, dispute="frame", explanation="what came is malformed")
        return confirm if confirm.dispute else said

    _saying(silo, task, say)


def hold_another_model(silo: SimulatedSilo) -> None:
    """Say that another model came of an opened sum, or of solved heads."""

    def say(confirm: Confirm) -> Confirm:
        opened = confirm.task in (Task.OPEN, Task.ADOPT) and not confirm.dispute
        return replace(confirm, model="f" * 64) if opened else confirm

    silo.says = say


def misjudge(silo: SimulatedSilo) -> None:
    """Say of a shared model the opposite of what is so."""

    def say(confirm: Confirm) -> Confirm:
        if confirm.dispute:
            return Confirm(confirm.place, Task.JUDGE)
        words = "another model than this silo holds"
        return replace(confirm, dispute=FALSE_MODEL, explanation=words, signature=b"a signature")

    _saying(silo, Task.JUDGE, say)


def call_spoilt(silo: SimulatedSilo) -> None:
    """Refuse a sum that is right, and state that it is spoilt."""

    def say(confirm: Confirm) -> Confirm:
        if confirm.task is Task.OPEN and not confirm.dispute:
            return Confirm(confirm.place, Task.OPEN, confirm.tensor, dispute="opening", explanation="it does not open")
        if confirm.task is Task.RECOUNT and confirm.dispute:
            signature = silo.credential.sign(silo.coordinator.round.statement("").to_sign())
            return Confirm(confirm.place, Task.RECOUNT, confirm.tensor, signature=signature)
        return confirm

    silo.says = say


def find_another_liar(silo: SimulatedSilo, victim: int) -> None:
    """Find in a complaint that another has lied than the one who did."""

    def say(confirm: Confirm) -> Confirm:
        others = [name for name in silo.coordinator.round.names if name != confirm.culprit]
        return confirm if confirm.dispute else replace(confirm, culprit=others[victim % len(others)])

    _saying(silo, Task.EXAMINE, say)


def state_a_culprit(silo: SimulatedSilo, victim: int) -> None:
    """State of a spoilt sum that what another silo has signed shows the fault."""

    def say(confirm: Confirm) -> Confirm:
        if confirm.dispute:
            return confirm
        round_ = silo.coordinator.round
        others = [name for name in round_.survivors if name != silo.name]
        culprit = others[victim % len(others)]
        signature = silo.credential.sign(round_.statement(culprit).to_sign())
        return replace(confirm, culprit=culprit, signature=signature)

    _saying(silo, Task.RECOUNT, say)
