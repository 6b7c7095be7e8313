"""Warnings about a study's newest shared model, for this hospital's people (`learning.evaluation.own_patients`).

They lie in the study's folder, are as private as the personal model, and are read by commands alone.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from silo_agent.storage.durable import write_whole

Kind = Literal["reversed", "worse"]


@dataclass(frozen=True)
class Warned:
    """One warning, on held-out patients; "reversed" also on those that trained, if few are held out.

    `domain` is None for all patients together; `own` is None unless `kind` is "worse".
    """

    kind: Kind
    domain: str | None
    patients: int
    shared: float
    own: float | None

    @property
    def brief(self) -> str:
        """What the log says, which holds no figure of patients."""
        where = "this hospital" if self.domain is None else f"{self.domain} at this hospital"
        if self.kind == "reversed":
            return f"yes and no may be swapped at {where}, or the shared model is wrong there"
        return f"{where} is served worse by the shared model than by this hospital's own records"

    @property
    def text(self) -> str:
        """The same with the figures, for this hospital's people alone."""
        own = "" if self.own is None else f", a regression of its own records {self.own:.3f}"
        which = "patients of its own" if self.kind == "reversed" else "held-out patients"
        return f"{self.brief}: on {self.patients} {which} the shared model has an AUC of {self.shared:.3f}{own}"


def keep(path: Path, round_number: int, found: tuple[Warned, ...]) -> None:
    """Write down what was found after a round, in the place of what was found before."""
    write_whole(path, json.dumps({"round": round_number, "warnings": [asdict(one) for one in found]}).encode())


def kept(path: Path) -> tuple[Warned, ...]:
    """What was found after the newest round; nothing if no round was looked at, or if the file is damaged."""
    try:
        return tuple(Warned(**one) for one in json.loads(path.read_bytes())["warnings"])
    except (OSError, ValueError, KeyError, TypeError):
        return ()
