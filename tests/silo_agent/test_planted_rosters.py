"""A coordinator with one silo that tells real agents of different participants, or shows them different rosters.

Eight silos, one colluder: five must take part, sign and reveal. Where the threshold that counted only a roster's silos
is planted again, both attacks succeed; so the attacks are real, and it is the threshold that stops them.
"""

from dataclasses import replace
from io import BytesIO

import numpy as np
import pytest

from crypto.rings.ckks_secret import CkksKey
from crypto.rings.rings import ring_of
from crypto.secagg.labels import SumLabel
from crypto.secagg.layout import sealed_values
from crypto.secagg.masks import _own_stream, _pair_stream, apply
from crypto.secagg.survivors import SurvivorList
from crypto.secagg.unmasking import notes_digest, read_reveals
from crypto.secagg.words import NOTHING
from policies.documents.study import Study
from policies.plan import quorum
from policies.plan.release import plan
from protos.messages import Signature, Tensor
from protos.steps import Task
from silo_agent.agent import Agent
from silo_agent.protocol import tasks
from silo_agent.protocol.attempt import Attempt
from silo_agent.storage.promises import Promises
from support.planted import refused
from support.studies import tiny_study

EIGHT = ("alder", "birch", "cedar", "elm", "fir", "hazel", "larch", "oak")
VICTIM, COLLUDER, VANISH = "alder", "birch", ("cedar", "elm")


@pytest.fixture
def eight(federate):
    """Gives the coordinator and the agents of a study of eight silos."""

    def gather(min_silos):
        study = tiny_study(silos=list(EIGHT), min_silos=min_silos, data={"domain": [DOMAINS]})
        return federate(study, min_silos=4)

    return gather


DOMAINS = {"column": "group", "values": ["a", "b"], "names": ["a", "b"]}


