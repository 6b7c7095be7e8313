"""A coordinator that swaps, alters or replays what silos seal for each other: agents refuse it by name, or ignore it.

Five silos, one colluder, three at least: T = 4 must sign and reveal.
"""

from dataclasses import replace

import pytest

from crypto.secagg import unmasking
from crypto.secagg.words import Word
from protos.messages import MessageError, Tensor
from protos.steps import Task
from support.planted import NOT_OPENED
from support.sessions import flipped

pytestmark = pytest.mark.sampled
FIVE = ("east", "north", "polar", "south", "west")


def refused(coordinator, silo, task, *reasons, says=()):
    """The silo's last word disputes this task, by name."""
    said = coordinator.said(silo)
    fault, why = said.dispute, said.explanation
    if task is Task.OPEN:
        assert (fault, why) == NOT_OPENED
        fault, why = coordinator.own_words(silo)
    assert said.task is task, said
    assert fault in reasons, said
    for words in says:
        assert words in why, why


# --- greetings and keys -----------------------------------------------------------------------------------------------


# --- shares -----------------------------------------------------------------------------------------------------------


def test_shares_that_came_first_count_whatever_is_offered_later(five):
    """Two words of one attempt must not make a silo change its mind about what others have shared."""
    coordinator, silos = five()
    coordinator.run_round(0)
    place, roster = coordinator.begin(1)
    coordinator.gather(place, roster, Tensor.HEADS)
    coordinator.content[place, "note-shares", "south"] = b"something else"
    silos["north"].restart()
    coordinator.gather(place, roster, Tensor.HEADS)
    coordinator.sign(place, roster, Tensor.HEADS)
    coordinator.reveal(place, roster, Tensor.HEADS)
    assert len(coordinator.open(place, roster, Tensor.HEADS)) == 1


def test_who_was_dealt_another_note_reveals_nothing(five):
    """South's note is another one for north; both are signed by south, who has shared twice in one attempt."""
    coordinator, silos = five()
    coordinator.run_round(0)
    place, roster = coordinator.begin(1)
    first = coordinator.content[place, "note-shares", "south"]
    south = silos["south"].running.session
    south.forget_attempt()
    words = {"south": Word(10**6, 1, 1, b"")}  # more than it has said, so it is not told that it was put back
    second = south.within(roster).share(place, ["heads", "encoder"], 4, lambda: words)
    assert second != first
    for name in FIVE:
        coordinator.content[place, "note-shares", "south"] = first if name == "north" else second
        coordinator.ask(name, coordinator.work(Task.CONTRIBUTE, place, roster, Tensor.HEADS))
    coordinator.gather(place, roster, Tensor.HEADS)
    coordinator.sign(place, roster, Tensor.HEADS)
    for name in FIVE:
        coordinator.ask(name, coordinator.work(Task.REVEAL, place, roster, Tensor.HEADS))
    refused(coordinator, "north", Task.REVEAL, "opening", says=("1 silos have signed who is in the sum, but 4 must",))
    assert (place, "note-reveal-heads") not in silos["north"].client.uploads
    # The other four hold the same note, and are enough.
    assert (place, "note-reveal-heads") in silos["west"].client.uploads


# --- shares that south has signed, and that are wrong: it alone can have made them ------------------------------------
def dealing_wrongly(coordinator, monkeypatch, **wrong):
    """While south shares, and nobody else, these functions of `crypto.secagg.unmasking` are others."""
    ask = coordinator.ask

    def asked(silo, work):
        with monkeypatch.context() as patch:
            if silo == "south" and work.task is Task.EXCHANGE:
                for name, function in wrong.items():
                    patch.setattr(unmasking, name, function)
            ask(silo, work)

    coordinator.ask = asked


def test_who_signs_shares_that_one_silo_cannot_open_is_named_by_that_silo(five, monkeypatch):
    coordinator, silos = five()
    coordinator.run_round(0)
    key = unmasking._shares_key

    def another(pairs, owner, holder, bound):
        return b"k" * 32 if holder == "north" else key(pairs, owner, holder, bound)

    dealing_wrongly(coordinator, monkeypatch, _shares_key=another)
    place, roster = coordinator.begin(1)
    coordinator.ask("north", coordinator.work(Task.CONTRIBUTE, place, roster, Tensor.HEADS))
    says = ("'south' committed to another key than that of this silo's shares",)
    refused(coordinator, "north", Task.CONTRIBUTE, "recovery", says=says)
    assert [charge[0] for charge in silos["north"].charges] == [0]
    coordinator.ask("west", coordinator.work(Task.CONTRIBUTE, place, roster, Tensor.HEADS))
    assert (place, "heads") in silos["west"].client.uploads


