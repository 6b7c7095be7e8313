"""A coordinator that lies to real agents: whatever it does to sums and lists, it is refused by name.

Five silos, one colluder, three at least: T = 4 must sign and reveal.
"""

from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from protos.messages import Tensor
from protos.steps import Task
from support.planted import FIVE, FOUR, refused, standing
from support.sessions import flipped

pytestmark = pytest.mark.sampled
MODEL = "note-model"


# --- sums -------------------------------------------------------------------------------------------------------------
RINGS = pytest.mark.parametrize(
    ("tensor", "sealing"),
    [
        (Tensor.HEADS, "ring32"),
        (Tensor.ENCODER, "ring32"),
        pytest.param(Tensor.ENCODER, "ring64", marks=pytest.mark.slow),
        pytest.param(Tensor.ENCODER, "ckks", marks=pytest.mark.slow),
    ],
    ids=["heads", "ring32", "ring64", "ckks"],
)
"""All that is sealed otherwise. Heads are in CKKS whatever the encoder is in, so CKKS and one ring are never slow."""


def gathered(coordinator, tensor, number, attempt=1):
    """A tensor of an attempt, whose sum is the honest one."""
    place, roster = coordinator.begin(number, attempt)
    if tensor is Tensor.ENCODER:
        coordinator.run_tensor(place, roster, Tensor.HEADS)
    coordinator.gather(place, roster, tensor)
    return place, roster


def uploads(coordinator, place, tensor):
    return {name: coordinator.clients[name].uploads[place, str(tensor)] for name in FIVE}


def refused_by_all(coordinator, silos, place, roster, tensor):
    """Signed and revealed as ever; then everybody refuses the sum, with phase, tensor and round, and accuses nobody."""
    coordinator.sign(place, roster, tensor)
    coordinator.reveal(place, roster, tensor)
    stood = standing(silos)
    for name in coordinator.there(coordinator.survivors):
        with capture_logs() as logs:
            coordinator.ask(name, coordinator.work(Task.OPEN, place, roster, tensor))
        explanation = f"{tensor} of round {place.round}, attempt {place.attempt}: "
        refused(coordinator, name, Task.OPEN, "opening", explanation)
        assert (coordinator.said(name).place, coordinator.said(name).tensor) == (place, tensor)
        assert not any(silo in coordinator.said(name).explanation for silo in FIVE), "nothing signed shows who it was"
        (logged,) = [entry for entry in logs if entry["event"] == "disputed"]
        found = (logged["task"], logged["tensor"], logged["round"], logged["attempt"])
        assert found == (Task.OPEN, tensor, place.round, place.attempt)
        assert not silos[name].model(place.round).exists()
    assert standing(silos) == stood


