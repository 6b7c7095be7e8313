"""Shortages of the machine: waits that grow, one line for each, over only if nothing was short for a whole wait."""

from __future__ import annotations

import errno

import pytest
import structlog

from coordinator.metrics import CoordinatorMetrics
from coordinator.shortages import MACHINE, STEADY_SECONDS, WAITS, Shortages
from support.clocks import Clock

FULL = OSError(errno.ENOSPC, "No space left", "/spool")
FILES = OSError(errno.EMFILE, "Too many open files", "/spool")
STUDY = "5" * 64


@pytest.fixture
def clock():
    return Clock(100.0)


@pytest.fixture
def shortages(clock):
    return Shortages(CoordinatorMetrics(), clock)


def value(shortages, name, **labels):
    return shortages._metrics.registry.get_sample_value(f"fedward_coordinator_{name}", labels)


def test_what_is_no_shortage_is_not_noted(shortages):
    assert shortages.note(ValueError("wrong")) is None
    assert shortages.standing(STUDY) is None
    assert value(shortages, "short") == 0


def test_waits_grow_once_for_each_wait_that_passes(shortages, clock):
    with structlog.testing.capture_logs() as said:
        for wait in (*WAITS, WAITS[-1]):
            for _ in range(3):  # many calls fail at once
                shortages.note(FULL)
            clock.now += wait - 0.01
            assert shortages.due() == []
            clock.now += 0.01
            assert shortages.due() == [MACHINE]
    lines = [line for line in said if line["event"] == "the machine is short"]
    assert [line["again_in"] for line in lines] == [*WAITS, WAITS[-1]]
    assert all(("/spool" in line["why"], line["lack"]) == (True, "disk") for line in lines)
    assert value(shortages, "shortages_total", lack="disk") == 1


def test_a_shortage_that_is_noted_within_a_wait_begins_the_wait_again(shortages, clock):
    shortages.note(FULL)
    clock.now += WAITS[0] / 2
    shortages.note(FILES)
    clock.now += WAITS[0] / 2
    assert shortages.due() == []
    assert shortages.standing(STUDY).lack == "files", "the latest is told"
    clock.now += WAITS[0] / 2
    assert shortages.due() == [MACHINE]


def test_over_and_back(shortages, clock):
    shortages.note(FULL)
    clock.now += WAITS[0]
    shortages.note(FULL)
    shortages.over()
    assert (shortages.standing(STUDY), shortages.due(), value(shortages, "short")) == (None, [], 0)
    shortages.over()
    clock.now += STEADY_SECONDS
    shortages.note(FULL)
    clock.now += WAITS[2] - 0.01
    assert shortages.due() == [], "it goes on with the wait that it had"
    clock.now += 0.01
    assert shortages.due() == [MACHINE]
    shortages.over()
    clock.now += STEADY_SECONDS + 1
    shortages.note(FULL)
    clock.now += WAITS[0]
    assert shortages.due() == [MACHINE], "after a long time it begins anew"
    assert value(shortages, "shortages_total", lack="disk") == 3


def test_a_study_has_its_own(shortages, clock):
    shortages.note(FULL, STUDY)
    assert shortages.standing("6" * 64) is None
    assert shortages.standing(STUDY).lack == "disk"
    shortages.note(FILES)
    assert shortages.standing("6" * 64).lack == "files"
    assert value(shortages, "short") == 2
    shortages.over()
    assert shortages.standing(STUDY).lack == "disk"
    clock.now += WAITS[0]
    assert shortages.due() == [STUDY]
    shortages.over(STUDY)
    assert shortages.standing(STUDY) is None
