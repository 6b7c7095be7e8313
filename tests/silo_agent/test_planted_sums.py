"""A coordinator that has altered sums opened, again and again, to learn from the answers what is in them."""

from dataclasses import replace

import numpy as np
import pytest
from structlog.testing import capture_logs

from crypto.rings.ckks_public import PRIME
from crypto.rings.rings import ring_of
from protos.messages import Tensor, Work
from protos.steps import Task
from silo_agent.core.turns import Stage
from support.planted import FIVE

SLOT = "sum-counts"
SAID = ("opening", "this silo does not open the sum; see its log, and begin a new attempt")


def ready(coordinator):
    """The counts of round 0, ready to be opened."""
    place, roster = coordinator.begin(0)
    coordinator.sum_up(place, roster, Tensor.COUNTS)
    return place, roster


def plus(constant):
    """The sum with a constant added to every value that it holds: to the first coefficient of c0."""

    def alter(content):
        ring = ring_of("ckks")
        words = ring.read(content)
        words[0] = (int(words[0]) + constant) % PRIME
        return ring.write(words)

    return alter


def noise(content):
    ring = ring_of("ckks")
    words = ring.read(content)
    return ring.write(np.random.default_rng(1).integers(0, PRIME, words.size, dtype=np.uint64))


def asks(coordinator, place, roster, name, content):
    """Have a silo open this; returns what it says, and what its own log says."""
    coordinator.content[place, SLOT, ""] = content
    with capture_logs() as logs:
        coordinator.ask(name, coordinator.work(Task.OPEN, place, roster, Tensor.COUNTS))
    said = coordinator.said(name)
    return (said.dispute, said.explanation), [entry["why"] for entry in logs if entry["event"] == "disputed"]


ALTERED = (plus(1), plus(2**51), noise, lambda content: content[:-1], lambda content: content + b"\0")


def test_whatever_is_wrong_with_a_sum_the_silos_say_the_same(five):
    coordinator, _ = five()
    place, roster = ready(coordinator)
    honest = coordinator.content[place, SLOT, ""]
    told, logged = set(), set()
    for name, alter in zip(FIVE, ALTERED, strict=True):
        said, why = asks(coordinator, place, roster, name, alter(honest))
        told.add(said)
        logged.update(why)
    assert told == {SAID}
    assert len(logged) > 2, "the silo's own log says what is wrong"


def test_reveals_that_do_not_open_the_sum_are_no_other_answer(five):
    coordinator, _ = five()
    place, roster = ready(coordinator)
    for name in ("polar", "south", "west"):
        coordinator.content[place, "note-reveal-counts", name] = b"0" * 200
    said, why = asks(coordinator, place, roster, "north", coordinator.content[place, SLOT, ""])
    assert said == SAID
    assert "ignored: polar, south, west" in why[0]


@pytest.mark.parametrize("restart", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_place_that_a_silo_has_left_is_not_taken_again(five, restart):
    coordinator, silos = five()
    place, roster = ready(coordinator)
    honest = coordinator.content[place, SLOT, ""]
    assert asks(coordinator, place, roster, "north", plus(1)(honest))[0] == SAID
    if restart:
        silos["north"].restart()
    coordinator.ask("north", Work(Task.DECIDE, place))
    answer = coordinator.clients["north"].answers[-1]
    assert (answer.member, answer.refusal) == (None, "out_of_turn")
    assert "begin a later attempt" in answer.explanation or "see the log" in answer.explanation
    coordinator.keyed = ()
    coordinator.run_round(0, attempt=2)


def test_a_place_in_which_work_was_done_is_not_taken_again(five):
    """Not left, but opened: what was asked once is not asked once more."""
    coordinator, silos = five()
    place, roster = ready(coordinator)
    coordinator.open(place, roster, Tensor.COUNTS)
    stood = silos["north"].running.standing.digest
    for again in (place, coordinator.place(0, 2), place):
        if again.attempt == 1:
            coordinator.ask("north", Work(Task.DECIDE, again))
            assert coordinator.clients["north"].answers[-1].refusal == "out_of_turn"
    assert silos["north"].running.standing.digest == stood


def test_of_two_sums_under_one_label_only_the_first_is_ever_tried(five, monkeypatch):
    """Even where a place could be taken again: the label is the same, and its sum is known."""
    coordinator, silos = five()
    place, roster = ready(coordinator)
    honest = coordinator.content[place, SLOT, ""]
    assert asks(coordinator, place, roster, "north", plus(1)(honest))[0] == SAID
    monkeypatch.setattr("silo_agent.core.turns._check_later", lambda *_: None)
    silos["north"].restart()
    monkeypatch.setattr("silo_agent.protocol.tasks.Tasks._contribute", lambda *_: None)
    for attempt in range(2):
        coordinator.ask("north", Work(Task.DECIDE, place))
        coordinator.keyed = ()
        north = silos["north"].running
        north.standing = replace(north.standing, turn=_at_reveal(north.turn, coordinator, place, roster))
        said, why = asks(coordinator, place, roster, "north", honest if attempt else plus(2)(honest))
        assert said == SAID
        assert "another sum was offered under this label before" in why[0]


def _at_reveal(turn, coordinator, place, roster):
    """The silo's place as it was before it left: nothing of the attempt itself is done again."""
    names = FIVE
    return replace(
        turn,
        place=place,
        roster=roster,
        keyed=roster,
        stage=Stage.REVEALED,
        cursor=0,
        participants=names,
        survivors=names,
    )
