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

from coordinator.describing import SHORT
from coordinator.storage.spool import Spool
from protos.status import StudyStatus

_PREFIX: Final = "fedward_coordinator_"


class CurrentFigures(Collector):
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
        members, waiting, elapsed, left, used, free, errors = families()
        now = self._now()
        for one in self._studies():
            study = one.study[:SHORT]
            for member in one.members:
                members.add_metric([study, member.silo, member.state.replace(" ", "_")], 1)
            for silo in one.waiting_for:
                waiting.add_metric([study, silo], 1)
            if one.phase:
                elapsed.add_metric([study, one.phase], max(0.0, now - one.since))
                if one.until:
                    left.add_metric([study, one.phase], one.until - now)
        # Whoever writes there next says what is wrong with the disk.
        with suppress(OSError):
            used.add_metric([], self._spool.used)
        with suppress(OSError):
            free.add_metric([], self._spool.free)
        for kind, count in self._errors.items():
            errors.add_metric([kind], count)
        yield from (members, waiting, elapsed, left, used, free, errors)


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
            f"{_PREFIX}member_state",
            "1 for each silo of a study under way, with its state as in `study status`: active, invited, busy, no_data,"
            " away, aside, lost, left.",
            labels=["study", "silo", "state"],
        ),
        GaugeMetricFamily(
            f"{_PREFIX}waiting_for",
            "1 for each silo that a study waits for now.",
            labels=["study", "silo"],
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
        GaugeMetricFamily(f"{_PREFIX}spool_bytes", "Bytes of sealed uploads and sums in the spool."),
        GaugeMetricFamily(f"{_PREFIX}spool_free_bytes", "Bytes that are free on the spool's disk."),
        CounterMetricFamily(
            f"{_PREFIX}database_errors",
            "Errors of the database: short (it cannot be used now), damaged (it does not hold what was stored).",
            labels=["kind"],
        ),
    )
