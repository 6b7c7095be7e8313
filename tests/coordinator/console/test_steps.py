from __future__ import annotations

from coordinator.console.steps import STEPS, seconds_of_rounds, step_of, steps_of
from coordinator.core.state import OVER, Phase
from protos.messages import Tensor
from protos.status import PhaseTime, StudyStatus


def status(phase="gather", state="running", **changes):
    fields = {"round": 2, "rounds": 4, "attempt": 1, "tensor": None, "waiting_for": (), "members": ()}
    return StudyStatus("d" * 64, "ward", state, "", phase=phase, **{**fields, **changes})


def test_every_phase_of_a_round_is_in_one_step():
    places = [phase for _, phases in STEPS.values() for phase in phases]
    assert sorted(places) == sorted(set(Phase) - OVER)
    assert [step_of(phase) for phase in ("offer", "gather", "add", "open", "adopt", "committed", "")] == [
        "Offer", "Train", "Sum", "Open", "Solve", "", "",
    ]  # fmt: skip


def test_what_is_before_the_step_is_done_and_what_comes_after_is_not():
    assert [(step.name, step.stand) for step in steps_of(status())] == [
        ("Offer", "done"), ("Train", "now"), ("Sum", ""), ("Open", ""), ("Solve", ""),
    ]  # fmt: skip
    assert {step.stand for step in steps_of(status("committed", "finished"))} == {"done"}
    assert {step.stand for step in steps_of(status("", "created"))} == {""}
    assert {step.stand for step in steps_of(status("gather", "aborted"))} == {""}
    assert [step.stand for step in steps_of(status("gather", "paused"))][1] == "now"


def test_seconds_of_a_step_are_those_of_the_current_attempt():
    times = (
        PhaseTime(2, 1, "offer", None, 3.0),
        PhaseTime(2, 1, "deal", Tensor.HEADS, 2.0),
        PhaseTime(2, 0, "offer", None, 50.0),
        PhaseTime(1, 1, "offer", None, 70.0),
    )
    assert [step.seconds for step in steps_of(status(times=times))] == [5.0, 0.0, 0.0, 0.0, 0.0]
    assert seconds_of_rounds(times) == {1: 70.0, 2: 55.0}
