"""Spans of rounds: ids that nobody has to tell another, public words, and no waiting for a collector."""

from __future__ import annotations

import socket
import sys

import pytest

from protos.messages import Place
from protos.tracing import NO_SPANS, Spans, ids_of
from support.collector import Collector

PLACE = Place("ab" * 32, 2, 1)


def test_a_coordinator_and_a_silo_make_one_trace_without_a_word_between_them():
    with Collector() as collector:
        hub, north = (
            Spans(collector.url, "fedward-coordinator", "hub", print),
            Spans(collector.url + "/", "fedward-silo", "north"),
        )
        hub.part(PLACE, "gather", 100.0, 103.5, "heads")
        hub.attempt(PLACE, 90.0, 120.0, "committed")
        with pytest.raises(ZeroDivisionError), north.during(PLACE, "contribute", "heads"):
            raise ZeroDivisionError
        hub.close()
        north.close()
        spans = {one.name: one for one in collector.until(lambda found: len(found) == 3)}
    trace, root = ids_of(PLACE)
    where = {"fedward.study": "ab" * 6, "fedward.round": 2, "fedward.attempt": 1}
    assert {one.trace for one in spans.values()} == {trace}
    assert (spans["attempt"].span, spans["attempt"].parent, spans["attempt"].seconds) == (root, 0, 30.0)
    assert spans["attempt"].said == {**where, "fedward.outcome": "committed"}
    assert spans["gather"].said == spans["contribute"].said == {**where, "fedward.tensor": "heads"}
    assert (spans["gather"].parent, spans["gather"].seconds) == (root, 3.5)
    assert (spans["contribute"].service, spans["contribute"].instance) == ("fedward-silo", "north")
    assert (spans["gather"].service, spans["gather"].instance) == ("fedward-coordinator", "hub")
    assert len({one.span for one in spans.values()}) == 3


def test_ids_differ_for_each_attempt():
    places = [PLACE, Place("ab" * 32, 2, 2), Place("ab" * 32, 1, 1), Place("cd" * 32, 2, 1)]
    assert len({one for place in places for one in ids_of(place)}) == 2 * len(places)
    trace, root = ids_of(PLACE)
    assert 0 < trace < 1 << 128
    assert 0 < root < 1 << 64


def test_nobody_waits_for_a_collector_that_does_not_answer():
    told = []
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        spans = Spans(f"http://127.0.0.1:{silent.getsockname()[1]}", "fedward-silo", "north", told.append)
        for _ in range(5000):
            spans.part(PLACE, "share", 0.0, 1.0)
    spans.close()
    assert told, "why spans cannot be sent is told"


def test_without_an_address_nothing_is_loaded_and_without_the_extra_there_is_a_sentence(monkeypatch):
    with NO_SPANS.during(PLACE, "share"):
        NO_SPANS.attempt(PLACE, 0.0, 1.0, "aborted")
    NO_SPANS.close()
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    monkeypatch.delitem(sys.modules, "protos.span_sending", raising=False)
    with pytest.raises(OSError, match=r"needs the extra `tracing` .* is not installed\): pip install"):
        Spans("http://127.0.0.1:4318", "fedward-silo", "north")