@pytest.fixture
def of_the_roster(monkeypatch):
    """The threshold as it was: more than half of the roster and the colluders, and contributions among `min_silos`."""

    def before(attempt):
        study: Study = attempt.study
        colluders = study.privacy.colluders
        return max(colluders + 1, (len(attempt.work.roster) + colluders) // 2 + 1, study.min_silos)

    monkeypatch.setattr(Attempt, "threshold", property(before))
    monkeypatch.setattr(quorum, "require", lambda _: None)
    monkeypatch.setattr(tasks, "_require_enough", lambda *_: None)
    monkeypatch.setattr(Promises, "require", lambda *_: None)


# --- participants -----------------------------------------------------------------------------------------------------
def told_of_four(coordinator):
    """The victim hears of four participants, two of whom vanish; all others hear of eight. Returns what it said."""
    place, roster = coordinator.begin(0)
    asked = coordinator.work(Task.CONTRIBUTE, place, roster, Tensor.COUNTS)
    few = tuple(sorted((VICTIM, COLLUDER, *VANISH)))
    parts = tuple(part for part in asked.parts if part.silo in few)
    coordinator.ask(VICTIM, replace(asked, participants=few, parts=parts))
    return place, roster


def whole(coordinator, attempt, names):
    """All that these silos have dealt, as a silo reads it of whole notes."""
    notes = {name: coordinator.content[attempt.place, "note-shares", name] for name in names}
    return attempt.membership.read_shares(attempt.place, attempt.tensors, attempt.threshold, notes)


def bared(coordinator, silos, place, roster):
    """What the coordinator and the colluder read in the victim's upload, when all others have revealed."""
    coordinator.participants, survivors = EIGHT, tuple(name for name in EIGHT if name not in VANISH)
    others = [name for name in survivors if name != VICTIM]
    for name in others:
        coordinator.ask(name, coordinator.work(Task.CONTRIBUTE, place, roster, Tensor.COUNTS))
    coordinator.survivors, coordinator.signatures = survivors, {}
    for name in others:
        coordinator.ask(name, coordinator.work(Task.SIGN, place, roster, Tensor.COUNTS))
        coordinator.signatures[name] = coordinator.said(name).signature
    asked = coordinator.work(Task.REVEAL, place, roster, Tensor.COUNTS)
    coordinator.collect(Task.REVEAL, place, others, asked, "note-reveal-counts")
    attempt = silos[COLLUDER].running.attempt(asked, place)
    mine = attempt.membership
    notes = {name: coordinator.content[place, "note-reveal-counts", name] for name in others}
    bundles, needed = whole(coordinator, attempt, EIGHT), attempt.threshold
    found = read_reveals(
        notes, bundles, attempt.survivor_list, EIGHT, mine.roster, mine.keys, needed, mine._trust
    ).unmasking
    label = SumLabel(place.study, mine.roster.digest, "", 0, place.attempt, "counts")
    seeds = {gone: pairs[VICTIM] for gone, pairs in found.dropped.items()}
    seeds[COLLUDER] = mine.masks(place, "counts", EIGHT).pairs[VICTIM]
    terms = [(False, _own_stream(found.own[VICTIM], label, "ckks"))]
    terms += [(other < VICTIM, _pair_stream(seed, label, "ckks")) for other, seed in seeds.items()]
    ring = ring_of("ckks")
    words = ring.read(silos[VICTIM].client.uploads[place, "counts"])
    apply(ring, words, terms)
    values = plan(coordinator.study).release(0, "counts").values
    return CkksKey.from_bytes(mine.keys.ckks).decrypt(words, sealed_values(values, len(EIGHT)))[:values]


@pytest.mark.usefixtures("of_the_roster")
def test_under_the_threshold_of_a_roster_one_upload_is_laid_bare(eight):
    coordinator, silos = eight(4)
    place, roster = told_of_four(coordinator)
    kept = silos[VICTIM].state.release(place, Tensor.COUNTS, 1)
    assert np.array_equal(bared(coordinator, silos, place, roster), kept.integers)


def test_nobody_contributes_among_fewer_than_the_threshold(eight):
    coordinator, silos = eight(5)
    place, _ = told_of_four(coordinator)
    refused(coordinator, VICTIM, Task.CONTRIBUTE, "roster", "has 4 silos, but 5 of the study's 8 must take part")
    assert silos[VICTIM].charges == []
    assert (place, "counts") not in silos[VICTIM].client.uploads


def test_who_has_died_after_it_sealed_contributes_among_nobody_else(eight, monkeypatch):
    """The process dies before its turn is kept; what it has sealed keeps the masks that it had among the first."""
    coordinator, silos = eight(5)
    place, roster = coordinator.begin(0)
    asked = coordinator.work(Task.CONTRIBUTE, place, roster, Tensor.COUNTS)
    first = tuple(sorted((VICTIM, COLLUDER, *VANISH, "fir")))
    parts = tuple(part for part in asked.parts if part.silo in first)
    with monkeypatch.context() as dying:
        dying.setattr(Agent, "_keep", _dies)
        with pytest.raises(KeyboardInterrupt):
            coordinator.ask(VICTIM, replace(asked, participants=first, parts=parts))
    silos[VICTIM].restart()
    coordinator.ask(VICTIM, asked)
    refused(coordinator, VICTIM, Task.CONTRIBUTE, "survivors", "sealed its contribution", "among alder, birch, cedar")
    assert (place, "counts") not in silos[VICTIM].client.uploads


def _dies(*_):
    raise KeyboardInterrupt


def test_nobody_shares_secrets_with_fewer_than_the_threshold(eight, monkeypatch):
    coordinator, silos = eight(5)
    place = coordinator.place(0)
    roster = coordinator.offer(place, EIGHT[:4])
    for silo in silos.values():
        monkeypatch.setattr(silo.gate, "decide", lambda *_, **__: None)
    coordinator.deal(place, roster)
    coordinator.ask(VICTIM, coordinator.work(Task.EXCHANGE, place, roster))
    refused(coordinator, VICTIM, Task.EXCHANGE, "roster", "the roster has 4 silos, but 5")


def test_a_study_below_the_threshold_is_refused_by_every_silo(eight):
    coordinator, _ = eight(4)
    assert coordinator.offer(coordinator.place(0)) == ()
    for client in coordinator.clients.values():
        (answer,) = client.answers
        assert answer.refusal == "too_few_silos"
        assert "Set study.min_silos to 5 or more" in answer.explanation


# --- rosters ----------------------------------------------------------------------------------------------------------
def summed(coordinator, silos, attempt, names, signers):
    """The sum of these silos, which only the signers and the colluder sign; opened by one of them, if it is."""
    place, roster = attempt
    tensor = Tensor.COUNTS
    coordinator.participants = coordinator.survivors = names
    for name in names:
        coordinator.ask(name, coordinator.work(Task.CONTRIBUTE, place, roster, tensor))
    coordinator.add(place, tensor, [silos[name].client.uploads[place, "counts"] for name in names])
    coordinator.signatures = {}
    for name in signers:
        coordinator.ask(name, coordinator.work(Task.SIGN, place, roster, tensor))
        coordinator.signatures[name] = coordinator.said(name).signature
    mine = silos[signers[0]].running.attempt(coordinator.work(Task.REVEAL, place, roster, tensor), place)
    lie = SurvivorList(mine.membership.attempt(place), "counts", names, notes_digest(mine.bundles, names))
    coordinator.signatures[COLLUDER] = coordinator.clients[COLLUDER].sign(lie.to_sign())
    asked = coordinator.work(Task.REVEAL, place, roster, tensor)
    notes = {}
    for name in signers:
        coordinator.ask(name, asked)
        if (place, "note-reveal-counts") in silos[name].client.uploads:
            notes[name] = silos[name].client.uploads[place, "note-reveal-counts"]
    if not notes:
        return None
    bundles, member = whole(coordinator, mine, names), mine.membership
    # The colluder's own reveal costs no agent: it has its shares.
    theirs = silos[COLLUDER].running.attempt(asked, place)
    notes[COLLUDER] = theirs.membership.reveal(theirs.bundles, lie, names, NOTHING)
    unmasking = member.unmasking(notes, bundles, lie, participants=names, threshold=mine.threshold)
    content = coordinator.content[place, "sum-counts", ""]
    label = SumLabel(place.study, member.roster.digest, "", 0, place.attempt, "counts")
    return mine.sealer.open(
        "ckks", BytesIO(content), plan(coordinator.study).release(0, "counts").values, label, unmasking
    )


FIRST, SECOND = ("cedar", "elm", "fir", "hazel"), ("alder", "larch", "oak")
SIX = ("alder", "birch", "cedar", "elm", "larch", "oak")


def two_sums(coordinator, silos):
    """All eight, signed by four and the colluder; then six of them, signed by those who have not signed yet."""
    whole = summed(coordinator, silos, coordinator.begin(0), EIGHT, FIRST)
    coordinator.keyed = ()
    again = coordinator.begin(0, 2, SIX)
    return whole, lambda: summed(coordinator, silos, again, SIX, SECOND)


@pytest.mark.usefixtures("of_the_roster")
def test_under_the_threshold_of_a_roster_the_difference_of_two_sums_is_two_silos(eight):
    coordinator, silos = eight(4)
    whole, again = two_sums(coordinator, silos)
    two = sum(silos[name].state.release(coordinator.place(0), Tensor.COUNTS, 1).integers for name in ("fir", "hazel"))
    assert np.array_equal(whole - again(), two)
    assert {len(silo.charges) for silo in silos.values()} == {1}


def test_of_two_rosters_sums_only_one_is_ever_opened(eight):
    """Those who have signed the first do not contribute to the second, and the others are too few to sign it."""
    coordinator, silos = eight(5)
    whole, _ = two_sums(coordinator, silos)
    assert whole is not None
    place, roster = coordinator.place(0, 2), tuple(m for m in coordinator.keyed)
    coordinator.participants = SIX
    for name in ("cedar", "elm"):
        coordinator.ask(name, coordinator.work(Task.CONTRIBUTE, place, roster, Tensor.COUNTS))
        refused(coordinator, name, Task.CONTRIBUTE, "survivors", "it takes part in no sum of others")
    for name in SECOND:
        coordinator.ask(name, coordinator.work(Task.CONTRIBUTE, place, roster, Tensor.COUNTS))
        coordinator.survivors = SIX
        coordinator.ask(name, coordinator.work(Task.SIGN, place, roster, Tensor.COUNTS))
        coordinator.signatures[name] = coordinator.said(name).signature
    mine = silos[SECOND[0]].running.attempt(coordinator.work(Task.REVEAL, place, roster, Tensor.COUNTS), place)
    coordinator.signatures[COLLUDER] = coordinator.clients[COLLUDER].sign(mine.survivor_list.to_sign())
    given = tuple(Signature(name, coordinator.signatures[name]) for name in sorted((*SECOND, COLLUDER)))
    for name in SECOND:
        asked = replace(coordinator.work(Task.REVEAL, place, roster, Tensor.COUNTS), signatures=given)
        coordinator.ask(name, asked)
        refused(coordinator, name, Task.REVEAL, "opening", "4 silos have signed who is in the sum, but 5 must sign")
