from dataclasses import replace

import pytest

from crypto.secagg.voids import VoidPromise
from protos.messages import Part, Tensor, Upload, UploadHeader
from protos.steps import Note, Task
from silo_agent.core.turns import OutOfTurnError

SILOS = ("north", "south", "west")


@pytest.fixture
def sharing(federation):
    """Coordinator and the agent of north, in the middle of round 1."""
    coordinator, silos = federation
    coordinator.run_round(0)
    place, roster = coordinator.begin(1)
    return silos["north"].running, coordinator.work(Task.CONTRIBUTE, place, roster, Tensor.HEADS), place


def test_an_attempt_is_the_same_until_the_place_changes(sharing):
    running, work, place = sharing
    attempt = running.attempt(work, place)
    asked = replace(work, task=Task.SIGN, parts=(), survivors=SILOS)
    assert running.attempt(asked, place) is attempt
    assert (attempt.work, attempt.survivors) == (asked, SILOS)
    later = replace(place, attempt=place.attempt + 1)
    assert running.attempt(work, later) is not attempt
    assert running.attempt(replace(work, roster=work.roster[:2]), later).members == {"north", "south"}


def test_an_attempt_names_what_its_round_sums_and_for_whom(sharing):
    running, work, place = sharing
    attempt = running.attempt(work, place)
    assert attempt.me == "north"
    assert attempt.members == set(SILOS)
    assert attempt.tensor == attempt.tensors[0] == "heads"
    roster = attempt.membership.roster.digest
    assert attempt.order(Tensor.HEADS).label.roster == roster == attempt.note_label(Note.HEADS).roster
    assert attempt.membership is attempt.membership
    assert attempt.sealer is attempt.sealer


def test_a_note_for_who_catches_up_is_not_bound_to_the_model_that_it_brings(sharing):
    running, work, place = sharing
    attempt = running.attempt(work, place)
    assert attempt.note_label(Note.HEADS).model == running.standing.digest != ""
    assert attempt.note_label(Note.MODEL).model == ""


def test_there_is_no_total_before_the_heads_sum_is_opened(sharing):
    running, work, place = sharing
    with pytest.raises(OutOfTurnError, match="has not been opened"):
        _ = running.attempt(work, place).total


@pytest.mark.parametrize(("kind", "values"), [("ckks", 7), (Note.REVEAL, 0)])
def test_an_upload_counts_as_a_silos_if_it_has_signed_these_bytes_for_this_tensor(sharing, federation, kind, values):
    running, work, place = sharing
    attempt = running.attempt(work, place)
    part = Part(kind, "south", 100, "a" * 64)
    header = UploadHeader(place, kind, Tensor.HEADS, "south", values, 100, "a" * 64)
    signature = federation[1]["south"].credential.sign(header.canonical())
    assert attempt.has_signed(Upload(part, signature), *([values] if values else []))
    for changed in ({"silo": "west"}, {"size": 101}, {"sha256": "b" * 64}):
        assert not attempt.has_signed(Upload(replace(part, **changed), signature), values)
    other = UploadHeader(place, "ckks", Tensor.HEADS, "south", 8, 100, "a" * 64)
    assert not attempt.has_signed(Upload(replace(part, kind="ckks"), signature), 8)
    assert attempt.has_signed(
        Upload(replace(part, kind="ckks"), federation[1]["south"].credential.sign(other.canonical())), 8
    )


def test_a_promise_to_open_nothing_covers_all_earlier_attempts(sharing):
    running, work, place = sharing
    attempt = running.attempt(work, replace(place, attempt=3))
    spoilt = running.standing.turn.spoilt
    assert attempt.void == VoidPromise(place.study, 1, "heads", 2, spoilt)
