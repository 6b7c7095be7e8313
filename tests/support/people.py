"""People who ask a coordinator without the wire: an operator, the desk that takes it, and entries of the audit log."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from coordinator.config import Quotas
from coordinator.core.rights import Action, Deed
from coordinator.people.desk import Desk
from crypto.authorship import sign_study
from crypto.pki.certificates import Credential
from crypto.pki.identity import Identity, Role
from policies.documents.study import Study
from protos import codec
from protos.audit import AuditEntry
from protos.messages import AuthorSignature
from protos.v1 import operator_pb2
from support.certificates import Authority, load

if TYPE_CHECKING:
    from coordinator.engine import Engine
    from protos.status import StudyStatus

OPS = Identity(Role.OPERATOR, "ops")


@cache
def author_in(authority: Authority) -> Credential:
    """The author of a consortium of tests."""
    return load(authority.credential("author", "ann"))


def signature(authority: Authority, study: Study) -> AuthorSignature:
    """The author's signature under a study."""
    made = sign_study(author_in(authority), study.digest, study.purpose)
    return AuthorSignature(made.certificate, made.signature)


def ops(action: Action | str, reason: str = "", silo: str = "", *, who: Identity = OPS) -> Deed:
    """What an operator does."""
    return Deed(who, Action(action), reason, silo)


def desk_of(engine: Engine, **limits: float) -> Desk:
    """The desk of an engine, at which studies count as signed."""
    return Desk(engine, engine._store, Quotas(**limits), lambda _study, _signed, _who: None, engine.now)


def audit_entry(action: str = "create", who: str = OPS.uri, **changes: object) -> AuditEntry:
    """An entry of the audit log, which gets its number when it is stored."""
    fields = {"study": "", "name": "", "silo": "", "reason": "", "outcome": "done", "why": ""}
    return AuditEntry(0, "2026-01-02T03:04:05.000006+00:00", who, "", action, **{**fields, **changes})


def status_of(engine: Engine, name: str) -> StudyStatus:
    """The status of the study with this name."""
    return desk_of(engine).status(name, OPS)


def create_request(authority: Authority, study: Study) -> operator_pb2.CreateStudyRequest:
    """What hands in a study that its author has signed."""
    return operator_pb2.CreateStudyRequest(
        canonical=study.canonical(), author=codec.to_wire(signature(authority, study))
    )
