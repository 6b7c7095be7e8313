"""Converts states of studies that earlier versions stored to today's form.

Guarantees: a study that was over stays over, with its place, so that its history and results are found. A study that
was not over is aborted with a reason: its silos agree on keys in a way that no later version speaks (docs/operating.md,
"Upgrading"). Its roster is left out, because it lacks the keys that a member has today. A round that versions up to 0.5
stored gets the number of the study's silos, of which the threshold is computed today.
"""

from __future__ import annotations

from typing import Any

from coordinator.core.state import Phase
from coordinator.core.study import OVER, Life

WHY = "an older version created the study, and its silos agree on keys differently; create it again under another name"
_KEPT = ("place", "tensors", "invited", "min_silos", "limits", "since", "refusals", "model", "why")


def upgraded(document: dict[str, Any]) -> dict[str, Any]:
    """Return a stored study's document in today's form. A document in today's form is returned unchanged."""
    script = document["script"]
    if "colluders" in script:
        return _counted(document)
    numbers = {"colluders": 0, "recovers": False}
    after = document | {"script": script | numbers, "paused_at": 0.0}
    if document["life"] not in OVER:
        after |= {"life": Life.ABORTED, "why": WHY}
    if (old := document["round"]) is not None:
        phase = Phase.COMMITTED if document["life"] == Life.FINISHED else Phase.ABORTED
        after["round"] = {name: old[name] for name in _KEPT} | numbers | {"phase": phase}
    return _counted(after)


def _counted(document: dict[str, Any]) -> dict[str, Any]:
    round_ = document["round"]
    if round_ is None or "silos" in round_:
        return document
    return document | {"round": round_ | {"silos": len(document["script"]["silos"])}}
