"""What follows from the state of an attempt: who acts, who is asked, how long a phase may last."""

from __future__ import annotations

from dataclasses import is_dataclass, replace

import pytest

from coordinator.core import events, state, study
from coordinator.core.events import Restarted
from coordinator.core.round import step
from coordinator.core.state import (
    ADDED,
    COLLECTED,
    CONFIRMED,
    OVER,
    RELAYED,
    SPARING,
    SUMMING,
    Loss,
    OfferedKeys,
    Phase,
    Seat,
    Voided,
)
from protos.messages import Place, Signature, Tensor, Void
from protos.steps import Note
from support.rounds import CATCHING_UP, FIVE, LIMITS, SILOS, member, offer, reach, with_one_behind

NORTH, SOUTH, WEST = SILOS
LASTS = {
    "offer": {Phase.OFFER},
    "keys": {Phase.GREET, Phase.DEAL, Phase.TAKE, Phase.EXCHANGE, Phase.CHECK, Phase.EXAMINE},
    "train": {Phase.GATHER, Phase.ADD, Phase.RECOUNT},
    "open": {Phase.VOID, *CATCHING_UP, Phase.SIGN, Phase.REVEAL, Phase.OPEN},
    "solve": {Phase.SOLVE, Phase.ADOPT},
}


def test_every_phase_but_the_waiting_and_the_end_has_its_limit():
    for name, phases in LASTS.items():
        assert {LIMITS.of(phase) for phase in phases} == {getattr(LIMITS, name)}
    endless = {phase for phase in Phase if LIMITS.of(phase) == float("inf")}
    assert endless == {Phase.WAIT, *OVER} == set(Phase) - set().union(*LASTS.values())


def test_every_phase_that_silos_act_in_has_one_way_to_end():
    acting = [*RELAYED, *COLLECTED, *CONFIRMED, Phase.GATHER]
    assert len(set(acting)) == len(acting)
    assert set(Phase) - set(acting) == {Phase.OFFER, Phase.WAIT, Phase.ADD, *OVER}


@pytest.mark.parametrize("phase", Phase)
def test_a_tensor_is_named_while_it_is_summed(phase):
    assert reach(phase).tensor is (Tensor.HEADS if phase in (*SUMMING, Phase.RECOUNT, Phase.VOID) else None)
    if phase in SUMMING:
        assert reach(phase, cursor=0 if phase in (Phase.SOLVE, Phase.ADOPT) else 1).tensor is not None


def test_whoever_may_be_spared_is_lost_in_the_sums_alone():
    assert set(SPARING) == {Phase.EXCHANGE, Phase.CHECK, *SUMMING}
    assert set(ADDED) < set(SUMMING)


PLACES = [Place("5" * 64, number, attempt) for number, attempt in ((0, 1), (1, 1), (1, 2), (2, 1), (2, 2))]


@pytest.mark.parametrize("phase", [Phase.DEAL, Phase.SOLVE])
def test_the_actor_rotates_with_round_and_attempt(phase):
    state = reach(phase)
    assert [replace(state, place=place).actor for place in PLACES] == [SOUTH, WEST, NORTH, NORTH, SOUTH]


def test_who_is_up_to_date_shares_and_everybody_deals_and_solves():
    sharing, dealing = reach(Phase.SHARE), reach(Phase.DEAL, with_one_behind())
    solving = reach(Phase.SOLVE, with_one_behind())
    assert [replace(sharing, place=place).actor for place in PLACES] == [SOUTH, NORTH, NORTH, NORTH, SOUTH]
    for acting in (dealing, solving):
        assert [replace(acting, place=place).actor for place in PLACES] == [SOUTH, WEST, NORTH, NORTH, SOUTH]


def test_who_was_lost_does_not_solve_and_nobody_else_s_loss_changes_the_solver():
    state = reach(Phase.SOLVE, offer(silos=FIVE))
    assert state.actor == "polar"
    others = [replace(state, losses=(Loss(name, "late"),)).actor for name in FIVE if name != "polar"]
    assert others == ["polar"] * 4
    gone = tuple(Loss(name, "late") for name in ("polar", "south", "west"))
    assert [replace(state, losses=gone[:count]).actor for count in (1, 2, 3)] == ["south", "west", "east"]


@pytest.mark.parametrize(("phase", "maker"), [(Phase.TAKE, WEST), (Phase.CATCH_UP, NORTH), (Phase.ADOPT, WEST)])
def test_while_a_note_is_fetched_the_actor_is_who_made_it(phase, maker):
    assert reach(phase).actor == maker
    place = replace(reach(phase).place, attempt=9)
    assert replace(reach(phase), place=place).actor == maker


def test_the_heads_stay_the_solver_s_though_it_is_lost_while_they_are_adopted():
    state, _ = step(reach(Phase.ADOPT, offer(silos=FIVE)), Restarted("polar", "new"), 0.0)
    assert (state.actor, "polar" in state.asked) == ("polar", False)


def test_where_nobody_acts_for_the_others_there_is_no_actor():
    acting = {phase for phase in Phase if reach(phase).actor}
    assert acting == {*RELAYED, Phase.TAKE, Phase.CATCH_UP, Phase.JUDGE, Phase.ADOPT}


def test_why_a_silo_was_lost():
    state = replace(reach(Phase.GATHER), losses=(Loss(SOUTH, "late"),))
    assert [state.why_lost(silo) for silo in SILOS] == ["", "late", ""]
    assert (state.lost, state.present) == ({SOUTH}, (NORTH, WEST))


def test_every_list_is_voided_by_its_own_void():
    promises, certificates = (Signature(NORTH, b"north's"),), (b"certificate",)
    voids = {tensor: Void(number, promises, certificates) for number, tensor in enumerate(sorted(Tensor), 1)}
    held = tuple(Voided(tensor, void) for tensor, void in voids.items())
    for tensor in Tensor:
        assert replace(offer(), voided=held).void_of(tensor) == voids[tensor]
        assert replace(offer(), voided=tuple(one for one in held if one.tensor is not tensor)).void_of(tensor) is None


@pytest.mark.parametrize("module", [events, state, study], ids=lambda module: module.__name__)
def test_what_is_stored_and_handed_on_never_changes(module):
    values = [held for held in vars(module).values() if isinstance(held, type) and is_dataclass(held)]
    assert values
    assert all(held.__dataclass_params__.frozen for held in values)


def test_notes_are_ordered_by_kind_and_silo_whoever_came_first():
    state = reach(Phase.OPEN)
    assert list(state.parts) == sorted(state.parts, key=lambda part: (part.kind, part.silo))
    assert {part.kind for part in state.parts} == {Note.GREETING, Note.KEYS, Note.SHARES, Note.REVEAL, "sum"}


def test_the_keys_of_each_silo_are_remembered_as_it_has_shown_them_last():
    begun = reach(Phase.GREET)
    assert [one.silo for one in begun.all_shown] == list(SILOS)
    later = replace(offer(), shown=begun.all_shown, seats=(Seat(member("south", b"n"), "s", ""),))
    now = {one.silo: one for one in later.all_shown}
    assert now["south"] == OfferedKeys.by(member("south", b"n")) != OfferedKeys.by(member("south"))
    assert now["north"] == OfferedKeys.by(member("north"))
    north = member("north")
    for copied in ({"public_key": north.public_key}, {"kem_key": north.kem_key}):
        assert OfferedKeys.by(replace(member("west"), **copied)).is_of(now["north"])
    assert not OfferedKeys.by(member("west")).is_of(now["north"])
    assert not OfferedKeys.by(north).is_of(now["north"])  # they are its own
