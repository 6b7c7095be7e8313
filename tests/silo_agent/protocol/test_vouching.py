"""A silo that was away takes the model that its peers have signed, whatever one of them or the coordinator shows it."""

import re
from dataclasses import replace

import numpy as np
import pytest

from crypto.entropy import SystemEntropy
from crypto.pki.certificates import Trust
from crypto.pki.identity import Role
from crypto.secagg.holding import FalseNote
from crypto.secagg.packages import seal_note
from protos.messages import FALSE_MODEL, Vouch
from protos.steps import Note, Task
from silo_agent.protocol.catching_up import pack
from support.studies import tiny_study

FOUR = tiny_study(silos=["north", "polar", "south", "west"], min_silos=3, privacy={"colluders": 1})
LAST = FOUR.rounds
RULES = {"min_silos": 3, "noise_modes": ["local"], "colluders": 1}


def sharing(coordinator, number, sharer="north"):
    """The attempt at a round, up to the model that a peer has shared."""
    place = coordinator.place(number)
    roster = coordinator.offer(place)
    coordinator.deal(place, roster)
    coordinator.collect(
        Task.SHARE, place, (sharer,), coordinator.work(Task.SHARE, place, roster, actor=sharer), "note-model"
    )
    return place, roster


def away_in(coordinator, number):
    """West misses a round and is there at the next."""
    for earlier in range(number):
        coordinator.run_round(earlier)
    coordinator.run_round(number, silos=("north", "polar", "south"))


def forge(coordinator, silos, place, roster, sharer="north", **changes):
    """The sharer's note, made anew with other content under the right keyed digest."""
    running = silos[sharer].agent._running[place.study]
    current = silos[sharer].agent._tasks.models.current(running.study, place.round - 1)
    attempt = running.attempt(coordinator.work(Task.SHARE, place, roster, actor=sharer), place)
    heads = np.full(current.model.heads.shape, 7.25)
    false = replace(current, **{"model": replace(current.model, heads=heads), **changes})
    sealed = seal_note(attempt.membership.keys, attempt.note_label(Note.MODEL), pack(false), SystemEntropy())
    coordinator.content[place, "note-model", sharer] = sealed


@pytest.mark.parametrize("number", [1, LAST])
def test_false_heads_under_the_right_digest_are_refused_named_and_another_peer_s_are_taken(federate, number):
    coordinator, silos = federate(FOUR, **RULES)
    away_in(coordinator, number)
    place, roster = sharing(coordinator, number + 1)
    forge(coordinator, silos, place, roster)
    asked = coordinator.work(Task.CATCH_UP, place, roster, actor="north")
    coordinator.ask("west", asked)
    assert coordinator.said("west").dispute == "catch_up"
    assert "0 other silos have signed the model that north shared, but 2 must have" in coordinator.own_words("west")[1]
    assert not silos["west"].model(number).exists()
    judging = coordinator.work(Task.JUDGE, place, roster, actor="north")
    statement = FalseNote(place.study, place.round, place.attempt, "north", judging.parts[0].sha256).to_sign()
    for judge in ("polar", "south"):
        coordinator.ask(judge, judging)
        said = coordinator.said(judge)
        assert said.dispute == FALSE_MODEL
        pem = silos[judge].credential.certificate_pem
        Trust(silos[judge].credential.authority_pem).verify(pem, statement, said.signature, role=Role.SILO)
    share = coordinator.work(Task.SHARE, place, roster, actor="polar")
    coordinator.collect(Task.SHARE, place, ("polar",), share, "note-model")
    for judge in ("north", "south"):
        coordinator.ask(judge, coordinator.work(Task.JUDGE, place, roster, actor="polar"))
        assert not coordinator.said(judge).dispute, "the note of polar is the model that they hold"
    coordinator.ask("west", coordinator.work(Task.CATCH_UP, place, roster, actor="polar"))
    said = coordinator.said("west")
    assert (said.dispute, said.model) == ("", coordinator.expected(place))
    assert silos["west"].model(number).read_bytes() == silos["south"].model(number).read_bytes()
    assert said.content == next(c.content for c in reversed(silos["south"].client.confirms) if c.content)


@pytest.mark.parametrize("what", ["digest", "counts", "key"])
def test_every_part_of_what_is_shared_is_signed(federate, what):
    coordinator, silos = federate(FOUR, **RULES)
    away_in(coordinator, 1)
    place, roster = sharing(coordinator, 2)
    model = silos["north"].agent._tasks.models.current(coordinator.study, 1).model
    other = {"digest": "d" * 64, "counts": (1.0, 2.0), "key": bytes(32)}[what]
    forge(coordinator, silos, place, roster, model=model, **{what: other})
    coordinator.ask("west", coordinator.work(Task.CATCH_UP, place, roster, actor="north"))
    assert coordinator.said("west").dispute == "catch_up"