@pytest.mark.parametrize("tensor", [Tensor.HEADS, Tensor.ENCODER])
def test_a_sum_with_another_byte_is_refused_or_is_the_very_sum(five, tensor):
    """What it may change are the lowest bits of a ciphertext, which are noise, or a check's bits above 2^64."""
    coordinator, _ = five()
    coordinator.run_round(0)
    place, roster = gathered(coordinator, tensor, 1)
    coordinator.sign(place, roster, tensor)
    coordinator.reveal(place, roster, tensor)
    honest = coordinator.content[place, f"sum-{tensor}", ""]
    models = set()
    for number, name in enumerate(FOUR):
        coordinator.content[place, f"sum-{tensor}", ""] = flipped(honest, number * (len(honest) - 1) // 3)
        coordinator.ask(name, coordinator.work(Task.OPEN, place, roster, tensor))
        said = coordinator.said(name)
        if said.dispute or (tensor is Tensor.ENCODER and number < 3):
            refused(coordinator, name, Task.OPEN, "opening", f"{tensor} of round 1, attempt 1")
        else:
            models.add(said.model)
    coordinator.content[place, f"sum-{tensor}", ""] = honest
    coordinator.ask("polar", coordinator.work(Task.OPEN, place, roster, tensor))
    assert not coordinator.said("polar").dispute
    assert models <= {coordinator.said("polar").model}


@pytest.mark.parametrize("how", ["swapped", "astray"])
@RINGS
def test_silos_with_different_models_get_no_usable_sum(five, tensor, sealing, how):
    """The model is part of every label, so a silo that was led astray cannot be compared with the others."""
    coordinator, silos = five(encoder={"sealing": sealing})
    coordinator.run_round(0)
    place, roster = coordinator.begin(1)
    if tensor is Tensor.ENCODER:
        coordinator.run_tensor(place, roster, Tensor.HEADS)
    others = {"south": "e", "west": "f"} | ({"north": "f", "polar": "e"} if how == "swapped" else {})
    for name, letter in others.items():
        running = silos[name].running
        running.standing = replace(running.standing, digest=letter * 64)
    coordinator.gather(place, roster, tensor)
    refused_by_all(coordinator, silos, place, roster, tensor)


@pytest.mark.parametrize("before", [(3, 1), (2, 1)], ids=["attempt", "round"])
def test_a_model_that_was_sealed_for_another_attempt_or_round_is_not_taken(five, before):
    coordinator, silos = five()
    coordinator.run_round(0)
    coordinator.run_round(1, silos=FOUR)
    coordinator.begin(2)
    coordinator.run_round(2, attempt=2, silos=FOUR)
    for attempt in (1, 2):
        place = coordinator.place(3, attempt)
        roster = coordinator.offer(place)
        coordinator.deal(place, roster)
        share = coordinator.work(Task.SHARE, place, roster, actor="west")
        coordinator.collect(Task.SHARE, place, ("west",), share, MODEL)
    assert coordinator.behind(place, roster) == ("polar",)
    (old,) = (n for (p, slot, _), n in coordinator.content.items() if (p, slot) == (coordinator.place(*before), MODEL))
    coordinator.content[place, MODEL, "west"] = old
    stood = standing(silos)
    coordinator.ask("polar", coordinator.work(Task.CATCH_UP, place, roster, actor="west"))
    refused(coordinator, "polar", Task.CATCH_UP, "seal")
    assert standing(silos) == stood


# --- participants -----------------------------------------------------------------------------------------------------
def test_two_silos_with_different_participants_reveal_nothing(five):
    """North masks towards the four, the others towards all five; then polar, who gave nothing, is said to be gone."""
    coordinator, silos = five()
    coordinator.run_round(0)
    place, roster = coordinator.begin(1)
    told = {name: FOUR if name == "north" else FIVE for name in FOUR}

    def work(task, name):
        return replace(coordinator.work(task, place, roster, Tensor.HEADS), participants=told[name])

    coordinator.survivors = FOUR
    for name in FOUR:
        coordinator.ask(name, work(Task.CONTRIBUTE, name))
    coordinator.add(place, Tensor.HEADS, [silos[name].client.uploads[place, "heads"] for name in FOUR])
    for name in FOUR:
        coordinator.ask(name, work(Task.SIGN, name))
        coordinator.signatures[name] = coordinator.said(name).signature
    stood = standing(silos)
    for name in FOUR:  # each signed which participants' notes it holds, so no list has signatures enough
        coordinator.ask(name, work(Task.REVEAL, name))
        many = 1 if name == "north" else 3
        refused(coordinator, name, Task.REVEAL, "opening", f"{many} silos have signed who is in the sum, but 4 must")
        assert (place, "note-reveal-heads") not in silos[name].client.uploads
    assert standing(silos) == stood


# --- lies about a dropout ---------------------------------------------------------------------------------------------
@RINGS
def test_a_silo_that_is_said_to_be_gone_while_its_upload_is_in_the_sum(five, tensor, sealing):
    coordinator, silos = five(encoder={"sealing": sealing})
    coordinator.run_round(0)
    place, roster = gathered(coordinator, tensor, 1)
    coordinator.survivors = FOUR
    refused_by_all(coordinator, silos, place, roster, tensor)


@RINGS
def test_a_silo_that_is_said_to_be_there_while_it_has_sent_nothing(five, tensor, sealing):
    """Polar has vanished; the four sign and reveal as if its upload were in the sum."""
    coordinator, silos = five(encoder={"sealing": sealing})
    coordinator.run_round(0)
    place, roster = coordinator.begin(1)
    if tensor is Tensor.ENCODER:
        coordinator.run_tensor(place, roster, Tensor.HEADS)
    coordinator.gather(place, roster, tensor, lost=("polar",))
    coordinator.survivors = FIVE
    refused_by_all(coordinator, silos, place, roster, tensor)


@RINGS
def test_a_silo_that_is_gone_is_no_fault(five, tensor, sealing):
    """What the lies above are told about: the same words, and they are true."""
    coordinator, silos = five(encoder={"sealing": sealing})
    coordinator.run_round(0)
    place, roster = coordinator.begin(1)
    if tensor is Tensor.ENCODER:
        coordinator.run_tensor(place, roster, Tensor.HEADS)
    assert len(coordinator.run_tensor(place, roster, tensor, {(Task.CONTRIBUTE, tensor): ("polar",)})) == 1
    assert len({silos[name].running.standing.model.digest for name in FOUR}) == 1
