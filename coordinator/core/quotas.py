"""How much one certificate may take of a coordinator. Pure.

The numbers stand in `coordinator.yaml`. They hold for authors and operators alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from coordinator.errors import CoordinatorError

_GIGA = 1e9


class QuotaError(CoordinatorError):
    """One more study is too much for this certificate. The message says the number and the limit."""


class QuotaLimits(Protocol):
    """What `quotas` in `coordinator.yaml` says."""

    open_studies: int
    created_a_day: int
    actions_a_day: int
    polls_a_day: int
    gigabytes: float


@dataclass(frozen=True)
class Usage:
    """What a person has taken of the coordinator already."""

    open_studies: int
    """Studies of this person that are not over."""
    created: int
    """Studies that this person created within the last 24 hours."""
    bytes: int
    """The room on the spool's disk that one round of each open study takes, in all."""


def require_within(limits: QuotaLimits, taken: Usage, more_bytes: int) -> None:
    """Raise `QuotaError`, with all reasons, if one more study, whose rounds take `more_bytes`, is too much."""
    wanted = (taken.bytes + more_bytes) / _GIGA
    faults = []
    if taken.open_studies >= limits.open_studies:
        faults.append(
            f"{taken.open_studies} studies of this certificate are open, and quotas.open_studies is"
            f" {limits.open_studies}: wait until one ends, or abort one"
        )
    if taken.created >= limits.created_a_day:
        faults.append(
            f"this certificate created {taken.created} studies within 24 hours, and quotas.created_a_day is"
            f" {limits.created_a_day}: wait"
        )
    if wanted > limits.gigabytes:
        faults.append(
            f"rounds of this certificate's open studies and of this one take {wanted:.2f} GB of the spool, and"
            f" quotas.gigabytes is {limits.gigabytes:g}"
        )
    if faults:
        raise QuotaError("; ".join(faults))


def require_calm(limits: QuotaLimits, actions: int) -> None:
    """Raise `QuotaError` if one more action is too much for a day in which a person has done so many already.

    Each action is an entry of the audit log for good, so pausing and resuming without end would fill the disk.
    """
    if actions >= limits.actions_a_day:
        msg = (
            f"this certificate did {actions} actions within 24 hours, and quotas.actions_a_day is"
            f" {limits.actions_a_day}: wait; an abort is always possible"
        )
        raise QuotaError(msg)