def test_who_signs_shares_that_do_not_combine_is_named_by_all(five, monkeypatch):
    coordinator, silos = five()
    coordinator.run_round(0)
    split = unmasking.split
    dealing_wrongly(
        coordinator, monkeypatch, split=lambda secret, _, holders, entropy: split(secret, holders, holders, entropy)
    )
    place, roster = coordinator.begin(1)
    coordinator.sum_up(place, roster, Tensor.HEADS, {(Task.REVEAL, Tensor.HEADS): ("polar",)})
    for name in coordinator.there(FIVE):
        coordinator.ask(name, coordinator.work(Task.OPEN, place, roster, Tensor.HEADS))
        says = ("the shares that 'south' dealt do not combine", "a new attempt without 'south'")
        refused(coordinator, name, Task.OPEN, "recovery", says=says)
        assert (coordinator.said(name).place, coordinator.said(name).tensor) == (place, Tensor.HEADS)
        assert not silos[name].model(1).exists()


def test_who_deposits_other_seeds_than_it_committed_to_is_named_by_all(five, monkeypatch):
    """South vanishes, and what it left for that case is of no use."""
    coordinator, _ = five()
    coordinator.run_round(0)
    seal = unmasking.seal_under
    dealing_wrongly(
        coordinator,
        monkeypatch,
        seal_under=lambda key, plain, bound, entropy: seal(
            key, bytes(len(plain)) if b"deposit" in bound else plain, bound, entropy
        ),
    )
    place, roster = coordinator.begin(1)
    coordinator.sum_up(place, roster, Tensor.HEADS, {(Task.CONTRIBUTE, Tensor.HEADS): ("south",)})
    for name in coordinator.there(FIVE):
        coordinator.ask(name, coordinator.work(Task.OPEN, place, roster, Tensor.HEADS))
        refused(coordinator, name, Task.OPEN, "recovery", says=("'south' deposited other pair seeds",))


# --- reveals ----------------------------------------------------------------------------------------------------------
def revealed(coordinator):
    """The encoder's sum of round 1, ready to be opened."""
    coordinator.run_round(0)
    place, roster = coordinator.begin(1)
    coordinator.run_tensor(place, roster, Tensor.HEADS)
    coordinator.sum_up(place, roster, Tensor.ENCODER)
    return place, roster


def reveal(coordinator, place, name, tensor=Tensor.ENCODER):
    return coordinator.content[place, f"note-reveal-{tensor}", name]


def altered_reveals(coordinator, place):
    return {name: flipped(reveal(coordinator, place, name), 40) for name in ("polar", "south")}


def swapped_reveals(coordinator, place):
    return {"polar": reveal(coordinator, place, "south"), "south": reveal(coordinator, place, "polar")}


def repeated_reveal(coordinator, place):
    return dict.fromkeys(("polar", "south"), reveal(coordinator, place, "north"))


def reveals_of_another_tensor(coordinator, place):
    return {name: reveal(coordinator, place, name, Tensor.HEADS) for name in ("polar", "south")}


FAULTS = pytest.mark.parametrize(
    "fault", [altered_reveals, swapped_reveals, repeated_reveal, reveals_of_another_tensor]
)


@FAULTS
def test_one_reveal_that_is_none_does_no_harm(five, fault):
    coordinator, _ = five()
    place, roster = revealed(coordinator)
    coordinator.content[place, "note-reveal-encoder", "south"] = fault(coordinator, place)["south"]
    assert len(coordinator.open(place, roster, Tensor.ENCODER)) == 1


def test_a_reveal_cannot_be_offered_twice_under_one_name(five):
    coordinator, _ = five()
    place, roster = revealed(coordinator)
    asked = coordinator.work(Task.OPEN, place, roster, Tensor.ENCODER)
    with pytest.raises(MessageError, match="name something twice"):
        replace(asked, parts=(*asked.parts, asked.parts[-1]))


def test_a_reveal_asked_for_again_is_the_same_and_with_other_survivors_is_refused(five):
    coordinator, silos = five()
    place, roster = revealed(coordinator)
    note = reveal(coordinator, place, "north")
    asked = coordinator.work(Task.REVEAL, place, roster, Tensor.ENCODER)
    sent = len(silos["north"].client.headers)
    coordinator.ask("north", asked)
    assert silos["north"].client.uploads[place, "note-reveal-encoder"] == note
    assert len(silos["north"].client.headers) == sent + 1
    coordinator.survivors = ("east", "north", "south", "west")
    coordinator.ask("north", coordinator.work(Task.REVEAL, place, roster, Tensor.ENCODER))
    refused(coordinator, "north", Task.REVEAL, "out_of_turn")
    assert len(silos["north"].client.headers) == sent + 1
