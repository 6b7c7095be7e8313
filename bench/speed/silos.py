"""What a study costs its coordinator as its silos grow: by its steps, and over the wire.

First without the wire: every event of a study of two rounds goes through the pure step, the store (SQLite in memory's
folder, where there is one) and the gauges, as in `coordinator.engine`. CPU time of one thread, bytes that the process
wrote. Beside it stands what storing every state whole costs, as up to version 0.6. Then a coordinator's own process,
over mutual TLS, with silos that neither learn nor seal (`silos_wire`). An exponent is that of the fitted power of the
number of silos.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

import numpy as np

from bench.speed.silos_wire import WireCost, cost_of_waiting, cost_over_the_wire
from bench.table import Criterion, judge
from coordinator.core.events import Added, Answered, Confirmed, Event, Uploaded
from coordinator.core.state import COLLECTED, CONFIRMED, RELAYED, Phase, PhaseLimits, Round
from coordinator.core.study import Life, Progress, Script, advance, create, start
from coordinator.describing import in_sentences, measure
from coordinator.lease.holding import Lease
from coordinator.metrics import CoordinatorMetrics
from coordinator.storage.database import Database
from coordinator.storage.migrating import migrate
from coordinator.storage.store import Store
from protos import record
from protos.audit import AuditEntry
from protos.messages import Answer, Confirm, Member, Part, Tensor, UploadHeader
from protos.steps import SUM, Note

SILOS: Final = (16, 32, 64, 128)
WIRE: Final = (4, 8, 16, 32, 64, 128)
ROUNDS: Final = 3
"""Of the study over the wire."""
LEAST: Final = 16
"""Silos from which on the exponents over the wire are fitted."""
OF_A_ROUND: Final = 64
MOST: Final = {"cpu": 9.0, "written": 40.0, "notes": 12.0}
"""Of a round of so many silos: seconds, MB, MB."""
OPERATOR_SECONDS: Final = 1.0
IDLE: Final = 250
"""Silos that wait."""
IDLE_SECONDS: Final = 0.2
"""Most that a heartbeat may take meanwhile."""
WANTED: Final = 1.15
STUDY: Final = "5" * 64
SHA: Final = "a" * 64
LIMITS: Final = PhaseLimits(offer=60.0, keys=60.0, train=600.0, open=60.0, solve=60.0)
CERTIFICATE: Final = b"c" * 1400
"""As long as one in PEM."""
MEMORY: Final = Path("/dev/shm")  # noqa: S108  # a folder of a name of its own is made there


@dataclass(frozen=True)
class EventCost:
    """Of one study."""

    silos: int
    events: int
    cpu: float
    """Seconds."""
    written: float
    """MB."""
    whole_cpu: float
    """Seconds that writing every state whole takes, without the database."""
    whole: float
    """MB of every state."""


def main() -> int:
    """Measure, print, judge."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--silos", type=int, nargs="*", default=SILOS)
    arguments.add_argument("--wire", type=int, nargs="*", default=WIRE)
    arguments.add_argument("--idle", type=int, nargs="*", default=[IDLE])
    asked = arguments.parse_args()
    costs = [cost_of(silos) for silos in asked.silos]
    over_wire = [cost_over_the_wire(silos) for silos in asked.wire]
    figures = []
    for one in costs:
        now = f"{one.cpu:.2f} CPU s, {one.written:.1f} MB written"
        whole = f"states whole: {one.whole_cpu:.1f} CPU s, {one.whole:.0f} MB"
        figures.append(Criterion(f"{one.silos} silos, {one.events} events", "shown", f"{now} ({whole})", met=True))
    for name in ("cpu", "written", "whole_cpu", "whole") if len(costs) > 1 else ():
        slope = exponent(costs, name)
        judged = not name.startswith("whole")
        wanted = f"<= n^{WANTED}" if judged else "shown"
        figures.append(Criterion(f"{name} grows with", wanted, f"n^{slope:.2f}", met=slope <= WANTED or not judged))
    figures += wire_figures(over_wire)
    waiting = [cost_of_waiting(silos) for silos in asked.idle]
    figures += map(idle_figure, waiting)
    return judge("silos", figures, [*map(asdict, costs), *map(asdict, over_wire), *map(asdict, waiting)])


def idle_figure(one: WireCost) -> Criterion:
    """How quickly a heartbeat is answered while silos wait."""
    seen = f"{one.heartbeat:.3f} s, operator {one.operator:.3f} s; {one.cpu:.1f} CPU s in {one.seconds:.0f} s"
    ended = one.finished and not one.faults
    fault = "" if ended else f"; {one.faults[0] if one.faults else 'some have gone'}"
    size = f"{one.threads} threads, {one.memory:.0f} MiB"
    quick = one.heartbeat < IDLE_SECONDS and ended
    return Criterion(
        f"{one.silos} idle silos: slowest heartbeat", f"< {IDLE_SECONDS} s", f"{seen}, {size}{fault}", quick
    )


def wire_figures(costs: list[WireCost]) -> list[Criterion]:
    """What is seen of each study, what is wanted of a round of 64 silos, and the exponents from `LEAST` silos on."""
    figures = [figure for one in costs for figure in _of_wire(one)]
    grown = [one for one in costs if one.silos >= LEAST]
    for name in ("cpu", "written", "notes") if len(grown) > 1 else ():
        slope = exponent(grown, name)
        what = f"{name} over the wire grows with"
        figures.append(Criterion(what, f"<= n^{WANTED}", f"n^{slope:.2f}", slope <= WANTED))
    return figures


