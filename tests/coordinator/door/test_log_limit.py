"""One caller's lines are few, and another's are not fewer for it."""

from __future__ import annotations

from coordinator.door import log_limit
from coordinator.door.log_limit import LINES, SPAN_SECONDS, LogLimit


def test_a_caller_has_some_lines_in_each_span():
    now = [0.0]
    limit = LogLimit(clock=lambda: now[0])
    assert [limit.allows("silo/a") for _ in range(100)].count(True) == LINES
    assert limit.allows("silo/b")
    now[0] = SPAN_SECONDS
    assert [limit.allows("silo/a") for _ in range(100)].count(True) == LINES


def test_few_callers_are_remembered(monkeypatch):
    monkeypatch.setattr(log_limit, "_MOST", 3)
    limit = LogLimit()
    for number in range(20):
        assert limit.allows(f"silo/{number}")
        assert len(limit._spans) <= 3
