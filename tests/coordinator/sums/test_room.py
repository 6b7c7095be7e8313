"""What a round takes on the disk is known before a study begins, and a study that does not fit is not created."""

from __future__ import annotations

import pytest

from coordinator.sums.room import LittleRoomError, most_bytes, require_room
from crypto.rings.rings import ring_of
from crypto.secagg.layout import sealed_values
from policies.plan.note_sizes import BASE_BYTES, MAX_MODEL, MAX_NOTE
from policies.plan.release import plan
from support.studies import tiny_study

STUDY = tiny_study()


def test_it_is_the_largest_round_with_everybody_in_it():
    """By hand: counts, then heads and encoder, then heads and metrics, of three silos and their sums."""
    model = MAX_MODEL + 8 * (most_values(STUDY))
    rounds = []
    for releases in plan(STUDY).rounds:
        sealed = [ring_of(one.ring).content_size(sealed_values(one.values, 3)) for one in releases]
        tensors = len(releases)
        notes = (BASE_BYTES + 2048 * 3) + (BASE_BYTES + 2048 * 3 * tensors) + tensors * (BASE_BYTES + 256 * 3)
        rounds.append(4 * sum(sealed) + 3 * notes + 2 * MAX_NOTE + model)
    assert most_bytes(STUDY) == max(rounds)


def most_values(study):
    """What a shared model of the tiny study holds: its encoder's weights, and two heads with a bias."""
    encoder = 2 * 3 + 3 + 3 * 2 + 2
    return encoder + 2 * (2 + 1)


def test_more_silos_and_more_weights_take_more():
    silos = [f"silo-{number}" for number in range(64)]
    many = tiny_study(silos=silos, min_silos=34)
    wide = tiny_study(model={"hidden": [300]})
    assert (
        most_bytes(STUDY)
        < most_bytes(wide)
        < most_bytes(tiny_study(silos=silos, min_silos=34, model={"hidden": [300]}))
    )
    assert most_bytes(many) > 64 * 3 * BASE_BYTES


def test_a_study_that_does_not_fit_is_refused_with_what_it_takes():
    needed = most_bytes(STUDY)
    require_room(STUDY, needed)
    with pytest.raises(
        LittleRoomError, match=r"a round of tiny takes up to 0\.03 GB .* and 0\.0\d GB are free; make room"
    ):
        require_room(STUDY, needed - 1)
