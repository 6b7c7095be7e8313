"""The silo's side of a round: the coordinator's requests, this silo's answers, its keys, and how far it has come.

`silo_agent.core` decides whose turn it is. `silo_agent.gate` decides what may leave. `silo_agent.learning` computes.
"""

__all__ = [
    "attempt",
    "calls",
    "catching_up",
    "journal",
    "ledgers",
    "mail",
    "membership",
    "recounting",
    "session",
    "tasks",
]