def _of_wire(one: WireCost) -> list[Criterion]:
    spent = {name: getattr(one, name) / ROUNDS for name in MOST}
    a_round = f"a round {spent['cpu']:.1f} CPU s, {spent['written']:.0f} MB written, {spent['notes']:.1f} MB of notes"
    a_round += f", {one.fetched / ROUNDS:.0f} MB fetched"
    seen = f"{a_round}; {one.seconds:.0f} s, {one.threads} threads, {one.memory:.0f} MiB"
    ended = one.finished and not one.faults
    fault = "" if ended else f"; {one.faults[0] if one.faults else 'it did not end'}"
    waits = f"operator {one.operator:.2f} s, heartbeat {one.heartbeat:.2f} s at most"
    quick = one.operator <= OPERATOR_SECONDS
    figures = [
        Criterion(f"{one.silos} silos over the wire", "ends", seen + fault, ended),
        Criterion(f"{one.silos} silos, other calls", f"operator <= {OPERATOR_SECONDS:g} s", waits, quick),
    ]
    for name, most in MOST.items() if one.silos == OF_A_ROUND else ():
        what = f"{one.silos} silos, {name} a round"
        figures.append(Criterion(what, f"<= {most:g}", f"{spent[name]:.1f}", spent[name] <= most))
    return figures


def exponent(costs: Sequence[EventCost | WireCost], name: str) -> float:
    """Of the power of the number of silos that fits best."""
    values = [max(getattr(one, name), 1e-9) for one in costs]
    return float(np.polyfit(np.log([one.silos for one in costs]), np.log(values), 1)[0])


def cost_of(silos: int) -> EventCost:
    """Run a study without the wire, and count."""
    names = tuple(f"silo-{number:03}" for number in range(silos))
    script = Script(STUDY, "bench", names, silos - 2, 1, True, ((Tensor.COUNTS,), (Tensor.HEADS,)), LIMITS, 1)  # noqa: FBT003
    metrics, spent, whole = CoordinatorMetrics(), Clock(), Clock()
    size = events = 0
    with tempfile.TemporaryDirectory(prefix="fedward-", dir=MEMORY if MEMORY.is_dir() else None) as folder:
        database = Database.in_folder(Path(folder) / "data")
        Lease(database, "0" * 32, "bench", "0" * 32, seconds=15.0).attempt()
        migrate(database)
        store = Store(database)
        state = create(script)
        store.create(b"{}", state, AuditEntry(0, "", "", "", "create", STUDY, "bench", "", "", "done", ""))
        begun = written()
        state, _ = start(state, 1.0)
        store.save(state, [])
        while (event := next_event(state)) is not None:
            events += 1
            with spent:
                before = state
                state = in_sentences(advance(state, event, 2.0)[0])
                store.save(state, [])
                measure(metrics, [state], (before, state))
            with whole:
                size += len(record.dump(state))
        sent = written() - begun
        store.engine.dispose()
    return EventCost(silos, events, spent.seconds, sent / 1e6, whole.seconds, size / 1e6)


class Clock:
    """CPU seconds of the blocks that it is around."""

    def __init__(self) -> None:
        self.seconds, self._began = 0.0, 0.0

    def __enter__(self) -> None:
        self._began = time.process_time()

    def __exit__(self, *_: object) -> None:
        self.seconds += time.process_time() - self._began


def written() -> int:
    """Bytes that this process has written."""
    lines = Path("/proc/self/io").read_text("ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("wchar"))


def next_event(progress: Progress) -> Event | None:
    """What the study waits for next; None if it is over."""
    state = progress.round
    if progress.life is not Life.RUNNING or state is None:
        return None
    return event_of(state, next(iter(state.waiting_for), ""))


def event_of(state: Round, silo: str) -> Event:
    """What one silo does in a phase; the coordinator's own sum while it adds."""
    place, phase = state.place, state.phase
    if phase is Phase.ADD:
        return Added(Part(SUM, "", 65536, SHA))
    if phase is Phase.OFFER:
        own = sha256(silo.encode()).digest()
        member = Member(silo, CERTIFICATE, own, own * 37, own * 2)
        return Answered(silo, Answer(place, own.hex(), member=member, model=state.expected))
    if phase in CONFIRMED:
        own, holds = os.urandom(72), phase in (Phase.OPEN, Phase.ADOPT)
        signature, vouch = own if phase is Phase.SIGN else b"", own if holds else b""
        content = SHA if holds else ""
        said = Confirm(place, CONFIRMED[phase], state.tensor, "m", signature=signature, content=content, vouch=vouch)
        return Confirmed(silo, said, CERTIFICATE)
    note = COLLECTED.get(phase) or RELAYED.get(phase)
    if note is None:
        return Uploaded(UploadHeader(place, "ckks", state.tensor, silo, 9, 1000, SHA), os.urandom(64))
    tensor = state.tensor if note is Note.REVEAL else None
    return Uploaded(UploadHeader(place, note, tensor, silo, 0, 1000, SHA), os.urandom(64))


if __name__ == "__main__":
    sys.exit(main())
