"""Spans of phases and attempts, made of what a running engine stores."""

from __future__ import annotations

import pytest

from coordinator.telemetry.round_traces import RoundTraces
from protos.messages import Place
from protos.status import PhaseTime

PLACE, NEXT = Place("ab" * 32, 1, 1), Place("ab" * 32, 1, 2)


class Kept:
    def __init__(self):
        self.parts, self.attempts = [], []

    def part(self, *given):
        self.parts.append(given)

    def attempt(self, *given):
        self.attempts.append(given)


def test_an_attempt_lasts_from_its_first_phase_to_its_outcome():
    kept, now = Kept(), [100.0]
    traces = RoundTraces(kept, lambda: now[0])
    traces.ended(PLACE, [PhaseTime(1, 1, "offer", None, 10.0)], None)
    now[0] = 130.0
    traces.ended(PLACE, [PhaseTime(1, 1, "gather", "heads", 25.0)], "committed")
    assert kept.parts == [(PLACE, "offer", 90.0, 100.0, None), (PLACE, "gather", 105.0, 130.0, "heads")]
    assert kept.attempts == [(PLACE, 90.0, 130.0, "committed")]
    traces.ended(NEXT, [], "aborted")
    assert kept.attempts[1:] == [(NEXT, 130.0, 130.0, "aborted")], "this process saw no phase of it"


@pytest.fixture
def heard(server, monkeypatch):
    found = []
    monkeypatch.setattr(server.engine, "_traced", lambda place, times, outcome: found.append((place, times, outcome)))
    return found


def test_the_engine_tells_every_phase_and_the_outcome_once(heard, scene):
    scene.play(lambda status: status.round == 1 and status.phase == "gather")
    place = Place(scene.study.digest, 0, 1)
    mine = [one for one in heard if one[0] == place]
    phases = [time_.phase for _, times, _ in mine for time_ in times]
    assert phases[0] == "offer"
    assert len([outcome for *_, outcome in mine if outcome]) == 1
    assert [outcome for *_, outcome in mine if outcome] == ["committed"]
    scene.abort("enough")
    assert [outcome for place, _, outcome in heard if place == Place(scene.study.digest, 1, 1) and outcome] == [
        "aborted"
    ]
