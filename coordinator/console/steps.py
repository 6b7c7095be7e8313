"""A round as people see it: five steps in place of the phases of the protocol. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from coordinator.core.state import Phase
from protos.status import PhaseTime, StudyStatus

STEPS: Final[Mapping[str, tuple[str, frozenset[Phase]]]] = {
    "Offer": (
        "Silos say whether they take part, and agree on keys.",
        frozenset(
            {
                Phase.OFFER,
                Phase.WAIT,
                Phase.VOID,
                Phase.GREET,
                Phase.DEAL,
                Phase.TAKE,
                Phase.SHARE,
                Phase.CATCH_UP,
                Phase.JUDGE,
            }
        ),
    ),
    "Train": (
        "Silos compute, noise and seal, and upload.",
        frozenset({Phase.EXCHANGE, Phase.CHECK, Phase.EXAMINE, Phase.GATHER}),
    ),
    "Sum": ("Sealed uploads are added unread.", frozenset({Phase.ADD, Phase.SIGN, Phase.REVEAL})),
    "Open": ("Silos open the sum, and nothing else.", frozenset({Phase.OPEN, Phase.RECOUNT})),
    "Solve": ("Silos solve the heads, and take the model over.", frozenset({Phase.SOLVE, Phase.ADOPT})),
}
Stand = Literal["done", "now", ""]


@dataclass(frozen=True)
class RoundStep:
    """One step of the current attempt, and how long it has taken so far in ended phases."""

    name: str
    means: str
    stand: Stand
    seconds: float


def step_of(phase: str) -> str:
    """Return the step that a phase belongs to; empty for none."""
    return next((name for name, (_, phases) in STEPS.items() if phase in phases), "")


def steps_of(status: StudyStatus) -> list[RoundStep]:
    """Return the five steps of a study's current attempt."""
    names = list(STEPS)
    now = step_of(status.phase) if status.state in ("running", "paused", "waiting") else ""
    spent: defaultdict[str, float] = defaultdict(float)
    for one in status.times:
        if (one.round, one.attempt) == (status.round, status.attempt):
            spent[step_of(one.phase)] += one.seconds
    place = names.index(now) if now else len(names) if status.state == "finished" else -1
    return [
        RoundStep(name, means, "now" if name == now else "done" if number < place else "", spent[name])
        for number, (name, (means, _)) in enumerate(STEPS.items())
    ]


def seconds_of_rounds(times: Iterable[PhaseTime]) -> dict[int, float]:
    """Return the seconds in ended phases by round, repeated attempts included."""
    found: defaultdict[int, float] = defaultdict(float)
    for one in times:
        found[one.round] += one.seconds
    return dict(sorted(found.items()))
