"""The state of studies as the operator sees it: values that the coordinator makes and the operator's commands show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from protos.bounds import MAX_SILOS, Count, Name, Names, Sentence, Text
from protos.messages import Message, Tensor

MAX_HISTORY = 20_000
"""Most phases, and most uploads, in the status of a study, so that it fits a message."""


@dataclass(frozen=True)
class MemberStatus(Message):
    """One silo of a study as the operator sees it."""

    silo: Name
    state: Name
    why: Sentence
    last_seen: float
    slow_seconds: float = 0.0
    """Seconds for which the study has waited for this silo beyond what was neutral."""
    slow_budget: float = 0.0
    """The most of these that any silo may take."""
    lost_attempts: int = 0
    """Attempts that ended at its silence, as far as they are remembered."""
    set_aside: bool = False
    """Whether it is not asked now because of them."""


@dataclass(frozen=True)
class PhaseTime(Message):
    """How long one phase of one attempt lasted."""

    round: int
    attempt: int
    phase: Name
    tensor: Tensor | None
    seconds: float


@dataclass(frozen=True)
class UploadSize(Message):
    """Bytes that one silo uploaded for one tensor or note."""

    round: int
    attempt: int
    tensor: Tensor | None
    kind: Name
    silo: Name
    bytes: int


@dataclass(frozen=True)
class StudyStatus(Message):
    """A study as the operator sees it."""

    study: Name
    name: Name
    state: Name
    why: Sentence
    round: int
    rounds: int
    attempt: int
    phase: Name
    tensor: Tensor | None
    waiting_for: Names
    members: Annotated[tuple[MemberStatus, ...], Count(0, MAX_SILOS)]
    times: Annotated[tuple[PhaseTime, ...], Count(0, MAX_HISTORY)] = ()
    """The latest phases that ended."""
    uploads: Annotated[tuple[UploadSize, ...], Count(0, MAX_HISTORY)] = ()
    """The latest uploads."""
    owner: Annotated[str, Text(128)] = ""
    """Who created it, as a URI; empty if no version noted it."""
    revision: int = 0
    """0 from a version up to 0.6."""
    archived: bool = False
    since: float = 0.0
    """When the phase began, in seconds since the epoch; 0 if there is none."""
    until: float = 0.0
    """When what the phase waits for is waited for no more; 0 if nothing ends it."""
