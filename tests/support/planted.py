"""What the tests of a lying coordinator have in common: five silos of which four must sign and reveal."""

from __future__ import annotations

from collections.abc import Mapping

from protos.steps import Task
from support.local_coordinator import LocalCoordinator
from support.local_silos import LocalSilo

NOT_OPENED = ("opening", "this silo does not open the sum; see its log, and begin a new attempt")
"""All that anybody hears of a sum that a silo does not open."""
FIVE = ("east", "north", "polar", "south", "west")
FOUR = ("east", "north", "south", "west")


def standing(silos: Mapping[str, LocalSilo]) -> dict[str, tuple[str, str, int]]:
    """What a refusal must not change."""
    held = {name: silo.running.standing for name, silo in silos.items()}
    return {
        name: (held[name].digest, held[name].model.digest, silo.state.committed(silo.coordinator.study.digest))
        for name, silo in silos.items()
    }


def refused(coordinator: LocalCoordinator, silo: str, task: Task, reason: str, *says: str) -> None:
    """The silo's last word disputes this task, by name."""
    said = coordinator.said(silo)
    fault, why = said.dispute, said.explanation
    if task is Task.OPEN:
        assert (fault, why) == NOT_OPENED
        fault, why = coordinator.own_words(silo)
    assert (said.task, fault) == (task, reason), said
    for words in says:
        assert words in why, why


def goes_on(coordinator: LocalCoordinator, silos: Mapping[str, LocalSilo], number: int, attempt: int) -> None:
    """After a refusal another attempt succeeds, under keys that are dealt anew."""
    coordinator.keyed = ()
    coordinator.run_round(number, attempt)
    assert len({silo.model(number).read_bytes() for silo in silos.values()}) == 1
