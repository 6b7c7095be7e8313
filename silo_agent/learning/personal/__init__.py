"""What stays at a hospital: its personal model, the process that trains it, and which model the hospital predicts with.

All of it reads the silo's records without noise, so it is as private as they are. The agent starts the process
(`starter`) and never listens to it.
"""

__all__ = ["adapt", "choice", "cross_validation", "model", "own_patients", "process", "starter", "unknown_domain"]
