"""A coordinator that asks real agents for two survivor lists, or for a reveal without enough signatures."""

from dataclasses import replace

import pytest

from policies.plan.release import plan
from protos.messages import MessageError, Signature, Tensor
from protos.steps import Task
from silo_agent.learning.noise import noised_sum as private
from silo_agent.learning.releases.noising import SumGrid
from support.planted import FIVE, FOUR, goes_on, refused, standing

pytestmark = pytest.mark.sampled


# --- survivors --------------------------------------------------------------------------------------------------------
def test_a_silo_that_is_told_otherwise_reveals_nothing_and_the_others_go_on(five):
    """Polar has uploaded and hears that all are in the sum; the others hear that it is gone, and it is left out."""
    coordinator, silos = five()
    coordinator.run_round(0)
    place, roster = coordinator.begin(1)
    coordinator.gather(place, roster, Tensor.HEADS)
    stood = standing({"polar": silos["polar"]})
    coordinator.ask("polar", coordinator.work(Task.SIGN, place, roster, Tensor.HEADS))
    own = coordinator.said("polar").signature
    coordinator.survivors = FOUR
    coordinator.sign(place, roster, Tensor.HEADS)
    coordinator.add(place, Tensor.HEADS, [silos[name].client.uploads[place, "heads"] for name in FOUR])
    coordinator.reveal(place, roster, Tensor.HEADS)
    assert len(coordinator.open(place, roster, Tensor.HEADS)) == 1
    coordinator.survivors, signatures = FIVE, {**coordinator.signatures, "polar": own}
    coordinator.signatures = signatures
    coordinator.ask("polar", coordinator.work(Task.REVEAL, place, roster, Tensor.HEADS))
    refused(coordinator, "polar", Task.REVEAL, "opening", "1 silos have signed who is in the sum, but 4 must sign")
    assert (place, "note-reveal-heads") not in silos["polar"].client.uploads
    assert standing({"polar": silos["polar"]}) == stood


@pytest.mark.parametrize("survivors", [("east", "north", "south"), ("east", "polar", "south", "west"), ("north",)])
def test_a_list_of_too_few_or_without_the_silo_itself_is_not_signed(five, survivors):
    coordinator, _ = five()
    place, roster = coordinator.begin(0)
    coordinator.gather(place, roster, Tensor.COUNTS)
    coordinator.ask("north", replace(coordinator.work(Task.SIGN, place, roster, Tensor.COUNTS), survivors=survivors))
    refused(coordinator, "north", Task.SIGN, "out_of_turn")
    assert coordinator.said("north").signature == b""


def test_a_survivor_that_was_no_participant_is_not_signed(five):
    coordinator, _ = five()
    place, roster = coordinator.begin(0)
    coordinator.ask(
        "north", replace(coordinator.work(Task.CONTRIBUTE, place, roster, Tensor.COUNTS), participants=FOUR)
    )
    coordinator.survivors = FIVE
    with pytest.raises(MessageError, match="are not all participants"):
        replace(coordinator.work(Task.SIGN, place, roster, Tensor.COUNTS), participants=FOUR)
    coordinator.ask("north", coordinator.work(Task.SIGN, place, roster, Tensor.COUNTS))
    refused(coordinator, "north", Task.SIGN, "out_of_turn", "survivors are not sorted names of the participants")


def test_a_second_list_in_the_same_stage_is_refused(five):
    coordinator, _ = five()
    place, roster = coordinator.begin(0)
    coordinator.gather(place, roster, Tensor.COUNTS)
    coordinator.sign(place, roster, Tensor.COUNTS)
    coordinator.survivors = FOUR
    for name, task in (("north", Task.SIGN), ("south", Task.REVEAL)):
        coordinator.ask(name, coordinator.work(task, place, roster, Tensor.COUNTS))
        refused(coordinator, name, task, "out_of_turn")


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("tensor", [Tensor.HEADS, Tensor.ENCODER])
def test_nobody_contributes_to_a_second_list_of_a_round(five, restart, tensor):
    """Whoever were in only one of two sums would be laid bare. The same place cannot be offered again at all."""
    coordinator, silos = five()
    coordinator.run_round(0)
    place, roster = coordinator.begin(1)
    if tensor is Tensor.ENCODER:
        coordinator.run_tensor(place, roster, Tensor.HEADS)
    coordinator.gather(place, roster, tensor, lost=("polar",))
    coordinator.sign(place, roster, tensor)
    coordinator.reveal(place, roster, tensor)
    for name in FOUR:
        if restart:
            silos[name].restart()
    place, roster = coordinator.begin(1, 2)
    if tensor is Tensor.ENCODER:
        coordinator.run_tensor(place, roster, Tensor.HEADS)
    coordinator.participants = FIVE
    stood = standing(silos)
    for name in FOUR:
        coordinator.ask(name, coordinator.work(Task.CONTRIBUTE, place, roster, tensor))
        says = (f"{tensor} of round 1", "east, north, south, west")
        refused(coordinator, name, Task.CONTRIBUTE, "survivors", *says)
    assert standing(silos) == stood
    # The list that was signed may be signed again: those silos alone are summed, also where polar has uploaded.
    coordinator.keyed = ()
    place, roster = coordinator.begin(1, 3)
    if tensor is Tensor.ENCODER:
        coordinator.run_tensor(place, roster, Tensor.HEADS)
    coordinator.gone.add("polar")
    coordinator.run_tensor(place, roster, tensor)


# --- signatures -------------------------------------------------------------------------------------------------------
def signed(coordinator):
    """All have signed the list of all."""
    coordinator.run_round(0)
    place, roster = coordinator.begin(1)
    coordinator.gather(place, roster, Tensor.HEADS)
    coordinator.sign(place, roster, Tensor.HEADS)
    return place, roster


