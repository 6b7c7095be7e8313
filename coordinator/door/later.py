"""Answers that come later. A call that waits for one holds no thread.

A service that has nothing to say yet returns `Later` in place of its answer. The door (`guard`) asks it again when its
bell rings, and for the last time when the call has waited long enough or the coordinator stops.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

from coordinator.bells import Bells

Ask = Callable[[bool], Any]
"""Return the answer, or None if there is none yet. With True the waiting is over, and there must be one."""


@dataclass(frozen=True)
class Later:
    """What a call waits for."""

    bells: Bells
    name: str
    """Whose bell it is."""
    seconds: float
    """How long the call waits at most."""
    ask: Ask

    def through(self, call: Callable[[Callable[[], Any]], Any]) -> Self:
        """Return the same, whose answers are made by way of `call`."""
        return replace(self, ask=lambda last: call(lambda: self.ask(last)))
