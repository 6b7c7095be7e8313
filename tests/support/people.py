"""People who ask a coordinator without the wire: an operator, the desk that takes it, and entries of the audit log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coordinator.config import Quotas
from coordinator.core.rights import Action, Deed
from coordinator.people.desk import Desk
from crypto.pki.identity import Identity, Role
from protos.audit import AuditEntry

if TYPE_CHECKING:
    from coordinator.engine import Engine
    from protos.status import StudyStatus

OPS = Identity(Role.OPERATOR, "ops")


def ops(action: Action | str, reason: str = "", silo: str = "", *, who: Identity = OPS) -> Deed:
    """What an operator does."""
    return Deed(who, Action(action), reason, silo)


def desk_of(engine: Engine, **limits: float) -> Desk:
    """The desk of an engine."""
    return Desk(engine, engine._store, Quotas(**limits), engine.now)


def audit_entry(action: str = "create", who: str = OPS.uri, **changes: object) -> AuditEntry:
    """An entry of the audit log, which gets its number when it is stored."""
    fields = {"study": "", "name": "", "silo": "", "reason": "", "outcome": "done", "why": ""}
    return AuditEntry(0, "2026-01-02T03:04:05.000006+00:00", who, "", action, **{**fields, **changes})


def status_of(engine: Engine, name: str) -> StudyStatus:
    """The status of the study with this name."""
    return desk_of(engine).status(name, OPS)
