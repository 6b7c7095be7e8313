"""How many studies ask this silo, by what becomes of them, and the room on its disk: for the hospital's monitor.

Guarantees: only numbers of studies, no name and no reason. They are read from the state folder at most once in
`FRESH_SECONDS`, however often somebody scrapes; what cannot be read leaves its own metric out, and no other. A scrape
does not wait for a state that somebody has locked: it gives the figures of before.
"""

from __future__ import annotations

import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from time import monotonic
from typing import Final, Literal, get_args

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from silo_agent.storage.approvals import Approval, approvals
from silo_agent.storage.errors import StateError
from silo_agent.storage.offered import WAITS, Offered, offered, verdict_of, waiting
from silo_agent.storage.state import State

FRESH_SECONDS: Final = 10.0
PATIENCE_SECONDS: Final = 1.0
"""How long a scrape waits for new figures."""
StudyVerdict = Literal["waiting", "no_data", "refused", "declined", "undecided", "allowed"]


def verdict(one: Offered, decided: Approval | None) -> StudyVerdict:
    """What becomes of a study that asked, or that has begun. `decided`: what people decided about it, if they did.

    It is `waiting` for a person, has `no_data` although a person let it use some, is `refused` by the policy or
    `declined` by a person, `undecided` until the next offer, or `allowed`.
    """
    if decided is not None and decided.data is None:
        return "declined"
    if one.said:
        if decided is None and waiting([one], ()):
            return "waiting"
        return "no_data" if {label for label, _ in one.said} == {WAITS} else "refused"
    return "undecided" if decided is None and one.said is None else "allowed"


class AskingFigures(Collector):
    """The figures of one silo's state folder."""

    def __init__(self, state: State, clock: Callable[[], float] = monotonic) -> None:
        self._state, self._clock = state, clock
        self._read = -FRESH_SECONDS
        self._known: tuple[Metric, ...] = families()
        self._looking: threading.Thread | None = None

    def describe(self) -> Sequence[Metric]:
        """Every family that `collect` may return, without figures."""
        return families()

    def collect(self) -> Iterator[Metric]:
        """Every family with its figures."""
        looks = self._looking is not None and self._looking.is_alive()
        if not looks and self._clock() - self._read >= FRESH_SECONDS:
            self._read = self._clock()
            self._looking = threading.Thread(target=self._look, name="figures", daemon=True)
            self._looking.start()
            self._looking.join(PATIENCE_SECONDS)
        yield from self._known

    def _look(self) -> None:
        self._known = self._figures()

    def _figures(self) -> tuple[Metric, ...]:
        asking, free = families()
        with suppress(StateError, OSError):  # `fedward_silo_short` and the log say what is wrong
            found = Counter(self._verdicts())
            for one in get_args(StudyVerdict):
                asking.add_metric([one], found[one])
        with suppress(OSError):
            free.add_metric([], shutil.disk_usage(self._state.files.path).free)
        return asking, free

    def _verdicts(self) -> Iterator[StudyVerdict]:
        files, known = self._state.files, self._state.studies()
        decided = approvals(files).bound
        begun = {digest for digest, *_ in known}
        running = [Offered("", digest, "", said=verdict_of(files, digest)) for digest, _, why in known if not why]
        asking = [one for one in offered(files) if one.digest not in begun]
        for one in (*running, *asking):
            yield verdict(one, decided.get(one.digest))


def families() -> tuple[GaugeMetricFamily, GaugeMetricFamily]:
    """The families, in the order of docs/metrics.md, empty."""
    return (
        GaugeMetricFamily(
            "fedward_silo_studies_asking",
            "Studies that asked and are not over, by what becomes of them: waiting (for a person), no_data, refused,"
            " declined, undecided, allowed.",
            labels=["verdict"],
        ),
        GaugeMetricFamily("fedward_silo_state_free_bytes", "Bytes that are free on the disk of the state folder."),
    )
