"""The rows of `make abuse` inside a roster: which acts there are, and when one of them cost too much."""

import pytest

from bench.attacks.hostile.member import PHASES, phase_of_confirm, phase_of_upload
from bench.attacks.hostile.roster import ROWS, _line
from bench.attacks.hostile.scene import MEMBER, SILOS, Watched
from coordinator.core.state import CONFIRMED, IN_PHASE, Phase
from protos.messages import RINGS, Confirm, Place, Tensor, UploadHeader
from protos.steps import Note, Task

PLACE = Place("0" * 64, 1, 1)


def seen(seconds, *, state="finished", left=()):
    members = {silo: "left" if silo in left else "seated" for silo in (*SILOS, MEMBER)}
    return Watched(seconds=seconds, state=state, budget=100.0, longest_round=5.0, members=members)


def test_a_member_can_be_silent_in_every_phase_in_which_a_silo_is_waited_for():
    assert {*PHASES, Phase.GATHER} == {*IN_PHASE}
    silent = {row.phase for row in ROWS if row.act == "silent"}
    assert silent >= {Phase.OFFER, Phase.GREET, Phase.DEAL, Phase.TAKE, Phase.EXCHANGE, Phase.CHECK, Phase.GATHER}
    assert silent >= {Phase.SIGN, Phase.REVEAL, Phase.OPEN, Phase.SOLVE, Phase.ADOPT}


@pytest.mark.parametrize(("phase", "task"), CONFIRMED.items())
def test_what_is_confirmed_belongs_to_the_phase_of_its_task(phase, task):
    assert phase_of_confirm(Confirm(PLACE, task, dispute="frame", explanation="x")) is phase


def test_the_end_of_a_study_belongs_to_no_phase_of_a_silo():
    assert phase_of_confirm(Confirm(PLACE, Task.FINISH)) is Phase.ADD


@pytest.mark.parametrize(
    ("kind", "tensor", "phase"),
    [(RINGS[0], Tensor.COUNTS, Phase.GATHER), (Note.GREETING, None, Phase.GREET), (Note.KEYS, None, Phase.DEAL),
     (Note.SHARES, None, Phase.EXCHANGE), (Note.REVEAL, Tensor.COUNTS, Phase.REVEAL), (Note.HEADS, None, Phase.SOLVE)],
)  # fmt: skip
def test_an_upload_belongs_to_the_phase_that_collects_it(kind, tensor, phase):
    values = 1 if kind in RINGS else 0
    assert phase_of_upload(UploadHeader(PLACE, kind, tensor, MEMBER, values, 10, "0" * 64)) is phase


def test_a_row_is_met_up_to_the_honest_time_with_the_budget_and_one_attempt():
    honest = seen(20.0)
    assert _line("x", seen(125.0), honest).met
    assert not _line("x", seen(126.0), honest).met
    assert _line("x", seen(30.0, left=(MEMBER,)), honest).met


def test_a_row_is_missed_if_an_honest_silo_is_lost_or_the_study_fails():
    assert not _line("x", seen(30.0, left=("cedar",)), seen(20.0)).met
    assert not _line("x", seen(30.0, state="failed: x"), seen(20.0)).met
