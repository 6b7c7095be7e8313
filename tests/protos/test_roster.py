"""A roster is sent once, then named by its digest."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from protos.messages import Member, MessageError, Place, Work
from protos.roster import RosterMemory, digest_of, named
from protos.steps import Task

PLACE = Place("5" * 64, 1, 2)
ROSTER = tuple(Member(name, b"pem", bytes(32), bytes(1184), b"signed") for name in ("north", "south"))
OTHER = {
    "silo": "polar",
    "certificate_pem": b"other",
    "public_key": b"1" * 32,
    "kem_key": b"1" * 1184,
    "signature": b"other",
}
GREET = Work(Task.GREET, PLACE, roster=ROSTER)


def test_the_digest_says_all_that_a_member_is_known_by():
    assert set(OTHER) == {field.name for field in fields(Member)}
    changed = [(replace(ROSTER[0], **{field: value}), ROSTER[1]) for field, value in OTHER.items()]
    moved = (replace(ROSTER[0], certificate_pem=b"pems", signature=b"igned"), ROSTER[1])
    rosters = [ROSTER, ROSTER[::-1], ROSTER[:1], moved, *changed]
    assert len({digest_of(roster) for roster in rosters}) == len(rosters)
    assert digest_of(ROSTER) == digest_of(tuple(replace(member) for member in ROSTER))


def test_the_digest_is_the_same_at_both_ends_of_every_version():
    assert digest_of(ROSTER) == "b3d2b279d84e3442d2eab3dc608c51874e03cf75f970f851b0a6198c6e4606f4"


def test_who_holds_the_roster_is_told_its_name_alone():
    memory = RosterMemory()
    assert memory.held == ""
    assert memory.whole(named(GREET, memory.held)) == GREET
    assert memory.held == digest_of(ROSTER)
    short = named(GREET, memory.held)
    assert (short.roster, short.roster_sha256) == ((), digest_of(ROSTER))
    assert memory.whole(short) == GREET
    other = replace(GREET, roster=ROSTER[:1])
    assert named(other, memory.held) == other
    assert memory.whole(other) == other
    assert memory.held == digest_of(ROSTER[:1])
    assert named(Work(Task.WAIT), digest_of(())) == Work(Task.WAIT), "no roster has no name"
    assert memory.whole(Work(Task.WAIT)) == named(Work(Task.WAIT), "") == Work(Task.WAIT)


def test_a_name_that_this_silo_has_not_given_is_refused_and_the_roster_asked_for():
    memory = RosterMemory()
    memory.whole(GREET)
    with pytest.raises(MessageError, match="roster_sha256: names a roster that this silo has not said that it holds"):
        memory.whole(replace(GREET, roster=(), roster_sha256="0" * 64))
    assert memory.held == ""
    with pytest.raises(MessageError, match="has not said"):
        RosterMemory().whole(replace(GREET, roster=(), roster_sha256=digest_of(())))


def test_a_name_stands_in_place_of_a_roster_and_is_a_digest():
    with pytest.raises(MessageError, match="comes with a roster"):
        replace(GREET, roster_sha256="0" * 64)
    with pytest.raises(MessageError, match=r"work\.roster_sha256: is not a SHA-256"):
        Work(Task.GREET, PLACE, roster_sha256="north")
