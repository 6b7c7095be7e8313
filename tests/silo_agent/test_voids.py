"""Real agents whose list names a silo that has left for good: they void it and go on, or refuse what is no void."""

from dataclasses import replace

import pytest

from protos.messages import Tensor
from protos.steps import Task
from support.planted import FIVE, FOUR, refused, standing

HEADS = Tensor.HEADS


def listed(five, mode="local", reveal=()):
    """All five have signed the list of the heads of round 1, and some have revealed. Then the attempt fails."""
    coordinator, silos = five(privacy={"mode": mode})
    coordinator.run_round(0)
    place, roster = coordinator.begin(1)
    coordinator.gather(place, roster, HEADS)
    coordinator.sign(place, roster, HEADS)
    for name in reveal:
        coordinator.ask(name, coordinator.work(Task.REVEAL, place, roster, HEADS))
        assert (place, "note-reveal-heads") in silos[name].client.uploads
    coordinator.keyed = ()
    return coordinator, silos


@pytest.mark.parametrize("mode", ["local", "distributed"])
def test_a_list_whose_silo_has_left_is_voided_and_the_round_is_made_without_it(five, mode):
    coordinator, silos = listed(five, mode)
    silos["north"].restart()
    coordinator.run_round(1, 2, FOUR, void=HEADS)
    assert [one.silo for one in coordinator.voids[1, HEADS].promises] == list(FOUR)
    assert len({silos[name].model(1).read_bytes() for name in FOUR}) == 1
    assert not silos["polar"].model(1).exists()
    again = [(1, 2, "heads")] if mode == "distributed" else []
    for name in FOUR:
        spent = [charge for charge in silos[name].charges if charge[0] == 1]
        assert spent == [(1, 1, "encoder"), (1, 1, "heads"), *again], "a kept draw is charged once"


@pytest.mark.parametrize("fault", ["none", "too few", "one signed something else"])
def test_no_silo_contributes_to_others_without_enough_promises_for_this_very_sum(five, fault):
    coordinator, silos = listed(five)
    place, roster = coordinator.begin(1, 2, FOUR, void=HEADS)
    void = coordinator.voids[1, HEADS]
    reason, says = "roster", "3 silos have voided the earlier list of heads, but 4 must do so"
    if fault == "none":
        given, reason, says = None, "survivors", "north, polar, south, west"
    elif fault == "too few":
        given = replace(void, promises=void.promises[1:], certificates=void.certificates[1:])
    else:
        wrong = coordinator.clients["east"].sign(b"another promise")
        given = replace(void, promises=(replace(void.promises[0], signature=wrong), *void.promises[1:]))
    stood = standing(silos)
    asked = replace(coordinator.work(Task.CONTRIBUTE, place, roster, HEADS), void=given)
    for name in FOUR:
        coordinator.ask(name, asked)
        refused(coordinator, name, Task.CONTRIBUTE, reason, says)
        assert (place, "heads") not in silos[name].client.uploads
    assert standing(silos) == stood


def test_who_has_revealed_does_not_promise_and_too_few_promises_close_nothing(five):
    coordinator, silos = listed(five, reveal=("north",))
    silos["north"].restart()
    place, roster = coordinator.begin(1, 2, FOUR, void=HEADS)
    assert [one.silo for one in coordinator.voids[1, HEADS].promises] == ["east", "south", "west"]
    for name in FOUR:
        coordinator.ask(name, coordinator.work(Task.CONTRIBUTE, place, roster, HEADS))
        refused(coordinator, name, Task.CONTRIBUTE, "roster", "3 silos have voided the earlier list of heads")
    # The list that was signed stays: all five together may still be summed.
    coordinator.voids.clear()
    coordinator.keyed = ()
    coordinator.run_round(1, 3, FIVE)
    assert len({silo.model(1).read_bytes() for silo in silos.values()}) == 1
