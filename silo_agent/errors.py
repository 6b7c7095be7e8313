"""The root of the agent's errors. Each package defines its own kinds, and all of them derive from this one.

Guarantees: everything that `silo_agent` raises on purpose is a `SiloError`, and its text says what to do about it. Two
exceptions are not errors and do not derive from it. `protocol.calls.client.AskedToStop` means that the operator stopped
the agent. `data.errors.Unfit` is turned into a `DataError` by the reader. `agent` decides what may be said about an
error outside the hospital.
"""

from __future__ import annotations


class SiloError(Exception):
    """Base of the tree."""
