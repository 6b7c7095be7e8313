"""Where the seeds of a simulation are computed: in this process, in others beside it, or on a cluster.

Every worker imports this room before anything else of the simulation, so what is left out here is loaded by none.
"""

from silo_agent.learning.light_imports import load_lean

__all__ = ["cluster", "processes", "task"]

load_lean()
