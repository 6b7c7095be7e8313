"""One caller's lines are few, and another's are not fewer for it."""

from __future__ import annotations

from coordinator.door import sparing
from coordinator.door.sparing import LINES, SPAN_SECONDS, Sparing


def test_a_caller_has_some_lines_in_each_span():
    now = [0.0]
    spare = Sparing(clock=lambda: now[0])
    assert [spare.allows("silo/a") for _ in range(100)].count(True) == LINES
    assert spare.allows("silo/b")
    now[0] = SPAN_SECONDS
    assert [spare.allows("silo/a") for _ in range(100)].count(True) == LINES


def test_few_callers_are_remembered(monkeypatch):
    monkeypatch.setattr(sparing, "_MOST", 3)
    spare = Sparing()
    for number in range(20):
        assert spare.allows(f"silo/{number}")
        assert len(spare._spans) <= 3
