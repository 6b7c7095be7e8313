"""A coordinator that asks real agents for two survivor lists, or for a reveal without enough signatures."""

from dataclasses import replace

import pytest

from policies.plan.release import plan
from protos.messages import MessageError, Tensor
from protos.steps import Task
from silo_agent.learning.noise import noised_sum as private
from silo_agent.learning.releases.noising import SumGrid
from support.planted import FIVE, FOUR, refused, standing

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
