"""Figures of this moment, taken at each scrape: who is waited for, until when, what the spool takes.

Guarantees: labels are bounded, since only studies under way have any, and a study's are gone once it is over. A scrape
waits for no lock of the engine, so it also answers while the engine is held up. What cannot be read leaves its own
metric out, and no other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from coordinator.describing import NO_DATA, SHORT
from coordinator.storage.spool import Spool
from protos.status import StudyStatus

_PREFIX: Final = "fedward_coordinator_"


class Current(Collector):
    """The figures of one coordinator while it is the active one."""

    def __init__(
        self,
        studies: Callable[[], Sequence[StudyStatus]],
        now: Callable[[], float],
        spool: Spool,
        errors: Mapping[str, int],
    ) -> None:
        """`studies` returns those under way, without waiting; `errors` counts the database's by their kind."""
        self._studies, self._now, self._spool, self._errors = studies, now, spool, errors

    def describe(self) -> Sequence[Metric]:
        """Every family that `collect` may return, without figures."""
        return families()

    def collect(self) -> Iterator[Metric]:
        """Every family with the figures of this moment."""
        waiting, elapsed, left, dataless, used, free, errors = families()
        now = self._now()
        for one in self._studies():
            study = one.study[:SHORT]
            states = {member.silo: member.state for member in one.members}
            for silo in one.waiting_for:
                waiting.add_metric([study, silo, states.get(silo, "").replace(" ", "_")], 1)
            dataless.add_metric([study], sum(state == NO_DATA for state in states.values()))
            if one.phase:
                elapsed.add_metric([study, one.phase], max(0.0, now - one.since))
                if one.until:
                    left.add_metric([study, one.phase], one.until - now)
        with suppress(OSError):  # whoever writes there next says what is wrong with the disk
            used.add_metric([], self._spool.used)
            free.add_metric([], self._spool.free)
        for kind, count in self._errors.items():
            errors.add_metric([kind], count)
        yield from (waiting, elapsed, left, dataless, used, free, errors)


def families() -> tuple[
    GaugeMetricFamily,
    GaugeMetricFamily,
    GaugeMetricFamily,
    GaugeMetricFamily,
    GaugeMetricFamily,
    GaugeMetricFamily,
    CounterMetricFamily,
]:
    """The families, in the order of docs/metrics.md, empty."""
    return (
        GaugeMetricFamily(
            f"{_PREFIX}waiting_for",
            "1 for each silo that a study waits for now, with what is known of the silo, as in `study status`.",
            labels=["study", "silo", "state"],
        ),
        GaugeMetricFamily(
            f"{_PREFIX}phase_elapsed_seconds",
            "Seconds since the current phase of a study began.",
            labels=["study", "phase"],
        ),
        GaugeMetricFamily(
            f"{_PREFIX}phase_left_seconds",
            "Seconds until the current phase of a study waits no more; absent if nothing ends it.",
            labels=["study", "phase"],
        ),
        GaugeMetricFamily(
            f"{_PREFIX}silos_without_data",
            "Silos of a study that call, and have no data for it yet.",
            labels=["study"],
        ),
        GaugeMetricFamily(f"{_PREFIX}spool_bytes", "Bytes of sealed uploads and sums in the spool."),
        GaugeMetricFamily(f"{_PREFIX}spool_free_bytes", "Bytes that are free on the spool's disk."),
        CounterMetricFamily(
            f"{_PREFIX}database_errors",
            "Errors of the database: short (it cannot be used now), damaged (it does not hold what was stored).",
            labels=["kind"],
        ),
    )