def without(vouches, *names):
    return tuple(one for one in vouches if one.silo not in names)


def under_one_name(vouches):
    north = next(one for one in vouches if one.silo == "north")
    return (north, Vouch("polar", north.certificate_pem, north.signature))


def of_a_stranger(vouches):
    return (replace(vouches[1], silo="elsewhere"), next(one for one in vouches if one.silo == "north"))


def of_another_round(vouches):
    return tuple(replace(one, signature=bytes(70)) for one in vouches)


@pytest.mark.parametrize(
    "handed",
    [
        lambda vouches: (),
        lambda vouches: without(vouches, "north", "polar"),
        under_one_name,
        of_a_stranger,
        of_another_round,
    ],
)
def test_fewer_than_t_and_one_signatures_of_listed_silos_do_not_suffice(federate, handed):
    coordinator, silos = federate(FOUR, **RULES)
    away_in(coordinator, 1)
    place, roster = sharing(coordinator, 2)
    asked = coordinator.work(Task.CATCH_UP, place, roster, actor="north")
    coordinator.ask("west", replace(asked, vouches=handed(asked.vouches)))
    assert coordinator.said("west").dispute == "catch_up"
    assert not silos["west"].model(1).exists()
    coordinator.ask("west", replace(asked, vouches=without(asked.vouches, "north")))
    assert not coordinator.said("west").dispute, "t + 1 suffice, and who shares need not be among them"


def test_its_own_signature_does_not_count(federate):
    coordinator, silos = federate(FOUR, **RULES)
    for number in (0, 1):
        coordinator.run_round(number)
    silos["west"].model(1).unlink()
    place, roster = sharing(coordinator, 2)
    assert coordinator.behind(place, roster) == ("west",)
    asked = coordinator.work(Task.CATCH_UP, place, roster, actor="north")
    own = {one.silo: one for one in asked.vouches}
    coordinator.ask("west", replace(asked, vouches=(own["north"], own["west"])))
    assert coordinator.said("west").dispute == "catch_up"
    assert "1 other silos" in coordinator.own_words("west")[1]
    coordinator.ask("west", asked)
    assert not coordinator.said("west").dispute


@pytest.mark.parametrize("word", range(4))
def test_a_silo_whose_own_files_have_changed_does_not_share_them(federate, word):
    coordinator, silos = federate(FOUR, **RULES)
    away_in(coordinator, 1)
    place = coordinator.place(2)
    roster = coordinator.offer(place)
    coordinator.deal(place, roster)
    line = silos["north"].model(1).with_suffix(".digest")
    words = line.read_text().split()
    words[word] = words[word][::-1]
    line.write_text(" ".join(words))
    coordinator.ask("north", coordinator.work(Task.SHARE, place, roster, actor="north"))
    assert coordinator.said("north").dispute in ("local_file", "model_file")
    assert re.search(r"model-1.digest (does not fit|says)", coordinator.own_words("north")[1])


@pytest.mark.parametrize("readable", [True, False])
def test_a_verdict_survives_a_restart_and_is_about_one_note(federate, readable):
    coordinator, silos = federate(FOUR, **RULES)
    away_in(coordinator, 1)
    place, roster = sharing(coordinator, 2)
    if readable:
        forge(coordinator, silos, place, roster)
    else:
        note = place, "note-model", "north"
        coordinator.content[note] = coordinator.content[note][:-1] + bytes([coordinator.content[note][-1] ^ 1])
    judging = coordinator.work(Task.JUDGE, place, roster, actor="north")
    coordinator.ask("south", judging)
    silos["south"].restart()
    coordinator.ask("south", judging)
    assert [c.dispute for c in silos["south"].client.confirms[-2:]] == [FALSE_MODEL] * 2


@pytest.mark.parametrize("anew", [True, False])
def test_a_silo_that_left_an_attempt_takes_new_keys_of_the_same_roster_and_no_old_ones(federate, anew):
    coordinator, silos = federate(FOUR, **RULES)
    for number in (0, 1):
        coordinator.run_round(number)
    silos["west"].model(1).unlink()
    silos["west"].agent._abandon(FOUR.digest)
    before = coordinator.keyed
    if anew:
        coordinator.keyed = ()
        assert coordinator.run_round(2) == before
        assert len({silo.model(2).read_bytes() for silo in silos.values()}) == 1
        return
    place, roster = sharing(coordinator, 2)
    coordinator.ask("west", coordinator.work(Task.CATCH_UP, place, roster, actor="north"))
    assert coordinator.said("west").dispute == "out_of_turn"
    assert "before the roster's keys were dealt" in coordinator.said("west").explanation