def too_few(_coordinator, signatures):
    return {name: signatures[name] for name in ("east", "north", "south")}


def forged(_coordinator, signatures):
    return {**signatures, "polar": b"signed", "west": signatures["north"]}


def over_another_tensor(coordinator, signatures):
    """What two of them have signed of the round before."""
    old = {name: [c for c in coordinator.clients[name].confirms if c.task is Task.SIGN] for name in ("polar", "west")}
    return {**signatures, **{name: confirms[0].signature for name, confirms in old.items()}}


def over_another_list(coordinator, signatures):
    other = replace(coordinator.survivor_list, names=FOUR).to_sign()
    return {**signatures, **{name: coordinator.clients[name].sign(other) for name in ("south", "west")}}


def over_another_attempt(coordinator, signatures):
    real = coordinator.survivor_list
    later = replace(real, attempt=replace(real.attempt, attempt=2)).to_sign()
    return {**signatures, **{name: coordinator.clients[name].sign(later) for name in ("south", "west")}}


@pytest.mark.parametrize("fault", [too_few, forged, over_another_tensor, over_another_list, over_another_attempt])
def test_nothing_is_revealed_without_enough_signatures_over_this_very_list(five, fault):
    coordinator, silos = five()
    place, roster = signed(coordinator)
    north = silos["north"]
    asked = coordinator.work(Task.REVEAL, place, roster, Tensor.HEADS)
    coordinator.survivor_list = north.running.attempt(asked, place).survivor_list
    given = tuple(Signature(*one) for one in sorted(fault(coordinator, coordinator.signatures).items()))
    stood = standing(silos)
    for name in FIVE:
        coordinator.ask(name, replace(asked, signatures=given))
        refused(coordinator, name, Task.REVEAL, "opening", "3 silos have signed who is in the sum, but 4 must sign")
        assert (place, "note-reveal-heads") not in silos[name].client.uploads
    assert standing(silos) == stood
    goes_on(coordinator, silos, 1, attempt=2)


def test_one_missing_signature_of_five_does_no_harm(five):
    coordinator, _ = five()
    place, roster = signed(coordinator)
    del coordinator.signatures["polar"]
    coordinator.reveal(place, roster, Tensor.HEADS)
    assert len(coordinator.open(place, roster, Tensor.HEADS)) == 1


def test_of_two_lists_at_once_neither_finds_enough_signatures(five):
    """Were both revealed, the coordinator would hold what unmasks polar's upload, from either half."""
    coordinator, silos = five()
    coordinator.run_round(0)
    place, roster = coordinator.begin(1)
    coordinator.gather(place, roster, Tensor.HEADS)
    told = {name: FOUR if name in ("east", "north") else FIVE for name in FIVE}
    signatures = {}
    for name in FIVE:
        coordinator.survivors = told[name]
        coordinator.ask(name, coordinator.work(Task.SIGN, place, roster, Tensor.HEADS))
        signatures[name] = coordinator.said(name).signature
        assert signatures[name]
    for name in FIVE:
        coordinator.survivors = told[name]
        coordinator.signatures = {signer: signatures[signer] for signer in told[name]}
        coordinator.ask(name, coordinator.work(Task.REVEAL, place, roster, Tensor.HEADS))
        refused(coordinator, name, Task.REVEAL, "opening", "4 must")
        assert (place, "note-reveal-heads") not in silos[name].client.uploads


# --- distributed noise ------------------------------------------------------------------------------------------------
def test_with_distributed_noise_nobody_may_be_missing_among_the_participants(five):
    coordinator, silos = five(privacy={"mode": "distributed"})
    place, roster = coordinator.begin(0)
    asked = coordinator.work(Task.CONTRIBUTE, place, roster, Tensor.COUNTS)
    for name in FOUR:
        coordinator.ask(name, replace(asked, participants=FOUR))
        refused(coordinator, name, Task.CONTRIBUTE, "opening", "no silo may be missing, but these are: polar")
        assert silos[name].charges == []


@pytest.mark.parametrize("taking_part", [FOUR, FIVE])
def test_distributed_noise_is_drawn_in_shares_of_those_who_take_part(five, monkeypatch, taking_part):
    """Of five who are listed four may be in a sum. Shares as if all five were would leave the sum short of noise."""
    sigmas, draw = [], private.discrete_gaussian
    monkeypatch.setattr(private, "discrete_gaussian", lambda *given: sigmas.append(given[1]) or draw(*given))
    coordinator, _ = five(privacy={"mode": "distributed"})
    place, roster = coordinator.begin(0, silos=taking_part)
    coordinator.gather(place, roster, Tensor.COUNTS)
    study = coordinator.study
    step, release = SumGrid.of(study).step, plan(study).release(0, Tensor.COUNTS)
    share = private.share_sd(release, mode="distributed", silos=len(taking_part), colluders=1, step=step)
    assert sigmas == [pytest.approx(share / step)] * len(taking_part)


def test_with_distributed_noise_nobody_may_be_missing_among_the_survivors(five):
    coordinator, silos = five(privacy={"mode": "distributed"})
    place, roster = coordinator.begin(0)
    coordinator.gather(place, roster, Tensor.COUNTS, lost=("polar",))
    for name in FOUR:
        coordinator.ask(name, coordinator.work(Task.SIGN, place, roster, Tensor.COUNTS))
        refused(coordinator, name, Task.SIGN, "opening", "no silo may be missing, but these are: polar")
    goes_on(coordinator, silos, 0, attempt=2)
