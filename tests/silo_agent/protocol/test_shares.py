"""A silo reads its own slices before it uploads, and more only where a sum cannot be opened without."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from crypto.secagg.words import Word
from protos.messages import Tensor
from protos.steps import Task
from silo_agent.storage.errors import StateOlderError
from support.planted import FIVE, FOUR, refused, standing
from support.studies import tiny_study


@pytest.fixture
def scene(federate):
    """Five silos of which four suffice, and what each fetches of shares notes: whose, and about whom."""
    coordinator, silos = federate(
        tiny_study(silos=FIVE, min_silos=4, heads={"pooled_rounds": 2}, personal={"epochs": 1}), min_silos=3
    )
    asked, notes = [], coordinator.notes

    def recorded(silo, place, kind, owners, about):
        asked.append((silo, tuple(owners), tuple(about)))
        return notes(silo, place, kind, owners, about)

    coordinator.notes = recorded
    return coordinator, silos, asked


def lying(coordinator, silos, place, liar, about):
    """Have a silo reveal a wrong share of another's secret, signed and sealed as the right one would be."""
    attempt = silos[liar].running.attempt(coordinator.work(Task.SIGN, place, coordinator.keyed, Tensor.HEADS), place)
    bundle = attempt.bundles[about]
    wrong = {spot: bytes([share[0]]) + bytes(32) for spot, share in bundle.shares.items()}
    attempt.bundles = {**attempt.bundles, about: replace(bundle, shares=wrong)}


def opened(coordinator, place, tensor=Tensor.HEADS) -> set[str]:
    return coordinator.open(place, coordinator.keyed, tensor)


def test_a_round_in_which_nobody_is_missing_is_done_with_own_slices_that_are_fetched_once(scene):
    coordinator, _, asked = scene
    coordinator.run_round(0)
    del asked[:]
    coordinator.run_round(1)
    assert sorted(asked) == [(silo, FIVE, (silo,)) for silo in FIVE], "the second sum needs nothing more"


def test_a_silo_that_begins_again_needs_nothing_that_it_has_fetched(scene):
    coordinator, silos, asked = scene
    coordinator.run_round(0)
    place, roster = coordinator.begin(1)
    coordinator.gather(place, roster, Tensor.HEADS)
    del asked[:]
    silos["north"].restart()
    coordinator.sign(place, roster, Tensor.HEADS)
    coordinator.reveal(place, roster, Tensor.HEADS)
    silos["south"].restart()
    assert len(opened(coordinator, place)) == 1
    assert asked == []


def test_what_others_say_of_themselves_is_kept_when_their_notes_are_read(scene):
    """Before any reveal comes, which says it again."""
    coordinator, silos, _ = scene
    coordinator.run_round(0)
    north, study = silos["north"], coordinator.study.digest
    before = {name: word.said for name, word in north.state.heard.of(study).items()}
    place, roster = coordinator.begin(1)
    coordinator.gather(place, roster, Tensor.HEADS)
    after = {name: word.said for name, word in north.state.heard.of(study).items()}
    assert set(after) == set(FIVE) - {"north"}
    assert all(after[name] > before[name] for name in after)


def test_of_several_peers_that_saw_as_much_more_the_first_by_name_is_told(scene):
    coordinator, silos, _ = scene
    coordinator.run_round(0)
    place, _roster = coordinator.begin(1)
    attempt = silos["north"].running.attempt(coordinator.work(Task.EXCHANGE, place, coordinator.keyed), place)
    shares, sign = silos["north"].agent._tasks._shares, silos["north"].credential.sign
    own, older, newer = (Word.of(attempt.membership.attempt(place), "north", said, sign) for said in (90, 91, 92))
    shown = {"north": own, "west": newer, "south": newer, "east": older}
    with pytest.raises(StateOlderError, match="what south last saw of it"):
        shares._require_newest(attempt, shown)


@pytest.mark.parametrize("tensor", [Tensor.HEADS, Tensor.ENCODER])
def test_of_who_dropped_out_the_others_read_the_whole_note_and_what_they_dealt_to_it(scene, tensor):
    coordinator, silos, asked = scene
    coordinator.run_round(0)
    place, roster = coordinator.begin(1)
    if tensor is Tensor.ENCODER:
        coordinator.run_tensor(place, roster, Tensor.HEADS)
    coordinator.sum_up(place, roster, tensor, {(Task.CONTRIBUTE, tensor): ("polar",)})
    del asked[:]
    assert len(opened(coordinator, place, tensor)) == 1
    assert sorted(asked) == sorted(one for silo in FOUR for one in ((silo, ("polar",), ()), (silo, FOUR, ("polar",))))
    assert len({silos[name].running.standing.digest for name in FOUR}) == 1


def test_a_wrong_share_is_found_by_the_whole_note_of_whose_it_is_and_the_others_open_the_sum(scene):
    coordinator, silos, asked = scene
    coordinator.run_round(0)
    place, roster = coordinator.begin(1)
    coordinator.gather(place, roster, Tensor.HEADS)
    coordinator.sign(place, roster, Tensor.HEADS)
    lying(coordinator, silos, place, "east", "west")
    coordinator.reveal(place, roster, Tensor.HEADS)
    del asked[:]
    with capture_logs() as logs:
        assert len(opened(coordinator, place)) == 1
    assert [one["silos"] for one in logs if one["event"] == "reveals of no use"] == [("east",)] * 5
    whole = [(silo, owners) for silo, owners, about in asked if not about]
    assert whole == [(silo, ("west",)) for silo in FIVE if silo != "east"], (
        "east sees by its own slice that it has lied"
    )


Shown = Callable[[bytes, bytes], bytes]


@pytest.mark.parametrize(
    "shown",
    [lambda note, _: note[:-1] + bytes([note[-1] ^ 1]), lambda _, earlier: earlier, lambda note, _: note[:-1]],
    ids=["altered", "of another attempt", "cut"],
)
def test_another_note_than_the_one_whose_slice_was_read_opens_nothing(scene, shown):
    coordinator, silos, _ = scene
    coordinator.run_round(0)
    place, roster = coordinator.begin(1)
    earlier = coordinator.content[place, "note-shares", "polar"]
    place, roster = coordinator.begin(1, 2)
    coordinator.sum_up(place, roster, Tensor.HEADS, {(Task.CONTRIBUTE, Tensor.HEADS): ("polar",)})
    stood, slot = standing(silos), (place, "note-shares", "polar")
    right = coordinator.content[slot]
    coordinator.content[slot] = shown(right, earlier)
    coordinator.ask("north", coordinator.work(Task.OPEN, place, roster, Tensor.HEADS))
    refused(coordinator, "north", Task.OPEN, "recovery", "shares note")
    assert standing(silos) == stood
