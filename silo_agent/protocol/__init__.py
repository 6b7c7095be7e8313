"""The silo's side of a round: what is asked of it, what it answers, and its keys and place in between.

Whose turn it is stands in `silo_agent.core`; what may leave is the gate's; what is computed is `learning`'s.
"""

__all__ = ["attempt", "catching_up", "client", "cosigning", "journal", "session", "tasks", "witnessing"]
