"""Which of FedWard's YAML files a document is, from its fields' names.

A study that is handed to a command for policies has thirty wrong fields, and "remove it" thirty times would destroy it.
So a file of another kind is named, and nothing else is said of it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

POLICY: Final = "a policy"
STUDY: Final = "a study"
AGENT: Final = "an agent's configuration (agent.yaml)"
COORDINATOR: Final = "a coordinator's configuration (coordinator.yaml)"
OPERATOR: Final = "an operator's configuration (operator.yaml)"
_AT_LEAST: Final = 2
MARKS: Final = (
    (POLICY, frozenset({"budget", "colluders", "data_set", "encoder_sealing", "noise_modes"})),
    (STUDY, frozenset({"data", "encoder", "heads", "model", "privacy", "purpose", "silos"})),
    (AGENT, frozenset({"coordinator", "policy", "state"})),
    (COORDINATOR, frozenset({"authority", "host", "metrics_port", "port"})),
    (OPERATOR, frozenset({"authority", "certificate", "coordinator", "key"})),
)
"""Fields that tell a kind, if two of them are there. The first kind that fits counts."""


def kind_of(fields: Collection[object]) -> str | None:
    """The kind of a document with these fields; None if they tell none."""
    return next((kind for kind, marks in MARKS if len(marks & set(fields)) >= _AT_LEAST), None)
