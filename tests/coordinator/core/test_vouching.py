"""Who has signed the model that a round builds on, and who can catch up with it."""

from dataclasses import replace

import pytest

from coordinator.core import vouching
from coordinator.core.events import Confirmed
from coordinator.core.round import step
from coordinator.core.state import Held, Phase, Vouched
from protos.messages import Confirm
from protos.steps import Note, Task
from support.rounds import CONTENT, FIVE, accept, confirm, offer, reach, vouched_for, wanted, with_one_behind

LAST = FIVE[-1]


def signed(silo, content=CONTENT):
    return Vouched(silo, content, b"certificate", f"{silo}'s".encode())


@pytest.mark.parametrize(("others", "there"), [(0, False), (1, False), (2, True), (4, True)])
def test_a_silo_that_too_few_others_can_tell_the_model_sits_the_round_out(others, there):
    state = replace(with_one_behind(silos=FIVE), vouches=(*map(signed, FIVE[:others]), signed(LAST)))
    assert vouching.stranded(state) == (() if there and state.sharers else (LAST,))
    for silo in FIVE[:-1]:
        state, effects = step(state, accept(state.place, silo, model="e"), 1.0)
    assert (state.phase, LAST in state.names) == (Phase.GREET, there)
    assert any("too few silos have signed" in getattr(effect, "why", "") for effect in effects) != there


def test_nobody_shares_whose_note_was_refused_or_who_has_not_signed():
    state = reach(Phase.SHARE, with_one_behind(silos=FIVE))
    assert state.sharers == FIVE[:-1]
    assert vouched_for(state, "east", "polar").sharers == ("north", "south")
    assert replace(state, unshared=("north",)).sharers == ("east", "polar", "south")


def test_if_another_shares_the_refused_note_alone_is_gone():
    state = reach(Phase.JUDGE, with_one_behind(silos=FIVE))
    assert {part.kind for part in state.parts} > {Note.MODEL}
    after = vouching.passed_over(state)
    assert after.parts == tuple(part for part in state.parts if part.kind != Note.MODEL)
    assert (after.unshared, after.doubts) == ((state.actor,), ())


def test_the_signatures_of_a_round_are_those_of_most_holders_of_its_model():
    held = (
        Held("east", "m", signed("east")),
        Held("north", "m", signed("north")),
        Held("polar", "m", signed("polar", "d" * 64)),
        Held("south", "other", signed("south")),
        Held("west", "m"),
    )
    state = replace(reach(Phase.ADOPT, offer(silos=FIVE)), held=held, model="m")
    assert [one.silo for one in vouching.vouched(state)] == ["east", "north"]
    assert vouching.vouched(replace(state, held=())) == ()


def test_they_go_with_the_round_that_is_committed():
    state = reach(Phase.ADOPT, offer((reach(Phase.ADOPT).tensors[0],), silos=FIVE))
    for event in wanted(state):
        state, _ = step(state, event, 1.0)
    assert state.phase is Phase.COMMITTED
    assert state.vouches == tuple(map(signed, FIVE))


def test_who_has_caught_up_vouches_for_the_same_content_and_no_other():
    state = vouched_for(reach(Phase.CATCH_UP, with_one_behind(silos=FIVE)), LAST)
    assert vouching.joined(state, confirm(state.place, LAST, Task.CATCH_UP, model="e")).vouches[-1] == signed(LAST)
    other = Confirm(state.place, Task.CATCH_UP, model="e", content="d" * 64, vouch=b"signed")
    assert vouching.joined(state, Confirmed(LAST, other, b"certificate")) == state


def test_there_is_a_verdict_only_where_silos_judge():
    with pytest.raises(ValueError, match="nobody judges a note in the phase offer"):
        vouching.verdict(offer())
