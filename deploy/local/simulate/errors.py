"""What a simulation raises on purpose. Its text says what to do about it."""

from __future__ import annotations


class SimulationError(Exception):
    """The simulation cannot be run as it was asked for."""
