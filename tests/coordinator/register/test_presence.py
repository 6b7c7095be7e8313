"""Which silos have called: noted at once, stored now and then, known again after a restart."""

from __future__ import annotations

import pytest

from coordinator.metrics import CoordinatorMetrics
from coordinator.register import presence
from coordinator.register.presence import Presence
from support.clocks import Clock
from support.databases import store_in


@pytest.fixture
def made(tmp_path, monkeypatch):
    """The parts of one, and what makes it again as after a restart."""
    monkeypatch.setattr(presence.time, "monotonic", lambda: made.steady)
    made = type("Made", (), {"steady": 1000.0, "clock": Clock(), "store": store_in(tmp_path)})()
    made.again = lambda: Presence(made.store, CoordinatorMetrics(), made.clock)
    return made


def test_a_call_is_noted_at_once_and_stored_with_the_first_turn(made):
    one = made.again()
    one.called("north")
    assert one.heard == {"north": made.clock()}
    assert one._metrics.last_seen.labels("north")._value.get() == made.clock()
    assert made.store.seen() == {}
    one.store()
    assert made.store.seen() == one.heard


def test_between_two_turns_nothing_is_stored_and_then_only_what_is_new(made, monkeypatch):
    one, stored = made.again(), []
    monkeypatch.setattr(made.store, "see", lambda called: stored.append(dict(called)))
    one.called("north")
    one.store()
    one.called("south")
    made.steady += presence.STORED_SECONDS - 1
    one.store()
    assert stored == [{"north": made.clock()}]
    made.steady += 1
    one.store()
    made.steady += presence.STORED_SECONDS
    one.store()
    assert stored == [{"north": made.clock()}, {"south": made.clock()}]


def test_what_could_not_be_stored_is_tried_again(made, monkeypatch):
    one = made.again()
    one.called("north")
    with monkeypatch.context() as patch:
        patch.setattr(made.store, "see", lambda _: (_ for _ in ()).throw(OSError("full")))
        with pytest.raises(OSError, match="full"):
            one.store()
        one.store()
    made.steady += presence.STORED_SECONDS
    one.store()
    assert made.store.seen() == one.heard


def test_a_restart_knows_what_was_stored_and_shows_it(made):
    one = made.again()
    one.called("north")
    one.store()
    after = made.again()
    assert after.heard == one.heard
    assert after._metrics.last_seen.labels("north")._value.get() == made.clock()


def test_a_silo_is_cut_off_until_it_calls_again(made):
    one = made.again()
    one.revoked(("north", "south"))
    assert one.cut_off == {"north", "south"}
    one.called("north")
    assert one.cut_off == {"south"}
