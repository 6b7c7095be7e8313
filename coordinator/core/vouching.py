"""Who has signed which model the round builds on, and what follows if a silo refuses the model that a peer shares.

At the end of a round every silo signs what it holds. The signatures go with the study from round to round. A silo that
was away adopts a model only if `colluders` + 1 others have signed it (docs/design/sums.md, "A model for a silo that was
away"). If it refuses what a peer shares, those who hold the model say whether the note is false. So nobody is blamed on
one silo's word. Pure.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from coordinator.core.events import Confirmed
from coordinator.core.state import Held, Phase, Round, Vouched
from protos.messages import FALSE_MODEL
from protos.steps import Note


def held(event: Confirmed) -> Held:
    """Return what a silo says that it holds, with its signature if it gave one."""
    confirm = event.confirm
    signed = Vouched(event.silo, confirm.content, event.certificate_pem, confirm.vouch) if confirm.vouch else None
    return Held(event.silo, confirm.model, signed)


def vouched(state: Round) -> tuple[Vouched, ...]:
    """Return the signatures over the content that most holders of the round's model have signed; empty if none has.

    A silo that signed another content is not among them, so it never shares.
    """
    signed = [one.vouched for one in state.held if one.vouched and one.model == state.model]
    lost = state.lost
    votes = Counter(one.content for one in signed if one.silo not in lost)
    if not votes:
        return ()
    content = max(sorted(votes), key=votes.__getitem__)
    return tuple(one for one in signed if one.content == content)


def joined(state: Round, event: Confirmed) -> Round:
    """Return the state with the signature of a silo that has caught up, if it signs what the others have signed."""
    one = held(event).vouched
    others = tuple(known for known in state.vouches if known.silo != event.silo)
    if one is None or one.content not in {known.content for known in others}:
        return state
    return replace(state, vouches=tuple(sorted((*others, one), key=lambda known: known.silo)))


def stranded(state: Round) -> tuple[str, ...]:
    """Return the silos that are behind and cannot catch up: too few others have signed, or nobody is left to share."""
    able = bool(state.sharers)
    return tuple(
        name for name in state.behind if not able or sum(one.silo != name for one in state.vouches) <= state.colluders
    )


def doubted(state: Round) -> Round:
    """Keep who refuses the note, and take as up to date who has caught up with it."""
    against = {one.silo for one in state.objections}
    through = state.done - against
    seats = tuple(replace(s, model=state.expected) if s.member.silo in through else s for s in state.seats)
    return replace(state, seats=seats, doubts=state.objections)


def passed_over(state: Round) -> Round:
    """Return the state in which another silo shares: the note is gone, and who made it shares no more in this round."""
    parts = tuple(part for part in state.parts if part.kind != Note.MODEL)
    return replace(state, parts=parts, unshared=(*state.unshared, state.actor), doubts=())


@dataclass(frozen=True)
class VouchVerdict:
    """What those say who hold the model that was shared."""

    false: tuple[str, ...]
    """They have signed that the note is not the model that they hold."""
    right: tuple[str, ...]
    """They say that it is."""


def verdict(state: Round) -> VouchVerdict:
    """Return the verdict once the judges have been heard. Raises ValueError in any other phase."""
    if state.phase is not Phase.JUDGE:
        msg = f"nobody judges a note in the phase {state.phase}"
        raise ValueError(msg)
    said = {one.silo: one.dispute for one in state.objections}
    false = tuple(sorted(name for name, dispute in said.items() if dispute == FALSE_MODEL))
    return VouchVerdict(false, tuple(sorted(state.done.difference(said))))
